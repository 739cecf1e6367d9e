//! The engine's own claim: transactions ran one after another, in the order of their timestamps.
//!
//! A transaction that took effect stands at its write timestamp, every other one at its read timestamp (§4.2, 7.2).

use crate::history::{Change, Isolation, Moment, Timestamp};
use crate::prepare::{Prepared, ReadOf, Saw, Version};
use crate::violation::{Kind, Violation};

/// Judges by the timestamps that the engine has given.
pub(crate) fn judge(prepared: &Prepared<'_>) -> Result<(), Box<Violation>> {
    for number in prepared.numbers() {
        write_after_read(prepared, number)?;
    }
    let beginnings = beginnings(prepared)?;
    for number in prepared.numbers() {
        for read in prepared.reads.of(number) {
            snapshot(prepared, &beginnings, number, *read)?;
        }
    }
    for number in prepared.numbers() {
        still_current(prepared, number)?;
    }
    strictness(prepared)?;
    monotonic(prepared)
}

fn write_after_read(prepared: &Prepared<'_>, number: u32) -> Result<(), Box<Violation>> {
    let (Some(wrote_at), read_at) = (prepared.wrote_at[number as usize], prepared.read_at(number))
    else {
        return Ok(());
    };
    if wrote_at > read_at {
        return Ok(());
    }
    let id = prepared.transaction(number).id;
    let why = format!("T{id} wrote at {wrote_at}, which is not after {read_at}, where it read");
    Err(prepared.violation(Kind::TimestampOrder, &[number], None, why))
}

/// What an object was before the history, and a transaction that tells so.
#[derive(Clone, Copy)]
struct Beginning {
    is_present: bool,
    told_by: u32,
}

fn is_present_after(version: &Version) -> bool {
    version.change != Change::Free
}

/// Checks each object's versions in their order.
fn beginnings(prepared: &Prepared<'_>) -> Result<Vec<Option<Beginning>>, Box<Violation>> {
    let mut beginnings = vec![None; prepared.objects.len()];
    for (object, beginning) in (0..).zip(&mut beginnings) {
        let versions = prepared.versions.of(object);
        if let Some(first) = versions.first() {
            *beginning = Some(Beginning {
                is_present: first.change != Change::Allocate,
                told_by: first.writer,
            });
        }
        for pair in versions.windows(2) {
            follows(prepared, &pair[0], &pair[1])?;
        }
    }
    // Reads before the first version know it, too.
    for number in prepared.numbers() {
        for read in prepared.reads.of(number) {
            let told = Beginning {
                is_present: read.saw == Saw::Initial,
                told_by: number,
            };
            let is_first = || version_at(prepared, read.object, prepared.read_at(number)).is_none();
            if !matches!(read.saw, Saw::Initial | Saw::Absent) || !is_first() {
                continue;
            }
            let known = beginnings[read.object as usize].get_or_insert(told);
            if known.is_present != told.is_present {
                return Err(two_beginnings(prepared, read.object, *known, told));
            }
        }
    }
    Ok(beginnings)
}

fn follows(
    prepared: &Prepared<'_>,
    former: &Version,
    later: &Version,
) -> Result<(), Box<Violation>> {
    let object = prepared.object(later.object);
    let (before, after) = (
        prepared.transaction(former.writer).id,
        prepared.transaction(later.writer).id,
    );
    let at = later.at;
    let (kind, why) = if former.at == later.at {
        let why = format!("{object:#x} has two versions at {at}, of T{before} and T{after}");
        (Kind::SameTimestamp, why)
    } else if is_present_after(former) == (later.change != Change::Allocate) {
        return Ok(());
    } else if is_present_after(former) {
        let why = format!(
            "T{after} allocated {object:#x} at {at}, where it was allocated since T{before}"
        );
        (Kind::Allocation, why)
    } else {
        let why = format!(
            "T{after} wrote {object:#x} at {at}, which T{before} had freed at {}",
            former.at
        );
        (Kind::Allocation, why)
    };
    Err(prepared.violation(
        kind,
        &[later.writer, former.writer],
        Some(later.object),
        why,
    ))
}

