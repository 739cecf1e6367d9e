//! The frame: what travels between two workers.
//!
//! ```text
//! length: u32 le | crc32c of the length: u32 le | crc32c of the rest: u32 le | token: u64 le | request id: u64 le | payload
//! ```
//!
//! `length` counts what follows the checksums; the second covers the same bytes. A damaged length is known at once: else its
//! reader would take all that comes, answers to pings too, for the frame that it waits for. A reply carries the token
//! [`REPLY`] and a payload that starts with a status (u16 le, 0 = success). The first frame of a connection
//! is [`HELLO`] with the protocol version. A frame out of bounds or with a wrong checksum closes the connection.
//! None out of bounds is ever sent: the request fails where it is made, and a reply becomes an error.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::Error;
use plinth_runtime::net::READ_ROOM_BYTES;

/// Answer to the request with the same id.
pub const REPLY: u64 = 0;
/// Answered at once by the connection itself.
pub const PING: u64 = 1;
/// First frame of every connection, from the side that connected.
pub const HELLO: u64 = 2;
/// Nobody waits any more for the answer to the request with the same id. Only requests that [wait](crate::Waiters) care.
pub const GIVE_UP: u64 = 3;

/// Changes whenever frames or messages change incompatibly. `plnt` and a number.
pub const PROTOCOL_VERSION: u64 = 0x706c_6e74_0000_0007;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = CHECKED_FROM + 16;
/// The length and both checksums.
const CHECKED_FROM: usize = 12;
/// A longer frame is refused: the largest transaction and its conflict ranges fit several times.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// A request is a little shorter, so that what one brought fits into a reply with a few numbers more.
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
}

/// A message that is longer than a frame may be; nothing of it was written.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct TooLarge {
    pub bytes: usize,
}

/// Appends one request frame, with the payload written in place by `payload`.
pub fn encode(
    out: &mut BytesMut,
    token: u64,
    request_id: u64,
    payload: impl FnOnce(&mut BytesMut),
) -> Result<(), TooLarge> {
    encode_within(REQUEST_BYTES_MAX, out, token, request_id, payload)
}

fn encode_within(
    bytes_max: usize,
    out: &mut BytesMut,
    token: u64,
    request_id: u64,
    payload: impl FnOnce(&mut BytesMut),
) -> Result<(), TooLarge> {
    let start = out.len();
    out.put_bytes(0, CHECKED_FROM); // length and checksums, patched below
    out.put_u64_le(token);
    out.put_u64_le(request_id);
    payload(out);
    let bytes = out.len() - start - CHECKED_FROM;
    if bytes > bytes_max {
        if start == 0 {
            *out = BytesMut::new(); // gives the memory back
        } else {
            out.truncate(start);
        }
        return Err(TooLarge { bytes });
    }
    let length = (bytes as u32).to_le_bytes();
    let crc = crc32c::crc32c(&out[start + CHECKED_FROM..]);
    let mut head = &mut out[start..start + CHECKED_FROM];
    head.put_slice(&length);
    head.put_u32_le(crc32c::crc32c(&length));
    head.put_u32_le(crc);
    Ok(())
}

/// Appends a reply frame.
pub fn encode_reply(
    out: &mut BytesMut,
    request_id: u64,
    status: Result<(), Error>,
    body: impl FnOnce(&mut BytesMut),
) -> Result<(), TooLarge> {
    encode_within(FRAME_BYTES_MAX, out, REPLY, request_id, |out| {
        out.put_u16_le(status.err().map_or(0, Error::code));
        body(out);
    })
}

/// When one part in so many of a frame has come, `decode` makes room for the rest.
const WORTH_BELIEVING: usize = 8;

