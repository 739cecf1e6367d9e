//! The key file: text of mode 0600 beside the cluster file, one key a line.
//!
//! ```text
//! # a comment
//! plinth-key-1 server 29b2b1a3c54b7a36 <64 digits of the secret> <8 digits>
//! open-to client
//! ```
//!
//! The words of a key are: the format, the identity, the id of the key, the secret, and CRC32C of the words before it,
//! so that a damaged line is noticed at once. The first key of an identity is the one to send with; all are accepted.
//! Keys are exchanged by a file with the new generation in front, which goes to every process, and later one without
//! the old.
//!
//! The line `open-to` is for servers: those who prove nothing are this to them, a client or a reader.

use super::{Key, KeyId, unhex};
use crate::files::FileKind;
use crate::identity::Identity;
use crate::secret::{SECRET_BYTES, Secret};
use std::fmt;
use std::fmt::Write as _;
use zeroize::Zeroizing;

const FORMAT: &str = "plinth-key-1";
const FORMAT_OF_ANY_RELEASE: &str = "plinth-key-";
/// A longer file is not a key file.
pub const FILE_BYTES_MAX: usize = 64 << 10;
/// Lines with keys in a file.
pub const KEYS_MAX: usize = 32;
const OPEN_TO: &str = "open-to";
const COPY_AGAIN: &str = "copy the line again from where it came from";

/// What is wrong with a key file, in words for its owner, without any secret. The caller says which file it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyFileError {
    /// Counted from 1; `None` if it is about the whole file.
    pub line: Option<usize>,
    pub what: String,
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for KeyFileError {}

fn error<T>(what: impl Into<String>) -> Result<T, KeyFileError> {
    let what = what.into();
    Err(KeyFileError { line: None, what })
}

#[derive(Clone, PartialEq, Eq)]
enum Line {
    /// A comment or an empty line. A comment may be a key that is switched off, so it is a secret too.
    Note(Zeroizing<String>),
    Key(Key),
    OpenTo(Identity),
}

/// The keys of a file, in its order, and its comments. There is at least one key.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyFile {
    lines: Vec<Line>,
}

impl KeyFile {
    /// A file with a new server key: the secret of a cluster. `random` must come from the operating system.
    pub fn new_root(random: [u8; SECRET_BYTES]) -> KeyFile {
        KeyFile::with_heading(vec![root(random)])
    }

    fn with_heading(keys: Vec<Key>) -> KeyFile {
        let identity = keys[0].identity();
        let heading = format!(
            "# Whoever can read this file is {identity} to the cluster. Keep it at mode 0600."
        );
        let keys = keys.into_iter().map(Line::Key);
        let lines = [Line::Note(heading.into())].into_iter().chain(keys);
        KeyFile {
            lines: lines.collect(),
        }
    }

