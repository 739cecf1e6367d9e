//! Global time of the in-memory engine, after *Fast General Distributed Transactions with Opacity using
//! Global Time* (FaRMv2, §4.1 to 4.3). "§" in this crate refers to that paper.
//!
//! One machine's clock is the time of the cluster. Every other machine knows an interval that holds it, from
//! exchanges with that machine. A timestamp is the upper bound of the interval, and may be used when the lower bound
//! has passed it: no machine is asked for it.
//!
//! ```text
//!   clock master  ══╤═══════╤═══════════════════════  its clock is the time
//!                   │       │   TimeRequest, Time, Grant: the time, and leases in both directions
//!   member        ──┴───────┴─────[ lower  upper ]──────────────[ lower  upper ]───▶
//!                                           └── timestamp: wait ──┘ use it
//!
//!   master dies   ═══✕
//!   new master         lease ends, compare-and-swap ─▶ NewConfig ─▶ wait ─▶ Advance ─▶ ═══════════════
//!   members       ─────────────────────────────────────▶ disabled, ack ───▶ ack ─────▶ TimeRequest ────
//!                      the time jumps forward, above every upper bound of anybody
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `interval` | intervals, and the bounds of clocks: relative drift and the error of a reading |
//! | `sync` | what exchanges tell of the master's time; which terms are widened, and why |
//! | `wait` | timestamps, and the relation that makes them monotonic |
//! | `clock` | the two above on this process's clock: the one part that is not plain state |
//! | `guard` | whether the clock is still the one that it was |
//! | `failover` | a server: takes readings and messages, gives messages. `master` and `member` are its two parts |
//! | `watch` | the rate of the master's clock, and when it is reported |
//!
//! Promises, while every two clocks keep their [`Bounds`]:
//! - An interval holds the master's time at the moment of the reading. On one machine the lower bound never goes
//!   back.
//! - If one call of [`Clock::timestamp`] ends before another begins, on whatever machines and under whatever
//!   masters, its timestamp is smaller.
//! - A network that delays, loses, repeats or reorders messages costs time, never correctness.
//!
//! What may never happen: a server that gives out timestamps while another may already have gone forward without it.
//! So a timestamp needs a lease at both ends of its wait. A member holds one from the master; the master holds one
//! from every member, because any of them may take its place. Leases are measured from when they were asked for by
//! who holds them, and from when they were given, and longer by the drift, by who gives them.
//!
//! A member that is dead for sure ([`Server::died`]) counts like a lease that has ended, so leases may be long where
//! the operating system tells of deaths.
//!
//! Where this differs from the paper:
//! - **The forward mark ages.** In the paper `FF` is a number. A server that has acknowledged it, has not
//!   synchronised since and becomes the next master would continue at it, although the master in between may have
//!   given out timestamps above it for as long as a lease. Here the mark is an upper bound from the moment of the
//!   acknowledgement, which grows with this machine's clock like that of any exchange.
//! - **Who may take over.** A server that has joined knows nothing of the time until it has synchronised. Until then
//!   it is no successor ([`Refusal::KnowsNoTime`]), and its own mark is not asked for. If nobody knows the time,
//!   nobody can continue it: the caller keeps enough members that do ([`Server::knows_time`]).
//! - **When the wait for leases is left out**: only the old master has left, as in the paper, and the server that
//!   takes over has heard of the old master's forward mark. Otherwise the configuration before may not have waited
//!   itself.
//!
//! **A restore.** A cluster may go on with new lives only, which know no time ([`Server::propose_restored`]).
//! Their time continues at an origin, which the caller keeps for all that join later ([`Server::learn_restored`]).
//! Whoever does so asks no member of the configuration before. So all servers of such a cluster are [`restorable`]:
//! a master needs the leases of the dead, and of those that have only joined, like those of others.
//!
//! [`restorable`]: Server::restorable
//!
//! A clock that jumps, or was suspended, is noticed by its own machine, at the next reading, because it does not agree
//! with the machine's second clock any more: the server stops ([`Notice::Broken`]) before anybody hears of that time.
//! Where there is no second clock, or both break their bounds alike, that is noticed when the clock goes back, or when
//! what is known of the master's time contradicts itself. Whose clock it was, a member cannot know then. The watch is
//! stricter, and only reports ([`Notice::Drifting`]). A jump forward by more than a lease disables the clock at once
//! in any case, because no lease lasts so long.
//!
//! What is not here: the register of the coordinators (the caller makes its compare-and-swap), and the transport.

mod clock;
mod configuration;
mod failover;
mod guard;
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
pub use state::{Notice, Restored, Settings};
pub use sync::{Exchange, Shared, Sync, Untimed};
pub use wait::{Pending, Verdict, non_strict};
pub use watch::{REPORTED_PPM, Rate, Watch};

#[cfg(test)]
mod tests;
