//! Pairs as lines of text, for reading and writing.
//!
//! ```text
//! tsv     key <tab> value
//! jsonl   {"key":"…","value":"…"}
//! ```
//!
//! In both, a byte that is not printable ASCII is written `\xNN` and a backslash `\\`. Reading also accepts `\t`,
//! `\n`, `\r`, `\0`, and any other text as its UTF-8 bytes. (In JSON each of these backslashes is itself escaped.)
//!
//! Pairs of tenants may stand before all others, with the keys and values that the system keyspace has for them:
//!
//! ```text
//! \xff/tenant/lastId <tab> the number that was given out last, 8 bytes big-endian
//! \xff/tenant/map/<name> <tab> number of the tenant; the keys of its pairs begin with it
//! ```

use bytes::Bytes;
use plinth_client::Tenants;
use plinth_core::KeyRange;
use plinth_core::key::{KEY_BYTES_MAX, SYSTEM_BEGIN, VALUE_BYTES_MAX, printable, unprintable};
use plinth_core::system_keys::TENANTS;
use plinth_terminal::Outcome;
use plinth_terminal::choices::expected;
use serde_json::Value;

/// Range of the applications' keys for a command; by default all of them.
#[derive(clap::Args, Clone, Debug)]
pub struct RangeArguments {
    /// First key; escapes as in a file
    #[arg(long, value_name = "KEY", default_value = "")]
    begin: String,
    /// End of the range; this key is not included
    #[arg(long, value_name = "KEY", default_value = "\\xff")]
    end: String,
}

impl RangeArguments {
    pub fn parse(&self) -> Outcome<KeyRange> {
        let key = |name: &str, text: &str| {
            let key = unescape(text.as_bytes());
            key.map_err(|what| format!("{name}: {what}"))
        };
        let (begin, end) = (key("--begin", &self.begin)?, key("--end", &self.end)?);
        if begin > end {
            return Err("--begin is after --end; exchange them".into());
        }
        if end[..] > *SYSTEM_BEGIN {
            return Err("--end is beyond \\xff; keys from there on belong to the system".into());
        }
        Ok(KeyRange { begin, end })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Key, tab, value
    Tsv,
    /// One JSON object per line, with "key" and "value"
    Jsonl,
}

impl Format {
    pub const NAMES: [&str; 2] = ["tsv", "jsonl"];

    pub fn parse(name: &str) -> Result<Format, String> {
        let formats = [Format::Tsv, Format::Jsonl].into_iter();
        let mut named = formats.filter(|format| format.name() == name);
        named.next().ok_or_else(|| expected(name, Format::NAMES))
    }

    pub fn name(self) -> &'static str {
        Format::NAMES[self as usize]
    }

    /// The given format, else the format by the file's name, else TSV.
    pub fn choose(given: Option<Format>, file: &str) -> Format {
        let json = [".jsonl", ".json", ".ndjson"]
            .iter()
            .any(|end| file.ends_with(end));
        given.unwrap_or(if json { Format::Jsonl } else { Format::Tsv })
    }
}

/// Upper limit of a line's length: every byte escaped, in JSON the escape escaped again, and some room.
pub const LINE_BYTES_MAX: usize = 6 * (KEY_BYTES_MAX + VALUE_BYTES_MAX) + 1024;

pub type Pair = (Bytes, Bytes);

/// Parses a line without its line end; the error describes the problem.
pub fn parse(format: Format, line: &[u8]) -> Result<Pair, String> {
    let (key, value) = parse_any(format, line)?;
    if key.starts_with(TENANTS) {
        return Err("tenants stand before all pairs".into());
    }
    if key.first() == Some(&0xff) {
        return Err("keys that begin with \\xff belong to the system".into());
    }
    Ok((key, value))
}

/// Adds the tenant that the line tells of; false if it tells of none.
pub fn take_tenant(format: Format, line: &[u8], tenants: &mut Tenants) -> Result<bool, String> {
    let Ok((key, value)) = parse_any(format, line) else {
        return Ok(false);
    };
    let taken = tenants.take_row(&key, &value);
    taken.map_err(|_| "it tells of a tenant, and contradicts itself or a line before".into())
}

/// Appends the lines that tell of tenants to `out`.
pub fn write_tenants(format: Format, tenants: &Tenants, out: &mut String) {
    for (key, value) in tenants.rows() {
        write(format, &key, &value, out);
    }
}

fn parse_any(format: Format, line: &[u8]) -> Result<Pair, String> {
    let (key, value) = match format {
        Format::Tsv => {
            let tab = line.iter().position(|&b| b == b'\t');
            let tab = tab.ok_or_else(|| {
                let looks_like_json = line.trim_ascii_start().starts_with(b"{");
                let remedy = match looks_like_json {
                    true => ": it looks like JSON, so say --format jsonl",
                    false if line.contains(&b',') => {
                        ": commas separate nothing; write tabs, or JSON Lines"
                    }
                    false => "",
                };
                format!("there is no tab between key and value{remedy}")
            })?;
            if line[tab + 1..].contains(&b'\t') {
                return Err(
                    "there is more than one tab; write a tab in a key or value as \\t".into(),
                );
            }
            (unescape(&line[..tab])?, unescape(&line[tab + 1..])?)
        }
        Format::Jsonl => parse_json(line)?,
    };
    if key.len() > KEY_BYTES_MAX {
        return Err(format!(
            "the key has {} bytes, more than {KEY_BYTES_MAX}",
            key.len()
        ));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(format!(
            "the value has {} bytes, more than {VALUE_BYTES_MAX}",
            value.len()
        ));
    }
    Ok((key, value))
}

