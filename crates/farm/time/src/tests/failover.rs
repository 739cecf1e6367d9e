//! Figure 6 step by step: servers whose clocks are exact, and messages that a test delivers one by one.

use super::model::BOUNDS;
use crate::{Body, Configuration, MemberId, Message, Notice, Refusal, Server, Settings, Untimed};
use plinth_core::id::Uid;
use plinth_runtime::fault;
use std::collections::{BTreeMap, VecDeque};

pub(super) const LEASE: u64 = 10_000_000;
/// A lease, as others must wait for it.
pub(super) const LEASE_WAIT: u64 = 10_011_000;
pub(super) const SETTINGS: Settings = Settings {
    bounds: BOUNDS,
    lease_ns: LEASE,
    sync_ns: 1_000_000,
    resend_ns: 2_000_000,
    origin: 5_000,
};

pub(super) struct Net {
    pub now: u64,
    pub servers: BTreeMap<MemberId, Server>,
    under_way: VecDeque<(MemberId, MemberId, Message)>,
    /// Everything to and from them is lost.
    pub cut: Vec<MemberId>,
    pub register: Option<Configuration>,
}

impl Net {
    pub fn new(servers: u128) -> Net {
        let server = |id| (Uid(id), Server::new(Uid(id), SETTINGS));
        Net {
            now: 1_000_000_000,
            servers: (1..=servers).map(server).collect(),
            under_way: VecDeque::new(),
            cut: Vec::new(),
            register: None,
        }
    }

    /// All of them in one configuration, synchronised, with 1 as the master.
    pub fn running(servers: u128) -> Net {
        let mut net = Net::new(servers);
        net.configure(1, &(1..=servers).collect::<Vec<_>>())
            .expect("the first");
        net.pass(5_000_000);
        assert_eq!(net.enabled(), (1..=servers).collect::<Vec<_>>());
        net
    }

    pub fn at(&mut self, id: u128) -> &mut Server {
        self.servers.get_mut(&Uid(id)).expect("a server")
    }

    pub fn collect(&mut self, id: MemberId) {
        let messages = self.servers.get_mut(&id).expect("a server").take_messages();
        let is_cut = |id: &MemberId| self.cut.contains(id);
        let passes = |to: &MemberId| !is_cut(&id) && !is_cut(to);
        let messages = messages.into_iter().filter(|(to, _)| passes(to));
        self.under_way.extend(messages.map(|(to, m)| (id, to, m)));
    }

    /// Delivers one message, a microsecond after it was sent or the one before was delivered.
    fn deliver(&mut self) -> Option<Message> {
        let (from, to, message) = self.under_way.pop_front()?;
        self.now += 1000;
        let server = self.servers.get_mut(&to).expect("a server");
        server.receive(from, &message, self.now);
        self.collect(to);
        Some(message)
    }

    /// Delivers messages until one of this kind has been.
    pub fn deliver_until(&mut self, is_it: impl Fn(&Body) -> bool) {
        while let Some(message) = self.deliver() {
            if is_it(&message.body) {
                return;
            }
        }
        panic!("no such message");
    }

    pub fn tick(&mut self) {
        let ids: Vec<MemberId> = self.servers.keys().copied().collect();
        for id in ids {
            let now = self.now;
            self.servers.get_mut(&id).expect("a server").tick(now);
            self.collect(id);
        }
    }

