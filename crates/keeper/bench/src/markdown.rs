//! Tables of a page in Markdown: every cell as a multiple of the peer's with the goals, and what was measured.

use crate::goals::{Cell, Goal, Needs};
use crate::spread::Spread;
use plinth_measure::text::grouped;
use serde_json::Value;
use std::fmt::Write;

const INFALLIBLE: &str = "writing to a string";
const NOTHING: &str = "–";

/// The tables, with what is missed in bold letters.
pub fn tables(objects: &[Value]) -> String {
    let is_disturbed = |object: &&Value| object["sessions"].is_object();
    let (disturbed, steady): (Vec<&Value>, Vec<&Value>) = objects.iter().partition(is_disturbed);
    let steady: Vec<Value> = steady.into_iter().cloned().collect();
    let mut out = String::new();
    if !disturbed.is_empty() {
        faults(&mut out, &disturbed);
        out.push('\n');
    }
    let cells = Cell::all(&steady);
    if cells.is_empty() {
        return out;
    }
    let compared: Vec<&Cell<'_>> = cells
        .iter()
        .filter(|cell| cell.peer.is_some() && !cell.others.is_empty())
        .collect();
    if !compared.is_empty() {
        multiples(&mut out, &compared);
        out.push('\n');
    }
    figures(&mut out, &cells);
    out
}

fn label(object: &Value) -> &str {
    object["label"].as_str().unwrap_or("?")
}

/// How a cell is called: its workload, and its clients.
fn called(object: &Value) -> String {
    let mut workload = format!("`{}`", object["workload"].as_str().unwrap_or("?"));
    // Of the others, nodes are what they read.
    if workload == "`bulk-load`"
        && let Some(nodes) = object["nodes"].as_f64()
    {
        write!(workload, " of {}", whole(nodes)).expect(INFALLIBLE);
    }
    let mut clients = object["clients"].as_f64().map_or(NOTHING.into(), whole);
    if let Some(outstanding) = object["outstanding"].as_u64().filter(|number| *number > 1) {
        write!(clients, " × {outstanding}").expect(INFALLIBLE);
    }
    format!("| {workload} | {clients} ")
}

fn whole(number: f64) -> String {
    grouped(number).replace(' ', ",")
}

