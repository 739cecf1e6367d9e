//! Recovery (FDB §2.4.4): from the end of one epoch to the first commit of the next.
//!
//! ```text
//! read coordinated state ─► seal old logs ─► read system keyspace ─► recruit the new generation
//!   (fences other                (PEV, RV)                             (logs copy [PEV+1, RV])
//!    recoveries)
//! ─► recovery transaction ─► write coordinated state ─► accept commits
//! ```
//!
//! It promises: everything acknowledged in an old epoch is in the new one; nothing of a version above RV ever comes
//! back. Every decision on the way is a pure function below; the recovery itself only waits. If anything fails before
//! the coordinated state is written, the old state stays valid and the recovery starts again. If another recovery has
//! overtaken this one, that write fails and this controller ends.

mod addresses;
mod ahead;
mod cut_off;
mod new_logs;
mod old_epoch;
mod telling;
mod witnesses;
mod written;

use crate::configured::{self, Configured};
use crate::context::Context;
use crate::knobs::FIRST_SHARDS;
use crate::placement::{self, DiskStanding, Placement, RoleKind, Standing};
use crate::recruit::{limited, new_id, recruit};
use crate::{coordinators, creation, exclusion};
use addresses::update_addresses;
use old_epoch::{Predecessor, end_epoch};
use plinth_coordination::{CoordinatedState, Family};
use plinth_core::codec::Codec;
use plinth_core::system_keys::{self, ServerList, StorageServerRecord};
use plinth_core::version::MAX_VERSIONS_IN_FLIGHT;
use plinth_core::{DatabaseConfig, Epoch, Error, Result, Tag, Uid, Version};
use plinth_protocol::control::{ClientInfo, DatabaseState, RegisterWorker};
use plinth_protocol::database::{DatabaseId, FORMER_STATE_FORMAT};
use plinth_protocol::log::{LogGeneration, LogSystem};
use plinth_protocol::role::Role;
use plinth_protocol::storage::RecruitStorage;
use plinth_protocol::transaction::{
    CommitRecovery, LoadSystemState, RecruitCommitProxy, RecruitGrvProxy, RecruitResolver,
    RecruitSequencer,
};
use plinth_rpc::Interface;
use plinth_runtime::{Duration, Either, buggify, probe, trace, trace_warn};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use telling::telling;
use written::contradiction;

/// The system keyspace is sent to a commit proxy in parts of this size, each with at most one row beyond it.
const PART_BYTES: usize = 1 << 20;
pub use plinth_protocol::database::STATE_FORMAT;
/// Pause before another look if the recovery cannot go on, or if there is no database.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Pause before coordinators are asked again that have not answered while a database is to be created.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// After the first sufficient set of workers, wait this long for the rest of a cluster that is just starting.
const REGISTRATION_GRACE: Duration = Duration::from_millis(200);

/// A living epoch.
#[derive(Clone)]
pub struct Running {
    pub state: DatabaseState,
    pub servers: ServerList,
    /// Configuration for which the epoch was made.
    pub configured: Configured,
    pub client: ClientInfo,
    /// Every role whose end is the epoch's end.
    pub roles: Vec<NamedRole>,
    pub recovered_to: Version,
    /// Addresses of storage servers, and of log servers of older epochs.
    pub addresses: BTreeMap<Uid, SocketAddr>,
}

/// A role under the name that FoundationDB's status document has for it.
pub type NamedRole = (Role, Interface);

/// Runs one recovery to its end. [`Error::coordinated_state_conflict`] means that another controller recovers: this
/// controller must end. After any other error the caller tries again.
pub async fn recover(context: &Context, coordinated: &mut CoordinatedState) -> Result<Running> {
    let started = plinth_runtime::now();
    context.phase.begin("reading_coordinated_state");
    let unheard = coordinated.unheard();
    let stored = match telling(context, unheard, coordinated.read()).await {
        Err(error @ Error::invalid_cluster_id) => {
            let line = coordinated.divided().unwrap_or_else(|| error.to_string());
            trace_warn!("CoordinatorsAreDivided", "what" => line);
            stand_still(context, line).await;
            return Err(error);
        }
        read => read?,
    };
    let running = match stored {
        None => create(context, coordinated).await?,
        Some(bytes) => {
            let state = readable(context, bytes, coordinated.writer()).await?;
            context.knows_of(&state);
            let predecessor = end_epoch(context, state).await?;
            succeed(context, coordinated, predecessor).await?
        }
    };
    context.phase.set("accepting_commits");
    trace!("Recovered", "epoch" => running.state.epoch, "recovered_to" => running.recovered_to,
        "milliseconds" => started.elapsed().as_millis());
    Ok(running)
}

