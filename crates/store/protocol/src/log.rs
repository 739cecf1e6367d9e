//! The log: the requests with which proxies push, storage servers peek and pop, and a recovery seals; and the
//! description of all generations of the log that are still needed.

use crate::DurableVersion;
use bytes::Bytes;
use plinth_core::{Epoch, Tag, Uid, Version, record};
use plinth_rpc::{Interface, requests};

record! {
    /// The log servers of one epoch. Holds the versions `start ..` up to the next generation's start.
    pub struct LogGeneration {
        pub epoch: Epoch,
        pub logs: Vec<Interface>,
        /// Number of copies of every record, k.
        pub replication: u32,
        /// This many neighbouring tags share a log set, so that the replicas of a team's mutations coincide.
        pub tags_a_set: u32,
        /// The first version that this generation holds: PEV + 1 of the recovery that made it.
        pub start: Version,
        /// The recovery version RV of the recovery that made it: versions of older epochs above RV are discarded.
        pub recovered_to: Version,
    }

    /// All generations still needed, oldest first; the last one is current.
    pub struct LogSystem {
        pub generations: Vec<LogGeneration>,
    }
}

impl LogGeneration {
    /// Places in `logs` of the k servers that store `tag`.
    pub fn log_set(&self, tag: Tag) -> impl Iterator<Item = usize> + use<> {
        let count = self.logs.len();
        let copies = (self.replication as usize).min(count);
        let first = if tag == Tag::SYSTEM {
            0
        } else {
            (tag.0 / self.tags_a_set.max(1)) as usize
        };
        (0..copies).map(move |i| (first + i) % count)
    }
    pub fn copies(&self) -> usize {
        (self.replication as usize).min(self.logs.len())
    }
    /// The places of every possible log set.
    fn sets(&self) -> impl Iterator<Item = impl Iterator<Item = usize> + Clone> {
        let (count, copies) = (self.logs.len(), self.copies());
        (0..count).map(move |first| (0..copies).map(move |i| (first + i) % count))
    }
    /// Whether every possible log set has a member among the servers that answered (FDB §2.4.4: more than
    /// m − k answers, or one of every replica set).
    pub fn covers_every_set(&self, answered: &[bool]) -> bool {
        assert_eq!(answered.len(), self.logs.len(), "one flag a log server");
        self.sets().all(|mut set| set.any(|place| answered[place]))
    }
    /// Members that the log set has left that has the fewest, where `is_left` tells which log servers there are.
    pub fn least_left(&self, is_left: impl Fn(&Interface) -> bool) -> usize {
        let left = |set| Iterator::filter(set, |place: &usize| is_left(&self.logs[*place])).count();
        self.sets().map(left).min().unwrap_or(0)
    }
    /// Whether a possible log set with the log server at `place` has no member that is left.
    pub fn needs(&self, place: usize, is_left: impl Fn(usize) -> bool) -> bool {
        let mut its = self.sets().filter(|set| set.clone().any(|p| p == place));
        its.any(|mut set| !set.any(&is_left))
    }
}

impl LogSystem {
    pub fn current(&self) -> Option<&LogGeneration> {
        self.generations.last()
    }
    /// The generation that holds `version`, and the version at which the next one begins.
    pub fn generation_of(&self, version: Version) -> Option<(&LogGeneration, Option<Version>)> {
        let at = self.generations.iter().rposition(|g| g.start <= version)?;
        Some((
            &self.generations[at],
            self.generations.get(at + 1).map(|g| g.start),
        ))
    }
}

record! {
    /// One version for one log server. The body may be empty, but every version must be sent (pitfall 3).
    pub struct Push {
        pub epoch: Epoch,
        pub prev_version: Version,
        pub version: Version,
        /// Every version up to this one is durable on all log servers.
        pub known_committed: Version,
        /// `plinth_core::log_body`.
        pub body: Bytes,
    }

    /// The push, and every one before it, is durable on this log server.
    pub struct PushReply {
        pub durable: DurableVersion,
    }

    /// Asks when the log server did what with the push of this version, which comes behind it. Answered just before
    /// that push is.
    pub struct TracePush {
        pub epoch: Epoch,
        pub version: Version,
    }

    /// Microseconds of the phases of a push.
    pub struct PushTrace {
        pub id: Uid,
        /// From the question until the last block before its own was on disk; 0 if none was under way.
        pub waited: u64,
        /// From the begin of its block until that was on disk.
        pub written: u64,
        /// Of the block.
        pub bytes: u64,
    }

    /// Reads the stream of one tag from `begin` on. Waits until the log server has a version at or after `begin`.
    pub struct Peek {
        pub tag: Tag,
        pub begin: Version,
        pub bytes_max: u32,
        /// Answer at once, even if there is nothing new.
        pub return_if_blocked: bool,
    }

    pub struct PeekReply {
        /// Versions that have mutations for the tag, ascending, each with its packed mutations.
        pub messages: Vec<VersionedMessages>,
        /// Every version below this one is covered by this reply.
        pub end: Version,
        /// Every version up to this one is durable on all log servers of the epoch.
        pub known_committed: Version,
        /// Data of the tag below this version was popped and is no longer on this log server.
        pub popped: Version,
    }

    pub struct VersionedMessages {
        pub version: Version,
        /// Runs of packed mutations, in order.
        pub runs: Vec<Bytes>,
    }

    /// Asks for one piece of the streams of `tags` in `[begin, to]`, for a log server of the next generation that
    /// copies them. Answered at once, from data on disk.
    pub struct CopyTail {
        pub tags: Vec<Tag>,
        pub begin: Version,
        pub to: Version,
        /// Limit of the reply's size. At least one version is returned, whatever its size.
        pub bytes_max: u32,
    }

