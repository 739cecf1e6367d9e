//! Tables on a replicated log (DelosTable, §4.1 of *Log-structured Protocols in Delos*): typed columns, primary and
//! secondary indexes, transactions of many rows with conditions, queries, changes of schemas while it serves.
//!
//! ```text
//!   backend        a server's half: requests are checked, proposed or read        (backend.rs)
//!   serving        the same in the process of a replica, for gateways              (serving.rs)
//!   ─────────────────────────────────────────────────────────────────────
//!   tables         the application of a stack: a request changes rows, or nothing  (application.rs)
//!   transaction    conditions, then operations     alter     changes of schemas
//!   query          pages of rows of a snapshot     scan, plan     the way to the rows
//!   rows           rows with their entries in indexes     work     what is done in steps
//!   language       the shell's statements
//!   schema, keys   what is stored                  request, filter, value     what is asked
//! ```
//! The contract is `proto/table.proto`. Requests are checked before they are proposed, and written anew from what was
//! understood: what is in the log, all replicas understand alike. The first byte of an entry is the version of that
//! understanding; a replica that meets a later one stops.
//!
//! Rows are checked against unique indexes one after the other, in the order of the operations.

/// The error of a request that is refused: a code, and a line for people.
macro_rules! refuse {
    ($code:ident, $($why:tt)+) => {
        $crate::refuse($crate::Code::$code, format_args!($($why)+))
    };
}

pub mod alter;
pub mod application;
pub mod backend;
pub mod filter;
mod keys;
pub mod language;
#[macro_use]
mod message;
mod plan;
#[rustfmt::skip] // it is written by the test `generated`
pub mod proto;
pub mod query;
pub mod request;
mod rows;
mod scan;
pub mod schema;
#[cfg(feature = "grpc")]
pub mod service;
pub mod serving;
#[cfg(test)]
mod tests;
mod transaction;
pub mod value;
mod work;

pub use serving::KIND;

use plinth_core::Error;
use plinth_core::words;
use plinth_delos::stack::Failure;

/// What may be asked for and stored.
pub mod limits {
    pub const TABLES: usize = 1000;
    /// Of a table.
    pub const COLUMNS: usize = 100;
    pub const KEY_COLUMNS: usize = 8;
    pub const INDEXES: usize = 20;
    pub const NAME_BYTES: usize = 100;
    /// Of a row's values, packed.
    pub const ROW_BYTES: usize = 256 << 10;
    /// Of a row's primary key, packed, and of what an index adds to it.
    pub const KEY_BYTES: usize = 2000;
    pub const INDEX_BYTES: usize = 4000;
    pub const REQUEST_BYTES: usize = 4 << 20;
    pub const CONDITIONS: usize = 1000;
    pub const OPERATIONS: usize = 1000;
    pub const FILTER_NODES: usize = 1000;
    /// Rows that one transaction changes, those that its filters look at, and bytes that it writes.
    pub const ROWS_CHANGED: usize = 10_000;
    pub const ROWS_SEARCHED: usize = 100_000;
    pub const BYTES_WRITTEN: usize = 16 << 20;
    /// Of a page.
    pub const PAGE_ROWS: usize = 1000;
    pub const PAGE_BYTES: usize = 1 << 20;
    /// Rows that a page in the order of an index looks at before it ends, maybe with no row at all.
    pub const ROWS_SCANNED: usize = 20_000;
    /// Rows that a query looks at if it has to sort them.
    pub const ROWS_SORTED: usize = 200_000;
}

/// Why a request is refused. All replicas refuse it alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// A word that programs look at.
    pub code: Code,
    /// A line for people.
    pub why: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.why)
    }
}

words! {
    /// Kinds of refusals.
    pub enum Code {
        /// The request makes no sense: an unknown column, a value of another kind.
        BadRequest = "bad_request",
        ConditionFailed = "condition_failed",
        /// A table, an index or a column is there already.
        Exists = "exists",
        /// A table or an index is not there.
        Unknown = "unknown",
        RowExists = "row_exists",
        RowNotFound = "row_not_found",
        /// Two rows would have the same values in a unique index.
        Duplicate = "duplicate",
        /// A limit.
        TooLarge = "too_large",
    }
}

type Result<T, E = Error> = std::result::Result<T, E>;

fn refuse<T, E: From<Refused>>(code: Code, why: std::fmt::Arguments<'_>) -> Result<T, E> {
    let why = why.to_string();
    Err(E::from(Refused { code, why }))
}

/// What ends a request: a refusal, or a failure of this replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    Refused(Refused),
    Failed(Error),
}

impl From<Refused> for Ended {
    fn from(refused: Refused) -> Self {
        Ended::Refused(refused)
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Ended::Failed(error)
    }
}

impl From<Ended> for Failure<Refused> {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Refused(refused) => Failure::Refused(refused),
            Ended::Failed(error) => Failure::Stop(error),
        }
    }
}
