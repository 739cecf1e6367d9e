//! What the controller keeps running beside the epoch's own roles: its list of storage servers, the data distributor
//! and the ratekeeper. A failure of one of them does not end the epoch; it is started again.

use crate::cluster::{Cluster, tell};
use crate::configured::{self, Configured};
use crate::knobs::RECOVERY_RETRY_MS;
use crate::placement::{self, RoleKind};
use crate::recovery::NamedRole;
use crate::rows::read_rows;
use crate::{exclusion, movement, recruit};
use plinth_client::Transaction;
use plinth_core::system_keys::{NEXT_TAG, SERVER_LIST, ServerList};
use plinth_core::{DatabaseConfig, Epoch, Error, Result, Uid};
use plinth_protocol::control::{ClusterInfo, RecruitDistributor, RegisterWorker};
use plinth_protocol::rate::RecruitRatekeeper;
use plinth_protocol::role::Role;
use plinth_rpc::{Interface, Request, wait_failure};
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, probe, trace};
use std::rc::Rc;

/// The list is read this often, even without a notification that it has changed.
const READ_INTERVAL: Duration = Duration::from_secs(2);

/// The storage servers of the database, and the next tag.
pub async fn read_servers(transaction: &Transaction) -> Result<ServerList> {
    let next_tag = transaction.get(NEXT_TAG, false);
    let mut rows = read_rows(transaction, SERVER_LIST).await?;
    let next_tag = next_tag.await?.ok_or(Error::file_corrupt)?;
    rows.push((NEXT_TAG.into(), next_tag));
    ServerList::from_rows(&rows).ok_or(Error::file_corrupt)
}

/// Tells the workers when servers come and go, and ends the epoch when the configuration asks for other roles.
pub(crate) async fn follow_servers(
    cluster: Rc<Cluster>,
    epoch: Configured,
    reconfigure: Rc<Notify>,
) {
    loop {
        plinth_runtime::timeout(READ_INTERVAL, cluster.servers_changed.notified()).await;
        let read = movement::run(&cluster.database, async |tr| {
            let configured = Configured::read(tr).await?;
            Ok((read_servers(tr).await?, configured))
        });
        let Ok((list, configured)) = read.await else {
            continue;
        };
        if must_end_for(&epoch, &configured, &cluster) {
            probe!("controller_reconfigures");
            trace!("Reconfiguring", "config" => format!("{:?}", configured.config));
            reconfigure.notify_one();
            return;
        }
        cluster.context.config.set(Some(configured.config));
        // For workers that register later.
        let classes = configured.classes.clone();
        cluster.context.classes.replace(classes);
        let before = cluster.info.get();
        let mut info = before.clone();
        (info.servers, info.next_tag) = (list.tags(), list.next_tag);
        tell(&mut info, &configured);
        if info != before {
            trace!("ConfiguredAnew", "servers" => info.servers.len(), "next_tag" => info.next_tag,
                "knobs" => format!("{:?}", info.knobs));
            cluster.publish(|published| {
                *published = ClusterInfo {
                    id: published.id,
                    ..info
                }
            });
        }
    }
}

/// True if the configuration asks for other roles, a role is on a newly excluded process, or the class of a process
/// has changed.
fn must_end_for(epoch: &Configured, wanted: &Configured, cluster: &Cluster) -> bool {
    // The data distributor handles a change of the storage engine.
    let of_roles = |config: &DatabaseConfig| DatabaseConfig {
        engine: plinth_core::EngineKind::Ssd,
        ..*config
    };
    if of_roles(&epoch.config) != of_roles(&wanted.config) {
        return true;
    }
    let mut workers = cluster.context.workers.get();
    if configured::give_classes(workers.values_mut(), &wanted.classes) {
        return true;
    }
    let new = |target: &&exclusion::Target| !epoch.excluded.contains(target);
    let new: Vec<exclusion::Target> = wanted.excluded.iter().filter(new).cloned().collect();
    let roles = cluster.roles.borrow();
    let mut excluded = workers.values().filter(|w| exclusion::is_excluded(w, &new));
    excluded.any(|w| {
        let here = |(_, role): &NamedRole| role.address == w.worker.address;
        roles.iter().any(here)
    })
}

/// Keeps a data distributor running, and tells the ratekeeper its interface.
pub(crate) async fn keep_distributor(cluster: Rc<Cluster>, epoch: Epoch) {
    let request = |id| RecruitDistributor {
        id,
        epoch,
        controller: cluster.interface,
        cluster: cluster.context.coordinators.key(),
    };
    let publish = |distributor| cluster.publish(|info| info.distributor = Some(distributor));
    keep(&cluster, Role::Distributor, request, publish).await;
}

/// Keeps a ratekeeper running, and tells the GRV proxies its interface.
pub(crate) async fn keep_ratekeeper(cluster: Rc<Cluster>, epoch: Epoch) {
    let request = |id| RecruitRatekeeper {
        id,
        epoch,
        controller: cluster.interface,
        cluster: cluster.context.coordinators.key(),
    };
    let publish = |ratekeeper| cluster.publish(|info| info.ratekeeper = Some(ratekeeper));
    keep(&cluster, Role::Ratekeeper, request, publish).await;
}

/// Recruits a role, waits until it ends, and recruits it again.
async fn keep<R: Request<Reply = ()> + Clone>(
    cluster: &Cluster,
    role: Role,
    request: impl Fn(Uid) -> R,
    recruited: impl Fn(Interface),
) {
    loop {
        if let Some(worker) = place(cluster) {
            let id = recruit::new_id();
            let transport = &cluster.context.transport;
            let call = recruit::ask(transport, &worker, request(id));
            if let Some(Ok(())) = plinth_runtime::timeout(Duration::from_secs(5), call).await {
                trace!("Recruited", "role" => role, "address" => worker.address);
                let interface = Interface::new(worker.address, id);
                cluster.singletons.borrow_mut().insert(role, interface);
                recruited(interface);
                wait_failure(transport, interface).await;
            }
        }
        plinth_runtime::sleep(Duration::from_millis(RECOVERY_RETRY_MS.get())).await;
    }
}

/// The most suitable worker; among equals, one that does not run the controller.
fn place(cluster: &Cluster) -> Option<Interface> {
    let own = cluster.interface.address;
    let suits = |worker: &RegisterWorker| {
        let fitness = placement::fitness(worker.class(), RoleKind::Stateless)?;
        Some(((fitness, worker.worker.address == own), worker.worker))
    };
    cluster.context.workers.with(|workers| {
        let best = workers.values().filter_map(suits);
        best.min_by_key(|(rank, _)| *rank).map(|(_, worker)| worker)
    })
}
