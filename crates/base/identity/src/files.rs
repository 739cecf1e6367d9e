//! What a file is, by its content: somebody has given it where another one is wanted, and is told so. Pure, and no
//! secret is in what it says.

use crate::tokens::said;
use plinth_core::texts;

/// So much of a file tells what it is.
pub const HEAD_BYTES: usize = 64 << 10;
/// How lines of key files begin, whatever their format is.
const KEY_LINE: &str = "plinth-key-";
/// The same of a key that signs tokens.
const SIGNING_LINE: &str = "plinth-sign-";
/// How the objects of a service's backup begin.
const BACKUP: &[u8] = b"PlDl";
const BYTE_ORDER_MARK: char = '\u{feff}';

texts! {
    /// A file that a flag of some command takes, and what the user is told of it: what it is, and who takes it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum FileKind {
        Cluster = "it is a cluster file, which -C takes";
        Keys = "it is a key file, with the keys of a cluster; it lies beside the cluster file, as NAME.keys beside \
                NAME.cluster";
        SigningKey = "it is a key that signs tokens, which `plinth token sign --key' takes";
        Token = "it is a token, which --token takes where a client has that flag";
        PrivateKey = "it is the private key of a certificate, which --tls-key-file takes";
        Certificate = "it is a certificate, which --tls-certificate-file or --tls-ca-file takes";
        Flags = "it is a file of flags, which --config takes where a server has that flag";
        Backup = "it is a part of the backup of a service, whose directory `plinth delos restore' takes";
        Pairs = "it is a file of pairs, which `plinth load' takes";
    }
}

