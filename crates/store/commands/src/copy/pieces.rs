//! Pieces of a range, their checksums, and the progress file, which lists the pieces that are done.

use foldhash::quality::FixedState;
use plinth_core::key::{printable, unprintable};
use plinth_core::{Key, KeyRange, Value};
use plinth_identity::files::FileKind;
use plinth_terminal::Outcome;
use plinth_terminal::outputs::why_not_made;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The pieces that `points` cut `whole` into.
pub fn between(whole: &KeyRange, mut points: Vec<Key>) -> Vec<KeyRange> {
    points.retain(|point| *point > whole.begin && *point < whole.end);
    points.insert(0, whole.begin.clone());
    points.push(whole.end.clone());
    points.sort();
    points.dedup();
    let piece = |ends: &[Key]| KeyRange::new(ends[0].clone(), ends[1].clone());
    points.windows(2).map(piece).collect()
}

/// Checksum of rows; their order does not matter. Databases with equal sums hold the same rows, except by chance.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    pub rows: u64,
    pub bytes: u64,
    /// Sums of two independent hashes per row.
    hashes: [u64; 2],
}

impl Sum {
    pub fn add(&mut self, key: &Key, value: &Value) {
        self.rows += 1;
        self.bytes += (key.len() + value.len()) as u64;
        for (seed, sum) in self.hashes.iter_mut().enumerate() {
            let mut hasher = FixedState::with_seed(seed as u64).build_hasher();
            // Lengths first, so that two different rows never give the same bytes.
            hasher.write_u64(key.len() as u64);
            hasher.write(key);
            hasher.write(value);
            *sum = sum.wrapping_add(hasher.finish());
        }
    }

    pub fn merge(&mut self, other: &Sum) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        for (sum, other) in self.hashes.iter_mut().zip(other.hashes) {
            *sum = sum.wrapping_add(other);
        }
    }

    pub fn shown(&self) -> String {
        format!("{:016x}{:016x}", self.hashes[0], self.hashes[1])
    }
}

/// The progress file. The first line describes the copy. Then follow one line per piece and an empty line. After
/// that, each line is the number of a piece that is done.
pub struct Progress {
    path: PathBuf,
    pieces: Vec<KeyRange>,
    done: BTreeSet<usize>,
}

/// The progress file, open for appending.
pub struct Appending {
    path: PathBuf,
    file: File,
}

/// A key as one word without blanks.
fn word(key: &Key) -> String {
    printable(key).replace(' ', "\\x20")
}

fn at(path: &Path, what: impl std::fmt::Display) -> String {
    format!("progress file {}: {what}", path.display())
}

