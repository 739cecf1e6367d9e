//! Tells the application when requests do not reach the cluster, and when they reach it again.

use crate::log;
use plinth_client::Database;
use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The outages of a database with several threads: its application hears of them once.
#[derive(Default)]
pub(crate) struct Outages {
    /// How many of its threads have one at present.
    threads: AtomicUsize,
}

impl Outages {
    /// Tells of the outages of one thread, without end.
    pub async fn tell(&self, database: Database, cluster_file: &Path) -> Infallible {
        let file = cluster_file.display();
        loop {
            let outage = database.cluster().outage().await;
            if self.threads.fetch_add(1, Ordering::Relaxed) == 0 {
                log::tell(&format!("cluster file {file}: {outage}"));
            }
            outage.over.await;
            if self.threads.fetch_sub(1, Ordering::Relaxed) == 1 {
                log::tell(&format!(
                    "cluster file {file}: requests reach the cluster again"
                ));
            }
        }
    }
}
