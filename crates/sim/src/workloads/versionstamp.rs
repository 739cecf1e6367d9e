//! Versionstamps: keys made of them are unique and in commit order, and are what the client was told.

use super::{Boxed, Complaints, Ending, Verdict, Workload, ending, number, think, until_done};
use plinth_client::{Database, RangeOptions};
use plinth_core::{KeySelector, MutationKind, Versionstamp};
use plinth_runtime::{Instant, random};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

const PREFIX: &[u8] = b"stamp/";

pub struct Versionstamps {
    next: Cell<i64>,
    /// What the client was told, by note.
    told: RefCell<BTreeMap<i64, Versionstamp>>,
    complaints: Complaints,
}

impl Versionstamps {
    pub fn new() -> Self {
        Versionstamps {
            next: Cell::new(0),
            told: RefCell::default(),
            complaints: Complaints::default(),
        }
    }

    async fn append(&self, database: &Database) {
        let id = self.next.replace(self.next.get() + 1);
        let tr = database.create_transaction();
        let mut key = PREFIX.to_vec();
        key.extend_from_slice(&[0; 10]);
        key.extend_from_slice(&(PREFIX.len() as u32).to_le_bytes());
        tr.atomic_op(MutationKind::SetVersionstampedKey, &key, id.to_string());
        let stamp = tr.get_versionstamp();
        if ending(tr.commit().await) == Ending::Committed {
            match stamp.await {
                Ok(stamp) => drop(self.told.borrow_mut().insert(id, stamp)),
                Err(error) => self
                    .complaints
                    .add(format!("no versionstamp after a commit: {error}")),
            }
        }
    }
}

impl Workload for Versionstamps {
    fn name(&self) -> &'static str {
        "versionstamp"
    }

    fn setup(&self, _: Database) -> Boxed<'_, ()> {
        Box::pin(async {})
    }

    fn work(&self, database: Database, _: u64, end: Instant) -> Boxed<'_, ()> {
        Box::pin(async move {
            while plinth_runtime::now() < end {
                let attempts = random::range(1..4);
                plinth_runtime::join_all((0..attempts).map(|_| self.append(&database))).await;
                think().await;
            }
        })
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let rows = until_done(&database, async |tr| {
                let begin = KeySelector::first_greater_or_equal(PREFIX);
                let end = KeySelector::first_greater_or_equal(&b"stamp0"[..]);
                tr.get_range_all(begin, end, RangeOptions::default(), false)
                    .await
            })
            .await;
            let mut found = BTreeMap::new();
            for (key, value) in &rows {
                let stamp: [u8; 10] = key[PREFIX.len()..]
                    .try_into()
                    .map_err(|_| "a key has no stamp".to_string())?;
                if found.insert(number(value), Versionstamp(stamp)).is_some() {
                    return Err(format!("transaction {} left two stamps", number(value)));
                }
            }
            for (id, told) in self.told.borrow().iter() {
                if found.get(id) != Some(told) {
                    return Err(format!(
                        "transaction {id} was told {told:?} and left {:?}",
                        found.get(id)
                    ));
                }
            }
            self.complaints.verdict()
        })
    }
}
