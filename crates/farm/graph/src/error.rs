//! Why an operation on a graph fails.

use plinth_farm_memory::{Abort, Pointer};
use plinth_farm_structures as structures;
use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The transaction is over, or memory is damaged, or a value has no room.
    Structure(structures::Error),
    /// The schema has no such thing. `what` is a kind of thing, as "vertex type".
    Unknown { what: &'static str, name: String },
    /// The schema has such a thing already.
    Taken { what: &'static str, name: String },
    /// A value does not fit the property of this name.
    Property { name: String, why: &'static str },
    /// Another vertex of the type has this primary key.
    KeyTaken,
    /// Another vertex has this value in a unique index.
    NotUnique { index: String },
    /// The index is being built or dropped.
    NotReady { index: String },
    /// There is no such vertex at the snapshot.
    NoVertex,
    /// There is no such edge at the snapshot.
    NoEdge,
    /// A vertex has more edges than one transaction deletes with it.
    TooManyEdges { most: usize },
    /// More of something than is allowed.
    TooMany { what: &'static str, most: usize },
    /// Another machine has refused its part of a query.
    Elsewhere { machine: u16, what: String },
    /// Another machine does not answer. The query may be tried again.
    Gone { machine: u16 },
    /// Another machine gives no transaction at this snapshot: it has not heard yet which ones are in use, or this one
    /// is not any more. The query may be tried again, in another transaction.
    Behind { machine: u16 },
    /// Bytes from outside that are not what they should be.
    Malformed(&'static str),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The same transaction may succeed if it is tried again, and has had no effect.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Structure(error) => error.is_retryable(),
            Error::Gone { .. } | Error::Behind { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn unknown(what: &'static str, name: &str) -> Error {
        let name = name.to_owned();
        Error::Unknown { what, name }
    }

    pub(crate) fn property(name: &str, why: &'static str) -> Error {
        let name = name.to_owned();
        Error::Property { name, why }
    }
}

impl From<structures::Error> for Error {
    fn from(error: structures::Error) -> Self {
        Error::Structure(error)
    }
}

impl From<Abort> for Error {
    fn from(abort: Abort) -> Self {
        Error::Structure(abort.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Structure(error) => error.fmt(f),
            Error::Unknown { what, name } => write!(f, "there is no {what} {name:?}"),
            Error::Taken { what, name } => write!(f, "there is a {what} {name:?} already"),
            Error::Property { name, why } => write!(f, "property {name:?}: {why}"),
            Error::KeyTaken => f.write_str("another vertex has this primary key"),
            Error::NotUnique { index } => {
                write!(
                    f,
                    "another vertex has this value in the unique index {index:?}"
                )
            }
            Error::NotReady { index } => write!(f, "the index {index:?} is built or dropped"),
            Error::NoVertex => f.write_str("there is no such vertex"),
            Error::NoEdge => f.write_str("there is no such edge"),
            Error::TooManyEdges { most } => write!(
                f,
                "the vertex has more edges than the {most} that go with it in one transaction: first delete \
                 edges with delete_some_edges, in transactions of their own, until it returns fewer than its limit"
            ),
            Error::TooMany { what, most } => write!(f, "more {what} than the limit of {most}"),
            Error::Elsewhere { machine, what } => write!(f, "machine {machine}: {what}"),
            Error::Gone { machine } => write!(f, "machine {machine} does not answer"),
            Error::Behind { machine } => {
                write!(f, "machine {machine} does not read at this snapshot")
            }
            Error::Malformed(what) => write!(f, "malformed bytes: {what}"),
        }
    }
}

impl std::error::Error for Error {}

pub(crate) fn damaged<T>(at: Pointer, what: &'static str) -> Result<T> {
    Err(structures::Error::Damaged { at, what }.into())
}