impl FileKind {
    /// What a file is that begins with these bytes; `None` if it is none of these. It may be damaged.
    pub fn of(bytes: &[u8]) -> Option<FileKind> {
        if bytes.starts_with(BACKUP) {
            return Some(FileKind::Backup);
        }
        let head = &bytes[..bytes.len().min(HEAD_BYTES)];
        let text = match std::str::from_utf8(head) {
            Ok(text) => text,
            // The last letter may be cut off.
            Err(error) if error.error_len().is_none() => {
                std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => return None,
        };
        let text = text.trim_start_matches(BYTE_ORDER_MARK);
        if let Some(kind) = pem(text) {
            return Some(kind);
        }
        let lines = text.lines().map(str::trim_end);
        let mut lines = lines.filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let first = lines.next()?;
        match first.trim() {
            line if line.starts_with(KEY_LINE) || line.starts_with("open-to ") => {
                Some(FileKind::Keys)
            }
            line if line.starts_with(SIGNING_LINE) => Some(FileKind::SigningKey),
            line if said(line.as_bytes()).is_ok() => Some(FileKind::Token),
            line if is_cluster(line) => Some(FileKind::Cluster),
            line if is_pair(first) || line.starts_with("{\"key\":") => Some(FileKind::Pairs),
            line if is_flag(line) && lines.all(is_flag_or_more_of_one) => Some(FileKind::Flags),
            _ => None,
        }
    }

    /// What to say of a file that begins with these bytes, where one of another kind is wanted; `None` if it is of
    /// this kind, or of none that is known.
    pub fn instead(self, bytes: &[u8]) -> Option<String> {
        let found = FileKind::of(bytes).filter(|found| *found != self)?;
        Some(found.to_string())
    }
}

fn pem(text: &str) -> Option<FileKind> {
    let begins = |what: &str| text.contains(&format!("-----BEGIN {what}-----"));
    let of_keys = ["", "ENCRYPTED ", "RSA ", "EC "];
    // A file may have both, and then it is the key that counts: it is secret.
    if of_keys
        .iter()
        .any(|kind| begins(&format!("{kind}PRIVATE KEY")))
    {
        return Some(FileKind::PrivateKey);
    }
    ["CERTIFICATE", "TRUSTED CERTIFICATE"]
        .iter()
        .any(|what| begins(what))
        .then_some(FileKind::Certificate)
}

/// `description:id@ADDRESS,…`
fn is_cluster(line: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    let Some((name, places)) = line.split_once('@') else {
        return false;
    };
    let has_name = name
        .split_once(':')
        .is_some_and(|(description, id)| is_word(description) && is_word(id));
    has_name && places.contains(':') && !places.contains(char::is_whitespace)
}

/// Key, tab, value: a key that begins with a tab, or has none, is not told from other text.
fn is_pair(line: &str) -> bool {
    line.split_once('\t')
        .is_some_and(|(key, value)| !key.is_empty() && !value.contains('\t'))
}

/// `name = value`, or the begin of a section.
fn is_flag(line: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let section = line
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let entry = line.split_once('=').map(|(name, _)| name.trim());
    section.or(entry).is_some_and(is_name)
}

/// A list may take up several lines.
fn is_flag_or_more_of_one(line: &str) -> bool {
    is_flag(line) || line.trim_start().starts_with(['"', '\'', ']'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyFile;
    use crate::tokens::{Claims, SigningKey};
    use bytes::Bytes;

    fn token() -> String {
        let key = SigningKey::new("web", [0xa5; 32]).expect("a name");
        let claims = Claims {
            until: 1,
            read: vec![Bytes::new()],
            ..Claims::default()
        };
        key.sign(&claims).expect("it is within its bounds")
    }

    #[test]
    fn a_file_tells_what_it_is_and_another_one_nothing() {
        let keys = KeyFile::new_root([7; 32]).print();
        let token = token();
        for (text, kind) in [
            (
                "# ours\norders:a1b2@10.0.0.1:4500,10.0.0.2:4500\n",
                Some(FileKind::Cluster),
            ),
            (
                "\u{feff}dev:00ff@db-0.db:4500:tls\r\n",
                Some(FileKind::Cluster),
            ),
            (&keys, Some(FileKind::Keys)),
            (
                "# secret\nplinth-sign-1 a5 web\n",
                Some(FileKind::SigningKey),
            ),
            (&token, Some(FileKind::Token)),
            (
                "-----BEGIN CERTIFICATE-----\nMII\n",
                Some(FileKind::Certificate),
            ),
            (
                "text\n-----BEGIN EC PRIVATE KEY-----\nMII\n",
                Some(FileKind::PrivateKey),
            ),
            (
                "# flags\nlisten = \"10.0.0.1:4500\"\nknob = [\n  \"a=1\",\n]\n",
                Some(FileKind::Flags),
            ),
            ("[knob]\nmoves_max = 3\n", Some(FileKind::Flags)),
            ("PlDlMan2\0\0", Some(FileKind::Backup)),
            ("app/a\t1\napp/b\t2\n", Some(FileKind::Pairs)),
            ("{\"key\":\"a\",\"value\":\"b\"}\n", Some(FileKind::Pairs)),
            ("", None),
            ("# nothing\n\n", None),
            ("hello world", None),
            ("a@b", None),
            ("a.b.c", None),
        ] {
            assert_eq!(FileKind::of(text.as_bytes()), kind, "{text:?}");
        }
        assert_eq!(FileKind::of(&[0xff, 0xfe, 0]), None);
    }

    #[test]
    fn what_is_said_of_a_file_says_nothing_that_is_in_it() {
        let (token, keys) = (token(), KeyFile::new_root([0xa5; 32]).print());
        for text in [&token[..], &keys, "plinth-sign-1 a5a5 web"] {
            let said = FileKind::Cluster
                .instead(text.as_bytes())
                .expect("it is known");
            assert!(!said.contains("a5a5") && !said.contains(&token), "{said}");
        }
        assert_eq!(FileKind::Token.instead(token.as_bytes()), None);
        assert_eq!(FileKind::Token.instead(b"hello"), None);
    }

    #[test]
    fn a_long_file_is_looked_at_up_to_a_bound_and_a_letter_that_is_cut_off_is_left_out() {
        let long = format!("a = '{}'", "é".repeat(HEAD_BYTES));
        assert_eq!(FileKind::of(long.as_bytes()), Some(FileKind::Flags));
    }
}
