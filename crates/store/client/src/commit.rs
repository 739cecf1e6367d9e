//! The commit: packs what the transaction did, sends it once, and never leaves it in flight.
//!
//! When the answer is lost, the commit may have happened, may happen later, or may never happen. The second case is
//! excluded (pitfall 11) before the application gets `commit_unknown_result`: the client commits a dummy transaction
//! that writes a key which the first transaction both reads and writes. After that, the first transaction conflicts
//! if it is still on its way. So every transaction must conflict with itself on some key: on one of its own if it
//! read what it wrote, else on a key of the system keyspace that is made up for the purpose.
//!
//! ```text
//!   commit T ───✂ no answer       T reads and writes k
//!   commit dummy ───► committed   dummy writes k, at a version above T's read version
//!   T arrives late ──► conflict   k has changed since T's read version
//!   now say: commit_unknown_result
//! ```
//!
//! With [automatic idempotency](crate::idempotency) the client then looks up how the transaction ended.

use crate::attempt::{Attempt, Guarded, Interest, Outcome};
use crate::conflicts::{ConflictList, SortedConflicts};
use crate::idempotency;
use crate::retry::BACKOFF;
use crate::shared::{Drive, drive_all};
use crate::source::{
    Cluster, CommitData, CommitFlags, CommitReply, ReadVersionFlags, is_commit_unknown,
};
use crate::special;
use crate::transaction::Transaction;
use crate::write_log::WriteLog;
use plinth_core::client_rows::SELF_CONFLICT;
use plinth_core::key::KeyRange;
use plinth_core::{Error, Key, MutationBatch, Result, Uid, Version, Versionstamp};
use plinth_runtime::{buggify, probe, random};
use std::future::Future;
use std::rc::{Rc, Weak};

impl Transaction {
    /// Makes the writes happen, or fails. From this call on the transaction must not be used until it ends.
    ///
    /// It waits for every read that began before it, snapshot reads too: when the commit has ended, their results are
    /// there and stay, whatever happens to the transaction. A transaction that wrote nothing commits without a
    /// message. After an error use [`Transaction::on_error`].
    pub fn commit(&self) -> impl Future<Output = Result<()>> + use<> {
        let special = special::take_writes(self);
        let (attempt, is_second) = {
            let state = self.inner.state.borrow();
            (state.attempt.clone(), state.commit_started)
        };
        // Writes to the special keys first become reads and writes of this transaction.
        let started = special.is_empty().then(|| self.start_commit());
        let transaction = self.clone();
        async move {
            let started = match started {
                Some(started) => started,
                None => {
                    let applied = special::apply(&transaction, special);
                    let applied = Guarded::new(&attempt, applied).await;
                    applied.and_then(|()| transaction.start_commit())
                }
            };
            let result = match started {
                Ok(outstanding) => {
                    let committing = transaction.run_commit(attempt.clone(), outstanding);
                    Guarded::new(&attempt, committing).await
                }
                Err(error) => Err(error),
            };
            if !is_second {
                attempt.set_outcome(result.unwrap_or_else(Outcome::Failed));
            }
            result.map(drop)
        }
    }

    /// The stamp that this transaction's versionstamped operations get. It is known when the transaction has
    /// committed, and must be asked for before the commit.
    pub fn get_versionstamp(&self) -> impl Future<Output = Result<Versionstamp>> + use<> {
        let state = self.inner.state.borrow();
        let usable = state.check_usable();
        let interest = Interest::new(&state.attempt);
        async move {
            usable?;
            interest.versionstamp().await
        }
    }

    fn start_commit(&self) -> Result<Vec<Weak<dyn Drive>>> {
        let mut state = self.inner.state.borrow_mut();
        state.check_usable()?;
        state.commit_started = true;
        Ok(std::mem::take(&mut state.outstanding))
    }

    async fn run_commit(
        self,
        attempt: Rc<Attempt>,
        outstanding: Vec<Weak<dyn Drive>>,
    ) -> Result<Outcome> {
        drive_all(outstanding).await;
        let cluster = self.cluster();
        if let Some(error) = attempt.read_error() {
            return Err(error);
        }
        let (mut log, reads, version, options, places, trace) = {
            let mut state = self.inner.state.borrow_mut();
            let log = std::mem::take(&mut state.log);
            if log.is_empty() {
                return Ok(Outcome::ReadOnly {
                    read_version: state.read_version.known(),
                });
            }
            if log.size_bytes() > state.options.size_bytes_max {
                return Err(Error::transaction_too_large);
            }
            let reads = attempt.take_reads();
            let version = state.ask_read_version(&cluster, !reads.is_empty());
            let trace = state.trace.take();
            (log, reads, version, state.options, state.places, trace)
        };
        let version = version.get().await?;
        let row = options
            .idempotent
            .then(|| idempotency::add_row(&mut log, version));
        let flags = CommitFlags {
            // Every key was checked when it was written; the idempotency row is a system key.
            system_keys: options.write_system_keys || row.is_some(),
            lock_aware: options.lock_aware,
            priority: options.priority,
        };
        let fence = !options.causal_write_risky || row.is_some();
        let conflicts = options
            .report_conflicting_keys
            .then(|| attempt.conflicting());
        let packed = pack(log, reads, version, flags, fence, options.size_bytes_max)?;
        let data = CommitData {
            conflicts: conflicts.clone(),
            places,
            trace,
            ..packed.data
        };
        let packed = Packed {
            data,
            row,
            ..packed
        };
        let database = &self.inner.database;
        database.count_commits(|unanswered| unanswered + 1);
        let sent = send(&cluster, packed, flags).await;
        // One that has been dropped meanwhile stays unanswered.
        if !sent.as_ref().is_err_and(|error| is_commit_unknown(*error)) {
            database.count_commits(|unanswered| unanswered - 1);
        }
        if let Some(conflicts) = conflicts {
            // Made-up keys are not reported.
            let is_real = |range: &KeyRange| !range.begin.starts_with(SELF_CONFLICT);
            conflicts.borrow_mut().retain(is_real);
        }
        sent
    }
}