    pub fn pass(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            self.tick();
            while self.deliver().is_some() {}
            self.now = (self.now + 100_000).min(end.max(self.now));
        }
    }

    /// A configuration that the register takes.
    pub fn configure(&mut self, id: u128, ids: &[u128]) -> Result<(), Refusal> {
        let ids: Vec<MemberId> = ids.iter().copied().map(Uid).collect();
        let now = self.now;
        let proposed = self.at(id).propose(&ids, now)?;
        let number = self.register.as_ref().map_or(0, |held| held.number);
        assert_eq!(proposed.number, number + 1);
        self.register = Some(proposed);
        self.at(id).taken(now);
        self.collect(Uid(id));
        Ok(())
    }

    /// The process of `id` has been killed, and `of` are told.
    pub fn kill(&mut self, id: u128, of: &[u128]) {
        self.at(id).leave();
        self.cut.push(Uid(id));
        self.under_way
            .retain(|(from, to, _)| *from != Uid(id) && *to != Uid(id));
        let now = self.now;
        for told in of {
            self.at(*told).died(Uid(id), now);
        }
    }

    pub fn enabled(&mut self) -> Vec<u128> {
        let now = self.now;
        let servers = self.servers.iter_mut();
        let enabled = servers.filter_map(|(id, server)| server.time(now).is_ok().then_some(id.0));
        enabled.collect()
    }

    pub fn suspects(&self, id: u128) -> Vec<MemberId> {
        self.servers[&Uid(id)].suspects(self.now)
    }

    pub fn upper(&mut self, id: u128) -> u64 {
        let now = self.now;
        self.at(id).time(now).expect("it is enabled").upper
    }
}

#[test]
fn the_time_begins_at_its_origin() {
    let mut net = Net::new(1);
    net.configure(1, &[1]).expect("the first");
    let upper = net.upper(1);
    assert!((5_000..7_000).contains(&upper), "{upper}");
}

#[test]
fn a_new_master_continues_above_all_that_was_given_out() {
    let mut net = Net::running(3);
    let before = (1..=3).map(|id| net.upper(id)).max();
    net.cut.push(Uid(1));
    net.pass(LEASE_WAIT + 2_000_000);
    assert_eq!(
        net.enabled(),
        [] as [u128; 0],
        "without a master nobody has a lease"
    );
    assert_eq!(net.suspects(2), [Uid(1)]);
    net.configure(2, &[2, 3]).expect("the master is gone");
    let since = net.now;
    net.deliver_until(|body| matches!(body, Body::AdvanceAck { .. }));
    assert!(
        net.now - since < 10_000,
        "nobody but the old master has left: no wait"
    );
    assert_eq!(net.enabled(), [2], "the other has not synchronised yet");
    net.pass(1_000_000);
    assert_eq!(net.enabled(), [2, 3]);
    let now = net.now;
    let lower = net.at(3).time(now).expect("a time").lower;
    assert!(Some(lower) > before);
}

#[test]
fn a_lease_is_waited_for_if_more_than_the_master_has_left() {
    let mut net = Net::running(4);
    net.cut = vec![Uid(1), Uid(4)];
    net.pass(LEASE_WAIT + 2_000_000);
    net.configure(2, &[2, 3]).expect("the master is gone");
    let since = net.now;
    while net.enabled().is_empty() {
        net.pass(100_000);
        assert!(net.suspects(3).is_empty(), "a master that waits is alive");
    }
    let waited = net.now - since;
    assert!(
        (LEASE_WAIT..LEASE_WAIT + 1_000_000).contains(&waited),
        "{waited}"
    );
}

#[test]
fn new_members_disable_no_clock() {
    let mut net = Net::running(3);
    let joining = Server::new(Uid(4), SETTINGS);
    net.servers.insert(Uid(4), joining);
    net.configure(1, &[1, 2, 3, 4]).expect("nobody leaves");
    for _ in 0..50 {
        assert!(net.enabled().starts_with(&[1, 2, 3]));
        net.pass(100_000);
    }
    assert_eq!(net.enabled(), [1, 2, 3, 4]);
    assert!(
        (1..=4).all(|id| net.at(id).is_committed()),
        "they hear of it"
    );
    assert_eq!(net.register.as_ref().map(|held| held.era), Some(1));
}

#[test]
fn a_master_removes_only_whose_lease_has_ended() {
    let mut net = Net::running(3);
    assert_eq!(net.configure(1, &[1, 2]), Err(Refusal::LeaseRuns(Uid(3))));
    assert_eq!(net.configure(2, &[2, 3]), Err(Refusal::MasterLives));
    net.cut.push(Uid(3));
    net.pass(LEASE_WAIT + 1_000_000);
    assert_eq!(net.suspects(1), [Uid(3)]);
    assert!(
        !net.enabled().contains(&1),
        "the silent member may have another master"
    );
    net.configure(1, &[1, 2]).expect("its lease has ended");
    net.pass(1_000_000);
    assert_eq!(net.enabled(), [1, 2]);
}