    /// Parses the content of a key file. Nothing in the error is secret.
    pub fn parse(bytes: &[u8]) -> Result<KeyFile, KeyFileError> {
        if let Some(other) = FileKind::Keys.instead(bytes) {
            return error(other);
        }
        if bytes.len() > FILE_BYTES_MAX {
            return error("it is too large for a key file; is it another file?");
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            return error("it is not text; is it another file?");
        };
        let mut lines = Vec::new();
        let mut known: Vec<(KeyId, usize)> = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let at = |what: String| KeyFileError {
                line: Some(line),
                what,
            };
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                lines.push(Line::Note(text.to_owned().into()));
                continue;
            }
            if let Some(whom) = text.strip_prefix(OPEN_TO) {
                if lines.iter().any(|line| matches!(line, Line::OpenTo(_))) {
                    let what = format!("{OPEN_TO} is there already; remove one of the lines");
                    return Err(at(what));
                }
                lines.push(Line::OpenTo(parse_open_to(whom.trim()).map_err(at)?));
                continue;
            }
            let key = parse_line(text).map_err(at)?;
            if let Some((_, before)) = known.iter().find(|(id, _)| *id == key.id()) {
                return Err(at(format!("it repeats line {before}; remove one of them")));
            }
            if known.len() == KEYS_MAX {
                let what = format!("more than {KEYS_MAX} keys; remove old generations");
                return Err(at(what));
            }
            known.push((key.id(), line));
            lines.push(Line::Key(key));
        }
        if known.is_empty() {
            return error("there is no key in it; make one with `plinth keys', or remove the file");
        }
        Ok(KeyFile { lines })
    }

    /// The content of the file.
    pub fn print(&self) -> Zeroizing<String> {
        // The buffer does not move while it grows, which would leave secrets behind.
        let bytes = self.lines.iter().map(|line| match line {
            Line::Note(text) => text.len() + 1,
            Line::Key(_) | Line::OpenTo(_) => LINE_BYTES_MAX,
        });
        let mut out = Zeroizing::new(String::with_capacity(bytes.sum()));
        for line in &self.lines {
            match line {
                Line::Note(text) => out.push_str(text),
                Line::Key(key) => print_line(key, &mut out),
                Line::OpenTo(whom) => write!(out, "{OPEN_TO} {whom}").expect("writing to a string"),
            }
            out.push('\n');
        }
        out
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.lines.iter().filter_map(|line| match line {
            Line::Key(key) => Some(key),
            Line::Note(_) | Line::OpenTo(_) => None,
        })
    }

    /// What those are to servers who prove nothing.
    pub fn open_to(&self) -> Identity {
        let open = self.lines.iter().find_map(|line| match line {
            Line::OpenTo(whom) => Some(*whom),
            Line::Note(_) | Line::Key(_) => None,
        });
        open.unwrap_or(Identity::Nobody)
    }

    /// Those who prove nothing are `whom` to servers from now on, at most clients: nobody is more without a key.
    pub fn set_open_to(&mut self, whom: Identity) {
        self.lines.retain(|line| !matches!(line, Line::OpenTo(_)));
        if whom > Identity::Nobody {
            self.lines.push(Line::OpenTo(whom.min(Identity::Client)));
        }
    }

    /// Ids and identities, in the order of the file.
    pub fn ids(&self) -> Vec<(KeyId, Identity)> {
        self.keys().map(|key| (key.id(), key.identity())).collect()
    }

    /// A file for a holder of less: of each generation, the key of `identity`.
    pub fn for_identity(&self, identity: Identity) -> Result<KeyFile, KeyFileError> {
        let mut keys: Vec<Key> = Vec::new();
        for key in self.keys().filter_map(|key| key.for_identity(identity)) {
            if !keys.iter().any(|known| known.id() == key.id()) {
                keys.push(key);
            }
        }
        if keys.is_empty() {
            return error(match identity {
                Identity::Nobody => "nobody needs no key".to_owned(),
                _ => format!("no key of it gives {identity}; use the file of a server"),
            });
        }
        Ok(KeyFile::with_heading(keys))
    }

    /// Checks that it is a file of servers: what is changed in one with lower keys reaches no server, and a new key in
    /// it locks out its holder.
    pub fn check_is_of_servers(&self) -> Result<(), KeyFileError> {
        match self.keys().any(|key| key.identity() == Identity::Server) {
            true => Ok(()),
            false => error(
                "it has no server's key; change the file of the servers, and derive this one anew",
            ),
        }
    }

    /// Puts a new server key in front of all others. `random` must come from the operating system.
    pub fn add_generation(&mut self, random: [u8; SECRET_BYTES]) -> Result<KeyId, KeyFileError> {
        self.check_is_of_servers()?;
        let key = root(random);
        if self.keys().any(|known| known.id() == key.id()) {
            return error("the new key is there already; draw other random bytes");
        }
        let printed = self.print().len() + LINE_BYTES_MAX;
        if self.keys().count() == KEYS_MAX || printed > FILE_BYTES_MAX {
            return error("there is no room for another key; drop old generations first");
        }
        let id = key.id();
        let is_key = |line: &Line| matches!(line, Line::Key(_));
        let at = self.lines.iter().position(is_key).unwrap_or(0);
        self.lines.insert(at, Line::Key(key));
        Ok(id)
    }

    /// Removes a key. The last one stays.
    pub fn drop_id(&mut self, id: KeyId) -> Result<(), KeyFileError> {
        if !self.keys().any(|key| key.id() == id) {
            let source = self.keys().find(|key| key.line().any(|key| key.id() == id));
            return error(match source {
                Some(key) => format!("key {id} follows from {key:?}; drop {} instead", key.id()),
                None => format!("there is no key {id}; `plinth keys list' shows them"),
            });
        }
        if self.keys().count() == 1 {
            return error(format!("{id} is the last key; add another one first"));
        }
        self.lines
            .retain(|line| !matches!(line, Line::Key(key) if key.id() == id));
        Ok(())
    }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys()).finish()
    }
}

