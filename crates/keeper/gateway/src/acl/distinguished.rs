//! Names of the owners of certificates, as access lists with the scheme `x509` have them.

/// Attributes that Java knows by name.
const KEYWORDS: [&str; 21] = [
    "CN",
    "C",
    "L",
    "S",
    "ST",
    "O",
    "OU",
    "T",
    "IP",
    "STREET",
    "DC",
    "DNQ",
    "DNQUALIFIER",
    "SURNAME",
    "GIVENNAME",
    "INITIALS",
    "GENERATION",
    "EMAIL",
    "EMAILADDRESS",
    "UID",
    "SERIALNUMBER",
];
const ESCAPED: &[u8] = b",=+<>#;\"\\ ";
const SPACES: &[char] = &[' ', '\n'];

/// Whether `id` is a distinguished name: what Java's `new X500Principal(id)` takes, but for the empty name, which
/// nobody has here. Ids are compared as they are, so one that no certificate has in this form lets nobody in.
pub fn is_valid(id: &str) -> bool {
    pairs(id).is_some_and(|pairs| pairs.into_iter().all(is_pair))
}

/// The pairs of attribute and value; `None` if a quotation or an escape does not end.
fn pairs(id: &str) -> Option<Vec<&str>> {
    let (mut all, mut begin) = (Vec::new(), 0);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in id.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' | b';' | b'+' if !is_quoted => {
                all.push(&id[begin..at]);
                begin = at + 1;
            }
            _ => (),
        }
    }
    all.push(&id[begin..]);
    (!is_quoted && !is_escaped).then_some(all)
}

fn is_pair(pair: &str) -> bool {
    let Some((attribute, value)) = pair.split_once('=') else {
        return false;
    };
    let attribute = attribute.trim_matches(SPACES).to_ascii_uppercase();
    let numbers = attribute.strip_prefix("OID.").unwrap_or(&attribute);
    let is_known = KEYWORDS.contains(&&attribute[..]) || is_object(numbers);
    is_known && is_value(value.trim_start_matches(SPACES))
}

/// Numbers with dots, of which the first two are in one byte of the encoded form.
fn is_object(text: &str) -> bool {
    let numbers = text.split('.').map(|number| {
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| number.parse().unwrap_or(u64::MAX))
    });
    match numbers.collect::<Option<Vec<_>>>().as_deref() {
        Some([0 | 1, second, ..]) => *second < 40,
        Some([2, _, ..]) => true,
        _ => false,
    }
}

fn is_value(value: &str) -> bool {
    if let Some(digits) = value.strip_prefix('#') {
        return is_encoded(digits);
    }
    match value.strip_prefix('"') {
        Some(quoted) => {
            let Some(end) = end_of_quotation(quoted.as_bytes()) else {
                return false;
            };
            let rest = quoted[end + 1..].trim_matches(SPACES);
            rest.is_empty() && is_escaped_well(&quoted.as_bytes()[..end], b"")
        }
        None => is_escaped_well(value.as_bytes(), b"<>\""),
    }
}

fn end_of_quotation(text: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    text.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    })
}

/// Whether every backslash stands before a character that needs it, or before two hexadecimal digits; and nothing of
/// `unescaped` is without one.
fn is_escaped_well(text: &[u8], unescaped: &[u8]) -> bool {
    let mut rest = text;
    loop {
        rest = match rest {
            [] => return true,
            [b'\\', one, rest @ ..] if ESCAPED.contains(one) => rest,
            [b'\\', one, two, rest @ ..] if one.is_ascii_hexdigit() && two.is_ascii_hexdigit() => {
                rest
            }
            [b'\\', ..] => return false,
            [byte, ..] if unescaped.contains(byte) => return false,
            [_, rest @ ..] => rest,
        };
    }
}

