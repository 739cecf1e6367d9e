//! What a commit proxy takes from others: every commit is checked before it joins a batch.
//!
//! The client library checks the same before it sends. Here it is checked again, because whoever has a key of the
//! cluster can send anything. What a transaction may do beyond ordinary keys follows from who sends it, not from its
//! flags.

use plinth_access::Right;
use plinth_core::client_rows;
use plinth_core::conflict_ranges::{ConflictRange, ConflictRanges, Endpoint};
use plinth_core::key::{
    ALL_KEYS_END, KEY_BYTES_MAX, MUTATION_OVERHEAD_BYTES, RANGE_OVERHEAD_BYTES, SYSTEM_BEGIN,
    SYSTEM_KEY_BYTES_MAX, TENANT_PREFIX_BYTES, TRANSACTION_BYTES_MAX, VALUE_BYTES_MAX, printable,
};
use plinth_core::mutation::MutationBatch;
use plinth_core::system_keys::{METADATA_VERSION, is_metadata_key, is_metadata_range};
use plinth_core::{Error, MutationKind, MutationRef, Result, atomic};
use plinth_identity::Identity;
use plinth_protocol::transaction::{
    Commit, FLAG_LOCK_AWARE, FLAG_REPORT_CONFLICTS, FLAG_SYSTEM_KEYS, FLAG_TRACE,
    TRANSACTION_PLACES_MAX,
};
use plinth_runtime::planted;
use std::fmt;

/// Bytes that a client may add to a transaction by itself.
const CLIENT_EXTRA_BYTES: usize = 100_000;
/// Conflict ranges and mutations that a client may add by itself.
const CLIENT_EXTRA_ITEMS: usize = 16;
/// As each costs its overhead, no transaction within its limit has more.
const MUTATIONS_MAX: usize = TRANSACTION_BYTES_MAX / MUTATION_OVERHEAD_BYTES + CLIENT_EXTRA_ITEMS;
const RANGES_MAX: usize = TRANSACTION_BYTES_MAX / RANGE_OVERHEAD_BYTES + CLIENT_EXTRA_ITEMS;
/// Bytes of the place of a stamp, at the end of a versionstamped key or value.
const STAMP_PLACE_BYTES: usize = 4;

/// A transaction as the pipeline carries it. [`Pending::accept`] has checked it.
pub struct Pending {
    pub read_version: i64,
    pub reads: ConflictRanges,
    pub writes: ConflictRanges,
    pub mutations: MutationBatch,
    /// How many these are.
    pub mutation_count: u32,
    /// True if some mutation changes what the proxies keep of the system keyspace.
    pub is_system: bool,
    /// True if it commits even while the database is locked.
    pub lock_aware: bool,
    pub report_conflicts: bool,
    /// Somebody will ask when what was done with it.
    pub is_traced: bool,
    /// How many places of its batch it takes.
    pub places: u16,
    /// The first of them: the last two bytes of its versionstamp. Known when the batch is formed.
    pub order: u16,
}

/// Why a commit is not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Nobody may send it.
    Wrong(Error),
    /// The caller may not; what it lacks.
    Denied(&'static str),
    /// Nor does its token grant it.
    NoRight(plinth_access::Refused),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Wrong(error)
    }
}

