//! Which transaction must come before which, and circles of that.
//!
//! ```text
//!   T1 ──read──▶ T2        T2 saw what T1 wrote
//!   T1 ──write─▶ T2        T2 replaced what T1 wrote
//!   T1 ──anti──▶ T2        T2 replaced what T1 saw
//!   T1 ──time──▶ T2        T1 had ended before T2, which is strict, began
//! ```
//!
//! An aborted transaction is one that only read: with it the graph is that of opacity (Guerraoui and Kapałka). Under
//! snapshot isolation a transaction that took effect is two nodes, its snapshot and its commit: it reads at the one
//! and writes at the other, and what it replaced must have been committed before its snapshot. The graph has a circle
//! exactly if no order of these nodes explains what everybody saw.
//!
//! Real time would be an edge for almost every pair. Instead a chain of moments carries it: a transaction points to
//! the moment of its end, and the last moment before a transaction began points to it.

use crate::cycle::{Graph, Why};
use crate::history::Moment;
use crate::order::Ordered;
use crate::prepare::{Prepared, Saw};
use crate::violation::{Kind, Violation};

/// Judges without a look at timestamps, except where the history leaves the order of versions open.
pub(crate) fn judge(prepared: &Prepared<'_>) -> Result<(), Box<Violation>> {
    let ordered = Ordered::new(prepared)?;
    let moments = moments(prepared);
    let nodes = Nodes { prepared };
    let edges =
        prepared.reads.all().len() * 2 + prepared.versions.all().len() + prepared.all.len() * 3;
    let mut graph = Graph::new(nodes.count(moments.len()), edges);
    for number in prepared.numbers() {
        if prepared.is_split(number) {
            graph.add(nodes.snapshot(number), nodes.commit(number), Why::Itself);
        }
    }
    add_reads(&ordered, &nodes, &mut graph)?;
    add_versions(&ordered, &nodes, &mut graph);
    add_time(prepared, &nodes, &moments, &mut graph);
    let back = |from: u32, to: u32| {
        let end = prepared.transaction(to / 2).end;
        prepared.transaction(from / 2).begin.saturating_sub(end)
    };
    match graph.cycle(nodes.transactions(), back) {
        None => Ok(()),
        Some(cycle) => Err(circle(&ordered, &nodes, &cycle)),
    }
}

/// Numbers of nodes: two for each transaction, then those of the moments.
struct Nodes<'p, 'a> {
    prepared: &'p Prepared<'a>,
}

impl Nodes<'_, '_> {
    fn snapshot(&self, number: u32) -> u32 {
        number * 2
    }

    fn commit(&self, number: u32) -> u32 {
        number * 2 + u32::from(self.prepared.is_split(number))
    }

    /// Nodes below it are those of transactions.
    fn transactions(&self) -> u32 {
        self.prepared.all.len() as u32 * 2
    }

    fn moment(&self, place: usize) -> u32 {
        self.transactions() + place as u32
    }

    fn count(&self, moments: usize) -> usize {
        self.transactions() as usize + moments
    }
}

