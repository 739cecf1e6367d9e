//! Membership of the in-memory engine (FaRMv2 §4.3, 5.5): what turns the plain state of `farm/time` into a
//! running member of a cluster on a fabric. "§" in this crate refers to *Fast General Distributed Transactions with
//! Opacity using Global Time*.
//!
//! ```text
//!   coordinators   Record: configuration | machines | waiting | regions        one compare-and-swap a change
//!                     ▲ read, swap
//!                  manage ── decide, placement
//!                     │
//!   core ─────────────┼──── clock (farm/time) ── timestamps
//!     ▲               └──── view, left ─────────▶ the engine of this process
//!     │ frames
//!   post ── fabric ── other members               life: processes of this host, by locks and shared memory
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `record`, `change` | what the register holds, and its changes |
//! | `placement` | which machine has which region. Pure |
//! | `decide` | who may be left out, and whose turn it is. Pure |
//! | `register` | the register, on coordinators and in memory |
//! | `life` | a life of a process: who is dead for sure, and the time of one host |
//! | `deaths` | asks who is dead, when the kernel says that a process has ended |
//! | `frame`, `post` | what members say to each other, and how it gets there |
//! | `core` | what a member knows |
//! | `manage` | the task that reads and writes the register |
//! | `restore` | a durable cluster goes on from the disks of its machines |
//! | `member`, `view` | a running member, and what it shows |
//!
//! Promises:
//! - All views are of records that the register has had, in order. A view is shown when this machine's fabric has
//!   closed what was before its configuration. It is committed when all members have, and nobody who was removed gives
//!   out timestamps any more.
//! - A region that has a whole replica on a machine keeps one while processes that have one live, except those that
//!   the others could not hear for as long as a lease, while another had a whole one.
//! - A replica is whole when its engine has said so in the present configuration, and not before.
//!
//! What may never happen: a member that is called dead and lives. So only the operating system's word counts
//! ([`Life`]), and a next life of the same machine in the same directory.
//!
//! **How a process joins.** It writes itself into the record, and the master, which reads the record ten times a
//! second, lets it in. A process need find no member for that, and nothing is lost when the master dies. The number of
//! its machine is its own choice: two lives of one machine cannot own its memory at a time.
//!
//! **When the master dies**, its host's processes know it at once, because the kernel tells them. Others know it when
//! their leases end. The oldest member that lives asks who can be reached, and proposes to go on with them; the next
//! one begins 150 ms later. It needs half of those that are not dead, and a whole replica of everything. While the
//! register decides, clocks go on. They are disabled from then until the members have heard of the new time, and a
//! message brings them the record: on one host some milliseconds.
//!
//! **In a durable cluster** nobody goes on without a region that is on a disk, also if all machines that had it in
//! memory are dead. The members leave ([`Left::Restore`]), their processes start again, and one of those that have
//! returned with their disks proposes the next configuration, of new lives only (`restore`).
//!
//! What is not here: load does not move to machines that join (they get replicas that are missing); members whose
//! clocks drift are reported in the trace, and not removed; who waits and dies stays in the record until its machine
//! comes again.

mod change;
mod core;
mod deaths;
mod decide;
mod frame;
mod life;
mod manage;
mod member;
mod placement;
mod post;
mod record;
mod register;
mod restore;
mod view;

pub use frame::TAG;
pub use life::{Life, host_of};
pub use member::{Member, Options, create};
pub use placement::{NoRoom, Regions};
pub use plinth_farm_time::Restored;
pub use record::{
    Cluster, Disk, Place, REGIONS_MAX, REPLICATION_MAX, Record, Replica, Seat, ZONE_BYTES_MAX,
    is_lost, primary,
};
pub use register::{CoordinatedRegister, LocalRegister, Register};
pub use view::{Left, View};

#[cfg(test)]
mod tests;