/// Decodes the coordinated state, if this version knows its format. A database that has no id yet gets one of
/// `writer`.
async fn readable(context: &Context, bytes: bytes::Bytes, writer: Uid) -> Result<DatabaseState> {
    if let Some(other) = Family::of_state(&bytes).filter(|family| *family != Family::Store) {
        let line = Family::Store.not_own(other);
        trace_warn!("StateOfAnotherSystem", "what" => line);
        stand_still(context, line).await;
        return Err(Error::file_corrupt);
    }
    let format = u32::take(&mut bytes.clone());
    let is_unknown = |format: &u32| ![FORMER_STATE_FORMAT, STATE_FORMAT].contains(format);
    if let Some(format) = format.filter(is_unknown) {
        let line = format!(
            "the coordinators' state of the database has format {format}, \
            and this version of Plinth knows {STATE_FORMAT}: run the version that wrote it"
        );
        trace_warn!("StateOfAnotherFormat", "what" => line);
        stand_still(context, line).await;
        return Err(Error::unsupported_format_version);
    }
    let state = written::decoded(bytes, writer).ok_or(Error::file_corrupt)?;
    if let Some(contradiction) = contradiction(&state) {
        let line = format!(
            "the coordinators' state of the database contradicts itself: {contradiction}. Bring back an older copy of \
            the coordinators' data directories; see Lost coordinators in docs/operating.md"
        );
        trace_warn!("StateContradictsItself", "what" => line);
        stand_still(context, line).await;
        return Err(Error::file_corrupt);
    }
    Ok(state)
}

/// Reports why the recovery cannot go on, and waits before it starts again, because the reason may have gone.
async fn stand_still(context: &Context, reason: String) {
    context.phase.set("standing_still");
    context.phase.wait_for(reason);
    plinth_runtime::sleep(LOOK_AGAIN).await;
}

// ---- the new epoch ----

async fn succeed(
    context: &Context,
    coordinated: &mut CoordinatedState,
    old: Predecessor,
) -> Result<Running> {
    if let Some(reason) = context.workers.with(|workers| {
        ahead::by_epoch(
            workers,
            old.state.epoch,
            (&old.state.database, old.state.is_confirmed),
        )
    }) {
        return refuse_to_forget(context, coordinated, old.state.epoch, reason).await;
    }
    let plan = Plan {
        epoch: old.state.epoch + 1,
        database: old.state.database,
        configured: Configured::from_rows(&old.rows, old.state.config),
        servers: ServerList::from_rows(&old.rows).ok_or(Error::file_corrupt)?,
        old: old.state.log_system,
        start: old.known_committed + 1,
        recovered_to: old.recovered_to,
        rows: old.rows,
        is_confirmed: old.state.is_confirmed,
        new_database: false,
    };
    start_epoch(context, coordinated, plan).await
}

/// Refuses to go on from this epoch, because that would undo acknowledged commits, unless another recovery has
/// happened since the state was read.
async fn refuse_to_forget(
    context: &Context,
    coordinated: &mut CoordinatedState,
    epoch: Epoch,
    reason: String,
) -> Result<Running> {
    let writer = coordinated.writer();
    let unheard = coordinated.unheard();
    let now = telling(context, unheard, coordinated.read()).await?;
    let now = now.and_then(|bytes| written::decoded(bytes, writer));
    if now.is_some_and(|state| state.epoch > epoch) {
        return Err(Error::cluster_recovery_failed);
    }
    probe!("recovery_would_forget");
    let line = format!(
        "{reason}: the coordinators (or the log servers) have lost what is newer, \
        and going on would undo what was acknowledged. Bring back their newest data directories; \
        see Lost coordinators in docs/operating.md"
    );
    trace_warn!("CoordinatorsHaveForgotten", "what" => line);
    stand_still(context, line).await;
    Err(Error::cluster_recovery_failed)
}

