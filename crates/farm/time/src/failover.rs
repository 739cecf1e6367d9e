//! A server of the cluster: takes readings and messages, gives messages, and says what time it is when it may.
//!
//! Who is master is decided by one compare-and-swap in the coordinators' register, which the caller makes: it passes
//! what [`Server::propose`] returned, expecting the number before, and reports with [`Server::taken`] or
//! [`Server::lost`]. Until then the server gives nobody a lease. If the caller does not learn what became of it, it
//! reads the register until it shows this configuration or a later one.
//!
//! A member that proposes to take the master's place still knows the time for as long as its lease lasts, like all
//! others that have not heard of the change. The lease ends before anybody goes on without this member, because the
//! old master gave it before the proposal. When the proposal is taken, the time goes on above this member's upper
//! bound, and so above what it has given out meanwhile.

use crate::configuration::{Configuration, MemberId};
use crate::interval::{Bounds, Interval};
use crate::master::{Leading, Start};
use crate::member::Following;
use crate::messages::{Body, Message};
use crate::state::{Notice, Restored, Settings, State};
use crate::sync::{Shared, Untimed};
use crate::watch::Rate;
use plinth_core::texts;
use plinth_runtime::{planted, probe};

texts! {
    /// Why a configuration cannot be proposed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Refusal {
        /// Its clock has broken its bounds.
        Broken = "the clock of this machine has broken its bounds";
        /// The proposal before is not decided yet.
        UnderWay = "a proposal is under way";
        /// It is not a member of the present configuration, or would not be one of the new one.
        NotAMember = "this server is not a member";
        /// It has joined, and has not synchronised since: it does not know what timestamps were given out.
        KnowsNoTime = "this server has not synchronised since it joined";
        /// The master's lease may still run, or the new configuration would keep the master.
        MasterLives = "the master may still be alive";
        /// This member would be removed, and its lease may still run.
        LeaseRuns(id: MemberId) = "the lease of member {id} may still run";
        /// There is no configuration to restore.
        NothingBefore = "there is no configuration to restore";
        /// This member of the present configuration would be one of a restored one, which has none of them.
        IsMember(id: MemberId) = "{id} is a member of the configuration before";
    }
}

fn waits_for_no_lease() -> bool {
    planted!(
        "farm_restore_waits_for_no_lease",
        "a cluster is restored while members of the former one may have leases"
    )
}

struct Proposed {
    configuration: Configuration,
    start: Start,
    restored: Option<Restored>,
}

enum Stage {
    /// In no configuration that it knows of.
    Out,
    Following(Following),
    Leading(Box<Leading>),
}

/// The state of one server. `now` is always a new reading of this machine's clock, in nanoseconds.
pub struct Server {
    state: State,
    /// The newest that it knows of. It may not be a member.
    configuration: Option<Configuration>,
    /// The reading when it learnt of that from others.
    learnt_at: u64,
    stage: Stage,
    proposed: Option<Proposed>,
}

impl Server {
    /// `id` is new in every life of the process.
    pub fn new(id: MemberId, settings: Settings) -> Server {
        Server {
            state: State::new(id, settings),
            configuration: None,
            learnt_at: 0,
            stage: Stage::Out,
            proposed: None,
        }
    }

    /// The cluster may be [restored](Server::propose_restored). The same on all servers of it.
    ///
    /// A member that is dead may come back as another one, which takes the time over and asks nobody. So a master goes
    /// by the leases of all members, also of those that are dead, until a configuration without them is taken, and of
    /// those that have only joined.
    pub fn restorable(mut self) -> Server {
        self.state.may_be_restored = true;
        self
    }

    pub fn id(&self) -> MemberId {
        self.state.id
    }

    pub fn bounds(&self) -> &Bounds {
        &self.state.settings.bounds
    }

    pub fn configuration(&self) -> Option<&Configuration> {
        self.configuration.as_ref()
    }

    pub fn is_member(&self) -> bool {
        let configuration = self.configuration.as_ref();
        configuration.is_some_and(|c| c.contains(self.state.id))
    }

    pub fn is_master(&self) -> bool {
        matches!(self.stage, Stage::Leading(_))
    }

    fn number(&self) -> u64 {
        self.configuration.as_ref().map_or(0, |c| c.number)
    }

