//! What an error of the command line advises: commands, statements and flags that somebody may have meant who knows
//! other programs, and never a name that the pages hide. The tables are in [`foreign`](crate::foreign).

use crate::foreign::{AT_PLACES, MEANT, OF_DELOS, OF_KEEPER, OF_ONE, OF_SESSIONS, SAME, VERBS};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, Command};
use plinth_core::similar::{foreign, most_similar, slipped};
use std::ffi::OsString;
use std::path::Path;

/// The error of this command line, with better advice.
pub fn improved(mut error: Error, program: &Command, arguments: &[OsString]) -> Error {
    let said = |error: &Error, kind| match error.get(kind) {
        Some(ContextValue::String(said)) => Some(said.clone()),
        _ => None,
    };
    if let Some(word) = said(&error, ContextKind::InvalidSubcommand) {
        improve_word(&mut error, &word, program, arguments);
    }
    improve_value(&mut error);
    if let Some(wrong) = said(&error, ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
    {
        // The library's own is about a flag that is like the wrong one.
        error.remove(ContextKind::Suggested);
        let usage = usage(program, arguments);
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
        improve_argument(&mut error, &wrong, program, arguments);
    }
    if let Some(flag) = said(&error, ContextKind::InvalidArg)
        && let Some(typed) = by_letter(&flag, program, arguments)
    {
        error.insert(ContextKind::InvalidArg, ContextValue::String(typed));
    }
    if let Some(flag) = said(&error, ContextKind::SuggestedArg) {
        match shown(program, &flag) {
            Some(name) => drop(error.insert(ContextKind::SuggestedArg, ContextValue::String(name))),
            None => drop(error.remove(ContextKind::SuggestedArg)),
        }
    }
    error
}

/// Of a value that is none of a few: the library's own advice goes further than ours.
fn improve_value(error: &mut Error) {
    let (Some(ContextValue::String(wrong)), Some(ContextValue::Strings(known))) = (
        error.get(ContextKind::InvalidValue),
        error.get(ContextKind::ValidValue),
    ) else {
        return;
    };
    let near = most_similar(wrong, known.iter().map(String::as_str));
    match near.map(|near| ContextValue::String(near.to_owned())) {
        Some(near) => drop(error.insert(ContextKind::SuggestedValue, near)),
        None => drop(error.remove(ContextKind::SuggestedValue)),
    }
}

/// The flag of an error by its letter, if that was typed and not its name: `-C <FILE>` for `--cluster-file <FILE>`.
fn by_letter(flag: &str, program: &Command, arguments: &[OsString]) -> Option<String> {
    let (name, value) = flag.split_once(' ')?;
    let commands = asked(program, arguments);
    let mut own = commands[commands.len() - 1].get_arguments();
    let own = own.find(|own| own.get_long() == name.strip_prefix("--"))?;
    let letter = format!("-{}", own.get_short()?);
    let has = |begin: &str| {
        let mut words = arguments.iter().filter_map(|word| word.to_str());
        words.any(|word| word.starts_with(begin))
    };
    (has(&letter) && !has(name)).then(|| format!("{letter} {value}"))
}

/// Puts this in place of all other advice.
fn advise(error: &mut Error, tip: impl Into<String>) {
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::SuggestedArg);
    let tip = StyledStr::from(tip.into());
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
}

/// The commands that the words name, one within the other. The first is the program.
fn asked<'a>(program: &'a Command, arguments: &[OsString]) -> Vec<&'a Command> {
    let mut commands = vec![program];
    for word in arguments.iter().skip(1) {
        let last = commands[commands.len() - 1];
        match word.to_str().and_then(|word| last.find_subcommand(word)) {
            Some(inner) => commands.push(inner),
            None => break,
        }
    }
    commands
}

/// The names of these commands, without the program's.
fn path<'a>(commands: &[&'a Command]) -> Vec<&'a str> {
    let names = commands.iter().skip(1);
    names.map(|command| command.get_name()).collect()
}

/// How that command is used, in one line.
fn usage(program: &Command, arguments: &[OsString]) -> StyledStr {
    let mut program = program.clone();
    program.build(); // so that it knows the words before it
    let commands = asked(&program, arguments);
    commands[commands.len() - 1].clone().render_usage()
}

// ---- a word that is no command ----

