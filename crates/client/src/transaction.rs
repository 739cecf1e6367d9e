//! A transaction: a snapshot to read, writes that only it sees, and a commit that makes all of them happen at
//! one point of the serial history, or none (FDB §2.4.1).
//!
//! What it keeps: the read version; its own writes; what it has read; the ranges it read and those it wrote, which
//! the resolvers check at commit. What it promises: reads see the snapshot with its own earlier writes on top;
//! what was read once is not asked of a server again, up to the limit of the transaction's size;
//! a read that the writes fully answer conflicts with nothing; after an error that may have left the
//! commit in flight nothing of this attempt can happen any more (see `commit`).
//! What may never happen: a key whose change would alter a result that the transaction saw, outside its read
//! conflict ranges.
//!
//! A handle is cheap to clone, its operations take `&self`, and an operation is issued by the call, not by the
//! first poll: it sees the writes made before the call and none made after. Setters return nothing; what
//! is wrong with one comes out of the next read or commit, as in FoundationDB's bindings.

use crate::attempt::Attempt;
use crate::database::Database;
use crate::options::{Options, TransactionOption};
use crate::reads::ReadVersion;
use crate::retry::Backoff;
use crate::shared::Drive;
use crate::special::SpecialWrite;
use crate::write_log::WriteLog;
use plinth_core::key::{ALL_KEYS_END, KEY_BYTES_MAX, SYSTEM_BEGIN, SYSTEM_KEY_BYTES_MAX};
use plinth_core::{Error, Key, Result, Version};
use plinth_runtime::{Duration, Instant, Task};
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// A handle to a transaction. Clones are the same transaction; when the last is dropped, what is still under
/// way fails with `transaction_cancelled`.
#[derive(Clone)]
pub struct Transaction {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub database: Database,
    pub state: RefCell<State>,
}

pub(crate) struct State {
    pub attempt: Rc<Attempt>,
    pub options: Options,
    pub read_version: ReadVersion,
    pub log: WriteLog,
    /// Reads under way. A commit waits for them: they add conflict ranges when they end, and whoever began them before the
    /// commit may await them after it.
    pub outstanding: Vec<Weak<dyn Drive>>,
    pub has_read: bool,
    /// What was wrong with a call that could not say so; the first one.
    pub deferred_error: Option<Error>,
    pub commit_started: bool,
    /// Of explicit conflict ranges and mutations, uncoalesced.
    pub write_bytes: usize,
    /// What is asked of the special keys, in the order of the calls.
    pub special_writes: Vec<SpecialWrite>,
    /// Why the last of those was refused, in JSON.
    pub special_error: Option<String>,
    // What outlives an attempt.
    pub created_at: Instant,
    pub retries: u32,
    pub backoff: Backoff,
    timer: Option<Task<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.state
            .get_mut()
            .attempt
            .fail(Error::transaction_cancelled);
    }
}

/// The longest key that can exist where `key` is.
pub(crate) fn key_bytes_max(key: &[u8]) -> usize {
    if key.starts_with(SYSTEM_BEGIN) {
        SYSTEM_KEY_BYTES_MAX
    } else {
        KEY_BYTES_MAX
    }
}

/// `key`, or where it is longer than any key can be, a shorter one with no key in between.
pub(crate) fn shorten(key: Key) -> Key {
    let most = key_bytes_max(&key);
    if key.len() > most {
        key.slice(..most + 1)
    } else {
        key
    }
}

impl State {
    fn new(options: Options) -> Self {
        State {
            attempt: Attempt::new(options.size_bytes_max),
            options,
            read_version: ReadVersion::default(),
            log: WriteLog::default(),
            outstanding: Vec::new(),
            has_read: false,
            deferred_error: None,
            commit_started: false,
            write_bytes: 0,
            special_writes: Vec::new(),
            special_error: None,
            created_at: plinth_runtime::now(),
            retries: 0,
            backoff: Backoff::default(),
            timer: None,
        }
    }

    /// Forgets the attempt and starts another; what is under way fails.
    fn start_attempt(&mut self, options: Options) -> Rc<Attempt> {
        self.options = options;
        self.read_version = ReadVersion::default();
        self.log = WriteLog::default();
        self.outstanding.clear();
        self.has_read = false;
        self.deferred_error = None;
        self.commit_started = false;
        self.write_bytes = 0;
        self.special_writes.clear();
        let next = Attempt::new(self.options.size_bytes_max);
        std::mem::replace(&mut self.attempt, next)
    }

