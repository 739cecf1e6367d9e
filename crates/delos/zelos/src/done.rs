//! What the execution of an entry hands to the gateway of a replica.

use crate::entry::Head;
use crate::view::ZXIDS;
use plinth_core::Version;
use plinth_delos::log::LogPos;
use plinth_keeper::tree::change::Change;
use plinth_keeper::tree::execute::Executed;
use plinth_keeper::tree::quota::Exceeded;
use plinth_keeper::wire::Text;

/// See the module.
pub struct Done {
    pub head: Head,
    pub pos: LogPos,
    /// Of the first operation, among all of its position.
    pub place: u16,
    pub executed: Vec<Executed>,
    /// With the number of the operation that made each.
    pub changes: Vec<(u16, Change)>,
    pub exceeded: Vec<(Exceeded, Text)>,
}

impl Done {
    pub fn version(&self) -> Version {
        self.pos as Version
    }

    /// The zxid of an operation.
    pub fn zxid(&self, piece: u16) -> i64 {
        ZXIDS.of(self.version(), self.place, piece)
    }
}
