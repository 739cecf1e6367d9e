//! Words that a command line had in former releases, and what they are now. They work for one release more, and who
//! uses one is told so.

use clap::{Arg, Command};
use std::ffi::OsString;

/// A beginning of a command line, and what stands there now.
const MOVED: [(&[&str], &[&str]); 8] = [
    (&["sim"], &["tools", "sim"]),
    (&["completions"], &["tools", "completions"]),
    (&["man"], &["tools", "man"]),
    (&["delos", "serve"], &["delos", "server"]),
    (&["table", "serve"], &["table", "server"]),
    (&["bench", "table"], &["bench", "scale"]),
    (&["bench", "keeper"], &["keeper", "bench", "run"]),
    (&["bench", "delos"], &["delos", "bench"]),
];

/// Systems whose one command needed no word before its flags, and that word.
const WORDLESS: [(&str, &str); 2] = [("keeper", "server"), ("table", "cli")];

/// The commands that these have now.
const OF_WORDLESS: [&str; 7] = [
    "cli", "server", "status", "import", "export", "drop", "bench",
];

/// A flag that made a command another one, that one, and the flag's own name there.
const BY_FLAG: [(&str, &str, [&str; 2], &str); 2] = [
    ("dev", "--farm", ["farm", "dev"], "--machines"),
    ("top", "--delos", ["delos", "top"], "--cluster-file"),
];

/// Commands of `delos` that had the service as their first word.
const ON_SERVICES: [&str; 11] = [
    "call",
    "status",
    "add-replica",
    "remove-replica",
    "upgrade",
    "enable-engine",
    "disable-engine",
    "reconfigure-log",
    "check",
    "backup",
    "trim",
];

/// The command line as it is said now. The first word is the program's name.
pub fn translated(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut said = arguments.into_iter();
    let program: Vec<OsString> = said.next().into_iter().collect();
    let words: Vec<OsString> = said.collect();
    let words = on_service(wordless(by_flag(moved(words))));
    [program, to_file(words)].concat()
}

/// The line for who has written `said`, which is `now`; `None` if nothing in it is of a former release, or if a
/// program has asked for JSON: it reads standard error, too.
pub fn notice(program: &Command, said: &[OsString], now: &[OsString]) -> Option<String> {
    if said.iter().any(|word| word == "--json") {
        return None;
    }
    let (former, now) = match said == now {
        true => former_flag(program, now)?,
        false => differing(said, now),
    };
    Some(format!(
        "`{former}' is `{now}' now; the former words work for one release more"
    ))
}

/// The begins of two command lines: at least a word, and all but what is the same at their ends.
fn differing(said: &[OsString], now: &[OsString]) -> (String, String) {
    let pairs = said.iter().rev().zip(now.iter().rev());
    let same = pairs.take_while(|(said, now)| said == now).count();
    let same = same.min(said.len().saturating_sub(2));
    let begin = |words: &[OsString]| {
        let words = words[1..words.len() - same].iter();
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        format!("plinth {}", words.join(" "))
    };
    (begin(said), begin(now))
}

/// The first flag that is said by a name which it had once, and its name.
fn former_flag(program: &Command, said: &[OsString]) -> Option<(String, String)> {
    let mut command = program;
    for (at, word) in said.iter().enumerate().skip(1) {
        if let Some(below) = command.find_subcommand(word) {
            command = below;
            continue;
        }
        let flags = said[at..].iter().filter_map(|word| word.to_str());
        let flags = flags.take_while(|word| *word != "--");
        let names = flags.filter_map(|word| word.strip_prefix("--")?.split('=').next());
        return names.filter_map(|name| current(command, name)).next();
    }
    None
}

fn current(command: &Command, former: &str) -> Option<(String, String)> {
    // The flags of TLS have FoundationDB's names, too, for good.
    let has_it = |flag: &&Arg| {
        let aliases = flag.get_all_aliases().unwrap_or_default();
        aliases.contains(&former) && !former.contains('_')
    };
    let name = command.get_arguments().find(has_it)?.get_long()?;
    Some((format!("--{former}"), format!("--{name}")))
}

fn starts_with(words: &[OsString], with: &[&str]) -> bool {
    words.len() >= with.len() && words.iter().zip(with).all(|(word, with)| word == with)
}

