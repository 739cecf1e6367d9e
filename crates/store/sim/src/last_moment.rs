//! Commits that were acknowledged in the last moment before a power cut.
//!
//! Only the log servers that hold such a commit know that it is committed: no later push has told them so yet. A
//! recovery that believes the one log server that has lost it forgets it. The clients of the workloads seldom have a
//! commit acknowledged in just that moment, so the harness commits rows of its own.

use plinth_client::{Database, Transaction, TransactionOption};
use plinth_core::Result;
use plinth_runtime::{Duration, probe, timeout, trace};
use plinth_workload::until_done;
use std::cell::RefCell;
use std::rc::Rc;

/// A commit that takes longer is no last moment: later commits have come between.
const COMMIT_LIMIT: Duration = Duration::from_millis(500);

/// Numbers of the rows whose commits were acknowledged.
#[derive(Clone, Debug, Default)]
pub struct LastMoments(Rc<RefCell<Acknowledged>>);

#[derive(Debug, Default)]
struct Acknowledged {
    tried: u32,
    rows: Vec<u32>,
}

/// Outside the space of the workloads.
fn key(row: u32) -> String {
    format!("\0last moment {row}")
}

impl LastMoments {
    /// Commits a row; `begin` is called just before the commit is sent. Returns when the row is acknowledged, or
    /// after half a second.
    pub async fn commit(&self, database: &Database, begin: impl FnOnce()) {
        let row = {
            let mut acknowledged = self.0.borrow_mut();
            acknowledged.tried += 1;
            acknowledged.tried
        };
        let tr = database.create_transaction();
        let prepared = timeout(COMMIT_LIMIT, prepare(&tr, row)).await;
        begin();
        if !matches!(prepared, Some(Ok(()))) {
            return;
        }
        if let Some(Ok(())) = timeout(COMMIT_LIMIT, tr.commit()).await {
            probe!("fault_right_after_a_commit");
            trace!("LastMoment", "row" => row);
            self.0.borrow_mut().rows.push(row);
        }
    }

    /// Every acknowledged row must be there.
    pub async fn check(&self, database: &Database) -> std::result::Result<(), String> {
        let rows = self.0.borrow().rows.clone();
        for row in rows {
            let read = until_done(database, async |tr| {
                tr.set_option(TransactionOption::LockAware)?;
                tr.get(key(row), false).await
            });
            if read.await.is_none() {
                return Err(format!(
                    "row {row} was acknowledged, then the power was cut, and it is gone"
                ));
            }
        }
        Ok(())
    }
}

async fn prepare(tr: &Transaction, row: u32) -> Result<()> {
    tr.set_option(TransactionOption::LockAware)?;
    tr.set(key(row), "acknowledged");
    tr.get_read_version().await.map(drop)
}
