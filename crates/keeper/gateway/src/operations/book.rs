//! The file of the log of operations, and those before it.

use crate::{OPERATIONS_LOG_BYTES, OPERATIONS_LOG_FILES};
use bytes::Bytes;
use plinth_runtime::disk::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// See the module.
pub struct Book {
    pub path: PathBuf,
    /// `None` after an error.
    file: Option<File>,
    len: u64,
    /// Where a write has failed. The file may have a part of it.
    failed_at: Option<u64>,
    /// A process that ended while it wrote has left a part of a line.
    is_torn: bool,
}

impl Book {
    pub async fn open(path: PathBuf) -> io::Result<Book> {
        let mut book = Book {
            path,
            file: None,
            len: 0,
            failed_at: None,
            is_torn: false,
        };
        book.reopen().await?;
        Ok(book)
    }

    async fn reopen(&mut self) -> io::Result<()> {
        let options = OpenOptions {
            create: true,
            exclusive: true,
            private: true,
            ..OpenOptions::default()
        };
        let file = disk::open(&self.path, options).await?;
        let size = file.size().await?;
        // What was not written whole is written over. Somebody may have put another file in the place of this one.
        let len = self.failed_at.map_or(size, |at| at.min(size));
        self.is_torn = len > 0 && file.read_at(len - 1, 1).await? != "\n";
        self.len = len;
        self.failed_at = None;
        self.file = Some(file);
        Ok(())
    }

    /// Who is told that it has failed tries it again, with the same lines.
    pub async fn write(&mut self, lines: Bytes) -> io::Result<()> {
        if self.file.is_none() {
            self.reopen().await?;
        }
        let more = lines.len() as u64;
        if self.len > 0 && self.len + more > OPERATIONS_LOG_BYTES.get() {
            self.turn().await?;
            self.reopen().await?;
        }
        let lines = match self.is_torn {
            true => [b"\n", &lines[..]].concat().into(),
            false => lines,
        };
        let more = lines.len() as u64;
        if let Some(file) = &self.file
            && let Err(error) = file.write_at(self.len, lines).await
        {
            self.file = None;
            self.failed_at = Some(self.len);
            return Err(error);
        }
        self.is_torn = false;
        self.len += more;
        Ok(())
    }

    /// Renames the files, so that a new one is begun. The oldest is replaced.
    async fn turn(&mut self) -> io::Result<()> {
        self.file = None;
        for number in (0..OPERATIONS_LOG_FILES.get()).rev() {
            let from = self.before(number);
            if disk::exists(&from).await? {
                disk::rename(&from, &self.before(number + 1)).await?;
            }
        }
        Ok(())
    }

    /// The file that is so many files old.
    fn before(&self, number: usize) -> PathBuf {
        match number {
            0 => self.path.clone(),
            number => {
                let mut name = self.path.clone().into_os_string();
                name.push(format!(".{number}"));
                Path::new(&name).to_path_buf()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::sim::{Locality, SimConfig, Simulation};

    /// A disk that becomes full in the middle takes a part.
    #[test]
    fn what_was_written_in_part_is_written_over() {
        let sim = Simulation::new(1, SimConfig::default());
        let machine = sim.add_machine(Locality::default());
        let work = async {
            disk::create_dir_all(Path::new("/log")).await.expect("made");
            let path = Path::new("/log/operations.log");
            let mut book = Book::open(path.into()).await.expect("it opens");
            book.write("one\n".into()).await.expect("written");
            let file = book.file.take().expect("it is open");
            file.write_at(4, "two and".into()).await.expect("written");
            book.failed_at = Some(4);
            drop(file);
            book.write("two and three\n".into()).await.expect("written");
            let text = disk::read_file(path).await.expect("read");
            assert_eq!(text, "one\ntwo and three\n");
        };
        sim.run_on(machine, work).expect("nothing kills it");
    }
}
