//! Recovery (docs/decisions/0013-farm-on-fences.md, "Recovery"; FaRMv2 §4.3, 5.5): what members do when a
//! configuration ends, so that the next one begins without transactions. Pure: configurations and messages in,
//! messages and effects out. No clock, no memory, no fabric.
//!
//! ```text
//!   members        whole replicas   primaries         master           primaries         replicas          primaries
//!   Here▶master    Known▶primary    Votes▶master      Decided▶all      Redo▶replicas     Done▶primary      Open▶all
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `messages` | what members say, and its bytes |
//! | `members` | a configuration as its recovery sees it |
//! | `decide` | what becomes of transactions |
//! | `kept` | what a machine keeps from one configuration to the next |
//!
//! Promises, however often a further configuration interrupts a recovery and lets it start over:
//! - What was reported as committed is, at the timestamp that was reported, in all whole replicas of its regions.
//! - A transaction is committed in all its regions or in none, and what anybody has seen of that stays.
//! - When a region is open, its whole replicas are equal, and no lock of an ended configuration is left.
//! - A coordinator that stays a member learns what became of each transaction that it asks for.
//!
//! What may never happen: two open regions, or a coordinator and an open region, that disagree about a transaction.
//!
//! # Why it holds
//!
//! **Nobody sees a decision before a region of the transaction is open.** Reads and locks wait for `Open`, and
//! coordinators for all of them. Until then a decision may be lost with the machines that had it, and the next
//! recovery may decide otherwise.
//!
//! **A region is open when all its replicas have redone the decisions.** So the next recovery, which hears a whole
//! replica of each region, hears them from it. What is committed stays there as [`State::Decided`], and decides.
//! What had no effect is unknown there, and what one whole replica does not know is not committed.
//!
//! **What is committed can be redone elsewhere, whoever dies.** It is only committed if *each* whole replica of each
//! of its regions knows of it, hence has its writes or has applied them. A lock that only a primary knows is not
//! enough: the primary could die after another region is open. (A rule that takes the region's replicas together needs
//! one more round that gives the lock to the backups, as FaRM's REPLICATE-TX-STATE does.)
//!
//! **Replicas that are not whole get no writes from `Redo`.** Nobody hears them in the next recovery, which may decide
//! otherwise, and then they would have a version that is newer than the primary's. They copy the region when it is
//! open, from its beginning in each configuration.
//!
//! **Decisions are kept until the next recovery.** It keeps those that a region has not redone or whose coordinator
//! still asks, and drops the others. So they do not grow.
//!
//! # What the shell does with it
//!
//! 1. **Close.** `farm/member` shows a view of configuration *n*, whose fabric has closed what was before it. From
//!    here on the machine's own commits must not go on either, not even by what they do on this machine itself: each
//!    step of `commit` after a wait looks whether its configuration is still the present one, and waits for
//!    [`Recovery::outcome`] if not (if it has sent no CommitBackup, it may abort at once: nobody can commit it).
//!    Local locks and reads stop. Locks that are parked for memory are forgotten.
//! 2. **Drain.** It takes in everything that lies in the rings, with the former configuration's rules.
//! 3. **Hand over.** It moves all of the ledger except `below` into [`Held`]: of each transaction a record for each
//!    region that has a replica here, with that region's writes (`locked` → `Locked`, or `Committed` once
//!    CommitPrimary has come; `logged` → `Logged`; `truncated` → `Truncated`, without writes). It keeps `Former` of
//!    what is locked, by region and transaction, for `Release` and `Install`. `committing` are its own numbers that
//!    are not reported and have not sent Truncate. Then it calls [`Recovery::begin`]. An [`Author`] is a machine with
//!    `Configuration::member(id).since`: accounts of a machine whose `since` has changed begin anew.
//!    At a durable machine only what is in its journal counts, and it is `Logged` at a primary, too. `Held` names the
//!    locks by themselves: they end whether or not they count.
//! 4. **Carry.** It sends each [`Effect::Send`] in [`Room::Recovery`](crate::Room) to the machine, in its
//!    configuration, again while the ring is full, and gives up when the configuration ends. What arrives goes
//!    through [`Letter::from_bytes`](plinth_core::codec::Codec::from_bytes) to [`Recovery::receive`]. A letter above
//!    `MESSAGE_BYTES_MAX` has to be sent in pieces.
//! 5. **Do effects in their order,** before it says anything else. `Release`: `Cell::unlock` with the former header,
//!    `Old::abort` of what was kept. `Install`: `Region::claim`, then `Cell::apply`, which ends a lock, and
//!    `Old::abort` of what was kept, because old versions do not survive. Then `Store::installed` of the timestamp.
//! 6. **Open.** At `Opened` a region may be read and locked; its primary, if it is a new one, first opens its `Slabs`
//!    (also if it stays: cells that were reserved or freed by transactions that have ended). A replica here that is
//!    not whole begins its copy. Its engine says it is whole when it has copied all of it in this configuration.
//! 7. **Answer.** At `Outcome` the commit that waits gets its timestamp, or aborts. At `Ended` `Numbers` forgets
//!    everything that began before, so that `below` goes on.
//! 8. **Lost.** At `Lost` the machine says which regions are lost, and does nothing more.
//!
//! A further configuration may come at any point: it begins at 1 again, with what has come into the ledger since.

