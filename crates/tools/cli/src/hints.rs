//! What an error of the command line advises: commands that somebody may have meant who knows other programs, and
//! never a name that the pages hide.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, Command};
use plinth_core::similar::most_similar;
use std::ffi::OsString;
use std::path::Path;

/// A word that is no command behind those before it, and what does that.
#[rustfmt::skip]
const MEANT: [(&[&str], &str, &str); 29] = [
    (&[], "restore", "`plinth load' reads what `plinth dump' has written"),
    (&[], "backup", "`plinth dump' writes pairs to a file, and `plinth copy' copies a database"),
    (&[], "import", "`plinth load' reads pairs, and `plinth keeper import' the nodes of a ZooKeeper"),
    (&[], "export", "`plinth dump' writes pairs, and `plinth keeper export' the nodes of a tree"),
    (&[], "shell", "the shell is `plinth cli'"),
    (&[], "start", "`plinth dev' starts a cluster on this machine, and `plinth server' one server"),
    (&[], "stop", ENDED),
    (&[], "restart", ENDED),
    (&[], "fdbcli", "the shell is `plinth cli'"),
    (&[], "version", "`plinth --version' prints it"),
    (&["keeper"], "dev", "`plinth dev --data-dir DIR --zookeeper-port 2181' starts a cluster with a gateway"),
    (&["keeper"], "cli", "`plinth keeper server' serves the shells of ZooKeeper, as zkCli.sh"),
    (&["keeper"], "top", "`plinth top' watches the cluster below, and `plinth keeper status' shows the tree"),
    (&["keeper"], "trees", "`plinth keeper list' shows the trees of a cluster"),
    (&["stream"], "status", OF_STREAMS),
    (&["stream"], "show", OF_STREAMS),
    (&["stream"], "consumers", OF_STREAMS),
    (&["token"], "show", "`plinth token public' shows what a database is told of a signing key"),
    (&["table"], "dev", "`plinth table server --data-dir DIR' is one; `plinth delos dev NAME --kind table' several"),
    (&["table"], "status", "`plinth delos status' shows the service behind the tables"),
    (&["table"], "top", "`plinth delos top' watches the service behind the tables"),
    (&["table"], "bench", "`plinth delos bench' measures services"),
    (&["table"], "shell", "the shell is `plinth table cli'"),
    (&["farm"], "top", "`plinth farm status' shows the cluster, and `--pages' of a server has its metrics"),
    (&["farm", "bench"], "list", "`plinth farm bench' lists what there is to measure"),
    (&["bench"], "list", "`plinth bench run --workload list' explains what there is to measure"),
    (&["farm"], "shell", "the shell is `plinth farm cli'"),
    (&["delos"], "cli", OF_DELOS),
    (&["delos"], "shell", OF_DELOS),
];
const ENDED: &str = "a server ends by SIGTERM: `systemctl stop' or `restart' where systemd has started it; `kill' in \
     plinth cli starts one again that is looked after";
/// Flags of other programs, and what a command may have instead.
const SAME: [(&str, &str); 16] = [
    ("-e", "--exec"),
    ("--seconds", "--duration"),
    ("--seconds", "--interval"),
    ("--replicas", "--replication"),
    ("--workers", "--processes"),
    ("--from", "--begin"),
    ("--to", "--end"),
    ("--begin", "--range"),
    ("--end", "--range"),
    ("--jobs", "--concurrency"),
    ("--duration", "--for"),
    ("--cluster-file", "--from"),
    ("--time", "--duration"),
    ("--tsv", "--json"),
    ("--cluster", "--cluster-file"),
    ("--cluster-file", "--connect"),
];
const OF_STREAMS: &str = "`plinth stream list' shows streams, and how far their consumers are";
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
    } else if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && error.get(ContextKind::SuggestedSubcommand).is_none()
    {
        let names = asked(program, arguments).get_subcommands();
        let shown = names.filter(|name| !name.is_hide_set());
        if let Some(near) = most_similar(word, shown.map(Command::get_name)) {
            let near = ContextValue::Strings(vec![near.to_owned()]);
            error.insert(ContextKind::SuggestedSubcommand, near);
        }
    }
    if let (Some(ContextValue::String(wrong)), Some(ContextValue::Strings(known))) = (
        error.get(ContextKind::InvalidValue),
        error.get(ContextKind::ValidValue),
    ) && let Some(near) = most_similar(wrong, known.iter().map(String::as_str))
    {
        let near = ContextValue::String(near.to_owned());
        error.insert(ContextKind::SuggestedValue, near);
    }
    if let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg) {
        let (wrong, command) = (wrong.clone(), asked(program, arguments));
        if error.kind() == ErrorKind::UnknownArgument {
            // The library's own is about a flag that is like the wrong one.
            error.remove(ContextKind::Suggested);
            let usage = usage(program, arguments);
            error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
        }
        match behind(command, &wrong, arguments) {
            Some(tip) => {
                error.remove(ContextKind::SuggestedArg);
                let tip = StyledStr::from(tip);
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
            }
            None => improve_flag(&mut error, &wrong, command),
        }
    }
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::SuggestedArg) {
        match shown(program, flag) {
            Some(name) => drop(error.insert(ContextKind::SuggestedArg, ContextValue::String(name))),
            None => drop(error.remove(ContextKind::SuggestedArg)),
        }
    }
    error
}

/// The command that the words name.
fn asked<'a>(program: &'a Command, arguments: &[OsString]) -> &'a Command {
    let mut command = program;
    for word in arguments.iter().skip(1) {
        match word.to_str().and_then(|word| command.find_subcommand(word)) {
            Some(inner) => command = inner,
            None => break,
        }
    }
    command
}

