//! Subjects as text, in the form of RFC 2253 that Java's `X500Principal.getName()` has: access lists of ZooKeeper name
//! the owners of certificates so.
//!
//! Two subjects have one text only if they differ in the kind of a string. So a text that Java would have to change to
//! show it, because it is not UTF-8, has no form here.

use crate::x509::{Der, OBJECT, SEQUENCE, SET};
use std::fmt::Write;

/// Longest text.
const BYTES_MAX: usize = 8 << 10;

/// Attributes that have a name. The others are shown by their numbers.
const NAMES: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
];

/// Kinds of strings: UTF-8, printable, T61, ASCII, general, two bytes a character. Java reads all of them as UTF-8.
const STRINGS: [u8; 6] = [0x0c, 0x13, 0x14, 0x16, 0x1b, 0x1e];

/// The text of a subject, of which `name` is what is in its sequence. `None` if it is malformed, has text that is not
/// UTF-8, or is too long.
pub fn text(name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    let mut rest = Der(name);
    while !rest.is_empty() {
        let mut pairs = Der(rest.take(SET)?);
        let mut part = String::new();
        while !pairs.is_empty() {
            if !part.is_empty() {
                part.push('+');
            }
            append_pair(&mut part, pairs.take(SEQUENCE)?)?;
        }
        parts.push(part);
    }
    parts.reverse();
    let text = parts.join(",");
    (text.len() <= BYTES_MAX).then_some(text)
}

fn append_pair(out: &mut String, pair: &[u8]) -> Option<()> {
    let mut pair = Der(pair);
    let object = numbers(pair.take(OBJECT)?)?;
    let (tag, value) = pair.next()?;
    if !pair.is_empty() {
        return None;
    }
    match NAMES.iter().find(|(numbers, _)| *numbers == object) {
        Some((_, name)) if STRINGS.contains(&tag) => {
            let _ = write!(out, "{name}=");
            append_escaped(out, std::str::from_utf8(value).ok()?);
        }
        known => {
            let _ = write!(
                out,
                "{}=#{tag:02x}",
                known.map_or(&object[..], |(_, name)| name)
            );
            append_length(out, value.len());
            value.iter().for_each(|byte| append_hex(out, *byte));
        }
    }
    Some(())
}

fn append_hex(out: &mut String, byte: u8) {
    let _ = write!(out, "{byte:02x}");
}

/// The length of a value as it is encoded.
fn append_length(out: &mut String, length: usize) {
    let bytes = length.to_be_bytes();
    let digits = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    if length >= 0x80 {
        append_hex(out, 0x80 | digits.len() as u8);
    } else if length == 0 {
        append_hex(out, 0);
    }
    digits.iter().for_each(|byte| append_hex(out, *byte));
}

/// An object identifier with dots; `None` if it is malformed or has a number of more than 128 bits.
fn numbers(object: &[u8]) -> Option<String> {
    let mut out = String::new();
    let mut number = 0_u128;
    let mut is_whole = true;
    for byte in object {
        if number.leading_zeros() < 7 || (is_whole && *byte == 0x80) {
            return None;
        }
        number = number << 7 | u128::from(byte & 0x7f);
        is_whole = byte & 0x80 == 0;
        if is_whole {
            let _ = match out.is_empty() {
                true => {
                    let first = (number / 40).min(2);
                    write!(out, "{first}.{}", number - first * 40)
                }
                false => write!(out, ".{number}"),
            };
            number = 0;
        }
    }
    (is_whole && !out.is_empty()).then_some(out)
}

