//! A database's handle: it makes transactions, runs bodies in them, and has tenants.

use crate::open_error::Result;
use crate::threads::Home;
use crate::transaction::Transaction;
use plinth_client::{DatabaseOption, IntoKey};
use plinth_core::{Error, Key};
use std::any::Any;
use std::error::Error as AnyError;
use std::future::Future;
use std::sync::Arc;

/// A database, or a [tenant](Database::open_tenant) of one.
///
/// It is a handle: clones are the same database, on any thread and in any executor. Open a database once, and clone
/// it. Its connections live on a thread of their own, which ends with the last handle.
///
/// A cluster that cannot be reached is no error: operations wait until it can. To bound that, set
/// [`TransactionTimeout`](crate::DatabaseOption::TransactionTimeout).
#[derive(Clone)]
pub struct Database {
    home: Arc<Home>,
}

impl Database {
    pub(crate) fn new(home: Arc<Home>) -> Self {
        Database { home }
    }

    /// A transaction that the caller commits and retries. Most callers want [`run`](Database::run).
    pub fn create_transaction(&self) -> Transaction {
        Transaction::new(&self.home)
    }

    /// Runs `body` in a transaction and commits it, again and again until it has committed, or until an error comes
    /// against which another attempt does not help.
    ///
    /// ```
    /// # plinth::doc_test(async |db| {
    /// let visits = db
    ///     .run(async |tr| {
    ///         tr.add("visits", 1);
    ///         let visits = tr.get("visits").await?.unwrap_or_default();
    ///         Ok(visits[0])
    ///     })
    ///     .await?;
    /// assert_eq!(visits, 1);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// The future can be spawned (`tokio::spawn`) if what `body` uses can. A body that changes what it captures, or
    /// that captures by `move`, is written `|tr| async move { … }`.
    ///
    /// # The body may run several times
    ///
    /// Each attempt begins with nothing read and nothing written. What the body does outside of the transaction it may
    /// do more than once, so do that after `run` has returned.
    ///
    /// # Errors
    ///
    /// The first error that a retry does not help. The body fails with an [`Error`] and no other type;
    /// [`try_run`](Database::try_run) is for errors of the application.
    ///
    /// # When a commit may have happened
    ///
    /// If the answer of a commit is lost, the error is [`Error::commit_unknown_result`], and `run` tries again: a body
    /// that adds to a number may then have added twice. Either let the body notice that it has been done, for example
    /// by a row with an identifier that was chosen before `run`; or set the option
    /// [`AutomaticIdempotency`](crate::TransactionOption::AutomaticIdempotency), or
    /// [`TransactionAutomaticIdempotency`](crate::DatabaseOption::TransactionAutomaticIdempotency) for all
    /// transactions: the client then looks up whether the commit happened. That costs a row of about 60 bytes per
    /// transaction.
    pub async fn run<T, F, Fut>(&self, body: F) -> Result<T>
    where
        F: FnMut(Transaction) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        self.try_run(body).await
    }

    /// As [`run`](Database::run), for a body that fails with errors of the application's own: any type that is
    /// `From<Error>`. `?` works on [`Error`] and on errors of the application alike.
    ///
    /// ```
    /// # plinth::doc_test(async |db| {
    /// enum BuyError {
    ///     SoldOut,
    ///     Database(plinth::Error),
    /// }
    /// impl From<plinth::Error> for BuyError {
    ///     fn from(error: plinth::Error) -> Self {
    ///         BuyError::Database(error)
    ///     }
    /// }
    ///
    /// let bought = db
    ///     .try_run(async |tr| {
    ///         tr.get("stock").await?.ok_or(BuyError::SoldOut)?;
    ///         tr.clear("stock");
    ///         Ok(())
    ///     })
    ///     .await;
    /// assert!(matches!(bought, Err(BuyError::SoldOut)));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// If nothing else says which type it is, the body does: `Ok::<_, BuyError>(())`.
    ///
    /// # Errors
    ///
    /// The first error that a retry does not help. If the body fails, its error decides if it is an [`Error`] or a
    /// boxed one, and otherwise the last error that the transaction gave to the body does: a retryable one is retried,
    /// whatever the body has made of it.
    pub async fn try_run<T, E, F, Fut>(&self, mut body: F) -> Result<T, E>
    where
        F: FnMut(Transaction) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error> + 'static,
    {
        let transaction = self.create_transaction();
        loop {
            let (error, own) = match body(transaction.clone()).await {
                Ok(output) => match transaction.commit().await {
                    Ok(()) => return Ok(output),
                    Err(error) => (error, None),
                },
                Err(own) => match within(&own).or_else(|| transaction.last_error()) {
                    Some(error) if error.is_retryable() => (error, Some(own)),
                    _ => return Err(own),
                },
            };
            if let Err(last) = transaction.on_error(error).await {
                return Err(own.unwrap_or_else(|| E::from(last)));
            }
        }
    }

    /// Sets an option: a default for later transactions, or a limit of the database.
    ///
    /// # Errors
    ///
    /// [`Error::invalid_option_value`] if the value is out of range.
    pub async fn set_option(&self, option: DatabaseOption) -> Result<()> {
        let set = move |database: plinth_client::Database| database.set_option(option);
        self.home.ask_each(set).await
    }

    /// The tenant of that name: a key space of its own, used as a database. Sends nothing: if there is no such tenant,
    /// operations on it fail with [`Error::tenant_not_found`].
    ///
    /// ```
    /// # plinth::doc_test(async |db| {
    /// db.create_tenant("customer 17").await?;
    /// let tenant = db.open_tenant("customer 17");
    /// tenant.run(async |tr| {
    ///     tr.set("greeting", "hello");
    ///     Ok(())
    /// })
    /// .await?;
    /// let outside = db.run(async |tr| tr.get("greeting").await).await?;
    /// assert_eq!(outside, None);
    /// # Ok(())
    /// # });
    /// ```
    pub fn open_tenant(&self, name: impl AsRef<[u8]>) -> Database {
        let name = name.as_ref().into_key();
        let open = move |parent: &plinth_client::Database| parent.open_tenant(name);
        Database::new(self.home.beside(open))
    }

    /// Makes a tenant.
    ///
    /// # Errors
    ///
    /// [`Error::tenant_already_exists`]; [`Error::permission_denied`] without an operator's key.
    pub async fn create_tenant(&self, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref().into_key();
        self.home
            .ask(|database| async move { database.create_tenant(name).await })
            .await
    }

    /// Removes a tenant, which must be empty.
    ///
    /// # Errors
    ///
    /// [`Error::tenant_not_found`], [`Error::tenant_not_empty`]; [`Error::permission_denied`] without an operator's
    /// key.
    pub async fn delete_tenant(&self, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref().into_key();
        self.home
            .ask(|database| async move { database.delete_tenant(name).await })
            .await
    }

    /// Gives a tenant another name. Its data stays as it is. Transactions that were begun under the former name do not
    /// commit.
    ///
    /// # Errors
    ///
    /// [`Error::tenant_not_found`], [`Error::tenant_already_exists`]; [`Error::permission_denied`] without an
    /// operator's key.
    pub async fn rename_tenant(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let (from, to) = (from.as_ref().into_key(), to.as_ref().into_key());
        self.home
            .ask(|database| async move { database.rename_tenant(from, to).await })
            .await
    }

    /// All tenants: names and numbers.
    pub async fn list_tenants(&self) -> Result<Vec<(Key, i64)>> {
        self.home
            .ask(|database| async move { database.list_tenants().await })
            .await
    }

    /// Ends the database for all its handles and waits until its threads are gone. Every operation under way and every
    /// later one fails with [`Error::operation_cancelled`].
    ///
    /// Nobody needs to call this, except to wait until an embedded cluster has left its directory.
    pub async fn close(&self) {
        self.home.close().await;
    }
}

/// The error of the database in an error of the application, if it can be seen.
fn within(error: &dyn Any) -> Option<Error> {
    if let Some(error) = error.downcast_ref::<Error>() {
        return Some(*error);
    }
    let mut next: Option<&(dyn AnyError + 'static)> = match (
        error.downcast_ref::<Box<dyn AnyError + Send + Sync>>(),
        error.downcast_ref::<Box<dyn AnyError>>(),
    ) {
        (Some(boxed), _) => Some(&**boxed),
        (None, Some(boxed)) => Some(&**boxed),
        (None, None) => None,
    };
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(*found);
        }
        next = error.source();
    }
    None
}