fn add_reads(
    ordered: &Ordered<'_, '_>,
    nodes: &Nodes<'_, '_>,
    graph: &mut Graph,
) -> Result<(), Box<Violation>> {
    let prepared = ordered.prepared;
    for reader in prepared.numbers() {
        for read in prepared.reads.of(reader) {
            let object = read.object;
            let Some(place) = ordered.place(reader, *read)? else {
                // The version is one of a circle. This read is an edge of it.
                if let Saw::By(writer) = read.saw {
                    graph.add(
                        nodes.commit(writer),
                        nodes.snapshot(reader),
                        Why::Read(object),
                    );
                }
                continue;
            };
            if let Some(version) = ordered.version(object, place) {
                graph.add(
                    nodes.commit(version.writer),
                    nodes.snapshot(reader),
                    Why::Read(object),
                );
            }
            match ordered.next(object, place) {
                Some(next) if next.writer != reader => {
                    graph.add(
                        nodes.snapshot(reader),
                        nodes.commit(next.writer),
                        Why::Anti(object),
                    );
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn add_versions(ordered: &Ordered<'_, '_>, nodes: &Nodes<'_, '_>, graph: &mut Graph) {
    let prepared = ordered.prepared;
    for pair in ordered.versions.all().windows(2) {
        let (former, later) = (&pair[0], &pair[1]);
        if former.object == later.object {
            let relies_on_it = prepared.relies_on(later.writer, later.object, later.change);
            let to = match relies_on_it {
                true => nodes.snapshot(later.writer),
                false => nodes.commit(later.writer),
            };
            graph.add(nodes.commit(former.writer), to, Why::Write(later.object));
        }
    }
}

/// The moments at which transactions ended that others must come after, in order.
fn moments(prepared: &Prepared<'_>) -> Vec<Moment> {
    let ended = prepared
        .numbers()
        .filter_map(|number| prepared.ended(number));
    let mut moments: Vec<Moment> = ended.collect();
    moments.sort_unstable();
    moments.dedup();
    moments
}

fn add_time(prepared: &Prepared<'_>, nodes: &Nodes<'_, '_>, moments: &[Moment], graph: &mut Graph) {
    for place in 1..moments.len() {
        graph.add(nodes.moment(place - 1), nodes.moment(place), Why::Time);
    }
    for number in prepared.numbers() {
        let begin = prepared.transaction(number).begin;
        if let Some(end) = prepared.ended(number)
            && let Ok(place) = moments.binary_search(&end)
        {
            graph.add(nodes.commit(number), nodes.moment(place), Why::Time);
        }
        let before = moments.partition_point(|&moment| moment < begin);
        if before > 0 && prepared.is_strict(number) {
            graph.add(nodes.moment(before - 1), nodes.snapshot(number), Why::Time);
        }
    }
}

/// Tells a circle. Its steps are the nodes, and why the next one comes after each.
fn circle(
    ordered: &Ordered<'_, '_>,
    nodes: &Nodes<'_, '_>,
    cycle: &[(u32, Why)],
) -> Box<Violation> {
    let steps: Vec<(u32, Why)> = cycle
        .iter()
        .filter(|(node, why)| *node < nodes.transactions() && *why != Why::Itself)
        .map(|&(node, why)| (node / 2, why))
        .collect();
    let involved: Vec<u32> = steps.iter().map(|step| step.0).collect();
    let mut why = "no order of these transactions explains what they saw:".to_string();
    let mut object = None;
    for (at, &(from, because)) in steps.iter().enumerate() {
        let to = involved[(at + 1) % involved.len()];
        why += &format!("\n  {}", told(ordered, from, to, because));
        if let Why::Read(it) | Why::Anti(it) | Why::Write(it) = because {
            object.get_or_insert(it);
        }
    }
    ordered
        .prepared
        .violation(Kind::Cycle, &involved, object, why)
}

fn told(ordered: &Ordered<'_, '_>, from: u32, to: u32, why: Why) -> String {
    let prepared = ordered.prepared;
    let (before, after) = (prepared.transaction(from), prepared.transaction(to));
    let object = |number: u32| prepared.object(number);
    let because = match why {
        Why::Read(it) => match prepared.saw(to, it) {
            Some(Saw::Absent) => {
                format!("T{} found that it had freed {:#x}", after.id, object(it))
            }
            _ => format!("T{} read {:#x} from it", after.id, object(it)),
        },
        Why::Write(it) => format!("T{} replaced its version of {:#x}", after.id, object(it)),
        Why::Anti(it) => {
            let saw = prepared
                .saw(from, it)
                .map(|saw| prepared.shown(saw).to_string());
            let saw = saw.unwrap_or_default();
            format!(
                "it saw {:#x} ({saw}) as it was before T{} changed it",
                object(it),
                after.id
            )
        }
        Why::Time => format!(
            "it ended at {}, T{} began at {}",
            before.end, after.id, after.begin
        ),
        Why::Itself => String::new(),
    };
    format!("T{} before T{}: {because}", before.id, after.id)
}
