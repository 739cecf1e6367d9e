//! Whose a directory is. Commands that make files in one refuse that of another system, before they make any.

use crate::cannot_use;
use crate::cluster_file::{ClusterFile, DEFAULT_NAME};
use crate::family::{DELOS_ENDING, Family};
use plinth_runtime::disk;
use std::fmt;
use std::io;
use std::path::Path;

/// What has made itself at home in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tenant {
    /// `plinth dev`, or whoever has written a cluster file by hand.
    Cluster,
    /// `plinth farm dev`.
    Farm,
    /// `plinth delos dev`.
    Delos,
    /// A table server without others.
    Tables,
}

/// What a table server has in its directory, with any ending.
const OF_TABLES: [&str; 2] = ["log", "tables"];
/// The file by which a server knows its directory again.
const OF_SERVERS: [(&str, Tenant); 3] = [
    ("process", Tenant::Cluster),
    ("farm", Tenant::Farm),
    ("replica", Tenant::Delos),
];

impl Tenant {
    /// Checks that the directory is not another one's, unless it is this one's as well, and not a single server's.
    ///
    /// # Errors
    /// A line for the user: whose it is, or why it cannot be read.
    pub async fn check(self, directory: &Path) -> Result<(), String> {
        let found = all(directory).await.map_err(cannot_use(directory))?;
        self.is_home(directory, found)?;
        let names = names(directory).await.map_err(cannot_use(directory))?;
        match of_servers(&names).first() {
            Some((name, tenant)) => Err(format!(
                "data directory {}: it belongs to a single server of {}, whose {name} is there; choose another with \
                 --data-dir, perhaps the one above",
                directory.display(),
                tenant.system()
            )),
            None if self == Tenant::Tables => refuse_above_servers(directory, &names).await,
            None => Ok(()),
        }
    }

    /// As [`check`](Self::check), for a server in a directory where it has not served before. Cluster files may lie
    /// there, of whatever system.
    ///
    /// # Errors
    /// As there.
    pub async fn check_of_server(self, directory: &Path) -> Result<(), String> {
        let names = names(directory).await.map_err(cannot_use(directory))?;
        let mut found = of_servers(&names);
        found.extend(of_tables(&names));
        let is_own = found.iter().any(|(_, tenant)| *tenant == self);
        self.is_home(directory, found)?;
        match is_own {
            true => Ok(()),
            false => refuse_above_servers(directory, &names).await,
        }
    }

    fn system(self) -> &'static str {
        match self {
            Tenant::Cluster => "the store",
            Tenant::Farm => "the in-memory engine",
            Tenant::Delos => "a service on log stacks",
            Tenant::Tables => "tables",
        }
    }

    fn is_home(self, directory: &Path, found: Vec<(String, Tenant)>) -> Result<(), String> {
        let is_own = found.iter().any(|(_, tenant)| *tenant == self);
        match found.first().filter(|_| !is_own) {
            None => Ok(()),
            Some((name, tenant)) => Err(format!(
                "data directory {}: it belongs to {tenant}, whose {name} is there; choose another with --data-dir",
                directory.display(),
            )),
        }
    }
}

/// Refuses the directory of any server, or of a command that starts some. `flag` has named it.
///
/// # Errors
/// A line for the user.
pub async fn refuse_occupied(directory: &Path, flag: &str) -> Result<(), String> {
    let at = directory.display();
    let found = all(directory).await;
    let found = found.map_err(|error| format!("{flag} {at}: {error}; choose another directory"))?;
    match found.first() {
        None => Ok(()),
        Some((name, tenant)) => Err(format!(
            "{flag} {at}: it belongs to {}, whose {name} is there; choose another directory",
            tenant.system()
        )),
    }
}

