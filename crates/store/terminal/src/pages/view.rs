//! The skeleton of all pages for people: one sentence at the top, what the system is made of, and the last hour of the
//! process that serves the page. What the system is made of comes from the status that the process was told last.

use super::body::Body;
use plinth_runtime::metric::Kind;
use plinth_runtime::metric::page::Page;
use serde_json::Value;
use std::collections::BTreeMap;

/// A status that is older is told to be so.
const FRESH_S: f64 = 6.0;

/// The sentence at the top.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    pub is_good: bool,
    pub line: String,
}

/// What a page is made of.
pub struct Seen {
    pub cluster: String,
    /// The newest status, and how old it is in seconds.
    pub status: Option<(Value, f64)>,
    /// What the process says of itself.
    pub own: String,
    /// Numbers of the last hour, by name.
    pub lines: Vec<(&'static str, Vec<f64>)>,
}

/// Shows a status, and says what the sentence at the top is.
pub type Show = fn(&Value, &mut Body) -> Head;

impl Seen {
    /// What the owner of a page says. From now on, as long as somebody looks, the status is kept up to date.
    pub fn of(page: &Page) -> Seen {
        let status = page.look().and_then(|(status, age)| {
            let document = serde_json::from_str(&status).ok()?;
            Some((document, age.as_secs_f64()))
        });
        Seen {
            cluster: page.cluster(),
            status,
            own: super::words_of(&page.ready()).trim_end().to_owned(),
            lines: page.history(),
        }
    }

    pub fn html(&self, show: Show) -> String {
        let mut status = Body::default();
        let head = match &self.status {
            Some((document, age_s)) => {
                if *age_s > FRESH_S {
                    status.paragraph("", &format!("What follows was so {age_s:.0} s ago."));
                }
                let head = show(document, &mut status);
                let is_good = head.is_good && *age_s <= FRESH_S;
                Head { is_good, ..head }
            }
            None => self.unknown(),
        };
        let mut body = Body::default();
        body.title(&self.cluster);
        body.paragraph(if head.is_good { "head" } else { "head bad" }, &head.line);
        let mut rest = Body::default();
        rest.heading(&format!("The last hour of this process: {}", self.own));
        rest.lines(&self.lines);
        let title = format!("{}: {}", self.cluster, head.line);
        framed(&title, true, &[&body, &status, &rest])
    }

    fn unknown(&self) -> Head {
        let own = &self.own;
        let line = match own.starts_with(super::READY) {
            true => "The cluster is being asked; look again in a moment.".to_owned(),
            false => format!("Nothing is known of the cluster: this process is {own}."),
        };
        Head {
            is_good: false,
            line,
        }
    }
}

/// A whole page of these parts.
pub fn framed(title: &str, renews: bool, parts: &[&Body]) -> String {
    let mut name = Body::default();
    name.tab(title);
    let renews = match renews {
        true => "<meta http-equiv=\"refresh\" content=\"5\">",
        false => "",
    };
    let parts: String = parts.iter().map(|part| part.html()).collect();
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">{renews}\
         <link rel=\"icon\" href=\"data:,\"><link rel=\"stylesheet\" href=\"/page.css\">{}</head>\
         <body>{parts}</body></html>\n",
        name.html()
    )
}

/// The newest numbers of a process, in the words of its metrics: those that are single numbers, and have a value.
pub fn numbers(page: &Page) -> Value {
    let mut sums: BTreeMap<(&str, String), f64> = BTreeMap::new();
    for sample in page.samples() {
        if sample.family.kind == Kind::Histogram {
            continue;
        }
        let labels = sample.labels.iter();
        let labels = labels.filter(|(label, _)| !matches!(*label, "process" | "cluster"));
        let labels: Vec<&str> = labels.map(|(_, value)| &**value).collect();
        let of = (sample.family.help, labels.join(", "));
        *sums.entry(of).or_default() += sample.value;
    }
    let rows = sums.into_iter();
    let rows = rows.map(|((help, of), value)| serde_json::json!([help, of, value]));
    rows.collect()
}

/// Shows what [`numbers`] gives.
pub fn show_numbers(out: &mut Body, numbers: &Value) {
    let rows = numbers.as_array().into_iter().flatten().map(|row| {
        let value = row[2].as_f64().unwrap_or(0.0);
        let text = |part: &Value| part.as_str().unwrap_or_default().to_owned();
        vec![text(&row[0]), text(&row[1]), format!("{value}")]
    });
    out.table(&["what", "of", "now"], &rows.collect::<Vec<_>>());
}

/// Text of a field, or what stands for none.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The objects of a list as rows of these fields.
pub fn show_rows(out: &mut Body, list: &Value, columns: &[(&str, &str)]) {
    let titles: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
    let rows = list.as_array().into_iter().flatten().map(|row| {
        let cells = columns.iter().map(|(_, field)| text(&row[*field]));
        cells.collect::<Vec<_>>()
    });
    out.table(&titles, &rows.collect::<Vec<_>>());
}

/// Lines of a list of texts.
pub fn texts(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|line| line.as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn show(document: &Value, out: &mut Body) -> Head {
        out.paragraph("", &text(&document["zone"]));
        Head {
            is_good: true,
            line: "It is available.".into(),
        }
    }

    fn seen(status: Option<(Value, f64)>) -> Seen {
        Seen {
            cluster: "<i>orders</i>".into(),
            status,
            own: "ready".into(),
            lines: vec![("requests a second", vec![1.0, 2.0, 4.0])],
        }
    }

    #[test]
    fn a_cluster_that_does_not_answer_is_told_with_what_was_known_of_it() {
        let page = |seen: &Seen| seen.html(show);
        assert!(page(&seen(None)).contains("The cluster is being asked"));
        let nothing = page(&Seen {
            own: "not ready: no read for 6.2 s".into(),
            ..seen(None)
        });
        let said = "Nothing is known of the cluster: this process is not ready: no read for 6.2 s.";
        assert!(nothing.contains(said), "{nothing}");
        let document = json!({"zone": "z1"});
        let old = page(&seen(Some((document.clone(), 60.0))));
        assert!(
            old.contains("head bad") && old.contains("was so 60 s ago") && old.contains("z1"),
            "{old}"
        );
        let fresh = page(&seen(Some((document, 0.5))));
        let head = "<p class=\"head\">It is available.</p>";
        assert!(fresh.contains(head) && !fresh.contains("was so"), "{fresh}");
        assert!(fresh.contains("<title>&lt;i&gt;orders"), "{fresh}");
    }
}
