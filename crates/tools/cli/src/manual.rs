//! `plinth tools completions` and `plinth tools man`: what a shell and `man` know of the command line. Packages
//! install both.

use crate::completions;
use clap::Command;
use clap::builder::Resettable;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use plinth_terminal::{Outcome, examples};
use std::io::Write;
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

#[derive(clap::Args, Debug)]
pub struct ManArguments {
    /// Directory for the pages; created if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints the script that completes the words of `program` in a shell.
///
/// # Errors
/// Standard output cannot be written to.
pub fn print_completions(program: Command, arguments: &CompletionsArguments) -> Outcome {
    let written = std::io::stdout().write_all(&script(program, &arguments.shell));
    match written {
        // The reader has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| format!("standard output: {error}")),
    }
}

/// The command without those below it that no page shows. The library of scripts offers them otherwise, and a command
/// cannot be taken away from another: whatever has one is made anew, with what a script needs.
pub fn without_hidden(command: Command) -> Command {
    let command = command.mut_subcommands(without_hidden);
    if !command.get_subcommands().any(Command::is_hide_set) {
        return command;
    }
    let shown = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    // The library wants a name for ever. The process ends when the script is printed.
    let name: &'static str = command.get_name().to_owned().leak();
    Command::new(name)
        .about(command.get_about().cloned().unwrap_or_default())
        .args(command.get_arguments().cloned())
        .groups(command.get_groups().cloned())
        .subcommands(shown.cloned().collect::<Vec<_>>())
}

fn script(mut program: Command, shell: &str) -> Vec<u8> {
    let shell: Shell = shell.parse().expect("the flag takes no others");
    program = without_hidden(program);
    completions::script(&mut program, shell)
}

/// Writes a page of the manual for `program` and each of its commands: plinth.1, plinth-server.1 and so on.
///
/// # Errors
/// The directory cannot be made or written to.
pub fn man(program: Command, arguments: &ManArguments) -> Outcome {
    let directory = &arguments.directory;
    let version = program.get_version().unwrap_or_default();
    let source = format!("{} {version}", program.get_name());
    let mut all = program.disable_help_subcommand(true);
    // Gives each command its whole name, such as plinth-server.
    all.build();
    let written = std::fs::create_dir_all(directory).and_then(|()| {
        let mut left = vec![all];
        while let Some(command) = left.pop() {
            let below = command
                .get_subcommands()
                .filter(|below| !below.is_hide_set());
            left.extend(below.cloned());
            let name = Man::new(command.clone()).get_filename();
            std::fs::write(directory.join(name), page(command, &source)?)?;
        }
        Ok(())
    });
    written.map_err(|error| format!("{}: {error}; choose another directory", directory.display()))
}

/// A page of the manual. The library has no section for examples.
fn page(command: Command, source: &str) -> std::io::Result<Vec<u8>> {
    let examples = examples::of(&command);
    let rest = match examples.is_empty() {
        true => command,
        false => command.after_help(Resettable::Reset),
    };
    let mut page = Vec::new();
    Man::new(rest).source(source).render(&mut page)?;
    if examples.is_empty() {
        return Ok(page);
    }
    let mut section = Roff::new();
    section.control("SH", ["EXAMPLES"]);
    for (call, words) in examples {
        section.control("TP", []);
        section.text([bold(call)]);
        section.text([roman(words)]);
    }
    section.to_writer(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands, and what of theirs a shell completes: words that no type of the library knows.
    const OFFERING: [(&str, &[&str]); 12] = [
        ("dev", &["replication", "engine", "kind"]),
        ("server", &["class", "engine", "client_auth"]),
        ("open", &["whom"]),
        ("derive", &["whom"]),
        ("run", &["workload", "workloads", "scenario"]),
        ("hunt", &["scenario"]),
        ("create", &["kind"]),
        ("bench", &["parts"]),
        ("tpcc", &["policy", "opacity"]),
        ("ycsb", &["policy", "mix"]),
        ("failures", &["kill"]),
        ("completions", &["shell"]),
    ];

    /// Names of the pages of a command and of those below it.
    fn pages_of(command: &Command, name: &str, names: &mut Vec<String>) {
        names.push(format!("{name}.1"));
        for below in command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
        {
            pages_of(below, &format!("{name}-{}", below.get_name()), names);
        }
    }

    #[test]
    fn each_shell_gets_a_script_that_knows_every_command() {
        for shell in ["bash", "zsh", "fish"] {
            let script = script(crate::program(), shell);
            let script = String::from_utf8(script).expect("a text");
            for command in crate::program().get_subcommands() {
                assert!(
                    script.contains(command.get_name()),
                    "{shell}: {}",
                    command.get_name()
                );
            }
        }
    }

    #[test]
    fn no_shell_offers_a_command_that_no_page_shows() {
        fn walk(command: &Command, path: &str, hidden: &mut Vec<String>, shown: &mut Vec<String>) {
            for below in command.get_subcommands() {
                let path = format!("{path} {}", below.get_name());
                match below.is_hide_set() {
                    true => hidden.push(path),
                    false => {
                        shown.push(path.clone());
                        walk(below, &path, hidden, shown);
                    }
                }
            }
        }
        let (mut hidden, mut shown) = (Vec::new(), Vec::new());
        walk(&crate::program(), "", &mut hidden, &mut shown);
        let (mut none, mut offered) = (Vec::new(), Vec::new());
        walk(
            &without_hidden(crate::program()),
            "",
            &mut none,
            &mut offered,
        );
        assert_eq!(offered, shown);
        assert_eq!(none, Vec::<String>::new());
        for command in hidden {
            let name = command.split(' ').next_back().expect("a name");
            for shell in ["bash", "zsh", "fish"] {
                let script = script(crate::program(), shell);
                let script = String::from_utf8(script).expect("a text");
                let mut words = script.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                assert!(!words.any(|word| word == name), "{shell}: {command}");
            }
        }
    }

    #[test]
    fn each_word_that_a_shell_offers_for_a_flag_is_taken() {
        let mut left = vec![crate::program()];
        let mut offering = std::collections::BTreeSet::new();
        while let Some(command) = left.pop() {
            for flag in command.get_arguments() {
                let name = format!("{} {}", command.get_name(), flag.get_id());
                let parser = flag.get_value_parser().clone();
                let alone = clap::Arg::new("value").value_parser(parser);
                let alone = Command::new("alone").arg(alone);
                for word in flag.get_possible_values() {
                    let taken = alone
                        .clone()
                        .try_get_matches_from(["alone", word.get_name()]);
                    assert!(taken.is_ok(), "{name}: {}", word.get_name());
                    offering.insert(name.clone());
                }
            }
            left.extend(command.get_subcommands().cloned());
        }
        for (command, flags) in OFFERING {
            for flag in flags {
                assert!(
                    offering.contains(&format!("{command} {flag}")),
                    "{command} {flag}"
                );
            }
        }
    }

    #[test]
    fn every_command_has_a_page_of_the_manual_that_says_what_it_does() {
        let directory = std::env::temp_dir().join(format!("plinth-man-{}", std::process::id()));
        let arguments = ManArguments {
            directory: directory.join("man1"),
        };
        man(crate::program(), &arguments).expect("can be written");
        let mut expected = Vec::new();
        pages_of(&crate::program(), "plinth", &mut expected);
        expected.sort();
        let entries = std::fs::read_dir(&arguments.directory).expect("it was made");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a text")
        };
        let mut found: Vec<String> = entries.map(name).collect();
        found.sort();
        assert_eq!(found, expected);
        let server = arguments.directory.join("plinth-server.1");
        let server = std::fs::read_to_string(server).expect("a text");
        assert!(server.contains("Run one server process"), "{server}");
        let version = concat!("plinth ", env!("CARGO_PKG_VERSION"));
        assert!(server.contains(version), "{server}");
        assert!(server.contains("PLINTH_CLUSTER_FILE"), "{server}");
        let (_, examples) = server.split_once(".SH EXAMPLES").expect("the section");
        assert!(examples.contains("plinth server"), "{examples}");
        assert!(!server.contains("EXTRA"), "{server}");
        std::fs::remove_dir_all(&directory).expect("it is there");
    }
}
