//! What can be wrong with sizes, places and what memories hold.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// Sizes that do not fit each other; the text says which, and what would.
    Sizes(&'static str),
    /// The memory holds no region, or a damaged one.
    NoRegion,
    /// The memory holds another region than the pointer is of.
    OtherRegion,
    /// No cell of the pointer's class begins at its word.
    NoCell,
    /// The slab has no cells at present.
    FreeSlab,
    /// The slab has cells of another class.
    OtherClass,
    /// An object is allocated there, or is being committed.
    InUse,
    /// Nobody has reserved the cell: it was given back before.
    NotReserved,
    /// The slab is not one that waits to be reused.
    NotLeaving,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Sizes(what) => what,
            Error::NoRegion => "the memory holds no region, or a damaged one",
            Error::OtherRegion => "the memory holds another region",
            Error::NoCell => "no object of this size begins at this place",
            Error::FreeSlab => "the slab is free",
            Error::OtherClass => "the slab has objects of another size",
            Error::InUse => "the object is still allocated, or is being committed",
            Error::NotReserved => "the object's place was given back before",
            Error::NotLeaving => "the slab does not wait to be reused",
        })
    }
}

impl std::error::Error for Error {}
