//! The replay of a recorded history. A pure function, so that tests can give it histories that no database produced.

use super::Ending;
use plinth_core::key::printable;
use plinth_core::{Key, Value, Version, Versionstamp};
use std::collections::BTreeMap;

type Verdict = Result<(), String>;
type Rows = Vec<(Key, Value)>;

/// The record of one attempt.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub id: u64,
    /// Newest version acknowledged to any client before the read version was requested.
    pub floor: Version,
    pub read_version: Version,
    pub reads: Vec<Read>,
    pub writes: Vec<Write>,
    pub ending: Ending,
    /// The commit version that the client received.
    pub told: Version,
}

#[derive(Clone, Debug)]
pub enum Read {
    Key {
        key: Key,
        value: Option<Value>,
        snapshot: bool,
    },
    Range {
        begin: Key,
        end: Key,
        /// 0: no limit.
        limit: usize,
        reverse: bool,
        rows: Rows,
        snapshot: bool,
    },
}

#[derive(Clone, Debug)]
pub enum Write {
    Set(Key, Value),
    Clear(Key),
    ClearRange(Key, Key),
}

impl Attempt {
    pub fn new(id: u64, floor: Version, read_version: Version) -> Self {
        Attempt {
            id,
            floor,
            read_version,
            reads: Vec::new(),
            writes: Vec::new(),
            ending: Ending::Failed,
            told: -1,
        }
    }
}

/// All versions of all keys.
#[derive(Default)]
struct States {
    keys: BTreeMap<Key, Vec<(Versionstamp, Option<Value>)>>,
}

impl States {
    fn apply(&mut self, stamp: Versionstamp, write: &Write) {
        match write {
            Write::Set(key, value) => self.put(stamp, key.clone(), Some(value.clone())),
            Write::Clear(key) => self.put(stamp, key.clone(), None),
            Write::ClearRange(begin, end) => {
                let inside: Vec<Key> = self
                    .keys
                    .range(begin.clone()..end.clone())
                    .map(|(k, _)| k.clone())
                    .collect();
                inside
                    .into_iter()
                    .for_each(|key| self.put(stamp, key, None));
            }
        }
    }

    fn put(&mut self, stamp: Versionstamp, key: Key, value: Option<Value>) {
        self.keys.entry(key).or_default().push((stamp, value));
    }

    /// The value just before `before`.
    fn value(&self, key: &Key, before: Versionstamp) -> Option<&Value> {
        let versions = self.keys.get(key)?;
        let at = versions.partition_point(|(stamp, _)| *stamp < before);
        versions[..at].last()?.1.as_ref()
    }

    fn range(&self, begin: &Key, end: &Key, before: Versionstamp) -> Rows {
        let keys = self
            .keys
            .range(begin.clone()..end.clone())
            .map(|(key, _)| key);
        let row = |key: &Key| Some((key.clone(), self.value(key, before)?.clone()));
        keys.filter_map(row).collect()
    }

    /// Checks a read against the state just before `before`.
    fn check(&self, read: &Read, before: Versionstamp) -> Verdict {
        match read {
            Read::Key { key, value, .. } => {
                let expected = self.value(key, before);
                if expected == value.as_ref() {
                    return Ok(());
                }
                let key = printable(key);
                Err(format!(
                    "{key} read as {}, but was {}",
                    show(value.as_ref()),
                    show(expected)
                ))
            }
            Read::Range {
                begin,
                end,
                limit,
                reverse,
                rows,
                ..
            } => {
                let mut expected = self.range(begin, end, before);
                if *reverse {
                    expected.reverse();
                }
                if *limit > 0 {
                    expected.truncate(*limit);
                }
                if expected == *rows {
                    return Ok(());
                }
                let (begin, end) = (printable(begin), printable(end));
                let (got, want) = (show_rows(rows), show_rows(&expected));
                Err(format!(
                    "[{begin}, {end}) limit {limit} reverse {reverse} read as {got}, but was {want}"
                ))
            }
        }
    }
}

fn show(value: Option<&Value>) -> String {
    value.map_or("absent".into(), |value| {
        printable(&value[..value.len().min(40)])
    })
}

fn show_rows(rows: &Rows) -> String {
    let row = |(key, value): &(Key, Value)| format!("{}={}", printable(key), show(Some(value)));
    let rows: Vec<String> = rows.iter().map(row).collect();
    format!("{{{}}}", rows.join(" "))
}

impl Read {
    fn is_snapshot(&self) -> bool {
        match self {
            Read::Key { snapshot, .. } | Read::Range { snapshot, .. } => *snapshot,
        }
    }
}

/// Checks whether the history equals an execution of one transaction after the other. `stamps`: the markers found at
/// the end, by attempt; `rows`: all data found at the end.
pub fn judge(
    attempts: &[Attempt],
    stamps: &BTreeMap<u64, Versionstamp>,
    rows: &[(Key, Value)],
) -> Verdict {
    for attempt in attempts {
        check_ending(attempt, stamps.get(&attempt.id))?;
    }
    let mut committed: Vec<(Versionstamp, &Attempt)> = attempts
        .iter()
        .filter_map(|a| Some((*stamps.get(&a.id)?, a)))
        .collect();
    committed.sort_by_key(|(stamp, _)| *stamp);
    if let Some(pair) = committed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(format!(
            "{} and {} have one stamp",
            pair[0].1.id, pair[1].1.id
        ));
    }
    let mut states = States::default();
    for (stamp, attempt) in &committed {
        attempt
            .writes
            .iter()
            .for_each(|write| states.apply(*stamp, write));
    }
    for attempt in attempts {
        check_reads(&states, attempt, stamps.get(&attempt.id))?;
    }
    let end = Versionstamp([0xff; 10]);
    let expected = states.range(&Key::new(), &Key::from_static(b"\xff"), end);
    if expected != rows {
        let (got, want) = (show_rows(&rows.to_vec()), show_rows(&expected));
        return Err(format!(
            "the database ends with {got}, the history with {want}"
        ));
    }
    Ok(())
}

