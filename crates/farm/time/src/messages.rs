//! What servers say to each other (FaRMv2 Figure 6, and the handshake of leases that carries the time).
//!
//! Each message of a master to a member has the master's reading when it was sent (`asked`), and the member's answer
//! returns it: from then on, for as long as a lease lasts, the member will not take the master's place.
//!
//! The transport may lose, delay, repeat and reorder messages. It says truly who has sent one.

use crate::configuration::Configuration;
use crate::interval::Interval;
use plinth_core::{record, variants};

record! {
    #[derive(Eq)]
    pub struct Message {
        /// The configuration in which it was sent.
        pub number: u64,
        pub body: Body,
    }
}

variants! {
    #[derive(Eq)]
    pub enum Body {
        /// The configuration has been taken.
        NewConfig {
            configuration: Configuration,
            asked: u64,
        } = 0,
        /// `forward` is the highest time that the master's may have had here, `FF` in the paper. The sender's clock is
        /// disabled if the era is new.
        NewConfigAck {
            forward: Option<u64>,
            asked: u64,
        } = 1,
        /// All members have acknowledged, and those that were removed have stopped.
        ConfigCommit = 2,
        /// The time will continue at `time` or less, when all members have acknowledged.
        Advance {
            time: u64,
            asked: u64,
        } = 3,
        AdvanceAck {
            asked: u64,
        } = 4,
        /// Asks for the time and a lease. `sent` is the member's reading. Until the member knows that the
        /// configuration is committed, the master repeats it.
        TimeRequest {
            sent: u64,
            is_committed: bool,
        } = 5,
        /// No interval and no lease while the master's clock is disabled.
        Time {
            sent: u64,
            interval: Option<Interval>,
            asked: u64,
        } = 6,
        /// The third leg: the member renews the master's lease.
        Grant {
            asked: u64,
        } = 7,
        /// The message was of an older configuration than the receiver's, whose number this is.
        Outdated = 8,
    }
}