/// Hexadecimal digits of a tag, a length and so many bytes.
fn is_encoded(digits: &str) -> bool {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return false;
    }
    let byte = |at: usize| {
        let digits = digits.get(2 * at..2 * at + 2)?;
        usize::from_str_radix(digits, 16).ok()
    };
    let length = match byte(1) {
        Some(length @ 0..=0x7f) => Some((2, length)),
        Some(0x81) => byte(2).map(|length| (3, length)),
        Some(0x82) => byte(2).zip(byte(3)).map(|(one, two)| (4, one << 8 | two)),
        _ => None,
    };
    length.is_some_and(|(head, length)| digits.len() / 2 == head + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `new X500Principal(id)` of Java 17 takes.
    const VALID: &[&str] = &[
        "CN=a",
        "CN=a,O=b",
        "CN=a, O=b",
        "CN = a , O = b",
        "cn=a",
        "CN=a;O=b",
        "CN=a+UID=b",
        "CN=a\\,b",
        "CN=\"a,b\"",
        "CN=#0c0161",
        "1.2.3=#0c0161",
        "1.2.3=a",
        "OID.1.2.3=#0c0161",
        "oid.1.2.3=a",
        "CN=",
        "CN=,O=b",
        "S=x",
        "T=x",
        "IP=x",
        "DNQ=x",
        "DNQUALIFIER=x",
        "SURNAME=x",
        "GIVENNAME=x",
        "INITIALS=x",
        "GENERATION=x",
        "EMAIL=x",
        "EMAILADDRESS=x",
        "UID=x",
        "SERIALNUMBER=x",
        "DC=x",
        "STREET=x",
        "CN=a=b",
        "CN=a\\=b",
        "CN=a\\00b",
        "CN=a\\ ",
        "CN=\\ a",
        "CN=\\#a",
        "CN=Käse",
        "CN=a\\C3\\A4",
        "CN=a b",
        "CN=a  b",
        "CN=a\nb",
        "CN=a\\+b",
        "CN=a\\;b",
        "CN=a#b",
        "CN=a\\\"b",
        "CN=\\C3",
        "1.2=a",
        "2.999.1=#0c0161",
        "CN=*",
        "CN=a\\\\b",
        "CN= a ",
        "  CN=a",
        "CN=a\n,O=b",
        "C=DEU",
        "C=Dä",
        "CN=\\0ab",
        "CN=\\41",
        "O=x, CN=a+UID=b",
        "CN=#0C0161",
        "CN=#13026162",
        "CN=\"a\" ",
        "CN=\" a\"",
        "CN=\"#a\"",
        "CN=\"a\\\"b\"",
        "CN=a/O=b",
        "1.2.840.113549.1.9.1=#160d61406578616d706c652e6f7267",
    ];

    #[test]
    fn a_name_is_valid_where_java_takes_it() {
        for id in VALID {
            assert!(is_valid(id), "{id}");
        }
    }

    /// What it refuses.
    const INVALID: &[&str] = &[
        " ",
        "CN=a\\",
        "CN=\"a",
        "CN=a\"b",
        "CN=#0c",
        "CN=#zz",
        "CN=#",
        "XX=a",
        "CN",
        "=a",
        "CN=a,",
        "CN=a,,O=b",
        ",CN=a",
        "CN=a+",
        "E=x",
        "SN=x",
        "CN=a<b",
        "CN=a>b",
        "CN=a\\zb",
        "CN=#a",
        "1=a",
        "3.2.1=a",
        "1.50.3=a",
        ".1.2=a",
        "1..2=a",
        "client",
        "*",
        "1.2.3.=a",
        "CN=#0c0161 ",
        "CN=#0c026",
        "CN=\"a\"b",
        "CN=a,\u{a0}O=b",
        "/CN=a",
        "CN:a",
        "OID.=a",
    ];

    #[test]
    fn a_name_is_invalid_where_java_refuses_it() {
        for id in INVALID {
            assert!(!is_valid(id), "{id}");
        }
        // Java takes it.
        assert!(!is_valid(""));
    }
}
