//! The nodes that the workloads use, and what is known of them: every answer can be checked.
//!
//! ```text
//! /plinth-bench/get/N     read, and in the YCSB workloads written; 1024 bytes, unless said
//! /plinth-bench/list/N    listed; each has ten children
//! /plinth-bench/set/N     written; the same
//! /plinth-bench/churn/N   parents of nodes that are created and removed; 100 to 500 bytes
//! /plinth-bench/load/N    parents of the nodes of the bulk load; 128 bytes
//! /plinth-bench/passing/N parents of nodes that are created, and removed after the round; 100 to 500 bytes
//! /plinth-bench/numbered  the parent of such nodes whose names the server numbers
//! ```
//!
//! N is ten letters and digits that follow from the node's number. Data begins with eight bytes that do, too.
//! Numbers and sizes are those of the paper's published settings; the number of nodes to get is the user's.

use crate::mix::{Kind, Shape, Workload, Zipf, pick};
use bytes::{BufMut, Bytes, BytesMut};
use plinth_keeper::wire::{Acl, Answer, CreateKind, Request, Stat, Text, create_flags};
use plinth_runtime::random::{Generator, spread};
use std::ops::RangeInclusive;

/// Everything that the bench makes is below this node.
pub const ROOT: &str = "/plinth-bench";
const LISTED: u64 = 1000;
const CHILDREN_OF_LISTED: u64 = 10;
const SET: u64 = 1000;
const PARENTS: u64 = 1000;
/// Nodes that can be removed before any was created: removes and creates are then in balance from the beginning.
const REMOVABLE_AT_FIRST: u64 = 2000;
/// Sizes of nodes that are read and written.
pub const RECORD_BYTES: RangeInclusive<usize> = TAG_BYTES..=16 << 10;
const CHURN_BYTES: (usize, usize) = (100, 500);
const LOAD_BYTES: usize = 128;
/// A round ends before its time when so many nodes were created that have to be removed after it.
const PASSING_MAX: u64 = 200_000;
const NUMBERED_NAME: &[u8] = b"n-";
/// Digits that a server adds to a name.
const NUMBER_DIGITS: usize = 10;
/// Data is cut from a pool of random bytes of this size.
const POOL_BYTES: usize = 64 << 10;
const TAG_BYTES: usize = 8;
const NAME_LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const NAME_BYTES: usize = 10;

/// A request under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    Get { node: u64, then_set: bool },
    List { node: u64 },
    Set { node: u64 },
    SetRecord { node: u64 },
    Create { node: u64 },
    Insert { node: u64 },
    Load { node: u64 },
    Remove { node: u64 },
    Pass { node: u64 },
    Number { node: u64 },
}

impl Asked {
    pub fn kind(self) -> Kind {
        match self {
            Asked::Get { .. } => Kind::Get,
            Asked::List { .. } => Kind::List,
            Asked::Set { .. } | Asked::SetRecord { .. } => Kind::Set,
            Asked::Create { .. }
            | Asked::Insert { .. }
            | Asked::Load { .. }
            | Asked::Pass { .. }
            | Asked::Number { .. } => Kind::Create,
            Asked::Remove { .. } => Kind::Remove,
        }
    }
}

/// How often each node was written.
#[derive(Clone, Debug, Default)]
struct Writes {
    sent: Vec<u32>,
    answered: Vec<u32>,
}

impl Writes {
    fn new(nodes: u64) -> Self {
        Writes {
            sent: vec![0; nodes as usize],
            answered: vec![0; nodes as usize],
        }
    }
}

/// The nodes of one server.
pub struct Tree {
    random: Generator,
    pool: Bytes,
    acl: Vec<Acl>,
    zipf: Zipf,
    /// Nodes to get at first.
    records: u64,
    record_bytes: usize,
    record_writes: Writes,
    /// Inserted records with a smaller number exist.
    records_there: u64,
    set_writes: Writes,
    churn_next: u64,
    removable: Vec<u64>,
    load_next: u64,
    load_end: u64,
    set_next: u64,
    passing_next: u64,
    /// Of the round.
    passing_end: u64,
    /// Paths of nodes that have to be removed after the round.
    passing: Vec<Text>,
}

