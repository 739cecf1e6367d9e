//! The binary `plinth`: servers, a shell, import and export of files, a demo, benchmarks, the simulator.
//!
//! This is a list of families of commands: each command registers itself where its code is
//! (`plinth_terminal::commands`), and a feature of this crate says whether a family is in the program.
//!
//! A command ends with success, or with one line that names the problem, its place, and a remedy. `main` prints that
//! line, or an object of JSON with it where results are JSON, and exits with 1, or with 130 if the user has
//! interrupted it. Wrong usage exits with 2.

mod absent;
mod completions;
mod foreign;
mod former;
#[cfg(all(
    test,
    feature = "tables",
    feature = "farm",
    feature = "bench",
    feature = "sim"
))]
mod grammar;
mod help;
mod hints;
mod layout;
mod manual;
mod marks;
#[cfg(all(test, feature = "keeper", feature = "tables", feature = "farm"))]
mod samples;
mod tools;
mod values;
mod version;

use plinth_commands as _;
#[cfg(feature = "delos")]
use plinth_delos_commands as _;
#[cfg(feature = "farm")]
use plinth_farm_commands as _;
#[cfg(feature = "keeper")]
use plinth_keeper_commands as _;

// The simulator has the services that are linked: this one, and those that the families bring. Whoever finds a failure
// prints a command for the program that has them all.
#[cfg(feature = "sim")]
use plinth_counter as _;

use clap::{Arg, ArgAction, Command};
use plinth_terminal::{
    allocator, commands, configuration, connect, interrupts, knobs, leavings, system_errors,
};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// What the program is, as the README begins.
const ABOUT: &str = "An ordered, transactional key-value store, ZooKeeper's protocol on it, replicated services on a \
     shared log, and transactions in memory";
/// Exit code of a command line that is none.
const WRONG_USAGE: u8 = 2;

/// What cannot be printed ends the process, and is no fault of its: without a word if the reader of standard output
/// has closed the pipe, as `head` does, and else with one line, as on a full disk, if that can be printed.
fn end_when_standard_output_does() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload_as_str().unwrap_or_default();
        if text.starts_with("failed printing to stderr: ") {
            leavings::remove();
            std::process::exit(1)
        }
        match text.strip_prefix("failed printing to stdout: ") {
            Some(why) if why.contains("Broken pipe") => {
                leavings::remove();
                std::process::exit(141) // as SIGPIPE in a shell
            }
            Some(why) => {
                leavings::remove();
                let line = system_errors::explained(&format!("standard output: {why}"));
                let _ = writeln!(std::io::stderr(), "plinth: {line}");
                std::process::exit(1)
            }
            None => tell(info),
        }
    }));
}

