//! The one task of a member that reads and writes the register: it makes itself known, takes a dead master's place,
//! and, as the master, removes, lets in, and notes which replicas are whole.

use crate::core::Core;
use crate::decide;
use crate::frame::What;
use crate::placement::{self, NoRoom};
use crate::record::{REGIONS_MAX, Record, Seat, TIMESTAMP_END, ZONE_BYTES_MAX};
use crate::register::Register;
use crate::view::Left;
use plinth_farm_fabric::{Address, Error, Fabric, Machine};
use plinth_farm_time::{MemberId, Server};
use plinth_runtime::{
    Duration, Either, Instant, beat_after, join_all, now, probe, race, sleep, timeout, trace,
    trace_warn,
};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Between two looks at the register: of those that wait, of the master, and of others.
const READ_WAITING: Duration = Duration::from_millis(20);
const READ_MASTER: Duration = Duration::from_millis(100);
const READ_OTHERS: Duration = Duration::from_secs(1);
/// One that may take the master's place begins so long after the one before it. Attempts at the register that meet
/// hold each other up, and those who make them know no time meanwhile. So this is longer than one takes on a busy
/// host.
const STAGGER: Duration = Duration::from_millis(150);
/// The same for who makes the first configuration, or a restored one.
pub(crate) const STAGGER_FIRST: Duration = Duration::from_millis(200);
/// Pause before the register is tried again.
const RETRY: Duration = Duration::from_millis(20);

pub(crate) struct Manager<F, R> {
    pub core: Rc<Core<F, R>>,
    step: Duration,
    next_read: Instant,
    /// Since when the master of the configuration with this number is missed, or a first configuration is, or a
    /// restored one after it.
    pub missed: Option<(u64, Instant)>,
    /// Since when those who are left of the configuration with this number cannot go on.
    pub stuck: Option<(u64, Instant)>,
}

impl<F: Fabric + 'static, R: Register + 'static> Manager<F, R> {
    pub fn new(core: &Rc<Core<F, R>>, step: Duration) -> Manager<F, R> {
        Manager {
            core: core.clone(),
            step,
            next_read: now(),
            missed: None,
            stuck: None,
        }
    }

    /// Runs until the member leaves.
    pub async fn run(mut self) {
        while !self.core.has_left() {
            let kicked = self.core.kick.notified();
            let is_refused = self.core.post.is_refused.take();
            if self.core.is_outdated.get() || is_refused || self.next_read <= now() {
                self.core.read().await;
                self.next_read = now() + self.pause();
            }
            if !self.core.has_left() {
                self.act().await;
            }
            let next = match self.is_calm() {
                true => self.next_read.min(self.quiet_until()),
                false => now(),
            };
            race(kicked, beat_after(next, self.step)).await;
        }
    }

    /// Until then no lease ends.
    fn quiet_until(&self) -> Instant {
        let quiet_until = self.core.update(|server, _| server.quiet_until());
        Instant(quiet_until)
    }

    /// There is nothing to do for a member before it is kicked, or a lease ends, or the register is read again.
    fn is_calm(&self) -> bool {
        let record = self.core.record();
        let (is_settled, is_master) = self.core.update(|server, now| {
            let is_known = server.configuration().map(|c| c.number) == Some(record.number());
            let is_settled = is_known && server.is_committed() && server.suspects(now).is_empty();
            (is_settled && server.is_member(), server.is_master())
        });
        let is_asked = is_master && !record.waiting.is_empty();
        is_settled
            && !is_asked
            && !self.core.is_outdated.get()
            && !self.core.post.is_refused.get()
            && !self.is_anew_wanted(&record)
            && self.whole(&record).is_empty()
    }

    fn pause(&self) -> Duration {
        let (is_member, is_master) = self
            .core
            .update(|server, _| (server.is_member(), server.is_master()));
        match (is_member, is_master) {
            (false, _) => READ_WAITING,
            (true, true) => READ_MASTER,
            (true, false) => READ_OTHERS,
        }
    }

