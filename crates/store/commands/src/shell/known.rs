//! What the cluster knows and Tab completes: addresses, exclusions, tenants. A task asks for it before each prompt,
//! and nobody waits for the answer.

use super::complete::{Known, written};
use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_control::exclusion;
use plinth_coordination::{Coordinators, election};
use plinth_core::key::prefix_end;
use plinth_core::system_keys::TENANT_MAP;
use plinth_core::{KeyRange, Result};
use plinth_protocol::control::GetWorkers;
use plinth_rpc::Transport;
use plinth_runtime::Duration;
use plinth_terminal::connect::Connection;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// Limit of one look. What is not there by then is asked for again before the next prompt.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// So many tenants are completed at most.
const TENANTS_MAX: i32 = 1000;

/// Looks for what completes. The editor reads it on another thread.
pub struct Looker {
    known: Arc<Mutex<Known>>,
    looks: Rc<Cell<bool>>,
}

impl Looker {
    pub fn new() -> Looker {
        Looker {
            known: Arc::default(),
            looks: Rc::default(),
        }
    }

    pub fn known(&self) -> Arc<Mutex<Known>> {
        self.known.clone()
    }

    /// Begins to look, unless the look before still lasts.
    pub fn look(&self, connection: &Connection) {
        if self.looks.replace(true) {
            return;
        }
        let (known, looks) = (self.known.clone(), self.looks.clone());
        let (transport, coordinators) = (&connection.transport, &connection.coordinators);
        let (transport, coordinators) = (transport.clone(), coordinators.clone());
        let database = connection.database.clone();
        let look = async move {
            let processes = processes(&transport, &coordinators);
            if let Some(Some(found)) = plinth_runtime::timeout(LOOK_LIMIT, processes).await {
                update(&known, |known| (known.addresses, known.zones) = found);
            }
            let names = plinth_runtime::timeout(LOOK_LIMIT, names(&database)).await;
            if let Some(Ok((excluded, tenants))) = names {
                update(&known, |known| {
                    (known.excluded, known.tenants) = (excluded, tenants);
                });
            }
            looks.set(false);
        };
        plinth_runtime::spawn("names for a shell", look).detach();
    }
}

fn update(known: &Mutex<Known>, change: impl FnOnce(&mut Known)) {
    change(&mut known.lock().unwrap_or_else(|error| error.into_inner()));
}

/// Addresses and zones.
async fn processes(
    transport: &Transport,
    coordinators: &Coordinators,
) -> Option<(Vec<String>, Vec<String>)> {
    let asked = election::ask_controller(transport, coordinators, GetWorkers {});
    let workers = asked.await?.workers;
    let addresses: BTreeSet<_> = workers.iter().map(|w| w.worker.address).collect();
    let zones: BTreeSet<_> = workers.iter().map(|w| &w.locality.zone).collect();
    let zones = zones.into_iter().map(|zone| written(zone.as_bytes()));
    let addresses = addresses.iter().map(ToString::to_string);
    Some((addresses.collect(), zones.collect()))
}

/// What is excluded, and the first tenants. One attempt.
async fn names(database: &Database) -> Result<(Vec<String>, Vec<String>)> {
    let transaction = database.create_transaction();
    transaction.set_option(TransactionOption::ReadSystemKeys)?;
    transaction.set_option(TransactionOption::ReadLockAware)?;
    let excluded = exclusion::read(&transaction).await?;
    let excluded = excluded.iter().map(ToString::to_string).collect();
    Ok((excluded, tenants(&transaction).await?))
}

async fn tenants(transaction: &Transaction) -> Result<Vec<String>> {
    let end = prefix_end(TENANT_MAP).expect("it is no end of all keys");
    let all = KeyRange::new(TENANT_MAP, end);
    let rows = transaction.get_rows(all, RangeOptions::limit(TENANTS_MAX), true);
    let rows = rows.await?.into_iter();
    Ok(rows
        .map(|(key, _)| written(&key[TENANT_MAP.len()..]))
        .collect())
}