#[test]
fn a_configuration_may_begin_in_the_middle_of_another() {
    let mut net = Net::running(4);
    let before = (1..=4).map(|id| net.upper(id)).max();
    net.cut.push(Uid(1));
    net.pass(LEASE_WAIT + 2_000_000);
    net.configure(2, &[2, 3, 4]).expect("the master is gone");
    // One member has acknowledged, the other has not heard of it, when this master goes, too.
    net.deliver_until(|body| matches!(body, Body::NewConfigAck { .. }));
    net.under_way.clear();
    net.cut.push(Uid(2));
    net.pass(LEASE_WAIT + 1_000_000);
    let (now, current) = (net.now, net.register.clone().expect("a configuration"));
    net.at(4).learn(current, now);
    assert_eq!(net.suspects(3), [Uid(2)]);
    net.configure(3, &[3, 4]).expect("the master is gone");
    net.pass(2_000_000);
    assert_eq!(
        net.enabled(),
        [] as [u128; 0],
        "whether the master in between had waited is not known"
    );
    net.pass(LEASE_WAIT);
    assert_eq!(net.enabled(), [3, 4]);
    let now = net.now;
    assert!(Some(net.at(4).time(now).expect("a time").lower) > before);
}

#[test]
fn a_stale_configuration_is_refused_and_its_master_hears_of_the_new_one() {
    let mut net = Net::running(3);
    let old = Message {
        number: 1,
        body: Body::NewConfig {
            configuration: net.register.clone().expect("a configuration"),
            asked: 0,
        },
    };
    net.cut.push(Uid(1));
    net.pass(LEASE_WAIT + 2_000_000);
    net.configure(2, &[2, 3]).expect("the master is gone");
    net.pass(1_000_000);
    net.cut.clear();
    let now = net.now;
    net.at(3).receive(Uid(1), &old, now);
    assert_eq!(net.at(3).configuration().map(|c| c.number), Some(2));
    net.collect(Uid(3));
    net.deliver_until(|body| *body == Body::Outdated);
    assert_eq!(net.at(1).take_notices(), [Notice::Outdated { number: 2 }]);
    let (now, current) = (net.now, net.register.clone().expect("a configuration"));
    net.at(1).learn(current, now);
    assert!(!net.at(1).is_member());
    assert_eq!(net.configure(1, &[1, 2, 3]), Err(Refusal::NotAMember));
}

#[test]
fn a_member_that_has_not_heard_of_the_new_master_stays_disabled() {
    let mut net = Net::running(3);
    net.cut.push(Uid(1));
    net.pass(LEASE_WAIT + 2_000_000);
    net.configure(2, &[2, 3]).expect("the master is gone");
    net.deliver_until(|body| matches!(body, Body::AdvanceAck { .. }));
    let now = net.now;
    assert_eq!(net.at(3).time(now), Err(Untimed::Disabled));
    net.cut.push(Uid(3));
    net.under_way.clear();
    net.pass(LEASE_WAIT);
    let now = net.now;
    assert_eq!(net.at(3).time(now), Err(Untimed::Disabled));
}

/// The paper keeps `FF` as a number. It must age: the new master gives out timestamps above it at once.
#[test]
fn who_has_only_acknowledged_the_forward_mark_continues_above_the_master_of_it() {
    let mut net = Net::running(3);
    net.cut.push(Uid(1));
    net.pass(LEASE_WAIT + 2_000_000);
    net.configure(2, &[2, 3]).expect("the master is gone");
    net.deliver_until(|body| matches!(body, Body::AdvanceAck { .. }));
    // The master is enabled, and 3 never hears of it again.
    net.cut.push(Uid(3));
    net.under_way.clear();
    net.now += LEASE / 2;
    let given = net.upper(2);
    net.cut = vec![Uid(1), Uid(2)];
    net.now += LEASE_WAIT;
    net.configure(3, &[3]).expect("the master is gone");
    let now = net.now;
    let lower = net.at(3).time(now).expect("a time").lower;
    assert!(lower > given, "{lower} comes after {given}");
}

