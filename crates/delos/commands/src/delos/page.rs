//! The status of a service as a page for a browser: what `plinth delos status` says.

use super::service::{GLANCE, Service};
use super::state::for_page;
use plinth_coordination::ClusterFile;
use plinth_rpc::{Credentials, Transport};
use plinth_runtime::metric::page::Page;
use plinth_terminal::pages::body::Body;
use plinth_terminal::pages::view::{Head, show_numbers, show_rows, texts};
use serde_json::Value;
use std::convert::Infallible;
use std::path::Path;

/// Keeps the status of the service whose file this is on the page while somebody looks, for ever.
pub async fn keep_status(page: &Page, file: &Path, credentials: Credentials) -> Infallible {
    let transport = Transport::client_with(credentials);
    let ask = async || {
        // A process may be of no service yet; and the service's coordinators may be others tomorrow.
        let file = ClusterFile::load_with_keys(file).await.ok()?;
        let service = Service::over(file, transport.clone(), GLANCE.as_secs());
        Some(for_page(&service).await.to_string())
    };
    page.keep_status(ask).await
}

/// Shows a status of a service, or the numbers of a process that serves alone.
pub fn show(document: &Value, out: &mut Body) -> Head {
    if document["numbers"].is_array() {
        return show_alone(document, out);
    }
    let advice = texts(&document["advice"]);
    out.within("messages", |out| out.list(&advice));
    let columns = [
        (
            "Replicas",
            "replicas",
            &[
                ("name", "name"),
                ("address", "address"),
                ("release", "release"),
                ("state", "state"),
                ("position", "applied"),
                ("on disk", "flushed"),
                ("log is kept for it", "in_view"),
            ][..],
        ),
        (
            "Log: its loglets, the last takes the entries",
            "log",
            &[
                ("from", "first"),
                ("sequencer", "sequencer"),
                ("log servers", "log_servers"),
            ],
        ),
        ("Engines", "engines", &[("name", "name"), ("on", "on")]),
    ];
    for (title, list, columns) in columns {
        if document[list].is_array() {
            out.heading(title);
            show_rows(out, &document[list], columns);
        }
    }
    if let Some(text) = document["text"].as_str() {
        out.heading("plinth delos status");
        out.plain(text);
    }
    head(document)
}

fn head(document: &Value) -> Head {
    if let Some(line) = document["silent"].as_str() {
        return Head {
            is_good: false,
            line: line.to_owned(),
        };
    }
    let text = |field: &str| document[field].as_str().unwrap_or("unknown").to_owned();
    let replicas = document["replicas"].as_array().map_or(&[][..], |all| all);
    let serving = replicas.iter().filter(|one| one["serves"] == true).count();
    let may_fail = match document["may_fail"].as_u64().unwrap_or(0) {
        0 => "No replica may fail.".to_owned(),
        1 => "One replica may fail.".to_owned(),
        many => format!("{many} replicas may fail."),
    };
    let (service, kind, all) = (text("service"), text("kind"), replicas.len());
    Head {
        is_good: serving == all,
        line: format!(
            "Of the {all} replicas of service {service}, kind {kind}, {serving} serve. {may_fail}"
        ),
    }
}

fn show_alone(document: &Value, out: &mut Body) -> Head {
    out.heading("Numbers of this process");
    show_numbers(out, &document["numbers"]);
    let ready = document["ready"].as_str().unwrap_or("unknown");
    Head {
        is_good: document["is_ready"] == true,
        line: format!("This process serves tables alone, without other replicas: it is {ready}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_page_says_who_serves_what_may_fail_and_what_the_log_is_made_of() {
        let mut document = json!({
            "service": "locks", "kind": "lock", "may_fail": 1, "text": "service locks", "silent": null,
            "replicas": [{"name": "r1", "serves": true, "applied": 77}, {"name": "<b>", "serves": true}],
            "log": [{"first": 1, "sequencer": "r1", "log_servers": ["r1", "r2"]}],
            "engines": [{"name": "lease", "on": true}], "advice": ["add a third replica"],
        });
        let mut out = Body::default();
        let said = show(&document, &mut out);
        let line = "Of the 2 replicas of service locks, kind lock, 2 serve. One replica may fail.";
        assert_eq!((said.is_good, &*said.line), (true, line));
        for part in [
            "<td>1</td><td>r1</td><td>r1, r2</td>",
            "<td>lease</td><td>yes</td>",
            "add a third replica",
            "<td>77</td>",
            "&lt;b&gt;",
        ] {
            assert!(out.html().contains(part), "{part} in {}", out.html());
        }
        document["silent"] = "2 of 3 coordinators are away".into();
        let said = head(&document);
        assert_eq!(
            (said.is_good, &*said.line),
            (false, "2 of 3 coordinators are away")
        );
    }
}
