//! The frame: the unit of transfer between two workers.
//!
//! ```text
//! length: u32 le | crc32c of the length: u32 le | crc32c of the rest: u32 le | token: u64 le | request id: u64 le
//! | payload
//! ```
//!
//! `length` counts the bytes after the checksums; the second checksum covers the same bytes. The first checksum
//! detects a damaged length at once. Without it, the reader would take all following bytes, answers to pings included,
//! for the rest of one frame. A reply carries the token [`REPLY`] and a payload that starts with a status (u16 le, 0 =
//! success). The first frame of a connection is [`HELLO`] with the protocol version and the beginning of the
//! [greeting](plinth_identity::greeting); its other frames are [`HELLO`], too. If both sides have proved a key, later
//! frames come in [sealed runs](crate::seals), and their checksums are 0. A frame out of bounds or with a wrong
//! checksum or seal closes the connection. A frame out of bounds is never sent: a request fails at its sender, and a
//! reply becomes an error.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::Error;
use plinth_core::output::Output;
use plinth_runtime::net::READ_ROOM_BYTES;

/// Answer to the request with the same id.
pub const REPLY: u64 = 0;
/// Answered at once by the connection itself.
pub const PING: u64 = 1;
/// Frames of the greeting: the first of every connection, from both sides.
pub const HELLO: u64 = 2;
/// Cancels the request with this id. Only requests that [wait](crate::Waiters) are affected.
pub const GIVE_UP: u64 = 3;

/// Version of the protocol: `plnt` and a number that changes whenever frames or messages change incompatibly.
pub const PROTOCOL_VERSION: u64 = 0x706c_6e74_0000_0010;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = CHECKED_FROM + 16;
/// The length and both checksums.
pub(crate) const CHECKED_FROM: usize = 12;
/// A longer frame is refused: the largest transaction and its conflict ranges fit several times.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// Data gathered up to this many bytes, plus the largest transaction or row, fits into a frame.
pub const FRAME_SAFE_BYTES: usize = FRAME_BYTES_MAX / 2;
/// Limit of a request, a little lower, so that the content of a request fits into a reply that adds a few numbers.
const REQUEST_BYTES_MAX: usize = FRAME_BYTES_MAX - (4 << 10);

#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    pub token: u64,
    pub request_id: u64,
    pub payload: Bytes,
}

/// Why bytes are not a frame. The connection is closed, nothing else is harmed.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum FrameError {
    Length(u32),
    Checksum,
    Seal,
}

/// What shows that the bytes of a frame are as they were sent.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Check {
    Sum,
    /// That of the run that it is in.
    Seal,
}

/// A message is longer than a frame may be. No part of it was written.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct TooLarge {
    pub bytes: usize,
}

/// Appends one request frame, with the payload written in place by `payload`.
pub fn encode(
    out: &mut Output,
    token: u64,
    request_id: u64,
    payload: impl FnOnce(&mut Output),
) -> Result<(), TooLarge> {
    encode_as(Check::Sum, out, token, request_id, payload)
}

/// The same, for a connection with or without seals.
pub fn encode_as(
    check: Check,
    out: &mut Output,
    token: u64,
    request_id: u64,
    payload: impl FnOnce(&mut Output),
) -> Result<(), TooLarge> {
    encode_within(REQUEST_BYTES_MAX, check, out, token, request_id, payload)
}

fn encode_within(
    bytes_max: usize,
    check: Check,
    out: &mut Output,
    token: u64,
    request_id: u64,
    payload: impl FnOnce(&mut Output),
) -> Result<(), TooLarge> {
    let start = out.mark();
    out.buffer().put_bytes(0, CHECKED_FROM); // length and checksums, patched below
    let checked = out.mark();
    out.buffer().put_u64_le(token);
    out.buffer().put_u64_le(request_id);
    payload(out);
    let bytes = out.len_from(checked);
    if bytes > bytes_max {
        out.truncate(start);
        return Err(TooLarge { bytes });
    }
    let length = (bytes as u32).to_le_bytes();
    let mut head = [0; CHECKED_FROM];
    head[..4].copy_from_slice(&length);
    if check == Check::Sum {
        let checksum = |crc, piece: &[u8]| crc32c::crc32c_append(crc, piece);
        let mut sums = &mut head[4..];
        sums.put_u32_le(crc32c::crc32c(&length));
        sums.put_u32_le(out.pieces_from(checked).fold(0, checksum));
    }
    out.patch(start, &head);
    Ok(())
}

