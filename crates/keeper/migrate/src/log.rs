//! ZooKeeper's transaction logs (its `FileTxnLog`).
//!
//! ```text
//!   "ZKLG" | version: 4 | database: 8
//!   | (sum: 8 | length: 4 | record | 'B')* | zeros
//!   record:  session: 8 | cxid: 4 | zxid: 8 | time: 8 | kind: 4 | what the kind has | a digest, maybe
//! ```
//! The sum is the record's Adler-32. Where a server died while it wrote, the last record is torn: the log ends before.

use crate::image::{Change, Moment};
use crate::jute::{Adler, Damage, Fault, Input, Taken};
use plinth_keeper::paths;
use plinth_keeper::tree::node::{CONTAINER_OWNER, Data, Lifetime, TTL_MS_MAX};
use plinth_keeper::wire::{Text, opcode};
use std::io::Read;

const MAGIC: i32 = i32::from_be_bytes(*b"ZKLG");
const END: u8 = b'B';
/// A multi has no more operations than its bytes can hold; those of a record are bounded already.
const KIND_CREATE_SESSION: i32 = -10;
const KIND_DELETE_CONTAINER: i32 = 20;
/// Bytes of a digest behind a record.
const DIGEST_BYTES: usize = 12;

/// A transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub moment: Moment,
    pub changes: Vec<Change>,
}

/// Takes the transactions of a file, one after the other.
pub struct Log<R> {
    input: Input<R>,
    has_ended: bool,
}

impl<R: Read> Log<R> {
    /// # Errors
    /// The file is no log. A file of no bytes is one without transactions.
    pub fn open(input: R) -> Taken<Log<R>> {
        let mut input = Input::new(input);
        let has_ended = match input.int() {
            Ok(MAGIC) => false,
            Ok(0) | Err(Fault::End) => true, // its server died before it wrote the first page
            Ok(_) => return Err(Fault::Damaged("it does not begin as a log")),
            Err(fault) => return Err(fault),
        };
        let mut log = Log { input, has_ended };
        if !has_ended && (log.input.int().is_err() || log.input.long().is_err()) {
            log.has_ended = true;
        }
        Ok(log)
    }

    /// The next transaction; `None` at the end, or where the last record is torn.
    ///
    /// # Errors
    /// Something in the middle is damaged.
    pub fn next(&mut self) -> Result<Option<Entry>, Damage> {
        if self.has_ended {
            return Ok(None);
        }
        let offset = self.input.offset;
        let at = |fault, node| Damage {
            fault,
            offset,
            node,
        };
        match self.take_record() {
            Ok(Some(record)) => match parse(&record) {
                Ok(entry) => Ok(Some(entry)),
                Err(fault) => Err(at(fault, node_of(&record))),
            },
            Ok(None) | Err(Fault::End) => {
                self.has_ended = true;
                Ok(None)
            }
            Err(fault) => Err(at(fault, None)),
        }
    }

    fn take_record(&mut self) -> Taken<Option<Vec<u8>>> {
        let sum = self.input.long()?;
        let Some(record) = self.input.buffer()?.filter(|record| !record.is_empty()) else {
            return Ok(None);
        };
        let mut adler = Adler::new();
        adler.add(&record);
        if self.input.byte()? == END && adler.sum() == sum {
            return Ok(Some(record));
        }
        match self.input.is_blank()? {
            true => Ok(None),
            false => Err(Fault::Damaged("a checksum in the middle is wrong")),
        }
    }
}

/// The first node that a record names which cannot be read, if it names one.
fn node_of(record: &[u8]) -> Option<Text> {
    let mut input = Input::new(record);
    let read = |input: &mut Input<&[u8]>| -> Taken<Text> {
        let _session_cxid_zxid_time = (input.long()?, input.int()?, input.long()?, input.long()?);
        if input.int()? == opcode::MULTI {
            let _count_kind_length = (input.int()?, input.int()?, input.int()?);
        }
        input.text()
    };
    read(&mut input).ok().filter(|path| path.starts_with('/'))
}

/// Reads a record.
pub fn parse(record: &[u8]) -> Taken<Entry> {
    let mut input = Input::new(record);
    let session = input.long()?;
    input.int()?;
    let moment = Moment {
        zxid: input.long()?,
        time: input.long()?,
    };
    if moment.zxid < 0 {
        return Err(Fault::Damaged("a zxid is negative"));
    }
    let kind = input.int()?;
    let body = input.rest(record.len())?;
    let changes = match kind {
        opcode::MULTI => take_multi(&body, session)?,
        opcode::CLOSE_SESSION => vec![Change::CloseSession {
            session,
            paths: paths_of(&body),
        }],
        KIND_CREATE_SESSION | opcode::ERROR => Vec::new(),
        opcode::RECONFIG => vec![take(opcode::SET_DATA, &body, session)?],
        _ => vec![take(kind, &body, session)?],
    };
    Ok(Entry { moment, changes })
}

