//! Text in lines that fit a terminal.

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
