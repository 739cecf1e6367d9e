//! Which system a cluster file is of. All systems have the same form of file, so that a tool of one can read the file
//! of another, and would wait for a cluster that never answers it.

use crate::cluster_file::{ClusterFile, ClusterFileError};
use crate::register::OF_ANOTHER_SYSTEM;
use crate::{CoordinatedState, Coordinators};
use plinth_core::{Error, Uid};
use plinth_rpc::Transport;
use plinth_runtime::{Boxed, Duration, timeout};
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
/// How the in-memory engine's record begins, whatever its format is.
const FARM_RECORD: &[u8] = b"farmrec";
/// The store's state begins with the number of its format and that of its epoch, a log stack's map with the number
/// of its version. No format has come near this number.
const FORMATS_MAX: u32 = 1 << 10;
/// Coordinators that do not tell what they keep in this time are passed over.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

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

    /// The system that has left such a state on coordinators, whatever the file says that names them. `None`: it is
    /// not known.
    pub fn of_state(state: &[u8]) -> Option<Family> {
        if state.starts_with(FARM_RECORD) {
            return Some(Family::Farm);
        }
        let (first, rest) = state.split_first_chunk()?;
        let (second, _) = rest.split_first_chunk()?;
        let (first, second) = (u32::from_le_bytes(*first), u32::from_le_bytes(*second));
        match second {
            // The upper half of a version that no map reaches.
            0 => Some(Family::Delos),
            _ if first < FORMATS_MAX => Some(Family::Store),
            _ => None,
        }
    }

    /// Whether a coordinator in a process of this system takes such a state.
    ///
    /// # Errors
    /// [`OF_ANOTHER_SYSTEM`].
    pub(crate) fn admit(self, state: &[u8]) -> Result<(), Error> {
        match Family::of_state(state) {
            Some(other) if other != self => Err(OF_ANOTHER_SYSTEM),
            _ => Ok(()),
        }
    }

    /// How its states begin.
    fn mark(self) -> &'static [u8] {
        match self {
            Family::Store => &[1, 0, 0, 0, 1, 0, 0, 0],
            Family::Delos => &[0; 8],
            Family::Farm => FARM_RECORD,
        }
    }

    /// The other system whose state the coordinators of the file keep, or in whose processes they are: somebody has
    /// written the file by hand, and nothing else tells. It holds up nobody who writes there. `None` also if they do
    /// not tell.
    pub fn other_behind<'a>(
        self,
        transport: &'a Transport,
        file: &'a ClusterFile,
    ) -> Boxed<'a, Option<Family>> {
        Box::pin(async move {
            let coordinators = Coordinators::from(file.clone());
            let state = CoordinatedState::new(transport, &coordinators, Uid(0));
            let looking = async {
                if let Some(found) = state.peek().await? {
                    return Family::of_state(&found);
                }
                let takes = async |family: Family| state.takes(family.mark()).await;
                if takes(self).await {
                    return None;
                }
                for other in [Family::Store, Family::Delos, Family::Farm] {
                    if other != self && takes(other).await {
                        return Some(other);
                    }
                }
                None
            };
            let found = timeout(LOOK_LIMIT, looking).await??;
            Some(found).filter(|found| *found != self)
        })
    }

    /// The line about coordinators that keep the state of `found`, from a command or a server of this system.
    pub fn not_own(self, found: Family) -> String {
        let of = found.system();
        format!(
            "its coordinators are those of {found}, not of {self}: use plinth{of} status with this file, or name \
             another file with -C"
        )
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
    fn what_coordinators_keep_tells_whose_they_are() {
        for (state, family) in [
            (&b"farmrec2\x01\0\0\0"[..], Some(Family::Farm)),
            (b"farmrec3", Some(Family::Farm)),
            (b"\x02\0\0\0\x07\0\0\0\0\0\0\0\x01", Some(Family::Store)),
            (b"\x03\0\0\0\x07\0\0\0\0\0\0\0\x01", Some(Family::Store)),
            (b"\x02\0\0\0\0\0\0\0map", Some(Family::Delos)),
            (b"something else", None),
            (b"farm", None),
            (b"", None),
        ] {
            assert_eq!(Family::of_state(state), family, "{state:?}");
        }
    }

    #[test]
    fn a_coordinator_takes_states_of_its_own_system_and_no_other() {
        let all = [Family::Store, Family::Delos, Family::Farm];
        for own in all {
            assert_eq!(Family::of_state(own.mark()), Some(own));
            for other in all {
                assert_eq!(own.admit(other.mark()).is_ok(), own == other);
            }
            assert_eq!(own.admit(b"something else"), Ok(()));
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