fn two_beginnings(
    prepared: &Prepared<'_>,
    object: u32,
    one: Beginning,
    other: Beginning,
) -> Box<Violation> {
    let (with, without) = if one.is_present {
        (one, other)
    } else {
        (other, one)
    };
    let id = |beginning: Beginning| prepared.transaction(beginning.told_by).id;
    let why = format!(
        "T{} says that {:#x} was allocated before the history, T{} says that it was not",
        id(with),
        prepared.object(object),
        id(without)
    );
    prepared.violation(
        Kind::Beginning,
        &[with.told_by, without.told_by],
        Some(object),
        why,
    )
}

/// The newest version at a timestamp.
fn version_at<'a>(prepared: &'a Prepared<'_>, object: u32, at: Timestamp) -> Option<&'a Version> {
    let versions = prepared.versions.of(object);
    let after = versions.partition_point(|version| version.at <= at);
    after.checked_sub(1).map(|last| &versions[last])
}

/// A read returned the newest version at the read timestamp (Lemma 2).
fn snapshot(
    prepared: &Prepared<'_>,
    beginnings: &[Option<Beginning>],
    reader: u32,
    read: ReadOf,
) -> Result<(), Box<Violation>> {
    let read_at = prepared.read_at(reader);
    let (demanded, at) = match version_at(prepared, read.object, read_at) {
        Some(version) if is_present_after(version) => (Saw::By(version.writer), Some(version)),
        Some(version) => (Saw::Absent, Some(version)),
        None if beginnings[read.object as usize].is_some_and(|beginning| beginning.is_present) => {
            (Saw::Initial, None)
        }
        None => (Saw::Absent, None),
    };
    if demanded == read.saw {
        return Ok(());
    }
    let mut involved = vec![reader];
    let id = prepared.transaction(reader).id;
    let mut why = format!(
        "T{id} read {:#x} at {read_at}",
        prepared.object(read.object)
    );
    why += &format!(" and saw: {}", prepared.shown(read.saw));
    if let Saw::By(writer) = read.saw {
        involved.push(writer);
        let wrote_at = prepared.wrote_at[writer as usize].unwrap_or_default();
        why += &format!(" (written at {wrote_at})");
    }
    match at {
        None => why += &format!("; what was there then: {}", prepared.shown(demanded)),
        Some(version) => {
            involved.push(version.writer);
            let writer = prepared.transaction(version.writer).id;
            let did = if is_present_after(version) {
                "wrote"
            } else {
                "freed"
            };
            why += &format!(
                "; but T{writer} {did} it at {}, the newest one then",
                version.at
            );
        }
    }
    Err(prepared.violation(Kind::Snapshot, &involved, Some(read.object), why))
}

/// Nothing that it relied on changed between its timestamps (Lemma 3). Under snapshot isolation it relies on what it
/// wrote, otherwise on what it read, too. An object that it allocated may have been freed meanwhile, if it had not
/// read it.
fn still_current(prepared: &Prepared<'_>, number: u32) -> Result<(), Box<Violation>> {
    let Some(wrote_at) = prepared.wrote_at[number as usize] else {
        return Ok(());
    };
    let read_at = prepared.read_at(number);
    let written = prepared.writes.of(number).iter();
    let written = written
        .filter(|write| prepared.relies_on(number, write.object, write.change))
        .map(|write| write.object);
    let read: &[ReadOf] = match prepared.transaction(number).options.isolation {
        Isolation::Serializable => prepared.reads.of(number),
        Isolation::Snapshot => &[],
    };
    for object in written.chain(read.iter().map(|read| read.object)) {
        let versions = prepared.versions.of(object);
        let next = versions.partition_point(|version| version.at <= read_at);
        let mut between = versions[next..]
            .iter()
            .take_while(|version| version.at <= wrote_at);
        if let Some(other) = between.find(|version| version.writer != number) {
            let (id, by) = (
                prepared.transaction(number).id,
                prepared.transaction(other.writer).id,
            );
            let why = format!(
                "T{id} committed at {wrote_at}, relying on {:#x} as it was at {read_at}, but T{by} changed it at {}",
                prepared.object(object),
                other.at
            );
            return Err(prepared.violation(
                Kind::Overtaken,
                &[number, other.writer],
                Some(object),
                why,
            ));
        }
    }
    Ok(())
}

