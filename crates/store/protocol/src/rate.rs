//! The ratekeeper: its requests to commit proxies, and the requests of GRV proxies to it.

use plinth_core::transaction_tag::TransactionTag;
use plinth_core::{Epoch, Uid, record};
use plinth_rpc::{Interface, requests};

record! {
    /// A GRV proxy reports how much it has admitted since it started, and asks for its limits.
    pub struct GetRate {
        pub proxy: Uid,
        /// Transactions, of all priorities.
        pub admitted: u64,
        /// Counts for tags that may be throttled automatically.
        pub tags: Vec<TagCount>,
    }

    pub struct TagCount {
        pub tag: TransactionTag,
        pub admitted: u64,
    }

    /// Limit of transactions a second with a tag, for this priority and less urgent ones.
    pub struct TagRate {
        pub tag: TransactionTag,
        pub priority: u8,
        pub rate: f64,
    }

    /// Transactions a second that this proxy may admit; infinite if there is no limit.
    pub struct Rate {
        /// Limit for default priority.
        pub default: f64,
        /// Batch priority is admitted only while the sum of all priorities is below this.
        pub batch: f64,
        pub tags: Vec<TagRate>,
    }

    pub struct GetCommitProxyStatus {}

    pub struct CommitProxyStatus {
        /// Seconds from a commit's arrival to its answer: the minimum over the last half second to second.
        pub latency_s: f64,
        /// Transactions accepted, and transactions answered, since the proxy started.
        pub arrived: u64,
        pub answered: u64,
        /// Bytes of transactions that wait or are in progress.
        pub bytes_held: u64,
    }

    /// Asks what limits the database at present, for the status document.
    pub struct GetRateStatus {}

    pub struct RateStatus {
        /// Limit in transactions a second, for all proxies together; infinite if there is no limit.
        pub default: f64,
        pub batch: f64,
        /// Transactions admitted a second.
        pub admitted: f64,
        /// The highest load of any server relative to its target: 1 means that a queue or a delay has reached its
        /// target.
        pub pressure: f64,
        /// Why there is a limit: a name as in FoundationDB's status document.
        pub reason: String,
        /// The server that causes the limit, if it is a single one.
        pub server: Uid,
        /// Number of tags throttled by an operator, and the tags throttled automatically.
        pub manual_tags: u32,
        pub auto_tags: Vec<TagRate>,
    }

    /// Asks a worker to be the ratekeeper of an epoch.
    pub struct RecruitRatekeeper {
        pub id: Uid,
        pub epoch: Epoch,
        pub controller: Interface,
        pub cluster: String,
    }
}

requests! {
    GetRate = 80 for Servers => Rate;
    GetCommitProxyStatus = 81 for Servers => CommitProxyStatus;
    GetRateStatus = 82 for Servers => RateStatus;
    RecruitRatekeeper = 83 for Servers => ();
}