impl Pending {
    /// Checks what comes from `caller`, which has this right to read and this one to write.
    pub fn accept(
        commit: Commit,
        caller: Identity,
        (read, write): (Right, Right),
    ) -> std::result::Result<Self, Refused> {
        let malformed = Error::client_invalid_operation;
        let bytes = commit.reads.len() + commit.writes.len() + commit.mutations.len();
        if bytes > TRANSACTION_BYTES_MAX + CLIENT_EXTRA_BYTES {
            return Err(Error::transaction_too_large.into());
        }
        if !(1..=TRANSACTION_PLACES_MAX).contains(&commit.places) {
            return Err(malformed.into());
        }
        let reads = ConflictRanges::parse(commit.reads).ok_or(malformed)?;
        let writes = ConflictRanges::parse(commit.writes).ok_or(malformed)?;
        if reads.len().max(writes.len()) > RANGES_MAX {
            return Err(Error::transaction_too_large.into());
        }
        let mutations = MutationBatch::parse(commit.mutations).ok_or(malformed)?;
        let rights = Rights {
            names_system_keys: commit.flags & FLAG_SYSTEM_KEYS != 0,
            is_operator: is_operator(caller),
        };
        let (mut is_system, mut mutation_count) = (false, 0);
        for (place, mutation) in mutations.iter().enumerate() {
            if place >= MUTATIONS_MAX {
                return Err(Error::transaction_too_large.into());
            }
            check_form(&mutation)?;
            is_system |= rights.check(&mutation)?;
            mutation_count += 1;
        }
        let lock_aware = commit.flags & FLAG_LOCK_AWARE != 0;
        check_right(&mutations, &reads, &writes, (&read, &write))?;
        if !rights.is_operator {
            // Without mutations it has no effect: a client fences off what it has sent before, and a lock does not
            // hold it up.
            if lock_aware && !mutations.is_empty() {
                return Err(Refused::Denied("only operators write past a lock"));
            }
            if !writes.iter().all(|range| client_rows::may_conflict(&range)) {
                let why = "only operators make others conflict over these system keys";
                return Err(Refused::Denied(why));
            }
        }
        Ok(Pending {
            read_version: commit.read_version,
            reads,
            writes,
            mutations,
            mutation_count,
            is_system,
            lock_aware,
            report_conflicts: commit.flags & FLAG_REPORT_CONFLICTS != 0,
            is_traced: commit.flags & FLAG_TRACE != 0,
            places: commit.places,
            order: 0,
        })
    }

    pub fn bytes(&self) -> usize {
        self.reads.bytes().len() + self.writes.bytes().len() + self.mutations.bytes().len()
    }
}

/// Shows which rows of the system keyspace a transaction changes, for the record of what operators do.
pub struct SystemWrites<'a>(pub &'a MutationBatch);

/// The record names so many of them.
const WRITES_SHOWN: usize = 5;

impl fmt::Display for SystemWrites<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_system = |mutation: &MutationRef<'_>| mutation.first.starts_with(SYSTEM_BEGIN);
        let mut writes = self.0.iter().filter(is_system);
        for mutation in writes.by_ref().take(WRITES_SHOWN) {
            let MutationRef { kind, first, .. } = mutation;
            write!(f, "{kind:?} {}; ", printable(first))?;
        }
        match writes.count() {
            0 => Ok(()),
            more => write!(f, "{more} more"),
        }
    }
}

/// Checks that the token grants every key: that is written, on which others conflict, or of which a conflict tells.
fn check_right(
    mutations: &MutationBatch,
    reads: &ConflictRanges,
    writes: &ConflictRanges,
    (read, write): (&Right, &Right),
) -> std::result::Result<(), Refused> {
    let may_read = |range: ConflictRange<'_>| {
        client_rows::is_only_conflict(&range) || is_inside(&range, |b, e| read.may_read(b, e))
    };
    let may_conflict = |range: ConflictRange<'_>| {
        client_rows::is_only_conflict(&range)
            || client_rows::is_own_stamp(range.begin)
            || is_inside(&range, |begin, end| write.may_write(begin, end))
    };
    let is_granted = (matches!(write, Right::Everything)
        || mutations.iter().all(|mutation| may_write(write, &mutation))
            && writes.iter().all(may_conflict))
        && (matches!(read, Right::Everything) || reads.iter().all(may_read));
    match is_granted {
        true => Ok(()),
        false => Err(Refused::NoRight(plinth_access::Refused::Beyond)),
    }
}

fn is_inside(range: &ConflictRange<'_>, holds: impl Fn(&[u8], &[u8]) -> bool) -> bool {
    match range.end == Endpoint::after(range.begin) {
        true => holds(range.begin, range.begin),
        false => holds(range.begin, &range.end.to_key()),
    }
}

