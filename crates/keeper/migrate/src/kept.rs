//! What an export has read of a tree, kept in a file until the export is done, so that one that was interrupted goes
//! on where it was.
//!
//! ```text
//!   frame*            frame: length: 4 | payload | sum: 8        the sum is of all payloads so far
//!   first payload:    what the pieces are of
//!   other payloads:   version: 8 | key of the next row, or none | damaged paths | nodes
//! ```
//! A process may be killed after any byte. A frame that is not whole, with all that follows it, counts as not written.

#![allow(clippy::disallowed_types)] // the user's files, written by the user's side

use crate::Outcome;
use crate::jute::{Fault, Input, Output, Taken};
use plinth_core::hash::hash_bytes;
use plinth_core::{Key, Version};
use plinth_keeper::tree::node::{Counts, Data, Lifetime, Node};
use plinth_keeper::wire::Text;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const READ_BYTES: usize = 1 << 20;

/// Some of a tree's nodes, in the order of their rows.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Piece {
    /// That the rows were read at.
    pub version: Version,
    /// Where the next piece begins; `None` if this is the last.
    pub next: Option<Key>,
    pub nodes: Vec<(Text, Node)>,
    pub damaged: Vec<Text>,
}

/// The file. Nobody else has it as long as this lives.
pub struct Kept {
    path: PathBuf,
    file: File,
    /// What the pieces are of.
    of: String,
    sum: u64,
}

impl Kept {
    /// Opens the file, and hands its pieces to `take` if they are of what `of` says. Others are forgotten, and so is
    /// what was not written to its end.
    ///
    /// # Errors
    /// It cannot be read or written, or another process has it.
    pub fn open(path: &Path, of: &str, mut take: impl FnMut(Piece)) -> Outcome<Kept> {
        let at = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(at)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                format!("{}: another export is writing there", path.display())
            }
            TryLockError::Error(error) => at(error),
        })?;
        let mut kept = Kept {
            path: path.into(),
            file,
            of: of.into(),
            sum: 0,
        };
        let whole = kept.read(&mut take)?;
        match whole {
            0 => kept.clear()?,
            whole => kept.cut(whole)?,
        }
        Ok(kept)
    }

    /// How many bytes of it are whole frames: 0 if it is of something else.
    fn read(&mut self, take: &mut impl FnMut(Piece)) -> Outcome<u64> {
        let mut input = Input::new(BufReader::with_capacity(READ_BYTES, &self.file));
        let (mut whole, mut is_first) = (0, true);
        while let Ok((payload, sum)) = take_frame(&mut input, self.sum) {
            if std::mem::take(&mut is_first) {
                if payload != self.of.as_bytes() {
                    return Ok(0);
                }
            } else {
                // Its sum is right: a later release has written it.
                let Ok(piece) = Piece::read(&payload) else {
                    break;
                };
                take(piece);
            }
            self.sum = sum;
            whole = input.offset;
        }
        Ok(whole)
    }

    fn at(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }

    /// Forgets what follows the first `len` bytes.
    fn cut(&mut self, len: u64) -> Outcome {
        let cutting = self.file.set_len(len);
        let seeking = cutting.and_then(|()| self.file.seek(SeekFrom::Start(len)));
        seeking.map(drop).map_err(|error| self.at(&error))
    }

    /// Forgets all pieces.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn clear(&mut self) -> Outcome {
        self.cut(0)?;
        self.sum = 0;
        self.put(self.of.clone().into_bytes())
    }

    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, piece: &Piece) -> Outcome {
        let payload = piece.to_payload().map_err(|error| self.at(&error))?;
        self.put(payload)
    }

    fn put(&mut self, payload: Vec<u8>) -> Outcome {
        let sum = sum_of(self.sum, &payload);
        let mut frame = Vec::with_capacity(payload.len() + 12);
        let mut out = Output::new(&mut frame);
        let writing = out
            .buffer(Some(&payload))
            .and_then(|()| out.long(sum as i64));
        let writing = writing.and_then(|()| self.file.write_all(&frame));
        writing.map_err(|error| self.at(&error))?;
        self.sum = sum;
        Ok(())
    }
}

/// The next frame, if its sum is right: its payload, and the sum.
fn take_frame(input: &mut Input<impl std::io::Read>, before: u64) -> Taken<(Vec<u8>, u64)> {
    let payload = input.buffer()?.ok_or(Fault::End)?;
    let sum = sum_of(before, &payload);
    match input.long()? == sum as i64 {
        true => Ok((payload, sum)),
        false => Err(Fault::Damaged("its sum is wrong")),
    }
}

fn sum_of(before: u64, payload: &[u8]) -> u64 {
    hash_bytes(
        &[
            &before.to_be_bytes()[..],
            &hash_bytes(payload).to_be_bytes(),
        ]
        .concat(),
    )
}