fn improve_word(error: &mut Error, word: &str, program: &Command, arguments: &[OsString]) {
    // The library's own advice goes further than ours: `bench' for `nosuch'.
    error.remove(ContextKind::SuggestedSubcommand);
    let commands = asked(program, arguments);
    let (path, command) = (path(&commands), commands[commands.len() - 1]);
    let plain = word.to_ascii_lowercase();
    let plain = plain.strip_suffix(".sh").unwrap_or(&plain);
    let is_it = |(system, wrong, _): &&(&[&str], &str, &str)| {
        *system == &path[..] && wrong.split(' ').any(|one| one == plain)
    };
    if let Some((_, _, meant)) = MEANT.iter().find(is_it) {
        return advise(error, *meant);
    }
    let statements = statements(&path);
    let names = command.get_subcommands().filter(|name| !name.is_hide_set());
    let names: Vec<&str> = names.map(Command::get_name).collect();
    if let Some(tip) = of_statement(plain, &path, &statements, &names) {
        return advise(error, tip);
    }
    let same = foreign(plain, statements.clone()).filter(|name| names.contains(name));
    let verb = VERBS
        .iter()
        .find(|(theirs, _)| theirs.split(' ').any(|one| one == plain));
    let own = verb.and_then(|(_, own)| own.iter().find(|own| names.contains(own)).copied());
    let near = same.or(own).or_else(|| most_similar(plain, names.clone()));
    let alone = statements.iter().filter(|name| !OF_SESSIONS.contains(name));
    if let Some(near) = near {
        let near = ContextValue::Strings(vec![near.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, near);
    } else if let Some(name) = most_similar(plain, alone.copied()) {
        advise(error, of_shell(&path, name));
    } else if !path.is_empty() {
        let all = names.join(", ");
        advise(
            error,
            format!("behind `plinth {}' stands one of {all}", path.join(" ")),
        );
    } else if let Some(place) = elsewhere(program, plain) {
        advise(error, format!("there is `plinth {place}'"));
    }
}

/// The tip about a word that is a statement of a shell, here or in other programs, and no command here.
fn of_statement(word: &str, path: &[&str], own: &[&str], commands: &[&str]) -> Option<String> {
    if let Some(name) = own.iter().find(|name| **name == word) {
        return (!commands.contains(name)).then(|| of_shell(path, name));
    }
    if path.is_empty() && self::statements(&["table"]).contains(&word) {
        return Some(of_shell(&["table"], word));
    }
    let name = foreign(word, own.iter().copied())?;
    let is_it = !commands.contains(&name) && !OF_SESSIONS.contains(&name);
    is_it.then(|| of_shell(path, name))
}

/// The statements of the shell at this place; where there is none, those that one might expect.
fn statements(path: &[&str]) -> Vec<&'static str> {
    match path {
        [] | ["keeper"] | ["delos"] => plinth_commands::statements().collect(),
        #[cfg(feature = "farm")]
        ["farm"] => plinth_farm_commands::statements().collect(),
        #[cfg(feature = "tables")]
        ["table"] => plinth_delos_commands::statements().collect(),
        _ => Vec::new(),
    }
}

/// Where that statement is carried out.
fn of_shell(path: &[&str], statement: &str) -> String {
    let before: String = path.iter().map(|word| format!("{word} ")).collect();
    match path {
        ["keeper"] => OF_KEEPER.into(),
        ["delos"] => OF_DELOS.into(),
        _ => format!(
            "`{statement}' is a statement of the shell: plinth {before}cli --exec '{statement} …'"
        ),
    }
}

/// The words of a command of another place that has this name, or one that is like it.
fn elsewhere(program: &Command, word: &str) -> Option<String> {
    let mut left: Vec<(String, &Command)> = vec![(String::new(), program)];
    let mut all = Vec::new();
    while let Some((before, command)) = left.pop() {
        for below in command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
        {
            let place = format!("{before} {}", below.get_name());
            all.push((place.trim_start().to_owned(), below.get_name()));
            left.push((place, below));
        }
    }
    let name = slipped(word, all.iter().map(|(_, name)| *name))?;
    let place = all.iter().find(|(_, own)| *own == name);
    place.map(|(place, _)| place.clone())
}

// ---- an argument that is none ----

