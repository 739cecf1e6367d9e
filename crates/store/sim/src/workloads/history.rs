//! Serializability of a recorded history (FDB §2.4.2: strict serializability).
//!
//! Clients run short random transactions over a few keys and record everything: the read version, the result of
//! every read, the writes, and the result of the attempt. Each transaction also writes a marker of its own, whose
//! value is its versionstamp. At the end the markers show which attempts committed, unknown ones included, and in
//! which order. Then `judge` replays the history and checks:
//!
//! - every read of any attempt, also of an aborted one, matches the state at its read version;
//! - every read of a committed attempt without `snapshot` still matches the state at its place in the serial order;
//! - an attempt that was told "committed" left its marker, at the version that it was told; one that failed left
//!   none;
//! - a read version is never below a commit that was acknowledged before the read version was requested;
//! - at the end the database holds the result of the replay.

use super::{Boxed, Day, Ending, Space, Verdict, Workload, ending, get_together, read_rows};
use judge::{Attempt, Read, Write};
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_core::{Key, KeyRange, MutationKind, Result, Value, Version, Versionstamp};
use plinth_runtime::random::{below, chance, range};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

mod judge;

const KEYS: u64 = 24;
const MARKERS_MAX: u64 = 1_000_000;

pub struct Histories {
    data: Space,
    markers: Space,
    attempts: RefCell<Vec<Attempt>>,
    begun: Cell<u64>,
    /// Newest version that was acknowledged to any client.
    acknowledged: Cell<Version>,
}

fn any_key(space: Space) -> Key {
    space.key(below(KEYS), KEYS)
}

/// Two random keys, the lower one first.
fn bounds(space: Space) -> (Key, Key) {
    let (a, b) = (any_key(space), any_key(space));
    if a <= b { (a, b) } else { (b, a) }
}

impl Histories {
    pub fn new(space: Space) -> Self {
        Histories {
            data: space.part(0, 4).joined(space.part(2, 4)),
            markers: space.part(3, 4),
            attempts: RefCell::default(),
            begun: Cell::new(0),
            acknowledged: Cell::new(0),
        }
    }

    /// Makes one attempt, without a retry. An error ends it, but the reads before the error are still checked.
    async fn attempt(&self, database: &Database) {
        let id = self.begun.replace(self.begun.get() + 1);
        let floor = self.acknowledged.get();
        let tr = database.create_transaction();
        let Ok(read_version) = tr.get_read_version().await else {
            return;
        };
        let mut attempt = Attempt::new(id, floor, read_version);
        attempt.ending = match self.act(&tr, &mut attempt).await {
            Ok(()) => ending(tr.commit().await),
            Err(_) => Ending::Failed,
        };
        if attempt.ending == Ending::Committed {
            attempt.told = tr.get_committed_version();
            let newest = self.acknowledged.get().max(attempt.told);
            self.acknowledged.set(newest);
        }
        self.attempts.borrow_mut().push(attempt);
    }

    async fn act(&self, tr: &Transaction, attempt: &mut Attempt) -> Result<()> {
        for _ in 0..below(4) {
            match chance(0.2) {
                true => read_together(tr, self.data, &mut attempt.reads).await?,
                false => attempt.reads.push(read(tr, self.data).await?),
            }
            if chance(0.1) {
                let pause = plinth_runtime::Duration::from_millis(below(1000));
                plinth_runtime::sleep(pause).await;
            }
        }
        for n in 0..below(4) {
            attempt.writes.push(write(tr, self.data, attempt.id, n));
        }
        let mut stamped = [0; 14];
        stamped[10..].copy_from_slice(&0u32.to_le_bytes());
        tr.atomic_op(
            MutationKind::SetVersionstampedValue,
            self.markers.key(attempt.id, MARKERS_MAX),
            stamped,
        );
        Ok(())
    }
}

async fn read(tr: &Transaction, space: Space) -> Result<Read> {
    let snapshot = chance(0.2);
    if chance(0.6) {
        let key = any_key(space);
        let value = tr.get(key.clone(), snapshot).await?;
        return Ok(Read::Key {
            key,
            value,
            snapshot,
        });
    }
    let (begin, end) = bounds(space);
    let options = RangeOptions::limit(below(8) as i32).reversed_if(chance(0.5));
    let range = KeyRange::new(begin.clone(), end.clone());
    let rows = tr.get_rows(range, options, snapshot).await?;
    Ok(Read::Range {
        begin,
        end,
        limit: options.limit as usize,
        reverse: options.reverse,
        rows,
        snapshot,
    })
}

/// Several keys at once.
async fn read_together(tr: &Transaction, space: Space, seen: &mut Vec<Read>) -> Result<()> {
    let reads: Vec<_> = (0..range(2..6))
        .map(|_| (any_key(space), chance(0.2)))
        .collect();
    let values = get_together(tr, reads.clone()).await;
    for ((key, snapshot), value) in reads.into_iter().zip(values) {
        let value = value?;
        seen.push(Read::Key {
            key,
            value,
            snapshot,
        });
    }
    Ok(())
}

fn write(tr: &Transaction, space: Space, id: u64, n: u64) -> Write {
    match below(10) {
        0 => {
            let (begin, end) = bounds(space);
            tr.clear_range(begin.clone(), end.clone());
            Write::ClearRange(begin, end)
        }
        1 => {
            let key = any_key(space);
            tr.clear(key.clone());
            Write::Clear(key)
        }
        _ => {
            let key = any_key(space);
            // A unique value, occasionally a long one.
            let long = if chance(0.05) { range(100..2000) } else { 0 };
            let value = Value::from(format!("{id}.{n}{}", "-".repeat(long as usize)));
            tr.set(key.clone(), value.clone());
            Write::Set(key, value)
        }
    }
}

impl Workload for Histories {
    super::kind!("serializability", |space, _| Histories::new(space));

    fn work(&self, database: Database, _: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(day.fill(async move || {
            // Sometimes several at once, so that batches contain conflicting transactions.
            let together = if chance(0.3) { 4 } else { 1 };
            let attempts = (0..together).map(|_| self.attempt(&database));
            plinth_runtime::join_all(attempts).await;
        }))
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let mut stamps = BTreeMap::new();
            for (key, value) in read_rows(&database, self.markers).await {
                let id = super::number(&key[2..]) as u64;
                let stamp: [u8; 10] = value[..].try_into().map_err(|_| "a marker is no stamp")?;
                stamps.insert(id, Versionstamp(stamp));
            }
            let rows = read_rows(&database, self.data).await;
            judge::judge(&self.attempts.borrow(), &stamps, &rows)
        })
    }
}
