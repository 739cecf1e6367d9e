//! Why an operation on a graph fails.

use plinth_core::texts;
use plinth_farm_memory::{Abort, Pointer};
use plinth_farm_structures as structures;

texts! {
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Error {
        /// The transaction is over, or memory is damaged, or a value has no room.
        Structure(error: structures::Error) = "{error}";
        /// The schema has no such thing. `what` is a kind of thing, as "vertex type".
        Unknown { what: &'static str, name: String } = "there is no {what} {name:?}";
        /// The schema has such a thing already.
        Taken { what: &'static str, name: String } = "there is a {what} {name:?} already";
        /// A value does not fit the property of this name.
        Property { name: String, why: &'static str } = "property {name:?}: {why}";
        /// Another vertex of the type has this primary key.
        KeyTaken = "another vertex has this primary key";
        /// Another vertex has this value in a unique index.
        NotUnique { index: String } = "another vertex has this value in the unique index {index:?}";
        /// The index is being built or dropped.
        NotReady { index: String } = "the index {index:?} is built or dropped";
        /// There is no such vertex at the snapshot.
        NoVertex = "there is no such vertex";
        /// There is no such edge at the snapshot.
        NoEdge = "there is no such edge";
        /// A vertex has more edges than one transaction deletes with it.
        TooManyEdges { most: usize } =
            "the vertex has more edges than the {most} that go with it in one transaction: first delete edges with \
            delete_some_edges, in transactions of their own, until it returns fewer than its limit";
        /// More of something than is allowed.
        TooMany { what: &'static str, most: usize } = "more {what} than the limit of {most}";
        /// Another machine has refused its part of a query.
        Elsewhere { machine: u16, what: String } = "machine {machine}: {what}";
        /// Another machine does not answer. The query may be tried again.
        Gone { machine: u16 } = "machine {machine} does not answer";
        /// Another machine gives no transaction at this snapshot: it has not heard yet which ones are in use, or this
        /// one is not any more. The query may be tried again, in another transaction.
        Behind { machine: u16 } = "machine {machine} does not read at this snapshot";
        /// Bytes from outside that are not what they should be.
        Malformed(what: &'static str) = "malformed bytes: {what}";
    }
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

    pub(crate) fn taken(what: &'static str, name: &str) -> Error {
        let name = name.to_owned();
        Error::Taken { what, name }
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

impl std::error::Error for Error {}

/// Refuses more of something than is allowed.
pub(crate) fn at_most(what: &'static str, count: usize, most: usize) -> Result<()> {
    match count <= most {
        true => Ok(()),
        false => Err(Error::TooMany { what, most }),
    }
}

pub(crate) fn damaged(at: Pointer, what: &'static str) -> Error {
    structures::damaged(at, what).into()
}
