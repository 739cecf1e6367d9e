//! Sealed runs: what a connection carries whose sides have proved a key.
//!
//! ```text
//! length of the frames: u32 le | crc32c of the length: u32 le | seal of the frames: 16 bytes | frames
//! ```
//!
//! A run has the frames that go out in one write: a [seal] costs more for each piece than for each byte, and the
//! frames of a busy connection are small. It takes no further frame from [`RUN_BYTES`] on, so that the other side does
//! not wait long for the end of a run before it takes the first frame. No frame is taken before the seal is checked.

use crate::frame::{self, CHECKED_FROM, Check, FRAME_BYTES_MAX, Frame, FrameError};
use bytes::{Buf, BufMut, BytesMut};
use plinth_core::output::{Mark, Output};
use plinth_identity::seal::{self, Checker, SEAL_BYTES, Sealer, UsedUp};

/// A run that is this long is over.
const RUN_BYTES: usize = 64 << 10;
/// The length and its checksum.
const LENGTH_BYTES: usize = 8;
const HEAD_BYTES: usize = LENGTH_BYTES + SEAL_BYTES;

/// A run that takes frames: where its head is, and where its frames begin.
#[derive(Clone, Copy)]
struct Run {
    head: Mark,
    frames: Mark,
}

/// Seals of one direction, for what is sent.
pub(crate) struct Seals {
    sealer: Sealer,
    run: Option<Run>,
}

impl Seals {
    pub fn new(sealer: Sealer) -> Seals {
        Seals { sealer, run: None }
    }

    /// Bytes in front of the next frame. [`Seals::added`] is to be called when the frame is there and stays.
    pub fn head_bytes(&self) -> usize {
        self.run.map_or(HEAD_BYTES, |_| 0)
    }

    /// A frame was added after `before`, with the head of a run in front of it if it begins one.
    pub fn added(&mut self, out: &mut Output, before: Mark) -> Result<(), UsedUp> {
        let begun = || Run {
            head: before,
            frames: before.after_copied(HEAD_BYTES),
        };
        let run = self.run.get_or_insert_with(begun);
        if out.len_from(run.frames) < RUN_BYTES {
            return Ok(());
        }
        self.end_run(out)
    }

    /// Ends the run, if there is one: what it has is to be written.
    pub fn end_run(&mut self, out: &mut Output) -> Result<(), UsedUp> {
        let Some(Run { head, frames }) = self.run.take() else {
            return Ok(());
        };
        let seal = self.sealer.seal(out.pieces_from(frames))?;
        let length = (out.len_from(frames) as u32).to_le_bytes();
        let mut bytes = [0; HEAD_BYTES];
        let mut to = &mut bytes[..];
        to.put_slice(&length);
        to.put_u32_le(crc32c::crc32c(&length));
        to.put_slice(&seal);
        out.patch(head, &bytes);
        Ok(())
    }
}

/// Checks the runs that arrive.
pub struct Checks {
    checker: Checker,
    run_bytes_max: usize,
    /// So many of the next bytes have been checked.
    checked: usize,
}

impl Checks {
    /// Of frames of this crate.
    pub(crate) fn new(checker: Checker) -> Checks {
        Checks::of(checker, CHECKED_FROM + FRAME_BYTES_MAX)
    }

    /// Of frames that are at most so long.
    pub fn of(checker: Checker, frame_bytes_max: usize) -> Checks {
        Checks {
            checker,
            run_bytes_max: RUN_BYTES + frame_bytes_max,
            checked: 0,
        }
    }

    /// Takes the next frame off `input`; `None` if more bytes are needed.
    pub(crate) fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        self.next(input, |input| frame::decode(input, Check::Seal))
    }

    /// Takes the next frame off `input` by `take`; `None` if more bytes are needed.
    pub fn next<T, E: From<FrameError>>(
        &mut self,
        input: &mut BytesMut,
        take: impl FnOnce(&mut BytesMut) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        if self.checked == 0 && !self.run_has_come(input)? {
            return Ok(None);
        }
        let before = input.len();
        let frame = take(input)?;
        // A run ends where a frame ends.
        let taken = before - input.len();
        let left = self.checked.checked_sub(taken).filter(|_| frame.is_some());
        self.checked = left.ok_or(FrameError::Length(self.checked as u32))?;
        Ok(frame)
    }

    /// Checks the run at the front of `input`, and takes its head off, if all of it has come.
    fn run_has_come(&mut self, input: &mut BytesMut) -> Result<bool, FrameError> {
        if input.len() < HEAD_BYTES {
            return Ok(false);
        }
        let mut head = &input[..LENGTH_BYTES];
        let length = head.get_u32_le();
        if head.get_u32_le() != crc32c::crc32c(&length.to_le_bytes()) {
            return Err(FrameError::Checksum);
        }
        if !(1..=self.run_bytes_max).contains(&(length as usize)) {
            return Err(FrameError::Length(length));
        }
        let whole = HEAD_BYTES + length as usize;
        if !frame::has_come(input, whole) {
            return Ok(false);
        }
        let (seal, frames) = input[LENGTH_BYTES..whole].split_at(SEAL_BYTES);
        let checked = self.checker.check(frames, seal);
        checked.map_err(|seal::Broken| FrameError::Seal)?;
        input.advance(HEAD_BYTES);
        self.checked = length as usize;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
