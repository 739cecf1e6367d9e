//! TPC-C on the structures of the in-memory engine: nine tables, five transactions, a loader, and the
//! conditions that must hold (TPC Benchmark C, revision 5.11; "clause" refers to it).
//!
//! ```text
//!   load        fills the tables                 input          what terminals enter
//!   schema      where tables are                 transactions   what happens then
//!   rows        what a row has                   check          what holds at every snapshot
//! ```
//!
//! Everything is generic over `plinth_farm_memory::Objects`. Nothing reads a clock: the caller says what time it is.
//!
//! What differs from the benchmark: there are no terminals with keying and thinking times, and nothing is displayed.
//! Delivery is done at once, in one transaction for all districts (2.7.2 lets it be up to ten).

mod check;
mod choose;
mod field;
pub mod input;
pub mod load;
pub mod rows;
mod scale;
mod schema;
mod transactions;

pub use check::{check, check_loaded};
pub use field::{Row, Text};
pub use scale::Scale;
pub use schema::{District, Tpcc, Warehouse};
pub use transactions::{
    Ending, Placed, Status, carry_out, delivery, new_order, order_status, payment, stock_level,
};

#[cfg(test)]
mod tests;
