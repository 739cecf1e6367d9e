//! Who may be left out. Pure.

use crate::record::Record;
use plinth_farm_time::MemberId;
use plinth_runtime::planted;

/// Whether a member may propose that the cluster goes on with these of its members (and perhaps with others, who
/// join). The register decides in any case; this keeps a few that are cut off from the others from removing them.
///
/// - They are at least half of the members that are not dead for sure. Of two halves, the register takes the first.
/// - They have a whole replica of each region that has one, unless all of it died for sure. A machine that is only
///   silent may come back with what it has.
pub fn may_go_on(record: &Record, stay: &[MemberId], is_dead: impl Fn(MemberId) -> bool) -> bool {
    if planted!(
        "farm_few_go_on",
        "a few members go on without those who have the data"
    ) {
        return true;
    }
    let living = record.machines.iter().filter(|seat| !is_dead(seat.id));
    let staying = record.machines.iter().filter(|s| stay.contains(&s.id));
    if 2 * staying.count() < living.count() {
        return false;
    }
    record.regions.iter().all(|replicas| {
        let whole = replicas.iter().filter(|replica| replica.is_whole);
        let mut having = whole.filter_map(|replica| record.seat(replica.machine));
        let is_kept = having.clone().any(|seat| stay.contains(&seat.id));
        is_kept || having.all(|seat| is_dead(seat.id))
    })
}

/// How many members would take the master's place before this one. They begin one after the other, so that their
/// proposals do not hold each other up in the register.
pub fn rank(record: &Record, own: MemberId, is_dead: impl Fn(MemberId) -> bool) -> u32 {
    let Some(configuration) = &record.configuration else {
        let before = record.waiting.iter().take_while(|seat| seat.id != own);
        return before.count() as u32;
    };
    let able = configuration.others().filter(|m| !is_dead(m.id));
    // Who has been a member longest surely knows the time.
    let own_since = configuration.member(own).map_or(u64::MAX, |m| m.since);
    let before = able.filter(|m| (m.since, m.id) < (own_since, own));
    before.count() as u32
}