/// One operation that failed means that none had an effect.
fn take_multi(body: &[u8], session: i64) -> Taken<Vec<Change>> {
    let mut input = Input::new(body);
    let mut changes = Vec::new();
    let mut has_failed = false;
    for _ in 0..input.int()? {
        let kind = input.int()?;
        let step = input.buffer()?.unwrap_or_default();
        match kind {
            opcode::ERROR => has_failed = true,
            opcode::CHECK => {}
            opcode::SET_ACL => return Err(Fault::Damaged("a multi with an unknown operation")),
            // What has failed need not be readable.
            _ if has_failed => {}
            _ => changes.push(take(kind, &step, session)?),
        }
    }
    if has_failed {
        changes.clear();
    }
    Ok(changes)
}

fn take(kind: i32, body: &[u8], session: i64) -> Taken<Change> {
    let mut input = Input::new(body);
    let path = valid(input.text()?)?;
    Ok(match kind {
        opcode::CREATE | opcode::CREATE_2 | opcode::CREATE_CONTAINER | opcode::CREATE_TTL => {
            let data = Data::of(input.data()?);
            let acl = input.acl()?;
            let mut lifetime = match kind {
                opcode::CREATE_CONTAINER => Lifetime::of_owner(CONTAINER_OWNER),
                opcode::CREATE_TTL => Lifetime::Persistent, // its time follows
                _ if input.byte()? != 0 => Lifetime::of_owner(session),
                _ => Lifetime::Persistent,
            };
            // Releases before 3.3 did not write it.
            let parent_created = input.int().unwrap_or(-1);
            if kind == opcode::CREATE_TTL {
                lifetime = Lifetime::Ttl(input.long()? & TTL_MS_MAX);
            }
            Change::Create {
                path,
                data,
                acl,
                lifetime,
                parent_created,
                is_plain: kind == opcode::CREATE,
            }
        }
        opcode::DELETE | KIND_DELETE_CONTAINER => Change::Delete { path },
        opcode::SET_DATA => Change::SetData {
            path,
            data: Data::of(input.data()?),
            version: input.int()?,
        },
        opcode::SET_ACL => Change::SetAcl {
            path,
            acl: input.acl()?,
            version: input.int()?,
        },
        _ => return Err(Fault::Damaged("a transaction of an unknown kind")),
    })
}

fn valid(path: Text) -> Taken<Text> {
    match paths::is_valid(&path) {
        true => Ok(path),
        false => Err(Fault::Damaged("a path that the keeper cannot have")),
    }
}

