//! The statement `throttle`: limits for transactions with a tag.

use plinth_client::Database;
use plinth_control::ratekeeper::tags::{self, MANUAL_MAX, Manual};
use plinth_core::key::printable;
use plinth_core::transaction_tag::TransactionTag;
use plinth_protocol::transaction::{PRIORITY_BATCH, PRIORITY_DEFAULT, PRIORITY_SYSTEM};
use plinth_terminal::Outcome;
use plinth_terminal::choices::unknown;
use plinth_terminal::seconds::in_bounds;
use plinth_terminal::shell::answer::Answer;

/// Defaults, as in FoundationDB: transactions per second, and seconds.
const RATE: f64 = 10.0;
const SECONDS: f64 = 3600.0;
const PRIORITIES: [(&str, u8); 3] = [
    ("immediate", PRIORITY_SYSTEM),
    ("default", PRIORITY_DEFAULT),
    ("batch", PRIORITY_BATCH),
];

#[derive(Clone, PartialEq, Debug)]
pub enum Throttling {
    On(Manual),
    /// `None`: all tags.
    Off(Option<TransactionTag>),
    List,
    Auto(bool),
}

/// Returns `None` if the words are not a valid statement.
pub fn parse(words: &[Vec<u8>]) -> Result<Option<Throttling>, String> {
    let words_as_text: Vec<String> = words
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let texts: Vec<&str> = words_as_text.iter().map(String::as_str).collect();
    let tag = |i: usize| {
        let text: &[u8] = &words[i];
        TransactionTag::new(text).map_err(|_| {
            format!(
                "throttle: a tag has at most {} bytes",
                plinth_core::transaction_tag::TAG_BYTES_MAX
            )
        })
    };
    Ok(Some(match texts[..] {
        ["on", "tag", _, ref rest @ ..] if rest.len() <= 4 => parse_on(tag(2)?, rest)?,
        ["off"] | ["off", "all"] => Throttling::Off(None),
        ["off", "tag", _] => Throttling::Off(Some(tag(2)?)),
        ["list"] => Throttling::List,
        ["enable", "auto"] => Throttling::Auto(true),
        ["disable", "auto"] => Throttling::Auto(false),
        _ => return Ok(None),
    }))
}

/// The words that may follow these of the statement.
pub fn next(given: &[&str]) -> &'static [&'static str] {
    match given {
        [] => &["on", "off", "list", "enable", "disable"],
        ["on"] => &["tag"],
        ["on", "tag", _, _, _] => &["immediate", "default", "batch"],
        ["off"] => &["all", "tag"],
        ["enable" | "disable"] => &["auto"],
        _ => &[],
    }
}

fn parse_on(tag: TransactionTag, rest: &[&str]) -> Result<Throttling, String> {
    let number = |i: usize, otherwise: f64, what: &str| match rest.get(i) {
        None => Ok(otherwise),
        Some(text) => {
            let number: Option<f64> = text.parse().ok();
            number
                .filter(|n| (0.0..=1e9).contains(n))
                .ok_or(format!("throttle: `{text}' is not a number of {what}"))
        }
    };
    let priority = match rest.get(2) {
        None => PRIORITY_DEFAULT,
        Some(name) => {
            let known = PRIORITIES.iter().find(|(known, _)| known == name);
            let names = PRIORITIES.iter().map(|(known, _)| *known);
            let known = known.ok_or_else(|| unknown("throttle", name, names))?;
            known.1
        }
    };
    let seconds = rest.get(1).map_or(Ok(SECONDS), |text| {
        in_bounds(text, 0.0, 1e9).map_err(|why| format!("throttle: {why}"))
    })?;
    let throttle = Manual {
        tag,
        priority,
        rate: number(0, RATE, "transactions a second")?,
        seconds,
        reason: rest.get(3).unwrap_or(&"").to_string(),
    };
    Ok(Throttling::On(throttle))
}

