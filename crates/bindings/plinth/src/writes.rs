//! The writing side of a transaction, its conflict ranges and its options.

use crate::open_error::Result;
use crate::range::{IntoKeyRange, KeyRange};
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_client::{AuthorizationToken, IntoKey, TransactionOption};
use plinth_core::key::key_after;
use plinth_core::{Error, MutationKind};

impl Transaction {
    /// Writes a value.
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.write(MutationKind::Set, key.as_ref(), value.as_ref());
    }

    /// Removes a key.
    pub fn clear(&self, key: impl AsRef<[u8]>) {
        self.clear_key(key.as_ref());
    }

    /// Removes all keys of a range. It costs the same for one key and for a billion.
    ///
    /// ```
    /// # plinth::doc_test(async |db| {
    /// db.run(async |tr| {
    ///     tr.clear_range(("session", 17));
    ///     tr.clear_range("cache/".."cache0");
    ///     Ok(())
    /// })
    /// .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn clear_range(&self, range: impl IntoKeyRange) {
        let KeyRange { begin, end, .. } = range.into_key_range();
        self.write(MutationKind::ClearRange, &begin, &end);
    }

    /// Changes the value of a key by an atomic operation, without reading it: many transactions can do so at once and
    /// do not conflict.
    ///
    /// The next read or the commit fails with [`Error::invalid_mutation_type`] if `kind` is no atomic operation.
    ///
    /// ```
    /// # use plinth::MutationKind;
    /// # plinth::doc_test(async |db| {
    /// db.run(async |tr| {
    ///     tr.atomic(MutationKind::Max, "highest", 42u64.to_le_bytes());
    ///     Ok(())
    /// })
    /// .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn atomic(&self, kind: MutationKind, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        if kind.is_atomic() {
            self.write(kind, key.as_ref(), operand.as_ref());
        } else {
            self.act(|transaction| transaction.defer_error(Error::invalid_mutation_type));
        }
    }

    /// Adds to a number of eight bytes, little-endian. A key without a value counts as 0.
    pub fn add(&self, key: impl AsRef<[u8]>, number: i64) {
        self.atomic(MutationKind::Add, key, number.to_le_bytes());
    }

    /// Writes under a key into which the commit puts the stamp of the transaction. The key is what
    /// [`Subspace::pack_with_versionstamp`](crate::Subspace::pack_with_versionstamp) gives: with ten bytes for the
    /// stamp, and their place in four bytes, little-endian, at the end.
    ///
    /// ```
    /// use plinth::{Subspace, tuple::Stamp};
    ///
    /// # plinth::doc_test(async |db| {
    /// let log = Subspace::new(("log",));
    /// db.run(async |tr| {
    ///     tr.set_versionstamped_key(log.pack_with_versionstamp((), 0, ()), "started");
    ///     Ok(())
    /// })
    /// .await?;
    /// let entries = db.run(async |tr| tr.range(&log).tuples::<(Stamp,)>().all().await).await?;
    /// assert_eq!(entries[0].1, "started");
    /// # Ok(())
    /// # });
    /// ```
    pub fn set_versionstamped_key(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.atomic(MutationKind::SetVersionstampedKey, key, value);
    }

    /// Writes a value into which the commit puts the stamp of the transaction: with ten bytes for it, and their place
    /// in four bytes, little-endian, at the end.
    pub fn set_versionstamped_value(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.atomic(MutationKind::SetVersionstampedValue, key, value);
    }

    /// Conflicts as if the transaction had read the range.
    pub fn add_read_conflict(&self, range: impl IntoKeyRange) {
        let KeyRange { begin, end, .. } = range.into_key_range();
        self.act(move |transaction| transaction.add_read_conflict_range(begin, end));
    }

    /// Conflicts as if the transaction had read the key.
    pub fn add_read_conflict_key(&self, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        self.add_read_conflict(KeyRange::new(key, key_after(key)));
    }

    /// Conflicts as if the transaction had written the range.
    pub fn add_write_conflict(&self, range: impl IntoKeyRange) {
        let KeyRange { begin, end, .. } = range.into_key_range();
        self.act(move |transaction| transaction.add_write_conflict_range(begin, end));
    }

    /// Conflicts as if the transaction had written the key.
    pub fn add_write_conflict_key(&self, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        self.add_write_conflict(KeyRange::new(key, key_after(key)));
    }

    /// Sets an option. The next read or the commit reports a value that is out of range.
    ///
    /// After [`on_error`](Transaction::on_error) only those stay that describe the work: time-out, limits, idempotency
    /// and tags. The body of [`Database::run`](crate::Database::run) sets the others each time.
    pub fn set_option(&self, option: TransactionOption) {
        self.act(move |transaction| {
            if let Err(error) = transaction.set_option(option) {
                transaction.defer_error(error);
            }
        });
    }

    /// Shows a token with every request from now on: it grants what clients may not do without one. The next attempt
    /// shows it, too.
    ///
    /// # Errors
    ///
    /// [`Error::invalid_option_value`] if it is empty or above 16 KiB.
    pub fn set_authorization_token(&self, token: impl AsRef<[u8]>) -> Result<()> {
        let token = token.as_ref().into_key();
        AuthorizationToken::new(Bytes::clone(&token)).ok_or(Error::invalid_option_value)?;
        self.act(move |transaction| {
            if let Err(error) = transaction.set_authorization_token(token) {
                transaction.defer_error(error);
            }
        });
        Ok(())
    }
}
