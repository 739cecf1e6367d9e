//! What operators ask a process, and what it says of itself.

use plinth_core::{Uid, record};
use plinth_farm_member::Cluster;
use plinth_rpc::{Interface, requests};
use std::net::SocketAddr;

/// Role id at which every process serves: others know it by its address alone.
const PROCESS: Uid = Uid(0x6661_726d_0070_726f_6365_7373_0000_0001);

/// The process at an address.
pub fn process(address: SocketAddr) -> Interface {
    Interface::new(address, PROCESS)
}

record! {
    pub struct AskStatus {}

    /// A process, as it sees itself.
    #[derive(Default)]
    pub struct MachineStatus {
        /// The key of its cluster file.
        pub cluster: String,
        pub release: String,
        /// Its number; `None` before it has one.
        pub machine: Option<u16>,
        /// What it waits for. Empty: it is a member, and nothing is missing here.
        pub waits_for: String,
        /// The configuration that it is in; 0 before the first.
        pub number: u64,
        pub is_master: bool,
        /// How far the time is known, in nanoseconds; `None` while it may not be used.
        pub uncertainty_ns: Option<u64>,
        /// Regions of which it is the primary, a backup, or whose replica here is not whole.
        pub primaries: u64,
        pub backups: u64,
        pub lacking: u64,
        /// Its transactions since the process began.
        pub committed: u64,
        pub aborted: u64,
        /// Bytes of memory that it takes; of the regions of which it is the primary; of these, in slabs that nothing
        /// uses.
        pub memory_bytes: u64,
        pub region_bytes: u64,
        pub free_bytes: u64,
        /// Blocks of old versions.
        pub old_blocks: u64,
        pub old_blocks_free: u64,
        /// How far the safe point is behind the time, in nanoseconds; `None` while either is not known.
        pub safe_point_age_ns: Option<u64>,
        /// Commits wait for room on its disk.
        pub is_disk_full: bool,
        /// Objects of regions of which it is the primary are on its disk, and not in its memory yet.
        pub is_loading: bool,
        /// Which life of its machine it is; `None` before it has a number.
        pub life: Option<Uid>,
    }

    /// Before a cluster is made: whether the process has room for its memory in it.
    pub struct AskRoom {
        pub cluster: Cluster,
    }

    pub struct Room {
        /// Of its memory, which it may share with other processes of its host.
        pub directory: String,
        pub needed_bytes: u64,
        pub free_bytes: u64,
    }
}

requests! {
    AskStatus = 140 for Readers => MachineStatus;
    AskRoom = 141 for Readers => Room;
}

pub const ROLE: Uid = PROCESS;