fn check_ending(attempt: &Attempt, stamp: Option<&Versionstamp>) -> Verdict {
    let Attempt {
        id,
        floor,
        read_version,
        told,
        ..
    } = attempt;
    if read_version < floor {
        return Err(format!(
            "attempt {id} reads at {read_version}, but {floor} was acknowledged before"
        ));
    }
    match (attempt.ending, stamp) {
        (Ending::Committed, None) => {
            Err(format!("attempt {id} was committed at {told}, and is lost"))
        }
        (Ending::Committed, Some(stamp)) if stamp.version() != *told => Err(format!(
            "attempt {id} was told {told}, and is at {}",
            stamp.version()
        )),
        (Ending::Failed, Some(stamp)) => Err(format!(
            "attempt {id} failed, and happened at {}",
            stamp.version()
        )),
        (_, Some(stamp)) if stamp.version() <= *read_version => Err(format!(
            "attempt {id} read at {read_version} and is at {}",
            stamp.version()
        )),
        _ => Ok(()),
    }
}

fn check_reads(states: &States, attempt: &Attempt, stamp: Option<&Versionstamp>) -> Verdict {
    let snapshot = Versionstamp::new(attempt.read_version + 1, 0);
    for read in &attempt.reads {
        let place = |what: String| {
            let version = attempt.read_version;
            format!(
                "attempt {} ({:?}) at its read version {version}: {what}",
                attempt.id, attempt.ending
            )
        };
        states.check(read, snapshot).map_err(place)?;
        if let Some(stamp) = stamp.filter(|_| !read.is_snapshot()) {
            let place = |what: String| {
                let (read_version, version) = (attempt.read_version, stamp.version());
                format!(
                    "attempt {} read at {read_version}, committed at {version}: {what}",
                    attempt.id
                )
            };
            states.check(read, *stamp).map_err(place)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(version: Version) -> Versionstamp {
        Versionstamp::new(version, 0)
    }

    fn writes(id: u64, read_version: Version, value: &'static str, told: Version) -> Attempt {
        Attempt {
            writes: vec![Write::Set("k".into(), value.into())],
            ending: Ending::Committed,
            told,
            ..Attempt::new(id, 0, read_version)
        }
    }

    fn saw(value: Option<&'static str>) -> Read {
        Read::Key {
            key: "k".into(),
            value: value.map(Value::from),
            snapshot: false,
        }
    }

    fn row(value: &'static str) -> Vec<(Key, Value)> {
        vec![("k".into(), value.into())]
    }

    fn complains(
        attempts: &[Attempt],
        stamps: &[(u64, Version)],
        rows: &[(Key, Value)],
        word: &str,
    ) {
        let stamps = stamps
            .iter()
            .map(|(id, version)| (*id, stamp(*version)))
            .collect();
        let broken = judge(attempts, &stamps, rows).expect_err("the history is impossible");
        assert!(broken.contains(word), "{broken}");
    }

    #[test]
    fn a_serial_history_is_admitted_and_an_unknown_result_is_settled_by_its_marker() {
        let mut second = writes(2, 10, "two", -1);
        second.reads.push(saw(Some("one")));
        second.ending = Ending::Unknown;
        let attempts = [writes(1, 5, "one", 10), second];
        let stamps = BTreeMap::from([(1, stamp(10)), (2, stamp(20))]);
        assert_eq!(judge(&attempts, &stamps, &row("two")), Ok(()));
        let stamps = BTreeMap::from([(1, stamp(10))]);
        assert_eq!(judge(&attempts, &stamps, &row("one")), Ok(()));
    }

    #[test]
    fn a_lost_update_is_found() {
        let mut second = writes(2, 5, "two", 20);
        second.reads.push(saw(None)); // right at 5, wrong at 20
        complains(
            &[writes(1, 5, "one", 10), second],
            &[(1, 10), (2, 20)],
            &row("two"),
            "committed at 20",
        );
    }

    #[test]
    fn an_aborted_transaction_that_saw_the_future_is_found() {
        let mut reader = Attempt::new(2, 0, 5);
        reader.reads.push(saw(Some("one")));
        complains(
            &[writes(1, 5, "one", 10), reader],
            &[(1, 10)],
            &row("one"),
            "its read version",
        );
    }

    #[test]
    fn a_lost_commit_a_late_commit_and_a_stale_read_version_are_found() {
        complains(&[writes(1, 5, "one", 10)], &[], &[], "is lost");
        let failed = Attempt {
            ending: Ending::Failed,
            ..writes(1, 5, "one", -1)
        };
        complains(&[failed], &[(1, 10)], &row("one"), "and happened");
        let stale = Attempt {
            floor: 7,
            ..writes(1, 5, "one", 10)
        };
        complains(&[stale], &[(1, 10)], &row("one"), "acknowledged before");
    }

    #[test]
    fn a_database_that_ends_with_other_rows_is_found() {
        complains(
            &[writes(1, 5, "one", 10)],
            &[(1, 10)],
            &row("two"),
            "ends with",
        );
    }
}
