//! Gateways that have gone, and nodes whose time is over (FDBKeeper §4.3).
//!
//! Each gateway changes its own row once a second. Every gateway reads the rows of the others, and times by its own
//! monotonic clock how long a row stays the same. No wall clock is compared with another, so clocks may show any time;
//! their speed may differ by [`DRIFT`]. The gateway with the smallest id among those that live ends the sessions of
//! those that do not. If two believe that they are the one, the store refuses one of two equal transactions.
//!
//! A gateway that cannot commit talks to its clients for [`crate::ISOLATION_MS`] more, then disconnects them. A
//! session ends when its gateway's row has been the same for that time, the session's time-out and two beats together.
//! So no session ends before its client has been silent for its time-out.

use crate::life::{Life, address_in};
use crate::tree::execute::{Operation, Owner};
use crate::tree::plan::Known;
use crate::tree::quota::Counted;
use crate::writes::{Outcome, code_of};
use crate::{BEAT_MS, ISOLATION_MS, REAP_MS, quotas};
use plinth_core::Result;
use plinth_runtime::{Duration, Instant, now, probe, sleep, trace, trace_warn, unix_time_ms};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The speed of two monotonic clocks differs by less than this part.
pub const DRIFT: f64 = 0.05;
/// A gateway whose row has not changed for so many beats does not take part in the choice of who cleans up.
const BEATS_TO_LIVE: u32 = 3;
/// How often the gateway that cleans up looks for quotas that are not counted.
const UNCOUNTED_LOOK: Duration = Duration::from_secs(1);

struct Seen {
    row: Vec<u8>,
    /// When the row was first seen like this.
    since: Instant,
    /// The trace has that the gateway is silent.
    is_told: bool,
}

/// What this gateway has seen of the others.
#[derive(Default)]
struct Others {
    seen: BTreeMap<u64, Seen>,
    looked: Option<Instant>,
}

impl Others {
    /// Notes the rows of all gateways.
    fn look(&mut self, rows: Vec<(u64, Vec<u8>)>, at: Instant, beat: Duration) {
        // While this gateway could not read, the others may not have been able to write: time begins anew.
        let has_gap = self
            .looked
            .is_none_or(|looked| at - looked > BEATS_TO_LIVE * beat);
        self.looked = Some(at);
        let mut before = std::mem::take(&mut self.seen);
        for (gateway, row) in rows {
            let seen = match before.remove(&gateway) {
                Some(seen) if seen.row == row && !has_gap => seen,
                _ => Seen {
                    row,
                    since: at,
                    is_told: false,
                },
            };
            self.seen.insert(gateway, seen);
        }
    }
}

/// Looks after the sessions of gateways that have gone.
pub async fn watch_others(life: &Rc<Life>) {
    let mut others = Others::default();
    loop {
        let beat = Duration::from_millis(BEAT_MS.get());
        sleep(beat).await;
        if let Err(error) = look(life, &mut others, beat).await {
            let _ = life.pipeline.refreshed().await;
            probe!("keeper_look_failed");
            if !error.is_retryable() {
                trace_warn!("KeeperLookFailed", "error" => error);
            }
        }
    }
}

async fn look(life: &Rc<Life>, others: &mut Others, beat: Duration) -> Result<()> {
    // Rows are read at the replica's version, so it must be a new one.
    let _ = life.pipeline.refreshed().await;
    let began = now();
    let rows = life.replica.leases().await?;
    life.totals.set(life.replica.totals().await?);
    others.look(rows, began, beat);
    let is_alive = |seen: &Seen| began - seen.since <= BEATS_TO_LIVE * beat;
    let first = others.seen.iter().find(|(_, seen)| is_alive(seen));
    let is_first = first.is_some_and(|(gateway, _)| *gateway == life.id);
    life.is_first.set(is_first);
    if !is_first {
        return Ok(());
    }
    let gone = others.seen.iter_mut().filter(|(_, seen)| !is_alive(seen));
    for (gateway, seen) in gone {
        if !std::mem::replace(&mut seen.is_told, true) {
            let address = address_in(&seen.row);
            trace!("KeeperGatewaySilent", "gateway" => gateway, "address" => address, "by" => life.id);
        }
        clean_up(life, *gateway, &seen.row, began - seen.since, beat).await?;
    }
    Ok(())
}

