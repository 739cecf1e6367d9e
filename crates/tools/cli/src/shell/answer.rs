//! Answers of statements, and their form as text or JSON.

use crate::{Outcome, status};
use plinth_core::key::printable;
use plinth_core::{Key, Value, Version};
use serde_json::json;

#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    Nothing,
    Text(String),
    Value(Key, Option<Value>),
    /// Rows, limit of the request, keys only.
    Rows(Vec<(Key, Value)>, i32, bool),
    /// Version of a committed transaction; `None` if it only read.
    Committed(Option<Version>),
    Version(Version),
    /// The key that changed, and its new value.
    Changed(Key, Option<Value>),
    /// (role, address, id)
    Roles(Vec<(&'static str, String, String)>),
    /// The status document, and the text printed for a person.
    Status {
        document: serde_json::Value,
        summary: Option<String>,
    },
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

    /// The text without its last line end; empty if there is nothing to print.
    pub fn render(&self, json: bool) -> String {
        if json {
            self.json().to_string()
        } else {
            self.text()
        }
    }

    fn text(&self) -> String {
        match self {
            Answer::Nothing => String::new(),
            Answer::Text(text) => text.clone(),
            Answer::Value(key, Some(value)) => pair(key, value),
            Answer::Value(key, None) => format!("`{}': not found", printable(key)),
            Answer::Rows(rows, limit, keys_only) => {
                let mut lines = vec![String::new(), format!("Range limited to {limit} keys")];
                lines.extend(rows.iter().map(|(key, value)| {
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
                let lines = roles
                    .iter()
                    .map(|(role, address, id)| format!("  {role:<14} {address:<22} {id}"));
                lines.collect::<Vec<_>>().join("\n")
            }
            Answer::Status { document, summary } => {
                summary.clone().unwrap_or_else(|| format!("{document:#}"))
            }
        }
    }

    fn json(&self) -> serde_json::Value {
        match self {
            Answer::Nothing => json!({"ok": true}),
            Answer::Text(text) => json!({"ok": true, "text": text}),
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
                json!({"ok": true, "limit": limit, "rows": rows.iter().map(row).collect::<Vec<_>>()})
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
            Answer::Status { document, .. } => document.clone(),
        }
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
            Answer::Value("a".into(), Some("b".into())).render(false),
            "`a' is `b'"
        );
        assert_eq!(
            Answer::Value("a\0".into(), None).render(false),
            "`a\\x00': not found"
        );
        assert_eq!(
            Answer::Committed(Some(123)).render(false),
            "Committed (123)"
        );
        let rows = vec![("a".into(), "1".into())];
        assert_eq!(
            Answer::Rows(rows.clone(), 25, false).render(false),
            "\nRange limited to 25 keys\n`a' is `1'\n"
        );
        assert_eq!(
            Answer::Rows(rows, 25, true).render(true),
            r#"{"limit":25,"ok":true,"rows":[{"key":"a"}]}"#
        );
        assert_eq!(
            Answer::Value("a".into(), None).render(true),
            r#"{"found":false,"key":"a","ok":true,"value":null}"#
        );
    }
}
