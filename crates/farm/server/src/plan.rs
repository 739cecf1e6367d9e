//! What a new cluster is, and what follows from it for the memory of each machine. Pure.

use plinth_core::Uid;
use plinth_farm_fabric::{Layout, MACHINES_MAX};
use plinth_farm_member::{Cluster, REGIONS_MAX, REPLICATION_MAX};
use plinth_farm_memory::Sizes;
use std::net::SocketAddr;

const MIB_BYTES: u64 = 1 << 20;
const WORD_BYTES: u64 = 8;
/// Of a ring between two machines: 512 KiB. It bounds the bytes of a transaction.
const RING_WORDS: u64 = 1 << 16;
/// A transaction writes less than that to one machine.
pub const RING_BYTES: u64 = 8 * RING_WORDS;
/// Members look around four times in so long. An idle process shall cost little.
const RESEND_NS: u64 = 20_000_000;
/// The most that a memory can number, less the region of old versions.
const SLOTS_MAX: u32 = 1022;

/// What is chosen when a cluster is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The cluster begins when so many machines wait.
    pub machines: u16,
    pub regions: u16,
    /// Of a region, the primary among them.
    pub replication: u8,
    pub region_mib: u64,
    /// How many machines, with shells, can be members at a time.
    pub machines_max: u16,
    /// Commits are on the disks of all replicas before they are acknowledged.
    pub is_durable: bool,
    /// Replicas of which a machine is not the primary are on its disk only.
    pub has_backups_on_disk: bool,
}

/// Errors: a line for the user.
pub fn check_backups(is_durable: bool, are_on_disk: bool) -> Result<(), String> {
    match are_on_disk && !is_durable {
        true => Err("--backups disk: only a durable cluster has disks; add --durable".into()),
        false => Ok(()),
    }
}

impl Plan {
    /// Errors: why no cluster can be made of it, a line for the user.
    pub fn check(&self) -> Result<(), String> {
        self.cluster(Uid::default()).map(drop)
    }

    /// Errors: a line for the user.
    pub fn cluster(&self, id: Uid) -> Result<Cluster, String> {
        let Plan {
            machines,
            regions,
            replication,
            ..
        } = *self;
        if !(1..=REPLICATION_MAX).contains(&replication) || u16::from(replication) > machines {
            return Err(format!(
                "{replication} replicas of a region need as many machines, and there may be 1 to {REPLICATION_MAX}"
            ));
        }
        if !(1..=REGIONS_MAX).contains(&regions) {
            return Err(format!("a cluster has 1 to {REGIONS_MAX} regions"));
        }
        let may_be = usize::from(self.machines_max) <= MACHINES_MAX;
        if !may_be || machines > self.machines_max {
            return Err(format!(
                "there are numbers for 1 to {MACHINES_MAX} machines, and at least for those of the beginning"
            ));
        }
        check_backups(self.is_durable, self.has_backups_on_disk)?;
        let cluster = Cluster {
            first_machines: machines,
            region_bytes: self.region_mib.saturating_mul(MIB_BYTES),
            resend_ns: RESEND_NS,
            is_durable: self.is_durable,
            has_backups_on_disk: self.has_backups_on_disk,
            ..Cluster::new(id, self.machines_max, regions, replication)
        };
        let slots = needed_slots(&cluster);
        if slots > SLOTS_MAX {
            return Err(format!(
                "each machine would have {slots} replicas, and it can have {SLOTS_MAX}: choose fewer regions, or \
                 more machines"
            ));
        }
        let checked = sizes(&cluster, 0).check();
        checked.map_err(|error| format!("--region-mib {}: {error}", self.region_mib))?;
        match cluster.is_sane() {
            true => Ok(cluster),
            false => Err("no cluster can be made with these numbers".into()),
        }
    }
}

/// Slots for the regions of a cluster with one machine less than at its beginning, so that the others can have the
/// replicas of one that dies.
fn needed_slots(cluster: &Cluster) -> u32 {
    let replicas = u32::from(cluster.regions) * u32::from(cluster.replication);
    let others = u32::from(cluster.first_machines).saturating_sub(1).max(1);
    replicas.div_ceil(others).min(u32::from(cluster.regions))
}

/// How many replicas a machine has room for. All machines of a cluster have the same number, so that each knows where
/// the others' old versions are.
pub fn slots(cluster: &Cluster) -> u16 {
    needed_slots(cluster).min(SLOTS_MAX) as u16
}

/// Sizes of a machine's memory, as the engine has to know them.
pub fn sizes(cluster: &Cluster, old_mib: u64) -> Sizes {
    Sizes {
        slab_words: cluster.slab_bytes / WORD_BYTES,
        ..Sizes::new(
            slots(cluster),
            cluster.region_bytes / WORD_BYTES,
            old_mib.saturating_mul(MIB_BYTES / WORD_BYTES),
        )
    }
}

/// The memory of a machine: all of its slots, or none of their room if it has no data.
pub fn layout(cluster: &Cluster, sizes: &Sizes, has_data: bool) -> Layout {
    let mut region_words = sizes.region_words();
    if !has_data {
        region_words.fill(0);
    }
    Layout {
        machines: usize::from(cluster.machines),
        ring_words: RING_WORDS,
        region_words,
    }
}

