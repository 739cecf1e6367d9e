//! What was written and acknowledged, outside of the machine that dies.

use crate::Version;
use crate::tests::Violations;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_farm_memory::{Class, Pointer};
use plinth_runtime::random;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

const REGIONS: u64 = 2;
const SLABS: u64 = 10;
/// So many cells of a slab are used, so that their objects change often.
const CELLS: u64 = 8;

/// A slab: its region, its number there.
pub type Slab = (u16, u64);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    Versions(Vec<Version>),
    Free { slab: Slab, at: u64 },
}

impl Record {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Record::Versions(versions) => {
                for version in versions {
                    out.put_u64_le(version.pointer.bits());
                    out.put_u64_le(version.timestamp);
                    out.put_u8(version.is_allocated.into());
                    out.put_u16_le(version.payload.len() as u16);
                    out.put_slice(&version.payload);
                }
            }
            Record::Free { slab, at } => {
                out.put_u64_le(0);
                out.put_u16_le(slab.0);
                out.put_u64_le(slab.1);
                out.put_u64_le(*at);
            }
        }
        out.freeze()
    }

    pub fn parse(mut bytes: Bytes) -> Record {
        let mut versions = Vec::new();
        while !bytes.is_empty() {
            let Some(pointer) = Pointer::from_bits(bytes.get_u64_le()) else {
                let slab = (bytes.get_u16_le(), bytes.get_u64_le());
                let at = bytes.get_u64_le();
                return Record::Free { slab, at };
            };
            let timestamp = bytes.get_u64_le();
            let is_allocated = bytes.get_u8() != 0;
            let length = bytes.get_u16_le().into();
            versions.push(Version {
                pointer,
                timestamp,
                is_allocated,
                payload: bytes.split_to(length),
            });
        }
        Record::Versions(versions)
    }
}

#[derive(Clone, Default)]
pub struct SlabState {
    pub class: Option<Class>,
    /// Objects that it has had since it was freed.
    pub objects: Vec<Pointer>,
    /// Transactions that write there.
    pub users: u64,
    pub is_freeing: bool,
    /// Acknowledged.
    pub freed: u64,
}

#[derive(Default)]
pub struct Model {
    pub violations: Violations,
    now: Cell<u64>,
    /// Every version that was ever written, by object and timestamp.
    written: RefCell<BTreeMap<(Pointer, u64), Version>>,
    /// The newest acknowledged version of each object.
    acknowledged: RefCell<BTreeMap<Pointer, u64>>,
    pub slabs: RefCell<BTreeMap<Slab, SlabState>>,
    pub is_at_rest: Cell<bool>,
    pub has_rested: Cell<bool>,
    pub commits: Cell<u64>,
    pub reads: Cell<u64>,
    pub recoveries: Cell<u64>,
    pub cleaned: Cell<u64>,
    pub freed: Cell<u64>,
    pub fulls: Cell<u64>,
}

pub fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

pub fn word(slab: Slab) -> u64 {
    16 + slab.1 * super::SLAB_WORDS
}

pub fn slab_of(pointer: Pointer) -> Slab {
    let number = (pointer.word() - 16) / super::SLAB_WORDS;
    (pointer.region(), number)
}

impl Model {
    pub fn next_timestamp(&self) -> u64 {
        self.now.set(self.now.get() + 1 + random::below(5));
        self.now.get()
    }

    pub fn now(&self) -> u64 {
        self.now.get()
    }

    pub fn any_slab() -> Slab {
        (random::below(REGIONS) as u16, random::below(SLABS))
    }

    /// An object to write to, or `None` if its slab is just being freed.
    pub fn any_object(&self) -> Option<Pointer> {
        let at = Self::any_slab();
        let mut slabs = self.slabs.borrow_mut();
        let slab = slabs.entry(at).or_default();
        if slab.is_freeing {
            return None;
        }
        let any_class = || Class::new(random::below(20) as u8).expect("a class");
        let class = *slab.class.get_or_insert_with(any_class);
        let words = class.cell_words() as u64;
        let cells = (super::SLAB_WORDS / words).min(CELLS);
        let pointer = Pointer::new(at.0, class, word(at) + random::below(cells) * words);
        if !slab.objects.contains(&pointer) {
            slab.objects.push(pointer);
        }
        Some(pointer)
    }

    pub fn objects(&self) -> Vec<Pointer> {
        let slabs = self.slabs.borrow();
        slabs
            .values()
            .flat_map(|slab| slab.objects.clone())
            .collect()
    }

    pub fn write(&self, version: &Version) {
        let key = (version.pointer, version.timestamp);
        self.written.borrow_mut().insert(key, version.clone());
    }

    pub fn acknowledge(&self, record: &Record) {
        match record {
            Record::Versions(versions) => {
                for version in versions {
                    let mut all = self.acknowledged.borrow_mut();
                    let newest = all.entry(version.pointer).or_default();
                    *newest = version.timestamp.max(*newest);
                }
            }
            Record::Free { slab, at } => {
                let mut slabs = self.slabs.borrow_mut();
                let slab = slabs.entry(*slab).or_default();
                if *at > slab.freed {
                    let freed = *at;
                    *slab = SlabState {
                        freed,
                        ..SlabState::default()
                    };
                }
            }
        }
    }

    /// The process has died.
    pub fn forget_life(&self) {
        for slab in self.slabs.borrow_mut().values_mut() {
            slab.users = 0;
            slab.is_freeing = false;
        }
    }

    /// The newest acknowledged version of an object that must be there.
    pub fn expected(&self, pointer: Pointer) -> Option<u64> {
        let newest = self.acknowledged.borrow().get(&pointer).copied();
        let freed = self.slabs.borrow().get(&slab_of(pointer)).map(|s| s.freed);
        newest.filter(|newest| *newest > freed.unwrap_or(0))
    }

    /// Judges a read: what it may not be older than, and what it has found.
    pub fn check(&self, pointer: Pointer, least: Option<u64>, found: Option<&Version>) {
        count(&self.reads);
        let freed = self
            .slabs
            .borrow()
            .get(&slab_of(pointer))
            .map_or(0, |s| s.freed);
        let newest = found.map(|version| version.timestamp);
        let say = |what: &str| {
            let is_allocated = found.map(|version| version.is_allocated);
            self.violations.say(format!(
                "{pointer:?} {what}: {newest:?} (allocated: {is_allocated:?}) was read, {least:?} was acknowledged"
            ));
        };
        // Its slab may have been freed since the read began.
        if newest < least && least.is_some_and(|least| least > freed) {
            say("is lost or old");
        }
        let Some(found) = found else { return };
        match self.written.borrow().get(&(pointer, found.timestamp)) {
            Some(written) if written == found => {}
            Some(_) => say("has changed"),
            None => say("was never written"),
        }
    }

    pub fn shown(&self) -> [u64; 6] {
        let shown = [
            &self.commits,
            &self.reads,
            &self.recoveries,
            &self.cleaned,
            &self.freed,
            &self.fulls,
        ];
        shown.map(Cell::get)
    }
}