/// If a transaction ended before another began, the other one reads at its timestamp or later.
fn strictness(prepared: &Prepared<'_>) -> Result<(), Box<Violation>> {
    let follows = |number: u32| prepared.is_strict(number);
    in_order(
        prepared,
        prepared.numbers().collect(),
        |_| true,
        follows,
        |last, next| {
            let (before, after) = (prepared.transaction(last), prepared.transaction(next));
            let why = format!(
                "T{} began at moment {} and reads at {}; but T{} had ended at moment {} and stands at {}",
                after.id,
                after.begin,
                prepared.read_at(next),
                before.id,
                before.end,
                prepared.point(last).unwrap_or_default()
            );
            prepared.violation(Kind::Strictness, &[next, last], None, why)
        },
    )
}

/// On one machine the lower bound of the time never goes back. So also a transaction that is not strict sees all that
/// ended on its machine before it began.
fn monotonic(prepared: &Prepared<'_>) -> Result<(), Box<Violation>> {
    let is_asked = |number: u32| {
        let options = prepared.transaction(number).options;
        !options.strict && !options.stale
    };
    // Whoever gave it a snapshot knew the time better.
    let precedes = |number: u32| !prepared.transaction(number).options.stale;
    if !prepared.numbers().any(is_asked) {
        return Ok(());
    }
    let mut numbers: Vec<u32> = prepared.numbers().collect();
    numbers.sort_by_key(|&number| prepared.transaction(number).machine);
    for of_machine in numbers
        .chunk_by(|&a, &b| prepared.transaction(a).machine == prepared.transaction(b).machine)
    {
        in_order(
            prepared,
            of_machine.to_vec(),
            precedes,
            is_asked,
            |last, next| {
                let (before, after) = (prepared.transaction(last), prepared.transaction(next));
                let why = format!(
                    "machine {} went back: T{} reads at {}, and T{}, which had ended before, stands at {}",
                    after.machine,
                    after.id,
                    prepared.read_at(next),
                    before.id,
                    prepared.point(last).unwrap_or_default()
                );
                prepared.violation(Kind::Monotonic, &[next, last], None, why)
            },
        )?;
    }
    Ok(())
}

/// Finds two transactions, the first ended before the second began, whose timestamps say otherwise. `precedes` tells
/// who can be the first, `follows` who can be the second.
fn in_order(
    prepared: &Prepared<'_>,
    numbers: Vec<u32>,
    precedes: impl Fn(u32) -> bool,
    follows: impl Fn(u32) -> bool,
    told: impl Fn(u32, u32) -> Box<Violation>,
) -> Result<(), Box<Violation>> {
    let with_end = |&number: &u32| {
        prepared
            .ended(number)
            .filter(|_| precedes(number))
            .map(|end| (end, number))
    };
    let mut ended: Vec<(Moment, u32)> = numbers.iter().filter_map(with_end).collect();
    ended.sort_unstable();
    let mut begun = numbers;
    begun
        .retain(|&number| follows(number) && prepared.transaction(number).read_timestamp.is_some());
    begun.sort_by_key(|&number| prepared.transaction(number).begin);
    let mut ended = ended.into_iter().peekable();
    let mut last: Option<(Timestamp, u32)> = None;
    for next in begun {
        let begin = prepared.transaction(next).begin;
        while let Some((_, number)) = ended.next_if(|ended| ended.0 < begin) {
            if let Some(point) = prepared.point(number) {
                last = last.max(Some((point, number)));
            }
        }
        if let Some((point, number)) = last
            && point > prepared.read_at(next)
        {
            return Err(told(number, next));
        }
    }
    Ok(())
}
