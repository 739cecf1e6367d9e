//! Letters of recovery between machines. One may be larger than a message of the fabric, so it goes in pieces:
//!
//! ```text
//!   room u8 | configuration u64 | number of the piece u32, from 0 on in each | 1: it is the last u8 | bytes
//! ```
//!
//! A piece that was perhaps lost is sent again, and the receiver ignores a repetition.

use crate::recovery::Letter;
use bytes::{Buf, Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_farm_fabric::Machine;
use plinth_runtime::probe;
use plinth_runtime::sync::QueueSender;
use std::cell::RefCell;
use std::collections::BTreeMap;

pub const HEAD_BYTES: usize = 14;
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
        incoming.next += 1;
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