fn unescape(text: &[u8]) -> Result<Bytes, String> {
    if !text.contains(&b'\\') {
        return Ok(Bytes::copy_from_slice(text));
    }
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8 text")?;
    unprintable(text)
        .map(Bytes::from)
        .ok_or_else(|| "there is a broken escape; a backslash itself is written \\\\".into())
}

fn parse_json(line: &[u8]) -> Result<Pair, String> {
    let object: Value = serde_json::from_slice(line).map_err(|error| {
        let looks_like_pair = !line.trim_ascii_start().starts_with(b"{") && line.contains(&b'\t');
        let remedy = if looks_like_pair {
            "; for key, tab, value say --format tsv"
        } else {
            ""
        };
        format!("it is not JSON: {error}{remedy}")
    })?;
    let field = |name: &str| match &object[name] {
        Value::String(text) => unescape(text.as_bytes()),
        _ => Err(format!("\"{name}\" is missing or not a string")),
    };
    Ok((field("key")?, field("value")?))
}

/// Appends the pair as a line to `out`.
pub fn write(format: Format, key: &[u8], value: &[u8], out: &mut String) {
    match format {
        Format::Tsv => {
            push_printable(key, out);
            out.push('\t');
            push_printable(value, out);
            out.push('\n');
        }
        Format::Jsonl => {
            out.push_str("{\"key\":");
            push_json(key, out);
            out.push_str(",\"value\":");
            push_json(value, out);
            out.push_str("}\n");
        }
    }
}

fn push_printable(bytes: &[u8], out: &mut String) {
    match std::str::from_utf8(bytes) {
        Ok(text)
            if bytes
                .iter()
                .all(|b| (0x20..0x7f).contains(b) && *b != b'\\') =>
        {
            out.push_str(text)
        }
        _ => out.push_str(&printable(bytes)),
    }
}

fn push_json(bytes: &[u8], out: &mut String) {
    out.push('"');
    // The text is printable ASCII, of which JSON requires an escape only for these two.
    for c in printable(bytes).chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_pair_comes_back_from_its_line() {
        let every: Vec<u8> = (0..=254).collect();
        for format in [Format::Tsv, Format::Jsonl] {
            for (key, value) in [
                (&b"plain"[..], &b"text \"quoted\""[..]),
                (&every, b""),
                (b"", &every),
                (b"a\\", b"\t\n"),
            ] {
                let mut line = String::new();
                write(format, key, value, &mut line);
                let parsed = parse(format, line.strip_suffix('\n').expect("a line").as_bytes());
                assert_eq!(
                    parsed,
                    Ok((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))),
                    "{line}"
                );
                assert_eq!(line.lines().count(), 1);
                assert!(line.len() <= LINE_BYTES_MAX);
            }
        }
    }

    #[test]
    fn tenants_come_back_from_their_lines_and_stand_before_all_pairs() {
        let tenants = Tenants {
            named: [("web \"1\"".into(), 1), ("\u{e9}".into(), 300)].into(),
            last: 301,
        };
        for format in [Format::Tsv, Format::Jsonl] {
            let (mut text, mut back) = (String::new(), Tenants::default());
            write_tenants(format, &tenants, &mut text);
            assert_eq!(text.lines().count(), 3);
            for line in text.lines() {
                assert_eq!(take_tenant(format, line.as_bytes(), &mut back), Ok(true));
                let refused = parse(format, line.as_bytes()).expect_err("no pair");
                assert!(refused.contains("before all pairs"), "{refused}");
            }
            assert_eq!(back, tenants);
        }
        let mut tenants = tenants;
        let mut take = |line: &str| take_tenant(Format::Tsv, line.as_bytes(), &mut tenants);
        assert_eq!(take("a\t1"), Ok(false));
        assert_eq!(take("no tab"), Ok(false), "parse says so");
        assert!(take("\\xff/tenant/map/x\tno number").is_err());
    }

    #[test]
    fn each_mistake_in_a_line_is_named() {
        let long_key = format!("{}\tv", "k".repeat(KEY_BYTES_MAX + 1));
        let long_value = format!("k\t{}", "v".repeat(VALUE_BYTES_MAX + 1));
        for (format, line, word) in [
            (Format::Tsv, "no tab", "tab"),
            (Format::Tsv, "{\"key\":\"a\"}", "say --format jsonl"),
            (Format::Tsv, "a\tb\tc", "more than one"),
            (Format::Tsv, "a\\x\tb", "escape"),
            (Format::Tsv, "\\xff/x\tb", "system"),
            (Format::Tsv, &long_key, "key has"),
            (Format::Tsv, &long_value, "value has"),
            (Format::Jsonl, "{\"key\":\"a\"}", "\"value\""),
            (Format::Jsonl, "a\tb", "say --format tsv"),
            (Format::Jsonl, "a", "JSON"),
        ] {
            let error = parse(format, line.as_bytes()).expect_err(word);
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(
            parse(Format::Tsv, "é\tü".as_bytes()),
            Ok(("é".into(), "ü".into()))
        );
    }

    #[test]
    fn the_format_is_given_or_told_by_the_name() {
        assert_eq!(Format::choose(None, "a.jsonl"), Format::Jsonl);
        assert_eq!(Format::choose(None, "-"), Format::Tsv);
        for format in [Format::Tsv, Format::Jsonl] {
            assert_eq!(Format::parse(format.name()), Ok(format));
        }
        let refused = Format::parse("json").expect_err("no format");
        assert_eq!(refused, "did you mean `jsonl'? expected tsv or jsonl");
        assert_eq!(Format::choose(Some(Format::Tsv), "a.json"), Format::Tsv);
    }
}
