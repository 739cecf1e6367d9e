//! Test support: a cluster in memory.
//!
//! It keeps every version of every key, checks conflicts as the resolvers would, and can be set to answer late, to
//! give ranges in small pieces, to fail a commit, or to lose its answer. For tests of transactions and of the layers
//! that are built on them.

use crate::source::{
    Cluster, ClusterFuture, CommitData, CommitReply, PackedRows, RangeChunk, RangeRequest,
    ReadVersionFlags, Row,
};
use plinth_core::codec::Codec;
use plinth_core::conflict_ranges::{ConflictRange, ConflictRanges, Endpoint};
use plinth_core::key::{ALL_KEYS_END, KeyRange, SYSTEM_BEGIN};
use plinth_core::output::Output;
use plinth_core::system_keys::METADATA_VERSION;
use plinth_core::system_keys::{IDEMPOTENCY, IDEMPOTENCY_KEPT, idempotency_rows_from};
use plinth_core::{
    Error, Key, KeySelector, MutationKind, Result, Value, Version, Versionstamp, atomic,
};
use plinth_protocol::storage::GetRangeReply;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, sleep, yield_now};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

/// A fault that happens to a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitFault {
    /// It is executed; the answer is lost.
    AnswerLost,
    /// It is executed; before that is found out, the database advances by this many versions and removes old rows.
    AnswerLostFor(Version),
    /// The request is lost.
    RequestLost,
    /// It stays under way until [`MemoryCluster::deliver_late_commits`]; the answer is an unknown result.
    Late,
    /// It is refused.
    Refused(Error),
}

type Snapshot = BTreeMap<Key, Value>;

#[derive(Default)]
struct State {
    version: Version,
    /// Reads and commits below it are too old.
    oldest: Version,
    /// The database after each commit that changed it.
    history: BTreeMap<Version, Rc<Snapshot>>,
    /// What each commit wrote, for conflicts.
    written: Vec<(Version, ConflictRanges)>,
    faults: VecDeque<CommitFault>,
    late: Vec<CommitData>,
    commits: Vec<CommitData>,
    reads: u64,
    chunk_rows_max: Option<usize>,
    delay_turns: u32,
    delay: Duration,
}

/// A handle; clones are the same cluster.
#[derive(Clone, Default)]
pub struct MemoryCluster {
    state: Rc<RefCell<State>>,
    changed: Notify,
    hung: Rc<Cell<bool>>,
    commits_late: Rc<Cell<(Duration, Duration)>>,
}

/// A new commit is this far above the last.
const VERSIONS_PER_COMMIT: Version = 10;

impl MemoryCluster {
    pub fn new() -> Self {
        let cluster = MemoryCluster::default();
        cluster.state.borrow_mut().version = VERSIONS_PER_COMMIT;
        cluster
    }

    /// A cluster with these rows from the start.
    pub fn with_rows<K: Into<Key>, V: Into<Value>>(rows: impl IntoIterator<Item = (K, V)>) -> Self {
        let cluster = MemoryCluster::new();
        let snapshot: Snapshot = rows
            .into_iter()
            .map(|(k, v)| (k.into(), v.into()))
            .collect();
        cluster
            .state
            .borrow_mut()
            .history
            .insert(1, Rc::new(snapshot));
        cluster
    }

    pub fn database(&self) -> crate::Database {
        crate::Database::new(Rc::new(self.clone()))
    }

    /// The same cluster as somebody else reaches it: what hangs or is late for one is not for the other.
    pub fn apart(&self) -> MemoryCluster {
        MemoryCluster {
            hung: Rc::default(),
            commits_late: Rc::default(),
            ..self.clone()
        }
    }

    /// A row that a transaction sees that starts now.
    pub fn row(&self, key: &[u8]) -> Option<Value> {
        let state = self.state.borrow();
        state.at(state.version).get(key).cloned()
    }

    /// The rows that a transaction sees that starts now.
    pub fn rows(&self) -> BTreeMap<Key, Value> {
        let state = self.state.borrow();
        (*state.at(state.version)).clone()
    }

