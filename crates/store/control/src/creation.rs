//! Creation of a new database: the requests for one, whether it may be created, and its first state.

use bytes::Bytes;
use plinth_coordination::ClusterFile;
use plinth_core::codec::Codec;
use plinth_core::system_keys::{self as keys, ShardRecord, StorageServerRecord};
use plinth_core::{DatabaseConfig, Uid};
use plinth_protocol::control::{CreateDatabase, CreateDatabaseReply, RegisterWorker};
use plinth_protocol::database::DatabaseId;
use plinth_rpc::{Place, Responder};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, Instant, probe};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// A database is refused if coordinators have not answered for this long.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The request for a database that is not fulfilled yet. A later request replaces an earlier one, which perhaps could
/// never be fulfilled.
pub struct Creation {
    pub wanted: Watch<Option<DatabaseConfig>>,
    /// When somebody asked for it first.
    since: Cell<Instant>,
    /// It is wanted even if coordinators do not answer.
    is_forced: Cell<bool>,
    asking: RefCell<Vec<Responder<CreateDatabase>>>,
}

impl Default for Creation {
    fn default() -> Self {
        Creation {
            wanted: Watch::new(None),
            since: Cell::new(plinth_runtime::now()),
            is_forced: Cell::new(false),
            asking: RefCell::default(),
        }
    }
}

impl Creation {
    pub fn want(&self, request: CreateDatabase, responder: Responder<CreateDatabase>) {
        let CreateDatabase { config, force } = request;
        if self.wanted.with(|wanted| *wanted != Some(config)) {
            if self.wanted.with(Option::is_some) {
                probe!("creation_wanted_otherwise");
            }
            self.answer("another `configure new' has taken its place");
            self.since.set(plinth_runtime::now());
            self.is_forced.set(false);
            self.wanted.set(Some(config));
        }
        self.is_forced.set(force || self.is_forced.get());
        self.asking.borrow_mut().push(responder);
    }

    /// Number of requests that wait for an answer.
    pub fn waiting(&self) -> usize {
        self.asking.borrow().len()
    }

    /// Whether the database that is wanted may be made while these coordinators do not answer. Refuses it if they have
    /// not answered for a while.
    pub fn may_begin(&self, silent: &[Place]) -> bool {
        let Some(line) = unanswered(silent).filter(|_| !self.is_forced.get()) else {
            return true;
        };
        // Those of a cluster that is just starting answer soon.
        if self.since.get().elapsed() >= SILENCE_MAX {
            probe!("creation_refused_for_silent_coordinators");
            self.refuse(&line);
        }
        false
    }

    /// Refuses to create a database.
    pub fn refuse(&self, refusal: &str) {
        self.wanted.set(None);
        self.answer(refusal);
    }

    /// Answers all waiting requests. An empty refusal means success.
    pub fn answer(&self, refusal: &str) {
        for responder in self.asking.borrow_mut().drain(..) {
            responder.ok(CreateDatabaseReply {
                refusal: refusal.to_string(),
            });
        }
    }

    /// Takes all waiting requests.
    pub fn take_asking(&self) -> Vec<Responder<CreateDatabase>> {
        std::mem::take(&mut *self.asking.borrow_mut())
    }
}

/// Why these coordinators must not create a database although they have none: they had one and have lost it. One
/// line; `None` if a database may be created.
pub fn refusal(cluster: &ClusterFile, workers: &BTreeMap<Uid, RegisterWorker>) -> Option<String> {
    if cluster.number() > 1 {
        return Some(format!(
            "the id of {} says that these coordinators are number {} of the cluster: there was a database before, \
            and a new one would take its place. Bring the coordinators' data directories back; \
            a new cluster needs an id that does not end in a number",
            cluster.register(),
            cluster.number()
        ));
    }
    let holds = |worker: &&RegisterWorker| {
        let serves = !(worker.logs.is_empty() && worker.storage.is_empty());
        worker.epoch > 0 && (serves || worker.holds_data)
    };
    let holder = workers.values().find(holds)?;
    Some(format!(
        "{} holds data of a database of this cluster (epoch {}), which the coordinators have lost, \
        and which a new one would destroy. Bring the coordinators' data directories back; to give that data up, \
        start the servers that hold some with an empty --data-dir",
        holder.worker.address, holder.epoch
    ))
}

