//! Watches: a client that watches a key must learn of a change in time, not before it, and must then be able to read
//! it.

use super::{Boxed, Complaints, Day, Space, Verdict, Workload, until_done};
use plinth_client::Database;
use plinth_core::Key;
use plinth_runtime::{Duration, Either, random};

/// A watch must fire within this time after the change is committed and the faults are over.
const FIRE_LIMIT: Duration = Duration::from_secs(60);

pub struct Watches {
    space: Space,
    complaints: Complaints,
}

impl Watches {
    pub fn new(space: Space) -> Self {
        let complaints = Complaints::default();
        Watches { space, complaints }
    }

    /// One change of a key that no other client writes. The watch must not fire before it and must fire after it.
    async fn round(&self, database: &Database, client: u64, round: u64, day: Day) {
        let key = self.space.key(client, self.clients());
        let complain = |what: &str| {
            let text = format!("the watch of client {client} for change {round} {what}");
            self.complaints.add(text);
        };
        let mut waiting = until_done(database, async |tr| Ok(tr.watch(&key))).await;
        let pause = plinth_runtime::sleep(Duration::from_millis(random::below(3000)));
        match plinth_runtime::race(&mut waiting, pause).await {
            Either::Left(Ok(())) => return complain("fired although nothing had changed"),
            Either::Left(Err(error)) => return complain(&format!("failed: {error}")),
            Either::Right(()) => {}
        }
        let change = plinth_runtime::spawn("change", set(database.clone(), key.clone(), round));
        let deadline = plinth_runtime::now().max(day.end) + FIRE_LIMIT;
        let left = deadline.saturating_since(plinth_runtime::now());
        match plinth_runtime::timeout(left, waiting).await {
            Some(Ok(())) => {
                // The writer may not know yet that it has committed, but the client whose watch fired must see the
                // change.
                let seen = until_done(database, async |tr| tr.get(&key, false).await).await;
                if seen != Some(round.to_string().into()) {
                    complain("fired, and the change was not to be seen");
                }
            }
            Some(Err(error)) => complain(&format!("failed: {error}")),
            None => complain("never fired"),
        }
        change.await;
    }
}

async fn set(database: Database, key: Key, round: u64) {
    until_done(&database, async |tr| {
        tr.set(&key, round.to_string());
        Ok(())
    })
    .await;
}

impl Workload for Watches {
    super::kind!("watch", |space, _| Watches::new(space));

    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(async move {
            let mut round = 0;
            while !day.is_over() {
                round += 1;
                self.round(&database, client, round, day).await;
            }
        })
    }

    fn check(&self, _: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move { self.complaints.verdict() })
    }
}
