//! Calibration: the speed of the machine in a few seconds of work that does not use the database, so that results
//! from different machines can be compared.
//!
//! | figure | work | reported as the median of |
//! |---|---|---|
//! | `map_get_us` | a get of a `BTreeMap` with 1,000,000 keys of 16 bytes | 7 rounds of 100,000 |
//! | `redb_batch_rows_per_s` | sorted batches of 50,000 rows written to an in-memory redb tree | 20 batches |
//! | `redb_get_us` | a get from that tree with 1,000,000 rows | 7 rounds of 100,000 |
//! | `redb_range_keys_per_s` | a scan of every row of that tree, in order | 5 scans |
//! | `memory_copy_gb_per_s` | a copy of 64 MiB in memory | 7 copies |
//! | `fresh_page_us` | the first use of a 4 KiB page, over 256 MiB fresh from the system | 1 pass |
//! | `fdatasync_ms` | an overwrite of 4 KiB in an existing file and its sync | 50 syncs |
//!
//! Time is the CPU time of the thread, except for the syncs. CPU time is least affected by other users of the
//! machine. Keys are visited in random order. Values have 54 bytes, the average of the
//! rows that `plinth bench run` writes. The tree is in memory, so only the last figure measures the disk.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it measures the machine, outside of any runtime

use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase, TableDefinition};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;

const ROWS: u64 = 1_000_000;
const BATCH_ROWS: u64 = 50_000;
const GETS: u64 = 100_000;
const GET_ROUNDS: usize = 7;
const SCANS: usize = 5;
const COPY_BYTES: usize = 64 << 20;
const COPIES: usize = 7;
const FRESH_BYTES: usize = 256 << 20;
const PAGE_BYTES: usize = 4 << 10;
const SYNCS: usize = 50;
const SYNC_BYTES: usize = 4 << 10;
const VALUE_BYTES: usize = 54;
const CACHE_BYTES: usize = 1 << 30;
const ROWS_TABLE: TableDefinition<'_, &[u8; 16], &[u8]> = TableDefinition::new("rows");

/// Results of a calibration. A figure is `None` if it was not measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Calibration {
    pub map_get_us: f64,
    pub redb_get_us: f64,
    pub redb_batch_rows_per_s: f64,
    pub redb_range_keys_per_s: f64,
    pub memory_copy_gb_per_s: Option<f64>,
    /// Much higher on a virtual machine that returns free memory to its host.
    pub fresh_page_us: Option<f64>,
    pub fdatasync_ms: f64,
}

/// The machine on which FoundationDB was measured.
pub const REFERENCE: Calibration = Calibration {
    map_get_us: 0.7,
    redb_get_us: 1.3,
    redb_batch_rows_per_s: 220_000.0,
    redb_range_keys_per_s: 12_000_000.0,
    memory_copy_gb_per_s: None,
    fresh_page_us: None,
    fdatasync_ms: 0.31,
};

impl Calibration {
    /// Runs the calibration. Takes a few seconds, about 400 MB of memory, and one core; writes and syncs a temporary
    /// file in `directory`. The error is one line.
    pub fn measure(directory: &Path) -> Result<Self, String> {
        // The sync comes first, so that a directory that cannot be written to fails at once.
        let fdatasync_ms = syncs(directory).map_err(|error| {
            let directory = directory.display();
            format!("{directory}: {error}; name a directory that can be written to")
        })?;
        let fresh_page_us = Some(fresh_pages());
        let memory_copy_gb_per_s = Some(copies());
        let map_get_us = map_gets();
        let tree = tree().map_err(|error| format!("redb: {error}"))?;
        Ok(Calibration {
            map_get_us,
            redb_get_us: tree.get_us,
            redb_batch_rows_per_s: tree.batch_rows_per_s,
            redb_range_keys_per_s: tree.range_keys_per_s,
            memory_copy_gb_per_s,
            fresh_page_us,
            fdatasync_ms,
        })
    }

