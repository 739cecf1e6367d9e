//! Converts results of one machine to those of another, with the [`calibrate`](plinth_measure::calibrate) figures of
//! both.
//!
//! A workload is scaled by the calibration figures that are most like its work. The factor is the geometric mean of
//! the ratios of these figures.
//!
//! | workloads | scaled by |
//! |---|---|
//! | point reads | map gets, redb gets |
//! | range reads | redb ranges, map gets |
//! | reads and writes | map gets, redb gets, redb batches |
//! | blind writes, loads | map gets, redb batches |
//!
//! A latency that includes a commit is scaled without the sync; then the sync time of the other machine is added.
//!
//! The speed of a shared machine changes from second to second. So each run carries its own calibration, and all
//! runs are scaled by the medians of these calibrations.

use plinth_measure::calibrate::{Calibration, REFERENCE};
use plinth_measure::text::grouped;
use serde_json::Value;
use std::fmt::Write;

const INFALLIBLE: &str = "writing to a string";

/// The kind of work that a workload is most like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    PointReads,
    RangeReads,
    Mixed,
    Writes,
}

impl Kind {
    pub fn of(workload: &str) -> Kind {
        let begins = |word: &str| workload.starts_with(word);
        match workload {
            _ if begins("range") => Kind::RangeReads,
            _ if begins("blind") || begins("adjacent") || begins("bulk") => Kind::Writes,
            "point-reads" | "read-latency" => Kind::PointReads,
            _ => Kind::Mixed,
        }
    }

    /// How many times faster `here` is than `there` at this kind of work.
    fn speed(self, here: &Calibration, there: &Calibration) -> f64 {
        let map = there.map_get_us / here.map_get_us;
        let get = there.redb_get_us / here.redb_get_us;
        let range = here.redb_range_keys_per_s / there.redb_range_keys_per_s;
        let batch = here.redb_batch_rows_per_s / there.redb_batch_rows_per_s;
        match self {
            Kind::PointReads => geometric_mean(&[map, get]),
            Kind::RangeReads => geometric_mean(&[map, range]),
            Kind::Mixed => geometric_mean(&[map, get, batch]),
            Kind::Writes => geometric_mean(&[map, batch]),
        }
    }
}

fn geometric_mean(values: &[f64]) -> f64 {
    let logarithms: f64 = values.iter().map(|value| value.ln()).sum();
    (logarithms / values.len() as f64).exp()
}

/// Operations per server CPU second of FoundationDB 7.3.69 (one process, `ssd`) on the [`REFERENCE`] machine.
const FOUNDATIONDB: [(&str, f64); 6] = [
    ("point-reads", 118_000.0),
    ("random-90-10", 57_000.0),
    ("range-reads-1000", 3_960_000.0),
    ("blind-writes-10", 62_000.0),
    ("blind-writes-100", 33_000.0),
    ("bulk-load", 324_000.0),
];

/// Median latencies of the same FoundationDB on an idle cluster, in milliseconds: workload, key in the run, name,
/// value.
const FOUNDATIONDB_MS: [(&str, &str, &str, f64); 3] = [
    ("read-latency", "read_version_ms", "read version", 0.23),
    ("read-latency", "reads_ms", "read", 0.14),
    (
        "commit-latency",
        "commit_ms",
        "commit of 5 reads and 5 writes",
        1.3,
    ),
];

/// A run's operations per server CPU second, converted to the reference machine, and the factor; `None` if not
/// known.
fn scaled_rate(run: &Value, here: &Calibration) -> Option<(f64, f64)> {
    let measured = run["operations_per_server_cpu_s"].as_f64()?;
    let speed = Kind::of(run["workload"].as_str()?).speed(here, &REFERENCE);
    Some((measured / speed, speed))
}

/// A run's median latency in milliseconds, converted to the reference machine.
fn scaled_latency(run: &Value, here: &Calibration, part: &str) -> Option<f64> {
    let measured = run[part]["p50"].as_f64()?;
    let speed = Kind::of(run["workload"].as_str()?).speed(here, &REFERENCE);
    if part != "commit_ms" {
        return Some(measured * speed);
    }
    let sync = here.fdatasync_ms.min(measured);
    Some((measured - sync) * speed + REFERENCE.fdatasync_ms)
}

