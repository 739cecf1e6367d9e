//! What a certificate says of its owner: names and dates. Signatures are judged elsewhere.
//!
//! Reads the parts that rules ask for, strictly: whatever is not understood makes the whole certificate malformed, so
//! that no name is overlooked.

use plinth_identity::rules::{AlternativeName, Field, Name};
use std::net::IpAddr;

/// Levels of nesting are fixed by the callers, so bytes are the only bound that is needed.
pub(crate) struct Der<'a>(pub &'a [u8]);

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
pub(crate) const OBJECT: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

const FIELDS: [(&[u8], Field); 8] = [
    (&[0x55, 4, 3], Field::CommonName),
    (&[0x55, 4, 6], Field::Country),
    (&[0x55, 4, 7], Field::Locality),
    (&[0x55, 4, 8], Field::State),
    (&[0x55, 4, 10], Field::Organization),
    (&[0x55, 4, 11], Field::Unit),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1],
        Field::UserId,
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
        Field::DomainComponent,
    ),
];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 29, 17];

impl<'a> Der<'a> {
    /// The next value and its tag.
    pub fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let [tag, first, rest @ ..] = self.0 else {
            return None;
        };
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let more = |length: usize, digit: &u8| length << 8 | usize::from(*digit);
                (digits.iter().fold(0, more), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, value))
    }

    pub fn take(&mut self, wanted: u8) -> Option<&'a [u8]> {
        let (tag, value) = self.next()?;
        (tag == wanted).then_some(value)
    }

    fn take_if(&mut self, wanted: u8) -> Option<Option<&'a [u8]>> {
        match self.0.first() {
            Some(tag) if *tag == wanted => self.take(wanted).map(Some),
            _ => Some(None),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// From when to when a certificate is good, in seconds since 1970, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dates {
    pub from: u64,
    pub to: u64,
}

impl Dates {
    pub fn include(self, now: u64) -> bool {
        (self.from..=self.to).contains(&now)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    pub dates: Dates,
    pub issuer: Name,
    pub subject: Name,
}

/// `None` if it is malformed.
pub fn certificate(der: &[u8]) -> Option<Certificate> {
    let mut whole = Der(Der(der).take(SEQUENCE)?);
    let mut body = Der(whole.take(SEQUENCE)?);
    body.take_if(VERSION)?;
    body.take(INTEGER)?; // serial number
    body.take(SEQUENCE)?; // algorithm
    let issuer = fields(body.take(SEQUENCE)?)?;
    let mut dates = Der(body.take(SEQUENCE)?);
    let dates = Dates {
        from: time(&mut dates)?,
        to: time(&mut dates)?,
    };
    let mut subject = fields(body.take(SEQUENCE)?)?;
    body.take(SEQUENCE)?; // public key
    while !body.is_empty() {
        let (tag, value) = body.next()?;
        if tag == EXTENSIONS {
            subject.alternatives = alternatives(value)?;
        }
    }
    whole.take(SEQUENCE)?;
    whole.take(BIT_STRING)?;
    Some(Certificate {
        dates,
        issuer,
        subject,
    })
}

/// The subject as it is encoded, without its head; `None` if the certificate is malformed.
pub fn subject(der: &[u8]) -> Option<&[u8]> {
    let mut body = Der(Der(Der(der).take(SEQUENCE)?).take(SEQUENCE)?);
    body.take_if(VERSION)?;
    body.take(INTEGER)?;
    for _algorithm_issuer_dates in 0..3 {
        body.take(SEQUENCE)?;
    }
    body.take(SEQUENCE)
}

fn fields(name: &[u8]) -> Option<Name> {
    let mut found = Name::default();
    let mut parts = Der(name);
    while !parts.is_empty() {
        let mut part = Der(parts.take(SET)?);
        while !part.is_empty() {
            let mut pair = Der(part.take(SEQUENCE)?);
            let object = pair.take(OBJECT)?;
            let (tag, value) = pair.next()?;
            let known = FIELDS.iter().find(|(bytes, _)| *bytes == object);
            if let Some((_, field)) = known {
                found.fields.push((*field, text(tag, value)?));
            }
        }
    }
    Some(found)
}

fn text(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        // UTF-8; digits, printable characters and ASCII.
        0x0c => String::from_utf8(value.to_vec()).ok(),
        0x12 | 0x13 | 0x16 | 0x1a if value.is_ascii() => String::from_utf8(value.to_vec()).ok(),
        // Taken for Latin-1, as everybody does.
        0x14 => Some(value.iter().copied().map(char::from).collect()),
        0x1e if value.len().is_multiple_of(2) => {
            let units = value
                .chunks_exact(2)
                .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units)
                .collect::<Result<String, _>>()
                .ok()
        }
        _ => None,
    }
}

