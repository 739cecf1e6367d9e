//! What a gateway knows of the tree: everything at one version, as far as it is in the cache. The rest is read from
//! the store, at that version.
//!
//! ```text
//!   stream ──► apply ──► watches (events go out) ──► cache at the new version ──► reads
//! ```
//! The pipeline is the only one that moves the replica on. It hands over each change in the order of the commits. So
//! all clients of a gateway see the same history, no client's reads ever go back, and no client sees a change before
//! the event that announces it.

use crate::cache::{CHILD_BYTES, Cache};
use crate::paths;
use crate::room::Room;
use crate::sessions::SessionRow;
use crate::store::{Most, Page, Store};
use crate::tree::change::Change;
use crate::tree::execute::FoundSession;
use crate::tree::node::{Data, Lifetime, Node};
use crate::tree::plan::Known;
use crate::tree::quota::{self, Quotas};
use crate::tree::rows::Rows;
use crate::tree::totals::Totals;
use crate::wire::{Request, Text};
use crate::zxid::Zxids;
use crate::{END_NODES_MAX, LIST_BYTES_MAX, LIST_PAGE_BYTES, REMEMBERED_CHANGES};
use bytes::{Bytes, BytesMut};
use plinth_core::key::{KeyRange, printable};
use plinth_core::{Error, Result, Version};
use plinth_runtime::sync::Watch;
use plinth_runtime::{never, planted, probe, random};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// A list with at most so many rows fills the cache with the children themselves.
const SMALL_LIST: usize = 1000;
/// Bytes of the paths of ephemeral nodes that one transaction deletes. For each it writes about eight times as much.
const END_PATHS_BYTES: usize = 200_000;
/// The time-out of a session of another gateway, if its row does not say it: nobody asks for a longer one.
const TIMEOUT_MS_MAX: u32 = 3_600_000;
/// Bytes of rows that are counted at one version.
const COUNT_BYTES: usize = 1 << 20;

/// See the module.
pub struct Replica {
    store: Rc<dyn Store>,
    pub rows: Rows,
    pub zxids: Zxids,
    cache: RefCell<Cache>,
    /// Guards of [`Replica::keep_all`].
    kept: Cell<usize>,
    pub room: Room,
    /// Lists of children that are being read, and whether that has ended.
    listing: RefCell<BTreeMap<Text, Watch<bool>>>,
    version: Cell<Version>,
    /// The newest zxid that was applied.
    zxid: Cell<i64>,
    recent: RefCell<VecDeque<(Version, Text)>>,
    /// Changes at or below this version are no longer remembered.
    forgotten: Cell<Version>,
    pub quotas: RefCell<Rc<Quotas>>,
}

impl Replica {
    pub fn new(
        store: Rc<dyn Store>,
        rows: Rows,
        zxids: Zxids,
        version: Version,
        cache_bytes_max: usize,
    ) -> Self {
        Replica {
            store,
            rows,
            zxids,
            cache: RefCell::new(Cache::new(random::u64(), cache_bytes_max)),
            kept: Cell::new(0),
            room: Room::new(cache_bytes_max),
            listing: RefCell::default(),
            version: Cell::new(version),
            zxid: Cell::new(zxids.last_of(version)),
            recent: RefCell::default(),
            forgotten: Cell::new(version),
            quotas: RefCell::default(),
        }
    }

    pub fn version(&self) -> Version {
        self.version.get()
    }

    /// The zxid that answers carry.
    pub fn zxid(&self) -> i64 {
        self.zxid.get()
    }

    /// The newest zxid whose change is in all that is read of the store from now on. The gateway's own last changes
    /// may not be in it yet.
    pub fn stored_zxid(&self) -> i64 {
        self.zxid().min(self.zxids.last_of(self.version()))
    }

    /// A client has seen this zxid elsewhere, and the replica's version is not below it.
    pub fn saw(&self, zxid: i64) {
        self.zxid.set(self.zxid.get().max(zxid));
    }

