//! Options of transactions that are useful in a shell.

use plinth_client::{Transaction, TransactionOption};
use plinth_terminal::choices::missing;
use plinth_terminal::shell::help::{explained, grouped};
use plinth_terminal::token::Token;
use std::path::Path;

/// What stands behind the name of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Takes {
    Nothing,
    Number,
    /// The name of a file.
    File,
}

use Takes::{File, Nothing, Number};

/// An option: name, code, what it takes, description.
type Known = (&'static str, u32, Takes, &'static str);

/// The one option that is no [`TransactionOption`].
const TOKEN: &str = "authorization_token";

/// The options, below what they are about.
#[rustfmt::skip]
const GROUPS: [(&str, &[Known]); 7] = [
    ("Reading", &[
        ("bypass_unreadable", 1100, Nothing, "read keys of own versionstamped writes as if these had not been made"),
        ("causal_read_risky", 20, Nothing, "take a read version that may miss the newest commits while a fault lasts"),
        ("read_your_writes_disable", 51, Nothing, "let reads not see the writes of the transaction"),
        ("snapshot_ryw_disable", 601, Nothing, "let snapshot reads not see the writes of the transaction"),
        ("snapshot_ryw_enable", 600, Nothing,
            "let snapshot reads see the writes of the transaction, as they do at first"),
    ]),
    ("Writing", &[
        ("causal_write_risky", 10, Nothing, "a commit whose result is unknown may still happen later"),
        ("next_write_no_write_conflict_range", 30, Nothing, "let the next write conflict with nobody's reads"),
        ("report_conflicting_keys", 712, Nothing,
            "after a conflict, show its keys below \\xff\\xff/transaction/conflicting_keys/"),
        ("size_limit", 503, Number, "the most bytes that a transaction may write and conflict with"),
    ]),
    ("Time", &[
        ("max_retry_delay", 502, Number, "the longest pause between two attempts, in milliseconds"),
        ("retry_limit", 501, Number, "how many times a transaction is tried again; -1 for always"),
        ("timeout", 500, Number, "milliseconds until a transaction fails; 0 for never"),
    ]),
    ("Priority", &[
        ("priority_batch", 201, Nothing, "begin after all others, when the database is busy"),
        ("priority_system_immediate", 200, Nothing, "begin before all others"),
    ]),
    ("Locks", &[
        ("lock_aware", 700, Nothing, "read and write although the database is locked"),
        ("read_lock_aware", 702, Nothing, "read although the database is locked"),
    ]),
    ("Access", &[
        (TOKEN, 2000, File, "show the token in this file with each request; a token itself is not taken, since others \
            would see it in the history, or in the list of processes"),
    ]),
    ("System keys", &[
        ("access_system_keys", 301, Nothing, "read and write the system keys too, which begin with \\xff"),
        ("read_system_keys", 302, Nothing, "read the system keys too, which begin with \\xff"),
        ("special_key_space_enable_writes", 714, Nothing, "write special keys, which begin with \\xff\\xff"),
        ("special_key_space_relaxed", 713, Nothing, "read ranges over several modules of special keys"),
    ]),
];

fn all() -> impl Iterator<Item = &'static Known> {
    GROUPS.iter().flat_map(|(_, options)| options.iter())
}

fn find(name: &str) -> Option<&'static Known> {
    all().find(|(known, ..)| *known == name)
}

pub fn names() -> impl Iterator<Item = &'static str> {
    all().map(|(name, ..)| *name)
}

/// An option of a transaction.
#[derive(Clone, PartialEq, Debug)]
pub enum Set {
    Option(TransactionOption),
    /// `None`: it is not shown any more.
    Token(Option<Token>),
}

impl Set {
    /// Gives it to a transaction.
    pub fn to(&self, transaction: &Transaction) -> plinth_core::Result<()> {
        match self {
            Set::Option(option) => transaction.set_option(*option),
            Set::Token(Some(token)) => transaction.set_authorization_token(token.shown()),
            Set::Token(None) => Ok(()),
        }
    }

    /// Whether both are the same option, whatever they say.
    pub fn is_as(&self, other: &Set) -> bool {
        match (self, other) {
            (Set::Option(one), Set::Option(other)) => {
                std::mem::discriminant(one) == std::mem::discriminant(other)
            }
            _ => matches!((self, other), (Set::Token(_), Set::Token(_))),
        }
    }
}

