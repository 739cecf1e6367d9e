//! Help pages that fit a terminal. The library that renders them would need another one to wrap lines.

use crate::marks;
use clap::error::{Error, ErrorKind};
use plinth_terminal::{examples, tls, watching};
use std::io::IsTerminal;

const COLUMNS: usize = 100;
/// Narrower terminals break lines of pages themselves.
const COLUMNS_MIN: usize = 24;
/// Text beside a flag has at least so many columns. If there are fewer, it stands below the flag.
const BESIDE_MIN: usize = 28;
/// Where text stands that is below its flag.
const INDENT: usize = 10;
/// Where a call goes on in its next line.
const CALL_INDENT: usize = 6;
/// Where the calls of examples stand.
const CALL_COLUMN: usize = 2;
const USAGE: &str = "Usage: ";

/// Ends the program as the library would, with a page that is wrapped.
pub fn exit(error: &Error) -> ! {
    if error.kind() == ErrorKind::DisplayVersion {
        error.exit();
    }
    let is_page = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let is_error = error.kind() != ErrorKind::DisplayHelp;
    let is_terminal = match is_error {
        true => std::io::stderr().is_terminal(),
        false => std::io::stdout().is_terminal(),
    };
    let page = error.render().ansi().to_string();
    let page = match is_page {
        true => page,
        false => marks::of_error(&page),
    };
    let page = match is_terminal && std::env::var_os("NO_COLOR").is_none() {
        true => page,
        false => plain(&page),
    };
    let columns = match is_terminal {
        true => columns_of(watching::columns()),
        false => COLUMNS,
    };
    let page = match is_page {
        true => wrapped(&arranged(&page), columns),
        false => page,
    };
    match is_error {
        true => eprint!("{page}"),
        false => print!("{page}"),
    }
    std::process::exit(error.exit_code())
}

/// The text without its colours.
pub fn plain(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    let plain = lines.flat_map(|line| visible(line).into_iter().map(|(_, letter)| letter));
    plain.collect()
}

/// The page with its examples before the flags of TLS: these are many, the same everywhere, and seldom asked for.
fn arranged(page: &str) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let of_heading = |heading: &str| lines.iter().position(|line| has_text(line, heading));
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
    let terminal = terminal.filter(|columns| *columns > 0);
    terminal.map_or(COLUMNS, |columns| {
        usize::from(columns).clamp(COLUMNS_MIN, COLUMNS)
    })
}

/// The page without lines that are too long, where they have blanks.
pub fn wrapped(page: &str, columns: usize) -> String {
    let mut all = String::new();
    let mut is_example = false;
    for line in page.lines() {
        is_example = match visible(line).is_empty() {
            true => false,
            false => is_example || has_text(line, examples::HEADING),
        };
        match is_example && text_begin(line) == CALL_COLUMN {
            true => wrap_call(line, columns, &mut all),
            false => wrap(line, columns, &mut all),
        }
    }
    all
}

fn wrap(line: &str, columns: usize, all: &mut String) {
    // The library puts blanks between the texts of flags that have several lines.
    let line = if line.trim().is_empty() { "" } else { line };
    let (mut rest, mut indent) = (line, 0);
    let below = match place(line, columns) {
        Place::Beside(column) => column,
        Place::Below(at) => {
            all.push_str(line[..at].trim_end());
            all.push('\n');
            (rest, indent) = (line[at..].trim_start(), INDENT);
            INDENT
        }
    };
    while let Some(at) = break_at(rest, columns.saturating_sub(indent), |_| true) {
        all.extend(std::iter::repeat_n(' ', indent));
        all.push_str(&rest[..at]);
        all.push('\n');
        rest = rest[at..].trim_start();
        indent = below;
    }
    all.extend(std::iter::repeat_n(' ', indent));
    all.push_str(rest);
    all.push('\n');
}

/// A call goes on in the next line as a shell wants it, so that it can be pasted. What is in quotes stays whole.
fn wrap_call(line: &str, columns: usize, all: &mut String) {
    const GOES_ON: &str = " \\\n";
    let mut rest = line.to_owned();
    while let Some(at) = break_at(&rest, columns, |at| !is_quoted(&rest[..at])) {
        // The mark needs room, too.
        let room = columns - GOES_ON.trim_end().len();
        let at = break_at(&rest, room, |at| !is_quoted(&rest[..at])).unwrap_or(at);
        all.push_str(&rest[..at]);
        all.push_str(GOES_ON);
        rest = " ".repeat(CALL_INDENT) + rest[at..].trim_start();
    }
    all.push_str(&rest);
    all.push('\n');
}

