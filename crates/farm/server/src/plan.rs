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

/// What of a plan somebody has said, each by a flag of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Asked {
    pub machines: Option<u16>,
    pub regions: Option<u16>,
    pub replication: Option<u8>,
    pub region_mib: Option<u64>,
    pub machines_max: Option<u16>,
    pub is_durable: bool,
    pub has_backups_on_disk: Option<bool>,
}

impl Asked {
    pub fn plan(&self) -> Plan {
        Plan {
            machines: self.machines.unwrap_or(3),
            regions: self.regions.unwrap_or(6),
            replication: self.replication.unwrap_or(3),
            region_mib: self.region_mib.unwrap_or(64),
            machines_max: self.machines_max.unwrap_or(32),
            is_durable: self.is_durable,
            has_backups_on_disk: self.has_backups_on_disk.unwrap_or(false),
        }
    }

    /// What was said, as flags, and for each what such a cluster would have, and what `made` has.
    fn flags(&self, made: &Cluster) -> Vec<(&'static str, String, String)> {
        let number = |flag, said: Option<u64>, has: u64| {
            said.map(|said| (flag, format!(" {said}"), has.to_string()))
        };
        let place = |is_on_disk| if is_on_disk { "disk" } else { "memory" };
        let backups = self.has_backups_on_disk.map(|said| {
            let has = place(made.has_backups_on_disk);
            ("--backups", format!(" {}", place(said)), has.into())
        });
        let durable = self.is_durable.then(|| {
            let has = if made.is_durable { "" } else { "without it" };
            ("--durable", String::new(), has.into())
        });
        let (machines, most) = (made.first_machines, made.machines);
        [
            number("--machines", self.machines.map(u64::from), machines.into()),
            number(
                "--regions",
                self.regions.map(u64::from),
                made.regions.into(),
            ),
            number(
                "--replication",
                self.replication.map(u64::from),
                made.replication.into(),
            ),
            number(
                "--region-mib",
                self.region_mib,
                made.region_bytes / MIB_BYTES,
            ),
            number(
                "--machines-max",
                self.machines_max.map(u64::from),
                most.into(),
            ),
            durable,
            backups,
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Nothing makes a cluster with what was said.
    ///
    /// # Errors
    /// A line for the user: something was.
    pub fn check_without_new(&self) -> Result<(), String> {
        let any = self
            .plan()
            .cluster(Uid::default())
            .unwrap_or_else(|_| Cluster::new(Uid::default(), 1, 1, 1));
        match self.flags(&any).first() {
            None => Ok(()),
            Some((flag, said, _)) => Err(format!(
                "{flag}{said}: it is for a new cluster; add --new, which makes one if there is none, or leave it out"
            )),
        }
    }

    /// There is a cluster. What was said of it must be so, because it never changes.
    ///
    /// # Errors
    /// A line for the user.
    pub fn check_made(&self, made: &Cluster) -> Result<(), String> {
        let flags = self.flags(made);
        let differs = |(_, said, has): &&(_, String, String)| said.trim() != has;
        let Some((flag, said, has)) = flags.iter().find(differs) else {
            return Ok(());
        };
        let how = match has.strip_prefix("without") {
            Some(_) => has.clone(),
            None => format!("with {has}"),
        };
        Err(format!(
            "{flag}{said}: there is a cluster, which was made {how}, and that never changes; leave the flag out, or \
             make another cluster, with a cluster file and data directories of its own"
        ))
    }
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

    #[test]
    fn what_is_said_of_a_cluster_that_is_there_must_be_so() {
        let made = cluster(PLAN);
        assert_eq!(Asked::default().plan(), PLAN);
        let is_durable = true;
        let so = Asked {
            machines: Some(3),
            regions: Some(6),
            replication: Some(3),
            region_mib: Some(64),
            machines_max: Some(32),
            is_durable: false,
            has_backups_on_disk: Some(false),
        };
        assert_eq!(so.check_made(&made), Ok(()));
        let durable = Asked { is_durable, ..so };
        assert_eq!(durable.check_made(&cluster(durable.plan())), Ok(()));
        assert_eq!(
            Asked::default().check_made(&made),
            Ok(()),
            "it says nothing"
        );
        type Say = fn(&mut Asked);
        let says: [(Say, &str, &str); 7] = [
            (|a| a.machines = Some(4), "--machines 4: ", "with 3,"),
            (|a| a.regions = Some(7), "--regions 7: ", "with 6,"),
            (|a| a.replication = Some(2), "--replication 2: ", "with 3,"),
            (|a| a.region_mib = Some(8), "--region-mib 8: ", "with 64,"),
            (
                |a| a.machines_max = Some(9),
                "--machines-max 9: ",
                "with 32,",
            ),
            (|a| a.is_durable = true, "--durable: ", "without it,"),
            (
                |a| a.has_backups_on_disk = Some(true),
                "--backups disk: ",
                "with memory,",
            ),
        ];
        for (say, flag, has) in says {
            let mut asked = Asked::default();
            say(&mut asked);
            let line = asked.check_made(&made).expect_err(flag);
            assert!(line.starts_with(flag) && line.contains(has), "{line}");
            let line = asked.check_without_new().expect_err(flag);
            assert!(
                line.starts_with(flag) && line.contains("add --new"),
                "{line}"
            );
        }
        assert_eq!(Asked::default().check_without_new(), Ok(()));
    }

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
