//! Progress of a load: a file beside the loaded file.
//!
//! ```text
//! plinth load progress 2
//! bytes 8300
//! lines 700
//! hash 00f3c2…            of all lines before that byte
//! format tsv
//! prefix p/               escaped
//! cluster description:id
//! ```
//!
//! A load is resumed only if it would load the same file to the same place. Otherwise the part that is loaded and
//! the rest would not be one file.

use crate::rows::Format;
use foldhash::quality::FixedState;
use plinth_core::key::printable;
use plinth_terminal::Outcome;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;

const FIRST_LINE: &str = "plinth load progress 2";

/// A position in the file, for messages and for resuming.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    pub bytes: u64,
    pub lines: u64,
    /// Hash of the lines before.
    pub hash: u64,
}

impl Position {
    /// Advances past a line, given with its line end.
    pub fn pass(&mut self, line: &[u8]) {
        let mut hasher = FixedState::with_seed(self.hash).build_hasher();
        hasher.write(line);
        self.hash = hasher.finish();
        self.bytes += line.len() as u64;
        self.lines += 1;
    }
}

/// Format, prefix and target of a load.
#[derive(Clone, Debug)]
pub struct Terms {
    pub format: Format,
    pub prefix: Vec<u8>,
    /// `ClusterFile::key`, which stays the same when coordinators move.
    pub cluster: String,
}

impl Terms {
    /// Names and values, as in the progress file.
    fn lines(&self) -> [(&'static str, String); 3] {
        [
            ("format", self.format.name().to_string()),
            ("prefix", printable(&self.prefix)),
            ("cluster", self.cluster.clone()),
        ]
    }
}

/// The progress file; there is none for standard input.
pub struct Sidecar {
    path: Option<PathBuf>,
    terms: Terms,
}

impl Sidecar {
    pub fn of(file: &str, terms: Terms) -> Sidecar {
        Sidecar {
            path: (file != "-").then(|| PathBuf::from(format!("{file}.plinth-progress"))),
            terms,
        }
    }

    pub fn is_kept(&self) -> bool {
        self.path.is_some()
    }

    /// The position where an earlier load stopped, or the start if there was none. Fails if its format, prefix or
    /// cluster differ.
    pub fn read(&self) -> Outcome<Position> {
        let path = self.path.as_ref().expect("standard input is not resumed");
        let at = |what: &str| {
            let path = path.display();
            format!("{path}: {what}; load from the start, without --resume")
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Position::default());
            }
            Err(error) => return Err(at(&error.to_string())),
        };
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(at("it is not a progress file of this version"));
        }
        let mut value = |name: &str| {
            let (found, value) = lines.next()?.split_once(' ')?;
            (found == name).then_some(value)
        };
        let read = (|| {
            let position = Position {
                bytes: value("bytes")?.parse().ok()?,
                lines: value("lines")?.parse().ok()?,
                hash: u64::from_str_radix(value("hash")?, 16).ok()?,
            };
            let terms = self.terms.lines();
            let terms = terms.map(|(name, now)| Some((name, value(name)?.to_string(), now)));
            Some((position, terms))
        })();
        let (position, terms) = read.ok_or_else(|| at("it is damaged"))?;
        for term in terms {
            let (name, then, now) = term.ok_or_else(|| at("it is damaged"))?;
            if then != now {
                return Err(at(&format!(
                    "it tells of a load with {name} `{then}', and this one has `{now}'; give the same"
                ))
                .replace("; load from", ", or load from"));
            }
        }
        Ok(position)
    }

    /// Whether an earlier load has left one.
    pub fn is_there(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.exists())
    }

    /// Writes the position. While a load goes on, a failure only makes a resumed load repeat work.
    pub fn write(&self, at: Position) -> std::io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let mut text = format!(
            "{FIRST_LINE}\nbytes {}\nlines {}\nhash {:016x}\n",
            at.bytes, at.lines, at.hash
        );
        for (name, value) in self.terms.lines() {
            text += &format!("{name} {value}\n");
        }
        let new = path.with_extension("plinth-progress-new");
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path))
    }

    pub fn remove(&self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path); // there may be none
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        Terms {
            format: Format::Tsv,
            prefix: b"p \0".to_vec(),
            cluster: "a:b".into(),
        }
    }

    #[test]
    fn progress_comes_back_from_its_file_if_the_terms_are_the_same() {
        let file = std::env::temp_dir().join(format!("plinth-load-{}", std::process::id()));
        let file = file.to_string_lossy();
        let sidecar = Sidecar::of(&file, terms());
        assert_eq!(sidecar.read(), Ok(Position::default()));
        let mut position = Position::default();
        position.pass(b"a\t1\n");
        position.pass(b"b\t2\n");
        assert_eq!((position.bytes, position.lines), (8, 2));
        sidecar.write(position).expect("it is written");
        assert_eq!(sidecar.read(), Ok(position));
        for (other, name) in [
            (
                Terms {
                    format: Format::Jsonl,
                    ..terms()
                },
                "format `tsv'",
            ),
            (
                Terms {
                    prefix: Vec::new(),
                    ..terms()
                },
                "prefix `p \\x00'",
            ),
            (
                Terms {
                    cluster: "a:c".into(),
                    ..terms()
                },
                "cluster `a:b'",
            ),
        ] {
            let line = Sidecar::of(&file, other).read().expect_err(name);
            assert!(
                line.contains(name) && line.contains("without --resume"),
                "{line}"
            );
        }
        let path = sidecar.path.clone().expect("a file");
        let whole = std::fs::read_to_string(&path).expect("reads");
        for damaged in ["", "x", "8 2\n", &whole[..whole.len() - 12], &whole[..40]] {
            std::fs::write(&path, damaged).expect("writes");
            assert!(sidecar.read().is_err(), "{damaged}");
        }
        sidecar.remove();
    }

    #[test]
    fn every_edit_of_the_lines_before_changes_the_hash() {
        let after = |lines: &[&[u8]]| {
            let mut position = Position::default();
            lines.iter().for_each(|line| position.pass(line));
            position
        };
        let one = after(&[b"a\t1\n", b"b\t2\n"]);
        for other in [
            after(&[b"a\t2\n", b"b\t2\n"]),
            after(&[b"b\t2\n", b"a\t1\n"]),
            after(&[b"a\t1\n", b"b\t3\n"]),
        ] {
            assert_eq!((one.bytes, one.lines), (other.bytes, other.lines));
            assert_ne!(one.hash, other.hash);
        }
    }
}
