//! The rules of the command line (docs/commands.md), and the table of all its pages there.

use clap::{Arg, ArgAction, Command};
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