    /// Nothing leaves the cache until all guards are dropped: a batch needs all of its nodes at the same time.
    pub fn keep_all(self: &Rc<Self>) -> KeepAll {
        self.kept.set(self.kept.get() + 1);
        self.cache.borrow_mut().keep_all(true);
        KeepAll(self.clone())
    }

    /// True if the cache has grown beyond its limit meanwhile.
    pub fn is_over_full(&self) -> bool {
        self.cache.borrow().is_over_full()
    }

    pub fn pin(&self, path: &Text) {
        self.cache.borrow_mut().pin(path);
    }

    pub fn unpin(&self, path: &str) {
        self.cache.borrow_mut().unpin(path);
    }

    /// Memory of what a read looks at, as far as that is known: all of it once it is loaded. Of a list that looks at
    /// its children the list alone.
    pub fn cost(&self, read: &Request) -> usize {
        let (Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::GetChildren { path, .. }
        | Request::GetChildren2 { path, .. }
        | Request::List { path, .. }
        | Request::ListRecursive { path, .. }) = read
        else {
            return 0;
        };
        let path = paths::named(path);
        let cache = self.cache.borrow();
        let more = match (cache.get(path), read) {
            (Known::Here(node), Request::GetData { .. }) if node.data.is_unread() => {
                node.data.len()
            }
            (Known::Here(_), Request::Exists { .. } | Request::GetData { .. }) => 0,
            (Known::Here(node), _) => {
                let unread = usize::try_from(node.counts.present).unwrap_or(0) * CHILD_BYTES;
                cache.bytes_of_list(path).unwrap_or(unread)
            }
            _ => 0,
        };
        cache.bytes_of(path) + more
    }

    pub fn cached(&self) -> (usize, usize) {
        let cache = self.cache.borrow();
        (cache.len(), cache.bytes())
    }

    /// Applies a change; those of a version follow one another before [`Replica::advance`].
    pub fn apply(&self, version: Version, change: &Change, zxid: i64) {
        // Not below: who has the version was told that nothing is missing. Where several batches share a version, each
        // comes by itself, and the replica has the version with the first.
        let has = self.version.get();
        assert!(
            version >= has,
            "a change of {version} comes to a replica that has {has}"
        );
        let last = self.zxid.get();
        assert!(
            last <= zxid,
            "a change with zxid {zxid:#x} follows {last:#x}"
        );
        self.zxid.set(zxid);
        if let Change::Quota(path, change) = change {
            return quota::apply(Rc::make_mut(&mut self.quotas.borrow_mut()), path, change);
        }
        let is_forgotten = matches!(change, Change::DataSet(..))
            && planted!(
                "keeper_read_goes_back",
                "a gateway forgets one change of data in fifty, and answers with what was before"
            )
            && random::chance(0.02);
        if !is_forgotten {
            self.cache.borrow_mut().apply(change, zxid);
        }
        let (Change::Created(path, _)
        | Change::DataSet(path, _)
        | Change::AclSet(path, _)
        | Change::Deleted(path)) = change
        else {
            return;
        };
        let mut recent = self.recent.borrow_mut();
        let last = recent.back().map(|(last, _)| *last);
        assert!(
            last.is_none_or(|last| last <= version),
            "{version} is remembered behind {last:?}"
        );
        recent.push_back((version, path.clone()));
        if recent.len() > REMEMBERED_CHANGES.get() {
            let (version, _) = recent.pop_front().expect("not empty");
            self.forgotten.set(version);
        }
    }

    /// Everything through `version` has been applied.
    pub fn advance(&self, version: Version) {
        assert!(
            version >= self.version.get(),
            "the replica goes back to {version}"
        );
        self.version.set(version);
    }

    /// True if no change since `version` may have touched what `touches` says.
    fn is_unchanged(&self, version: Version, touches: impl Fn(&str) -> bool) -> bool {
        // A change behind `version` is no longer remembered. It may have been applied although the replica's own
        // version does not have it yet: that comes at the end of all that it catches up on.
        if version < self.forgotten.get() {
            probe!("keeper_changes_forgotten");
            return false;
        }
        let recent = self.recent.borrow();
        let since = recent.iter().rev().take_while(|(at, _)| *at > version);
        since.into_iter().all(|(_, path)| !touches(path))
    }

