//! Changes that operators make to a database: its configuration, exclusions, the lock. Each is a transaction on the
//! system keyspace; the controller and the data distributor then act on it.
//!
//! A change that the cluster could not work with is refused, with the reason in one line, and nothing changes.

use crate::configured::{self, Configured};
use crate::exclusion::{self, Target};
use crate::placement::{self, RoleKind};
use crate::{movement, singletons};
use plinth_access::{Clients, clients_row};
use plinth_client::{Database, Transaction};
use plinth_core::codec::Codec;
use plinth_core::config::FaultDomain;
use plinth_core::system_keys::{CONFIG, DATABASE_LOCK, EXCLUDED, EXCLUDED_END};
use plinth_core::{DatabaseConfig, EngineKind, Error, Result, Uid};
use plinth_protocol::control::{ProcessClass, RegisterWorker};
use plinth_protocol::log::LogSystem;
use plinth_runtime::Boxed;
use plinth_runtime::knobs::{self, Knobs};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Why a change was refused: one line.
pub type Refusal = String;
pub(crate) type Outcome<T> = std::result::Result<T, Refusal>;

/// Limit of counts of roles. Higher counts are taken for typing errors.
const ROLES_MAX: u32 = 100;

/// Changes to the configuration. `None` keeps a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConfigChange {
    pub mode: Option<(u32, FaultDomain)>,
    pub engine: Option<EngineKind>,
    pub commit_proxies: Option<u32>,
    pub grv_proxies: Option<u32>,
    pub resolvers: Option<u32>,
    pub logs: Option<u32>,
    /// What clients may do without a token.
    pub clients: Option<Clients>,
}

impl ConfigChange {
    pub fn apply(&self, config: DatabaseConfig) -> DatabaseConfig {
        let now = (config.replication, config.domain);
        let (replication, domain) = self.mode.unwrap_or(now);
        DatabaseConfig {
            replication,
            domain,
            engine: self.engine.unwrap_or(config.engine),
            commit_proxies: self.commit_proxies.unwrap_or(config.commit_proxies),
            grv_proxies: self.grv_proxies.unwrap_or(config.grv_proxies),
            resolvers: self.resolvers.unwrap_or(config.resolvers),
            // Never fewer than there are copies; and as many, unless somebody has asked for more.
            logs: match self.logs {
                Some(logs) => logs.max(replication),
                None if config.logs == config.replication => replication,
                None => config.logs.max(replication),
            },
        }
    }

    fn check(&self) -> Outcome<()> {
        let counts = [
            self.commit_proxies,
            self.grv_proxies,
            self.resolvers,
            self.logs,
        ];
        if counts
            .iter()
            .flatten()
            .any(|count| !(1..=ROLES_MAX).contains(count))
        {
            return Err(format!("a number of roles lies between 1 and {ROLES_MAX}"));
        }
        Ok(())
    }
}

/// Runs `body`, which returns a refusal for the operator to read. An error of the transaction becomes a refusal too.
pub(crate) fn decide<'a, T: 'a>(
    database: &'a Database,
    mut body: impl AsyncFnMut(&Transaction) -> Result<Outcome<T>> + 'a,
) -> Boxed<'a, Outcome<T>> {
    Box::pin(async move {
        let outcome = movement::run(database, async |tr| body(tr).await).await;
        outcome.unwrap_or_else(|error| {
            let hint = match error {
                Error::permission_denied => {
                    "; it needs an operator's key beside the cluster file, or an operator's certificate"
                }
                _ => "",
            };
            Err(format!("the change could not be made: {error}{hint}"))
        })
    })
}

/// Words of refusals that more processes would change.
const FEWER_DOMAINS: &str = "and there would be processes for them in";
const NO_PROCESS: &str = "no process would be left for proxies and resolvers";

/// True if more processes would change this refusal: a new controller may not know all yet.
pub fn is_for_lack_of_processes(refusal: &str) -> bool {
    [FEWER_DOMAINS, NO_PROCESS]
        .iter()
        .any(|words| refusal.contains(words))
}

