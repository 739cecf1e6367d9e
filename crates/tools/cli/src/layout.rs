//! The first page of help: the commands, by what a person wants.

use clap::Command;

/// A heading, and rows below it: commands, and what they are for.
const GROUPS: [(&str, &[(&[&str], &str)]); 5] = [
    (
        "Try it",
        &[(
            &["demo", "dev"],
            "Crash a cluster, check it; run one of your own",
        )],
    ),
    (
        "Use a cluster",
        &[(
            &["cli", "load", "dump", "copy", "stream"],
            "A shell; files of pairs; databases; changes",
        )],
    ),
    (
        "Operate a cluster",
        &[
            (
                &["server", "status", "top"],
                "Run a server; show the state; watch the load",
            ),
            (
                &["keys", "token"],
                "Who may do what; grants of a part to clients",
            ),
            (&["bench"], "Measure how fast a cluster is"),
        ],
    ),
    (
        "Other systems",
        &[
            (&["keeper"], "ZooKeeper's clients on a cluster"),
            (
                &["delos", "table"],
                "Replicated services on a log; tables on them",
            ),
            (&["farm"], "Transactions in the memory of several machines"),
        ],
    ),
    (
        "Develop it",
        &[(&["tools"], "The simulator, completions, manual pages")],
    ),
];

/// Of the names, with two blanks before their texts at least.
const WIDTH: usize = 31;

/// Gives `program` its first page.
pub fn laid_out(program: Command) -> Command {
    let mut page = String::from("{about}\n\nUsage: plinth COMMAND, or plinth SYSTEM COMMAND\n\n");
    for (heading, rows) in GROUPS {
        let rows: String = rows
            .iter()
            .filter_map(|(names, about)| row(&program, names, about))
            .collect();
        if !rows.is_empty() {
            page += &format!("{heading}:\n{rows}");
        }
    }
    program.help_template(page.trim_end().to_owned() + "{after-help}\n")
}

/// The row of the commands that this build has; `None` if it has none of them.
fn row(program: &Command, names: &[&str], about: &str) -> Option<String> {
    let has = |name: &&&str| program.find_subcommand(name).is_some();
    let names: Vec<&str> = names.iter().filter(has).copied().collect();
    let line = format!("  {:WIDTH$}{about}\n", names.join(", "));
    (!names.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_once_on_the_first_page_and_the_page_fits_a_screen() {
        let program = crate::program();
        let mut names: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, rows)| *rows)
            .flat_map(|(names, _)| *names)
            .copied()
            .collect();
        names.sort_unstable();
        let mut known: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
        known.sort_unstable();
        assert_eq!(names, known);
        let page = crate::program().render_help().to_string();
        let page = crate::help::wrapped(&page, 80);
        // Of 24 lines, the next prompt has one.
        assert!(page.lines().count() < 24, "{page}");
        for line in page.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
