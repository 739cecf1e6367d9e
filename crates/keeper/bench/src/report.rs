//! What was measured, as JSON objects, lines of text, and an HTML page.

use crate::load::Life;
use crate::mix::Kind;
use crate::run::{Compared, Plan, Round};
use hdrhistogram::Histogram;
use plinth_measure::latency::{histogram, quantiles, round};
use plinth_measure::plots::{bars, key, latencies, open_page};
use plinth_measure::samples::{median, quantile};
use plinth_measure::tables::{beside, calibration, table};
use plinth_measure::text::{escape, grouped};
use serde_json::{Value, json};
use std::fmt::Write;

const INFALLIBLE: &str = "writing to a string";

/// One object for each server: what `--json` writes, and what [`page`] and [`lines`] show.
pub fn objects(plan: &Plan, compared: &Compared) -> Vec<Value> {
    let servers = plan.servers.iter().zip(&compared.rounds);
    let mut objects: Vec<Value> = servers
        .map(|(server, rounds)| object(plan, compared, &server.name, rounds))
        .collect();
    let first = objects[0].clone();
    for other in &mut objects[1..] {
        other["first_server_to_this"] = ratios(&first, other);
    }
    objects
}

fn object(plan: &Plan, compared: &Compared, server: &str, rounds: &[Round]) -> Value {
    let duration_s: f64 = rounds.iter().map(|round| round.duration_s).sum();
    let own_cpu_s: f64 = rounds.iter().map(|round| round.own_cpu_s).sum();
    let mut kinds: [Histogram<u64>; 5] = std::array::from_fn(|_| histogram());
    for part in rounds {
        for (sum, its) in kinds.iter_mut().zip(&part.counted.kinds) {
            sum.add(its).expect("the same bounds");
        }
    }
    let all = merged(&kinds);
    let of_kinds = Kind::ALL.into_iter().zip(&kinds);
    let of_kinds = of_kinds.filter(|(_, latency)| !latency.is_empty());
    let of_kinds = of_kinds.map(|(kind, latency)| {
        let mut object = quantiles(latency);
        object["operations"] = json!(latency.len());
        (kind.name().to_owned(), object)
    });
    let used: Option<Vec<_>> = rounds.iter().map(|round| round.used.clone()).collect();
    let cpu_s = used
        .as_ref()
        .map(|used| used.iter().map(|used| used.cpu_s).sum::<f64>());
    let memory = used.and_then(|used| used.last().map(|used| used.memory_bytes));
    let lives: Vec<&Life> = rounds.iter().flat_map(|round| &round.lives).collect();
    json!({
        "label": server,
        "workload": compared.workload.name,
        "clients": compared.clients,
        "outstanding": plan.outstanding,
        "nodes": plan.nodes,
        "node_bytes": plan.node_bytes,
        "seed": plan.seed,
        "duration_s": round(duration_s, 3),
        "operations": all.len(),
        "operations_per_second": round(all.len() as f64 / duration_s.max(1e-9), 1),
        "latency_ms": quantiles(&all),
        "kinds": of_kinds.collect::<serde_json::Map<_, _>>(),
        "server_cpu_s": cpu_s.map(|cpu_s| round(cpu_s, 2)),
        "operations_per_server_cpu_s": cpu_s.filter(|cpu_s| *cpu_s > 0.0)
            .map(|cpu_s| round(all.len() as f64 / cpu_s, 1)),
        "server_memory_bytes": memory,
        "load_generator_cpu_s": round(own_cpu_s, 2),
        "load_generator_cores": round(own_cpu_s / duration_s.max(1e-9), 2),
        "rounds": rounds.iter().map(of_round).collect::<Vec<_>>(),
        "sessions": (!lives.is_empty()).then(|| of_sessions(&lives)),
    })
}

fn merged(kinds: &[Histogram<u64>; 5]) -> Histogram<u64> {
    let mut all = histogram();
    for kind in kinds {
        all.add(kind).expect("the same bounds");
    }
    all
}

fn of_round(part: &Round) -> Value {
    let all = merged(&part.counted.kinds);
    json!({
        "operations_per_second": round(all.len() as f64 / part.duration_s.max(1e-9), 1),
        "latency_ms": quantiles(&all),
        "server_cpu_s": part.used.as_ref().map(|used| round(used.cpu_s, 2)),
        "server_memory_bytes": part.used.as_ref().map(|used| used.memory_bytes),
        "load_generator_cpu_s": round(part.own_cpu_s, 2),
        "load_average": part.load_average,
        "answers_of_each_second": part.counted.timeline,
    })
}

fn of_sessions(lives: &[&Life]) -> Value {
    let mut gaps: Vec<f64> = lives
        .iter()
        .map(|life| life.longest_gap.as_secs_f64())
        .collect();
    gaps.sort_by(f64::total_cmp);
    let at = |share| quantile(&gaps, share).map(|gap| round(gap, 3));
    json!({
        "sessions": lives.len(),
        "moved": lives.iter().filter(|life| life.moves > 0).count(),
        "lost": lives.iter().map(|life| u64::from(life.losses)).sum::<u64>(),
        "longest_gap_s": {"p50": at(0.5), "p99": at(0.99), "max": at(1.0)},
    })
}