/// Whether a quote is open at the end of this text.
fn is_quoted(text: &str) -> bool {
    let quote = |open: Option<char>, letter| match (open, letter) {
        (None, '\'' | '"') => Some(letter),
        (Some(quote), letter) if quote == letter => None,
        (open, _) => open,
    };
    text.chars().fold(None, quote).is_some()
}

/// Where the text of a line stands, and goes on if it is too long.
enum Place {
    /// It goes on at this column.
    Beside(usize),
    /// Its line has too little room for it: it begins at this byte, and stands below.
    Below(usize),
}

fn place(line: &str, columns: usize) -> Place {
    const ITEM: &str = "- ";
    let letters = visible(line);
    let is_blank = |at: usize| letters.get(at).is_some_and(|(_, letter)| *letter == ' ');
    let begin = text_begin(line);
    match begin {
        0 if has_begin(line, USAGE) => return Place::Beside(USAGE.len()),
        0 => return Place::Beside(0),
        _ if begin >= INDENT && has_begin(line.trim_start(), ITEM) => {
            return Place::Beside(begin + ITEM.len());
        }
        _ if begin >= INDENT => return Place::Beside(begin),
        _ => {}
    }
    let is_text = |at: &usize| !is_blank(*at) && is_blank(at - 1) && is_blank(at - 2);
    match (begin + 2..letters.len()).find(is_text) {
        Some(column) if column + BESIDE_MIN > columns => Place::Below(letters[column - 1].0),
        column => Place::Beside(column.unwrap_or(INDENT)),
    }
}

/// The column of the first letter that is no blank.
fn text_begin(line: &str) -> usize {
    let letters = visible(line);
    let begin = letters.iter().position(|(_, letter)| *letter != ' ');
    begin.unwrap_or(0)
}

/// Whether the line is this text, in whatever colour.
fn has_text(line: &str, text: &str) -> bool {
    let letters = visible(line);
    letters.iter().map(|(_, letter)| *letter).eq(text.chars())
}

