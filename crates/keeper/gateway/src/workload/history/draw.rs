//! Which requests the clients of the history send.

use super::model::BASE;
use super::watched::Of;
use crate::paths;
use crate::wire::{
    Acl, Answer, Code, CreateKind, Details, Filter, MultiResult, Request, Stat, Text,
};
use crate::wire::{create_flags, permission};
use bytes::Bytes;
use plinth_runtime::random::{below, chance};
use std::collections::BTreeMap;

/// The nodes below [`BASE`].
const NAMES: [&str; 9] = ["a", "b", "q", "a/x", "a/y", "b/x", "q/x", "q/y", "q/z"];
/// Nodes that have numbers which the clients know, so that they can delete them.
const NUMBERED_MAX: usize = 4;

/// What the clients have learned, so that some of what they ask for succeeds.
#[derive(Default)]
pub struct Drawing {
    writes: u64,
    /// The version and the version of the access list that were seen last.
    versions: BTreeMap<Text, (i32, i32)>,
    stats: BTreeMap<Text, Stat>,
    numbered: Vec<Text>,
    /// Where most clients are just now.
    meeting: Option<&'static str>,
}

fn one_of<T: Clone>(all: &[T]) -> T {
    all[below(all.len() as u64) as usize].clone()
}

impl Drawing {
    /// Most requests are about a node that is the same for all who meet.
    pub fn gather(&mut self, number: u32) {
        let place = number.wrapping_mul(7) as usize % NAMES.len();
        self.meeting = Some(NAMES[place]);
    }

    pub fn scatter(&mut self) {
        self.meeting = None;
    }

    pub fn learn(&mut self, request: &Request, answer: &Result<Answer, Code>) {
        match (request, answer) {
            (Request::Multi { operations }, Ok(Answer::Multi(results))) => {
                for (request, result) in operations.iter().zip(results) {
                    match result {
                        MultiResult::Path(path) => self.made(path),
                        MultiResult::PathAndStat(path, stat) => {
                            self.made(path);
                            self.saw(path, stat);
                        }
                        MultiResult::Stat(stat) => self.saw_of(request, stat),
                        _ => {}
                    }
                }
            }
            (_, Ok(Answer::Path(path))) => self.made(path),
            (_, Ok(Answer::PathAndStat(path, stat))) => {
                self.made(path);
                self.saw(path, stat);
            }
            (_, Ok(Answer::Stat(stat) | Answer::Data(_, stat) | Answer::Acl(_, stat))) => {
                self.saw_of(request, stat);
            }
            _ => {}
        }
    }

    fn saw_of(&mut self, request: &Request, stat: &Stat) {
        if let Request::SetData { path, .. }
        | Request::SetAcl { path, .. }
        | Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::GetAcl { path } = request
        {
            self.saw(path, stat);
        }
    }

    fn saw(&mut self, path: &Text, stat: &Stat) {
        let versions = (stat.version, stat.aversion);
        self.versions.insert(path.clone(), versions);
        self.stats.insert(path.clone(), *stat);
    }

    fn made(&mut self, path: &Text) {
        let is_numbered = paths::name(path).starts_with("n-");
        if is_numbered && self.numbered.len() < NUMBERED_MAX {
            self.numbered.push(path.clone());
        }
    }

    fn path(&self) -> Text {
        let name = match self.meeting.filter(|_| chance(0.6)) {
            Some(meeting) => meeting,
            None => one_of(&NAMES),
        };
        format!("{BASE}/{name}").into()
    }

    fn any_path(&mut self) -> Text {
        match self.numbered.is_empty() || chance(0.8) {
            true => self.path(),
            false => one_of(&self.numbered),
        }
    }

    fn versions(&self, path: &str) -> (i32, i32) {
        let (version, aversion) = self.versions.get(path).copied().unwrap_or_default();
        let maybe = |version| if chance(0.5) { version } else { -1 };
        (maybe(version), maybe(aversion))
    }

