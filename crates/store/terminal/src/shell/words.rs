//! The words of a shell's language: separated by blanks, and statements by `;`.
//!
//! A word may be in double quotes, wholly or in part. `\xNN`, `\\`, `\"`, `\t`, `\n`, `\r`, `\0`, `\;` and `\ ` (a
//! blank) are escapes everywhere. Single quotes are letters, as in `fdbcli`: words that seem to be in them are
//! refused, since nobody means them as a part of a key.

/// What is said of a word in single quotes.
const NO_QUOTES: &str = "single quotes are no quotes here, and would be a part of the word: text stands in double \
     quotes, as in \"hello world\", and \"'\" or \\x27 is a single quote";

/// Whether words of a statement seem to be in single quotes.
#[derive(Clone, Copy, Default)]
struct Single {
    /// A word has begun with one.
    is_begun: bool,
    /// The last byte of the word under way is one.
    is_last: bool,
    /// Number of bytes of the word under way, as they are written.
    length: usize,
}

impl Single {
    /// A byte of a word, which is no quote within double quotes.
    fn byte(&mut self, byte: u8, is_within: bool) {
        let is_quote = byte == b'\'' && !is_within;
        self.is_begun |= is_quote && self.length == 0;
        self.is_last = is_quote && self.length > 0;
        self.length += 1;
    }

    /// The end of a word; true if what began with a quote ends with one.
    fn ends(&mut self) -> bool {
        let is_in_quotes = self.is_begun && self.is_last;
        (self.is_last, self.length) = (false, 0);
        is_in_quotes
    }
}

/// Splits a text into statements, and these into words, as bytes.
pub fn split(text: &str) -> Result<Vec<Vec<Vec<u8>>>, String> {
    let mut statements = vec![Vec::new()];
    let mut word: Option<Vec<u8>> = None;
    let mut quoted = false;
    let mut single = Single::default();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let end_of_word = !quoted && (byte == b';' || byte.is_ascii_whitespace());
        if end_of_word {
            if single.ends() {
                return Err(NO_QUOTES.into());
            }
            statements
                .last_mut()
                .expect("never empty")
                .extend(word.take());
            if byte == b';' {
                single = Single::default();
                statements.push(Vec::new());
            }
            continue;
        }
        single.byte(byte, quoted);
        let word = word.get_or_insert_default();
        match byte {
            b'"' => quoted = !quoted,
            b'\\' => word.push(escaped(&mut bytes)?),
            _ => word.push(byte),
        }
    }
    if quoted {
        return Err("a quote is not closed".into());
    }
    if single.ends() {
        return Err(NO_QUOTES.into());
    }
    statements.last_mut().expect("never empty").extend(word);
    Ok(statements)
}

fn escaped(bytes: &mut std::str::Bytes<'_>) -> Result<u8, String> {
    let broken = || "there is a broken escape; a backslash itself is written \\\\".to_string();
    Ok(match bytes.next().ok_or_else(broken)? {
        b't' => b'\t',
        b'n' => b'\n',
        b'r' => b'\r',
        b'0' => 0,
        b'x' => {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit().ok_or_else(broken)?, digit().ok_or_else(broken)?);
            (high * 16 + low) as u8
        }
        byte @ (b'\\' | b'"' | b';' | b' ') => byte,
        _ => return Err(broken()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_in_single_quotes_is_refused_and_one_that_has_some_is_not() {
        for text in [
            "set 'x' 1",
            "get 'x'",
            "get ''",
            "set 'a b' 1",
            "get a; set k 'v';",
            "set a '{\"b\"}'",
        ] {
            let line = split(text).expect_err(text);
            assert!(line.contains("double quotes"), "{text}: {line}");
        }
        for (text, word) in [
            ("get it's", &b"it's"[..]),
            ("get 'tis", b"'tis"),
            ("get x'", b"x'"),
            ("get '", b"'"),
            ("get \"'x'\"", b"'x'"),
            ("get \\x27x\\x27", b"'x'"),
            ("set 'a 1; get b'", b"'a"),
        ] {
            assert_eq!(split(text).expect(text)[0][1], word, "{text}");
        }
    }
}
