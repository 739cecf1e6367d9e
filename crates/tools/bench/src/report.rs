//! One HTML page with plots, from the JSON objects that `bench run --json` printed. The page loads nothing from
//! elsewhere.

use crate::Calibration;
use serde_json::Value;
use std::fmt::Write;

const BAR_WIDTH: f64 = 420.0;
const BAR_HEIGHT: f64 = 18.0;
const LABEL_WIDTH: f64 = 210.0;
const NUMBER_WIDTH: f64 = 110.0;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2430}\
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #dde2ea}\
td:first-child,th:first-child{text-align:left}\
svg text{font:12px system-ui,sans-serif;fill:#1c2430}";

/// Parses the objects in a text: one per line, one over several lines, or an array of them. The error is one line.
pub fn parse_runs(text: &str) -> Result<Vec<Value>, String> {
    let mut runs = Vec::new();
    for parsed in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        match parsed.map_err(|error| format!("it is not JSON: {error}"))? {
            Value::Array(items) => runs.extend(items),
            item => runs.push(item),
        }
    }
    match runs.iter().find(|run| !run["workload"].is_string()) {
        Some(_) => {
            Err("an object in it has no \"workload\": it is not from `bench run --json`".into())
        }
        None if runs.is_empty() => Err("it is empty".into()),
        None => Ok(runs),
    }
}

/// Renders the page.
pub fn page(runs: &[Value]) -> String {
    let mut out = open_page("Plinth: measured speed");
    out.push_str(
        "<p>An operation is a key read or written. Where the load generator is the bottleneck, \
        the figure a server CPU second is the one that says what the server can do.</p>",
    );
    let number = |field: &'static str| move |run: &Value| run[field].as_f64();
    bars(
        &mut out,
        "Operations a second",
        runs,
        number("operations_per_second"),
    );
    bars(
        &mut out,
        "Operations a server CPU second",
        runs,
        number("operations_per_server_cpu_s"),
    );
    let title = "Latency of a transaction, ms: p50, p90, p99, p99.9";
    latencies(&mut out, title, runs);
    table(&mut out, runs);
    calibration(&mut out, runs);
    out.push_str("</html>\n");
    out
}

/// The beginning of a page.
pub(crate) fn open_page(title: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
        <style>{STYLE}</style><h1>{title}</h1>"
    )
}

const INFALLIBLE: &str = "writing to a string";

fn label(run: &Value) -> String {
    let name = run["workload"].as_str().unwrap_or("?");
    let clients = run["clients"].as_u64().unwrap_or(0);
    escape(&match run["label"].as_str() {
        Some(label) => format!("{label}: {name}, {clients}"),
        None => format!("{name}, {clients} clients"),
    })
}

pub(crate) fn bars(
    out: &mut String,
    title: &str,
    runs: &[Value],
    value: impl Fn(&Value) -> Option<f64>,
) {
    let most = runs.iter().filter_map(&value).fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    open_plot(out, title, runs.len());
    for (i, run) in runs.iter().enumerate() {
        let y = i as f64 * (BAR_HEIGHT + 6.0);
        let Some(n) = value(run) else { continue };
        let width = (n / most * BAR_WIDTH).max(1.0);
        row_label(out, y, run);
        write!(
            out,
            "<rect x=\"{LABEL_WIDTH}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" fill=\"#2f6fb2\"/>\
            <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LABEL_WIDTH + width + 6.0,
            y + 13.0,
            grouped(n)
        )
        .expect(INFALLIBLE);
    }
    out.push_str("</svg>");
}

