//! Numbers of simulated machines and processes.

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct MachineId(pub u32);

/// Identifies a process. It stays the same over all restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ProcessId(pub u32);

impl ProcessId {
    /// The code that drives the simulation.
    pub const TESTER: ProcessId = ProcessId(0);
}

impl MachineId {
    /// The machine of the code that drives the simulation.
    pub const TESTER: MachineId = MachineId(0);
}
