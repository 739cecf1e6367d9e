//! What to do about an error: which ones are worth another attempt, and how long to wait before it.

use crate::attempt::Guarded;
use crate::transaction::Transaction;
use plinth_core::{Error, Result};
use plinth_runtime::{Duration, random, sleep};
use std::future::Future;

const FIRST_DELAY_MS: f64 = 10.0;
const DELAY_GROWTH: f64 = 2.0;
/// A cluster that is short of memory is given longer to get well, whatever the transaction's limit.
const OVERLOAD_DELAY_MS_MAX: f64 = 30_000.0;
/// The snapshot was too old or too new: a fresh one will do, there is nothing to wait out.
const STALE_SNAPSHOT_DELAY_MS: f64 = 10.0;

/// Delays that double, each taken at random between nothing and all of it, so that those who collided once do
/// not collide again (pitfall 26).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    delay_ms: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            delay_ms: FIRST_DELAY_MS,
        }
    }
}

impl Backoff {
    pub fn next(&mut self, delay_ms_max: f64) -> Duration {
        let delay_ms = self.delay_ms.min(delay_ms_max);
        self.delay_ms = (delay_ms * DELAY_GROWTH).min(delay_ms_max);
        Duration::from_secs_f64(delay_ms * random::unit() / 1000.0)
    }

    /// How long to wait before the attempt after `error`; `None` if another attempt would not help.
    fn after(&mut self, error: Error, delay_ms_max: f64) -> Option<Duration> {
        if !error.is_retryable() {
            return None;
        }
        Some(match error {
            Error::transaction_too_old | Error::future_version => {
                Duration::from_secs_f64(STALE_SNAPSHOT_DELAY_MS.min(delay_ms_max) / 1000.0)
            }
            Error::commit_proxy_memory_limit_exceeded | Error::grv_proxy_memory_limit_exceeded => {
                self.next(OVERLOAD_DELAY_MS_MAX)
            }
            _ => self.next(delay_ms_max),
        })
    }
}

impl Transaction {
    /// Waits as long as is good after `error` and starts another attempt of the transaction; or gives the error
    /// back, if it will not go away or the retry limit is reached, and leaves the transaction cancelled.
    ///
    /// Options that describe the work stay (see [`crate::TransactionOption`]); reads and writes are forgotten.
    pub fn on_error(&self, error: Error) -> impl Future<Output = Result<()>> + use<> {
        let wait = self.decide_retry(error);
        let attempt = self.inner.state.borrow().attempt.clone();
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

    fn decide_retry(&self, error: Error) -> Result<Duration> {
        let mut state = self.inner.state.borrow_mut();
        state.attempt.check()?;
        let limit_reached = state
            .options
            .retry_limit
            .is_some_and(|limit| state.retries >= limit);
        state.retries = state.retries.saturating_add(1);
        let delay_ms_max = f64::from(state.options.retry_delay_ms_max);
        match state.backoff.after(error, delay_ms_max) {
            Some(delay) if !limit_reached => Ok(delay),
            _ => {
                state.attempt.fail(Error::transaction_cancelled);
                Err(if error == Error::success {
                    Error::client_invalid_operation
                } else {
                    error
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_limit_and_are_taken_at_random_below() {
        let mut backoff = Backoff::default();
        let mut most = Vec::new();
        for _ in 0..9 {
            most.push(backoff.delay_ms.min(1000.0));
            let delay = backoff
                .after(Error::not_committed, 1000.0)
                .expect("worth another attempt");
            assert!(delay.as_secs_f64() * 1000.0 <= *most.last().expect("pushed"));
        }
        assert_eq!(
            most,
            [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1000.0, 1000.0]
        );
        assert_eq!(
            backoff.after(Error::transaction_too_old, 1000.0),
            Some(Duration::from_millis(10))
        );
        assert_eq!(
            backoff.after(Error::transaction_too_old, 3.0),
            Some(Duration::from_millis(3))
        );
        assert_eq!(backoff.after(Error::transaction_timed_out, 1000.0), None);
        assert_eq!(backoff.after(Error::success, 1000.0), None);
    }
}