mod decide;
mod kept;
mod members;
mod messages;

#[cfg(test)]
mod tests;

pub use crate::wire::{Change, Number, Write};
pub use kept::Held;
pub use members::{Members, Replica};
pub use messages::{
    Author, Below, Decision, Fate, Id, Letter, Message, Record, Redone, State, Vote,
};

use decide::{Council, Gathered};
use kept::Kept;
use plinth_farm_fabric::Machine;
use plinth_runtime::{nobody_has_lied, trace};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is to be done, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Never to this machine.
    Send { to: Machine, letter: Letter },
    /// [`Recovery::speak`] is to be called, at a durable machine when all is on disk that it was told of. Whoever
    /// hears it counts on that.
    Speak,
    /// The transaction's locks in the region's replica here end without effect.
    Release { region: u16, id: Id },
    /// All transactions of ended configurations in the region's replica here are decided: these are committed. Of the
    /// others that are not applied here, those in `void` have had no effect. A durable machine notes it on its disk.
    Settle {
        region: u16,
        committed: Vec<Redone>,
        void: Vec<Id>,
    },
    /// Each write is applied to the region's replica here if the object has an older timestamp, and its lock ends.
    Install {
        region: u16,
        id: Id,
        written_at: u64,
        writes: Vec<Write>,
    },
    /// What was decided is done in the region's replica here: [`Recovery::redone`] is to be called, at a durable
    /// machine when it is on disk.
    Redone { region: u16 },
    /// The region may be read and locked.
    Opened { region: u16 },
    /// What became of a transaction of this machine.
    Outcome { number: Number, fate: Fate },
    /// All regions are open.
    Ended,
    /// No whole replica of these is left. Nothing goes on.
    Lost { regions: Vec<u16> },
}

/// What a primary does for its region in this configuration.
#[derive(Default)]
struct Lead {
    gathered: Gathered,
    has_voted: bool,
    /// Replicas that have not redone, once Redo is sent.
    open: Option<BTreeSet<Machine>>,
}

/// What is known of the present configuration, and forgotten with it.
#[derive(Default)]
struct Round {
    members: Members,
    is_lost: bool,
    /// By region of which this machine is the primary.
    leads: BTreeMap<u16, Lead>,
    /// At the master.
    council: Council,
    has_decided: bool,
    decisions: Option<BTreeMap<Id, Fate>>,
    has_spoken: bool,
    /// As a replica.
    redone: BTreeSet<u16>,
    opened: BTreeSet<u16>,
    has_ended: bool,
}

