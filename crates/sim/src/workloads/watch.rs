//! Watches: whoever waits for a key to change hears of it in time, and not before.

use super::{Boxed, Complaints, Day, Verdict, Workload, until_done};
use plinth_client::Database;
use plinth_runtime::{Duration, Either, random};

/// A watch that has not fired so long after the change was committed, and the faults were over, never will.
const FIRE_LIMIT: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Watches {
    complaints: Complaints,
}

impl Watches {
    pub fn new() -> Self {
        Self::default()
    }

    /// One change of a key that nobody else writes: the watch is silent before it and fires after it.
    async fn round(&self, database: &Database, client: u64, round: u64, day: Day) {
        let key = format!("watch/{client}").into_bytes();
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
        until_done(database, async |tr| {
            tr.set(&key, round.to_string());
            Ok(())
        })
        .await;
        let deadline = plinth_runtime::now().max(day.end) + FIRE_LIMIT;
        let left = deadline.saturating_since(plinth_runtime::now());
        match plinth_runtime::timeout(left, waiting).await {
            Some(Ok(())) => {}
            Some(Err(error)) => complain(&format!("failed: {error}")),
            None => complain("never fired"),
        }
    }
}

impl Workload for Watches {
    fn name(&self) -> &'static str {
        "watch"
    }

    fn setup(&self, _: Database) -> Boxed<'_, ()> {
        Box::pin(async {})
    }

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
