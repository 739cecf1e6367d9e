//! The keys that each resolver judges. They change during an epoch, from one version to the next.
//!
//! A write goes to the resolver that has its key at the commit version. A read must be compared with all writes since
//! its read version, so it goes to every resolver that has had its keys since then.

use bytes::Bytes;
use plinth_core::Version;
use plinth_core::version::MAX_VERSIONS_IN_FLIGHT;
use plinth_protocol::transaction::Partition;
use plinth_runtime::{planted, probe};

/// No conflict range reaches beyond this key.
const BEYOND_ALL_KEYS: &[u8] = b"\xff\xff\xff";

/// In the order of their versions; at least one.
pub struct Partitions(Vec<Partition>);

impl Partitions {
    pub fn new(begins: Vec<Bytes>) -> Self {
        Partitions(vec![Partition { after: 0, begins }])
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// [`Partition::after`] of the newest partition.
    pub fn newest(&self) -> Version {
        self.0.last().expect("at least one").after
    }

    /// Adds the partitions that came with a grant of `version`. Partitions that are known already are ignored.
    pub fn learn(&mut self, version: Version, partitions: &[Partition]) {
        for partition in partitions {
            if partition.after > self.newest() {
                probe!("resolvers_repartitioned");
                self.0.push(partition.clone());
            }
        }
        // No read version and no batch under way is that old.
        let oldest = version - 2 * MAX_VERSIONS_IN_FLIGHT;
        let past = self.0.iter().skip(1).take_while(|p| p.after < oldest);
        let past = past.count();
        self.0.drain(..past);
    }

    /// The partitions for a batch at `version`, which must be recent. The last one applies to its writes.
    pub fn at(&self, version: Version) -> &[Partition] {
        let count = self.0.partition_point(|p| p.after < version);
        assert!(
            count > 0,
            "no partition is known for version {version}, the oldest is after {}",
            self.0[0].after
        );
        &self.0[..count]
    }
}

/// The range of keys in which resolver `i` judges writes.
pub fn of_writes(partitions: &[Partition], i: usize) -> (&[u8], &[u8]) {
    part(partitions.last().expect("at least one"), i)
}

/// The range of keys in which resolver `i` must judge a read at `read_version`. It may be slightly too large, which
/// does no harm.
pub fn of_reads(partitions: &[Partition], i: usize, read_version: Version) -> (&[u8], &[u8]) {
    let (mut begin, mut end) = of_writes(partitions, i);
    for at in (1..partitions.len()).rev() {
        if partitions[at].after <= read_version
            || planted!(
                "reads_follow_resolvers",
                "after resolvers exchanged keys a read is not compared with what was written before"
            )
        {
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
        partitions.learn(20, &[partition(10, "t")]); // from a grant requested before the first was answered
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
