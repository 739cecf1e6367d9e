//! Keys that somebody serves to clients of his own: no command may write over them meanwhile, and they may be of no
//! use in another database. Whoever serves such keys registers how that is found out; a program knows what is linked.

use plinth_client::Database;
use plinth_core::key::KeyRange;
use plinth_core::{Error, Result};
use plinth_runtime::Boxed;

/// Keys that are served now.
pub struct Served {
    pub range: KeyRange,
    /// What it is, as "tree `default'".
    pub what: String,
    /// Where it is served.
    pub at: Vec<String>,
}

impl Served {
    /// The line for who would write there.
    pub fn line(&self) -> String {
        format!(
            "{} is served at {}, and serves nobody any more once its keys are written over. End what serves it first, \
             or say --force",
            self.what,
            self.at.join(", ")
        )
    }
}

pub type Look = for<'a> fn(&'a Database) -> Boxed<'a, Result<Vec<Served>>>;

#[doc(hidden)]
#[linkme::distributed_slice]
pub static LOOKS: [Look];

/// `served!(look)`: `look` is a [`Look`].
#[macro_export]
macro_rules! served {
    ($look:path) => {
        const _: () = {
            #[$crate::commands::macro_support::linkme::distributed_slice($crate::served::LOOKS)]
            #[linkme(crate = $crate::commands::macro_support::linkme)]
            static LOOK: $crate::served::Look = $look;
        };
    };
}

/// The keys of the database that are served now. Who may not find out writes only what its rights allow.
///
/// # Errors
/// Those of the database.
pub fn all(database: &Database) -> Boxed<'_, Result<Vec<Served>>> {
    Box::pin(async move {
        let mut all = Vec::new();
        for look in LOOKS {
            match look(database).await {
                Err(Error::permission_denied) => {}
                found => all.extend(found?),
            }
        }
        Ok(all)
    })
}

/// Keys that are of no use in another database without what is not copied with them.
pub struct Carried {
    /// Where such keys are.
    pub range: fn() -> KeyRange,
    /// What is in a range, and cannot be used as it is: lines for the user, each with the way out.
    pub look: for<'a> fn(&'a Database, KeyRange) -> Boxed<'a, Result<Vec<String>>>,
}

#[doc(hidden)]
#[linkme::distributed_slice]
pub static CARRIED: [Carried];

/// `carried!(range, look)`: the fields of a [`Carried`].
#[macro_export]
macro_rules! carried {
    ($range:path, $look:path) => {
        const _: () = {
            #[$crate::commands::macro_support::linkme::distributed_slice($crate::served::CARRIED)]
            #[linkme(crate = $crate::commands::macro_support::linkme)]
            static CARRIED: $crate::served::Carried = $crate::served::Carried {
                range: $range,
                look: $look,
            };
        };
    };
}

/// Where such keys are.
pub fn ranges() -> Vec<KeyRange> {
    CARRIED.iter().map(|carried| (carried.range)()).collect()
}

/// What is in a range that was copied, and cannot be used as it is: lines for the user. What was copied is there
/// although somebody may not find that out.
pub fn unusable(database: &Database, range: KeyRange) -> Boxed<'_, Vec<String>> {
    Box::pin(async move {
        let mut lines = Vec::new();
        for carried in CARRIED {
            if (carried.range)().intersects(&range) {
                let found = (carried.look)(database, range.clone()).await;
                lines.extend(found.unwrap_or_default());
            }
        }
        lines
    })
}
