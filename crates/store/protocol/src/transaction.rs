//! The transaction system: sequencer, GRV proxies, commit proxies, resolvers.

use crate::log::{LogSystem, PushTrace};
use crate::token::Token;
use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_core::transaction_tag::TransactionTag;
use plinth_core::{Epoch, Uid, Version, record};
use plinth_rpc::{Interface, requests};

// ---- sequencer ----

record! {
    /// A commit proxy asks for the version of its next batch. Asking again with the same number gives the same
    /// answer (pitfall 4).
    pub struct GetCommitVersion {
        pub proxy: Uid,
        /// 1, 2, 3 … for each proxy.
        pub request_number: u64,
        /// [`Partition::after`] of the newest partition that the proxy has.
        pub partition: Version,
    }

    /// Which keys each resolver checks, in versions above `after`.
    pub struct Partition {
        pub after: Version,
        /// The first key of each resolver's part, in key order; the first one is empty.
        pub begins: Vec<Bytes>,
    }

    pub struct CommitVersion {
        pub version: Version,
        /// The version handed out before this one, to any proxy.
        pub prev_version: Version,
        /// Partitions newer than the one named in the request.
        pub partitions: Vec<Partition>,
    }

    /// Reports that `version` is durable on every log server. Answered when read versions given from then on include
    /// it.
    pub struct ReportCommitted {
        pub version: Version,
        /// The database is locked as of this version.
        pub locked: bool,
    }

    pub struct GetCommittedVersion {}

    pub struct CommittedVersion {
        pub version: Version,
        pub locked: bool,
    }

    pub struct RecruitSequencer {
        pub id: Uid,
        pub epoch: Epoch,
        /// RV: everything up to here is committed.
        pub recovered_to: Version,
        /// The version of the recovery transaction, already handed out.
        pub recovery_version: Version,
        /// The database is locked.
        pub locked: bool,
        /// As [`RecruitCommitProxy::resolvers`].
        pub resolvers: Vec<(Bytes, Interface)>,
        /// The commit proxies of this epoch. Nobody else gets a version.
        pub proxies: Vec<Uid>,
    }
}

// ---- GRV proxy ----

/// Priorities of a read version request, most urgent first.
pub const PRIORITY_SYSTEM: u8 = 0;
pub const PRIORITY_DEFAULT: u8 = 1;
pub const PRIORITY_BATCH: u8 = 2;

record! {
    /// Asks for a read version for `count` transactions.
    pub struct GetReadVersion {
        pub count: u32,
        pub priority: u8,
        /// Tags of all these transactions, each with whether the database may throttle it automatically.
        pub tags: Vec<(TransactionTag, bool)>,
    }

    pub struct ReadVersion {
        pub version: Version,
        /// The database is locked: only lock-aware transactions may continue.
        pub locked: bool,
        /// Number of transactions that may use this version; the request is repeated for the others.
        pub count: u32,
    }

    pub struct RecruitGrvProxy {
        pub id: Uid,
        pub epoch: Epoch,
        pub sequencer: Interface,
        pub log_system: LogSystem,
    }
}

// ---- commit proxy ----

/// The transaction may write the system keyspace.
pub const FLAG_SYSTEM_KEYS: u8 = 1;
/// The transaction commits although the database is locked.
pub const FLAG_LOCK_AWARE: u8 = 2;
/// If it conflicts, the reply names the ranges.
pub const FLAG_REPORT_CONFLICTS: u8 = 4;
/// The proxy notes when it does what, for who asks ([`GetCommitTrace`]).
pub const FLAG_TRACE: u8 = 8;

/// Places of a batch. A version and a place together fit 63 bits for 17 years of versions, which is what a number that
/// must fit a signed 64-bit integer can be made of.
pub const BATCH_PLACES_MAX: usize = 1 << 14;
/// Places of one transaction.
pub const TRANSACTION_PLACES_MAX: u16 = 1 << 10;

record! {
    pub struct Commit {
        /// Version of the reads; irrelevant if there are none.
        pub read_version: Version,
        /// `plinth_core::conflict_ranges`, packed.
        pub reads: Bytes,
        pub writes: Bytes,
        /// `plinth_core::mutation`, packed.
        pub mutations: Bytes,
        pub flags: u8,
        /// How many places in its batch the transaction takes, at least 1: that many versionstamps are its own.
        pub places: u16,
        pub token: Token,
    }

    pub struct CommitReply {
        /// Commit version. [`plinth_core::version::INVALID`] means not committed, because of `conflicting`.
        pub version: Version,
        /// Order inside the batch, the first of the transaction's places: the last two bytes of the versionstamp.
        pub order: u16,
        /// The ranges read that have been written since. Only with [`FLAG_REPORT_CONFLICTS`].
        pub conflicting: Vec<KeyRange>,
    }

    /// Asks when a proxy did what with a transaction of [`FLAG_TRACE`] that it has committed just before.
    pub struct GetCommitTrace {
        pub version: Version,
        pub order: u16,
    }

