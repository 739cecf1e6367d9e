//! The log server's state machine (FDB §2.4.3, §2.4.4): a queue of versions, seen by tag.
//!
//! ```text
//! push ─► waits for its predecessor ─► in memory ─► on disk: answered ─► popped: forgotten
//!                                          │             └─ memory is full ─► spilled: on disk only
//!                                          └─ from here on a peek returns it
//! ```
//!
//! It takes pushes along the chain of versions and gives the entries to be written to its shell, which reports what
//! has become durable. It promises: every version is taken once, in order, without a gap (pitfall 3); a push is
//! answered when it and everything before it is on disk; a tag's stream can be read from the moment it arrives until
//! it is popped, across restarts; once sealed, nothing new is ever taken. Memory is bounded: versions that lagging
//! readers still need leave memory and are read back from the disk queue.

use crate::block_index::BlockIndex;
use crate::disk_queue::{Persisted, Position};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::log_body::{self, Run};
use plinth_core::output::Output;
use plinth_core::{Epoch, Error, Result, Tag, Version, record};
use plinth_protocol::DurableVersion;
use plinth_protocol::control::ClusterInfo;
use plinth_protocol::log::{POPPED_FOR_EVER, PeekReply, Push, VersionedMessages};
use plinth_runtime::trace_warn;
use std::collections::{BTreeMap, VecDeque};

/// Pushes that may wait for a missing link of the chain.
const WAITING_MAX: usize = 10_000;

record! {
    /// First entry of every block.
    pub struct Begin {
        pub epoch: Epoch,
        /// The version before the block's first one.
        pub prev_version: Version,
        /// First version that the generation holds.
        pub start: Version,
    }

    pub struct VersionEntry {
        pub version: Version,
        pub known_committed: Version,
        pub body: Bytes,
    }

    pub struct Popped {
        pub tag: Tag,
        pub version: Version,
    }
}

/// An entry of the disk queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    Begin(Begin),
    Version(VersionEntry),
    Seal(Epoch),
    Popped(Popped),
    /// The log server is being made, and has more to copy than the entries before this one.
    Copying,
    /// It has copied everything.
    Copied,
    /// The number of the oldest segment that is needed. Segments before it, and no others, are removed when this is on
    /// disk.
    Oldest(u32),
}

impl Codec for Entry {
    fn put(&self, out: &mut Output) {
        match self {
            Entry::Begin(begin) => (0u8.put(out), begin.put(out)).1,
            Entry::Version(version) => (1u8.put(out), version.put(out)).1,
            Entry::Seal(epoch) => (2u8.put(out), epoch.put(out)).1,
            Entry::Popped(popped) => (3u8.put(out), popped.put(out)).1,
            Entry::Copying => 4u8.put(out),
            Entry::Copied => 5u8.put(out),
            Entry::Oldest(segment) => (6u8.put(out), segment.put(out)).1,
        }
    }
    fn take(input: &mut Bytes) -> Option<Self> {
        Some(match u8::take(input)? {
            0 => Entry::Begin(Begin::take(input)?),
            1 => Entry::Version(VersionEntry::take(input)?),
            2 => Entry::Seal(u64::take(input)?),
            3 => Entry::Popped(Popped::take(input)?),
            4 => Entry::Copying,
            5 => Entry::Copied,
            6 => Entry::Oldest(u32::take(input)?),
            _ => return None,
        })
    }
}

#[derive(Default)]
struct TagQueue {
    /// Versions with something for the tag that are in memory.
    messages: VecDeque<VersionedMessages>,
    /// The tag's owner needs nothing below this version.
    popped: Version,
    /// The newest version with something for the tag that has left memory.
    spilled: Version,
}

/// Where a peek finds its data.
#[derive(Debug)]
pub enum Peeked {
    Reply(PeekReply),
    /// Nothing at or after the requested version yet.
    Blocked,
    /// The requested data begins in versions that have left memory.
    OnDisk,
}

pub struct LogServer {
    epoch: Epoch,
    start: Version,
    /// The newest version taken.
    version: Version,
    durable: DurableVersion,
    known_committed: Version,
    sealed: bool,
    /// True if it was rebuilt from its disk.
    came_back: bool,
    /// Pushes that came before their predecessor, by the predecessor's version.
    waiting: BTreeMap<Version, (Push, Vec<Run>)>,
    tags: BTreeMap<Tag, TagQueue>,
    /// Versions in memory, oldest first, with the bytes that each holds there.
    in_memory: VecDeque<(Version, usize)>,
    memory_bytes: usize,
    /// The newest version that has left memory.
    spilled: Version,
    index: BlockIndex,
}

