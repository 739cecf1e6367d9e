//! Handling of errors: which ones are worth another attempt, and how long to wait before it.

use plinth_core::Error;
use plinth_runtime::{Duration, random};

const FIRST_DELAY_MS: f64 = 10.0;
const DELAY_GROWTH: f64 = 2.0;
/// A cluster that is short of memory gets longer to recover, whatever the transaction's limit.
const OVERLOAD_DELAY_MS_MAX: f64 = 30_000.0;
/// The snapshot was too old or too new: a fresh one will do, and there is nothing to wait for.
const STALE_SNAPSHOT_DELAY_MS: f64 = 10.0;

/// Delays that double. The actual delay is random between nothing and all of it, so that transactions that collided
/// once do not collide again (pitfall 26).
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
    pub fn after(&mut self, error: Error, delay_ms_max: f64) -> Option<Duration> {
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
