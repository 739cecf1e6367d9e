//! What an entry of the log says: a batch of operations of one gateway.
//!
//! ```text
//!   batch:      version u8 | flags u8 | gateway u64 | number u64 | time i64 | operation*
//!   operation:  0 | session i64 | identities u16 | (scheme text, id text)*     whose the requests are that follow
//!               1 | frame of ZooKeeper's protocol                              a request
//!               2 | session i64 | timeout u32 | password bytes                 opens a session
//!               3 | session i64 | timeout u32 | password bytes                 takes a session
//!               4 | session i64                                                closes a session of the gateway
//!               5 | session i64 | gateway u64 | lease bytes                    closes a session of another one
//!               6 | path text                                                  removes a node whose time is over
//!               7 | path text                                                  counts the nodes of a quota
//!               8 | row bytes                                                  the gateway lives
//!               9 | gateway u64 | lease bytes                                  removes a gateway
//! ```
//! Integers are big-endian; a text is `length u32 | bytes`. What the rows have of a session or a quota is not in the
//! entry: every replica looks it up when it executes the operation.

use bytes::{Buf, BufMut, Bytes};
use plinth_core::output::Output;
use plinth_keeper::acl::Identity;
use plinth_keeper::tree::execute::{Caller, FoundSession, Operation, Owner};
use plinth_keeper::wire::{Dialect, Text, XidWidth, decode_request, encode_request};
use std::rc::Rc;

const VERSION: u8 = 1;
/// Hard limits of quotas are hard.
const ENFORCES_QUOTAS: u8 = 1;
/// Operations of one entry. A position of the log has places for many such entries.
pub const OPERATIONS_MAX: usize = 1000;
const IDENTITIES_MAX: u16 = 1000;

const WHO: u8 = 0;
const REQUEST: u8 = 1;
const OPEN: u8 = 2;
const TAKE: u8 = 3;
const CLOSE_OWN: u8 = 4;
const CLOSE_OF: u8 = 5;
const REAP: u8 = 6;
const COUNT: u8 = 7;
const BEAT: u8 = 8;
const REMOVE: u8 = 9;

/// Why bytes are no batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// A later release wrote it.
    Version,
    Bytes,
}

/// What stands before the operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Of the life that wrote it.
    pub gateway: u64,
    /// Counts the batches of the life, from 1.
    pub number: u64,
    /// By the gateway's clock: milliseconds since 1970.
    pub now_ms: i64,
    pub enforces_quotas: bool,
}

/// Approximate size of an operation in a batch.
pub fn bytes_of(operation: &Operation) -> usize {
    let of_caller = match operation {
        Operation::Request(caller, _) => caller.identities.iter().map(Identity::bytes).sum(),
        _ => 0,
    };
    operation.bytes() + of_caller
}

/// A batch that is being written.
pub struct Writing {
    out: Output,
    who: Option<Caller>,
}

impl Writing {
    pub fn begin(head: Head) -> Writing {
        let mut out = Output::copying();
        let buffer = out.buffer();
        buffer.put_u8(VERSION);
        buffer.put_u8(if head.enforces_quotas {
            ENFORCES_QUOTAS
        } else {
            0
        });
        buffer.put_u64(head.gateway);
        buffer.put_u64(head.number);
        buffer.put_i64(head.now_ms);
        Writing { out, who: None }
    }

    /// Adds an operation. A look writes nothing, and is not for the log.
    pub fn put(&mut self, operation: &Operation) {
        match operation {
            Operation::Request(caller, request) => {
                self.put_who(caller);
                self.out.buffer().put_u8(REQUEST);
                encode_request(&mut self.out, 0, request);
            }
            Operation::OpenSession {
                session,
                timeout_ms,
                password,
            } => self.put_session(OPEN, *session, *timeout_ms, password),
            Operation::TakeSession {
                session,
                timeout_ms,
                password,
                ..
            } => self.put_session(TAKE, *session, *timeout_ms, password),
            Operation::CloseSession { session, owner, .. } => match owner {
                Owner::Own | Owner::Silent => {
                    self.out.buffer().put_u8(CLOSE_OWN);
                    self.out.buffer().put_i64(*session);
                }
                Owner::Gone { gateway, lease } => {
                    self.out.buffer().put_u8(CLOSE_OF);
                    self.out.buffer().put_i64(*session);
                    self.out.buffer().put_u64(*gateway);
                    self.put_bytes(lease);
                }
            },
            Operation::Reap { path } => self.put_path(REAP, path),
            Operation::CountQuota { path, .. } => self.put_path(COUNT, path),
            Operation::Beat { row } => {
                self.out.buffer().put_u8(BEAT);
                self.put_bytes(row);
            }
            Operation::RemoveGateway { gateway, lease, .. } => {
                self.out.buffer().put_u8(REMOVE);
                self.out.buffer().put_u64(*gateway);
                self.put_bytes(lease);
            }
            Operation::Look { .. } => {}
        }
    }

