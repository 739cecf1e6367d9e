//! Log servers whose disk is full or sick: every commit waits for them, so their place is given to others, if there are any.
//!
//! That a disk is full the log server says when it is asked; that it is sick its worker says by itself (`RegisterWorker`).

use crate::configured::Configured;
use crate::recovery::{self, Context};
use plinth_protocol::control::RegisterWorker;
use plinth_protocol::log::{GetLogStatus, LogGeneration};
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

/// Returns when a log server of the epoch has had no room for a while, or its disk is sick, and a new epoch can do without it.
pub async fn watch(context: &Context, generation: &LogGeneration, configured: &Configured) {
    let logs = &generation.logs;
    let mut full_since: BTreeMap<SocketAddr, Instant> = BTreeMap::new();
    loop {
        plinth_runtime::sleep(POLL).await;
        if let Some(log) = on_a_broken_disk(context, generation)
            && recovery::has_better_disks(context, configured)
        {
            probe!("controller_leaves_sick_disk");
            trace_warn!("LeavingSickDisk", "address" => log.address, "log" => log.id);
            return;
        }
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
                if recovery::has_better_disks(context, configured) {
                    probe!("controller_leaves_full_disk");
                    trace_warn!("LeavingFullDisk", "address" => log.address, "log" => log.id);
                    return;
                }
            }
        }
    }
}

/// A log server whose disk does not do what it is told, if those that are left have all of the log: else nothing would begin
/// without it.
fn on_a_broken_disk(context: &Context, generation: &LogGeneration) -> Option<Interface> {
    let logs = generation.logs.iter();
    let works: Vec<bool> = context.workers.with(|workers| {
        let broken = |address: SocketAddr| {
            let mut there = workers.values().filter(|w| w.worker.address == address);
            there.any(RegisterWorker::has_broken_disk)
        };
        logs.map(|log| !broken(log.address)).collect()
    });
    let place = works.iter().position(|works| !works)?;
    let others_have_all = generation.covers_every_set(&works);
    others_have_all.then(|| generation.logs[place])
}
