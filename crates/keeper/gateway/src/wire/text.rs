//! Text that shares the memory of the frame it came in.

use bytes::Bytes;
use std::borrow::{Borrow, Cow};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// UTF-8 in shared memory. It keeps all of the frame alive, so long-lived state copies it: [`Text::detached`].
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(Bytes);

impl Text {
    /// Bytes that are not UTF-8 become U+FFFD, as in ZooKeeper's server. No path may contain that character, so such
    /// a path names no node.
    pub fn from_wire(bytes: Bytes) -> Text {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Text(bytes),
            Err(_) => as_java_decodes(bytes.to_vec()).into(),
        }
    }

    /// As ZooKeeper's server writes text, which cannot say a character outside of Unicode's first plane: it writes the
    /// halves that such a character is in Java.
    pub fn as_java_encodes(text: &str) -> Cow<'_, [u8]> {
        if text.bytes().all(|byte| byte < 0xf0) {
            return Cow::Borrowed(text.as_bytes());
        }
        let encode = |unit: u16| {
            let bits = |from: u16| (unit >> from & 0x3f) as u8;
            match unit {
                0..0x80 => vec![unit as u8],
                0x80..0x800 => vec![0xc0 | bits(6), 0x80 | bits(0)],
                _ => vec![0xe0 | bits(12), 0x80 | bits(6), 0x80 | bits(0)],
            }
        };
        text.encode_utf16().flat_map(encode).collect()
    }

    pub const fn from_static(text: &'static str) -> Text {
        Text(Bytes::from_static(text.as_bytes()))
    }

    pub fn as_str(&self) -> &str {
        self
    }

    /// The bytes, without a copy.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// A copy in memory of its own.
    pub fn detached(&self) -> Text {
        Text(Bytes::copy_from_slice(&self.0))
    }
}

/// To Java half of a character is one error, not one for each byte.
fn as_java_decodes(mut bytes: Vec<u8>) -> String {
    for at in 2..bytes.len() {
        if let [0xed, 0xa0..=0xbf, 0x80..=0xbf] = bytes[at - 2..=at] {
            bytes[at - 2..=at].copy_from_slice("\u{fffd}".as_bytes());
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Deref for Text {
    type Target = str;
    #[inline]
    fn deref(&self) -> &str {
        // SAFETY: every constructor takes a `str`, or checks the bytes; they cannot change afterwards. A path is read
        // many times for each request, and a check each time would cost more than the work.
        unsafe { std::str::from_utf8_unchecked(&self.0) }
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self
    }
}

// As the hash of `str`, so that a map with these keys can be asked with a `&str`.
impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(Bytes::from(text))
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_shares_the_memory_it_came_in_and_a_detached_copy_does_not() {
        let frame = Bytes::from("/a/ü".to_string());
        let text = Text::from_wire(frame.clone());
        assert_eq!(text, "/a/ü");
        assert_eq!(text.bytes().as_ptr(), frame.as_ptr());
        assert_eq!(text.detached(), text);
        assert_ne!(text.detached().bytes().as_ptr(), frame.as_ptr());
    }

    #[test]
    fn bytes_that_are_no_utf_8_are_replaced() {
        let text = Text::from_wire(Bytes::from_static(b"/a\xff\xfeb"));
        assert_eq!(text, "/a\u{fffd}\u{fffd}b");
    }

    #[test]
    fn text_orders_as_its_bytes_and_a_map_of_it_is_asked_with_a_str() {
        let map = std::collections::BTreeMap::from([(Text::from("b"), 2), (Text::from("a"), 1)]);
        assert_eq!(map.get("a"), Some(&1));
        assert_eq!(map.first_key_value(), Some((&Text::from("a"), &1)));
        let mut map = plinth_core::hash::HashMap::default();
        map.insert(Text::from("a"), 1);
        assert_eq!(map.get("a"), Some(&1));
    }

    #[test]
    fn half_a_character_is_one_error_and_is_written_alone() {
        let half = Bytes::from_static(b"a\xed\xa0\x80b");
        assert_eq!(Text::from_wire(half), "a\u{fffd}b");
        let bad = Bytes::from_static(b"\xed\xa0\xff\xed\x9f\xbf");
        assert_eq!(Text::from_wire(bad), "\u{fffd}\u{fffd}\u{fffd}\u{d7ff}");
        assert_eq!(
            *Text::as_java_encodes("a\u{e4}\u{fffd}"),
            *"a\u{e4}\u{fffd}".as_bytes()
        );
        let halves = b"a\xc3\xa4\xe2\x82\xac\xed\xa0\xbd\xed\xb8\x80";
        assert_eq!(*Text::as_java_encodes("a\u{e4}\u{20ac}\u{1f600}"), *halves);
    }
}
