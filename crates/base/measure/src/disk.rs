//! What servers have written on this machine's disk.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it reads the machine's files, not the database's

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Size of a block as the system counts them, whatever the file system's own is.
const BLOCK_BYTES: u64 = 512;

/// Bytes that the files in a directory take on the disk, also those in directories inside. What cannot be read, or
/// goes away meanwhile, counts as nothing.
pub fn bytes_in(directory: &Path) -> u64 {
    let (mut sum, mut left) = (0, vec![PathBuf::from(directory)]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(known) if known.is_dir() => left.push(entry.path()),
                Ok(known) => sum += known.blocks() * BLOCK_BYTES,
                Err(_) => {}
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_inner_directories_count_and_missing_ones_are_nothing() {
        let directory = std::env::temp_dir().join(format!("plinth-disk-{}", std::process::id()));
        let inner = directory.join("inner");
        fs::create_dir_all(&inner).expect("a directory");
        fs::write(inner.join("file"), vec![1; 100_000]).expect("a file");
        let bytes = bytes_in(&directory);
        fs::remove_dir_all(&directory).expect("removed");
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        assert_eq!(bytes_in(&directory), 0);
    }
}
