//! What was measured, as JSON objects, lines of text, and an HTML page.

use crate::goals::{Cell, Goal};
use crate::load::Life;
use crate::mix::Kind;
use crate::run::{Compared, Plan, Round, Server, Used};
use crate::spread::{Spread, figures, rounds, times};
use hdrhistogram::Histogram;
use plinth_measure::latency::{histogram, quantiles, round};
use plinth_measure::plots::{bars, key, latencies, open_page, seconds};
use plinth_measure::samples::quantile;
use plinth_measure::server_cpu::Usage;
use plinth_measure::tables::{beside, calibration, table};
use plinth_measure::text::{escape, grouped};
use serde_json::{Value, json};
use std::fmt::Write;

const INFALLIBLE: &str = "writing to a string";

/// One object for each server: what `--json` writes, and what [`page`] and [`lines`] show.
pub fn objects(plan: &Plan, compared: &Compared) -> Vec<Value> {
    let servers = plan.servers.iter().zip(&compared.rounds);
    let mut objects: Vec<Value> = servers
        .map(|(server, rounds)| object(plan, compared, server, rounds))
        .collect();
    compare(plan, &mut objects);
    objects
}

/// Adds what several servers are to each other, and which goals are met.
fn compare(plan: &Plan, objects: &mut [Value]) {
    let all = objects.to_vec();
    let mut before: Option<&Value> = None;
    for (number, object) in objects.iter_mut().enumerate() {
        object["peer"] = all[plan.peer]["label"].clone();
        if number == plan.peer {
            continue;
        }
        object["times_peer"] = times(object, &all[plan.peer]);
        if let Some(before) = before {
            object["times_before"] = times(object, before);
        }
        before = Some(&all[number]);
    }
    let compared = objects.to_vec();
    let cell = Cell::of(&compared);
    let others = objects.iter_mut();
    let others = others.filter(|object| object["label"] != object["peer"]);
    for (number, object) in others.enumerate() {
        let goals = cell.goals(number);
        object["goals"] = goals.iter().map(Goal::to_json).collect();
        object["budget_us"] = json!(cell.budget_us(object).map(|us| round(us, 2)));
    }
}

fn object(plan: &Plan, compared: &Compared, server: &Server, rounds: &[Round]) -> Value {
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
    let used: Option<Vec<&Used>> = rounds.iter().map(|round| round.used.as_ref()).collect();
    let cpu_s = used.as_ref().map(|used| {
        let of_round = |used: &&Used| used.parts.iter().map(|part| part.cpu_s).sum::<f64>();
        used.iter().map(of_round).sum::<f64>()
    });
    let memory = used.as_ref().and_then(|used| used.last().map(memory));
    let lives: Vec<&Life> = rounds.iter().flat_map(|round| &round.lives).collect();
    let mut object = json!({
        "label": server.name,
        "workload": compared.workload.name,
        "clients": compared.clients,
        "outstanding": compared.outstanding,
        "addresses": server.addresses.len(),
        "nodes": plan.nodes,
        "node_bytes": plan.node_bytes,
        "seed": plan.seed,
        "cores": plan.cores,
        "has_own_cores": plan.has_own_cores,
        "duration_s": round(duration_s, 3),
        "operations": all.len(),
        "operations_per_second": round(all.len() as f64 / duration_s.max(1e-9), 1),
        "latency_ms": quantiles(&all),
        "kinds": of_kinds.collect::<serde_json::Map<_, _>>(),
        "server_cpu_s": cpu_s.map(|cpu_s| round(cpu_s, 2)),
        "operations_per_server_cpu_s": cpu_s.and_then(|cpu_s| per(all.len(), cpu_s)),
        "server_memory_bytes": memory,
        "server_parts": used.map(|used| parts(server, &used)),
        "load_generator_cpu_s": round(own_cpu_s, 2),
        "load_generator_cores": round(own_cpu_s / duration_s.max(1e-9), 2),
        "disturbed_at_s": plan.disturbance.as_ref().filter(|_| compared.workload.is_disturbed)
            .map(|disturbance| disturbance.at.as_secs_f64()),
        "rounds": rounds.iter().map(of_round).collect::<Vec<_>>(),
        "sessions": (!lives.is_empty()).then(|| of_sessions(&lives)),
    });
    object["figures"] = figures(&object);
    object
}

fn per(operations: u64, cpu_s: f64) -> Option<f64> {
    (cpu_s > 0.0).then(|| round(operations as f64 / cpu_s, 1))
}

fn memory(used: &&Used) -> u64 {
    used.parts.iter().map(|part| part.memory_bytes).sum()
}

