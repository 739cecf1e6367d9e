//! What transactions change, as the entries of the keeper's stream tell all gateways.
//!
//! ```text
//!   entry:   gateway: 8 | batch: 8 | change*
//!   change:  kind: 1 | piece: 2 | …
//! ```
//! `piece` is the number of the operation in its transaction; together with the entry's position it gives the zxid.
//! A batch with many changes has several entries. Data is told only if it is short: it is in the node's row, and most
//! changes are read by no other gateway.

use super::node::{Node, put_acl, put_bytes, put_text, take_acl, take_bytes, take_text};
use super::quota::{Quota, QuotaChange, Used};
use crate::NEWS_DATA_BYTES_MAX;
use crate::wire::{Acl, Text};
use crate::zxid::Zxids;
use bytes::{Buf, BufMut};
use plinth_core::version::Versionstamp;
use std::rc::Rc;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The node is new. Its list of children is empty.
    Created(Text, Node),
    /// Data, version and mtime are new. Counts and pzxid of the node given are not.
    DataSet(Text, Node),
    /// Access list and aversion are new.
    AclSet(Text, Node),
    Deleted(Text),
    /// Not everybody may hear of this node. Stands before the change of the node or of its list of children, for
    /// gateways that do not know the node.
    Guarded(Text, Rc<[Acl]>),
    /// The gateway has the session now: a new one, or one that came from elsewhere.
    SessionTaken {
        session: i64,
        gateway: u64,
    },
    /// The session's ephemeral nodes were deleted with it.
    SessionClosed {
        session: i64,
    },
    /// The gateway's lease has ended: it must not act any more.
    GatewayRemoved {
        gateway: u64,
    },
    /// The quota of a path, or what is used of it.
    Quota(Text, QuotaChange),
}

impl Change {
    /// Puts in the zxids of the commit.
    pub fn settle(&mut self, zxid_of: impl Fn(u16) -> i64) {
        if let Change::Created(_, node) | Change::DataSet(_, node) | Change::AclSet(_, node) = self
        {
            node.settle(zxid_of);
        }
    }
}

const CREATED: u8 = 1;
const DATA_SET: u8 = 2;
const ACL_SET: u8 = 3;
const DELETED: u8 = 4;
const SESSION_TAKEN: u8 = 5;
const SESSION_CLOSED: u8 = 6;
const GATEWAY_REMOVED: u8 = 7;
const GUARDED: u8 = 8;
const QUOTA: u8 = 9;

const QUOTA_MADE: u8 = 1;
const QUOTA_SET: u8 = 2;
const QUOTA_REMOVED: u8 = 3;
const QUOTA_ADDED: u8 = 4;

/// Who wrote an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    pub gateway: u64,
    /// Numbers the gateway's transactions.
    pub batch: u64,
}

impl Origin {
    pub fn begin_entry(self) -> Vec<u8> {
        let mut entry = Vec::with_capacity(256);
        entry.put_u64(self.gateway);
        entry.put_u64(self.batch);
        entry
    }
}

pub fn put_change(entry: &mut Vec<u8>, piece: u16, change: &Change) {
    let (kind, path, node) = match change {
        Change::Created(path, node) => (CREATED, path, Some(node)),
        Change::DataSet(path, node) => (DATA_SET, path, Some(node)),
        Change::AclSet(path, node) => (ACL_SET, path, Some(node)),
        Change::Deleted(path) => (DELETED, path, None),
        Change::Guarded(path, acl) => {
            entry.put_u8(GUARDED);
            entry.put_u16(piece);
            put_text(entry, path);
            return put_acl(entry, acl);
        }
        Change::SessionTaken { session, gateway } => {
            entry.put_u8(SESSION_TAKEN);
            entry.put_u16(piece);
            entry.put_i64(*session);
            return entry.put_u64(*gateway);
        }
        Change::SessionClosed { session } => {
            entry.put_u8(SESSION_CLOSED);
            entry.put_u16(piece);
            return entry.put_i64(*session);
        }
        Change::GatewayRemoved { gateway } => {
            entry.put_u8(GATEWAY_REMOVED);
            entry.put_u16(piece);
            return entry.put_u64(*gateway);
        }
        Change::Quota(path, change) => {
            entry.put_u8(QUOTA);
            entry.put_u16(piece);
            put_text(entry, path);
            return put_quota_change(entry, change);
        }
    };
    entry.put_u8(kind);
    entry.put_u16(piece);
    put_text(entry, path);
    if let Some(node) = node {
        put_bytes(entry, &node.to_news(NEWS_DATA_BYTES_MAX.get()));
    }
}

