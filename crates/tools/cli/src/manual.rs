//! `plinth tools completions` and `plinth tools man`: what a shell and `man` know of the command line. Packages
//! install both.

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use plinth_terminal::Outcome;
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
pub fn completions(program: Command, arguments: &CompletionsArguments) -> Outcome {
    let written = std::io::stdout().write_all(&script(program, &arguments.shell));
    match written {
        // The reader has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| format!("standard output: {error}")),
    }
}

fn script(mut program: Command, shell: &str) -> Vec<u8> {
    let shell: Shell = shell.parse().expect("the flag takes no others");
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, name, &mut script);
    script
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
            Man::new(command).source(&source).generate_to(directory)?;
        }
        Ok(())
    });
    written.map_err(|error| format!("{}: {error}; choose another directory", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        std::fs::remove_dir_all(&directory).expect("it is there");
    }
}
