//! A database: the cluster that serves it, and what its transactions have in common.

use crate::bytes_argument::IntoKey;
use crate::options::{
    DatabaseOption, Options, TransactionOption, WATCHES_MAX_DEFAULT, WATCHES_MAX_MAX,
};
use crate::source::Cluster;
use plinth_core::{Error, Key, Result};
use plinth_protocol::token::Token;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A handle; clones are the same database.
#[derive(Clone)]
pub struct Database {
    inner: Rc<Inner>,
}

struct Inner {
    cluster: Rc<dyn Cluster>,
    transaction_defaults: RefCell<Options>,
    watches: Cell<usize>,
    watches_max: Cell<usize>,
    cluster_file_path: RefCell<Option<String>>,
    /// Commits that were sent, less those whose outcome is known.
    unanswered_commits: Cell<usize>,
    /// For a tenant: the database that it is in, and its name.
    tenant_of: Option<(Database, Key)>,
}

/// The right to use one of the database's watches.
pub(crate) struct WatchSlot(Rc<Inner>);

impl Drop for WatchSlot {
    fn drop(&mut self) {
        let watches = self.0.watches.get();
        assert!(watches > 0, "a slot is counted while it is held");
        self.0.watches.set(watches - 1);
    }
}

impl Database {
    pub fn new(cluster: Rc<dyn Cluster>) -> Self {
        Database::with(cluster, None)
    }

    pub(crate) fn with(cluster: Rc<dyn Cluster>, tenant_of: Option<(Database, Key)>) -> Self {
        // A tenant's transactions start with the present defaults of its database.
        let defaults = tenant_of
            .as_ref()
            .map(|(parent, _)| parent.transaction_defaults());
        Database {
            inner: Rc::new(Inner {
                cluster,
                transaction_defaults: RefCell::new(defaults.unwrap_or_default()),
                watches: Cell::new(0),
                watches_max: Cell::new(WATCHES_MAX_DEFAULT),
                cluster_file_path: RefCell::default(),
                unanswered_commits: Cell::new(0),
                tenant_of,
            }),
        }
    }

    /// The same database, whose transactions show this token from their begin, and after a
    /// [`reset`](crate::Transaction::reset): it grants what clients may not do without one. Tenants that are opened
    /// in it show it, too. A transaction may set another one. Fails with `invalid_option_value` if it is empty or
    /// above 16 KiB.
    pub fn with_authorization_token(&self, token: impl IntoKey) -> Result<Database> {
        let token = Token::new(token.into_key()).ok_or(Error::invalid_option_value)?;
        let cluster = self.cluster().with_token(&token);
        let cluster = cluster.unwrap_or_else(|| self.cluster().clone());
        let shows = Database::with(cluster, self.inner.tenant_of.clone());
        *shows.inner.transaction_defaults.borrow_mut() = self.transaction_defaults();
        *shows.inner.cluster_file_path.borrow_mut() = self.cluster_file_path();
        shows.inner.watches_max.set(self.inner.watches_max.get());
        Ok(shows)
    }

    pub(crate) fn tenant_of(&self) -> Option<&(Database, Key)> {
        self.inner.tenant_of.as_ref()
    }

    pub fn cluster(&self) -> &Rc<dyn Cluster> {
        &self.inner.cluster
    }

    /// Sets the path of the cluster file, which can be read at `\xff\xff/cluster_file_path`.
    pub fn set_cluster_file_path(&self, path: &str) {
        *self.inner.cluster_file_path.borrow_mut() = Some(path.to_owned());
    }

    pub(crate) fn cluster_file_path(&self) -> Option<String> {
        let own = self.inner.cluster_file_path.borrow().clone();
        own.or_else(|| self.tenant_of()?.0.cluster_file_path())
    }

    /// Changes the options that later transactions start with.
    pub fn set_option(&self, option: DatabaseOption) -> Result<()> {
        let transaction_option = match option {
            DatabaseOption::MaxWatches(count) if (0..=WATCHES_MAX_MAX).contains(&count) => {
                self.inner.watches_max.set(count as usize);
                return Ok(());
            }
            DatabaseOption::MaxWatches(_) => return Err(Error::invalid_option_value),
            DatabaseOption::SnapshotRywEnable => TransactionOption::SnapshotRywEnable,
            DatabaseOption::SnapshotRywDisable => TransactionOption::SnapshotRywDisable,
            DatabaseOption::TransactionTimeout(ms) => TransactionOption::Timeout(ms),
            DatabaseOption::TransactionRetryLimit(count) => TransactionOption::RetryLimit(count),
            DatabaseOption::TransactionMaxRetryDelay(ms) => TransactionOption::MaxRetryDelay(ms),
            DatabaseOption::TransactionSizeLimit(bytes) => TransactionOption::SizeLimit(bytes),
            DatabaseOption::TransactionCausalReadRisky => TransactionOption::CausalReadRisky,
            DatabaseOption::TransactionBypassUnreadable => TransactionOption::BypassUnreadable,
            DatabaseOption::TransactionAutomaticIdempotency => {
                TransactionOption::AutomaticIdempotency
            }
            DatabaseOption::TransactionUsedDuringCommitProtectionDisable => {
                TransactionOption::UsedDuringCommitProtectionDisable
            }
            DatabaseOption::TransactionReportConflictingKeys => {
                TransactionOption::ReportConflictingKeys
            }
            DatabaseOption::MappedRangeReadsOwnWrites => {
                TransactionOption::MappedRangeReadsOwnWrites
            }
        };
        self.inner
            .transaction_defaults
            .borrow_mut()
            .set(transaction_option)
    }

    pub(crate) fn transaction_defaults(&self) -> Options {
        *self.inner.transaction_defaults.borrow()
    }

    /// How many commits were sent whose outcome nobody knows: their transactions have ended, or not yet.
    pub fn unanswered_commits(&self) -> usize {
        self.inner.unanswered_commits.get()
    }

    pub(crate) fn count_commits(&self, count: impl FnOnce(usize) -> usize) {
        let unanswered = &self.inner.unanswered_commits;
        unanswered.set(count(unanswered.get()));
    }

    pub(crate) fn take_watch_slot(&self) -> Result<WatchSlot> {
        let watches = self.inner.watches.get();
        if watches >= self.inner.watches_max.get() {
            return Err(Error::too_many_watches);
        }
        self.inner.watches.set(watches + 1);
        Ok(WatchSlot(self.inner.clone()))
    }
}