/// An option that is on: its name as shown to the user, and the option.
pub type Chosen = (String, Set);

/// An option to switch off, whatever stands behind its name.
pub fn parse_off(name: &str) -> Result<Chosen, String> {
    match find(&name.to_ascii_lowercase()) {
        Some((name, _, File, _)) => Ok(((*name).to_owned(), Set::Token(None))),
        Some((name, _, Number, _)) => parse(name, Some("1000")),
        _ => parse(name, None),
    }
}

/// Parses the option with this name, and with the number or the file that it takes. The file is read, so that no
/// statement runs if it cannot be.
pub fn parse(name: &str, argument: Option<&str>) -> Result<Chosen, String> {
    let name = name.to_ascii_lowercase();
    let Some((name, code, takes, _)) = find(&name) else {
        return Err(missing(
            "option",
            &name,
            names(),
            "`help options' lists them",
        ));
    };
    let value = match (takes, argument) {
        (Nothing, None) => None,
        (Nothing, Some(_)) => return Err(format!("the option {name} takes no number")),
        (Number, text) => {
            let number: Option<i64> = text.and_then(|text| text.parse().ok());
            let number = number.ok_or(format!("the option {name} takes a number"))?;
            Some(number.to_le_bytes())
        }
        (File, None) => {
            return Err(format!(
                "the option {name} takes a file, with the token in it"
            ));
        }
        (File, Some(file)) => {
            let token = Token::read(&format!("option {name}"), Path::new(file))?;
            return Ok((format!("{name} {file}"), Set::Token(Some(token))));
        }
    };
    let option = TransactionOption::from_code(*code, value.as_ref().map(|value| &value[..]));
    let option = option.map_err(|error| format!("{name}: {error}"))?;
    let shown = match argument {
        Some(number) => format!("{name} {number}"),
        None => (*name).to_owned(),
    };
    Ok((shown, Set::Option(option)))
}

/// The text of `help options`: all of them, on one screen.
pub fn described() -> String {
    let groups = GROUPS.iter();
    let groups =
        groups.map(|(title, options)| grouped(title, options.iter().map(|(name, ..)| *name)));
    let mut lines: Vec<String> = groups.collect();
    lines.push(String::new());
    lines.push(
        "`option on NAME' sets one in all transactions from now on; `help NAME' explains.".into(),
    );
    lines.join("\n")
}

/// What there is to say about one of them. `None` if there is none of that name.
pub fn page(name: &str) -> Option<String> {
    let (name, _, takes, what) = find(name)?;
    let (argument, example) = match takes {
        Number => ("NUMBER", format!("option on {name} 1000")),
        File => ("FILE", format!("option on {name} web.token")),
        Nothing => ("", format!("option on {name}")),
    };
    Some(explained(&[name, argument], what, &example))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_takes_a_number_exactly_if_it_wants_one() {
        assert_eq!(
            parse("TIMEOUT", Some("500")),
            Ok((
                "timeout 500".into(),
                Set::Option(TransactionOption::Timeout(500))
            ))
        );
        for (name, number) in [
            ("timeout", None),
            ("timeout", Some("x")),
            ("lock_aware", Some("1")),
            ("none", None),
        ] {
            assert!(parse(name, number).is_err(), "{name} {number:?}");
        }
        let line = parse("lock_awar", None).expect_err("it has a slip");
        assert!(line.ends_with("did you mean `lock_aware'?"), "{line}");
        let mut others = names().filter(|name| *name != TOKEN);
        assert!(
            others.all(|name| { parse(name, None).is_ok() || parse(name, Some("100")).is_ok() })
        );
        assert!(names().all(|name| parse_off(name).is_ok()));
        assert!(parse_off("none").is_err());
    }

    #[test]
    fn a_token_is_named_by_its_file_and_never_typed() {
        for (argument, words) in [
            (None, "takes a file"),
            (Some("none.token"), "there is none"),
            (
                Some("eyJhbGciOiJFZERTQSJ9.e30.AA"),
                "that is a token itself",
            ),
        ] {
            let line = parse(TOKEN, argument).expect_err(words);
            assert!(line.contains(words) && !line.contains("eyJ"), "{line}");
        }
        let page = page(TOKEN).expect("it has one");
        assert!(
            page.contains("option on authorization_token web.token"),
            "{page}"
        );
    }
}
