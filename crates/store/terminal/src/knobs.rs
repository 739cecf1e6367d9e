//! `--knob NAME=VALUE` of any command.

use crate::Outcome;
use plinth_runtime::knobs::Knobs;
use std::ffi::OsString;

/// True for a command line with `--knob list`, whatever else it lacks.
pub fn are_asked_for(arguments: &[OsString]) -> bool {
    let is_pair = |pair: &[OsString]| pair[0] == "--knob" && pair[1] == "list";
    arguments.iter().any(|argument| argument == "--knob=list") || arguments.windows(2).any(is_pair)
}

/// Shows all knobs, with their defaults.
pub fn list() {
    for (name, value) in Knobs::default().list() {
        println!("{name}={value}");
    }
}

pub fn parse_knobs(texts: &[String]) -> Outcome<Knobs> {
    let mut knobs = Knobs::default();
    for text in texts {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("--knob {text}: expected NAME=VALUE"))?;
        knobs.set(name, value).map_err(|error| {
            // The line about one that is not known says what to do.
            let remedy = Knobs::bounds(name).map_or("", |_| "; `--knob list' shows all");
            format!("--knob {text}: {error}{remedy}")
        })?;
    }
    Ok(knobs)
}

/// For a flag: the text of a knob that can be set.
pub fn parse_knob(text: &str) -> Result<String, String> {
    let checked = parse_knobs(&[text.to_owned()]);
    let own = format!("--knob {text}: ");
    checked
        .map(|_| text.to_owned())
        .map_err(|line| line.strip_prefix(&own).unwrap_or(&line).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_knobs_needs_no_other_flag() {
        let asked = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            are_asked_for(&words)
        };
        assert!(asked("plinth server --knob list"));
        assert!(asked("plinth keeper server --knob=list"));
        assert!(!asked("plinth server --knob moves_max=8 list"));
    }

    #[test]
    fn a_wrong_knob_is_answered_with_the_list_or_with_the_one_that_is_meant() {
        let said = |text: &str| parse_knobs(&[text.into()]).expect_err("it is wrong");
        let (known, _) = Knobs::default().list()[0];
        let line = said(&format!("{known}=x"));
        assert!(line.ends_with("; `--knob list' shows all"), "{line}");
        let line = said(&format!("{known}s=1"));
        let meant = format!("there is no knob `{known}s'; did you mean `{known}'?");
        assert_eq!(line, format!("--knob {known}s=1: {meant}"));
        let of_flag = parse_knob("q=1").expect_err("it is wrong");
        assert!(of_flag.starts_with("there is no knob `q'"), "{of_flag}");
        let set = format!("{known}={}", Knobs::default().list()[0].1);
        assert_eq!(parse_knob(&set), Ok(set));
        let line = said("q=1");
        assert_eq!(
            line,
            "--knob q=1: there is no knob `q'; `--knob list' shows all"
        );
    }
}
