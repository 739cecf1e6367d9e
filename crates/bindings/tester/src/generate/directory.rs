//! Directories: created, opened, moved, listed and removed, in the default layer and in partitions; and prefixes
//! allocated by many machines at once.
//!
//! The model is a tree of names. It does not know the prefixes, so each packed key is stripped of its prefix at
//! once. It also does not use a handle to a directory in a partition that was moved or removed after the handle was
//! opened, because the result depends on prefixes.

use super::concurrency::Threads;
use crate::program::{LOG, MAIN, Program, Script, bytes, pack};
use crate::rng::Rng;
use bytes::Bytes;
use plinth_core::tuple::Element;
use std::collections::BTreeMap;

const STEPS: usize = 60;
const PARTITION: &[u8] = b"partition";
const FAILED: &[u8] = b"DIRECTORY_ERROR";

type Path = Vec<String>;

#[derive(Clone, Default)]
struct Node {
    id: u64,
    layer: Vec<u8>,
    children: BTreeMap<String, Node>,
}

impl Node {
    fn is_partition(&self) -> bool {
        self.layer == PARTITION
    }

    fn find(&self, path: &[String]) -> Option<&Node> {
        match path.split_first() {
            None => Some(self),
            Some((name, rest)) => self.children.get(name)?.find(rest),
        }
    }

    fn find_mut(&mut self, path: &[String]) -> Option<&mut Node> {
        match path.split_first() {
            None => Some(self),
            Some((name, rest)) => self.children.get_mut(name)?.find_mut(rest),
        }
    }

    /// The partitions on the way to `path`, with their depth and id. Includes the last node only if `with_end`.
    fn partitions(&self, path: &[String], with_end: bool) -> Vec<(usize, u64)> {
        let last = path.len() - usize::from(!with_end && !path.is_empty());
        let at = |depth: usize| self.find(&path[..depth]).filter(|node| node.is_partition());
        (1..=last)
            .filter_map(|depth| Some((depth, at(depth)?.id)))
            .collect()
    }
}

/// An entry of the tester's list of directories.
#[derive(Clone)]
enum Handle {
    /// The directory layer itself.
    Root,
    Directory {
        path: Path,
        layer: Vec<u8>,
        partitions: Vec<(usize, u64)>,
    },
    Nothing,
}

struct Directories {
    script: Script,
    rng: Rng,
    root: Node,
    next_id: u64,
    list: Vec<Handle>,
    index: usize,
    rows: Vec<(Bytes, Element)>,
    /// Suffix of the instructions: `_DATABASE` for operations on the database itself, empty for the current
    /// transaction.
    on: &'static str,
}

pub fn generate(seed: u64) -> Program {
    let mut directories = Directories {
        script: Script::new(MAIN),
        rng: Rng::new(seed),
        root: Node::default(),
        next_id: 1,
        list: vec![Handle::Root],
        index: 0,
        rows: Vec::new(),
        on: "_DATABASE",
    };
    directories.script.op("NEW_TRANSACTION");
    for _ in 0..STEPS {
        directories.step();
    }
    directories.finish()
}

fn path_elements(path: &[String]) -> Vec<Element> {
    let count = Element::Int(path.len() as i64);
    let names = path.iter().map(|name| Element::Text(name.clone()));
    std::iter::once(count).chain(names).collect()
}

fn optional(layer: &[u8]) -> Element {
    if layer.is_empty() {
        Element::Null
    } else {
        bytes(layer)
    }
}

impl Directories {
    fn finish(mut self) -> Program {
        self.commit();
        for at in self.usable() {
            self.change(at);
            self.log_directory();
        }
        self.script.log();
        Program::of(self.script, self.rows)
    }

    fn usable(&self) -> Vec<usize> {
        let all = 0..self.list.len();
        all.filter(|at| self.is_usable(*at)).collect()
    }

    fn is_usable(&self, at: usize) -> bool {
        match &self.list[at] {
            Handle::Root => true,
            Handle::Nothing => false,
            // Usable as long as the partitions on its path are those in which it was opened.
            Handle::Directory {
                path, partitions, ..
            } => {
                let now = self.root.partitions(path, true);
                now == *partitions
            }
        }
    }

    fn change(&mut self, at: usize) {
        self.script
            .call("DIRECTORY_CHANGE", vec![Element::Int(at as i64)]);
        self.index = at;
    }

    fn here(&self) -> Path {
        match &self.list[self.index] {
            Handle::Directory { path, .. } => path.clone(),
            _ => Path::new(),
        }
    }

    fn op(&mut self, name: &str, arguments: Vec<Element>) {
        let name = format!("DIRECTORY_{name}{}", self.on);
        self.script.call(&name, arguments);
    }

