//! Watches: whoever waits for a key to change hears of it, in time.

use super::{Boxed, Complaints, Verdict, Workload, until_done};
use plinth_client::Database;
use plinth_runtime::{Duration, Instant, random};

/// A watch that has not fired so long after the change was committed never will.
const FIRE_LIMIT: Duration = Duration::from_secs(120);

pub struct Watches {
    complaints: Complaints,
}

impl Watches {
    pub fn new() -> Self {
        Watches {
            complaints: Complaints::default(),
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

    fn work(&self, database: Database, client: u64, end: Instant) -> Boxed<'_, ()> {
        Box::pin(async move {
            let key = format!("watch/{client}").into_bytes();
            let mut round = 0u64;
            while plinth_runtime::now() < end {
                let waiting = until_done(&database, async |tr| {
                    tr.get(key.clone(), false).await?;
                    Ok(tr.watch(key.clone()))
                })
                .await;
                plinth_runtime::sleep(Duration::from_millis(random::below(2000))).await;
                round += 1;
                until_done(&database, async |tr| {
                    tr.set(&key, round.to_string());
                    Ok(())
                })
                .await;
                if plinth_runtime::timeout(FIRE_LIMIT, waiting).await.is_none() {
                    self.complaints.add(format!(
                        "the watch on change {round} of client {client} never fired"
                    ));
                }
            }
        })
    }

    fn check(&self, _: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move { self.complaints.verdict() })
    }
}