#[test]
fn who_has_joined_and_not_synchronised_cannot_take_over() {
    let mut net = Net::running(2);
    net.servers.insert(Uid(3), Server::new(Uid(3), SETTINGS));
    net.configure(1, &[1, 2, 3]).expect("nobody leaves");
    net.deliver_until(|body| matches!(body, Body::NewConfigAck { .. }));
    net.deliver_until(|body| matches!(body, Body::NewConfigAck { .. }));
    net.cut.push(Uid(1));
    net.under_way.clear();
    net.pass(LEASE_WAIT + 2_000_000);
    assert_eq!(net.configure(3, &[2, 3]), Err(Refusal::KnowsNoTime));
    assert!(!net.at(3).knows_time() && net.at(2).knows_time());
    net.configure(2, &[2, 3]).expect("it knows the time");
}

#[test]
fn a_proposal_that_the_register_refuses_leaves_all_as_it_was() {
    let mut net = Net::running(3);
    net.cut.push(Uid(1));
    net.pass(LEASE_WAIT + 2_000_000);
    let now = net.now;
    let lost = net
        .at(3)
        .propose(&[Uid(2), Uid(3)], now)
        .expect("the master is gone");
    assert_eq!(net.at(3).propose(&[Uid(3)], now), Err(Refusal::UnderWay));
    net.configure(2, &[2, 3]).expect("the master is gone");
    let current = net.register.clone().expect("a configuration");
    assert_ne!(current, lost);
    let now = net.now;
    net.at(3).lost(current, now);
    net.at(3).taken(now);
    assert!(!net.at(3).is_master());
    net.pass(3_000_000);
    assert_eq!(net.enabled(), [2, 3]);
}

#[test]
fn a_clock_that_jumps_stops_its_server() {
    let mut net = Net::running(3);
    let now = net.now;
    net.at(3).tick(now);
    assert!(
        net.at(3).time(now + 3_600_000_000_000).is_err(),
        "no lease lasts so long"
    );
    let mut net = Net::running(3);
    let now = net.now;
    assert_eq!(net.at(3).time(now - 1_000_000), Err(Untimed::Broken));
    assert_eq!(net.at(3).take_notices(), [Notice::Broken]);
    assert_eq!(net.at(3).propose(&[Uid(3)], now), Err(Refusal::Broken));
    net.pass(LEASE_WAIT + 1_000_000);
    assert_eq!(net.suspects(1), [Uid(3)], "it leaves");
}

#[test]
fn a_member_that_is_about_to_be_removed_gets_no_lease() {
    let mut net = Net::running(3);
    net.cut.push(Uid(3));
    net.pass(LEASE_WAIT + 1_000_000);
    let now = net.now;
    let ids = [Uid(1), Uid(2)];
    let proposed = net.at(1).propose(&ids, now).expect("its lease has ended");
    // The register is slow, and the member comes back.
    net.cut.clear();
    net.pass(5_000_000);
    assert!(!net.enabled().contains(&3));
    let now = net.now;
    net.at(1).taken(now);
    net.register = Some(proposed);
    net.pass(5_000_000);
    assert_eq!(net.enabled(), [1, 2]);
}

#[test]
fn the_forward_marks_of_those_that_stayed_count_and_not_of_those_that_join() {
    let mut net = Net::running(3);
    net.servers.insert(Uid(4), Server::new(Uid(4), SETTINGS));
    net.cut.push(Uid(1));
    net.pass(LEASE_WAIT + 2_000_000);
    net.configure(2, &[2, 3, 4]).expect("the master is gone");
    for (from, forward) in [(3, 1 << 40), (4, 1 << 60)] {
        let (number, asked, now) = (2, net.now, net.now);
        let forward = Some(forward);
        let body = Body::NewConfigAck { forward, asked };
        net.at(2).receive(Uid(from), &Message { number, body }, now);
    }
    net.pass(1_000_000);
    assert_eq!(net.enabled(), [2, 3, 4]);
    let upper = net.upper(2);
    assert!((1 << 40..1 << 41).contains(&upper), "{upper}");
}

