//! Answers of statements, and their form as text or JSON.

use crate::{Outcome, status};
use plinth_core::key::printable;
use plinth_core::{Key, Value, Version};
use serde_json::json;

/// The form in which answers are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Text,
    Json,
    /// For `cut` and `awk`: a line for each row, with a tab between fields.
    Tsv,
}

#[derive(clap::Args, Clone, Copy, Debug)]
pub struct FormArguments {
    /// Print one JSON object per statement, an error too
    #[arg(long)]
    json: bool,
    /// Print rows only: a line each, with a tab between fields, and \xNN for bytes that are not printable, as
    /// `plinth load` reads it. Anything else goes to standard error
    #[arg(long, conflicts_with = "json")]
    tsv: bool,
}

impl FormArguments {
    pub fn chosen(self) -> Form {
        match (self.json, self.tsv) {
            (true, _) => Form::Json,
            (false, true) => Form::Tsv,
            (false, false) => Form::Text,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    Nothing,
    Text(String),
    /// A text to be read: on a small terminal in parts.
    Page(String),
    /// The text for a person, and the same as rows of fields, which have their escapes.
    Table(String, Vec<Vec<String>>),
    /// The text for a person, and the id that a program needs of it.
    WithId(String, String),
    Value(Key, Option<Value>),
    /// Rows, with one behind the limit if there are more; limit of the request, keys only.
    Rows(Vec<(Key, Value)>, i32, bool),
    /// Version of a committed transaction; `None` if it only read.
    Committed(Option<Version>),
    Version(Version),
    /// The key that changed, and its new value.
    Changed(Key, Option<Value>),
    /// The text for a person, the same as an object, and as rows of fields, which have their escapes, if it is rows.
    Whole {
        text: String,
        document: serde_json::Value,
        rows: Option<Vec<Vec<String>>>,
    },
    /// (role, address, id)
    Roles(Vec<(&'static str, String, String)>),
    /// The status document, and the text printed for a person.
    Status {
        document: serde_json::Value,
        summary: Option<String>,
    },
}

impl From<String> for Answer {
    fn from(text: String) -> Answer {
        Answer::Text(text)
    }
}

impl From<&str> for Answer {
    fn from(text: &str) -> Answer {
        Answer::Text(text.into())
    }
}

impl Answer {
    /// Called after the answer is printed: an error if the status shows a database that is not available, so that
    /// scripts notice.
    pub fn into_outcome(self) -> Outcome {
        match self {
            Answer::Status { document, .. } => status::available(&document),
            _ => Ok(()),
        }
    }

    /// With what [`into_outcome`](Self::into_outcome) says, for programs.
    pub fn with_verdict(self) -> Answer {
        match self {
            Answer::Status { document, summary } => Answer::Status {
                document: status::with_verdict(document),
                summary,
            },
            answer => answer,
        }
    }

    /// The text without its last line end; empty if there is nothing to print.
    pub fn render(&self, form: Form) -> String {
        match form {
            Form::Text => self.text(),
            Form::Json => self.json().to_string(),
            Form::Tsv => {
                let lines = self.rows().into_iter().map(|row| row.join("\t"));
                lines.collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// Whether its lines are words for people, which may be broken anew.
    pub fn is_prose(&self) -> bool {
        let is_summary = |answer: &Answer| {
            matches!(
                answer,
                Answer::Status {
                    summary: Some(_),
                    ..
                }
            )
        };
        matches!(self, Answer::Page(_)) || is_summary(self)
    }

    /// What a person should see beside rows.
    pub fn aside(&self, form: Form) -> Option<&str> {
        match self {
            Answer::Rows(rows, limit, _) if form == Form::Tsv && is_cut(rows, *limit) => Some(
                "these are not all: the limit has cut them; name a higher one behind END, or begin behind the last \
                 key",
            ),
            Answer::Text(text)
            | Answer::Page(text)
            | Answer::Whole {
                text, rows: None, ..
            } if form == Form::Tsv => Some(text),
            Answer::Whole { document, .. } if form == Form::Tsv && document["more"] == true => {
                Some("there are more rows: add a limit")
            }
            _ => None,
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let pair = |key: &[u8], value: &[u8]| vec![printable(key), printable(value)];
        match self {
            Answer::Nothing
            | Answer::Text(_)
            | Answer::Page(_)
            | Answer::Committed(_)
            | Answer::Value(_, None) => Vec::new(),
            Answer::Table(_, rows) => rows.clone(),
            Answer::Whole { rows, .. } => rows.clone().unwrap_or_default(),
            Answer::WithId(_, id) => vec![vec![id.clone()]],
            Answer::Value(key, Some(value)) | Answer::Changed(key, Some(value)) => {
                vec![pair(key, value)]
            }
            Answer::Changed(key, None) => vec![vec![printable(key)]],
            Answer::Rows(rows, limit, keys_only) => {
                let row = |(key, value): &(Key, Value)| match keys_only {
                    true => vec![printable(key)],
                    false => pair(key, value),
                };
                within(rows, *limit).map(row).collect()
            }
            Answer::Version(version) => vec![vec![version.to_string()]],
            Answer::Roles(roles) => {
                let row = |(role, address, id): &(&str, String, String)| {
                    vec![role.to_string(), address.clone(), id.clone()]
                };
                roles.iter().map(row).collect()
            }
            Answer::Status { document, .. } => {
                let mut rows = Vec::new();
                push_fields(document, String::new(), &mut rows);
                rows
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Answer::Nothing => String::new(),
            Answer::Text(text)
            | Answer::Page(text)
            | Answer::Table(text, _)
            | Answer::Whole { text, .. }
            | Answer::WithId(text, _) => text.clone(),
            Answer::Value(key, Some(value)) => pair(key, value),
            Answer::Value(key, None) => format!("`{}': not found", printable(key)),
            Answer::Rows(rows, limit, keys_only) => {
                let mut lines = vec![String::new(), format!("Range limited to {limit} keys")];
                lines.extend(within(rows, *limit).map(|(key, value)| {
                    if *keys_only {
                        format!("`{}'", printable(key))
                    } else {
                        pair(key, value)
                    }
                }));
                lines.push(String::new());
                lines.join("\n")
            }
            Answer::Committed(Some(version)) => format!("Committed ({version})"),
            Answer::Committed(None) => "Committed (read-only)".into(),
            Answer::Version(version) => version.to_string(),
            Answer::Changed(key, Some(value)) => format!("changed: {}", pair(key, value)),
            Answer::Changed(key, None) => format!("changed: `{}' was removed", printable(key)),
            Answer::Roles(roles) => {
                let line = |(role, address, id): &(&str, String, String)| {
                    let line = format!("  {role:<14} {address:<22} {id}");
                    line.trim_end().to_string()
                };
                roles.iter().map(line).collect::<Vec<_>>().join("\n")
            }
            Answer::Status { document, summary } => {
                summary.clone().unwrap_or_else(|| format!("{document:#}"))
            }
        }
    }

    fn json(&self) -> serde_json::Value {
        match self {
            Answer::Nothing => json!({"ok": true}),
            Answer::Text(text) | Answer::Page(text) => json!({"ok": true, "text": text}),
            Answer::Table(text, rows) => json!({"ok": true, "text": text, "rows": rows}),
            Answer::WithId(text, id) => json!({"ok": true, "text": text, "id": id}),
            Answer::Value(key, value) => json!({
                "ok": true, "key": printable(key), "found": value.is_some(), "value": value.as_deref().map(printable),
            }),
            Answer::Rows(rows, limit, keys_only) => {
                let row = |(key, value): &(Key, Value)| {
                    if *keys_only {
                        json!({"key": printable(key)})
                    } else {
                        json!({"key": printable(key), "value": printable(value)})
                    }
                };
                let shown: Vec<_> = within(rows, *limit).map(row).collect();
                json!({"ok": true, "limit": limit, "more": is_cut(rows, *limit), "rows": shown})
            }
            Answer::Committed(version) => json!({"ok": true, "committed_version": version}),
            Answer::Version(version) => json!({"ok": true, "version": version}),
            Answer::Changed(key, value) => json!({
                "ok": true, "changed": printable(key), "value": value.as_deref().map(printable),
            }),
            Answer::Roles(roles) => {
                let role = |of: &(&'static str, String, String)| {
                    let (role, address, id) = of;
                    json!({"role": role, "address": address, "id": id})
                };
                json!({"ok": true, "roles": roles.iter().map(role).collect::<Vec<_>>()})
            }
            Answer::Whole { document, .. } => {
                let mut document = document.clone();
                document["ok"] = true.into();
                document
            }
            Answer::Status { document, .. } => document.clone(),
        }
    }
}

fn within(rows: &[(Key, Value)], limit: i32) -> impl Iterator<Item = &(Key, Value)> {
    rows.iter().take(limit.max(0) as usize)
}

fn is_cut(rows: &[(Key, Value)], limit: i32) -> bool {
    rows.len() > limit.max(0) as usize
}

/// Each field of a document with its path, in order.
fn push_fields(value: &serde_json::Value, path: String, rows: &mut Vec<Vec<String>>) {
    let below = |name: &str| match path.is_empty() {
        true => name.to_string(),
        false => format!("{path}.{name}"),
    };
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                push_fields(value, below(&printable(name.as_bytes())), rows);
            }
        }
        serde_json::Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                push_fields(item, format!("{path}[{at}]"), rows);
            }
        }
        serde_json::Value::String(text) => rows.push(vec![path, printable(text.as_bytes())]),
        other => rows.push(vec![path, other.to_string()]),
    }
}

fn pair(key: &[u8], value: &[u8]) -> String {
    format!("`{}' is `{}'", printable(key), printable(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_form_that_scripts_expect() {
        assert_eq!(
            Answer::Value("a".into(), Some("b".into())).render(Form::Text),
            "`a' is `b'"
        );
        assert_eq!(
            Answer::Value("a\0".into(), None).render(Form::Text),
            "`a\\x00': not found"
        );
        let locked = Answer::WithId("locked".into(), "00ff".into());
        for (form, text) in [
            (Form::Text, "locked"),
            (Form::Tsv, "00ff"),
            (Form::Json, r#"{"id":"00ff","ok":true,"text":"locked"}"#),
        ] {
            assert_eq!(locked.render(form), text);
        }
        assert_eq!(
            Answer::Committed(Some(123)).render(Form::Text),
            "Committed (123)"
        );
        let rows = vec![("a".into(), "1".into())];
        assert_eq!(
            Answer::Rows(rows.clone(), 25, false).render(Form::Text),
            "\nRange limited to 25 keys\n`a' is `1'\n"
        );
        assert_eq!(
            Answer::Rows(rows, 25, true).render(Form::Json),
            r#"{"limit":25,"more":false,"ok":true,"rows":[{"key":"a"}]}"#
        );
        assert_eq!(
            Answer::Value("a".into(), None).render(Form::Json),
            r#"{"found":false,"key":"a","ok":true,"value":null}"#
        );
    }
    #[test]
    fn a_list_that_the_limit_has_cut_says_so_to_programs() {
        let rows: Vec<(Key, Value)> = vec![("a".into(), "1".into()), ("b".into(), "2".into())];
        let cut = Answer::Rows(rows.clone(), 1, false);
        assert_eq!(cut.render(Form::Tsv), "a\t1");
        assert!(
            cut.aside(Form::Tsv)
                .is_some_and(|line| line.contains("not all"))
        );
        assert_eq!(
            cut.render(Form::Json),
            r#"{"limit":1,"more":true,"ok":true,"rows":[{"key":"a","value":"1"}]}"#
        );
        assert!(!cut.render(Form::Text).contains("`b'"));
        assert_eq!(Answer::Rows(rows, 2, false).aside(Form::Tsv), None);
    }

    #[test]
    fn rows_for_other_programs_have_a_line_each_and_tabs_only_between_fields() {
        let tsv = |answer: Answer| answer.render(Form::Tsv);
        let rows: Vec<(Key, Value)> = vec![
            ("a\tb".into(), "1 2\n".into()),
            ("\\".into(), Value::from_static(b"\xff")),
        ];
        assert_eq!(
            tsv(Answer::Rows(rows.clone(), 25, false)),
            "a\\x09b\t1 2\\x0a\n\\\\\t\\xff"
        );
        assert_eq!(tsv(Answer::Rows(rows, 25, true)), "a\\x09b\n\\\\");
        assert_eq!(tsv(Answer::Value("a".into(), None)), "");
        let document = json!({"a": {"b.c": [1, {"d": "x\ty"}]}, "e": null});
        let summary = None;
        assert_eq!(
            tsv(Answer::Status { document, summary }),
            "a.b.c[0]\t1\na.b.c[1].d\tx\\x09y\ne\tnull"
        );
        let told = Answer::Text("Transaction started".into());
        assert_eq!(told.aside(Form::Tsv), Some("Transaction started"));
        assert_eq!(told.aside(Form::Text), None);
        assert_eq!(tsv(told), "");
        let table = Answer::Table("  1. t".into(), vec![vec!["t".into(), "1".into()]]);
        assert_eq!(table.aside(Form::Tsv), None);
        assert_eq!(tsv(table), "t\t1");
        let whole = |rows| Answer::Whole {
            text: "one".into(),
            document: json!({"n": 1}),
            rows,
        };
        assert_eq!(whole(None).aside(Form::Tsv), Some("one"));
        assert_eq!(whole(None).render(Form::Json), r#"{"n":1,"ok":true}"#);
        assert_eq!(whole(None).render(Form::Text), "one");
        let rows = whole(Some(vec![vec!["a".into(), "b".into()]]));
        assert_eq!(rows.aside(Form::Tsv), None);
        assert_eq!(tsv(rows), "a\tb");
        let cut = Answer::Whole {
            text: String::new(),
            document: json!({"more": true}),
            rows: Some(Vec::new()),
        };
        assert_eq!(
            cut.aside(Form::Tsv),
            Some("there are more rows: add a limit")
        );
    }
}
