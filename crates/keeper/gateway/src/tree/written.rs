//! What a plan makes of the tree's rows.

use super::node::{Data, Lifetime, Node, pzxid_row};
use super::plan::{Plan, SessionChange};
use super::quota::QuotaChange;
use super::rows::{PIECE_BYTES, Rows};
use super::totals::Totals;
use super::touched::{Touched, has_had_children};
use crate::sessions;
use plinth_core::Result;
use plinth_core::key::KeyRange;

/// Takes changes of rows.
pub trait Sink {
    /// Sets a row. One that is stamped begins with room for the stamp of its transaction.
    ///
    /// # Errors
    /// Those of what is behind it, as of the others.
    fn set(&mut self, key: Vec<u8>, row: (Vec<u8>, bool)) -> Result<()>;
    /// # Errors
    /// As [`set`](Self::set).
    fn clear(&mut self, key: Vec<u8>) -> Result<()>;
    /// # Errors
    /// As [`set`](Self::set).
    fn clear_range(&mut self, range: KeyRange) -> Result<()>;
    /// Adds to the little-endian number in a row; one that is not there is 0.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    fn add(&mut self, key: Vec<u8>, operand: [u8; 8]) -> Result<()>;
}

/// Hands over the rows of a plan of the gateway `own`.
///
/// # Errors
/// Those of the sink.
pub fn write_rows(sink: &mut impl Sink, rows: &Rows, own: u64, plan: &Plan<'_>) -> Result<()> {
    let mut writing = Writing { sink, rows, own };
    let mut totals = Totals::default();
    for (path, touched) in plan.touched.iter() {
        writing.write_node(path, touched)?;
        totals.add_change(path, touched.before.as_deref(), touched.after.as_ref());
    }
    for range in &plan.clears {
        writing.sink.clear_range(range.clone())?;
    }
    for (path, change) in &plan.quota_changes {
        writing.write_quota(path, change)?;
    }
    for (of, more) in totals.rows().into_iter().filter(|(_, more)| *more != 0) {
        writing.sink.add(rows.total(of), more.to_le_bytes())?;
    }
    for (session, change) in &plan.sessions {
        writing.write_session(*session, change)?;
    }
    for (gateway, row) in &plan.gateways {
        let key = rows.gateway(*gateway);
        match row {
            Some(row) => writing.sink.set(key, (row.clone(), false))?,
            None => writing.sink.clear(key)?,
        }
    }
    Ok(())
}

struct Writing<'a, S> {
    sink: &'a mut S,
    rows: &'a Rows,
    own: u64,
}

impl<S: Sink> Writing<'_, S> {
    fn write_node(&mut self, path: &str, touched: &Touched) -> Result<()> {
        let before = touched.before.as_deref();
        let after = touched.after.as_ref();
        self.write_index(path, before, after)?;
        let is_long = |node: Option<&Node>| node.is_some_and(|node| node.data.is_long());
        let rewritten = touched.rewritten();
        if is_long(before) && rewritten.data {
            let data = self.rows.data(path);
            self.sink.clear_range(data)?;
        }
        let kept = touched.kept();
        if let Some(before) = before
            && kept.is_none()
        {
            self.clear_node(path, before)?;
        }
        let Some(node) = after else {
            return Ok(());
        };
        if rewritten.data && is_long(after) {
            self.write_long(path, node)?;
        }
        if rewritten.row {
            self.sink.set(self.rows.node(path), node.to_row())?;
        }
        let (counts, pzxid) =
            kept.map_or((Default::default(), node.czxid), |n| (n.counts, n.pzxid));
        // Nobody knows the counts of a damaged node: a sum would make them whole rows, and wrong.
        if node.counts != counts && !kept.is_some_and(Node::is_stand_in) {
            let operand = node.counts.since(counts);
            self.sink.add(self.rows.counts(path), operand)?;
        }
        if node.pzxid != pzxid {
            self.sink
                .set(self.rows.pzxid(path), pzxid_row(node.pzxid))?;
        }
        Ok(())
    }

    fn clear_node(&mut self, path: &str, node: &Node) -> Result<()> {
        if !has_had_children(node) {
            // There is one row, and a clear of one row costs the servers less.
            return self.sink.clear(self.rows.node(path));
        }
        let around = self.rows.around_node(path);
        self.sink.clear_range(around)?;
        Ok(())
    }

    fn write_long(&mut self, path: &str, node: &Node) -> Result<()> {
        let Data::Here(data) = &node.data else {
            unreachable!("data that is written is here")
        };
        for (number, piece) in (0..).zip(data.chunks(PIECE_BYTES)) {
            let key = self.rows.data_piece(path, number);
            self.sink.set(key, (piece.to_vec(), false))?;
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
        &mut self,
        path: &str,
        before: Option<&Node>,
        after: Option<&Node>,
    ) -> Result<()> {
        let (before, after) = (self.index_row(path, before), self.index_row(path, after));
        if before == after {
            return Ok(());
        }
        if let Some(key) = before {
            self.sink.clear(key)?;
        }
        match after {
            Some(key) => self.sink.set(key, (Vec::new(), false)),
            None => Ok(()),
        }
    }

    fn write_quota(&mut self, path: &str, of: &QuotaChange) -> Result<()> {
        match of {
            QuotaChange::Made(quota) => {
                self.clear_quota(path)?;
                self.sink
                    .set(self.rows.quota(path), (quota.to_row(), false))
            }
            QuotaChange::Set(quota) => self
                .sink
                .set(self.rows.quota(path), (quota.to_row(), false)),
            QuotaChange::Removed => self.clear_quota(path),
            QuotaChange::Added(used) => {
                for (of, more) in [(b'n', used.nodes), (b'b', used.bytes)] {
                    let key = self.rows.quota_used(path, of);
                    self.sink.add(key, more.to_le_bytes())?;
                }
                Ok(())
            }
        }
    }

    fn clear_quota(&mut self, path: &str) -> Result<()> {
        let around = self.rows.around_quota(path);
        self.sink.clear_range(around)?;
        Ok(())
    }

    fn write_session(&mut self, session: i64, change: &SessionChange) -> Result<()> {
        let own = self.own;
        match change {
            SessionChange::Opened {
                timeout_ms,
                password,
            } => self.write_session_row(session, *timeout_ms, password),
            SessionChange::Taken {
                from,
                timeout_ms,
                password,
            } => {
                if *from != own {
                    self.sink.clear(self.rows.owned(*from, session))?;
                }
                self.write_session_row(session, *timeout_ms, password)
            }
            SessionChange::Ending { owner } => {
                // Its place among the sessions of its gateway stays: whoever finds it there goes on.
                let row = sessions::ending_row(*owner);
                self.sink.set(self.rows.session(session), (row, false))
            }
            SessionChange::Closed { owner } => {
                self.sink.clear(self.rows.session(session))?;
                self.sink.clear(self.rows.owned(*owner, session))?;
                // A session that was taken and closed at once was taken by this gateway.
                self.sink.clear(self.rows.owned(own, session))
            }
        }
    }

    fn write_session_row(&mut self, session: i64, timeout_ms: u32, password: &[u8]) -> Result<()> {
        let own = self.own;
        let row = sessions::row(own, timeout_ms, password);
        self.sink.set(self.rows.session(session), (row, false))?;
        let index = timeout_ms.to_be_bytes().to_vec();
        self.sink.set(self.rows.owned(own, session), (index, false))
    }
}
