//! What an error of the command line advises: commands that somebody may have meant who knows other programs, and
//! never a name that the pages hide.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error};
use clap::{Arg, Command};
use std::ffi::OsString;

/// A word that is no command behind those before it, and what does that.
#[rustfmt::skip]
const MEANT: [(&[&str], &str, &str); 16] = [
    (&[], "restore", "`plinth load' reads what `plinth dump' has written"),
    (&[], "backup", "`plinth dump' writes pairs to a file, and `plinth copy' copies a database"),
    (&[], "shell", "the shell is `plinth cli'"),
    (&[], "start", "`plinth dev' starts a cluster on this machine, and `plinth server' one server"),
    (&["keeper"], "dev", "`plinth dev --data-dir DIR --keeper-port 2181' starts a cluster with a gateway"),
    (&["keeper"], "cli", "`plinth keeper server' serves the shells of ZooKeeper, as zkCli.sh"),
    (&["keeper"], "top", "`plinth top' watches the cluster below, and `plinth keeper status' shows the tree"),
    (&["table"], "dev", "`plinth table server --data-dir DIR' is one; `plinth delos dev NAME --kind table' several"),
    (&["table"], "status", "`plinth delos status' shows the service behind the tables"),
    (&["table"], "top", "`plinth delos top' watches the service behind the tables"),
    (&["table"], "bench", "`plinth delos bench' measures services"),
    (&["table"], "shell", "the shell is `plinth table cli'"),
    (&["farm"], "top", "`plinth farm status' shows the cluster, and `--pages' of a server has its metrics"),
    (&["farm"], "shell", "the shell is `plinth farm cli'"),
    (&["delos"], "cli", OF_DELOS),
    (&["delos"], "shell", OF_DELOS),
];
const OF_DELOS: &str =
    "`plinth delos call' carries out an operation; the shell of tables is `plinth table cli'";

/// The error of this command line, with better advice.
pub fn improved(mut error: Error, program: &Command, arguments: &[OsString]) -> Error {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(meant) = meant(arguments, word)
    {
        error.remove(ContextKind::SuggestedSubcommand);
        let tip = StyledStr::from(meant);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::SuggestedArg) {
        match shown(program, flag) {
            Some(name) => drop(error.insert(ContextKind::SuggestedArg, ContextValue::String(name))),
            None => drop(error.remove(ContextKind::SuggestedArg)),
        }
    }
    error
}

fn meant(arguments: &[OsString], word: &str) -> Option<&'static str> {
    let before = arguments.iter().skip(1).take_while(|said| *said != word);
    let before: Vec<&OsString> = before.collect();
    let is_it = |(system, wrong, _): &&(&[&str], &str, &str)| {
        *wrong == word
            && before.len() == system.len()
            && before.iter().zip(*system).all(|(a, b)| *a == b)
    };
    MEANT.iter().find(is_it).map(|(_, _, meant)| *meant)
}

/// The name under which the pages show a flag; `None` if they do not.
fn shown(program: &Command, flag: &str) -> Option<String> {
    let name = flag.strip_prefix("--")?;
    let is_it = |argument: &&Arg| {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        !argument.is_hide_set() && (argument.get_long() == Some(name) || aliases.contains(&name))
    };
    let all = all_arguments(program);
    let exact = all
        .iter()
        .find(|argument| argument.get_long() == Some(name) && is_it(argument));
    let found = exact.or_else(|| all.iter().find(|argument| is_it(argument)))?;
    Some(format!("--{}", found.get_long()?))
}

fn all_arguments(command: &Command) -> Vec<&Arg> {
    let below = command.get_subcommands().flat_map(all_arguments);
    command.get_arguments().chain(below).collect()
}

#[cfg(all(
    test,
    feature = "keeper",
    feature = "delos",
    feature = "tables",
    feature = "farm"
))]
mod tests {
    use super::*;

    fn answer(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = crate::program()
            .try_get_matches_from(&words)
            .expect_err(line);
        improved(error, &crate::program(), &words).to_string()
    }

    #[test]
    fn a_word_of_other_programs_is_answered_with_the_command_that_does_that() {
        for (line, tip) in [
            ("plinth restore f", "`plinth load' reads"),
            ("plinth shell", "`plinth cli'"),
            ("plinth keeper top", "`plinth top' watches"),
            ("plinth keeper dev", "--keeper-port"),
            ("plinth farm top", "`plinth farm status'"),
            ("plinth delos cli", "`plinth delos call'"),
        ] {
            let answer = answer(line);
            assert!(answer.contains(tip), "{answer}");
            assert!(!answer.contains("similar"), "{answer}");
        }
        assert!(answer("plinth sever").contains("'server'"));
    }

    #[test]
    fn every_word_that_is_answered_so_is_no_command() {
        for (system, word, _) in MEANT {
            let program = crate::program();
            let found = system
                .iter()
                .try_fold(&program, |command, name| command.find_subcommand(name));
            let Some(command) = found else { continue };
            assert!(command.find_subcommand(word).is_none(), "{word}");
        }
    }

    #[test]
    fn a_tip_names_no_flag_that_the_pages_hide() {
        for (line, tip) in [
            ("plinth status --tls_verify_peer x", "'--tls-verify-peers'"),
            ("plinth server --metric x", "'--pages'"),
        ] {
            let answer = answer(line);
            assert!(answer.contains(tip), "{answer}");
        }
    }
}