/// Takes the next whole frame off `input`; `None` if more bytes are needed. Then it makes room for them, once.
pub fn decode(input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    if input.len() < HEADER_BYTES {
        return Ok(None);
    }
    let mut head = &input[..CHECKED_FROM];
    let length = head.get_u32_le();
    if head.get_u32_le() != crc32c::crc32c(&length.to_le_bytes()) {
        return Err(FrameError::Checksum);
    }
    let expected = head.get_u32_le();
    if (length as usize) < HEADER_BYTES - CHECKED_FROM || length as usize > FRAME_BYTES_MAX {
        return Err(FrameError::Length(length));
    }
    let whole = length as usize + CHECKED_FROM;
    if input.len() < whole {
        // A buffer that doubles copies all that it holds in one turn of the loop. Reserved memory costs next to nothing until it is
        // used, and a peer has to send an eighth of a frame before anything is reserved for it. The last read wants room as well.
        if input.len() >= whole / WORTH_BELIEVING {
            input.reserve(whole - input.len() + READ_ROOM_BYTES);
        }
        return Ok(None);
    }
    if crc32c::crc32c(&input[CHECKED_FROM..whole]) != expected {
        return Err(FrameError::Checksum);
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

    fn sample() -> BytesMut {
        let mut out = BytesMut::new();
        encode(&mut out, 77, 5, |out| out.put_slice(b"hello")).expect("short");
        out
    }

    #[test]
    fn a_frame_comes_back_whole_from_any_split() {
        let whole = sample();
        for cut in 0..whole.len() {
            let mut input = BytesMut::from(&whole[..cut]);
            assert_eq!(decode(&mut input), Ok(None));
            input.extend_from_slice(&whole[cut..]);
            let frame = decode(&mut input).expect("valid").expect("whole");
            assert_eq!(
                (frame.token, frame.request_id, &frame.payload[..]),
                (77, 5, &b"hello"[..])
            );
            assert!(input.is_empty());
        }
    }

    #[test]
    fn a_large_frame_moves_once_when_an_eighth_of_it_has_come() {
        let mut whole = BytesMut::new();
        encode(&mut whole, 77, 5, |out| out.put_bytes(7, 9_000_000)).expect("short");
        let (mut input, mut moves) = (BytesMut::new(), 0);
        for part in whole.chunks(READ_ROOM_BYTES) {
            // As a connection reads.
            let room = input.capacity() - input.len();
            if room < READ_ROOM_BYTES {
                assert!(input.len() < whole.len() / 4, "{} copied", input.len());
                input.reserve(16 * READ_ROOM_BYTES);
            }
            input.extend_from_slice(part);
            let before = input.capacity();
            if let Some(frame) = decode(&mut input).expect("valid") {
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
        let before = out.clone();
        let fill = |bytes| move |out: &mut BytesMut| out.put_bytes(7, bytes);
        let longest = FRAME_BYTES_MAX - (HEADER_BYTES - CHECKED_FROM);
        let refused = encode(&mut out, 77, 6, fill(longest));
        assert_eq!(
            refused,
            Err(TooLarge {
                bytes: FRAME_BYTES_MAX
            })
        );
        assert_eq!(out, before);
        assert!(encode_reply(&mut out, 6, Ok(()), fill(longest - 1)).is_err());
        assert_eq!(out, before);
        // What a request can bring, a reply can carry on.
        let request = longest - (4 << 10);
        assert_eq!(encode(&mut out, 77, 6, fill(request)), Ok(()));
        assert_eq!(encode_reply(&mut out, 7, Ok(()), fill(longest - 2)), Ok(()));
        let mut next = || decode(&mut out).expect("in bounds").expect("whole").payload;
        let lengths = [next(), next(), next()].map(|payload| payload.len());
        assert_eq!(lengths, [5, request, longest]);
    }

    #[test]
    fn every_single_bit_flip_is_refused_at_once() {
        let whole = sample();
        for bit in 0..whole.len() * 8 {
            let mut input = whole.clone();
            input[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&mut input).is_err(), "bit {bit} went unnoticed");
        }
    }

    /// Fuzz target: a stream with anything in it.
    #[test]
    fn a_damaged_stream_gives_whole_frames_or_an_end_and_never_a_panic() {
        let stream = |count: u64| {
            let mut out = BytesMut::new();
            for i in 0..count {
                encode(&mut out, i, i * 7, |out| {
                    out.put_bytes(i as u8, i as usize * 30)
                })
                .expect("short");
                encode_reply(&mut out, i, Err(Error::timed_out), |_| {}).expect("short");
            }
            out.to_vec()
        };
        plinth_core::testing::fuzz("frames", 1, (0..6).map(stream), |input| {
            let mut rest = BytesMut::from(input);
            loop {
                let before = rest.len();
                match decode(&mut rest) {
                    Ok(Some(frame)) => {
                        assert_eq!(before - rest.len(), HEADER_BYTES + frame.payload.len());
                        let mut again = BytesMut::new();
                        encode(&mut again, frame.token, frame.request_id, |out| {
                            out.put_slice(&frame.payload)
                        })
                        .expect("it was one");
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
