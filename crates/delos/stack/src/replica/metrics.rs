//! The numbers of a replica: for a page of metrics, and for who watches it.

use super::messages::{EngineLoad, Load};
use crate::engines::log_backup::BackupState;
use crate::log::SharedLog;
use crate::stack::Application;
use crate::stacks::Standard;
use plinth_core::Result;
use plinth_runtime::metric;
use plinth_runtime::metric::page::Samples;

metric! {
    REPLICA: Gauge = "plinth_delos_replica",
        "1 if the replica serves, 0 if it waits; with the names of its service, its kind and itself";
    APPLIED: Gauge = "plinth_delos_applied_position", "the last entry of the log that the replica has applied";
    FLUSHED: Gauge = "plinth_delos_flushed_position", "the last entry whose rows are on its disk";
    TAIL: Gauge = "plinth_delos_tail_position", "the last entry of the log that it knows of";
    TRIMMED: Gauge = "plinth_delos_trimmed_position",
        "the entries before this one may go from the log, as far as it is concerned";
    UNFLUSHED: Gauge = "plinth_delos_unflushed_bytes", "bytes of rows that wait for the next flush";
    LOGLETS: Gauge = "plinth_delos_loglets",
        "parts of the log; each change of its sequencer or log servers is one more";
    LOGLET_FIRST: Gauge = "plinth_delos_loglet_first_position",
        "the first entry of the part that takes the entries now";
    IN_VIEW: Gauge = "plinth_delos_replicas_in_view", "replicas for which the log is kept";
    LEASE: Gauge = "plinth_delos_lease_held", "1 if the replica has the lease, 0 if another one or nobody has it";
    ENGINE_ON: Gauge = "plinth_delos_engine_on", "1 if the engine is on";
    PROPOSALS: Counter = "plinth_delos_proposals_total", "proposals that came down to an engine";
    SYNCS: Counter = "plinth_delos_syncs_total", "syncs, which come before reads, that came down to an engine";
    PROPOSE_SECONDS: Histogram = "plinth_delos_propose_seconds",
        "time of a proposal through an engine and all that is below it; one in sixteen is measured";
    SYNC_SECONDS: Histogram = "plinth_delos_sync_seconds",
        "time of a sync through an engine and all that is below it; one in sixteen is measured";
    APPLY_SECONDS: Histogram = "plinth_delos_apply_seconds",
        "time to apply an entry of the log; one in sixteen is measured";
    BACKUP_SESSION: Gauge = "plinth_delos_backup_session", "position at which the backup has begun, while it is on";
    BACKUP_POSITION: Gauge = "plinth_delos_backup_position", "the last entry that is in the backup";
    BACKUP_BEHIND: Gauge = "plinth_delos_backup_behind", "applied entries that are not in the backup yet";
    BACKUP_FAILS: Gauge = "plinth_delos_backup_fails", "1 if the replica cannot do its part of the backup now";
}

/// Adds who the replica is: its service, its kind and its name.
pub fn add_identity(out: &mut Samples, [service, kind, replica]: [String; 3], serves: bool) {
    let labels = [("service", service), ("kind", kind), ("replica", replica)];
    out.add(&REPLICA, &labels, f64::from(u8::from(serves)));
}

fn add_backup(out: &mut Samples, state: &BackupState, applied: u64) {
    if state.place.is_empty() {
        return;
    }
    let last = state.next.saturating_sub(1);
    out.add(&BACKUP_SESSION, &[], state.session as f64);
    out.add(&BACKUP_POSITION, &[], last as f64);
    out.add(&BACKUP_BEHIND, &[], applied.saturating_sub(last) as f64);
    let fails = !state.problem.is_empty();
    out.add(&BACKUP_FAILS, &[], f64::from(u8::from(fails)));
}

