//! Help pages that fit a terminal. The library that renders them would need another one to wrap lines.

use clap::error::{Error, ErrorKind};
use plinth_terminal::{examples, tls, watching};
use std::io::IsTerminal;

const COLUMNS: usize = 100;
/// Narrower terminals break lines of pages themselves.
const COLUMNS_MIN: usize = 60;
/// Where the text goes on if it began so far to the right that little room is left.
const COLUMN_MAX: usize = 50;
/// No text of two columns begins further left.
const INDENT: usize = 10;

/// Ends the program as the library would, with a page that is wrapped.
pub fn exit(error: &Error) -> ! {
    let is_error = match error.kind() {
        ErrorKind::DisplayHelp => false,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        _ => error.exit(),
    };
    let is_terminal = match is_error {
        true => std::io::stderr().is_terminal(),
        false => std::io::stdout().is_terminal(),
    };
    let page = match is_terminal && std::env::var_os("NO_COLOR").is_none() {
        true => error.render().ansi().to_string(),
        false => error.render().to_string(),
    };
    let columns = match is_terminal {
        true => columns_of(watching::columns()),
        false => COLUMNS,
    };
    let page = wrapped(&arranged(&page), columns);
    match is_error {
        true => eprint!("{page}"),
        false => print!("{page}"),
    }
    std::process::exit(error.exit_code())
}

/// The page with its examples before the flags of TLS: these are many, the same everywhere, and seldom asked for.
fn arranged(page: &str) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let of_heading = |heading: &str| {
        let is_it = |line: &&str| {
            visible(line)
                .iter()
                .map(|(_, letter)| *letter)
                .eq(heading.chars())
        };
        lines.iter().position(is_it)
    };
    let tls = of_heading(&format!("{}:", tls::HEADING));
    match (tls, of_heading(examples::HEADING)) {
        (Some(tls), Some(examples)) if tls < examples => {
            let (before, behind) = (&lines[..tls], &lines[examples..]);
            let moved = lines[tls..examples].join("\n");
            let above = [before, behind].concat().join("\n");
            format!("{above}\n\n{}\n", moved.trim_end())
        }
        _ => page.to_owned(),
    }
}

/// The columns of a page in a terminal with so many.
fn columns_of(terminal: Option<u16>) -> usize {
    terminal.map_or(COLUMNS, |columns| {
        usize::from(columns).clamp(COLUMNS_MIN, COLUMNS)
    })
}

/// The page without lines that are too long, where they have blanks.
fn wrapped(page: &str, columns: usize) -> String {
    let mut all = String::new();
    for line in page.lines() {
        wrap(line, columns, &mut all);
    }
    all
}

fn wrap(line: &str, columns: usize, all: &mut String) {
    let column = text_column(line);
    let mut rest = line;
    let mut indent = 0;
    while let Some(at) = break_at(rest, columns - indent) {
        all.extend(std::iter::repeat_n(' ', indent));
        all.push_str(&rest[..at]);
        all.push('\n');
        rest = rest[at..].trim_start();
        indent = column;
    }
    all.extend(std::iter::repeat_n(' ', indent));
    all.push_str(rest);
    all.push('\n');
}

/// The column at which a line that follows has to begin: below the text that stands behind two blanks or more.
fn text_column(line: &str) -> usize {
    let letters = visible(line);
    let is_blank = |at: usize| letters.get(at).is_some_and(|(_, letter)| *letter == ' ');
    let first = (0..letters.len()).find(|at| !is_blank(*at)).unwrap_or(0);
    if first >= INDENT {
        return first;
    }
    let text = (first..letters.len())
        .filter(|at| !is_blank(*at) && is_blank(at.wrapping_sub(1)) && is_blank(at.wrapping_sub(2)))
        .find(|at| *at > first);
    text.filter(|at| *at <= COLUMN_MAX).unwrap_or(INDENT)
}

/// The letters with their places. What sets a colour takes no room.
fn visible(line: &str) -> Vec<(usize, char)> {
    let mut is_escape = false;
    let mut letters = Vec::new();
    for (at, letter) in line.char_indices() {
        match letter {
            '\u{1b}' => is_escape = true,
            'm' if is_escape => is_escape = false,
            _ if is_escape => {}
            _ => letters.push((at, letter)),
        }
    }
    letters
}

/// The last blank before the line has so many columns; `None` if it has no more, or nothing to break.
fn break_at(line: &str, columns: usize) -> Option<usize> {
    let letters = visible(line);
    if letters.len() <= columns {
        return None;
    }
    let text = letters.iter().position(|(_, letter)| *letter != ' ')?;
    let fitting = letters.get(text..=columns)?.iter();
    let blank = fitting.rev().find(|(_, letter)| *letter == ' ');
    blank.map(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    fn pages(command: &mut Command, all: &mut Vec<String>) {
        all.push(command.render_long_help().to_string());
        all.push(command.render_help().to_string());
        command
            .get_subcommands_mut()
            .for_each(|inner| pages(inner, all));
    }

    #[test]
    fn no_line_of_a_help_page_is_wider_than_a_hundred_columns() {
        let (mut program, mut all) = (crate::program(), Vec::new());
        program.build();
        pages(&mut program, &mut all);
        let is_wide = |line: &&str| line.chars().count() > COLUMNS;
        assert!(
            all.iter()
                .any(|page| page.lines().any(|line| is_wide(&line))),
            "nothing has to be wrapped any more"
        );
        for page in all {
            let shown = wrapped(&page, COLUMNS);
            assert_eq!(shown.lines().find(is_wide), None);
            let narrow = wrapped(&page, columns_of(Some(80)));
            let is_wider = |line: &&str| line.chars().count() > 80 && line.trim().contains(' ');
            assert_eq!(narrow.lines().find(is_wider), None);
            let words = |text: &str| {
                let words = text.split_whitespace();
                words.map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(words(&shown), words(&page));
        }
    }

    #[test]
    fn examples_stand_before_the_flags_of_tls() {
        let mut program = crate::program();
        program.build();
        let status = program.find_subcommand_mut("status").expect("there is one");
        let page = status.render_help();
        for page in [page.to_string(), page.ansi().to_string()] {
            let shown = arranged(&page);
            let place = |text: &str| shown.find(text).expect(text);
            assert!(place("--json") < place("Examples:"), "{shown}");
            assert!(place("Examples:") < place("TLS:"), "{shown}");
            assert!(place("TLS:") < place("--tls-identity"), "{shown}");
            let sorted = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(&shown), sorted(&page));
            assert_eq!(arranged(&shown), shown);
        }
        assert_eq!(arranged("no heading\n"), "no heading\n");
    }

    #[test]
    fn what_does_not_fit_goes_on_below_its_text() {
        let word = "word ".repeat(30);
        for (line, below) in [
            (format!("  copy    {word}"), 10),
            (format!("          {word}"), 10),
            (format!("      \u{1b}[1m--flag\u{1b}[0m    {word}"), 16),
            (format!("Usage: {word}"), 10),
        ] {
            let shown = wrapped(line.trim_end(), COLUMNS);
            let second = shown.lines().nth(1).expect("two lines");
            assert_eq!(second.find('w'), Some(below), "{shown}");
        }
        assert_eq!(wrapped("short\n\nlines", COLUMNS), "short\n\nlines\n");
        let long = "x".repeat(150);
        assert_eq!(wrapped(&long, COLUMNS), format!("{long}\n"));
    }
}
