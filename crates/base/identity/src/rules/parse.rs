//! Reads rules for certificates from text. An error names the byte where the text is wrong.

use super::{ALTERNATIVE, Condition, Field, Match, Part, RULES_BYTES_MAX, Rule, Wanted};
use std::fmt;
use std::net::IpAddr;

/// What is wrong with a text of rules, and at which byte of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RulesError {
    /// Counted from 0, in the text at fault.
    pub at: usize,
    pub what: String,
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rules for certificates, at byte {}: {}",
            self.at, self.what
        )
    }
}

impl std::error::Error for RulesError {}

type Result<T> = std::result::Result<T, RulesError>;

pub(super) fn rules<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Vec<Rule>> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut bytes = 0;
    for text in texts {
        bytes += text.len();
        let mut reader = Reader { text, at: 0 };
        if bytes > RULES_BYTES_MAX {
            return reader.error(format!("more than {RULES_BYTES_MAX} bytes"));
        }
        loop {
            let begin = reader.at;
            let rule = reader.rule()?;
            let stands_beside = rules.iter().any(|other| !other.is_valid || !rule.is_valid);
            if stands_beside {
                reader.at = begin;
                return reader.error(ALONE);
            }
            rules.push(rule);
            if !reader.takes(b'|') {
                break;
            }
        }
        if reader.at < text.len() {
            return reader.error("expected ',' or '|' or the end");
        }
    }
    Ok(rules)
}