    /// None, as long as what changes carry along, as what is in a node's row only, as what has rows of its own, or as
    /// what has several of them.
    fn data(&mut self, client: u64) -> Option<Bytes> {
        self.writes += 1;
        let more = match below(12) {
            0 => return None,
            1..6 => 0,
            6..8 => 100,
            8..11 => 2000,
            _ => 100_000,
        };
        let mut data = format!("{client}-{}", self.writes).into_bytes();
        data.resize(data.len() + more, b' ');
        Some(data.into())
    }

    /// Mostly everybody may do everything. Everybody may always set another list.
    fn acl(&mut self) -> Vec<Acl> {
        let mut acl = Acl::open();
        if chance(0.2) {
            let withheld = one_of(&[
                permission::READ,
                permission::WRITE,
                permission::CREATE,
                permission::DELETE,
            ]);
            acl[0].perms = permission::ALL & !withheld;
        }
        if chance(0.5) {
            self.writes += 1;
            acl.push(Acl {
                perms: permission::READ,
                scheme: "digest".into(),
                id: format!("h{}:x", self.writes).into(),
            });
        }
        acl
    }

    fn create(&mut self, client: u64, is_in_multi: bool) -> Request {
        use create_flags::*;
        let persistent = [
            (CreateKind::Plain, PERSISTENT),
            (CreateKind::WithStat, PERSISTENT),
        ];
        let ephemeral = [
            (CreateKind::Plain, EPHEMERAL),
            (CreateKind::WithStat, EPHEMERAL),
        ];
        let ensured = [
            (CreateKind::IfNotExists, PERSISTENT),
            (CreateKind::IfNotExists, EPHEMERAL),
        ];
        let numbered = [
            (CreateKind::Plain, PERSISTENT_SEQUENTIAL),
            (CreateKind::WithStat, EPHEMERAL_SEQUENTIAL),
        ];
        let (kind, flags) = match below(11) {
            10 => one_of(&ensured),
            0..4 => one_of(&persistent),
            4..6 => one_of(&ephemeral),
            6..8 => one_of(&numbered),
            8 if !is_in_multi => (CreateKind::Ttl, PERSISTENT_WITH_TTL),
            _ => (CreateKind::Container, CONTAINER),
        };
        let is_numbered = matches!(flags, PERSISTENT_SEQUENTIAL | EPHEMERAL_SEQUENTIAL);
        let path = match is_numbered {
            true => format!("{BASE}/{}/n-", one_of(&["a", "b"])).into(),
            false => self.path(),
        };
        Request::Create {
            kind,
            path,
            data: self.data(client),
            acl: self.acl(),
            flags,
            ttl: if flags == PERSISTENT_WITH_TTL {
                3000
            } else {
                -1
            },
        }
    }

    fn delete(&mut self) -> Request {
        let path = self.any_path();
        self.numbered.retain(|numbered| *numbered != path);
        let version = self.versions(&path).0;
        Request::Delete { path, version }
    }

    fn set_data(&mut self, client: u64) -> Request {
        let path = self.any_path();
        Request::SetData {
            version: self.versions(&path).0,
            data: self.data(client),
            path,
        }
    }

    fn set_acl(&mut self) -> Request {
        let path = self.any_path();
        Request::SetAcl {
            version: self.versions(&path).1,
            acl: self.acl(),
            path,
        }
    }

    fn multi(&mut self, client: u64) -> Request {
        let mut one = |_| match below(10) {
            8 => self.check(),
            9 => self.delete_much(),
            0..3 => self.create(client, true),
            3 => self.delete(),
            4..6 => {
                let path = self.path();
                let version = self.versions(&path).0;
                Request::Check { path, version }
            }
            _ => self.set_data(client),
        };
        let operations = (0..=1 + below(3)).map(&mut one).collect();
        Request::Multi { operations }
    }