/// Checks whether the cluster could work with this configuration: there must be fault domains for every replica of
/// data and of the log, and a process for all other roles.
fn check(wanted: &Configured, workers: &[RegisterWorker]) -> Outcome<()> {
    let config = &wanted.config;
    let mut workers = workers.to_vec();
    workers.retain(|worker| !exclusion::is_excluded(worker, &wanted.excluded));
    // The controller may not have applied the latest configuration yet.
    configured::give_classes(&mut workers, &wanted.classes);
    let able: Vec<&RegisterWorker> = workers.iter().collect();
    let (replication, mode) = (config.replication as usize, config.mode());
    let domains = |list: &[&RegisterWorker]| {
        let domains = list.iter().map(|w| w.locality.domain(config.domain));
        domains.collect::<BTreeSet<_>>().len()
    };
    let storage = domains(&placement::suited_for_storage(able.clone(), config));
    let logs = domains(&placement::able_to_log(able));
    for (domains, what) in [(storage, "storage"), (logs, "log")] {
        if domains < replication {
            return Err(format!(
                "{mode} wants {what} servers in {}, {FEWER_DOMAINS} {domains}; nothing has changed",
                counted(replication, config.domain)
            ));
        }
    }
    let stateless = |w: &RegisterWorker| placement::fitness(w.class(), RoleKind::Stateless);
    if !workers.iter().any(|worker| stateless(worker).is_some()) {
        return Err(format!("{NO_PROCESS}; nothing has changed"));
    }
    Ok(())
}

/// Why excluded processes cannot be emptied: too few others live for all replicas; `None` if there are enough.
pub fn lacks_processes<'a>(
    database: &'a Database,
    workers: &'a [RegisterWorker],
) -> Boxed<'a, Outcome<Option<String>>> {
    Box::pin(async move {
        let refusal = check(&configured(database).await?, workers).err();
        Ok(refusal.map(|refusal| refusal.replace("; nothing has changed", "")))
    })
}

fn counted(domains: usize, kind: FaultDomain) -> String {
    let kinds = kind.plural();
    let noun = if domains == 1 {
        kinds.trim_end_matches('s')
    } else {
        kinds
    };
    format!("{domains} {noun}")
}

/// Says that fewer log servers can be had now than these; `None` if all can. The others come when there are places for
/// them.
pub fn fewer_logs(config: &DatabaseConfig, workers: &[RegisterWorker]) -> Option<String> {
    let places = placement::log_places(workers.iter().collect(), config);
    let (logs, kinds) = (config.logs, counted(places, config.domain));
    (places < logs as usize).then(|| {
        format!(
            "there are {places} log servers instead of {logs}: each is alone in its fault domain, and the processes \
             that may be one are in {kinds}; more come by themselves when there are more"
        )
    })
}

/// Says what fewer copies lose; `None` if there are as many as `before`.
pub fn fewer_copies(before: &DatabaseConfig, after: &DatabaseConfig) -> Option<String> {
    let (had, has) = (before.replication, after.replication);
    let left = match has {
        _ if has >= had => return None,
        1 => "one process that is down stops the database, and a disk that is lost loses data",
        _ => "one may fail at a time",
    };
    let copies = if has == 1 { "copy" } else { "copies" };
    Some(format!(
        "there will be {has} {copies} of all data instead of {had}: {left}"
    ))
}

/// Says what a new database with one copy lacks where there are machines for more; `None` if it lacks nothing.
pub fn single_of_several(config: &DatabaseConfig, workers: &[RegisterWorker]) -> Option<String> {
    let is_single = config.replication == 1 && are_on_several_machines(workers);
    is_single.then(|| {
        "there is one copy of all data, and there are several machines: one that is down stops the database, and a \
         disk that is lost loses data; `configure double' keeps two"
            .into()
    })
}