fn improve_argument(error: &mut Error, wrong: &str, program: &Command, arguments: &[OsString]) {
    let commands = asked(program, arguments);
    let (path, command) = (path(&commands), commands[commands.len() - 1]);
    if !wrong.starts_with('-') {
        if let Some(tip) = of_place(command, &path, wrong) {
            advise(error, tip);
        }
        return;
    }
    let typed = typed(wrong, arguments);
    if let Some(long) = with_two_hyphens(command, &typed) {
        error.insert(ContextKind::InvalidArg, ContextValue::String(typed));
        error.insert(ContextKind::SuggestedArg, ContextValue::String(long));
        return;
    }
    let name = plain(&typed);
    let is_it = |(place, flags, _): &&(&[&str], &str, &str)| {
        *place == &path[..] && flags.split(' ').any(|flag| flag == name)
    };
    if let Some((_, _, tip)) = OF_ONE.iter().find(is_it) {
        return advise(error, *tip);
    }
    if let Some(tip) = behind(command, wrong, &name, arguments) {
        return advise(error, tip);
    }
    let has = |flag: &str| has(command, flag);
    let names_servers = SAME.iter().any(|(theirs, own)| {
        matches!(*own, "--listen" | "--connect") && theirs.split(' ').any(|flag| flag == name)
    });
    if wrong == "-C" && has("--from") && has("--to") {
        advise(error, "--from and --to name the cluster files");
    } else if wrong == "-c" && has("-C") {
        advise(error, "-C names the cluster file");
    } else if name.starts_with("knob") && has("--knob") {
        advise(
            error,
            "--knob NAME=VALUE sets a knob, and `--knob list' shows them",
        );
    } else if let Some(own) = same(command, &name) {
        error.remove(ContextKind::Suggested);
        error.insert(ContextKind::SuggestedArg, ContextValue::String(own.into()));
    } else if names_servers && has("--cluster-file") {
        advise(
            error,
            "-C names the cluster file, which says where the servers are",
        );
    } else if let Some(near) = nearest(command, wrong) {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(near));
    } else if let Some(ContextValue::String(tip)) = error.get(ContextKind::SuggestedArg)
        && is_far(wrong, tip)
    {
        error.remove(ContextKind::SuggestedArg);
    }
}

/// All of the flag. Of `-server` the library tells the first letter.
fn typed(wrong: &str, arguments: &[OsString]) -> String {
    let is_one = wrong.len() == 2 && !wrong.starts_with("--");
    let words = arguments.iter().filter_map(|word| word.to_str());
    let word = words.rev().find(|word| word.starts_with(wrong));
    let word = word.filter(|_| is_one).unwrap_or(wrong);
    word.split('=').next().unwrap_or_default().to_owned()
}

/// The flag that `-json` means; `None` if there is none.
fn with_two_hyphens(command: &Command, typed: &str) -> Option<String> {
    let name = typed.strip_prefix('-')?;
    let is_name = name.len() > 1 && !name.starts_with('-');
    let long = format!("--{name}");
    let near = || nearest(command, &long);
    is_name.then_some(())?;
    has(command, &long).then(|| long.clone()).or_else(near)
}

/// The name of a flag without what programs write in different ways.
fn plain(flag: &str) -> String {
    let name = flag.trim_start_matches('-').replace(['-', '_', '.'], "");
    match name.len() {
        1 => name,
        _ => name.to_ascii_lowercase(),
    }
}

/// The flag of this command that is what other programs call so.
fn same(command: &Command, name: &str) -> Option<&'static str> {
    let is_it = |(theirs, own): &&(&str, &'static str)| {
        has(command, own) && theirs.split(' ').any(|theirs| theirs == name)
    };
    SAME.iter().find(is_it).map(|(_, own)| *own)
}

/// The tip about a flag that stands before the command whose flag it is.
fn behind(command: &Command, wrong: &str, name: &str, arguments: &[OsString]) -> Option<String> {
    let at = arguments.iter().position(|word| {
        let word = word.to_str().unwrap_or_default();
        word.split('=').next() == Some(wrong)
    })?;
    let own = |below: &Command| match has(below, wrong) {
        true => Some(wrong.to_owned()),
        false => same(below, name).map(str::to_owned),
    };
    let said = arguments[at + 1..].iter();
    let said = said.filter_map(|word| command.find_subcommand(word));
    // Of those that nobody has named, these are used most.
    let usual = ["cli", "dev", "server"].into_iter();
    let usual = usual.filter_map(|name| command.find_subcommand(name));
    let mut found = said
        .chain(usual)
        .filter_map(|below| Some((below, own(below)?)));
    let (below, flag) = found.next()?;
    let before = arguments[1..at].iter().map(|word| word.to_string_lossy());
    let before: String = before.map(|word| format!("{word} ")).collect();
    Some(format!(
        "flags stand behind the command: plinth {before}{} {flag} …",
        below.get_name()
    ))
}

