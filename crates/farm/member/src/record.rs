//! What the coordinators' register holds: the configuration, where its machines are, and which regions they have.
//!
//! Each change is a compare-and-swap on the revision, so a change of the configuration and one of the regions cannot
//! pass each other. Whoever reads it believes nothing that is not [sane](Record::is_sane).

use plinth_core::id::Uid;
use plinth_core::record;
use plinth_farm_fabric::MACHINES_MAX;
use plinth_farm_time::{self as time, Configuration, MemberId, Restored};
use std::net::SocketAddr;

/// Most regions of a cluster.
pub const REGIONS_MAX: u16 = 4096;
/// Most replicas of a region.
pub const REPLICATION_MAX: u8 = 8;
/// Most bytes of the name of a failure zone.
pub const ZONE_BYTES_MAX: usize = 64;
/// Timestamps are below.
pub(crate) const TIMESTAMP_END: u64 = 1 << 62;
/// A lease is shorter than this, so that sums of times stay far from the end of the numbers.
const LEASE_NS_MAX: u64 = 3_600_000_000_000;

record! {
    /// Chosen when the cluster is made, and never changed.
    #[derive(Eq)]
    pub struct Cluster {
        pub id: Uid,
        /// The first configuration is made when so many machines wait.
        pub first_machines: u16,
        pub regions: u16,
        /// Replicas of a region, the primary among them.
        pub replication: u8,
        /// Of a slot, and of the region in it.
        pub region_bytes: u64,
        pub slab_bytes: u64,
        /// Numbers of machines are below. A memory has so many rings.
        pub machines: u16,
        pub lease_ns: u64,
        pub sync_ns: u64,
        pub resend_ns: u64,
        /// The bounds of clocks: [`time::Bounds`].
        pub drift_ppm: u32,
        pub reading_ns: u64,
        /// Where time begins: [`time::Settings::origin`].
        pub origin: u64,
        /// Machines keep what they have on disks of their own. When no whole replica of a region is left in memory,
        /// the cluster waits, and is [restored](Restored) from them.
        pub is_durable: bool,
        /// Replicas of which a machine is not the primary are on its disk only. Then the cluster is durable.
        pub has_backups_on_disk: bool,
    }
}

impl Cluster {
    /// A small cluster with leases that two busy cores do not break.
    pub fn new(id: Uid, machines: u16, regions: u16, replication: u8) -> Cluster {
        let bounds = time::Bounds::default();
        Cluster {
            id,
            first_machines: u16::from(replication),
            regions,
            replication,
            region_bytes: 64 << 20,
            slab_bytes: 1 << 20,
            machines,
            lease_ns: 500_000_000,
            sync_ns: 50_000_000,
            resend_ns: 10_000_000,
            drift_ppm: bounds.drift_ppm,
            reading_ns: bounds.reading_ns,
            origin: 0,
            is_durable: false,
            has_backups_on_disk: false,
        }
    }

    pub fn time(&self) -> time::Settings {
        time::Settings {
            bounds: time::Bounds {
                drift_ppm: self.drift_ppm,
                reading_ns: self.reading_ns,
            },
            lease_ns: self.lease_ns,
            sync_ns: self.sync_ns,
            resend_ns: self.resend_ns,
            origin: self.origin,
        }
    }

    /// False for what no cluster can be made with.
    pub fn is_sane(&self) -> bool {
        (1..=REGIONS_MAX).contains(&self.regions)
            && (1..=REPLICATION_MAX).contains(&self.replication)
            && (1..=MACHINES_MAX).contains(&usize::from(self.machines))
            && (1..=self.machines).contains(&self.first_machines)
            && self.slab_bytes > 0
            && self.slab_bytes <= self.region_bytes
            && self.region_bytes <= 1 << 43
            && (1..=LEASE_NS_MAX).contains(&self.lease_ns)
            && (1..=self.lease_ns).contains(&self.sync_ns)
            && (1..=self.lease_ns).contains(&self.resend_ns)
            && self.drift_ppm < 1_000_000
            && (1..=self.lease_ns).contains(&self.reading_ns)
            && self.origin < u64::MAX / 2
            && (self.is_durable || !self.has_backups_on_disk)
    }
}

