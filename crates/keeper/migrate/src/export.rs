//! Exporting to ZooKeeper's files.

#![allow(clippy::disallowed_types)] // the user's files, written by the user's side

use crate::files::VERSION_DIRECTORY;
use crate::image::Image;
use crate::{Outcome, snapshot};
use plinth_keeper::tree::node::Node;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

const WRITE_BYTES: usize = 1 << 20;

/// What an export has done.
#[derive(Clone, Default, Debug)]
pub struct Exported {
    pub nodes: u64,
    pub bytes: u64,
    /// The zxid of the tree's version.
    pub zxid: i64,
    /// The file that was written.
    pub file: Option<PathBuf>,
    /// Nodes that an export before had created, which was interrupted.
    pub before: u64,
}

impl Exported {
    pub(crate) fn count(&mut self, node: &Node) {
        self.nodes += 1;
        self.bytes += node.data.len() as u64;
    }
}

/// The data directory of a server of ZooKeeper that does not yet have one.
pub struct Place {
    inner: PathBuf,
    /// Directories that were not there before, from the innermost outwards.
    made: Vec<PathBuf>,
}

impl Place {
    /// # Errors
    /// It cannot be written, or has snapshots or logs: a server would mix them with the new one.
    pub fn prepare(directory: &Path) -> Outcome<Place> {
        let inner = directory.join(VERSION_DIRECTORY);
        let new = inner
            .ancestors()
            .take_while(|above| !above.as_os_str().is_empty() && !above.exists());
        let made = new.map(Path::to_path_buf).collect();
        let place = Place { inner, made };
        let inner = &place.inner;
        std::fs::create_dir_all(inner).map_err(at(inner))?;
        for entry in std::fs::read_dir(inner).map_err(at(inner))? {
            let name = entry.map_err(at(inner))?.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("snapshot.") || name.starts_with("log.") {
                return Err(format!(
                    "{}: {name} is there already; choose an empty directory",
                    inner.display()
                ));
            }
        }
        let mut options = OpenOptions::new();
        let kept = place.kept();
        let opening = options.append(true).create(true).open(&kept);
        opening.map_err(at(&kept))?;
        Ok(place)
    }

    /// Where an export keeps what it has read: one that was interrupted goes on from there.
    pub fn kept(&self) -> PathBuf {
        self.inner.join("unfinished-export")
    }

    /// Leaves nothing of an export that has failed before it read anything.
    pub fn abandon(self) {
        let kept = self.kept();
        let is_empty = std::fs::metadata(&kept).is_ok_and(|found| found.len() == 0);
        if is_empty && std::fs::remove_file(&kept).is_ok() {
            for directory in self.made {
                let _ = std::fs::remove_dir(directory); // one that others use by now is not empty
            }
        }
    }
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}; choose another directory with --to-files")
}

/// Writes a snapshot into the data directory of a server of ZooKeeper, which then starts from it. The file has its
/// name when all of it is on the disk, and not before.
///
/// # Errors
/// As of the file.
pub fn to_files(image: &Image, place: &Place) -> Outcome<Exported> {
    let inner = &place.inner;
    let file = inner.join(format!("snapshot.{:x}", image.last_zxid));
    // A server takes what is called a snapshot for one, so the name comes last.
    let unfinished = inner.join("unfinished-snapshot");
    let write = || -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        let opened = options
            .write(true)
            .create(true)
            .truncate(true)
            .open(&unfinished)?;
        let mut out = BufWriter::with_capacity(WRITE_BYTES, opened);
        snapshot::write(image, &mut out)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        std::fs::rename(&unfinished, &file)?;
        File::open(inner)?.sync_all()
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&unfinished); // the first error is the one to tell
        at(&file)(error)
    })?;
    let _ = std::fs::remove_file(place.kept()); // no server reads it
    let mut exported = Exported {
        zxid: image.last_zxid,
        file: Some(file),
        ..Exported::default()
    };
    image.nodes.values().for_each(|node| exported.count(node));
    Ok(exported)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_keeper::setup::first_node;

    #[test]
    fn a_snapshot_is_whole_or_not_there_and_never_beside_another() {
        let directory = std::env::temp_dir().join(format!("plinth-export-{}", std::process::id()));
        let mut image = Image::default();
        image
            .add("/".into(), first_node("/", 0), true)
            .expect("a root");
        image.last_zxid = 0xabc;
        let place = Place::prepare(&directory).expect("an empty directory");
        // What an export left that was killed.
        std::fs::write(place.inner.join("unfinished-snapshot"), b"ZKSN").expect("written");
        let place = Place::prepare(&directory).expect("nothing is finished");
        let exported = to_files(&image, &place).expect("written");
        let file = exported.file.expect("a file");
        assert!(file.ends_with("version-2/snapshot.abc"));
        let again = Place::prepare(&directory).err().expect("not twice");
        assert!(again.contains("is there already"), "{again}");
        let read = snapshot::read(File::open(&file).expect("there"), 1).expect("a snapshot");
        assert_eq!(read.nodes, image.nodes);
        let left = std::fs::read_dir(&place.inner).expect("there").count();
        assert_eq!(left, 1, "nothing else is left");
        std::fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn an_export_that_fails_at_once_leaves_nothing() {
        let above = std::env::temp_dir().join(format!("plinth-failed-{}", std::process::id()));
        std::fs::create_dir_all(&above).expect("made");
        let prepare = || Place::prepare(&above.join("new/data")).expect("it can be made");
        prepare().abandon();
        let left = || std::fs::read_dir(&above).expect("there").count();
        assert_eq!(left(), 0);
        let place = prepare();
        std::fs::write(place.kept(), b"a piece").expect("written");
        place.abandon();
        assert_eq!(left(), 1, "another export goes on from there");
        std::fs::remove_dir_all(&above).expect("removed");
    }
}