/// Appends a reply frame.
pub fn encode_reply(
    check: Check,
    out: &mut Output,
    request_id: u64,
    status: Result<(), Error>,
    body: impl FnOnce(&mut Output),
) -> Result<(), TooLarge> {
    encode_within(FRAME_BYTES_MAX, check, out, REPLY, request_id, |out| {
        out.buffer().put_u16_le(status.err().map_or(0, Error::code));
        body(out);
    })
}

/// Room for the whole is reserved once one part in this many has arrived.
const WORTH_BELIEVING: usize = 32;

/// Whether `whole` bytes are in `input`. Reserves room for them once.
///
/// A buffer that grows by doubling would copy all its content in one turn of the loop. Reserved memory costs next to
/// nothing until it is used, and a peer must send a part of the whole before anything is reserved for it. The last
/// read needs room as well.
pub(crate) fn has_come(input: &mut BytesMut, whole: usize) -> bool {
    let come = input.len();
    if come < whole && come >= whole / WORTH_BELIEVING {
        input.reserve(whole - come + READ_ROOM_BYTES);
    }
    come >= whole
}

/// Takes the next whole frame off `input`; `None` if more bytes are needed. With [`Check::Seal`] its bytes have been
/// checked before.
pub fn decode(input: &mut BytesMut, check: Check) -> Result<Option<Frame>, FrameError> {
    if input.len() < HEADER_BYTES {
        return Ok(None);
    }
    let mut head = &input[..CHECKED_FROM];
    let length = head.get_u32_le();
    if check == Check::Sum && head.get_u32_le() != crc32c::crc32c(&length.to_le_bytes()) {
        return Err(FrameError::Checksum);
    }
    if (length as usize) < HEADER_BYTES - CHECKED_FROM || length as usize > FRAME_BYTES_MAX {
        return Err(FrameError::Length(length));
    }
    let whole = length as usize + CHECKED_FROM;
    if !has_come(input, whole) {
        return Ok(None);
    }
    if check == Check::Sum {
        let expected = (&input[8..CHECKED_FROM]).get_u32_le();
        if crc32c::crc32c(&input[CHECKED_FROM..whole]) != expected {
            return Err(FrameError::Checksum);
        }
    }
    let mut frame = input.split_to(whole).freeze();
    frame.advance(CHECKED_FROM);
    let token = frame.get_u64_le();
    let request_id = frame.get_u64_le();
    Ok(Some(Frame {
        token,
        request_id,
        payload: frame,
    }))
}

