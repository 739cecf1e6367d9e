//! Frames: a length of four bytes, then so many bytes.

use super::jute::{Malformed, Taken, length, put_int, put_long, take_int, take_long};
use bytes::{Buf, Bytes, BytesMut};
use plinth_core::output::Output;
use std::fmt;

const LENGTH_BYTES: usize = 4;

/// How many bytes the numbers of requests have on a connection. The greeting decides it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum XidWidth {
    /// ZooKeeper's.
    #[default]
    Four,
    /// Of ClickHouse's clients, if they ask for it.
    Eight,
}

impl XidWidth {
    pub const fn bytes(self) -> usize {
        match self {
            XidWidth::Four => 4,
            XidWidth::Eight => 8,
        }
    }

    /// The number, as the connection has it.
    pub fn of(self, number: i32) -> Xid {
        Xid {
            number: number.into(),
            width: self,
        }
    }
}

/// A client's number of a request, as wide as all of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Xid {
    number: i64,
    width: XidWidth,
}

impl Xid {
    pub fn wide(number: i64) -> Xid {
        Xid {
            number,
            width: XidWidth::Eight,
        }
    }

    pub fn number(self) -> i64 {
        self.number
    }

    pub fn width(self) -> XidWidth {
        self.width
    }

    pub(super) fn put(self, out: &mut Output) {
        match self.width {
            // It was made of as many bytes.
            XidWidth::Four => put_int(out, self.number as i32),
            XidWidth::Eight => put_long(out, self.number),
        }
    }

    pub(super) fn take(input: &mut Bytes, width: XidWidth) -> Taken<Xid> {
        Ok(match width {
            XidWidth::Four => take_int(input)?.into(),
            XidWidth::Eight => Xid::wide(take_long(input)?),
        })
    }
}

impl From<i32> for Xid {
    fn from(number: i32) -> Xid {
        XidWidth::Four.of(number)
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.number, f)
    }
}

/// What stands before every request but the greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The client's number of the request. The answer carries it, too.
    pub xid: Xid,
    pub opcode: i32,
}

impl Header {
    pub(super) const fn bytes(width: XidWidth) -> usize {
        width.bytes() + 4
    }

    pub(super) fn put(self, out: &mut Output) {
        self.xid.put(out);
        put_int(out, self.opcode);
    }

    pub(super) fn take(input: &mut Bytes, width: XidWidth) -> Taken<Header> {
        Ok(Header {
            xid: Xid::take(input, width)?,
            opcode: take_int(input)?,
        })
    }
}

/// Why there is no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// No one knows where the next frame begins: the connection must end.
    Negative,
    /// The frame is longer than the limit. It still lies in the buffer: [`Skip`] gets rid of it.
    TooLong { bytes: usize },
}

/// Length of the frame at the front of `buffer`; `None` until it is there.
pub(super) fn front(buffer: &[u8]) -> Option<Result<usize, FrameError>> {
    let length = buffer.first_chunk::<LENGTH_BYTES>()?;
    let length = i32::from_be_bytes(*length);
    Some(usize::try_from(length).map_err(|_| FrameError::Negative))
}

/// Takes the frame at the front of `buffer`, without its length; `None` until it is whole.
///
/// # Errors
/// The frame is longer than `frame_bytes_max`, or its length is negative.
pub fn take_frame(
    buffer: &mut BytesMut,
    frame_bytes_max: usize,
) -> Result<Option<Bytes>, FrameError> {
    let Some(bytes) = front(buffer).transpose()? else {
        return Ok(None);
    };
    if bytes > frame_bytes_max {
        return Err(FrameError::TooLong { bytes });
    }
    if buffer.len() < LENGTH_BYTES + bytes {
        return Ok(None);
    }
    buffer.advance(LENGTH_BYTES);
    Ok(Some(buffer.split_to(bytes).freeze()))
}

/// Bytes that the frame at the front of `buffer` takes with its length; `None` until the length is there, or if there
/// is none.
pub fn frame_bytes(buffer: &[u8]) -> Option<usize> {
    Some(LENGTH_BYTES + front(buffer)?.ok()?)
}

/// Passes over a request that is too long to be taken. The rest of its bytes are thrown away as they arrive, and the
/// connection lives on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Skip {
    /// Of the request: enough to answer it with an error.
    pub header: Header,
    left: usize,
}

impl Skip {
    /// Takes length and header of the request at the front of `buffer`; `None` until they are there.
    ///
    /// # Errors
    /// The frame is too short for a header, or its length is negative: the connection must end.
    pub fn begin(buffer: &mut BytesMut, width: XidWidth) -> Result<Option<Skip>, Malformed> {
        let Some(bytes) = front(buffer).transpose().map_err(|_| Malformed)? else {
            return Ok(None);
        };
        let of_header = Header::bytes(width);
        let left = bytes.checked_sub(of_header).ok_or(Malformed)?;
        if buffer.len() < LENGTH_BYTES + of_header {
            return Ok(None);
        }
        buffer.advance(LENGTH_BYTES);
        let header = Header::take(&mut buffer.split_to(of_header).freeze(), width)?;
        Ok(Some(Skip { header, left }))
    }

    /// Bytes of the request that have not arrived.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Throws away what has arrived of the request; true when all of it has.
    pub fn is_over(&mut self, buffer: &mut BytesMut) -> bool {
        let here = self.left.min(buffer.len());
        buffer.advance(here);
        self.left -= here;
        self.left == 0
    }
}

/// Appends a frame whose content `put` adds.
pub(super) fn put_frame(out: &mut Output, put: impl FnOnce(&mut Output)) {
    let start = out.mark();
    out.buffer().extend_from_slice(&[0; LENGTH_BYTES]);
    put(out);
    let bytes = length(out.len_from(start) - LENGTH_BYTES);
    out.patch(start, &bytes.to_be_bytes());
}
