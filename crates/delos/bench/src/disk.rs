//! How long an `fdatasync` takes: what an append to a log on disks cannot be faster than.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it measures the disk, outside of any runtime

use plinth_runtime::{Duration, join_all, now, offload};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BYTES: usize = 4 << 10;

fn overwrite(path: &Path, count: usize) -> std::io::Result<Vec<Duration>> {
    let file = std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    file.write_all_at(&[0; BYTES], 0)?;
    file.sync_all()?;
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let since = now();
        file.write_all_at(&[1; BYTES], 0)?;
        file.sync_data()?;
        took.push(since.elapsed());
    }
    Ok(took)
}

/// The times of `count` overwrites of 4 KiB, each with its sync, by each of `writers` that write at the same time.
///
/// # Errors
/// One line.
pub async fn syncs(at: &Path, writers: usize, count: usize) -> Result<Vec<Duration>, String> {
    let write = |writer: usize| {
        let path: PathBuf = at.join(format!("sync-{writer}"));
        offload(move || {
            let took = overwrite(&path, count);
            took.map_err(|error| format!("{}: {error}", path.display()))
        })
    };
    let all = join_all((0..writers).map(write)).await;
    let all: Result<Vec<_>, String> = all.into_iter().collect();
    Ok(all?.into_iter().flatten().collect())
}