    /// Sets a row, or removes it, as a disk that fails does: in all versions, and by nobody's commit.
    pub fn spoil(&self, key: &[u8], value: Option<&[u8]>) {
        for snapshot in self.state.borrow_mut().history.values_mut() {
            let rows = Rc::make_mut(snapshot);
            match value {
                Some(value) => {
                    rows.insert(Key::copy_from_slice(key), Value::copy_from_slice(value))
                }
                None => rows.remove(key),
            };
        }
    }

    pub fn version(&self) -> Version {
        self.state.borrow().version
    }

    /// Everything that was sent for commit, whether refused or late.
    pub fn commits(&self) -> Vec<CommitData> {
        self.state.borrow().commits.clone()
    }

    /// Number of point reads, range reads and selectors served.
    pub fn reads(&self) -> u64 {
        self.state.borrow().reads
    }

    /// Applies a fault to the next commit; faults queue up.
    pub fn inject(&self, fault: CommitFault) {
        self.state.borrow_mut().faults.push_back(fault);
    }

    /// Executes the commits kept by [`CommitFault::Late`]. Returns their results, which no client receives.
    pub fn deliver_late_commits(&self) -> Vec<Result<CommitReply>> {
        let late = std::mem::take(&mut self.state.borrow_mut().late);
        let replies = late.iter().map(|data| self.execute(data)).collect();
        self.changed.notify_all();
        replies
    }

    /// Reads and commits below `version` are too old.
    pub fn set_oldest(&self, version: Version) {
        self.state.borrow_mut().oldest = version;
    }

    /// Forgets all versions but those that the last `commits` commits have made, and what was sent for commit.
    pub fn forget(&self, commits: Version) {
        let mut state = self.state.borrow_mut();
        let version = (state.version - commits * VERSIONS_PER_COMMIT).max(state.oldest);
        state.oldest = version;
        let first = state.history.range(..=version).next_back();
        let first = first.map_or(0, |(version, _)| *version);
        state.history = state.history.split_off(&first);
        state.written.retain(|(at, _)| *at >= version);
        state.commits.clear();
    }

    /// Limits the rows that a range read gives at once.
    pub fn set_chunk_rows_max(&self, rows: usize) {
        self.state.borrow_mut().chunk_rows_max = Some(rows.max(1));
    }

    /// Makes every answer take this many turns of the event loop.
    pub fn set_delay_turns(&self, turns: u32) {
        self.state.borrow_mut().delay_turns = turns;
    }

    /// Makes every answer take so long.
    pub fn set_delay(&self, delay: Duration) {
        self.state.borrow_mut().delay = delay;
    }

    /// While set, no read and no commit is answered.
    pub fn set_hung(&self, hung: bool) {
        self.hung.set(hung);
        self.changed.notify_all();
    }

    /// Every commit waits for so long before it is executed, and its answer for so long after that.
    pub fn set_commits_late(&self, before: Duration, after: Duration) {
        self.commits_late.set((before, after));
    }

    fn execute(&self, data: &CommitData) -> Result<CommitReply> {
        self.state.borrow_mut().execute(data)
    }

    async fn wait(&self) {
        let (turns, delay) = {
            let state = self.state.borrow();
            (state.delay_turns, state.delay)
        };
        for _ in 0..turns {
            yield_now().await;
        }
        wait_for(delay).await;
        while self.hung.get() {
            self.changed.notified().await;
        }
    }

    fn answer<T: 'static>(
        &self,
        answer: impl FnOnce(&mut State) -> Result<T> + 'static,
    ) -> ClusterFuture<T> {
        let cluster = self.clone();
        Box::pin(async move {
            cluster.wait().await;
            answer(&mut cluster.state.borrow_mut())
        })
    }
}

impl State {
    /// The database as it was at `version`.
    fn at(&self, version: Version) -> Rc<Snapshot> {
        self.history
            .range(..=version)
            .next_back()
            .map(|(_, snapshot)| snapshot.clone())
            .unwrap_or_default()
    }

    fn read_at(&mut self, version: Version) -> Result<Rc<Snapshot>> {
        self.reads += 1;
        if version < self.oldest {
            return Err(Error::transaction_too_old);
        }
        if version > self.version {
            return Err(Error::future_version);
        }
        Ok(self.at(version))
    }