    /// The calibration in the file that the user named with `--calibration`; without a file, calibrates this machine.
    /// The error is one line.
    pub async fn of(file: Option<&Path>, directory: &Path) -> Result<Self, String> {
        let Some(path) = file else {
            let directory = directory.to_owned();
            return plinth_runtime::offload(move || Calibration::measure(&directory)).await;
        };
        let at = |what: String| format!("--calibration {}: {what}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| at(error.to_string()))?;
        let object = serde_json::from_str(&text).unwrap_or_default();
        Calibration::from_json(&object)
            .ok_or_else(|| at("it is not what `bench calibrate --json' prints".into()))
    }

    /// For each figure, the median of the calibrations that have it. `None` if `calibrations` is empty.
    pub fn median(calibrations: &[Calibration]) -> Option<Self> {
        let mut object = json!({});
        for (name, ..) in calibrations.iter().flat_map(Calibration::figures) {
            let figures = calibrations.iter().flat_map(Calibration::figures);
            let values = figures.filter(|(other, ..)| *other == name);
            object[name] = json!(median(values.map(|(_, value, _)| value).collect()));
        }
        Self::from_json(&object)
    }

    pub fn to_json(&self) -> Value {
        let mut object = json!({});
        for (name, value, _) in self.figures() {
            object[name] = json!((value * 1e6).round() / 1e6);
        }
        object
    }

    /// `None` if a figure that every calibration has is missing or not a positive number.
    pub fn from_json(object: &Value) -> Option<Self> {
        let figure = |name: &str| object[name].as_f64().filter(|value| *value > 0.0);
        Some(Calibration {
            map_get_us: figure("map_get_us")?,
            redb_get_us: figure("redb_get_us")?,
            redb_batch_rows_per_s: figure("redb_batch_rows_per_s")?,
            redb_range_keys_per_s: figure("redb_range_keys_per_s")?,
            memory_copy_gb_per_s: figure("memory_copy_gb_per_s"),
            fresh_page_us: figure("fresh_page_us"),
            fdatasync_ms: figure("fdatasync_ms")?,
        })
    }

    /// Name, value, and description of each figure that was measured.
    pub fn figures(&self) -> Vec<(&'static str, f64, &'static str)> {
        let mut figures = vec![
            ("map_get_us", self.map_get_us, "µs a get of an ordered map"),
            ("redb_get_us", self.redb_get_us, "µs a get of a redb tree"),
            (
                "redb_batch_rows_per_s",
                self.redb_batch_rows_per_s,
                "rows/s into it, in sorted batches",
            ),
            (
                "redb_range_keys_per_s",
                self.redb_range_keys_per_s,
                "keys/s out of it, in order",
            ),
            ("fdatasync_ms", self.fdatasync_ms, "ms a sync of 4 KiB"),
        ];
        if let Some(copy) = self.memory_copy_gb_per_s {
            figures.push(("memory_copy_gb_per_s", copy, "GB/s copied"));
        }
        if let Some(page) = self.fresh_page_us {
            figures.push(("fresh_page_us", page, "µs a fresh page of memory"));
        }
        figures
    }
}

/// A generator that gives the same numbers in every run, so that the results do not depend on chance.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        plinth_runtime::random::spread(self.0)
    }
}

/// Key `i` of the table. Successive keys are in no order.
fn key(i: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&plinth_runtime::random::spread(i).to_be_bytes());
    key[8..].copy_from_slice(&i.to_be_bytes());
    key
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU time of this thread, in seconds.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn wall_s() -> f64 {
    plinth_runtime::now().0 as f64 / 1e9
}

/// Runs `work` `rounds` times and returns the median of the seconds by `clock`.
fn median_s(clock: fn() -> f64, rounds: usize, mut work: impl FnMut()) -> f64 {
    let mut round = || {
        let start = clock();
        work();
        clock() - start
    };
    median((0..rounds).map(|_| round()).collect())
}

fn map_gets() -> f64 {
    let map: BTreeMap<[u8; 16], u64> = (0..ROWS).map(|i| (key(i), i)).collect();
    let mut numbers = Numbers(0);
    let took_s = median_s(cpu_s, GET_ROUNDS, || {
        for _ in 0..GETS {
            black_box(map.get(&key(numbers.next() % ROWS)));
        }
    });
    took_s * 1e6 / GETS as f64
}

struct Tree {
    get_us: f64,
    batch_rows_per_s: f64,
    range_keys_per_s: f64,
}

