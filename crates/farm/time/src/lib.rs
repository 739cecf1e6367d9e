//! Global time of the in-memory engine, after *Fast General Distributed Transactions with Opacity using Global Time*
//! (FaRMv2, §4.1 to 4.3). "§" below refers to that paper.

mod clock;
mod configuration;
mod failover;
mod interval;
mod master;
mod member;
mod messages;
mod state;
mod sync;
mod wait;
mod watch;

pub use clock::{Broken, Clock};
pub use configuration::{Configuration, MEMBERS_MAX, Member, MemberId};
pub use failover::{Refusal, Server};
pub use interval::{Bounds, Interval};
pub use messages::{Body, Message};
pub use state::{Notice, Settings};
pub use sync::{Exchange, Sync, Untimed};
pub use wait::{Pending, Verdict, non_strict};
pub use watch::{REPORTED_PPM, Rate, Watch};

#[cfg(test)]
mod tests;
