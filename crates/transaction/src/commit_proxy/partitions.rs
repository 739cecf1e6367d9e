//! Which keys each resolver judges: it changes while the epoch lives, from one version to the next.
//!
//! A write is told to the resolver that has its key at the version of the commit. A read must be compared with all writes since
//! its read version, and so goes to everybody who has had its keys since then.

use bytes::Bytes;
use plinth_core::Version;
use plinth_core::version::MAX_VERSIONS_IN_FLIGHT;
use plinth_protocol::transaction::Partition;
use plinth_runtime::{fault, probe};

/// No conflict range reaches beyond it.
const BEYOND_ALL_KEYS: &[u8] = b"\xff\xff\xff";

/// In order; at least one.
pub struct Partitions(Vec<Partition>);

impl Partitions {
    pub fn new(begins: Vec<Bytes>) -> Self {
        Partitions(vec![Partition { after: 0, begins }])
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Of the newest one that is known.
    pub fn newest(&self) -> Version {
        self.0.last().expect("at least one").after
    }

    /// Takes in what a grant of `version` brought: all that is newer than what was known when it was asked for.
    pub fn learn(&mut self, version: Version, partitions: &[Partition]) {
        for partition in partitions {
            if partition.after > self.newest() {
                probe!("resolvers_repartitioned");
                self.0.push(partition.clone());
            }
        }
        // Nobody reads, and no batch is under way, at versions that old.
        let oldest = version - 2 * MAX_VERSIONS_IN_FLIGHT;
        let past = self.0.iter().skip(1).take_while(|p| p.after < oldest);
        let past = past.count();
        self.0.drain(..past);
    }

    /// As they are for a batch at `version`: a recent one.
    pub fn at(&self, version: Version) -> &[Partition] {
        let count = self.0.partition_point(|p| p.after < version);
        &self.0[..count.max(1)]
    }
}

/// Where resolver `i` judges writes.
pub fn of_writes(partitions: &[Partition], i: usize) -> (&[u8], &[u8]) {
    part(partitions.last().expect("at least one"), i)
}

/// Where resolver `i` must judge what was read at `read_version`; perhaps a little more, which does no harm.
pub fn of_reads(partitions: &[Partition], i: usize, read_version: Version) -> (&[u8], &[u8]) {
    let (mut begin, mut end) = of_writes(partitions, i);
    for at in (1..partitions.len()).rev() {
        if partitions[at].after <= read_version || fault::is_planted("reads_follow_resolvers") {
            break;
        }
        let (before_begin, before_end) = part(&partitions[at - 1], i);
        (begin, end) = (begin.min(before_begin), end.max(before_end));
    }
    (begin, end)
}

fn part(partition: &Partition, i: usize) -> (&[u8], &[u8]) {
    let end = partition.begins.get(i + 1);
    (&partition.begins[i], end.map_or(BEYOND_ALL_KEYS, |end| end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(texts: [&'static str; 2]) -> Vec<Bytes> {
        texts
            .map(|text| Bytes::from_static(text.as_bytes()))
            .to_vec()
    }

    fn partition(after: Version, second: &'static str) -> Partition {
        Partition {
            after,
            begins: begins(["", second]),
        }
    }

    #[test]
    fn writes_go_by_the_version_of_the_commit_and_reads_by_all_since_they_were_made() {
        let mut partitions = Partitions::new(begins(["", "m"]));
        partitions.learn(20, &[partition(10, "t")]);
        partitions.learn(20, &[partition(10, "t")]); // from a grant that was asked for before the first was answered
        partitions.learn(40, &[partition(30, "c")]);
        assert_eq!(partitions.newest(), 30);
        assert_eq!(of_writes(partitions.at(10), 0), (&b""[..], &b"m"[..]));
        assert_eq!(of_writes(partitions.at(11), 0), (&b""[..], &b"t"[..]));
        let now = partitions.at(31);
        assert_eq!(of_writes(now, 1), (&b"c"[..], BEYOND_ALL_KEYS));
        assert_eq!(of_reads(now, 0, 30), (&b""[..], &b"c"[..]));
        assert_eq!(of_reads(now, 0, 29), (&b""[..], &b"t"[..]));
        assert_eq!(of_reads(now, 1, 10), (&b"c"[..], BEYOND_ALL_KEYS));
        assert_eq!(
            of_reads(partitions.at(25), 1, 9),
            (&b"m"[..], BEYOND_ALL_KEYS)
        );
    }

    #[test]
    fn partitions_that_nobody_reads_in_any_more_are_forgotten() {
        let mut partitions = Partitions::new(begins(["", "m"]));
        for i in 1..1000 {
            let version = i * 10_000_000;
            partitions.learn(version + 1, &[partition(version, "t")]);
        }
        assert!(partitions.0.len() < 30, "{}", partitions.0.len());
    }
}
