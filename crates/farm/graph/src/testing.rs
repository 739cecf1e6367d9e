//! Test support: a graph in plain maps, calls at random on a graph and on the model, and a judge of transactions.
//!
//! ```text
//!   choose ──▶ Call ─┬─ perform ─▶ graph ─▶ Answer ─┐
//!                    └─ Model::apply ─────▶ Answer ─┴─▶ equal?     at the write timestamps of committed transactions,
//!                                                                  and at the read timestamps of all
//! ```
//!
//! The schema of these graphs is fixed: two types of vertices with a number as primary key, two types of edges, an
//! index on `age` and a unique one on `mail`, which come and go.

mod choose;
mod judge;
mod model;
mod perform;

pub use choose::{Mood, some_call};
pub use judge::{Entry, judge};
pub use model::{
    AGE, Answer, Call, EDGE_TYPES, INDEXES, IndexState, MAIL, Model, ModelEdge, Name, Reach,
    Refusal, VERTEX_TYPES, Values,
};
pub use perform::{answered, declare, dump, perform, reached};
