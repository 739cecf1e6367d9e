//! Frames: a length of four bytes, then so many bytes.

use super::jute::{Malformed, Taken, length, put_int, take_int};
use bytes::{Buf, Bytes, BytesMut};
use plinth_core::output::Output;

const LENGTH_BYTES: usize = 4;

/// What stands before every request but the greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The client's number of the request. The answer carries it, too.
    pub xid: i32,
    pub opcode: i32,
}

impl Header {
    pub const BYTES: usize = 8;

    pub(super) fn put(self, out: &mut Output) {
        put_int(out, self.xid);
        put_int(out, self.opcode);
    }

    pub(super) fn take(input: &mut Bytes) -> Taken<Header> {
        Ok(Header {
            xid: take_int(input)?,
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
fn front(buffer: &[u8]) -> Option<Result<usize, FrameError>> {
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
    pub fn begin(buffer: &mut BytesMut) -> Result<Option<Skip>, Malformed> {
        let Some(bytes) = front(buffer).transpose().map_err(|_| Malformed)? else {
            return Ok(None);
        };
        let left = bytes.checked_sub(Header::BYTES).ok_or(Malformed)?;
        if buffer.len() < LENGTH_BYTES + Header::BYTES {
            return Ok(None);
        }
        buffer.advance(LENGTH_BYTES);
        let header = Header {
            xid: buffer.get_i32(),
            opcode: buffer.get_i32(),
        };
        Ok(Some(Skip { header, left }))
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
