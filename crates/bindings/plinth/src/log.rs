//! Lines that the application should know although none of its calls fails by them.

use std::io::Write;
use std::sync::{Arc, PoisonError, RwLock};

type Log = Arc<dyn Fn(&str) + Send + Sync>;

static LOG: RwLock<Option<Log>> = RwLock::new(None);

/// Sends to `log` what this crate writes to standard error otherwise, as `plinth: …`: one line when requests have
/// waited for a cluster for more than a second, one when they reach it again, and the line of an
/// [`OpenError`](crate::OpenError) that has become an [`Error`](crate::Error).
///
/// ```
/// plinth::set_log(|line| println!("store: {line}")); // or tracing::warn!, or log::warn!
/// ```
///
/// It runs on the client's threads, so it should return soon. A panic in it ends the process.
pub fn set_log(log: impl Fn(&str) + Send + Sync + 'static) {
    *LOG.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(log));
}

pub(crate) fn tell(line: &str) {
    let log = LOG.read().unwrap_or_else(PoisonError::into_inner).clone();
    match log {
        Some(log) => log(line),
        None => {
            let _ = writeln!(std::io::stderr(), "plinth: {line}"); // the application may have closed it
        }
    }
}
