//! Importing from a live ZooKeeper.
//!
//! ```text
//!   walk      every node is read once, over several sessions, and written
//!   catch up  a watch on the whole tree has told what changes meanwhile: these nodes are read again
//!   verify    every node's Stat is asked for and compared; what differs is copied again
//!   end       the tree is read back, and gateways may open it
//! ```
//! Each session begins with a sync after the watch is set. So what a session reads is not older than the watch, and no
//! change is missed. If the watching session breaks, or a server is too old for the watch, the nodes are compared
//! again.

use crate::files::Loaded;
use crate::image::{CONFIG, Image, is_within};
use crate::import::{Expected, Imported, compare};
use crate::source::{Link, Servers};
use crate::target::{Put, Target};
use crate::{BEGINS, Outcome, Tell};
use plinth_client::Database;
use plinth_keeper::paths;
use plinth_keeper::setup::{ALWAYS_THERE, first_node};
use plinth_keeper::tree::node::{Counts, Data, Lifetime, Node};
use plinth_keeper::wire::{Acl, Answer, Code, Request, Stat, Text, event};
use plinth_runtime::{Duration, Either, now, race, sleep, spawn};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, ready};
use std::pin::pin;
use std::rc::Rc;

/// Sessions that read side by side.
const LINKS: usize = 4;
/// Nodes that are read at a time.
const WINDOW: usize = 400;
/// How often the changes are looked at while following.
const LOOK: Duration = Duration::from_millis(200);
/// How often all nodes are compared while following a server that cannot watch.
const COMPARE: Duration = Duration::from_secs(10);
/// Rounds of catching up at the end: with writers that go on there is always something new.
const ROUNDS_MAX: usize = 10;

/// What a user may choose.
pub struct LiveOptions {
    pub tree: String,
    /// Only what is below this path, and the nodes on the way to it.
    pub path: String,
    pub skip_unreadable: bool,
    /// Files of the same ensemble: they say which nodes are containers or have a time to live, which no client sees.
    pub kinds: Option<Loaded>,
}

/// Imports from a live ZooKeeper. Follows its changes until `stop` is ready, then verifies and ends.
///
/// # Errors
/// The tree is there, the source does not answer, or has nodes that cannot be read or do not fit.
pub async fn from_live(
    database: &Database,
    servers: Servers,
    options: LiveOptions,
    stop: impl Future,
    tell: Tell<'_>,
) -> Outcome<Imported> {
    Target::check_absent(database, &options.tree).await?;
    let servers = Rc::new(servers);
    let path = Text::from(options.path.as_str());
    let link = |number| Rc::new(Link::new(servers.clone(), number, None));
    let watch = Rc::new(Link::new(servers.clone(), 0, Some(path.clone())));
    // It is first, so that the others are not older.
    watch.client().await?;
    // A wrong path is said before there is a tree.
    let (data, _) = requests(&path);
    if watch.ask(data).await?.err() == Some(Code::NO_NODE) {
        return Err(no_such_node(&path));
    }
    tell(BEGINS, 0);
    let mut live = Live {
        target: Target::begin(database, &options.tree).await?,
        watch,
        links: (1..=LINKS).map(link).collect(),
        path,
        kinds: options.kinds.map(|loaded| loaded.image),
        lists: Image::default(),
        known: BTreeMap::new(),
        passes: 0,
        changed: BTreeSet::new(),
        ephemerals: BTreeSet::new(),
        unreadable: BTreeMap::new(),
        skips: options.skip_unreadable,
        compared: 0,
        again: 0,
        tell,
    };
    live.walk().await?;
    live.refuse_unreadable()?;
    live.follow(stop).await?;
    live.end().await
}

fn no_such_node(path: &Text) -> String {
    format!("{path}: the source has no such node")
}

/// A node that was copied.
struct Known {
    expected: Expected,
    /// The comparison that saw it last.
    pass: u64,
}