    async fn row(&self, key: Vec<u8>) -> Result<Option<Bytes>> {
        self.store.row(self.version(), &key).await
    }

    /// The first rows of a range, at the replica's version.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn page(&self, range: KeyRange, most: Most) -> Result<Page> {
        self.store.page(self.version(), range, most).await
    }

    async fn all_rows(&self, range: KeyRange) -> Result<Vec<(Bytes, Bytes)>> {
        Ok(self.page(range, Most::ALL).await?.rows)
    }

    /// The node, if it is in the cache. Its long data may be unread.
    pub fn node_if_known(&self, path: &str) -> Known {
        self.cache.borrow().get(path)
    }

    /// Reads the node into the cache. False if it has changed since the version that was read: a later one is needed.
    pub async fn load(&self, path: &str) -> Result<bool> {
        let version = self.version();
        let found = self.all_rows(self.rows.around_node(path)).await?;
        let is_about = |changed: &str| changed == path || paths::parent(changed) == Some(path);
        if !self.is_unchanged(version, is_about) {
            probe!("keeper_load_overtaken");
            return Ok(false);
        }
        self.note_node(path, &found);
        Ok(true)
    }

    /// Notes what the rows of a node say.
    fn note_node(&self, path: &str, found: &[(Bytes, Bytes)]) {
        let own = self.rows.node(path);
        let mut cache = self.cache.borrow_mut();
        match Node::from_rows(&own, found, self.zxids) {
            Ok(node) => cache.insert(path, node.map(Rc::new)),
            Err(_) => {
                never!("KeeperNodeDamaged", "path" => path, "key" => printable(&own));
                cache.insert_damaged(path);
            }
        }
    }

    /// The node's data, or that it is damaged; reads it if it is not in the cache. `None` if the node has changed
    /// meanwhile.
    pub async fn data(&self, path: &str, node: &Rc<Node>) -> Result<Option<Rc<Node>>> {
        let Data::Unread(len) = node.data else {
            return Ok(Some(node.clone()));
        };
        if !node.data.is_long() {
            probe!("keeper_data_left_in_row");
            let is_loaded = self.load(path).await?;
            // Meanwhile it may have become long, and then its row does not have the data either.
            return Ok(match self.node_if_known(path) {
                Known::Here(node) if is_loaded && !node.data.is_unread() => Some(node),
                _ => None,
            });
        }
        let version = self.version();
        let found = self.all_rows(self.rows.data(path)).await?;
        if !self.is_unchanged(version, |changed| changed == path) {
            return Ok(None);
        }
        // As many as there are, whatever the node's row says.
        let mut data = BytesMut::new();
        found
            .iter()
            .for_each(|(_, piece)| data.extend_from_slice(piece));
        let Known::Here(now) = self.node_if_known(path) else {
            return Ok(None);
        };
        if now.data.len() != len {
            return Ok(None);
        }
        let data = match data.len() == len {
            true => Data::Here(data.freeze()),
            false => {
                let (range, has) = (self.rows.data(path), data.len());
                never!(
                    "KeeperDataDamaged",
                    "path" => path,
                    "key" => printable(&range.begin),
                    "bytes" => len,
                    "found" => has
                );
                Data::Damaged(len)
            }
        };
        let whole = Rc::new(Node {
            data,
            ..(*now).clone()
        });
        self.cache.borrow_mut().insert(path, Some(whole.clone()));
        Ok(Some(whole))
    }

    /// Calls `visit` with the names of the node's children, if they are known.
    pub fn with_children<R>(
        &self,
        path: &str,
        visit: impl FnOnce(&BTreeSet<Box<str>>) -> R,
    ) -> Option<R> {
        self.cache.borrow().children(path).map(visit)
    }

    /// The names of the node's children, if they are known.
    pub fn names(&self, path: &str) -> Option<Vec<Text>> {
        self.with_children(path, |names| {
            names.iter().map(|name| Text::from(&**name)).collect()
        })
    }

    /// Reads the list of children into the cache, if the node is there. False if it takes more than `most` bytes of
    /// memory, or longer to read than the store keeps a version. Who needs a list that is being read waits for that,
    /// and looks again.
    pub async fn load_children(&self, path: &str, most: usize) -> Result<bool> {
        let part = Cell::default();
        match self.load_more_children(path, most, &part).await {
            // From the beginning again it would take as long.
            Err(Error::transaction_too_old) if part.take().is_some() => Ok(false),
            loaded => loaded,
        }
    }

    /// As [`load_children`](Self::load_children), and goes on with a part of the list that was read before the store
    /// forgot its version, if nothing has changed in the list since.
    ///
    /// # Errors
    /// Those of the store; `transaction_too_old` leaves the part that was read.
    pub async fn load_more_children(
        &self,
        path: &str,
        most: usize,
        kept: &Cell<Option<Part>>,
    ) -> Result<bool> {
        let begun = self.listing.borrow().get(path).cloned();
        if let Some(has_ended) = begun {
            probe!("keeper_list_is_being_read");
            has_ended.wait_until(|has_ended| *has_ended).await;
            return Ok(true);
        }
        let _listing = Listing::begin(self, path);
        let is_about = |changed: &str| changed == path || paths::parent(changed) == Some(path);
        let before = kept.take();
        let before = before.filter(|part| self.is_unchanged(part.since, is_about));
        let mut part = before.unwrap_or_else(|| Part {
            since: self.version(),
            rest: self.rows.children(path),
            names: BTreeSet::new(),
            bytes: 0,
        });
        loop {
            let version = self.version();
            // Of rows with their data no more than a page is in memory.
            let most_at_once = Most::bytes(LIST_PAGE_BYTES.get());
            let reading = self.store.page(version, part.rest.clone(), most_at_once);
            let page = match reading.await {
                Err(Error::transaction_too_old) if !part.names.is_empty() => {
                    kept.set(Some(part));
                    return Err(Error::transaction_too_old);
                }
                page => page?,
            };
            let found = page.rows.iter();
            for name in found.filter_map(|(key, _)| self.rows.child_of(path, key)) {
                part.bytes += name.len() + CHILD_BYTES;
                part.names.insert(Box::from(name));
            }
            if part.bytes > most {
                return Ok(false);
            }
            if !self.is_unchanged(part.since, is_about) {
                return Ok(true);
            }
            // What was read is right at the version of now. There may come more that has this version.
            part.since = part.since.max(self.version() - 1);
            match page.rows.last() {
                Some((last, _)) if page.more => {
                    part.rest.begin = [last, &b"\0"[..]].concat().into();
                }
                _ => {
                    let is_all = part.rest == self.rows.children(path);
                    if is_all && page.rows.len() <= SMALL_LIST && !self.keeps_too_much() {
                        self.note_listed(path, version, &page.rows);
                    }
                    self.cache.borrow_mut().insert_children(path, part.names);
                    return Ok(true);
                }
            }
        }
    }

    /// The cache is full, and nothing may leave it.
    fn keeps_too_much(&self) -> bool {
        self.kept.get() > 0 && self.is_over_full()
    }

    /// Puts the children of a short list into the cache: who lists them often reads them next.
    fn note_listed(&self, path: &str, version: Version, found: &[(Bytes, Bytes)]) {
        let mut rest = found;
        while let Some((key, _)) = rest.first() {
            let Some(name) = self.rows.child_of(path, key) else {
                // A row of no node.
                rest = &rest[1..];
                continue;
            };
            let is_next = |(key, _): &(Bytes, Bytes)| self.rows.child_of(path, key).is_some();
            let len = 1 + rest[1..].iter().position(is_next).unwrap_or(rest.len() - 1);
            let child = paths::join(path, name);
            let is_below =
                |changed: &str| changed == child || paths::parent(changed) == Some(&child);
            let is_known = !matches!(self.node_if_known(&child), Known::Unknown);
            if !is_known && self.is_unchanged(version, is_below) {
                self.note_node(&child, &rest[..len]);
            }
            rest = &rest[len..];
        }
    }

    /// How many nodes there are below a node, and how many bytes of data they have. Nodes that come or go meanwhile
    /// may be counted or not.
    pub async fn count_below(&self, path: &str) -> Result<(usize, usize)> {
        let (mut count, mut bytes) = (0, 0);
        for depth in paths::depth(path) + 1.. {
            let (nodes, of_them) = self.count_nodes(self.rows.below(path, depth)).await?;
            count += nodes;
            bytes += of_them;
            if nodes == 0 {
                break;
            }
        }
        Ok((count, bytes))
    }

    /// Each part is read at the version of its time: one version would be too old before all is counted.
    async fn count_nodes(&self, mut range: KeyRange) -> Result<(usize, usize)> {
        let (mut nodes, mut bytes) = (0, 0);
        loop {
            let page = self.page(range.clone(), Most::bytes(COUNT_BYTES)).await?;
            for (_, row) in page.rows.iter().filter(|(key, _)| Rows::is_node(key)) {
                nodes += 1;
                // Of one that is damaged nobody knows its data.
                bytes += Node::from_row(row, self.zxids).map_or(0, |node| node.data.len());
            }
            match page.rows.last() {
                Some((last, _)) if page.more => {
                    range.begin = [&last[..], b"\0"].concat().into();
                }
                _ => return Ok((nodes, bytes)),
            }
        }
    }

    /// The row of a session. One that is damaged is none: nobody can prove that the session is his.
    pub async fn session(&self, session: i64) -> Result<Option<SessionRow>> {
        self.session_to_end(session, None).await
    }

    /// As [`session`](Self::session), for whoever ends it. One that is damaged does not say whose it is: then
    /// `otherwise` has it.
    pub async fn session_to_end(
        &self,
        session: i64,
        otherwise: Option<u64>,
    ) -> Result<Option<SessionRow>> {
        let key = self.rows.session(session);
        let Some(row) = self.row(key.clone()).await? else {
            return Ok(None);
        };
        let parsed = SessionRow::parse(&row);
        if parsed.is_none() {
            let session = format!("{session:#x}");
            never!("KeeperSessionDamaged", "session" => session, "key" => printable(&key));
        }
        let ending = |owner| SessionRow {
            owner,
            timeout_ms: 1, // it has not begun to end
            password: Bytes::new(),
        };
        Ok(parsed.or(otherwise.map(ending)))
    }

    /// Numbers of the whole tree.
    pub async fn totals(&self) -> Result<Totals> {
        let found = self.all_rows(self.rows.totals()).await?;
        let mut totals = Totals::default();
        found
            .iter()
            .for_each(|(key, row)| totals.take_row(key, row));
        Ok(totals)
    }

    /// The row of a gateway.
    pub async fn lease(&self, gateway: u64) -> Result<Option<Vec<u8>>> {
        let row = self.row(self.rows.gateway(gateway)).await?;
        Ok(row.map(|row| row.to_vec()))
    }

    /// The rows of all gateways.
    pub async fn leases(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let found = self.all_rows(self.rows.all_gateways()).await?;
        let lease = |(key, row): &(Bytes, Bytes)| {
            let gateway = Rows::last_number(key)?;
            (*key == self.rows.gateway(gateway)).then(|| (gateway, row.to_vec()))
        };
        Ok(found.iter().filter_map(lease).collect())
    }

    /// The sessions of a gateway, with their time-outs in milliseconds.
    pub async fn owned_by(&self, gateway: u64) -> Result<Vec<(i64, u32)>> {
        let found = self.all_rows(self.rows.all_owned(gateway)).await?;
        let session = |(key, row): &(Bytes, Bytes)| {
            let session = Rows::last_number(key)? as i64;
            let timeout_ms = row[..]
                .try_into()
                .map_or(TIMEOUT_MS_MAX, u32::from_be_bytes);
            (*key == self.rows.owned(gateway, session)).then_some((session, timeout_ms))
        };
        Ok(found.iter().filter_map(session).collect())
    }

    /// The paths of the containers and of the nodes with a time to live.
    pub async fn timed(&self) -> Result<Vec<Text>> {
        let found = self.all_rows(self.rows.all_timed()).await?;
        let path = |(key, _): &(Bytes, Bytes)| self.rows.timed_path(key).map(Text::from);
        Ok(found.iter().filter_map(path).collect())
    }

    /// Looks up the first ephemeral nodes of a session that ends: as many as one transaction deletes.
    pub async fn note_ephemerals(&self, session: i64, found: &mut FoundSession) -> Result<()> {
        let most = Most {
            rows: END_NODES_MAX.get(),
            bytes: END_PATHS_BYTES,
        };
        let index = self.rows.ephemerals(session);
        let page = self.page(index.clone(), most).await?;
        found.note_index(&self.rows, index, &page);
        Ok(())
    }

    /// The ephemeral nodes of a session, and whether they are those of now: none has come or gone since the version
    /// that was read.
    pub async fn ephemerals(&self, session: i64) -> Result<(BTreeSet<Text>, bool)> {
        let version = self.version();
        let found = self.all_rows(self.rows.ephemerals(session)).await?;
        let path = |(key, _): &(Bytes, Bytes)| self.rows.ephemeral_path(key).map(Text::from);
        let all: BTreeSet<Text> = found.iter().filter_map(path).collect();
        let is_one = |changed: &str| match self.node_if_known(changed) {
            Known::Here(node) => node.lifetime == Lifetime::Ephemeral(session),
            Known::Absent | Known::Damaged | Known::Unknown => all.contains(changed),
        };
        let are_of_now = self.is_unchanged(version, is_one);
        Ok((all, are_of_now))
    }
}

