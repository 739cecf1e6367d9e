//! Figures about a process and its machine.

use std::time::Duration;

/// Totals since the process or the machine started, and present sizes. What the system does not say is zero.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Usage {
    /// Processor time of this process.
    pub process_cpu: Duration,
    /// Memory of this process: what it has in the machine's memory, what it has addressed, and how much it may.
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub limit_bytes: u64,
    /// Memory of the machine, and how much of it could be had without swapping.
    pub memory_bytes: u64,
    pub memory_available_bytes: u64,
    /// Processor time of the machine, summed over its cores: the busy part, and all of it.
    pub machine_busy: Duration,
    pub machine_time: Duration,
    /// Bytes that went through the machine's network interfaces, without those that stayed on the machine.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// TCP segments that the machine has sent again.
    pub retransmitted_segments: u64,
    /// The device that holds the directory.
    pub disk: DiskUsage,
    pub connections: Connections,
}

/// What a device has done since the machine started. A sector has 512 bytes.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct DiskUsage {
    pub reads: u64,
    pub sectors_read: u64,
    pub writes: u64,
    pub sectors_written: u64,
    /// Time in which it had something to do.
    pub busy: Duration,
}

/// TCP connections of this process since it started, and their bytes.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Connections {
    pub established: u64,
    pub closed: u64,
    /// Attempts to connect that failed, and connections that broke.
    pub errors: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}