/// Adds what a stack knows.
///
/// # Errors
/// The disk fails.
pub fn add_stack<L: SharedLog + 'static, D: Application>(
    out: &mut Samples,
    stack: &Standard<L, D>,
    id: u64,
) -> Result<()> {
    let store = stack.store();
    out.add(&APPLIED, &[], store.applied() as f64);
    out.add(&FLUSHED, &[], store.flushed() as f64);
    out.add(&UNFLUSHED, &[], store.unflushed_bytes() as f64);
    out.add(&TAIL, &[], stack.base.tail() as f64);
    out.add(&TRIMMED, &[], stack.base.trimmed() as f64);
    out.add(&IN_VIEW, &[], stack.views.replicas().len() as f64);
    let has_lease = stack.lease.holder()? == Some(id);
    out.add(&LEASE, &[], f64::from(u8::from(has_lease)));
    for (engine, on) in stack.switches()? {
        let label = [("engine", engine.name.to_string())];
        out.add(&ENGINE_ON, &label, f64::from(u8::from(on)));
    }
    for of in stack.measured() {
        let label = ("engine", of.below.to_string());
        let labels = std::slice::from_ref(&label);
        out.add(&PROPOSALS, labels, of.proposals.asked() as f64);
        out.add(&SYNCS, labels, of.syncs.asked() as f64);
        out.add_histogram(&PROPOSE_SECONDS, label.clone(), &of.proposals.timed());
        out.add_histogram(&SYNC_SECONDS, label, &of.syncs.timed());
    }
    let label = ("engine", "base".to_string());
    out.add_histogram(&APPLY_SECONDS, label, &stack.base.applies().timed());
    if let Some(state) = stack.backup.backup()? {
        add_backup(out, &state, store.applied());
    }
    Ok(())
}

/// Adds what is known of the log's parts.
pub fn add_log(out: &mut Samples, parts: &[(u64, bytes::Bytes)]) {
    out.add(&LOGLETS, &[], parts.len() as f64);
    if let Some((first, _)) = parts.last() {
        out.add(&LOGLET_FIRST, &[], *first as f64);
    }
}

/// What a stack has done since it started.
///
/// # Errors
/// The disk fails.
pub fn load<L: SharedLog + 'static, D: Application>(stack: &Standard<L, D>) -> Result<Load> {
    let store = stack.store();
    let backup = stack.backup.backup()?.filter(|of| !of.place.is_empty());
    let engines = stack.measured().map(|of| EngineLoad {
        name: of.below.into(),
        proposals: of.proposals.asked(),
        syncs: of.syncs.asked(),
        times: of.proposals.timed().buckets.to_vec(),
    });
    Ok(Load {
        waits_for: String::new(),
        applied: store.applied(),
        flushed: store.flushed(),
        tail: stack.base.tail(),
        trimmed: stack.base.trimmed(),
        backup: backup.map(|of| of.next.saturating_sub(1)),
        engines: engines.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::ENGINES;

    fn dashboard() -> &'static str {
        include_str!("../../../../../docs/monitoring/delos.json")
    }

    #[test]
    fn the_dashboard_asks_for_nothing_that_there_is_not() {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let words = dashboard().split(|c| !is_name(c));
        let mut asked = 0;
        for word in words.filter(|word| word.starts_with("plinth_delos_")) {
            let family = word.trim_end_matches("_bucket");
            let mut known = metric::families().into_iter();
            assert!(known.any(|known| known.name == family), "{word}");
            asked += 1;
        }
        assert!(asked > 10);
    }

    #[test]
    fn the_dashboard_shows_every_engine_in_the_order_of_the_stack() {
        let places = ENGINES.map(|engine| {
            let asked = format!(
                "plinth_delos_propose_seconds_bucket{{engine=\\\"{}\\\"}}",
                engine.name
            );
            dashboard()
                .find(&asked)
                .unwrap_or_else(|| panic!("{asked}"))
        });
        assert!(places.is_sorted(), "{places:?}");
    }
}
