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
use crate::holes::Holes;
use bytes::Bytes;
use plinth_core::log_body::{self, Run};
use plinth_core::{Epoch, Error, Result, Tag, Version, record, variants};
use plinth_protocol::DurableVersion;
use plinth_protocol::control::ClusterInfo;
use plinth_protocol::log::{POPPED_FOR_EVER, PeekReply, Push, VersionedMessages};
use plinth_runtime::checks::are_expensive_on;
use plinth_runtime::{never, trace_warn};
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

variants! {
    /// An entry of the disk queue.
    pub enum Entry {
        Begin(begin: Begin) = 0,
        Version(version: VersionEntry) = 1,
        Seal(epoch: Epoch) = 2,
        Popped(popped: Popped) = 3,
        /// The log server is being made, and has more to copy than the entries before this one.
        Copying = 4,
        /// It has copied everything.
        Copied = 5,
        /// The number of the oldest segment that is needed. Segments before it, and no others, are removed when this
        /// is on disk.
        Oldest(segment: u32) = 6,
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
    /// The requested data begins in versions that cannot be read.
    Damaged,
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
    /// The sum of these, and of what the queues of the tags hold.
    memory_bytes: usize,
    /// The newest version that has left memory.
    spilled: Version,
    index: BlockIndex,
    holes: Holes,
    /// Blocks since everything in memory was checked.
    unchecked: usize,
}

/// Everything in memory is checked after one block for so many versions there.
const VERSIONS_A_CHECK: usize = 8;

/// Takes back what was counted before.
fn take_back(of: &mut usize, less: usize) {
    assert!(*of >= less, "{less} bytes leave, and {of} were held");
    *of -= less;
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
            holes: Holes::default(),
            unchecked: 0,
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
        if never!(
            !follows || push.known_committed >= push.version,
            "PushOutOfTheChain",
            "version" => push.version,
            "after" => push.prev_version,
            "taken" => self.version,
            "known_committed" => push.known_committed
        ) {
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
        // Versions come along the chain, and blocks are written one after the other.
        assert!(
            self.durable.version() <= last && first <= last,
            "{first} to {last} became durable after {}",
            self.durable
        );
        self.durable = block.up_to(last);
        self.index.add(first, block.position(), bytes);
        self.unchecked += 1;
        if are_expensive_on() && self.unchecked > self.in_memory.len() / VERSIONS_A_CHECK {
            self.unchecked = 0;
            self.check();
        }
    }

    /// Asserts that memory is counted alike by version, by tag and in total.
    fn check(&self) {
        let by_version: usize = self.in_memory.iter().map(|(_, bytes)| bytes).sum();
        let messages = self.tags.values().flat_map(|queue| &queue.messages);
        let by_tag: usize = messages
            .flat_map(|message| &message.runs)
            .map(Bytes::len)
            .sum();
        assert_eq!(by_version, self.memory_bytes, "the versions in memory");
        assert_eq!(by_tag, self.memory_bytes, "the messages in memory");
        let versions = self.in_memory.iter().map(|(version, _)| *version);
        assert!(
            versions.is_sorted_by(|a, b| a < b),
            "versions rise: {:?}",
            self.in_memory
        );
        for (tag, queue) in &self.tags {
            let versions = queue.messages.iter().map(|message| message.version);
            assert!(
                versions.is_sorted_by(|a, b| a < b),
                "versions of tag {} rise",
                tag.0
            );
        }
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
        let Ok(until) = self.holes.readable_until(begin) else {
            return Peeked::Damaged;
        };
        if begin <= self.spilled
            && self
                .tags
                .get(&tag)
                .is_some_and(|q| q.spilled >= begin && q.spilled >= q.popped)
            && !self.index.is_empty()
        {
            return Peeked::OnDisk;
        }
        let end = until.map_or(self.version + 1, |until| until.min(self.version + 1));
        let mut reply = self.empty_reply(tag, end);
        let Some(queue) = self.tags.get(&tag) else {
            return Peeked::Reply(reply);
        };
        let from = queue
            .messages
            .partition_point(|message| message.version < begin);
        let mut bytes = 0;
        let readable = |message: &&VersionedMessages| message.version < end;
        for message in queue.messages.range(from..).take_while(readable) {
            let more: usize = message.runs.iter().map(Bytes::len).sum();
            if bytes > 0 && bytes + more > bytes_max {
                reply.end = message.version;
                break;
            }
            bytes += more;
            reply.messages.push(message.clone());
        }
        // A reader that gets no further would ask for the same for ever.
        assert!(
            reply.end > begin,
            "a reply from {begin} ends at {}",
            reply.end
        );
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

    /// The version before which all versions from `begin` on can be read, if damage is known behind them. Fails if
    /// damage is what it begins with.
    pub fn readable_until(&self, begin: Version) -> Result<Option<Version>> {
        self.holes.readable_until(begin)
    }

    /// Versions that cannot be read: those behind the first of each pair, up to the second.
    pub fn lost(&self) -> &[(Version, Version)] {
        self.holes.all()
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
            take_back(&mut self.memory_bytes, bytes);
            let at = self
                .in_memory
                .binary_search_by_key(&gone.version, |(version, _)| *version);
            match at {
                Ok(at) => take_back(&mut self.in_memory[at].1, bytes),
                Err(_) => assert_eq!(bytes, 0, "version {} is not in memory", gone.version),
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
            take_back(&mut self.memory_bytes, bytes);
            assert!(
                self.spilled < version,
                "{version} leaves after {}",
                self.spilled
            );
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
    /// Blocks between those that are shown are damaged.
    is_damaged: bool,
    /// The version before the first block.
    first_version: Option<Version>,
}

impl Recovery {
    /// One that is shown what is left of damaged files. Each block tells the version before it, so it is known which
    /// versions are not there.
    pub fn of_what_is_left() -> Self {
        Recovery {
            is_damaged: true,
            ..Recovery::default()
        }
    }

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
                    if begin.start > begin.prev_version.saturating_add(1) {
                        return Err(Error::file_corrupt);
                    }
                    self.first_version.get_or_insert(begin.prev_version);
                    let server = self.server.get_or_insert_with(|| LogServer::new(begin));
                    if self.is_damaged && begin.prev_version > server.version {
                        server.holes.add(server.version, begin.prev_version);
                        server.version = begin.prev_version;
                        server.durable = block.up_to(begin.prev_version);
                    }
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

    /// Of what is left of damaged files. `begins_behind_damage`: blocks before the first that was shown are damaged.
    pub fn finish_damaged(mut self, begins_behind_damage: bool) -> Result<Option<LogServer>> {
        if self.is_copying {
            return Err(Error::file_corrupt); // the block that says otherwise may be a damaged one
        }
        if let Some(server) = &mut self.server
            && begins_behind_damage
            && let Some(first) = self.first_version
        {
            server.holes.add(server.start - 1, first);
        }
        self.finish()
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
mod tests;
