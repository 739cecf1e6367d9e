//! What is in the log: a map of headers, and the application's payload (§3.3, §3.4).
//!
//! ```text
//!   version u8 | headers u16 | per header: name length u8, name, length u32, bytes | has payload u8 | payload
//! ```
//! All integers are little-endian; headers are in the order of their names. An engine looks for its own header and
//! leaves the others alone, so an entry of a replica with other engines passes through, with headers that this
//! replica does not know.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::texts;

const VERSION: u8 = 1;
/// A longer entry is refused before it reaches the log.
pub const ENTRY_BYTES_MAX: usize = 10 << 20;
/// Far above the number of engines of any stack.
const HEADERS_MAX: u16 = 1000;

texts! {
    /// Why bytes are no entry.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Malformed {
        /// It was written by a later release.
        Version(version: u8) = "the entry has format {version}, this release reads {VERSION}";
        /// The bytes end too early, or the headers are not in order.
        Bytes = "the entry is damaged";
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// Sorted by name; each name once.
    headers: Vec<(Bytes, Bytes)>,
    /// The application's request; `None` in an entry that an engine made for itself.
    pub payload: Option<Bytes>,
}

impl Entry {
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Entry {
            headers: Vec::new(),
            payload: Some(payload.into()),
        }
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.headers
            .binary_search_by(|(other, _)| other[..].cmp(name.as_bytes()))
    }

    pub fn header(&self, name: &str) -> Option<&Bytes> {
        let at = self.place(name).ok()?;
        Some(&self.headers[at].1)
    }

    /// Adds a header, or replaces it. A name has at most 255 bytes.
    pub fn set_header(&mut self, name: &'static str, header: impl Into<Bytes>) {
        assert!(name.len() <= usize::from(u8::MAX), "a long name: {name}");
        let header = header.into();
        match self.place(name) {
            Ok(at) => self.headers[at].1 = header,
            Err(at) => {
                let name = Bytes::from_static(name.as_bytes());
                self.headers.insert(at, (name, header));
            }
        }
    }

    pub fn remove_header(&mut self, name: &str) {
        if let Ok(at) = self.place(name) {
            self.headers.remove(at);
        }
    }

    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        out.put_u8(VERSION);
        out.put_u16_le(self.headers.len() as u16);
        for (name, header) in &self.headers {
            out.put_u8(name.len() as u8);
            out.put_slice(name);
            out.put_u32_le(header.len() as u32);
            out.put_slice(header);
        }
        out.put_u8(self.payload.is_some().into());
        out.put_slice(self.payload.as_deref().unwrap_or_default());
        out.freeze()
    }

    pub fn encoded_len(&self) -> usize {
        let headers = self.headers.iter();
        let of_headers: usize = headers.map(|(n, h)| 5 + n.len() + h.len()).sum();
        4 + of_headers + self.payload.as_ref().map_or(0, Bytes::len)
    }

    /// Parses an entry. Its parts are slices of `bytes`.
    ///
    /// # Errors
    /// Bytes that no [`Entry::encode`] has made, or a later release's.
    pub fn decode(mut bytes: Bytes) -> Result<Self, Malformed> {
        let version = bytes.try_get_u8().map_err(|_| Malformed::Bytes)?;
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let count = bytes.try_get_u16_le().map_err(|_| Malformed::Bytes)?;
        if count > HEADERS_MAX {
            return Err(Malformed::Bytes);
        }
        let mut headers: Vec<(Bytes, Bytes)> = Vec::with_capacity(count.into());
        for _ in 0..count {
            let name_len = bytes.try_get_u8().map_err(|_| Malformed::Bytes)?;
            let name = take(&mut bytes, name_len.into())?;
            let len = bytes.try_get_u32_le().map_err(|_| Malformed::Bytes)?;
            let header = take(&mut bytes, len as usize)?;
            if headers.last().is_some_and(|(before, _)| *before >= name) {
                return Err(Malformed::Bytes);
            }
            headers.push((name, header));
        }
        let payload = match (bytes.try_get_u8(), bytes.is_empty()) {
            (Ok(0), true) => None,
            (Ok(1), _) => Some(bytes),
            _ => return Err(Malformed::Bytes),
        };
        Ok(Entry { headers, payload })
    }
}

fn take(bytes: &mut Bytes, len: usize) -> Result<Bytes, Malformed> {
    match len <= bytes.len() {
        true => Ok(bytes.split_to(len)),
        false => Err(Malformed::Bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn headers_are_found_by_name_and_unknown_ones_are_kept() {
        let mut entry = Entry::new("payload");
        entry.set_header("view", "1");
        entry.set_header("batch", "2");
        entry.set_header("view", "3");
        let mut read = Entry::decode(entry.encode()).expect("an entry");
        assert_eq!(read, entry);
        assert_eq!(read.header("view").map(|h| &h[..]), Some(&b"3"[..]));
        assert_eq!(read.header("time"), None);
        read.set_header("view", "4");
        let again = Entry::decode(read.encode()).expect("an entry");
        assert_eq!(again.header("batch").map(|h| &h[..]), Some(&b"2"[..]));
    }

    #[test]
    fn an_entry_of_a_later_release_says_so() {
        let mut bytes = BytesMut::from(&Entry::new("x").encode()[..]);
        bytes[0] = 9;
        assert_eq!(Entry::decode(bytes.freeze()), Err(Malformed::Version(9)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read_back(bytes in vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            let bytes = Bytes::from(bytes);
            if let Ok(entry) = Entry::decode(bytes.clone()) {
                prop_assert_eq!(entry.encode(), bytes);
            }
        }
    }
}
