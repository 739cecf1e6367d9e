//! What a walk over a whole structure finds.

use plinth_farm_memory::Pointer;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Every object that the structure has, the root object first.
    pub objects: Vec<Pointer>,
    pub entries: usize,
    /// Of the objects, those that hold a long value.
    pub values: usize,
    /// Levels of nodes of a tree.
    pub levels: u8,
    /// Of the objects, those that hold entries of full buckets of a table.
    pub overflow: usize,
}