    fn get_range(&mut self, request: &RangeRequest) -> Result<RangeChunk> {
        let snapshot = self.read_at(request.version)?;
        let limit_rows = request
            .limit_rows
            .min(self.chunk_rows_max.unwrap_or(usize::MAX));
        assert!(
            limit_rows > 0 && request.limit_bytes > 0,
            "a range read for nothing: {request:?}"
        );
        assert!(
            request.begin < request.end,
            "a range read of nothing: {request:?}"
        );
        let rows = snapshot.range::<[u8], _>((
            Bound::Included(&request.begin[..]),
            Bound::Excluded(&request.end[..]),
        ));
        let mut ordered: Box<dyn Iterator<Item = _>> = if request.reverse {
            Box::new(rows.rev())
        } else {
            Box::new(rows)
        };
        let mut chunk = RangeChunk::default();
        let mut bytes = 0;
        for (key, value) in &mut ordered {
            bytes += key.len() + value.len();
            chunk.rows.push((key.clone(), value.clone()));
            if chunk.rows.len() == limit_rows || bytes >= request.limit_bytes {
                // A server does not look further: there may be more.
                chunk.more = true;
                break;
            }
        }
        chunk.packed = Some(packed(&chunk.rows));
        Ok(chunk)
    }

    fn get_key(&mut self, selector: &KeySelector, keys_end: &Key, version: Version) -> Result<Key> {
        let snapshot = self.read_at(version)?;
        Ok(resolve_selector(snapshot.keys(), selector, keys_end))
    }

    fn execute(&mut self, data: &CommitData) -> Result<CommitReply> {
        let reads =
            ConflictRanges::parse(data.reads.clone()).expect("well-formed read conflict ranges");
        let writes =
            ConflictRanges::parse(data.writes.clone()).expect("well-formed write conflict ranges");
        if !reads.is_empty() && data.read_version < self.oldest {
            return Err(Error::transaction_too_old);
        }
        let newer = self
            .written
            .iter()
            .filter(|(version, _)| *version > data.read_version);
        for (_, written) in newer {
            let is_written = |read: &ConflictRange<'_>| {
                let meets = |write: ConflictRange<'_>| {
                    Endpoint::at(read.begin) < write.end && Endpoint::at(write.begin) < read.end
                };
                written.iter().any(meets)
            };
            let conflicting: Vec<KeyRange> = reads
                .iter()
                .filter(is_written)
                .map(|range| KeyRange::new(range.begin.to_vec(), range.end.to_key()))
                .collect();
            if !conflicting.is_empty() {
                if let Some(asked) = &data.conflicts {
                    *asked.borrow_mut() = conflicting;
                }
                return Err(Error::not_committed);
            }
        }
        self.version += VERSIONS_PER_COMMIT;
        let reply = CommitReply {
            version: self.version,
            order: (self.version % 7) as u16,
        };
        let mut snapshot = (*self.at(self.version)).clone();
        apply_mutations(&mut snapshot, data, reply)?;
        self.history.insert(self.version, Rc::new(snapshot));
        self.written.push((self.version, writes));
        Ok(reply)
    }

    fn commit(&mut self, data: CommitData) -> Result<CommitReply> {
        self.commits.push(data.clone());
        match self.faults.pop_front() {
            None => self.execute(&data),
            Some(CommitFault::Refused(error)) => Err(error),
            Some(CommitFault::RequestLost) => Err(Error::request_maybe_delivered),
            Some(CommitFault::AnswerLost) => {
                self.execute(&data).and(Err(Error::request_maybe_delivered))
            }
            Some(CommitFault::AnswerLostFor(versions)) => {
                self.execute(&data)?;
                let mut snapshot = (*self.at(self.version)).clone();
                self.version += versions;
                let kept_from = idempotency_rows_from(self.version - IDEMPOTENCY_KEPT);
                snapshot.retain(|key, _| !(IDEMPOTENCY..&kept_from[..]).contains(&&key[..]));
                self.history.insert(self.version, Rc::new(snapshot));
                Err(Error::request_maybe_delivered)
            }
            Some(CommitFault::Late) => {
                self.late.push(data);
                Err(Error::request_maybe_delivered)
            }
        }
    }
}