/// The first so many regions of that memory are slots that take room only while something is in them.
pub fn sparse(cluster: &Cluster, sizes: &Sizes, has_data: bool) -> usize {
    match cluster.has_backups_on_disk && has_data {
        true => usize::from(sizes.slots),
        false => 0,
    }
}

/// Bytes of a memory that take room while the machine leads so many regions.
pub fn taken_bytes(layout: &Layout, sparse: usize, primaries: usize) -> u64 {
    let regions = layout.region_words.len();
    assert!(
        sparse <= regions,
        "{sparse} regions of {regions} take room only now and then"
    );
    let idle = layout.region_words.iter().take(sparse).skip(primaries);
    let words = layout.words().unwrap_or_default() as u64;
    WORD_BYTES * words.saturating_sub(idle.sum())
}

/// Where the memory of a process is served that listens at `listen`: at the next port. `None` if there is none.
pub fn memory_socket(listen: SocketAddr) -> Option<SocketAddr> {
    let port = listen.port().checked_add(1).filter(|port| *port > 1)?;
    let socket = SocketAddr::new(listen.ip(), port);
    // Others find the process by its memory.
    assert_eq!(service_address(socket), Some(listen), "of {socket}");
    Some(socket)
}

/// Where a process listens whose memory is served at `socket`.
pub fn service_address(socket: SocketAddr) -> Option<SocketAddr> {
    let port = socket.port().checked_sub(1).filter(|port| *port > 0)?;
    Some(SocketAddr::new(socket.ip(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        machines: 3,
        regions: 6,
        replication: 3,
        region_mib: 64,
        machines_max: 32,
        is_durable: false,
        has_backups_on_disk: false,
    };

    fn cluster(plan: Plan) -> Cluster {
        plan.cluster(Uid(1)).expect("a cluster")
    }

    #[test]
    fn backups_on_disk_need_a_durable_cluster() {
        let has_backups_on_disk = true;
        let plan = Plan {
            has_backups_on_disk,
            ..PLAN
        };
        let refused = plan.cluster(Uid(1)).expect_err("it has no disks");
        assert!(refused.contains("add --durable"), "{refused}");
        let is_durable = true;
        let made = cluster(Plan { is_durable, ..plan });
        assert!(made.has_backups_on_disk && made.is_sane());
        assert_eq!(sparse(&made, &sizes(&made, 8), false), 0);
        let sizes = sizes(&made, 8);
        let (layout, sparse) = (layout(&made, &sizes, true), sparse(&made, &sizes, true));
        let taken = |primaries| taken_bytes(&layout, sparse, primaries);
        let slots = usize::from(slots(&made));
        assert_eq!(taken(slots), 8 * layout.words().expect("it fits") as u64);
        assert_eq!(taken_bytes(&layout, 0, 0), taken(slots));
        assert_eq!(taken(2) - taken(0), 2 * made.region_bytes);
    }

    #[test]
    fn the_machines_that_are_left_have_room_for_the_replicas_of_one() {
        for machines in 1..12 {
            for replication in 1..=machines.min(5) as u8 {
                for regions in 1..40 {
                    let plan = Plan {
                        machines,
                        regions,
                        replication,
                        ..PLAN
                    };
                    let cluster = cluster(plan);
                    let left = u32::from(machines).saturating_sub(1).max(1);
                    let wanted = left.min(u32::from(replication)) * u32::from(regions);
                    assert!(u32::from(slots(&cluster)) * left >= wanted, "{plan:?}");
                    assert!(slots(&cluster) <= regions, "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn what_no_cluster_can_be_made_of_is_refused_with_its_reason() {
        let wrong = [
            (
                Plan {
                    replication: 4,
                    ..PLAN
                },
                "need as many machines",
            ),
            (
                Plan {
                    replication: 0,
                    ..PLAN
                },
                "need as many machines",
            ),
            (Plan { regions: 0, ..PLAN }, "1 to 4096 regions"),
            (
                Plan {
                    machines_max: 2,
                    ..PLAN
                },
                "numbers for",
            ),
            (
                Plan {
                    region_mib: 1,
                    ..PLAN
                },
                "--region-mib 1: ",
            ),
            (
                Plan {
                    regions: 4000,
                    ..PLAN
                },
                "choose fewer regions",
            ),
        ];
        for (plan, said) in wrong {
            let line = plan.cluster(Uid(1)).expect_err(said);
            assert!(line.contains(said), "{line}");
        }
    }

    #[test]
    fn a_machine_without_data_numbers_its_memory_as_the_others_do() {
        let cluster = cluster(PLAN);
        let sizes = sizes(&cluster, 64);
        let layouts = [true, false].map(|has_data| layout(&cluster, &sizes, has_data));
        let [with, without] = layouts.map(|layout| (layout.region_words.len(), layout.words()));
        assert_eq!(with.0, without.0);
        assert!(without.1 < with.1 && without.1 > Some(0));
    }

    #[test]
    fn an_address_and_that_of_its_memory_name_each_other() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert_eq!(
            memory_socket(at("10.0.0.1:4800")),
            Some(at("10.0.0.1:4801"))
        );
        assert_eq!(service_address(at("[::1]:4801")), Some(at("[::1]:4800")));
        assert_eq!(memory_socket(at("10.0.0.1:65535")), None);
        assert_eq!(memory_socket(at("10.0.0.1:0")), None);
        assert_eq!(service_address(at("10.0.0.1:1")), None);
    }
}