/// The line about coordinators that do not answer while there is no database. `None` if there are none.
pub fn unanswered(silent: &[Place]) -> Option<String> {
    let silent: Vec<String> = silent.iter().map(Place::to_string).collect();
    (!silent.is_empty()).then(|| {
        format!(
            "{} cannot be reached, and may hold data of this cluster, to which a new database does not lead: start \
             what is missing, or say `configure new … force' if there never was any",
            silent.join(", ")
        )
    })
}

/// True if the worker's directory has served another database than this one.
pub fn served_another(worker: &RegisterWorker, database: &DatabaseId) -> bool {
    worker.epoch > 0 && !database.may_own(worker.database)
}

/// True if the worker may be ahead of a database whose id is `certain`: if it is of that one. All who have served it
/// since then have its id.
pub fn may_be_ahead(worker: &RegisterWorker, database: &DatabaseId, certain: bool) -> bool {
    match certain && worker.epoch > 0 {
        true => worker.database == database.id,
        false => !served_another(worker, database),
    }
}

/// True if the worker has data of another database than this one. It must neither serve nor be emptied.
pub fn holds_another(worker: &RegisterWorker, database: &DatabaseId) -> bool {
    worker.holds_data && served_another(worker, database)
}

/// Rows of the system keyspace: the configuration, the storage servers, and which team holds which shard.
/// `teams` are indexes into `servers`.
pub fn initial_state(
    config: &DatabaseConfig,
    servers: &[(Uid, StorageServerRecord)],
    teams: &[Vec<usize>],
    user_shards: usize,
) -> Vec<(Bytes, Bytes)> {
    assert!(!teams.is_empty(), "a database needs a team");
    let copies = config.replication as usize;
    assert!(
        teams.iter().all(|team| team.len() == copies),
        "{copies} copies on {teams:?}"
    );
    let next_tag = servers.iter().map(|(_, record)| record.tag.0 + 1).max();
    let mut rows = vec![
        (Bytes::from_static(keys::CONFIG), config.to_bytes()),
        (
            Bytes::from_static(keys::NEXT_TAG),
            next_tag.unwrap_or(0).to_bytes(),
        ),
    ];
    for (id, record) in servers {
        rows.push((keys::server_list_key(*id), record.to_bytes()));
    }
    for (i, begin) in boundaries(teams.len(), user_shards).into_iter().enumerate() {
        let team = teams[i % teams.len()]
            .iter()
            .map(|server| servers[*server].0)
            .collect();
        rows.push((
            keys::key_servers_key(&begin),
            ShardRecord {
                team,
                destination: vec![],
            }
            .to_bytes(),
        ));
    }
    rows.sort();
    assert!(
        rows.is_sorted_by(|a, b| a.0 < b.0),
        "a row is written twice"
    );
    rows
}

/// Limit of shards. Each begins at another key of three bytes.
const USER_SHARDS_MAX: usize = 1_000_000;