/// Without a turn of the loop if there is nothing to wait for.
async fn wait_for(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay).await;
    }
}

fn packed(rows: &[Row]) -> PackedRows {
    let mut packed = Output::copying();
    for (key, value) in rows {
        key.put(&mut packed);
        value.put(&mut packed);
    }
    PackedRows::new(&GetRangeReply {
        rows: packed.into_bytes(),
        row_count: rows.len() as u32,
        more: false,
    })
}

fn apply_mutations(snapshot: &mut Snapshot, data: &CommitData, reply: CommitReply) -> Result<()> {
    let end = if data.flags.system_keys {
        ALL_KEYS_END
    } else {
        SYSTEM_BEGIN
    };
    let stamp = Versionstamp::new(reply.version, reply.order);
    let place = |param: &[u8]| {
        atomic::place_versionstamp(param, stamp).ok_or(Error::client_invalid_operation)
    };
    for mutation in data.mutations.iter_owned() {
        let (key, second) = (mutation.first, mutation.second);
        if key[..] >= *end && key[..] != *METADATA_VERSION {
            return Err(Error::key_outside_legal_range);
        }
        match mutation.kind {
            MutationKind::Set => drop(snapshot.insert(key, second)),
            MutationKind::ClearRange => snapshot.retain(|k, _| *k < key || *k >= second),
            MutationKind::SetVersionstampedKey => {
                drop(snapshot.insert(place(&key)?.into(), second))
            }
            MutationKind::SetVersionstampedValue => {
                drop(snapshot.insert(key, place(&second)?.into()))
            }
            kind => match atomic::apply(kind, snapshot.get(&key).map(|v| &v[..]), &second) {
                Some(value) => drop(snapshot.insert(key, value)),
                None => drop(snapshot.remove(&key)),
            },
        }
    }
    Ok(())
}

/// The key that a selector denotes, by the definition. `keys` must be in ascending order.
pub fn resolve_selector<'a>(
    keys: impl Iterator<Item = &'a Key>,
    selector: &KeySelector,
    keys_end: &Key,
) -> Key {
    let keys: Vec<&Key> = keys.filter(|key| *key < keys_end).collect();
    let before = keys
        .iter()
        .filter(|k| ***k < selector.key || (selector.or_equal && ***k == selector.key))
        .count();
    // The key at `before - 1` is the last one less than (or equal to) the selector's.
    let at = before as i64 - 1 + i64::from(selector.offset);
    match usize::try_from(at) {
        Err(_) => Key::new(),
        Ok(at) => keys
            .get(at)
            .map_or_else(|| keys_end.clone(), |key| (*key).clone()),
    }
}

impl Cluster for MemoryCluster {
    fn get_read_version(&self, _: ReadVersionFlags) -> ClusterFuture<Version> {
        self.answer(|state| Ok(state.version))
    }

    fn get(&self, key: Key, version: Version) -> ClusterFuture<Option<Value>> {
        self.answer(move |state| Ok(state.read_at(version)?.get(&key).cloned()))
    }

    fn get_range(&self, request: RangeRequest) -> ClusterFuture<RangeChunk> {
        self.answer(move |state| state.get_range(&request))
    }

    fn get_key(
        &self,
        selector: KeySelector,
        keys_end: Key,
        version: Version,
    ) -> ClusterFuture<Key> {
        self.answer(move |state| state.get_key(&selector, &keys_end, version))
    }

    fn commit(&self, data: CommitData) -> ClusterFuture<CommitReply> {
        let changed = self.changed.clone();
        let (before, after) = self.commits_late.get();
        let reply = self.answer(move |state| state.commit(data));
        Box::pin(async move {
            wait_for(before).await;
            let reply = reply.await;
            changed.notify_all();
            wait_for(after).await;
            reply
        })
    }

    fn watch(&self, key: Key, value: Option<Value>, version: Version) -> ClusterFuture<()> {
        let cluster = self.clone();
        Box::pin(async move {
            loop {
                let notified = cluster.changed.notified();
                let current = {
                    let state = cluster.state.borrow();
                    state.at(state.version.max(version)).get(&key).cloned()
                };
                if current != value {
                    return Ok(());
                }
                notified.await;
            }
        })
    }
}
