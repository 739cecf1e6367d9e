//! Tables of a page: every figure of each run and how it has changed, and the machine's calibration.

use crate::Calibration;
use crate::plots::{Row, colour};
use crate::runs::label;
use crate::text::{escape, grouped};
use serde_json::Value;
use std::fmt::Write;

const INFALLIBLE: &str = "writing to a string";

/// The runs of all sets, those that do the same beside each other.
pub fn beside<'a>(runs: impl Iterator<Item = (usize, &'a Value)>) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for (set, run) in runs {
        let label = label(run);
        // A set may have several runs of one workload; each is a row then.
        let is_free = |row: &&mut Row<'_>| {
            row.label == label && row.runs.iter().all(|(other, _)| *other != set)
        };
        match rows.iter_mut().find(is_free) {
            Some(row) => row.runs.push((set, run)),
            None => rows.push(Row {
                label,
                runs: vec![(set, run)],
            }),
        }
    }
    rows
}

/// A figure of the table: where it stands in a run, its name, and whether more of it is better.
struct Column {
    place: &'static str,
    name: &'static str,
    is_more_better: Option<bool>,
}

const fn column(place: &'static str, name: &'static str, is_more_better: Option<bool>) -> Column {
    Column {
        place,
        name,
        is_more_better,
    }
}

const COLUMNS: [Column; 10] = [
    column("/operations_per_second", "operations/s", Some(true)),
    column("/transactions_per_second", "transactions/s", None),
    column("/latency_ms/p50", "p50 ms", Some(false)),
    column("/latency_ms/p90", "p90", None),
    column("/latency_ms/p99", "p99", Some(false)),
    column("/latency_ms/p99_9", "p99.9", None),
    column("/server_cpu_s", "server CPU s", None),
    column(
        "/operations_per_server_cpu_s",
        "operations/server CPU s",
        Some(true),
    ),
    column("/conflicts", "conflicts", None),
    column("/errors", "errors", None),
];

/// Below this share a change is noise.
const NOISE: f64 = 0.02;

/// A figure, and how it has changed since `before`.
fn cell(out: &mut String, column: &Column, run: &Value, before: Option<&Value>) {
    let figure = |run: &Value| run.pointer(column.place).and_then(Value::as_f64);
    let shown = match figure(run) {
        Some(n) if n >= 100.0 => grouped(n),
        Some(n) => format!("{n}"),
        None => "–".into(),
    };
    write!(out, "<td data-of=\"{}\"><span>{shown}", column.name).expect(INFALLIBLE);
    let before = before.and_then(figure).filter(|before| *before > 0.0);
    if let (Some(is_more_better), Some(now), Some(before)) =
        (column.is_more_better, figure(run), before)
    {
        let change = now / before - 1.0;
        let class = match change {
            change if change.abs() < NOISE => "same",
            change if (change > 0.0) == is_more_better => "good",
            _ => "bad",
        };
        write!(
            out,
            " <small class=\"{class}\">{:+.0} %</small>",
            change * 100.0
        )
        .expect(INFALLIBLE);
    }
    out.push_str("</span></td>");
}

/// All figures. Of a row with several runs, the others show how they differ from the first.
pub fn table(out: &mut String, rows: &[Row<'_>]) {
    out.push_str("<table class=\"cards\"><tr><th>workload</th>");
    for column in &COLUMNS {
        write!(out, "<th>{}</th>", column.name).expect(INFALLIBLE);
    }
    out.push_str("</tr>");
    let is_compared = rows
        .iter()
        .any(|row| row.runs.len() > 1 || row.runs[0].0 > 0);
    for row in rows {
        let first = row
            .runs
            .iter()
            .find(|(set, _)| *set == 0)
            .map(|(_, run)| *run);
        for (set, run) in &row.runs {
            out.push_str("<tr><td>");
            if is_compared {
                write!(out, "<i class=\"c{}\"></i>", colour(*set)).expect(INFALLIBLE);
            }
            write!(out, "{}</td>", escape(&row.label)).expect(INFALLIBLE);
            for column in &COLUMNS {
                cell(out, column, run, first.filter(|_| *set > 0));
            }
            out.push_str("</tr>");
        }
    }
    out.push_str("</table>");
}

/// Table of the machine's calibration: the medians over all runs that carry one.
pub fn calibration(out: &mut String, runs: &[Value]) {
    let told = |run: &Value| Calibration::from_json(&run["calibration"]);
    let calibrations: Vec<_> = runs.iter().filter_map(told).collect();
    let Some(calibration) = Calibration::median(&calibrations) else {
        return;
    };
    out.push_str("<h2>Calibration of the machine</h2><table>");
    for (_, value, what) in calibration.figures() {
        let shown = match value >= 1000.0 {
            true => grouped(value),
            false => format!("{value:.3}"),
        };
        write!(out, "<tr><td>{what}</td><td>{shown}</td></tr>").expect(INFALLIBLE);
    }
    out.push_str("</table>");
}
