//! What a process says of itself.

use crate::join::Joined;
use crate::messages::{AskStatus, MachineStatus, ROLE};
use crate::plan::taken_bytes;
use plinth_farm_member::{Record, primary};
use plinth_rpc::{Registration, Transport};
use std::cell::RefCell;
use std::rc::Rc;

/// Counts of regions, as the record has them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Shares {
    pub primaries: u64,
    pub backups: u64,
    /// Its replica is not whole.
    pub lacking: u64,
}

/// What a machine has of the regions.
pub fn shares(record: &Record, machine: u16) -> Shares {
    let mut shares = Shares::default();
    for replicas in &record.regions {
        let Some(own) = replicas.iter().find(|r| r.machine == machine) else {
            continue;
        };
        let is_primary = primary(replicas).is_some_and(|first| first.machine == machine);
        match () {
            () if !own.is_whole => shares.lacking += 1,
            () if is_primary => shares.primaries += 1,
            () => shares.backups += 1,
        }
    }
    shares
}

/// What a process knows of itself, from its start on.
pub struct Own {
    cluster: String,
    waits_for: RefCell<String>,
    joined: RefCell<Option<Rc<Joined>>>,
}

impl Own {
    pub fn new(cluster: String) -> Rc<Own> {
        Rc::new(Own {
            cluster,
            waits_for: RefCell::default(),
            joined: RefCell::default(),
        })
    }

    pub fn wait_for(&self, what: &str) {
        self.waits_for.replace(what.into());
    }

    pub fn begin(&self, joined: &Rc<Joined>) {
        let former = self.joined.replace(Some(joined.clone()));
        assert!(
            former.is_none(),
            "a process is machine {}, and was another one before that has not ended",
            joined.local().machine().0
        );
    }

    /// It answers for no member any more.
    pub fn end(&self) {
        self.joined.take();
    }

    pub fn status(&self) -> MachineStatus {
        let mut status = MachineStatus {
            cluster: self.cluster.clone(),
            release: env!("CARGO_PKG_VERSION").into(),
            waits_for: self.waits_for.borrow().clone(),
            ..MachineStatus::default()
        };
        if let Some(joined) = &*self.joined.borrow() {
            describe(&mut status, joined);
        }
        status
    }

    /// Answers [`AskStatus`] as long as the registration is there.
    pub fn serve(self: &Rc<Self>, transport: &Transport) -> Registration {
        let own = self.clone();
        transport.serve::<AskStatus>(ROLE, move |_, responder| responder.ok(own.status()))
    }
}

fn describe(status: &mut MachineStatus, joined: &Joined) {
    let (local, member) = (joined.local(), joined.node.member());
    let machine = local.machine().0;
    status.machine = Some(machine);
    status.life = Some(member.id());
    status.is_master = member.is_master();
    let time = member.clock().time();
    status.uncertainty_ns = time.ok().map(|now| now.uncertainty());
    let (engine, counts) = (joined.access.engine(), joined.access.counts());
    (status.committed, status.aborted) = (counts.committed.get(), counts.aborted.get());
    let used = engine.memory_use();
    (status.region_bytes, status.free_bytes) = (used.region_bytes, used.free_bytes);
    (status.old_blocks, status.old_blocks_free) = (used.old.all as u64, used.old.free as u64);
    status.is_disk_full = engine.is_disk_full();
    status.is_loading = engine.is_loading();
    let safe = engine.safe_point();
    let age = time.ok().filter(|_| safe > 0);
    status.safe_point_age_ns = age.map(|now| now.lower.saturating_sub(safe));
    let view = joined.view().get();
    let shares = view.as_ref().map(|view| shares(&view.record, machine));
    let shares = shares.unwrap_or_default();
    let layout = local.host().layout();
    status.memory_bytes = taken_bytes(layout, joined.sparse, shares.primaries as usize);
    status.number = view.map_or(0, |view| view.number());
    status.primaries = shares.primaries;
    status.backups = shares.backups;
    status.lacking = shares.lacking;
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::Uid;
    use plinth_farm_member::{Cluster, Replica};

    #[test]
    fn a_replica_counts_once_as_what_it_is() {
        let mut record = Record::of_new(Cluster::new(Uid(1), 8, 4, 3));
        let replica = |machine, is_whole| Replica {
            machine,
            slot: 0,
            is_whole,
        };
        record.regions = vec![
            vec![replica(0, true), replica(1, true)],
            vec![replica(1, false), replica(0, true)],
            vec![replica(1, true), replica(0, false)],
            vec![replica(0, false)],
        ];
        let of = |primaries, backups, lacking| Shares {
            primaries,
            backups,
            lacking,
        };
        assert_eq!(shares(&record, 0), of(2, 0, 2));
        assert_eq!(shares(&record, 1), of(1, 1, 1));
        assert_eq!(shares(&record, 5), of(0, 0, 0));
    }
}