#[test]
fn the_place_of_a_dead_master_is_taken_at_once() {
    let mut net = Net::running(3);
    let before = (1..=3).map(|id| net.upper(id)).max();
    net.kill(1, &[2]);
    assert_eq!(net.suspects(2), [Uid(1)]);
    assert!(net.suspects(3).is_empty(), "it was not told");
    net.configure(2, &[2, 3]).expect("the master is dead");
    let since = net.now;
    net.pass(1_000_000);
    assert_eq!(net.enabled(), [2, 3]);
    assert!(net.now - since < LEASE / 2, "no lease was waited for");
    let now = net.now;
    assert!(Some(net.at(3).time(now).expect("a time").lower) > before);
}

#[test]
fn the_leases_of_the_dead_are_not_waited_for() {
    let mut net = Net::running(4);
    net.kill(1, &[2]);
    net.kill(4, &[2]);
    net.configure(2, &[2, 3]).expect("the master is dead");
    net.pass(1_000_000);
    assert_eq!(net.enabled(), [2, 3]);
    // In the middle of the change, another one dies.
    let mut net = Net::running(4);
    net.kill(1, &[2]);
    net.configure(2, &[2, 3, 4]).expect("the master is dead");
    net.deliver_until(|body| matches!(body, Body::NewConfigAck { .. }));
    net.kill(4, &[2]);
    assert_eq!(net.suspects(2), [Uid(4)]);
    net.configure(2, &[2, 3]).expect("it is dead");
    net.pass(1_000_000);
    assert_eq!(net.enabled(), [2, 3]);
}

#[test]
fn who_is_silent_beside_a_dead_master_is_waited_for() {
    let mut net = Net::running(4);
    net.kill(1, &[2]);
    net.cut.push(Uid(4));
    net.configure(2, &[2, 3]).expect("the master is dead");
    net.pass(LEASE_WAIT - 100_000);
    let enabled = net.enabled();
    assert!(!enabled.contains(&2), "4 may give out timestamps");
    net.pass(1_000_000);
    assert_eq!(net.enabled(), [2, 3]);
}

#[test]
fn a_dead_member_disables_no_clock() {
    let mut net = Net::running(3);
    net.kill(3, &[1]);
    assert_eq!(net.suspects(1), [Uid(3)]);
    for _ in 0..2 * LEASE_WAIT / 1_000_000 {
        net.pass(1_000_000);
        assert!(net.enabled().starts_with(&[1, 2]), "it holds nothing back");
    }
    net.configure(1, &[1, 2]).expect("it is dead");
    net.pass(100_000);
    assert_eq!(net.enabled(), [1, 2]);
    assert_eq!(net.register.as_ref().map(|held| held.era), Some(1));
}

/// 2 takes the place of 1, which does not hear of it, gives out timestamps, and dies.
fn enabled_after_the_death_of_its_successor() -> bool {
    let mut net = Net::running(4);
    net.cut = vec![Uid(2)];
    net.pass(LEASE_WAIT + 1_000_000);
    let now = net.now;
    assert!(net.at(1).time(now).is_err(), "the lease of 2 has ended");
    net.configure(2, &[2, 3, 4]).expect("its lease has ended");
    net.cut = vec![Uid(1)];
    net.pass(3_000_000);
    assert_eq!(net.enabled(), [2, 3, 4]);
    // The leases that 3 and 4 have given to 1 still run.
    net.kill(2, &[1]);
    net.enabled().contains(&1)
}

#[test]
fn a_lease_that_has_ended_does_not_come_back_with_the_death_of_its_giver() {
    assert!(!enabled_after_the_death_of_its_successor());
    fault::plant(Some("farm_lease_of_the_dead_revives"));
    let is_enabled = enabled_after_the_death_of_its_successor();
    fault::plant(None);
    assert!(is_enabled, "the test sees the fault");
    fault::found("farm_lease_of_the_dead_revives");
}

