//! The fabric of the in-memory engine: one-sided access to the memory of other machines, and messages, after
//! *Fast General Distributed Transactions with Opacity using Global Time* (FaRMv2, §3.1 to 3.2). "§" in this crate
//! refers to that paper.
//!
//! The paper has network cards that read and write the memory of a machine without its processor. Here, processes of
//! one host map each other's memory, and a task serves it to other hosts. The trait [`Fabric`] keeps the place of the
//! hardware free: nothing behind it shows whose memory it is.
//!
//! ```text
//!   Shared    ──────────────────────────────┐
//!   Mixed     ── one of the two
//!   Streamed  ── wire ──▶ network ──▶ serve ─┴─▶ Host:  gates │ rings │ regions     memory of a machine
//!                                                  ▲       (one mapping, which outlives the process)
//!   Local: owns it, closes configurations, takes ──┘
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `address` | machines, places, limits, errors |
//! | `memory` | words that others use at the same time, and the order in which they see them |
//! | `ring` | messages of one sender to one receiver, in the receiver's memory |
//! | `host` | the memory of a machine, and the gate where an operation of a closed configuration ends |
//! | `sleep` | a machine that has nothing to do, and what wakes it |
//! | `local` | this machine: its memory, its configuration, messages to it |
//! | `fabric` | the trait, and what all backends promise |
//! | `shared` | machines of one host |
//! | `streamed`, `serve`, `wire` | between hosts, and in the simulator |
//! | `greeting` | how a connection between hosts begins, and who is heard |
//! | `mixed` | some here, some elsewhere |
//!
//! What may never happen: an acknowledged write or message that is not in the memory of the other machine; an
//! operation of a configuration that its receiver has closed; a message twice in one life of its receiver, or out of
//! order; where there are keys, an operation of somebody who has proved none of a server, or of bytes that were
//! changed or repeated on the way.
//!
//! Where this differs from the hardware:
//! - **A network card closes a queue pair. A process cannot take a mapping from another.** So who writes opens a door
//!   first, and who closes a configuration waits for doors. A process that was killed holds no door. One that was
//!   stopped in the middle of an operation does: [`Local::inside`] names it, and [`Local::kill`] ends it.
//! - **Memory outlives the process, not the machine.** Between hosts the memory of a dead process is there, but
//!   nobody serves it until the next one starts.
//! - **One thread a machine.** A memory has one gate and one ring for each machine. More threads are more machines.
//!
//! What is not here: who is a member (the configuration comes from outside), and anything that knows objects.

mod address;
mod fabric;
mod greeting;
mod host;
mod local;
mod memory;
mod mixed;
mod ring;
mod serve;
mod shared;
mod sleep;
mod streamed;
mod wire;

pub use address::{
    Address, Asker, Error, MACHINES_MAX, MESSAGE_BYTES_MAX, Machine, OPERATION_BYTES_MAX,
    REGIONS_MAX,
};
pub use fabric::Fabric;
pub use host::{Host, Layout};
pub use local::{File, Local, Message, attach};
pub use memory::Memory;
pub use mixed::{Mixed, Place};
pub use serve::{serve, serve_as, serve_with};
pub use shared::Shared;
pub use streamed::Streamed;

#[cfg(test)]
mod tests;
