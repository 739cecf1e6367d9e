//! The writing side of a transaction. Nothing here waits or sends: writes go to the log.

use crate::bytes_argument::IntoKey;
use crate::special;
use crate::state::{State, key_bytes_max, shorten};
use crate::transaction::Transaction;
use plinth_core::client_rows::STAMP_OPERAND;
use plinth_core::key::{MUTATION_OVERHEAD_BYTES, RANGE_OVERHEAD_BYTES, VALUE_BYTES_MAX, key_after};
use plinth_core::system_keys::METADATA_VERSION;
use plinth_core::{Error, Key, MutationKind, MutationRef, Result, atomic};

impl State {
    /// Consumes the option for the next write. True if this write adds a conflict range.
    fn begin_write(&mut self) -> Result<bool> {
        let conflicts = !std::mem::take(&mut self.options.next_write_no_conflict);
        self.check_not_committing()?;
        Ok(conflicts)
    }

    fn push(&mut self, kind: MutationKind, first: &[u8], second: &[u8], conflicts: bool) {
        self.write_bytes += MUTATION_OVERHEAD_BYTES + first.len() + second.len();
        if conflicts || kind == MutationKind::SetVersionstampedKey {
            let end_len = if kind == MutationKind::ClearRange {
                second.len()
            } else {
                first.len() + 1
            };
            self.write_bytes += RANGE_OVERHEAD_BYTES + first.len() + end_len;
        }
        self.log
            .push(MutationRef::new(kind, first, second), conflicts);
    }

    fn write_one(&mut self, kind: MutationKind, key: &[u8], value: &[u8]) -> Result<()> {
        if special::is_special(key) {
            return special::write(self, kind, key, value);
        }
        let conflicts = self.begin_write()?;
        if key == METADATA_VERSION {
            // A layer sets this stamp to announce that its metadata has changed. Readers may rely on its growing.
            if kind != MutationKind::SetVersionstampedValue || value != STAMP_OPERAND {
                return Err(Error::client_invalid_operation);
            }
        } else if key >= self.write_end() {
            return Err(Error::key_outside_legal_range);
        }
        if !kind.is_atomic() && kind != MutationKind::Set {
            return Err(Error::invalid_mutation_type);
        }
        check_sizes(kind, key, value)?;
        self.push(kind, key, value, conflicts);
        Ok(())
    }

    fn clear_one(&mut self, key: &[u8]) -> Result<()> {
        if special::is_special(key) {
            return special::clear(self, key, &key_after(key));
        }
        let conflicts = self.begin_write()?;
        if key >= self.write_end() {
            return Err(Error::key_outside_legal_range);
        }
        // No key is longer, so there is nothing to clear.
        if key.len() <= key_bytes_max(key) {
            self.push(MutationKind::ClearRange, key, &key_after(key), conflicts);
        }
        Ok(())
    }

    fn clear_many(&mut self, begin: &[u8], end: &[u8]) -> Result<()> {
        if special::is_special(begin) && special::is_special(end) {
            return special::clear(self, begin, end);
        }
        let conflicts = self.begin_write()?;
        let (begin, end) = check_range(begin, end, self.write_end())?;
        if begin < end {
            self.push(MutationKind::ClearRange, begin, end, conflicts);
        }
        Ok(())
    }
}

fn check_sizes(kind: MutationKind, key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() > key_bytes_max(key) {
        return Err(Error::key_too_large);
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::value_too_large);
    }
    let stamped = match kind {
        MutationKind::SetVersionstampedKey => key,
        MutationKind::SetVersionstampedValue => value,
        _ => return Ok(()),
    };
    atomic::versionstamp_offset(stamped)
        .map(|_| ())
        .ok_or(Error::client_invalid_operation)
}

/// The range. Ends that are too long to be keys are replaced by shorter ones that bound the same keys.
fn check_range<'a>(
    begin: &'a [u8],
    end: &'a [u8],
    keys_end: &[u8],
) -> Result<(&'a [u8], &'a [u8])> {
    if begin > end {
        return Err(Error::inverted_range);
    }
    if begin > keys_end || end > keys_end {
        return Err(Error::key_outside_legal_range);
    }
    let cut = |key: &'a [u8]| &key[..key.len().min(key_bytes_max(key) + 1)];
    Ok((cut(begin), cut(end)))
}