struct Packed {
    data: CommitData,
    /// A key that the transaction reads and writes, if it must not be left in flight.
    fence: Option<Key>,
    /// A row that exists if the transaction happened.
    row: Option<idempotency::Row>,
}

fn pack(
    log: WriteLog,
    reads: ConflictList,
    read_version: Version,
    flags: CommitFlags,
    fenced: bool,
    size_bytes_max: usize,
) -> Result<Packed> {
    let mut reads = reads.into_sorted();
    let finished = log.finish(read_version);
    let mut writes = finished.writes;
    if finished.size_bytes + reads.size_bytes() > size_bytes_max {
        return Err(Error::transaction_too_large);
    }
    let fence = fenced.then(|| self_conflict(&mut reads, &mut writes));
    debug_assert!(
        !fenced || reads.first_common_key(&writes).is_some(),
        "a transaction that is fenced conflicts with itself",
    );
    let data = CommitData {
        read_version,
        reads: reads.pack(),
        writes: writes.pack(),
        mutations: finished.mutations,
        flags,
        places: 1,
        conflicts: None,
        trace: None,
    };
    let row = None;
    Ok(Packed { data, fence, row })
}

/// A key that is both read and written. If there is none, one is made up.
fn self_conflict(reads: &mut SortedConflicts, writes: &mut SortedConflicts) -> Key {
    if let Some(key) = reads.first_common_key(writes) {
        return key;
    }
    let uid = Uid(random::uid()).to_bytes();
    let key = Key::from([SELF_CONFLICT, &uid[..]].concat());
    reads.add_sorted(key.clone());
    writes.add_sorted(key.clone());
    key
}

async fn send(cluster: &Rc<dyn Cluster>, packed: Packed, flags: CommitFlags) -> Result<Outcome> {
    let mut result = cluster.commit(packed.data).await;
    if buggify!(0.05) && result.is_ok() {
        // The answer is lost on its way.
        result = Err(Error::request_maybe_delivered);
    }
    match result {
        Ok(CommitReply { version, order }) => Ok(Outcome::Committed { version, order }),
        Err(error) if is_commit_unknown(error) => {
            probe!("client_commit_fenced_off");
            if let Some(key) = packed.fence {
                commit_dummy(cluster, key, flags).await?;
            }
            match packed.row {
                Some(row) => idempotency::look_up(cluster, &row, flags).await,
                None => Err(Error::commit_unknown_result),
            }
        }
        Err(error) => Err(error),
    }
}

/// Commits a transaction whose only effect is a conflict with every older one that reads `key`.
async fn commit_dummy(cluster: &Rc<dyn Cluster>, key: Key, flags: CommitFlags) -> Result<()> {
    let flags = CommitFlags {
        system_keys: true,
        lock_aware: true,
        ..flags
    };
    let mut ranges = ConflictList::default();
    ranges.add_key(key);
    let packed = ranges.into_sorted().pack();
    let mut backoff = BACKOFF;
    loop {
        let read = ReadVersionFlags {
            priority: flags.priority,
            lock_aware: true,
            causal_read_risky: true,
            ..ReadVersionFlags::default()
        };
        let result = match cluster.get_read_version(read).await {
            Ok(read_version) => {
                let data = CommitData {
                    read_version,
                    reads: packed.clone(),
                    writes: packed.clone(),
                    mutations: MutationBatch::default(),
                    flags,
                    places: 1,
                    conflicts: None,
                    trace: None,
                };
                cluster.commit(data).await
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(_) => return Ok(()),
            // The dummy may commit more than once. What counts is that it surely has committed once.
            Err(error) if error.is_retryable() || is_commit_unknown(error) => {
                probe!("client_dummy_tried_again");
                backoff.wait().await;
            }
            // Its right has ended meanwhile, so nobody finds out what has become of the first one.
            Err(Error::permission_denied) => return Err(Error::commit_unknown_result_fatal),
            Err(error) => return Err(error),
        }
    }
}