/// A number with as many digits as its size deserves.
fn short(number: f64) -> String {
    match number.abs() {
        n if n >= 100.0 => whole(number),
        n if n >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

fn row(out: &mut String, cells: impl IntoIterator<Item = String>) {
    for cell in cells {
        write!(out, "| {cell} ").expect(INFALLIBLE);
    }
    out.push_str("|\n");
}

fn rule(out: &mut String, columns: usize) {
    writeln!(out, "{}|", "|---".repeat(columns)).expect(INFALLIBLE);
}

/// A multiple with its spread, if there was more than one round.
fn multiple(goal: &Goal) -> String {
    let Some(found) = goal.found else {
        return NOTHING.into();
    };
    let median = match goal.is_met() {
        Some(false) => format!("**{:.2} ✗**", found.median),
        _ => format!("{:.2}", found.median),
    };
    match found.least == found.most {
        true => median,
        false => format!("{median} ({:.2}–{:.2})", found.least, found.most),
    }
}

/// The others as multiples of the peer.
fn multiples(out: &mut String, cells: &[&Cell<'_>]) {
    let widest = cells.iter().max_by_key(|cell| cell.others.len());
    let servers = &widest.expect("there is one").others;
    let peer = label(cells[0].peer.expect("it is compared"));
    writeln!(
        out,
        "Multiples of {peer} in the same rounds, medians (least–most); **✗** misses its goal:\n"
    )
    .expect(INFALLIBLE);
    out.push_str("| workload | clients | goal of throughput ");
    for (number, object) in servers.iter().enumerate() {
        let name = label(object);
        write!(
            out,
            "| {name}: throughput | per processor second (goal 2.00) | p99 (at most 1.00) | memory (at most 0.50) "
        )
        .expect(INFALLIBLE);
        if number > 0 {
            write!(out, "| {name} to {} ", label(servers[number - 1])).expect(INFALLIBLE);
        }
    }
    out.push_str("|\n");
    rule(out, 3 + 4 * servers.len() + servers.len().saturating_sub(1));
    let mut count = Count::default();
    for cell in cells {
        out.push_str(&called(cell.any()));
        for number in 0..servers.len() {
            if number >= cell.others.len() {
                let columns = 4 + usize::from(number > 0);
                write!(out, "{}", format!("| {NOTHING} ").repeat(columns)).expect(INFALLIBLE);
                continue;
            }
            let goals = cell.goals(number);
            if number == 0 {
                let budget = if goals[0].is_budget {
                    ", all there is"
                } else {
                    ""
                };
                write!(out, "| {:.2}{budget} ", goals[0].wanted).expect(INFALLIBLE);
            }
            for goal in &goals {
                count.add(goal);
                write!(out, "| {} ", multiple(goal)).expect(INFALLIBLE);
            }
        }
        out.push_str("|\n");
    }
    writeln!(out, "\n{}", count.line()).expect(INFALLIBLE);
}

/// How many goals there are of each name, and how many are missed.
#[derive(Default)]
struct Count(Vec<(&'static str, usize, usize)>);

impl Count {
    fn add(&mut self, goal: &Goal) {
        let Some(is_met) = goal.is_met() else { return };
        let missed = usize::from(!is_met);
        match self.0.iter_mut().find(|(name, ..)| *name == goal.name) {
            Some((_, all, misses)) => (*all, *misses) = (*all + 1, *misses + missed),
            None => self.0.push((goal.name, 1, missed)),
        }
    }

    fn line(&self) -> String {
        let told = self.0.iter();
        let told = told.map(|(name, all, missed)| format!("{name} {missed} of {all}"));
        format!("Missed: {}.", told.collect::<Vec<_>>().join(", "))
    }
}

/// What sessions lived through.
fn faults(out: &mut String, objects: &[&Value]) {
    out.push_str(
        "| what failed | sessions | per second | longest gap of a session, median s | most | sessions that moved \
        | were lost |\n",
    );
    rule(out, 7);
    for object in objects {
        let figure = |place: &str| object.pointer(place).and_then(Value::as_f64);
        let told = |place: &str| figure(place).map_or(NOTHING.into(), whole);
        let seconds = |place: &str| figure(place).map_or(NOTHING.into(), |s| format!("{s:.2}"));
        let cells = [
            label(object).into(),
            told("/sessions/sessions"),
            told("/operations_per_second"),
            seconds("/sessions/longest_gap_s/p50"),
            seconds("/sessions/longest_gap_s/max"),
            told("/sessions/moved"),
            told("/sessions/lost"),
        ];
        row(out, cells);
    }
}

/// What each server did.
fn figures(out: &mut String, cells: &[Cell<'_>]) {
    out.push_str(
        "Medians of the rounds; processor time is milliseconds for 1,000 requests, with what servers put off; the \
        parts are of the measured seconds alone:\n\n\
        | workload | clients | server | per second (least–most) | p50 ms | mean | p99 | longest | servers' processors \
        | parts | budget | the sessions' | memory, MiB | disk, MiB |\n",
    );
    rule(out, 14);
    for cell in cells {
        for object in cell.peer.iter().chain(&cell.others) {
            out.push_str(&called(object));
            row(out, of_server(cell, object));
        }
    }
}

fn of_server(cell: &Cell<'_>, object: &Value) -> [String; 12] {
    let spread = |name| Spread::read(&object["figures"], name);
    let told = |figure: Option<f64>| figure.map_or(NOTHING.into(), short);
    let median = |name| told(spread(name).map(|spread| spread.median));
    let rate = spread("operations_per_second").map_or(NOTHING.into(), |rate| {
        let median = whole(rate.median);
        match rate.least == rate.most {
            true => median,
            false => format!("{median} ({}–{})", whole(rate.least), whole(rate.most)),
        }
    });
    let needs = Needs::of(object);
    let is_peer = object["label"] == object["peer"];
    let budget = (!is_peer).then(|| cell.budget_us(object)).flatten();
    let longest = spread("max_ms").map(|spread| spread.most);
    let mib = |name| told(spread(name).map(|spread| spread.median / f64::from(1 << 20)));
    [
        label(object).into(),
        rate,
        median("p50_ms"),
        median("mean_ms"),
        median("p99_ms"),
        told(longest),
        told(needs.as_ref().map(|needs| needs.server_us)),
        parts(object),
        told(budget),
        told(needs.map(|needs| needs.load_us)),
        mib("server_memory_bytes"),
        mib("disk_bytes"),
    ]
}

/// The processes of a server apart, in the measured interval.
fn parts(object: &Value) -> String {
    let operations = object["operations"].as_f64().filter(|count| *count > 0.0);
    let parts = object["server_parts"].as_object();
    let (Some(operations), Some(parts)) = (operations, parts) else {
        return NOTHING.into();
    };
    let told = parts.iter().filter(|(name, _)| !name.is_empty());
    let told = told.filter_map(|(name, part)| {
        let us = part["cpu_s"].as_f64()? * 1e6 / operations;
        Some(format!("{name} {}", short(us)))
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() {
        NOTHING.into()
    } else {
        told.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(label: &str, rate: f64) -> Value {
        let spread =
            |median: f64| json!({"median": median, "least": median * 0.9, "most": median * 1.1});
        json!({
            "label": label, "peer": "zookeeper", "workload": "reads-50", "clients": 2000, "outstanding": 1,
            "cores": 2, "operations": 1000,
            "figures": {
                "operations_per_second": spread(rate),
                "operations_per_server_cpu_s_whole": spread(50_000.0),
                "load_us_per_operation": spread(9.0),
                "p99_ms": spread(12.345),
            },
            "server_parts": {"database": {"cpu_s": 0.008}, "gateway": {"cpu_s": 0.0125}},
            "times_peer": {"operations_per_second": spread(rate / 10_000.0)},
            "times_before": {"operations_per_second": spread(0.8)},
        })
    }

    #[test]
    fn every_server_has_its_row_and_every_missed_goal_its_mark() {
        let objects = [
            object("zookeeper", 10_000.0),
            object("plinth", 20_000.0),
            object("plinth-2", 12_000.0),
        ];
        let text = tables(&objects);
        let rows: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        assert_eq!(
            rows[0],
            "| `reads-50` | 2,000 | 1.50 | 2.00 (1.80–2.20) | – | – | – | **1.20 ✗** (1.08–1.32) | – | – | – \
            | **0.80 ✗** (0.72–0.88) |"
        );
        assert_eq!(
            rows[2],
            "| `reads-50` | 2,000 | plinth | 20,000 (18,000–22,000) | – | – | 12.3 | – | 20.0 \
            | database 8.00, gateway 12.5 | 124 | 9.00 | – | – |"
        );
        assert_eq!(rows.len(), 4);
        assert!(text.contains("Missed: throughput 1 of 2, not below the one before 1 of 1."));
        // All rows of a table have as many columns as its head.
        for lines in text.split("\n\n") {
            let columns: Vec<usize> = lines
                .lines()
                .filter(|line| line.starts_with('|'))
                .map(|line| line.matches('|').count())
                .collect();
            assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{lines}");
        }
    }

    #[test]
    fn each_fault_has_a_row_of_what_its_sessions_lived_through() {
        let mut faults = [
            object("plinth: gateway-killed", 5000.0),
            object("plinth: database-killed", 4000.0),
        ];
        for fault in &mut faults {
            fault["peer"] = fault["label"].clone();
            fault["operations_per_second"] = json!(5000.0);
            fault["sessions"] = json!({"sessions": 100, "moved": 50, "lost": 0,
                "longest_gap_s": {"p50": 0.411, "max": 2.5}});
        }
        let text = tables(&faults);
        assert_eq!(text.lines().count(), 5, "{text}");
        let row = "| plinth: gateway-killed | 100 | 5,000 | 0.41 | 2.50 | 50 | 0 |";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn a_server_alone_has_figures_and_no_goals() {
        let mut alone = object("plinth", 20_000.0);
        alone["peer"] = json!("plinth");
        alone["outstanding"] = json!(100);
        alone["workload"] = json!("bulk-load");
        alone["nodes"] = json!(390_625);
        let text = tables(&[alone]);
        let begin = "| `bulk-load` of 390,625 | 2,000 × 100 | plinth | 20,000 ";
        assert!(text.contains(begin) && !text.contains("goal"), "{text}");
    }
}
