//! Makes the first replica of a service that is restored from a backup. The others copy its rows (`copies.rs`),
//! because the new service's log begins behind them.
//!
//! While it is under way a file says so: a process that finds it when it starts removes what there is, and waits for
//! an operator again.

use super::identity::Identity;
use super::kind::Config;
use super::messages::{Restore, Restored};
use super::stores::{STORE, check_engines, open_engine, owner};
use crate::backup::restore::{Plan, copy_rows, plan};
use crate::backup::{Outcome, Place};
use crate::stacks::make_new;
use crate::store::LocalStore;
use bytes::Bytes;
use plinth_coordination::ClusterFile;
use plinth_engine::KeyValueStore;
use plinth_runtime::{disk, trace};
use std::path::Path;
use std::rc::Rc;

const MARK: &str = "restoring";

fn unusable(directory: &Path, error: std::io::Error) -> String {
    format!("data directory {}: {error}", directory.display())
}

async fn clear(directory: &Path) -> std::io::Result<()> {
    for name in disk::list_dir(directory).await? {
        if name.starts_with(STORE) {
            disk::remove(&directory.join(name)).await?;
        }
    }
    disk::sync_dir(directory).await?;
    unmark(directory).await
}

async fn unmark(directory: &Path) -> std::io::Result<()> {
    disk::remove(&directory.join(MARK)).await?;
    disk::sync_dir(directory).await.map(drop)
}

/// Removes what a life before this one has not completed.
///
/// # Errors
/// A line: the directory cannot be used.
pub async fn clear_interrupted(directory: &Path) -> Outcome {
    let is_there = disk::exists(&directory.join(MARK)).await;
    if !is_there.map_err(|error| unusable(directory, error))? {
        return Ok(());
    }
    let cleared = clear(directory).await;
    cleared.map_err(|error| unusable(directory, error))
}

/// Restores the store of a new replica, and makes the directory its own.
///
/// # Errors
/// A line for an operator; the directory has nothing then.
pub async fn restore(
    config: &Config,
    service: ClusterFile,
    asked: &Restore,
) -> Outcome<(Identity, Restored)> {
    let from = (config.places)(&asked.place)?;
    let plan = plan(from.as_ref(), asked.to).await?;
    if config.kind(&plan.origin.kind).is_none() {
        return Err(format!(
            "the backup is of a service of kind {:?}, which the program of this process does not have",
            plan.origin.kind
        ));
    }
    let directory = &config.directory;
    let unusable = |error| unusable(directory, error);
    let identity = Identity::draw(service, &plan.origin.kind, &asked.name, config.address());
    let marked = disk::write_file_durably(&directory.join(MARK), Bytes::new()).await;
    marked.map_err(unusable)?;
    let made = async {
        let replicas = u8::try_from(asked.replicas).unwrap_or(u8::MAX).max(1);
        let first = make_store(config, from.as_ref(), &plan, &identity, replicas).await?;
        identity.save(directory).await?;
        Ok(first)
    };
    match made.await {
        Ok(first) => {
            unmark(directory).await.map_err(unusable)?;
            trace!("DelosRestored", "position" => plan.last, "from" => from.name());
            let restored = Restored {
                pos: plan.last,
                first,
                kind: plan.origin.kind,
                refused: String::new(),
            };
            Ok((identity, restored))
        }
        Err(line) => {
            clear(directory).await.map_err(unusable)?;
            Err(line)
        }
    }
}

/// The first position of the new service's log.
async fn make_store(
    config: &Config,
    from: &dyn Place,
    plan: &Plan,
    identity: &Identity,
    replicas: u8,
) -> Outcome<u64> {
    let engine = open_engine(config).await?;
    let filled = fill(config, from, plan, identity, replicas, &engine).await;
    let closed = engine.close().await;
    let first = filled?;
    closed.map_err(|error| format!("the local store fails: {error}"))?;
    Ok(first)
}

async fn fill(
    config: &Config,
    from: &dyn Place,
    plan: &Plan,
    identity: &Identity,
    replicas: u8,
    engine: &Rc<dyn KeyValueStore>,
) -> Outcome<u64> {
    let failed = |error| format!("the local store fails: {error}");
    copy_rows(from, plan, engine, &owner(identity)).await?;
    let store = LocalStore::open(engine.clone()).map_err(failed)?;
    let kind = config.kind(&plan.origin.kind).expect("it was checked");
    (kind.play)(from, plan, &store).await?;
    if store.applied() != plan.last {
        return Err(format!(
            "backup {}: its entries end at position {}, and should go on to {}",
            from.name(),
            store.applied(),
            plan.last
        ));
    }
    make_new(&store, replicas).map_err(failed)?;
    store.flush().await.map_err(failed)?;
    check_engines(&store, &config.directory)?;
    Ok(store.applied() + 1)
}