impl Replica {
    /// Loads what a list looks at that has more of the children than their names, or that has all nodes below one: as
    /// far as `left` bytes of memory go. False if the rows do not have, at the replica's version, what it has changed
    /// last, or somebody changes them meanwhile.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn load_below(&self, request: &Request, mut left: usize) -> Result<bool> {
        let (path, with_data, is_deep) = match request {
            Request::List { path, details, .. } => {
                (path, details.is_some_and(|details| details.data), false)
            }
            Request::ListRecursive { path, .. } => (path, false, true),
            _ => return Ok(true),
        };
        let first = Text::from(paths::named(path));
        if !self.load_child(&first, false, left).await? {
            return Ok(false);
        }
        let mut lists = VecDeque::from([first]);
        while let Some(path) = lists.pop_front() {
            let is_here = |path: &str| matches!(self.node_if_known(path), Known::Here(_));
            if is_here(&path) && self.names(&path).is_none() {
                let is_short = self
                    .load_children(&path, left.min(LIST_BYTES_MAX.get()))
                    .await?;
                if is_short && is_here(&path) && self.names(&path).is_none() {
                    return Ok(false);
                }
            }
            let Some(rest) = left.checked_sub(self.bytes_of(&path)) else {
                return Ok(true);
            };
            left = rest;
            for name in self.names(&path).unwrap_or_default() {
                let child = Text::from(paths::join(&path, &name));
                if !self.load_child(&child, with_data, left).await? {
                    return Ok(false);
                }
                let Some(rest) = left.checked_sub(self.bytes_of(&child)) else {
                    return Ok(true);
                };
                left = rest;
                if is_deep {
                    lists.push_back(child);
                }
            }
        }
        Ok(true)
    }

    async fn load_child(&self, child: &str, with_data: bool, left: usize) -> Result<bool> {
        let is_unknown = matches!(self.node_if_known(child), Known::Unknown);
        if is_unknown && !self.load(child).await? {
            return Ok(false);
        }
        match self.node_if_known(child) {
            Known::Here(node) if with_data && node.data.len() <= left => {
                Ok(self.data(child, &node).await?.is_some())
            }
            _ => Ok(true),
        }
    }

    /// Memory of a node, and of its list of children if that is known.
    pub fn bytes_of(&self, path: &str) -> usize {
        self.cache.borrow().bytes_of(path)
    }
}