    /// An operation may start now. One during a commit fails the commit as well: its author has lost track.
    pub fn check_usable(&self) -> Result<()> {
        if let Some(error) = self.deferred_error {
            return Err(error);
        }
        self.check_not_committing()?;
        self.attempt.check()
    }

    pub fn check_not_committing(&self) -> Result<()> {
        if !self.commit_started {
            return Ok(());
        }
        if !self.options.commit_protection_disabled {
            self.attempt.fail(Error::used_during_commit);
        }
        Err(Error::used_during_commit)
    }

    pub fn defer(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.deferred_error.get_or_insert(error);
        }
    }

    pub fn read_end(&self) -> &'static [u8] {
        if self.options.read_system_keys {
            ALL_KEYS_END
        } else {
            SYSTEM_BEGIN
        }
    }

    pub fn write_end(&self) -> &'static [u8] {
        if self.options.write_system_keys {
            ALL_KEYS_END
        } else {
            SYSTEM_BEGIN
        }
    }
}

impl Transaction {
    pub(crate) fn new(database: Database) -> Self {
        let options = database.transaction_defaults();
        let state = RefCell::new(State::new(options));
        let transaction = Transaction {
            inner: Rc::new(Inner { database, state }),
        };
        if options.timeout_ms > 0 {
            transaction.set_timer();
        }
        transaction
    }

    pub fn database(&self) -> &Database {
        &self.inner.database
    }

    pub fn set_option(&self, option: TransactionOption) -> Result<()> {
        let mut state = self.inner.state.borrow_mut();
        if option == TransactionOption::ReadYourWritesDisable
            && (state.has_read || !state.log.is_empty())
        {
            return Err(Error::client_invalid_operation);
        }
        state.options.set(option)?;
        if let TransactionOption::SizeLimit(_) = option {
            let bytes_max = state.options.size_bytes_max;
            state.attempt.known().set_bytes_max(bytes_max);
        }
        drop(state);
        if matches!(option, TransactionOption::Timeout(_)) {
            self.set_timer();
        }
        Ok(())
    }

    /// What was wrong with a call of a layer above that could not say so: the next read and the commit fail with it.
    pub fn defer_error(&self, error: Error) {
        self.inner.state.borrow_mut().defer(Err(error));
    }

    /// Everything that is under way or comes later fails with `transaction_cancelled`, until [`Transaction::reset`].
    pub fn cancel(&self) {
        let attempt = self.inner.state.borrow().attempt.clone();
        attempt.fail(Error::transaction_cancelled);
    }

    /// As if it had just been created: options, retries and the time that counts for the timeout included.
    pub fn reset(&self) {
        let options = self.inner.database.transaction_defaults();
        let mut state = self.inner.state.borrow_mut();
        let old = state.start_attempt(options);
        state.created_at = plinth_runtime::now();
        state.retries = 0;
        state.backoff = Backoff::default();
        drop(state);
        old.fail(Error::transaction_cancelled);
        self.set_timer();
    }

    /// The next attempt of the same work.
    pub(crate) fn restart(&self) {
        let defaults = self.inner.database.transaction_defaults();
        let mut state = self.inner.state.borrow_mut();
        let options = state.options.for_retry(&defaults);
        let old = state.start_attempt(options);
        drop(state);
        old.fail(Error::transaction_cancelled);
    }

    /// The timeout counts from the creation, over all attempts.
    fn set_timer(&self) {
        let mut state = self.inner.state.borrow_mut();
        let old = state.timer.take();
        if state.options.timeout_ms > 0 {
            let deadline =
                state.created_at + Duration::from_millis(u64::from(state.options.timeout_ms));
            let inner = Rc::downgrade(&self.inner);
            state.timer = Some(plinth_runtime::spawn("transaction_timeout", async move {
                plinth_runtime::sleep_until(deadline).await;
                if let Some(inner) = inner.upgrade() {
                    let attempt = inner.state.borrow().attempt.clone();
                    attempt.fail(Error::transaction_timed_out);
                }
            }));
        }
        drop(state);
        drop(old);
    }

    /// What the transaction's size would be reckoned at if it were committed now: never less than what counts then.
    pub fn get_approximate_size(&self) -> usize {
        let state = self.inner.state.borrow();
        state.write_bytes + state.attempt.reads_bytes()
    }

    /// The version of the commit; -1 if the transaction wrote nothing or has not committed.
    pub fn get_committed_version(&self) -> Version {
        match self.inner.state.borrow().attempt.outcome() {
            Some(crate::attempt::Outcome::Committed { version, .. }) => version,
            _ => plinth_core::version::INVALID,
        }
    }
}
