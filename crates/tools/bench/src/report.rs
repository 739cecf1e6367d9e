//! One HTML page with plots, from the JSON objects that `bench run --json` printed. The page loads nothing from
//! elsewhere. Workloads of a kind share a scale: what a range read counts as operations would make every other bar
//! short.

mod plots;

use crate::{Calibration, Workload};
pub(crate) use plots::{Row, bars, key, latencies, open_page};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

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

/// Runs that belong together: those of a file, or of a directory.
pub struct Set {
    pub name: String,
    pub runs: Vec<Value>,
}

/// Who measures a workload once keeps all of its files in one set. Files that have the same workloads are compared: by
/// their directories if those tell them apart, else by their names.
pub fn sets(files: Vec<(PathBuf, Vec<Value>)>) -> Vec<Set> {
    let directory = |path: &Path| {
        let directory = path.parent().unwrap_or(Path::new(""));
        let own = directory.file_name().unwrap_or(directory.as_os_str());
        (directory.to_path_buf(), own.to_string_lossy().into_owned())
    };
    let of_file = |path: &Path| {
        let stem = path.file_stem().unwrap_or(path.as_os_str());
        (path.to_path_buf(), stem.to_string_lossy().into_owned())
    };
    let all = |_: &Path| (PathBuf::new(), String::new());
    let ways: [&dyn Fn(&Path) -> (PathBuf, String); 2] = [&all, &directory];
    let good = ways.into_iter().find(|way| {
        let mut seen: Vec<(PathBuf, String, &Path)> = Vec::new();
        files.iter().all(|(path, runs)| {
            let of = way(path).0;
            let labels: Vec<String> = runs.iter().map(label).collect();
            let is_new = labels.iter().all(|label| {
                let is_same = |(set, other, from): &(PathBuf, String, &Path)| {
                    *set == of && other == label && *from != path.as_path()
                };
                !seen.iter().any(is_same)
            });
            seen.extend(
                labels
                    .into_iter()
                    .map(|label| (of.clone(), label, path.as_path())),
            );
            is_new
        })
    });
    let way = good.unwrap_or(&of_file);
    let mut sets: Vec<(PathBuf, Set)> = Vec::new();
    for (path, runs) in &files {
        let (of, name) = way(path);
        match sets.iter_mut().find(|(other, _)| *other == of) {
            Some((_, set)) => set.runs.extend(runs.iter().cloned()),
            None => sets.push((
                of,
                Set {
                    name,
                    runs: runs.clone(),
                },
            )),
        }
    }
    // Two of one name are told apart by their whole paths.
    let names: Vec<String> = sets.iter().map(|(_, set)| set.name.clone()).collect();
    for (of, set) in &mut sets {
        if names.iter().filter(|name| **name == set.name).count() > 1 {
            set.name = of.display().to_string();
        }
    }
    sets.into_iter().map(|(_, set)| set).collect()
}

/// The runs of all sets, those that do the same beside each other.
pub(crate) fn beside<'a>(runs: impl Iterator<Item = (usize, &'a Value)>) -> Vec<Row<'a>> {
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

/// Renders the page.
pub fn page(sets: &[Set]) -> String {
    let mut out = open_page("Plinth: measured speed");
    out.push_str(
        "<p>An operation is a key read or written. Where the load generator is the bottleneck, \
        the figure a server CPU second is the one that says what the server can do.</p>",
    );
    let names: Vec<String> = sets.iter().map(|set| set.name.clone()).collect();
    if names.len() > 1 {
        key(&mut out, &names);
        write!(out, "<p>Changes are against {}.</p>", escape(&names[0])).expect(INFALLIBLE);
    }
    let runs = || {
        sets.iter()
            .enumerate()
            .flat_map(|(i, set)| set.runs.iter().map(move |run| (i, run)))
    };
    let kind = |run: &Value| Workload::kind_of(run["workload"].as_str().unwrap_or("?"));
    for group in Workload::KINDS {
        let rows = beside(runs().filter(|(_, run)| kind(run) == group));
        if rows.is_empty() {
            continue;
        }
        write!(out, "<section><h2>{group}</h2><div class=\"plots\">").expect(INFALLIBLE);
        let number = |field: &'static str| move |run: &Value| run[field].as_f64();
        bars(
            &mut out,
            "Operations a second",
            &rows,
            number("operations_per_second"),
        );
        let per_cpu = number("operations_per_server_cpu_s");
        bars(&mut out, "Operations a server CPU second", &rows, per_cpu);
        latencies(&mut out, "Latency: p50, p90, p99, p99.9", &rows);
        out.push_str("</div>");
        table(&mut out, &rows);
        out.push_str("</section>");
    }
    let all: Vec<Value> = runs().map(|(_, run)| run.clone()).collect();
    calibration(&mut out, &all);
    out.push_str("</html>\n");
    out
}

const INFALLIBLE: &str = "writing to a string";

