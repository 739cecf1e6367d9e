//! The kinds of fault, and how often each strikes.

/// Each kind: its weight in a [`FaultMix`], the usual one, and its [`Fault`].
macro_rules! kinds {
    ($($(#[$about:meta])* $weight:ident: $usual:literal => $fault:ident,)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Fault {
            $($(#[$about])* $fault,)*
        }

        /// Weights of the kinds of fault: how often each strikes, relative to the others.
        #[derive(Clone, Copy, Debug)]
        pub struct FaultMix {
            $(pub $weight: u32,)*
        }

        impl FaultMix {
            pub const ALL: FaultMix = FaultMix { $($weight: $usual,)* };
            pub const NONE: FaultMix = FaultMix { $($weight: 0,)* };

            pub fn weights(&self) -> impl Iterator<Item = (Fault, u32)> {
                [$((Fault::$fault, self.$weight)),*].into_iter()
            }

            pub fn weights_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut u32)> {
                [$((stringify!($weight), &mut self.$weight)),*].into_iter()
            }
        }
    };
}

kinds! {
    kill_process: 6 => KillProcess,
    power_cut: 5 => PowerCut,
    power_cut_all: 2 => PowerCutAll,
    partition: 4 => Partition,
    clog: 4 => Clog,
    cut_connections: 4 => CutConnections,
    pause_process: 2 => PauseProcess,
    /// A long turn of its event loop: the process lives, but sends nothing.
    busy_process: 2 => BusyProcess,
    disk_full: 2 => DiskFull,
    slow_disk: 2 => SlowDisk,
    kill_role: 5 => KillRole,
    clock_drift: 1 => ClockDrift,
    /// A wall clock jumps by days. At the start, too, each is set wrong by a random time, or right.
    wall_clock: 1 => WallClock,
    /// A machine stops for a while with all its processes; its clocks have jumped when it continues.
    suspend: 1 => Suspend,
    /// All machines of a rack lose power at once.
    power_cut_rack: 2 => PowerCutRack,
    /// Machines are cut off one after the other, and reconnected in another order (FDB §4).
    swizzle: 2 => Swizzle,
    /// A machine is lost for good with its disk; only where that loses no data.
    lose_machine: 2 => LoseMachine,
    /// Bits flip in files of a machine's storage and log servers; only where the whole machine could be lost.
    bit_rot: 2 => BitRot,
    /// For a while some reads, writes and syncs of a disk fail.
    disk_errors: 2 => DiskErrors,
    /// For a while nothing can be written to a disk.
    read_only_disk: 1 => ReadOnlyDisk,
    /// For a while the syncs of a disk, or all its operations, do not return.
    hung_disk: 2 => HungDisk,
    /// One of the three disk faults above for good, without healing at the end; only where the whole machine could
    /// be lost.
    sick_disk: 2 => SickDisk,
    /// For a while the syncs of a disk make nothing durable; then its machine loses power. Like the next two, only
    /// where the whole machine could be lost.
    lying_sync: 1 => LyingSync,
    /// A write is lost but reported as done; then its machine loses power.
    lost_write: 1 => LostWrite,
    /// A write lands at another place but is reported as done; then its machine loses power.
    misdirected_write: 1 => MisdirectedWrite,
}

impl Fault {
    /// A disk says that it has done what it has not.
    pub fn is_lie(self) -> bool {
        matches!(
            self,
            Fault::LyingSync | Fault::LostWrite | Fault::MisdirectedWrite
        )
    }
}

impl FaultMix {
    /// Names of the kinds with a positive weight.
    pub fn kinds(mut self) -> Vec<String> {
        let strike = self.weights_mut().filter(|(_, weight)| **weight > 0);
        strike.map(|(name, _)| name.to_owned()).collect()
    }

    pub fn keep_only(&mut self, kinds: &[String]) {
        for (name, weight) in self.weights_mut() {
            if !kinds.iter().any(|kind| kind == name) {
                *weight = 0;
            }
        }
    }

    pub fn leave_out(&mut self, kind: &str) {
        for (name, weight) in self.weights_mut() {
            if name == kind {
                *weight = 0;
            }
        }
    }

    pub fn is_empty(self) -> bool {
        self.kinds().is_empty()
    }
}
