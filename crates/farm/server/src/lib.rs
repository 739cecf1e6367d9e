//! The processes of the in-memory engine: what a machine is besides its memory, its membership and its
//! transactions.
//!
//! ```text
//!   requests of operators ──► status              a port: coordinator, if the cluster file names it, and status
//!                             coordinator ──────► DIR/coordination
//!   other hosts ────────────► fabric::serve       the next port
//!                                │
//!   processes of this host ──► Local              MEMORY-DIR/machine-N.memory
//!                                └── Node: membership and engine     (join)
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `plan` | what a new cluster is, and the memory of its machines |
//! | `machine` | a machine's number and memory on this host |
//! | `join`, `access` | a process becomes a member, with an engine; its transactions |
//! | `root` | where everything in a cluster is found |
//! | `process` | a server: from its start to its end |
//! | `pauses` | how long a process has stood still |
//! | `guest` | a member without data, for shells |
//! | `room` | whether processes have room for their memories in a cluster, before it is made |
//! | `messages`, `status` | what a process says of itself |
//! | `denial` | processes whose keys do not let them take part |
//! | `survey` | what is known of a whole cluster, and what it lacks |
//! | `metrics` | the page for Prometheus |
//!
//! Promises: a process that cannot go on ends with one line that names the problem, its place and a remedy. Its memory
//! is taken by no other process while it lives. If the cluster has keys, nobody without a server's key has an effect.
//! A process that was told to end leaves no memory behind.

mod access;
mod denial;
mod guest;
mod join;
mod machine;
mod messages;
mod metrics;
mod pauses;
mod plan;
mod process;
mod room;
pub mod root;
mod status;
mod survey;

pub use access::{Access, Counts};
pub use denial::{caller, unless_denied};
pub use guest::{Guest, GuestConfig, while_moving};
pub use join::Joined;
pub use machine::{Held, memory_directory};
pub use messages::{AskStatus, MachineStatus};
pub use plan::{Asked, Plan, RING_BYTES, check_backups, memory_socket, service_address};
pub use process::{Config, OWNER, Tell, Work, create, has_disk, serve};
pub use room::check_all as check_room;
pub use survey::{Seen, Survey, survey};