/// Says that the database stands still while one machine is down, where each has a copy of all data; `None` if it goes
/// on, and if there is one copy, or one machine.
pub fn stands_still_without_one(
    config: &DatabaseConfig,
    workers: &[RegisterWorker],
) -> Option<String> {
    let suited = placement::suited_for_storage(workers.iter().collect(), config);
    let domains = suited.iter().map(|w| w.locality.domain(config.domain));
    let domains = domains.collect::<BTreeSet<_>>().len();
    let is_each_needed = config.replication > 1 && domains == config.replication as usize;
    (is_each_needed && are_on_several_machines(workers)).then(|| {
        let one = counted(1, config.domain);
        let other = match (config.replication, config.domain) {
            (3, FaultDomain::Zone) => ", or `configure double',",
            _ => "",
        };
        format!(
            "there are {}, each with a copy of all data: while one is down, the database stands still, and loses \
             nothing; {one} more{other} lets it go on",
            counted(domains, config.domain)
        )
    })
}

/// The same of a database that goes on without one `before` the change, and does not `after` it.
pub fn stops_surviving(
    before: &DatabaseConfig,
    after: &DatabaseConfig,
    workers: &[RegisterWorker],
) -> Option<String> {
    let survives = before.replication > 1 && stands_still_without_one(before, workers).is_none();
    stands_still_without_one(after, workers).filter(|_| survives)
}

/// True if these processes are on several machines.
pub fn are_on_several_machines(workers: &[RegisterWorker]) -> bool {
    let machines = workers.iter().map(|worker| worker.worker.address.ip());
    machines.collect::<BTreeSet<_>>().len() > 1
}

pub fn configured(database: &Database) -> Boxed<'_, Outcome<Configured>> {
    decide(database, async |tr| Ok(Ok(Configured::read(tr).await?)))
}

/// Changes the configuration and returns the new one.
pub fn configure<'a>(
    database: &'a Database,
    workers: &'a [RegisterWorker],
    change: ConfigChange,
) -> Boxed<'a, Outcome<DatabaseConfig>> {
    Box::pin(async move {
        change.check()?;
        decide(database, async |tr| {
            let mut wanted = Configured::read(tr).await?;
            wanted.config = change.apply(wanted.config);
            if let Err(refusal) = check(&wanted, workers) {
                return Ok(Err(refusal));
            }
            tr.set(CONFIG, wanted.config.to_bytes());
            if let Some(clients) = change.clients {
                tr.set(clients_row(), clients.name());
            }
            Ok(Ok(wanted.config))
        })
        .await
    })
}

/// Excludes the targets: they get neither data nor roles, and what they have moves to other processes. Each target
/// must match a process that lives or has data, unless `force` is set: a typing error would look like success.
pub fn exclude<'a>(
    database: &'a Database,
    workers: &'a [RegisterWorker],
    targets: &'a [Target],
    force: bool,
) -> Boxed<'a, Outcome<()>> {
    decide(database, async move |tr| {
        let list = singletons::read_servers(tr).await?;
        let is_somebody = |target: &&Target| {
            let mut servers = list.servers.iter();
            workers.iter().any(|worker| target.matches(worker))
                || servers.any(|(_, record)| target.names(&record.address))
        };
        if !force && let Some(nobody) = targets.iter().find(|target| !is_somebody(target)) {
            return Ok(Err(format!(
                "no process of this cluster is {nobody}; nothing has changed \
            (`exclude force …' excludes it before it comes)"
            )));
        }
        let mut wanted = Configured::read(tr).await?;
        wanted.excluded.extend_from_slice(targets);
        if let Err(refusal) = check(&wanted, workers) {
            return Ok(Err(refusal));
        }
        targets
            .iter()
            .for_each(|target| tr.set(exclusion::key(target), ""));
        Ok(Ok(()))
    })
}

/// Includes the targets again, or all targets if the list is empty.
pub fn include<'a>(database: &'a Database, targets: &'a [Target]) -> Boxed<'a, Outcome<()>> {
    decide(database, async move |tr| {
        if targets.is_empty() {
            tr.clear_range(EXCLUDED, EXCLUDED_END);
        }
        targets
            .iter()
            .for_each(|target| tr.clear(exclusion::key(target)));
        Ok(Ok(()))
    })
}

