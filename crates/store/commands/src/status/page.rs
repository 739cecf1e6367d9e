//! The status of a cluster as a page for a browser: what `plinth status` says, and the processes by their zones and
//! machines. A thousand processes are no more to read than a hundred: what is beyond that is counted.

use super::summary::{Server, bytes, data_facts, sections, servers, workload_facts};
use plinth_terminal::pages::body::Body;
use plinth_terminal::pages::view::{Head, text};
use plinth_terminal::status::{full_disks, headline, sick_disks};
use serde_json::Value;
use std::collections::BTreeMap;

/// Zones that are shown, those first in which something is wrong.
const ZONES_MAX: usize = 60;
/// Processes of a zone that are shown. With [`ZONES_MAX`], and never more than [`PROCESSES_MAX`] in all.
const IN_ZONE_MAX: usize = 24;
const PROCESSES_MAX: usize = 120;
/// Rows about disks and servers, those first that an operator should look at.
const ROWS_MAX: usize = 20;

/// Shows a status document.
pub fn show(document: &Value, out: &mut Body) -> Head {
    let cluster = &document["cluster"];
    messages(out, document);
    let of_all = [
        ("Data", data_facts(cluster)),
        ("Workload", workload_facts(cluster)),
    ];
    out.within("pair", |out| {
        for (title, facts) in of_all.into_iter().filter(|(_, facts)| !facts.is_empty()) {
            let rows = facts.into_iter();
            let rows: Vec<_> = rows.map(|(name, value)| vec![name.into(), value]).collect();
            out.within("part", |out| {
                out.heading(title);
                out.table(&[], &rows);
            });
        }
    });
    recoveries(out, cluster);
    zones(out, cluster);
    disks(out, cluster);
    for (title, of) in [
        ("Log servers", "log_servers"),
        ("Storage servers", "storage_servers"),
    ] {
        lags(out, title, servers(cluster, of));
    }
    out.heading("plinth status");
    out.plain(&sections(document));
    headline(document)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn messages(out: &mut Body, document: &Value) {
    let said = list(&document["cluster"]["messages"]);
    let said = said.filter_map(|message| message["description"].as_str());
    let sick = sick_disks(document);
    let sick = sick.iter().map(|line| format!("Sick disk: {line}"));
    let full = full_disks(document).into_iter();
    let full = full.map(|at| format!("Full disk: {at}"));
    let all: Vec<String> = said.map(str::to_owned).chain(sick).chain(full).collect();
    out.within("messages", |out| out.list(&all));
}

// ---- recoveries ----

fn recoveries(out: &mut Body, cluster: &Value) {
    let all: Vec<&Value> = list(&cluster["recoveries"]).collect();
    let (Some(newest), Some(oldest)) = (all.first(), all.last()) else {
        return;
    };
    out.heading("Recoveries of this controller");
    let at = |of: &Value| of["at"].as_f64().unwrap_or(0.0);
    let now = cluster["cluster_controller_timestamp"].as_f64();
    let now = now.unwrap_or(0.0).max(at(newest));
    let (begun, span) = (at(oldest), (now - at(oldest)).max(1.0));
    let places: Vec<f64> = all.iter().map(|of| (at(of) - begun) / span).collect();
    out.moments("when they were", &places);
    out.within("ends", |out| {
        out.small(&ago(span));
        out.small("now");
    });
    let rows = all.iter().take(ROWS_MAX).map(|of| {
        let took = of["milliseconds"].as_f64().unwrap_or(0.0);
        vec![
            ago(now - at(of)),
            took_for(took),
            text(&of["epoch"]),
            text(&of["cause"]),
        ]
    });
    out.table(
        &["when", "took", "epoch", "cause"],
        &rows.collect::<Vec<_>>(),
    );
}

fn took_for(milliseconds: f64) -> String {
    match milliseconds < 1e4 {
        true => format!("{milliseconds:.0} ms"),
        false => format!("{:.1} s", milliseconds / 1e3),
    }
}

fn ago(seconds: f64) -> String {
    match seconds {
        _ if seconds < 120.0 => format!("{seconds:.0} s ago"),
        _ if seconds < 7200.0 => format!("{:.0} min ago", seconds / 60.0),
        _ if seconds < 172_800.0 => format!("{:.0} h ago", seconds / 3600.0),
        _ => format!("{:.0} days ago", seconds / 86_400.0),
    }
}

// ---- the map ----

/// Whether an operator should look at a process, before others.
fn is_remarkable(process: &Value) -> bool {
    process["degraded"] == true
        || process["excluded"] == true
        || process["under_maintenance"] == true
}

/// Zones, their machines, their processes, and the roles of these.
fn zones(out: &mut Body, cluster: &Value) {
    let processes = cluster["processes"].as_object();
    let mut by_zone: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for process in processes.into_iter().flat_map(|all| all.values()) {
        let zone = process["locality"]["zoneid"].as_str().unwrap_or("unknown");
        by_zone.entry(zone).or_default().push(process);
    }
    let count = by_zone.values().map(Vec::len).sum::<usize>();
    let mut zones: Vec<(&str, Vec<&Value>)> = by_zone.into_iter().collect();
    zones.sort_by_key(|(_, of)| !of.iter().any(|process| is_remarkable(process)));
    out.heading(&format!(
        "{} zones, {count} processes and their roles",
        zones.len()
    ));
    let rest = zones.split_off(zones.len().min(ZONES_MAX));
    let in_each = IN_ZONE_MAX.min(PROCESSES_MAX / zones.len().max(1)).max(1);
    out.within("grid", |out| {
        for (name, processes) in zones {
            zone(out, name, processes, in_each);
        }
    });
    if !rest.is_empty() {
        let all: Vec<&Value> = rest.iter().flat_map(|(_, all)| all).copied().collect();
        let line = format!("and {} more zones with {}", rest.len(), summed(&all));
        out.paragraph("", &line);
    }
}

fn zone(out: &mut Body, name: &str, mut processes: Vec<&Value>, most: usize) {
    let address = |process: &&Value| process["address"].to_string();
    processes.sort_by_cached_key(|process| (!is_remarkable(process), address(process)));
    let rest = processes.split_off(processes.len().min(most));
    let mut machines: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for process in processes {
        let machine = process["locality"]["machineid"].as_str();
        machines
            .entry(machine.unwrap_or("unknown"))
            .or_default()
            .push(process);
    }
    out.within("zone", |out| {
        out.name(name);
        for (machine, processes) in machines {
            out.within("machine", |out| {
                out.small(&format!("machine {machine}"));
                processes.into_iter().for_each(|of| process(out, of));
            });
        }
        if !rest.is_empty() {
            out.paragraph("", &format!("and {}", summed(&rest)));
        }
    });
}

/// Processes that are counted, not shown.
fn summed(processes: &[&Value]) -> String {
    let mut roles: BTreeMap<&str, usize> = BTreeMap::new();
    for role in processes.iter().flat_map(|process| list(&process["roles"])) {
        *roles
            .entry(role["role"].as_str().unwrap_or("unknown"))
            .or_default() += 1;
    }
    let roles = roles
        .into_iter()
        .map(|(name, count)| format!("{name} {count}"));
    let roles: Vec<String> = roles.collect();
    format!("{} more processes: {}", processes.len(), roles.join(", "))
}

fn process(out: &mut Body, process: &Value) {
    let class = if is_remarkable(process) {
        "process bad"
    } else {
        "process"
    };
    let amount = |value: &Value, factor: f64| value.as_f64().unwrap_or(0.0) * factor;
    let cpu = amount(&process["cpu"]["usage_cores"], 100.0);
    let states = [
        ("degraded", "its disk is sick"),
        ("excluded", "excluded"),
        ("under_maintenance", "under maintenance"),
    ];
    let states = states
        .into_iter()
        .filter(|(field, _)| process[*field] == true);
    let states: String = states.map(|(_, words)| format!("; {words}")).collect();
    let line = format!(
        "{}; {cpu:.0} % of a core, {} of memory{states}",
        text(&process["class_type"]),
        bytes(&process["memory"]["rss_bytes"])
    );
    out.within(class, |out| {
        out.word("", &text(&process["address"]));
        out.small(&line);
        for role in list(&process["roles"]) {
            out.word("role", &text(&role["role"]));
        }
    });
}

// ---- disks and lags ----

/// The disks of processes, the fullest and the sick ones first.
fn disks(out: &mut Body, cluster: &Value) {
    let processes = cluster["processes"].as_object();
    let processes = processes.into_iter().flat_map(|all| all.values());
    let mut all: Vec<(bool, f64, &Value)> = processes
        .filter_map(|process| {
            let disk = &process["disk"];
            let (free, total) = (disk["free_bytes"].as_f64()?, disk["total_bytes"].as_f64()?);
            Some((process["degraded"] != true, free / total.max(1.0), process))
        })
        .collect();
    if all.is_empty() {
        return;
    }
    all.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let rest = all.len().saturating_sub(ROWS_MAX);
    out.heading("Disks, the fullest first");
    let rows = all.iter().take(ROWS_MAX).map(|(_, share, process)| {
        let disk = &process["disk"];
        let busy = disk["busy"]
            .as_f64()
            .map_or("-".into(), |busy| format!("{:.0} %", busy * 100.0));
        vec![
            text(&process["address"]),
            format!("{} ({:.0} %)", bytes(&disk["free_bytes"]), share * 100.0),
            bytes(&disk["total_bytes"]),
            busy,
            text(&process["sick_disk"]["what"]),
        ]
    });
    out.table(
        &["process", "free", "of", "busy", "sick"],
        &rows.collect::<Vec<_>>(),
    );
    more(out, rest, "whose disks have more room");
}

/// Servers, those first that are furthest behind.
fn lags(out: &mut Body, title: &str, mut servers: Vec<Server>) {
    if servers.is_empty() {
        return;
    }
    servers.sort_by(|a, b| {
        let state = a.state.is_empty().cmp(&b.state.is_empty());
        state.then(b.behind_s.total_cmp(&a.behind_s))
    });
    out.heading(&format!("{title} ({}), those behind first", servers.len()));
    let rest = servers.len().saturating_sub(ROWS_MAX);
    let rows = servers.into_iter().take(ROWS_MAX).map(|server| {
        let state = server.state.to_owned();
        server.cells.into_iter().chain([state]).collect()
    });
    out.table(
        &["address", "behind", "on disk", "in memory", "state"],
        &rows.collect::<Vec<Vec<String>>>(),
    );
    more(out, rest, "that are less behind");
}

fn more(out: &mut Body, count: usize, words: &str) {
    if count > 0 {
        out.paragraph("", &format!("and {count} more {words}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_terminal::pages::view::Seen;
    use serde_json::json;

    fn page(document: Value) -> String {
        let seen = Seen {
            cluster: "orders:a1".into(),
            status: Some((document, 0.5)),
            own: "ready".into(),
            lines: vec![("requests a second", vec![1.0, 2.0, 4.0])],
        };
        seen.html(show)
    }

    fn one(i: usize, zones: usize, role: &str) -> (String, Value) {
        let process = json!({
            "address": format!("10.0.{}.{}:4500", i / 250, i % 250), "class_type": role,
            "roles": [{"role": role}], "degraded": i == 777,
            "locality": {"zoneid": format!("z{}", i % zones), "machineid": format!("m{}", i / 4)},
            "disk": {"free_bytes": 1e9 + i as f64, "total_bytes": 2e9, "busy": 0.25},
            "sick_disk": (i == 777).then(|| json!({"what": "a sync does not come back"})),
        });
        (format!("{i:04}"), process)
    }

    #[test]
    fn the_page_says_what_status_says_and_what_comes_from_elsewhere_is_text() {
        let page = page(json!({"cluster": {
            "database_available": true,
            "cluster_controller_timestamp": 10_000,
            "fault_tolerance": {"max_zone_failures_without_losing_availability": 1},
            "recovery_state": {"name": "fully_recovered"},
            "messages": [{"description": "a disk of <b>rack & 1</b> is \"slow\""}],
            "recoveries": [
                {"epoch": 8, "at": 9_970, "milliseconds": 412.3, "cause": "log <1> at x: gone"},
                {"epoch": 7, "at": 6_400, "milliseconds": 30_000, "cause": "another controller was elected"},
            ],
            "data": {
                "state": {"name": "healing", "min_replicas_remaining": 1}, "partitions_count": 3,
                "moving_data": {"shards": 2, "in_flight_bytes": 77}, "total_kv_size_bytes": 5,
            },
            "storage_servers": [
                {"address": "10.0.0.1:4500", "lag_seconds": 0.5},
                {"address": "10.0.0.2:4500", "lag_seconds": 44.0, "counts": false},
                {"id": "abc", "unreachable": true},
            ],
            "processes": {"a": {
                "address": "10.0.0.1:4500", "class_type": "storage", "roles": [{"role": "storage"}],
                "locality": {"zoneid": "<script>alert(1)</script>", "machineid": "m'1"},
            }},
        }}));
        let head = "<p class=\"head\">The database is available. One zone may fail.</p>";
        for text in [
            head,
            "a disk of &lt;b&gt;rack &amp; 1&lt;/b&gt; is &quot;slow&quot;",
            "&lt;script&gt;alert(1)&lt;/script&gt;",
            "machine m&#39;1",
            "<span class=\"role\">storage</span>",
            "Database          available",
            "points=\"0,31.0 1,21.0 2,1.0\"",
            "<td>30 s ago</td><td>412 ms</td><td>8</td><td>log &lt;1&gt; at x: gone</td>",
            "<td>60 min ago</td><td>30.0 s</td><td>7</td><td>another controller was elected</td>",
            "<td>Moving</td><td>2 shards, 77 B</td>",
            "<td>healing; 1 replica or more of each of 3 shards</td>",
            "<td>44.0 s</td><td>0 B</td><td>0 B</td><td>does not count</td>",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
        assert!(page.find("abc</td>") < page.find("<td>10.0.0.2:4500"));
        assert!(!page.contains("<script") && !page.contains("style=") && !page.contains("was so"));
    }

    #[test]
    fn a_thousand_processes_are_a_page_that_can_be_read_with_what_is_wrong_first() {
        for zones in [3, 1000] {
            let processes =
                (0..1000).map(|i| one(i, zones, if i < 100 { "log" } else { "storage" }));
            let processes: serde_json::Map<String, Value> = processes.collect();
            let storage = (0..900).map(|i| json!({"address": format!("s{i}"), "lag_seconds": i}));
            let storage: Vec<Value> = storage.collect();
            let page = page(json!({"cluster": {
                "database_available": true, "processes": processes, "storage_servers": storage,
            }}));
            assert!(page.len() < 100_000, "{} bytes", page.len());
            let shown = page.matches("<div class=\"process").count();
            assert!((60..=PROCESSES_MAX).contains(&shown), "{shown}");
            let sick = page.find("process bad").expect("the sick one is shown");
            let others = page.find("<div class=\"process\">").expect("others, too");
            assert!(zones == 3 || sick < others);
            assert!(page.contains("10.0.3.27:4500") && page.contains("a sync does not come back"));
            assert!(page.contains("and 880 more that are less behind"), "{page}");
            let counted = match zones {
                3 => "and 309 more processes: log ",
                _ => "and 940 more zones with 940 more processes: log ",
            };
            assert!(page.contains(counted), "{page}");
        }
    }
}