async fn create(context: &Context, coordinated: &mut CoordinatedState) -> Result<Running> {
    // Until they have been asked, nobody knows whether one is needed.
    context.phase.set("waiting_for_coordinators");
    let config = loop {
        let wanted = context.creation.wanted.wait_until(Option::is_some);
        plinth_runtime::timeout(LOOK_AGAIN, wanted).await;
        let lost = context
            .workers
            .with(|workers| creation::refusal(&context.coordinators.file(), workers));
        let silent = coordinators::silent(&context.transport, &context.coordinators.file()).await;
        // A database may just be moving to these coordinators, or a coordinator has come back that knows of one.
        if coordinated.read().await?.is_some() {
            return Err(Error::cluster_recovery_failed);
        }
        match (context.creation.wanted.get(), &lost) {
            (Some(config), None) if context.creation.may_begin(&silent) => break config,
            (Some(_), Some(refusal)) => context.creation.refuse(refusal),
            (Some(_), None) => plinth_runtime::sleep(ASK_AGAIN).await,
            (None, _) => {}
        }
        let unanswered = creation::unanswered(&silent).filter(|_| lost.is_none());
        let phase = match unanswered {
            Some(_) => "waiting_for_coordinators",
            None => "waiting_for_configure_new",
        };
        if context.phase.current() != phase {
            context.phase.set(phase);
        }
        context
            .phase
            .wait_for(lost.or(unanswered).unwrap_or_default());
    };
    let otherwise = context
        .creation
        .wanted
        .wait_until(|wanted| *wanted != Some(config));
    let making = make_database(context, coordinated, config);
    match plinth_runtime::race(otherwise, making).await {
        Either::Left(()) => Err(Error::operation_obsolete),
        Either::Right(made) => made,
    }
}

async fn make_database(
    context: &Context,
    coordinated: &mut CoordinatedState,
    config: DatabaseConfig,
) -> Result<Running> {
    context.phase.set("recruiting_storage");
    let (servers, teams) = recruit_storage(context, &config).await?;
    let rows = creation::initial_state(&config, &servers, &teams, FIRST_SHARDS.get());
    let plan = Plan {
        epoch: 1,
        // Drawn at random when this controller became a candidate, and of no other one.
        database: DatabaseId {
            id: coordinated.writer(),
            is_former: false,
        },
        configured: Configured::from_rows(&rows, config),
        servers: ServerList::from_rows(&rows).ok_or(Error::file_corrupt)?,
        old: LogSystem {
            generations: vec![],
        },
        start: 1,
        recovered_to: 0,
        rows,
        is_confirmed: false,
        new_database: true,
    };
    start_epoch(context, coordinated, plan).await
}

async fn recruit_storage(
    context: &Context,
    config: &DatabaseConfig,
) -> Result<(Vec<(Uid, StorageServerRecord)>, Vec<Vec<usize>>)> {
    let enough =
        |workers: &BTreeMap<Uid, RegisterWorker>| storage_placement(workers, config).is_some();
    let lacking =
        |workers: &[&RegisterWorker]| placement::lacking(workers, config, RoleKind::Storage);
    wait_for_workers(context, enough, lacking).await;
    plinth_runtime::sleep(REGISTRATION_GRACE).await;
    let placed = context
        .workers
        .with(|workers| storage_placement(workers, config));
    let (workers, teams) = placed.ok_or(Error::no_more_servers)?;
    let mut servers = Vec::new();
    let mut asked = Vec::new();
    for (i, worker) in workers.iter().enumerate() {
        let id = new_id();
        let tag = Tag(i as u32);
        let request = RecruitStorage {
            id,
            tag,
            engine: config.engine,
            after: 0,
            cluster: context.coordinators.key(),
        };
        asked.push(recruit(context, worker, request));
        servers.push((
            id,
            StorageServerRecord {
                address: worker.address,
                tag,
                engine: config.engine,
            },
        ));
    }
    plinth_runtime::join_all(asked)
        .await
        .into_iter()
        .collect::<Result<Vec<()>>>()?;
    Ok((servers, teams))
}

