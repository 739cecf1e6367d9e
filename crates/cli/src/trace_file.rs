//! The trace of a server process: JSON lines in a file that is started anew when it has grown large.

#![allow(clippy::disallowed_types)] // an operator's file: whether it is written changes nothing for the database

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A file this long is renamed to `….old`, over the one before.
const FILE_BYTES_MAX: u64 = 16 << 20;

struct TraceFile {
    path: PathBuf,
    file: File,
    written: u64,
}

impl TraceFile {
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let written = file.metadata()?.len();
        Ok(TraceFile {
            path: path.to_path_buf(),
            file,
            written,
        })
    }

    fn write(&mut self, line: &str) -> std::io::Result<()> {
        if self.written > FILE_BYTES_MAX {
            let mut old = self.path.clone().into_os_string();
            old.push(".old");
            std::fs::rename(&self.path, old)?;
            *self = Self::open(&self.path)?;
        }
        self.written += line.len() as u64 + 1;
        self.file.write_all(format!("{line}\n").as_bytes())
    }
}

/// Sends this process's events to `path`.
pub fn start(path: &Path) -> Result<(), String> {
    let file = TraceFile::open(path).map_err(|error| {
        format!(
            "trace file {}: {error}; choose another with --trace",
            path.display()
        )
    })?;
    let file = Mutex::new(file);
    plinth_runtime::trace::set_sink(move |line| {
        let mut file = file.lock().expect("no panic while it is held");
        // A disk that is full costs the trace, not the server.
        let _ = file.write(line);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_started_anew_and_the_one_before_is_kept() {
        let path = std::env::temp_dir().join(format!("plinth-trace-{}", std::process::id()));
        let mut file = TraceFile::open(&path).expect("opens");
        file.write("first").expect("writes");
        file.written = FILE_BYTES_MAX + 1;
        file.write("second").expect("writes");
        let old = PathBuf::from(format!("{}.old", path.display()));
        assert_eq!(std::fs::read_to_string(&old).expect("kept"), "first\n");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "second\n");
        for file in [old, path] {
            std::fs::remove_file(file).expect("removes");
        }
    }
}