const ALONE: &str = "Check.Valid=0 switches all other checks off; leave them out, or leave it out";

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn error<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(RulesError {
            at: self.at,
            what: what.into(),
        })
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn takes(&mut self, byte: u8) -> bool {
        let is_it = self.peek() == Some(byte);
        self.at += usize::from(is_it);
        is_it
    }

    /// Letters and dots.
    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let is_part = |c: char| c.is_ascii_alphabetic() || c == '.';
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn rule(&mut self) -> Result<Rule> {
        let (mut valid, mut unexpired) = (None, None);
        let mut conditions: Vec<Condition> = Vec::new();
        let begin = self.at;
        loop {
            let at = self.at;
            let field = self.word();
            let how = match self.peek() {
                Some(b'<') => Match::End,
                Some(b'>') => Match::Begin,
                _ => Match::Whole,
            };
            self.at += usize::from(how != Match::Whole);
            if field.is_empty() || !self.takes(b'=') {
                return self.error("expected FIELD=VALUE; the least rule is Check.Valid=1");
            }
            if let Some(check) = field.strip_prefix("Check.") {
                let before = match check {
                    "Valid" => &mut valid,
                    "Unexpired" => &mut unexpired,
                    _ => return self.error("the checks are Check.Valid and Check.Unexpired"),
                };
                let value = self.flag(how)?;
                if before.replace(value).is_some() {
                    self.at = at;
                    return self.error("the check is there twice");
                }
            } else {
                let condition = self.condition(field, how)?;
                let is_same = |other: &Condition| {
                    other.part == condition.part && other.wanted.word() == condition.wanted.word()
                };
                if conditions.iter().any(is_same) {
                    self.at = at;
                    return self.error("the field is there twice; use '|' for alternatives");
                }
                conditions.push(condition);
            }
            if !self.takes(b',') {
                break;
            }
        }
        let rule = Rule {
            is_valid: valid.unwrap_or(true),
            is_unexpired: unexpired.unwrap_or(true),
            conditions,
        };
        if !rule.is_valid && (unexpired.is_some() || !rule.conditions.is_empty()) {
            self.at = begin;
            return self.error(ALONE);
        }
        Ok(rule)
    }

    fn flag(&mut self, how: Match) -> Result<bool> {
        let is_on = match self.peek() {
            Some(b'0') => false,
            Some(b'1') => true,
            _ => return self.error("a check is =0 or =1"),
        };
        if how != Match::Whole {
            return self.error("a check is =0 or =1");
        }
        self.at += 1;
        Ok(is_on)
    }

    fn condition(&mut self, field: &str, how: Match) -> Result<Condition> {
        let (part, short) = match field.split_once('.') {
            None => (Part::Subject, field),
            Some(("S" | "Subject", short)) => (Part::Subject, short),
            Some(("I" | "Issuer", short)) => (Part::Issuer, short),
            Some(("R" | "Root", short)) => (Part::Root, short),
            Some(_) => {
                return self
                    .error("before the dot stands one of S, Subject, I, Issuer, R, Root, Check");
            }
        };
        let wanted = if short == ALTERNATIVE {
            if part == Part::Issuer {
                return self.error(
                    "a certificate has no alternative names of its issuer; use S.subjectAltName",
                );
            }
            self.alternative(how)?
        } else {
            let Some(field) = Field::from_short(short) else {
                let what = "the fields are CN, C, L, ST, O, OU, UID, DC and subjectAltName";
                return self.error(what);
            };
            Wanted::Field(field, self.value()?)
        };
        Ok(Condition { part, wanted, how })
    }

    fn alternative(&mut self, how: Match) -> Result<Wanted> {
        let begin = self.at;
        let kind = self.word();
        if !self.takes(b':') {
            return self.error("the value of subjectAltName is DNS:…, EMAIL:…, URI:… or IP:…");
        }
        let value = self.rest_of_value()?;
        match kind {
            "DNS" => Ok(Wanted::Dns(value)),
            "EMAIL" => Ok(Wanted::Email(value)),
            "URI" => Ok(Wanted::Uri(value)),
            "IP" => {
                let text = std::str::from_utf8(&value)
                    .ok()
                    .filter(|_| how == Match::Whole);
                let Some(address) = text.and_then(|text| text.parse::<IpAddr>().ok()) else {
                    self.at = begin;
                    return self.error("IP: wants a whole address, and =");
                };
                Ok(Wanted::Ip(address))
            }
            _ => {
                self.at = begin;
                self.error("the kinds of alternative names are DNS, EMAIL, URI and IP")
            }
        }
    }

    /// A value as RFC 4514 writes it, up to a comma, a bar or the end.
    fn value(&mut self) -> Result<Vec<u8>> {
        if matches!(self.peek(), Some(b'#' | b' ')) {
            return self.error("a value begins with '#' or a space only if '\\' stands before it");
        }
        self.rest_of_value()
    }

    fn rest_of_value(&mut self) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        let mut ends_in_space = false;
        while let Some(byte) = self.peek().filter(|byte| !matches!(byte, b',' | b'|')) {
            ends_in_space = byte == b' ';
            match byte {
                b'\\' => value.push(self.escaped()?),
                b'"' | b'+' | b';' | b'<' | b'>' | 0 => {
                    return self.error("'\\' must stand before this character in a value");
                }
                _ => {
                    value.push(byte);
                    self.at += 1;
                }
            }
        }
        if ends_in_space {
            return self.error("a value ends in a space only if '\\' stands before it");
        }
        if value.is_empty() {
            return self.error("the value is empty");
        }
        Ok(value)
    }

    /// The byte that an escape stands for.
    fn escaped(&mut self) -> Result<u8> {
        let rest = &self.text.as_bytes()[self.at + 1..];
        let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
        let (byte, length) = match rest {
            [
                byte
                @ (b' ' | b'"' | b'#' | b'+' | b',' | b';' | b'<' | b'=' | b'>' | b'|' | b'\\'),
                ..,
            ] => (*byte, 2),
            [high, low, ..] => match (digit(high), digit(low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => return self.error(ESCAPES),
            },
            _ => return self.error(ESCAPES),
        };
        self.at += length;
        Ok(byte)
    }
}

const ESCAPES: &str = "after '\\' comes one of ␣\"#+,;<=>|\\, or two hexadecimal digits";
