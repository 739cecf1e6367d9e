//! A transaction: its own writes over the engine's snapshot, until they are committed together.

use super::database::{Database, Engine, error_of};
use super::writes::Writes;
use crate::error::Result as StructureResult;
use bytes::Bytes;
use plinth_core::key::{SYSTEM_BEGIN, VALUE_BYTES_MAX};
use plinth_core::{Error, MutationKind, Result};
use plinth_runtime::{Backoff, Duration, yield_now};
use std::cell::RefCell;
use std::rc::Rc;

/// Of the second attempt after an error; the first one follows at once.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_secs(1)).at_random();

/// A handle to a transaction. Clones are the same transaction.
pub struct Transaction<E: Engine> {
    pub(super) database: Database<E>,
    state: Rc<RefCell<State<E>>>,
}

impl<E: Engine> Clone for Transaction<E> {
    fn clone(&self) -> Self {
        Transaction {
            database: self.database.clone(),
            state: Rc::clone(&self.state),
        }
    }
}

struct State<E: Engine> {
    writes: Rc<Writes>,
    /// The first error of this attempt, of a call that could not return it or of a read: nothing works after it.
    error: Option<Error>,
    is_committing: bool,
    /// The engine's transaction, from the first read on.
    attempt: Option<Rc<E::Transaction>>,
    /// `None` if there was no error yet.
    backoff: Option<Backoff>,
    /// Of this attempt.
    number: u64,
}

/// A part in the engine's transaction.
pub(super) struct Attempt<E: Engine> {
    pub tx: Rc<E::Transaction>,
    number: u64,
}

impl<E: Engine> Attempt<E> {
    fn new(tx: &Rc<E::Transaction>, number: u64) -> Self {
        Attempt {
            tx: Rc::clone(tx),
            number,
        }
    }
}

impl<E: Engine> State<E> {
    fn new(number: u64) -> Self {
        State {
            number,
            writes: Rc::default(),
            error: None,
            is_committing: false,
            attempt: None,
            backoff: None,
        }
    }

    fn check_usable(&self) -> Result<()> {
        match self.error {
            Some(error) => Err(error),
            None if self.is_committing => Err(Error::used_during_commit),
            None => Ok(()),
        }
    }

    fn fail(&mut self, error: Error) -> Error {
        *self.error.get_or_insert(error)
    }
}

impl<E: Engine> Transaction<E> {
    pub fn database(&self) -> &Database<E> {
        &self.database
    }

    /// What has been written up to now.
    pub(super) fn writes(&self) -> Result<Rc<Writes>> {
        let state = self.state.borrow();
        state.check_usable()?;
        Ok(Rc::clone(&state.writes))
    }

    /// The engine's transaction, which begins if it has not yet.
    pub(super) async fn attempt(&self) -> Result<Attempt<E>> {
        {
            let state = self.state.borrow();
            state.check_usable()?;
            if let Some(tx) = &state.attempt {
                return Ok(Attempt::new(tx, state.number));
            }
        }
        let begun = self.database.engine().begin().await;
        let mut state = self.state.borrow_mut();
        state.check_usable()?;
        match begun {
            // Another read may have begun one meanwhile.
            Ok(begun) => {
                let number = state.number;
                let tx = state.attempt.get_or_insert_with(|| Rc::new(begun));
                Ok(Attempt::new(tx, number))
            }
            Err(abort) => Err(state.fail(error_of(abort.into()))),
        }
    }

    /// What a read returns that was part of `attempt`.
    pub(super) fn outcome<T>(&self, attempt: &Attempt<E>, result: StructureResult<T>) -> Result<T> {
        let mut state = self.state.borrow_mut();
        if state.number != attempt.number {
            return Err(Error::transaction_cancelled);
        }
        result.map_err(|error| state.fail(error_of(error)))
    }