/// Refuses the directory of a command that has started several servers: theirs are below it, one level or two.
async fn refuse_above_servers(directory: &Path, names: &[String]) -> Result<(), String> {
    for name in could_be_of_servers(names) {
        // Below a file there is nothing.
        let below = disk::list_dir(&directory.join(name)).await;
        let below = below.unwrap_or_default();
        let deeper = could_be_of_servers(&below).map(|inner| format!("{name}/{inner}"));
        for place in std::iter::once(name.clone()).chain(deeper) {
            for (file, tenant) in OF_SERVERS {
                let path = directory.join(&place).join(file);
                if disk::exists(&path).await.unwrap_or(false) {
                    return Err(format!(
                        "data directory {}: directories of servers lie in it, like {place} of {}; choose another \
                         with --data-dir",
                        directory.display(),
                        tenant.system()
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Directories of servers have no ending, and files that a server finds in a new directory do.
fn could_be_of_servers(names: &[String]) -> impl Iterator<Item = &String> {
    let names = names.iter();
    names.filter(|name| Path::new(name).extension().is_none())
}

/// What is in the directory. It need not be there.
async fn names(directory: &Path) -> io::Result<Vec<String>> {
    match disk::list_dir(directory).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names,
    }
}

fn of_servers(names: &[String]) -> Vec<(String, Tenant)> {
    let is_there = |file: &&(&str, Tenant)| names.iter().any(|name| name == file.0);
    let found = OF_SERVERS.iter().filter(is_there);
    found
        .map(|(name, tenant)| ((*name).into(), *tenant))
        .collect()
}

/// A file of a table server, if all its files are there.
fn of_tables(names: &[String]) -> Option<(String, Tenant)> {
    let [Some(_), Some(name)] = OF_TABLES.map(|of| {
        let mut named = names.iter();
        named.find(|name| name.split('.').next() == Some(of))
    }) else {
        return None;
    };
    Some((name.clone(), Tenant::Tables))
}

/// The files that tell whose a directory is.
async fn all(directory: &Path) -> io::Result<Vec<(String, Tenant)>> {
    let names = names(directory).await?;
    let mut found = of_servers(&names);
    for name in &names {
        let path = Path::new(name);
        if name == DEFAULT_NAME {
            let path = directory.join(name);
            let file = ClusterFile::read(&path).await.ok();
            let family = file.and_then(|file| Family::of(&path, &file));
            let tenants = match family {
                Some(Family::Farm) => &[Tenant::Farm][..],
                Some(_) => &[Tenant::Cluster],
                // Somebody has written it by hand, for either of them.
                None => &[Tenant::Cluster, Tenant::Farm],
            };
            found.extend(tenants.iter().map(|tenant| (name.clone(), *tenant)));
        } else if path
            .extension()
            .is_some_and(|ending| ending == DELOS_ENDING)
        {
            found.push((name.clone(), Tenant::Delos));
        }
    }
    found.extend(of_tables(&names));
    Ok(found)
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tenant::Cluster => "a cluster of the store (plinth dev)",
            Tenant::Farm => "a cluster of the in-memory engine (plinth farm dev)",
            Tenant::Delos => "a service on log stacks (plinth delos dev)",
            Tenant::Tables => "a server of tables (plinth table server)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::sim::{SimConfig, Simulation};

    #[test]
    fn a_directory_of_a_server_is_occupied_and_an_empty_one_and_none_are_not() {
        let refused = Simulation::new(1, SimConfig::default()).run(async {
            let path = Path::new("/s1");
            assert_eq!(refuse_occupied(path, "--to-files").await, Ok(()));
            disk::create_dir_all(path).await.expect("made");
            assert_eq!(refuse_occupied(path, "--to-files").await, Ok(()));
            let written = disk::write_file_durably(&path.join("process"), "x".into()).await;
            written.expect("written");
            refuse_occupied(path, "--to-files").await
        });
        assert_eq!(
            refused.result.expect_err("a server's").as_str(),
            "--to-files /s1: it belongs to the store, whose process is there; choose another directory"
        );
    }
}
