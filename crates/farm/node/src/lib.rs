//! A machine of the in-memory engine: its membership and its engine, joined. Each configuration that the
//! membership shows ends the engine's former one, and is recovered by it (docs/decisions/0013-farm-on-fences.md).
//!
//! ```text
//!   member ── closing ──▶ engine: transactions here stop
//!     │ fabric: what was before is closed
//!     └────── view ─────▶ engine: drains, recovers, opens ── whole, trouble ──▶ member
//! ```
//!
//! Promises: a transaction that began in one configuration goes on in the next, or ends with an error. One that was
//! committing is told what became of it, as long as this process stays a member. What was reported as committed is in
//! all whole replicas of its regions, whoever fails.
//! What may never happen: the engine works in a configuration that the fabric has closed.

mod configuration;
pub mod disk;
mod links;
mod node;

pub use configuration::of as configuration_of;
pub use node::{Node, Options, sizes};