/// `1 or 2 | row`, `3`, or `4 | nodes: 8 | bytes: 8`.
fn put_quota_change(entry: &mut Vec<u8>, change: &QuotaChange) {
    match change {
        QuotaChange::Made(quota) => {
            entry.put_u8(QUOTA_MADE);
            put_bytes(entry, &quota.to_row());
        }
        QuotaChange::Set(quota) => {
            entry.put_u8(QUOTA_SET);
            put_bytes(entry, &quota.to_row());
        }
        QuotaChange::Removed => entry.put_u8(QUOTA_REMOVED),
        QuotaChange::Added(used) => {
            entry.put_u8(QUOTA_ADDED);
            entry.put_i64(used.nodes);
            entry.put_i64(used.bytes);
        }
    }
}

fn take_quota_change(input: &mut &[u8]) -> Option<QuotaChange> {
    let kind = input.try_get_u8().ok()?;
    Some(match kind {
        QUOTA_MADE => QuotaChange::Made(Quota::from_row(take_bytes(input)?)?),
        QUOTA_SET => QuotaChange::Set(Quota::from_row(take_bytes(input)?)?),
        QUOTA_REMOVED => QuotaChange::Removed,
        QUOTA_ADDED => QuotaChange::Added(Used {
            nodes: input.try_get_i64().ok()?,
            bytes: input.try_get_i64().ok()?,
        }),
        _ => return None,
    })
}

/// Reads an entry that the transaction with this stamp wrote; `None` if it is damaged.
pub fn parse_entry(
    mut entry: &[u8],
    stamp: Versionstamp,
    zxids: Zxids,
) -> Option<(Origin, Vec<(u16, Change)>)> {
    let origin = Origin {
        gateway: entry.try_get_u64().ok()?,
        batch: entry.try_get_u64().ok()?,
    };
    let mut changes = Vec::new();
    while !entry.is_empty() {
        let kind = entry.try_get_u8().ok()?;
        let piece = entry.try_get_u16().ok()?;
        zxids.of_stamp(stamp, piece)?;
        changes.push((piece, take_change(kind, &mut entry, stamp, zxids)?));
    }
    Some((origin, changes))
}

