//! The rows of an entry's transaction, as operations see them and as a plan changes them.

use bytes::{Buf, Bytes};
use plinth_core::key::{KeyRange, printable};
use plinth_core::{Error, Result};
use plinth_delos::store::RwTx;
use plinth_keeper::cache::Cache;
use plinth_keeper::quotas::Counting;
use plinth_keeper::sessions::SessionRow;
use plinth_keeper::store::{Most, Page};
use plinth_keeper::tree::execute::{Operation, Owner};
use plinth_keeper::tree::node::Node;
use plinth_keeper::tree::plan::{Known, Names, View};
use plinth_keeper::tree::quota::{Exceeded, Quotas};
use plinth_keeper::tree::rows::Rows;
use plinth_keeper::tree::written::Sink;
use plinth_keeper::wire::Text;
use plinth_keeper::zxid::Zxids;
use plinth_runtime::trace_warn;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Versions are positions of the log.
pub const ZXIDS: Zxids = Zxids { base: 0 };
/// Ephemeral nodes that one entry deletes. The end of a session with more takes several.
const END_NODES_MAX: usize = 1000;
/// Bytes of their rows' keys.
const END_BYTES_MAX: usize = 200_000;
/// Rows that one entry counts for a new quota.
const QUOTA_ROWS_MAX: usize = 5000;

/// Rows that are read at a time, until there are bytes enough.
const CHUNK_ROWS: usize = 1000;

/// The first rows of a range. `read` reads some from a begin to an end.
///
/// # Errors
/// Those of `read`.
pub fn page(
    range: &KeyRange,
    most: Most,
    read: impl Fn(&[u8], &[u8], usize) -> Result<Vec<(Bytes, Bytes)>>,
) -> Result<Page> {
    let mut page = Page::default();
    let mut begin = range.begin.clone();
    let mut bytes = 0;
    loop {
        let left = most.rows - page.rows.len();
        let limit = left.min(CHUNK_ROWS);
        // One more tells whether there are more.
        let mut chunk = read(&begin, &range.end, limit + 1)?;
        let is_last = chunk.len() <= limit;
        chunk.truncate(limit);
        for (key, value) in chunk {
            if bytes >= most.bytes {
                page.more = true;
                return Ok(page);
            }
            bytes += key.len() + value.len();
            page.rows.push((key, value));
        }
        if is_last {
            return Ok(page);
        }
        if page.rows.len() == most.rows {
            page.more = true;
            return Ok(page);
        }
        let (last, _) = page.rows.last().expect("it was not empty");
        begin = [&last[..], b"\0"].concat().into();
    }
}

/// See the module. Reads that fail are told by [`Seen::check`]: then nothing of it counts.
pub struct Seen<'a> {
    tx: RefCell<&'a mut RwTx>,
    rows: &'a Rows,
    /// Nodes as the rows have them.
    nodes: &'a RefCell<Cache>,
    gateway: u64,
    quotas: Rc<Quotas>,
    enforces_quotas: bool,
    exceeded: RefCell<Vec<(Exceeded, Text)>>,
    failed: Cell<Option<Error>>,
}

/// What an entry is executed on, besides its transaction.
pub struct State<'a> {
    pub rows: &'a Rows,
    pub nodes: &'a RefCell<Cache>,
    pub quotas: Rc<Quotas>,
}

impl<'a> Seen<'a> {
    pub fn new(tx: &'a mut RwTx, on: State<'a>, gateway: u64, enforces_quotas: bool) -> Self {
        Seen {
            tx: RefCell::new(tx),
            rows: on.rows,
            nodes: on.nodes,
            gateway,
            quotas: on.quotas,
            enforces_quotas,
            exceeded: RefCell::default(),
            failed: Cell::new(None),
        }
    }

    /// Limits that clients came to.
    pub fn exceeded(self) -> Vec<(Exceeded, Text)> {
        self.exceeded.into_inner()
    }

