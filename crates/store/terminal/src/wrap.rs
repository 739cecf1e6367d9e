//! Text in lines that fit a terminal.

use std::io::{IsTerminal, stdout};

/// Of the terminal, if there is one.
pub fn columns() -> Option<u16> {
    let size = crossterm::terminal::size().ok();
    // One that does not know has 0.
    size.map(|(columns, _)| columns)
        .filter(|columns| *columns > 0)
}

/// Columns of the terminal that standard output is; `None` of a file or a program, which takes lines of any length.
pub fn room() -> Option<usize> {
    let is_seen = stdout().is_terminal();
    is_seen.then(columns)?.map(usize::from)
}

/// The lines of a text, of at most so many columns where the words allow it. What does not fit stands below, deeper.
pub fn folded(text: &str, width: usize) -> String {
    const DEEPER: usize = 4;
    let lines = text.lines().flat_map(|line| {
        if line.chars().count() <= width {
            return vec![line.to_owned()];
        }
        let indent = line.len() - line.trim_start().len();
        let below = (indent + DEEPER).min(width / 2);
        let (mut lines, mut now) = (Vec::new(), String::new());
        // Blanks between words stay: they are columns of a table.
        for word in line.split_inclusive(' ') {
            let length = now.chars().count() + word.trim_end().chars().count();
            if length > width && !now.trim().is_empty() {
                lines.push(now.trim_end().to_owned());
                now = " ".repeat(below);
            }
            // Columns end where the line does.
            if lines.is_empty() || !(now.trim().is_empty() && word.trim().is_empty()) {
                now.push_str(word);
            }
        }
        lines.push(now.trim_end().to_owned());
        lines
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Prints a text for people. On a terminal with fewer columns than it is written for its lines are broken anew.
pub fn print(text: &str) {
    let text = room().map_or_else(|| text.to_owned(), |width| fitted(text, width));
    match text.ends_with('\n') {
        true => print!("{text}"),
        false => println!("{text}"),
    }
}

/// Columns that texts are written for.
const WRITTEN_FOR: usize = 80;
/// Text beside a name has at least so many columns. If there are fewer, it stands below the name.
const BESIDE_MIN: usize = 20;
/// How much deeper it stands there.
const BELOW: usize = 4;

/// A paragraph, or a name with a text beside it; in a few lines, perhaps.
struct Item {
    indent: usize,
    /// Where the text begins that is beside a name.
    column: Option<usize>,
    /// Where lines begin that follow.
    goes_on: usize,
    text: String,
    last_columns: usize,
}

impl Item {
    fn new(line: &str) -> Item {
        let letters: Vec<char> = line.chars().collect();
        let indent = letters.iter().take_while(|letter| **letter == ' ').count();
        let begins =
            |at: &usize| letters[*at] != ' ' && letters[at - 1] == ' ' && letters[at - 2] == ' ';
        let column = (indent + 2..letters.len()).find(begins);
        Item {
            indent,
            column,
            goes_on: column.unwrap_or(indent),
            text: line.to_owned(),
            last_columns: letters.len(),
        }
    }

    /// Takes a line that goes on with this one.
    fn takes(&mut self, line: &Item) -> bool {
        let text = line.text.trim_start();
        let word = text.split(' ').next().unwrap_or_default();
        // The line was broken before this word.
        let was_full = self.last_columns + 1 + word.chars().count() > WRITTEN_FOR - 2;
        let is_deep = line.indent >= self.indent && line.column.is_none();
        let goes_on = match self.column {
            Some(column) => line.indent == column,
            None => was_full && is_deep && !word.ends_with(':'),
        };
        if goes_on {
            self.text += &format!(" {text}");
            self.goes_on = line.indent;
            self.last_columns = line.last_columns;
        }
        goes_on
    }

    fn lines(&self, width: usize, lines: &mut Vec<String>) {
        let (mut text, mut goes_on) = (&self.text[..], self.goes_on);
        let (mut line, mut is_broken) = (String::new(), false);
        if let Some(column) = self.column.filter(|column| column + BESIDE_MIN > width) {
            let (at, _) = text.char_indices().nth(column).expect("it is there");
            lines.push(text[..at].trim_end().to_owned());
            text = &text[at..];
            goes_on = self.indent + BELOW;
            (line, is_broken) = (" ".repeat(goes_on), true);
        }
        // Blanks between words stay: they are columns of a table.
        for word in text.split_inclusive(' ') {
            let columns = line.chars().count() + word.trim_end().chars().count();
            if columns > width && !line.trim().is_empty() {
                lines.push(line.trim_end().to_owned());
                (line, is_broken) = (" ".repeat(goes_on.min(width / 2)), true);
            }
            // Columns end where the line does.
            if !(is_broken && line.trim().is_empty() && word.trim().is_empty()) {
                line.push_str(word);
            }
        }
        lines.push(line.trim_end().to_owned());
    }
}

/// The text in lines of at most so many columns, as far as words allow it: as it is, if it fits. Otherwise lines that
/// were broken for a wider terminal are joined first.
pub fn fitted(text: &str, width: usize) -> String {
    if text.lines().all(|line| line.chars().count() <= width) {
        return text.to_owned();
    }
    let (mut lines, mut last) = (Vec::new(), None::<Item>);
    for line in text.lines() {
        let next = Item::new(line);
        if let Some(item) = last.as_mut()
            && !line.trim().is_empty()
            && item.takes(&next)
        {
            continue;
        }
        if let Some(item) = last.replace(next) {
            item.lines(width, &mut lines);
        }
    }
    if let Some(item) = last {
        item.lines(width, &mut lines);
    }
    let end = if text.ends_with('\n') { "\n" } else { "" };
    lines.join("\n") + end
}

/// Lines of words, of at most so many columns where the words allow it.
pub fn wrapped<'a>(words: impl IntoIterator<Item = &'a str>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => *line = format!("{line} {word}"),
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_does_not_fit_goes_on_below_and_deeper_and_others_stay() {
        let text =
            "a cluster\n    0  127.0.0.1:4500   master  primary of 2, backup of 4\n\n  short";
        assert_eq!(folded(text, 200), text);
        let told = "a cluster\n    0  127.0.0.1:4500   master\n        primary of 2, backup\n        of 4\n\n  short";
        assert_eq!(folded(text, 30), told);
        for width in 1..100 {
            let words = |text: &str| {
                text.split_whitespace()
                    .map(String::from)
                    .collect::<Vec<_>>()
            };
            assert_eq!(words(&folded(text, width)), words(text), "{width}");
            let fits = folded(text, width)
                .lines()
                .all(|line| line.chars().count() <= width);
            assert!(fits || width < 24, "{width}: {}", folded(text, width));
        }
    }

    #[test]
    fn a_text_that_is_written_for_80_columns_is_broken_anew_for_fewer() {
        let text = "\
A statement is words with blanks between them, and `;' stands between
statements. In keys and values:

  \\xNN              the byte with this hexadecimal number: \\x00, \\xff
  \\t \\n \\r          a tab, a line feed, a carriage return (a backslash before
                    each)

Cluster:
  Database          available
  Fault tolerance   2 zones may fail without loss of data, 2 zones of
                    availability
  127.0.0.1:4500    master    storage
  example: set hello world and so on
";
        for width in [80, 100] {
            assert_eq!(fitted(text, width), text);
        }
        let narrow = "\
A statement is words with blanks between
them, and `;' stands between statements.
In keys and values:

  \\xNN              the byte with this
                    hexadecimal number:
                    \\x00, \\xff
  \\t \\n \\r          a tab, a line feed,
                    a carriage return (a
                    backslash before
                    each)

Cluster:
  Database          available
  Fault tolerance   2 zones may fail
                    without loss of
                    data, 2 zones of
                    availability
  127.0.0.1:4500    master    storage
  example: set hello world and so on
";
        assert_eq!(fitted(text, 40), narrow);
        let below = "\
Cluster:
  Database
      available
  Fault tolerance
      2 zones may fail without loss
      of data, 2 zones of
      availability
";
        let (_, table) = text.split_once("each)\n\n").expect("it is there");
        assert!(
            fitted(table, 36).starts_with(below),
            "{}",
            fitted(table, 36)
        );
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        for width in 1..100 {
            let told = fitted(text, width);
            assert_eq!(words(&told), words(text), "{width}");
            let fits = told.lines().all(|line| line.chars().count() <= width);
            assert!(fits || width < 38, "{width}: {told}");
        }
    }
}
