//! What a statement asks for.

use crate::proto;
use crate::request::{Condition, Operation};

#[derive(Clone, PartialEq, Debug)]
pub enum Statement {
    /// A change of schemas.
    Alter(Box<proto::Request>),
    /// As many as rows that are inserted.
    Operations(Vec<Operation>),
    /// The shell asks for pages until it has so many rows; all, if there is no limit.
    Select {
        query: Box<proto::Query>,
        limit: Option<u64>,
    },
    Begin,
    Require(Condition),
    Commit,
    Rollback,
    Tables,
    Describe(String),
    /// About a statement or something else; about all.
    Help(String),
    Exit,
}