/// Sets the class of a process. `None` restores the class that the process declares.
pub fn set_class<'a>(
    database: &'a Database,
    workers: &'a [RegisterWorker],
    address: SocketAddr,
    class: Option<ProcessClass>,
) -> Boxed<'a, Outcome<()>> {
    Box::pin(async move {
        let mut at = workers.iter().filter(|w| w.worker.address == address);
        let worker = at.next().ok_or(format!(
            "no process of this cluster is at {address}; nothing has changed"
        ))?;
        let process = worker.locality.process;
        let key = configured::class_key(process);
        decide(database, async |tr| {
            let mut wanted = Configured::read(tr).await?;
            match class {
                Some(class) => drop(wanted.classes.insert(process, class)),
                None => drop(wanted.classes.remove(&process)),
            }
            if let Err(refusal) = check(&wanted, workers) {
                return Ok(Err(refusal));
            }
            match class {
                Some(class) => tr.set(&key, class.name()),
                None => tr.clear(&key),
            }
            Ok(Ok(()))
        })
        .await
    })
}

/// Sets the knob in every process that was not given a value itself. `None` restores its default.
pub fn set_knob<'a>(
    database: &'a Database,
    name: &'a str,
    value: Option<&'a str>,
) -> Boxed<'a, Outcome<()>> {
    Box::pin(async move {
        let default = Knobs::default();
        let default = default.list().into_iter().find(|(known, _)| *known == name);
        let (_, default) = default.ok_or_else(|| knobs::unknown(name, "`getknob' lists"))?;
        configured::check_knob(name, value.unwrap_or(&default))?;
        decide(database, async |tr| {
            match value {
                Some(value) => tr.set(configured::knob_key(name), value),
                None => tr.clear(configured::knob_key(name)),
            }
            Ok(Ok(()))
        })
        .await
    })
}

/// Excluded processes that still have data, or logs that are still needed.
pub fn still_needed<'a>(
    database: &'a Database,
    workers: &'a [RegisterWorker],
    logs: &'a LogSystem,
) -> Boxed<'a, Outcome<BTreeSet<SocketAddr>>> {
    decide(database, async move |tr| {
        let excluded = exclusion::read(tr).await?;
        let list = singletons::read_servers(tr).await?;
        let addresses: BTreeMap<Uid, SocketAddr> = list
            .servers
            .iter()
            .map(|(id, record)| (*id, record.address))
            .collect();
        let storage = addresses.values();
        let logs = logs.generations.iter().flat_map(|g| &g.logs);
        let in_use: BTreeSet<SocketAddr> = storage
            .copied()
            .chain(logs.map(|log| log.address))
            .collect();
        let needed = in_use.into_iter().filter(|address| {
            let named = excluded.iter().any(|target| target.names(address));
            let worker = workers
                .iter()
                .find(|worker| worker.worker.address == *address);
            named || worker.is_some_and(|worker| exclusion::is_excluded(worker, &excluded))
        });
        Ok(Ok(needed.collect()))
    })
}

/// The processes of storage servers that are not among the workers. Those of a new controller register one by one.
pub fn unknown_servers<'a>(
    database: &'a Database,
    workers: &'a [RegisterWorker],
) -> Boxed<'a, Outcome<Vec<SocketAddr>>> {
    decide(database, async move |tr| {
        let list = singletons::read_servers(tr).await?;
        let is_known = |at: &SocketAddr| workers.iter().any(|w| w.worker.address == *at);
        let servers = list.servers.iter().map(|(_, record)| record.address);
        Ok(Ok(servers.filter(|at| !is_known(at)).collect()))
    })
}

/// Locks the database: only lock-aware transactions may read and write.
pub fn lock(database: &Database, id: Uid) -> Boxed<'_, Outcome<()>> {
    decide(database, async move |tr| {
        match tr.get(DATABASE_LOCK, false).await? {
            Some(holder) if Uid::from_bytes(&holder) != Some(id) => Ok(Err(format!(
                "the database is locked already, with {}",
                Uid::from_bytes(&holder).map_or("an unknown id".into(), |id| id.to_string())
            ))),
            _ => {
                tr.set(DATABASE_LOCK, id.to_bytes());
                Ok(Ok(()))
            }
        }
    })
}

/// The id of the lock, if the database is locked.
pub fn locked_with(database: &Database) -> Boxed<'_, Outcome<Option<Uid>>> {
    decide(database, async move |tr| {
        let holder = tr.get(DATABASE_LOCK, false).await?;
        Ok(Ok(holder.and_then(|holder| Uid::from_bytes(&holder))))
    })
}

