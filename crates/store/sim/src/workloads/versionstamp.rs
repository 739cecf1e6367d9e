//! Versionstamps: keys made of them must be unique, in commit order, and equal to the stamps that the clients
//! received.

use super::{Boxed, Complaints, Day, Ending, Space, Verdict, Workload, ending, number, read_rows};
use plinth_client::Database;
use plinth_core::{MutationKind, Versionstamp};
use plinth_runtime::random;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Length of the part before the stamp in every key: a byte of the space and a word.
const PREFIX_LEN: usize = 7;

pub struct Versionstamps {
    space: Space,
    next: Cell<i64>,
    /// Newest stamp that any client has received.
    newest: Cell<Versionstamp>,
    /// Stamps that the clients received, by transaction.
    told: RefCell<BTreeMap<i64, Versionstamp>>,
    complaints: Complaints,
}

impl Versionstamps {
    pub fn new(space: Space) -> Self {
        Versionstamps {
            space,
            next: Cell::new(0),
            newest: Cell::new(Versionstamp([0; 10])),
            told: RefCell::default(),
            complaints: Complaints::default(),
        }
    }

    async fn append(&self, database: &Database) {
        let id = self.next.replace(self.next.get() + 1);
        let before = self.newest.get();
        let tr = database.create_transaction();
        let part = self.space.part(random::below(8), 8);
        let mut key = [&part.begin()[..], b"stamp/"].concat();
        key.extend_from_slice(&[0; Versionstamp::LEN]);
        key.extend_from_slice(&(PREFIX_LEN as u32).to_le_bytes());
        tr.atomic_op(MutationKind::SetVersionstampedKey, &key, id.to_string());
        let stamp = tr.get_versionstamp();
        if ending(tr.commit().await) != Ending::Committed {
            return;
        }
        match stamp.await {
            Ok(stamp) => self.tell(id, before, stamp),
            Err(error) => self
                .complaints
                .add(format!("no versionstamp after a commit: {error}")),
        }
    }

    fn tell(&self, id: i64, before: Versionstamp, stamp: Versionstamp) {
        if stamp <= before {
            self.complaints.add(format!(
                "transaction {id} began after {before:?} and got {stamp:?}"
            ));
        }
        self.newest.set(self.newest.get().max(stamp));
        self.told.borrow_mut().insert(id, stamp);
    }
}

impl Workload for Versionstamps {
    super::kind!("versionstamp", |space, _| Versionstamps::new(space));

    fn work(&self, database: Database, _: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(day.fill(async move || {
            let attempts = random::range(1..4);
            plinth_runtime::join_all((0..attempts).map(|_| self.append(&database))).await;
        }))
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let mut found = BTreeMap::new();
            for (key, value) in read_rows(&database, self.space).await {
                let stamp = key[PREFIX_LEN..].try_into();
                let stamp = Versionstamp(stamp.map_err(|_| "a key has no stamp".to_string())?);
                if found.insert(number(&value), stamp).is_some() {
                    return Err(format!("transaction {} left two stamps", number(&value)));
                }
            }
            for (id, told) in self.told.borrow().iter() {
                if found.get(id) != Some(told) {
                    let found = found.get(id);
                    return Err(format!(
                        "transaction {id} was told {told:?} and left {found:?}"
                    ));
                }
            }
            self.complaints.verdict()
        })
    }
}