fn has_begin(line: &str, begin: &str) -> bool {
    let letters = visible(line);
    let mut letters = letters.iter().map(|(_, letter)| *letter);
    begin.chars().all(|letter| letters.next() == Some(letter))
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

/// The last blank before the line has so many columns where it `may` be broken, or else the first one behind them;
/// `None` if it has no more columns, or nothing to break.
fn break_at(line: &str, columns: usize, may: impl Fn(usize) -> bool) -> Option<usize> {
    let letters = visible(line);
    if letters.len() <= columns {
        return None;
    }
    let text = text_begin(line);
    let is_blank =
        |(at, (byte, letter)): &(usize, &(usize, char))| *at > text && *letter == ' ' && may(*byte);
    let blanks: Vec<_> = letters.iter().enumerate().filter(is_blank).collect();
    let fitting = blanks.iter().rev().find(|(at, _)| *at <= columns);
    let blank = fitting.or_else(|| blanks.first());
    blank.map(|(_, (byte, _))| *byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    /// All pages, without and with colours.
    fn all_pages() -> Vec<[String; 2]> {
        fn walk(command: &mut Command, all: &mut Vec<[String; 2]>) {
            for page in [command.render_long_help(), command.render_help()] {
                all.push([page.to_string(), page.ansi().to_string()]);
            }
            let below = command.get_subcommands_mut();
            below.for_each(|below| walk(below, all));
        }
        let (mut program, mut all) = (marks::of_command(crate::program()), Vec::new());
        program.build();
        walk(&mut program, &mut all);
        all
    }

    fn words(page: &str) -> Vec<&str> {
        let words = page.split_whitespace();
        words.filter(|word| *word != "\\").collect()
    }

    /// Whether there is a blank where the line may be broken.
    fn is_breakable(line: &str) -> bool {
        let line = line.trim().trim_end_matches(" \\");
        line.match_indices(' ')
            .any(|(at, _)| !is_quoted(&line[..at]))
    }

    #[test]
    fn no_line_of_a_help_page_is_wider_than_the_terminal() {
        let (mut has_wide, pages) = (false, all_pages());
        assert!(pages.len() > 150, "{}", pages.len());
        for [page, coloured] in &pages {
            assert_eq!(&marks::of_text(page), page, "a mark has another kind");
            for terminal in [40, 60, 80, 120] {
                let columns = columns_of(Some(terminal));
                let shown = wrapped(&arranged(page), columns);
                let is_wide = |line: &&str| line.chars().count() > columns;
                has_wide |= page.lines().any(|line| is_wide(&line));
                let wide = shown.lines().filter(is_wide);
                let wide: Vec<&str> = wide.filter(|line| is_breakable(line)).collect();
                assert_eq!(wide, Vec::<&str>::new(), "{terminal}: {shown}");
                assert_eq!(words(&shown), words(&arranged(page)));
                assert_eq!(plain(&wrapped(&arranged(coloured), columns)), shown);
            }
        }
        assert!(has_wide, "nothing has to be wrapped any more");
    }

    #[test]
    fn every_line_of_a_help_page_begins_where_its_kind_does() {
        /// Commands, calls, and flags with a letter; flags without; and what goes on below them.
        const BEGINS: [usize; 5] = [CALL_COLUMN, CALL_INDENT, INDENT, INDENT + 2, INDENT + 4];
        for [page, _] in all_pages() {
            for terminal in [40, 60, 80, 120] {
                let shown = wrapped(&arranged(&page), columns_of(Some(terminal)));
                for (at, part) in shown.split("\n\n").enumerate() {
                    let first = part.lines().next().unwrap_or_default();
                    let is_heading = |line: &str| line.ends_with(':') && text_begin(line) == 0;
                    let beside = |line: &str| {
                        let text = line.trim_start();
                        let (name, _) = text.split_once("  ")?;
                        let about = text[name.len()..].trim_start();
                        Some(line.chars().count() - about.chars().count())
                    };
                    let columns: Vec<usize> = part.lines().filter_map(beside).collect();
                    for line in part.lines().skip(1) {
                        let begin = text_begin(line);
                        let is_good = match first {
                            _ if first.starts_with(USAGE) => begin == USAGE.len(),
                            _ if at > 0 && is_heading(first) => {
                                BEGINS.contains(&begin)
                                    || columns.contains(&begin)
                                    || is_heading(line)
                            }
                            _ => begin == text_begin(first) || BEGINS.contains(&text_begin(first)),
                        };
                        assert!(is_good, "{terminal}: {line}: {shown}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_call_that_goes_on_in_the_next_line_can_be_pasted() {
        let call = "  plinth cli -C data/plinth.cluster --exec 'begin; set a 1; commit'";
        let page = format!("Examples:\n{call}\n          Sets it\n");
        assert_eq!(
            wrapped(&page, 40),
            "Examples:\n  plinth cli -C data/plinth.cluster \\\n      --exec 'begin; set a 1; commit'\n          \
             Sets it\n"
        );
        let page = page.replace('\'', "\"");
        assert!(wrapped(&page, 24).contains(" \\\n      \"begin; set a 1; commit\"\n"));
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
            (format!("          - one: {word}"), 12),
            (format!("      \u{1b}[1m--flag\u{1b}[0m    {word}"), 16),
            (format!("Usage: {word}"), 7),
            (word.clone(), 0),
        ] {
            let shown = wrapped(line.trim_end(), COLUMNS);
            let second = shown.lines().nth(1).expect("two lines");
            assert_eq!(second.find('w'), Some(below), "{shown}");
        }
        let flag = format!("      \u{1b}[1m--a-long-flag <VALUE>\u{1b}[0m    {word}");
        let shown = wrapped(flag.trim_end(), 50);
        let begin = "      --a-long-flag <VALUE>\n          word word";
        assert!(plain(&shown).starts_with(begin), "{shown}");
        assert_eq!(wrapped("short\n\nlines", COLUMNS), "short\n\nlines\n");
        let long = "x".repeat(150);
        assert_eq!(wrapped(&long, COLUMNS), format!("{long}\n"));
    }
}