impl Piece {
    fn to_payload(&self) -> std::io::Result<Vec<u8>> {
        let mut payload = Vec::new();
        let mut out = Output::new(&mut payload);
        let count = |len: usize| i32::try_from(len).expect("a piece is small");
        out.long(self.version)?;
        out.buffer(self.next.as_deref())?;
        out.int(count(self.damaged.len()))?;
        for path in &self.damaged {
            out.text(path)?;
        }
        out.int(count(self.nodes.len()))?;
        for (path, node) in &self.nodes {
            out.text(path)?;
            match &node.data {
                Data::None => out.buffer(None)?,
                Data::Here(data) => out.buffer(Some(data))?,
                Data::Unread(_) | Data::Damaged(_) => unreachable!("a piece has its data"),
            }
            out.acl(&node.acl)?;
            for number in [
                node.czxid,
                node.mzxid,
                node.pzxid,
                node.ctime,
                node.mtime,
                node.lifetime.owner(),
            ] {
                out.long(number)?;
            }
            for number in [
                node.version,
                node.aversion,
                node.counts.created,
                node.counts.present,
            ] {
                out.int(number)?;
            }
        }
        Ok(payload)
    }

    fn read(payload: &[u8]) -> Taken<Piece> {
        let mut input = Input::new(payload);
        let mut piece = Piece {
            version: input.long()?,
            next: input.data()?,
            ..Piece::default()
        };
        for _ in 0..input.int()? {
            piece.damaged.push(input.text()?);
        }
        for _ in 0..input.int()? {
            let path = input.text()?;
            let (data, acl) = (input.data()?, input.acl()?);
            let node = Node {
                data: Data::of(data),
                acl: acl.into(),
                czxid: input.long()?,
                mzxid: input.long()?,
                pzxid: input.long()?,
                ctime: input.long()?,
                mtime: input.long()?,
                lifetime: Lifetime::of_owner(input.long()?),
                version: input.int()?,
                aversion: input.int()?,
                counts: Counts {
                    created: input.int()?,
                    present: input.int()?,
                },
            };
            piece.nodes.push((path, node));
        }
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_keeper::setup::first_node;

    fn piece(number: u8) -> Piece {
        let mut node = first_node("/", 3);
        node.data = Data::Here(vec![number; 20].into());
        node.lifetime = Lifetime::Ttl(7000);
        Piece {
            version: number.into(),
            next: (number < 3).then(|| Key::from(vec![number])),
            nodes: vec![("/a".into(), node)],
            damaged: vec!["/b".into()],
        }
    }

    fn read(path: &Path, of: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        Kept::open(path, of, |piece| pieces.push(piece)).expect("it opens");
        pieces
    }

    /// A file of three pieces, and how long it was after each of its frames.
    fn written(path: &Path) -> Vec<u64> {
        let mut kept = Kept::open(path, "it", |_| panic!("it is new")).expect("it opens");
        let mut ends = vec![kept.file.metadata().expect("it is there").len()];
        for number in 1..=3 {
            kept.add(&piece(number)).expect("written");
            ends.push(kept.file.metadata().expect("it is there").len());
        }
        ends
    }

    #[test]
    fn an_export_that_is_killed_after_any_byte_goes_on_with_the_pieces_that_are_whole() {
        let directory = std::env::temp_dir().join(format!("plinth-kept-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("kept");
        let ends = written(&path);
        let whole = std::fs::read(&path).expect("it is there");
        assert_eq!(read(&path, "it"), [piece(1), piece(2), piece(3)]);
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).expect("written");
            let frames = ends.iter().filter(|end| **end <= len as u64).count();
            let expected: Vec<Piece> = (1..frames as u8).map(piece).collect();
            assert_eq!(read(&path, "it"), expected, "{len} bytes");
            // What is added follows what is whole.
            let mut kept = Kept::open(&path, "it", drop).expect("it opens");
            kept.add(&piece(9)).expect("written");
            drop(kept);
            let read = read(&path, "it");
            assert_eq!((read.len(), read.last()), (frames.max(1), Some(&piece(9))));
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).expect("written");
            let frames = ends.iter().filter(|end| **end <= at as u64).count();
            let expected: Vec<Piece> = (1..frames as u8).map(piece).collect();
            assert_eq!(read(&path, "it"), expected, "byte {at} is another one");
        }
        std::fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn pieces_of_something_else_are_forgotten_and_two_exports_do_not_share_a_file() {
        let directory = std::env::temp_dir().join(format!("plinth-kept-2-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("kept");
        written(&path);
        assert_eq!(read(&path, "another"), []);
        assert_eq!(read(&path, "it"), []);
        let _first = Kept::open(&path, "it", drop).expect("it opens");
        let second = Kept::open(&path, "it", drop).err();
        assert!(second.expect("it is taken").contains("another export"));
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