/// Ten characters for a number below 2^50, another one for each.
fn name(number: u64) -> [u8; NAME_BYTES] {
    // Multiplication by an odd number permutes the numbers of so many bits.
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    std::array::from_fn(|i| NAME_LETTERS[(mixed >> (5 * (NAME_BYTES - 1 - i))) as usize & 31])
}

fn path(parts: [&[u8]; 3]) -> Text {
    let bytes: usize = parts.iter().map(|part| part.len() + 1).sum();
    let mut text = String::with_capacity(ROOT.len() + bytes);
    text.push_str(ROOT);
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        text.push('/');
        text.push_str(std::str::from_utf8(part).expect("letters and digits"));
    }
    text.into()
}

/// Path of a node of one of the directories.
fn in_directory(directory: &str, number: u64) -> Text {
    path([directory.as_bytes(), &name(number), b""])
}

/// Path of a node whose parent is one of those in the directory.
fn under_parent(directory: &str, parents: u64, number: u64) -> Text {
    let parent = spread(number) % parents;
    path([directory.as_bytes(), &name(parent), &name(number)])
}

impl Tree {
    /// # Panics
    /// If `records` is 0, or `record_bytes` is not one of [`RECORD_BYTES`].
    pub fn new(seed: u64, records: u64, record_bytes: usize) -> Self {
        assert!(RECORD_BYTES.contains(&record_bytes));
        let mut random = Generator::new(seed);
        let words = (0..POOL_BYTES / 8).flat_map(|_| random.u64().to_le_bytes());
        Tree {
            pool: words.collect::<Vec<u8>>().into(),
            random,
            acl: Acl::open(),
            zipf: Zipf::new(records),
            records,
            record_bytes,
            record_writes: Writes::new(records),
            records_there: records,
            set_writes: Writes::new(SET),
            churn_next: REMOVABLE_AT_FIRST,
            removable: (0..REMOVABLE_AT_FIRST).collect(),
            load_next: 0,
            load_end: 0,
            set_next: 0,
            passing_next: 0,
            passing_end: 0,
            passing: Vec::new(),
        }
    }

    /// A round begins. From now on the same requests are made as by every tree with this seed, as far as answers
    /// decide nothing.
    pub fn begin_round(&mut self, seed: u64) {
        self.random = Generator::new(seed);
        self.passing_end = self.passing_next + PASSING_MAX;
    }

    /// Paths of the nodes that the round has created and that have to go, once each.
    pub fn take_passing(&mut self) -> Vec<Text> {
        std::mem::take(&mut self.passing)
    }

    /// Lets the bulk load create so many more nodes.
    pub fn extend_load(&mut self, nodes: u64) {
        self.load_end += nodes;
    }

    fn create(&self, path: Text, data: Bytes) -> Request {
        self.create_as(create_flags::PERSISTENT, path, data)
    }

    fn create_as(&self, flags: i32, path: Text, data: Bytes) -> Request {
        Request::Create {
            kind: CreateKind::Plain,
            path,
            data: Some(data),
            acl: self.acl.clone(),
            flags,
            ttl: -1,
        }
    }