/// The command line, as this build has it.
fn program() -> Command {
    let program = Command::new("plinth")
        .version(env!("CARGO_PKG_VERSION"))
        .long_version(version::long())
        .about(ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(
            "`plinth help COMMAND' tells all of one, `plinth help keeper' or `help tools' what is behind it; -V \
            prints the version. Begin with `plinth dev --data-dir data' and then, in another terminal, `plinth cli -C \
            data/plinth.cluster'.",
        );
    let program = commands::fill(program);
    let program = layout::laid_out(values::with_kinds(taking_negative_numbers(program)));
    match cfg!(feature = "keeper") {
        true => program,
        // A process of this program would be started that it cannot be.
        false => program.mut_subcommand("dev", |dev| {
            dev.mut_arg("keeper_port", |port| port.hide(true))
        }),
    }
}

/// `--timeout -1` is about a value that is too low, not about a flag `-1`.
fn taking_negative_numbers(command: Command) -> Command {
    let takes = |flag: &Arg| matches!(flag.get_action(), ArgAction::Set | ArgAction::Append);
    let command = command.mut_args(|flag| match takes(&flag) && flag.get_long().is_some() {
        true => flag.allow_negative_numbers(true),
        false => flag,
    });
    command.mut_subcommands(taking_negative_numbers)
}

/// `plinth help COMMAND` is `plinth COMMAND --help`, which knows the word that is most like one that does not exist.
fn help_of(arguments: Vec<OsString>) -> Vec<OsString> {
    match &arguments[..] {
        [program, help, command @ ..]
            if help == "help" && command.first().is_some_and(|word| !is_flag(word)) =>
        {
            // `plinth help help` is the first page.
            let command = command.iter().filter(|word| *word != "help");
            let command = std::iter::once(program).chain(command).cloned();
            command.chain(["--help".into()]).collect()
        }
        _ => arguments,
    }
}

fn is_flag(word: &OsString) -> bool {
    word.to_string_lossy().starts_with('-')
}

fn main() -> ExitCode {
    allocator::keep_free_memory_for_a_while();
    end_when_standard_output_does();
    let said = help_of(std::env::args_os().collect());
    let arguments: Vec<OsString> = former::translated(said.clone());
    if let Some(line) = former::notice(&program(), &said, &arguments) {
        plinth_terminal::say!("plinth: {line}");
    }
    if let Some(line) = absent::line(&arguments) {
        plinth_terminal::say!("plinth: {line}");
        return ExitCode::from(WRONG_USAGE);
    }
    if knobs::are_asked_for(&arguments) {
        knobs::list();
        return ExitCode::SUCCESS;
    }
    let arguments = configuration::with_file(program(), arguments);
    let matches = arguments.map(|arguments| {
        let matches = marks::of_command(program()).try_get_matches_from(&arguments);
        matches.unwrap_or_else(|error| {
            help::exit(&hints::improved(error, &program(), &arguments));
        })
    });
    if matches.as_ref().is_ok_and(commands::prints_json) {
        commands::set_for_programs();
    }
    let outcome = matches.and_then(|matches| commands::run(&matches));
    match outcome.map_err(connect::with_hint) {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            commands::print_error(&line);
            ExitCode::from(interrupts::exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Here, since all systems are linked.
    #[test]
    fn the_alerts_ask_for_nothing_that_there_is_not() {
        let rules = include_str!("../../../../docs/monitoring/alerts.yml");
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let words = rules.split(|c| !is_name(c));
        let mut asked = 0;
        for word in words.filter(|word| word.starts_with("plinth_")) {
            let family = word.trim_end_matches("_bucket");
            let mut known = plinth_runtime::metric::families().into_iter();
            assert!(known.any(|known| known.name == family), "{word}");
            asked += 1;
        }
        assert!(asked > 30, "{asked}");
    }

    #[test]
    fn the_first_page_the_readme_and_the_packages_name_the_same_four_systems() {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let about = ABOUT.to_lowercase();
        for (name, text) in [
            ("README.md", include_str!("../../../../README.md")),
            ("Cargo.toml", include_str!("../Cargo.toml")),
        ] {
            assert!(words(text).to_lowercase().contains(&about), "{name}");
        }
        let architecture = words(include_str!("../../../../ARCHITECTURE.md"));
        let page = program().render_help().to_string();
        assert!(page.starts_with(ABOUT), "{page}");
        for system in [
            "key-value store",
            "ZooKeeper's protocol",
            "replicated services",
        ] {
            assert!(
                ABOUT.contains(system) && architecture.contains(system),
                "{system}"
            );
        }
    }

    #[test]
    fn help_about_a_command_is_its_page_and_a_word_that_is_none_is_answered_with_the_nearest() {
        let asked = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let words = former::translated(help_of(words));
            let answer = program().try_get_matches_from(words).expect_err(line);
            answer.to_string()
        };
        for (line, page) in [
            ("plinth help", "Try it:"),
            ("plinth help help", "Try it:"),
            ("plinth keeper help", "Usage: plinth keeper"),
            ("plinth help keeper help", "Usage: plinth keeper"),
            ("plinth help server", "Usage: plinth server"),
            ("plinth help keeper server", "Usage: plinth keeper server"),
            ("plinth help sim run", "Usage: plinth tools sim run"),
        ] {
            assert!(asked(line).contains(page), "{line}");
        }
        for (line, meant) in [
            ("plinth help sever", "'server'"),
            ("plinth help keeper sever", "'server'"),
            ("plinth help delos stats", "'status'"),
        ] {
            let answer = asked(line);
            assert!(
                answer.contains("similar") && answer.contains(meant),
                "{answer}"
            );
        }
    }

    #[test]
    fn a_value_that_is_no_good_is_named_with_those_that_are() {
        for (line, why) in [
            ("status --timeout -1", "-1 is not in 1..=86400"),
            ("status --timeout 0", "0 is not in 1..=86400"),
            ("dev --port -4500", "-4500 is not in 1..=65535"),
            ("dev --port 99999999999999999999", " is not in 1..=65535"),
            ("status -1", "unexpected argument '-1'"),
        ] {
            let words = line.split(' ');
            let answer = program().try_get_matches_from(std::iter::once("plinth").chain(words));
            let answer = answer.expect_err(line).to_string();
            assert!(answer.contains(why), "{line}: {answer}");
        }
    }

    #[test]
    fn the_command_line_is_consistent_and_every_flag_has_a_help_text() {
        program().debug_assert();
        let mut left = vec![program()];
        while let Some(command) = left.pop() {
            for argument in command.get_arguments() {
                let explained = argument.get_help().is_some() || argument.is_hide_set();
                assert!(explained, "{} {}", command.get_name(), argument.get_id());
            }
            left.extend(command.get_subcommands().cloned());
        }
    }
}
