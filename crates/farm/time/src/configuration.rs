//! Configurations: who belongs to the cluster, and whose clock is the time.

use plinth_core::id::Uid;
use plinth_core::record;

/// One life of a process, drawn at random when it starts. A process that restarts has forgotten what it knew of the
/// time, so it is another member.
pub type MemberId = Uid;

/// More members than this are not believed.
pub const MEMBERS_MAX: usize = 10_000;

record! {
    #[derive(Copy, Eq)]
    pub struct Member {
        pub id: MemberId,
        /// The configuration since which it has been a member without a break.
        pub since: u64,
    }

    /// What the coordinators' register holds. It is changed by a compare-and-swap on its number.
    #[derive(Eq)]
    pub struct Configuration {
        /// 1 for the first; each configuration follows the one with the number before it.
        pub number: u64,
        /// The configuration in which the time was taken over by this master. Members keep what they know of the time
        /// while the era stays the same.
        pub era: u64,
        /// The configuration manager, which is also the clock master.
        pub master: MemberId,
        /// In the order of their ids, each once.
        pub members: Vec<Member>,
    }
}

impl Configuration {
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        let place = self.members.binary_search_by_key(&id, |member| member.id);
        place.ok().map(|place| &self.members[place])
    }

    pub fn contains(&self, id: MemberId) -> bool {
        self.member(id).is_some()
    }

    /// Everybody but the master.
    pub fn others(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|m| m.id != self.master)
    }

    /// False for what no server proposes. It may come from the network.
    pub fn is_sane(&self) -> bool {
        let is_in_order = self.members.windows(2).all(|two| two[0].id < two[1].id);
        let is_of_past = |member: &Member| (1..=self.number).contains(&member.since);
        is_in_order
            && self.number < u64::MAX
            && (1..=self.number).contains(&self.era)
            && self.members.len() <= MEMBERS_MAX
            && self.members.iter().all(is_of_past)
            && self.contains(self.master)
    }

    /// The configuration after `former` with these members. `era` is `None` if a new one begins.
    pub fn after(
        former: Option<&Configuration>,
        master: MemberId,
        ids: &[MemberId],
        era: Option<u64>,
    ) -> Configuration {
        let number = former.map_or(0, |former| former.number) + 1;
        let since = |id| {
            let before = former.and_then(|former| former.member(id));
            before.map_or(number, |member| member.since)
        };
        let member = |id: &MemberId| Member {
            id: *id,
            since: since(*id),
        };
        let mut members: Vec<Member> = ids.iter().map(member).collect();
        members.sort_unstable_by_key(|member| member.id);
        members.dedup_by_key(|member| member.id);
        Configuration {
            number,
            era: era.unwrap_or(number),
            master,
            members,
        }
    }
}
