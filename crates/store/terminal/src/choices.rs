//! Names of which a flag or a statement takes one.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use plinth_core::similar::{most_similar, question};
use std::ffi::OsStr;

/// What a flag's parser says of a name that it does not take.
pub fn none_such(name: &str, known: impl IntoIterator<Item: AsRef<str>>) -> String {
    let line = unknown("", name, known);
    line.strip_prefix(": ").unwrap_or(&line).to_owned()
}

/// The line about a name that `flag` does not take.
pub fn unknown(flag: &str, name: &str, known: impl IntoIterator<Item: AsRef<str>>) -> String {
    let known: Vec<String> = owned(known);
    format!(
        "{flag}: there is no `{name}'; {}there are {}",
        meant(name, &known),
        known.join(", ")
    )
}

/// The line about a value of a flag, which the command line has named: one of `known` is expected.
pub fn expected(name: &str, known: impl IntoIterator<Item: AsRef<str>>) -> String {
    let known: Vec<String> = owned(known);
    let all = match &known[..] {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        all => all.concat(),
    };
    format!("{}expected {all}", meant(name, &known))
}

/// The line about a name that does not exist, where there are too many to list: `otherwise` says who lists them.
pub fn missing(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item: AsRef<str>>,
    otherwise: &str,
) -> String {
    let known: Vec<String> = owned(known);
    match most_similar(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("there is no {what} `{name}'; did you mean `{meant}'?"),
        None => format!("there is no {what} `{name}'; {otherwise}"),
    }
}

fn owned(known: impl IntoIterator<Item: AsRef<str>>) -> Vec<String> {
    let known = known.into_iter();
    known.map(|known| known.as_ref().to_owned()).collect()
}

fn meant(name: &str, known: &[String]) -> String {
    question(name, known.iter().map(String::as_str))
}

/// What `parse` takes, with names of it that a shell completes. The text of the flag lists them in its own way:
/// `hide_possible_values` keeps the list of the library away.
pub fn among<T>(
    names: impl IntoIterator<Item = &'static str>,
    parse: fn(&str) -> Result<T, String>,
) -> Among<T> {
    let names = names.into_iter().collect();
    Among { names, parse }
}

/// See [`among`].
#[derive(Clone)]
pub struct Among<T> {
    names: Vec<&'static str>,
    parse: fn(&str) -> Result<T, String>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Among<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, flag: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let Among { names, parse } = self.clone();
        // One who lists names himself may have left the question out.
        let parse = move |text: &str| {
            parse(text).map_err(|line| match line.contains("did you mean") {
                true => line,
                false => question(text, names.iter().copied()) + &line,
            })
        };
        TypedValueParser::parse_ref(&parse, command, flag, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().copied().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant_comes_before_the_list() {
        let known = ["point-reads", "blind-writes"];
        for (line, wanted) in [
            (
                unknown("--workload", "point-read", known),
                "--workload: there is no `point-read'; did you mean `point-reads'? \
                 there are point-reads, blind-writes",
            ),
            (
                unknown("--workload", "x", known),
                "--workload: there is no `x'; there are point-reads, blind-writes",
            ),
            (
                expected("sds", ["ssd", "memory"]),
                "did you mean `ssd'? expected ssd or memory",
            ),
            (expected("fly", ["a", "b", "c"]), "expected a, b or c"),
            (expected("fly", ["a"]), "expected a"),
            (
                missing(
                    "option",
                    "lock_awar",
                    ["lock_aware"],
                    "`help options' lists them",
                ),
                "there is no option `lock_awar'; did you mean `lock_aware'?",
            ),
            (
                missing("option", "fly", ["lock_aware"], "`help options' lists them"),
                "there is no option `fly'; `help options' lists them",
            ),
        ] {
            assert_eq!(line, wanted);
        }
    }

    #[test]
    fn names_are_offered_and_what_is_taken_is_up_to_the_parser() {
        let parser = among(["one", "two"], |text| match text.len() {
            3 => Ok(text.to_owned()),
            _ => Err("three letters are expected".into()),
        });
        let offered: Vec<_> = parser.possible_values().into_iter().flatten().collect();
        let offered: Vec<&str> = offered.iter().map(PossibleValue::get_name).collect();
        assert_eq!(offered, ["one", "two"]);
        let command = Command::new("a").arg(Arg::new("flag").long("flag").value_parser(parser));
        let given = |value| command.clone().try_get_matches_from(["a", "--flag", value]);
        let taken = given("six").expect("it has three letters");
        assert_eq!(
            taken.get_one::<String>("flag").map(|word| &word[..]),
            Some("six")
        );
        let refused = given("four").expect_err("it has more").to_string();
        assert!(refused.contains("three letters are expected"), "{refused}");
        assert!(!refused.contains("did you mean"), "{refused}");
        let refused = given("onee")
            .expect_err("one letter is too many")
            .to_string();
        assert!(
            refused.contains("did you mean `one'? three letters"),
            "{refused}"
        );
    }
}
