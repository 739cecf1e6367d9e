//! What a member shows to the parts of its process that follow the membership.

use crate::record::Record;
use plinth_core::texts;
use std::rc::Rc;

/// The membership, as this machine's fabric has it: everything before the configuration is closed here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// It has a configuration, and this process is a member of it.
    pub record: Rc<Record>,
    /// All members have closed what was before the configuration, and members that it has removed have stopped.
    pub is_committed: bool,
}

impl View {
    /// The number of the configuration.
    pub fn number(&self) -> u64 {
        self.record.number()
    }
}

texts! {
    /// Why the process is no member any more, and will not be one again: it must end. Its next life may join.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Left {
        /// A configuration without it was taken, or another life of its machine has come.
        Removed = "the cluster goes on without this process: start it again, and it joins as a new member";
        /// While it waited, or before, a process of another host has come with the number of this machine.
        Taken = "a process of another host has this number: choose another one with --number, or none";
        /// Its clock, or the master's, has broken its bounds.
        Broken = "a clock has drifted or jumped beyond its bounds: start the process again when the clock is right";
        /// Nothing can go on in memory: the process must start again from its disk, if it has one.
        Restore =
            "no whole replica of a region is left in memory: the cluster is restored from its disks when all have \
            returned";
        /// It cannot be a member of this cluster.
        Refused(why: String) = "{why}";
    }
}
