//! Replicas of a service with a table, on nodes.

use crate::nodes::{Nodes, Site};
use crate::rows::{self, propose, switch};
use plinth_delos::backup::objects::Origin;
use plinth_delos::backup::{Backups, directories};
use plinth_delos::engines::{session_order, view_tracking};
use plinth_delos::quorum::messages::Config;
use plinth_delos::stacks::Standard;
use plinth_runtime::spawn;
use plinth_table::application::Tables;
use std::path::Path;
use std::rc::Rc;

/// A bench names no place for backups.
pub fn no_backups() -> Backups {
    Backups {
        origin: Origin::new("bench", "table", "bench"),
        open: directories,
    }
}

/// Starts the node's replica, over the log that begins with this loglet.
///
/// # Errors
/// One line.
pub async fn start(site: Rc<Site>, id: u64, first: Config) -> Result<(), String> {
    let log = site.log(&first).await?;
    let store = rows::store(&site.directory, "store").await?;
    let stack = Standard::new(log, store, id, Tables, no_backups());
    let running = stack.clone();
    spawn("replica", async move {
        let stopped = running.run().await;
        eprintln!("plinth: replica {id} stops: {stopped}");
    })
    .detach();
    if site.stack.set(stack).is_err() {
        return Err("the node has a replica already".into());
    }
    Ok(())
}

/// Switches on what services begin with, but Batching, and makes the table.
///
/// # Errors
/// One line.
pub async fn prepare(site: Rc<Site>) -> Result<(), String> {
    let stack = site.replica();
    for engine in [view_tracking::GUARD, session_order::GUARD] {
        switch(&stack, engine, true).await?;
    }
    propose(&stack, rows::creation()).await
}

/// Starts a replica on every node, with a table.
///
/// # Errors
/// One line.
pub async fn replicas(at: &Path) -> Result<Nodes, String> {
    let nodes = Nodes::start(at).await?;
    let first = nodes.config(0);
    for (id, node) in (1..).zip(&nodes.all) {
        let first = first.clone();
        node.run(move |site| start(site, id, first)).await?;
    }
    nodes.all[0].run(prepare).await?;
    Ok(nodes)
}
