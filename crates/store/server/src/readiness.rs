//! Finds out whether this process is ready: whether a user who came to it could work just now (pitfall 44).
//!
//! ```text
//! every 2 s  ── read version ── read \xff\x02/beat ─► has it changed? then somebody's commit went through
//! every 30 s ── commit of its own, without rows
//! ```
//!
//! A read version proves that the epoch lives, and the read that the servers of a shard answer. Neither proves that
//! commits go through: versions rise by empty batches too. That is seen by the beat of the database, one real commit a
//! second for the whole cluster, and now and then by a commit of this process, which writes nothing. So a thousand
//! idle processes cost 35 commits a second, and one costs one.
//!
//! When something is missing, it looks more often, so that a short outage ends here as soon as it ends elsewhere: no
//! recovery of three seconds makes anybody unready. A locked database is ready, and is said to be locked.

use plinth_client::{Database, Transaction, TransactionOption};
use plinth_core::system_keys::{BEAT, PROBED};
use plinth_core::version::VERSIONS_PER_SECOND;
use plinth_core::{Error, Result, Value, Version};
use plinth_runtime::readiness::{Readiness, Work};
use plinth_runtime::{
    Duration, Instant, now, planted, probe, race, random, sleep, sleep_until, timeout,
};
use std::cell::RefCell;
use std::convert::Infallible;

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// How long after a beat it looks, at random: it looks for the beat after the next, and finds it new.
const AFTER_BEAT_MS: std::ops::Range<u64> = 50..450;
/// A look that takes longer has failed. The client itself asks another server or proxy long before.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks while work of some kind has not gone through for longer than [`LATE`].
const LOOK_SOON: Duration = Duration::from_millis(500);
/// In quiet times nothing is that old after a look: the database beats every second.
const LATE: Duration = Duration::from_millis(1500);
/// Between two commits of its own.
const COMMIT_INTERVAL: Duration = Duration::from_secs(30);
/// A commit that takes longer is tried anew.
const COMMIT_LIMIT: Duration = Duration::from_secs(5);
const COMMIT_RETRY: Duration = Duration::from_millis(500);

pub const LOCKED: &str = "locked";

/// The beat as it was last seen.
struct Seen {
    /// When it was asked for: the next one was committed later.
    asked: Instant,
    version: Version,
    beat: Option<Value>,
}

/// Keeps `readiness` up to date.
pub async fn keep(database: Database, readiness: &RefCell<Readiness>) -> Infallible {
    match race(look(&database, readiness), commit(&database, readiness)).await {
        plinth_runtime::Either::Left(never) | plinth_runtime::Either::Right(never) => {
            match never {}
        }
    }
}

async fn look(database: &Database, readiness: &RefCell<Readiness>) -> Infallible {
    let mut seen: Option<Seen> = None;
    loop {
        let soon = now() + LOOK_SOON;
        let looked = timeout(LOOK_LIMIT, look_once(database, readiness, &mut seen)).await;
        let is_late = readiness.borrow().age(now()) > LATE;
        let next = match looked {
            Some(Ok(Some(beat))) if !is_late => {
                let after = Duration::from_millis(random::range(AFTER_BEAT_MS));
                beat + LOOK_INTERVAL + after
            }
            _ => soon,
        };
        sleep_until(next.max(soon)).await;
    }
}

/// Returns when the newest beat was committed, if it is a new one.
async fn look_once(
    database: &Database,
    readiness: &RefCell<Readiness>,
    seen: &mut Option<Seen>,
) -> Result<Option<Instant>> {
    let asked = now();
    let (transaction, version, remark) = begin(database).await?;
    {
        let mut readiness = readiness.borrow_mut();
        readiness.probed(Work::ReadVersion, asked, now());
        readiness.remark(remark);
        if planted!(
            "ready_without_a_commit",
            "a process takes a version that rises for a commit that went through"
        ) && seen.as_ref().is_some_and(|seen| seen.version < version)
        {
            readiness.went_through(Work::Commit, now());
        }
    }
    let reads_from = now();
    let beat = transaction.get(BEAT, true).await?;
    let mut readiness = readiness.borrow_mut();
    readiness.probed(Work::Read, reads_from, now());
    let new = match (&*seen, &beat) {
        (Some(before), Some(stamp)) if before.beat.as_ref() != Some(stamp) => {
            Some(committed_at(before.asked, asked, version, stamp))
        }
        _ => None,
    };
    if let Some(at) = new {
        readiness.went_through(Work::Commit, at);
    }
    *seen = Some(Seen {
        asked,
        version,
        beat,
    });
    Ok(new)
}