impl Throttling {
    pub async fn apply(self, database: &Database) -> Outcome<Answer> {
        let failed = |error| format!("the change could not be made: {error}");
        match self {
            Throttling::On(throttle) => {
                let tag = throttle.tag;
                match tags::set(database, throttle).await.map_err(failed)? {
                    true => Ok(format!("Tag `{tag:?}' is throttled").into()),
                    false => Err(format!(
                        "{MANUAL_MAX} tags are throttled already, and no more can be; `throttle off' ends some"
                    )),
                }
            }
            Throttling::Off(tag) => match tags::clear(database, tag).await.map_err(failed)? {
                0 => Err("no such tag is throttled".into()),
                count => Ok(format!("Throttles ended: {count}").into()),
            },
            Throttling::List => {
                let (manual, auto) = tags::read(database).await.map_err(failed)?;
                let mut lines: Vec<String> = manual.iter().map(describe).collect();
                if lines.is_empty() {
                    lines.push("No tag is throttled by hand".into());
                }
                lines.push(format!(
                    "Automatic throttling is {}; what it throttles is in `status'",
                    if auto { "on" } else { "off" }
                ));
                Ok(Answer::Table(
                    lines.join("\n"),
                    manual.iter().map(row).collect(),
                ))
            }
            Throttling::Auto(on) => {
                tags::set_auto(database, on).await.map_err(failed)?;
                Ok(format!("Automatic throttling is {}", if on { "on" } else { "off" }).into())
            }
        }
    }
}

/// Seconds until the throttle ends, and the name of its priority.
fn left_and_priority(throttle: &Manual) -> (f64, &'static str) {
    let priority = PRIORITIES
        .iter()
        .find(|(_, code)| *code == throttle.priority);
    (
        throttle.seconds.max(0.0),
        priority.map_or("unknown", |(name, _)| name),
    )
}

/// Tag, transactions a second, priority, seconds, reason.
fn row(throttle: &Manual) -> Vec<String> {
    let (left, priority) = left_and_priority(throttle);
    vec![
        format!("{:?}", throttle.tag),
        throttle.rate.to_string(),
        priority.into(),
        format!("{left:.0}"),
        printable(throttle.reason.as_bytes()),
    ]
}

fn describe(throttle: &Manual) -> String {
    let (left, priority) = left_and_priority(throttle);
    let reason = match throttle.reason.is_empty() {
        true => String::new(),
        false => format!("; {}", throttle.reason),
    };
    format!(
        "  `{:?}': {} transactions/s of {} priority, {:.0} s more{reason}",
        throttle.tag, throttle.rate, priority, left
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<Throttling>, String> {
        let words: Vec<Vec<u8>> = text
            .split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect();
        parse(&words)
    }

    #[test]
    fn the_forms_of_the_statement_are_understood_and_others_are_refused() {
        let Ok(Some(Throttling::On(throttle))) = parsed("on tag web 2.5 60 batch why") else {
            panic!("it is a form");
        };
        assert_eq!(
            (throttle.rate, throttle.seconds, throttle.priority),
            (2.5, 60.0, PRIORITY_BATCH)
        );
        assert_eq!(throttle.reason, "why");
        assert!(matches!(parsed("on tag web"), Ok(Some(Throttling::On(_)))));
        assert_eq!(parsed("off"), Ok(Some(Throttling::Off(None))));
        assert_eq!(parsed("list"), Ok(Some(Throttling::List)));
        assert_eq!(parsed("disable auto"), Ok(Some(Throttling::Auto(false))));
        for nonsense in ["on", "on tag", "off tag", "on tag a 1 2 batch x y", "auto"] {
            assert_eq!(parsed(nonsense), Ok(None), "{nonsense}");
        }
        for wrong in [
            "on tag a -1",
            "on tag a 1 x",
            "on tag a 1 2 high",
            "on tag 12345678901234567",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