/// What the end of a session deletes. Servers before 3.6 do not write it, nor those that were told not to; then the
/// session's ephemeral nodes are known from their creation. Only a digest may follow.
fn paths_of(body: &[u8]) -> Vec<Text> {
    let take = || -> Taken<Vec<Text>> {
        let mut input = Input::new(body);
        let mut paths = Vec::new();
        for _ in 0..input.int()? {
            paths.push(valid(input.text()?)?);
        }
        match input.rest(DIGEST_BYTES)?.len() {
            0 | DIGEST_BYTES => Ok(paths),
            _ => Err(Fault::Damaged("no list of paths")),
        }
    };
    take().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of ZooKeeper 3.9.3: transactions of all kinds.
    const REAL: &[u8] = include_bytes!("../tests/data/server/log.1");

    fn all(bytes: &[u8]) -> Result<Vec<Entry>, Damage> {
        let opened = Log::open(bytes).map_err(|fault| Damage {
            fault,
            offset: 0,
            node: None,
        });
        let mut log = opened?;
        let mut entries = Vec::new();
        while let Some(entry) = log.next()? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Where each record ends, with the header as the first.
    fn ends(bytes: &[u8]) -> Vec<usize> {
        let mut ends = vec![16];
        loop {
            let at = *ends.last().expect("the header");
            let Some(len) = bytes.get(at + 8..at + 12) else {
                return ends;
            };
            match u32::from_be_bytes(len.try_into().expect("four bytes")) {
                0 => return ends,
                len => ends.push(at + 13 + len as usize),
            }
        }
    }

    #[test]
    fn a_log_of_the_real_thing_is_read() {
        let entries = all(REAL).expect("a log");
        assert!(entries.len() > 15, "{}", entries.len());
        let zxids: Vec<i64> = entries.iter().map(|entry| entry.moment.zxid).collect();
        assert!(zxids.is_sorted_by(|a, b| a + 1 == *b), "{zxids:?}");
        let changes: Vec<&Change> = entries.iter().flat_map(|entry| &entry.changes).collect();
        let closes = changes.iter().filter(
            |change| matches!(change, Change::CloseSession { paths, .. } if !paths.is_empty()),
        );
        assert_eq!(closes.count(), 1);
        let is_ttl = |change: &&&Change| {
            matches!(
                change,
                Change::Create {
                    lifetime: Lifetime::Ttl(123_456),
                    ..
                }
            )
        };
        assert_eq!(changes.iter().filter(is_ttl).count(), 1);
    }

    #[test]
    fn a_torn_record_is_the_end_and_a_damaged_one_is_not() {
        let ends = ends(REAL);
        let records = ends.len() - 1;
        let last = ends[records];
        for cut in [last - 1, last - 5, ends[records - 1] + 3] {
            assert_eq!(all(&REAL[..cut]).map(|all| all.len()), Ok(records - 1));
            // What was not written is zeros.
            let blank = [&REAL[..cut], &[0; 4000]].concat();
            assert_eq!(all(&blank).map(|all| all.len()), Ok(records - 1));
        }
        let mut damaged = REAL.to_vec();
        damaged[ends[1] + 20] ^= 1;
        let found = all(&damaged).expect_err("it is damaged");
        let said = format!("at byte {}: a checksum in the middle is wrong", ends[1]);
        assert_eq!(found.to_string(), said);
        assert_eq!(all(b""), Ok(Vec::new()));
        assert!(all(b"ZKSNxxxxxxxxxxxxxxx").is_err());
    }

    #[test]
    fn an_old_create_counts_for_itself_and_a_failed_multi_does_nothing() {
        let create = |more: &[u8]| {
            let mut body = [&[0, 0, 0, 2][..], b"/a", &[0xff; 4], &[0; 4], &[0]].concat();
            body.extend(more);
            body
        };
        let old = take(opcode::CREATE, &create(&[]), 7).expect("a create");
        assert!(matches!(
            old,
            Change::Create {
                parent_created: -1,
                ..
            }
        ));
        let new = take(opcode::CREATE, &create(&[0, 0, 0, 9]), 7).expect("a create");
        assert!(matches!(
            new,
            Change::Create {
                parent_created: 9,
                ..
            }
        ));
        let step = |kind: i32, body: Vec<u8>| {
            let len = (body.len() as i32).to_be_bytes();
            [&kind.to_be_bytes()[..], &len, &body].concat()
        };
        let error = step(opcode::ERROR, vec![0; 4]);
        let made = step(opcode::CREATE, create(&[0; 4]));
        let multi = [&[0, 0, 0, 2][..], &made, &error].concat();
        assert_eq!(take_multi(&multi, 7), Ok(Vec::new()));
        let multi = [&[0, 0, 0, 1][..], &made].concat();
        assert_eq!(take_multi(&multi, 7).map(|all| all.len()), Ok(1));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_named_by_its_place_and_its_node() {
        let mut record = 7i64.to_be_bytes().to_vec();
        record.extend(1i32.to_be_bytes());
        record.extend(0x19i64.to_be_bytes());
        record.extend(1000i64.to_be_bytes());
        record.extend(opcode::SET_DATA.to_be_bytes());
        record.extend([0, 0, 0, 2]);
        record.extend(b"/a");
        record.extend([0x7f, 0, 0, 0]);
        let mut adler = Adler::new();
        adler.add(&record);
        let mut log = REAL[..16].to_vec();
        log.extend(adler.sum().to_be_bytes());
        log.extend((record.len() as i32).to_be_bytes());
        log.extend(record);
        log.push(END);
        let found = all(&log).expect_err("it is damaged");
        let said = "at byte 16, node /a: a length of more than 256 MiB";
        assert_eq!(found.to_string(), said);
    }

    #[test]
    fn damaged_logs_and_records_are_refused_or_read() {
        plinth_core::testing::fuzz("logs", 1, [REAL.to_vec()], |input| all(input).is_ok());
        let ends = ends(REAL);
        let records = ends
            .windows(2)
            .map(|at| REAL[at[0] + 12..at[1] - 1].to_vec());
        plinth_core::testing::fuzz("log records", 2, records, |input| parse(input).is_ok());
    }
}