fn take_change(kind: u8, input: &mut &[u8], stamp: Versionstamp, zxids: Zxids) -> Option<Change> {
    let make = match kind {
        CREATED => Change::Created,
        DATA_SET => Change::DataSet,
        ACL_SET => Change::AclSet,
        DELETED => return Some(Change::Deleted(take_text(input)?)),
        GUARDED => return Some(Change::Guarded(take_text(input)?, take_acl(input)?)),
        QUOTA => return Some(Change::Quota(take_text(input)?, take_quota_change(input)?)),
        SESSION_TAKEN => {
            return Some(Change::SessionTaken {
                session: input.try_get_i64().ok()?,
                gateway: input.try_get_u64().ok()?,
            });
        }
        SESSION_CLOSED => {
            return Some(Change::SessionClosed {
                session: input.try_get_i64().ok()?,
            });
        }
        GATEWAY_REMOVED => {
            return Some(Change::GatewayRemoved {
                gateway: input.try_get_u64().ok()?,
            });
        }
        _ => return None,
    };
    let path = take_text(input)?;
    // The row was written before its stamp was known.
    let mut row = take_bytes(input)?.to_vec();
    row.get_mut(..Versionstamp::LEN)?.copy_from_slice(&stamp.0);
    Some(make(path, Node::from_row(&row, zxids)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::node::{Counts, Data, INLINE_BYTES_MAX, Lifetime, open_acl, own_zxid};
    use crate::tree::quota::{Counted, Limits};
    use bytes::Bytes;

    const ZXIDS: Zxids = Zxids { base: 50 };

    fn node(czxid: i64, data: Data) -> Node {
        Node {
            czxid,
            mzxid: own_zxid(4),
            pzxid: czxid,
            ctime: 1,
            mtime: 2,
            version: 3,
            aversion: 4,
            counts: Counts::default(),
            lifetime: Lifetime::Persistent,
            acl: open_acl(),
            data,
        }
    }

    fn read_acl() -> Rc<[Acl]> {
        let read = |acl: &Acl| Acl {
            perms: 1,
            ..acl.clone()
        };
        open_acl().iter().map(read).collect()
    }

    fn changes() -> Vec<(u16, Change)> {
        let quota = Quota {
            limits: Limits::parse(b"count=5"),
            counted: Counted::Through("/a/b".into()),
        };
        let used = Used {
            nodes: -1,
            bytes: 70,
        };
        vec![
            (
                3,
                Change::Created("/a".into(), node(own_zxid(3), Data::None)),
            ),
            (
                4,
                Change::DataSet(
                    "/b".into(),
                    node(77, Data::Here(Bytes::from_static(b"new"))),
                ),
            ),
            (
                5,
                Change::AclSet("/a".into(), node(own_zxid(3), Data::None)),
            ),
            (6, Change::Guarded("/c".into(), read_acl())),
            (6, Change::Deleted("/c/d".into())),
            (
                7,
                Change::SessionTaken {
                    session: 9,
                    gateway: 8,
                },
            ),
            (8, Change::SessionClosed { session: -9 }),
            (9, Change::GatewayRemoved { gateway: 3 }),
            (
                9,
                Change::Quota("/a".into(), QuotaChange::Made(quota.clone())),
            ),
            (9, Change::Quota("/b".into(), QuotaChange::Set(quota))),
            (9, Change::Quota("/b".into(), QuotaChange::Removed)),
            (9, Change::Quota("/b".into(), QuotaChange::Added(used))),
        ]
    }

    fn entry() -> Vec<u8> {
        let mut entry = Origin {
            gateway: 1,
            batch: 2,
        }
        .begin_entry();
        for (piece, change) in changes() {
            put_change(&mut entry, piece, &change);
        }
        entry
    }

    #[test]
    fn an_entry_gives_back_its_changes_with_the_zxids_of_its_commit() {
        let stamp = Versionstamp::new(1000, 5);
        let mut expected = changes();
        for (_, change) in &mut expected {
            if let Change::Created(_, node) | Change::DataSet(_, node) | Change::AclSet(_, node) =
                change
            {
                node.settle(|piece| ZXIDS.of(1000, 5, piece));
            }
        }
        let parsed = parse_entry(&entry(), stamp, ZXIDS);
        assert_eq!(
            parsed,
            Some((
                Origin {
                    gateway: 1,
                    batch: 2
                },
                expected
            ))
        );
    }

    #[test]
    fn data_is_left_out_of_an_entry_unless_it_is_short() {
        for len in [NEWS_DATA_BYTES_MAX.get() + 1, INLINE_BYTES_MAX + 1] {
            let mut entry = Origin {
                gateway: 1,
                batch: 2,
            }
            .begin_entry();
            let long = node(7, Data::Here(Bytes::from(vec![1; len])));
            put_change(&mut entry, 0, &Change::DataSet("/a".into(), long.clone()));
            assert!(entry.len() < 200);
            let parsed = parse_entry(&entry, Versionstamp::new(1000, 5), ZXIDS);
            let (_, changes) = parsed.expect("an entry");
            let mut told = Node {
                data: Data::Unread(len),
                ..long
            };
            told.settle(|piece| ZXIDS.of(1000, 5, piece));
            assert_eq!(changes, [(0, Change::DataSet("/a".into(), told))]);
        }
    }

    #[test]
    fn damaged_entries_are_refused_or_read() {
        plinth_core::testing::fuzz("keeper entries", 1, [entry()], |input| {
            parse_entry(input, Versionstamp::new(1000, 5), ZXIDS).is_some()
        });
    }
}