fn label(run: &Value) -> String {
    let name = run["workload"].as_str().unwrap_or("?");
    match run["clients"].as_u64().unwrap_or(0) {
        1 => format!("{name}, 1 client"),
        clients => format!("{name}, {clients} clients"),
    }
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
pub(crate) fn table(out: &mut String, rows: &[Row<'_>]) {
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
                write!(out, "<i class=\"c{}\"></i>", plots::colour(*set)).expect(INFALLIBLE);
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

    fn run(workload: &str, rate: f64) -> Value {
        json!({"workload": workload, "clients": 100, "operations_per_second": rate,
            "latency_ms": {"p50": 0.5, "p90": 1.0, "p99": 2.0, "p99_9": 9.0}, "server_cpu_s": 9.5})
    }

    fn files(all: &[(&str, &[(&str, f64)])]) -> Vec<(PathBuf, Vec<Value>)> {
        let runs =
            |runs: &[(&str, f64)]| runs.iter().map(|(name, rate)| run(name, *rate)).collect();
        all.iter()
            .map(|(path, of)| (PathBuf::from(path), runs(of)))
            .collect()
    }

    fn names(sets: &[Set]) -> Vec<(&str, usize)> {
        sets.iter()
            .map(|set| (set.name.as_str(), set.runs.len()))
            .collect()
    }

    /// How often `words` stand in the text.
    fn count(text: &str, words: &str) -> usize {
        text.matches(words).count()
    }

    #[test]
    fn a_page_shows_every_run_and_lets_no_markup_in() {
        let runs = [run("point-reads", 123_456.7), run("<script>", 10.0)];
        let text: Vec<String> = runs.iter().map(Value::to_string).collect();
        let runs = parse_runs(&text.join("\n")).expect("two objects");
        let page = page(&sets(vec![("<b>.json".into(), runs)]));
        assert!(
            page.contains("123 457") && page.contains("point-reads"),
            "{page}"
        );
        assert!(
            !page.contains("<script>") && !page.contains("<b>"),
            "{page}"
        );
        assert!(!page.contains("http"), "{page}");
    }

    #[test]
    fn workloads_of_a_kind_have_a_scale_of_their_own() {
        let of = [
            ("point-reads", 100.0),
            ("random-90-10", 50.0),
            ("range-reads-1000", 1e6),
        ];
        let page = page(&sets(files(&[("a.json", &of)])));
        // Two sections, in each the plots and one table, and the fastest of each fills its scale.
        for (words, times) in [
            ("<section>", 2),
            ("<table class=\"cards\">", 2),
            ("<figcaption>Operations a second", 2),
        ] {
            assert_eq!(count(&page, words), times, "{words}");
        }
        assert_eq!(count(&page, "5.4rem)*1.0000)"), 2, "{page}");
        assert_eq!(count(&page, "5.4rem)*0.5000)"), 1, "{page}");
        assert_eq!(
            count(&page, "<ul class=\"key\">"),
            0,
            "there is nothing to compare"
        );
        for (open, close) in [
            ("<section>", "</section>"),
            ("<div", "</div>"),
            ("<figure>", "</figure>"),
            ("<tr>", "</tr>"),
        ] {
            assert_eq!(count(&page, open), count(&page, close), "{open}");
        }
    }

    #[test]
    fn two_runs_stand_beside_each_other_with_their_change() {
        let sets = sets(files(&[
            ("before.json", &[("point-reads", 100.0), ("bulk-load", 7.0)]),
            ("after.json", &[("point-reads", 150.0)]),
        ]));
        assert_eq!(names(&sets), [("before", 2), ("after", 1)]);
        let page = page(&sets);
        assert_eq!(count(&page, "<ul class=\"key\">"), 1);
        assert_eq!(
            count(
                &page,
                "<span class=\"name\">point-reads<br>100 clients</span>"
            ),
            2,
            "a row a plot"
        );
        assert!(
            page.contains("150 <small class=\"good\">+50 %</small>"),
            "{page}"
        );
        assert!(
            page.contains("0.5 <small class=\"same\">+0 %</small>"),
            "{page}"
        );
        assert_eq!(count(&page, "*0.6667)"), 1, "{page}");
    }

    #[test]
    fn files_are_compared_only_if_they_have_the_same_workloads() {
        let one = sets(files(&[
            ("r/a.json", &[("point-reads", 1.0)]),
            ("r/b.json", &[("bulk-load", 1.0)]),
        ]));
        assert_eq!(names(&one), [("", 2)]);
        let directories = sets(files(&[
            ("old/a.json", &[("point-reads", 1.0)]),
            ("old/b.json", &[("bulk-load", 1.0)]),
            ("new/a.json", &[("point-reads", 1.0)]),
        ]));
        assert_eq!(names(&directories), [("old", 2), ("new", 1)]);
        let twice = sets(files(&[(
            "runs.jsonl",
            &[("point-reads", 1.0), ("point-reads", 2.0)],
        )]));
        assert_eq!(names(&twice), [("", 2)]);
        let alike = sets(files(&[
            ("x/r/a.json", &[("point-reads", 1.0)]),
            ("y/r/a.json", &[("point-reads", 1.0)]),
        ]));
        assert_eq!(names(&alike), [("x/r", 1), ("y/r", 1)]);
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