/// Begins of the shards, ascending, the first at the empty key. The system keyspace is a shard of its own if there is
/// more than one team. The later distribution of the data is unknown, so the distributor splits shards as data
/// arrives.
fn boundaries(teams: usize, user_shards: usize) -> Vec<Vec<u8>> {
    if teams == 1 {
        return vec![vec![]];
    }
    let user_shards = user_shards.clamp(1, USER_SHARDS_MAX);
    let width = if user_shards <= 255 { 1 } else { 3 };
    let keys = 255 << (8 * (width - 1));
    let begin = |i: usize| (i * keys / user_shards).to_be_bytes()[8 - width..].to_vec();
    let mut begins = vec![vec![]];
    begins.extend((1..user_shards).map(begin));
    begins.push(vec![0xff]);
    begins
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use plinth_core::Tag;
    use plinth_protocol::control::ProcessClass;

    #[test]
    fn there_is_no_new_database_where_one_has_left_data() {
        let first = ClusterFile::parse("a:b@10.0.0.1:1").expect("valid");
        let new = testing::worker(1, ProcessClass::Unset, "z");
        let litter = RegisterWorker {
            storage: vec![(Uid(5), Tag(0))],
            ..new.clone()
        };
        let emptied = RegisterWorker {
            epoch: 7,
            ..new.clone()
        };
        let used = RegisterWorker {
            epoch: 7,
            ..litter.clone()
        };
        let refusal = |worker: &RegisterWorker, cluster: &ClusterFile| {
            refusal(cluster, &BTreeMap::from([(Uid(1), worker.clone())]))
        };
        let waits_for_disk = RegisterWorker {
            holds_data: true,
            ..emptied.clone()
        };
        assert!(refusal(&waits_for_disk, &first).is_some());
        for harmless in [&new, &litter, &emptied] {
            assert_eq!(refusal(harmless, &first), None);
        }
        let line = refusal(&used, &first).expect("refused");
        assert!(line.contains("10.0.0.1:1 holds data"), "{line}");
        let later = first.succeeded_by(first.coordinators.clone());
        assert!(refusal(&new, &later).is_some());
    }

    #[test]
    fn what_a_worker_has_of_another_database_is_told_from_what_it_has_of_this_one() {
        let database = |is_former| DatabaseId {
            id: Uid(7),
            is_former,
        };
        let worker = |id, epoch, holds_data| RegisterWorker {
            database: Uid(id),
            epoch,
            holds_data,
            ..testing::worker(1, ProcessClass::Unset, "z")
        };
        for (worker, is_former, holds) in [
            (worker(7, 5, true), false, false),
            (worker(8, 5, true), false, true),
            (worker(8, 5, true), true, true),
            // It has only been a coordinator, or had roles without files.
            (worker(8, 5, false), false, false),
            // Files without an id: of this database if that is older than ids.
            (worker(0, 5, true), false, true),
            (worker(0, 5, true), true, false),
            // It was asked to make a role, and no epoch began with it.
            (worker(0, 0, true), false, false),
        ] {
            assert_eq!(
                holds_another(&worker, &database(is_former)),
                holds,
                "{worker:?}"
            );
        }
    }

    #[test]
    fn coordinators_that_do_not_answer_are_named_when_there_is_no_database() {
        assert_eq!(unanswered(&[]), None);
        let silent = [1, 2].map(|i| Place::At(([10, 0, 0, i], 4500).into()));
        let line = unanswered(&silent).expect("a line");
        assert!(
            line.starts_with("10.0.0.1:4500, 10.0.0.2:4500 cannot be reached"),
            "{line}"
        );
    }

    #[test]
    fn a_database_begins_with_one_shard_and_one_for_the_system_unless_more_are_asked_for() {
        assert_eq!(boundaries(3, 1), [vec![], vec![0xff]]);
        assert_eq!(boundaries(1, 4).len(), 1);
        let begins = boundaries(3, 12);
        assert_eq!((begins.len(), &begins[0][..]), (13, &[][..]));
        assert_eq!(begins.last(), Some(&vec![0xff]));
        assert!(
            begins.windows(2).all(|pair| pair[0] < pair[1]),
            "{begins:?}"
        );
        let many = boundaries(300, 100_000);
        assert_eq!(many.len(), 100_001);
        assert!(many.is_sorted_by(|before, after| before < after));
        assert!(many.iter().all(|begin| begin.len() <= 3));
    }
}
