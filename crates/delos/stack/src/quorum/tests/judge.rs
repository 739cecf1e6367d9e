//! What may not happen to a log, whoever uses it.

use crate::log::{LogError, LogPos, SharedLog};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// Hears what clients of one log do, and stops the test when an answer contradicts another.
#[derive(Default)]
pub struct Judge {
    /// Entries by what was answered: appends, and reads.
    seen: RefCell<BTreeMap<LogPos, Bytes>>,
    appended: RefCell<BTreeSet<LogPos>>,
    tried: RefCell<BTreeSet<Bytes>>,
    /// The append was certainly refused.
    refused: RefCell<BTreeSet<Bytes>>,
    /// The greatest tail that somebody was told, or behind an answered append.
    tail: Cell<LogPos>,
    pub unknown: Cell<usize>,
}

impl Judge {
    pub fn appended(&self) -> usize {
        self.appended.borrow().len()
    }

    fn sees(&self, pos: LogPos, entry: &Bytes) {
        let mut seen = self.seen.borrow_mut();
        let known = seen.entry(pos).or_insert_with(|| entry.clone());
        assert_eq!(known, entry, "two entries at position {pos}");
        assert!(
            self.tried.borrow().contains(entry),
            "nobody appended {entry:?}"
        );
    }

    /// Appends an entry that is like no other.
    pub async fn append(&self, log: &impl SharedLog, entry: Bytes) -> Result<LogPos, LogError> {
        assert!(
            self.tried.borrow_mut().insert(entry.clone()),
            "a second {entry:?}"
        );
        let tail = self.tail.get();
        let result = log.append(entry.clone()).await;
        match result {
            Ok(pos) => {
                // Another tail may have been told meanwhile, and the entry may be below it; not the tail of before.
                assert!(pos >= tail, "{pos} is given out below the tail {tail}");
                self.sees(pos, &entry);
                assert!(
                    self.appended.borrow_mut().insert(pos),
                    "{pos} is given out twice"
                );
                self.tail.set(self.tail.get().max(pos + 1));
            }
            Err(LogError::Sealed) => drop(self.refused.borrow_mut().insert(entry)),
            Err(LogError::Unknown) => self.unknown.set(self.unknown.get() + 1),
            Err(error) => panic!("{error}"),
        }
        result
    }

    pub async fn check_tail(&self, log: &impl SharedLog) -> Option<LogPos> {
        let before = self.tail.get();
        let tail = log.check_tail().await.ok()?.next;
        assert!(tail >= before, "the tail is {tail}, and was {before}");
        self.tail.set(self.tail.get().max(tail));
        Some(tail)
    }

    /// Reads once; the position behind the last entry.
    pub async fn read(&self, log: &impl SharedLog, from: LogPos, bytes_max: usize) -> LogPos {
        let tail = self.tail.get();
        match log.read_next(from, bytes_max).await {
            Ok(entries) => {
                assert!(
                    !entries.is_empty() || from >= tail,
                    "nothing at {from}, below {tail}"
                );
                let mut next = from;
                for (pos, entry) in entries {
                    assert_eq!(pos, next, "a gap");
                    self.sees(pos, &entry);
                    next += 1;
                }
                next
            }
            Err(LogError::Failed(_)) => from,
            Err(error) => panic!("{error}"),
        }
    }

    /// Reads everything, when all is well again: each answered append is at its position, each entry is there once,
    /// and none that was refused.
    pub async fn finish(&self, log: &impl SharedLog) {
        let tail = loop {
            if let Some(tail) = self.check_tail(log).await {
                break tail;
            }
        };
        let mut next = 1;
        while next < tail {
            next = self.read(log, next, 1 << 20).await;
        }
        assert_eq!(next, tail, "entries behind the tail");
        let seen = self.seen.borrow();
        assert_eq!(
            seen.len() as u64,
            tail - 1,
            "somebody saw an entry above the tail"
        );
        let entries: BTreeSet<_> = seen.values().collect();
        assert_eq!(entries.len(), seen.len(), "an entry is in the log twice");
        let refused = self.refused.borrow();
        let refused = refused.iter().find(|entry| entries.contains(entry));
        assert_eq!(refused, None, "a refused entry is in the log");
    }
}
