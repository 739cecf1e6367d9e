//! The rules of the command line (docs/commands.md), and the table of all its pages there.

use clap::{Arg, ArgAction, Command};
use plinth_terminal::examples;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/commands.md");
/// The table is behind this line of the page.
const MARK: &str = "<!-- written by the test `grammar` of the program; everything below -->\n";
const WRITE: &str = "PLINTH_WRITE_GENERATED=1 cargo test -p plinth-cli --bin plinth grammar";

/// Flags that came with other names, which mean the same everywhere now.
const FORMER: [&str; 4] = ["metrics", "admin", "seconds", "metrics-port"];

/// Words that every system has for the same thing, as far as it has that thing.
const SHARED: [&str; 7] = ["server", "dev", "cli", "status", "top", "bench", "demo"];

/// Flags whose value is another thing in other commands: there is no better name for either.
const SEVERAL_MEANINGS: [&str; 8] = [
    "backups",
    "cluster-file",
    "for",
    "from",
    "policy",
    "replication",
    "theta",
    "to",
];

/// The whole name of a page, and the page; the first is that of the program itself.
fn pages() -> Vec<(String, Command)> {
    let mut left = vec![("plinth".to_owned(), crate::program())];
    let mut pages = Vec::new();
    while let Some((name, command)) = left.pop() {
        let below = command
            .get_subcommands()
            .filter(|below| !below.is_hide_set());
        let mut below: Vec<_> = below
            .map(|below| (format!("{name} {}", below.get_name()), below.clone()))
            .collect();
        below.reverse();
        left.extend(below);
        pages.push((name, command));
    }
    pages
}

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|flag| !flag.is_hide_set())
}

