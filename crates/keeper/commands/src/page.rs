//! A gateway as a page for a browser: its sessions, its watches, its tree, in the words of its metrics; and of the
//! database behind it what `plinth status` says first.

use plinth_runtime::metric::page::Page;
use plinth_terminal::pages::body::Body;
use plinth_terminal::pages::view::{Head, numbers, show_numbers};
use plinth_terminal::pages::words_of;
use plinth_terminal::status::headline;
use serde_json::{Value, json};

/// What [`show`] shows: the numbers of the page, and the status of the database, if it has answered.
pub fn document(page: &Page, status: Option<Value>) -> Value {
    let verdict = page.ready();
    json!({
        "ready": words_of(&verdict).trim_end(),
        "is_ready": verdict.is_ready,
        "numbers": numbers(page),
        "database": status.map(|status| {
            let head = headline(&status);
            json!({"is_good": head.is_good, "line": head.line})
        }),
    })
}

pub fn show(document: &Value, out: &mut Body) -> Head {
    let database = &document["database"];
    out.heading("Sessions, watches, and the tree");
    show_numbers(out, &document["numbers"]);
    let ready = document["ready"].as_str().unwrap_or("unknown");
    let line = match database["line"].as_str() {
        Some(line) => format!("This gateway is {ready}. {line}"),
        None => format!("This gateway is {ready}."),
    };
    Head {
        is_good: document["is_ready"] == true && database["is_good"] != false,
        line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_a_gateway_says_what_it_serves_and_what_its_database_can_do() {
        let mut document = json!({
            "ready": "ready", "is_ready": true,
            "numbers": [["sessions of this gateway", "", 3.0], ["nodes in quotas", "<b>", 7.0]],
            "database": {"is_good": true, "line": "The database is available. One zone may fail."},
        });
        let mut out = Body::default();
        let head = show(&document, &mut out);
        let line = "This gateway is ready. The database is available. One zone may fail.";
        assert_eq!((head.is_good, &*head.line), (true, line));
        assert!(
            out.html()
                .contains("<td>sessions of this gateway</td><td></td><td>3</td>")
        );
        assert!(out.html().contains("<td>&lt;b&gt;</td><td>7</td>"));
        document["database"]["is_good"] = false.into();
        assert!(!show(&document, &mut Body::default()).is_good);
        document["database"] = Value::Null;
        document["ready"] = "not ready: no read for 6.2 s".into();
        document["is_ready"] = false.into();
        let head = show(&document, &mut Body::default());
        assert_eq!(head.line, "This gateway is not ready: no read for 6.2 s.");
        assert!(!head.is_good);
    }
}