fn has(command: &Command, flag: &str) -> bool {
    command.get_arguments().any(|argument| {
        let long = argument.get_long().map(|name| format!("--{name}"));
        let short = argument.get_short().map(|name| format!("-{name}"));
        long.as_deref() == Some(flag) || short.as_deref() == Some(flag)
    })
}

/// The flag that is most like this one.
fn nearest(command: &Command, wrong: &str) -> Option<String> {
    let shown = command.get_arguments().filter(|flag| !flag.is_hide_set());
    let names: Vec<&str> = shown.filter_map(Arg::get_long).chain(["help"]).collect();
    let near = most_similar(wrong.strip_prefix("--")?, names)?;
    Some(format!("--{near}"))
}

/// Names that have nothing in common but some letters.
fn is_far(wrong: &str, tip: &str) -> bool {
    let name = |flag: &str| flag.trim_start_matches('-').replace('_', "-");
    let (wrong, tip) = (name(wrong), name(tip));
    most_similar(&wrong, [&tip[..]]).is_none()
        && !tip.starts_with(&wrong)
        && !wrong.starts_with(&tip)
}

/// The tip about a word where only flags are expected.
fn of_place(command: &Command, path: &[&str], word: &str) -> Option<String> {
    let has = |flag: &str| has(command, flag);
    let is_file = Path::new(word)
        .extension()
        .is_some_and(|end| end == "cluster");
    let is_address = word
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = ["--listen", "--gateway", "--connect", "--from", "--to"];
    let address = address.into_iter().find(|flag| has(flag));
    if is_file && has("--cluster-file") {
        return Some("-C names the cluster file".into());
    }
    if let Some(flag) = address.filter(|_| is_address) {
        return Some(format!("{flag} names the address"));
    }
    if let Some((_, tip)) = AT_PLACES
        .iter()
        .find(|(flags, _)| flags.iter().all(|flag| has(flag)))
    {
        return Some((*tip).into());
    }
    let has_places = command.get_positionals().next().is_some() || command.has_subcommands();
    (!has_places).then(|| {
        format!(
            "`plinth {}' takes flags, and no word of its own",
            path.join(" ")
        )
    })
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
    let found = exact.or_else(|| all.iter().find(|argument| is_it(argument)));
    match found {
        None if name == "help" => Some("--help".into()), // the library adds it later
        found => Some(format!("--{}", found?.get_long()?)),
    }
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

    /// Words behind `plinth`, and a part of the tip; nothing for a word that nobody can guess the meaning of.
    #[rustfmt::skip]
    const WORDS: [(&str, &str); 91] = [
        // Systems that somebody runs today, as README.md says where they begin.
        ("redis", "`plinth farm'"), ("redis-cli", "`plinth farm cli'"), ("memcached", "`plinth farm dev'"),
        ("etcd", "`plinth delos'"), ("etcdctl", "`plinth cli'"), ("consul", "`plinth delos'"),
        ("zookeeper", "`plinth keeper server'"), ("zkCli", "`plinth keeper'"), ("zkCli.sh", "`plinth keeper'"),
        ("zkServer.sh", "`plinth keeper server'"), ("clickhouse", "`plinth keeper server'"),
        ("clickhouse-client", "`plinth keeper server'"), ("kafka", "`plinth keeper server'"),
        ("fdbcli", "`plinth cli'"), ("fdbserver", "`plinth server'"), ("fdbmonitor", "`plinth server'"),
        ("fdbbackup", "`plinth dump'"), ("fdbrestore", "`plinth load'"), ("fdbdr", "`plinth copy'"),
        ("foundationdb", "`plinth copy'"), ("postgres", "`plinth table cli'"), ("psql", "`plinth table cli'"),
        ("mongodb", "`plinth dev'"), ("rocksdb", "`plinth dev'"), ("ycsb", "`plinth bench'"),
        // The systems of this program, by other words.
        ("store", "`plinth cli'"), ("database", "`plinth cli'"), ("zk", "`plinth keeper'"),
        ("queue", "`plinth delos'"), ("leader", "`plinth delos'"), ("memory", "`plinth farm'"),
        ("sql", "`plinth table cli'"),
        // What somebody wants to do.
        ("make", "`plinth dev'"), ("create", "`plinth dev'"), ("start", "`plinth dev'"), ("stop", "SIGTERM"),
        ("quit", "`exit'"), ("exit", "`exit'"), ("backup", "`plinth dump'"), ("save", "`plinth dump'"),
        ("snapshot", "`plinth dump'"), ("restore", "`plinth load'"), ("import", "`plinth load'"),
        ("export", "`plinth dump'"), ("version", "`plinth --version'"), ("metrics", "--pages"),
        ("health", "--pages"), ("monitor", "`plinth top'"), ("benchmark", "`plinth bench'"), ("log", "--trace"),
        ("knobs", "--knob list"), ("login", "`plinth keys'"), ("shell", "`plinth cli'"), ("info", "'status'"),
        // Statements.
        ("select", "plinth table cli --exec 'select …'"), ("insert", "plinth table cli --exec 'insert …'"),
        ("update", "plinth table cli --exec 'update …'"), ("upsert", "plinth table cli --exec 'upsert …'"),
        ("get", "plinth cli --exec 'get …'"), ("put", "plinth cli --exec 'set …'"), ("del", "--exec 'clear …'"),
        ("ls", "--exec 'getrange …'"), ("configure", "--exec 'configure …'"),
        ("getrnage", "--exec 'getrange …'"),
        // Slips.
        ("sever", "'server'"), ("servr", "'server'"), ("stat", "'status'"), ("stauts", "'status'"),
        ("STATUS", "'status'"), ("statsu", "'status'"), ("tpo", "'top'"), ("bnech", "'bench'"), ("kepeer", "'keeper'"),
        ("deols", "'delos'"),
        ("tabel", "'table'"), ("frm", "'farm'"), ("tokne", "'token'"), ("steram", "'stream'"),
        ("completion", "`plinth tools completions'"),
        ("reads", "`plinth farm bench reads'"),
        // Nobody knows what these are to be.
        ("nosuch", ""), ("foo", ""), ("frobnicate", ""), ("hello", ""), ("abc", ""), ("net", ""),
        ("bet", ""), ("x", ""), ("commit-log", ""), ("undo", ""), ("abort", ""),
    ];

    #[test]
    fn a_word_has_the_tip_that_it_means_or_none() {
        let mut wrong = Vec::new();
        for (word, tip) in WORDS {
            for line in [format!("plinth {word}"), format!("plinth help {word}")] {
                let words = line.split(' ').map(OsString::from).collect();
                let words: Vec<OsString> = crate::help_of(words);
                let error = crate::program()
                    .try_get_matches_from(&words)
                    .expect_err(&line);
                let answer = improved(error, &crate::program(), &words).to_string();
                let is_good = match tip {
                    "" => !answer.contains("tip:"),
                    tip => answer.contains("tip:") && answer.contains(tip),
                };
                if !is_good {
                    wrong.push(format!("{line}: {tip}: {answer}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
            ("plinth configure double", "plinth cli --exec 'configure …'"),
            ("plinth lock", "plinth cli --exec 'lock …'"),
            ("plinth exec a", "`plinth cli --exec STATEMENTS'"),
            ("plinth put a b", "plinth cli --exec 'set …'"),
            ("plinth ls /", "plinth cli --exec 'getrange …'"),
            ("plinth del a", "plinth cli --exec 'clear …'"),
            ("plinth confgure", "plinth cli --exec 'configure …'"),
            ("plinth completion", "`plinth tools completions'"),
            ("plinth zk", "`plinth keeper server'"),
            ("plinth keeper ls /", "zkCli.sh"),
            ("plinth keeper create /a", "zkCli.sh"),
            ("plinth farm get a", "plinth farm cli --exec 'get …'"),
            ("plinth farm put a", "plinth farm cli --exec 'set …'"),
            ("plinth table select", "plinth table cli --exec 'select …'"),
            ("plinth delos get a", "`plinth delos call'"),
            ("plinth fdbserver -p x", "`plinth server'"),
        ] {
            let answer = answer(line);
            assert!(answer.contains(tip), "{answer}");
            assert!(!answer.contains("similar"), "{answer}");
        }
        for (line, command) in [
            ("plinth sever", "'server'"),
            ("plinth stat", "'status'"),
            ("plinth info", "'status'"),
            ("plinth farm health", "'status'"),
            ("plinth farm nodes", "'status'"),
            ("plinth keys ls", "'list'"),
            ("plinth stream add x", "'create'"),
            ("plinth token frobnicate", "stands one of"),
            ("plinth farm redis", "stands one of"),
        ] {
            assert!(answer(line).contains(command), "{line}");
        }
    }

    /// Lines with a wrong flag or word, and what the answer has.
    const WRONG: &[(&str, &str)] = &[
        ("plinth bench run --seconds 3", "'--duration'"),
        ("plinth bench run --time 3", "'--duration'"),
        ("plinth stream list --tsv", "'--json'"),
        ("plinth status -c F", "-C names"),
        ("plinth status -json", "'--json'"),
        ("plinth status -jsno", "'--json'"),
        ("plinth server -data-dir d", "'--data-dir'"),
        ("plinth keeper server -listen a:1", "'--listen'"),
        ("plinth delos status -timeout 3", "'--timeout'"),
        ("plinth farm status -json", "'--json'"),
        ("plinth table cli -exec x", "'--exec'"),
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
        ("plinth load --format tvs f", "`tsv'"),
        ("plinth server --port 1", "'--listen'"),
        ("plinth server -p a:1", "'--listen'"),
        ("plinth server --datadir d", "'--data-dir'"),
        ("plinth server --knob_a=1", "--knob NAME=VALUE"),
        ("plinth server --locality-zoneid z", "'--zone'"),
        ("plinth keeper server --port 1", "'--listen'"),
        ("plinth keeper server --zookeeper-port 1", "'--listen'"),
        ("plinth keeper server --tickTime 1", "'--tick-ms'"),
        ("plinth dev --listen a", "'--port'"),
        ("plinth -e", "plinth cli --exec …"),
        ("plinth --exec", "plinth cli --exec …"),
        ("plinth -v", "-V prints"),
        ("plinth --halp", "'--help'"),
        (
            "plinth --cluster X status",
            "plinth status --cluster-file …",
        ),
        ("plinth cli --endpoints a:1", "-C names the cluster file"),
        ("plinth cli -server a:1", "-C names the cluster file"),
        ("plinth cli -p 1", "-C names the cluster file"),
        ("plinth cli a/plinth.cluster", "-C names the cluster file"),
        ("plinth status --watch", "`plinth top'"),
        ("plinth keeper status billing", "--tree names"),
        ("plinth keeper list nope", "takes flags, and no word"),
        ("plinth stream list NAME", "takes flags, and no word"),
        ("plinth copy A B", "--from and --to name"),
        ("plinth dev data", "--data-dir names"),
        ("plinth server 10.0.0.1:4500", "--listen names"),
        ("plinth status --cert f", "'--tls-certificate-file'"),
        ("plinth table cli -C no/x.cluster", "'-C <IP:PORT[:tls]>'"),
    ];

    #[test]
    fn a_flag_of_another_command_is_answered_with_what_this_one_has() {
        for (line, tip) in WRONG {
            let answer = answer(line);
            assert!(answer.contains(*tip), "{line}: {answer}");
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
        let words = MEANT
            .iter()
            .flat_map(|(system, words, _)| words.split(' ').map(move |word| (*system, word)));
        for (system, word) in words {
            let program = crate::program();
            let found = system
                .iter()
                .try_fold(&program, |command, name| command.find_subcommand(name));
            let Some(command) = found else { continue };
            assert!(command.find_subcommand(word).is_none(), "{word}");
        }
    }

    #[test]
    fn every_flag_and_command_of_the_tables_is_one() {
        let program = crate::program();
        let all = all_arguments(&program);
        for (_, own) in SAME {
            let is_it = |flag: &&&Arg| flag.get_long() == own.strip_prefix("--");
            assert!(all.iter().find(is_it).is_some(), "{own}");
        }
        for (path, flags, _) in OF_ONE {
            let found = path
                .iter()
                .try_fold(&program, |command, name| command.find_subcommand(name));
            let command = found.expect("it is a command");
            for flag in flags.split(' ') {
                assert!(!has(command, &format!("-{flag}")), "{flag}");
                assert!(!has(command, &format!("--{flag}")), "{flag}");
            }
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
