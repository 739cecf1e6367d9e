//! The health of the disk under a directory. Every operation on it is timed and every failure of the disk recorded,
//! here and nowhere else. Callers decide what follows from that.
//!
//! A disk has trouble while an operation takes too long, and when one has failed because of the disk. A full disk, a
//! missing file or a wrong name is not such a failure. Reads that the page cache answers are not counted.

use crate::{Duration, Instant, now};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// The health of one directory, as observed by one process. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    begun: u64,
    /// Operations in progress, by number: the oldest comes first.
    under_way: BTreeMap<u64, (Instant, &'static str)>,
    failures: u64,
    last_failure: String,
}

/// The trouble that a disk has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// This operation does not return.
    Hangs(&'static str),
    /// An operation failed; the text says which, and why.
    Fails(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Hangs(what) => write!(f, "a {what} does not come back"),
            Trouble::Fails(what) => f.write_str(what),
        }
    }
}

impl Health {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while it is held")
    }

    fn begin(&self, what: &'static str) -> UnderWay<'_> {
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.under_way.insert(number, (now(), what));
        UnderWay {
            health: self,
            number,
            what,
        }
    }

    /// Times an operation.
    pub(super) async fn watch<T>(
        &self,
        what: &'static str,
        operation: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let under_way = self.begin(what);
        under_way.ended(operation.await)
    }

    /// Times an operation that blocks.
    pub(super) fn watch_blocking<T>(
        &self,
        what: &'static str,
        operation: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let under_way = self.begin(what);
        under_way.ended(operation())
    }

    /// The trouble, if an operation has taken `limit` or longer, or if the number of failures is not `failures_known`.
    pub fn trouble(&self, limit: Duration, failures_known: u64) -> Option<Trouble> {
        let state = self.state();
        if let Some((begun, what)) = state.under_way.values().next()
            && now().saturating_since(*begun) >= limit
        {
            return Some(Trouble::Hangs(what));
        }
        let is_new = state.failures != failures_known;
        is_new.then(|| Trouble::Fails(state.last_failure.clone()))
    }

    /// Number of operations that have failed.
    pub fn failures(&self) -> u64 {
        self.state().failures
    }
}

/// An operation in progress. It counts until this is dropped, so an operation that no caller waits for does not.
struct UnderWay<'a> {
    health: &'a Health,
    number: u64,
    what: &'static str,
}

impl UnderWay<'_> {
    fn ended<T>(self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && is_the_disks(error)
        {
            let mut state = self.health.state();
            state.failures += 1;
            state.last_failure = format!("a {} failed: {error}", self.what);
        }
        result
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.health.state().under_way.remove(&self.number);
    }
}

/// True if the disk caused the error, not the caller.
fn is_the_disks(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    !matches!(
        error.kind(),
        Kind::NotFound
            | Kind::AlreadyExists
            | Kind::PermissionDenied
            | Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::FileTooLarge
            | Kind::UnexpectedEof
            | Kind::WouldBlock
            | Kind::InvalidInput
            | Kind::InvalidData
            | Kind::BrokenPipe
            | Kind::Interrupted
            | Kind::IsADirectory
            | Kind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{disk, real};
    use std::path::Path;

    const LIMIT: Duration = Duration::from_millis(30);

    #[test]
    fn an_operation_that_does_not_come_back_is_trouble_until_it_does() {
        real::block_on(async {
            let health = Health::default();
            assert_eq!(health.trouble(LIMIT, 0), None);
            let hanging = health.watch("sync", std::future::pending::<io::Result<()>>());
            assert!(crate::timeout(2 * LIMIT, hanging).await.is_none());
            assert_eq!(health.trouble(LIMIT, 0), None, "nobody waits for it");
            let hanging = health.watch("sync", async {
                crate::sleep(2 * LIMIT).await;
                let trouble = health.trouble(LIMIT, 0);
                assert!(matches!(trouble, Some(Trouble::Hangs("sync"))));
                Ok(())
            });
            hanging.await.expect("it comes back");
            assert_eq!(health.trouble(LIMIT, 0), None);
        });
    }

    #[test]
    fn a_failure_of_the_disk_is_told_once_and_a_full_disk_is_none() {
        let health = Health::default();
        let fail = |kind: io::ErrorKind| {
            let failed: io::Result<()> = health.watch_blocking("write", || Err(kind.into()));
            assert_eq!(failed.expect_err("it fails").kind(), kind);
        };
        fail(io::ErrorKind::StorageFull);
        fail(io::ErrorKind::NotFound);
        assert_eq!(health.trouble(LIMIT, 0), None);
        fail(io::ErrorKind::ReadOnlyFilesystem);
        assert!(matches!(health.trouble(LIMIT, 0), Some(Trouble::Fails(_))));
        assert_eq!(health.trouble(LIMIT, health.failures()), None);
    }

    #[test]
    fn a_directory_has_one_health_whoever_asks() {
        real::block_on(async {
            let (a, b) = (Path::new("/somewhere"), Path::new("/somewhere/else"));
            let fail =
                || disk::health(a).watch_blocking("read", || Err::<(), _>(io::Error::other("EIO")));
            assert!(fail().is_err());
            assert_eq!(disk::health(a).failures(), 1);
            assert_eq!(disk::health(b).failures(), 0);
        });
    }
}
