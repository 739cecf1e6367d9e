//! Of any two plans that were made on the same state by different gateways, either the second has read a lock that the
//! first writes, or it answers and leaves what it would have answered and left, had it been made after the first. Both
//! orders of commits are looked at. This is what the locks are for: whoever forgets one fails here.

use super::execute::{Caller, Executed, FoundSession, Operation, Owner, execute};
use super::node::Node;
use super::plan::{Known, Names, Plan, View};
use super::quota::{Exceeded, Quotas};
use super::rows::Rows;
use super::written::{Sink, write_rows};
use crate::acl::Identity;
use crate::sessions::{self, SessionRow};
use crate::store::Page;
use crate::wire::{Acl, CreateKind, Request, Stat, Text, create_flags};
use crate::zxid::Zxids;
use bytes::Bytes;
use plinth_core::Result;
use plinth_core::key::KeyRange;
use plinth_core::testing::Generator;
use plinth_core::version::Versionstamp;
use std::collections::BTreeMap;
use std::rc::Rc;

const ZXIDS: Zxids = Zxids { base: 0 };
/// Gateways, each with the session of its client.
const GATEWAYS: [(u64, i64); 2] = [(1, 7), (2, 8)];
const PATHS: [&str; 4] = ["/a", "/b", "/a/x", "/a/y"];
const PAIRS: usize = 40_000;
/// Pairs after which the tree is made anew: nodes that nobody may change gather in it.
const PAIRS_OF_A_TREE: usize = 20;
const NOW_MS: i64 = 1_000;
/// The rows of a tree, in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Store(BTreeMap<Vec<u8>, Vec<u8>>);

/// Takes the rows of a transaction that commits at a version.
struct Committing<'a>(&'a mut Store, i64);

impl Sink for Committing<'_> {
    fn set(&mut self, key: Vec<u8>, (mut row, is_stamped): (Vec<u8>, bool)) -> Result<()> {
        if is_stamped {
            let stamp = Versionstamp::new(self.1, 0);
            row[..Versionstamp::LEN].copy_from_slice(&stamp.0);
        }
        self.0.0.insert(key, row);
        Ok(())
    }

    fn clear(&mut self, key: Vec<u8>) -> Result<()> {
        self.0.0.remove(&key);
        Ok(())
    }

    fn clear_range(&mut self, range: KeyRange) -> Result<()> {
        let is_in = |key: &[u8]| range.begin[..] <= *key && *key < range.end[..];
        self.0.0.retain(|key, _| !is_in(key));
        Ok(())
    }

    fn add(&mut self, key: Vec<u8>, operand: [u8; 8]) -> Result<()> {
        let row = self.0.0.entry(key).or_insert_with(|| vec![0; 8]);
        let before = u64::from_le_bytes(row[..].try_into().expect("a number"));
        let after = before.wrapping_add(u64::from_le_bytes(operand));
        *row = after.to_le_bytes().to_vec();
        Ok(())
    }
}

/// The state of a store, as a gateway sees it.
struct Seen<'a>(&'a Store, &'a Rows, i64);

impl View for Seen<'_> {
    fn node(&self, path: &str) -> Known {
        match self.0.node(self.1, path) {
            Some(node) => Known::Here(Rc::new(node)),
            None => Known::Absent,
        }
    }

    fn children(&self, path: &str) -> Names {
        let found = self.0.between(self.1.children(path));
        let keys = found.iter();
        let names = keys.filter_map(|(key, _)| self.1.child_of(path, key));
        Names::All(names.map(Text::from).collect())
    }

    fn owns(&self, session: i64) -> bool {
        session == self.2
    }

    fn is_silent(&self, _: i64) -> bool {
        true
    }
    fn quotas(&self) -> Rc<Quotas> {
        Rc::default()
    }

    fn enforces_quotas(&self) -> bool {
        true
    }

    fn exceeds(&self, _: &Exceeded, _: &str) {}
}

impl Store {
    fn new(rows: &Rows) -> Store {
        let mut store = Store::default();
        let root = Node::new(1, super::node::Data::None);
        let (mut row, _) = root.to_row();
        row[..Versionstamp::LEN].copy_from_slice(&Versionstamp::new(0, 0).0);
        store.0.insert(rows.node("/"), row);
        for (gateway, session) in GATEWAYS {
            let row = sessions::row(gateway, 4000, b"");
            store.0.insert(rows.session(session), row);
        }
        store
    }