    fn put_who(&mut self, caller: &Caller) {
        let is_same =
            |who: &Caller| who.session == caller.session && who.identities == caller.identities;
        if self.who.as_ref().is_some_and(is_same) {
            return;
        }
        self.out.buffer().put_u8(WHO);
        self.out.buffer().put_i64(caller.session);
        // Nobody has so many names; one who has may do less.
        let count = caller.identities.len().min(IDENTITIES_MAX.into());
        self.out.buffer().put_u16(count as u16);
        for identity in caller.identities.iter().take(count) {
            self.put_bytes(identity.scheme.as_bytes());
            self.put_bytes(identity.id.as_bytes());
        }
        self.who = Some(caller.clone());
    }

    fn put_session(&mut self, kind: u8, session: i64, timeout_ms: u32, password: &[u8]) {
        self.out.buffer().put_u8(kind);
        self.out.buffer().put_i64(session);
        self.out.buffer().put_u32(timeout_ms);
        self.put_bytes(password);
    }

    fn put_path(&mut self, kind: u8, path: &Text) {
        self.out.buffer().put_u8(kind);
        self.put_bytes(path.as_bytes());
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.out.buffer().put_u32(bytes.len() as u32);
        self.out.buffer().put_slice(bytes);
    }

    pub fn end(self) -> Bytes {
        self.out.into_bytes()
    }
}

/// Reads a batch.
///
/// # Errors
/// Bytes that no [`Writing`] has made, or a later release's.
pub fn decode(mut said: Bytes) -> Result<(Head, Vec<Operation>), Malformed> {
    match said.try_get_u8() {
        Ok(VERSION) => {}
        Ok(_) => return Err(Malformed::Version),
        Err(_) => return Err(Malformed::Bytes),
    }
    take(&mut said).ok_or(Malformed::Bytes)
}

fn take(said: &mut Bytes) -> Option<(Head, Vec<Operation>)> {
    let flags = said.try_get_u8().ok()?;
    let head = Head {
        gateway: said.try_get_u64().ok()?,
        number: said.try_get_u64().ok()?,
        now_ms: said.try_get_i64().ok()?,
        enforces_quotas: flags & ENFORCES_QUOTAS != 0,
    };
    let mut operations = Vec::new();
    let mut who = None;
    while !said.is_empty() {
        match said.get_u8() {
            WHO => who = Some(take_who(said)?),
            kind => operations.push(take_operation(kind, said, who.as_ref())?),
        }
        if operations.len() > OPERATIONS_MAX {
            return None;
        }
    }
    Some((head, operations))
}

fn take_who(said: &mut Bytes) -> Option<Caller> {
    let session = said.try_get_i64().ok()?;
    let count = said.try_get_u16().ok()?;
    if count > IDENTITIES_MAX {
        return None;
    }
    let mut take = || {
        Some(Identity {
            scheme: take_text(said)?.detached(),
            id: take_text(said)?.detached(),
        })
    };
    let identities: Rc<[Identity]> = (0..count).map(|_| take()).collect::<Option<_>>()?;
    Some(Caller {
        session,
        identities,
    })
}

fn take_operation(kind: u8, said: &mut Bytes, who: Option<&Caller>) -> Option<Operation> {
    Some(match kind {
        REQUEST => {
            let (_, request) =
                decode_request(take_bytes(said)?, Dialect::ClickHouse, XidWidth::Four).ok()?;
            let request = request.ok().filter(|request| request.changes_nodes())?;
            Operation::Request(who?.clone(), request)
        }
        OPEN => Operation::OpenSession {
            session: said.try_get_i64().ok()?,
            timeout_ms: said.try_get_u32().ok()?,
            password: take_bytes(said)?.to_vec(),
        },
        TAKE => Operation::TakeSession {
            session: said.try_get_i64().ok()?,
            timeout_ms: said.try_get_u32().ok()?,
            password: take_bytes(said)?.to_vec(),
            found: None,
        },
        CLOSE_OWN => close(said.try_get_i64().ok()?, Owner::Own),
        CLOSE_OF => {
            let session = said.try_get_i64().ok()?;
            let gateway = said.try_get_u64().ok()?;
            let lease = take_bytes(said)?.to_vec();
            close(session, Owner::Gone { gateway, lease })
        }
        REAP => Operation::Reap {
            path: take_text(said)?.detached(),
        },
        COUNT => Operation::CountQuota {
            path: take_text(said)?.detached(),
            found: None,
        },
        BEAT => Operation::Beat {
            row: take_bytes(said)?.to_vec(),
        },
        REMOVE => Operation::RemoveGateway {
            gateway: said.try_get_u64().ok()?,
            lease: take_bytes(said)?.to_vec(),
            found: None,
            has_sessions: true,
        },
        _ => return None,
    })
}