impl Progress {
    pub fn create(path: &Path, what: &str, pieces: Vec<KeyRange>) -> Outcome<Self> {
        let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(at(
                    path,
                    "it tells of a copy that did not end; --resume goes on with it, or remove it",
                ));
            }
            Err(error) => {
                let why = why_not_made(&error);
                return Err(at(path, format!("{why} with --progress")));
            }
        };
        let mut text = format!("{what}\n");
        for piece in &pieces {
            text += &format!("{} {}\n", word(&piece.begin), word(&piece.end));
        }
        text.push('\n');
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all());
        written.map_err(|error| at(path, error))?;
        Ok(Progress {
            path: path.to_owned(),
            pieces,
            done: BTreeSet::new(),
        })
    }

    /// Reads the progress file of the copy `what`. Ignores a last line without its end.
    pub fn read(path: &Path, what: &str) -> Outcome<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => at(path, "there is none: begin without --resume"),
            _ => at(path, error),
        })?;
        let mut lines = text.lines();
        if lines.next() != Some(what) {
            return Err(match FileKind::of(text.as_bytes()) {
                Some(other) => at(
                    path,
                    format!("{other}; name the file of an earlier copy with --progress"),
                ),
                None => at(
                    path,
                    "it tells of another copy; name the one that it is of, or begin anew with another --progress",
                ),
            });
        }
        let damaged = || at(path, "it is damaged; remove it and begin anew");
        let key = |word: &str| unprintable(word).map(Key::from).ok_or_else(damaged);
        let mut pieces = Vec::new();
        for line in lines.by_ref().take_while(|line| !line.is_empty()) {
            let (begin, end) = line.split_once(' ').ok_or_else(damaged)?;
            pieces.push(KeyRange::new(key(begin)?, key(end)?));
        }
        let whole = text
            .rsplit_once('\n')
            .map_or(0, |(whole, _)| whole.lines().count());
        let numbers = whole.saturating_sub(pieces.len() + 2);
        let done: Option<BTreeSet<usize>> =
            lines.take(numbers).map(|line| line.parse().ok()).collect();
        let done = done.ok_or_else(damaged)?;
        // Each piece must begin where the one before ends; a key in a gap would never be copied.
        let has_gaps = pieces.windows(2).any(|two| two[0].end != two[1].begin);
        if pieces.is_empty()
            || has_gaps
            || pieces.iter().any(KeyRange::is_empty)
            || done.iter().any(|number| *number >= pieces.len())
        {
            return Err(damaged());
        }
        Ok(Progress {
            path: path.to_owned(),
            pieces,
            done,
        })
    }

    pub fn remove(path: &Path) -> Outcome {
        std::fs::remove_file(path).map_err(|error| at(path, error))
    }

    pub fn pieces(&self) -> &Vec<KeyRange> {
        &self.pieces
    }

    /// Numbers of the pieces that are not done.
    pub fn left(&self) -> Vec<usize> {
        let is_left = |number: &usize| !self.done.contains(number);
        (0..self.pieces.len()).filter(is_left).collect()
    }

    pub fn reopen(&self) -> Outcome<Appending> {
        let file = OpenOptions::new().append(true).open(&self.path);
        Ok(Appending {
            path: self.path.clone(),
            file: file.map_err(|error| at(&self.path, error))?,
        })
    }
}

impl Appending {
    pub fn done(&mut self, number: usize) -> Outcome {
        let written = self.file.write_all(format!("{number}\n").as_bytes());
        written.map_err(|error| at(&self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(begin: &'static str, end: &'static str) -> KeyRange {
        KeyRange {
            begin: begin.into(),
            end: end.into(),
        }
    }

    #[test]
    fn points_outside_of_the_range_cut_nothing() {
        let points = ["", "b", "b", "c", "z"].map(Key::from).to_vec();
        let cut = between(&piece("a", "d"), points);
        assert_eq!(cut, [piece("a", "b"), piece("b", "c"), piece("c", "d")]);
    }

    #[test]
    fn a_sum_does_not_depend_on_the_order_and_tells_rows_apart() {
        let rows = [("a", "1"), ("b", "2"), ("", "x")].map(|(k, v)| (Key::from(k), Value::from(v)));
        let (mut forward, mut backward) = (Sum::default(), Sum::default());
        rows.iter().for_each(|(key, value)| forward.add(key, value));
        rows.iter()
            .rev()
            .for_each(|(key, value)| backward.add(key, value));
        assert_eq!(forward, backward);
        let one = |key: &'static str, value: &'static str| {
            let mut sum = Sum::default();
            sum.add(&key.into(), &value.into());
            sum
        };
        assert_ne!(one("ab", "c"), one("a", "bc"));
    }

    #[test]
    fn a_progress_file_goes_on_where_it_ended_even_if_it_was_cut_off() {
        let path = std::env::temp_dir().join(format!("plinth-progress-{}", std::process::id()));
        let _ = std::fs::remove_file(&path); // of an earlier run
        let pieces = vec![
            piece("", "b \n"),
            piece("b \n", "c c"),
            piece("c c", "\u{7f}"),
        ];
        let created = Progress::create(&path, "this", pieces.clone()).expect("writes");
        let mut appending = created.reopen().expect("opens");
        appending.done(2).expect("writes");
        let read = Progress::read(&path, "this").expect("reads");
        assert_eq!((read.pieces(), read.left()), (&pieces, vec![0, 1]));
        appending.file.write_all(b"0").expect("writes");
        assert_eq!(Progress::read(&path, "this").expect("reads").left(), [0, 1]);
        assert!(Progress::read(&path, "that").is_err());
        assert!(Progress::create(&path, "this", pieces).is_err());
        Progress::remove(&path).expect("removes");
    }
}
