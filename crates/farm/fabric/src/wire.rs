//! What streams carry: `length u32 | crc32c of the length u32 | crc32c of the rest u32 | a request or an answer`.
//! A side that finds anything else ends the connection.
//!
//! If both sides have proved a key, frames come in sealed runs, and their checksums are 0.

use crate::address::{Error, MESSAGE_BYTES_MAX, OPERATION_BYTES_MAX};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::codec::{Codec, Source};
use plinth_core::output::Output;
use plinth_core::{record, variants};
use plinth_identity::greeting::HELLO_BYTES_MAX;
use plinth_rpc::frame::{Check, FrameError};

pub const HEAD_BYTES: usize = 12;
/// Beside the bytes of an operation or a message.
const FIELDS_BYTES_MAX: usize = 64;
const BODY_BYTES_MAX: usize = FIELDS_BYTES_MAX
    + if OPERATION_BYTES_MAX > MESSAGE_BYTES_MAX {
        OPERATION_BYTES_MAX
    } else {
        MESSAGE_BYTES_MAX
    };
/// The longest body.
pub const BYTES_MAX: usize = BODY_BYTES_MAX;
/// The longest body before both sides have greeted.
pub const GREETING_BYTES_MAX: usize = 8 + HELLO_BYTES_MAX;
const MAGIC: u64 = u64::from_le_bytes(*b"farmfab1");
const MAGIC_OF_HELLO: u64 = u64::from_le_bytes(*b"farmhel1");

/// The first on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum First {
    /// Of an opener without keys.
    Greeting(Greeting),
    /// The beginning of the proof of a key. The greeting follows it.
    Hello(Bytes),
}

/// What follows a hello, from both sides: bytes of the proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said(pub Bytes);

/// The first on a connection whose sides have proved their keys, if they have some.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    pub from: u16,
    /// Whom the sender takes the receiver for.
    pub to: u16,
}

record! {
    #[derive(Eq)]
    pub struct Request {
        pub configuration: u64,
        pub body: Body,
    }
}

variants! {
    #[derive(Eq)]
    pub enum Body {
        Read {
            region: u16,
            offset: u64,
            bytes: u32,
        } = 0,
        Write {
            region: u16,
            offset: u64,
            from: Bytes,
        } = 1,
        Swap {
            region: u16,
            offset: u64,
            expected: u64,
            new: u64,
        } = 2,
        Send {
            message: Bytes,
        } = 3,
    }

    /// In the order of the requests.
    #[derive(Eq)]
    pub enum Answer {
        Done = 0,
        Read(bytes: Bytes) = 1,
        Was(word: u64) = 2,
        Failed(error: Error) = 3,
    }
}

impl Codec for Greeting {
    fn put(&self, out: &mut Output) {
        (MAGIC, (self.from, self.to)).put(out);
    }

    fn take(input: &mut Bytes) -> Option<Greeting> {
        let (magic, (from, to)) = <(u64, (u16, u16))>::take(input)?;
        (magic == MAGIC).then_some(Greeting { from, to })
    }

    fn draw(source: &mut dyn Source) -> Greeting {
        let (from, to) = Codec::draw(source);
        Greeting { from, to }
    }
}

impl Codec for First {
    fn put(&self, out: &mut Output) {
        match self {
            First::Greeting(greeting) => greeting.put(out),
            First::Hello(hello) => {
                MAGIC_OF_HELLO.put(out);
                out.put_shared(hello);
            }
        }
    }

    fn take(input: &mut Bytes) -> Option<First> {
        if input.starts_with(&MAGIC_OF_HELLO.to_le_bytes()) {
            input.advance(MAGIC_OF_HELLO.to_le_bytes().len());
            return Some(First::Hello(std::mem::take(input)));
        }
        Greeting::take(input).map(First::Greeting)
    }

    fn draw(source: &mut dyn Source) -> First {
        match source.below(2) {
            0 => First::Greeting(Codec::draw(source)),
            _ => First::Hello(source.bytes()),
        }
    }
}

impl Codec for Said {
    fn put(&self, out: &mut Output) {
        out.put_shared(&self.0);
    }

    fn take(input: &mut Bytes) -> Option<Said> {
        Some(Said(std::mem::take(input)))
    }
}

/// Appends a frame. `body` is within the limits of an operation.
pub fn put_frame(check: Check, out: &mut Output, body: &impl Codec) {
    let start = out.mark();
    out.buffer().put_bytes(0, HEAD_BYTES);
    let checked = out.mark();
    body.put(out);
    let length = (out.len_from(checked) as u32).to_le_bytes();
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&length);
    if check == Check::Sum {
        let pieces = out.pieces_from(checked);
        let crc = pieces.fold(0, crc32c::crc32c_append);
        head[4..8].copy_from_slice(&crc32c::crc32c(&length).to_le_bytes());
        head[8..].copy_from_slice(&crc.to_le_bytes());
    }
    out.patch(start, &head);
}

/// The bytes are no frame, or not those that were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl From<FrameError> for Malformed {
    fn from(_: FrameError) -> Malformed {
        Malformed
    }
}

/// Takes the next whole frame off `input`, whose body has at most `bytes_max` bytes; `None` if more bytes are needed.
/// With [`Check::Seal`] the bytes have been checked before.
pub fn take_frame<T: Codec>(
    check: Check,
    bytes_max: usize,
    input: &mut BytesMut,
) -> Result<Option<T>, Malformed> {
    if input.len() < HEAD_BYTES {
        return Ok(None);
    }
    let mut head = &input[..HEAD_BYTES];
    let length = head.get_u32_le();
    let length_crc = head.get_u32_le();
    let is_summed = check == Check::Sum;
    let is_length = !is_summed || length_crc == crc32c::crc32c(&length.to_le_bytes());
    if !is_length || length as usize > bytes_max {
        return Err(Malformed);
    }
    let crc = head.get_u32_le();
    let whole = HEAD_BYTES + length as usize;
    if input.len() < whole {
        return Ok(None);
    }
    let mut frame = input.split_to(whole).freeze();
    frame.advance(HEAD_BYTES);
    if is_summed && crc32c::crc32c(&frame) != crc {
        return Err(Malformed);
    }
    T::from_bytes(frame).map(Some).ok_or(Malformed)
}
