//! Who may be left out. Pure.

use crate::record::{Record, Replica, Seat, is_lost};
use crate::view::Left;
use plinth_farm_time::MemberId;
use plinth_runtime::planted;

/// Whether a member may propose that the cluster goes on with these of its members (and perhaps with others, who
/// join). The register decides in any case; this keeps a few that are cut off from the others from removing them.
///
/// - They are at least half of the members that are not dead for sure. Of two halves, the register takes the first.
/// - They have a whole replica of each region that has one, unless all of it died for sure. A machine that is only
///   silent may come back with what it has. In a durable cluster, so may one that is dead: there is no exception.
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
        let mut having = having(record, replicas);
        let is_kept = having.clone().any(|seat| stay.contains(&seat.id));
        is_kept || (!record.cluster.is_durable && having.all(|seat| is_dead(seat.id)))
    })
}

/// The members that have the whole region.
fn having<'a>(
    record: &'a Record,
    region: &'a [Replica],
) -> impl Iterator<Item = &'a Seat> + Clone + 'a {
    let whole = region.iter().filter(|replica| replica.is_whole);
    whole.filter_map(|replica| record.seat(replica.machine))
}

/// In a durable cluster: some region is in the memory of nobody. The cluster goes on when it is restored from disks.
pub fn is_gone(record: &Record, is_dead: impl Fn(MemberId) -> bool) -> bool {
    let is_gone = |region: &Vec<Replica>| {
        !is_lost(region) && having(record, region).all(|seat| is_dead(seat.id))
    };
    record.cluster.is_durable && record.regions.iter().any(is_gone)
}

/// Each region that has a whole replica has one on these machines.
pub fn is_covered(record: &Record, machines: &[u16]) -> bool {
    if planted!(
        "farm_restore_is_hasty",
        "a cluster is restored before the disks of all regions have returned"
    ) {
        return !machines.is_empty();
    }
    record.regions.iter().all(|region| {
        let mut having = having(record, region);
        is_lost(region) || having.any(|seat| machines.contains(&seat.machine))
    })
}

/// Members with data that are not of these machines.
fn missing<'a>(record: &'a Record, machines: &'a [u16]) -> impl Iterator<Item = &'a Seat> {
    let with_data = record.machines.iter().filter(|seat| seat.slots > 0);
    with_data.filter(|seat| !machines.contains(&seat.machine))
}

pub fn have_all_returned(record: &Record, machines: &[u16]) -> bool {
    missing(record, machines).next().is_none()
}

/// Whether these machines, which have returned, may propose that the cluster is restored from their disks. The
/// register decides in any case; this keeps those that return first from leaving out those that live, or return later.
///
/// - They have a whole replica of each region.
/// - The other members with data are dead for sure. If that has been waited for long enough (`is_patient`), the
///   returned need only be as many as the others that may live.
pub fn may_restore(
    record: &Record,
    returned: &[u16],
    is_dead: impl Fn(MemberId) -> bool,
    is_patient: bool,
) -> bool {
    let living = missing(record, returned).filter(|seat| !is_dead(seat.id));
    let living = living.count();
    is_covered(record, returned) && (living == 0 || (is_patient && returned.len() >= living))
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

/// Why this process cannot have its data directory in the cluster of this record.
pub fn misplaced(record: &Record, own: &Seat) -> Option<Left> {
    let former = record.seat_on(own.disk?.id)?;
    let text = if former.machine != own.machine {
        format!(
            "this data directory is machine {}'s: start it as machine {}",
            former.machine, former.machine
        )
    } else if own.slots < former.slots {
        format!(
            "this data directory is of a machine with {} slots: start it with so many, and not {}",
            former.slots, own.slots
        )
    } else {
        return None;
    };
    Some(Left::Refused(text))
}