/// How that command is used, in one line.
fn usage(program: &Command, arguments: &[OsString]) -> StyledStr {
    let mut program = program.clone();
    program.build(); // so that it knows the words before it
    asked(&program, arguments).clone().render_usage()
}

/// The tip about a flag that stands before the command whose flag it is.
fn behind(command: &Command, flag: &str, arguments: &[OsString]) -> Option<String> {
    let at = arguments.iter().position(|word| {
        let word = word.to_str().unwrap_or_default();
        word.split('=').next() == Some(flag)
    })?;
    let words = arguments[at + 1..].iter();
    let name = words
        .filter_map(|word| command.find_subcommand(word))
        .find(|below| has(below, flag))?
        .get_name();
    let before = arguments[1..at].iter().map(|word| word.to_string_lossy());
    let before: String = before.map(|word| format!("{word} ")).collect();
    Some(format!(
        "flags stand behind the command: plinth {before}{name} {flag} …"
    ))
}

fn has(command: &Command, flag: &str) -> bool {
    command.get_arguments().any(|argument| {
        let long = argument.get_long().map(|name| format!("--{name}"));
        let short = argument.get_short().map(|name| format!("-{name}"));
        long.as_deref() == Some(flag) || short.as_deref() == Some(flag)
    })
}

/// Puts what this command has in place of a tip that is far from what was written.
fn improve_flag(error: &mut Error, wrong: &str, command: &Command) {
    let has = |flag: &str| has(command, flag);
    let same = SAME.iter().find(|(other, own)| *other == wrong && has(own));
    if let Some((_, own)) = same {
        error.insert(
            ContextKind::SuggestedArg,
            ContextValue::String((*own).into()),
        );
        error.remove(ContextKind::Suggested);
        return;
    }
    let tip = match wrong {
        "-c" if has("-C") => Some("-C names the cluster file"),
        "-C" if has("--from") && has("--to") => Some("--from and --to name the cluster files"),
        _ if !wrong.starts_with('-') && !has("--exec") && has("-C") => {
            let is_file = Path::new(wrong)
                .extension()
                .is_some_and(|end| end == "cluster");
            is_file.then_some("-C names the cluster file")
        }
        // Tables have statements of their own.
        _ if !wrong.starts_with('-') && has("--exec") && has("--connect") => {
            Some("statements stand behind --exec, as in --exec 'select * from t'")
        }
        _ if !wrong.starts_with('-') && has("--exec") => {
            Some("statements stand behind --exec, as in --exec 'get a'")
        }
        _ => None,
    };
    if let Some(tip) = tip {
        let tip = StyledStr::from(tip);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    } else if let Some(ContextValue::String(tip)) = error.get(ContextKind::SuggestedArg)
        && is_far(wrong, tip)
    {
        error.remove(ContextKind::SuggestedArg);
    }
}

/// Names that have nothing in common but some letters.
fn is_far(wrong: &str, tip: &str) -> bool {
    let name = |flag: &str| flag.trim_start_matches('-').replace('_', "-");
    let (wrong, tip) = (name(wrong), name(tip));
    most_similar(&wrong, [&tip[..]]).is_none()
        && !tip.starts_with(&wrong)
        && !wrong.starts_with(&tip)
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
            ("plinth keeper dev", "--zookeeper-port"),
            ("plinth farm top", "`plinth farm status'"),
            ("plinth delos cli", "`plinth delos call'"),
            ("plinth stop", "SIGTERM"),
            ("plinth fdbcli", "`plinth cli'"),
            ("plinth version", "`plinth --version'"),
        ] {
            let answer = answer(line);
            assert!(answer.contains(tip), "{answer}");
            assert!(!answer.contains("similar"), "{answer}");
        }
        assert!(answer("plinth sever").contains("'server'"));
    }

    #[test]
    fn a_flag_of_another_command_is_answered_with_what_this_one_has() {
        for (line, tip) in [
            ("plinth bench run --seconds 3", "'--duration'"),
            ("plinth bench run --time 3", "'--duration'"),
            ("plinth stream list --tsv", "'--json'"),
            ("plinth status -c F", "-C names"),
            ("plinth cli get", "--exec 'get a'"),
            ("plinth cli exec get", "--exec 'get a'"),
            ("plinth table cli select", "--exec 'select * from t'"),
            ("plinth status --time-out 3", "'--timeout'"),
            ("plinth delos -C x status", "plinth delos status -C …"),
            ("plinth farm -C x status", "plinth farm status -C …"),
            ("plinth table cli --cluster-file x", "'--connect'"),
            ("plinth tools mna", "'man'"),
            ("plinth bench list", "--workload list"),
            ("plinth --json status", ": plinth status --json …"),
            ("plinth status a/plinth.cluster", "-C names"),
            ("plinth cli -e get", "'--exec'"),
            ("plinth top --seconds 3", "'--interval'"),
            ("plinth dev --replicas 3", "'--replication'"),
            ("plinth dev --workers 3", "'--processes'"),
            ("plinth dump --from a", "'--begin'"),
            ("plinth copy -C a --to b", "--from and --to name"),
            ("plinth stream create a --begin k", "'--range'"),
            ("plinth token sign --duration 1h", "'--for'"),
            ("plinth load --format tvs f", "'tsv'"),
        ] {
            let answer = answer(line);
            assert!(answer.contains(tip), "{line}: {answer}");
            assert!(!answer.contains("as a value"), "{line}: {answer}");
        }
        for line in ["plinth stream list --tsv", "plinth dump --tsv"] {
            let answer = answer(line);
            assert!(!answer.contains("--tls"), "{answer}");
        }
        let answer = answer("plinth status --tsv");
        assert!(!answer.contains("'--tls"), "{answer}");
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