record! {
    /// Where a machine is.
    #[derive(Eq)]
    pub struct Place {
        /// Machines with the same number share the directory in which their memories lie, so they are on one host. The
        /// directory has the number ([`Life`](crate::Life)).
        pub host: u128,
        /// Where other hosts reach its memory.
        pub socket: Option<SocketAddr>,
        /// Machines of one zone may fail together. Empty: those of one host do.
        pub zone: String,
    }
}

impl Place {
    pub fn is_same_zone(&self, other: &Place) -> bool {
        match self.zone.is_empty() && other.zone.is_empty() {
            true => self.host == other.host,
            false => self.zone == other.zone,
        }
    }
}

record! {
    /// The data directory of a machine. One process holds it at a time, by a lock of the operating system. So a life
    /// that had it is over for sure when another one has it.
    #[derive(Copy, Eq)]
    pub struct Disk {
        /// Drawn at random when the directory is made.
        pub id: Uid,
        /// The greatest timestamp of a write on it when its process began; 0 if there is none.
        pub newest: u64,
    }

    /// A machine with its process: a member, or one that waits.
    #[derive(Eq)]
    pub struct Seat {
        pub machine: u16,
        /// One life of its process.
        pub id: MemberId,
        pub place: Place,
        /// How many regions its memory has room for.
        pub slots: u16,
        /// In a durable cluster, each seat with slots has one, and no other.
        pub disk: Option<Disk>,
    }
}

impl Seat {
    /// Both have the same data directory: at most one of the two lives goes on.
    pub fn has_disk_of(&self, other: &Seat) -> bool {
        let id = |seat: &Seat| seat.disk.map(|disk| disk.id);
        id(self).is_some() && id(self) == id(other)
    }

    /// The other is a process of another host, which has the same number and is no life of the same machine.
    pub fn is_elsewhere(&self, other: &Seat) -> bool {
        let is_namesake = other.machine == self.machine && other.place.host != self.place.host;
        is_namesake && !self.has_disk_of(other)
    }
}

record! {
    /// A copy of a region in a slot of a machine.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    pub struct Replica {
        pub machine: u16,
        pub slot: u16,
        /// It has all that the region has. Until then it takes part in commits, and copies the rest.
        pub is_whole: bool,
    }
}

/// The first whole replica.
pub fn primary(region: &[Replica]) -> Option<Replica> {
    region.iter().find(|replica| replica.is_whole).copied()
}

/// No whole replica is left.
pub fn is_lost(region: &[Replica]) -> bool {
    primary(region).is_none()
}

record! {
    #[derive(Eq)]
    pub struct Record {
        pub cluster: Cluster,
        /// 1 for the first, and one more with each change.
        pub revision: u64,
        /// `None` until enough machines wait.
        pub configuration: Option<Configuration>,
        /// The members, in the order of their machines.
        pub machines: Vec<Seat>,
        /// Those that want to be members, in the order of their machines. One may have the machine of a member that is
        /// dead.
        pub waiting: Vec<Seat>,
        /// Of each region, its replicas. The first whole one is the primary.
        pub regions: Vec<Vec<Replica>>,
        /// The last time that the cluster was restored from the disks of its machines; `None` if it never was. Its
        /// origin is above each write on the disks of all that were.
        pub restored: Option<Restored>,
    }
}

fn is_in_order(seats: &[Seat]) -> bool {
    seats.windows(2).all(|two| two[0].machine < two[1].machine)
}

fn have_disks_of_their_own(seats: &[Seat]) -> bool {
    let disks = seats.iter().filter_map(|seat| seat.disk);
    let mut ids: Vec<Uid> = disks.map(|disk| disk.id).collect();
    ids.sort_unstable();
    ids.windows(2).all(|two| two[0] != two[1])
}

impl Record {
    /// The first record of a cluster.
    pub fn of_new(cluster: Cluster) -> Record {
        Record {
            cluster,
            revision: 1,
            configuration: None,
            machines: Vec::new(),
            waiting: Vec::new(),
            regions: Vec::new(),
            restored: None,
        }
    }

    /// The number of the configuration; 0 before the first.
    pub fn number(&self) -> u64 {
        self.configuration.as_ref().map_or(0, |c| c.number)
    }

    pub fn seat(&self, machine: u16) -> Option<&Seat> {
        let at = self.machines.binary_search_by_key(&machine, |s| s.machine);
        at.ok().map(|at| &self.machines[at])
    }

    pub fn seat_of(&self, id: MemberId) -> Option<&Seat> {
        self.machines.iter().find(|seat| seat.id == id)
    }