/// What a path is at the source.
enum Found {
    Gone,
    Ephemeral,
    Unreadable(&'static str),
    /// With the number of its children.
    Node(Node, i32),
}

/// What a comparison sees of a path.
enum Seen {
    There(Stat),
    Gone,
    /// Nothing may be asked about it.
    Hidden,
}

struct Live<'a> {
    target: Target,
    watch: Rc<Link>,
    links: Vec<Rc<Link>>,
    path: Text,
    kinds: Option<Image>,
    /// One memory for equal access lists.
    lists: Image,
    known: BTreeMap<Text, Known>,
    passes: u64,
    /// Paths that the watch has told of.
    changed: BTreeSet<Text>,
    ephemerals: BTreeSet<Text>,
    unreadable: BTreeMap<Text, &'static str>,
    skips: bool,
    /// How many sessions the watch had had when all nodes were compared last.
    compared: u64,
    again: u64,
    tell: Tell<'a>,
}

impl Live<'_> {
    fn link(&self, number: usize) -> &Rc<Link> {
        &self.links[number % self.links.len()]
    }

    /// The nodes on the way to the part that is copied.
    fn above(&self) -> Vec<Text> {
        let parent = |path: &Text| paths::parent(path).map(Text::from);
        std::iter::successors(parent(&self.path), parent).collect()
    }

    /// Copies everything once.
    async fn walk(&mut self) -> Outcome {
        self.compared = self.watch.sessions();
        for link in &self.links {
            link.client().await?;
        }
        self.copy(self.above(), false).await?;
        if !self.known.contains_key("/") && self.path != "/" {
            return Err(format!("{}: a node above it cannot be read", self.path));
        }
        let mut left = vec![self.path.clone()];
        while !left.is_empty() {
            let some = left.split_off(left.len().saturating_sub(WINDOW));
            let below = self.copy(some, true).await?;
            left.extend(below);
            self.take_events().await?;
            (self.tell)("copying", self.known.len() as u64);
        }
        match self.known.contains_key(&self.path) || !self.unreadable.is_empty() {
            true => Ok(()),
            false => Err(no_such_node(&self.path)),
        }
    }

    fn refuse_unreadable(&self) -> Outcome {
        match self.unreadable.first_key_value() {
            Some((path, why)) if !self.skips => Err(format!(
                "{} nodes cannot be read, the first is {path}: {why}; name more users with --auth, or leave them and \
                what is below them out with --skip-unreadable",
                self.unreadable.len()
            )),
            _ => Ok(()),
        }
    }

    /// Makes the tree's nodes those that the source has now. With `descends`, gives the paths of their children.
    async fn copy(&mut self, paths: Vec<Text>, descends: bool) -> Outcome<Vec<Text>> {
        let paths: Vec<Text> = paths.into_iter().filter(|path| *path != CONFIG).collect();
        let found = self.read(&paths).await?;
        let mut puts: Vec<Put> = Vec::new();
        let mut parents = Vec::new();
        for (path, found) in paths.into_iter().zip(found) {
            self.ephemerals.remove(&path);
            self.unreadable.remove(&path);
            match found {
                Found::Node(node, children) => {
                    if children > 0 {
                        parents.push(path.clone());
                    }
                    let expected = Expected::of(&node);
                    let known = self.known.get(&path);
                    if known.is_none_or(|known| known.expected != expected) {
                        let pass = self.passes;
                        puts.push((path.clone(), Some(node)));
                        self.known.insert(path, Known { expected, pass });
                    }
                    continue;
                }
                Found::Gone => {}
                Found::Ephemeral => {
                    self.ephemerals.insert(path.clone());
                }
                Found::Unreadable(why) => {
                    self.unreadable.insert(path.clone(), why);
                }
            }
            if self.known.remove(&path).is_some() {
                puts.push((path, None));
            }
        }
        let target = self.target.clone();
        let writing = spawn("import", async move { target.put(puts).await });
        let below = match descends {
            true => self.children(parents).await?,
            false => Vec::new(),
        };
        writing.await?;
        Ok(below)
    }

    async fn children(&mut self, parents: Vec<Text>) -> Outcome<Vec<Text>> {
        let mut asked = Vec::new();
        for (number, path) in parents.into_iter().enumerate() {
            let link = self.link(number).clone();
            let request = Request::GetChildren {
                path: path.clone(),
                watch: false,
            };
            asked.push((path, link.send(request), link));
        }
        let mut all = Vec::new();
        for (path, sent, link) in asked {
            match link.finish(sent).await? {
                Ok(Answer::Children(names)) => {
                    all.extend(
                        names
                            .iter()
                            .map(|name| Text::from(paths::join(&path, name))),
                    );
                }
                Ok(_) | Err(Code::NO_NODE) => {}
                Err(Code::NO_AUTH) => {
                    self.unreadable
                        .insert(path, "its children may not be listed");
                }
                Err(code) => return Err(format!("{path}: its children cannot be listed: {code}")),
            }
        }
        Ok(all)
    }

    /// What the paths are. A single session would be slow; several are not older than the watch.
    async fn read(&mut self, paths: &[Text]) -> Outcome<Vec<Found>> {
        let ask = |number: usize, path: &Text| {
            let link = self.link(number).clone();
            let (data, acl) = requests(path);
            (link.send(data), link.send(acl), link)
        };
        let asked: Vec<_> = paths.iter().enumerate().map(|(n, p)| ask(n, p)).collect();
        let mut found = Vec::new();
        for (path, (data, acl, link)) in paths.iter().zip(asked) {
            let (mut data, mut acl) = (link.finish(data).await?, link.finish(acl).await?);
            while is_torn(&data, &acl) {
                let (first, second) = requests(path);
                let (first, second) = (link.send(first), link.send(second));
                (data, acl) = (link.finish(first).await?, link.finish(second).await?);
            }
            found.push(self.make(path, data, acl)?);
        }
        Ok(found)
    }

    fn make(
        &mut self,
        path: &Text,
        data: Result<Answer, Code>,
        acl: Result<Answer, Code>,
    ) -> Outcome<Found> {
        let (data, stat) = match data {
            Ok(Answer::Data(data, stat)) => (data, stat),
            Err(Code::NO_NODE) => return Ok(Found::Gone),
            Err(Code::NO_AUTH) => return Ok(Found::Unreadable("its data may not be read")),
            other => return Err(format!("{path}: it cannot be read: {other:?}")),
        };
        if stat.ephemeral_owner != 0 {
            return Ok(Found::Ephemeral);
        }
        let acl = match acl {
            Ok(Answer::Acl(acl, _)) => acl,
            Err(Code::NO_AUTH) => return Ok(Found::Unreadable("its access list may not be read")),
            other => return Err(format!("{path}: its access list cannot be read: {other:?}")),
        };
        if acl.iter().any(is_masked) {
            return Ok(Found::Unreadable(
                "its access list comes without the hashes of passwords",
            ));
        }
        if !paths::is_valid(path) || [stat.czxid, stat.mzxid, stat.pzxid].iter().any(|z| *z < 0) {
            return Err(format!("{path}: the keeper cannot have such a node"));
        }
        let own = |entry: &Acl| Acl {
            perms: entry.perms,
            scheme: entry.scheme.detached(),
            id: entry.id.detached(),
        };
        let acl = self.lists.list(acl.iter().map(own).collect());
        let lifetime = self.kinds.as_ref().and_then(|kinds| kinds.nodes.get(path));
        let lifetime = lifetime.filter(|node| node.czxid == stat.czxid);
        let node = Node {
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            pzxid: stat.pzxid,
            ctime: stat.ctime,
            mtime: stat.mtime,
            version: stat.version,
            aversion: stat.aversion,
            counts: Counts {
                created: created(&stat),
                present: 0,
            },
            lifetime: lifetime.map_or(Lifetime::Persistent, |node| node.lifetime),
            acl,
            data: Data::of(data),
        };
        Ok(Found::Node(node, stat.num_children))
    }

    /// Takes the events that have come.
    async fn take_events(&mut self) -> Outcome {
        if !self.watch.has_watch() {
            return Ok(());
        }
        let client = self.watch.client().await?;
        while let Either::Left(Some(event)) = race(client.next_event(), ready(())).await {
            if event.kind == event::NONE {
                continue;
            }
            if let Some(parent) = paths::parent(&event.path)
                && event.kind != event::DATA_CHANGED
                && (is_within(parent, &self.path) || is_within(&self.path, parent))
            {
                self.changed.insert(parent.into());
            }
            self.changed.insert(event.path.detached());
        }
        Ok(())
    }

    /// True if changes may have been missed since all nodes were compared.
    fn has_gap(&self) -> bool {
        self.watch.has_watch() && self.watch.sessions() != self.compared
    }

    async fn copy_changed(&mut self) -> Outcome {
        while !self.changed.is_empty() {
            let mut some = Vec::new();
            while some.len() < WINDOW
                && let Some(path) = self.changed.pop_first()
            {
                some.push(path);
            }
            self.again += some.len() as u64;
            // A server that others talk to may be behind the one that told of the change.
            for link in &self.links {
                link.sync().await?;
            }
            self.copy(some, false).await?;
        }
        Ok(())
    }

    /// Copies what changes, until `stop`.
    async fn follow(&mut self, stop: impl Future) -> Outcome {
        let mut stop = pin!(stop);
        let mut compared = now();
        loop {
            self.take_events().await?;
            let behind = self.changed.len() as u64;
            (self.tell)("following, changes to copy", behind);
            self.copy_changed().await?;
            let is_time = !self.watch.has_watch() && compared.elapsed() > COMPARE;
            if self.has_gap() || is_time {
                self.verify().await?;
                compared = now();
            }
            if let Either::Left(_) = race(stop.as_mut(), sleep(LOOK)).await {
                return Ok(());
            }
        }
    }

    /// Copies what has changed before now.
    async fn catch_up(&mut self) -> Outcome {
        for _ in 0..ROUNDS_MAX {
            // Events come before the answer.
            self.watch.sync().await?;
            self.take_events().await?;
            if self.changed.is_empty() {
                break;
            }
            (self.tell)("copying what has changed", self.changed.len() as u64);
            self.copy_changed().await?;
        }
        Ok(())
    }

    /// Compares the Stat of every node of the source with what was copied, and copies again what differs.
    async fn verify(&mut self) -> Outcome {
        self.compared = self.watch.sessions();
        self.passes += 1;
        self.ephemerals.clear();
        for link in &self.links {
            link.sync().await?;
        }
        let mut differ: BTreeSet<Text> = BTreeSet::new();
        for (path, seen) in self.stats(self.above()).await? {
            if self.differs(&path, &seen) {
                differ.insert(path);
            }
        }
        let mut left = vec![self.path.clone()];
        let mut count = 0;
        while !left.is_empty() {
            let some = left.split_off(left.len().saturating_sub(WINDOW));
            count += some.len() as u64;
            let mut parents = Vec::new();
            for (path, seen) in self.stats(some).await? {
                let has_children = matches!(&seen, Seen::There(stat) if stat.num_children > 0);
                if has_children && !self.unreadable.contains_key(&path) {
                    parents.push(path.clone());
                }
                if self.differs(&path, &seen) {
                    differ.insert(path);
                }
            }
            left.extend(self.children(parents).await?);
            self.take_events().await?;
            (self.tell)("verifying", count);
        }
        let pass = self.passes;
        let unseen = self.known.iter().filter(|(_, known)| known.pass != pass);
        differ.extend(unseen.map(|(path, _)| path.clone()));
        differ.retain(|path| path != CONFIG);
        self.changed.extend(differ);
        self.copy_changed().await
    }

    async fn stats(&self, paths: Vec<Text>) -> Outcome<Vec<(Text, Seen)>> {
        let ask = |(number, path): (usize, Text)| {
            let link = self.link(number).clone();
            let request = Request::Exists {
                path: path.clone(),
                watch: false,
            };
            (path, link.send(request), link)
        };
        let asked: Vec<_> = paths.into_iter().enumerate().map(ask).collect();
        let mut stats = Vec::new();
        for (path, sent, link) in asked {
            match link.finish(sent).await? {
                Ok(Answer::Stat(stat)) => stats.push((path, Seen::There(stat))),
                Err(Code::NO_NODE) => stats.push((path, Seen::Gone)),
                Err(Code::NO_AUTH) => stats.push((path, Seen::Hidden)),
                other => return Err(format!("{path}: it cannot be asked for: {other:?}")),
            }
        }
        Ok(stats)
    }

    /// True if what was copied is not what the source has.
    fn differs(&mut self, path: &Text, seen: &Seen) -> bool {
        let pass = self.passes;
        let known = self.known.get_mut(path);
        let stat = match seen {
            Seen::There(stat) if stat.ephemeral_owner == 0 => stat,
            Seen::There(_) => {
                self.ephemerals.insert(path.clone());
                return known.is_some();
            }
            Seen::Gone => return known.is_some(),
            Seen::Hidden => return known.is_some() || !self.unreadable.contains_key(path),
        };
        let Some(known) = known else {
            return !self.unreadable.contains_key(path);
        };
        known.pass = pass;
        let node = &known.expected.node;
        // ZooKeeper changes these without a transaction.
        let has_loose_data = path.starts_with("/zookeeper/quota/");
        let copied = (
            (node.czxid, node.mzxid, node.pzxid),
            (node.ctime, node.mtime),
            (node.version, node.aversion, node.counts.created),
            has_loose_data || node.data.len() as i32 == stat.data_length,
        );
        let source = (
            (stat.czxid, stat.mzxid, stat.pzxid),
            (stat.ctime, stat.mtime),
            (stat.version, stat.aversion, created(stat)),
            true,
        );
        copied != source
    }

    /// Compares everything, and makes the tree whole.
    async fn end(mut self) -> Outcome<Imported> {
        self.catch_up().await?;
        self.verify().await?;
        self.catch_up().await?;
        while self.has_gap() {
            self.verify().await?;
        }
        self.refuse_unreadable()?;
        self.add_missing().await?;
        let mut imported = Imported {
            ephemerals: self.ephemerals.len() as u64,
            again: self.again,
            unreadable: self
                .unreadable
                .keys()
                .map(|path| path.to_string())
                .collect(),
            ..Imported::default()
        };
        let mut newest = self.watch.last_zxid();
        for link in &self.links {
            newest = newest.max(link.last_zxid());
        }
        for (path, known) in &self.known {
            let node = &known.expected.node;
            imported.count(path, node);
            newest = newest.max(node.mzxid).max(node.pzxid).max(node.czxid);
        }
        imported.last_zxid = newest;
        let known = &self.known;
        let expected = |path: &Text| known.get(path).map(|known| known.expected.clone());
        compare(&self.target, known.len(), expected, self.tell).await?;
        self.target.finish(newest, imported.totals).await?;
        self.watch.close().await;
        for link in &self.links {
            link.close().await;
        }
        Ok(imported)
    }

    /// Writes what only the whole tree tells: nodes that every tree has, and the numbers of children.
    async fn add_missing(&mut self) -> Outcome {
        let mut puts: Vec<Put> = Vec::new();
        for (path, _) in ALWAYS_THERE {
            let path = Text::from_static(path);
            if let Entry::Vacant(vacant) = self.known.entry(path.clone()) {
                let node = first_node(&path, 0);
                let expected = Expected::of(&node);
                puts.push((path, Some(node)));
                vacant.insert(Known { expected, pass: 0 });
            }
        }
        self.target.put(puts).await?;
        let mut present: BTreeMap<Text, i32> = BTreeMap::new();
        for path in self.known.keys() {
            if let Some(parent) = paths::parent(path) {
                *present.entry(parent.into()).or_default() += 1;
            }
        }
        let mut changed: Vec<(Text, Node)> = Vec::new();
        for (path, present) in present {
            let known = self.known.get_mut(&path);
            let known =
                known.ok_or_else(|| format!("{path}: it is gone, and what is below it is not"))?;
            known.expected.node.counts.present = present;
            changed.push((path, known.expected.node.clone()));
        }
        self.target.put_counts(&changed).await
    }
}

fn requests(path: &Text) -> (Request, Request) {
    let data = Request::GetData {
        path: path.clone(),
        watch: false,
    };
    (data, Request::GetAcl { path: path.clone() })
}

/// True if something came between the two answers, so that they do not belong together.
fn is_torn(data: &Result<Answer, Code>, acl: &Result<Answer, Code>) -> bool {
    match (data, acl) {
        (Ok(Answer::Data(_, first)), Ok(Answer::Acl(_, second))) => {
            (first.czxid, first.aversion) != (second.czxid, second.aversion)
        }
        (Ok(_), Err(Code::NO_NODE)) => true,
        _ => false,
    }
}

/// Children that were ever created: ZooKeeper shows creations and removals together.
fn created(stat: &Stat) -> i32 {
    ((i64::from(stat.cversion) + i64::from(stat.num_children)) / 2) as i32
}

/// True if the server has put an `x` in the place of a password's hash.
fn is_masked(entry: &Acl) -> bool {
    entry.scheme == "digest"
        && entry
            .id
            .split_once(':')
            .is_some_and(|(_, hash)| hash == "x")
}
