//! The local store of a replica: whose it is, and how it comes to be.

use super::copies;
use super::identity::Identity;
use super::kind::{Config, RELEASE};
use super::serves::ServiceLog;
use crate::backup::objects::Origin;
use crate::engines::roster;
use crate::log::{LogError, SharedLog};
use crate::stacks::ENGINES;
use crate::store::LocalStore;
use crate::store::copy::clear_interrupted;
use plinth_coordination::ClusterFile;
use plinth_core::Error;
use plinth_engine::KeyValueStore;
use plinth_rpc::Transport;
use plinth_runtime::Boxed;
use std::path::Path;
use std::rc::Rc;

/// Its files begin so.
pub const STORE: &str = "store";

/// What a store says about whose it is.
pub fn owner(identity: &Identity) -> String {
    format!("{} {:016x}", identity.service.key(), identity.id)
}

/// What a backup says about whose it is.
pub fn origin(service: &ClusterFile, kind: &str) -> Origin {
    Origin::new(&service.key(), kind, &service.description)
}

fn failed(config: &Config, error: Error) -> String {
    let path = config.directory.join(STORE);
    format!("local store {}: {error}", path.display())
}

/// Opens the engine of the store, or makes it.
///
/// # Errors
/// A line for an operator.
pub fn open_engine(config: &Config) -> Boxed<'_, Result<Rc<dyn KeyValueStore>, String>> {
    Box::pin(async move {
        let path = config.directory.join(STORE);
        let (kind, cache_bytes) = (config.engine, config.cache_bytes);
        let opened = match plinth_engine::open(kind, &path, false, cache_bytes).await {
            Err(Error::file_not_found) => plinth_engine::open(kind, &path, true, cache_bytes).await,
            opened => opened,
        };
        opened.map_err(|error| failed(config, error))
    })
}

/// Opens the store of this replica. A new one begins with a copy of another replica if the log's begin is gone.
///
/// # Errors
/// A line for an operator.
pub async fn open(
    config: &Config,
    transport: &Transport,
    identity: &Identity,
    log: &ServiceLog,
    says_that_it_copies: impl FnOnce(),
) -> Result<Rc<LocalStore>, String> {
    let failed = |error: Error| failed(config, error);
    let engine = open_engine(config).await?;
    clear_interrupted(&engine).await.map_err(failed)?;
    let mut store = LocalStore::open(engine.clone()).map_err(failed)?;
    if !store.claim(&owner(identity)).await.map_err(failed)? {
        return Err(format!(
            "local store {} is of another service or replica: put the right one there, or remove this replica and \
             add one with an empty directory",
            config.directory.join(STORE).display()
        ));
    }
    // A new replica cannot play a log whose begin is gone.
    if store.applied() == 0
        && let Err(LogError::Trimmed(first)) = log.read_next(1, 1).await
    {
        says_that_it_copies();
        let own = owner(identity);
        copies::fetch(transport, identity, &own, &engine, first).await?;
        store = LocalStore::open(engine).map_err(failed)?;
    }
    check_engines(&store, &config.directory)?;
    Ok(store)
}

/// Refuses a store in which an engine is on that this release does not have.
///
/// # Errors
/// A line for an operator.
pub fn check_engines(store: &Rc<LocalStore>, directory: &Path) -> Result<(), String> {
    let on = roster::engines_on(&store.snapshot());
    let on =
        on.map_err(|error| format!("local store {}: {error}", directory.join(STORE).display()))?;
    let has = |name: &String| ENGINES.iter().any(|engine| engine.name == *name);
    match on.iter().find(|name| !has(name)) {
        Some(name) => Err(format!(
            "engine {name} is on in this service, and this release ({RELEASE}) does not have it: upgrade this replica"
        )),
        None => Ok(()),
    }
}