fn may_write(write: &Right, mutation: &MutationRef<'_>) -> bool {
    let MutationRef { first, second, .. } = *mutation;
    match mutation.kind {
        MutationKind::ClearRange => write.may_write(first, second),
        MutationKind::SetVersionstampedKey => {
            let keys = atomic::versionstamped_key_range(first, 0);
            keys.is_some_and(|keys| write.may_write(&keys.begin, &keys.end))
        }
        // What may be written there was checked.
        MutationKind::SetVersionstampedValue if client_rows::is_own_stamp(first) => true,
        _ => write.may_write(first, first),
    }
}

fn is_operator(caller: Identity) -> bool {
    caller >= Identity::Operator
        || planted!(
            "commit_believes_the_client",
            "a commit proxy lets clients do whatever the flags of their transactions say"
        )
}

/// What a transaction may do beyond ordinary keys.
struct Rights {
    /// The caller says that it means to write system keys. Without it, such a key is a mistake.
    names_system_keys: bool,
    is_operator: bool,
}

impl Rights {
    /// True if the mutation, which is well-formed, changes what the proxies keep of the system keyspace.
    fn check(&self, mutation: &MutationRef<'_>) -> std::result::Result<bool, Refused> {
        let MutationRef {
            kind,
            first,
            second,
        } = *mutation;
        let is_clear = kind == MutationKind::ClearRange;
        let last = if is_clear { second } else { first };
        if last < SYSTEM_BEGIN || (is_clear && last == SYSTEM_BEGIN) {
            return Ok(false);
        }
        // Keys beyond all keys carry the proxies' orders to storage servers.
        let is_beyond = last > ALL_KEYS_END || (!is_clear && last == ALL_KEYS_END);
        let is_free = !is_clear && first == METADATA_VERSION;
        if is_beyond || !(is_free || self.names_system_keys) {
            return Err(Error::key_outside_legal_range.into());
        }
        // Readers rely on its growing.
        if is_free && !client_rows::may_write(mutation) {
            return Err(Error::client_invalid_operation.into());
        }
        if !self.is_operator && !client_rows::may_write(mutation) {
            return Err(Refused::Denied("only operators write these system keys"));
        }
        let metadata = match is_clear {
            true => is_metadata_range(first, second),
            false => is_metadata_key(first),
        };
        // Other proxies would not know the stamp when they apply the mutation to their copies.
        let may_be_metadata = match kind {
            MutationKind::SetVersionstampedKey => {
                let place = atomic::versionstamp_offset(first).unwrap_or(0);
                place > 0 && is_metadata_key(&first[..place])
            }
            _ => metadata,
        };
        if kind.is_versionstamped() && (metadata || may_be_metadata) {
            return Err(Error::client_invalid_operation.into());
        }
        Ok(metadata)
    }
}

/// Checks the sizes of a mutation's parts, and that they belong to its kind.
fn check_form(mutation: &MutationRef<'_>) -> Result<()> {
    let MutationRef {
        kind,
        first,
        second,
    } = *mutation;
    let key_bytes_max = |key: &[u8]| match key.starts_with(SYSTEM_BEGIN) {
        true => SYSTEM_KEY_BYTES_MAX,
        false => KEY_BYTES_MAX + TENANT_PREFIX_BYTES,
    };
    let stamp = |stamped: MutationKind| match kind == stamped {
        true => STAMP_PLACE_BYTES,
        false => 0,
    };
    if kind == MutationKind::ClearRange {
        if first > second {
            return Err(Error::inverted_range);
        }
        // An end may be the first key after the longest.
        let is_long = |key: &[u8]| key.len() > key_bytes_max(key) + 1;
        return match is_long(first) || is_long(second) {
            true => Err(Error::key_too_large),
            false => Ok(()),
        };
    }
    if first.len() > key_bytes_max(first) + stamp(MutationKind::SetVersionstampedKey) {
        return Err(Error::key_too_large);
    }
    if second.len() > VALUE_BYTES_MAX + stamp(MutationKind::SetVersionstampedValue) {
        return Err(Error::value_too_large);
    }
    let stamped = match kind {
        MutationKind::SetVersionstampedKey => first,
        MutationKind::SetVersionstampedValue => second,
        _ => return Ok(()),
    };
    let place = atomic::versionstamp_offset(stamped);
    place.map(drop).ok_or(Error::client_invalid_operation)
}

#[cfg(test)]
#[path = "accept/tests.rs"]
mod tests;
