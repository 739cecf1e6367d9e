//! Text as words: names, values and signs.

use super::time;
use crate::value::Value;

#[derive(Clone, PartialEq, Debug)]
pub enum Word {
    /// A word of the language, or a name; as it was written.
    Bare(String),
    /// A name in double quotes.
    Name(String),
    Value(Value),
    Sign(&'static str),
}

const SIGNS: [&str; 14] = [
    "!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", ",", ";", "*", "+", "-",
];

/// Each word with the place where it begins, in bytes.
pub type Words = Vec<(usize, Word)>;

fn is_in_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// What is in quotes at the beginning of `text`, and how many bytes it takes up.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut inside = String::new();
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter != quote {
            inside.push(letter);
        } else if letters.next_if(|(_, next)| *next == quote).is_some() {
            inside.push(quote);
        } else {
            return Some((inside, at + 1));
        }
    }
    None
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let pairs = digits.chunks(2);
    let byte = |pair: &[u8]| {
        let is_pair = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
        let pair = std::str::from_utf8(pair).ok().filter(|_| is_pair)?;
        u8::from_str_radix(pair, 16).ok()
    };
    pairs.map(byte).collect()
}

fn number(text: &str) -> (usize, Option<Value>) {
    let mut len = usize::from(text.starts_with('-'));
    let mut last = ' ';
    for letter in text[len..].chars() {
        let is_sign = matches!(letter, '+' | '-') && matches!(last, 'e' | 'E');
        if !(letter.is_ascii_alphanumeric() || letter == '.' || is_sign) {
            break;
        }
        len += letter.len_utf8();
        last = letter;
    }
    let digits = &text[..len];
    let value = match digits.parse::<i64>() {
        Ok(int) => Some(Value::Int(int)),
        Err(_) if !digits.contains(['.', 'e', 'E']) => None,
        Err(_) => digits.parse().ok().map(Value::float),
    };
    (len, value)
}

/// True if a number begins here with its sign: where no sum can be.
fn is_negative(rest: &str, before: Option<&(usize, Word)>) -> bool {
    let digits = rest.strip_prefix('-');
    let is_number = digits.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    is_number && matches!(before, Some((_, Word::Sign(sign))) if *sign != ")")
}

/// # Errors
/// A line with the place of what is no word.
pub fn split(text: &str) -> Result<Words, String> {
    let mut words = Words::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let place = |what: &str| format!("{what} at {:?}", shortened(rest));
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let prefix = rest
            .strip_prefix(['x', 'X'])
            .filter(|r| r.starts_with('\''));
        let (word, len) = if let Some(digits) = prefix {
            let (digits, len) = quoted(digits, '\'').ok_or_else(|| place("a quote is missing"))?;
            let bytes = hex(&digits).ok_or_else(|| place("these are no hexadecimal digits"))?;
            (Word::Value(Value::Bytes(bytes.into())), len + 1)
        } else if first == '\'' {
            let (text, len) = quoted(rest, '\'').ok_or_else(|| place("a quote is missing"))?;
            match words.last() {
                Some((_, Word::Bare(before))) if before.eq_ignore_ascii_case("timestamp") => {
                    let micros = time::parse(&text).ok_or_else(|| {
                        place("a timestamp is like '2026-01-31' or '2026-01-31 12:00:00.5'")
                    })?;
                    words.pop();
                    (Word::Value(Value::Timestamp(micros)), len)
                }
                _ => (Word::Value(Value::Text(text)), len),
            }
        } else if first == '"' {
            let (name, len) = quoted(rest, '"').ok_or_else(|| place("a quote is missing"))?;
            (Word::Name(name), len)
        } else if first.is_ascii_digit() || is_negative(rest, words.last()) {
            let (len, value) = number(rest);
            let value = value.ok_or_else(|| place("this is no number of 64 bits"))?;
            (Word::Value(value), len)
        } else if is_in_name(first) {
            let len = rest
                .find(|letter| !is_in_name(letter))
                .unwrap_or(rest.len());
            (Word::Bare(rest[..len].to_owned()), len)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Word::Sign(sign), sign.len())
        } else {
            return Err(place("this is not understood,"));
        };
        words.push((at, word));
        at += len;
    }
    Ok(words)
}

/// Whether the text ends within quotes.
pub fn is_quoted_at_end(text: &str) -> bool {
    let mut open = None;
    for letter in text.chars().filter(|letter| matches!(letter, '\'' | '"')) {
        // One that is written twice closes and opens.
        open = match open {
            None => Some(letter),
            Some(quote) if quote == letter => None,
            within => within,
        };
    }
    open.is_some()
}

/// The beginning of a text, for an error.
pub fn shortened(text: &str) -> String {
    text.chars().take(20).collect()
}
