//! Rules for the certificate of a peer, in the syntax of FoundationDB's `verify-peers`.
//!
//! ```text
//! Check.Unexpired=0,I.C=US,S.O=XYZCorp\, LLC|S.CN>=plinth-,R.CN=Our root
//! ```
//!
//! Alternatives are separated by `|`; one of them must hold. Conditions are separated by `,`; all of them must hold.
//!
//! | condition | |
//! |---|---|
//! | `Check.Valid=0` | any certificate, and none, is taken: it stands alone |
//! | `Check.Unexpired=0` | dates are not looked at |
//! | `FIELD=VALUE` | the field is the value |
//! | `FIELD>=VALUE` | the field begins with the value |
//! | `FIELD<=VALUE` | the field ends with the value |
//!
//! A field is `CN`, `C`, `L`, `ST`, `O`, `OU`, `UID` or `DC`, of the subject; with `I.` or `Issuer.` before it, of the
//! issuer; with `R.` or `Root.`, of the root's subject. A name that has the field twice does not match. The field
//! `subjectAltName` of subject and root has a value `DNS:…`, `EMAIL:…`, `URI:…` or `IP:…`, and one of the names of the
//! certificate must match. In a value, `\` stands before one of `␣"#+,;<=>|\`, or before two hexadecimal digits.
//!
//! What FoundationDB reads as less than it says is refused here: empty rules and conditions, a field that is there
//! twice (FoundationDB ignores the second), conditions beside `Check.Valid=0` (it ignores them all), and
//! `I.subjectAltName` (it looks at the subject's). An escaped `|`, at which its parser hangs, is read. Values are
//! compared as UTF-8; FoundationDB takes bytes above 127 for Latin-1.

mod parse;

#[cfg(test)]
mod tests;

pub use parse::RulesError;

use plinth_core::texts;
use std::fmt;
use std::fmt::Write as _;
use std::net::IpAddr;

/// The text of all rules.
pub const RULES_BYTES_MAX: usize = 64 << 10;

/// A field of a distinguished name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Field {
    CommonName,
    Country,
    Locality,
    State,
    Organization,
    Unit,
    UserId,
    DomainComponent,
}

impl Field {
    const ALL: [(Field, &str); 8] = [
        (Field::CommonName, "CN"),
        (Field::Country, "C"),
        (Field::Locality, "L"),
        (Field::State, "ST"),
        (Field::Organization, "O"),
        (Field::Unit, "OU"),
        (Field::UserId, "UID"),
        (Field::DomainComponent, "DC"),
    ];

    /// Its abbreviation, as certificates show it.
    pub fn short(self) -> &'static str {
        let found = Self::ALL.iter().find(|(field, _)| *field == self);
        found.map_or("", |(_, short)| short)
    }

    fn from_short(short: &str) -> Option<Field> {
        let found = Self::ALL.iter().find(|(_, name)| *name == short);
        found.map(|(field, _)| *field)
    }
}

/// A name of a certificate's extension `subjectAltName`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AlternativeName {
    Dns(String),
    Email(String),
    Uri(String),
    Ip(IpAddr),
}

/// What a certificate says about somebody.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Name {
    pub fields: Vec<(Field, String)>,
    pub alternatives: Vec<AlternativeName>,
}

/// What rules see of a peer's certificate.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// It is signed by a root that is trusted, it is for this use, and it is not revoked. Dates do not count here.
    pub is_valid: bool,
    /// Its dates, and those of all certificates up to the root, include the present.
    pub is_unexpired: bool,
    pub subject: Name,
    /// Has no alternatives.
    pub issuer: Name,
    /// The subject of the last certificate of the chain.
    pub root: Name,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Subject,
    Issuer,
    Root,
}

