//! The files of a server of ZooKeeper: the newest snapshot that is whole, and the transactions after it.

#![allow(clippy::disallowed_types)] // the user's files, read by the user's side

use crate::image::Image;
use crate::jute::{Damage, Fault};
use crate::log::Log;
use crate::{Outcome, Tell, snapshot};
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

/// ZooKeeper's servers keep their files in this directory of their data directory.
pub const VERSION_DIRECTORY: &str = "version-2";
const READ_BYTES: usize = 1 << 20;
/// After so many transactions somebody is told how far it is.
const TELL_EVERY: u64 = 1000;

/// A tree from files.
pub struct Loaded {
    pub image: Image,
    /// Names of the snapshot and of the logs that were read.
    pub snapshot: String,
    pub logs: Vec<String>,
    /// Transactions that were applied after the snapshot.
    pub transactions: u64,
}

/// A file, and the zxid in its name.
struct Named {
    path: PathBuf,
    zxid: i64,
}

impl Named {
    fn shown(&self) -> String {
        self.path.display().to_string()
    }

    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn open(&self) -> Result<BufReader<File>, Fault> {
        let file = File::open(&self.path).map_err(|error| Fault::Io(error.to_string()))?;
        Ok(BufReader::with_capacity(READ_BYTES, file))
    }
}

/// Reads the tree in `directories`: data directories of one server, or the `version-2` in them. If the snapshots and
/// the logs lie apart, both are given.
///
/// # Errors
/// There is no snapshot, a log is damaged, or transactions between two files are missing.
pub fn load(directories: &[PathBuf], tell: Tell<'_>) -> Outcome<Loaded> {
    let shown: Vec<String> = directories
        .iter()
        .map(|at| at.display().to_string())
        .collect();
    let shown = shown.join(", ");
    let mut snapshots = named(directories, "snapshot")?;
    let logs = named(directories, "log")?;
    let mut faults = Vec::new();
    let mut found = None;
    while let Some(newest) = snapshots.pop() {
        tell("reading the snapshot", 0);
        match read_snapshot(&newest) {
            Ok(image) => {
                found = Some((image, newest));
                break;
            }
            Err(line) => faults.push(line),
        }
    }
    let Some((image, from)) = found else {
        return Err(faults.into_iter().next().unwrap_or_else(|| {
            let remedy = match logs.is_empty() {
                true => "name the data directory of a server of ZooKeeper",
                false => {
                    "only logs: name the data directory, too, by another --from-files, if the logs lie apart from it"
                }
            };
            format!("{shown}: no snapshot is there; {remedy}")
        }));
    };
    let mut loaded = Loaded {
        image,
        snapshot: from.name(),
        logs: Vec::new(),
        transactions: 0,
    };
    // The last log that begins before the snapshot may go on after it.
    let first = logs.partition_point(|log| log.zxid <= from.zxid);
    for log in &logs[first.saturating_sub(1)..] {
        apply(log, &mut loaded, tell)?;
    }
    Ok(loaded)
}

fn read_snapshot(file: &Named) -> Outcome<Image> {
    let at = |fault: Fault| format!("{}: {fault}", file.shown());
    let inside = |damage: Damage| format!("{}: {damage}", file.shown());
    match file.path.extension().and_then(|ending| ending.to_str()) {
        Some(ending @ ("gz" | "snappy")) => Err(format!(
            "{}: it is compressed; unpack it (.{ending}), or have the server take one without \
            zookeeper.snapshot.compression.method",
            file.shown()
        )),
        _ => snapshot::read(file.open().map_err(at)?, file.zxid).map_err(inside),
    }
}

fn apply(file: &Named, loaded: &mut Loaded, tell: Tell<'_>) -> Outcome {
    let at = |fault: Fault| format!("{}: {fault}", file.shown());
    let inside = |damage: Damage| format!("{}: {damage}", file.shown());
    let mut log = Log::open(file.open().map_err(at)?).map_err(at)?;
    let mut is_first = true;
    while let Some(entry) = log.next().map_err(inside)? {
        let (last, zxid) = (loaded.image.last_zxid, entry.moment.zxid);
        if zxid <= last {
            continue;
        }
        // Servers number the transactions of an epoch one after the other.
        if std::mem::take(&mut is_first) && zxid >> 32 == last >> 32 && zxid != last + 1 {
            return Err(format!(
                "{}: transactions {:#x} to {:#x} are missing before it; give all files of the server",
                file.shown(),
                last + 1,
                zxid - 1
            ));
        }
        loaded.image.apply(entry.moment, entry.changes);
        loaded.transactions += 1;
        if loaded.transactions.is_multiple_of(TELL_EVERY) {
            tell("reading the logs", loaded.transactions);
        }
    }
    loaded.logs.push(file.name());
    Ok(())
}

/// The files `kind.ZXID` in all directories, by zxid.
fn named(directories: &[PathBuf], kind: &str) -> Outcome<Vec<Named>> {
    let mut found: Vec<Named> = Vec::new();
    for directory in directories {
        let inner = directory.join(VERSION_DIRECTORY);
        let directory: &Path = if inner.is_dir() { &inner } else { directory };
        let at = |error: std::io::Error| {
            let what = match error.kind() {
                ErrorKind::NotFound => "there is none".into(),
                ErrorKind::NotADirectory => "it is no directory".into(),
                _ => error.to_string(),
            };
            format!(
                "{}: {what}; name the data directory of a server of ZooKeeper with --from-files",
                directory.display()
            )
        };
        for entry in std::fs::read_dir(directory).map_err(at)? {
            let path = entry.map_err(at)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(zxid) = zxid_of(&name, kind) {
                found.push(Named { path, zxid });
            }
        }
    }
    found.sort_by_key(|file| file.zxid);
    found.dedup_by(|a, b| a.path == b.path);
    Ok(found)
}

