//! Letters of recovery between machines. One may be larger than a message of the fabric, so it goes in pieces:
//!
//! ```text
//!   room u8 | configuration u64 | number of the piece u32, from 0 on in each | 1: it is the last u8 | bytes
//! ```
//!
//! A piece that was perhaps lost is sent again, and the receiver ignores a repetition.

use crate::recovery::Letter;
use crate::wire::Room;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_farm_fabric::Machine;
use plinth_runtime::probe;
use plinth_runtime::sync::QueueSender;
use std::cell::RefCell;
use std::collections::BTreeMap;

const HEAD_BYTES: usize = 14;
/// Most bytes of a letter: far more than all transactions that are under way at a time can have.
const LETTER_BYTES_MAX: usize = 1 << 30;

/// Pieces of a letter that have come.
#[derive(Default)]
struct Incoming {
    configuration: u64,
    next: u32,
    bytes: BytesMut,
}

#[derive(Default)]
pub struct Letters {
    /// To each machine of the configuration.
    pub ways: RefCell<BTreeMap<Machine, QueueSender<Letter>>>,
    incoming: RefCell<BTreeMap<Machine, Incoming>>,
}

/// A letter's pieces, of which none has more than `room` bytes. The first one is `first` in its configuration.
pub fn pieces(letter: &Letter, first: u32, room: usize) -> Vec<Bytes> {
    let bytes = letter.to_bytes();
    let parts = bytes.chunks(room.saturating_sub(HEAD_BYTES).max(1));
    let last = parts.len().saturating_sub(1);
    let piece = |(at, part): (usize, &[u8])| {
        let mut piece = BytesMut::with_capacity(HEAD_BYTES + part.len());
        piece.put_u8(Room::Recovery.tag());
        piece.put_u64(letter.configuration);
        piece.put_u32(first.wrapping_add(at as u32));
        piece.put_u8(u8::from(at == last));
        piece.put_slice(part);
        piece.freeze()
    };
    parts.enumerate().map(piece).collect()
}

impl Letters {
    /// Takes a piece. Returns the letter that it ends.
    pub fn take(&self, from: Machine, mut body: Bytes) -> Option<Letter> {
        body.try_get_u8().ok()?;
        let configuration = body.try_get_u64().ok()?;
        let piece = body.try_get_u32().ok()?;
        let is_last = body.try_get_u8().ok()? == 1;
        let mut incoming = self.incoming.borrow_mut();
        let incoming = incoming.entry(from).or_default();
        if configuration > incoming.configuration {
            *incoming = Incoming {
                configuration,
                ..Incoming::default()
            };
        }
        let is_next = configuration == incoming.configuration && piece == incoming.next;
        if !is_next || incoming.bytes.len() + body.len() > LETTER_BYTES_MAX {
            probe!("farm piece of a letter that is not the next");
            return None;
        }
        incoming.next = incoming.next.wrapping_add(1);
        incoming.bytes.extend_from_slice(&body);
        if !is_last {
            probe!("farm letter in pieces");
            return None;
        }
        let bytes = std::mem::take(&mut incoming.bytes).freeze();
        let letter = Letter::from_bytes(bytes)?;
        (letter.configuration == configuration).then_some(letter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::Message;
    use proptest::prelude::*;

    fn letter(configuration: u64, numbers: usize) -> Letter {
        let asked = (1..=numbers as u64).collect();
        Letter {
            configuration,
            message: Message::Here { asked },
        }
    }

    proptest! {
        #[test]
        fn letters_come_whole_and_once_however_they_are_cut_and_repeated(
            sizes in prop::collection::vec(0..300usize, 1..6),
            room in 0..400usize,
            repeats in prop::collection::vec(any::<bool>(), 1..20),
        ) {
            let (letters, from) = (Letters::default(), Machine(3));
            let mut repeats = repeats.into_iter().cycle();
            for configuration in [4, 7] {
                let mut first = 0;
                for size in &sizes {
                    let sent = letter(configuration, *size);
                    let mut came = Vec::new();
                    for piece in pieces(&sent, first, room) {
                        prop_assert!(piece.len() <= room.max(HEAD_BYTES + 1));
                        first += 1;
                        came.extend(letters.take(from, piece.clone()));
                        if repeats.next() == Some(true) {
                            came.extend(letters.take(from, piece));
                        }
                    }
                    prop_assert_eq!(came, vec![sent]);
                }
            }
        }

        #[test]
        fn any_bytes_are_a_piece_or_none(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Letters::default().take(Machine(0), bytes.into());
        }
    }

    #[test]
    fn a_former_configuration_is_over_when_a_later_one_has_come() {
        let (letters, from) = (Letters::default(), Machine(3));
        let former = pieces(&letter(4, 100), 0, 100);
        assert_eq!(letters.take(from, former[0].clone()), None);
        let later = pieces(&letter(5, 1), 0, 1000);
        assert_eq!(letters.take(from, later[0].clone()), Some(letter(5, 1)));
        for piece in former {
            assert_eq!(letters.take(from, piece), None);
        }
    }
}
