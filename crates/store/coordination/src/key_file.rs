//! The key file of a process, beside its cluster file: `plinth.cluster` has `plinth.keys`.

use bytes::Bytes;
use plinth_core::Error;
use plinth_identity::Identity;
use plinth_identity::files::FileKind;
use plinth_identity::keys::{KeyFile, Keyring};
use plinth_rpc::Credentials;
use plinth_runtime::{Boxed, Duration, disk, random, sleep, trace, trace_warn};
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};

const EXTENSION: &str = "keys";
/// A file in the data directory of a server that has keys.
pub const MARK: &str = "keyed";
/// Bits of the mode that let others read or change the file.
const OTHERS: u32 = 0o077;
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The key file that belongs to a cluster file.
pub fn beside(cluster_file: &Path) -> PathBuf {
    cluster_file.with_extension(EXTENSION)
}

/// Reads a key file; `None` if there is none. The error is a line for the user, which names the file.
pub fn load(path: &Path) -> Boxed<'_, Result<Option<KeyFile>, String>> {
    Box::pin(async move {
        let at = |error: io::Error| {
            let what = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "this user may not read it: give the file this owner, or run as its owner; who needs no key uses \
                     a copy of the cluster file that lies in another directory"
                        .into()
                }
                _ => error.to_string(),
            };
            format!("key file {}: {what}", path.display())
        };
        if !disk::exists(path).await.map_err(at)? {
            return Ok(None);
        }
        let mode = disk::mode(path).await.map_err(at)?;
        let bytes = disk::read_file(path).await.map_err(at)?;
        parse(path, mode, &bytes).map(Some)
    })
}

/// The keys in a file with this mode and content. The error is a line for the user, which names the file.
pub fn parse(path: &Path, mode: u32, bytes: &[u8]) -> Result<KeyFile, String> {
    let at = |what: String| format!("key file {}: {what}", path.display());
    // Another file need not be secret.
    if let Some(other) = FileKind::Keys.instead(bytes) {
        return Err(at(other));
    }
    if mode & OTHERS != 0 {
        return Err(at(format!(
            "others can read it (mode {:04o}); run chmod 600 on it, and make new keys if somebody may have",
            mode & 0o7777
        )));
    }
    KeyFile::parse(bytes).map_err(|error| at(error.to_string()))
}

/// Writes a key file that only its owner can read. The error is a line for the user, which names the file.
pub fn save<'a>(path: &'a Path, keys: &'a KeyFile) -> Boxed<'a, Result<(), String>> {
    Box::pin(async move {
        let own = format!("{:016x}.part", random::u64());
        let text = Bytes::copy_from_slice(keys.print().as_bytes());
        let written = disk::write_private_durably(path, text, &own).await;
        written
            .map(drop)
            .map_err(|error| format!("key file {}: {error}", path.display()))
    })
}

/// A server that has no keys takes these, and is closed from then on. One that has keys already takes no others.
pub fn adopt<'a>(
    cluster_file: &'a Path,
    directory: &'a Path,
    credentials: &'a Credentials,
    text: &'a [u8],
) -> Boxed<'a, Result<(), Error>> {
    Box::pin(async move {
        let path = beside(cluster_file);
        let keys = KeyFile::parse(text).map_err(|_| Error::client_invalid_operation)?;
        let ring = Keyring::new(&keys);
        if ring.highest() != Identity::Server {
            return Err(Error::client_invalid_operation);
        }
        let failed = |why: &dyn std::fmt::Display, error: Error| {
            trace_warn!("KeysNotAdopted", "why" => why);
            error
        };
        match load(&path).await {
            Ok(None) => {
                let saved = save(&path, &keys).await;
                saved.map_err(|line| failed(&line, Error::io_error))?;
            }
            Ok(Some(known)) if known == keys => {}
            Ok(Some(_)) => return Err(Error::permission_denied),
            Err(line) => return Err(failed(&line, Error::permission_denied)),
        }
        let noted = note_keyed(directory).await;
        noted.map_err(|error| failed(&error, Error::io_error))?;
        trace!("KeysAdopted", "file" => path.display());
        credentials.set_keys(Some(ring));
        Ok(())
    })
}

