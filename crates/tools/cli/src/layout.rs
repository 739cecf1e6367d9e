//! The first page of help: the commands, by what a person wants.

use clap::Command;

/// A heading, and the commands below it.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Try it", &["demo", "dev"]),
    ("Use a cluster", &["cli", "load", "dump", "copy", "stream"]),
    (
        "Operate a cluster",
        &["server", "status", "top", "keys", "token", "bench"],
    ),
    (
        "Other systems (plinth SYSTEM --help lists what each has)",
        &["keeper", "delos", "table", "farm"],
    ),
    ("Develop it", &["tools"]),
];

/// A command whose line would be too long for the page, and a shorter one.
const SHORTER: [(&str, &str); 8] = [
    (
        "demo",
        "Load a file, crash the cluster three times, check every record",
    ),
    ("cli", "A shell; or statements from the command line"),
    (
        "keeper",
        "ZooKeeper's clients on a cluster; plinth dev --zookeeper-port tries it",
    ),
    ("delos", "Replicated services without a database"),
    (
        "copy",
        "Copy a database: from and to Plinth, FoundationDB, or by any libfdb_c",
    ),
    (
        "stream",
        "Records of changes, or of what was appended: make, follow, drop them",
    ),
    ("tools", "The simulator, completions, manual pages"),
    (
        "token",
        "Sign tokens: grants of a part of a database to clients",
    ),
];

const WIDTH: usize = 8;

/// Gives `program` its first page.
pub fn laid_out(program: Command) -> Command {
    let mut page = String::from("{about}\n\nUsage: plinth COMMAND\n       plinth SYSTEM COMMAND\n");
    for (heading, names) in GROUPS {
        let lines: String = names
            .iter()
            .filter_map(|name| line(&program, name))
            .collect();
        if !lines.is_empty() {
            page += &format!("\n{heading}:\n{lines}");
        }
    }
    page += "\nOptions:\n{options}{after-help}";
    program.help_template(page)
}

/// The line of a command; `None` if this build has it not.
fn line(program: &Command, name: &str) -> Option<String> {
    let command = program.find_subcommand(name)?;
    let about = command.get_about().map(ToString::to_string);
    let shorter = SHORTER.iter().find(|(of, _)| *of == name);
    let about = shorter.map_or(about.unwrap_or_default(), |(_, about)| (*about).to_owned());
    Some(format!("  {name:WIDTH$}{about}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_once_on_the_first_page_and_the_page_fits_a_screen() {
        let program = crate::program();
        let mut names: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        names.sort_unstable();
        let mut known: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
        known.sort_unstable();
        assert_eq!(names, known);
        let page = crate::program().render_help().to_string();
        assert!(page.lines().count() <= 40, "{page}");
        for line in page.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