    fn append(&mut self, path: Path) {
        let layer = self.root.find(&path).expect("it is there").layer.clone();
        let partitions = self.root.partitions(&path, true);
        self.list.push(Handle::Directory {
            path,
            layer,
            partitions,
        });
    }

    fn fail(&mut self, appends: bool) {
        self.script.returns(bytes(FAILED));
        if appends {
            self.list.push(Handle::Nothing);
        }
    }

    fn name(&mut self) -> String {
        (*self.rng.choose(&["a", "b", "c", "\u{e9}"])).to_owned()
    }

    fn path(&mut self, least: usize) -> Path {
        let length = least + self.rng.below(3);
        (0..length).map(|_| self.name()).collect()
    }

    fn layer(&mut self) -> Vec<u8> {
        match self.rng.below(10) {
            0 => PARTITION.to_vec(),
            1 | 2 => b"layer".to_vec(),
            _ => Vec::new(),
        }
    }

    fn step(&mut self) {
        if self.script.depth() > 25 {
            self.script.log();
        }
        if self.rng.chance(30) {
            let usable = self.usable();
            let at = *self.rng.choose(&usable);
            self.change(at);
        } else if !self.is_usable(self.index) {
            self.change(0);
        }
        if self.rng.chance(10) {
            self.commit();
            if self.on.is_empty() {
                self.on = "_DATABASE";
            } else {
                self.on = "";
            }
        }
        match self.rng.below(12) {
            0..3 => self.obtain("CREATE_OR_OPEN"),
            3 => self.obtain("CREATE"),
            4 => self.obtain("OPEN"),
            5 => self.move_within(),
            6 => self.move_to(),
            7 => self.remove(),
            8 => self.list_names(),
            9 => self.exists(),
            _ => self.keys(),
        }
    }

    /// Commits the current transaction, so that its changes become visible.
    fn commit(&mut self) {
        if self.on.is_empty() {
            self.script.op("COMMIT");
            self.script.answers(bytes("RESULT_NOT_PRESENT"));
            self.script.op("NEW_TRANSACTION");
        }
    }

    fn obtain(&mut self, name: &str) {
        let (path, layer) = (self.path(1), self.layer());
        let mut arguments = path_elements(&path);
        arguments.push(optional(&layer));
        if name == "CREATE" {
            arguments.push(Element::Null);
        }
        self.op(name, arguments);
        let whole = [self.here(), path].concat();
        let found = self.root.find(&whole).map(|node| node.layer.clone());
        match found {
            Some(_) if name == "CREATE" => self.fail(true),
            None if name == "OPEN" => self.fail(true),
            Some(made_with) if !layer.is_empty() && made_with != layer => self.fail(true),
            Some(_) => self.append(whole),
            None => {
                self.make(&whole, layer);
                self.append(whole);
            }
        }
    }

    fn make(&mut self, path: &[String], layer: Vec<u8>) {
        let mut node = &mut self.root;
        for name in path {
            let id = self.next_id;
            node = node.children.entry(name.clone()).or_insert_with(|| Node {
                id,
                ..Node::default()
            });
            self.next_id += 1;
        }
        node.layer = layer;
    }

    /// Moves a node of the tree. Returns false, and changes nothing, if the move must fail.
    fn relocate(&mut self, old: &[String], new: &[String]) -> bool {
        let exists = |path: &[String]| self.root.find(path).is_some();
        let (name, above) = new.split_last().expect("not the root");
        let crosses = self.root.partitions(old, false) != self.root.partitions(new, false);
        if new.starts_with(old) || !exists(old) || crosses || exists(new) || !exists(above) {
            return false;
        }
        let (old_name, old_above) = old.split_last().expect("not the root");
        let from = self.root.find_mut(old_above).expect("it is there");
        let node = from.children.remove(old_name).expect("it is there");
        let to = self
            .root
            .find_mut(above)
            .expect("not below what was taken out");
        to.children.insert(name.clone(), node);
        true
    }

    fn move_within(&mut self) {
        let (old, new) = (self.path(1), self.path(1));
        let arguments = [path_elements(&old), path_elements(&new)].concat();
        self.op("MOVE", arguments);
        let here = self.here();
        let (old, new) = ([&here[..], &old].concat(), [here, new].concat());
        if self.relocate(&old, &new) {
            self.append(new);
        } else {
            self.fail(true);
        }
    }

    fn move_to(&mut self) {
        let new = self.path(1);
        self.op("MOVE_TO", path_elements(&new));
        let old = self.here();
        if !old.is_empty() && self.relocate(&old, &new) {
            self.append(new);
        } else {
            self.fail(true);
        }
    }

