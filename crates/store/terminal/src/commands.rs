//! The list of commands. A command registers itself in one line, where its code is; a program has those that are
//! linked.

use crate::{Outcome, system_errors};
use clap::{ArgMatches, Command};
use std::sync::atomic::{AtomicBool, Ordering};

/// A word of the command line: a command, or a system with commands of its own.
pub struct Word {
    pub name: &'static str,
    /// One line for the list of commands.
    pub about: &'static str,
    /// Gives the command its flags, or its commands.
    pub fill: fn(Command) -> Command,
    pub run: fn(&ArgMatches) -> Outcome,
}

impl Word {
    pub fn command(&self) -> Command {
        (self.fill)(Command::new(self.name)).about(self.about)
    }
}

#[doc(hidden)]
#[linkme::distributed_slice]
pub static WORDS: [Word];

/// `command!("load", "Load pairs from a file", load::Arguments => load::run)`: `Arguments` derives [`clap::Args`], and
/// `run` takes them and gives an [`Outcome`].
#[macro_export]
macro_rules! command {
    ($name:literal, $about:literal, $arguments:ty => $run:path) => {
        const _: () = {
            #[$crate::commands::macro_support::linkme::distributed_slice($crate::commands::WORDS)]
            #[linkme(crate = $crate::commands::macro_support::linkme)]
            static WORD: $crate::commands::Word = $crate::commands::Word {
                name: $name,
                about: $about,
                fill: <$arguments as $crate::commands::macro_support::clap::Args>::augment_args,
                run: |matches| {
                    use $crate::commands::macro_support::clap::FromArgMatches;
                    match <$arguments>::from_arg_matches(matches) {
                        Ok(arguments) => $run(arguments),
                        Err(error) => error.exit(),
                    }
                },
            };
        };
    };
}

/// The arguments of a command that has commands of its own, and nothing else.
#[derive(clap::Args, Debug)]
pub struct Commands<C: clap::Subcommand> {
    #[command(subcommand)]
    pub command: C,
}

/// What the macro needs from this crate's dependencies; not for direct use.
#[doc(hidden)]
pub mod macro_support {
    pub use {clap, linkme};
}

/// All words that are linked, by their names.
pub fn words() -> Vec<&'static Word> {
    let mut words: Vec<&Word> = WORDS.iter().collect();
    words.sort_by_key(|word| word.name);
    words
}

/// `program` with all commands.
pub fn fill(program: Command) -> Command {
    program.subcommands(words().iter().map(|word| word.command()))
}

/// Runs the command that `matches` of a filled program name.
pub fn run(matches: &ArgMatches) -> Outcome {
    let (name, matches) = matches.subcommand().expect("a command is required");
    let word = words().into_iter().find(|word| word.name == name);
    (word.expect("the program has these commands").run)(matches)
}

/// Ends the process as one whose flags are wrong, where that is more than a parser of one of them can see.
pub fn wrong_usage(line: &str) -> ! {
    let kind = clap::error::ErrorKind::MissingRequiredArgument;
    clap::Error::raw(kind, format!("{line}\n")).exit()
}

static IS_FOR_PROGRAMS: AtomicBool = AtomicBool::new(false);

/// Says that a program reads what this process prints, also on standard error.
pub fn set_for_programs() {
    IS_FOR_PROGRAMS.store(true, Ordering::Relaxed);
}

/// Whether a program reads it: then nobody needs to be told why it takes long.
pub fn is_for_programs() -> bool {
    IS_FOR_PROGRAMS.load(Ordering::Relaxed)
}

/// Whether the command prints JSON. (To some, `--json` is a file.)
pub fn prints_json(matches: &ArgMatches) -> bool {
    let asked = matches.try_get_one::<bool>("json");
    let inner = || matches.subcommand().map(|(_, matches)| matches);
    matches!(asked, Ok(Some(true))) || inner().is_some_and(prints_json)
}

/// Prints the line about what has failed: as an object to programs. An empty one was printed already.
pub fn print_error(line: &str) {
    let line = &system_errors::told(line)[..];
    match (line.is_empty(), is_for_programs()) {
        (true, _) => {}
        (false, true) => crate::say!("{}", json_of_error(line)),
        (false, false) => crate::say!("plinth: {line}"),
    }
}

/// Prints what was done: a line for people, or with `--json` an object.
pub fn tell(json: bool, line: &str, object: &serde_json::Value) {
    match json {
        true => println!("{object}"),
        false => println!("{line}"),
    }
}

/// An error for programs that read JSON.
pub fn json_of_error(line: &str) -> String {
    serde_json::json!({ "error": line }).to_string()
}
