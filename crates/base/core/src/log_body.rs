//! The body of one version in the log: which mutations belong to which tags.
//!
//! The commit proxy builds it; log servers store it whole and slice each tag's part out of it. It is a sequence of
//! runs: consecutive mutations that carry the same tags form one run, copied once.
//!
//! ```text
//! run      tags | length: varint of five bytes | packed mutations
//! tags     count: u8 | tags: varint each
//!       or 0: u8 | count: varint | tags: varint each        a list of many tags
//!       or 0: u8 | 0: u8 | number: varint                   the list of many tags that is the so-manieth of the body
//! ```
//!
//! A clear that spans many shards carries the tags of many storage servers. Their list is written once, even if many
//! such mutations follow.
//!
//! The length is written when the run ends, into five bytes reserved for it: bodies are large and are copied only
//! once.

use crate::id::Tag;
use crate::varint;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use std::rc::Rc;

/// From this length on, a list counts as a list of many tags.
const MANY_TAGS: usize = 8;

/// Room for the heads of some runs: if one byte of room were missing at the end, a large body would be copied whole.
const RUNS_ROOM: usize = 1 << 10;

/// Collects the runs of one version.
#[derive(Default)]
pub struct LogBodyBuilder {
    out: BytesMut,
    tags: Vec<Tag>,
    /// Begin of the mutations of the current run; `None` if no run is open.
    run_at: Option<usize>,
    /// Lists of many tags that are already in the body, and their numbers.
    lists: BTreeMap<Vec<Tag>, u32>,
}

impl LogBodyBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reserves room for about this many more bytes of mutations and the heads of their runs.
    pub fn reserve(&mut self, bytes: usize) {
        self.out.reserve(bytes + bytes / 8 + RUNS_ROOM);
    }

    /// Adds packed mutations that all carry `tags`, which are in ascending order. Without a tag nothing is stored.
    pub fn push(&mut self, tags: &[Tag], packed: &[u8]) {
        if tags.is_empty() || packed.is_empty() {
            return;
        }
        if self.run_at.is_none() || self.tags != tags {
            self.end_run();
            self.tags.clear();
            self.tags.extend_from_slice(tags);
            self.put_tags();
            self.out.put_bytes(0, varint::WIDEST);
            self.run_at = Some(self.out.len());
        }
        self.out.put_slice(packed);
    }

    fn end_run(&mut self) {
        let Some(at) = self.run_at.take() else { return };
        let length = u32::try_from(self.out.len() - at).expect("no run reaches 4 GiB");
        varint::put_wide_u32(&mut self.out[at - varint::WIDEST..at], length);
    }

    fn put_tags(&mut self) {
        if self.tags.len() < MANY_TAGS {
            self.out.put_u8(self.tags.len() as u8);
        } else if let Some(number) = self.lists.get(&self.tags) {
            self.out.put_slice(&[0, 0]);
            return varint::put_u32(&mut self.out, *number);
        } else {
            self.lists
                .insert(self.tags.clone(), self.lists.len() as u32);
            self.out.put_u8(0);
            varint::put_u32(&mut self.out, self.tags.len() as u32);
        }
        for tag in &self.tags {
            varint::put_u32(&mut self.out, tag.0);
        }
    }

    pub fn finish(mut self) -> Bytes {
        self.end_run();
        self.out.freeze()
    }
}

/// One run of a body: its tags, and its mutations as a slice of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub tags: Rc<[Tag]>,
    pub packed: Bytes,
}

/// Splits a body into its runs; `None` if it is malformed. The mutations inside the runs are not checked.
pub fn parse(body: &Bytes) -> Option<Vec<Run>> {
    let (mut runs, mut lists) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < body.len() {
        let tags = parse_tags(body, &mut at, &mut lists)?;
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

fn parse_tags(body: &[u8], at: &mut usize, lists: &mut Vec<Rc<[Tag]>>) -> Option<Rc<[Tag]>> {
    let few = usize::from(body[*at]);
    *at += 1;
    let count = match few {
        0 => varint::get_u32(body, at)? as usize,
        few => few,
    };
    if count == 0 {
        let number = varint::get_u32(body, at)? as usize;
        return lists.get(number).cloned();
    }
    if count > body.len() - *at {
        return None; // every tag takes at least one byte
    }
    let tags = (0..count).map(|_| varint::get_u32(body, at).map(Tag));
    let tags: Rc<[Tag]> = tags.collect::<Option<Vec<Tag>>>()?.into();
    if few == 0 {
        lists.push(tags.clone());
    }
    Some(tags)
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
        assert_eq!(runs[1].tags[..], [Tag::SYSTEM]);
        assert_eq!(parse(&body.slice(..body.len() - 1)), None);
        assert_eq!(parse(&Bytes::new()), Some(vec![]));
    }

    #[test]
    fn a_list_of_many_tags_is_written_once() {
        let many: Vec<Tag> = (0..300).map(Tag).collect();
        let others: Vec<Tag> = (1..301).map(Tag).collect();
        let mut builder = LogBodyBuilder::new();
        for _ in 0..1000 {
            builder.push(&many, b"clear");
            builder.push(&[Tag(7)], b"set");
            builder.push(&others, b"other");
        }
        let body = builder.finish();
        // If they were written each time, the lists alone would be 800,000 bytes. The length field of a run has five
        // bytes.
        assert!(body.len() < 40_000, "{}", body.len());
        let runs = parse(&body).expect("well formed");
        assert_eq!(runs.len(), 3000);
        for part in runs.chunks(3) {
            let lists = [&part[0].tags[..], &part[1].tags[..], &part[2].tags[..]];
            assert_eq!(lists, [&many[..], &[Tag(7)], &others[..]]);
            assert_eq!(part[0].packed, "clear");
        }
        assert_eq!(parse(&Bytes::from_static(&[0, 0, 0, 1, b'a'])), None);
        assert_eq!(parse(&Bytes::from_static(&[0, 200, 1, 1])), None);
    }
}