/// The name of a flag's value; `None` if it takes none.
fn value(flag: &Arg) -> Option<String> {
    let takes = !matches!(flag.get_action(), ArgAction::SetTrue | ArgAction::Count);
    let names = flag.get_value_names().unwrap_or_default();
    takes.then(|| {
        names
            .iter()
            .map(|name| name.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    })
}

fn said(flag: &Arg) -> String {
    let value = value(flag)
        .map(|value| format!(" {value}"))
        .unwrap_or_default();
    match (flag.get_short(), flag.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}, --{long}{value}`"),
        (None, Some(long)) => format!("`--{long}{value}`"),
        _ => format!("`{}`", value.trim()),
    }
}

/// The table, in the order of the first page.
fn table() -> String {
    let mut text = String::new();
    for (name, command) in pages().into_iter().skip(1) {
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        text += &format!("\n### {name}\n\n{about}.\n");
        let own: Vec<&Arg> = shown(&command).collect();
        let (tls, rest): (Vec<&Arg>, Vec<&Arg>) = own
            .into_iter()
            .partition(|flag| flag.get_help_heading() == Some("TLS"));
        let mut flags: Vec<String> = rest.into_iter().map(said).collect();
        flags.extend((!tls.is_empty()).then(|| "the flags of TLS".to_owned()));
        if !flags.is_empty() {
            text += &format!("\n{}\n", flags.join(" · "));
        }
        let examples = examples::of(&command).into_iter();
        let examples: String = examples
            .map(|(call, words)| format!("- `{call}`: {words}\n"))
            .collect();
        text += &format!("\n{examples}");
    }
    text
}

#[test]
fn the_table_of_the_page_has_every_command_and_flag() {
    let page = std::fs::read_to_string(PAGE).expect("a page");
    let (above, below) = page.split_once(MARK).expect("a mark");
    let table = table();
    if below != table && std::env::var_os("PLINTH_WRITE_GENERATED").is_some() {
        std::fs::write(PAGE, format!("{above}{MARK}{table}")).expect("can be written");
        return;
    }
    assert!(
        below == table,
        "docs/commands.md: the table is not that of the program; write it: {WRITE}"
    );
}

/// The words of a line, as a shell splits it, and what stands outside of words: `|`, `>`, `;` and the like.
#[derive(PartialEq, Eq, Debug)]
enum Token {
    Word(String),
    Sign(char),
}

fn split(line: &str) -> Vec<Token> {
    let (mut tokens, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            None if letter == '\'' || letter == '"' => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            None if " |<>;&".contains(letter) => {
                tokens.extend(word.take().map(Token::Word));
                tokens.extend((letter != ' ').then_some(Token::Sign(letter)));
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    assert_eq!(quote, None, "{line}: a quote is not closed");
    tokens.extend(word.map(Token::Word));
    tokens
}

/// The calls of this program in a line: between pipes, without files to which it goes.
fn calls(line: &str) -> Vec<Vec<String>> {
    let (mut calls, mut is_file) = (vec![Vec::new()], false);
    for token in split(line) {
        match token {
            Token::Sign(sign) if sign == '<' || sign == '>' => is_file = true,
            Token::Sign(_) => calls.push(Vec::new()),
            Token::Word(_) if is_file => is_file = false,
            Token::Word(word) => calls.last_mut().expect("one").push(word),
        }
    }
    calls.retain(|words| words.first().is_some_and(|word| word == "plinth"));
    calls
}

#[test]
fn a_line_is_split_as_a_shell_does() {
    for (line, expected) in [
        (
            "plinth cli --exec 'set a b; get a'",
            vec![vec!["plinth", "cli", "--exec", "set a b; get a"]],
        ),
        ("plinth dump | gzip > a.gz", vec![vec!["plinth", "dump"]]),
        (
            "seq 9 | plinth stream append s",
            vec![vec!["plinth", "stream", "append", "s"]],
        ),
        (
            r#"plinth a "" '{"b":1}' > c d"#,
            vec![vec!["plinth", "a", "", r#"{"b":1}"#, "d"]],
        ),
        ("ls", vec![]),
    ] {
        assert_eq!(calls(line), expected, "{line}");
    }
}

#[test]
fn every_page_ends_with_examples_that_can_be_typed() {
    const EXAMPLES: std::ops::RangeInclusive<usize> = 1..=3;
    const COLUMNS: usize = 98;
    for (name, command) in pages().into_iter().skip(1) {
        let examples = examples::of(&command);
        assert!(EXAMPLES.contains(&examples.len()), "{name}: {examples:?}");
        let mut is_used = false;
        for (line, words) in examples {
            assert!(line.chars().count() <= COLUMNS, "{name}: {line} is wrapped");
            assert!(
                !words.is_empty() && !words.ends_with('.'),
                "{name}: {words}"
            );
            let calls = calls(&line);
            assert!(
                !calls.is_empty(),
                "{name}: {line} does not call the program"
            );
            for call in calls {
                is_used |= format!("{} ", call.join(" ")).starts_with(&format!("{name} "));
                let parsed = crate::program().try_get_matches_from(&call);
                if let Err(refused) = parsed {
                    panic!("{name}: {line}: {refused}");
                }
            }
        }
        assert!(is_used, "{name}: no example calls it");
    }
}

#[test]
fn a_flag_takes_the_same_thing_in_every_command() {
    let mut values: BTreeMap<String, BTreeMap<Option<String>, String>> = BTreeMap::new();
    for (name, command) in pages() {
        // Of the simulator, seconds are not those of a clock.
        if name.starts_with("plinth tools ") {
            continue;
        }
        for flag in shown(&command) {
            let Some(long) = flag.get_long() else {
                continue;
            };
            assert!(
                !FORMER.contains(&long),
                "{name} --{long}: the flag has another name now"
            );
            values
                .entry(long.to_owned())
                .or_default()
                .insert(value(flag), name.clone());
        }
    }
    let several: Vec<_> = values
        .iter()
        .filter(|(_, values)| values.len() > 1)
        .collect();
    let names: Vec<&str> = several.iter().map(|(long, _)| &long[..]).collect();
    assert_eq!(names, SEVERAL_MEANINGS, "{several:#?}");
}

#[test]
fn the_cluster_is_always_behind_a_large_c() {
    for (name, command) in pages() {
        for flag in shown(&command) {
            let long = flag.get_long().unwrap_or_default();
            let is_cluster =
                long == "cluster-file" || (long == "connect" && name.starts_with("plinth table"));
            assert_eq!(flag.get_short() == Some('C'), is_cluster, "{name} --{long}");
        }
    }
}

#[test]
fn a_system_has_the_words_of_the_others_for_the_same_things() {
    let program = crate::program();
    let words = |command: &Command| -> BTreeSet<String> {
        command
            .get_subcommands()
            .map(|below| below.get_name().to_owned())
            .collect()
    };
    let all = words(&program);
    for word in SHARED {
        assert!(all.contains(word), "the store has no `{word}'");
    }
    for system in ["keeper", "delos", "table", "farm"] {
        let own = words(program.find_subcommand(system).expect("a system"));
        assert!(own.contains("server"), "{system} has no server");
        let other = ["serve", "shell", "run", "watch", "show", "start"];
        let wrong: Vec<_> = own
            .iter()
            .filter(|word| other.contains(&&word[..]))
            .collect();
        assert!(
            wrong.is_empty(),
            "{system}: {wrong:?} has another word elsewhere"
        );
    }
}

#[test]
fn a_server_has_the_flags_of_all_servers() {
    for system in [
        "server",
        "keeper server",
        "delos server",
        "farm server",
        "table server",
    ] {
        let mut program = &crate::program();
        for word in system.split(' ') {
            program = program.find_subcommand(word).expect("there is one");
        }
        let flags: BTreeSet<&str> = shown(program).filter_map(Arg::get_long).collect();
        for flag in [
            "listen",
            "pages",
            "knob",
            "trace",
            "audit",
            "config",
            "tls-certificate-file",
        ] {
            // Nothing of what a server of tables does is in such a record.
            if (system, flag) != ("table server", "audit") {
                assert!(flags.contains(flag), "{system} has no --{flag}");
            }
        }
    }
}
