//! The workloads: which kinds of requests they make, how often, and of which nodes.
//!
//! They are those of the paper about FDBKeeper (PVLDB 18, 2025, section 6), with the nodes that its authors' published
//! settings describe. Each session has one request under way, as in the paper, unless the user wants more. A few more
//! workloads ask what the paper leaves out: sessions that do not wait for each answer, names that are numbered, and
//! nodes that everybody wants.

use plinth_core::words;
use plinth_runtime::random::Generator;

words! {
    /// Kinds of requests.
    pub enum Kind {
        Get = "get",
        List = "list",
        Set = "set",
        Create = "create",
        Remove = "remove",
    }
}

/// What the sessions of a workload do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Shape {
    /// Requests of each kind by weight, in the order of [`Kind::ALL`]. Each kind has nodes of its own, all equally
    /// likely.
    Mix([f64; 5]),
    /// A record is read, or written with probability `writes`, or read and then written with probability `both`. Some
    /// records are much more likely than others.
    Records { writes: f64, both: f64 },
    /// A record is read, mostly a new one; with probability `inserts` one is created.
    Newest { inserts: f64 },
    /// Every node of the load is created once.
    Load,
    /// One node after the other is set.
    SetsInTurn,
    /// New nodes below many others; they are removed when the round is over.
    Creates,
    /// New nodes below one, whose names the server numbers; they are removed when the round is over.
    Numbered,
    /// Half gets, half sets of so many records.
    Hot { records: u64 },
}

#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    pub name: String,
    pub about: String,
    pub shape: Shape,
    /// An operator's command is run meanwhile, and sessions whose connection breaks come back.
    pub is_disturbed: bool,
    /// Sessions, if their number is a part of the workload.
    pub clients: Option<usize>,
    /// The same of the requests of a session under way.
    pub outstanding: Option<usize>,
}

/// Of the reads of the mixes, this share are gets; the others list the children of a node.
const GETS_OF_READS: f64 = 0.9;

/// Names that [`Workload::parse`] knows, besides `reads-N` and `hot-N` for other numbers.
const NAMES: [&str; 25] = [
    "zookeeper",
    "clickhouse",
    "reads-0",
    "reads-10",
    "reads-20",
    "reads-30",
    "reads-40",
    "reads-50",
    "reads-60",
    "reads-70",
    "reads-80",
    "reads-90",
    "reads-100",
    "ycsb-a",
    "ycsb-b",
    "ycsb-c",
    "ycsb-d",
    "ycsb-f",
    "one-session-sets",
    "one-session-creates",
    "numbered-creates",
    "hot-1",
    "hot-10",
    "bulk-load",
    "failures",
];

/// Of the workloads that are one session with many requests under way: as ClickHouse's servers are.
const OUTSTANDING: usize = 100;
/// Sessions that all create below the same node.
const NUMBERING: usize = 100;

/// So many percent reads; the writes are set, create and remove in equal parts.
fn reads(percent: f64) -> Shape {
    let write = (100.0 - percent) / 3.0;
    let (gets, lists) = (percent * GETS_OF_READS, percent * (1.0 - GETS_OF_READS));
    Shape::Mix([gets, lists, write, write, write])
}

impl Workload {
    /// Names of [`all`](Self::all).
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter()
    }

    pub fn all() -> Vec<Workload> {
        NAMES.iter().filter_map(|name| Self::parse(name)).collect()
    }

    pub fn parse(name: &str) -> Option<Workload> {
        let (about, shape) = match name {
            "zookeeper" => (
                "ZooKeeper's usual load: 81% get, 9% list, 4% set, 3% create, 3% remove".into(),
                Shape::Mix([81.0, 9.0, 4.0, 3.0, 3.0]),
            ),
            "clickhouse" => (
                "ClickHouse's load: 60 get, 6 list, 11 set, 11 create, 11 remove of 99".into(),
                Shape::Mix([60.0, 6.0, 11.0, 11.0, 11.0]),
            ),
            "ycsb-a" => ("half gets, half sets".into(), records(0.5, 0.0)),
            "ycsb-b" => ("95% gets, 5% sets".into(), records(0.05, 0.0)),
            "ycsb-c" => ("gets only".into(), records(0.0, 0.0)),
            "ycsb-d" => (
                "95% gets, mostly of new nodes; 5% creates".into(),
                Shape::Newest { inserts: 0.05 },
            ),
            // Two gets, then a get and a set of the same node: 75% gets and 25% sets, as the paper counts them.
            "ycsb-f" => (
                "75% gets, 25% sets, each of a node that was just read".into(),
                records(0.0, 1.0 / 3.0),
            ),
            "bulk-load" => (
                "creates nodes of 128 bytes, each once; no warm-up".into(),
                Shape::Load,
            ),
            "failures" => (
                "60% reads, 40% writes, while --disturb runs".into(),
                reads(60.0),
            ),
            "one-session-sets" => (
                "one session sets nodes, each another one, 100 under way".into(),
                Shape::SetsInTurn,
            ),
            "one-session-creates" => (
                "one session creates nodes below many others, 100 under way".into(),
                Shape::Creates,
            ),
            "numbered-creates" => (
                "100 sessions create numbered nodes below the same one".into(),
                Shape::Numbered,
            ),
            _ => of_number(name)?,
        };
        let (clients, outstanding) = match shape {
            Shape::SetsInTurn | Shape::Creates => (Some(1), Some(OUTSTANDING)),
            Shape::Numbered => (Some(NUMBERING), None),
            _ => (None, None),
        };
        Some(Workload {
            name: name.into(),
            about,
            shape,
            is_disturbed: name == "failures",
            clients,
            outstanding,
        })
    }

    pub fn is_load(&self) -> bool {
        self.shape == Shape::Load
    }
}