fn alternatives(extensions: &[u8]) -> Option<Vec<AlternativeName>> {
    let mut list = Der(Der(extensions).take(SEQUENCE)?);
    let mut found = None;
    while !list.is_empty() {
        let mut extension = Der(list.take(SEQUENCE)?);
        let object = extension.take(OBJECT)?;
        extension.take_if(BOOLEAN)?; // critical
        let value = extension.take(OCTET_STRING)?;
        if object == ALTERNATIVE_NAMES && found.replace(value).is_some() {
            return None;
        }
    }
    let Some(value) = found else {
        return Some(Vec::new());
    };
    let mut names = Der(Der(value).take(SEQUENCE)?);
    let mut all = Vec::new();
    while !names.is_empty() {
        let (tag, value) = names.next()?;
        let text = || text(0x16, value);
        all.push(match tag {
            0x81 => AlternativeName::Email(text()?),
            0x82 => AlternativeName::Dns(text()?),
            0x86 => AlternativeName::Uri(text()?),
            0x87 => AlternativeName::Ip(match value.len() {
                4 => IpAddr::from(<[u8; 4]>::try_from(value).ok()?),
                16 => IpAddr::from(<[u8; 16]>::try_from(value).ok()?),
                _ => return None,
            }),
            _ => continue, // no rule asks for it
        });
    }
    Some(all)
}

/// Seconds since 1970 of `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn time(dates: &mut Der) -> Option<u64> {
    let (tag, value) = dates.next()?;
    let digits = value.strip_suffix(b"Z")?;
    let wanted = match tag {
        UTC_TIME => 12,
        GENERALIZED_TIME => 14,
        _ => return None,
    };
    if digits.len() != wanted || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| {
        digits
            .iter()
            .fold(0, |n, digit| n * 10 + u64::from(digit - b'0'))
    };
    let (year, rest) = digits.split_at(wanted - 10);
    let year = match (number(year), tag) {
        (year @ 0..50, UTC_TIME) => 2000 + year,
        (year, UTC_TIME) => 1900 + year,
        (year, _) => year,
    };
    let part = |at: usize| number(&rest[at..at + 2]);
    let (month, day, hour, minute, second) = (part(0), part(2), part(4), part(6), part(8));
    let in_range = year >= 1970
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    in_range.then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days from 1970 to this one, by counting years from March.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let before_1970 = 719_468;
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - before_1970
}

/// The names of a subject in one line, for people.
pub fn shown(name: &Name) -> String {
    let field =
        |(field, text): &(Field, String)| format!("{}={}", field.short(), text.escape_debug());
    match name.fields.iter().map(field).collect::<Vec<_>>() {
        fields if fields.is_empty() => "no name".into(),
        fields => fields.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::testing::fuzz;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SanType};

    fn made() -> Vec<u8> {
        let mut params = CertificateParams::default();
        let name = &mut params.distinguished_name;
        *name = rcgen::DistinguishedName::new();
        name.push(
            DnType::CountryName,
            DnValue::PrintableString("DE".try_into().expect("letters")),
        );
        name.push(DnType::OrganizationName, "Käse, GmbH");
        name.push(
            DnType::CommonName,
            DnValue::BmpString("plinth".try_into().expect("text")),
        );
        name.push(
            DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 1]),
            "seven",
        );
        params.subject_alt_names = vec![
            SanType::DnsName("a.example".try_into().expect("ascii")),
            SanType::URI("spiffe://cluster/server".try_into().expect("ascii")),
            SanType::Rfc822Name("ops@example".try_into().expect("ascii")),
            SanType::IpAddress([10, 0, 0, 1].into()),
        ];
        params.not_before = rcgen::date_time_ymd(2000, 2, 29);
        params.not_after = rcgen::date_time_ymd(2100, 3, 1);
        let key = KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("a certificate");
        made.der().to_vec()
    }

    #[test]
    fn names_and_dates_of_a_certificate_are_read() {
        let read = certificate(&made()).expect("a certificate");
        // `date -u -d 2000-02-29 +%s`, and of 2100-03-01.
        let dates = Dates {
            from: 951_782_400,
            to: 4_107_542_400,
        };
        assert_eq!(read.dates, dates);
        assert!(dates.include(dates.from) && dates.include(dates.to));
        assert!(!dates.include(dates.from - 1) && !dates.include(dates.to + 1));
        let field = |field, text: &str| (field, text.to_owned());
        assert_eq!(
            read.subject.fields,
            [
                field(Field::Country, "DE"),
                field(Field::Organization, "Käse, GmbH"),
                field(Field::CommonName, "plinth"),
                field(Field::UserId, "seven"),
            ]
        );
        assert_eq!(
            read.subject.alternatives,
            [
                AlternativeName::Dns("a.example".into()),
                AlternativeName::Uri("spiffe://cluster/server".into()),
                AlternativeName::Email("ops@example".into()),
                AlternativeName::Ip([10, 0, 0, 1].into()),
            ]
        );
        assert_eq!(read.issuer.fields, read.subject.fields);
        assert!(read.issuer.alternatives.is_empty());
        assert_eq!(
            shown(&read.subject),
            "C=DE,O=Käse, GmbH,CN=plinth,UID=seven"
        );
        assert_eq!(shown(&Name::default()), "no name");
    }

    #[test]
    fn days_are_counted_as_the_calendar_has_them() {
        // `date -u -d DATE +%s` divided by 86400.
        let known = [
            ((1970, 1, 1), 0),
            ((1972, 2, 29), 789),
            ((1999, 12, 31), 10_956),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 26), 20_783),
            ((9999, 12, 31), 2_932_896),
        ];
        for ((year, month, day), count) in known {
            assert_eq!(days(year, month, day), count, "{year}-{month}-{day}");
        }
    }

    /// Fuzz target.
    #[test]
    fn a_damaged_certificate_is_read_or_refused_and_never_a_panic() {
        fuzz("certificate", 1, [made()], |input| {
            certificate(input).is_some()
        });
    }
}
