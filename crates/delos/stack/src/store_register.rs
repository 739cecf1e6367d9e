//! The map of a virtual log in a row of the store: `delos/<name>/map`, `version u64 | value`.

use crate::virtual_log::{Register, after_version, parse_versioned};
use bytes::Bytes;
use plinth_client::{Database, Transaction};
use plinth_core::Error;

/// See the module.
pub struct StoreRegister {
    database: Database,
    key: Bytes,
}

impl StoreRegister {
    pub fn new(database: &Database, name: &str) -> Self {
        StoreRegister {
            database: database.clone(),
            key: format!("delos/{name}/map").into(),
        }
    }

    async fn look(&self, transaction: &Transaction) -> Result<(u64, Bytes), Error> {
        parse_versioned(transaction.get(&self.key, false).await?)
    }
}

impl Register for StoreRegister {
    async fn read(&self) -> Result<(u64, Bytes), Error> {
        self.database.run(async |tr| self.look(&tr).await).await
    }

    async fn swap(&self, version: u64, value: Bytes) -> Result<bool, Error> {
        let row = after_version(version, &value);
        let is_swapped = self.database.run(async |transaction| {
            let (now, there) = self.look(&transaction).await?;
            if now == version {
                transaction.set(&self.key, row.clone());
            }
            // An attempt before this one, whose outcome nobody knew, may have put it there.
            Ok(now == version || (now == version + 1 && there == value))
        });
        is_swapped.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_client::testing::{CommitFault, MemoryCluster};
    use plinth_runtime::real::block_on;

    #[test]
    fn a_value_is_replaced_by_who_knows_it_and_by_nobody_else() {
        block_on(async {
            let cluster = MemoryCluster::new();
            let open = || StoreRegister::new(&cluster.database(), "a");
            let (one, two) = (open(), open());
            assert_eq!(one.read().await, Ok((0, Bytes::new())));
            cluster.inject(CommitFault::AnswerLost);
            assert_eq!(one.swap(0, "x".into()).await, Ok(true));
            assert_eq!(two.swap(0, "y".into()).await, Ok(false));
            assert_eq!(two.read().await, Ok((1, "x".into())));
            assert_eq!(two.swap(1, "y".into()).await, Ok(true));
            assert_eq!(one.swap(1, "z".into()).await, Ok(false));
            assert_eq!(one.read().await, Ok((2, "y".into())));
        });
    }
}