/// Removes the lock. The lock must have this id. False if there was none.
pub fn unlock(database: &Database, id: Uid) -> Boxed<'_, Outcome<bool>> {
    // In any attempt: one may have committed without an answer.
    let mut was_locked = false;
    decide(database, async move |tr| {
        match tr.get(DATABASE_LOCK, false).await? {
            Some(holder) if Uid::from_bytes(&holder) != Some(id) => Ok(Err(
                "the database is locked with another id; it stays locked".into(),
            )),
            holder => {
                was_locked |= holder.is_some();
                tr.clear(DATABASE_LOCK);
                Ok(Ok(was_locked))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_logs_as_copies_unless_more_were_asked_for() {
        let config = |replication, logs| DatabaseConfig {
            replication,
            logs,
            ..DatabaseConfig::default()
        };
        let copies = |copies| ConfigChange {
            mode: Some((copies, FaultDomain::Zone)),
            ..ConfigChange::default()
        };
        for (before, to, logs) in [
            (config(2, 2), 3, 3),
            (config(3, 3), 2, 2),
            (config(2, 4), 3, 4),
            (config(3, 4), 2, 4),
        ] {
            assert_eq!(copies(to).apply(before).logs, logs, "{before:?}");
        }
    }

    #[test]
    fn fewer_copies_are_told_with_what_they_lose() {
        let with = |replication| DatabaseConfig {
            replication,
            ..DatabaseConfig::default()
        };
        assert_eq!(fewer_copies(&with(2), &with(2)), None);
        assert_eq!(fewer_copies(&with(1), &with(3)), None);
        let one = fewer_copies(&with(3), &with(1)).expect("they are fewer");
        assert!(one.starts_with("there will be 1 copy of all data instead of 3: one process that"));
        let two = fewer_copies(&with(3), &with(2)).expect("they are fewer");
        assert!(two.ends_with("2 copies of all data instead of 3: one may fail at a time"));
    }

    #[test]
    fn as_many_copies_as_zones_are_told_to_stand_still_without_one() {
        let worker = |last: u8| {
            let zone = ["a", "b", "c", "d"][usize::from(last)];
            let mut worker = crate::testing::worker(4500, ProcessClass::Unset, zone);
            worker.worker.address = ([10, 0, 0, last], 4500).into();
            worker
        };
        let said = |replication, machines| {
            let config = DatabaseConfig {
                replication,
                ..DatabaseConfig::default()
            };
            let workers: Vec<_> = (0..machines).map(worker).collect();
            stands_still_without_one(&config, &workers)
        };
        let line = said(3, 3).expect("each is needed");
        assert!(
            line.starts_with("there are 3 zones, each with a copy of all data: while one is down")
        );
        assert!(
            line.ends_with("1 zone more, or `configure double', lets it go on"),
            "{line}"
        );
        assert!(said(2, 2).is_some_and(|line| line.ends_with("1 zone more lets it go on")));
        for (copies, machines) in [(3, 4), (2, 3), (1, 1), (1, 2)] {
            assert_eq!(said(copies, machines), None);
        }
        let is_refused = |before, after, machines| {
            let with = |replication| DatabaseConfig {
                replication,
                ..DatabaseConfig::default()
            };
            let workers: Vec<_> = (0..machines).map(worker).collect();
            stops_surviving(&with(before), &with(after), &workers).is_some()
        };
        assert!(is_refused(2, 3, 3));
        for (before, after, machines) in [(2, 3, 4), (1, 2, 2), (3, 3, 3), (3, 2, 3)] {
            assert!(!is_refused(before, after, machines));
        }
    }

    #[test]
    fn processes_at_one_address_are_on_one_machine() {
        let at = |last: u8, port: u16| {
            let mut worker = crate::testing::worker(port, ProcessClass::Unset, "z");
            worker.worker.address = ([10, 0, 0, last], port).into();
            worker
        };
        assert!(!are_on_several_machines(&[at(1, 4500), at(1, 4501)]));
        assert!(are_on_several_machines(&[at(1, 4500), at(2, 4500)]));
    }
}
