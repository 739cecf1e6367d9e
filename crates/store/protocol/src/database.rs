//! Which database something is of. Two databases of one cluster are one after the other: the second was created when
//! nothing showed that there was a first, for instance because its disks were not mounted. Whoever meets something of
//! another database than its own leaves it as it is.

use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::{Epoch, Uid, record};

/// Format of [`DatabaseState`](crate::control::DatabaseState).
pub const STATE_FORMAT: u32 = 3;
/// Format of [`FormerDatabaseState`](crate::control::FormerDatabaseState).
pub const FORMER_STATE_FORMAT: u32 = 2;

/// In place of the id of a database from before there were ids.
pub const WITHOUT_ID: Uid = Uid(0);

record! {
    /// The name of a database among all that there ever were.
    #[derive(Copy, Eq)]
    pub struct DatabaseId {
        pub id: Uid,
        /// The database is older than ids: it got this one later, and some of what belongs to it may lack it.
        pub is_former: bool,
    }
}

impl DatabaseId {
    /// That of a database from before there were ids.
    pub const FORMER: DatabaseId = DatabaseId {
        id: WITHOUT_ID,
        is_former: true,
    };

    /// Whether that which was kept for the database `kept` may be of this one.
    pub fn may_own(&self, kept: Uid) -> bool {
        kept == self.id || kept == WITHOUT_ID && self.is_former
    }
}

/// The database that a coordinator's register holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    pub database: DatabaseId,
    pub epoch: Epoch,
    /// Somebody may have served it. Otherwise an attempt to create it, or to give it its id, may have failed.
    pub is_confirmed: bool,
}

impl Owner {
    /// The owner of what coordinators keep. `None` if it is of another system, or of a version that is not known.
    pub fn of_state(mut state: Bytes) -> Option<Owner> {
        let format = u32::take(&mut state)?;
        // There the map of a log stack has the upper half of its version, and that is zero.
        if u32::take(&mut state.clone())? == 0 {
            return None;
        }
        match format {
            FORMER_STATE_FORMAT => Some(Owner {
                database: DatabaseId::FORMER,
                epoch: Epoch::take(&mut state)?,
                is_confirmed: true,
            }),
            STATE_FORMAT => {
                let epoch = Epoch::take(&mut state)?;
                Some(Owner {
                    database: DatabaseId::take(&mut state)?,
                    epoch,
                    is_confirmed: bool::take(&mut state)?,
                })
            }
            _ => None,
        }
    }

    /// True if somebody may have served it: one that is older than ids was, before its id is certain, too.
    pub fn was_served(&self) -> bool {
        self.is_confirmed || self.database.is_former
    }

    pub fn is_same(&self, other: &Owner) -> bool {
        self.database.may_own(other.database.id) || other.database.may_own(self.database.id)
    }

    /// True if the two cannot stand beside each other in one set of coordinators, although one may be the former state
    /// of the other: a majority had the id before anybody was told that it is certain.
    pub fn excludes(&self, other: &Owner) -> bool {
        let are_certain = self.is_confirmed && other.is_confirmed;
        !self.is_same(other) || are_certain && self.database.id != other.database.id
    }

    /// True if `next` must not take its place: it is of another database, whatever the ids say, for epochs only grow.
    pub fn keeps_out(&self, next: &Owner) -> bool {
        let is_other = self.database.id != next.database.id;
        !self.is_same(next) || is_other && next.epoch < self.epoch
    }
}

/// A database, for people.
pub fn named(database: Uid) -> String {
    match database {
        WITHOUT_ID => "a database that has no id yet".into(),
        id => format!("database {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{DatabaseState, FormerDatabaseState};
    use crate::log::LogSystem;
    use plinth_core::DatabaseConfig;

    const BORN: DatabaseId = DatabaseId {
        id: Uid(7),
        is_former: false,
    };
    const ADOPTED: DatabaseId = DatabaseId {
        id: Uid(8),
        is_former: true,
    };

    #[test]
    fn what_has_no_id_is_only_of_a_database_that_is_older_than_ids() {
        assert!(BORN.may_own(Uid(7)) && !BORN.may_own(Uid(8)) && !BORN.may_own(WITHOUT_ID));
        assert!(ADOPTED.may_own(Uid(8)) && ADOPTED.may_own(WITHOUT_ID) && !ADOPTED.may_own(Uid(7)));
    }

    #[test]
    fn the_state_of_each_format_tells_its_owner() {
        let log_system = LogSystem {
            generations: vec![],
        };
        let state = |database, is_confirmed| {
            let state = DatabaseState {
                format: STATE_FORMAT,
                epoch: 4,
                database,
                is_confirmed,
                config: DatabaseConfig::default(),
                log_system: log_system.clone(),
            };
            Owner::of_state(state.to_bytes()).expect("its owner")
        };
        let former = FormerDatabaseState {
            format: FORMER_STATE_FORMAT,
            epoch: 4,
            config: DatabaseConfig::default(),
            log_system: log_system.clone(),
        };
        let former = Owner::of_state(former.to_bytes()).expect("its owner");
        assert!(former.is_confirmed, "it was perhaps served");
        let (born, adopted) = (state(BORN, true), state(ADOPTED, false));
        assert_eq!((born.database, born.is_confirmed), (BORN, true));
        assert_eq!((adopted.database, adopted.is_confirmed), (ADOPTED, false));
        assert!(former.is_same(&adopted) && adopted.is_same(&former));
        assert!(!former.is_same(&born) && !born.is_same(&former) && !born.is_same(&adopted));
        for other in [
            &b"farmrec2\x01\0\0\0"[..],
            b"\x02\0\0\0\0\0\0\0map",
            b"\x09\0\0\0rest",
            b"x",
            b"",
        ] {
            assert_eq!(
                Owner::of_state(Bytes::from_static(other)),
                None,
                "{other:?}"
            );
        }
    }
}
