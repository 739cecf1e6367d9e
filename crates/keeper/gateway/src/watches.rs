//! Who wants to hear of which nodes, as ZooKeeper's `WatchManager` keeps it. A gateway has the watches of its clients;
//! the events come from its replica, in the order of the commits.
//!
//! A client is told of a change before it can read the change: the event is in the client's outbox before the replica
//! answers anything from its new state.

use crate::wire::{Code, event, watch_mode, watcher};
use foldhash::fast::FixedState;
use plinth_runtime::checks::are_expensive_on;
use std::rc::Rc;

/// Number of a client's connection.
pub type Client = u64;

/// How long a watch lives, and what it covers: a set, because a client may have several on one node.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Modes(u8);

const STANDARD: Modes = Modes(1);
const PERSISTENT: Modes = Modes(2);
const RECURSIVE: Modes = Modes(4);

impl Modes {
    fn has(self, other: Modes) -> bool {
        self.0 & other.0 != 0
    }
    fn with(self, other: Modes) -> Modes {
        Modes(self.0 | other.0)
    }
    fn without(self, other: Modes) -> Modes {
        Modes(self.0 & !other.0)
    }
    fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[expect(
    clippy::disallowed_types,
    reason = "the hasher is given, and no order of iteration is seen"
)]
type Map<K, V> = std::collections::HashMap<K, V, FixedState>;

/// Watches of one kind: of data and existence, or of children.
struct Table {
    by_path: Map<Rc<str>, Vec<(Client, Modes)>>,
    by_client: Map<Client, Vec<Rc<str>>>,
    watches: usize,
    recursive: usize,
    /// Changes since both sides were compared.
    unchecked: usize,
}

impl Table {
    fn new(seed: u64) -> Table {
        Table {
            by_path: Map::with_hasher(FixedState::with_seed(seed)),
            by_client: Map::with_hasher(FixedState::with_seed(seed)),
            watches: 0,
            recursive: 0,
            unchecked: 0,
        }
    }

    /// Asserts that both sides agree as far as that costs nothing, and now and then all of it.
    fn agree(&mut self) {
        let (paths, clients) = (self.by_path.len(), self.by_client.len());
        assert!(
            paths.max(clients).max(self.recursive) <= self.watches
                && (paths == 0) == (self.watches == 0)
                && (clients == 0) == (self.watches == 0),
            "{} watches, {} of them recursive, of {paths} paths by {clients} clients",
            self.watches,
            self.recursive
        );
        self.unchecked += 1;
        if are_expensive_on() && self.unchecked > self.watches {
            self.unchecked = 0;
            self.check();
        }
    }

    fn check(&self) {
        let by_path: usize = self.by_path.values().map(Vec::len).sum();
        let by_client: usize = self.by_client.values().map(Vec::len).sum();
        assert_eq!(
            (by_path, by_client),
            (self.watches, self.watches),
            "watches of both sides"
        );
        for (client, paths) in &self.by_client {
            for path in paths {
                let theirs = self.by_path.get(path).map_or(&[][..], |watchers| watchers);
                let is_known =
                    |(watcher, modes): &(Client, Modes)| watcher == client && !modes.is_empty();
                assert!(
                    theirs.iter().any(is_known),
                    "client {client} and its watch of {path}"
                );
            }
        }
        let watchers = self.by_path.values().flatten();
        let recursive = watchers.filter(|(_, modes)| modes.has(RECURSIVE)).count();
        assert_eq!(recursive, self.recursive, "recursive watches");
    }

    fn add(&mut self, path: &str, client: Client, mode: Modes) {
        if !self.by_path.contains_key(path) {
            self.by_path.insert(path.into(), Vec::new());
        }
        let (path, watchers) = self.by_path.get_key_value(path).expect("inserted");
        let (path, place) = (path.clone(), watchers.iter().position(|w| w.0 == client));
        let watchers = self.by_path.get_mut(&path).expect("inserted");
        let before = match place {
            Some(place) => watchers[place].1,
            None => {
                watchers.push((client, Modes(0)));
                self.by_client.entry(client).or_default().push(path);
                self.watches += 1;
                Modes(0)
            }
        };
        let place = place.unwrap_or(watchers.len() - 1);
        watchers[place].1 = before.with(mode);
        self.recursive += usize::from(mode == RECURSIVE && !before.has(RECURSIVE));
        self.agree();
    }