/// Ends what is over of a gateway whose row has been the same for `silent`.
async fn clean_up(
    life: &Life,
    gateway: u64,
    lease: &[u8],
    silent: Duration,
    beat: Duration,
) -> Result<()> {
    // It would end its own sessions, whose clients it hears.
    assert!(
        gateway != life.id && silent > BEATS_TO_LIVE * beat,
        "gateway {} cleans up after {gateway}, which is silent for {silent:?}",
        life.id
    );
    let sessions = life.replica.owned_by(gateway).await?;
    let isolation = Duration::from_millis(ISOLATION_MS.get());
    if sessions.is_empty() {
        // It may be about to open one; then it begins another life.
        if silent > 2 * isolation {
            let operation = Operation::RemoveGateway {
                gateway,
                lease: lease.to_vec(),
                found: None,
                has_sessions: true,
            };
            life.pipeline.run(operation).await;
            trace!("KeeperGatewayRemoved", "gateway" => gateway, "by" => life.id);
        }
        return Ok(());
    }
    for (session, timeout_ms) in sessions {
        let timeout = Duration::from_millis(u64::from(timeout_ms));
        if silent < timeout.mul_f64(1.0 + DRIFT) + isolation + 2 * beat {
            continue;
        }
        let operation = Operation::CloseSession {
            session,
            owner: Owner::Gone {
                gateway,
                lease: lease.to_vec(),
            },
            found: Default::default(),
        };
        let outcome = life.pipeline.run(operation).await;
        if outcome
            .as_ref()
            .is_some_and(|outcome: &Outcome| code_of(outcome).is_none())
        {
            probe!("keeper_session_of_gone_gateway_ends");
            let session = format!("{session:#x}");
            trace!("KeeperSessionExpires", "gateway" => gateway, "session" => session, "by" => life.id);
        }
    }
    Ok(())
}

/// Deletes containers that are empty, and nodes whose time is over. The gateway with the smallest id looks for them.
pub async fn reap(life: &Rc<Life>) {
    loop {
        let pause = Duration::from_millis(REAP_MS.get());
        sleep(pause.mul_f64(0.5 + plinth_runtime::random::unit())).await;
        if life.is_first.get() && reap_once(life).await.is_err() {
            let _ = life.pipeline.refreshed().await;
        }
    }
}

/// Counts what there is of new quotas, if nobody else does. The gateway with the smallest id does it.
pub async fn count_quotas(life: &Rc<Life>) {
    let mut is_thorough = true;
    loop {
        sleep(UNCOUNTED_LOOK).await;
        if !life.is_first.get() {
            continue;
        }
        match count_once(life, is_thorough).await {
            Ok(()) => is_thorough = false,
            Err(_) => {
                let _ = life.pipeline.refreshed().await;
            }
        }
    }
}

async fn count_once(life: &Rc<Life>, is_thorough: bool) -> Result<()> {
    for path in quotas::uncounted(&life.replica, is_thorough).await? {
        // It ends when all is counted, or somebody else has removed the quota or counts.
        let count = || Operation::CountQuota {
            path: path.clone(),
            found: None,
        };
        while let Some(outcome) = life.pipeline.run(count()).await {
            let quotas = life.replica.quotas.borrow();
            let counted = quotas.get(&path).map(|watched| &watched.quota.counted);
            if code_of(&outcome).is_some() || counted.is_none_or(|counted| *counted == Counted::All)
            {
                break;
            }
        }
    }
    Ok(())
}

async fn reap_once(life: &Rc<Life>) -> Result<()> {
    for path in life.replica.timed().await? {
        life.replica.load(&path).await?;
        let Known::Here(node) = life.replica.node_if_known(&path) else {
            continue;
        };
        if node.may_be_reaped(unix_time_ms() as i64) {
            life.pipeline.run(Operation::Reap { path }).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::real;

    #[test]
    fn a_row_is_timed_from_when_it_was_first_seen_and_anew_after_a_gap() {
        real::block_on(async {
            let (start, beat) = (now(), Duration::from_secs(1));
            let at = |s| start + Duration::from_secs(s);
            let rows = |a: u8, b: u8| vec![(1, vec![a]), (2, vec![b])];
            let mut others = Others::default();
            let since = |others: &Others, gateway| others.seen[&gateway].since;
            others.look(rows(1, 1), at(0), beat);
            others.look(rows(1, 2), at(1), beat);
            others.look(rows(1, 3), at(2), beat);
            assert_eq!((since(&others, 1), since(&others, 2)), (at(0), at(2)));
            others.look(rows(1, 3), at(10), beat);
            assert_eq!((since(&others, 1), since(&others, 2)), (at(10), at(10)));
            others.look(vec![(2, vec![3])], at(11), beat);
            assert_eq!(others.seen.len(), 1);
        });
    }
}
