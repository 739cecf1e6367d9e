//! The samples of configuration files.

use plinth_terminal::configuration::{CONFIG, ONCE, parse};
use std::collections::BTreeSet;
use toml::de::DeTable;

/// The settings of a sample, which are comments there: `#name = value`, while a text has a blank behind the `#`.
fn settings(sample: &str) -> String {
    let lines = sample.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if setting.starts_with(|c: char| c.is_ascii_lowercase()) => setting,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_samples_have_every_flag_with_a_value_that_it_takes_and_its_default() {
    for (name, sample) in [
        (
            "server",
            include_str!("../../../../docs/samples/server.toml"),
        ),
        (
            "keeper server",
            include_str!("../../../../docs/samples/keeper.toml"),
        ),
        (
            "delos server",
            include_str!("../../../../docs/samples/delos.toml"),
        ),
        (
            "farm server",
            include_str!("../../../../docs/samples/farm.toml"),
        ),
        (
            "table server",
            include_str!("../../../../docs/samples/table.toml"),
        ),
    ] {
        assert!(!sample.lines().any(|line| line.len() > 119), "{name}");
        let program = crate::program();
        let mut command = &program;
        for word in name.split(' ') {
            command = command.find_subcommand(word).expect("there is one");
        }
        parse(command, sample).unwrap_or_else(|(line, what)| panic!("{name}:{line}: {what}"));
        let text = settings(sample);
        let entries = parse(command, &text);
        let entries = entries.unwrap_or_else(|(line, what)| panic!("{name}:{line}: {what}"));
        let table = DeTable::parse(&text).expect("valid");
        let there: BTreeSet<&str> = table
            .get_ref()
            .keys()
            .map(|name| &**name.get_ref())
            .collect();
        let flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
        let flags = flags.filter_map(|flag| flag.get_long());
        let is_entry = |name: &&str| *name != CONFIG && *name != "help" && !ONCE.contains(name);
        assert_eq!(there, flags.filter(is_entry).collect(), "{name}");
        for entry in entries {
            if let [default] = entry.flag.get_default_values() {
                let default = default.to_str().expect("a text");
                let shown = format!("--{}={default}", entry.flag.get_long().expect("it has one"));
                assert_eq!(entry.arguments, [shown]);
            }
        }
    }
}