fn zxid_of(name: &str, kind: &str) -> Option<i64> {
    let mut parts = name.split('.');
    if parts.next() != Some(kind) {
        return None;
    }
    i64::from_str_radix(parts.next()?, 16)
        .ok()
        .filter(|zxid| *zxid >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_zxids() {
        assert_eq!(zxid_of("snapshot.1f", "snapshot"), Some(31));
        assert_eq!(zxid_of("snapshot.1f.gz", "snapshot"), Some(31));
        for other in ["snapshot", "snapshot.xyz", "log.1", "snapshot.-1", "x.1"] {
            assert_eq!(zxid_of(other, "snapshot"), None);
        }
    }

    #[test]
    fn the_files_of_the_real_thing_make_a_tree() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let mut loaded = load(&[directory.join("server")], &|_, _| {}).expect("a tree");
        assert_eq!(
            (&*loaded.snapshot, &*loaded.logs.join(" ")),
            ("snapshot.0", "log.1")
        );
        // What the server itself made of them.
        let expected = File::open(directory.join("snapshot.15")).expect("it is there");
        let expected = snapshot::read(expected, 0x15).expect("a snapshot");
        assert_eq!(loaded.image.nodes, expected.nodes);
        assert_eq!(loaded.image.last_zxid, expected.last_zxid);
        assert_eq!(loaded.image.settle("/"), Ok(1));
    }

    #[test]
    fn files_that_are_missing_are_missed() {
        let empty = std::env::temp_dir().join(format!("plinth-load-{}", std::process::id()));
        std::fs::create_dir_all(&empty).expect("a directory");
        let refused = |why: &str| match load(std::slice::from_ref(&empty), &|_, _| {}) {
            Err(line) => assert!(line.contains(why), "{line}"),
            Ok(_) => panic!("{why}"),
        };
        refused("no snapshot is there; name the data directory");
        std::fs::write(empty.join("log.1"), "").expect("written");
        refused("only logs: name the data directory, too");
        std::fs::remove_file(empty.join("log.1")).expect("removed");
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let copy = |from: &str, to: &str| {
            std::fs::copy(data.join(from), empty.join(to)).expect("copied");
        };
        copy("snapshot.15", "snapshot.15.gz");
        refused("it is compressed");
        std::fs::remove_file(empty.join("snapshot.15.gz")).expect("removed");
        copy("snapshot.15", "snapshot.15");
        std::fs::write(empty.join("log.19"), later()).expect("written");
        refused("transactions 0x16 to 0x18 are missing");
        // The newest snapshot is damaged: the one before will do.
        std::fs::remove_file(empty.join("log.19")).expect("removed");
        std::fs::write(empty.join("snapshot.99"), b"ZKSN").expect("written");
        let loaded = load(std::slice::from_ref(&empty), &|_, _| {}).expect("a tree");
        assert_eq!(loaded.snapshot, "snapshot.15");
        std::fs::remove_dir_all(&empty).expect("removed");
    }

    #[test]
    fn a_snapshot_that_cannot_be_read_is_named_with_the_node_and_the_byte() {
        let directory = std::env::temp_dir().join(format!("plinth-byte-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let mut bytes = std::fs::read(data.join("snapshot.15")).expect("it is there");
        let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|w| w == what);
        let path = b"/kinds/ttl";
        let at = find(&bytes, path).expect("the node is there");
        // The length of its data.
        bytes[at + path.len()] = 0x7f;
        let file = directory.join("snapshot.15");
        std::fs::write(&file, &bytes).expect("written");
        let line = load(std::slice::from_ref(&directory), &|_, _| {}).err();
        let said = format!(
            "{}: at byte {}, node /kinds/ttl: a length of more than 256 MiB",
            file.display(),
            at - 4
        );
        assert_eq!(line, Some(said));
        std::fs::write(&file, &bytes[..at]).expect("written");
        let line = load(std::slice::from_ref(&directory), &|_, _| {}).err();
        let line = line.expect("it is too short");
        assert!(line.ends_with(": it ends too early"), "{line}");
        assert!(line.contains(&format!("at byte {}", at - 4)), "{line}");
        std::fs::remove_dir_all(&directory).expect("removed");
    }

    /// A log with one transaction, 0x19: a session ends.
    fn later() -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(7i64.to_be_bytes());
        record.extend(1i32.to_be_bytes());
        record.extend(0x19i64.to_be_bytes());
        record.extend(1000i64.to_be_bytes());
        record.extend((-11i32).to_be_bytes());
        let mut adler = crate::jute::Adler::new();
        adler.add(&record);
        let mut log = [&b"ZKLG"[..], &[0, 0, 0, 2], &[0; 8]].concat();
        log.extend(adler.sum().to_be_bytes());
        log.extend((record.len() as i32).to_be_bytes());
        log.extend(record);
        log.push(b'B');
        log
    }
}
