//! A plan becomes a transaction of the store.

use crate::ENTRY_BYTES;
use crate::tree::change::{Origin, put_change};
use crate::tree::locks::LockSet;
use crate::tree::plan::Plan;
use crate::tree::rows::{Lock, Rows};
use crate::tree::written::{Sink, write_rows};
use bytes::BufMut;
use plinth_client::{Stream, Transaction, TransactionOption};
use plinth_core::key::KeyRange;
use plinth_core::{MutationKind, Result};

/// Everything at once, or the locks that the plan has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The commit fails if any other gateway has changed anything since the plan's version. Then nobody's changes lie
    /// between the version and the commit, and nothing has to be read before the answers can be given. Its own changes
    /// are not listed one by one: thousands of locks a second would be for nobody.
    Alone,
    /// The commit fails if a lock was written that the plan has read, or something was changed without listing it.
    Shared,
}

/// What a plan has relied on, and what it changes.
#[derive(Clone, Copy)]
pub struct Relied<'a> {
    pub reads: &'a LockSet,
    pub writes: &'a LockSet,
}

pub struct Writer<'a> {
    pub rows: &'a Rows,
    pub stream: &'a Stream,
    pub origin: Origin,
}

impl Writer<'_> {
    /// Puts the plan's rows, conflicts and entries into `transaction`.
    pub fn write(
        &self,
        transaction: &Transaction,
        plan: &Plan<'_>,
        relied: Relied<'_>,
        mode: Mode,
    ) -> Result<()> {
        // Otherwise others would not hear of a conflict with it.
        assert!(
            plan.changes.is_empty() || !relied.writes.is_empty(),
            "batch {} changes something and locks nothing",
            self.origin.batch
        );
        // First: a read conflict leaves out what the transaction itself has written, which would have to be sorted.
        self.write_conflicts(transaction, relied, mode);
        for KeyRange { begin, end } in plan.quotas.ranges.iter().cloned() {
            transaction.add_read_conflict_range(begin, end);
        }
        if !plan.changes.is_empty() {
            self.write_lock(transaction, (Lock::Everything, self.origin.gateway));
        }
        // Whoever counts them must not overlook a change.
        let counted_soon = plan.touched.iter();
        for (path, _) in counted_soon.filter(|(path, _)| plan.quotas.is_counted_soon(path)) {
            transaction.add_write_conflict_key(self.rows.node(path));
        }
        write_rows(
            &mut Quiet(transaction),
            self.rows,
            self.origin.gateway,
            plan,
        )?;
        self.append(transaction, plan)
    }

    fn write_conflicts(&self, transaction: &Transaction, relied: Relied<'_>, mode: Mode) {
        let own = self.origin.gateway;
        match mode {
            Mode::Alone => {
                self.read_lock_of_others(transaction, Lock::Everything);
                if !relied.writes.is_empty() {
                    self.write_lock(transaction, (Lock::Unlisted, own));
                }
                // Beats are no changes: whoever relies on one, or makes them end, says so.
                let of_beats = relied.reads.iter().filter(|(lock, _)| *lock == Lock::Beat);
                for (lock, hash) in of_beats {
                    transaction.add_read_conflict_key(self.rows.lock(lock, hash));
                }
                let of_leases = relied
                    .writes
                    .iter()
                    .filter(|(lock, _)| *lock == Lock::Gateway);
                of_leases.for_each(|lock| self.write_lock(transaction, lock));
            }
            Mode::Shared => {
                self.read_lock_of_others(transaction, Lock::Unlisted);
                let reads = self.rows.locks(relied.reads.iter());
                reads.for_each(|key| transaction.add_read_conflict_key(key));
                let writes = self.rows.locks(relied.writes.iter());
                writes.for_each(|key| transaction.add_write_conflict_key(key));
            }
        }
        // Somebody who clears the tree's rows is nobody's lock.
        transaction.add_read_conflict_key(self.rows.meta());
        transaction.add_read_conflict_key(self.rows.lock(Lock::Gateway, own));
        // No later batch of this gateway has committed before it.
        let later = self.rows.later_batches(own, self.origin.batch);
        transaction.add_read_conflict_range(later.begin, later.end);
        transaction.add_write_conflict_key(self.rows.batch(own, self.origin.batch));
        self.write_lock(transaction, (Lock::Beat, own));
    }

    fn read_lock_of_others(&self, transaction: &Transaction, lock: Lock) {
        for KeyRange { begin, end } in self.rows.lock_of_others(lock, self.origin.gateway) {
            transaction.add_read_conflict_range(begin, end);
        }
    }

    fn write_lock(&self, transaction: &Transaction, (lock, hash): (Lock, u64)) {
        transaction.add_write_conflict_key(self.rows.lock(lock, hash));
    }

    fn append(&self, transaction: &Transaction, plan: &Plan<'_>) -> Result<()> {
        let mut entry = Vec::new();
        for (piece, change) in &plan.changes {
            if entry.is_empty() {
                entry = self.origin.begin_entry();
            }
            put_change(&mut entry, *piece, change);
            if entry.len() >= ENTRY_BYTES.get() {
                self.stream
                    .append_followed(transaction, std::mem::take(&mut entry))?;
            }
        }
        if !entry.is_empty() {
            self.stream.append_followed(transaction, entry)?;
        }
        Ok(())
    }
}

/// Rows of a transaction. What a row would conflict with is said by locks instead.
struct Quiet<'a>(&'a Transaction);

impl Quiet<'_> {
    fn hush(&self) -> Result<()> {
        let option = TransactionOption::NextWriteNoWriteConflictRange;
        self.0.set_option(option)
    }
}

impl Sink for Quiet<'_> {
    fn set(&mut self, key: Vec<u8>, row: (Vec<u8>, bool)) -> Result<()> {
        self.hush()?;
        let (mut value, is_stamped) = row;
        if is_stamped {
            value.put_u32_le(0); // the stamp's place
            let kind = MutationKind::SetVersionstampedValue;
            self.0.atomic_op(kind, key, value);
        } else {
            self.0.set(key, value);
        }
        Ok(())
    }

    fn clear(&mut self, key: Vec<u8>) -> Result<()> {
        self.hush()?;
        self.0.clear(key);
        Ok(())
    }

    fn clear_range(&mut self, range: KeyRange) -> Result<()> {
        self.hush()?;
        self.0.clear_range(range.begin, range.end);
        Ok(())
    }

    fn add(&mut self, key: Vec<u8>, operand: [u8; 8]) -> Result<()> {
        self.hush()?;
        self.0.atomic_op(MutationKind::Add, key, operand);
        Ok(())
    }
}
