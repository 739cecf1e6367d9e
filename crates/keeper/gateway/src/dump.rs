//! What operators see of ephemeral nodes.

use crate::life::Life;
use crate::store::Most;
use crate::wire::Text;
use plinth_runtime::{Duration, timeout};
use std::collections::BTreeMap;

/// How long the database may take to say it.
const LIMIT: Duration = Duration::from_secs(5);
const BYTES_MAX: usize = 64 << 20;

/// The ephemeral nodes of the sessions of this gateway, as far as 64 MiB of the tree's ephemeral nodes go; `None` if
/// the database cannot be reached.
pub async fn ephemerals(life: &Life) -> Option<BTreeMap<i64, Vec<Text>>> {
    let reading = async {
        life.pipeline.refreshed().await.ok()?;
        let rows = &life.replica.rows;
        let range = rows.all_ephemerals();
        let reading = life.replica.page(range, Most::bytes(BYTES_MAX));
        let found = reading.await.ok()?.rows;
        let sessions = life.clients.sessions.borrow();
        let mut by_session: BTreeMap<i64, Vec<Text>> = BTreeMap::new();
        for (key, _) in &found {
            let (session, path) = (rows.ephemeral_session(key)?, rows.ephemeral_path(key)?);
            if sessions.get(session).is_some() {
                by_session.entry(session).or_default().push(path.into());
            }
        }
        Some(by_session)
    };
    timeout(LIMIT, reading).await.flatten()
}
