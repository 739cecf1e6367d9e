//! Marks around what is typed: what the program prints has `word' everywhere. Texts of commands and flags are Markdown
//! in the sources, since they are also comments and pages, and the library has marks of its own.

use clap::builder::StyledStr;
use clap::{Arg, Command};

/// The command, whose pages have those marks.
pub fn of_command(mut command: Command) -> Command {
    for (text, set) in [
        (
            command.get_about().map(styled),
            Command::about as fn(Command, StyledStr) -> Command,
        ),
        (command.get_long_about().map(styled), Command::long_about),
        (command.get_after_help().map(styled), Command::after_help),
    ] {
        if let Some(text) = text {
            command = set(command, text);
        }
    }
    command.mut_args(of_flag).mut_subcommands(of_command)
}

fn of_flag(mut flag: Arg) -> Arg {
    if let Some(text) = flag.get_help().map(styled) {
        flag = flag.help(text);
    }
    if let Some(text) = flag.get_long_help().map(styled) {
        flag = flag.long_help(text);
    }
    flag
}

fn styled(text: &StyledStr) -> StyledStr {
    of_text(&text.ansi().to_string()).into()
}

/// The text, with `word' where it has Markdown.
pub fn of_text(text: &str) -> String {
    let lines = text.split('\n').map(of_line);
    lines.collect::<Vec<_>>().join("\n")
}

fn of_line(line: &str) -> String {
    let (mut told, mut rest) = (String::new(), line);
    while let Some((before, behind)) = rest.split_once('`') {
        told += before;
        told.push('`');
        // With the end of another mark between them they are no pair.
        let pair = behind
            .split_once('`')
            .filter(|(word, _)| word.matches('\'').count() % 2 == 0);
        rest = match pair {
            Some((word, behind)) => {
                told += word;
                told.push('\'');
                behind
            }
            None => behind,
        };
    }
    told + rest
}

/// An error of the library with its colours, which stand between its marks.
pub fn of_error(rendered: &str) -> String {
    rendered.replace("'\u{1b}[", "`\u{1b}[")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_markdown_gets_the_marks_that_all_have_and_others_stay() {
        for (text, told) in [
            ("`a` and `b c`", "`a' and `b c'"),
            ("`a' and `b'", "`a' and `b'"),
            ("`a' and `b`", "`a' and `b'"),
            ("run `cli --exec 'get a'`", "run `cli --exec 'get a''"),
            ("it's `a`", "it's `a'"),
            ("a `\nb`", "a `\nb`"),
            ("none", "none"),
        ] {
            assert_eq!(of_text(text), told);
        }
    }

    #[test]
    fn an_error_of_the_library_has_the_marks_that_all_have() {
        for (line, told) in [
            (
                "plinth status --jsno",
                "error: unexpected argument `--jsno' found\n",
            ),
            (
                "plinth status --timeout x",
                "error: invalid value `x' for `--timeout <SECONDS>'",
            ),
            (
                "plinth tools completions csh",
                "error: invalid value `csh' for `<SHELL>'",
            ),
            (
                "plinth frobnicate",
                "error: unrecognized subcommand `frobnicate'\n",
            ),
        ] {
            let error = crate::program().try_get_matches_from(line.split(' '));
            let error = error.expect_err(line);
            let shown = of_error(&error.render().ansi().to_string());
            let shown = crate::help::plain(&shown);
            assert!(shown.starts_with(told), "{shown}");
            assert!(!shown.contains(" '"), "{shown}");
        }
    }
}
