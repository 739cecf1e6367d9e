//! What a server keeps whatever its part is: what it knows of the time, and what it has to say.

use crate::configuration::MemberId;
use crate::interval::Bounds;
use crate::messages::{Body, Message};
use crate::sync::Sync;
use crate::watch::{Rate, Watch};
use plinth_core::record;
use std::collections::BTreeSet;

/// The same on all servers of a cluster, except for the intervals.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub bounds: Bounds,
    /// How long a lease lasts, on the clock of whoever holds it.
    pub lease_ns: u64,
    /// A member asks for the time so long after it last did.
    pub sync_ns: u64,
    /// A master repeats a message that was not answered for so long.
    pub resend_ns: u64,
    /// Where time begins: above every timestamp that was given out before the first configuration, by a cluster whose
    /// data this one continues. 0 for a new one.
    pub origin: u64,
}

impl Settings {
    /// A lease that was given at `given` has surely ended on its holder's clock.
    pub fn has_ended(&self, given: u64, now: u64) -> bool {
        now.saturating_sub(given) >= self.bounds.most(self.lease_ns)
    }

    /// From this reading on, it [has](Settings::has_ended).
    pub fn ended_at(&self, given: u64) -> u64 {
        given.saturating_add(self.bounds.most(self.lease_ns))
    }

    /// The end of a lease that was asked for at `asked`.
    pub fn end(&self, asked: u64) -> u64 {
        asked.saturating_add(self.lease_ns)
    }
}

record! {
    /// A configuration whose members had no time before, and where time continued in it or above.
    #[derive(Copy, Eq)]
    pub struct Restored {
        pub number: u64,
        pub origin: u64,
    }
}

/// Something that the caller has to see to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// There is a newer configuration: read the register, and [`learn`](crate::Server::learn) it.
    Outdated { number: u64 },
    /// This machine's clock and the master's drift apart by more than they should: one of them is to be removed, the
    /// master if several members report it.
    Drifting { master: MemberId, rate: Rate },
    /// A clock has broken its bounds. The server has stopped for good, and the process must leave.
    Broken,
}

pub(crate) struct State {
    pub id: MemberId,
    pub settings: Settings,
    pub sync: Sync,
    /// The era whose time [`sync`](State::sync) bounds; 0 if it knows nothing.
    pub era: u64,
    /// The era of the last successful synchronisation.
    pub synced_era: u64,
    /// Its upper bound covers all timestamps that were given out up to this configuration, and those of later ones
    /// that it was asked to acknowledge and did not.
    pub known_in: u64,
    pub is_broken: bool,
    /// [`Server::restorable`](crate::Server::restorable).
    pub may_be_restored: bool,
    /// The last configuration that was [restored](crate::Server::propose_restored), and where time continued in it.
    pub restored: Option<Restored>,
    /// Members of the present configuration whose lives have ended.
    pub dead: BTreeSet<MemberId>,
    pub watch: Watch,
    pub out: Vec<(MemberId, Message)>,
    pub notices: Vec<Notice>,
}

impl State {
    pub fn new(id: MemberId, settings: Settings) -> State {
        State {
            id,
            settings,
            sync: Sync::new(settings.bounds),
            era: 0,
            synced_era: 0,
            known_in: 0,
            is_broken: false,
            may_be_restored: false,
            restored: None,
            dead: BTreeSet::new(),
            watch: Watch::new(settings.bounds),
            out: Vec::new(),
            notices: Vec::new(),
        }
    }

    pub fn send(&mut self, to: MemberId, number: u64, body: Body) {
        self.out.push((to, Message { number, body }));
    }

    /// Tells the caller. Of each kind it gets the newest.
    pub fn tell(&mut self, notice: Notice) {
        let kind = std::mem::discriminant(&notice);
        let is_other = |old: &Notice| std::mem::discriminant(old) != kind;
        self.notices.retain(is_other);
        self.notices.push(notice);
    }

    pub fn break_down(&mut self) {
        self.is_broken = true;
        self.tell(Notice::Broken);
    }
}