    pub struct CopyTailReply {
        /// Versions that have mutations for the tags, ascending.
        pub versions: Vec<CopiedVersion>,
        /// Every version below this one is covered by this reply.
        pub end: Version,
    }

    pub struct CopiedVersion {
        pub version: Version,
        /// `plinth_core::log_body`, restricted to the tags asked for.
        pub body: Bytes,
    }

    /// Asks a log server that is being recruited how far it has copied.
    pub struct GetCopyProgress {}

    #[derive(Copy)]
    pub struct CopyProgress {
        /// Number of pieces copied. It grows as long as the copy makes progress.
        pub pieces: u64,
        /// The log server has copied everything up to this version.
        pub to: Version,
    }

    /// Discards the data of `tag` below `version`: its storage server does not need it again.
    pub struct Pop {
        pub tag: Tag,
        pub version: Version,
    }

    /// A recovery for `epoch` ends this generation: no push is accepted from now on. Fails with `file_corrupt` for a
    /// log server that cannot be brought back, because its files are damaged.
    pub struct Seal {
        pub epoch: Epoch,
    }

    pub struct SealReply {
        /// DV: everything up to here is on disk.
        pub durable: DurableVersion,
        /// KCV: the newest version known to be durable on all log servers.
        pub known_committed: Version,
        /// The log server was rebuilt from its disk after it took its last version. If the disk has lied, the server
        /// once held more versions.
        pub came_back: bool,
        /// Versions that it cannot read, because its files are damaged: those behind the first of each pair, up to the
        /// second.
        pub lost: Vec<(Version, Version)>,
    }

    /// Fails with `tlog_stopped` once sealed. Success proves that the epoch has not ended (pitfall 1).
    pub struct ConfirmEpoch {
        pub epoch: Epoch,
    }

    /// Asks a worker to host one log server of a new generation, during a recovery. Answered when the server has
    /// copied the versions that it takes over and has them on disk.
    pub struct RecruitLog {
        pub id: Uid,
        pub epoch: Epoch,
        /// The generation to which it belongs; the new log server is one of `generation.logs`.
        pub generation: LogGeneration,
        /// Its place in `generation.logs`.
        pub place: u32,
        /// Older generations, to copy `[generation.start, generation.recovered_to]` from.
        pub old: LogSystem,
        /// All tags in use, whose streams are to be copied.
        pub tags: Vec<Tag>,
    }

    /// Tells a log server that cannot be brought back, because its files are damaged, that no epoch can begin without
    /// it: no other member of one of its log sets is left.
    pub struct NeedDamagedLog {}

    pub struct GetLogStatus {}

    pub struct LogStatus {
        pub epoch: Epoch,
        pub version: Version,
        pub durable: Version,
        pub known_committed: Version,
        pub sealed: bool,
        pub queue_bytes: u64,
        pub memory_bytes: u64,
        /// Seconds that a block takes until it is durable: the minimum over the last half second to second; 0 if there
        /// was none.
        pub sync_s: f64,
        /// The lowest version that some tag still needs; versions below it are not needed from here.
        pub needed_from: Version,
        /// The log server waits for free space on its disk, and commits wait for it.
        pub disk_full: bool,
    }
}

/// Version to which a tag is popped when its storage server has been removed.
pub const POPPED_FOR_EVER: Version = Version::MAX;

requests! {
    Push = 20 for Servers => PushReply;
    Peek = 21 for Servers => PeekReply;
    Pop = 22 for Servers => ();
    Seal = 23 for Servers => SealReply;
    ConfirmEpoch = 24 for Servers => ();
    RecruitLog = 25 for Servers => ();
    NeedDamagedLog = 26 for Servers => ();
    GetLogStatus = 27 for Servers => LogStatus;
    CopyTail = 28 for Servers => CopyTailReply;
    GetCopyProgress = 29 for Servers => CopyProgress;
    TracePush = 45 for Servers => PushTrace;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(logs: usize, replication: u32) -> LogGeneration {
        let interface =
            |i: usize| Interface::new(([127, 0, 0, 1], i as u16).into(), Uid(i as u128));
        LogGeneration {
            epoch: 1,
            logs: (0..logs).map(interface).collect(),
            replication,
            tags_a_set: 1,
            start: 0,
            recovered_to: 0,
        }
    }

    #[test]
    fn more_than_m_minus_k_answers_cover_every_set_and_fewer_neighbours_do_not() {
        let g = generation(5, 3);
        assert!(g.covers_every_set(&[true, false, false, true, false]));
        assert!(!g.covers_every_set(&[true, true, false, false, false]));
        assert!(g.covers_every_set(&[true, true, true, false, false]));
    }

    #[test]
    fn a_log_server_is_needed_if_no_other_member_of_one_of_its_sets_is_left() {
        let needed = |copies, left: &[usize]| -> Vec<usize> {
            let g = generation(5, copies);
            let needs = |place: &usize| g.needs(*place, |other| left.contains(&other));
            (0..5).filter(needs).collect()
        };
        assert!(needed(3, &[0, 3]).is_empty());
        assert_eq!(needed(2, &[0, 3]), [1, 2], "the set of 3 and 4 has 3");
        assert_eq!(needed(1, &[0, 1, 2, 3]), [4]);
    }

    #[test]
    fn a_version_belongs_to_the_last_generation_that_starts_at_or_before_it() {
        let (mut a, mut b) = (generation(1, 1), generation(1, 1));
        (a.start, b.start, b.epoch) = (0, 100, 2);
        let system = LogSystem {
            generations: vec![a, b],
        };
        let of = |v| system.generation_of(v).map(|(g, end)| (g.epoch, end));
        assert_eq!(of(99), Some((1, Some(100))));
        assert_eq!(of(100), Some((2, None)));
        assert_eq!(of(-1), None);
    }
}
