//! The ratekeeper: what it asks of commit proxies, what GRV proxies ask of it.

use plinth_core::transaction_tag::TransactionTag;
use plinth_core::{Epoch, Uid, record};
use plinth_rpc::{Interface, requests};

record! {
    /// A GRV proxy tells what it has let in since it began, and asks what it may.
    pub struct GetRate {
        pub proxy: Uid,
        /// Transactions, of all priorities.
        pub admitted: u64,
        /// Of tags that may be throttled automatically.
        pub tags: Vec<TagCount>,
    }

    pub struct TagCount {
        pub tag: TransactionTag,
        pub admitted: u64,
    }

    /// Transactions a second with a tag, of this priority and less urgent ones.
    pub struct TagRate {
        pub tag: TransactionTag,
        pub priority: u8,
        pub rate: f64,
    }

    /// Transactions a second that this proxy may let in; infinite where there is no limit.
    pub struct Rate {
        /// Of default priority.
        pub default: f64,
        /// Work of batch priority begins only while the sum of all is below this.
        pub batch: f64,
        pub tags: Vec<TagRate>,
    }

    pub struct GetCommitProxyStatus {}

    pub struct CommitProxyStatus {
        /// Seconds from a commit's arrival to its answer: the least of the last half second or so.
        pub latency_s: f64,
        /// Transactions taken in, and transactions answered, since the proxy began.
        pub arrived: u64,
        pub answered: u64,
        /// Transactions that wait or are under way.
        pub bytes_held: u64,
    }

    /// What limits the database now, for the status document.
    pub struct GetRateStatus {}

    pub struct RateStatus {
        /// Transactions a second, all proxies together; infinite where there is no limit.
        pub default: f64,
        pub batch: f64,
        /// Transactions let in, a second.
        pub admitted: f64,
        /// 1 where something is as full or as late as it should ever be.
        pub pressure: f64,
        /// Why there is a limit: a name as in FoundationDB's status document.
        pub reason: String,
        /// The server that is the reason, if one is.
        pub server: Uid,
        /// Tags that are throttled because an operator wants it, and because the database finds it.
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
    GetRate = 80 => Rate;
    GetCommitProxyStatus = 81 => CommitProxyStatus;
    GetRateStatus = 82 => RateStatus;
    RecruitRatekeeper = 83 => ();
}
