//! Checks that nothing grows in an idle cluster. Clients that only stay connected, and clients that come and go,
//! must leave nothing behind: after hours, every list with a gauge, and the number of tasks, must be as short as at
//! the start.

use crate::cluster::Shape;
use crate::workloads::until_done;
use crate::{Failure, FailureKind};
use plinth_client::{Database, TransactionOption};
use plinth_runtime::random::{below, chance, range};
use plinth_runtime::{Duration, gauge, sim::control, trace};
use std::collections::BTreeMap;

type Verdict = Result<(), Failure>;
/// Lengths of lists, and numbers of tasks, by name.
type Lengths = BTreeMap<String, usize>;

/// Number of clients that stay connected.
const CLIENTS: usize = 3;
/// By this time the recoveries and moves of shards of a new database are over.
const SETTLED_AFTER: Duration = Duration::from_secs(180);
/// Samples per measurement. Lengths vary, so a list counts as grown only if its shortest length in a measurement
/// exceeds its longest length in the first one.
const SAMPLES: usize = 60;
const BETWEEN_SAMPLES: Duration = Duration::from_secs(1);
/// Mean seconds between two visits of clients.
const VISIT_S: u64 = 30;

pub async fn run(shape: &Shape, database: &Database, hours: u64) -> Verdict {
    // Random faults would cause changes.
    control().heal_all();
    let staying: Vec<Database> = (0..CLIENTS).map(|_| shape.connect()).collect();
    for client in staying.iter().chain([database]) {
        work(client).await;
    }
    visits(shape, SETTLED_AFTER).await;
    let before = sample(Ord::max).await;
    visits(shape, Duration::from_secs(hours * 3600)).await;
    let after = sample(Ord::min).await;
    let long_ago = |name: &String| before.get(name).copied().unwrap_or(0);
    let grown: Vec<String> = after
        .iter()
        .filter(|(name, now)| **now > long_ago(name))
        .map(|(name, now)| format!("{name} from {} to {now}", long_ago(name)))
        .collect();
    trace!("Idle", "before" => format!("{before:?}"), "after" => format!("{after:?}"));
    if grown.is_empty() {
        return Ok(());
    }
    let message = format!("{hours} idle hours and it has grown: {}", grown.join(", "));
    Err(Failure::new(FailureKind::Correctness, message))
}

/// One transaction that reads and writes a random key.
async fn work(database: &Database) {
    until_done(database, async |tr| {
        let key = [below(255) as u8];
        let value = tr.get(&key[..], chance(0.5)).await?;
        tr.set(&key[..], value.unwrap_or_default());
        Ok(())
    })
    .await;
}

/// Clients connect, do some work or none, and leave.
async fn visits(shape: &Shape, time: Duration) {
    let end = plinth_runtime::now() + time;
    while plinth_runtime::now() < end {
        plinth_runtime::sleep(Duration::from_secs(range(1..2 * VISIT_S))).await;
        let visitor = shape.connect();
        if chance(0.5) {
            work(&visitor).await;
        }
        if chance(0.3) {
            until_done(&visitor, async |tr| {
                tr.set_option(TransactionOption::AccessSystemKeys)?;
                tr.set(&b"\xff/idle"[..], b"visited");
                Ok(())
            })
            .await;
        }
        if chance(0.5) {
            let watched = until_done(&visitor, async |tr| Ok(tr.watch(&b"never"[..]))).await;
            let limit = Duration::from_secs(range(0..5));
            let _ = plinth_runtime::timeout(limit, watched).await; // the watch never fires
        }
    }
}

/// The longest or shortest length of each list within a minute, by name.
async fn sample(choose: impl Fn(usize, usize) -> usize) -> Lengths {
    let mut chosen = Lengths::new();
    for round in 0..SAMPLES {
        let lists = gauge::read().into_iter();
        let lists = lists.map(|(name, length)| (name.to_owned(), length));
        let tasks = control().tasks().into_iter();
        let tasks = tasks.map(|(name, count)| (format!("tasks of '{name}'"), count));
        let mut seen: Lengths = lists.chain(tasks).collect();
        // A list that is missing in a sample has length 0 there.
        for (name, length) in &mut chosen {
            *length = choose(*length, seen.remove(name).unwrap_or(0));
        }
        let other = |length: usize| {
            if round == 0 {
                length
            } else {
                choose(0, length)
            }
        };
        chosen.extend(seen.into_iter().map(|(name, length)| (name, other(length))));
        plinth_runtime::sleep(BETWEEN_SAMPLES).await;
    }
    chosen
}
