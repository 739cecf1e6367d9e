//! Moves trees of nodes between ZooKeeper and the keeper.
//!
//! ```text
//!   import   ZooKeeper's files ──► snapshot, log ──► image ─┐
//!            a live ZooKeeper  ──► source ──► live ─────────┴──► target ──► rows of the tree
//!   export   rows of the tree  ──► extract ──► image ──► snapshot, or creates at a ZooKeeper
//! ```
//!
//! An import fills a tree that no gateway opens before the import has ended ([`plinth_keeper::setup`]). It reads back
//! what it wrote. What a source sends or has in its files is hostile: it is bounded, and refused if it is no tree.
//!
//! Ephemeral nodes stay behind: they belong to sessions, and sessions do not move.

mod creating;
mod export;
mod extract;
mod files;
mod image;
mod import;
mod jute;
mod kept;
mod live;
mod log;
mod snapshot;
mod source;
mod target;
#[cfg(test)]
mod tests;

pub use creating::Live;
pub use export::{Exported, Place, to_files};
pub use extract::{Extracted, extract, extract_keeping};
pub use files::{Loaded, load};
pub use import::{Imported, from_files};
pub use live::{LiveOptions, from_live};
pub use source::Servers;

/// The error is one line for the user.
pub type Outcome<T = ()> = Result<T, String>;

/// The word before an import changes the tree: until then an interrupt leaves everything as it was.
pub const BEGINS: &str = "beginning";

/// Is told what goes on: a word for it, and how many nodes are through.
pub type Tell<'a> = &'a dyn Fn(&str, u64);

/// An error of the database, for the user.
fn of_database(error: plinth_core::Error) -> String {
    format!("the database: {error}")
}
