//! Options of transactions that are useful in a shell.

use plinth_client::TransactionOption;
use plinth_terminal::choices::missing;
use plinth_terminal::shell::help::{explained, grouped};

/// An option: name, code, whether it takes a number, description.
type Known = (&'static str, u32, bool, &'static str);

/// The options, below what they are about.
#[rustfmt::skip]
const GROUPS: [(&str, &[Known]); 6] = [
    ("Reading", &[
        ("bypass_unreadable", 1100, false, "read keys of own versionstamped writes as if these had not been made"),
        ("causal_read_risky", 20, false, "take a read version that may miss the newest commits while a fault lasts"),
        ("read_your_writes_disable", 51, false, "let reads not see the writes of the transaction"),
        ("snapshot_ryw_disable", 601, false, "let snapshot reads not see the writes of the transaction"),
        ("snapshot_ryw_enable", 600, false,
            "let snapshot reads see the writes of the transaction, as they do at first"),
    ]),
    ("Writing", &[
        ("causal_write_risky", 10, false, "a commit whose result is unknown may still happen later"),
        ("next_write_no_write_conflict_range", 30, false, "let the next write conflict with nobody's reads"),
        ("report_conflicting_keys", 712, false,
            "after a conflict, show its keys below \\xff\\xff/transaction/conflicting_keys/"),
        ("size_limit", 503, true, "the most bytes that a transaction may write and conflict with"),
    ]),
    ("Time", &[
        ("max_retry_delay", 502, true, "the longest pause between two attempts, in milliseconds"),
        ("retry_limit", 501, true, "how many times a transaction is tried again; -1 for always"),
        ("timeout", 500, true, "milliseconds until a transaction fails; 0 for never"),
    ]),
    ("Priority", &[
        ("priority_batch", 201, false, "begin after all others, when the database is busy"),
        ("priority_system_immediate", 200, false, "begin before all others"),
    ]),
    ("Locks", &[
        ("lock_aware", 700, false, "read and write although the database is locked"),
        ("read_lock_aware", 702, false, "read although the database is locked"),
    ]),
    ("System keys", &[
        ("access_system_keys", 301, false, "read and write the system keys too, which begin with \\xff"),
        ("read_system_keys", 302, false, "read the system keys too, which begin with \\xff"),
        ("special_key_space_enable_writes", 714, false, "write special keys, which begin with \\xff\\xff"),
        ("special_key_space_relaxed", 713, false, "read ranges over several modules of special keys"),
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

/// An option that is on: its name as shown to the user, and the option.
pub type Chosen = (String, TransactionOption);

/// A valid number for the option, or `None` if it takes none.
pub fn some_number(name: &str) -> Option<String> {
    let (_, _, takes_number, _) = find(name)?;
    takes_number.then(|| "1000".to_owned())
}

/// Parses the option with this name, and with this number if it takes one.
pub fn parse(name: &str, number: Option<&str>) -> Result<Chosen, String> {
    let name = name.to_ascii_lowercase();
    let Some((name, code, takes_number, _)) = find(&name) else {
        return Err(missing(
            "option",
            &name,
            names(),
            "`help options' lists them",
        ));
    };
    let value = match (takes_number, number) {
        (false, None) => None,
        (false, Some(_)) => return Err(format!("the option {name} takes no number")),
        (true, text) => {
            let number: Option<i64> = text.and_then(|text| text.parse().ok());
            let number = number.ok_or(format!("the option {name} takes a number"))?;
            Some(number.to_le_bytes())
        }
    };
    let option = TransactionOption::from_code(*code, value.as_ref().map(|value| &value[..]));
    let option = option.map_err(|error| format!("{name}: {error}"))?;
    let shown = match number {
        Some(number) => format!("{name} {number}"),
        None => (*name).to_owned(),
    };
    Ok((shown, option))
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
    let (name, _, takes_number, what) = find(name)?;
    let (argument, example) = match takes_number {
        true => ("NUMBER", format!("option on {name} 1000")),
        false => ("", format!("option on {name}")),
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
            Ok(("timeout 500".into(), TransactionOption::Timeout(500)))
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
        assert!(
            names().all(|name| { parse(name, None).is_ok() || parse(name, Some("100")).is_ok() })
        );
    }
}
