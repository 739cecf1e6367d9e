//! Watches: futures that end when a key's value is no longer what the transaction saw.
//!
//! A watch compares with the value that the transaction sees when it sets the watch, including its own earlier
//! writes. The watch is registered when the transaction has committed, and lives on without it.

use crate::attempt::{Attempt, Interest};
use crate::bytes_argument::IntoKey;
use crate::database::WatchSlot;
use crate::retry::BACKOFF;
use crate::shared::Shared;
use crate::source::{Cluster, ClusterFuture, ReadVersionFlags};
use crate::state::key_bytes_max;
use crate::transaction::Transaction;
use plinth_core::{Error, Key, Result, Value};
use std::future::poll_fn;
use std::rc::Rc;

/// The value to compare with: known, or a read under way, which the commit waits for.
enum Base {
    Known(Option<Value>),
    Read(Shared<Result<Option<Value>>>),
}

struct Watch {
    cluster: Rc<dyn Cluster>,
    attempt: Rc<Attempt>,
    key: Key,
    base: Base,
    _slot: WatchSlot,
}

impl Transaction {
    /// Ends when the value of `key` differs from what this transaction sees now. Starts to watch when the transaction
    /// has committed, a read-only one included. Fails with the error of the commit, or with `transaction_cancelled`
    /// if there is no commit.
    pub fn watch(&self, key: impl IntoKey) -> ClusterFuture<()> {
        let watch = self.start_watch(key.into_key());
        Box::pin(async move { watch?.run().await })
    }

    fn start_watch(&self, key: Key) -> Result<Watch> {
        let state = self.inner.state.borrow();
        state.check_usable()?;
        if state.options.ryw_disabled {
            return Err(Error::watches_disabled);
        }
        if key[..] >= *state.read_end() {
            return Err(Error::key_outside_legal_range);
        }
        if key.len() > key_bytes_max(&key) {
            return Err(Error::key_too_large);
        }
        drop(state);
        let slot = self.inner.database.take_watch_slot()?;
        let read = self.get(key.clone(), false);
        let base = match read.ready_value() {
            Some(value) => Base::Known(value?),
            None => {
                let reading: ClusterFuture<Option<Value>> = Box::pin(read);
                let shared = Shared::new(reading);
                self.inner.state.borrow_mut().keep_outstanding(&shared);
                Base::Read(shared)
            }
        };
        let attempt = self.inner.state.borrow().attempt.clone();
        Ok(Watch {
            cluster: self.inner.cluster(),
            attempt,
            key,
            base,
            _slot: slot,
        })
    }
}

impl Watch {
    async fn run(self) -> Result<()> {
        let value = match &self.base {
            Base::Known(value) => value.clone(),
            // The commit has waited for this read: its result is there although the transaction may be gone by now.
            Base::Read(shared) => poll_fn(|context| shared.poll_take(context)).await?,
        };
        let cluster = &self.cluster;
        let version = Interest::new(&self.attempt).version().await?;
        let mut version =
            version.expect("the watch of a transaction that wrote nothing has read its key");
        let mut backoff = BACKOFF;
        loop {
            let error = match cluster
                .watch(self.key.clone(), value.clone(), version)
                .await
            {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if !is_watch_worth_repeating(error) {
                return Err(error);
            }
            // A newer version will do as well, because only a different value matters.
            backoff.wait().await;
            let flags = ReadVersionFlags {
                lock_aware: true,
                ..ReadVersionFlags::default()
            };
            if let Ok(newer) = cluster.get_read_version(flags).await {
                version = version.max(newer);
            }
        }
    }
}

fn is_watch_worth_repeating(error: Error) -> bool {
    error.is_retryable_not_committed()
        || matches!(
            error,
            Error::watch_cancelled
                | Error::timed_out
                | Error::broken_promise
                | Error::connection_failed
                | Error::request_maybe_delivered
                | Error::all_alternatives_failed
                | Error::wrong_shard_server
        )
}
