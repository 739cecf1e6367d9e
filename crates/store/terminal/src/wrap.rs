//! Text in lines that fit a terminal.

use std::io::{IsTerminal, stdout};

/// Of the terminal, if there is one.
pub fn columns() -> Option<u16> {
    crossterm::terminal::size().ok().map(|(columns, _)| columns)
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
}
