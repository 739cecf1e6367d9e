//! What streams carry: `length u32 | crc32c of the length u32 | crc32c of the rest u32 | a request or an answer`.
//! A side that finds anything else ends the connection.

use crate::address::{Error, MESSAGE_BYTES_MAX, OPERATION_BYTES_MAX};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::codec::{Codec, Source};
use plinth_core::output::Output;

pub const HEAD_BYTES: usize = 12;
/// Beside the bytes of an operation or a message.
const FIELDS_BYTES_MAX: usize = 64;
const BODY_BYTES_MAX: usize = FIELDS_BYTES_MAX
    + if OPERATION_BYTES_MAX > MESSAGE_BYTES_MAX {
        OPERATION_BYTES_MAX
    } else {
        MESSAGE_BYTES_MAX
    };
const MAGIC: u64 = u64::from_le_bytes(*b"farmfab1");

/// The first on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    pub from: u16,
    /// Whom the sender takes the receiver for.
    pub to: u16,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub configuration: u64,
    pub body: Body,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    Read {
        region: u16,
        offset: u64,
        bytes: u32,
    },
    Write {
        region: u16,
        offset: u64,
        from: Bytes,
    },
    Swap {
        region: u16,
        offset: u64,
        expected: u64,
        new: u64,
    },
    Send {
        message: Bytes,
    },
}

/// In the order of the requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Done,
    Read(Bytes),
    Was(u64),
    Failed(Error),
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

impl Codec for Request {
    fn put(&self, out: &mut Output) {
        self.configuration.put(out);
        match &self.body {
            Body::Read {
                region,
                offset,
                bytes,
            } => (0u8, ((*region, *offset), *bytes)).put(out),
            Body::Write {
                region,
                offset,
                from,
            } => {
                (1u8, (*region, *offset)).put(out);
                from.put(out);
            }
            Body::Swap {
                region,
                offset,
                expected,
                new,
            } => (2u8, ((*region, *offset), (*expected, *new))).put(out),
            Body::Send { message } => {
                3u8.put(out);
                message.put(out);
            }
        }
    }

    fn take(input: &mut Bytes) -> Option<Request> {
        let configuration = u64::take(input)?;
        let body = match u8::take(input)? {
            0 => Body::Read {
                region: u16::take(input)?,
                offset: u64::take(input)?,
                bytes: u32::take(input)?,
            },
            1 => Body::Write {
                region: u16::take(input)?,
                offset: u64::take(input)?,
                from: Codec::take(input)?,
            },
            2 => Body::Swap {
                region: u16::take(input)?,
                offset: u64::take(input)?,
                expected: u64::take(input)?,
                new: u64::take(input)?,
            },
            3 => Body::Send {
                message: Codec::take(input)?,
            },
            _ => return None,
        };
        Some(Request {
            configuration,
            body,
        })
    }

    fn draw(source: &mut dyn Source) -> Request {
        let (region, offset) = (Codec::draw(source), Codec::draw(source));
        let body = match source.below(4) {
            0 => Body::Read {
                region,
                offset,
                bytes: Codec::draw(source),
            },
            1 => Body::Write {
                region,
                offset,
                from: source.bytes(),
            },
            2 => Body::Swap {
                region,
                offset,
                expected: Codec::draw(source),
                new: Codec::draw(source),
            },
            _ => Body::Send {
                message: source.bytes(),
            },
        };
        Request {
            configuration: Codec::draw(source),
            body,
        }
    }
}

const ERRORS: [Error; 7] = [
    Error::Unreachable,
    Error::Closed,
    Error::OutOfBounds,
    Error::Unaligned,
    Error::TooLarge,
    Error::Full,
    Error::Damaged,
];

impl Codec for Answer {
    fn put(&self, out: &mut Output) {
        match self {
            Answer::Done => 0u8.put(out),
            Answer::Read(bytes) => {
                1u8.put(out);
                bytes.put(out);
            }
            Answer::Was(word) => (2u8, *word).put(out),
            Answer::Failed(error) => {
                let number = ERRORS.iter().position(|e| e == error).unwrap_or_default();
                (3u8, number as u8).put(out);
            }
        }
    }

    fn take(input: &mut Bytes) -> Option<Answer> {
        Some(match u8::take(input)? {
            0 => Answer::Done,
            1 => Answer::Read(Codec::take(input)?),
            2 => Answer::Was(u64::take(input)?),
            3 => Answer::Failed(*ERRORS.get(usize::from(u8::take(input)?))?),
            _ => return None,
        })
    }

    fn draw(source: &mut dyn Source) -> Answer {
        match source.below(4) {
            0 => Answer::Done,
            1 => Answer::Read(source.bytes()),
            2 => Answer::Was(Codec::draw(source)),
            _ => Answer::Failed(ERRORS[source.below(ERRORS.len() as u64) as usize]),
        }
    }
}

/// Appends a frame. `body` is within the limits of an operation.
pub fn put_frame(out: &mut Output, body: &impl Codec) {
    let start = out.mark();
    out.buffer().put_bytes(0, HEAD_BYTES);
    let checked = out.mark();
    body.put(out);
    let length = (out.len_from(checked) as u32).to_le_bytes();
    let pieces = out.pieces_from(checked);
    let crc = pieces.fold(0, crc32c::crc32c_append);
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&length);
    head[4..8].copy_from_slice(&crc32c::crc32c(&length).to_le_bytes());
    head[8..].copy_from_slice(&crc.to_le_bytes());
    out.patch(start, &head);
}

/// The bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Takes the next whole frame off `input`; `None` if more bytes are needed.
pub fn take_frame<T: Codec>(input: &mut BytesMut) -> Result<Option<T>, Malformed> {
    if input.len() < HEAD_BYTES {
        return Ok(None);
    }
    let mut head = &input[..HEAD_BYTES];
    let length = head.get_u32_le();
    let is_length = head.get_u32_le() == crc32c::crc32c(&length.to_le_bytes());
    if !is_length || length as usize > BODY_BYTES_MAX {
        return Err(Malformed);
    }
    let crc = head.get_u32_le();
    let whole = HEAD_BYTES + length as usize;
    if input.len() < whole {
        return Ok(None);
    }
    let mut frame = input.split_to(whole).freeze();
    frame.advance(HEAD_BYTES);
    if crc32c::crc32c(&frame) != crc {
        return Err(Malformed);
    }
    T::from_bytes(frame).map(Some).ok_or(Malformed)
}
