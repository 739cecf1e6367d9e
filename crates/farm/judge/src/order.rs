//! The order of each object's versions, as far as the history itself tells it.
//!
//! Who read an object before it wrote it names the version before its own. That makes chains. A chain begins with who
//! did not read, or who found no object. Chains of one object are put in the order of their first timestamps: it is
//! the only place where timestamps are believed, and there are no such places if everybody reads before it writes,
//! and no object is freed.

use crate::history::{Change, Timestamp};
use crate::prepare::{Groups, Prepared, ReadOf, Saw, Version};
use crate::violation::{Kind, Violation};

/// No version: what was before the history.
pub(crate) const BEGINNING: u32 = u32::MAX;
/// The place of a write that made no version, or none that the history can put in order.
const NOWHERE: u32 = u32::MAX;

pub(crate) struct Ordered<'p, 'a> {
    pub prepared: &'p Prepared<'a>,
    /// Of each object, in their order.
    pub versions: Groups<Version>,
    /// Of each write: its version's place among those of the object.
    places: Vec<u32>,
    /// Of each object: the places of the versions without an object. `BEGINNING` comes first if it is one.
    absent: Groups<(u32, u32)>,
}

impl<'p, 'a> Ordered<'p, 'a> {
    pub fn new(prepared: &'p Prepared<'a>) -> Result<Self, Box<Violation>> {
        let mut ordered = Ordered {
            prepared,
            versions: Groups::from_sorted(Vec::new(), 0, |_| 0),
            places: vec![NOWHERE; prepared.writes.all().len()],
            absent: Groups::from_sorted(Vec::new(), 0, |_| 0),
        };
        let mut versions = Vec::with_capacity(prepared.versions.all().len());
        for object in 0..prepared.objects.len() as u32 {
            let from = versions.len();
            ordered.put_in_order(object, &mut versions)?;
            for (version, place) in versions[from..].iter().zip(0..) {
                let write = ordered.write_index(version.writer, object);
                ordered.places[write] = place;
            }
        }
        ordered.versions =
            Groups::from_sorted(versions, prepared.objects.len(), |version| version.object);
        ordered.absent = ordered.absences()?;
        Ok(ordered)
    }

    fn write_index(&self, writer: u32, object: u32) -> usize {
        self.prepared
            .write_index(writer, object)
            .expect("reads and versions name writes")
    }

    /// Adds the versions of an object. Those are missing whose writers have read one another's in a circle; the graph
    /// has that circle, too.
    fn put_in_order(&mut self, object: u32, all: &mut Vec<Version>) -> Result<(), Box<Violation>> {
        let prepared = self.prepared;
        let versions = prepared.versions.of(object);
        // Until the order is known, `places` are those in the order of timestamps.
        for (version, place) in versions.iter().zip(0..) {
            let write = self.write_index(version.writer, object);
            self.places[write] = place;
        }
        let mut after: Vec<u32> = vec![NOWHERE; versions.len()];
        let mut after_beginning = NOWHERE;
        let mut heads = Vec::new();
        for (version, place) in versions.iter().zip(0..) {
            let slot = match prepared.saw(version.writer, object) {
                None | Some(Saw::Absent) => {
                    heads.push(place);
                    continue;
                }
                Some(Saw::Initial) => &mut after_beginning,
                Some(Saw::By(writer)) => {
                    &mut after[self.places[self.write_index(writer, object)] as usize]
                }
            };
            if *slot != NOWHERE {
                return Err(lost_update(prepared, &versions[*slot as usize], version));
            }
            *slot = place;
        }
        for version in versions {
            let write = self.write_index(version.writer, object);
            self.places[write] = NOWHERE;
        }
        let beginning = (after_beginning != NOWHERE).then_some(after_beginning);
        let from = all.len();
        for head in beginning.into_iter().chain(heads) {
            let mut place = head;
            while place != NOWHERE {
                all.push(versions[place as usize]);
                place = after[place as usize];
            }
        }
        all[from..]
            .windows(2)
            .try_for_each(|pair| alternates(prepared, &pair[0], &pair[1]))
    }