    fn modes(&self, path: &str, client: Client) -> Modes {
        let watchers = self.by_path.get(path).map_or(&[][..], |w| w);
        let found = watchers.iter().find(|w| w.0 == client);
        found.map_or(Modes(0), |w| w.1)
    }

    /// Takes `modes` from the client's watch of `path`. True if it had one of them.
    fn remove(&mut self, path: &str, client: Client, modes: Modes) -> bool {
        let before = self.modes(path, client);
        if !before.has(modes) {
            return false;
        }
        let after = before.without(modes);
        self.recursive -= usize::from(before.has(RECURSIVE) && !after.has(RECURSIVE));
        let watchers = self.by_path.get_mut(path).expect("found just now");
        if !after.is_empty() {
            watchers
                .iter_mut()
                .find(|w| w.0 == client)
                .expect("found")
                .1 = after;
            return true;
        }
        self.watches -= 1;
        watchers.retain(|w| w.0 != client);
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
        let paths = self.by_client.get_mut(&client).expect("it has watches");
        paths.retain(|other| **other != *path);
        if paths.is_empty() {
            self.by_client.remove(&client);
        }
        self.agree();
        true
    }

    fn remove_client(&mut self, client: Client) {
        for path in self.by_client.remove(&client).unwrap_or_default() {
            let watchers = self.by_path.get_mut(&path).expect("both sides agree");
            let gone = watchers.iter().position(|w| w.0 == client);
            let (_, modes) = watchers.swap_remove(gone.expect("both sides agree"));
            self.recursive -= usize::from(modes.has(RECURSIVE));
            self.watches -= 1;
            if watchers.is_empty() {
                self.by_path.remove(&path);
            }
        }
        self.agree();
    }

    /// The clients to be told of a change at `path`, each once. One-shot watches are over with that.
    fn trigger(&mut self, path: &str, told: &mut Vec<Client>) {
        let begin = told.len();
        if let Some(watchers) = self.by_path.get_mut(path) {
            let mut over = Vec::new();
            for (client, modes) in watchers.iter_mut() {
                told.push(*client);
                *modes = modes.without(STANDARD);
                if modes.is_empty() {
                    over.push(*client);
                }
            }
            self.forget(path, &over);
        }
        let mut path = path;
        while self.recursive > 0
            && let Some(parent) = crate::paths::parent(path)
        {
            let above = self.by_path.get(parent).map_or(&[][..], |w| w);
            for (client, _) in above.iter().filter(|w| w.1.has(RECURSIVE)) {
                if !told[begin..].contains(client) {
                    told.push(*client);
                }
            }
            path = parent;
        }
    }

    /// Removes watches of `path` whose modes are gone.
    fn forget(&mut self, path: &str, over: &[Client]) {
        if over.is_empty() {
            return;
        }
        self.watches -= over.len();
        let watchers = self.by_path.get_mut(path).expect("it has watches");
        watchers.retain(|w| !w.1.is_empty());
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
        for client in over {
            let paths = self.by_client.get_mut(client).expect("both sides agree");
            let place = paths.iter().position(|other| **other == *path);
            paths.swap_remove(place.expect("both sides agree"));
            if paths.is_empty() {
                self.by_client.remove(client);
            }
        }
        self.agree();
    }
}

/// See the module.
pub struct Watches {
    data: Table,
    child: Table,
}

/// What has happened to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    Created,
    Deleted,
    DataSet,
}

impl Watches {
    /// `seed` of the hashes of paths, which clients choose.
    pub fn new(seed: u64) -> Watches {
        Watches {
            data: Table::new(seed),
            child: Table::new(seed),
        }
    }

    pub fn watch_data(&mut self, path: &str, client: Client) {
        self.data.add(path, client, STANDARD);
    }

    pub fn watch_children(&mut self, path: &str, client: Client) {
        self.child.add(path, client, STANDARD);
    }

