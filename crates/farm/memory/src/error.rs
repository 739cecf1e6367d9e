//! What can be wrong with sizes, places and what memories hold.

use plinth_core::texts;

texts! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Error {
        /// Sizes that do not fit each other; the text says which, and what would.
        Sizes(what: &'static str) = "{what}";
        /// The memory holds no region, or a damaged one.
        NoRegion = "the memory holds no region, or a damaged one";
        /// The memory holds another region than the pointer is of.
        OtherRegion = "the memory holds another region";
        /// No cell of the pointer's class begins at its word.
        NoCell = "no object of this size begins at this place";
        /// The slab has no cells at present.
        FreeSlab = "the slab is free";
        /// The slab has cells of another class.
        OtherClass = "the slab has objects of another size";
        /// An object is allocated there, or is being committed.
        InUse = "the object is still allocated, or is being committed";
        /// Nobody has reserved the cell: it was given back before.
        NotReserved = "the object's place was given back before";
        /// The slab is not one that waits to be reused.
        NotLeaving = "the slab does not wait to be reused";
    }
}

impl std::error::Error for Error {}
