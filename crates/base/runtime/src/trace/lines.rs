//! Lines of the trace, and where those of a real process go.

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    Info,
    Warn,
    /// For the record of who did what: kept apart from the others.
    Audit,
}

type Sink = Arc<dyn Fn(&str) + Send + Sync>;

static SINK: RwLock<Option<Sink>> = RwLock::new(None);
static SINK_IS_SET: AtomicBool = AtomicBool::new(false);

/// Sends this process's events to `sink`, each a JSON object without a line end. Any worker thread may call it.
pub fn set_sink(sink: impl Fn(&str) + Send + Sync + 'static) {
    *SINK.write().expect("no panic while it is held") = Some(Arc::new(sink));
    SINK_IS_SET.store(true, Ordering::Release);
}

/// True if events go anywhere.
pub(super) fn has_sink() -> bool {
    SINK_IS_SET.load(Ordering::Relaxed)
}

/// Sends an event to this process's sink, if it has one. `ms` is the wall clock.
pub(crate) fn send(ms: u64, severity: Severity, name: &str, fields: &[(&str, &dyn Display)]) {
    let sink = SINK.read().expect("no panic while it is held").clone();
    if let Some(sink) = sink {
        sink(&render(severity, name, fields, |line| {
            let _ = write!(line, "\"time\":{}.{:03}", ms / 1000, ms % 1000);
        }));
    }
}

pub(super) fn render(
    severity: Severity,
    name: &str,
    fields: &[(&str, &dyn Display)],
    head: impl FnOnce(&mut String),
) -> String {
    let mut line = String::with_capacity(128);
    line.push('{');
    head(&mut line);
    let word = match severity {
        Severity::Info => "info",
        Severity::Warn => "warn",
        Severity::Audit => "audit",
    };
    let _ = write!(line, ",\"severity\":\"{word}\",\"type\":\"{name}\"");
    let mut text = String::new();
    for (key, value) in fields {
        text.clear();
        let _ = write!(text, "{value}");
        let _ = write!(line, ",\"{key}\":");
        if is_json_number(&text) {
            line.push_str(&text);
        } else {
            push_json_string(&mut line, &text);
        }
    }
    line.push('}');
    line
}

/// Digits with an optional sign and fraction, as integers and most floats are displayed.
fn is_json_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits =
        |s: &str| !s.is_empty() && s.len() <= 19 && s.bytes().all(|b| b.is_ascii_digit());
    all_digits(whole) && all_digits(fraction) && (whole == "0" || !whole.starts_with('0'))
}

fn push_json_string(line: &mut String, text: &str) {
    line.push('"');
    for c in text.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            c if c < ' ' => {
                let _ = write!(line, "\\u{:04x}", c as u32);
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_numbers_and_hostile_text_is_escaped() {
        let line = render(
            Severity::Warn,
            "DiskFull",
            &[
                ("free", &-12),
                ("ratio", &0.5),
                ("path", &"a\"b\\\n"),
                ("id", &"007"),
            ],
            |line| line.push_str("\"time\":1.5"),
        );
        assert_eq!(
            line,
            "{\"time\":1.5,\"severity\":\"warn\",\"type\":\"DiskFull\",\"free\":-12,\"ratio\":0.5,\
             \"path\":\"a\\\"b\\\\\\u000a\",\"id\":\"007\"}"
        );
    }
}