/// The keys of a process with this cluster file, if it has some. The error is a line for the user.
pub fn keyring(cluster_file: &Path) -> Boxed<'_, Result<Option<Keyring>, String>> {
    Box::pin(async move {
        let file = load(&beside(cluster_file)).await?;
        Ok(file.as_ref().map(Keyring::new))
    })
}

/// What a server with this cluster file and this data directory proves. The error is a line for the user.
pub fn of_server<'a>(
    cluster_file: &'a Path,
    directory: &'a Path,
) -> Boxed<'a, Result<Credentials, String>> {
    Box::pin(async move {
        let keys = keyring(cluster_file).await?;
        check_still_keyed(directory, cluster_file, keys.is_some()).await?;
        Ok(Credentials::new(keys, Identity::Server))
    })
}

/// A server that has had keys does not go on without: whoever removes the file would open it to everybody. The error
/// is a line for the user.
pub fn check_still_keyed<'a>(
    directory: &'a Path,
    cluster_file: &'a Path,
    has_keys: bool,
) -> Boxed<'a, Result<(), String>> {
    Box::pin(async move {
        let mark = directory.join(MARK);
        let at = |error: io::Error| format!("{}: {error}", mark.display());
        match (has_keys, disk::exists(&mark).await.map_err(at)?) {
            (true, false) => note_keyed(directory).await.map_err(at),
            (false, true) => Err(format!(
                "this server has had keys, and there is no key file {}; put it back, or remove {} to let \
             everybody in",
                beside(cluster_file).display(),
                mark.display()
            )),
            _ => Ok(()),
        }
    })
}

/// Several tasks may do it at the same time: one adopts keys, and another sees that some server has put them into the
/// file, which both have.
async fn note_keyed(directory: &Path) -> io::Result<()> {
    let own = format!("{:016x}.part", random::u64());
    let text = Bytes::from_static(b"This server has keys.\n");
    let noted = disk::write_file_durably_by(&directory.join(MARK), text, &own).await;
    noted.map(drop)
}

/// Looks at the key file of a server again and again, and gives its keys to the credentials. A file that is wrong or
/// gone changes nothing: connections go on with the keys before.
pub fn follow<'a>(
    cluster_file: &'a Path,
    directory: &'a Path,
    credentials: &'a Credentials,
) -> Boxed<'a, Infallible> {
    Box::pin(async move {
        let path = beside(cluster_file);
        let (mut known, mut told) = (load(&path).await.ok().flatten(), String::new());
        loop {
            sleep(LOOK_INTERVAL).await;
            match load(&path).await {
                Ok(Some(file)) if known.as_ref() != Some(&file) => {
                    trace!("KeysChanged", "file" => path.display());
                    if let Err(error) = note_keyed(directory).await {
                        trace_warn!("KeysNotNoted", "error" => error);
                        continue; // it is tried again
                    }
                    credentials.set_keys(Some(Keyring::new(&file)));
                    known = Some(file);
                    told.clear();
                }
                Ok(_) => (),
                Err(error) if error != told => {
                    trace_warn!("KeysNotRead", "why" => error);
                    told = error;
                }
                Err(_) => (),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::join_all;
    use plinth_runtime::sim::{Locality, SimConfig, Simulation};

    #[test]
    fn several_tasks_note_at_the_same_time_that_a_server_has_keys() {
        for seed in 0..20 {
            let simulation = Simulation::new(seed, SimConfig::default());
            let machine = simulation.add_machine(Locality::default());
            let noted: Option<io::Result<bool>> = simulation.run_on(machine, async {
                let directory = Path::new("data");
                disk::create_dir_all(directory).await?;
                let noting = (0..4).map(|_| note_keyed(directory));
                let noted: io::Result<Vec<()>> = join_all(noting).await.into_iter().collect();
                noted?;
                disk::exists(&directory.join(MARK)).await
            });
            assert!(matches!(noted, Some(Ok(true))), "seed {seed}: {noted:?}");
        }
    }
}
