//! The body of one version in the log: which mutations belong to which tags.
//!
//! The commit proxy builds it, log servers store it whole and slice each tag's part out of it. It is a sequence of
//! runs: mutations next to each other that carry the same tags are one run, copied once.
//!
//! ```text
//! tag count: u8 | tags: varint each | length: varint | packed mutations
//! ```

use crate::id::Tag;
use crate::varint;
use bytes::{BufMut, Bytes, BytesMut};

/// Collects the runs of one version.
#[derive(Default)]
pub struct LogBodyBuilder {
    out: BytesMut,
    tags: Vec<Tag>,
    /// Mutations of the run that is not written out yet.
    run: BytesMut,
}

impl LogBodyBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds packed mutations that all carry `tags`, which are ascending and at most 255. Without a tag nothing
    /// is stored.
    pub fn push(&mut self, tags: &[Tag], packed: &[u8]) {
        if tags.is_empty() || packed.is_empty() {
            return;
        }
        assert!(tags.len() <= 255, "{} tags in one run", tags.len());
        if self.tags != tags {
            self.end_run();
            self.tags.extend_from_slice(tags);
        }
        self.run.put_slice(packed);
    }

    fn end_run(&mut self) {
        if !self.run.is_empty() {
            self.out.put_u8(self.tags.len() as u8);
            for tag in &self.tags {
                varint::put_u32(&mut self.out, tag.0);
            }
            varint::put_u32(&mut self.out, self.run.len() as u32);
            self.out.put_slice(&self.run);
            self.run.clear();
        }
        self.tags.clear();
    }

    pub fn finish(mut self) -> Bytes {
        self.end_run();
        self.out.freeze()
    }
}

/// One run of a body: its tags, and its mutations as a slice of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub tags: Vec<Tag>,
    pub packed: Bytes,
}

/// Splits a body into its runs; `None` if it is malformed. The mutations inside the runs are not looked at.
pub fn parse(body: &Bytes) -> Option<Vec<Run>> {
    let mut runs = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let count = usize::from(body[at]);
        at += 1;
        if count == 0 {
            return None;
        }
        let mut tags = Vec::with_capacity(count);
        for _ in 0..count {
            tags.push(Tag(varint::get_u32(body, &mut at)?));
        }
        let length = varint::get_u32(body, &mut at)? as usize;
        let end = at.checked_add(length).filter(|end| *end <= body.len())?;
        runs.push(Run {
            tags,
            packed: body.slice(at..end),
        });
        at = end;
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_with_equal_tags_become_one_run() {
        let mut builder = LogBodyBuilder::new();
        builder.push(&[Tag(1), Tag(2)], b"aa");
        builder.push(&[Tag(1), Tag(2)], b"bb");
        builder.push(&[], b"nobody's");
        builder.push(&[Tag::SYSTEM], b"cc");
        let body = builder.finish();
        let runs = parse(&body).expect("well formed");
        assert_eq!(runs.len(), 2);
        assert_eq!(
            (&runs[0].packed[..], &runs[1].packed[..]),
            (&b"aabb"[..], &b"cc"[..])
        );
        assert_eq!(runs[1].tags, [Tag::SYSTEM]);
        assert_eq!(parse(&body.slice(..body.len() - 1)), None);
        assert_eq!(parse(&Bytes::new()), Some(vec![]));
    }
}
