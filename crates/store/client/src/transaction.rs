//! A transaction: a snapshot to read, writes that only it sees, and a commit that makes all of them happen at
//! one point of the serial history, or none (FDB §2.4.1).
//!
//! It keeps: the read version; its own writes; the results of its reads; the ranges it read and those it wrote, which
//! the resolvers check at commit. It guarantees: reads see the snapshot with its own earlier writes on top; a
//! repeated read asks no server again, up to the limit of the transaction's size; a read that the writes fully answer
//! conflicts with nothing; after an error that may have left the commit in flight nothing of this attempt can happen
//! any more (see `commit`). What may never happen: a key whose change would alter a result that the transaction saw
//! lies outside its read conflict ranges.
//!
//! A handle is cheap to clone, its operations take `&self`, and an operation is issued by the call, not by the first
//! poll: it sees the writes made before the call and none made after. Setters return nothing; the next read or commit
//! reports their errors, as in FoundationDB's bindings.

use crate::attempt::{Guarded, Outcome};
use crate::bytes_argument::IntoKey;
use crate::database::Database;
use crate::options::TransactionOption;
use crate::retry::BACKOFF;
use crate::source::{Cluster, CommitTracing};
use crate::state::State;
use plinth_core::{Error, Result, Version, version};
use plinth_protocol::token::Token;
use plinth_protocol::transaction::TRANSACTION_PLACES_MAX;
use plinth_runtime::{Duration, Instant, sleep};
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

/// A handle to a transaction. Clones are the same transaction. When the last is dropped, operations still under way
/// fail with `transaction_cancelled`.
#[derive(Clone)]
pub struct Transaction {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub database: Database,
    /// The cluster for requests with the transaction's token, if it has one.
    authorized: RefCell<Option<Rc<dyn Cluster>>>,
    pub state: RefCell<State>,
}

impl Inner {
    pub fn cluster(&self) -> Rc<dyn Cluster> {
        let authorized = self.authorized.borrow().clone();
        authorized.unwrap_or_else(|| self.database.cluster().clone())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.state
            .get_mut()
            .attempt
            .fail(Error::transaction_cancelled);
    }
}

impl Transaction {
    pub(crate) fn new(database: Database, created_at: Instant) -> Self {
        let options = database.transaction_defaults();
        let state = RefCell::new(State::new(options, created_at));
        let transaction = Transaction {
            inner: Rc::new(Inner {
                database,
                authorized: RefCell::default(),
                state,
            }),
        };
        if options.timeout_ms > 0 {
            transaction.set_timer();
        }
        transaction
    }

    pub fn database(&self) -> &Database {
        &self.inner.database
    }

    /// Shows this token with every request from now on, until [`Transaction::reset`]: it grants what clients may not
    /// do without one. The next attempt shows it, too. Fails with `invalid_option_value` if it is empty or above
    /// 16 KiB.
    pub fn set_authorization_token(&self, token: impl IntoKey) -> Result<()> {
        let token = Token::new(token.into_key()).ok_or(Error::invalid_option_value)?;
        let authorized = self.inner.database.cluster().with_token(&token);
        self.inner.authorized.replace(authorized);
        Ok(())
    }