/// What was read of a list of children.
pub struct Part {
    /// Later changes of the list are not in it.
    since: Version,
    /// The rows that are still to be read.
    rest: KeyRange,
    names: BTreeSet<Box<str>>,
    bytes: usize,
}

/// A list of children that is being read, until whoever reads it has it or gives up.
struct Listing<'a>(&'a Replica, Text, Watch<bool>);

impl<'a> Listing<'a> {
    fn begin(replica: &'a Replica, path: &str) -> Self {
        let listing = Listing(replica, path.into(), Watch::new(false));
        let mut all = replica.listing.borrow_mut();
        let before = all.insert(listing.1.clone(), listing.2.clone());
        assert!(before.is_none(), "the children of {path} are read twice");
        listing
    }
}

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        self.0.listing.borrow_mut().remove(&self.1);
        self.2.set(true);
    }
}

/// See [`Replica::keep_all`].
pub struct KeepAll(Rc<Replica>);

impl Drop for KeepAll {
    fn drop(&mut self) {
        let kept = self.0.kept.get();
        assert!(kept > 0, "a guard is counted while it is held");
        self.0.kept.set(kept - 1);
        if self.0.kept.get() == 0 {
            self.0.cache.borrow_mut().keep_all(false);
        }
    }
}

impl Clone for KeepAll {
    fn clone(&self) -> Self {
        self.0.keep_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Boxed;
    use plinth_runtime::real::block_on;
    use plinth_runtime::{Either, race, yield_now};
    use std::pin::pin;

    /// The same rows at every version: a node and its data.
    struct Kept {
        node: Vec<u8>,
        data: Vec<u8>,
    }

    impl Store for Kept {
        fn row<'a>(&'a self, _: Version, _: &'a [u8]) -> Boxed<'a, Result<Option<Bytes>>> {
            Box::pin(async { Ok(None) })
        }

        fn page(&self, _: Version, range: KeyRange, _: Most) -> Boxed<'_, Result<Page>> {
            let rows = Rows::new("t");
            let row = match range == rows.around_node("/a") {
                true => (rows.node("/a"), self.node.clone()),
                false => (range.begin.to_vec(), self.data.clone()),
            };
            let rows = vec![(row.0.into(), row.1.into())];
            Box::pin(async {
                yield_now().await;
                Ok(Page { rows, more: false })
            })
        }
    }

