//! The process of a replica: all that a service needs on one machine, without a database.
//!
//! ```text
//!   requests, operators ──► service on its stack of engines ──► local store       DIR/store
//!                                     │ virtual log
//!            sequencers, log server ◄─┴─► those of the other processes            DIR/log
//!            coordinator, with the map of the log                                 DIR/coordination
//! ```
//! A process with an empty directory waits until an operator makes it a replica of a service
//! ([`Adopt`](messages::Adopt)). From then on the directory is that replica's (`identity.rs`). The replica plays the
//! log, joins the roster, and then answers requests. When the process with the log's sequencer is gone, another one
//! goes on in a new loglet (`caretaker.rs`).
//!
//! Promises: a request that was answered is in the log for good, and every replica executes it once, in the same
//! order. A process that cannot keep that up ends with one line that says why.
//! What may never happen: two processes execute requests as one replica; a replica goes on with a store that is not
//! its own.

mod caretaker;
mod copies;
mod hosting;
pub mod identity;
pub mod kind;
pub mod messages;
mod metrics;
mod readiness;
mod restoring;
pub mod serves;
mod settings;
mod site;
mod stores;

use crate::backup::Backups;
use crate::coordinated_register::CoordinatedRegister;
use crate::engines::roster::GONE;
use crate::quorum::client::QuorumLoglets;
use crate::quorum::sequencer::SequencerHost;
use crate::quorum::server::LogServer;
use crate::virtual_log::VirtualLog;
use hosting::Replica;
use identity::{Identity, service_file};
pub use kind::{Config, Kind, RELEASE};
use messages::PROCESS;
use plinth_coordination::{Coordinators, Family, Tenant, cannot_use, coordinator};
use plinth_rpc::{FailureBeacon, Transport};
use plinth_runtime::metric::page::Page;
use plinth_runtime::net::Chosen;
use plinth_runtime::{Boxed, Duration, Either, disk, race, sleep, trace, trace_warn};
use serves::ServiceLog;
pub use settings::{Settings, Tell};
use site::Site;
use std::convert::Infallible;
use std::path::Path;
use std::rc::Rc;

const LOG: &str = "log";
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Serves until it has to stop. The line says why.
///
/// # Errors
/// Always. Nothing is half-made: the same may be started again.
pub fn serve(config: Config) -> Boxed<'static, Result<Infallible, String>> {
    serve_with_page(config, None)
}

/// As [`serve`], and keeps a page of metrics up to date.
///
/// # Errors
/// As [`serve`].
pub fn serve_with_page(
    config: Config,
    page: Option<Page>,
) -> Boxed<'static, Result<Infallible, String>> {
    Box::pin(run(config, page))
}

async fn run(config: Config, page: Option<Page>) -> Result<Infallible, String> {
    let directory = &config.directory;
    let unusable = cannot_use(directory);
    Tenant::Delos.check_of_server(directory).await?;
    let log_directory = directory.join(LOG);
    let made = disk::create_dir_all(&log_directory).await;
    made.map_err(unusable)?;
    disk::sync_dir(directory).await.map_err(unusable)?;
    for above in directory.ancestors().skip(1) {
        let _ = disk::sync_dir(above).await; // one that this user may not read was there before
    }
    let _lock = disk::lock_dir(directory).await.map_err(unusable)?;
    let identity = Identity::load(directory).await?;
    match &identity {
        Some(identity) => {
            check(identity, &config)?;
            config.open_as_asked(&identity.service);
        }
        None => {
            restoring::clear_interrupted(directory).await?;
            check_empty(directory).await?;
        }
    }
    let listening = Transport::listen_as(config.listen, config.public, config.credentials()).await;
    let transport = listening.map_err(|error| {
        let chosen = config.settings.get::<Chosen>();
        let chosen = chosen.map_or(Chosen::Otherwise, |chosen| *chosen);
        chosen.refused(config.listen, &error)
    })?;
    let starting = site::refuse_while_starting(&transport);
    let log_server = LogServer::open(&transport, &log_directory).await;
    drop(starting);
    let log_server = log_server
        .map_err(|error| format!("log server in {}: {error}", log_directory.display()))?;
    let _sequencers = SequencerHost::new(&transport);
    let _beacon = FailureBeacon::new(&transport, PROCESS);
    let is_new = identity.is_none();
    if let Some(tell) = config.settings.get::<Tell>() {
        let what = match &identity {
            Some(identity) => it_is(identity),
            None => "it waits for a service: `plinth delos create', or `add-replica'".into(),
        };
        (tell.0)(&format!("listens at {}; {what}", config.listen));
    }
    let site = Site::new(config, transport, &log_server, identity);
    let _serving = site::serve(&site);
    let living = async {
        let identity = site.adopted().await;
        if is_new {
            site.tell(&it_is(&identity));
        }
        live(&site, &identity).await
    };
    let living = race(living, site.keep_page(page.as_ref()));
    let ended = match race(living, log_server.failed()).await {
        Either::Left(Either::Left(line)) => line,
        Either::Left(Either::Right(never)) => match never {},
        Either::Right(error) => format!("log server in {}: {error}", log_directory.display()),
    };
    site.give_up();
    Err(ended)
}

fn it_is(identity: &Identity) -> String {
    format!("it is replica {} of {}", identity.name, identity.service)
}

