//! Key files: where they lie, and how they are written.

use crate::Outcome;
use crate::outputs::why_not_made;
use plinth_coordination::key_file;
use plinth_identity::Identity;
use plinth_identity::keys::KeyFile;
use plinth_runtime::{random, secret};
use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Bytes of a secret.
const SECRET_BYTES: usize = 32;
/// Only the owner reads and writes it.
const MODE: u32 = 0o600;

/// For a new key.
pub fn secret() -> [u8; SECRET_BYTES] {
    let mut secret = [0; SECRET_BYTES];
    secret::fill(&mut secret);
    secret
}

/// Writes the key file.
pub fn write(path: &Path, file: &KeyFile, replaces: bool) -> Outcome {
    write_secret(path, file.print().as_bytes(), replaces)
}

/// Writes a file of keys that only its owner can read. It is there in full, or not at all.
pub fn write_secret(path: &Path, text: &[u8], replaces: bool) -> Outcome {
    let at =
        |error: std::io::Error| format!("key file {}: {}", path.display(), why_not_made(&error));
    if !replaces && path.exists() {
        return Err(format!(
            "key file {}: it is there already; nothing has changed",
            path.display()
        ));
    }
    let part = path.with_extension(format!("{:016x}.part", random::u64()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&part);
    let written = written.and_then(|mut part| {
        part.set_permissions(Permissions::from_mode(MODE))?;
        part.write_all(text)?;
        part.sync_all()
    });
    let put = |()| match replaces {
        true => std::fs::rename(&part, path),
        // Fails if somebody else has made it meanwhile.
        false => std::fs::hard_link(&part, path).and_then(|()| std::fs::remove_file(&part)),
    };
    let put = written.and_then(put);
    if put.is_err() {
        let _ = std::fs::remove_file(&part); // it may not be there
    }
    put.map_err(at)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    OpenOptions::new()
        .read(true)
        .open(above)
        .and_then(|above| above.sync_all())
        .map_err(at)
}

/// The key file, which must be there.
pub async fn found(path: &Path) -> Outcome<KeyFile> {
    let found = key_file::load(path).await?;
    found.ok_or_else(|| {
        format!(
            "key file {}: there is none; make one with `plinth keys new', or name the cluster file with -C",
            path.display()
        )
    })
}

/// Keys for a new cluster. Its servers are closed; clients need no key.
pub fn for_new_cluster() -> KeyFile {
    let mut file = KeyFile::new_root(secret());
    file.set_open_to(Identity::Client);
    file
}

/// Makes keys for a new cluster, unless there are some.
pub fn make_for_new_cluster(cluster_file: &Path) -> Outcome {
    make(cluster_file, for_new_cluster)
}

/// The same, for one that nobody gets into without a key.
pub fn make_closed(cluster_file: &Path) -> Outcome {
    make(cluster_file, || KeyFile::new_root(secret()))
}

fn make(cluster_file: &Path, keys: impl FnOnce() -> KeyFile) -> Outcome {
    let path = key_file::beside(cluster_file);
    match path.exists() {
        true => Ok(()), // whoever reads it says what is wrong with it
        false => write(&path, &keys(), false),
    }
}