/// The workloads whose names have a number: what is to be said of them, and their shape.
fn of_number(name: &str) -> Option<(String, Shape)> {
    if let Some(records) = name.strip_prefix("hot-") {
        let records: u64 = records.parse().ok()?;
        let about = match records {
            1 => "half gets, half sets of one node".into(),
            _ => format!("half gets, half sets of {records} nodes"),
        };
        return (records > 0).then_some((about, Shape::Hot { records }));
    }
    let percent: u32 = name.strip_prefix("reads-")?.parse().ok()?;
    let about = format!(
        "{percent}% reads (get and list 9:1), {}% writes",
        100 - percent.min(100)
    );
    (percent <= 100).then_some((about, reads(percent.into())))
}

fn records(writes: f64, both: f64) -> Shape {
    Shape::Records { writes, both }
}

/// The place in `weights` that a random number falls into.
pub fn pick(random: &mut Generator, weights: &[f64; 5]) -> Kind {
    let sum: f64 = weights.iter().sum();
    let mut left = random.unit() * sum;
    for (kind, weight) in Kind::ALL.into_iter().zip(weights) {
        if left < *weight {
            return kind;
        }
        left -= weight;
    }
    Kind::Get // rounding
}

/// YCSB's distribution of ranks: rank 0 is the most likely one. By Gray and others, "Quickly generating billion-record
/// synthetic databases".
#[derive(Clone, Debug)]
pub struct Zipf {
    items: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

/// YCSB's constant.
const THETA: f64 = 0.99;

impl Zipf {
    pub fn new(items: u64) -> Self {
        let zeta_of = |n: u64| -> f64 { (1..=n).map(|i| (i as f64).powf(-THETA)).sum() };
        let (n, zeta) = (items as f64, zeta_of(items));
        Zipf {
            items: n,
            alpha: 1.0 / (1.0 - THETA),
            zeta,
            eta: (1.0 - (2.0 / n).powf(1.0 - THETA)) / (1.0 - zeta_of(items.min(2)) / zeta),
        }
    }

    /// A rank below the number of items.
    pub fn rank(&self, random: &mut Generator) -> u64 {
        let unit = random.unit();
        let place = unit * self.zeta;
        if place < 1.0 {
            return 0;
        }
        if place < 1.0 + 0.5f64.powf(THETA) {
            return 1.min(self.items as u64 - 1);
        }
        let rank = self.items * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known_and_shares_are_those_of_the_paper() {
        assert_eq!(Workload::all().len(), NAMES.len());
        let of = |name: &str| Workload::parse(name).expect("known").shape;
        let Shape::Mix(half) = of("reads-50") else {
            panic!("a mix");
        };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(half[0], 45.0) && near(half[1], 5.0) && near(half[2], 50.0 / 3.0));
        for wrong in ["reads-101", "reads-", "hot-0", "hot-", "ycsb-e", ""] {
            assert_eq!(Workload::parse(wrong), None);
        }
        let (mut random, mut counts) = (Generator::new(1), [0; 5]);
        for _ in 0..100_000 {
            counts[pick(&mut random, &[81.0, 9.0, 4.0, 3.0, 3.0]) as usize] += 1;
        }
        assert!((80_500..81_500).contains(&counts[0]) && (2700..3300).contains(&counts[4]));
    }

    #[test]
    fn low_ranks_are_much_more_likely() {
        for items in [1, 2, 3, 100_000] {
            let (zipf, mut random) = (Zipf::new(items), Generator::new(7));
            let ranks: Vec<u64> = (0..100_000).map(|_| zipf.rank(&mut random)).collect();
            assert!(ranks.iter().all(|rank| *rank < items));
            let firsts = ranks.iter().filter(|rank| **rank == 0).count();
            // The sum of i^-0.99 over 100,000 items is 12.8.
            assert!(
                items < 100_000 || (7500..8100).contains(&firsts),
                "{firsts}"
            );
        }
    }
}
