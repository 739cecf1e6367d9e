//! Keeps a backup of the service: a copy of the rows, and each part of the log from there on, copied by one of the
//! replicas before it is trimmed (§4.2 D).
//!
//! ```text
//!   start    {place}                a session of the backup begins there, because an operator says so
//!   again    {first}                a session begins in the same place, after a gap that nothing can fill
//!   copying  {replica, instead of}  a replica copies its rows, goes on with it, or takes over from another one
//!   copied   {position, …}          the copy is in the backup
//!   bid      {first, end, replica}  accepted if nobody has bid from there on: the replica copies this segment
//!   take     {first, bid, replica}  accepted if that bid is not done: its bidder was too slow, or is gone
//!   done     {first, sum}           the segment is in the backup
//! ```
//! All but the first name their session. Segments follow each other without a gap. What all replicas know of them is
//! rows; so everybody knows up to where the backup is whole, and the log is trimmed no further.

mod copier;
mod rows;

pub use copier::{BackupState, LogBackupBelow, TAKE_AFTER, wait};
pub use rows::{GUARD, LogBackupAbove};