    /// # Errors
    /// A read has failed, or a row is damaged: this replica must stop.
    pub fn check(&self) -> Result<()> {
        self.failed.get().map_or(Ok(()), Err)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.tx.borrow().get(key)
    }

    fn page(&self, range: &KeyRange, most: Most) -> Result<Page> {
        let tx = self.tx.borrow();
        page(range, most, |begin, end, limit| tx.range(begin, end, limit))
    }

    fn session(&self, session: i64) -> Result<Option<SessionRow>> {
        let row = self.get(&self.rows.session(session))?;
        let parse = |row: Bytes| SessionRow::parse(&row).ok_or(Error::file_corrupt);
        row.map(parse).transpose()
    }

    fn lease(&self, gateway: u64) -> Result<Option<Vec<u8>>> {
        let row = self.get(&self.rows.gateway(gateway))?;
        Ok(row.map(|row| row.to_vec()))
    }

    fn read_node(&self, path: &str) -> Result<Option<Node>> {
        let own = self.rows.node(path);
        let Some(row) = self.get(&own)? else {
            return Ok(None);
        };
        let mut found = vec![(Bytes::from(own.clone()), row)];
        for key in [self.rows.counts(path), self.rows.pzxid(path)] {
            if let Some(row) = self.get(&key)? {
                found.push((key.into(), row));
            }
        }
        Node::from_rows(&own, &found, ZXIDS)
    }

    /// Looks up what the rows have about the operation.
    ///
    /// # Errors
    /// Those of the reads.
    pub fn look_up(&self, operation: &mut Operation) -> Result<()> {
        match operation {
            Operation::TakeSession { session, found, .. } => *found = self.session(*session)?,
            Operation::CloseSession {
                session,
                owner,
                found,
            } => {
                found.row = self.session(*session)?;
                let most = Most {
                    rows: END_NODES_MAX,
                    bytes: END_BYTES_MAX,
                };
                let index = self.rows.ephemerals(*session);
                let page = self.page(&index, most)?;
                found.note_index(self.rows, index, &page);
                if let Owner::Gone { gateway, .. } = owner {
                    found.lease = self.lease(*gateway)?;
                }
            }
            Operation::CountQuota { path, found } => {
                let mut counting = Counting::begin(&self.quotas, path, QUOTA_ROWS_MAX);
                while let Some((range, most)) = counting.next(self.rows) {
                    let page = self.page(&range, most)?;
                    let damaged = Err(Error::file_corrupt);
                    counting.take(self.rows, ZXIDS, (range, page), damaged)?;
                }
                *found = Some(counting.piece);
            }
            Operation::RemoveGateway {
                gateway,
                found,
                has_sessions,
                ..
            } => {
                *found = self.lease(*gateway)?;
                let one = Most {
                    rows: 1,
                    ..Most::ALL
                };
                let owned = self.page(&self.rows.all_owned(*gateway), one)?;
                *has_sessions = !owned.rows.is_empty();
            }
            Operation::Request(..)
            | Operation::Look { .. }
            | Operation::OpenSession { .. }
            | Operation::Reap { .. }
            | Operation::Beat { .. } => {}
        }
        Ok(())
    }
}