    /// Another host has a process with the number of this one.
    pub fn has_elsewhere(&self, seat: &Seat) -> bool {
        let mut all = self.machines.iter().chain(&self.waiting);
        all.any(|other| seat.is_elsewhere(other))
    }

    /// The member that has this data directory, or had it in the life that is a member.
    pub fn seat_on(&self, disk: Uid) -> Option<&Seat> {
        let has = |seat: &&Seat| seat.disk.is_some_and(|d| d.id == disk);
        self.machines.iter().find(has)
    }

    /// The member whose next life waits in this seat, with all that is on its disk: that member's own life is over.
    pub fn returns_as(&self, waiting: &Seat) -> Option<&Seat> {
        let former = self.seat(waiting.machine)?;
        (former.has_disk_of(waiting) && waiting.slots >= former.slots).then_some(former)
    }

    /// Those of the waiting that are next lives of members, with what is on their disks.
    pub fn returned(&self) -> impl Iterator<Item = &Seat> {
        let waiting = self.waiting.iter();
        waiting.filter(|seat| self.returns_as(seat).is_some())
    }

    /// The configuration manager, which is also the clock master.
    pub fn master(&self) -> Option<&Seat> {
        self.seat_of(self.configuration.as_ref()?.master)
    }

    pub fn is_waiting(&self, id: MemberId) -> bool {
        self.waiting.iter().any(|seat| seat.id == id)
    }

    /// The primary of a region; `None` if the region is lost, or not placed yet.
    pub fn primary(&self, region: u16) -> Option<Replica> {
        primary(self.regions.get(usize::from(region))?)
    }

    /// Regions of which no whole replica is left.
    pub fn lost(&self) -> impl Iterator<Item = u16> {
        let regions = self.regions.iter().zip(0..);
        regions.filter_map(|(replicas, region)| is_lost(replicas).then_some(region))
    }

    /// False for what no member writes.
    pub fn is_sane(&self) -> bool {
        let machines = self.cluster.machines;
        let is_durable = self.cluster.is_durable;
        let is_seat = |seat: &Seat| {
            seat.machine < machines
                && seat.disk.is_some() == (is_durable && seat.slots > 0)
                && seat.disk.is_none_or(|disk| disk.newest < TIMESTAMP_END)
                && seat.place.zone.len() <= ZONE_BYTES_MAX
                && seat.slots <= REGIONS_MAX
        };
        let are_seats = |seats: &[Seat]| {
            is_in_order(seats) && seats.iter().all(is_seat) && have_disks_of_their_own(seats)
        };
        let is_restored = |restored: Restored| {
            is_durable
                && (2..=self.number()).contains(&restored.number)
                && restored.origin < u64::MAX / 2
        };
        self.cluster.is_sane()
            && (1..u64::MAX).contains(&self.revision)
            && are_seats(&self.machines)
            && are_seats(&self.waiting)
            && self.has_sane_members()
            && self.has_sane_regions()
            && self.restored.is_none_or(is_restored)
    }

    fn has_sane_members(&self) -> bool {
        let Some(configuration) = &self.configuration else {
            return self.machines.is_empty() && self.regions.is_empty();
        };
        let mut ids: Vec<MemberId> = self.machines.iter().map(|seat| seat.id).collect();
        ids.sort_unstable();
        let waits = |id: &MemberId| self.is_waiting(*id);
        configuration.is_sane()
            && ids.iter().eq(configuration.members.iter().map(|m| &m.id))
            && !ids.iter().any(waits)
    }

    /// Every replica has a slot of its own on a member.
    fn has_sane_regions(&self) -> bool {
        let placed = match self.configuration {
            Some(_) => usize::from(self.cluster.regions),
            None => 0,
        };
        if self.regions.len() != placed {
            return false;
        }
        let mut slots: Vec<(u16, u16)> = Vec::new();
        for replicas in &self.regions {
            if replicas.len() > usize::from(self.cluster.replication) {
                return false;
            }
            for (at, replica) in replicas.iter().enumerate() {
                let is_there = |r: &Replica| r.machine == replica.machine;
                let seat = self.seat(replica.machine);
                if seat.is_none_or(|seat| replica.slot >= seat.slots)
                    || replicas[..at].iter().any(is_there)
                {
                    return false;
                }
                slots.push((replica.machine, replica.slot));
            }
        }
        slots.sort_unstable();
        slots.windows(2).all(|two| two[0] != two[1])
    }
}