    async fn act(&mut self) {
        let record = self.core.record();
        let own = self.core.id();
        let number = self
            .core
            .update(|server, _| server.configuration().map_or(0, |c| c.number));
        let is_known = number == record.number();
        if record.seat_of(own).is_some() {
            if is_known {
                self.act_as_member(&record).await;
            }
        } else if let Some(why) = decide::misplaced(&record, &self.core.own) {
            self.core.leave(why);
        } else if record.is_waiting(own) {
            self.warn_of_namesake(&record);
            self.begin_if_enough_wait(&record).await;
            if is_known {
                self.restore_if_enough_returned(&record).await;
            }
        } else if !self.core.has_entered() {
            self.enter(&record).await;
        }
    }

    fn warn_of_namesake(&self, record: &Record) {
        let own = &self.core.own;
        let namesake = record.seat(own.machine);
        if namesake.is_some_and(|seat| own.is_elsewhere(seat)) {
            trace_warn!(
                "FarmMachineTwice",
                "machine" => own.machine,
                "what" => "a member in another directory has this number: end it, or choose another number",
            );
        }
    }

    /// Puts this process among those that wait: whoever is the master looks there. No member needs to be found or
    /// asked for that, and what was asked for is not lost when the master dies.
    async fn enter(&self, record: &Record) {
        if self.core.may_renumber && record.has_elsewhere(&self.core.own) {
            probe!("farm_number_taken_by_another_host");
            return self.core.leave(Left::Taken);
        }
        self.put(&record.with_waiting(self.core.own.clone())).await;
    }

    /// Swaps a record in, and tells whether it was taken. `None` if there is a configuration with this number or a
    /// later one, of another member: the record is not taken any more, because that one was.
    async fn swap(&self, next: &Record, superseded_by: u64) -> Option<bool> {
        // The others take what is not sane for damage, for ever.
        assert!(next.is_sane(), "a record that no member writes: {next:?}");
        let swap = async {
            loop {
                match self.core.register.swap(next).await {
                    Ok(is_taken) => return is_taken,
                    Err(error) => trace!("FarmRegisterUnwritten", "error" => error),
                }
                probe!("farm_swap_without_an_answer");
                sleep(RETRY).await;
            }
        };
        let superseded = async {
            loop {
                let kicked = self.core.kick.notified();
                let number = self
                    .core
                    .update(|server, _| server.configuration().map_or(0, |c| c.number));
                if number >= superseded_by {
                    return;
                }
                kicked.await;
            }
        };
        match race(swap, superseded).await {
            Either::Left(is_taken) => Some(is_taken),
            Either::Right(()) => {
                probe!("farm_swap_superseded");
                None
            }
        }
    }

    /// Puts a record with the present configuration into the register. False if somebody else has put another one
    /// there.
    async fn put(&self, next: &Record) -> bool {
        let is_taken = self.swap(next, next.number() + 1).await == Some(true);
        match is_taken {
            true => self.core.learn(next.clone()),
            false => self.core.is_outdated.set(true),
        }
        is_taken
    }

    // ---- configurations ----

    /// Proposes a configuration of these members, and sees it decided.
    async fn propose(&self, record: &Record, ids: &[MemberId]) {
        assert!(
            ids.contains(&self.core.id()),
            "{:?} proposes {ids:?} without itself",
            self.core.id()
        );
        match self.core.update(|server, now| server.propose(ids, now)) {
            Ok(proposed) => {
                trace!("FarmProposes", "number" => proposed.number, "members" => ids.len());
                self.settle(record, record.with_configuration(proposed))
                    .await
            }
            Err(refusal) => trace!("FarmProposalRefused", "why" => refusal),
        }
    }

    /// Proposes to restore the cluster from the disks of machines that have returned, and sees it decided.
    pub(crate) async fn propose_restored(&self, record: &Record, returned: &[&Seat]) {
        let ids: Vec<MemberId> = returned.iter().map(|seat| seat.id).collect();
        let disks = returned.iter().filter_map(|seat| seat.disk);
        let newest = disks.map(|disk| disk.newest).max().unwrap_or(0);
        let propose = |server: &mut Server, now| server.propose_restored(&ids, newest, now);
        match self.core.update(propose) {
            Ok((proposed, restored)) => {
                assert!(
                    newest < restored.origin,
                    "time goes on at {}, and a disk has {newest}",
                    restored.origin
                );
                let next = record.with_restored(proposed, restored);
                self.settle(record, next).await;
            }
            Err(refusal) => trace!("FarmProposalRefused", "why" => refusal),
        }
    }

