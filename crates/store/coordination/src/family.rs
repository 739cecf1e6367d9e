//! Which system a cluster file is of. All systems have the same form of file, so that a tool of one can read the file
//! of another, and would wait for a cluster that never answers it.

use crate::cluster_file::{ClusterFile, ClusterFileError};
use plinth_core::Error;
use plinth_runtime::Boxed;
use plinth_tls::Settings;
use std::fmt;
use std::path::Path;

/// A system that has clusters of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// The gateways of the keeper use it, too.
    Store,
    /// Services on log stacks.
    Delos,
    /// The in-memory engine.
    Farm,
}

/// The ending of a service's file.
pub const DELOS_ENDING: &str = "delos";
/// The description in the files that `plinth farm dev` writes.
pub const FARM_DESCRIPTION: &str = "farm";
/// The description in the files that `plinth dev` writes.
pub const DEV_DESCRIPTION: &str = "dev";
/// The ending of the files of both.
const ENDING: &str = "cluster";
/// What FoundationDB calls its file.
const FOREIGN_NAME: &str = "fdb.cluster";
/// Digits of an id that a command has drawn.
const DRAWN_DIGITS: usize = 16;

impl Family {
    /// The system whose commands write such a file at such a place. `None`: it may be any system's, as one that was
    /// written by hand.
    pub fn of(path: &Path, file: &ClusterFile) -> Option<Family> {
        let ending = path.extension()?;
        if ending == DELOS_ENDING {
            return Some(Family::Delos);
        }
        if path.file_name()? == FOREIGN_NAME {
            return Some(Family::Store);
        }
        let key = file.key();
        let (description, id) = key.split_once(':')?;
        let is_drawn = id.len() == DRAWN_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
        match description {
            _ if ending != ENDING || !is_drawn => None,
            DEV_DESCRIPTION => Some(Family::Store),
            FARM_DESCRIPTION => Some(Family::Farm),
            _ => None,
        }
    }

    /// Reads the file of a command of this system, as [`ClusterFile::load_with`] does.
    ///
    /// # Errors
    /// Also if it is the file of another system: a line for the user.
    pub fn load(
        self,
        path: &Path,
        settings: Settings,
    ) -> Boxed<'_, Result<ClusterFile, ClusterFileError>> {
        Box::pin(async move {
            // First of all: keys and certificates are of no use with a file of others.
            self.check(path, &ClusterFile::read(path).await?)?;
            ClusterFile::load_with(path, settings).await
        })
    }

    /// Refuses the file of another system.
    ///
    /// # Errors
    /// A line with a command that takes the file.
    pub fn check(self, path: &Path, file: &ClusterFile) -> Result<(), ClusterFileError> {
        let Some(found) = Family::of(path, file).filter(|found| *found != self) else {
            return Ok(());
        };
        let (path, system) = (path.display(), found.system());
        let line = format!(
            "{path} is a cluster file of {found}, not of {self}; use plinth{system} status -C {path}, or another \
             command of plinth help{system}"
        );
        Err(ClusterFileError(line, Error::connection_string_invalid))
    }

    /// The word before its commands, behind a blank.
    fn system(self) -> &'static str {
        match self {
            Family::Store => "",
            Family::Delos => " delos",
            Family::Farm => " farm",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Store => "the store",
            Family::Delos => "a service on log stacks",
            Family::Farm => "the in-memory engine",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: &str = "00ff00ff00ff00ff";

    fn of(path: &str, key: &str) -> Option<Family> {
        let file = ClusterFile::parse(&format!("{key}@127.0.0.1:4500")).expect("valid");
        Family::of(Path::new(path), &file)
    }

    #[test]
    fn a_file_is_of_the_system_whose_commands_write_such_a_file_there() {
        let (dev, farm) = (format!("dev:{DRAWN}"), format!("farm:{DRAWN}"));
        for (path, key, family) in [
            ("d/locks.delos", "locks:ab", Some(Family::Delos)),
            ("d/dev.delos", &dev, Some(Family::Delos)),
            ("d/farm.delos", &farm, Some(Family::Delos)),
            ("d/plinth.cluster", &dev, Some(Family::Store)),
            (
                "d/plinth.cluster",
                &format!("{dev}_12"),
                Some(Family::Store),
            ),
            ("/etc/foundationdb/fdb.cluster", "a:b", Some(Family::Store)),
            ("d/plinth.cluster", &farm, Some(Family::Farm)),
            // Somebody may have chosen these words for something else.
            ("d/plinth.cluster", "mydata:a1b2", None),
            ("d/plinth.cluster", "farm:a1b2", None),
            ("d/plinth.cluster", "dev:a1b2", None),
            ("d/service", &farm, None),
            ("d/locks.service", &dev, None),
        ] {
            assert_eq!(of(path, key), family, "{path} {key}");
        }
    }

    #[test]
    fn the_file_of_another_system_is_refused_with_a_command_that_takes_it() {
        let file = ClusterFile::parse("locks:ab@127.0.0.1:4700").expect("valid");
        let path = Path::new("locks.delos");
        assert_eq!(Family::Delos.check(path, &file), Ok(()));
        let refused = Family::Store
            .check(path, &file)
            .expect_err("it is another's");
        assert_eq!(
            refused.to_string(),
            "locks.delos is a cluster file of a service on log stacks, not of the store; use plinth delos status -C \
             locks.delos, or another command of plinth help delos"
        );
        let unknown = Path::new("plinth.cluster");
        for family in [Family::Store, Family::Delos, Family::Farm] {
            assert_eq!(family.check(unknown, &file), Ok(()));
        }
    }
}