/// Plot of the latencies from the median to the 99.9th percentile on a logarithmic scale: a line with a mark at each
/// quantile.
pub(crate) fn latencies(out: &mut String, title: &str, runs: &[Value]) {
    let quantile = |run: &Value, q: &str| run["latency_ms"][q].as_f64().filter(|ms| *ms > 0.0);
    let all = || {
        runs.iter()
            .flat_map(|r| ["p50", "p99_9"].map(|q| quantile(r, q)))
            .flatten()
    };
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    if high <= 0.0 {
        return;
    }
    let (low, high) = (
        low.log10().floor(),
        (high.log10().ceil()).max(low.log10().floor() + 1.0),
    );
    let x = |ms: f64| LABEL_WIDTH + (ms.log10() - low) / (high - low) * BAR_WIDTH;
    open_plot(out, title, runs.len() + 1);
    let bottom = runs.len() as f64 * (BAR_HEIGHT + 6.0);
    for power in low as i32..=high as i32 {
        let at = x(10f64.powi(power));
        write!(
            out,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{bottom:.1}\" stroke=\"#dde2ea\"/>\
            <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 14.0,
            10f64.powi(power)
        )
        .expect(INFALLIBLE);
    }
    for (i, run) in runs.iter().enumerate() {
        let y = i as f64 * (BAR_HEIGHT + 6.0);
        let marks: Vec<f64> = ["p50", "p90", "p99", "p99_9"]
            .iter()
            .filter_map(|q| quantile(run, q))
            .map(x)
            .collect();
        let (Some(first), Some(last)) = (marks.first(), marks.last()) else {
            continue;
        };
        row_label(out, y, run);
        let middle = y + BAR_HEIGHT / 2.0;
        write!(
            out,
            "<line x1=\"{first:.1}\" x2=\"{last:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" \
            stroke=\"#b2582f\" stroke-width=\"2\"/>"
        )
        .expect(INFALLIBLE);
        for mark in &marks {
            write!(
                out,
                "<circle cx=\"{mark:.1}\" cy=\"{middle:.1}\" r=\"4\" fill=\"#b2582f\"/>"
            )
            .expect(INFALLIBLE);
        }
    }
    out.push_str("</svg>");
}

fn open_plot(out: &mut String, title: &str, rows: usize) {
    write!(
        out,
        "<h2>{title}</h2><svg width=\"{:.0}\" height=\"{:.0}\" role=\"img\" aria-label=\"{title}\">",
        LABEL_WIDTH + BAR_WIDTH + NUMBER_WIDTH,
        rows as f64 * (BAR_HEIGHT + 6.0) + 4.0
    )
    .expect(INFALLIBLE);
}

fn row_label(out: &mut String, y: f64, run: &Value) {
    write!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        LABEL_WIDTH - 8.0,
        y + 13.0,
        label(run)
    )
    .expect(INFALLIBLE);
}

pub(crate) fn table(out: &mut String, runs: &[Value]) {
    out.push_str(
        "<h2>All figures</h2><table><tr><th>workload</th><th>operations/s</th><th>transactions/s</th>\
        <th>p50 ms</th><th>p90</th><th>p99</th><th>p99.9</th><th>conflicts</th><th>errors</th>\
        <th>server CPU s</th><th>operations/server CPU s</th></tr>",
    );
    for run in runs {
        let cell = |value: &Value| match value.as_f64() {
            Some(n) if n >= 100.0 => grouped(n),
            Some(n) => format!("{n}"),
            None => "–".into(),
        };
        write!(out, "<tr><td>{}</td>", label(run)).expect(INFALLIBLE);
        let latency = &run["latency_ms"];
        for value in [
            &run["operations_per_second"],
            &run["transactions_per_second"],
            &latency["p50"],
            &latency["p90"],
            &latency["p99"],
            &latency["p99_9"],
            &run["conflicts"],
            &run["errors"],
            &run["server_cpu_s"],
            &run["operations_per_server_cpu_s"],
        ] {
            write!(out, "<td>{}</td>", cell(value)).expect(INFALLIBLE);
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>");
}

/// Table of the machine's calibration: the medians over all runs that carry one.
pub(crate) fn calibration(out: &mut String, runs: &[Value]) {
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

/// A whole number with its thousands separated by spaces: `1 234 567`.
pub fn grouped(n: f64) -> String {
    let digits = format!("{:.0}", n.abs());
    let mut out = String::from(if n < 0.0 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_shows_every_run_and_lets_no_markup_in() {
        let runs = [
            json!({"workload": "point-reads", "clients": 100, "operations_per_second": 123456.7,
                "latency_ms": {"p50": 0.5, "p90": 1.0, "p99": 2.0, "p99_9": 9.0}, "server_cpu_s": 9.5}),
            json!({"workload": "<script>", "clients": 1, "operations_per_second": 10, "latency_ms": {}}),
        ];
        let text: Vec<String> = runs.iter().map(Value::to_string).collect();
        let page = page(&parse_runs(&text.join("\n")).expect("two objects"));
        assert!(
            page.contains("123 457") && page.contains("point-reads"),
            "{page}"
        );
        assert!(
            !page.contains("<script>") && !page.contains("http"),
            "{page}"
        );
    }

    #[test]
    fn what_is_not_from_a_run_is_refused_in_words() {
        assert!(parse_runs("[]").is_err());
        assert!(
            parse_runs("{\"a\":1}")
                .expect_err("no workload")
                .contains("workload")
        );
        assert!(
            parse_runs("{\"workload\"")
                .expect_err("cut off")
                .contains("not JSON")
        );
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(grouped(1_234_567.4), "1 234 567");
        assert_eq!(grouped(999.0), "999");
    }
}