/// Splits a reply's payload into its status and body.
pub fn split_reply(mut payload: Bytes) -> Option<Result<Bytes, Error>> {
    if payload.len() < 2 {
        return None;
    }
    Some(match payload.get_u16_le() {
        0 => Ok(payload),
        code => Err(Error(code)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Output {
        let mut out = Output::new();
        encode(&mut out, 77, 5, |out| out.buffer().put_slice(b"hello")).expect("short");
        out
    }

    fn whole(out: Output) -> BytesMut {
        BytesMut::from(&out.into_bytes()[..])
    }

    /// A payload of this many bytes that are not copied.
    fn fill(bytes: usize) -> impl FnOnce(&mut Output) {
        move |out| out.put_shared(&Bytes::from(vec![7; bytes]))
    }

    #[test]
    fn a_frame_comes_back_whole_from_any_split() {
        let whole = whole(sample());
        for cut in 0..whole.len() {
            let mut input = BytesMut::from(&whole[..cut]);
            assert_eq!(decode(&mut input, Check::Sum), Ok(None));
            input.extend_from_slice(&whole[cut..]);
            let frame = decode(&mut input, Check::Sum)
                .expect("valid")
                .expect("whole");
            assert_eq!(
                (frame.token, frame.request_id, &frame.payload[..]),
                (77, 5, &b"hello"[..])
            );
            assert!(input.is_empty());
        }
    }

    #[test]
    fn a_large_frame_moves_once_when_a_small_part_of_it_has_come() {
        let mut out = Output::new();
        encode(&mut out, 77, 5, fill(9_000_000)).expect("short");
        let whole = whole(out);
        let (mut input, mut moves) = (BytesMut::new(), 0);
        for part in whole.chunks(READ_ROOM_BYTES) {
            // Makes room as a connection does before it reads.
            let room = input.capacity() - input.len();
            if room < READ_ROOM_BYTES {
                assert!(input.len() < whole.len() / 16, "{} copied", input.len());
                input.reserve(16 * READ_ROOM_BYTES);
            }
            input.extend_from_slice(part);
            let before = input.capacity();
            if let Some(frame) = decode(&mut input, Check::Sum).expect("valid") {
                assert_eq!(frame.payload.len(), 9_000_000);
                assert_eq!(moves, 1);
                return;
            }
            moves += usize::from(input.capacity() != before);
        }
        panic!("the frame is not whole");
    }

    #[test]
    fn a_message_longer_than_a_frame_leaves_no_trace_and_the_longest_one_comes_back() {
        let mut out = sample();
        let before = out.len();
        let longest = FRAME_BYTES_MAX - (HEADER_BYTES - CHECKED_FROM);
        let refused = encode(&mut out, 77, 6, fill(longest));
        assert_eq!(
            refused,
            Err(TooLarge {
                bytes: FRAME_BYTES_MAX
            })
        );
        assert_eq!(out.len(), before);
        assert!(encode_reply(Check::Sum, &mut out, 6, Ok(()), fill(longest - 1)).is_err());
        assert_eq!(out.len(), before);
        // A reply can carry the content of the largest request.
        let request = longest - (4 << 10);
        assert_eq!(encode(&mut out, 77, 6, fill(request)), Ok(()));
        assert_eq!(
            encode_reply(Check::Sum, &mut out, 7, Ok(()), fill(longest - 2)),
            Ok(())
        );
        let mut out = whole(out);
        let mut next = || {
            decode(&mut out, Check::Sum)
                .expect("in bounds")
                .expect("whole")
                .payload
        };
        let lengths = [next(), next(), next()].map(|payload| payload.len());
        assert_eq!(lengths, [5, request, longest]);
    }

    #[test]
    fn every_single_bit_flip_is_refused_at_once() {
        let whole = whole(sample());
        for bit in 0..whole.len() * 8 {
            let mut input = whole.clone();
            input[bit / 8] ^= 1 << (bit % 8);
            assert!(
                decode(&mut input, Check::Sum).is_err(),
                "bit {bit} went unnoticed"
            );
        }
    }

    /// Fuzz target: a stream of damaged frames.
    #[test]
    fn a_damaged_stream_gives_whole_frames_or_an_end_and_never_a_panic() {
        let stream = |count: u64| {
            let mut out = Output::new();
            for i in 0..count {
                encode(&mut out, i, i * 7, |out| {
                    out.buffer().put_bytes(i as u8, i as usize * 30)
                })
                .expect("short");
                encode_reply(Check::Sum, &mut out, i, Err(Error::timed_out), |_| {})
                    .expect("short");
            }
            out.into_bytes().to_vec()
        };
        plinth_core::testing::fuzz("frames", 1, (0..6).map(stream), |input| {
            let mut rest = BytesMut::from(input);
            loop {
                let before = rest.len();
                match decode(&mut rest, Check::Sum) {
                    Ok(Some(frame)) => {
                        assert_eq!(before - rest.len(), HEADER_BYTES + frame.payload.len());
                        let mut again = Output::new();
                        encode(&mut again, frame.token, frame.request_id, |out| {
                            out.put_shared(&frame.payload)
                        })
                        .expect("it was one");
                        let again = again.into_bytes();
                        let at = input.len() - before;
                        assert_eq!(again[..], input[at..at + again.len()]);
                        split_reply(frame.payload);
                    }
                    Ok(None) => return rest.is_empty(),
                    Err(_) => return false,
                }
            }
        });
    }
}
