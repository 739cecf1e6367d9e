//! Handling of errors: which ones are worth another attempt, and how long to wait before it.

use crate::options::RETRY_DELAY_MS_MAX_DEFAULT;
use plinth_core::Error;
use plinth_runtime::{Backoff, Duration};

/// At random, so that transactions that collided once do not collide again (pitfall 26).
pub(crate) const BACKOFF: Backoff = Backoff::new(
    Duration::from_millis(10),
    Duration::from_millis(RETRY_DELAY_MS_MAX_DEFAULT as u64),
)
.at_random();
/// A cluster that is short of memory gets longer to recover, whatever the transaction's limit.
const OVERLOAD_DELAY_MAX: Duration = Duration::from_secs(30);
/// The snapshot was too old or too new: a fresh one will do, and there is nothing to wait for.
const STALE_SNAPSHOT_DELAY: Duration = Duration::from_millis(10);

/// How long to wait before the attempt after `error`; `None` if another attempt would not help.
pub(crate) fn delay_after(
    backoff: &mut Backoff,
    error: Error,
    delay_max: Duration,
) -> Option<Duration> {
    if !error.is_retryable() {
        return None;
    }
    Some(match error {
        Error::transaction_too_old | Error::future_version => STALE_SNAPSHOT_DELAY.min(delay_max),
        Error::commit_proxy_memory_limit_exceeded | Error::grv_proxy_memory_limit_exceeded => {
            backoff.next_wait_within(OVERLOAD_DELAY_MAX)
        }
        _ => backoff.next_wait_within(delay_max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_that_of_the_error() {
        let mut backoff = BACKOFF;
        let mut after = |error, ms| delay_after(&mut backoff, error, Duration::from_millis(ms));
        for most in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            let delay = after(Error::not_committed, 1000).expect("worth another attempt");
            assert!(delay <= Duration::from_millis(most), "{delay:?}");
        }
        let stale = |ms| Some(Duration::from_millis(ms));
        assert_eq!(after(Error::transaction_too_old, 1000), stale(10));
        assert_eq!(after(Error::transaction_too_old, 3), stale(3));
        assert_eq!(after(Error::transaction_timed_out, 1000), None);
        assert_eq!(after(Error::success, 1000), None);
    }
}