/// The recovery of one machine, through all configurations of its life.
pub struct Recovery {
    own: Machine,
    kept: Kept,
    round: Round,
    outcomes: BTreeMap<Number, Fate>,
    /// Letters of the newest configuration that this machine has heard of and not begun. What others have left before
    /// that will not be recovered, so nothing older is kept.
    early: Vec<(Machine, Letter)>,
    /// To this machine itself.
    inbox: VecDeque<Message>,
    effects: Vec<Effect>,
}

impl Recovery {
    pub fn new(own: Machine) -> Recovery {
        Recovery {
            own,
            kept: Kept::default(),
            round: Round::default(),
            outcomes: BTreeMap::new(),
            early: Vec::new(),
            inbox: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    /// The configuration that is recovered, or has been.
    pub fn configuration(&self) -> u64 {
        self.round.members.configuration
    }

    pub fn is_open(&self, region: u16) -> bool {
        self.round.opened.contains(&region)
    }

    /// All regions are open, and outcomes are told.
    pub fn has_ended(&self) -> bool {
        self.round.has_ended
    }

    /// What became of a transaction of this machine that was `committing` when a configuration ended. `None` if it is
    /// not decided, or was never asked for.
    pub fn outcome(&self, number: Number) -> Option<Fate> {
        self.outcomes.get(&number).copied()
    }

    /// Nobody will ask for the outcome again.
    pub fn forget(&mut self, number: Number) {
        self.outcomes.remove(&number);
    }

    /// A configuration begins; whatever was under way ends. `held` is what has come since the one before. One that is
    /// not newer, or does not have this machine, changes nothing.
    pub fn begin(&mut self, members: Members, held: Held) -> Vec<Effect> {
        let configuration = members.configuration;
        if configuration <= self.configuration() || members.author(self.own).is_none() {
            return Vec::new();
        }
        self.kept.take_in(self.own, &members, held);
        let lost = members.lost();
        self.round = Round {
            is_lost: !lost.is_empty(),
            members,
            ..Round::default()
        };
        let early = std::mem::take(&mut self.early);
        if self.round.is_lost {
            return vec![Effect::Lost { regions: lost }];
        }
        self.lead();
        for (from, letter) in early {
            self.hear(from, letter);
        }
        self.effects.push(Effect::Speak);
        std::mem::take(&mut self.effects)
    }

    /// Says what this machine knows, in the configuration with this number: what [`Effect::Speak`] has asked for.
    pub fn speak(&mut self, configuration: u64) -> Vec<Effect> {
        let is_now = configuration == self.configuration() && !self.round.is_lost;
        if is_now && !std::mem::replace(&mut self.round.has_spoken, true) {
            self.say_known();
            self.work();
        }
        std::mem::take(&mut self.effects)
    }

    /// A letter of another machine. What does not fit the configuration, or its sender's part in it, is ignored.
    pub fn receive(&mut self, from: Machine, letter: Letter) -> Vec<Effect> {
        self.hear(from, letter);
        std::mem::take(&mut self.effects)
    }

    fn hear(&mut self, from: Machine, letter: Letter) {
        if letter.configuration > self.configuration() {
            let newest = self
                .early
                .first()
                .map_or(0, |(_, early)| early.configuration);
            if letter.configuration > newest {
                self.early.clear();
            }
            if letter.configuration >= newest {
                self.early.push((from, letter));
            }
        } else if letter.configuration == self.configuration() && !self.round.is_lost {
            self.take(from, letter.message);
            self.work();
        }
    }

    /// Takes what this machine says to itself.
    fn work(&mut self) {
        while let Some(message) = self.inbox.pop_front() {
            self.take(self.own, message);
        }
    }

    fn say(&mut self, to: Machine, message: Message) {
        if to == self.own {
            self.inbox.push_back(message);
            return;
        }
        let configuration = self.configuration();
        let letter = Letter {
            configuration,
            message,
        };
        self.effects.push(Effect::Send { to, letter });
    }

    fn lead(&mut self) {
        let members = &self.round.members;
        let leads = |region: &u16| members.primary(*region) == Some(self.own);
        let led = members.numbers().filter(leads);
        self.round.leads = led.map(|region| (region, Lead::default())).collect();
    }

    fn say_known(&mut self) {
        let numbers: Vec<u16> = self.round.members.numbers().collect();
        for region in numbers {
            let Some(primary) = self.round.members.primary(region) else {
                continue;
            };
            let own = self.round.members.replica(region, self.own);
            if own.is_some_and(|own| own.is_whole) {
                let known = Message::Known {
                    region,
                    records: self.kept.records(region),
                    below: self.kept.below(),
                };
                self.say(primary, known);
            }
        }
        if let Some(master) = self.round.members.master {
            let asked = self.kept.asked().collect();
            self.say(master, Message::Here { asked });
        }
        // A cluster without regions has nothing to open, but a member may ask for outcomes.
        self.end_if_open();
    }

    fn take(&mut self, from: Machine, message: Message) {
        let members = &self.round.members;
        let is_master = members.master == Some(self.own);
        let leads = |region: u16| members.primary(region) == Some(from);
        let is_whole = |region: u16| members.whole(region).any(|machine| machine == from);
        match message {
            Message::Here { asked } if is_master && members.author(from).is_some() => {
                self.round.council.here(from, asked);
                self.decide();
            }
            Message::Known {
                region,
                records,
                below,
            } if is_whole(region) => self.known(from, region, records, below),
            Message::Votes {
                region,
                votes,
                below,
            } if is_master && leads(region) => {
                self.round.council.voted(region, votes, below);
                self.decide();
            }
            Message::Decided { decisions } if members.master == Some(from) => {
                self.decided(decisions);
            }
            Message::Redo { region, committed } if leads(region) => {
                self.redo(region, committed);
            }
            Message::Done { region } => self.done(from, region),
            Message::Open { region } if leads(region) => self.open(region),
            _ => (),
        }
    }

    fn known(&mut self, from: Machine, region: u16, records: Vec<Record>, below: Vec<Below>) {
        let Some(lead) = self.round.leads.get_mut(&region) else {
            return;
        };
        lead.gathered.add(from, records, below);
        let whole = self.round.members.whole(region);
        if lead.has_voted || !lead.gathered.has_all(whole) {
            return;
        }
        lead.has_voted = true;
        trace!("FarmRegionVotes", "region" => region, "records" => lead.gathered.count());
        let votes = Message::Votes {
            region,
            votes: lead.gathered.votes(),
            below: lead.gathered.below(),
        };
        if let Some(master) = self.round.members.master {
            self.say(master, votes);
        }
    }

    fn decide(&mut self) {
        let round = &mut self.round;
        if round.has_decided || !round.council.is_complete(&round.members) {
            return;
        }
        round.has_decided = true;
        trace!("FarmRecoveryDecides", "number" => round.members.configuration);
        for (machine, decisions) in round.council.decide(&round.members) {
            self.say(machine, Message::Decided { decisions });
        }
    }

    fn decided(&mut self, decisions: Vec<Decision>) {
        if let Some(known) = &self.round.decisions {
            let is_same = |said: &Decision| known.get(&said.id) == Some(&said.fate);
            assert!(
                decisions.iter().all(is_same) || !nobody_has_lied(),
                "the master of configuration {} decides anew: {decisions:?}, and before {known:?}",
                self.configuration()
            );
            return;
        }
        let mut says = Vec::new();
        for (region, lead) in &mut self.round.leads {
            // The master has this region's votes, so this machine has heard all.
            assert!(
                lead.has_voted || !nobody_has_lied(),
                "the master decides without the votes of region {region}"
            );
            let committed = decisions.iter().filter_map(|decision| match decision.fate {
                Fate::Committed { written_at } => lead.gathered.redone(decision.id, written_at),
                Fate::WithoutEffect => None,
            });
            let committed: Vec<Redone> = committed.collect();
            let replicas = self.round.members.replicas(*region);
            lead.open = Some(replicas.iter().map(|r| r.machine).collect());
            for replica in replicas {
                let mut committed = committed.clone();
                if !replica.is_whole {
                    committed.iter_mut().for_each(|one| one.writes.clear());
                }
                let region = *region;
                says.push((replica.machine, Message::Redo { region, committed }));
            }
        }
        let fates = decisions.iter().map(|d| (d.id, d.fate));
        self.round.decisions = Some(fates.collect());
        for (to, message) in says {
            self.say(to, message);
        }
        self.end_if_open();
    }

    fn redo(&mut self, region: u16, mut committed: Vec<Redone>) {
        let is_here = self.round.members.replica(region, self.own).is_some();
        let mut writes = committed.iter().flat_map(|redone| &redone.writes);
        if !is_here || writes.any(|write| write.at.region() != region) {
            return;
        }
        if !self.round.redone.insert(region) {
            // It is told once that this is done: letters come once, or the configuration ends.
            return;
        }
        trace!("FarmRegionRedoes", "region" => region, "committed" => committed.len());
        // What was read from disks may be of several generations of a slab.
        committed.sort_by_key(|redone| redone.written_at);
        let work = self.kept.redo(region, committed.clone());
        let void = work.void;
        self.effects.push(Effect::Settle {
            region,
            committed,
            void,
        });
        for id in work.releases {
            self.effects.push(Effect::Release { region, id });
        }
        for (id, written_at, writes) in work.installs {
            self.effects.push(Effect::Install {
                region,
                id,
                written_at,
                writes,
            });
        }
        self.effects.push(Effect::Redone { region });
    }

    /// The replica here has done what [`Effect::Redone`] ended, in the configuration with this number.
    pub fn redone(&mut self, configuration: u64, region: u16) -> Vec<Effect> {
        let primary = self.round.members.primary(region);
        let is_done = self.round.redone.contains(&region);
        if let Some(primary) = primary.filter(|_| is_done && configuration == self.configuration())
        {
            self.say(primary, Message::Done { region });
            self.work();
        }
        std::mem::take(&mut self.effects)
    }

    fn done(&mut self, from: Machine, region: u16) {
        let lead = self.round.leads.get_mut(&region);
        let Some(open) = lead.and_then(|lead| lead.open.as_mut()) else {
            return;
        };
        if open.remove(&from) && open.is_empty() {
            trace!("FarmRegionOpens", "region" => region);
            let machines: Vec<Machine> = self.round.members.machines().collect();
            for machine in machines {
                self.say(machine, Message::Open { region });
            }
        }
    }

    fn open(&mut self, region: u16) {
        if self.round.opened.insert(region) {
            // All its replicas have said so: what is read here from now on has been decided.
            let is_here = self.round.members.replica(region, self.own).is_some();
            assert!(
                !is_here || self.round.redone.contains(&region) || !nobody_has_lied(),
                "region {region} is open in configuration {}, and machine {} has not redone what was decided",
                self.configuration(),
                self.own.0
            );
            self.effects.push(Effect::Opened { region });
            self.end_if_open();
        }
    }

    /// Tells outcomes when nothing can contradict them: all regions keep the decisions.
    fn end_if_open(&mut self) {
        let round = &mut self.round;
        let is_open = round.members.numbers().all(|r| round.opened.contains(&r));
        let (Some(decisions), Some(author)) = (&round.decisions, round.members.author(self.own))
        else {
            return;
        };
        if !is_open || round.has_ended {
            return;
        }
        round.has_ended = true;
        for number in self.kept.answered() {
            let fate = decisions.get(&Id { author, number });
            let fate = fate.copied().unwrap_or(Fate::WithoutEffect);
            let before = self.outcomes.insert(number, fate);
            assert!(
                before.is_none(),
                "transaction {number} was told {before:?}, and asked again: {fate:?}"
            );
            self.effects.push(Effect::Outcome { number, fate });
        }
        self.effects.push(Effect::Ended);
    }
}