fn root(random: [u8; SECRET_BYTES]) -> Key {
    assert_ne!(random, [0; SECRET_BYTES], "these bytes are not random");
    Key::new(Identity::Server, Secret::new(random))
}

const LINE_BYTES_MAX: usize = 128;

fn print_line(key: &Key, out: &mut String) {
    let begin = out.len();
    write!(out, "{FORMAT} {} {} ", key.identity(), key.id()).expect("writing to a string");
    for byte in key.secret().bytes() {
        write!(out, "{byte:02x}").expect("writing to a string");
    }
    let check = crc32c::crc32c(&out.as_bytes()[begin..]);
    write!(out, " {check:08x}").expect("writing to a string");
    debug_assert!(out.len() - begin < LINE_BYTES_MAX);
}

fn parse_open_to(whom: &str) -> Result<Identity, String> {
    let may_be = [Identity::Reader, Identity::Client];
    let found = Identity::from_name(whom).filter(|one| may_be.contains(one));
    found.ok_or_else(|| format!("`{OPEN_TO}' may be followed by reader or client only"))
}

/// The key on a line. Errors repeat no word of the line: a secret may stand where it does not belong.
fn parse_line(text: &str) -> Result<Key, String> {
    let mut words = text.split_ascii_whitespace();
    let format = words.next().unwrap_or_default();
    if format != FORMAT && format.starts_with(FORMAT_OF_ANY_RELEASE) {
        let what =
            "it is of a format that this release does not know; use the release that made it";
        return Err(what.to_owned());
    }
    let rest = [words.next(), words.next(), words.next(), words.next()];
    let ([Some(identity), Some(id), Some(secret), Some(check)], None) = (rest, words.next()) else {
        let what = format!("expected `{FORMAT} ROLE ID HEX CHECK'; {COPY_AGAIN}");
        return Err(what);
    };
    if format != FORMAT {
        return Err(format!("it does not begin with {FORMAT}; {COPY_AGAIN}"));
    }
    let checked = crc32c::crc32c(format.as_bytes());
    let checked = [identity, id, secret].iter().fold(checked, |crc, word| {
        crc32c::crc32c_append(crc32c::crc32c_append(crc, b" "), word.as_bytes())
    });
    if unhex(check).map(u32::from_be_bytes) != Some(checked) {
        return Err(format!("it is damaged: CHECK is wrong; {COPY_AGAIN}"));
    }
    let identity = Identity::from_name(identity).filter(|one| *one != Identity::Nobody);
    let Some(identity) = identity else {
        let what =
            "ROLE is none of server, operator, client and reader; make the line with `plinth keys'";
        return Err(what.to_owned());
    };
    let Some(secret) = unhex(secret).map(Secret::new) else {
        let digits = 2 * SECRET_BYTES;
        return Err(format!(
            "HEX is not {digits} digits of 0-9 and a-f; make the line with `plinth keys'"
        ));
    };
    if secret == Secret::new([0; SECRET_BYTES]) {
        return Err(
            "the key is zero, which everybody guesses; make one with `plinth keys'".to_owned(),
        );
    }
    let key = Key::new(identity, secret);
    if KeyId::parse(id) != Some(key.id()) {
        return Err(format!("ID is not that of the key; {COPY_AGAIN}"));
    }
    Ok(key)
}

#[cfg(test)]
mod tests;