    /// Sees the record decided that follows this one, with the configuration that the server has proposed.
    async fn settle(&self, record: &Record, next: Result<Record, NoRoom>) {
        let Ok(next) = next else {
            return self.core.update(|server, _| server.refused());
        };
        assert_eq!(
            next.revision,
            record.revision + 1,
            "a record that does not follow the one that it was made of"
        );
        let (number, members) = (next.number(), next.machines.len());
        // Another configuration with this number, or a later one, makes the server forget the proposal.
        if self.swap(&next, number).await == Some(true) {
            trace!("FarmConfigurationTaken", "number" => number, "members" => members);
            // The server hears of it, too, and tells the members, which are found in the record.
            self.core.learn(next);
            return;
        }
        probe!("farm_proposal_lost");
        // What the register has is later than what this proposal was made of.
        while self.core.record().revision <= record.revision && !self.core.has_left() {
            self.core.read().await;
        }
        let current = self.core.record().configuration.clone();
        self.core.update(|server, now| match current {
            Some(current) if current.number >= number => server.lost(current, now),
            _ => server.refused(),
        });
    }

    /// Makes the first configuration when enough machines wait.
    async fn begin_if_enough_wait(&mut self, record: &Record) {
        let with_slots = record.waiting.iter().filter(|seat| seat.slots > 0);
        let is_enough = with_slots.count() >= usize::from(record.cluster.first_machines);
        let rank = decide::rank(record, self.core.id(), |_| false);
        let is_first = record.configuration.is_none();
        if !is_first || !is_enough || !self.is_turn(0, STAGGER_FIRST * rank) {
            return;
        }
        let seats = self.living(record.waiting.iter().collect()).await;
        let ids: Vec<MemberId> = seats.iter().map(|seat| seat.id).collect();
        let count = seats.iter().filter(|seat| seat.slots > 0).count();
        if count < usize::from(record.cluster.first_machines) {
            return;
        }
        match placement::first(&record.cluster, &seats) {
            Ok(_) => self.propose(record, &ids).await,
            Err(no_room) => trace!("FarmNoRoom", "why" => no_room),
        }
    }

    async fn act_as_member(&mut self, record: &Record) {
        self.note_followed(record);
        if self.leave_for_restore(record) {
            return;
        }
        let (suspects, is_master, is_committed) = self.core.update(|server, now| {
            let suspects = server.suspects(now);
            (suspects, server.is_master(), server.is_committed())
        });
        if is_master {
            let joining = match is_committed {
                true => self.joining(record).await,
                false => Vec::new(),
            };
            let is_calm = suspects.is_empty() && joining.is_empty();
            match is_calm {
                true if is_committed && self.is_anew_wanted(record) => self.anew(record).await,
                true => self.note_whole(record).await,
                false => self.reconfigure(record, &suspects, &joining).await,
            }
        } else if suspects.is_empty() {
            self.missed = None;
            self.report_whole(record);
            self.ask_for_anew(record);
        } else {
            self.take_over(record).await;
        }
    }

    /// The turn of who waits for `delay` comes, counted from when it was first asked for in this configuration.
    pub(crate) fn is_turn(&mut self, number: u64, delay: Duration) -> bool {
        let since = match self.missed {
            Some((of, since)) if of == number => since,
            _ => now(),
        };
        self.missed = Some((number, since));
        since.elapsed() >= delay
    }

    /// The master is gone: takes its place with those that can be reached.
    async fn take_over(&mut self, record: &Record) {
        let rank = decide::rank(record, self.core.id(), |id| self.is_dead(id));
        if !self.is_turn(record.number(), STAGGER * rank) {
            return;
        }
        let Some(configuration) = &record.configuration else {
            return;
        };
        let others = configuration.others().map(|m| m.id);
        let others = others.filter(|id| !self.is_dead(*id) && *id != self.core.id());
        let seats = others.filter_map(|id| record.seat_of(id)).collect();
        let reached = self.reached(seats, record).await;
        // Somebody may have been faster.
        if rank > 0 {
            self.core.read().await;
        }
        if self.core.record().revision != record.revision {
            return;
        }
        let mut ids: Vec<MemberId> = reached.iter().map(|seat| seat.id).collect();
        ids.push(self.core.id());
        if !decide::may_go_on(record, &ids, |id| self.is_dead(id)) {
            probe!("farm_too_few_to_go_on");
            self.note_stuck(record);
        } else if !self.gives_up_without_time(record) {
            self.propose(record, &ids).await;
        }
    }

