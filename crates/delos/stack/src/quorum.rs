//! A log on several log servers, with a sequencer of its own (the NativeLoglet of Delos, OSDI'20 §4).
//!
//! ```text
//!   client ── Append ──► sequencer ── Store ──► log server 1 ─► disk queue
//!     │                  gives positions   ├──► log server 2 ─► disk queue
//!     │                                    └──► log server 3 ─► disk queue
//!     └── AskTail, ReadEntries, Promise, Accept ──► log servers
//! ```
//! A position is given out once, by one sequencer: log servers vote for one sequencer and never for another, and a
//! sequencer needs a majority of the votes before it stores anything. So all copies of an entry are equal, whoever
//! made them, and only the tail needs an agreement. A sequencer that has died is not replaced: the loglet is sealed
//! and the [virtual log](crate::virtual_log) moves on to another.
//!
//! 1. An entry is *committed* when a majority of log servers has it, and all entries before it, on disk, and each of
//!    them said so before it was sealed. Only then is its append answered ([`window`]).
//! 2. A tail that was told is above every append that was answered before it was asked for, and all entries below it
//!    are committed ([`tails`]). Entries above the tail are not readable, so a hole never is.
//! 3. A log server that is sealed takes no more entries from the sequencer, and stays sealed. When a majority is, no
//!    more entries can be committed. The last position is then agreed on by ballots (Paxos, with the log servers as
//!    acceptors): the greatest tail of a majority of sealed log servers, unless an earlier ballot may have agreed on
//!    another one. A log server accepts a last position only if it has all entries before it ([`state`]). Any number
//!    of clients may seal at the same time, and all learn the same last position.
//! 4. A log server never gives up an entry, except when the log is trimmed. One that was away gets what it lacks
//!    through the sequencer, from the sequencer's memory or from another log server. After the seal it stays behind if
//!    a majority is complete. Until then it says what it lacks, and readers go to another one.
//!
//! Promises: as [`SharedLog`](crate::log::SharedLog), while a majority of log servers is up.
//! What may never happen: an append that was answered is missing below a later tail; two readers see different
//! entries at one position; the last position moves.

pub mod client;
pub mod description;
pub mod messages;
pub mod peers;
pub mod sequencer;
pub mod server;
pub mod state;
pub mod tails;
#[cfg(test)]
mod tests;
pub mod window;