/// When a beat was committed that was not seen by a look that began at `before`, and was at this version by one that
/// began at `asked`. Versions tell how much earlier that was, if no recovery let them jump.
fn committed_at(before: Instant, asked: Instant, version: Version, stamp: &[u8]) -> Instant {
    let of_beat = stamp
        .first_chunk()
        .map_or(0, |bytes| Version::from_be_bytes(*bytes));
    let behind = version.saturating_sub(of_beat).max(0) as f64 / VERSIONS_PER_SECOND as f64;
    let behind = Duration::try_from_secs_f64(behind).unwrap_or(Duration::MAX);
    (asked - behind).max(before)
}

/// A transaction with its read version, and what there is to say about the database.
async fn begin(database: &Database) -> Result<(Transaction, Version, &'static str)> {
    let transaction = prepared(database)?;
    match transaction.get_read_version().await {
        Err(Error::database_locked) => {
            probe!("ready_though_locked");
            let transaction = prepared(database)?;
            transaction.set_option(TransactionOption::LockAware)?;
            let version = transaction.get_read_version().await?;
            Ok((transaction, version, LOCKED))
        }
        version => Ok((transaction, version?, "")),
    }
}

/// It passes every limit of the ratekeeper: probes of many processes must not take what users want. The beat waits for
/// its turn.
fn prepared(database: &Database) -> Result<Transaction> {
    let transaction = database.create_transaction();
    transaction.set_option(TransactionOption::AccessSystemKeys)?;
    transaction.set_option(TransactionOption::PrioritySystemImmediate)?;
    Ok(transaction)
}

async fn commit(database: &Database, readiness: &RefCell<Readiness>) -> Infallible {
    // Processes that begin together do not commit together.
    sleep(Duration::from_millis(random::range(
        0..COMMIT_INTERVAL.as_millis() as u64,
    )))
    .await;
    loop {
        let began = now();
        readiness.borrow_mut().commit_begins(began);
        while !matches!(
            timeout(COMMIT_LIMIT, commit_once(database)).await,
            Some(Ok(()))
        ) {
            probe!("own_commit_tried_again");
            sleep(COMMIT_RETRY).await;
        }
        readiness.borrow_mut().commit_ends(began, now());
        sleep_until(began + COMMIT_INTERVAL).await;
    }
}

/// It has no rows. Its conflict range is all that it needs to go through a commit proxy, resolvers and log servers.
async fn commit_once(database: &Database) -> Result<()> {
    let transaction = prepared(database)?;
    transaction.set_option(TransactionOption::LockAware)?;
    transaction.set_option(TransactionOption::CausalWriteRisky)?;
    transaction.add_write_conflict_key(PROBED);
    transaction.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::Versionstamp;

    #[test]
    fn a_beat_is_as_old_as_its_version_and_no_older_than_the_look_that_did_not_see_it() {
        let at = |ms: u64| Instant(5_000_000_000) + Duration::from_millis(ms);
        let committed = |behind: Version| {
            let stamp = Versionstamp::new(100_000_000 - behind, 0).0;
            committed_at(at(0), at(2000), 100_000_000, &stamp)
        };
        assert_eq!(committed(0), at(2000));
        assert_eq!(committed(700_000), at(1300));
        assert_eq!(committed(90_000_000), at(0), "versions have jumped");
        assert_eq!(committed(-500), at(2000));
    }
}