/// The workers that get a storage server, ordered so that tags of a team are neighbours, and the teams as indexes.
fn storage_placement(
    workers: &BTreeMap<Uid, RegisterWorker>,
    config: &DatabaseConfig,
) -> Option<(Vec<Interface>, Vec<Vec<usize>>)> {
    let replication = config.replication as usize;
    let able = placement::suited_for_storage(workers.values().collect(), config);
    let domain = |w: &&RegisterWorker| w.locality.domain(config.domain).clone();
    let domains: Vec<String> = able.iter().map(domain).collect();
    let teams = placement::storage_teams(&domains, replication)?;
    let mut order: Vec<usize> = Vec::new();
    for server in teams.iter().flatten() {
        if !order.contains(server) {
            order.push(*server);
        }
    }
    let place_of = |server: &usize| {
        order
            .iter()
            .position(|o| o == server)
            .expect("every member is in the order")
    };
    let teams = teams
        .iter()
        .map(|team| team.iter().map(place_of).collect())
        .collect();
    Some((order.iter().map(|i| able[*i].worker).collect(), teams))
}

/// All decisions about the new epoch, made before any role is recruited.
struct Plan {
    epoch: Epoch,
    database: DatabaseId,
    configured: Configured,
    servers: ServerList,
    old: LogSystem,
    /// PEV + 1.
    start: Version,
    /// RV.
    recovered_to: Version,
    rows: Vec<(bytes::Bytes, bytes::Bytes)>,
    /// The database has its id for certain.
    is_confirmed: bool,
    new_database: bool,
}

impl Plan {
    fn has(&self, key: &[u8]) -> bool {
        self.rows.iter().any(|(row, _)| row == key)
    }
}

/// The roles of the new epoch: worker and interface of each.
struct Roles {
    sequencer: (Interface, Interface),
    logs: Vec<(Interface, Interface)>,
    /// The fault domain of each log server that was chosen.
    log_domains: Vec<String>,
    commit_proxies: Vec<(Interface, Interface)>,
    grv_proxies: Vec<(Interface, Interface)>,
    resolvers: Vec<(Interface, Interface)>,
}

impl Roles {
    fn named(&self) -> Vec<NamedRole> {
        let groups = [
            (Role::Log, &self.logs),
            (Role::CommitProxy, &self.commit_proxies),
            (Role::GrvProxy, &self.grv_proxies),
            (Role::Resolver, &self.resolvers),
        ];
        let mut all = vec![(Role::Sequencer, self.sequencer.1)];
        for (name, group) in groups {
            all.extend(group.iter().map(|(_, role)| (name, *role)));
        }
        all
    }
}

async fn start_epoch(
    context: &Context,
    coordinated: &mut CoordinatedState,
    mut plan: Plan,
) -> Result<Running> {
    context.phase.set("recruiting_transaction_system");
    context.classes.replace(plan.configured.classes.clone());
    let classes = &plan.configured.classes;
    let given =
        |w: &mut BTreeMap<Uid, RegisterWorker>| configured::give_classes(w.values_mut(), classes);
    context.workers.update(given);
    let mut roles = place_roles(context, &plan.configured).await?;
    let mut addresses = context
        .workers
        .with(|workers| update_addresses(&mut plan.rows, workers));
    let old_logs = plan.old.generations.iter().flat_map(|g| &g.logs);
    addresses.extend(old_logs.map(|log| (log.id, log.address)));
    let recovery_version = plan.recovered_to + MAX_VERSIONS_IN_FLIGHT;
    let looking = ahead::look(context, &plan.servers, &addresses, plan.recovered_to);
    let log_system = recruit_all(context, &plan, &mut roles, recovery_version).await?;

    context.phase.set("recovery_transaction");
    let first = roles.commit_proxies[0].1.endpoint::<CommitRecovery>();
    let writing = limited(context.transport.call(&first, CommitRecovery {}));
    let leaving = new_logs::one_stalls(context, &plan.configured, &roles.logs);
    match plinth_runtime::race(writing, leaving).await {
        Either::Left(written) => written?,
        Either::Right(()) => return Err(Error::recruitment_failed),
    }

    if let Some(reason) = looking.await {
        return refuse_to_forget(context, coordinated, plan.epoch - 1, reason).await;
    }
    if plan.new_database {
        refuse_to_overwrite(context)?;
    }
    context.phase.set("writing_coordinated_state");
    let mut state = DatabaseState {
        format: STATE_FORMAT,
        epoch: plan.epoch,
        database: plan.database,
        is_confirmed: plan.is_confirmed,
        config: plan.configured.config,
        log_system,
    };
    let unheard = coordinated.unheard();
    telling(context, unheard, write_state(coordinated, &mut state)).await?;
    context.knows_of(&state);
    let client = ClientInfo {
        id: plinth_runtime::random::u64() | 1,
        grv_proxies: roles.grv_proxies.iter().map(|(_, role)| *role).collect(),
        commit_proxies: roles.commit_proxies.iter().map(|(_, role)| *role).collect(),
    };
    Ok(Running {
        state,
        configured: plan.configured,
        servers: plan.servers,
        client,
        roles: roles.named(),
        recovered_to: plan.recovered_to,
        addresses,
    })
}

