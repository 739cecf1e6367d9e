//! Tags of transactions: names that applications give to kinds of work, so that one kind can be throttled alone.

use crate::codec::Codec;
use crate::output::Output;
use crate::{Error, Result};
use bytes::Bytes;

pub const TAG_BYTES_MAX: usize = 16;
pub const TAGS_MAX: usize = 5;

/// One tag: up to sixteen bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TransactionTag {
    bytes: [u8; TAG_BYTES_MAX],
    len: u8,
}

impl TransactionTag {
    /// Makes a tag from `text`. Fails with [`Error::tag_too_long`] above [`TAG_BYTES_MAX`].
    pub fn new(text: &[u8]) -> Result<Self> {
        let mut tag = TransactionTag::default();
        let place = tag.bytes.get_mut(..text.len()).ok_or(Error::tag_too_long)?;
        place.copy_from_slice(text);
        tag.len = text.len() as u8;
        Ok(tag)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for TransactionTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::key::printable(self.as_bytes()))
    }
}

impl Codec for TransactionTag {
    fn put(&self, out: &mut Output) {
        Bytes::copy_from_slice(self.as_bytes()).put(out);
    }
    fn take(input: &mut Bytes) -> Option<Self> {
        TransactionTag::new(&Bytes::take(input)?).ok()
    }
}

/// The tags of one transaction, in order, each with whether the database may throttle it automatically.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct TransactionTags {
    tags: [(TransactionTag, bool); TAGS_MAX],
    count: u8,
}

impl TransactionTags {
    /// Adds a tag. Fails with [`Error::too_many_tags`] if there are [`TAGS_MAX`] others.
    pub fn add(&mut self, tag: TransactionTag, auto: bool) -> Result<()> {
        let count = usize::from(self.count);
        match self.tags[..count].binary_search_by_key(&tag, |(tag, _)| *tag) {
            Ok(at) => self.tags[at].1 |= auto,
            Err(_) if count == TAGS_MAX => return Err(Error::too_many_tags),
            Err(at) => {
                self.tags.copy_within(at..count, at + 1);
                self.tags[at] = (tag, auto);
                self.count += 1;
            }
        }
        Ok(())
    }

    pub fn as_slice(&self) -> &[(TransactionTag, bool)] {
        &self.tags[..usize::from(self.count)]
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> TransactionTag {
        TransactionTag::new(text.as_bytes()).expect("short")
    }

    #[test]
    fn tags_are_kept_once_each_and_in_order_and_there_are_five_at_most() {
        let mut tags = TransactionTags::default();
        for name in ["m", "z", "a", "m", "k", "b"] {
            assert_eq!(tags.add(tag(name), name == "k"), Ok(()));
        }
        let names: Vec<_> = tags
            .as_slice()
            .iter()
            .map(|(tag, auto)| (format!("{tag:?}"), *auto))
            .collect();
        let expected = [
            ("a", false),
            ("b", false),
            ("k", true),
            ("m", false),
            ("z", false),
        ];
        assert_eq!(names, expected.map(|(name, auto)| (name.to_string(), auto)));
        assert_eq!(tags.add(tag("a"), true), Ok(()));
        assert!(tags.as_slice()[0].1);
        assert_eq!(tags.add(tag("new"), false), Err(Error::too_many_tags));
    }

    #[test]
    fn a_tag_has_sixteen_bytes_at_most() {
        assert_eq!(tag("0123456789abcdef").as_bytes(), b"0123456789abcdef");
        assert_eq!(
            TransactionTag::new(b"0123456789abcdefg"),
            Err(Error::tag_too_long)
        );
        let mut long = Output::new();
        Bytes::from_static(b"0123456789abcdefg").put(&mut long);
        assert_eq!(TransactionTag::from_bytes(long.into_bytes()), None);
        assert_eq!(
            TransactionTag::from_bytes(tag("x").to_bytes()),
            Some(tag("x"))
        );
    }
}
