//! Requests and answers as messages of the fabric: in pieces if they are long.
//!
//! ```text
//!   frame:   room 1 | 0 for a request, 1 for an answer | call 8 | piece 4 | pieces 4 | bytes
//! ```

use crate::codec::{Code, Reader};
use plinth_farm_fabric::Machine;
use std::collections::BTreeMap;

pub const HEAD_BYTES: usize = 18;
/// Most bytes of a request or an answer.
pub const WHOLE_BYTES_MAX: usize = 64 << 20;
/// Most messages of a sender that are not whole; the first ones are forgotten.
const PARTIAL_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Request,
    Answer,
}

/// Frames of at most `most` bytes for a message.
pub fn frames(room: u8, kind: Kind, call: u64, bytes: &[u8], most: usize) -> Vec<Vec<u8>> {
    let room_for = most.saturating_sub(HEAD_BYTES).max(1);
    let pieces = bytes.len().div_ceil(room_for).max(1);
    let frame = |piece: usize| {
        let begin = piece * room_for;
        let part = &bytes[begin..bytes.len().min(begin + room_for)];
        let mut out = Vec::with_capacity(HEAD_BYTES + part.len());
        out.push(room);
        out.push(kind as u8);
        call.put(&mut out);
        (piece as u32).put(&mut out);
        (pieces as u32).put(&mut out);
        out.extend_from_slice(part);
        out
    };
    (0..pieces).map(frame).collect()
}

struct Frame<'a> {
    kind: Kind,
    call: u64,
    piece: u32,
    pieces: u32,
    bytes: &'a [u8],
}

fn parse(frame: &[u8]) -> Option<Frame<'_>> {
    let mut reader = Reader(frame);
    reader.get::<u8>()?;
    let kind = match reader.get()? {
        false => Kind::Request,
        true => Kind::Answer,
    };
    let (call, piece, pieces) = (reader.get()?, reader.get()?, reader.get()?);
    (piece < pieces).then_some(Frame {
        kind,
        call,
        piece,
        pieces,
        bytes: reader.0,
    })
}

#[cfg(test)]
pub fn is_frame(bytes: &[u8]) -> bool {
    parse(bytes).is_some()
}

struct Partial {
    pieces: u32,
    /// How many pieces are there.
    there: u32,
    bytes: Vec<u8>,
}

/// Messages that are not whole.
#[derive(Default)]
pub struct Assembly {
    partial: BTreeMap<(Machine, Kind, u64), Partial>,
    /// Bytes of all of them.
    bytes: usize,
}

impl Assembly {
    /// Takes a frame, which may be anything. Returns the message of which it is the last one. A message of which a
    /// frame is missing, or that is too long, is forgotten.
    pub fn take(&mut self, from: Machine, frame: &[u8]) -> Option<(Kind, u64, Vec<u8>)> {
        let frame = parse(frame)?;
        let key = (from, frame.kind, frame.call);
        let mut partial = self.forget(key).unwrap_or(Partial {
            pieces: frame.pieces,
            there: 0,
            bytes: Vec::new(),
        });
        if (partial.there, partial.pieces) != (frame.piece, frame.pieces) {
            return None;
        }
        if partial.bytes.len() + frame.bytes.len() > WHOLE_BYTES_MAX {
            return None;
        }
        partial.there += 1;
        partial.bytes.extend_from_slice(frame.bytes);
        if partial.there == partial.pieces {
            return Some((frame.kind, frame.call, partial.bytes));
        }
        self.make_room(from, partial.bytes.len());
        self.bytes += partial.bytes.len();
        self.partial.insert(key, partial);
        None
    }

    fn forget(&mut self, key: (Machine, Kind, u64)) -> Option<Partial> {
        let partial = self.partial.remove(&key)?;
        self.bytes -= partial.bytes.len();
        Some(partial)
    }

    fn make_room(&mut self, from: Machine, bytes: usize) {
        let first = (from, Kind::Request, 0);
        let last = (from, Kind::Answer, u64::MAX);
        let keys = || self.partial.range(first..=last).map(|(key, _)| *key);
        let gone = match keys().count() >= PARTIAL_MAX {
            true => keys().next(),
            false => None,
        };
        if let Some(key) = gone {
            self.forget(key);
        }
        while self.bytes + bytes > 2 * WHOLE_BYTES_MAX {
            let Some(key) = self.partial.keys().next().copied() else {
                return;
            };
            self.forget(key);
        }
    }

    /// Messages that are not whole.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.partial.len()
    }
}