/// Refuses a directory that has lost the file that says whose it is: its coordinator has promised something.
async fn check_empty(directory: &Path) -> Result<(), String> {
    let names = disk::list_dir(directory).await;
    let names =
        names.map_err(|error| format!("data directory {}: {error}", directory.display()))?;
    match names.iter().any(|name| name.starts_with(stores::STORE)) {
        true => Err(format!(
            "data directory {} has a local store, and no file `replica': put that file back, or choose an empty \
             directory",
            directory.display()
        )),
        false => Ok(()),
    }
}

/// Refuses a directory that this process cannot go on with.
fn check(identity: &Identity, config: &Config) -> Result<(), String> {
    let at = config.directory.display();
    let service = &identity.service.description;
    if config
        .service
        .as_ref()
        .is_some_and(|wanted| wanted != service)
    {
        return Err(format!(
            "data directory {at} has a replica of {service:?}: choose another directory"
        ));
    }
    if identity.address != config.address() {
        return Err(format!(
            "the replica in {at} is known at {}: start it there, or remove it and add one with an empty directory",
            identity.address
        ));
    }
    if config.kind(&identity.kind).is_none() {
        return Err(format!(
            "data directory {at} has a service of kind {:?}, which this release does not have: upgrade it",
            identity.kind
        ));
    }
    let file = service_file(&config.directory);
    config.check_certificates(
        &identity.service,
        &format!("service file {}", file.display()),
    )
}

/// Lives as this replica; why it ends.
async fn live(site: &Rc<Site>, identity: &Identity) -> String {
    let directory = &site.config.directory;
    let coordinators = Coordinators::from(identity.service.clone());
    let key = coordinators.key();
    let coordinator =
        coordinator::start(&site.transport, directory, (Family::Delos, &key), true).await;
    // One that has lost its registers takes no part, and says so in the trace. The others go on.
    let coordinator = match coordinator {
        Ok(coordinator) => coordinator,
        Err(line) => return line,
    };
    let path = service_file(directory);
    let keeping = coordinators.keep_file(&path, identity.service.clone());
    let living = be_replica(site, identity, &coordinators);
    match race(living, race(coordinator.life, keeping)).await {
        Either::Left(line) => line,
        Either::Right(Either::Left(error)) => format!("the coordinator ends: {error}"),
        Either::Right(Either::Right(never)) => match never {},
    }
}

/// Waits until an operator has made the service. Also tells whether it was there before.
async fn find_log(site: &Site, coordinators: &Coordinators) -> (ServiceLog, bool) {
    let transport = &site.transport;
    let mut was_there = true;
    loop {
        let register = CoordinatedRegister::new(transport, coordinators);
        let loglets = QuorumLoglets {
            transport: transport.clone(),
        };
        match VirtualLog::find(register, loglets).await {
            Ok(Some(log)) => return (log, was_there),
            Ok(None) => was_there = false,
            Err(error) => trace_warn!("DelosMapUnreadable", "error" => error),
        }
        sleep(RETRY_PAUSE).await;
    }
}

async fn be_replica(site: &Rc<Site>, identity: &Identity, coordinators: &Coordinators) -> String {
    site.wait_for("the service to be created, or a majority of its coordinators");
    let (log, was_there) = find_log(site, coordinators).await;
    let log = Rc::new(log);
    // Its sequencer was another process's, if this one lived here before.
    let stale = was_there.then(|| log.last_description());
    site.wait_for("the log servers, each of which is asked for its part of the log");
    let tells = |what: String| site.wait_and_tell(&what);
    let opened = stores::open(&site.config, &site.transport, identity, &log, tells);
    let store = match opened.await {
        Ok(store) => store,
        Err(line) => return line,
    };
    let kind = site.config.kind(&identity.kind).expect("it was checked");
    let backups = Backups {
        origin: stores::origin(&identity.service, &identity.kind),
        open: site.config.places,
    };
    let settings = &site.config.settings;
    let replica = (kind.start)(log.clone(), store, identity.id, backups, settings);
    site.begin(&replica, &log);
    let work = async {
        let caring = caretaker::care(&site.transport, identity.address, &log, stale);
        match race(join(site, identity, replica.as_ref()), caring).await {
            Either::Left(line) => line,
            Either::Right(never) => match never {},
        }
    };
    let ended = match race(replica.run(), work).await {
        Either::Left(stopped) => stopped.to_string(),
        Either::Right(line) => line,
    };
    trace!("DelosReplicaEnds", "reason" => ended);
    format!(
        "replica {:?} of {:?}: {ended}",
        identity.name, identity.service.description
    )
}

/// Says who this replica is, again when the roster says something else. Resolves if it is refused.
async fn join(site: &Rc<Site>, identity: &Identity, replica: &dyn Replica) -> String {
    let member = site.member(identity);
    let mut has_joined = false;
    site.wait_for("its place in the roster");
    loop {
        let known = replica.members().await;
        let is_known = match &known {
            Ok(all) => all
                .iter()
                .any(|(id, of)| *id == identity.id && *of == member),
            Err(_) => has_joined,
        };
        if has_joined && !is_known {
            return format!("it {GONE}");
        }
        if !is_known {
            match replica.join(identity.id, &member).await {
                Ok(Err(refused)) => return refused,
                Ok(Ok(_)) => {}
                Err(lost) => {
                    trace_warn!("DelosJoinFails", "error" => lost);
                    sleep(RETRY_PAUSE).await;
                    continue;
                }
            }
        }
        if !std::mem::replace(&mut has_joined, true) {
            trace!("DelosReplicaJoined", "name" => identity.name);
            replica.attend_now();
            site.serve_now();
        }
        sleep(Duration::from_secs(1)).await;
    }
}