    /// Finds for each object where it was absent, and checks that reads agree on its beginning.
    fn absences(&self) -> Result<Groups<(u32, u32)>, Box<Violation>> {
        let prepared = self.prepared;
        // Who shows that the object was there before the history.
        let mut present = vec![None; prepared.objects.len()];
        for reader in prepared.numbers() {
            for read in prepared.reads.of(reader) {
                if read.saw == Saw::Initial {
                    present[read.object as usize] = Some(reader);
                }
            }
        }
        let mut absent = Vec::new();
        for (object, present) in (0..).zip(&present) {
            let versions = self.versions.of(object);
            let first = versions.first();
            match (present, first.map(|first| first.change)) {
                (Some(reader), Some(Change::Allocate)) => {
                    let writer = first.map_or(0, |first| first.writer);
                    return Err(self.not_the_first(object, *reader, writer));
                }
                (None, None | Some(Change::Allocate)) => absent.push((object, BEGINNING)),
                _ => {}
            }
            let freed = versions
                .iter()
                .zip(0..)
                .filter(|(version, _)| version.change == Change::Free);
            absent.extend(freed.map(|(_, place)| (object, place)));
        }
        Ok(Groups::from_sorted(
            absent,
            prepared.objects.len(),
            |entry| entry.0,
        ))
    }

    fn not_the_first(&self, object: u32, reader: u32, writer: u32) -> Box<Violation> {
        let id = |number: u32| self.prepared.transaction(number).id;
        let why = format!(
            "T{} saw {:#x} as it was before the history, but T{} was the first to allocate it",
            id(reader),
            self.prepared.object(object),
            id(writer)
        );
        self.prepared
            .violation(Kind::Beginning, &[reader, writer], Some(object), why)
    }

    /// The place of the version that a read returned; `None` if that version has no place. Of several moments at which
    /// the object was absent the read timestamp chooses.
    pub fn place(&self, reader: u32, read: ReadOf) -> Result<Option<u32>, Box<Violation>> {
        match read.saw {
            Saw::Initial => Ok(Some(BEGINNING)),
            Saw::By(writer) => {
                let place = self.places[self.write_index(writer, read.object)];
                Ok((place != NOWHERE).then_some(place))
            }
            Saw::Absent => {
                let absent = self.absent.of(read.object);
                let read_at = self.prepared.read_at(reader);
                let later =
                    absent.partition_point(|&(object, place)| self.at(object, place) <= read_at);
                match absent.get(later.saturating_sub(1)) {
                    Some(&(_, place)) => Ok(Some(place)),
                    None => Err(self.never_absent(reader, read.object)),
                }
            }
        }
    }

    fn at(&self, object: u32, place: u32) -> Timestamp {
        self.version(object, place).map_or(0, |version| version.at)
    }

    fn never_absent(&self, reader: u32, object: u32) -> Box<Violation> {
        let why = format!(
            "T{} found {:#x} not allocated, but it was there before the history, and nobody freed it",
            self.prepared.transaction(reader).id,
            self.prepared.object(object)
        );
        self.prepared
            .violation(Kind::Beginning, &[reader], Some(object), why)
    }

    /// `None` for the beginning.
    pub fn version(&self, object: u32, place: u32) -> Option<&Version> {
        self.versions.of(object).get(place as usize)
    }

    /// The version after the one at `place`.
    pub fn next(&self, object: u32, place: u32) -> Option<&Version> {
        self.version(object, place.wrapping_add(1))
    }
}

fn lost_update(prepared: &Prepared<'_>, one: &Version, other: &Version) -> Box<Violation> {
    let id = |version: &Version| prepared.transaction(version.writer).id;
    let saw = prepared.saw(one.writer, one.object).unwrap_or(Saw::Initial);
    let why = format!(
        "T{} and T{} both read {:#x} as it was ({}), both changed it, and both took effect",
        id(one),
        id(other),
        prepared.object(one.object),
        prepared.shown(saw)
    );
    prepared.violation(
        Kind::LostUpdate,
        &[one.writer, other.writer],
        Some(one.object),
        why,
    )
}

/// An object is allocated only while it is not, and changed only while it is.
fn alternates(
    prepared: &Prepared<'_>,
    former: &Version,
    later: &Version,
) -> Result<(), Box<Violation>> {
    let did = match (former.change, later.change) {
        (Change::Free, Change::Set | Change::Free) => "changed it after that",
        (Change::Set | Change::Allocate, Change::Allocate) => {
            "allocated it without that it was freed"
        }
        _ => return Ok(()),
    };
    let object = prepared.object(later.object);
    let (before, after) = (
        prepared.transaction(former.writer).id,
        prepared.transaction(later.writer).id,
    );
    let first = if former.change == Change::Free {
        "freed"
    } else {
        "wrote"
    };
    let why = format!("T{before} {first} {object:#x}, and T{after} {did}");
    Err(prepared.violation(
        Kind::Allocation,
        &[later.writer, former.writer],
        Some(later.object),
        why,
    ))
}