fn append_escaped(out: &mut String, text: &str) {
    let is_space = |c: char| c == ' ' || c == '\r';
    let inner = text.trim_matches(is_space);
    let begin = text.len() - text.trim_start_matches(is_space).len();
    // Of nothing but spaces, all are at the edge.
    let end = begin + inner.len();
    for (at, c) in text.char_indices() {
        let is_edge = at < begin || at >= end;
        if is_edge || ",=+<>#;\"\\".contains(c) {
            out.push('\\');
        }
        match c {
            '\0' => out.push_str("\\00"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::testing::fuzz;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(pair, 16).expect("hexadecimal")
        });
        digits.collect()
    }

    /// Encoded subjects, and what Java 17 prints: `new X500Principal(bytes).getName()`.
    const PRINTED: [(&str, &str); 24] = [
        (
            "3044310b300906035504061302444531143012060355040a0c0b4bc3a473652c20476d6248310e300c06035\
             5040b0c05412b423d4331\
             0f300d06035504030c06636c69656e74",
            "CN=client,OU=A\\+B\\=C,O=Käse\\, GmbH,C=DE",
        ),
        (
            "301b3119301706035504030c10206c65616420616e6420747261696c20",
            "CN=\\ lead and trail\\ ",
        ),
        ("300e310c300a06035504030c03202020", "CN=\\ \\ \\ "),
        ("300b3109300706035504030c00", "CN="),
        (
            "30193117301506035504030c0e2368617368202320696e73696465",
            "CN=\\#hash \\# inside",
        ),
        (
            "30183116301406035504030c0d6122625c633c643e653b662c67",
            "CN=a\\\"b\\\\c\\<d\\>e\\;f\\,g",
        ),
        ("3011310f300d06035504030c066e756c00696e", "CN=nul\\00in"),
        ("300f310d300b06035504030c040d63720d", "CN=\\\rcr\\\r"),
        ("3011310f300d06035504030c060a6c696e650a", "CN=\nline\n"),
        (
            "30133111300f06035504030c0874616209696e2009",
            "CN=tab\tin \t",
        ),
        (
            "30163114301206035504030c0be697a5e69cac20f09f9880",
            "CN=日本 😀",
        ),
        (
            "3029310a3008060355040a0c0178311b300806035504030c0161300f060a0992268993f22c6401010c0162",
            "CN=a+UID=b,O=x",
        ),
        (
            "301d311b300f060a0992268993f22c6401010c017a300806035504030c0161",
            "UID=z+CN=a",
        ),
        (
            "304231133011060a0992268993f22c6401191603636f6d31173015060a0992268993f22c640119160765786\
             16d706c6531123010060355\
             040313097072696e7461626c65",
            "CN=printable,DC=example,DC=com",
        ),
        (
            "3037310e300c06035504071405706c61696e3110300e06035504081b0767656e6572616c311330110603550\
             4090c0a31204d61696e2053\
             742e",
            "STREET=1 Main St.,ST=general,L=plain",
        ),
        (
            "30173115301306035504031e0c0070006c0069006e00740068",
            "CN=\\00p\\00l\\00i\\00n\\00t\\00h",
        ),
        ("3010310e300c060355040312053132203334", "CN=#12053132203334"),
        (
            "30173115301306035504031c0c000000750000006e00000069",
            "CN=#1c0c000000750000006e00000069",
        ),
        ("300c310a30080603550403020105", "CN=#020105"),
        (
            "302d311c301a06092a864886f70d010901160d61406578616d706c652e6f7267310d300b06035504030c046d61696c",
            "CN=mail,1.2.840.113549.1.9.1=#160d61406578616d706c652e6f7267",
        ),
        (
            "3036310b3009060355040513023132310b3009060355040c0c024472310c300a06032a03040c036f776e310\
             c300a06038837010c03626967",
            "2.999.1=#0c03626967,1.2.3.4=#0c036f776e,2.5.4.12=#0c024472,2.5.4.5=#13023132",
        ),
        (
            "301a31183016060e55040388bc99f0b2b7ab91ffff7f0c0468756765",
            "2.5.4.3.9999999999999999999999=#0c0468756765",
        ),
        ("3000", ""),
        (
            "3018310a300806035504030c0161310a300806035504030c0162",
            "CN=b,CN=a",
        ),
    ];

    fn of_sequence(der: &[u8]) -> Option<String> {
        text(Der(der).take(SEQUENCE)?)
    }

    #[test]
    fn a_subject_has_the_text_that_java_prints() {
        for (encoded, printed) in PRINTED {
            assert_eq!(
                of_sequence(&bytes(encoded)).as_deref(),
                Some(printed),
                "{encoded}"
            );
        }
        let long = "78".repeat(200);
        let encoded = format!("3081d53181d23081cf06022a030c81c8{long}");
        let printed = format!("1.2.3=#0c81c8{long}");
        assert_eq!(of_sequence(&bytes(&encoded)), Some(printed));
    }

    /// Java prints U+FFFD for them, so that different subjects have one text.
    #[test]
    fn a_subject_that_is_not_utf8_has_no_text() {
        for encoded in [
            "300f310d300b060355040314044be47365",
            "300d310b300906035504030c02fffe",
            "300d310b300906035504031e0200e9",
        ] {
            assert_eq!(of_sequence(&bytes(encoded)), None, "{encoded}");
        }
    }

    #[test]
    fn a_subject_that_is_too_long_has_no_text() {
        let value = |length: usize| {
            let mut text = String::new();
            append_length(&mut text, length);
            bytes(&format!("{text}{}", "78".repeat(length)))
        };
        let of = |length: usize| {
            let wrap = |tag: u8, inner: &[u8]| {
                let mut head = String::new();
                append_length(&mut head, inner.len());
                [&[tag][..], &bytes(&head), inner].concat()
            };
            let pair = [&bytes("0603550403")[..], &[0x0c], &value(length)].concat();
            text(&wrap(SET, &wrap(SEQUENCE, &pair)))
        };
        assert!(of(BYTES_MAX - 3).is_some() && of(BYTES_MAX - 2).is_none());
    }

    #[test]
    fn numbers_that_are_malformed_or_too_large_are_none() {
        assert_eq!(numbers(&[0x55, 4, 3]).as_deref(), Some("2.5.4.3"));
        assert_eq!(numbers(&[39]).as_deref(), Some("0.39"));
        for wrong in [&[][..], &[0x55, 0x80, 1], &[0x55, 0x84], &[0xff; 30]] {
            assert_eq!(numbers(wrong), None, "{wrong:?}");
        }
    }

    /// Fuzz target.
    #[test]
    fn a_damaged_subject_has_a_text_or_none_and_never_a_panic() {
        let seeds = PRINTED.map(|(encoded, _)| bytes(encoded));
        fuzz("subject", 1, seeds, |input| of_sequence(input).is_some());
    }
}