/// Writes the state of the new epoch; twice, if its database has not been confirmed before.
async fn write_state(coordinated: &mut CoordinatedState, state: &mut DatabaseState) -> Result<()> {
    assert_eq!(
        contradiction(state),
        None,
        "epoch {} is to be written",
        state.epoch
    );
    coordinated.write(state.to_bytes()).await?;
    if !state.is_confirmed {
        // Only now a majority is known to have this database. Nothing of it was acknowledged before.
        coordinated.read_own(&state.to_bytes()).await?;
        state.is_confirmed = true;
        coordinated.write(state.to_bytes()).await?;
        trace!("DatabaseConfirmed", "database" => state.database.id);
    }
    Ok(())
}

/// The log of the new epoch.
fn next_generation(plan: &Plan, roles: &Roles) -> LogGeneration {
    let logs: Vec<Interface> = roles.logs.iter().map(|(_, role)| *role).collect();
    let replication = plan.configured.config.replication;
    assert!(
        logs.len() >= replication as usize,
        "{} log servers are to hold {replication} copies",
        logs.len()
    );
    LogGeneration {
        epoch: plan.epoch,
        logs,
        replication,
        tags_a_set: replication,
        start: plan.start,
        recovered_to: plan.recovered_to,
    }
}

/// Fails if a worker holds data that a new database would destroy. Such a worker may have registered since the
/// database was asked for.
fn refuse_to_overwrite(context: &Context) -> Result<()> {
    let cluster = context.coordinators.file();
    let refusal = |workers: &BTreeMap<_, _>| creation::refusal(&cluster, workers);
    if let Some(refusal) = context.workers.with(refusal) {
        context.creation.refuse(&refusal);
        return Err(Error::cluster_recovery_failed);
    }
    Ok(())
}

/// Where the roles of a new epoch would go now.
fn placed(
    context: &Context,
    configured: &Configured,
    workers: &BTreeMap<Uid, RegisterWorker>,
) -> Option<Roles> {
    let (config, excluded) = (&configured.config, &configured.excluded);
    let standing = |worker: &RegisterWorker| Standing {
        disk: context.disk_standing(worker),
        is_excluded: exclusion::is_excluded(worker, excluded),
    };
    let among = |list: Vec<&RegisterWorker>| {
        placement::place(&list, config, standing).map(|p| resolve_placement(&list, &p, config))
    };
    let all: Vec<&RegisterWorker> = workers.values().collect();
    let mut wanted = all.clone();
    wanted.retain(|worker| !exclusion::is_excluded(worker, excluded));
    let reach = placement::all_reach_all(&wanted, context.transport.address());
    if reach.len() < wanted.len()
        && let Some(roles) = among(reach).filter(|roles| roles.logs.len() >= config.logs as usize)
    {
        probe!("recovery_goes_round_a_cut");
        return Some(roles);
    }
    among(all)
}

/// True if a new epoch could place all its log servers on disks that are neither full nor sick. A disk that was sick
/// and works again is good enough.
pub fn has_better_disks(context: &Context, configured: &Configured) -> bool {
    context.workers.with(|workers| {
        let waits_for_disk = |role: &(Interface, Interface)| {
            let mut there = workers.values().filter(|w| w.worker == role.0);
            there.any(|worker| context.disk_standing(worker) >= DiskStanding::Full)
        };
        let roles = placed(context, configured, workers);
        roles.is_some_and(|roles| !roles.logs.iter().any(waits_for_disk))
    })
}

