//! What must not happen when nothing happens: that something grows. Clients that only stay connected, and clients that come
//! and go, leave nothing behind: after hours every list that a gauge reads, and the number of tasks, is as at the start.

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

/// Clients that stay.
const CLIENTS: usize = 3;
/// What is left of the beginning, recoveries and moves of shards, is over by then.
const SETTLED_AFTER: Duration = Duration::from_secs(180);
/// Lists breathe: one has grown only if it never is as short as it was at times before.
const SAMPLES: usize = 60;
const BETWEEN_SAMPLES: Duration = Duration::from_secs(1);
/// Mean seconds between two visits of clients that come and go.
const VISIT_S: u64 = 30;

pub async fn run(shape: &Shape, database: &Database, hours: u64) -> Verdict {
    // Faults of chance would move what stands still.
    control().heal_all();
    let staying: Vec<Database> = (0..CLIENTS)
        .map(|_| plinth_client::connect(shape.coordinators()))
        .collect();
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

/// One transaction of each kind.
async fn work(database: &Database) {
    until_done(database, async |tr| {
        let key = [below(255) as u8];
        let value = tr.get(&key[..], chance(0.5)).await?;
        tr.set(&key[..], value.unwrap_or_default());
        Ok(())
    })
    .await;
}

/// Clients come, do something or nothing, and go.
async fn visits(shape: &Shape, time: Duration) {
    let end = plinth_runtime::now() + time;
    while plinth_runtime::now() < end {
        plinth_runtime::sleep(Duration::from_secs(range(1..2 * VISIT_S))).await;
        let visitor = plinth_client::connect(shape.coordinators());
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
            let _ = plinth_runtime::timeout(limit, watched).await; // it never fires
        }
    }
}

/// What is longest, or shortest, in a minute, by name.
async fn sample(choose: impl Fn(usize, usize) -> usize) -> Lengths {
    let mut chosen = Lengths::new();
    for round in 0..SAMPLES {
        let lists = gauge::read().into_iter();
        let lists = lists.map(|(name, length)| (name.to_owned(), length));
        let tasks = control().tasks().into_iter();
        let tasks = tasks.map(|(name, count)| (format!("tasks of '{name}'"), count));
        let mut seen: Lengths = lists.chain(tasks).collect();
        // What is not there in one sample is of no length.
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