    /// Microseconds since the transaction has arrived at the proxy.
    #[derive(Default)]
    pub struct CommitTrace {
        /// Its batch was formed.
        pub batched: u64,
        /// The sequencer has given a version.
        pub versioned: u64,
        /// All resolvers have answered.
        pub resolved: u64,
        /// The proxy's batches before it are assigned.
        pub in_turn: u64,
        /// It is known which log server gets what.
        pub assigned: u64,
        /// It is sent to all log servers.
        pub pushed: u64,
        /// All log servers have it on disk.
        pub durable: u64,
        /// The sequencer knows, and the client is answered.
        pub reported: u64,
        /// What the log servers that have answered say.
        pub logs: Vec<PushTrace>,
    }

    /// Asks which servers hold the shards of a range.
    pub struct GetKeyLocations {
        pub range: KeyRange,
        /// From the end of the range backwards.
        pub reverse: bool,
        pub limit: u32,
        pub token: Token,
    }

    pub struct KeyLocations {
        /// Adjacent shards in the requested order, with their storage servers.
        pub shards: Vec<(KeyRange, Vec<Interface>)>,
    }

    pub struct RecruitCommitProxy {
        pub id: Uid,
        pub epoch: Epoch,
        pub sequencer: Interface,
        /// First key of each resolver's range, and the resolver, in key order; the first key is empty.
        pub resolvers: Vec<(Bytes, Interface)>,
        pub log_system: LogSystem,
        pub recovered_to: Version,
        /// The version of the recovery transaction.
        pub recovery_version: Version,
        /// This proxy commits the recovery transaction, and rewrites the log's stream of system mutations to keep it
        /// short.
        pub first: bool,
        /// The database is being created: its system keyspace must be written as well.
        pub new_database: bool,
    }

    /// Sends a new commit proxy a part of the system keyspace as of `recovered_to`, the list of storage servers first.
    /// The proxy accepts no commits before it has the last part.
    pub struct LoadSystemState {
        /// 0, 1, 2 …
        pub number: u32,
        pub rows: Vec<(Bytes, Bytes)>,
        pub last: bool,
    }

    /// Commits the recovery transaction. Answered when it is durable and has been reported to the sequencer.
    pub struct CommitRecovery {}
}

// ---- resolver ----

record! {
    pub struct ResolveBatch {
        pub epoch: Epoch,
        pub proxy: Uid,
        pub prev_version: Version,
        pub version: Version,
        /// The proxy has received replies up to this version: system transactions up to it need not be kept for the
        /// proxy.
        pub last_received: Version,
        pub transactions: Vec<ResolveTransaction>,
    }

    pub struct ResolveTransaction {
        pub read_version: Version,
        /// Conflict ranges inside this resolver's range, packed.
        pub reads: Bytes,
        pub writes: Bytes,
        /// The mutations, if some of them change the system keyspace. Such transactions go to every resolver.
        pub system_mutations: Option<Bytes>,
        /// It commits although the database is locked.
        pub lock_aware: bool,
        /// If it conflicts, the reply names the ranges.
        pub report_conflicts: bool,
    }

    pub struct ResolveReply {
        /// One for each transaction: see `VERDICT_*`.
        pub verdicts: Bytes,
        /// For each transaction with a conflict that asked for it: its place in the batch, and which of its reads.
        pub conflicting: Vec<(u32, Vec<KeyRange>)>,
        /// Transactions of other proxies on the system keyspace in the versions in (last_received, version),
        /// ascending. Every system transaction of those versions is listed, with this resolver's verdict.
        pub system: Vec<SystemTransactions>,
    }

    pub struct SystemTransactions {
        pub version: Version,
        pub transactions: Vec<SystemTransaction>,
    }

    pub struct SystemTransaction {
        /// This resolver found no conflict.
        pub admitted: bool,
        pub lock_aware: bool,
        pub mutations: Bytes,
    }

    /// Asks a resolver for its load since the previous request.
    pub struct GetResolverLoad {}

    pub struct ResolverLoad {
        /// Number of conflict ranges checked.
        pub judged: u64,
        /// A sample of their begin keys.
        pub sample: Vec<Bytes>,
    }

    pub struct RecruitResolver {
        pub id: Uid,
        pub epoch: Epoch,
        /// Reads below this version cannot be checked: the history before it is gone.
        pub recovery_version: Version,
        pub proxies: Vec<Uid>,
    }
}

pub const VERDICT_COMMITTED: u8 = 0;
pub const VERDICT_CONFLICT: u8 = 1;
pub const VERDICT_TOO_OLD: u8 = 2;

requests! {
    GetCommitVersion = 30 for Servers => CommitVersion;
    ReportCommitted = 31 for Servers => ();
    GetCommittedVersion = 32 for Servers => CommittedVersion;
    RecruitSequencer = 33 for Servers => ();
    GetReadVersion = 34 for Readers => ReadVersion;
    RecruitGrvProxy = 35 for Servers => ();
    Commit = 36 for Clients => CommitReply;
    GetKeyLocations = 37 for Readers => KeyLocations;
    RecruitCommitProxy = 38 for Servers => ();
    CommitRecovery = 39 for Servers => ();
    ResolveBatch = 40 for Servers => ResolveReply;
    RecruitResolver = 41 for Servers => ();
    GetResolverLoad = 42 for Servers => ResolverLoad;
    LoadSystemState = 43 for Servers => ();
    GetCommitTrace = 44 for Clients => CommitTrace;
}