    /// What is to be sent, in order.
    pub fn take_messages(&mut self) -> Vec<(MemberId, Message)> {
        std::mem::take(&mut self.state.out)
    }

    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.state.notices)
    }

    /// The rate of the master's clock against this machine's, as the newest exchange shows it.
    pub fn rate(&self) -> Option<Rate> {
        self.state.watch.rate()
    }

    /// The master's time at `now`, if timestamps may be given out.
    pub fn time(&mut self, now: u64) -> Result<Interval, Untimed> {
        if self.state.is_broken {
            return Err(Untimed::Broken);
        }
        let is_usable = match &self.stage {
            Stage::Out => false,
            Stage::Following(member) => member.is_usable(&self.state, now),
            Stage::Leading(master) => master.is_usable(&self.state, now),
        };
        if !is_usable {
            return Err(Untimed::Disabled);
        }
        let time = self.state.sync.time(now);
        if time == Err(Untimed::Broken) {
            self.state.break_down();
        }
        time
    }

    /// A lower bound of the master's time, without a reading: the highest that was given out. `None` if the clock is
    /// broken.
    pub fn floor(&self) -> Option<u64> {
        (!self.state.is_broken).then(|| self.state.sync.floor())
    }

    /// The time as the clock of this master has it; `None` while this server is no master, or does not know the time.
    pub fn shared(&self) -> Option<Shared> {
        let Stage::Leading(master) = &self.stage else {
            return None;
        };
        let era = master.configuration.era;
        let (time, local) = self.state.sync.own().filter(|_| self.state.era == era)?;
        Some(Shared {
            era,
            time,
            local,
            error_ns: 0,
        })
    }

    /// What the master `of` has as [`shared`](Server::shared), with `local` as this process counts the clock that both
    /// have. It makes intervals narrow, and is no lease. Ignored if this server finds that the clock is another one.
    /// False if it is too early: this server does not follow that master, or has not synchronised with it.
    pub fn share(&mut self, of: MemberId, shared: Shared, now: u64) -> bool {
        let state = &mut self.state;
        let Stage::Following(member) = &self.stage else {
            return false;
        };
        let Configuration { master, era, .. } = member.configuration;
        let is_known = state.synced_era == era && state.era == era && !state.is_broken;
        if !is_known || (of, shared.era) != (master, era) {
            return false;
        }
        if state.sync.is_shared() {
            return true;
        }
        match state.sync.share(shared, now) {
            true => probe!("farm time of one host is shared"),
            false => probe!("farm clock of one host is another one"),
        }
        true
    }

    /// This server knows an upper bound of all timestamps that were given out: it may take the time over. If no member
    /// does, nobody ever can, so a configuration should keep more than one that does.
    pub fn knows_time(&self) -> bool {
        let configuration = self.configuration.as_ref();
        let Some(own) = configuration.and_then(|c| c.member(self.state.id)) else {
            return false;
        };
        // Before the first configuration there was nothing to know. Before a restored one, where time continues is an
        // upper bound. A master gives out no timestamps before all members know one from it.
        let restored = self.state.restored.map(|restored| restored.number);
        let has_origin = own.since == 1 || restored == Some(own.since);
        !self.state.is_broken && (self.state.known_in >= own.since || has_origin)
    }

    /// Members that are to be removed: the master's lease here has ended, or this is the master and theirs have.
    pub fn suspects(&self, now: u64) -> Vec<MemberId> {
        if self.state.is_broken || self.proposed.is_some() {
            return Vec::new();
        }
        match &self.stage {
            Stage::Following(member) if member.suspects_master(&self.state, now) => {
                vec![member.configuration.master]
            }
            Stage::Leading(master) => master.suspects(&self.state, now),
            _ => Vec::new(),
        }
    }

    /// Until this reading, [`tick`](Server::tick) does nothing and nobody becomes a [suspect](Server::suspects), if no
    /// message comes and nothing else is told to the server.
    pub fn quiet_until(&self) -> u64 {
        match &self.stage {
            _ if self.state.is_broken => u64::MAX,
            Stage::Following(member) if self.proposed.is_none() => member.quiet_until(&self.state),
            Stage::Leading(master) => master.quiet_until(&self.state),
            _ => u64::MAX,
        }
    }

    // ---- configurations ----

    /// The life of this member has ended: it does nothing any more, and nothing that it has done goes on but messages
    /// that are under way. This is not to be guessed; the word of the operating system of its host is good. Of others
    /// than members it is ignored.
    ///
    /// It counts like a lease that has ended, at both ends of it:
    /// - The master is dead: it gives out no timestamps, so its place may be taken at once.
    /// - A member is dead: it gives out no timestamps, so the master may remove it at once. But that it has not taken
    ///   the master's place before is only known if the lease from it still runs when its death is known. A proposal
    ///   of it, too, may reach the register after its death, and then it is the (dead) master of a configuration.
    ///
    /// A new master need not wait for the leases of the dead, if it needs to wait for nobody else.
    pub fn died(&mut self, id: MemberId, now: u64) {
        if id == self.state.id || !self.contains(id) || !self.state.dead.insert(id) {
            return;
        }
        if let Stage::Leading(master) = &mut self.stage {
            master.died(id, &self.state, now);
        }
    }

    /// This member is known to be dead.
    pub fn is_dead(&self, id: MemberId) -> bool {
        self.state.dead.contains(&id)
    }

    /// All members have acknowledged the present configuration, and those that were removed have stopped.
    pub fn is_committed(&self) -> bool {
        match &self.stage {
            Stage::Out => false,
            Stage::Following(member) => member.is_committed(),
            Stage::Leading(master) => master.is_committed(),
        }
    }

    /// This machine's clock is another one than it was.
    pub(crate) fn distrust(&mut self) {
        if !self.state.is_broken {
            probe!("farm clock has jumped");
            self.state.break_down();
        }
    }

    /// Gives out no timestamp any more, and says nothing.
    pub fn leave(&mut self) {
        self.state.is_broken = true;
        self.state.out.clear();
    }

    /// Makes a configuration of these members with this server as its master, for the register. The members must
    /// include this server. Which members may be left out is the caller's decision, within [`Refusal`].
    pub fn propose(&mut self, ids: &[MemberId], now: u64) -> Result<Configuration, Refusal> {
        self.check_proposal(ids, now)?;
        let former = self.configuration.as_ref();
        let id = self.state.id;
        let mut era = None;
        let mut skips_wait = former.is_none();
        if let Some(former) = former {
            let knows_era = self.state.era == former.era;
            if self.is_master() && knows_era {
                era = Some(former.era);
            }
            skips_wait = self.have_all_stopped(former, ids);
        }
        let start = Start {
            proposed_at: now,
            skips_wait,
            stopped: self.state.sync.lower_at(now),
        };
        let configuration = Configuration::after(former, id, ids, era);
        assert!(
            configuration.is_sane(),
            "nobody would believe what is proposed: {configuration:?}"
        );
        self.proposed = Some(Proposed {
            configuration: configuration.clone(),
            start,
            restored: None,
        });
        Ok(configuration)
    }

    /// Makes a configuration of new lives only, with this server as its master, when nobody can go on with the present
    /// one. `ids` include this server.
    ///
    /// Time continues above `newest`, by as much as it can have gone on after the death below. So new timestamps are
    /// above all that are not above `newest`; and if that was above the master's time when that member died, above all
    /// that were ever given out.
    ///
    /// The caller knows that the life of some member of the present configuration ended before this server began.
    /// That member gives no more leases, and no configuration without it was taken. So when a lease has passed since
    /// this server learnt of the configuration, its master has stopped; and when another one has passed, all others
    /// have, which is what the new master waits for. Members of configurations before are among them: their masters
    /// had stopped when the present one was taken.
    pub fn propose_restored(
        &mut self,
        ids: &[MemberId],
        newest: u64,
        now: u64,
    ) -> Result<(Configuration, Restored), Refusal> {
        self.check_restoring(ids, now)?;
        let former = self.configuration.as_ref();
        let configuration = Configuration::after(former, self.state.id, ids, None);
        let start = Start {
            proposed_at: now,
            // Whether the present configuration has waited for those before it, nobody here knows.
            skips_wait: waits_for_no_lease(),
            stopped: None,
        };
        // Two leases end after that death. Their clocks, and the master's, may be apart.
        let settings = &self.state.settings;
        let later = settings
            .bounds
            .most(settings.bounds.most(2 * settings.lease_ns));
        let known = self.state.restored.map_or(0, |known| known.origin);
        let restored = Restored {
            number: configuration.number,
            origin: newest.saturating_add(later).max(known).max(settings.origin),
        };
        assert!(
            configuration.is_sane() && configuration.era == configuration.number,
            "a restored configuration begins an era: {configuration:?}"
        );
        self.proposed = Some(Proposed {
            configuration: configuration.clone(),
            start,
            restored: Some(restored),
        });
        Ok((configuration, restored))
    }

    /// Whether [`propose_restored`](Server::propose_restored) would be refused.
    pub fn may_restore(&self, now: u64) -> Result<(), Refusal> {
        self.check_restoring(&[self.state.id], now)
    }

    /// What any proposal needs.
    fn check_any(&self, ids: &[MemberId]) -> Result<(), Refusal> {
        match () {
            () if self.state.is_broken => Err(Refusal::Broken),
            () if self.proposed.is_some() => Err(Refusal::UnderWay),
            () if !ids.contains(&self.state.id) => Err(Refusal::NotAMember),
            () => Ok(()),
        }
    }

    fn check_restoring(&self, ids: &[MemberId], now: u64) -> Result<(), Refusal> {
        self.check_any(ids)?;
        let Some(former) = &self.configuration else {
            return Err(Refusal::NothingBefore);
        };
        if let Some(id) = ids.iter().find(|id| former.contains(**id)) {
            return Err(Refusal::IsMember(*id));
        }
        let is_too_early =
            !self.state.settings.has_ended(self.learnt_at, now) && !waits_for_no_lease();
        match is_too_early && !self.state.dead.contains(&former.master) {
            true => Err(Refusal::MasterLives),
            false => Ok(()),
        }
    }

    /// The register shows that the configuration with this number was a restored one. To be called before the server
    /// learns of that configuration or a later one. An old one is ignored.
    pub fn learn_restored(&mut self, restored: Restored) {
        let known = self.state.restored.map_or(0, |known| known.number);
        if restored.number > known {
            self.state.restored = Some(restored);
        }
    }

    /// Nobody who is not of `ids` gives out timestamps of `former` or a configuration before it.
    ///
    /// - Those that were removed before: that this server knows the era proves that its master has waited for them.
    ///   If this server is the master, and does not know the era yet, it has found out when it made its proposal.
    /// - The old master: it needs a lease from this member, which has ended, or it is dead.
    /// - Others have leases from the old master, which this server does not know of. Only their death counts.
    fn have_all_stopped(&self, former: &Configuration, ids: &[MemberId]) -> bool {
        let have_before = match &self.stage {
            Stage::Leading(master) if self.state.era != former.era => master.skips_wait(),
            _ => self.state.era == former.era,
        };
        let has_stopped = |id: MemberId| {
            let is_old_master = id == former.master && id != self.state.id;
            is_old_master || self.state.dead.contains(&id)
        };
        let mut removed = former.members.iter().filter(|m| !ids.contains(&m.id));
        have_before && removed.all(|m| has_stopped(m.id))
    }

    fn check_proposal(&self, ids: &[MemberId], now: u64) -> Result<(), Refusal> {
        self.check_any(ids)?;
        let Some(former) = &self.configuration else {
            return Ok(());
        };
        if !former.contains(self.state.id) {
            return Err(Refusal::NotAMember);
        }
        if !self.knows_time() {
            return Err(Refusal::KnowsNoTime);
        }
        match &self.stage {
            Stage::Out => Err(Refusal::NotAMember),
            Stage::Following(member) => {
                let has_ended = member.suspects_master(&self.state, now);
                match has_ended && !ids.contains(&former.master) {
                    true => Ok(()),
                    false => Err(Refusal::MasterLives),
                }
            }
            Stage::Leading(master) => {
                let removed = former.others().filter(|m| !ids.contains(&m.id));
                let mut running = removed.filter(|m| !master.has_stopped(m.id, &self.state, now));
                let found = running.next();
                found.map_or(Ok(()), |m| Err(Refusal::LeaseRuns(m.id)))
            }
        }
    }

    /// The register has taken the configuration that this server has proposed.
    pub fn taken(&mut self, now: u64) {
        let Some(Proposed {
            configuration,
            start,
            restored,
        }) = self.proposed.take()
        else {
            return; // a later one was learnt of meanwhile
        };
        // A later one that was learnt of meanwhile would have ended the proposal.
        assert_eq!(
            configuration.number,
            self.number() + 1,
            "the configuration that was taken does not follow the present one"
        );
        if let Some(restored) = restored {
            self.learn_restored(restored);
        }
        let keeps_era = configuration.era != configuration.number;
        let former = match std::mem::replace(&mut self.stage, Stage::Out) {
            Stage::Leading(master) if keeps_era => Some(*master),
            _ => None,
        };
        assert!(
            former.is_some() || !keeps_era,
            "era {} stays, and this server was not its master",
            configuration.era
        );
        if !keeps_era && self.state.known_in < self.number() {
            probe!("farm configuration begun in the middle of another");
        }
        let mut master = Leading::new(configuration.clone(), former, start, (&self.state, now));
        master.tick(&mut self.state, now);
        self.stage = Stage::Leading(Box::new(master));
        self.configuration = Some(configuration);
        self.forget_dead();
    }

    /// The register has refused the proposal, and holds `current`. Not to be called while it may still take it.
    pub fn lost(&mut self, current: Configuration, now: u64) {
        let is_own = |p: &Proposed| p.configuration == current;
        if self.proposed.as_ref().is_some_and(is_own) {
            return self.taken(now);
        }
        self.proposed = None;
        self.learn(current, now);
    }

    /// The register has refused the proposal, and holds no newer configuration. Not to be called while it may still
    /// take it.
    pub fn refused(&mut self) {
        self.proposed = None;
    }

    /// The register holds `current`. An old one is ignored.
    pub fn learn(&mut self, current: Configuration, now: u64) {
        if let Some(proposed) = &self.proposed {
            if proposed.configuration == current {
                return self.taken(now);
            }
            if current.number < proposed.configuration.number {
                return;
            }
        }
        if current.number > self.number() && current.is_sane() {
            self.adopt(current, now);
        }
    }

    fn adopt(&mut self, configuration: Configuration, now: u64) {
        let (number, before) = (configuration.number, self.number());
        assert!(
            before < number,
            "configuration {number} is adopted after {before}"
        );
        self.proposed = None;
        let id = self.state.id;
        let follows = configuration.contains(id) && configuration.master != id;
        self.stage = match std::mem::replace(&mut self.stage, Stage::Out) {
            Stage::Following(former) if follows => {
                Stage::Following(Following::new(configuration.clone(), Some(&former), now))
            }
            _ if follows => Stage::Following(Following::new(configuration.clone(), None, now)),
            _ => Stage::Out,
        };
        self.configuration = Some(configuration);
        self.learnt_at = now;
        self.forget_dead();
    }

    /// Those that are no members any more. Who is a member again is reported again.
    fn forget_dead(&mut self) {
        let configuration = self.configuration.as_ref();
        let is_member = |id: &MemberId| configuration.is_some_and(|c| c.contains(*id));
        self.state.dead.retain(is_member);
    }

    // ---- messages ----

    /// Takes a message in. `from` is who has sent it: the transport vouches for that.
    pub fn receive(&mut self, from: MemberId, message: &Message, now: u64) {
        if self.state.is_broken {
            return;
        }
        let (number, own) = (message.number, self.number());
        match &message.body {
            Body::Outdated if number > own => self.state.tell(Notice::Outdated { number }),
            Body::Outdated => (),
            Body::NewConfig { configuration, .. } if number > own => {
                let is_theirs = configuration.number == number && configuration.master == from;
                if is_theirs && configuration.is_sane() {
                    self.adopt(configuration.clone(), now);
                    self.dispatch(from, &message.body, now);
                }
            }
            _ if number > own => self.state.tell(Notice::Outdated { number }),
            _ if number < own => self.refuse(from, message),
            _ => self.dispatch(from, &message.body, now),
        }
    }

    /// A message of an old configuration has no effect. Whoever acts in that configuration hears of the new one.
    fn refuse(&mut self, from: MemberId, message: &Message) {
        let acts = match &message.body {
            Body::NewConfig { .. } | Body::ConfigCommit | Body::Advance { .. } => true,
            // The master repeats the new configuration until its members acknowledge it.
            Body::TimeRequest { .. } => !self.is_master() || !self.contains(from),
            _ => false,
        };
        if acts {
            self.state.send(from, self.number(), Body::Outdated);
        }
    }

    fn contains(&self, id: MemberId) -> bool {
        let configuration = self.configuration.as_ref();
        configuration.is_some_and(|c| c.contains(id))
    }

    fn dispatch(&mut self, from: MemberId, body: &Body, now: u64) {
        let proposed = self.proposed.as_ref();
        let leaves = proposed.is_some_and(|p| !p.configuration.contains(from));
        match &mut self.stage {
            // Its lease had ended when the proposal was made. It must not get another one.
            Stage::Leading(_) if leaves => (),
            // While it proposes to take the master's place, it promises the master nothing.
            Stage::Following(_) if self.proposed.is_some() => (),
            Stage::Following(member) if member.configuration.master == from => {
                member.receive(&mut self.state, body, now);
            }
            Stage::Leading(master) if master.configuration.contains(from) => {
                master.receive(&mut self.state, from, body, now);
            }
            _ => (),
        }
    }

    /// To be called often: a few times in each of the settings' intervals.
    pub fn tick(&mut self, now: u64) {
        if self.state.is_broken {
            return;
        }
        match &mut self.stage {
            Stage::Following(member) if self.proposed.is_none() => {
                member.tick(&mut self.state, now);
            }
            Stage::Leading(master) => master.tick(&mut self.state, now),
            _ => (),
        }
    }
}
