//! A plan becomes a transaction of the store.

use crate::tree::change::{Origin, put_change};
use crate::tree::locks::LockSet;
use crate::tree::node::{Counts, Data, Lifetime, Node, pzxid_row};
use crate::tree::plan::{Plan, SessionChange};
use crate::tree::quota::QuotaChange;
use crate::tree::rows::{Lock, PIECE_BYTES, Rows};
use crate::tree::totals::Totals;
use crate::tree::touched::Touched;
use bytes::BufMut;
use plinth_client::{Stream, Transaction, TransactionOption};
use plinth_core::key::KeyRange;
use plinth_core::{MutationKind, Result};

/// An entry of the stream that has reached this size takes no more changes.
const ENTRY_BYTES: usize = 60_000;

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
        // First: a read conflict leaves out what the transaction itself has written, which would have to be sorted.
        self.write_conflicts(transaction, relied, mode);
        for KeyRange { begin, end } in plan.quotas.ranges.iter().cloned() {
            transaction.add_read_conflict_range(begin, end);
        }
        if !plan.changes.is_empty() {
            self.write_lock(transaction, (Lock::Everything, self.origin.gateway));
        }
        let mut totals = Totals::default();
        for (path, touched) in plan.touched.iter() {
            self.write_node(transaction, path, touched)?;
            totals.add_change(path, touched.before.as_deref(), touched.after.as_ref());
            if plan.quotas.is_counted_soon(path) {
                // Whoever counts must not overlook it.
                transaction.add_write_conflict_key(self.rows.node(path));
            }
        }
        for (path, change) in &plan.quota_changes {
            self.write_quota(transaction, path, change)?;
        }
        for (of, more) in totals.rows().into_iter().filter(|(_, more)| *more != 0) {
            Self::quietly(transaction)?;
            let key = self.rows.total(of);
            transaction.atomic_op(MutationKind::Add, key, more.to_le_bytes());
        }
        for (session, change) in &plan.sessions {
            self.write_session(transaction, *session, change)?;
        }
        for (gateway, row) in &plan.gateways {
            let key = self.rows.gateway(*gateway);
            match row {
                Some(row) => self.set(transaction, key, (row.clone(), false))?,
                None => self.clear(transaction, key)?,
            }
        }
        self.append(transaction, plan)
    }

    /// What a row would conflict with is said by locks instead.
    fn quietly(transaction: &Transaction) -> Result<()> {
        transaction.set_option(TransactionOption::NextWriteNoWriteConflictRange)
    }

    fn set(&self, transaction: &Transaction, key: Vec<u8>, row: (Vec<u8>, bool)) -> Result<()> {
        Self::quietly(transaction)?;
        let (mut value, is_stamped) = row;
        if is_stamped {
            value.put_u32_le(0); // the stamp's place
            transaction.atomic_op(MutationKind::SetVersionstampedValue, key, value);
        } else {
            transaction.set(key, value);
        }
        Ok(())
    }

    fn clear(&self, transaction: &Transaction, key: Vec<u8>) -> Result<()> {
        Self::quietly(transaction)?;
        transaction.clear(key);
        Ok(())
    }

    fn write_node(&self, transaction: &Transaction, path: &str, touched: &Touched) -> Result<()> {
        let before = touched.before.as_deref();
        let after = touched.after.as_ref();
        self.write_index(transaction, path, before, after)?;
        let is_long = |node: Option<&Node>| node.is_some_and(|node| node.data.is_long());
        let has_new_data = match (before, after) {
            (Some(before), Some(after)) => touched.is_replaced || before.mzxid != after.mzxid,
            _ => true,
        };
        if is_long(before) && has_new_data {
            let data = self.rows.data(path);
            Self::quietly(transaction)?;
            transaction.clear_range(data.begin, data.end);
        }
        let kept = before.filter(|_| !touched.is_replaced && after.is_some());
        if let Some(before) = before
            && kept.is_none()
        {
            self.clear_node(transaction, path, before)?;
        }
        let Some(node) = after else {
            return Ok(());
        };
        if has_new_data && is_long(after) {
            self.write_long(transaction, path, node)?;
        }
        if kept.is_none_or(|kept| has_other_row(kept, node)) {
            self.set(transaction, self.rows.node(path), node.to_row())?;
        }
        let (counts, pzxid) =
            kept.map_or((Default::default(), node.czxid), |n| (n.counts, n.pzxid));
        if node.counts != counts {
            Self::quietly(transaction)?;
            let operand = node.counts.since(counts);
            transaction.atomic_op(MutationKind::Add, self.rows.counts(path), operand);
        }
        if node.pzxid != pzxid {
            self.set(transaction, self.rows.pzxid(path), pzxid_row(node.pzxid))?;
        }
        Ok(())
    }

    fn clear_node(&self, transaction: &Transaction, path: &str, node: &Node) -> Result<()> {
        let never_had_children = node.counts == Counts::default() && node.pzxid == node.czxid;
        if never_had_children {
            // There is one row, and a clear of one row costs the servers less.
            return self.clear(transaction, self.rows.node(path));
        }
        let around = self.rows.around_node(path);
        Self::quietly(transaction)?;
        transaction.clear_range(around.begin, around.end);
        Ok(())
    }

    fn write_long(&self, transaction: &Transaction, path: &str, node: &Node) -> Result<()> {
        let Data::Here(data) = &node.data else {
            unreachable!("data that is written is here")
        };
        for (number, piece) in (0..).zip(data.chunks(PIECE_BYTES)) {
            Self::quietly(transaction)?;
            transaction.set(self.rows.data_piece(path, number), piece);
        }
        Ok(())
    }

    /// The row by which the node is found when its time is over.
    fn index_row(&self, path: &str, node: Option<&Node>) -> Option<Vec<u8>> {
        match node?.lifetime {
            Lifetime::Persistent => None,
            Lifetime::Ephemeral(session) => Some(self.rows.ephemeral(session, path)),
            Lifetime::Container | Lifetime::Ttl(_) => Some(self.rows.timed(path)),
        }
    }

    fn write_index(
        &self,
        transaction: &Transaction,
        path: &str,
        before: Option<&Node>,
        after: Option<&Node>,
    ) -> Result<()> {
        let (before, after) = (self.index_row(path, before), self.index_row(path, after));
        if before == after {
            return Ok(());
        }
        if let Some(key) = before {
            self.clear(transaction, key)?;
        }
        match after {
            Some(key) => self.set(transaction, key, (Vec::new(), false)),
            None => Ok(()),
        }
    }

    fn write_quota(&self, transaction: &Transaction, path: &str, of: &QuotaChange) -> Result<()> {
        match of {
            QuotaChange::Made(quota) => {
                self.clear_quota(transaction, path)?;
                self.set(transaction, self.rows.quota(path), (quota.to_row(), false))
            }
            QuotaChange::Set(quota) => {
                self.set(transaction, self.rows.quota(path), (quota.to_row(), false))
            }
            QuotaChange::Removed => self.clear_quota(transaction, path),
            QuotaChange::Added(used) => {
                for (of, more) in [(b'n', used.nodes), (b'b', used.bytes)] {
                    Self::quietly(transaction)?;
                    let key = self.rows.quota_used(path, of);
                    transaction.atomic_op(MutationKind::Add, key, more.to_le_bytes());
                }
                Ok(())
            }
        }
    }

    fn clear_quota(&self, transaction: &Transaction, path: &str) -> Result<()> {
        let around = self.rows.around_quota(path);
        Self::quietly(transaction)?;
        transaction.clear_range(around.begin, around.end);
        Ok(())
    }

    fn write_session(
        &self,
        transaction: &Transaction,
        session: i64,
        change: &SessionChange,
    ) -> Result<()> {
        let own = self.origin.gateway;
        match change {
            SessionChange::Opened {
                timeout_ms,
                password,
            } => self.write_session_row(transaction, session, *timeout_ms, password),
            SessionChange::Taken {
                from,
                timeout_ms,
                password,
            } => {
                if *from != own {
                    self.clear(transaction, self.rows.owned(*from, session))?;
                }
                self.write_session_row(transaction, session, *timeout_ms, password)
            }
            SessionChange::Ending { owner } => {
                // Its place among the sessions of its gateway stays: whoever finds it there goes on.
                let row = crate::sessions::ending_row(*owner);
                self.set(transaction, self.rows.session(session), (row, false))
            }
            SessionChange::Closed { owner } => {
                self.clear(transaction, self.rows.session(session))?;
                self.clear(transaction, self.rows.owned(*owner, session))?;
                // A session that was taken and closed at once was taken by this gateway.
                self.clear(transaction, self.rows.owned(own, session))
            }
        }
    }

    fn write_session_row(
        &self,
        transaction: &Transaction,
        session: i64,
        timeout_ms: u32,
        password: &[u8],
    ) -> Result<()> {
        let own = self.origin.gateway;
        let row = crate::sessions::row(own, timeout_ms, password);
        self.set(transaction, self.rows.session(session), (row, false))?;
        let index = timeout_ms.to_be_bytes().to_vec();
        self.set(transaction, self.rows.owned(own, session), (index, false))
    }

    fn write_conflicts(&self, transaction: &Transaction, relied: Relied<'_>, mode: Mode) {
        let own = self.origin.gateway;
        match mode {
            Mode::Alone => {
                self.read_lock_of_others(transaction, Lock::Everything);
                if !relied.writes.is_empty() {
                    self.write_lock(transaction, (Lock::Unlisted, own));
                }
            }
            Mode::Shared => {
                self.read_lock_of_others(transaction, Lock::Unlisted);
                for (lock, hash) in relied.reads.iter() {
                    transaction.add_read_conflict_key(self.rows.lock(lock, hash));
                }
                let writes = relied.writes.iter();
                writes.for_each(|lock| self.write_lock(transaction, lock));
            }
        }
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
            if entry.len() >= ENTRY_BYTES {
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

/// True if the node's own row differs. Counts and pzxid have rows of their own.
fn has_other_row(before: &Node, after: &Node) -> bool {
    (before.mzxid, before.aversion) != (after.mzxid, after.aversion)
}
