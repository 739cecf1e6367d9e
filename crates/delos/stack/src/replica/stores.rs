//! The local store of a replica: whose it is, and how it comes to be.

use super::copies;
use super::identity::Identity;
use super::kind::{Config, RELEASE};
use super::serves::ServiceLog;
use crate::backup::objects::Origin;
use crate::engines::roster;
use crate::quorum::messages::Config as LogletConfig;
use crate::stacks::ENGINES;
use crate::store::LocalStore;
use crate::store::copy::clear_interrupted;
use plinth_coordination::ClusterFile;
use plinth_core::Error;
use plinth_engine::KeyValueStore;
use plinth_rpc::Transport;
use plinth_runtime::{Boxed, Duration, probe, sleep};
use std::path::Path;
use std::rc::Rc;

/// Before another replica is asked for a copy again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
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

/// Opens the store of this replica. A new one begins with a copy of another replica if the log's begin is gone, or if
/// nobody can read some of the log. `tells` what it waits for.
///
/// # Errors
/// A line for an operator.
pub async fn open(
    config: &Config,
    transport: &Transport,
    identity: &Identity,
    log: &ServiceLog,
    tells: impl Fn(String),
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
    if store.applied() == 0 && begin_with_copy(transport, identity, log, &engine, tells).await? {
        store = LocalStore::open(engine).map_err(failed)?;
    }
    check_engines(&store, &config.directory)?;
    Ok(store)
}

/// Copies another replica if the log cannot be played from its begin on; false if it can. Log servers that do not
/// answer may come back: until then, or until there is something to copy, it waits.
async fn begin_with_copy(
    transport: &Transport,
    identity: &Identity,
    log: &ServiceLog,
    engine: &Rc<dyn KeyValueStore>,
    tells: impl Fn(String),
) -> Result<bool, String> {
    let own = owner(identity);
    let mut has_tried = false;
    while let Some(gone) = log.gone().await {
        let Some(part) = &gone.unreadable else {
            tells("a copy of another replica".into());
            copies::fetch(transport, identity, &own, engine, gone.first).await?;
            return Ok(true);
        };
        probe!("delos_part_unreadable");
        // Others copy at the first try, and need no line.
        if has_tried {
            tells(format!(
                "a copy of another replica, or for the log servers at {}, which have entries of the log up to {} and \
                 do not answer",
                servers_of(part),
                gone.first - 1
            ));
        }
        if copies::fetch_once(transport, identity, &own, engine, gone.first).await? {
            return Ok(true);
        }
        has_tried = true;
        sleep(RETRY_PAUSE).await;
    }
    Ok(false)
}

fn servers_of(part: &[u8]) -> String {
    let config = LogletConfig::from_description(part);
    let servers = config.iter().flat_map(|config| &config.servers);
    let addresses: Vec<String> = servers.map(|server| server.address.to_string()).collect();
    addresses.join(", ")
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
