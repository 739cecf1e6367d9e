//! One HTML page with plots, from the JSON objects that `bench run --json` printed. The page loads nothing from
//! elsewhere. Workloads of a kind share a scale: what a range read counts as operations would make every other bar
//! short.

use crate::Workload;
use plinth_measure::plots::{bars, key, latencies, open_page};
use plinth_measure::runs::Set;
use plinth_measure::tables::{beside, calibration, table};
use plinth_measure::text::escape;
use serde_json::Value;
use std::fmt::Write;

const INFALLIBLE: &str = "writing to a string";

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

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_measure::runs::{parse_runs, sets};
    use serde_json::json;
    use std::path::PathBuf;

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
}