/// Markdown tables: the calibration of the machine, and every run beside FoundationDB. The error is one line.
pub fn tables(runs: &[Value]) -> Result<String, String> {
    let calibrations: Vec<Calibration> = runs
        .iter()
        .filter_map(|run| Calibration::from_json(&run["calibration"]))
        .collect();
    let Some(here) = Calibration::median(&calibrations) else {
        return Err(
            "no run in it carries a calibration: measure again, `bench run' adds it".into(),
        );
    };
    let mut out = String::new();
    machine(&mut out, &here, &calibrations);
    rates(&mut out, runs, &here);
    latencies(&mut out, runs, &here);
    Ok(out)
}

fn machine(out: &mut String, here: &Calibration, calibrations: &[Calibration]) {
    out.push_str(
        "| calibration | here, median | least to most | where FoundationDB was measured | times faster |\n\
        |---|---|---|---|---|\n",
    );
    let there = REFERENCE.figures();
    for (name, value, what) in here.figures() {
        let (least, most) = spread(calibrations, name);
        let other = there.iter().find(|(known, ..)| *known == name);
        let (shown, times) = match other {
            None => ("–".into(), "–".into()),
            Some((_, other, _)) => {
                let is_rate = name.ends_with("_per_s");
                let times = if is_rate {
                    value / other
                } else {
                    other / value
                };
                (figure(*other), format!("{times:.2}"))
            }
        };
        writeln!(
            out,
            "| {what} | {} | {} to {} | {shown} | {times} |",
            figure(value),
            figure(least),
            figure(most)
        )
        .expect(INFALLIBLE);
    }
}

/// The least and the greatest value of a figure in the calibrations.
fn spread(calibrations: &[Calibration], name: &str) -> (f64, f64) {
    let figures = calibrations.iter().flat_map(Calibration::figures);
    figures
        .filter(|(other, ..)| *other == name)
        .fold((f64::INFINITY, 0.0), |(least, most), (_, value, _)| {
            (value.min(least), value.max(most))
        })
}

fn rates(out: &mut String, runs: &[Value], here: &Calibration) {
    out.push_str(
        "\n| workload | per second | per server CPU second | scaled by | scaled | FoundationDB | times |\n\
        |---|---|---|---|---|---|---|\n",
    );
    for run in runs {
        let name = run["workload"].as_str().unwrap_or("?");
        if name.ends_with("-latency") {
            continue;
        }
        let other = FOUNDATIONDB.iter().find(|(known, _)| *known == name);
        let scaled = scaled_rate(run, here);
        let cell = |value: Option<f64>| value.map_or("–".into(), figure);
        let times = scaled
            .zip(other)
            .map(|((scaled, _), (_, other))| scaled / other);
        writeln!(
            out,
            "| `{name}` | {} | {} | {} | {} | {} | {} |",
            cell(run["operations_per_second"].as_f64()),
            cell(run["operations_per_server_cpu_s"].as_f64()),
            scaled.map_or("–".into(), |(_, speed)| format!("1/{speed:.2}")),
            cell(scaled.map(|(scaled, _)| scaled)),
            cell(other.map(|(_, other)| *other)),
            times.map_or("–".into(), |times| format!("{times:.1}")),
        )
        .expect(INFALLIBLE);
    }
}

fn latencies(out: &mut String, runs: &[Value], here: &Calibration) {
    out.push_str("\n| idle, one client, median | here, ms | scaled, ms | FoundationDB, ms |\n|---|---|---|---|\n");
    for (workload, part, what, other) in FOUNDATIONDB_MS {
        let run = runs.iter().find(|run| run["workload"] == workload);
        let measured = run.and_then(|run| run[part]["p50"].as_f64());
        let scaled = run.and_then(|run| scaled_latency(run, here, part));
        let cell = |value: Option<f64>| value.map_or("–".into(), |ms| format!("{ms:.3}"));
        writeln!(
            out,
            "| {what} | {} | {} | {other} |",
            cell(measured),
            cell(scaled)
        )
        .expect(INFALLIBLE);
    }
}

