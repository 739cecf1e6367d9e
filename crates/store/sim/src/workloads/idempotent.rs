//! Automatic idempotency: additions that must not be applied twice, without a note of the workload's own. The
//! counter must be the number of acknowledged additions, and no client may receive an unknown result.

use super::{Boxed, Complaints, Day, Space, Verdict, Workload, until_done};
use plinth_client::{Database, TransactionOption};
use plinth_core::{Error, MutationKind, Result};
use std::cell::Cell;

pub struct Idempotent {
    space: Space,
    acknowledged: Cell<u64>,
    complaints: Complaints,
}

impl Idempotent {
    pub fn new(space: Space) -> Self {
        Idempotent {
            space,
            acknowledged: Cell::new(0),
            complaints: Complaints::default(),
        }
    }

    async fn add(&self, database: &Database) -> Result<()> {
        let transaction = database.create_transaction();
        loop {
            transaction.set_option(TransactionOption::AutomaticIdempotency)?;
            let one = 1u64.to_le_bytes();
            transaction.atomic_op(MutationKind::Add, self.space.named("sum"), one);
            match transaction.commit().await {
                Ok(()) => break,
                Err(error) if error == Error::commit_unknown_result => {
                    self.complaints
                        .add("a client heard of an unknown result".into());
                    return Ok(());
                }
                Err(error) => transaction.on_error(error).await?,
            }
        }
        self.acknowledged.set(self.acknowledged.get() + 1);
        if transaction.get_committed_version() <= 0 {
            self.complaints
                .add("an acknowledged addition has no version".into());
        }
        Ok(())
    }
}

impl Workload for Idempotent {
    super::kind!("idempotent", |space, _| Idempotent::new(space));

    fn work(&self, database: Database, _: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(day.fill(async move || {
            if let Err(error) = self.add(&database).await {
                self.complaints.add(format!("an addition failed: {error}"));
            }
        }))
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let key = self.space.named("sum");
            let value = until_done(&database, async |tr| tr.get(&key, false).await).await;
            let sum = value.map_or(0, |v| {
                u64::from_le_bytes(v[..].try_into().unwrap_or_default())
            });
            let acknowledged = self.acknowledged.get();
            if sum != acknowledged {
                return Err(format!(
                    "{acknowledged} additions were acknowledged, {sum} done"
                ));
            }
            self.complaints.verdict()
        })
    }
}