    /// As the master.
    async fn reconfigure(&mut self, record: &Record, suspects: &[MemberId], joining: &[MemberId]) {
        let Some(configuration) = &record.configuration else {
            return;
        };
        let without = |gone: &dyn Fn(MemberId) -> bool| -> Vec<MemberId> {
            let members = configuration.members.iter().map(|m| m.id);
            members.filter(|id| !gone(*id)).collect()
        };
        let mut ids = without(&|id| suspects.contains(&id));
        if !decide::may_go_on(record, &ids, |id| self.is_dead(id)) {
            probe!("farm_too_few_to_go_on");
            // Those that are only silent may come back.
            ids = without(&|id| self.is_dead(id));
            let is_durable = record.cluster.is_durable;
            if is_durable && !decide::may_go_on(record, &ids, |id| self.is_dead(id)) {
                self.note_stuck(record);
                return;
            }
        }
        if ids.len() < configuration.members.len() || !joining.is_empty() {
            ids.extend(joining);
            self.propose(record, &ids).await;
        }
    }

    fn is_anew_wanted(&self, record: &Record) -> bool {
        record.number() > 0 && self.core.anew.get() == record.number()
    }

    /// As the master: the same members again, under the next number. That number settles all requests for this one.
    async fn anew(&self, record: &Record) {
        let configuration = record.configuration.iter();
        let ids: Vec<MemberId> = configuration
            .flat_map(|c| c.members.iter().map(|m| m.id))
            .collect();
        probe!("farm_configuration_anew");
        self.propose(record, &ids).await;
    }

    /// As another member: until there is another configuration.
    fn ask_for_anew(&self, record: &Record) {
        let master = record.configuration.as_ref().map(|c| c.master);
        if let Some(master) = master.filter(|_| self.is_anew_wanted(record)) {
            let number = record.number();
            self.core.send(master, number, What::Anew(number));
        }
    }

    pub(crate) fn is_dead(&self, id: MemberId) -> bool {
        self.core.update(|server, _| server.is_dead(id))
    }

    /// Two lives of a machine cannot be on one host at a time, or have one disk: members whose next lives wait are
    /// dead. The record says so, whatever host this is.
    pub(crate) fn note_followed(&self, record: &Record) {
        for seat in &record.waiting {
            let former = record.seat(seat.machine);
            let is_followed =
                |former: &&Seat| former.place.host == seat.place.host || former.has_disk_of(seat);
            let former = former.filter(is_followed);
            if let Some(former) = former.filter(|former| !self.is_dead(former.id)) {
                probe!("farm_member_followed_by_its_next_life");
                self.core.update(|server, now| server.died(former.id, now));
            }
        }
    }

    /// Those of the waiting that can be let in now. One that has the number of a member waits until that one is gone.
    async fn joining(&self, record: &Record) -> Vec<MemberId> {
        let waiting = record.waiting.iter();
        let may_join = waiting.filter(|seat| record.seat(seat.machine).is_none());
        let living = self.living(may_join.collect()).await;
        living.iter().map(|seat| seat.id).collect()
    }

    // ---- who is there ----

    /// Those of the waiting that are there.
    pub(crate) async fn living(&self, seats: Vec<&Seat>) -> Vec<Seat> {
        let limit = self.patience();
        let is_there = seats.iter().map(async |seat| {
            if seat.id == self.core.id() {
                return true;
            }
            if self.core.life.is_over(seat).await {
                return false;
            }
            (self.core.meet)(seat);
            let opened = timeout(limit, self.core.fabric.open(Machine(seat.machine))).await;
            opened.is_some_and(|opened| opened.is_ok())
        });
        let is_there = join_all(is_there).await;
        let there = seats.into_iter().zip(is_there).filter(|(_, there)| *there);
        there.map(|(seat, _)| seat.clone()).collect()
    }