fn tree() -> Result<Tree, redb::Error> {
    let database = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create_with_backend(InMemoryBackend::new())?;
    let value = [7; VALUE_BYTES];
    let mut batches = Vec::new();
    for first in (0..ROWS).step_by(BATCH_ROWS as usize) {
        let mut keys: Vec<_> = (first..first + BATCH_ROWS).map(key).collect();
        keys.sort_unstable();
        let start = cpu_s();
        let transaction = database.begin_write()?;
        {
            let mut rows = transaction.open_table(ROWS_TABLE)?;
            for key in &keys {
                rows.insert(key, &value[..])?;
            }
        }
        transaction.commit()?;
        batches.push(cpu_s() - start);
    }
    let rows = database.begin_read()?.open_table(ROWS_TABLE)?;
    let mut failed = None;
    let mut numbers = Numbers(0);
    let get_s = median_s(cpu_s, GET_ROUNDS, || {
        for _ in 0..GETS {
            match rows.get(&key(numbers.next() % ROWS)) {
                Ok(found) => drop(black_box(found.map(|value| value.value().len()))),
                Err(error) => failed = Some(error),
            }
        }
    });
    let scan_s = median_s(cpu_s, SCANS, || match rows.range::<&[u8; 16]>(..) {
        Ok(range) => {
            for (key, value) in range.flatten() {
                black_box((key.value()[0], value.value()[0]));
            }
        }
        Err(error) => failed = Some(error),
    });
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(Tree {
            get_us: get_s * 1e6 / GETS as f64,
            batch_rows_per_s: BATCH_ROWS as f64 / median(batches),
            range_keys_per_s: ROWS as f64 / scan_s,
        }),
    }
}

/// Speed of a copy in memory, in gigabytes per second.
fn copies() -> f64 {
    let from = vec![1u8; COPY_BYTES];
    let mut to = vec![2u8; COPY_BYTES];
    let took_s = median_s(cpu_s, COPIES, || {
        black_box(&mut to[..]).copy_from_slice(black_box(&from));
    });
    COPY_BYTES as f64 / 1e9 / took_s
}

/// Microseconds per page. The system provides each page at its first use, inside the measured loop.
fn fresh_pages() -> f64 {
    let mut pages = vec![0u8; FRESH_BYTES];
    let start = cpu_s();
    for page in black_box(&mut pages[..]).chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
    (cpu_s() - start) * 1e6 / (FRESH_BYTES / PAGE_BYTES) as f64
}

/// Milliseconds per overwrite and sync.
fn syncs(directory: &Path) -> std::io::Result<f64> {
    let path = directory.join(format!(".plinth-calibrate-{}", std::process::id()));
    let file = std::fs::File::options()
        .write(true)
        .create_new(true)
        .open(&path)?;
    let measured = (|| {
        file.write_all_at(&[0; SYNC_BYTES], 0)?;
        file.sync_all()?;
        let mut failed = Ok(());
        let took_s = median_s(wall_s, SYNCS, || {
            let written = file.write_all_at(&[1; SYNC_BYTES], 0);
            if let Err(error) = written.and_then(|()| file.sync_data()) {
                failed = Err(error);
            }
        });
        failed.map(|()| took_s * 1e3)
    })();
    std::fs::remove_file(&path)?;
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_back_from_json_and_nonsense_does_not() {
        let json = REFERENCE.to_json();
        assert_eq!(Calibration::from_json(&json), Some(REFERENCE));
        let copied = Calibration {
            memory_copy_gb_per_s: Some(8.5),
            fresh_page_us: Some(0.5),
            ..REFERENCE
        };
        assert_eq!(Calibration::from_json(&copied.to_json()), Some(copied));
        for (name, ..) in REFERENCE.figures() {
            for wrong in [json!(null), json!(0), json!(-1.0), json!("x")] {
                let mut broken = json.clone();
                broken[name] = wrong;
                assert_eq!(Calibration::from_json(&broken), None, "{name}");
            }
        }
        assert_eq!(Calibration::from_json(&json!([])), None);
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = Calibration::measure(Path::new("/nowhere/at all")).expect_err("none");
        assert!(error.starts_with("/nowhere/at all: "), "{error}");
    }

    #[test]
    fn a_median_is_the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