    /// Sometimes an empty path, which names the directory itself.
    fn maybe_path(&mut self) -> (Path, Vec<Element>) {
        if self.rng.chance(50) {
            let path = self.path(1);
            let elements = path_elements(&path);
            (path, [vec![Element::Int(1)], elements].concat())
        } else {
            (Path::new(), vec![Element::Int(0)])
        }
    }

    fn remove(&mut self) {
        let (path, arguments) = self.maybe_path();
        let must_exist = self.rng.chance(50);
        let name = ["REMOVE_IF_EXISTS", "REMOVE"][usize::from(must_exist)];
        self.op(name, arguments);
        let whole = [self.here(), path].concat();
        match whole.split_last() {
            None => self.fail(false),
            Some((name, above)) => {
                let parent = self.root.find_mut(above);
                let removed = parent.and_then(|parent| parent.children.remove(name));
                if removed.is_none() && must_exist {
                    self.fail(false);
                }
            }
        }
    }

    fn list_names(&mut self) {
        let (path, arguments) = self.maybe_path();
        self.op("LIST", arguments);
        let whole = [self.here(), path].concat();
        match self.root.find(&whole) {
            None => self.fail(false),
            Some(node) => {
                let names: Vec<Element> =
                    node.children.keys().cloned().map(Element::Text).collect();
                self.script.returns(bytes(pack(&names)));
            }
        }
    }

    fn exists(&mut self) {
        let (path, arguments) = self.maybe_path();
        self.op("EXISTS", arguments);
        let whole = [self.here(), path].concat();
        let exists = self.root.find(&whole).is_some();
        self.script.returns(Element::Int(i64::from(exists)));
    }

    /// Uses the current directory as a subspace.
    fn keys(&mut self) {
        let Handle::Directory { layer, .. } = &self.list[self.index] else {
            return;
        };
        if layer == PARTITION {
            return;
        }
        let key = [
            Element::Int(self.rng.between(-9, 9)),
            Element::Text("key".into()),
        ];
        let counted = || vec![Element::Int(2), key[0].clone(), key[1].clone()];
        self.script.call("DIRECTORY_PACK_KEY", counted());
        match self.rng.below(3) {
            0 => {
                self.script.op("DIRECTORY_STRIP_PREFIX");
                self.script.returns(bytes(pack(&key)));
            }
            1 => {
                self.script.op("DIRECTORY_CONTAINS");
                self.script.returns(Element::Int(1));
            }
            _ => {
                self.script.op("DIRECTORY_UNPACK_KEY");
                key.into_iter()
                    .for_each(|element| self.script.returns(element));
            }
        }
    }

    fn log_directory(&mut self) {
        let raw = [LOG, b"directories/"].concat();
        self.script
            .call("DIRECTORY_LOG_DIRECTORY_DATABASE", vec![bytes(&raw)]);
        let (path, layer) = match &self.list[self.index] {
            Handle::Directory { path, layer, .. } => (path.clone(), layer.clone()),
            _ => (Path::new(), Vec::new()),
        };
        let node = self.root.find(&path);
        let names =
            |names: Vec<String>| pack(&names.into_iter().map(Element::Text).collect::<Vec<_>>());
        let children = node.map_or(Vec::new(), |node| node.children.keys().cloned().collect());
        let number = Element::Int(self.index as i64);
        for (what, value) in [
            ("path", names(path)),
            ("layer", pack(&[bytes(layer)])),
            ("exists", pack(&[Element::Int(i64::from(node.is_some()))])),
            ("children", names(children)),
        ] {
            let place = pack(&[number.clone(), Element::Text(what.into())]);
            let key = Bytes::from([&raw[..], &place].concat());
            self.rows.push((key, bytes(value)));
        }
    }
}

/// Many machines create directories at once; each logs the prefixes that it received.
pub fn generate_allocations(seed: u64) -> Program {
    let mut rng = Rng::new(seed);
    let mut threads = Threads::new();
    let prefix = [LOG, b"prefixes/"].concat();
    for machine in 0..2 + rng.below(4) {
        let mut script = threads.script(machine);
        script.op("NEW_TRANSACTION");
        for number in 0..5 + rng.below(12) {
            let path = [format!("machine {machine}"), format!("{number}")];
            let mut arguments = path_elements(&path);
            arguments.push(Element::Null);
            script.call("DIRECTORY_CREATE_OR_OPEN_DATABASE", arguments);
            script.call("DIRECTORY_CHANGE", vec![Element::Int(number as i64 + 1)]);
            let own = [&prefix[..], format!("{machine}/").as_bytes()].concat();
            script.call("DIRECTORY_LOG_SUBSPACE_DATABASE", vec![bytes(own)]);
            script.call("DIRECTORY_CHANGE", vec![Element::Int(0)]);
        }
        threads.end(script, machine);
    }
    let mut program = threads.finish();
    program.apart = Some(prefix.into());
    program
}