    /// Those of the members that answer.
    async fn reached(&self, seats: Vec<&Seat>, record: &Record) -> Vec<Seat> {
        let limit = self.patience();
        let answers = seats.iter().map(async |seat| {
            let at = Address {
                machine: Machine(seat.machine),
                region: 0,
                offset: 0,
            };
            let asked = async {
                self.core.fabric.open(at.machine).await?;
                self.core.fabric.read(at, &mut [0; 8]).await
            };
            // Any answer is one.
            !matches!(
                timeout(limit, asked).await,
                None | Some(Err(Error::Unreachable))
            )
        });
        let answers = join_all(answers).await;
        let there = seats.into_iter().zip(answers).filter(|(_, there)| *there);
        let there: Vec<Seat> = there.map(|(seat, _)| seat.clone()).collect();
        trace!("FarmMembersReached", "count" => there.len(), "of" => record.machines.len());
        there
    }

    /// How long somebody has to answer who may be let in or kept.
    fn patience(&self) -> Duration {
        Duration::from_nanos(self.core.record().cluster.lease_ns / 4)
    }

    // ---- replicas that have become whole ----

    fn whole(&self, record: &Record) -> Vec<(u16, u16)> {
        let reported = self.core.reported.borrow();
        if reported.number != record.number() {
            return Vec::new();
        }
        let lacks = |(machine, region): &(u16, u16)| {
            let replicas = record.regions.get(usize::from(*region));
            let mut replicas = replicas.into_iter().flatten();
            replicas.any(|r| r.machine == *machine && !r.is_whole)
        };
        reported.replicas.iter().copied().filter(lacks).collect()
    }

    /// As the master.
    async fn note_whole(&self, record: &Record) {
        let whole = self.whole(record);
        // A lost region is lost, whoever has more of it now.
        let is_lost: BTreeSet<u16> = record.lost().collect();
        let whole: Vec<(u16, u16)> = whole
            .into_iter()
            .filter(|(_, r)| !is_lost.contains(r))
            .collect();
        if whole.is_empty() {
            return;
        }
        if !self.put(&record.with_whole(&whole)).await {
            probe!("farm_whole_replicas_noted_later");
            return;
        }
        // Those who do not hear of it find it in the register later.
        let record = self.core.record();
        for seat in record
            .machines
            .iter()
            .filter(|seat| seat.id != self.core.id())
        {
            let news = What::News(record.revision);
            self.core.send(seat.id, record.number(), news);
        }
    }

    /// As another member: until the record shows it.
    fn report_whole(&self, record: &Record) {
        let regions: Vec<u16> = self
            .whole(record)
            .iter()
            .map(|(_, region)| *region)
            .collect();
        let master = record.configuration.as_ref().map(|c| c.master);
        if let Some(master) = master.filter(|_| !regions.is_empty()) {
            let number = record.number();
            self.core
                .send(master, number, What::Whole { number, regions });
        }
    }
}

/// Why a process with this seat cannot be of the cluster.
pub(crate) fn misfit(record: &Record, seat: &Seat, machines: usize) -> Option<Left> {
    let cluster = &record.cluster;
    let text = if seat.machine >= cluster.machines {
        format!(
            "machine {} is none of the cluster, whose numbers are below {}",
            seat.machine, cluster.machines
        )
    } else if machines != usize::from(cluster.machines) {
        format!(
            "the memory has rings for {machines} machines, and the cluster has {}",
            cluster.machines
        )
    } else if seat.place.zone.len() > ZONE_BYTES_MAX {
        format!(
            "the name of the zone has {} bytes, and may have {ZONE_BYTES_MAX}",
            seat.place.zone.len()
        )
    } else if seat.slots > REGIONS_MAX {
        format!(
            "the memory has {} slots for regions, and may have {REGIONS_MAX}",
            seat.slots
        )
    } else if seat.disk.is_some() != (cluster.is_durable && seat.slots > 0) {
        match cluster.is_durable {
            true => "machines of this cluster that hold data, and no others, have a data directory: start the machine \
                     with one, or without data"
                .to_owned(),
            false => "the machines of this cluster have no data directory: start the machine without one".to_owned(),
        }
    } else if seat.disk.is_some_and(|disk| disk.newest >= TIMESTAMP_END) {
        "the data directory has a timestamp that no cluster gives: remove it if the others have its data".to_owned()
    } else {
        return None;
    };
    Some(Left::Refused(text))
}
