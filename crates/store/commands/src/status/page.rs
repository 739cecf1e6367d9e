//! The status of a cluster as a page for a browser: what `plinth status` says, the processes by their zones, and the
//! last hour of the process that serves it. All of it is text from elsewhere, so all of it is escaped; nothing runs in
//! the browser.

use super::summary::{database, summary};
use plinth_terminal::status::{available, sick_disks};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

pub const STYLE: &str = include_str!("page.css");
const INFALLIBLE: &str = "writing to a string";
/// A status that is older is told to be so.
const FRESH_S: f64 = 6.0;

/// What the page is made of.
pub struct Seen {
    pub cluster: String,
    /// The newest status, and how old it is in seconds.
    pub status: Option<(Value, f64)>,
    /// What the process says of itself.
    pub own: String,
    /// Numbers of the last hour, by name.
    pub lines: Vec<(&'static str, Vec<f64>)>,
}

/// A text as a part of a page.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
    }
    out
}

pub fn page(seen: &Seen) -> String {
    let mut out = String::new();
    let (is_good, head) = headline(seen);
    let class = if is_good { "head" } else { "head bad" };
    let (cluster, head) = (escaped(&seen.cluster), escaped(&head));
    write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"refresh\" content=\"5\"><link rel=\"stylesheet\" href=\"/page.css\">\
         <title>{cluster}: {head}</title></head><body><h1>{cluster}</h1><p class=\"{class}\">{head}</p>"
    )
    .expect(INFALLIBLE);
    if let Some((document, age_s)) = &seen.status {
        if *age_s > FRESH_S {
            write!(out, "<p>What follows was so {age_s:.0} s ago.</p>").expect(INFALLIBLE);
        }
        messages(&mut out, document);
        zones(&mut out, document);
    }
    write!(
        out,
        "<h2>The last hour of this process: {}</h2>",
        escaped(&seen.own)
    )
    .expect(INFALLIBLE);
    lines(&mut out, &seen.lines);
    if let Some((document, _)) = &seen.status {
        let whole = escaped(&summary(document, &seen.cluster));
        write!(out, "<h2>plinth status</h2><pre>{whole}</pre>").expect(INFALLIBLE);
    }
    out.push_str("</body></html>\n");
    out
}