fn close(session: i64, owner: Owner) -> Operation {
    Operation::CloseSession {
        session,
        owner,
        found: FoundSession::default(),
    }
}

fn take_bytes(said: &mut Bytes) -> Option<Bytes> {
    let len = said.try_get_u32().ok()? as usize;
    (len <= said.len()).then(|| said.split_to(len))
}

fn take_text(said: &mut Bytes) -> Option<Text> {
    let bytes = take_bytes(said)?;
    std::str::from_utf8(&bytes).ok()?;
    Some(Text::from_wire(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_keeper::wire::{Acl, CreateKind, Request};

    const HEAD: Head = Head {
        gateway: 7,
        number: 3,
        now_ms: 1_700_000_000_000,
        enforces_quotas: true,
    };

    fn caller(session: i64) -> Caller {
        let identities = [
            Identity::new("ip", "10.0.0.1"),
            Identity::new("digest", "ann:x"),
        ];
        Caller {
            session,
            identities: identities.into(),
        }
    }

    fn create(path: &str) -> Request {
        Request::Create {
            kind: CreateKind::Ttl,
            path: path.into(),
            data: Some(Bytes::from_static(b"data")),
            acl: Acl::open(),
            flags: 5,
            ttl: 1000,
        }
    }

    fn operations() -> Vec<Operation> {
        let delete = Request::Delete {
            path: "/a".into(),
            version: 4,
        };
        let set = |data| Request::SetData {
            path: "/ü".into(),
            data,
            version: -1,
        };
        let acl = Request::SetAcl {
            path: "/a".into(),
            acl: Vec::new(),
            version: 0,
        };
        let check = Request::Check {
            path: "/c".into(),
            version: 1,
        };
        let path = "".into();
        let no_path = Request::NoPath(Box::new(Request::Delete { path, version: 1 }));
        let multi = Request::Multi {
            operations: vec![create("/x"), delete.clone(), check, set(None)],
        };
        let (lease, password) = (b"lease".to_vec(), b"secret".to_vec());
        vec![
            Operation::Request(caller(1), create("/b")),
            Operation::Request(caller(1), delete),
            Operation::Request(caller(2), set(Some(Bytes::new()))),
            Operation::Request(caller(2), acl),
            Operation::Request(caller(1), no_path),
            Operation::Request(caller(1), multi),
            Operation::OpenSession {
                session: 5,
                timeout_ms: 4000,
                password: password.clone(),
            },
            Operation::TakeSession {
                session: 5,
                timeout_ms: 4000,
                password,
                found: None,
            },
            close(5, Owner::Own),
            close(
                -5,
                Owner::Gone {
                    gateway: 9,
                    lease: lease.clone(),
                },
            ),
            Operation::Reap { path: "/t".into() },
            Operation::CountQuota {
                path: "/q".into(),
                found: None,
            },
            Operation::Beat { row: lease.clone() },
            Operation::RemoveGateway {
                gateway: 9,
                lease,
                found: None,
                has_sessions: true,
            },
        ]
    }

    fn batch() -> Bytes {
        let mut writing = Writing::begin(HEAD);
        operations().iter().for_each(|o| writing.put(o));
        writing.end()
    }

    #[test]
    fn a_batch_gives_back_its_operations() {
        let (head, read) = decode(batch()).expect("a batch");
        assert_eq!(head, HEAD);
        assert_eq!(format!("{read:?}"), format!("{:?}", operations()));
    }

    #[test]
    fn a_batch_of_a_later_release_is_told_from_damage() {
        let mut later = batch().to_vec();
        later[0] += 1;
        assert_eq!(decode(later.into()).err(), Some(Malformed::Version));
        let cut = batch().slice(..batch().len() - 1);
        assert_eq!(decode(cut).err(), Some(Malformed::Bytes));
    }

    #[test]
    fn damaged_batches_are_refused_or_read() {
        plinth_core::testing::fuzz("zelos batches", 1, [batch().to_vec()], |input| {
            decode(Bytes::copy_from_slice(input)).is_ok()
        });
    }
}
