//! Gateways that have gone, and nodes whose time is over (FDBKeeper §4.3).
//!
//! Each gateway changes its own row every [`crate::BEAT_MS`]. Every gateway reads the rows of the others, and times by
//! its own monotonic clock how long a row stays the same. No wall clock is compared with another, so clocks may show
//! any time; their speed may differ by [`DRIFT`]. The gateway with the smallest id among those that live ends the
//! sessions of those that do not. If two believe that they are the one, the store refuses one of two equal
//! transactions.
//!
//! A gateway that cannot commit answers what its clients ask for [`crate::HOLD_MS`] more ([`crate::contact`]). A
//! session ends when its gateway's row has been the same for that time and the session's time-out together. So no
//! session ends before its client has been silent for its time-out. Nobody counts time in which he could not commit
//! himself.

use crate::contact::hold;
use crate::life::{Life, address_in};
use crate::replica::Replica;
use crate::tree::execute::{Operation, Owner};
use crate::tree::plan::Known;
use crate::tree::quota::Counted;
use crate::wire::Text;
use crate::writes::{Outcome, code_of};
use crate::{BEAT_MS, ISOLATION_MS, REAP_MS, quotas};
use plinth_core::Result;
use plinth_runtime::readiness::Work;
use plinth_runtime::{
    Duration, Instant, TaskGroup, join_all, now, planted, probe, sleep, trace, trace_warn,
    unix_time_ms,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The speed of two monotonic clocks differs by less than this part: each is right to 1000 ppm.
pub const DRIFT: f64 = 0.002;
/// Shortest pause between two looks.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(10);
/// Proofs that are under way at the same time.
const PROOFS_AT_ONCE: usize = 8;
/// How often it is read again which sessions a gateway has left.
const SESSIONS_LOOK: Duration = Duration::from_secs(1);
/// Nodes that are looked at at the same time. Those whose time is over share transactions.
const REAPED_AT_ONCE: usize = 100;
/// How often the gateway that cleans up looks for quotas that are not counted.
const UNCOUNTED_LOOK: Duration = Duration::from_secs(1);

struct Seen {
    row: Vec<u8>,
    /// When the row was first seen like this, and later by the time that does not count.
    since: Instant,
    /// The trace has that the gateway is silent.
    is_told: bool,
    /// When to look at its sessions again.
    look_at: Instant,
}

/// What this gateway has seen of the others.
#[derive(Default)]
struct Others {
    seen: BTreeMap<u64, Seen>,
    /// Time that did not count, at the last look.
    uncounted: Duration,
    under_way: Rc<UnderWay>,
    proving: TaskGroup,
}

/// What was decided and is not written yet.
#[derive(Default)]
struct UnderWay {
    /// Ends of sessions.
    ends: RefCell<BTreeSet<i64>>,
    /// Removals of gateways.
    removals: RefCell<BTreeSet<u64>>,
    /// Proofs that this gateway could commit.
    proofs: Cell<usize>,
    /// Something could not be proved: what is over is to be looked at again.
    has_failed: Cell<bool>,
}

/// A session of a gateway that has gone, which is over if the gateway that looks can commit.
struct Over {
    gateway: u64,
    /// The gateway's row, and how long it has been the same.
    lease: Vec<u8>,
    silent: Duration,
    session: i64,
    timeout: Duration,
}

impl Others {
    /// Notes the rows of all gateways, when so much time has not counted.
    fn look(&mut self, rows: Vec<(u64, Vec<u8>)>, at: Instant, uncounted: Duration) {
        let more = uncounted - std::mem::replace(&mut self.uncounted, uncounted);
        let mut before = std::mem::take(&mut self.seen);
        for (gateway, row) in rows {
            let seen = match before.remove(&gateway) {
                Some(seen) if seen.row == row => Seen {
                    since: (seen.since + more).min(at),
                    ..seen
                },
                _ => Seen {
                    row,
                    since: at,
                    is_told: false,
                    look_at: at,
                },
            };
            self.seen.insert(gateway, seen);
        }
    }
}

/// How long the row of a gateway must have been the same when a session of it ends.
fn patience(timeout: Duration) -> Duration {
    let is_early = planted!(
        "keeper_session_ends_early",
        "sessions of a gateway that has gone end a beat early"
    );
    let early = Duration::from_millis(if is_early { BEAT_MS.get() } else { 0 });
    (timeout + hold()).mul_f64(1.0 + DRIFT) - early
}

/// Looks after the sessions of gateways that have gone.
pub async fn watch_others(life: &Rc<Life>) {
    let mut others = Others::default();
    let beat = Duration::from_millis(BEAT_MS.get());
    let mut pause = beat;
    loop {
        sleep(pause).await;
        pause = match look(life, &mut others).await {
            Ok(next) => next.clamp(LOOK_PAUSE_MIN, beat),
            Err(error) => {
                let _ = life.pipeline.refreshed().await;
                probe!("keeper_look_failed");
                if !error.is_retryable() {
                    trace_warn!("KeeperLookFailed", "error" => error);
                }
                beat
            }
        };
    }
}

/// Returns when the next session is due, if that is soon.
async fn look(life: &Rc<Life>, others: &mut Others) -> Result<Duration> {
    // Rows are read at the replica's version, so it must be a new one.
    let asked = now();
    let is_new = life.pipeline.refreshed().await.is_ok();
    let began = now();
    let rows = life.replica.leases().await?;
    if is_new {
        let mut readiness = life.readiness.borrow_mut();
        readiness.probed(Work::ReadVersion, asked, began);
        readiness.probed(Work::Read, began, now());
    }
    life.totals.set(life.replica.totals().await?);
    others.look(rows, began, life.contact.uncounted());
    // Longer than two beats of a gateway without sessions.
    let is_alive = |seen: &Seen| began - seen.since <= 2 * hold();
    let first = others.seen.iter().find(|(_, seen)| is_alive(seen));
    let is_first = first.is_some_and(|(gateway, _)| *gateway == life.id);
    life.is_first.set(is_first);
    let mut next = Duration::MAX;
    if !is_first || !life.contact.is_in_touch() {
        return Ok(next);
    }
    let (under_way, mut over) = (others.under_way.clone(), Vec::new());
    let is_again = under_way.has_failed.take();
    let gone = others.seen.iter_mut().filter(|(_, seen)| !is_alive(seen));
    for (gateway, seen) in gone {
        if !std::mem::replace(&mut seen.is_told, true) {
            let address = address_in(&seen.row);
            trace!("KeeperGatewaySilent", "gateway" => gateway, "address" => address, "by" => life.id);
        }
        if seen.look_at <= began || is_again {
            let left = clean_up(life, *gateway, seen, began, &under_way, &mut over).await?;
            seen.look_at = began + left.min(SESSIONS_LOOK);
        }
        next = next.min(seen.look_at - began);
    }
    if !over.is_empty() {
        match under_way.proofs.get() < PROOFS_AT_ONCE {
            true => end_all(life, over, began, others),
            false => under_way.has_failed.set(true),
        }
    }
    Ok(next)
}

/// Adds to `over` what is over of a gateway that has gone. Nothing is waited for here but what is read: rows are timed
/// meanwhile. Returns when the next session is due.
async fn clean_up(
    life: &Rc<Life>,
    gateway: u64,
    seen: &Seen,
    began: Instant,
    under_way: &Rc<UnderWay>,
    over: &mut Vec<Over>,
) -> Result<Duration> {
    let silent = began - seen.since;
    // It would end its own sessions, whose clients it hears.
    assert!(
        gateway != life.id && silent > hold(),
        "gateway {} cleans up after {gateway}, which is silent for {silent:?}",
        life.id
    );
    let sessions = life.replica.owned_by(gateway).await?;
    // It may be about to open one; then it begins another life.
    if sessions.is_empty() && silent > 2 * Duration::from_millis(ISOLATION_MS.get()) {
        remove(life, gateway, &seen.row, under_way);
    }
    let mut next = Duration::MAX;
    for (session, timeout_ms) in sessions {
        let timeout = Duration::from_millis(u64::from(timeout_ms));
        let left = (patience(timeout) + life.contact.margin()).saturating_sub(silent);
        if !left.is_zero() {
            next = next.min(left);
        } else if !under_way.ends.borrow().contains(&session) {
            over.push(Over {
                gateway,
                lease: seen.row.clone(),
                silent,
                session,
                timeout,
            });
        }
    }
    Ok(next)
}

/// Ends the lease of a gateway that has gone, and has no sessions.
fn remove(life: &Rc<Life>, gateway: u64, lease: &[u8], under_way: &Rc<UnderWay>) {
    if !under_way.removals.borrow_mut().insert(gateway) {
        return;
    }
    let operation = Operation::RemoveGateway {
        gateway,
        lease: lease.to_vec(),
        found: None,
        has_sessions: true,
    };
    let (under_way, by) = (under_way.clone(), life.id);
    let done = move |_: &Replica, outcome: Outcome, _: Vec<_>| {
        under_way.removals.borrow_mut().remove(&gateway);
        if code_of(&outcome).is_none() {
            trace!("KeeperGatewayRemoved", "gateway" => gateway, "by" => by);
        }
    };
    life.pipeline.submit(operation, Box::new(done));
}

/// Ends sessions, if it can be proved that this gateway could commit until it began to look. That may take long, and
/// other sessions may be over meanwhile.
fn end_all(life: &Rc<Life>, over: Vec<Over>, began: Instant, others: &Others) {
    let (life, under_way) = (life.clone(), others.under_way.clone());
    let sessions = over.iter().map(|over| over.session);
    under_way.ends.borrow_mut().extend(sessions);
    under_way.proofs.set(under_way.proofs.get() + 1);
    let uncounted = others.uncounted;
    others.proving.spawn("keeper proof", async move {
        let is_proved = could_commit(&life, began, uncounted).await;
        under_way.proofs.set(under_way.proofs.get() - 1);
        for over in over {
            // That beat may have taken long.
            let is_over = over.silent >= patience(over.timeout) + life.contact.margin();
            match is_proved && is_over {
                true => end(&life, over, &under_way),
                false => {
                    under_way.has_failed.set(true);
                    under_way.ends.borrow_mut().remove(&over.session);
                }
            }
        }
    });
}

/// True if it is proved that this gateway could commit until it began to look, when so much time had not counted:
/// until then clients could go elsewhere.
async fn could_commit(life: &Rc<Life>, began: Instant, uncounted: Duration) -> bool {
    let is_proved = life.prove().await;
    if !is_proved || life.contact.uncounted() > uncounted {
        probe!("keeper_time_does_not_count");
        return false;
    }
    assert!(
        life.contact.proved() >= began,
        "a beat that was sent later has landed"
    );
    true
}

/// Ends a session of a gateway that has gone. All that are over share transactions, and nothing waits for them here.
fn end(life: &Rc<Life>, over: Over, under_way: &Rc<UnderWay>) {
    let Over {
        gateway,
        lease,
        session,
        ..
    } = over;
    let operation = Operation::CloseSession {
        session,
        owner: Owner::Gone { gateway, lease },
        found: Default::default(),
    };
    let (under_way, by, clients) = (under_way.clone(), life.id, life.clients.clone());
    let done = move |_: &Replica, outcome: Outcome, _: Vec<_>| {
        under_way.ends.borrow_mut().remove(&session);
        if code_of(&outcome).is_none() {
            probe!("keeper_session_of_gone_gateway_ends");
            clients.log_end(session);
            let session = format!("{session:#x}");
            trace!("KeeperSessionExpires", "gateway" => gateway, "session" => session, "by" => by);
        }
    };
    life.pipeline.submit(operation, Box::new(done));
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
    for some in life.replica.timed().await?.chunks(REAPED_AT_ONCE) {
        let reaping = join_all(some.iter().map(|path| reap_one(life, path)));
        reaping.await.into_iter().collect::<Result<()>>()?;
    }
    Ok(())
}

async fn reap_one(life: &Rc<Life>, path: &Text) -> Result<()> {
    life.replica.load(path).await?;
    if let Known::Here(node) = life.replica.node_if_known(path)
        && node.may_be_reaped(unix_time_ms() as i64)
    {
        let path = path.clone();
        life.pipeline.run(Operation::Reap { path }).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::real;

    #[test]
    fn a_row_is_timed_from_when_it_was_first_seen_without_the_time_that_does_not_count() {
        real::block_on(async {
            let start = now();
            let at = |s| start + Duration::from_secs(s);
            let rows = |a: u8, b: u8| vec![(1, vec![a]), (2, vec![b])];
            let mut others = Others::default();
            let since = |others: &Others, gateway| others.seen[&gateway].since;
            let none = Duration::ZERO;
            others.look(rows(1, 1), at(0), none);
            others.look(rows(1, 2), at(1), none);
            others.look(rows(1, 3), at(2), none);
            assert_eq!((since(&others, 1), since(&others, 2)), (at(0), at(2)));
            others.look(rows(1, 3), at(12), Duration::from_secs(9));
            assert_eq!((since(&others, 1), since(&others, 2)), (at(9), at(11)));
            others.look(rows(1, 3), at(13), Duration::from_secs(12));
            assert_eq!((since(&others, 1), since(&others, 2)), (at(12), at(13)));
            others.look(vec![(2, vec![3])], at(14), Duration::from_secs(12));
            assert_eq!(others.seen.len(), 1);
        });
    }
}