impl View for Seen<'_> {
    fn node(&self, path: &str) -> Known {
        let known = self.nodes.borrow().get(path);
        if !matches!(known, Known::Unknown) {
            return known;
        }
        match self.read_node(path) {
            Ok(node) => {
                let node = node.map(Rc::new);
                self.nodes.borrow_mut().insert(path, node.clone());
                node.map_or(Known::Absent, Known::Here)
            }
            Err(error) => {
                trace_warn!("ZelosNodeDamaged", "path" => path, "error" => error);
                self.failed.set(Some(error));
                Known::Absent
            }
        }
    }

    fn children(&self, path: &str) -> Names {
        match self.page(&self.rows.children(path), Most::ALL) {
            Ok(page) => {
                let keys = page.rows.iter();
                let names = keys.filter_map(|(key, _)| self.rows.child_of(path, key));
                Names::All(names.map(Text::from).collect())
            }
            Err(error) => {
                self.failed.set(Some(error));
                Names::All(Vec::new())
            }
        }
    }

    /// As the rows have it: the gateway may not know yet that another one has taken it.
    fn owns(&self, session: i64) -> bool {
        match self.session(session) {
            Ok(row) => row.is_some_and(|row| row.owner == self.gateway && !row.is_ending()),
            Err(error) => {
                self.failed.set(Some(error));
                false
            }
        }
    }

    /// Its gateway has looked before it wrote the entry.
    fn is_silent(&self, _: i64) -> bool {
        true
    }

    fn quotas(&self) -> Rc<Quotas> {
        self.quotas.clone()
    }

    fn enforces_quotas(&self) -> bool {
        self.enforces_quotas
    }

    fn exceeds(&self, exceeded: &Exceeded, path: &str) {
        let noted = (exceeded.clone(), path.into());
        self.exceeded.borrow_mut().push(noted);
    }
}

/// Where a plan's rows go, when it is complete.
pub struct Changed<'a, 'b>(pub &'a Seen<'b>);

impl Sink for Changed<'_, '_> {
    fn set(&mut self, key: Vec<u8>, (row, is_stamped): (Vec<u8>, bool)) -> Result<()> {
        // Its zxids are settled. All replicas would fail alike here, again at each start, so it is no assertion.
        if is_stamped {
            trace_warn!("ZelosUnsettledRow", "key" => printable(&key));
            return Err(Error::internal_error);
        }
        self.0.tx.borrow_mut().set(&key, row);
        Ok(())
    }

    fn clear(&mut self, key: Vec<u8>) -> Result<()> {
        self.0.tx.borrow_mut().clear(&key);
        Ok(())
    }

    fn clear_range(&mut self, range: KeyRange) -> Result<()> {
        let mut tx = self.0.tx.borrow_mut();
        tx.clear_range(&range.begin, &range.end)
    }

    fn add(&mut self, key: Vec<u8>, operand: [u8; 8]) -> Result<()> {
        let mut tx = self.0.tx.borrow_mut();
        let before = match tx.get(&key)? {
            Some(row) => (&row[..])
                .try_get_u64_le()
                .map_err(|_| Error::file_corrupt)?,
            None => 0,
        };
        let after = before.wrapping_add(u64::from_le_bytes(operand));
        tx.set(&key, Bytes::copy_from_slice(&after.to_le_bytes()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::EngineKind;
    use plinth_delos::store::LocalStore;
    use plinth_keeper::CACHE_BYTES_MAX;
    use plinth_runtime::sim::{Locality, SimConfig, Simulation};
    use std::path::Path;

    #[test]
    fn a_row_whose_zxids_are_not_settled_stops_the_replica_and_is_not_written() {
        let sim = Simulation::new(1, SimConfig::default());
        let machine = sim.add_machine(Locality::default());
        let work = async {
            let engine = plinth_engine::open(EngineKind::Memory, Path::new("/a"), true, 1 << 20);
            let store = LocalStore::open(engine.await.expect("an engine")).expect("a store");
            let (rows, nodes) = (Rows::new("zelos"), Cache::new(1, CACHE_BYTES_MAX.get()));
            let nodes = RefCell::new(nodes);
            let mut tx = store.begin(1);
            let state = State {
                rows: &rows,
                nodes: &nodes,
                quotas: Rc::default(),
            };
            let seen = Seen::new(&mut tx, state, 7, true);
            let set = |key: &str, is_stamped| {
                Changed(&seen).set(key.into(), (b"row".to_vec(), is_stamped))
            };
            assert_eq!(set("settled", false), Ok(()));
            assert_eq!(set("unsettled", true), Err(Error::internal_error));
            drop(seen);
            assert_eq!(tx.get(b"settled"), Ok(Some(Bytes::from_static(b"row"))));
            assert_eq!(tx.get(b"unsettled"), Ok(None));
        };
        sim.run_on(machine, work).expect("nothing kills it");
    }
}