    fn between(&self, range: KeyRange) -> Vec<(Bytes, Bytes)> {
        let rows = self.0.range(range.begin.to_vec()..range.end.to_vec());
        rows.map(|(key, row)| (key.clone().into(), row.clone().into()))
            .collect()
    }

    fn node(&self, rows: &Rows, path: &str) -> Option<Node> {
        let found = self.between(rows.around_node(path));
        Node::from_rows(&rows.node(path), &found, ZXIDS).expect("whole")
    }

    fn found(&self, rows: &Rows, session: i64) -> FoundSession {
        let row = self.0.get(&rows.session(session));
        let index = rows.ephemerals(session);
        let page = Page {
            rows: self.between(index.clone()),
            more: false,
        };
        let mut found = FoundSession {
            row: row.and_then(|row| SessionRow::parse(row)),
            ..FoundSession::default()
        };
        found.note_index(rows, index, &page);
        found
    }
}

/// Operations on a few nodes, of all kinds.
struct Drawing(Generator);

impl Drawing {
    fn path(&mut self) -> Text {
        PATHS[self.0.below(PATHS.len())].into()
    }

    fn version(&mut self) -> i32 {
        [-1, -1, 0, 1][self.0.below(4)]
    }

    /// None, short, or in rows of their own.
    fn data(&mut self) -> Option<Bytes> {
        let number = self.0.below(100) as u8;
        match self.0.below(3) {
            0 => None,
            1 => Some(vec![number; 3].into()),
            _ => Some(vec![number; 1500 + usize::from(number)].into()),
        }
    }

    fn acl(&mut self) -> Vec<Acl> {
        let mut acl = Acl::open();
        if self.0.below(8) == 0 {
            acl[0].perms = self.0.below(32) as i32;
        }
        acl
    }

    /// Any but one of the numbers that others change.
    fn stat(&mut self) -> Stat {
        let mut stat = Stat::ANY;
        let number = self.0.below(3) as i32;
        match self.0.below(4) {
            0 => stat.version = number,
            1 => stat.aversion = number,
            2 => stat.num_children = number,
            _ => stat.cversion = number,
        }
        stat
    }

    fn one(&mut self) -> Request {
        let path = self.path();
        match self.0.below(12) {
            8 => Request::CheckNotExists {
                path,
                version: self.version(),
            },
            9 => Request::TryDelete {
                path,
                version: self.version(),
            },
            10 => Request::DeleteRecursive {
                path,
                most: self.0.below(4) as u32,
            },
            11 => Request::CheckStat {
                path,
                version: self.version(),
                stat: self.stat(),
            },
            0..=2 => {
                let (kind, flags, ttl) = [
                    (CreateKind::Plain, create_flags::PERSISTENT, -1),
                    (CreateKind::Plain, create_flags::PERSISTENT_SEQUENTIAL, -1),
                    (CreateKind::Plain, create_flags::EPHEMERAL, -1),
                    (CreateKind::Container, create_flags::CONTAINER, -1),
                    (CreateKind::Ttl, create_flags::PERSISTENT_WITH_TTL, 10),
                    (CreateKind::IfNotExists, create_flags::PERSISTENT, -1),
                ][self.0.below(6)];
                let (data, acl) = (self.data(), self.acl());
                Request::Create {
                    kind,
                    path,
                    data,
                    acl,
                    flags,
                    ttl,
                }
            }
            3 | 4 => Request::Delete {
                path,
                version: self.version(),
            },
            5 => Request::SetData {
                path,
                data: self.data(),
                version: self.version(),
            },
            6 => Request::Check {
                path,
                version: self.version(),
            },
            _ => Request::SetAcl {
                path,
                acl: self.acl(),
                version: self.version(),
            },
        }
    }

