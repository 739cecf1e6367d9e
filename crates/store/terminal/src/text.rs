//! Text that people, and programs of other systems, have written: with a byte-order mark at its begin, and carriage
//! returns at the ends of its lines. Neither means anything.

const MARK: &str = "\u{feff}";

/// A text, or the first line of one, without a byte-order mark.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix(MARK).unwrap_or(text)
}

/// Removes the mark from the first line of a text.
pub fn remove_mark(line: &mut Vec<u8>) {
    if line.starts_with(MARK.as_bytes()) {
        line.drain(..MARK.len());
    }
}

/// Removes the end of a line: a line feed, and a carriage return before it. True if one was there.
pub fn remove_end(line: &mut Vec<u8>) -> bool {
    line.pop_if(|end| *end == b'\n');
    line.pop_if(|end| *end == b'\r').is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_and_the_ends_of_lines_are_no_part_of_a_text() {
        assert_eq!(without_mark("\u{feff}a"), "a");
        assert_eq!(without_mark("a\u{feff}"), "a\u{feff}");
        for (line, text, had_return) in [
            ("\u{feff}a\tb\r\n", "a\tb", true),
            ("a\r\r\n", "a\r", true),
            ("a\n", "a", false),
            ("a", "a", false),
            ("a\r", "a", true),
        ] {
            let mut line = line.as_bytes().to_vec();
            remove_mark(&mut line);
            assert_eq!(remove_end(&mut line), had_return);
            assert_eq!(line, text.as_bytes());
        }
    }
}
