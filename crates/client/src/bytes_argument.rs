//! What may be given for a key where it is kept: owned bytes are taken over, borrowed ones copied.

use bytes::Bytes;
use plinth_core::Key;

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
        Bytes::copy_from_slice(self)
    }
}
impl IntoKey for &[u8] {
    fn into_key(self) -> Key {
        Bytes::copy_from_slice(self)
    }
}
impl<const N: usize> IntoKey for &[u8; N] {
    fn into_key(self) -> Key {
        Bytes::copy_from_slice(self)
    }
}
impl IntoKey for String {
    fn into_key(self) -> Key {
        Bytes::from(self)
    }
}
impl IntoKey for &str {
    fn into_key(self) -> Key {
        Bytes::copy_from_slice(self.as_bytes())
    }
}