    /// A check of what was seen once, or that there is no node.
    fn check(&mut self) -> Request {
        let path = self.any_path();
        let version = self.versions(&path).0;
        if chance(0.5) {
            return Request::CheckNotExists { path, version };
        }
        let seen = self.stats.get(&path).copied().unwrap_or_default();
        let long = |number| if chance(0.3) { number } else { -1 };
        let int = |number| if chance(0.3) { number } else { -1 };
        let stat = Stat {
            czxid: long(seen.czxid),
            mzxid: long(seen.mzxid),
            ctime: -1,
            mtime: -1,
            version: int(seen.version),
            cversion: int(seen.cversion),
            aversion: int(seen.aversion),
            ephemeral_owner: long(seen.ephemeral_owner),
            data_length: int(seen.data_length),
            num_children: int(seen.num_children),
            pzxid: long(seen.pzxid),
        };
        Request::CheckStat {
            path,
            version,
            stat,
        }
    }

    /// A deletion that does not mind what there is, or of all below a node.
    fn delete_much(&mut self) -> Request {
        let path = self.any_path();
        let version = self.versions(&path).0;
        match chance(0.6) {
            true => Request::TryDelete { path, version },
            false => Request::DeleteRecursive {
                path,
                most: below(6) as u32,
            },
        }
    }

    fn multi_read(&mut self, set: &mut Vec<(Of, Text)>) -> Request {
        let read = |_| {
            let (path, watch) = (self.path(), false);
            match below(10) {
                0..5 => Request::GetData { path, watch },
                5..7 => Request::GetChildren { path, watch },
                7 => self.list(),
                _ => self.read(set),
            }
        };
        Request::MultiRead {
            operations: (0..2 + below(3)).map(read).collect(),
            breaks_off: false,
        }
    }

    /// A list that only ClickHouse's keeper knows.
    fn list(&mut self) -> Request {
        let path = match chance(0.3) {
            true => BASE.into(),
            false => self.any_path(),
        };
        if chance(0.3) {
            let most = below(12) as u32;
            return Request::ListRecursive { path, most };
        }
        Request::List {
            path,
            watch: false,
            filter: one_of(&[Filter::All, Filter::Persistent, Filter::Ephemeral]),
            details: one_of(&[
                None,
                Some(Details {
                    stat: true,
                    data: false,
                }),
                Some(Details {
                    stat: true,
                    data: true,
                }),
            ]),
        }
    }

    /// A read of a node. It sets a watch if it is not among those that are `set`.
    fn read(&mut self, set: &mut Vec<(Of, Text)>) -> Request {
        let path = match chance(0.2) {
            true => BASE.into(),
            false => self.any_path(),
        };
        let mut watch = |of| {
            let key = (of, path.clone());
            let is_new = chance(0.7) && !set.contains(&key);
            if is_new {
                set.push(key);
            }
            is_new
        };
        match below(5) {
            0 => Request::Exists {
                watch: watch(Of::Data),
                path,
            },
            1..3 => Request::GetData {
                watch: watch(Of::Data),
                path,
            },
            3 => Request::GetChildren {
                watch: watch(Of::Children),
                path,
            },
            _ => Request::GetChildren2 {
                watch: watch(Of::Children),
                path,
            },
        }
    }

    pub fn request(&mut self, client: u64, set: &mut Vec<(Of, Text)>) -> Request {
        match below(23) {
            20 => self.delete_much(),
            21 => self.list(),
            22 => self.check(),
            0..4 => self.create(client, false),
            4..6 => self.delete(),
            6..9 => self.set_data(client),
            9 => self.set_acl(),
            10..13 => self.multi(client),
            13 => self.multi_read(set),
            14 => match below(3) {
                0 => Request::DeleteContainer {
                    path: self.any_path(),
                },
                1 => Request::GetAcl {
                    path: self.any_path(),
                },
                _ => super::sync(BASE.into()),
            },
            _ => self.read(set),
        }
    }
}

/// All reads of a node.
pub fn all_of(path: &Text) -> Vec<Request> {
    let (path, watch) = (path.clone(), false);
    vec![
        Request::GetData {
            path: path.clone(),
            watch,
        },
        Request::GetChildren2 {
            path: path.clone(),
            watch,
        },
        Request::GetAcl { path },
    ]
}
