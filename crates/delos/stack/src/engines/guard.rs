//! Switching an engine on and off through the log (§3.4).
//!
//! A new engine first gets into the stacks of all replicas, switched off: it may add headers and propose entries of
//! its own, but it changes nothing. When all have it, an entry switches it on, at the same position everywhere. Taking
//! an engine out is the reverse. So the store stays a function of the log while replicas have different stacks.
//!
//! An engine's header is `kind: u8 | bytes`.

use crate::entry::Entry;
use crate::stack::{Answer, Engine, Lost};
use crate::store::{RoTx, RwTx};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::{Error, Result};
use plinth_runtime::planted;

/// Said along with somebody else's entry.
const NOTE: u8 = 0;
/// The entry is the engine's own.
const OWN: u8 = 1;
const ON: u8 = 2;
const OFF: u8 = 3;

/// Header of an entry that switches an engine, for those below that have to know: `is it on u8 | name`.
pub const SWITCH: &str = "switch";

/// What an entry is to an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// It goes up. The engine's note on it, if it has one and the engine is on.
    Passing(Option<Bytes>),
    /// It is the engine's own, and the engine is on.
    Own(Bytes),
    /// It is the engine's own, and goes no further: it switched the engine, or the engine is off.
    Over,
}

/// The switch of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    /// Name of the engine's header; its rows begin with it and a `/`.
    pub name: &'static str,
}

impl Guard {
    fn row(&self) -> Vec<u8> {
        [self.name.as_bytes(), b"/on"].concat()
    }

    /// The key of one of the engine's rows.
    pub fn key(&self, key: &[u8]) -> Vec<u8> {
        [self.name.as_bytes(), b"/of/", key].concat()
    }

    /// Where the keys of the engine's rows begin and end.
    pub fn keys(&self) -> (Vec<u8>, Vec<u8>) {
        (self.key(b""), self.key(&[0xff; 9]))
    }

    /// All rows of an engine whose keys are numbers.
    ///
    /// # Errors
    /// A key is something else, the snapshot is too old, or the disk fails.
    pub fn rows_by_id(&self, rows: &RoTx) -> Result<Vec<(u64, Bytes)>> {
        let (begin, end) = self.keys();
        let parse = |(key, row): (Bytes, Bytes)| {
            let id = key.strip_prefix(&begin[..])?.try_into().ok()?;
            Some((u64::from_be_bytes(id), row))
        };
        let found = rows.range(&begin, &end, usize::MAX)?.into_iter();
        found
            .map(parse)
            .collect::<Option<_>>()
            .ok_or(Error::file_corrupt)
    }

    /// # Errors
    /// The disk fails.
    pub fn is_on(&self, tx: &RwTx) -> Result<bool> {
        Ok(tx.get(&self.row())?.is_some())
    }

    /// # Errors
    /// The snapshot is too old, or the disk fails.
    pub fn was_on(&self, rows: &RoTx) -> Result<bool> {
        Ok(rows.get(&self.row())?.is_some())
    }

    /// Looks at an entry that is applied, and switches the engine if it says so.
    ///
    /// # Errors
    /// The disk fails.
    pub fn look(&self, tx: &mut RwTx, entry: &Entry) -> Result<Seen> {
        let Some(header) = entry.header(self.name) else {
            return Ok(Seen::Passing(None));
        };
        let mut said = header.clone();
        let kind = said.try_get_u8().unwrap_or(NOTE);
        let acts_early = planted!(
            "delos_acts_before_enabled",
            "an engine acts on what it is told before the log has switched it on"
        );
        let is_on = self.is_on(tx)? || acts_early;
        Ok(match kind {
            ON => {
                tx.set(&self.row(), "");
                Seen::Over
            }
            OFF => {
                tx.clear(&self.row());
                Seen::Over
            }
            OWN if is_on => Seen::Own(said),
            OWN => Seen::Over,
            NOTE if is_on => Seen::Passing(Some(said)),
            // Also what a later release says.
            _ => Seen::Passing(None),
        })
    }

    /// Switches the engine off, where there is no log yet that says so.
    pub fn forget(&self, tx: &mut RwTx) {
        tx.clear(&self.row());
    }

    fn header(kind: u8, said: &[u8]) -> Bytes {
        let mut header = BytesMut::with_capacity(1 + said.len());
        header.put_u8(kind);
        header.put_slice(said);
        header.freeze()
    }

    /// Says something along with an entry.
    pub fn note(&self, entry: &mut Entry, said: &[u8]) {
        entry.set_header(self.name, Self::header(NOTE, said));
    }

    /// An entry of the engine's own.
    pub fn own(&self, said: &[u8]) -> Entry {
        let mut entry = Entry::default();
        entry.set_header(self.name, Self::header(OWN, said));
        entry
    }

    /// Such an entry, of one of the kinds that the engine has.
    pub fn own_of(&self, kind: u8, said: &[u8]) -> Entry {
        self.own(&[&[kind], said].concat())
    }

    /// An entry that switches the engine.
    pub fn switch_entry(&self, on: bool) -> Entry {
        let mut entry = Entry::default();
        entry.set_header(self.name, Self::header(if on { ON } else { OFF }, b""));
        entry.set_header(SWITCH, [&[u8::from(on)], self.name.as_bytes()].concat());
        entry
    }

    /// Switches the engine on or off, everywhere.
    ///
    /// # Errors
    /// Those of the proposal.
    pub async fn switch<E: Engine>(&self, down: &E, on: bool) -> std::result::Result<(), Lost> {
        let answer = down.propose(self.switch_entry(on)).await?;
        assert!(
            matches!(answer, Answer::Own(_)),
            "the switch of engine {} was kept from it",
            self.name
        );
        Ok(())
    }
}