    /// The creates that make the tree for the workloads, parents first.
    pub fn makers<'a>(
        &'a self,
        workloads: &'a [Workload],
    ) -> impl Iterator<Item = Request> + use<'a> {
        let loads = workloads.iter().any(Workload::is_load);
        let mixes = workloads.iter().any(|workload| !workload.is_load());
        let passing = |workload: &Workload| workload.shape == Shape::Creates;
        let passes = workloads.iter().any(passing);
        let empty = |path| self.create(path, Bytes::new());
        let numbers = |is_wanted: bool, count: u64| 0..if is_wanted { count } else { 0 };
        let directories = [
            "", "get", "list", "set", "churn", "load", "passing", "numbered",
        ];
        let tops = directories.map(|name| path([name.as_bytes(), b"", b""]));
        let lists = numbers(mixes, LISTED).flat_map(move |node| {
            let parent = std::iter::once(in_directory("list", node));
            let child = move |child| path([b"list", &name(node), &name(child)]);
            parent.chain((0..CHILDREN_OF_LISTED).map(child))
        });
        let empties = tops
            .into_iter()
            .chain(lists)
            .chain(numbers(mixes, SET).map(|node| in_directory("set", node)))
            .chain(numbers(mixes, PARENTS).map(|node| in_directory("churn", node)))
            .chain(numbers(loads, PARENTS).map(|node| in_directory("load", node)))
            .chain(numbers(passes, PARENTS).map(|node| in_directory("passing", node)));
        let churn = numbers(mixes, REMOVABLE_AT_FIRST).map(|node| {
            self.create(
                under_parent("churn", PARENTS, node),
                self.data(node, CHURN_BYTES.0, 0),
            )
        });
        let records = numbers(mixes, self.records).map(|node| {
            self.create(
                in_directory("get", node),
                self.data(node, self.record_bytes, node),
            )
        });
        empties.map(empty).chain(churn).chain(records)
    }

    /// Data of a node, from a place of the pool.
    fn data(&self, node: u64, bytes: usize, place: u64) -> Bytes {
        let mut data = BytesMut::with_capacity(bytes);
        data.put_u64(spread(node));
        let at = (place as usize) % (POOL_BYTES - RECORD_BYTES.end());
        data.extend_from_slice(&self.pool[at..at + bytes - TAG_BYTES]);
        data.freeze()
    }

    /// The next request of a workload; `None` if there is no more to load.
    pub fn next(&mut self, shape: &Shape) -> Option<Asked> {
        Some(match shape {
            Shape::Mix(weights) => self.next_of_mix(weights),
            Shape::Records { writes, both } => {
                // Likely nodes are spread over all of them, as in YCSB.
                let node = spread(self.zipf.rank(&mut self.random)) % self.records;
                let chosen = self.random.unit();
                match chosen < *writes {
                    true => Asked::SetRecord { node },
                    false => Asked::Get {
                        node,
                        then_set: chosen < writes + both,
                    },
                }
            }
            Shape::Newest { inserts } if self.random.unit() < *inserts => {
                let node = self.record_writes.sent.len() as u64;
                self.record_writes.sent.push(0);
                self.record_writes.answered.push(0);
                Asked::Insert { node }
            }
            Shape::Newest { .. } => Asked::Get {
                node: self.records_there - 1 - self.zipf.rank(&mut self.random),
                then_set: false,
            },
            Shape::Load if self.load_next == self.load_end => return None,
            Shape::Load => {
                self.load_next += 1;
                Asked::Load {
                    node: self.load_next - 1,
                }
            }
            Shape::SetsInTurn => {
                self.set_next = (self.set_next + 1) % SET;
                Asked::Set {
                    node: self.set_next,
                }
            }
            Shape::Creates | Shape::Numbered if self.passing_next == self.passing_end => {
                return None;
            }
            Shape::Creates => Asked::Pass {
                node: self.next_passing(),
            },
            Shape::Numbered => Asked::Number {
                node: self.next_passing(),
            },
            Shape::Hot { records } => {
                let node = self.random.below((*records).min(self.records));
                match self.random.unit() < 0.5 {
                    true => Asked::SetRecord { node },
                    false => Asked::Get {
                        node,
                        then_set: false,
                    },
                }
            }
        })
    }

    fn next_of_mix(&mut self, weights: &[f64; 5]) -> Asked {
        match pick(&mut self.random, weights) {
            Kind::Get => Asked::Get {
                node: self.random.below(self.records),
                then_set: false,
            },
            Kind::List => Asked::List {
                node: self.random.below(LISTED),
            },
            Kind::Set => Asked::Set {
                node: self.random.below(SET),
            },
            Kind::Remove if !self.removable.is_empty() => {
                let at = self.random.below(self.removable.len() as u64) as usize;
                Asked::Remove {
                    node: self.removable.swap_remove(at),
                }
            }
            Kind::Create | Kind::Remove => {
                self.churn_next += 1;
                Asked::Create {
                    node: self.churn_next - 1,
                }
            }
        }
    }

    fn next_passing(&mut self) -> u64 {
        self.passing_next += 1;
        self.passing_next - 1
    }

    /// What to send. Writes count as sent.
    pub fn request(&mut self, asked: Asked) -> Request {
        let place = self.random.u64();
        match asked {
            Asked::Get { node, .. } => Request::GetData {
                path: in_directory("get", node),
                watch: false,
            },
            Asked::List { node } => Request::GetChildren {
                path: in_directory("list", node),
                watch: false,
            },
            Asked::Set { node } => {
                self.set_writes.sent[node as usize] += 1;
                self.set(in_directory("set", node), node, place)
            }
            Asked::SetRecord { node } => {
                self.record_writes.sent[node as usize] += 1;
                self.set(in_directory("get", node), node, place)
            }
            Asked::Create { node } | Asked::Pass { node } | Asked::Number { node } => {
                let (least, most) = CHURN_BYTES;
                let bytes = least + self.random.below((most - least + 1) as u64) as usize;
                let flags = match asked {
                    Asked::Number { .. } => create_flags::PERSISTENT_SEQUENTIAL,
                    _ => create_flags::PERSISTENT,
                };
                let data = self.data(node, bytes, place);
                self.create_as(flags, self.path_of_new(asked), data)
            }
            Asked::Insert { node } => self.create(
                self.path_of_new(asked),
                self.data(node, self.record_bytes, place),
            ),
            Asked::Load { node } => {
                self.create(self.path_of_new(asked), self.data(node, LOAD_BYTES, place))
            }
            Asked::Remove { node } => Request::Delete {
                path: under_parent("churn", PARENTS, node),
                version: -1,
            },
        }
    }

    fn set(&self, path: Text, node: u64, place: u64) -> Request {
        Request::SetData {
            path,
            data: Some(self.data(node, self.record_bytes, place)),
            version: -1,
        }
    }

    /// Path of the node that a create makes, but for the number that a server adds.
    fn path_of_new(&self, asked: Asked) -> Text {
        match asked {
            Asked::Insert { node } => in_directory("get", node),
            Asked::Load { node } => under_parent("load", PARENTS, node),
            Asked::Create { node } => under_parent("churn", PARENTS, node),
            Asked::Pass { node } => under_parent("passing", PARENTS, node),
            Asked::Number { .. } => path([b"numbered", NUMBERED_NAME, b""]),
            _ => Text::default(),
        }
    }

    /// Compares an answer with what is known of the node, and learns from it. The error says what is wrong.
    pub fn check(&mut self, asked: Asked, answer: &Answer) -> Result<(), String> {
        let is_right = match (asked, answer) {
            (Asked::Get { node, .. }, Answer::Data(Some(data), stat)) => {
                let is_whole = data.len() == self.record_bytes
                    && stat.data_length as usize == self.record_bytes
                    && data[..TAG_BYTES] == spread(node).to_be_bytes();
                is_whole
                    && (0..=self.record_writes.sent[node as usize] as i32).contains(&stat.version)
            }
            (Asked::List { .. }, Answer::Children(children)) => {
                children.len() as u64 == CHILDREN_OF_LISTED
                    && children.iter().all(|child| child.len() == NAME_BYTES)
            }
            (Asked::Set { node }, Answer::Stat(stat)) => {
                is_written(&mut self.set_writes, node, stat, self.record_bytes)
            }
            (Asked::SetRecord { node }, Answer::Stat(stat)) => {
                is_written(&mut self.record_writes, node, stat, self.record_bytes)
            }
            (Asked::Number { .. }, Answer::Path(path)) => {
                let number = path.as_str().strip_prefix(self.path_of_new(asked).as_str());
                let is_digit = |digit: u8| digit.is_ascii_digit();
                number.is_some_and(|number| {
                    number.len() == NUMBER_DIGITS && number.bytes().all(is_digit)
                })
            }
            (_, Answer::Path(path)) if asked.kind() == Kind::Create => {
                *path == self.path_of_new(asked)
            }
            (Asked::Remove { .. }, Answer::Empty) => true,
            _ => false,
        };
        if !is_right {
            return Err(format!("{asked:?}: a wrong answer: {}", shortened(answer)));
        }
        match asked {
            Asked::Create { node } => self.removable.push(node),
            Asked::Pass { .. } | Asked::Number { .. } => {
                if let Answer::Path(path) = answer {
                    self.passing.push(path.clone());
                }
            }
            Asked::Insert { node } => {
                self.record_writes.answered[node as usize] = 1;
                let there = &self.record_writes.answered[self.records_there as usize..];
                self.records_there +=
                    there.iter().take_while(|answered| **answered > 0).count() as u64;
            }
            _ => {}
        }
        Ok(())
    }

    /// Nodes that were written, at most `most`, for the last check: their data is asked for, and
    /// [`Tree::check_version`] judges it.
    pub fn written(&self, most: usize) -> Vec<Asked> {
        let nodes = |writes: &Writes, nodes: u64| -> Vec<u64> {
            let nodes = (0..nodes).filter(|node| writes.sent[*node as usize] > 0);
            nodes.take(most).collect()
        };
        let sets = nodes(&self.set_writes, SET)
            .into_iter()
            .map(|node| Asked::Set { node });
        let records = nodes(&self.record_writes, self.records).into_iter();
        sets.chain(records.map(|node| Asked::SetRecord { node }))
            .collect()
    }

    /// How to ask for the Stat of a written node.
    pub fn stat_of(asked: Asked) -> Request {
        let (directory, node) = match asked {
            Asked::SetRecord { node } => ("get", node),
            Asked::Set { node } => ("set", node),
            other => unreachable!("{other:?} is no write to a node that stays"),
        };
        Request::Exists {
            path: in_directory(directory, node),
            watch: false,
        }
    }

    /// No answered write may be lost, and none may be done twice.
    pub fn check_version(&self, asked: Asked, stat: &Stat) -> Result<(), String> {
        let (writes, node) = match asked {
            Asked::SetRecord { node } => (&self.record_writes, node as usize),
            Asked::Set { node } => (&self.set_writes, node as usize),
            _ => return Ok(()),
        };
        let (answered, sent) = (writes.answered[node], writes.sent[node]);
        match (answered as i32..=sent as i32).contains(&stat.version) {
            true => Ok(()),
            false => Err(format!(
                "{asked:?}: {answered} writes were answered and {sent} sent, and the version is {}",
                stat.version
            )),
        }
    }
}

fn is_written(writes: &mut Writes, node: u64, stat: &Stat, bytes: usize) -> bool {
    let node = node as usize;
    writes.answered[node] += 1;
    stat.data_length as usize == bytes && (1..=writes.sent[node] as i32).contains(&stat.version)
}

/// An answer without its data, for an error line.
fn shortened(answer: &Answer) -> String {
    match answer {
        Answer::Data(data, stat) => {
            let bytes = data.as_ref().map(Bytes::len);
            format!(
                "{bytes:?} bytes of data, version {}, length {}",
                stat.version, stat.data_length
            )
        }
        Answer::Children(children) => format!("{} children", children.len()),
        Answer::Stat(stat) => format!("version {}, length {}", stat.version, stat.data_length),
        other => format!("{other:?}"),
    }
}
