//! Log servers whose disk is full or sick. Every commit waits for them, so other workers replace them, if there are
//! any.
//!
//! A log server reports a full disk when it is asked. Its worker reports a sick disk by itself (`RegisterWorker`).

use crate::configured::Configured;
use crate::context::Context;
use crate::recovery;
use plinth_protocol::control::RegisterWorker;
use plinth_protocol::log::{GetLogStatus, LogGeneration};
use plinth_rpc::Interface;
use plinth_runtime::{Duration, Instant, probe, trace_warn};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// How often log servers are asked.
const POLL: Duration = Duration::from_millis(250);
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// A shorter lack of room is waited out, because a recovery has a cost too.
const PATIENCE: Duration = Duration::from_secs(1);
/// Returns when a log server of the epoch has had no room for a while, or its disk is sick, and a new epoch can do
/// without it.
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

/// A log server on a broken disk, if the other log servers hold the whole log. Otherwise no new epoch could begin
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