/// How many log servers a new epoch could have that all reach each other, on good disks.
pub fn good_log_places(context: &Context, configured: &Configured) -> usize {
    let is_good = |worker: &&RegisterWorker| {
        let is_excluded = exclusion::is_excluded(worker, &configured.excluded);
        !is_excluded && context.disk_standing(worker) == DiskStanding::Good
    };
    context.workers.with(|workers| {
        let good: Vec<&RegisterWorker> = workers.values().filter(is_good).collect();
        let reach = placement::all_reach_all(&good, context.transport.address());
        placement::log_places(reach, &configured.config)
    })
}

async fn place_roles(context: &Context, configured: &Configured) -> Result<Roles> {
    let config = &configured.config;
    let placed = |workers: &BTreeMap<Uid, RegisterWorker>| placed(context, configured, workers);
    if context
        .workers
        .with(|w| placed(w).is_none_or(|roles| roles.logs.len() < config.logs as usize))
    {
        let lacking =
            |workers: &[&RegisterWorker]| placement::lacking(workers, config, RoleKind::Log);
        wait_for_workers(context, |workers| placed(workers).is_some(), lacking).await;
        plinth_runtime::sleep(REGISTRATION_GRACE).await;
    }
    context.workers.with(placed).ok_or(Error::no_more_servers)
}

/// Waits for `enough` workers, and reports meanwhile what is lacking.
async fn wait_for_workers(
    context: &Context,
    enough: impl Fn(&BTreeMap<Uid, RegisterWorker>) -> bool,
    lacking: impl Fn(&[&RegisterWorker]) -> String,
) {
    let list = |workers: &BTreeMap<_, _>| lacking(&workers.values().collect::<Vec<_>>());
    while !context.workers.with(&enough) {
        context.phase.wait_for(context.workers.with(list));
        context.workers.changed().await;
    }
    context.phase.wait_for(String::new());
}

fn resolve_placement(
    workers: &[&RegisterWorker],
    placement: &Placement,
    config: &DatabaseConfig,
) -> Roles {
    let role = |i: &usize| {
        let worker = workers[*i].worker;
        (worker, Interface::new(worker.address, new_id()))
    };
    let domain = |i: &usize| workers[*i].locality.domain(config.domain).clone();
    Roles {
        sequencer: role(&placement.sequencer),
        logs: placement.logs.iter().map(role).collect(),
        log_domains: placement.logs.iter().map(domain).collect(),
        commit_proxies: placement.commit_proxies.iter().map(role).collect(),
        grv_proxies: placement.grv_proxies.iter().map(role).collect(),
        resolvers: placement.resolvers.iter().map(role).collect(),
    }
}