/// What the database can do now, and what may fail; and whether that is good.
fn headline(seen: &Seen) -> (bool, String) {
    let Some((document, age_s)) = &seen.status else {
        let own = &seen.own;
        let line = match own.starts_with("ready") {
            true => "The cluster is being asked; look again in a moment.".to_owned(),
            false => format!("Nothing is known of the cluster: this process is {own}."),
        };
        return (false, line);
    };
    let cluster = &document["cluster"];
    let mut line = format!("The database is {}.", database(document));
    let may_fail = &cluster["fault_tolerance"]["max_zone_failures_without_losing_availability"];
    match may_fail.as_u64() {
        None => {}
        Some(0) => line.push_str(" No zone may fail."),
        Some(1) => line.push_str(" One zone may fail."),
        Some(zones) => write!(line, " {zones} zones may fail.").expect(INFALLIBLE),
    }
    if let Some(what) = cluster["recovery_state"]["waits_for"].as_str() {
        write!(line, " It waits for {what}.").expect(INFALLIBLE);
    }
    (available(document).is_ok() && *age_s <= FRESH_S, line)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn messages(out: &mut String, document: &Value) {
    let said = list(&document["cluster"]["messages"]);
    let said = said.filter_map(|message| message["description"].as_str());
    let disks = sick_disks(document);
    let disks = disks.iter().map(|line| format!("Sick disk: {line}"));
    let all: Vec<String> = said.map(str::to_owned).chain(disks).collect();
    if all.is_empty() {
        return;
    }
    out.push_str("<ul class=\"messages\">");
    for line in all {
        write!(out, "<li>{}</li>", escaped(&line)).expect(INFALLIBLE);
    }
    out.push_str("</ul>");
}

/// Zones, their machines, their processes, and the roles of these.
fn zones(out: &mut String, document: &Value) {
    let cluster = &document["cluster"];
    let processes = cluster["processes"].as_object();
    let mut zones: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for process in processes.into_iter().flat_map(|all| all.values()) {
        let zone = process["locality"]["zoneid"].as_str().unwrap_or("unknown");
        zones.entry(zone).or_default().push(process);
    }
    out.push_str("<h2>Zones, processes and their roles</h2><div class=\"zones\">");
    for (zone, mut processes) in zones {
        write!(out, "<div class=\"zone\"><b>{}</b>", escaped(zone)).expect(INFALLIBLE);
        processes.sort_by_key(|process| process["address"].to_string());
        processes.into_iter().for_each(|of| process(out, of));
        out.push_str("</div>");
    }
    out.push_str("</div>");
}

fn process(out: &mut String, process: &Value) {
    let text = |value: &Value| escaped(value.as_str().unwrap_or("unknown"));
    let (address, class) = (text(&process["address"]), text(&process["class_type"]));
    let machine = text(&process["locality"]["machineid"]);
    let amount = |value: &Value, factor: f64| value.as_f64().unwrap_or(0.0) * factor;
    let cpu = amount(&process["cpu"]["usage_cores"], 100.0);
    let memory = amount(&process["memory"]["rss_bytes"], 1e-6);
    let free = amount(&process["disk"]["free_bytes"], 1e-9);
    write!(
        out,
        "<div class=\"process\">{address} <small>{class}, machine {machine}; {cpu:.0} % of a core, {memory:.0} MB, \
         {free:.1} GB of disk free</small>"
    )
    .expect(INFALLIBLE);
    for role in list(&process["roles"]) {
        let name = text(&role["role"]);
        write!(out, "<span class=\"role\">{name}</span>").expect(INFALLIBLE);
    }
    out.push_str("</div>");
}

fn lines(out: &mut String, lines: &[(&'static str, Vec<f64>)]) {
    out.push_str("<div class=\"lines\">");
    for (name, points) in lines {
        let most = points.iter().copied().fold(0.0, f64::max);
        let last = points.last().copied().unwrap_or(0.0);
        let places = points.iter().enumerate().map(|(x, y)| {
            let height = if most > 0.0 { 40.0 * y / most } else { 0.0 };
            format!("{x},{:.1}", 41.0 - height)
        });
        let places: Vec<String> = places.collect();
        write!(
            out,
            "<figure>{}: {last:.2}, at most {most:.2}<svg viewBox=\"0 0 360 42\" preserveAspectRatio=\"none\" \
             role=\"img\" aria-label=\"{}\"><polyline points=\"{}\"/></svg></figure>",
            escaped(name),
            escaped(name),
            places.join(" ")
        )
        .expect(INFALLIBLE);
    }
    out.push_str("</div>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(status: Option<(Value, f64)>) -> Seen {
        Seen {
            cluster: "orders:a1".into(),
            status,
            own: "ready".into(),
            lines: vec![("requests a second", vec![1.0, 2.0, 4.0])],
        }
    }

    fn document() -> Value {
        json!({"cluster": {
            "database_available": true,
            "fault_tolerance": {"max_zone_failures_without_losing_availability": 1},
            "recovery_state": {"name": "fully_recovered"},
            "messages": [{"description": "a disk of <b>rack & 1</b> is \"slow\""}],
            "processes": {"a": {
                "address": "10.0.0.1:4500", "class_type": "storage", "roles": [{"role": "storage"}],
                "locality": {"zoneid": "<script>alert(1)</script>", "machineid": "m'1"},
            }},
        }})
    }

    #[test]
    fn the_page_says_what_status_says_and_what_comes_from_elsewhere_is_text() {
        let page = page(&seen(Some((document(), 0.5))));
        assert!(
            page.contains("<p class=\"head\">The database is available. One zone may fail.</p>")
        );
        for text in [
            "a disk of &lt;b&gt;rack &amp; 1&lt;/b&gt; is &quot;slow&quot;",
            "&lt;script&gt;alert(1)&lt;/script&gt;",
            "machine m&#39;1",
            "<span class=\"role\">storage</span>",
            "Database          available",
            "points=\"0,31.0 1,21.0 2,1.0\"",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
        assert!(!page.contains("<script") && !page.contains("style=") && !page.contains("was so"));
    }

    #[test]
    fn a_cluster_that_does_not_answer_is_told_with_what_was_known_of_it() {
        assert!(page(&seen(None)).contains("The cluster is being asked"));
        let nothing = page(&Seen {
            own: "not ready: no read for 6.2 s".into(),
            ..seen(None)
        });
        let said = "Nothing is known of the cluster: this process is not ready: no read for 6.2 s.";
        assert!(nothing.contains(said), "{nothing}");
        let old = page(&seen(Some((document(), 60.0))));
        assert!(
            old.contains("head bad") && old.contains("was so 60 s ago"),
            "{old}"
        );
    }
}