/// CPU time of each part in all rounds, and its memory in the end.
fn parts(server: &Server, used: &[&Used]) -> Value {
    let parts = server.parts.iter().enumerate();
    let parts = parts.map(|(number, part)| {
        let mut of_rounds = used.iter().filter_map(|used| used.parts.get(number));
        let cpu_s: f64 = of_rounds.clone().map(|usage| usage.cpu_s).sum();
        let memory = of_rounds.next_back().map(|usage| usage.memory_bytes);
        let object = json!({"cpu_s": round(cpu_s, 2), "memory_bytes": memory});
        (part.name.clone(), object)
    });
    Value::Object(parts.collect())
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
    let used = part.used.as_ref();
    let sum = |of: fn(&Usage) -> u64| used.map(|used| used.parts.iter().map(of).sum::<u64>());
    let cpu_s = used.map(|used| used.parts.iter().map(|part| part.cpu_s).sum::<f64>());
    json!({
        "operations_per_second": round(all.len() as f64 / part.duration_s.max(1e-9), 1),
        "latency_ms": quantiles(&all),
        "server_cpu_s": cpu_s.map(|cpu_s| round(cpu_s, 2)),
        "operations_per_server_cpu_s": cpu_s.and_then(|cpu_s| per(all.len(), cpu_s)),
        "server_cpu_s_whole": used.map(|used| round(used.whole_cpu_s, 2)),
        "operations_whole": used.map(|used| used.whole_operations),
        "operations_per_server_cpu_s_whole":
            used.and_then(|used| per(used.whole_operations, used.whole_cpu_s)),
        "server_memory_bytes": sum(|part| part.memory_bytes),
        "server_memory_peak_bytes": sum(|part| part.memory_peak_bytes),
        "disk_bytes": part.disk_bytes,
        "load_generator_cpu_s": round(part.own_cpu_s, 2),
        "load_us_per_operation": round(part.own_cpu_s * 1e6 / all.len().max(1) as f64, 2),
        "load_average": part.load_average,
        "duration_s": round(part.duration_s, 3),
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
            "  {:<12} {:>9}/s   p50 {} mean {} p99 {} p99.9 {} max {} ms   server {} CPU s, {} a CPU s, {} MiB   \
            load {} cores",
            object["label"].as_str().unwrap_or("?"),
            number(&object["operations_per_second"]),
            latency["p50"],
            latency["mean"],
            latency["p99"],
            latency["p99_9"],
            latency["max"],
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
    multiples(&mut out, objects);
    out
}

/// What the servers are to the one that they are compared with.
fn multiples(out: &mut String, objects: &[Value]) {
    for object in objects
        .iter()
        .filter(|object| object["times_peer"].is_object())
    {
        let told = |name: &str| match Spread::read(&object["times_peer"], name) {
            Some(spread) => format!("{:.2}", spread.median),
            None => "–".into(),
        };
        let rate = Spread::read(&object["times_peer"], "operations_per_second");
        let (least, most) = rate.map_or((0.0, 0.0), |rate| (rate.least, rate.most));
        writeln!(
            out,
            "  {} / {}: throughput {} ({least:.2} to {most:.2}), p99 {}, a CPU second {}, with what was put off {}, \
            memory {}",
            object["label"].as_str().unwrap_or("?"),
            object["peer"].as_str().unwrap_or("?"),
            told("operations_per_second"),
            told("p99_ms"),
            told("operations_per_server_cpu_s"),
            told("operations_per_server_cpu_s_whole"),
            told("server_memory_bytes"),
        )
        .expect(INFALLIBLE);
    }
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

/// The servers divided by the one that they are compared with, with what a comparison must know of its circumstances.
fn comparisons(out: &mut String, objects: &[Value]) {
    const COLUMNS: [(&str, &str); 16] = [
        ("server", "/label"),
        ("divided by", "/peer"),
        ("workload", "/workload"),
        ("clients", "/clients"),
        ("throughput", "/times_peer/operations_per_second/median"),
        ("least", "/times_peer/operations_per_second/least"),
        ("most", "/times_peer/operations_per_second/most"),
        ("p50", "/times_peer/p50_ms/median"),
        ("mean", "/times_peer/mean_ms/median"),
        ("p99", "/times_peer/p99_ms/median"),
        ("longest", "/times_peer/max_ms/median"),
        (
            "a server CPU second",
            "/times_peer/operations_per_server_cpu_s/median",
        ),
        (
            "with what was put off",
            "/times_peer/operations_per_server_cpu_s_whole/median",
        ),
        ("memory", "/times_peer/server_memory_bytes/median"),
        ("load average", "/load"),
        ("load generator, cores", "/load_generator_cores"),
    ];
    let others = objects.iter();
    let others = others.filter(|object| object["times_peer"].is_object());
    let loaded = others.map(|object| {
        let loads = rounds(object).filter_map(|round| round["load_average"].as_f64());
        with(object, "load", json!(loads.fold(0.0, f64::max)))
    });
    let loaded: Vec<Value> = loaded.collect();
    if !loaded.is_empty() {
        let title = "Each server as a multiple of the one that it is compared with";
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
    if disturbed.is_empty() {
        return;
    }
    out.push_str("<h2>Answers of each second, and what happened</h2><div class=\"plots\">");
    let of_seconds = |object: &Value| -> Vec<u64> {
        let seconds = rounds(object).flat_map(|round| round["answers_of_each_second"].as_array());
        seconds.flatten().filter_map(Value::as_u64).collect()
    };
    let most = disturbed.iter().flat_map(of_seconds).max().unwrap_or(0);
    let mut systems: Vec<&str> = Vec::new();
    for object in &disturbed {
        // What happened may stand behind the name of a server.
        let name = object["label"].as_str().unwrap_or("?");
        let system = name.split(':').next().unwrap_or(name);
        if !systems.contains(&system) {
            systems.push(system);
        }
        let set = systems.iter().position(|known| *known == system);
        let when = object["disturbed_at_s"].as_f64();
        let when = when.map_or(String::new(), |second| format!(" (at {second} s)"));
        let title = format!("{name}{when}");
        seconds(out, &title, set.unwrap_or(0), &of_seconds(object), most);
    }
    out.push_str("</div>");
    show(out, "Sessions that were disturbed", &COLUMNS, disturbed);
}
