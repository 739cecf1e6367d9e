//! How late a transaction of unknown outcome can have taken effect.

use crate::history::{Change, Isolation, Timestamp};
use crate::prepare::{Groups, Prepared, Version};

pub(crate) fn lower(bound: &mut Option<Timestamp>, by: Timestamp) {
    *bound = Some(bound.map_or(by, |bound| bound.min(by)));
}

/// The latest write timestamp at which nobody has replaced yet what it relied on, nor what it wrote. It is not
/// after `until`, if there is such a bound.
pub(crate) fn latest(
    prepared: &Prepared<'_>,
    versions: &Groups<Version>,
    number: u32,
    until: Option<Timestamp>,
) -> Option<Timestamp> {
    let read_at = prepared.read_at(number);
    // Two that rely on an object do so one after the other. If it read earlier it also wrote earlier, and the
    // timestamp of its version, which says otherwise, is not final.
    let is_earlier = |version: &Version| {
        prepared.relies_on(version.writer, version.object, version.change)
            && prepared.read_at(version.writer) < read_at
    };
    let next_of = |object: u32, relies: bool| {
        let versions = versions.of(object);
        let next = versions.partition_point(|version| version.at <= read_at);
        versions[next..]
            .iter()
            .find(|version| version.writer != number && !(relies && is_earlier(version)))
    };
    let mut latest = None;
    for write in prepared.writes.of(number) {
        let next = match prepared.relies_on(number, write.object, write.change) {
            true => next_of(write.object, true),
            false => next_of_allocated(versions.of(write.object), number, until),
        };
        if let Some(next) = next {
            lower(&mut latest, before(prepared, next));
        }
    }
    if prepared.transaction(number).options.isolation == Isolation::Serializable {
        for read in prepared.reads.of(number) {
            if let Some(next) = next_of(read.object, false) {
                lower(&mut latest, next.at.saturating_sub(1));
            }
        }
    }
    latest
}

/// When a version has been there at the latest, if it is the one before `next`.
fn before(prepared: &Prepared<'_>, next: &Version) -> Timestamp {
    match prepared.relies_on(next.writer, next.object, next.change) {
        false => next.at.saturating_sub(1),
        true => prepared.read_at(next.writer),
    }
}

/// The version after one that `number` has allocated. The object may have come and gone between its snapshot and that,
/// so what counts is where an allocation has its place: after a free, and before anything else.
fn next_of_allocated(
    versions: &[Version],
    number: u32,
    until: Option<Timestamp>,
) -> Option<&Version> {
    let others = || versions.iter().filter(|version| version.writer != number);
    let is_before = |version: &&Version| until.is_none_or(|until| version.at <= until);
    let mut places = Vec::new();
    let mut is_absent = true;
    for next in others().take_while(is_before) {
        if is_absent && next.change != Change::Allocate {
            places.push(next);
        }
        is_absent = next.change == Change::Free;
    }
    let next = others().find(|version| !is_before(version));
    match is_absent {
        true => next,
        false => places.pop().or(next),
    }
}
