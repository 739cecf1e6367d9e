//! What the controller keeps up beside the epoch's own roles: its list of storage servers, the data distributor and the
//! ratekeeper. None ends the epoch when it fails; it is begun again.

use crate::configured::{self, Configured};
use crate::controller::Controller;
use crate::placement::{self, RoleKind};
use crate::{exclusion, movement, recruit};
use plinth_client::Transaction;
use plinth_core::system_keys::{NEXT_TAG, SERVER_LIST, ServerList};
use plinth_core::{DatabaseConfig, Epoch, Error, Result, Uid};
use plinth_protocol::control::{ClusterInfo, RecruitDistributor, RegisterWorker};
use plinth_protocol::rate::RecruitRatekeeper;
use plinth_rpc::{Interface, Request, wait_failure};
use plinth_runtime::knobs::knobs;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, probe, trace};
use std::rc::Rc;

/// The list is read this often even if nobody says that it has changed.
const READ_INTERVAL: Duration = Duration::from_secs(2);

/// The storage servers of the database, and the next tag.
pub async fn read_servers(transaction: &Transaction) -> Result<ServerList> {
    let next_tag = transaction.get(NEXT_TAG, false);
    let mut rows = configured::read_rows(transaction, SERVER_LIST).await?;
    let next_tag = next_tag.await?.ok_or(Error::file_corrupt)?;
    rows.push((NEXT_TAG.into(), next_tag));
    ServerList::from_rows(&rows).ok_or(Error::file_corrupt)
}

/// Tells the workers when servers come and go, and ends the epoch when it is not the one that is configured any more.
pub(crate) async fn follow_servers(
    controller: Rc<Controller>,
    epoch: Configured,
    reconfigure: Rc<Notify>,
) {
    loop {
        plinth_runtime::timeout(READ_INTERVAL, controller.servers_changed.notified()).await;
        let read = movement::run(&controller.database, async |tr| {
            let configured = Configured::read(tr).await?;
            Ok((read_servers(tr).await?, configured))
        });
        let Ok((list, configured)) = read.await else {
            continue;
        };
        if must_end_for(&epoch, &configured, &controller) {
            probe!("controller_reconfigures");
            trace!("Reconfiguring", "config" => format!("{:?}", configured.config));
            reconfigure.notify_one();
            return;
        }
        controller.context.config.set(Some(configured.config));
        // Of processes that are yet to come.
        let classes = configured.classes.clone();
        controller.context.classes.replace(classes);
        let before = controller.info.get();
        let mut info = before.clone();
        (info.servers, info.next_tag) = (list.tags(), list.next_tag);
        controller.tell(&mut info, &configured);
        if info != before {
            trace!("ConfiguredAnew", "servers" => info.servers.len(), "next_tag" => info.next_tag,
                "knobs" => format!("{:?}", info.knobs));
            controller.publish(|published| {
                *published = ClusterInfo {
                    id: published.id,
                    ..info
                }
            });
        }
    }
}

/// Another configuration asks for other roles, or a role is where none may be, or somebody is for something else.
fn must_end_for(epoch: &Configured, wanted: &Configured, controller: &Controller) -> bool {
    // The storage engine is the data distributor's business.
    let of_roles = |config: &DatabaseConfig| DatabaseConfig {
        engine: plinth_core::EngineKind::Ssd,
        ..*config
    };
    if of_roles(&epoch.config) != of_roles(&wanted.config) {
        return true;
    }
    let mut workers = controller.context.workers.get();
    if configured::give_classes(workers.values_mut(), &wanted.classes) {
        return true;
    }
    let new = |target: &&exclusion::Target| !epoch.excluded.contains(target);
    let new: Vec<exclusion::Target> = wanted.excluded.iter().filter(new).cloned().collect();
    let roles = controller.roles.borrow();
    let mut excluded = workers.values().filter(|w| exclusion::is_excluded(w, &new));
    excluded.any(|w| {
        let here = |(_, role): &crate::recovery::NamedRole| role.address == w.worker.address;
        roles.iter().any(here)
    })
}

/// Has a data distributor, always, and tells the ratekeeper who it is.
pub(crate) async fn keep_distributor(controller: Rc<Controller>, epoch: Epoch) {
    let request = |id| RecruitDistributor {
        id,
        epoch,
        controller: controller.interface,
        cluster: controller.context.coordinators.key(),
    };
    let publish = |distributor| controller.publish(|info| info.distributor = Some(distributor));
    keep(&controller, "data_distributor", request, publish).await;
}

/// Has a ratekeeper, always, and tells the GRV proxies who it is.
pub(crate) async fn keep_ratekeeper(controller: Rc<Controller>, epoch: Epoch) {
    let request = |id| RecruitRatekeeper {
        id,
        epoch,
        controller: controller.interface,
        cluster: controller.context.coordinators.key(),
    };
    let publish = |ratekeeper| controller.publish(|info| info.ratekeeper = Some(ratekeeper));
    keep(&controller, "ratekeeper", request, publish).await;
}

/// Recruits a role, waits until it ends, and recruits it again.
async fn keep<R: Request<Reply = ()> + Clone>(
    controller: &Controller,
    name: &'static str,
    request: impl Fn(Uid) -> R,
    recruited: impl Fn(Interface),
) {
    loop {
        if let Some(worker) = place(controller) {
            let id = crate::recovery::new_id();
            let transport = &controller.context.transport;
            let call = recruit::ask(transport, &worker, request(id));
            if let Some(Ok(())) = plinth_runtime::timeout(Duration::from_secs(5), call).await {
                trace!("Recruited", "role" => name, "address" => worker.address);
                let role = Interface::new(worker.address, id);
                controller.singletons.borrow_mut().insert(name, role);
                recruited(role);
                wait_failure(transport, role).await;
            }
        }
        plinth_runtime::sleep(Duration::from_millis(knobs().recovery_retry_ms)).await;
    }
}

/// The worker that suits best, and among equals the one that is not the controller's.
fn place(controller: &Controller) -> Option<Interface> {
    let own = controller.interface.address;
    let suits = |worker: &RegisterWorker| {
        let fitness = placement::fitness(worker.class(), RoleKind::Stateless)?;
        Some(((fitness, worker.worker.address == own), worker.worker))
    };
    controller.context.workers.with(|workers| {
        let best = workers.values().filter_map(suits);
        best.min_by_key(|(rank, _)| *rank).map(|(_, worker)| worker)
    })
}