fn owned(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn moved(words: Vec<OsString>) -> Vec<OsString> {
    match MOVED.iter().find(|(from, _)| starts_with(&words, from)) {
        Some((from, to)) => [owned(to), words[from.len()..].to_vec()].concat(),
        None => words,
    }
}

fn by_flag(words: Vec<OsString>) -> Vec<OsString> {
    let is_flag = |word: &OsString, flag: &str| {
        let word = word.to_str().unwrap_or_default();
        word == flag
            || word
                .strip_prefix(flag)
                .is_some_and(|rest| rest.starts_with('='))
    };
    let asked = BY_FLAG.iter().find(|(command, flag, _, _)| {
        starts_with(&words, &[*command]) && words.iter().any(|word| is_flag(word, flag))
    });
    let Some((_, flag, command, name)) = asked else {
        return words;
    };
    let renamed = words[1..].iter().map(|word| match is_flag(word, flag) {
        true => word.to_string_lossy().replacen(flag, name, 1).into(),
        false => word.clone(),
    });
    owned(command).into_iter().chain(renamed).collect()
}

/// `plinth keeper --listen …` was a gateway. Who says nothing else wants to know what there is.
fn wordless(words: Vec<OsString>) -> Vec<OsString> {
    let known = WORDLESS
        .iter()
        .find(|(system, _)| starts_with(&words, &[*system]));
    let has_none = words.get(1).is_some_and(|word| {
        let word = word.to_str().unwrap_or_default();
        word.starts_with('-') && !["-h", "--help"].contains(&word)
    });
    // Who writes a flag before the command is told so.
    let names_command = |word: &OsString| OF_WORDLESS.iter().any(|name| word == name);
    let has_none = has_none && !words[1..].iter().any(names_command);
    match known {
        Some((system, word)) if has_none => {
            [owned(&[*system, *word]), words[1..].to_vec()].concat()
        }
        _ => words,
    }
}

/// `plinth delos status SERVICE` named the service by its place.
fn on_service(words: Vec<OsString>) -> Vec<OsString> {
    let [system, command, rest @ ..] = &words[..] else {
        return words;
    };
    let is_one = system == "delos" && ON_SERVICES.iter().any(|name| command == name);
    let first = rest.first().and_then(|word| word.to_str());
    // Behind the name of an operation stands an object, as it does behind no name of a service.
    let names_operation = rest.get(1).and_then(|word| word.to_str());
    let names_operation = names_operation.is_some_and(|word| word.starts_with('{'));
    let is_by_place = first.is_some_and(|word| !word.starts_with('-')) && !names_operation;
    let names_it = |word: &OsString| {
        let word = word.to_str().unwrap_or_default();
        word.starts_with("-C") || word.starts_with("--cluster-file")
    };
    if !is_one || !is_by_place || rest.iter().any(names_it) {
        return words;
    }
    [&words[..2], &owned(&["-C"]), rest].concat()
}

/// `plinth keeper bench run --json FILE` wrote a file. The command has no words but those behind flags.
fn to_file(mut words: Vec<OsString>) -> Vec<OsString> {
    const FORMER: &str = "--json";
    const NOW: &str = "--json-file";
    if !starts_with(&words, &["keeper", "bench", "run"]) {
        return words;
    }
    for at in 0..words.len() {
        let next = words.get(at + 1).and_then(|word| word.to_str());
        let has_file = next.is_some_and(|word| !word.starts_with('-'));
        let word = words[at].to_string_lossy();
        if word == FORMER && has_file {
            words[at] = NOW.into();
        } else if let Some(file) = word.strip_prefix("--json=") {
            words[at] = format!("{NOW}={file}").into();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<OsString> {
        let words = format!("plinth {text}");
        words.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    #[cfg(all(
        feature = "keeper",
        feature = "sim",
        feature = "farm",
        feature = "delos"
    ))]
    fn who_uses_former_words_is_told_so_in_one_line() {
        for (said, parts) in [
            (
                "sim run --seed 1",
                Some(["`plinth sim' is `plinth tools sim' now", ""]),
            ),
            ("table -C a cli", None),
            (
                "keeper --listen a",
                Some(["`plinth keeper' is `plinth keeper server' now", ""]),
            ),
            (
                "dev --farm 3 --durable",
                Some([
                    "`plinth dev --farm' is `plinth farm dev --machines' now",
                    "",
                ]),
            ),
            (
                "delos status s",
                Some([
                    "`plinth delos status' is `plinth delos status -C' now",
                    "release more",
                ]),
            ),
            (
                "server --listen a --metrics=b",
                Some(["`--metrics' is `--pages' now", ""]),
            ),
            (
                "keeper server --admin b",
                Some(["`--admin' is `--pages' now", ""]),
            ),
            ("keeper server --tls_ca_file b", None),
            ("server --machine a --pages b", None),
            ("tools sim run --seed 1", None),
            ("keeper", None),
            ("delos status s --json", None),
        ] {
            let (said, now) = (line(said), translated(line(said)));
            let told = notice(&crate::program(), &said, &now);
            match (told, parts) {
                (None, None) => {}
                (Some(told), Some(parts)) => {
                    assert!(parts.iter().all(|part| told.contains(part)), "{told}");
                    assert_eq!(told.lines().count(), 1);
                }
                (told, parts) => panic!("{said:?}: {told:?}, {parts:?}"),
            }
        }
    }

    #[test]
    fn a_former_command_line_is_said_as_it_is_now() {
        for (former, now) in [
            ("server --listen a", "server --listen a"),
            ("sim run --seed 1", "tools sim run --seed 1"),
            ("keeper --listen a", "keeper server --listen a"),
            ("keeper", "keeper"),
            ("table", "table"),
            ("keeper --help", "keeper --help"),
            ("keeper import --from a", "keeper import --from a"),
            ("table --exec x", "table cli --exec x"),
            ("table serve --data-dir d", "table server --data-dir d"),
            (
                "table --connect a --exec x",
                "table cli --connect a --exec x",
            ),
            ("bench keeper --server a=b", "keeper bench run --server a=b"),
            (
                "bench keeper --json f --keep",
                "keeper bench run --json-file f --keep",
            ),
            (
                "keeper bench run --json=f",
                "keeper bench run --json-file=f",
            ),
            (
                "keeper bench run --json --keep",
                "keeper bench run --json --keep",
            ),
            ("bench table f", "bench scale f"),
            ("dev --farm 3 --durable", "farm dev --machines 3 --durable"),
            (
                "dev --data-dir d --farm=3",
                "farm dev --data-dir d --machines=3",
            ),
            ("dev --data-dir d", "dev --data-dir d"),
            ("top --delos s --once", "delos top --cluster-file s --once"),
            ("delos status s --json", "delos status -C s --json"),
            ("delos call -C s get {}", "delos call -C s get {}"),
            ("delos call s get {}", "delos call -C s get {}"),
            ("delos dev s --kind lock", "delos dev s --kind lock"),
            ("delos call holder {}", "delos call holder {}"),
            ("", ""),
        ] {
            assert_eq!(translated(line(former)), line(now), "{former}");
        }
    }
}