    pub(crate) fn cluster(&self) -> Rc<dyn Cluster> {
        self.inner.cluster()
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

    /// Keeps the error of a call of a layer above that could not return it: the next read and the commit fail with
    /// it.
    pub fn defer_error(&self, error: Error) {
        self.inner.state.borrow_mut().defer(Err(error));
    }

    /// Cancels the transaction: operations under way and later ones fail with `transaction_cancelled`, until
    /// [`Transaction::reset`].
    pub fn cancel(&self) {
        let attempt = self.inner.state.borrow().attempt.clone();
        attempt.fail(Error::transaction_cancelled);
    }

    /// Resets everything to the state of a new transaction: options, retries and the time that counts for the timeout
    /// included.
    pub fn reset(&self) {
        self.reset_at(plinth_runtime::now());
    }

    /// The same, for whoever was asked for it at `at`, on another thread perhaps.
    pub fn reset_at(&self, at: Instant) {
        let options = self.inner.database.transaction_defaults();
        let mut state = self.inner.state.borrow_mut();
        let old = state.start_attempt(options);
        state.created_at = at;
        state.retries = 0;
        state.backoff = BACKOFF;
        drop(state);
        self.inner.authorized.take();
        old.fail(Error::transaction_cancelled);
        self.set_timer();
    }

    /// Starts the next attempt of the same work.
    fn restart(&self) {
        let defaults = self.inner.database.transaction_defaults();
        let mut state = self.inner.state.borrow_mut();
        let options = state.options.for_retry(&defaults);
        let old = state.start_attempt(options);
        drop(state);
        old.fail(Error::transaction_cancelled);
    }

    /// The timeout counts from the creation, over all attempts. It may have passed already: calls of other threads
    /// come here late while this thread waits for a processor.
    fn set_timer(&self) {
        let mut state = self.inner.state.borrow_mut();
        let old = state.timer.take();
        if state.options.timeout_ms > 0 {
            let deadline =
                state.created_at + Duration::from_millis(u64::from(state.options.timeout_ms));
            if deadline <= plinth_runtime::now() {
                state.attempt.fail(Error::transaction_timed_out);
            }
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

    /// The size that the transaction would have if it were committed now: never less than the size that counts then.
    pub fn get_approximate_size(&self) -> usize {
        let state = self.inner.state.borrow();
        state.write_bytes + state.attempt.reads_bytes()
    }

    /// Makes the commit take `places` places of its batch, from 1 to 1024: the versionstamps from its own on, with the
    /// order counted up, belong to it alone. Whoever puts several numbered operations into one transaction numbers
    /// them so. Fails with `invalid_option_value` for another number. Holds until the next attempt.
    pub fn take_places(&self, places: u16) -> Result<()> {
        if !(1..=TRANSACTION_PLACES_MAX).contains(&places) {
            return Err(Error::invalid_option_value);
        }
        self.inner.state.borrow_mut().places = places;
        Ok(())
    }

    /// Has the cluster note when it does what with the commit. What is returned brings that soon after the commit, and
    /// never if the cluster cannot tell. Holds until the next attempt.
    pub fn trace_commit(&self) -> CommitTracing {
        let tracing = CommitTracing::new();
        self.inner.state.borrow_mut().trace = Some(tracing.clone());
        tracing
    }

    /// The version of the commit; -1 if the transaction wrote nothing or has not committed.
    pub fn get_committed_version(&self) -> Version {
        match self.inner.state.borrow().attempt.outcome() {
            Some(Outcome::Committed { version, .. }) => version,
            _ => version::INVALID,
        }
    }

    /// Waits for a time that suits `error` and starts another attempt of the transaction. If the error will not go
    /// away, or the retry limit is reached, returns the error and leaves the transaction cancelled.
    ///
    /// Options that describe the work stay (see [`crate::TransactionOption`]); reads and writes are forgotten.
    pub fn on_error(&self, error: Error) -> impl Future<Output = Result<()>> + use<> {
        let (wait, attempt) = {
            let mut state = self.inner.state.borrow_mut();
            (state.decide_retry(error), state.attempt.clone())
        };
        let transaction = self.clone();
        async move {
            let delay = wait?;
            let asleep = async move {
                sleep(delay).await;
                Ok(())
            };
            Guarded::new(&attempt, asleep).await?;
            transaction.restart();
            Ok(())
        }
    }
}

/// Transactions of a database.
impl Database {
    pub fn create_transaction(&self) -> Transaction {
        self.create_transaction_at(plinth_runtime::now())
    }

    /// A transaction that was asked for at `at`, on another thread perhaps: its timeout counts from then.
    pub fn create_transaction_at(&self, at: Instant) -> Transaction {
        Transaction::new(self.clone(), at)
    }

    /// Runs `body` in a transaction and commits it, again and again until it has committed, or until another attempt
    /// would not help against the error. The body may run several times. After `commit_unknown_result` it runs again
    /// although it may have committed, so it should tolerate that.
    pub async fn run<T>(&self, mut body: impl AsyncFnMut(Transaction) -> Result<T>) -> Result<T> {
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