/// The first server's figures divided by another one's: of throughput the median of all rounds, with the least and
/// the most.
fn ratios(first: &Value, other: &Value) -> Value {
    let rate = |round: &Value| round["operations_per_second"].as_f64();
    let pairs = rounds(first).zip(rounds(other));
    let of_round = |(a, b)| Some(rate(a)? / rate(b)?.max(1e-9));
    let mut rates: Vec<f64> = pairs.filter_map(of_round).collect();
    rates.sort_by(f64::total_cmp);
    let of = |place: &str| {
        let figure = |object: &Value| {
            object
                .pointer(place)?
                .as_f64()
                .filter(|figure| *figure > 0.0)
        };
        Some(round(figure(first)? / figure(other)?, 3))
    };
    json!({
        "operations_per_second": median(rates.clone()).map(|ratio| round(ratio, 3)),
        "least": rates.first().map(|ratio| round(*ratio, 3)),
        "most": rates.last().map(|ratio| round(*ratio, 3)),
        "p50": of("/latency_ms/p50"),
        "p99": of("/latency_ms/p99"),
        "p99_9": of("/latency_ms/p99_9"),
        "operations_per_server_cpu_s": of("/operations_per_server_cpu_s"),
        "memory": of("/server_memory_bytes"),
    })
}

fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(n) if n >= 100.0 => grouped(n),
        Some(n) => format!("{n}"),
        None => "–".into(),
    }
}

fn mib(value: &Value) -> String {
    let bytes = value.as_f64();
    bytes.map_or("–".into(), |bytes| grouped(bytes / f64::from(1 << 20)))
}

/// The objects of one workload, for people.
pub fn lines(objects: &[Value]) -> String {
    let mut out = String::new();
    for object in objects {
        let latency = &object["latency_ms"];
        writeln!(
            out,
            "  {:<12} {:>9}/s   p50 {} p99 {} p99.9 {} ms   server {} CPU s, {} a CPU s, {} MiB   load {} cores",
            object["label"].as_str().unwrap_or("?"),
            number(&object["operations_per_second"]),
            latency["p50"],
            latency["p99"],
            latency["p99_9"],
            number(&object["server_cpu_s"]),
            number(&object["operations_per_server_cpu_s"]),
            mib(&object["server_memory_bytes"]),
            object["load_generator_cores"],
        )
        .expect(INFALLIBLE);
        for (kind, latency) in object["kinds"].as_object().into_iter().flatten() {
            writeln!(
                out,
                "    {kind:<10} {:>11}     p50 {} p99 {} p99.9 {} ms",
                number(&latency["operations"]),
                latency["p50"],
                latency["p99"],
                latency["p99_9"]
            )
            .expect(INFALLIBLE);
        }
        let sessions = &object["sessions"];
        if sessions.is_object() {
            let gap = &sessions["longest_gap_s"];
            writeln!(
                out,
                "    {} sessions: {} moved, {} lost; longest gap p50 {} p99 {} max {} s",
                sessions["sessions"],
                sessions["moved"],
                sessions["lost"],
                gap["p50"],
                gap["p99"],
                gap["max"]
            )
            .expect(INFALLIBLE);
        }
    }
    for object in &objects[1..] {
        let ratio = &object["first_server_to_this"];
        writeln!(
            out,
            "  {} / {}: throughput {} ({} to {}), p99 {}, a CPU second {}, memory {}",
            objects[0]["label"].as_str().unwrap_or("?"),
            object["label"].as_str().unwrap_or("?"),
            number(&ratio["operations_per_second"]),
            number(&ratio["least"]),
            number(&ratio["most"]),
            number(&ratio["p99"]),
            number(&ratio["operations_per_server_cpu_s"]),
            number(&ratio["memory"]),
        )
        .expect(INFALLIBLE);
    }
    out
}

/// Renders the page.
pub fn page(objects: &[Value]) -> String {
    let mut out = open_page("ZooKeeper's protocol: measured speed");
    out.push_str(
        "<p>A figure of the servers' speed holds for the machine, the load average and the load generator that \
        are named beside it. Ratios are of alternating rounds in one session.</p>",
    );
    comparisons(&mut out, objects);
    let figure = |field: &'static str| move |run: &Value| run[field].as_f64();
    // A server is a set of runs.
    let name = |object: &Value| object["label"].as_str().unwrap_or("?").to_owned();
    let mut names: Vec<String> = Vec::new();
    let mut set = |object: &Value| {
        let name = name(object);
        names
            .iter()
            .position(|other| *other == name)
            .unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            })
    };
    let rows = beside(objects.iter().map(|object| (set(object), object)));
    key(&mut out, &names);
    out.push_str("<div class=\"plots\">");
    bars(
        &mut out,
        "Operations a second",
        &rows,
        figure("operations_per_second"),
    );
    let per_cpu = figure("operations_per_server_cpu_s");
    bars(&mut out, "Operations a server CPU second", &rows, per_cpu);
    latencies(&mut out, "Latency: p50, p90, p99, p99.9", &rows);
    out.push_str("</div>");
    kinds(&mut out, objects);
    sessions(&mut out, objects);
    out.push_str("<h2>All figures</h2>");
    table(&mut out, &rows);
    calibration(&mut out, objects);
    out.push_str("</html>\n");
    out
}

fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.into(),
        None => number(value),
    }
}

/// A table whose columns are a title and a place in each of the objects.
fn show(out: &mut String, title: &str, columns: &[(&str, &str)], objects: Vec<Value>) {
    write!(out, "<h2>{title}</h2><table><tr>").expect(INFALLIBLE);
    for (name, _) in columns {
        write!(out, "<th>{name}</th>").expect(INFALLIBLE);
    }
    out.push_str("</tr>");
    for object in objects {
        out.push_str("<tr>");
        for (_, place) in columns {
            let cell = text(object.pointer(place).unwrap_or(&Value::Null));
            write!(out, "<td>{}</td>", escape(&cell)).expect(INFALLIBLE);
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>");
}

/// The object with one more member.
fn with(object: &Value, name: &str, member: Value) -> Value {
    let mut object = object.clone();
    object[name] = member;
    object
}

fn rounds(object: &Value) -> impl Iterator<Item = &Value> {
    object["rounds"].as_array().into_iter().flatten()
}

/// The first server divided by the others, with what a comparison must know of its circumstances.
fn comparisons(out: &mut String, objects: &[Value]) {
    const COLUMNS: [(&str, &str); 13] = [
        ("other", "/label"),
        ("workload", "/workload"),
        ("clients", "/clients"),
        ("throughput", "/first_server_to_this/operations_per_second"),
        ("least", "/first_server_to_this/least"),
        ("most", "/first_server_to_this/most"),
        ("p50", "/first_server_to_this/p50"),
        ("p99", "/first_server_to_this/p99"),
        ("p99.9", "/first_server_to_this/p99_9"),
        (
            "a server CPU second",
            "/first_server_to_this/operations_per_server_cpu_s",
        ),
        ("memory", "/first_server_to_this/memory"),
        ("load average", "/load"),
        ("load generator, cores", "/load_generator_cores"),
    ];
    let seconds = objects.iter();
    let seconds = seconds.filter(|object| object["first_server_to_this"].is_object());
    let loaded = seconds.map(|object| {
        let loads = rounds(object).filter_map(|round| round["load_average"].as_f64());
        with(object, "load", json!(loads.fold(0.0, f64::max)))
    });
    let loaded: Vec<Value> = loaded.collect();
    if !loaded.is_empty() {
        let title = "The first server divided by the other";
        show(out, title, &COLUMNS, loaded);
    }
}

fn kinds(out: &mut String, objects: &[Value]) {
    const COLUMNS: [(&str, &str); 9] = [
        ("server", "/label"),
        ("workload", "/workload"),
        ("clients", "/clients"),
        ("kind", "/kind"),
        ("operations", "/of_kind/operations"),
        ("p50 ms", "/of_kind/p50"),
        ("p99", "/of_kind/p99"),
        ("p99.9", "/of_kind/p99_9"),
        ("max", "/of_kind/max"),
    ];
    let of_kinds = objects.iter().flat_map(|object| {
        let kinds = object["kinds"].as_object().into_iter().flatten();
        kinds.map(|(kind, latency)| {
            with(
                &with(object, "kind", json!(kind)),
                "of_kind",
                latency.clone(),
            )
        })
    });
    show(out, "Kinds of operations", &COLUMNS, of_kinds.collect());
}

fn sessions(out: &mut String, objects: &[Value]) {
    const COLUMNS: [(&str, &str); 8] = [
        ("server", "/label"),
        ("sessions", "/sessions/sessions"),
        ("moved", "/sessions/moved"),
        ("lost", "/sessions/lost"),
        ("longest gap s, p50", "/sessions/longest_gap_s/p50"),
        ("p99", "/sessions/longest_gap_s/p99"),
        ("max", "/sessions/longest_gap_s/max"),
        ("answers of each second", "/seconds"),
    ];
    let disturbed = objects.iter();
    let disturbed = disturbed.filter(|object| object["sessions"].is_object());
    let disturbed = disturbed.map(|object| {
        let seconds = rounds(object).map(|round| round["answers_of_each_second"].to_string());
        let seconds: Vec<String> = seconds.collect();
        with(object, "seconds", json!(seconds.join(" ")))
    });
    let disturbed: Vec<Value> = disturbed.collect();
    if !disturbed.is_empty() {
        show(out, "Sessions that were disturbed", &COLUMNS, disturbed);
    }
}