    fn operation(&mut self, session: i64) -> Operation {
        let request = match self.0.below(12) {
            0 => {
                return Operation::CloseSession {
                    session,
                    owner: Owner::Own,
                    found: FoundSession::default(),
                };
            }
            1 => return Operation::Reap { path: self.path() },
            2 => Request::DeleteContainer { path: self.path() },
            3 | 4 => {
                let operations = (0..=self.0.below(3)).map(|_| self.one());
                Request::Multi {
                    operations: operations.collect(),
                }
            }
            // By itself a check is of an unknown kind.
            _ => match self.one() {
                Request::Check { path, .. }
                | Request::CheckNotExists { path, .. }
                | Request::CheckStat { path, .. } => Request::DeleteContainer { path },
                other => other,
            },
        };
        let caller = Caller {
            session,
            identities: [Identity::new("ip", "10.0.0.1")].into(),
        };
        Operation::Request(caller, request)
    }
}

/// A state, and what is made on it.
struct Round<'a> {
    rows: &'a Rows,
    state: &'a Store,
}

impl Round<'_> {
    /// Executes what the gateway with the number `who` was asked for, and passes on the plan.
    fn planned<T>(
        &self,
        who: usize,
        operations: &[Operation],
        then: impl FnOnce(Plan<'_>, Vec<Executed>) -> T,
    ) -> T {
        let (gateway, session) = GATEWAYS[who];
        let view = Seen(self.state, self.rows, session);
        let mut plan = Plan::new(&view, NOW_MS, 1);
        let mut executed = Vec::new();
        for (piece, operation) in (0..).zip(operations) {
            plan.begin(piece);
            let mut operation = operation.clone();
            if let Operation::CloseSession { session, found, .. } = &mut operation {
                *found = self.state.found(self.rows, *session);
            }
            executed.push(execute(&mut plan, &operation, gateway));
        }
        assert!(plan.is_all_read(), "all is known: {:?}", plan.missing);
        plan.end();
        then(plan, executed)
    }

    fn committed(&self, who: usize, plan: &Plan<'_>, version: i64) -> Store {
        let mut store = self.state.clone();
        let mut sink = Committing(&mut store, version);
        write_rows(&mut sink, self.rows, GATEWAYS[who].0, plan).expect("memory takes it");
        store
    }
}

#[test]
fn plans_that_share_no_lock_do_what_they_would_do_one_after_the_other() {
    let rows = Rows::new("t");
    let mut drawing = Drawing(Generator::new(1));
    let mut state = Store::default();
    let (mut beside, mut apart) = (0, 0);
    for (number, version) in (0..PAIRS).zip((1..).step_by(2)) {
        if number % PAIRS_OF_A_TREE == 0 {
            state = Store::new(&rows);
        }
        let round = Round {
            rows: &rows,
            state: &state,
        };
        let asked = [0, 1].map(|who| {
            let count = 1 + drawing.0.below(4);
            let operations = (0..count).map(|_| drawing.operation(GATEWAYS[who].1));
            operations.collect::<Vec<Operation>>()
        });
        let first = drawing.0.below(2);
        let second = 1 - first;
        let after = round.planned(first, &asked[first], |mut early, _| {
            let after_first = round.committed(first, &early, version);
            let writes = std::mem::take(&mut early.writes).seal();
            let then = Round {
                rows: &rows,
                state: &after_first,
            };
            let serial = then.planned(second, &asked[second], |plan, executed| {
                (then.committed(second, &plan, version + 1), executed)
            });
            round.planned(second, &asked[second], |mut late, executed| {
                if std::mem::take(&mut late.reads).seal().meets(&writes) {
                    apart += 1;
                } else {
                    let both = (then.committed(second, &late, version + 1), executed);
                    assert!(
                        both == serial,
                        "{:?}, and then {:?}: {:?} instead of {:?}",
                        asked[first],
                        asked[second],
                        both.1,
                        serial.1
                    );
                    beside += 1;
                }
            });
            serial.0
        });
        state = after;
        // Sessions come back, so that there is always somebody who may ask.
        for (gateway, session) in GATEWAYS {
            let row = sessions::row(gateway, 4000, b"");
            state.0.entry(rows.session(session)).or_insert(row);
        }
    }
    println!("{beside} beside each other, {apart} apart");
    assert!(beside > PAIRS / 4 && apart > PAIRS / 10);
}