    fn write(&self, key: &[u8], value_bytes: usize, change: impl FnOnce(&mut Writes)) {
        let mut state = self.state.borrow_mut();
        let key_bytes_max = self.database.tree().settings().key_bytes_max;
        let outcome = match state.check_usable() {
            Ok(()) if key >= SYSTEM_BEGIN => Err(Error::key_outside_legal_range),
            Ok(()) if key.len() > key_bytes_max => Err(Error::key_too_large),
            Ok(()) if value_bytes > VALUE_BYTES_MAX => Err(Error::value_too_large),
            usable => usable,
        };
        match outcome {
            Ok(()) => change(Rc::make_mut(&mut state.writes)),
            Err(error) => {
                state.fail(error);
            }
        }
    }

    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.write(key, value.len(), |writes| {
            writes.set(
                Bytes::copy_from_slice(key),
                Some(Bytes::copy_from_slice(value)),
            );
        });
    }

    pub fn clear(&self, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        self.write(key, 0, |writes| {
            writes.set(Bytes::copy_from_slice(key), None)
        });
    }

    /// Changes the value of `key` by `operand`. The value is read at the commit, and conflicts like a read.
    pub fn atomic_op(&self, kind: MutationKind, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        if !kind.is_atomic() || kind.is_versionstamped() {
            let error = if kind.is_versionstamped() {
                Error::unsupported_operation
            } else {
                Error::invalid_mutation_type
            };
            self.state.borrow_mut().fail(error);
            return;
        }
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.write(key, operand.len(), |writes| {
            let operand = Bytes::copy_from_slice(operand);
            writes.atomic_op(kind, Bytes::copy_from_slice(key), operand);
        });
    }

    /// Removes every key of `[begin, end)`.
    pub fn clear_range(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) {
        let (begin, end) = (begin.as_ref(), end.as_ref());
        let mut state = self.state.borrow_mut();
        let outcome = match state.check_usable() {
            Ok(()) if begin > end => Err(Error::inverted_range),
            Ok(()) if end > SYSTEM_BEGIN => Err(Error::key_outside_legal_range),
            usable => usable,
        };
        match outcome {
            Ok(()) => Rc::make_mut(&mut state.writes).clear_range(begin, end),
            Err(error) => {
                state.fail(error);
            }
        }
    }

    /// Makes all writes visible to others at one moment, or none. After an error the outcome is that of the error:
    /// only after `commit_unknown_result` it may have happened. Nothing works afterwards until
    /// [`on_error`](Transaction::on_error) or [`reset`](Transaction::reset). Error: `commit_read_incomplete` if a read
    /// of it has begun and not ended.
    pub async fn commit(&self) -> Result<()> {
        let writes = self.writes()?;
        if writes.is_empty() && self.state.borrow().attempt.is_none() {
            self.state.borrow_mut().is_committing = true;
            return Ok(());
        }
        self.attempt().await?;
        let (attempt, number) = {
            let mut state = self.state.borrow_mut();
            state.check_usable()?;
            state.is_committing = true;
            (state.attempt.take(), state.number)
        };
        let Some(attempt) = attempt else {
            return Err(Error::transaction_cancelled);
        };
        let result = self.finish(attempt, &writes).await;
        let mut state = self.state.borrow_mut();
        if state.number != number {
            return Err(Error::transaction_cancelled);
        }
        result.map_err(|error| state.fail(error))
    }

    /// Carries out the writes, and commits.
    async fn finish(&self, attempt: Rc<E::Transaction>, writes: &Writes) -> Result<()> {
        let tree = self.database.tree();
        let applied = super::commit::apply(tree, &*attempt, writes).await;
        applied.map_err(error_of)?;
        // Whoever still reads has a part in it.
        let attempt = Rc::try_unwrap(attempt).map_err(|_| Error::commit_read_incomplete)?;
        let committed = self.database.engine().commit(attempt).await;
        committed.map_err(|abort| error_of(abort.into()))
    }

    /// Forgets everything, and begins another attempt. Reads under way fail with `transaction_cancelled`.
    pub fn reset(&self) {
        let mut state = self.state.borrow_mut();
        *state = State::new(state.number + 1);
    }

    /// Fails everything of this attempt with `transaction_cancelled`, until [`reset`](Transaction::reset).
    pub fn cancel(&self) {
        let mut state = self.state.borrow_mut();
        state.error = Some(Error::transaction_cancelled);
        state.attempt = None;
        state.number += 1;
    }

    /// Waits for a time that suits `error` and begins another attempt. If the error will not go away, returns it and
    /// leaves the transaction cancelled.
    pub async fn on_error(&self, error: Error) -> Result<()> {
        if !error.is_retryable() {
            self.cancel();
            return Err(error);
        }
        let mut backoff = self.state.borrow().backoff;
        match &mut backoff {
            None => yield_now().await,
            Some(backoff) => backoff.wait().await,
        }
        let mut state = self.state.borrow_mut();
        *state = State::new(state.number + 1);
        state.backoff = Some(backoff.unwrap_or(BACKOFF));
        Ok(())
    }
}

/// Transactions of a database.
impl<E: Engine> Database<E> {
    pub fn create_transaction(&self) -> Transaction<E> {
        Transaction {
            database: self.clone(),
            state: Rc::new(RefCell::new(State::new(0))),
        }
    }

    /// Runs `body` in a transaction and commits it, again and again until it has committed, or until another attempt
    /// would not help against the error. The body may run several times. After `commit_unknown_result` it runs again
    /// although it may have committed, so it should tolerate that.
    pub async fn run<T>(
        &self,
        mut body: impl AsyncFnMut(Transaction<E>) -> Result<T>,
    ) -> Result<T> {
        let transaction = self.create_transaction();
        loop {
            let error = match body(transaction.clone()).await {
                Ok(output) => match transaction.commit().await {
                    Ok(()) => return Ok(output),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            transaction.on_error(error).await?;
        }
    }
}