impl Transaction {
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.write(MutationKind::Set, key.as_ref(), value.as_ref());
    }

    /// Changes the value of `key` by `operand` without reading it: no read conflict.
    pub fn atomic_op(&self, kind: MutationKind, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        let mut state = self.inner.state.borrow_mut();
        let result = if kind.is_atomic() {
            state.write_one(kind, key.as_ref(), operand.as_ref())
        } else {
            Err(Error::invalid_mutation_type)
        };
        state.defer(result);
    }

    fn write(&self, kind: MutationKind, key: &[u8], value: &[u8]) {
        let mut state = self.inner.state.borrow_mut();
        let result = state.write_one(kind, key, value);
        state.defer(result);
    }

    pub fn clear(&self, key: impl AsRef<[u8]>) {
        let mut state = self.inner.state.borrow_mut();
        let result = state.clear_one(key.as_ref());
        state.defer(result);
    }

    /// Removes every key of `[begin, end)`.
    pub fn clear_range(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) {
        let mut state = self.inner.state.borrow_mut();
        let result = state.clear_many(begin.as_ref(), end.as_ref());
        state.defer(result);
    }

    /// Adds a read conflict range as if `[begin, end)` had been read, except the parts that own writes answer.
    pub fn add_read_conflict_range(&self, begin: impl IntoKey, end: impl IntoKey) {
        let (begin, end) = (begin.into_key(), end.into_key());
        let mut state = self.inner.state.borrow_mut();
        let result = state.read_conflict(begin, end);
        state.defer(result);
    }

    pub fn add_read_conflict_key(&self, key: impl IntoKey) {
        let key = key.into_key();
        let mut state = self.inner.state.borrow_mut();
        let result = state.read_conflict_key(key);
        state.defer(result);
    }

    /// Adds a write conflict range as if `[begin, end)` had been written.
    pub fn add_write_conflict_range(&self, begin: impl IntoKey, end: impl IntoKey) {
        let (begin, end) = (begin.into_key(), end.into_key());
        let mut state = self.inner.state.borrow_mut();
        let result = state.write_conflict(begin, end);
        state.defer(result);
    }

    pub fn add_write_conflict_key(&self, key: impl IntoKey) {
        let key = key.into_key();
        let mut state = self.inner.state.borrow_mut();
        let result = state.write_conflict_key(key);
        state.defer(result);
    }
}

impl State {
    fn read_conflict(&mut self, begin: Key, end: Key) -> Result<()> {
        self.check_not_committing()?;
        check_range(&begin, &end, self.read_end())?;
        let (begin, end) = (shorten(begin), shorten(end));
        if self.options.ryw_disabled || !self.log.has_mutations() {
            self.attempt.add_read_range(&begin, &end, None);
        } else {
            let version_min = self.stamp_version_min();
            let writes = self.log.map(version_min).clone();
            self.attempt.add_read_range(&begin, &end, Some(&writes));
        }
        Ok(())
    }

    /// As [`read_conflict`](Self::read_conflict) of the one key, which is all that is kept: whoever adds thousands
    /// pays for no ends.
    fn read_conflict_key(&mut self, key: Key) -> Result<()> {
        let is_known = !self.options.ryw_disabled && self.log.has_mutations();
        if is_known || key.len() > key_bytes_max(&key) || key[..] >= *self.read_end() {
            let end = key_after(&key);
            return self.read_conflict(key, end);
        }
        self.check_not_committing()?;
        self.attempt.add_read_key(key);
        Ok(())
    }

    fn write_conflict_key(&mut self, key: Key) -> Result<()> {
        if key.len() > key_bytes_max(&key) || key[..] >= *self.write_end() {
            let end = key_after(&key);
            return self.write_conflict(key, end);
        }
        self.check_not_committing()?;
        self.write_bytes += RANGE_OVERHEAD_BYTES + 2 * key.len() + 1;
        self.log.add_write_conflict_key(key);
        Ok(())
    }

    fn write_conflict(&mut self, begin: Key, end: Key) -> Result<()> {
        self.check_not_committing()?;
        check_range(&begin, &end, self.write_end())?;
        let (begin, end) = (shorten(begin), shorten(end));
        if begin < end {
            self.write_bytes += RANGE_OVERHEAD_BYTES + begin.len() + end.len();
            self.log.add_write_conflict(begin, end);
        }
        Ok(())
    }
}