    #[test]
    fn what_was_read_before_more_changes_than_are_remembered_is_not_believed() {
        block_on(async {
            let store = Kept {
                node: Node::new(1, Data::None).to_row().0,
                data: vec![],
            };
            let (rows, zxids) = (Rows::new("t"), Zxids { base: 0 });
            let replica = Rc::new(Replica::new(Rc::new(store), rows, zxids, 10, 1 << 20));
            let mut loading = pin!(replica.load("/a"));
            let begun = race(&mut loading, async {}).await;
            assert!(matches!(begun, Either::Right(())), "it waits for the store");
            // The replica catches up, and has not reached the version of the last change.
            let changed = Node::new(2, Data::None);
            replica.apply(11, &Change::DataSet("/a".into(), changed), 11 << 14);
            let other = Change::Deleted("/b".into());
            for version in 12..12 + REMEMBERED_CHANGES.get() as i64 {
                replica.apply(version, &other, version << 14);
            }
            assert_eq!(loading.await, Ok(false));
            assert!(matches!(replica.node_if_known("/a"), Known::Unknown));
        });
    }

    #[test]
    fn data_that_has_become_long_while_it_was_read_is_not_taken_for_none() {
        block_on(async {
            let long = Data::Here(vec![7; 5000].into());
            let store = Kept {
                node: Node::new(1, long.clone()).to_row().0,
                data: vec![7; 5000],
            };
            let (rows, zxids) = (Rows::new("t"), Zxids { base: 0 });
            let replica = Replica::new(Rc::new(store), rows, zxids, 10, 1 << 20);
            // What a reader had seen before it waited.
            let seen = Rc::new(Node::new(1, Data::Unread(500)));
            assert_eq!(replica.data("/a", &seen).await, Ok(None));
            let Known::Here(now) = replica.node_if_known("/a") else {
                panic!("it was loaded");
            };
            let whole = replica.data("/a", &now).await.expect("read");
            assert_eq!(whole.expect("unchanged").data, long);
        });
    }
}