/// Recruits all roles. Each knows the others by their interfaces. Those of the log servers are fixed when these are
/// made, so the proxies come last. Returns the log with the new generation.
async fn recruit_all(
    context: &Context,
    plan: &Plan,
    roles: &mut Roles,
    recovery_version: Version,
) -> Result<LogSystem> {
    let chosen = next_generation(plan, roles);
    let resolvers = resolver_ranges(&roles.resolvers);
    let made = {
        let logs = new_logs::make(context, plan, roles, &chosen);
        let others = recruit_order(context, plan, roles, &resolvers, recovery_version);
        let logs = async { logs.await.map(Some) };
        let others = async { others.await.map(|()| None) };
        type Made = Option<Vec<(Interface, Interface)>>;
        let both: [Pin<Box<dyn Future<Output = Result<Made>> + '_>>; 2] =
            [Box::pin(logs), Box::pin(others)];
        let both = plinth_runtime::join_all(both).await.into_iter();
        both.collect::<Result<Vec<Made>>>()?
    };
    roles.logs = made.into_iter().flatten().next().expect("they are made");
    let mut log_system = plan.old.clone();
    log_system.generations.push(next_generation(plan, roles));
    recruit_proxies(
        context,
        plan,
        roles,
        &log_system,
        &resolvers,
        recovery_version,
    )
    .await?;
    Ok(log_system)
}

type ResolverRanges = [(bytes::Bytes, Interface)];

/// Recruits the sequencer and the resolvers, which do not know the log servers.
async fn recruit_order(
    context: &Context,
    plan: &Plan,
    roles: &Roles,
    resolvers: &ResolverRanges,
    recovery_version: Version,
) -> Result<()> {
    let epoch = plan.epoch;
    let proxies = roles.commit_proxies.iter().map(|(_, role)| role.id);
    let proxies: Vec<Uid> = proxies.collect();
    assert!(
        !proxies.is_empty() && resolvers.is_sorted_by(|a, b| a.0 < b.0),
        "{} commit proxies, and resolvers from {:?}",
        proxies.len(),
        resolvers.iter().map(|(begin, _)| begin).collect::<Vec<_>>()
    );
    let sequencer = RecruitSequencer {
        id: roles.sequencer.1.id,
        epoch,
        recovered_to: plan.recovered_to,
        recovery_version,
        locked: plan.has(system_keys::DATABASE_LOCK),
        resolvers: resolvers.to_vec(),
        proxies: proxies.clone(),
    };
    recruit(context, &roles.sequencer.0, sequencer).await?;
    for (worker, role) in &roles.resolvers {
        let request = RecruitResolver {
            id: role.id,
            epoch,
            recovery_version,
            proxies: proxies.clone(),
        };
        recruit(context, worker, request).await?;
    }
    Ok(())
}

/// Recruits the proxies, all at once: none of them asks another one.
async fn recruit_proxies(
    context: &Context,
    plan: &Plan,
    roles: &Roles,
    log_system: &LogSystem,
    resolvers: &ResolverRanges,
    recovery_version: Version,
) -> Result<()> {
    let (epoch, sequencer) = (plan.epoch, roles.sequencer.1);
    let mut all: Vec<Pin<Box<dyn Future<Output = Result<()>> + '_>>> = Vec::new();
    for (worker, role) in &roles.grv_proxies {
        let request = RecruitGrvProxy {
            id: role.id,
            epoch,
            sequencer,
            log_system: log_system.clone(),
        };
        all.push(Box::pin(recruit(context, worker, request)));
    }
    for (i, (worker, role)) in roles.commit_proxies.iter().enumerate() {
        let request = RecruitCommitProxy {
            id: role.id,
            epoch,
            sequencer,
            resolvers: resolvers.to_vec(),
            log_system: log_system.clone(),
            recovered_to: plan.recovered_to,
            recovery_version,
            first: i == 0,
            new_database: plan.new_database,
        };
        all.push(Box::pin(async move {
            recruit(context, worker, request).await?;
            tell_system_state(context, role, &plan.rows).await
        }));
    }
    plinth_runtime::join_all(all).await.into_iter().collect()
}

/// Sends the system keyspace as of RV to a commit proxy that has just been made. With 100,000 shards it does not fit
/// into one request. The list of storage servers comes first, because everything else refers to it.
async fn tell_system_state(
    context: &Context,
    proxy: &Interface,
    rows: &[(bytes::Bytes, bytes::Bytes)],
) -> Result<()> {
    let is_server = |(key, _): &&(bytes::Bytes, bytes::Bytes)| {
        system_keys::parse_server_list_key(key).is_some()
    };
    let servers = rows.iter().filter(is_server);
    let others = rows.iter().filter(|row| !is_server(row));
    let mut rest = servers.chain(others).cloned().peekable();
    let (mut number, mut sent) = (0, 0);
    loop {
        let (mut part, mut bytes) = (Vec::new(), 0);
        let bytes_max = if buggify!() { 300 } else { PART_BYTES };
        while bytes < bytes_max
            && let Some((key, value)) = rest.next()
        {
            bytes += key.len() + value.len();
            part.push((key, value));
        }
        let last = rest.peek().is_none();
        sent += part.len();
        assert!(
            !last || sent == rows.len(),
            "{sent} of {} rows of the system keyspace are sent",
            rows.len()
        );
        let request = LoadSystemState {
            number,
            rows: part,
            last,
        };
        let endpoint = proxy.endpoint::<LoadSystemState>();
        limited(context.transport.call(&endpoint, request)).await?;
        if last {
            return Ok(());
        }
        number += 1;
    }
}

/// Splits the key space evenly by first byte at the beginning. Later the sequencer balances the load of the
/// resolvers.
fn resolver_ranges(resolvers: &[(Interface, Interface)]) -> Vec<(bytes::Bytes, Interface)> {
    let count = resolvers.len();
    let begin = |i: usize| {
        if i == 0 {
            bytes::Bytes::new()
        } else {
            vec![(i * 256 / count) as u8].into()
        }
    };
    resolvers
        .iter()
        .enumerate()
        .map(|(i, (_, role))| (begin(i), *role))
        .collect()
}