#[test]
fn who_joins_is_not_missed_while_another_keeps_the_configuration_from_being_committed() {
    let mut net = Net::running(3);
    net.servers.insert(Uid(4), Server::new(Uid(4), SETTINGS));
    net.cut.push(Uid(3));
    net.configure(1, &[1, 2, 3, 4]).expect("nobody leaves");
    net.pass(2 * LEASE_WAIT);
    assert_eq!(net.suspects(1), [Uid(3)]);
}

#[test]
fn who_proposes_to_take_the_masters_place_knows_the_time_until_it_is_taken_and_the_new_time_is_above()
 {
    let mut net = Net::running(3);
    net.kill(1, &[2, 3]);
    let ids = [Uid(2), Uid(3)];
    let now = net.now;
    let proposed = net.at(2).propose(&ids, now).expect("the master is dead");
    // The register is slow.
    net.pass(LEASE_WAIT / 2);
    assert_eq!(net.enabled(), [2, 3]);
    let given = net.upper(2).max(net.upper(3));
    net.register = Some(proposed);
    let now = net.now;
    net.at(2).taken(now);
    assert_eq!(net.enabled(), [3], "it has not heard of the change");
    net.collect(Uid(2));
    net.pass(2_000_000);
    assert_eq!(net.enabled(), [2, 3]);
    let now = net.now;
    for id in [2, 3] {
        let lower = net.at(id).time(now).expect("a time").lower;
        assert!(lower > given, "{lower} comes after {given}");
    }
}

#[test]
fn who_proposes_to_take_the_masters_place_knows_no_time_when_its_lease_has_ended() {
    let mut net = Net::running(3);
    net.kill(1, &[2, 3]);
    let now = net.now;
    let ids = [Uid(2), Uid(3)];
    net.at(2).propose(&ids, now).expect("the master is dead");
    net.pass(LEASE_WAIT + 1_000_000);
    assert_eq!(net.enabled(), [] as [u128; 0]);
}

#[test]
fn a_slow_register_makes_nobody_suspected_who_has_not_been_asked() {
    let mut net = Net::running(3);
    net.kill(1, &[2]);
    let ids = [Uid(2), Uid(3)];
    let now = net.now;
    let proposed = net.at(2).propose(&ids, now).expect("the master is dead");
    net.pass(2 * LEASE_WAIT);
    net.register = Some(proposed);
    let now = net.now;
    net.at(2).taken(now);
    assert_eq!(net.suspects(2), [] as [MemberId; 0]);
    // One that stays silent is suspected a lease later.
    net.cut.push(Uid(3));
    net.pass(LEASE_WAIT + 1_000_000);
    assert_eq!(net.suspects(2), [Uid(3)]);
}

#[test]
fn nothing_happens_before_the_server_says_so() {
    let mut net = Net::running(3);
    let mut looks = 0;
    for step in 0..200 {
        if step == 60 {
            net.cut.push(Uid(3));
        }
        if step == 120 {
            net.cut.push(Uid(1));
        }
        for id in 1..=3 {
            let (now, server) = (net.now, net.at(id));
            let until = server.quiet_until();
            if until > now {
                looks += 1;
                let before = server.suspects(now);
                server.tick(until - 1);
                assert_eq!(
                    server.take_messages(),
                    [],
                    "step {step}: {id} sends something"
                );
                assert_eq!(server.suspects(until - 1), before, "step {step}: {id}");
            }
        }
        net.pass(300_000);
    }
    assert!(looks > 300, "{looks}");
}

#[test]
fn who_asks_while_the_time_is_taken_over_is_answered_when_it_is_known() {
    let mut net = Net::running(4);
    net.kill(1, &[2, 3, 4]);
    net.configure(2, &[2, 3, 4]).expect("the master is dead");
    let mut answers = Vec::new();
    while let Some(message) = net.deliver() {
        if let Body::Time { interval, .. } = message.body {
            answers.push(interval.is_some());
        }
        net.tick();
    }
    assert_eq!(net.enabled(), [2, 3, 4]);
    assert_eq!(answers, [true, true]);
}
