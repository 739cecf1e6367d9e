//! How a durable cluster is restored from the disks of its machines, and when its members give up for that.
//!
//! When no whole replica of a region is left in memory, nobody goes on without that region
//! ([`may_go_on`](decide::may_go_on)). Members that know it leave, and their processes start again from their disks.
//! A process that waits with the disk of a member is that member *returned*. One of the returned proposes the next
//! configuration, of returned machines only, which have the replicas that are on their disks.
//!
//! Why nothing is lost that was reported, and nobody goes on beside it:
//! - A commit is reported when all replicas of its regions have it on their disks. So a disk with a replica that is
//!   whole in the record has all of that region's commits.
//! - A member of the configuration before that lives cannot commit in a region of which a replica is on a returned
//!   disk: the life that had the disk is over, and acknowledges nothing. It can read until its lease ends. The lease
//!   needs the master, and the master needs a lease of each member: [`propose_restored`] waits for both.
//! - It can go on only by a configuration with the same number as the restored one. The register takes the first.
//!
//! [`propose_restored`]: plinth_farm_time::Server::propose_restored

use crate::decide;
use crate::manage::{Manager, STAGGER_FIRST};
use crate::record::{Record, Seat};
use crate::register::Register;
use crate::view::Left;
use plinth_farm_fabric::Fabric;
use plinth_farm_time::MemberId;
use plinth_runtime::{Duration, probe, trace_warn};

/// Members that may live are waited for so long. So long do members wait who cannot go on, before they leave.
const RETURN_PATIENCE: Duration = Duration::from_secs(30);
/// Machines whose lives are over are waited for so long: they may be about to start again, with a disk that needs no
/// copies.
const RETURN_GRACE: Duration = Duration::from_secs(1);

impl<F: Fabric + 'static, R: Register + 'static> Manager<F, R> {
    /// As a process that waits: proposes to restore the cluster, when enough machines have returned and it is this
    /// one's turn.
    pub(crate) async fn restore_if_enough_returned(&mut self, record: &Record) {
        let own = self.core.id();
        let returned: Vec<&Seat> = record.returned().collect();
        let Some(rank) = returned.iter().position(|seat| seat.id == own) else {
            return;
        };
        self.note_followed(record);
        if !decide::is_covered(record, &machines(&returned)) {
            self.missed = None;
            return;
        }
        let is_early = |refusal| matches!(refusal, Err(plinth_farm_time::Refusal::MasterLives));
        if self
            .core
            .update(|server, now| is_early(server.may_restore(now)))
        {
            return;
        }
        self.note_over(record).await;
        let is_dead = |id: MemberId| self.is_dead(id);
        let patience = match decide::may_restore(record, &machines(&returned), is_dead, false) {
            true if decide::have_all_returned(record, &machines(&returned)) => Duration::ZERO,
            true => RETURN_GRACE,
            false => RETURN_PATIENCE,
        };
        if !self.is_turn(record.number(), patience + STAGGER_FIRST * rank as u32) {
            return;
        }
        let is_patient = self.is_turn(record.number(), RETURN_PATIENCE);
        let there = self.living(returned).await;
        let there: Vec<&Seat> = there.iter().collect();
        let is_dead = |id: MemberId| self.is_dead(id);
        if !decide::may_restore(record, &machines(&there), is_dead, is_patient) {
            probe!("farm_too_few_to_restore");
            return;
        }
        trace_warn!(
            "FarmRestores",
            "after" => record.number(),
            "machines" => there.len(),
            "of" => record.machines.len(),
        );
        self.propose_restored(record, &there).await;
    }

    /// Asks the operating system about members of this host.
    async fn note_over(&self, record: &Record) {
        for seat in &record.machines {
            if !self.is_dead(seat.id) && self.core.life.is_over(seat).await {
                self.core.update(|server, now| server.died(seat.id, now));
            }
        }
    }

    /// As a member: leaves if nothing can go on before a restore. True if it does.
    pub(crate) fn leave_for_restore(&self, record: &Record) -> bool {
        let is_gone = decide::is_gone(record, |id| self.is_dead(id));
        if is_gone {
            self.core.leave(Left::Restore);
        }
        is_gone
    }

    /// As a member that could go on: whether it does not know the time, so that it cannot. In a durable cluster it
    /// leaves if it is the last one that lives: nobody can tell it the time, but the disks. It also leaves if nobody
    /// else goes on for a while: the others that live do not know the time either.
    pub(crate) fn gives_up_without_time(&mut self, record: &Record) -> bool {
        let knows_time = self.core.update(|server, _| server.knows_time());
        if knows_time || !record.cluster.is_durable {
            return false;
        }
        let mut others = record.machines.iter().filter(|s| s.id != self.core.id());
        let is_last = others.all(|seat| self.is_dead(seat.id));
        if is_last || self.stuck_for(record) >= RETURN_GRACE {
            probe!("farm_no_member_knows_the_time");
            self.core.leave(Left::Restore);
        }
        true
    }

    /// Since when it cannot go on in this configuration.
    fn stuck_for(&mut self, record: &Record) -> Duration {
        let number = record.number();
        let since = match self.stuck {
            Some((of, since)) if of == number => since,
            _ => plinth_runtime::now(),
        };
        self.stuck = Some((number, since));
        since.elapsed()
    }

    /// As a member that cannot go on because others are missed. If some of them have returned, the rest may be gone
    /// for good without anybody who can tell.
    pub(crate) fn note_stuck(&mut self, record: &Record) {
        if !record.cluster.is_durable || record.returned().next().is_none() {
            return;
        }
        if self.stuck_for(record) >= RETURN_PATIENCE {
            probe!("farm_member_gives_up_for_restore");
            self.core.leave(Left::Restore);
        }
    }
}

fn machines(seats: &[&Seat]) -> Vec<u16> {
    seats.iter().map(|seat| seat.machine).collect()
}
