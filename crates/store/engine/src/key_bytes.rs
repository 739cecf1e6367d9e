//! How files of the engines have a key: its length in bytes (u32, little endian), and the key.

use bytes::{Buf, BufMut, Bytes, BytesMut};

pub(crate) fn put_key(out: &mut BytesMut, key: &[u8]) {
    out.put_u32_le(u32::try_from(key.len()).expect("no key reaches 4 GiB"));
    out.put_slice(key);
}

/// `None` if the bytes end before the key does.
pub(crate) fn get_key(from: &mut Bytes) -> Option<Bytes> {
    let len = from.try_get_u32_le().ok()? as usize;
    (len <= from.len()).then(|| from.split_to(len))
}