fn figure(value: f64) -> String {
    match value >= 1000.0 {
        true => grouped(value),
        false => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;
    use serde_json::json;

    /// A machine twice as fast in everything.
    const TWICE: Calibration = Calibration {
        map_get_us: 0.35,
        redb_get_us: 0.65,
        redb_batch_rows_per_s: 440_000.0,
        redb_range_keys_per_s: 24_000_000.0,
        memory_copy_gb_per_s: None,
        fresh_page_us: None,
        fdatasync_ms: 0.155,
    };

    #[test]
    fn what_a_machine_of_twice_the_speed_does_is_half_there() {
        for workload in Workload::all() {
            let kind = Kind::of(workload.name);
            assert!((kind.speed(&TWICE, &REFERENCE) - 2.0).abs() < 1e-9);
            assert!((kind.speed(&REFERENCE, &REFERENCE) - 1.0).abs() < 1e-9);
        }
        let run = json!({"workload": "point-reads", "operations_per_server_cpu_s": 500_000.0});
        let (scaled, _) = scaled_rate(&run, &TWICE).expect("calibrated");
        assert!((scaled - 250_000.0).abs() < 1000.0, "{scaled}");
        let run = json!({"workload": "commit-latency", "commit_ms": {"p50": 0.355}, "reads_ms": {"p50": 0.1}});
        let scaled = |part| scaled_latency(&run, &TWICE, part).expect("measured");
        assert!((scaled("commit_ms") - 0.71).abs() < 0.01);
        assert!((scaled("reads_ms") - 0.2).abs() < 0.01);
    }

    #[test]
    fn each_kind_is_compared_by_what_it_is_like() {
        let ranges_only = Calibration {
            redb_range_keys_per_s: 4.0 * REFERENCE.redb_range_keys_per_s,
            ..REFERENCE
        };
        for workload in Workload::all() {
            let speed = Kind::of(workload.name).speed(&ranges_only, &REFERENCE);
            let expected = if workload.name.starts_with("range") {
                2.0
            } else {
                1.0
            };
            assert!((speed - expected).abs() < 1e-9, "{}", workload.name);
        }
    }

    #[test]
    fn the_tables_show_every_run_and_refuse_those_without_calibration() {
        let run = json!({"workload": "bulk-load", "operations_per_second": 400_000.0,
            "operations_per_server_cpu_s": 648_000.0, "calibration": REFERENCE.to_json()});
        let without = json!({"workload": "point-reads", "operations_per_server_cpu_s": 1.0});
        let tables = tables(&[run, without.clone()]).expect("one has it");
        assert!(
            tables
                .contains("| `bulk-load` | 400 000 | 648 000 | 1/1.00 | 648 000 | 324 000 | 2.0 |"),
            "{tables}"
        );
        assert!(
            tables.contains("| `point-reads` | – | 1.00 | 1/1.00 | 1.00 | 118 000 | 0.0 |"),
            "{tables}"
        );
        assert!(super::tables(&[without]).is_err());
    }

    #[test]
    fn runs_are_scaled_by_the_medians_of_all_their_calibrations() {
        let run = |speed: f64| {
            let mut run =
                json!({"workload": "point-reads", "operations_per_server_cpu_s": 118_000.0});
            run["calibration"] = Calibration {
                map_get_us: REFERENCE.map_get_us / speed,
                redb_get_us: REFERENCE.redb_get_us / speed,
                ..REFERENCE
            }
            .to_json();
            run
        };
        let tables = tables(&[run(1.0), run(2.0), run(7.0)]).expect("calibrated");
        let row = "| `point-reads` | – | 118 000 | 1/2.00 | 59 000 | 118 000 | 0.5 |";
        assert_eq!(tables.matches(row).count(), 3, "{tables}");
        assert!(
            tables.contains("| µs a get of an ordered map | 0.35 | 0.10 to 0.70 | 0.70 | 2.00 |"),
            "{tables}"
        );
    }
}