    /// Adds a watch that stays. `mode` is one of [`watch_mode`].
    pub fn add(&mut self, path: &str, client: Client, mode: i32) -> Result<(), Code> {
        match mode {
            watch_mode::PERSISTENT => {
                self.data.add(path, client, PERSISTENT);
                self.child.add(path, client, PERSISTENT);
            }
            watch_mode::PERSISTENT_RECURSIVE => self.data.add(path, client, RECURSIVE),
            _ => return Err(Code::MARSHALLING_ERROR),
        }
        Ok(())
    }

    /// The tables and modes that a kind of watcher names.
    fn of_kind(kind: i32) -> Result<(Modes, Modes), Code> {
        let none = Modes(0);
        Ok(match kind {
            watcher::CHILDREN => (none, STANDARD),
            watcher::DATA => (STANDARD, none),
            watcher::PERSISTENT => (PERSISTENT, PERSISTENT),
            watcher::PERSISTENT_RECURSIVE => (RECURSIVE, none),
            watcher::ANY => (Modes(7), Modes(7)),
            _ => return Err(Code::MARSHALLING_ERROR),
        })
    }

    pub fn check(&self, path: &str, client: Client, kind: i32) -> Result<(), Code> {
        let (data, child) = Self::of_kind(kind)?;
        let has =
            self.data.modes(path, client).has(data) || self.child.modes(path, client).has(child);
        if has { Ok(()) } else { Err(Code::NO_WATCHER) }
    }

    pub fn remove(&mut self, path: &str, client: Client, kind: i32) -> Result<(), Code> {
        let (data, child) = Self::of_kind(kind)?;
        let of_data = self.data.remove(path, client, data);
        let of_child = self.child.remove(path, client, child);
        if of_data || of_child {
            Ok(())
        } else {
            Err(Code::NO_WATCHER)
        }
    }

    pub fn remove_client(&mut self, client: Client) {
        self.data.remove_client(client);
        self.child.remove_client(client);
    }

    /// Calls `tell` with the clients to be told of a change, and the path and kind of the event.
    pub fn fire(
        &mut self,
        path: &str,
        happened: Happened,
        mut tell: impl FnMut(Client, &str, i32),
    ) {
        if self.data.watches == 0 && self.child.watches == 0 {
            return;
        }
        let kind = match happened {
            Happened::Created => event::CREATED,
            Happened::Deleted => event::DELETED,
            Happened::DataSet => event::DATA_CHANGED,
        };
        let mut told = Vec::new();
        self.data.trigger(path, &mut told);
        if happened == Happened::Deleted {
            let of_data = told.len();
            self.child.trigger(path, &mut told);
            // A client that watches both hears of the removal once.
            let mut kept = told.split_off(of_data);
            kept.retain(|client| !told.contains(client));
            told.extend(kept);
        }
        told.iter().for_each(|client| tell(*client, path, kind));
        if happened == Happened::DataSet {
            return;
        }
        if let Some(parent) = crate::paths::parent(path) {
            let mut told = Vec::new();
            self.child.trigger(parent, &mut told);
            let children_changed = |client: &Client| tell(*client, parent, event::CHILDREN_CHANGED);
            told.iter().for_each(children_changed);
        }
    }

    /// Number of watches, of paths and of clients that have one.
    pub fn counts(&self) -> (usize, usize, usize) {
        let mut clients: Vec<&Client> = self
            .data
            .by_client
            .keys()
            .chain(self.child.by_client.keys())
            .collect();
        clients.sort_unstable();
        clients.dedup();
        let paths = self.data.by_path.len() + self.child.by_path.len();
        (self.data.watches + self.child.watches, paths, clients.len())
    }

