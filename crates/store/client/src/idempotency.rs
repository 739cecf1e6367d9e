//! Automatic idempotency: finding out whether a commit happened.
//!
//! The transaction writes one more row, under a name that no other transaction has, with its versionstamp as the
//! value. When its answer is lost, the [fence](crate::commit) ensures that it can no longer happen. Then the row is
//! there if the transaction happened, and never will be if it did not.
//!
//! ```text
//! \xff\x02/idmp/<read version, u64>/<id, 16 bytes>  →  versionstamp
//! ```
//!
//! Rows are removed when the database is [`IDEMPOTENCY_KEPT`] versions on, about a day. No clock is involved: a
//! lookup at a version at which the row may be gone already ends with `commit_unknown_result`.

use crate::attempt::Outcome;
use crate::retry::BACKOFF;
use crate::source::{Cluster, CommitFlags, ReadVersionFlags};
use crate::write_log::WriteLog;
use plinth_core::client_rows::STAMP_OPERAND;
use plinth_core::system_keys::{IDEMPOTENCY_KEPT, idempotency_rows_from};
use plinth_core::{Error, Key, MutationKind, MutationRef, Result, Uid, Version};
use plinth_runtime::{planted, probe, random};
use std::rc::Rc;

/// The row that records that a transaction happened.
#[derive(Clone)]
pub(crate) struct Row {
    key: Key,
    /// The transaction's read version.
    read_version: Version,
}

/// Adds the row to the transaction's writes.
pub(crate) fn add_row(log: &mut WriteLog, read_version: Version) -> Row {
    let place = idempotency_rows_from(read_version);
    let key = Key::from([&place[..], b"/", &Uid(random::uid()).to_bytes()].concat());
    let kind = MutationKind::SetVersionstampedValue;
    log.push(MutationRef::new(kind, &key, STAMP_OPERAND), false);
    Row { key, read_version }
}

/// Looks up how the transaction with this row ended. The transaction must not be able to commit any more.
pub(crate) async fn look_up(
    cluster: &Rc<dyn Cluster>,
    row: &Row,
    flags: CommitFlags,
) -> Result<Outcome> {
    let mut backoff = BACKOFF;
    let read = ReadVersionFlags {
        priority: flags.priority,
        lock_aware: true,
        ..ReadVersionFlags::default()
    };
    loop {
        let found = match cluster.get_read_version(read).await {
            Ok(version) if version.saturating_sub(row.read_version) >= IDEMPOTENCY_KEPT => {
                probe!("client_looks_for_commit_too_late");
                return Err(Error::commit_unknown_result);
            }
            Ok(version) => cluster.get(row.key.clone(), version).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(Some(stamp))
                if !planted!(
                    "idempotency_overlooks_row",
                    "a client takes a commit of which it finds the proof for one that did not happen"
                ) =>
            {
                probe!("client_finds_commit");
                return outcome_of(&stamp).ok_or(Error::commit_unknown_result);
            }
            Ok(_) => {
                probe!("client_finds_no_commit");
                return Err(Error::not_committed);
            }
            Err(error) if error.is_retryable() => backoff.wait().await,
            Err(_) => return Err(Error::commit_unknown_result),
        }
    }
}

/// `version: u64 | order: u16`, big-endian.
fn outcome_of(stamp: &[u8]) -> Option<Outcome> {
    let version = i64::from_be_bytes(stamp.get(..8)?.try_into().ok()?);
    let order = u16::from_be_bytes(stamp.get(8..10)?.try_into().ok()?);
    Some(Outcome::Committed { version, order })
}
