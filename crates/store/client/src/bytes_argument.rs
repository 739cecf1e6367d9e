//! Arguments for keys that are kept: owned bytes are taken over, borrowed ones copied.

use bytes::Bytes;
use plinth_core::Key;

/// A short key beside its reference count. An ordinary copy of the bytes would need a second allocation once it is
/// cloned, and every key that is read is cloned.
struct Short {
    length: u8,
    bytes: [u8; SHORT_BYTES],
}

const SHORT_BYTES: usize = 47;

impl AsRef<[u8]> for Short {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

fn copied(key: &[u8]) -> Key {
    if key.is_empty() || key.len() > SHORT_BYTES {
        return Bytes::copy_from_slice(key);
    }
    let mut bytes = [0; SHORT_BYTES];
    bytes[..key.len()].copy_from_slice(key);
    Bytes::from_owner(Short {
        length: key.len() as u8,
        bytes,
    })
}

pub trait IntoKey {
    fn into_key(self) -> Key;
}

impl IntoKey for Bytes {
    fn into_key(self) -> Key {
        self
    }
}
impl IntoKey for &Bytes {
    fn into_key(self) -> Key {
        self.clone()
    }
}
impl IntoKey for Vec<u8> {
    fn into_key(self) -> Key {
        Bytes::from(self)
    }
}
impl IntoKey for &Vec<u8> {
    fn into_key(self) -> Key {
        copied(self)
    }
}
impl IntoKey for &[u8] {
    fn into_key(self) -> Key {
        copied(self)
    }
}
impl<const N: usize> IntoKey for &[u8; N] {
    fn into_key(self) -> Key {
        copied(self)
    }
}
impl IntoKey for String {
    fn into_key(self) -> Key {
        Bytes::from(self)
    }
}
impl IntoKey for &str {
    fn into_key(self) -> Key {
        copied(self.as_bytes())
    }
}