impl Part {
    fn letter(self) -> char {
        match self {
            Part::Subject => 'S',
            Part::Issuer => 'I',
            Part::Root => 'R',
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Match {
    Whole,
    Begin,
    End,
}

impl Match {
    fn sign(self) -> &'static str {
        match self {
            Match::Whole => "=",
            Match::Begin => ">=",
            Match::End => "<=",
        }
    }

    fn holds(self, text: &str, value: &[u8]) -> bool {
        let text = text.as_bytes();
        match self {
            Match::Whole => text == value,
            Match::Begin => text.starts_with(value),
            Match::End => text.ends_with(value),
        }
    }
}

/// What a condition is about, and the value of it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Wanted {
    Field(Field, Vec<u8>),
    Dns(Vec<u8>),
    Email(Vec<u8>),
    Uri(Vec<u8>),
    Ip(IpAddr),
}

const ALTERNATIVE: &str = "subjectAltName";

impl Wanted {
    /// What may not be there twice.
    fn word(&self) -> &'static str {
        match self {
            Wanted::Field(field, _) => field.short(),
            _ => ALTERNATIVE,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Condition {
    part: Part,
    wanted: Wanted,
    how: Match,
}

impl Condition {
    fn holds(&self, certificate: &Certificate) -> bool {
        let name = match self.part {
            Part::Subject => &certificate.subject,
            Part::Issuer => &certificate.issuer,
            Part::Root => &certificate.root,
        };
        let among = |value: &[u8], text: fn(&AlternativeName) -> Option<&str>| {
            let mut texts = name.alternatives.iter().filter_map(text);
            texts.any(|text| self.how.holds(text, value))
        };
        match &self.wanted {
            Wanted::Field(field, value) => {
                let mut found = name.fields.iter().filter(|(of, _)| of == field);
                match (found.next(), found.next()) {
                    (Some((_, text)), None) => self.how.holds(text, value),
                    _ => false,
                }
            }
            Wanted::Dns(value) => among(value, |name| match name {
                AlternativeName::Dns(text) => Some(text),
                _ => None,
            }),
            Wanted::Email(value) => among(value, |name| match name {
                AlternativeName::Email(text) => Some(text),
                _ => None,
            }),
            Wanted::Uri(value) => among(value, |name| match name {
                AlternativeName::Uri(text) => Some(text),
                _ => None,
            }),
            Wanted::Ip(wanted) => {
                let is_it = |name: &AlternativeName| matches!(name, AlternativeName::Ip(ip) if ip == wanted);
                name.alternatives.iter().any(is_it)
            }
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.wanted.word();
        write!(f, "{}.{word}{}", self.part.letter(), self.how.sign())?;
        match &self.wanted {
            Wanted::Field(_, value) => write_value(f, value, true),
            Wanted::Dns(value) => f
                .write_str("DNS:")
                .and_then(|()| write_value(f, value, false)),
            Wanted::Email(value) => f
                .write_str("EMAIL:")
                .and_then(|()| write_value(f, value, false)),
            Wanted::Uri(value) => f
                .write_str("URI:")
                .and_then(|()| write_value(f, value, false)),
            Wanted::Ip(ip) => write!(f, "IP:{ip}"),
        }
    }
}

/// Writes a value so that it is read again; `#` and spaces count only where a whole value begins.
fn write_value(f: &mut fmt::Formatter<'_>, value: &[u8], begins: bool) -> fmt::Result {
    for (at, byte) in value.iter().enumerate() {
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'|' | b'\\' => {
                write!(f, "\\{}", *byte as char)?
            }
            b'#' if begins && at == 0 => f.write_str("\\#")?,
            b' ' if at == 0 || at == value.len() - 1 => f.write_str("\\ ")?,
            0x20..=0x7e => f.write_char(*byte as char)?,
            _ => write!(f, "\\{byte:02x}")?,
        }
    }
    Ok(())
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    is_valid: bool,
    is_unexpired: bool,
    conditions: Vec<Condition>,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_valid {
            return f.write_str("Check.Valid=0");
        }
        write!(
            f,
            "Check.Valid=1,Check.Unexpired={}",
            u8::from(self.is_unexpired)
        )?;
        let mut conditions = self.conditions.iter();
        conditions.try_for_each(|condition| write!(f, ",{condition}"))
    }
}

/// Rules of which one must hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules(Vec<Rule>);

impl Default for Rules {
    /// A certificate must be valid and not expired.
    fn default() -> Rules {
        Rules(vec![Rule {
            is_valid: true,
            is_unexpired: true,
            conditions: Vec::new(),
        }])
    }
}

texts! {
    /// Why no rule holds.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Mismatch {
        NotValid =
            "the peer's certificate is not signed by a trusted root, or is not for this use; compare the CA files";
        Expired = "the peer's certificate is not good at this time; renew it, or compare the clocks";
        /// The first condition of each rule that does not hold.
        Conditions(conditions: Vec<String>) =
            "the peer's certificate fails {}; give it another one, or change the rules", conditions.join(" and ");
    }
}

impl std::error::Error for Mismatch {}

impl Rules {
    /// Parses the rules of one or several texts, of which one rule must hold. Without a text: the default.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Rules, RulesError> {
        let rules = parse::rules(texts)?;
        Ok(if rules.is_empty() {
            Rules::default()
        } else {
            Rules(rules)
        })
    }

    /// True if no certificate is asked for at all.
    pub fn accept_anybody(&self) -> bool {
        self.0.iter().any(|rule| !rule.is_valid)
    }

    pub fn check(&self, certificate: &Certificate) -> Result<(), Mismatch> {
        if self.accept_anybody() {
            return Ok(());
        }
        if !certificate.is_valid {
            return Err(Mismatch::NotValid);
        }
        let in_time = |rule: &&Rule| certificate.is_unexpired || !rule.is_unexpired;
        let mut failed = Vec::new();
        for rule in self.0.iter().filter(in_time) {
            match rule.conditions.iter().find(|one| !one.holds(certificate)) {
                Some(condition) => failed.push(condition.to_string()),
                None => return Ok(()),
            }
        }
        Err(if failed.is_empty() {
            Mismatch::Expired
        } else {
            Mismatch::Conditions(failed)
        })
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<String> = self.0.iter().map(Rule::to_string).collect();
        f.write_str(&rules.join("|"))
    }
}
