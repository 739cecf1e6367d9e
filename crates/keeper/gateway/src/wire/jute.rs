//! Jute, the encoding of ZooKeeper's records: big-endian numbers, and strings and lists behind a length of four bytes.
//!
//! -1 as a length means that there is no string. Input is hostile: every length is compared with the bytes that are
//! left before anything is allocated.

use super::text::Text;
use bytes::{Buf, BufMut, Bytes};
use plinth_core::output::Output;

/// Bytes that are not what the protocol says. The connection that they came from must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("bytes that are no record of the protocol")
    }
}

impl std::error::Error for Malformed {}

pub(super) type Taken<T> = Result<T, Malformed>;

pub(super) fn take_int(input: &mut Bytes) -> Taken<i32> {
    input.try_get_i32().map_err(|_| Malformed)
}

pub(super) fn take_long(input: &mut Bytes) -> Taken<i64> {
    input.try_get_i64().map_err(|_| Malformed)
}

/// Any byte but 0 is true.
pub(super) fn take_bool(input: &mut Bytes) -> Taken<bool> {
    input
        .try_get_u8()
        .map(|byte| byte != 0)
        .map_err(|_| Malformed)
}

pub(super) fn take_byte(input: &mut Bytes) -> Taken<u8> {
    input.try_get_u8().map_err(|_| Malformed)
}

pub(super) fn take_buffer(input: &mut Bytes) -> Taken<Option<Bytes>> {
    let bytes = take_int(input)?;
    if bytes == -1 {
        return Ok(None);
    }
    let bytes = usize::try_from(bytes).map_err(|_| Malformed)?;
    if bytes > input.len() {
        return Err(Malformed);
    }
    Ok(Some(input.split_to(bytes)))
}

pub(super) fn take_optional_text(input: &mut Bytes) -> Taken<Option<Text>> {
    Ok(take_buffer(input)?.map(Text::from_wire))
}

/// Text that must be there: ZooKeeper's server fails on a request without a path, and answers `MarshallingError`.
pub(super) fn take_text(input: &mut Bytes) -> Taken<Text> {
    take_optional_text(input)?.ok_or(Malformed)
}

/// A list whose items take `item_bytes_min` bytes or more; `None` if it is null. Another negative length means an
/// empty list, as in ZooKeeper's server.
pub(super) fn take_optional_list<T>(
    input: &mut Bytes,
    item_bytes_min: usize,
    take: impl Fn(&mut Bytes) -> Taken<T>,
) -> Taken<Option<Vec<T>>> {
    let count = take_int(input)?;
    if count == -1 {
        return Ok(None);
    }
    let count = usize::try_from(count).unwrap_or(0);
    if count > input.len() / item_bytes_min {
        return Err(Malformed);
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(take(input)?);
    }
    Ok(Some(items))
}

/// As [`take_optional_list`]; null is an empty list.
pub(super) fn take_list<T>(
    input: &mut Bytes,
    item_bytes_min: usize,
    take: impl Fn(&mut Bytes) -> Taken<T>,
) -> Taken<Vec<T>> {
    Ok(take_optional_list(input, item_bytes_min, take)?.unwrap_or_default())
}

/// Fewest bytes of a string.
pub(super) const STRING_BYTES_MIN: usize = 4;

pub(super) fn take_texts(input: &mut Bytes) -> Taken<Vec<Text>> {
    take_list(input, STRING_BYTES_MIN, take_text)
}

pub(super) fn put_int(out: &mut Output, number: i32) {
    out.buffer().put_i32(number);
}

pub(super) fn put_long(out: &mut Output, number: i64) {
    out.buffer().put_i64(number);
}

pub(super) fn put_bool(out: &mut Output, value: bool) {
    out.buffer().put_u8(u8::from(value));
}

/// The encoder's own lengths: nothing that it is given comes near 2 GiB.
pub(super) fn length(items: usize) -> i32 {
    i32::try_from(items).expect("nothing of the protocol is 2 GiB long")
}

pub(super) fn put_slice(out: &mut Output, bytes: &[u8]) {
    put_int(out, length(bytes.len()));
    out.buffer().put_slice(bytes);
}

pub(super) fn put_text(out: &mut Output, text: &str) {
    put_slice(out, text.as_bytes());
}

pub(super) fn put_optional_text(out: &mut Output, text: Option<&Text>) {
    match text {
        Some(text) => put_text(out, text),
        None => put_int(out, -1),
    }
}

/// Long bytes are shared instead of copied.
pub(super) fn put_buffer(out: &mut Output, bytes: Option<&Bytes>) {
    match bytes {
        Some(bytes) => {
            put_int(out, length(bytes.len()));
            out.put_shared(bytes);
        }
        None => put_int(out, -1),
    }
}

pub(super) fn put_list<T>(out: &mut Output, items: &[T], put: impl Fn(&mut Output, &T)) {
    put_int(out, length(items.len()));
    for item in items {
        put(out, item);
    }
}

pub(super) fn put_texts(out: &mut Output, texts: &[Text]) {
    put_list(out, texts, |out, text| put_text(out, text));
}
