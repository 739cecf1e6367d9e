//! The input file: lines of text.
//!
//! The default is the word list of Debian's `wamerican-huge`: some 345,000 real words, one per line, the same on
//! every machine that installs it.

use bytes::Bytes;
use plinth_core::key::VALUE_BYTES_MAX;
use plinth_terminal::Outcome;
use std::path::{Path, PathBuf};

/// Word lists with at least 100,000 words, best first.
const WORD_LISTS: &[&str] = &[
    "/usr/share/dict/american-english-huge",
    "/usr/share/dict/british-english-huge",
    "/usr/share/dict/american-english-insane",
    "/usr/share/dict/american-english-large",
    "/usr/share/dict/american-english",
    "/usr/share/dict/words",
];
const FILE_BYTES_MAX: u64 = 2 << 30;
/// Minimum number of records; with fewer the demo would show nothing.
const RECORDS_MIN: usize = 100;

pub fn find(given: Option<&Path>) -> Outcome<PathBuf> {
    if let Some(path) = given {
        return Ok(path.to_path_buf());
    }
    let found = WORD_LISTS.iter().find(|path| Path::new(path).exists());
    found.map(PathBuf::from).ok_or_else(|| {
        "no word list under /usr/share/dict; get one with `apt-get install wamerican-huge', \
        or name any file of lines with --input"
            .into()
    })
}

/// Reads the lines that are not empty.
pub fn read(path: &Path) -> Outcome<Vec<Bytes>> {
    let cannot =
        |what: String| format!("{}: {what}; name another file with --input", path.display());
    let meta = std::fs::metadata(path).map_err(|error| cannot(error.to_string()))?;
    if meta.is_dir() || meta.len() > FILE_BYTES_MAX {
        return Err(cannot("it is a directory, or larger than 2 GiB".into()));
    }
    let content = Bytes::from(std::fs::read(path).map_err(|error| cannot(error.to_string()))?);
    let mut records = Vec::new();
    for (i, line) in content.split(|&b| b == b'\n').enumerate() {
        if line.len() > VALUE_BYTES_MAX {
            return Err(cannot(format!(
                "line {} has {} bytes, more than {VALUE_BYTES_MAX}",
                i + 1,
                line.len()
            )));
        }
        if !line.is_empty() {
            records.push(content.slice_ref(line));
        }
    }
    if records.len() < RECORDS_MIN {
        return Err(cannot(format!(
            "it has {} lines, fewer than {RECORDS_MIN}",
            records.len()
        )));
    }
    Ok(records)
}
