//! Log servers whose disk is full: every commit waits for them, so their place is given to others, if there are any.

use crate::placement;
use crate::recovery::Context;
use plinth_core::DatabaseConfig;
use plinth_protocol::control::RegisterWorker;
use plinth_protocol::log::GetLogStatus;
use plinth_rpc::Interface;
use plinth_runtime::{Duration, Instant, probe, trace_warn};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// How often log servers are asked.
const POLL: Duration = Duration::from_millis(250);
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// A disk that is full for less is waited out: a recovery is not for nothing either.
const PATIENCE: Duration = Duration::from_secs(1);
/// A disk that was full gets another chance after this.
const FORGET: Duration = Duration::from_secs(60);

/// Workers that said not long ago that their disk is full.
#[derive(Default)]
pub struct FullDisks(RefCell<BTreeMap<SocketAddr, Instant>>);

impl FullDisks {
    pub fn report(&self, address: SocketAddr) {
        self.0.borrow_mut().insert(address, plinth_runtime::now());
    }

    pub fn has(&self, worker: &RegisterWorker) -> bool {
        let now = plinth_runtime::now();
        let seen = self.0.borrow().get(&worker.worker.address).copied();
        seen.is_some_and(|at| now.saturating_since(at) < FORGET)
    }
}

/// Returns when a log server of the epoch has had no room for a while, and a new epoch can do without it.
pub async fn watch(context: &Context, logs: &[Interface], config: &DatabaseConfig) {
    let mut full_since: BTreeMap<SocketAddr, Instant> = BTreeMap::new();
    loop {
        plinth_runtime::sleep(POLL).await;
        let asked = logs.iter().map(|log| {
            let call = context
                .transport
                .call(&log.endpoint::<GetLogStatus>(), GetLogStatus {});
            plinth_runtime::timeout(ANSWER_LIMIT, call)
        });
        let answers = plinth_runtime::join_all(asked).await;
        let now = plinth_runtime::now();
        for (log, answer) in logs.iter().zip(answers) {
            if !matches!(answer, Some(Ok(status)) if status.disk_full) {
                full_since.remove(&log.address);
                continue;
            }
            let since = *full_since.entry(log.address).or_insert(now);
            if now.saturating_since(since) >= PATIENCE {
                context.full_disks.report(log.address);
                if can_do_without(context, config) {
                    probe!("controller_leaves_full_disk");
                    trace_warn!("LeavingFullDisk", "address" => log.address, "log" => log.id);
                    return;
                }
            }
        }
    }
}

fn can_do_without(context: &Context, config: &DatabaseConfig) -> bool {
    context.workers.with(|workers| {
        let list: Vec<&RegisterWorker> = workers.values().collect();
        placement::has_room_for_logs(&list, config, |w| context.full_disks.has(w))
    })
}