impl LogServer {
    pub fn new(begin: &Begin) -> Self {
        LogServer {
            epoch: begin.epoch,
            start: begin.start,
            version: begin.prev_version,
            durable: DurableVersion::of_nothing(begin.prev_version),
            known_committed: begin.start - 1,
            sealed: false,
            came_back: false,
            waiting: BTreeMap::new(),
            tags: BTreeMap::new(),
            in_memory: VecDeque::new(),
            memory_bytes: 0,
            spilled: begin.start - 1,
            index: BlockIndex::default(),
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
    pub fn version(&self) -> Version {
        self.version
    }
    pub fn durable(&self) -> DurableVersion {
        self.durable
    }
    pub fn known_committed(&self) -> Version {
        self.known_committed
    }
    pub fn came_back(&self) -> bool {
        self.came_back
    }
    pub fn is_sealed(&self) -> bool {
        self.sealed
    }
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    // ---- taking ----

    /// Takes a push, or keeps it until its predecessor has come. Returns the entries to be written, in order. A push
    /// that was taken before gives none: it is answered when its version is durable.
    pub fn push(&mut self, push: Push) -> Result<Vec<VersionEntry>> {
        if self.sealed || push.epoch != self.epoch {
            return Err(Error::tlog_stopped);
        }
        if push.version <= self.version {
            return Ok(Vec::new());
        }
        if push.prev_version > self.version && self.waiting.len() >= WAITING_MAX {
            return Err(Error::server_request_queue_full);
        }
        let follows = push.prev_version >= self.version && push.prev_version < push.version;
        assert!(
            follows || !plinth_runtime::nobody_has_lied(),
            "version {} follows {}, but {} was taken",
            push.version,
            push.prev_version,
            self.version
        );
        if !follows {
            return Err(Error::internal_error);
        }
        // A malformed body is refused before the push waits. Later it would be taken together with its predecessor,
        // and the error would hit both.
        let runs = log_body::parse(&push.body).ok_or(Error::client_invalid_operation)?;
        self.waiting.insert(push.prev_version, (push, runs));
        let mut taken = Vec::new();
        while let Some((push, runs)) = self.waiting.remove(&self.version) {
            let entry = VersionEntry {
                version: push.version,
                known_committed: push.known_committed,
                body: push.body,
            };
            self.take_runs(&entry, runs);
            taken.push(entry);
        }
        Ok(taken)
    }

    /// Takes one version into memory.
    pub fn take(&mut self, entry: &VersionEntry) -> Result<()> {
        let runs = log_body::parse(&entry.body).ok_or(Error::client_invalid_operation)?;
        self.take_runs(entry, runs);
        Ok(())
    }

    fn take_runs(&mut self, entry: &VersionEntry, runs: Vec<Run>) {
        assert!(
            entry.version > self.version,
            "version {} taken after {}",
            entry.version,
            self.version
        );
        let mut bytes = 0;
        for run in runs {
            bytes += run.packed.len() * run.tags.len();
            for tag in run.tags.iter().copied() {
                let queue = self.tags.entry(tag).or_default();
                match queue.messages.back_mut() {
                    Some(last) if last.version == entry.version => {
                        last.runs.push(run.packed.clone())
                    }
                    _ => queue.messages.push_back(VersionedMessages {
                        version: entry.version,
                        runs: vec![run.packed.clone()],
                    }),
                }
            }
        }
        self.version = entry.version;
        self.known_committed = self
            .known_committed
            .max(entry.known_committed.min(entry.version));
        if bytes > 0 {
            self.memory_bytes += bytes;
            self.in_memory.push_back((entry.version, bytes));
        }
    }

    /// Notes that a block whose first version is `first` is on disk, and with it everything up to `last`.
    pub fn became_durable(
        &mut self,
        block: &Persisted,
        first: Version,
        last: Version,
        bytes: usize,
    ) {
        assert!(
            last <= self.version,
            "{last} became durable, but only {} was taken",
            self.version
        );
        self.durable = self.durable.max(block.up_to(last));
        self.index.add(first, block.position(), bytes);
    }

    /// Refuses all versions from now on. Pushes that waited for a missing link are forgotten.
    pub fn seal(&mut self) {
        self.sealed = true;
        self.waiting.clear();
    }

    // ---- reading ----

    pub fn peek(&self, tag: Tag, begin: Version, bytes_max: usize) -> Peeked {
        if begin > self.version {
            return Peeked::Blocked;
        }
        if begin <= self.spilled
            && self
                .tags
                .get(&tag)
                .is_some_and(|q| q.spilled >= begin && q.spilled >= q.popped)
            && !self.index.is_empty()
        {
            return Peeked::OnDisk;
        }
        let mut reply = self.empty_reply(tag, self.version + 1);
        let Some(queue) = self.tags.get(&tag) else {
            return Peeked::Reply(reply);
        };
        let from = queue
            .messages
            .partition_point(|message| message.version < begin);
        let mut bytes = 0;
        for message in queue.messages.range(from..) {
            let more: usize = message.runs.iter().map(Bytes::len).sum();
            if bytes > 0 && bytes + more > bytes_max {
                reply.end = message.version;
                break;
            }
            bytes += more;
            reply.messages.push(message.clone());
        }
        Peeked::Reply(reply)
    }

    /// A reply with nothing in it.
    pub fn empty_reply(&self, tag: Tag, end: Version) -> PeekReply {
        let popped = self.tags.get(&tag).map_or(0, |queue| queue.popped);
        PeekReply {
            messages: Vec::new(),
            end,
            known_committed: self.known_committed,
            popped,
        }
    }

    /// Position of a block at or before the one that contains `version`. `None` while nothing is on disk.
    pub fn position_of(&self, version: Version) -> Option<Position> {
        self.index.position_of(version)
    }

    // ---- forgetting ----

    /// Notes that the owner of `tag` needs nothing below `version`. True if this is news.
    pub fn pop(&mut self, tag: Tag, version: Version) -> bool {
        let queue = self.tags.entry(tag).or_default();
        if version <= queue.popped {
            return false;
        }
        queue.popped = version;
        while queue
            .messages
            .front()
            .is_some_and(|message| message.version < version)
        {
            let gone = queue.messages.pop_front().expect("just seen");
            let bytes: usize = gone.runs.iter().map(Bytes::len).sum();
            self.memory_bytes -= bytes;
            if let Ok(at) = self
                .in_memory
                .binary_search_by_key(&gone.version, |(version, _)| *version)
            {
                self.in_memory[at].1 -= bytes;
            }
        }
        while self.in_memory.front().is_some_and(|(_, bytes)| *bytes == 0) {
            self.in_memory.pop_front();
        }
        true
    }

    /// The popped version of each tag.
    pub fn all_popped(&self) -> impl Iterator<Item = Popped> {
        let popped = |(tag, queue): (&Tag, &TagQueue)| Popped {
            tag: *tag,
            version: queue.popped,
        };
        self.tags.iter().map(popped)
    }

    /// Tags held here whose storage servers no longer exist.
    pub fn tags_without_owner(&self, info: &ClusterInfo) -> Vec<Tag> {
        let is_dead = |tag: &Tag, queue: &TagQueue| {
            queue.popped < POPPED_FOR_EVER
                && tag.0 < info.next_tag
                && !info.servers.iter().any(|(_, owned)| owned == tag)
        };
        let tags = self.tags.iter().filter(|(tag, queue)| is_dead(tag, queue));
        tags.map(|(tag, _)| *tag).collect()
    }

    /// Lets the oldest durable versions leave memory until at most `bytes_max` are held.
    pub fn spill(&mut self, bytes_max: usize) {
        while self.memory_bytes > bytes_max {
            let Some((version, bytes)) = self.in_memory.front().copied() else {
                return;
            };
            if version > self.durable.version() {
                return;
            }
            self.in_memory.pop_front();
            self.memory_bytes -= bytes;
            self.spilled = version;
            for queue in self.tags.values_mut() {
                while queue
                    .messages
                    .front()
                    .is_some_and(|message| message.version <= version)
                {
                    queue.messages.pop_front();
                    queue.spilled = version;
                }
            }
        }
    }

    /// The lowest version that some tag still needs. Everything below it may be removed.
    pub fn needed_from(&self) -> Version {
        let needed = self.tags.values().filter_map(|queue| {
            let in_memory = queue.messages.front().map(|message| message.version);
            let on_disk = (queue.spilled >= queue.popped && queue.spilled > 0)
                .then_some(queue.popped.max(self.start));
            in_memory.into_iter().chain(on_disk).min()
        });
        needed
            .min()
            .unwrap_or(Version::MAX)
            .min(self.durable.version() + 1)
    }

    /// Where the disk queue may be cut: everything before it holds only versions that no tag needs.
    pub fn cut(&mut self) -> Option<Position> {
        self.index.cut(self.needed_from())
    }

    /// The first entry of a block whose first version is the next one taken after `prev_version`. Blocks before it may
    /// be cut off, so each block records its place in the chain.
    pub fn begin_entry(&self, prev_version: Version) -> Begin {
        Begin {
            epoch: self.epoch,
            prev_version,
            start: self.start,
        }
    }
}

/// Rebuilds a log server from the entries on its disk, block by block. It takes no more pushes: it is not known what
/// the process has missed since it died.
#[derive(Default)]
pub struct Recovery {
    server: Option<LogServer>,
    /// True if it had not copied everything yet.
    is_copying: bool,
    /// Segment of the first block.
    first_segment: Option<u32>,
    /// Value in the last block. Blocks of earlier releases contain none.
    oldest_needed: Option<u32>,
}

impl Recovery {
    pub fn block(
        &mut self,
        block: &Persisted,
        entries: &[Entry],
        bytes: usize,
        memory_bytes_max: usize,
    ) -> Result<()> {
        self.first_segment.get_or_insert(block.position().segment);
        let mut versions: Option<(Version, Version)> = None;
        for entry in entries {
            match entry {
                Entry::Oldest(segment) => self.oldest_needed = Some(*segment),
                Entry::Begin(begin) => {
                    self.server.get_or_insert_with(|| LogServer::new(begin));
                }
                Entry::Version(entry) => {
                    let server = self.server.as_mut().ok_or(Error::file_corrupt)?;
                    if entry.version <= server.version {
                        return Err(Error::file_corrupt);
                    }
                    server.take(entry)?;
                    versions = Some((versions.map_or(entry.version, |v| v.0), entry.version));
                }
                Entry::Seal(_) => {}
                Entry::Copying => self.is_copying = true,
                Entry::Copied => self.is_copying = false,
                Entry::Popped(popped) => {
                    let server = self.server.as_mut().ok_or(Error::file_corrupt)?;
                    server.pop(popped.tag, popped.version);
                }
            }
        }
        if let (Some((first, last)), Some(server)) = (versions, self.server.as_mut()) {
            server.became_durable(block, first, last, bytes);
            server.spill(memory_bytes_max);
        }
        Ok(())
    }

    /// `None` if its creation was never finished. Damage if a segment is gone that was never popped: a reader that
    /// asked for its versions would be told that there was nothing.
    pub fn finish(self) -> Result<Option<LogServer>> {
        if let (Some(first), Some(needed)) = (self.first_segment, self.oldest_needed)
            && first > needed
        {
            trace_warn!("LogSegmentsMissing", "needed" => needed, "first" => first);
            return Err(Error::file_corrupt);
        }
        let Some(mut server) = self.server.filter(|_| !self.is_copying) else {
            return Ok(None);
        };
        assert_eq!(
            server.durable.version(),
            server.version,
            "every version that was read from disk is on disk"
        );
        server.came_back = true;
        server.seal();
        Ok(Some(server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::disk;
    use plinth_runtime::sim::{Locality, SimConfig, Simulation};
    use std::path::Path;

    /// A block, with the proof of a sync of a simulated disk.
    fn on_disk(segment: u32, offset: u32) -> Persisted {
        let simulation = Simulation::new(1, SimConfig::default());
        let machine = simulation.add_machine(Locality::default());
        let synced = simulation.run_on(machine, disk::sync_dir(Path::new("/")));
        let synced = synced.expect("it ends").expect("the disk works");
        Persisted::at(Position { segment, offset }, synced)
    }
    use plinth_core::log_body::LogBodyBuilder;

    fn server() -> LogServer {
        LogServer::new(&Begin {
            epoch: 1,
            prev_version: 10,
            start: 5,
        })
    }

    fn body(tags: &[u32], data: &[u8]) -> Bytes {
        let mut builder = LogBodyBuilder::new();
        builder.push(&tags.iter().map(|t| Tag(*t)).collect::<Vec<_>>(), data);
        builder.finish()
    }

    fn push(prev: Version, version: Version, body: Bytes) -> Push {
        Push {
            epoch: 1,
            prev_version: prev,
            version,
            known_committed: prev,
            body,
        }
    }

    fn versions(peeked: Peeked) -> (Vec<Version>, Version) {
        let Peeked::Reply(reply) = peeked else {
            panic!("{peeked:?}")
        };
        (
            reply.messages.iter().map(|m| m.version).collect(),
            reply.end,
        )
    }

    #[test]
    fn pushes_are_taken_along_the_chain_whatever_order_they_come_in() {
        let mut s = server();
        assert!(
            s.push(push(20, 30, body(&[1], b"c")))
                .expect("waits")
                .is_empty()
        );
        let taken = s.push(push(10, 20, body(&[1], b"b"))).expect("taken");
        assert_eq!(
            taken.iter().map(|e| e.version).collect::<Vec<_>>(),
            [20, 30]
        );
        assert!(
            s.push(push(10, 20, body(&[1], b"b")))
                .expect("a duplicate")
                .is_empty()
        );
        assert_eq!(versions(s.peek(Tag(1), 1, 100)), (vec![20, 30], 31));
        assert_eq!(versions(s.peek(Tag(2), 1, 100)), (vec![], 31));
        assert!(matches!(s.peek(Tag(1), 31, 100), Peeked::Blocked));
    }

    #[test]
    fn a_push_with_a_malformed_body_is_refused_alone_and_at_once() {
        let mut s = server();
        let malformed = Bytes::from_static(&[1]);
        let refused = s.push(push(20, 30, malformed));
        assert_eq!(refused.err(), Some(Error::client_invalid_operation));
        let taken = s.push(push(10, 20, body(&[1], b"b"))).expect("taken");
        assert_eq!((taken.len(), s.version()), (1, 20));
        let taken = s.push(push(20, 30, body(&[1], b"c"))).expect("taken");
        assert_eq!((taken.len(), s.version()), (1, 30));
    }

    #[test]
    fn a_sealed_server_takes_nothing_and_still_answers() {
        let mut s = server();
        s.push(push(10, 20, body(&[1], b"b"))).expect("taken");
        s.seal();
        assert_eq!(
            s.push(push(20, 30, body(&[1], b"c"))),
            Err(Error::tlog_stopped)
        );
        assert_eq!(versions(s.peek(Tag(1), 1, 100)).0, [20]);
    }

    #[test]
    fn a_reply_that_reaches_its_limit_ends_before_the_version_it_leaves_out() {
        let mut s = server();
        for i in 1..4 {
            s.push(push(i * 10, i * 10 + 10, body(&[1], b"0123456789")))
                .expect("taken");
        }
        assert_eq!(versions(s.peek(Tag(1), 1, 10)), (vec![20], 30));
        assert_eq!(versions(s.peek(Tag(1), 30, 20)), (vec![30, 40], 41));
    }

    #[test]
    fn what_is_popped_leaves_memory_and_what_is_spilled_is_read_from_disk() {
        let mut s = server();
        for i in 1..5 {
            s.push(push(i * 10, i * 10 + 10, body(&[1, 2], b"0123456789")))
                .expect("taken");
            let version = i * 10 + 10;
            s.became_durable(&on_disk(0, i as u32), version, version, 1 << 20);
        }
        assert_eq!(s.memory_bytes(), 80);
        assert!(s.pop(Tag(1), 31));
        assert_eq!(s.memory_bytes(), 60);
        assert_eq!(s.needed_from(), 20);
        s.spill(40);
        assert!(s.memory_bytes() <= 40);
        assert!(matches!(s.peek(Tag(2), 20, 100), Peeked::OnDisk));
        assert_eq!(s.position_of(20).map(|position| position.offset), Some(1));
        assert_eq!(versions(s.peek(Tag(1), 31, 100)).0, [40, 50]);
        s.pop(Tag(2), 41);
        assert_eq!(
            s.cut(),
            Some(Position {
                segment: 0,
                offset: 3
            }),
            "version 40 is needed by tag 1"
        );
    }

    #[test]
    fn a_server_rebuilt_from_its_entries_has_what_it_had() {
        let mut recovery = Recovery::default();
        let begin = Entry::Begin(Begin {
            epoch: 7,
            prev_version: 10,
            start: 5,
        });
        let version = |v: Version| {
            Entry::Version(VersionEntry {
                version: v,
                known_committed: v - 1,
                body: body(&[1], b"x"),
            })
        };
        let popped = Entry::Popped(Popped {
            tag: Tag(1),
            version: 20,
        });
        let blocks = [
            vec![begin.clone(), version(15), version(20)],
            vec![begin, version(25), popped],
        ];
        for (i, block) in blocks.iter().enumerate() {
            let decoded: Vec<Entry> = block
                .iter()
                .map(|e| Entry::from_bytes(e.to_bytes()).expect("whole"))
                .collect();
            recovery
                .block(&on_disk(0, i as u32), &decoded, 10, 1000)
                .expect("consistent");
        }
        let mut server = recovery.finish().expect("whole").expect("it began");
        assert_eq!(
            (
                server.epoch(),
                server.version(),
                server.durable().version(),
                server.known_committed()
            ),
            (7, 25, 25, 24)
        );
        assert_eq!(versions(server.peek(Tag(1), 1, 100)).0, [20, 25]);
        assert!(
            server.push(push(25, 30, Bytes::new())).is_err(),
            "it is sealed"
        );
    }

    #[test]
    fn a_segment_that_is_gone_and_was_never_popped_is_damage() {
        let recovered = |blocks: &[(u32, u32)]| {
            let mut recovery = Recovery::default();
            for (segment, oldest) in blocks {
                let begin = Entry::Begin(server().begin_entry(10));
                let entries = [begin, Entry::Oldest(*oldest)];
                recovery.block(&on_disk(*segment, 64), &entries, 10, 1000)?;
            }
            recovery.finish().map(|server| server.is_some())
        };
        assert_eq!(recovered(&[(0, 0), (1, 0)]), Ok(true));
        assert_eq!(recovered(&[(2, 0), (3, 2)]), Ok(true), "popped since");
        assert_eq!(recovered(&[(2, 0), (3, 1)]), Err(Error::file_corrupt));
    }

    #[test]
    fn what_was_popped_is_known_when_the_blocks_that_said_so_are_gone() {
        let mut s = server();
        s.push(push(10, 20, body(&[1, 2], b"b"))).expect("taken");
        s.pop(Tag(1), 21);
        let begin = Entry::Begin(s.begin_entry(20));
        let mut entries = vec![begin, Entry::Oldest(3)];
        entries.extend(s.all_popped().map(Entry::Popped));
        let mut recovery = Recovery::default();
        let block = on_disk(3, 64);
        recovery.block(&block, &entries, 10, 1000).expect("whole");
        let server = recovery.finish().expect("whole").expect("it began");
        // Otherwise a storage server that has lost versions 11 to 20 would be told that there was nothing.
        assert_eq!(server.empty_reply(Tag(1), 21).popped, 21);
        assert_eq!(server.empty_reply(Tag(2), 21).popped, 0);
    }

    /// Fuzz target: what a block of the disk queue may hold.
    #[test]
    fn a_damaged_entry_is_refused_or_means_what_it_says() {
        let corpus = [
            Entry::Begin(server().begin_entry(9)),
            Entry::Version(VersionEntry {
                version: 11,
                known_committed: 10,
                body: body(&[1, 2], b"data"),
            }),
            Entry::Seal(5),
            Entry::Popped(Popped {
                tag: Tag(1),
                version: 3,
            }),
            Entry::Copying,
            Entry::Copied,
            Entry::Oldest(7),
        ];
        let corpus = corpus.map(|entry| entry.to_bytes().to_vec());
        plinth_core::testing::fuzz("log entry", 1, corpus, |input| {
            let Some(entry) = Entry::from_bytes(Bytes::copy_from_slice(input)) else {
                return false;
            };
            assert_eq!(Entry::from_bytes(entry.to_bytes()), Some(entry.clone()));
            if let Entry::Version(version) = &entry {
                log_body::parse(&version.body);
            }
            true
        });
    }
}
