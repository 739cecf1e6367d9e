//! What a data directory says about its replica: the file `replica`, a line a fact, beside the service's file
//! `service.delos`.

use bytes::Bytes;
use plinth_coordination::{ClusterFile, coordinator};
use plinth_runtime::{disk, random};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Names the replica that the directory has.
pub const FILE: &str = "replica";
const SERVICE_FILE: &str = "service.delos";
const TITLE: &str = "plinth delos replica 1";
/// A longer file is not one of these.
const FILE_BYTES_MAX: usize = 64 << 10;
pub const NAME_BYTES_MAX: usize = 100;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub service: ClusterFile,
    pub kind: String,
    pub name: String,
    /// Drawn when the replica was made.
    pub id: u64,
    /// Where others find it: the log and its coordinators name this address.
    pub address: SocketAddr,
}

/// True for a name that is good for a replica or a kind: a word that a command line takes.
pub fn is_name(name: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_good)
}

/// The service's file in a data directory.
pub fn service_file(directory: &Path) -> PathBuf {
    directory.join(SERVICE_FILE)
}

impl Identity {
    /// A new replica.
    pub fn draw(service: ClusterFile, kind: &str, name: &str, address: SocketAddr) -> Identity {
        Identity {
            service,
            kind: kind.into(),
            name: name.into(),
            id: random::u64(),
            address,
        }
    }

    fn text(&self) -> String {
        let Identity {
            kind,
            name,
            id,
            address,
            ..
        } = self;
        let service = self.service.key();
        format!(
            "{TITLE}\nservice {service}\nkind {kind}\nname {name}\nid {id:016x}\naddress {address}\n"
        )
    }

    /// `None` if it is damaged.
    fn parse(text: &str, service: ClusterFile) -> Option<Identity> {
        let mut lines = text.lines();
        let is_titled = lines.next() == Some(TITLE);
        let mut fact = |name: &str| {
            let (key, value) = lines.next()?.split_once(' ')?;
            (key == name).then(|| value.to_string())
        };
        let of = fact("service")?;
        let (kind, name) = (fact("kind")?, fact("name")?);
        let id = u64::from_str_radix(&fact("id")?, 16).ok()?;
        let address = fact("address")?.parse().ok()?;
        let is_good = is_titled && of == service.key() && is_name(&kind) && is_name(&name);
        (is_good && lines.next().is_none()).then_some(Identity {
            service,
            kind,
            name,
            id,
            address,
        })
    }

    /// What the directory has; `None` if it has no replica.
    ///
    /// # Errors
    /// A line for an operator.
    pub async fn load(directory: &Path) -> Result<Option<Identity>, String> {
        let path = directory.join(FILE);
        let unreadable = |error| format!("cannot read {}: {error}", path.display());
        if !disk::exists(&path).await.map_err(unreadable)? {
            return Ok(None);
        }
        let damaged = || {
            format!(
                "{} is damaged: remove this replica, and add one with an empty data directory",
                path.display()
            )
        };
        disk::sync_dir(directory).await.map_err(unreadable)?;
        let bytes = disk::read_file(&path).await.map_err(unreadable)?;
        let service = ClusterFile::read(&service_file(directory)).await;
        let service = service.map_err(|error| error.to_string())?;
        if bytes.len() > FILE_BYTES_MAX {
            return Err(damaged());
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| damaged())?;
        let found = Identity::parse(text, service).ok_or_else(damaged)?;
        Ok(Some(found))
    }

    /// Makes the directory this replica's. The coordinator in it has promised nothing before.
    ///
    /// # Errors
    /// A line for an operator. Nothing says then that there is a replica.
    pub async fn save(&self, directory: &Path) -> Result<(), String> {
        let path = directory.join(FILE);
        let unwritable = |error| format!("cannot write {}: {error}", directory.display());
        let begun = coordinator::begin(directory, &self.service.key()).await;
        begun.map_err(unwritable)?;
        let saved = self.service.save(&service_file(directory)).await;
        saved.map_err(unwritable)?;
        let written = disk::write_file_durably(&path, Bytes::from(self.text())).await;
        written.map(drop).map_err(unwritable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_was_cut_short_between_its_files_is_begun_anew_in_any_service() {
        use plinth_runtime::sim::{Locality, SimConfig, Simulation};
        let simulation = Simulation::new(1, SimConfig::default());
        let machine = simulation.add_machine(Locality::default());
        let ran = simulation.run_on(machine, async {
            let directory = Path::new("/data");
            disk::create_dir_all(directory).await.expect("made");
            let of = |service: &str| {
                let service = ClusterFile::parse(service).expect("a file");
                Identity::draw(service, "lock", "a", ([10, 0, 0, 1], 1).into())
            };
            let first = of("locks:a1@10.0.0.1:1");
            first.save(directory).await.expect("saved");
            let removed = disk::remove(&directory.join(FILE)).await;
            removed.expect("it was cut short before its last file");
            let second = of("locks:a2@10.0.0.1:1");
            second.save(directory).await.expect("it is tried again");
            assert_eq!(Identity::load(directory).await, Ok(Some(second)));
        });
        ran.expect("it comes to its end");
    }

    #[test]
    fn an_identity_comes_back_and_a_damaged_one_does_not_pass() {
        let service = ClusterFile::parse("locks:a1@10.0.0.1:1").expect("a file");
        let one = Identity {
            service: service.clone(),
            kind: "lock".into(),
            name: "a".into(),
            id: 7,
            address: ([10, 0, 0, 1], 1).into(),
        };
        let text = one.text();
        assert_eq!(Identity::parse(&text, service.clone()), Some(one.clone()));
        for cut in 0..text.len() - 1 {
            let read = Identity::parse(&text[..cut], service.clone());
            assert!(read.is_none_or(|read| read.address != one.address));
        }
        let other = ClusterFile::parse("locks:a2@10.0.0.1:1").expect("a file");
        assert_eq!(Identity::parse(&text, other), None, "of another service");
    }
}