    /// Every watch, as (client, path), sorted and each once.
    pub fn list(&self) -> Vec<(Client, Rc<str>)> {
        let of = |table: &Table| -> Vec<(Client, Rc<str>)> {
            let paths = |(client, paths): (&Client, &Vec<Rc<str>>)| {
                let client = *client;
                paths
                    .iter()
                    .map(move |path| (client, path.clone()))
                    .collect::<Vec<_>>()
            };
            table.by_client.iter().flat_map(paths).collect()
        };
        let mut all = of(&self.data);
        all.extend(of(&self.child));
        all.sort();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(watches: &mut Watches, path: &str, happened: Happened) -> Vec<(Client, String, i32)> {
        let mut all = Vec::new();
        watches.fire(path, happened, |client, path, kind| {
            all.push((client, path.to_string(), kind))
        });
        all.sort();
        all
    }

    #[test]
    fn a_standard_watch_tells_once() {
        let mut watches = Watches::new(1);
        watches.watch_data("/a", 1);
        watches.watch_data("/a", 1);
        watches.watch_children("/", 2);
        let created = fired(&mut watches, "/a", Happened::Created);
        let expected = [
            (1, "/a".into(), event::CREATED),
            (2, "/".into(), event::CHILDREN_CHANGED),
        ];
        assert_eq!(created, expected);
        assert_eq!(fired(&mut watches, "/a", Happened::DataSet), []);
        assert_eq!(watches.counts(), (0, 0, 0));
    }

    #[test]
    fn who_watches_data_and_children_hears_of_a_removal_once() {
        let mut watches = Watches::new(1);
        watches.watch_data("/a/b", 1);
        watches.watch_children("/a/b", 1);
        watches.watch_children("/a", 1);
        let deleted = fired(&mut watches, "/a/b", Happened::Deleted);
        let expected = [
            (1, "/a".into(), event::CHILDREN_CHANGED),
            (1, "/a/b".into(), event::DELETED),
        ];
        assert_eq!(deleted, expected);
        assert_eq!(watches.counts(), (0, 0, 0));
    }

    #[test]
    fn a_persistent_watch_stays_and_tells_of_children() {
        let mut watches = Watches::new(1);
        watches
            .add("/a", 1, watch_mode::PERSISTENT)
            .expect("a mode");
        for _ in 0..2 {
            let set = fired(&mut watches, "/a", Happened::DataSet);
            assert_eq!(set, [(1, "/a".into(), event::DATA_CHANGED)]);
            let created = fired(&mut watches, "/a/b", Happened::Created);
            assert_eq!(created, [(1, "/a".into(), event::CHILDREN_CHANGED)]);
        }
        assert_eq!(watches.add("/a", 1, 7), Err(Code::MARSHALLING_ERROR));
    }

    #[test]
    fn a_recursive_watch_tells_of_every_node_below_but_not_of_lists_of_children() {
        let mut watches = Watches::new(1);
        watches
            .add("/", 1, watch_mode::PERSISTENT_RECURSIVE)
            .expect("a mode");
        watches
            .add("/a", 1, watch_mode::PERSISTENT_RECURSIVE)
            .expect("a mode");
        let created = fired(&mut watches, "/a/b/c", Happened::Created);
        assert_eq!(created, [(1, "/a/b/c".into(), event::CREATED)]);
        let deleted = fired(&mut watches, "/a", Happened::Deleted);
        assert_eq!(deleted, [(1, "/a".into(), event::DELETED)]);
        watches.remove_client(1);
        assert_eq!(fired(&mut watches, "/a/b", Happened::Created), []);
        assert_eq!(watches.counts(), (0, 0, 0));
    }

    #[test]
    fn watches_are_removed_by_kind() {
        let mut watches = Watches::new(1);
        watches.watch_data("/a", 1);
        watches.watch_children("/a", 1);
        assert_eq!(
            watches.check("/a", 1, watcher::PERSISTENT),
            Err(Code::NO_WATCHER)
        );
        assert_eq!(watches.remove("/a", 2, watcher::ANY), Err(Code::NO_WATCHER));
        assert_eq!(watches.remove("/a", 1, watcher::DATA), Ok(()));
        assert_eq!(
            watches.remove("/a", 1, watcher::DATA),
            Err(Code::NO_WATCHER)
        );
        assert_eq!(watches.check("/a", 1, watcher::CHILDREN), Ok(()));
        assert_eq!(watches.remove("/a", 1, watcher::ANY), Ok(()));
        assert_eq!(watches.counts(), (0, 0, 0));
    }
}
