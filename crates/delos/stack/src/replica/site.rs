//! What a process knows of itself, and how it answers clients and operators.

use super::caretaker::fresh_loglet;
use super::copies::Copies;
use super::hosting::Replica;
use super::identity::{Identity, is_name};
use super::kind::{Config, RELEASE};
use super::messages::{
    Adopt, AskBackup, AskChecksum, AskLoad, AskStatus, BackUp, BackupStatus, CallService, Called,
    ChecksumAt, CopiedPage, CopyStore, Greet, Greeting, Load, MarkLog, PROCESS, ReconfigureLog,
    RemoveReplica, ReplicaStatus, Restore, Restored, SwitchEngine, Told, TrimLog,
};
use super::metrics;
use super::readiness;
use super::restoring;
use super::serves::ServiceLog;
use super::settings::Tell;
use crate::backup::PLACE_BYTES_MAX;
use crate::engines::roster::{self, Member};
use crate::log::LogError;
use crate::quorum::messages::Config as LogletConfig;
use crate::quorum::server::LogServer;
use crate::stack::Lost;
use crate::stacks::{ENGINES, engine};
use plinth_coordination::ClusterFile;
use plinth_core::Error;
use plinth_core::similar::question;
use plinth_rpc::{Interface, Registration, Request, Responder, Transport};
use plinth_runtime::metric::page::{Page, Samples};
use plinth_runtime::readiness::{Readiness, Verdict};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, Either, TaskGroup, now, race, sleep, timeout, trace};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;

/// Requests under way; more are refused.
const REQUESTS_MAX: usize = 10_000;
/// A request without an answer in this time is given up.
const PATIENCE: Duration = Duration::from_secs(30);
const PAGE_INTERVAL: Duration = Duration::from_secs(1);
const RETRY_PAUSE: Duration = Duration::from_millis(20);

struct Running {
    replica: Rc<dyn Replica>,
    log: Rc<ServiceLog>,
}

/// See the module.
pub struct Site {
    pub config: Config,
    pub transport: Transport,
    log_server: Interface,
    /// Parts of the log that wait here for room on the disk.
    waits_for_disk: Rc<Cell<usize>>,
    identity: Watch<Option<Identity>>,
    is_adopting: Cell<bool>,
    /// Empty if it serves.
    waits_for: RefCell<String>,
    running: RefCell<Option<Rc<Running>>>,
    readiness: RefCell<Readiness>,
    copies: Rc<Copies>,
    tasks: TaskGroup,
    under_way: Rc<Cell<usize>>,
}

impl Site {
    pub fn new(
        config: Config,
        transport: Transport,
        log_server: &LogServer,
        identity: Option<Identity>,
    ) -> Rc<Site> {
        Rc::new(Site {
            config,
            transport,
            log_server: log_server.interface(),
            waits_for_disk: log_server.waits_for_disk(),
            identity: Watch::new(identity),
            is_adopting: Cell::new(false),
            waits_for: RefCell::new("an operator to make it a replica of a service".into()),
            running: RefCell::default(),
            readiness: RefCell::new(Readiness::new(now())),
            copies: Rc::default(),
            tasks: TaskGroup::new(),
            under_way: Rc::default(),
        })
    }

    /// The replica, when there is one.
    pub async fn adopted(&self) -> Identity {
        self.identity.wait_until(Option::is_some).await;
        self.identity.get().expect("it is there")
    }

    pub fn wait_for(&self, what: &str) {
        self.waits_for.replace(what.into());
    }

    /// As [`wait_for`](Self::wait_for), and says so once to who has started the process.
    pub fn wait_and_tell(&self, what: &str) {
        let is_new = *self.waits_for.borrow() != what;
        if is_new {
            self.tell(&format!("this replica waits for {what}"));
        }
        self.wait_for(what);
    }

    /// Says something to who has started the process.
    pub fn tell(&self, line: &str) {
        if let Some(tell) = self.config.settings.get::<Tell>() {
            (tell.0)(line);
        }
    }

    pub fn begin(&self, replica: &Rc<dyn Replica>, log: &Rc<ServiceLog>) {
        let (replica, log) = (replica.clone(), log.clone());
        self.running
            .replace(Some(Rc::new(Running { replica, log })));
    }

    /// Answers requests to the service from now on.
    pub fn serve_now(&self) {
        self.wait_for("");
    }

    /// Answers no request any more, not even those under way: they hold the site.
    pub fn give_up(&self) {
        self.tasks.cancel_all();
    }

    /// What the roster is to say about this replica.
    pub fn member(&self, identity: &Identity) -> Member {
        Member {
            name: identity.name.clone(),
            address: identity.address,
            log_server: self.log_server.id,
            engines: ENGINES.iter().map(|engine| engine.name.into()).collect(),
            release: RELEASE.into(),
        }
    }

    fn greeting(&self) -> Greeting {
        let identity = self.identity.get();
        let of = |fact: fn(&Identity) -> String| identity.as_ref().map(fact).unwrap_or_default();
        Greeting {
            service: of(|identity| identity.service.to_string()),
            kind: of(|identity| identity.kind.clone()),
            name: of(|identity| identity.name.clone()),
            log_server: self.log_server,
            kinds: self
                .config
                .kinds
                .iter()
                .map(|kind| kind.name.into())
                .collect(),
            release: RELEASE.into(),
        }
    }

    /// Adds the numbers of the replica, if there is one.
    fn add_samples(&self, out: &mut Samples) -> Result<(), Error> {
        let Some(identity) = self.identity.get() else {
            return Ok(());
        };
        let Identity { kind, name, .. } = identity;
        let names = [identity.service.description, kind, name];
        metrics::add_identity(out, names, self.serving().is_ok());
        let Ok(running) = self.running() else {
            return Ok(());
        };
        metrics::add_log(out, &running.log.parts());
        running.replica.add_samples(out, identity.id)
    }

    /// Keeps the page of the process up to date, for ever, if it has one.
    pub async fn keep_page(&self, page: Option<&Page>) -> Infallible {
        let Some(page) = page else {
            return std::future::pending().await;
        };
        let samples = async {
            loop {
                if let Some(identity) = self.identity.get() {
                    page.name_cluster(&identity.service.key());
                }
                let mut out = Samples::of_process(self.config.address());
                let verdict = self.verdict();
                self.readiness.borrow().add_to(&mut out, &verdict);
                // A disk that fails ends the replica, which says so itself.
                let _ = self.add_samples(&mut out);
                out.add_counted();
                page.set(out.into_list());
                page.set_ready(verdict);
                sleep(PAGE_INTERVAL).await;
            }
        };
        let replica = || self.serving().map(|running| running.replica.clone());
        match race(samples, readiness::keep(&self.readiness, replica)).await {
            Either::Left(never) | Either::Right(never) => never,
        }
    }

    /// Whether a request to the replica could be answered just now.
    fn verdict(&self) -> Verdict {
        match self.serving() {
            Ok(_) => self.readiness.borrow().verdict(now()),
            Err(why) => Verdict::not(why),
        }
    }

    fn load(&self) -> Result<Load, Error> {
        let running = self.running().map_err(|_| Error::operation_cancelled)?;
        let mut load = running.replica.load()?;
        load.waits_for = self.waits_for.borrow().clone();
        Ok(load)
    }

    /// The replica, or why there is none.
    fn running(&self) -> Result<Rc<Running>, String> {
        let running = self.running.borrow().clone();
        running.ok_or_else(|| format!("this process waits for {}", self.waits_for.borrow()))
    }

    /// The replica, once it serves.
    fn serving(&self) -> Result<Rc<Running>, String> {
        let running = self.running()?;
        let waits_for = self.waits_for.borrow();
        match waits_for.is_empty() {
            true => Ok(running),
            false => Err(format!("this replica waits for {waits_for}")),
        }
    }

    async fn adopt(&self, asked: Adopt) -> Result<(), String> {
        let service = parse(&asked.service)?;
        if let Some(identity) = self.identity.get() {
            let is_same = identity.service.key() == service.key() && identity.name == asked.name;
            let by_tls = identity.service.is_tls;
            return match is_same && identity.kind == asked.kind {
                true if by_tls == service.is_tls => Ok(()),
                true => Err(format!(
                    "it is that replica already, with a service's file {} :tls; say all addresses so",
                    if by_tls { "with" } else { "without" }
                )),
                false => Err(format!(
                    "it is replica {:?} of {:?} already",
                    identity.name, identity.service.description
                )),
            };
        }
        self.check_service(&service, &asked.name)?;
        if self.config.kind(&asked.kind).is_none() {
            let kinds: Vec<&str> = self.config.kinds.iter().map(|kind| kind.name).collect();
            let there_are = kinds.join(", ");
            return Err(format!(
                "its program has no kind {:?}; it has {there_are}",
                asked.kind
            ));
        }
        let identity = Identity::draw(service, &asked.kind, &asked.name, self.config.address());
        identity.save(&self.config.directory).await?;
        trace!("DelosAdopted", "service" => identity.service, "name" => identity.name);
        self.become_replica(identity);
        Ok(())
    }

    fn become_replica(&self, identity: Identity) {
        self.config.open_as_asked(&identity.service);
        self.identity.set(Some(identity));
    }

    /// Refuses a replica or a service that this process is not for.
    fn check_service(&self, service: &ClusterFile, name: &str) -> Result<(), String> {
        self.config.check_certificates(service, "the service")?;
        if !is_name(name) {
            return Err("the name of a replica may have letters, digits, `_', `-' and `.'".into());
        }
        match &self.config.service {
            Some(wanted) if *wanted != service.description => {
                Err(format!("it was started for the service {wanted:?} only"))
            }
            _ => Ok(()),
        }
    }

    async fn restore(&self, asked: Restore) -> Result<Restored, String> {
        let service = parse(&asked.service)?;
        if let Some(identity) = self.identity.get() {
            return Err(format!(
                "it is replica {:?} of {:?} already",
                identity.name, identity.service.description
            ));
        }
        self.check_service(&service, &asked.name)?;
        let (identity, restored) = restoring::restore(&self.config, service, &asked).await?;
        self.become_replica(identity);
        Ok(restored)
    }

    async fn call(&self, asked: CallService) -> Called {
        let running = match self.serving() {
            Ok(running) => running,
            Err(why) => {
                let may_be_done = false;
                return Called::Lost { may_be_done, why };
            }
        };
        let called = running.replica.call(&asked.operation, &asked.request);
        timeout(PATIENCE, called)
            .await
            .unwrap_or_else(|| Called::Lost {
                may_be_done: true,
                why: format!("there is no answer after {} s", PATIENCE.as_secs()),
            })
    }

    fn status(&self) -> Result<ReplicaStatus, Error> {
        let Greeting {
            service,
            kind,
            name,
            release,
            ..
        } = self.greeting();
        let mut status = ReplicaStatus {
            service,
            kind,
            name,
            id: self.identity.get().map_or(0, |identity| identity.id),
            release,
            waits_for: self.waits_for.borrow().clone(),
            disk_full: self.waits_for_disk.get() > 0,
            ..ReplicaStatus::default()
        };
        if let Ok(running) = self.running() {
            let store = running.replica.store();
            (status.applied, status.flushed) = (store.applied(), store.flushed());
            status.disk_full |= store.waits_for_disk();
            status.loglets = running.log.parts();
            running.replica.describe(&mut status)?;
        }
        Ok(status)
    }

    async fn reconfigure(&self, asked: ReconfigureLog) -> Result<u64, String> {
        let running = self.running()?;
        let config = LogletConfig {
            loglet: fresh_loglet(),
            sequencer: asked.sequencer,
            servers: asked.servers,
        };
        if !config.is_sound() {
            return Err("a log needs 1 to 15 log servers, each once".into());
        }
        let description = config.to_description();
        let done = running.log.reconfigure(description.clone()).await;
        done.map_err(|error| error.to_string())?;
        let parts = running.log.parts();
        let part = parts.iter().find(|(_, of)| *of == description);
        Ok(part.map_or(0, |(first, _)| *first))
    }

    async fn checksum_at(&self, mark: u64) -> Result<ChecksumAt, Error> {
        let running = self.running().map_err(|_| Error::operation_cancelled)?;
        let replica = &running.replica;
        if replica.store().applied() < mark {
            replica
                .catch_up()
                .await
                .map_err(|_| Error::internal_error)?;
        }
        Ok(ChecksumAt {
            applied: replica.store().applied(),
            checksum: replica.checksum_at(mark),
        })
    }

    async fn switch(&self, asked: SwitchEngine) -> Result<u64, String> {
        let running = self.serving()?;
        let Some(engine) = engine(&asked.engine) else {
            let names = ENGINES.map(|engine| engine.name);
            return Err(format!(
                "there is no engine {:?}; {}there are {}",
                asked.engine,
                question(&asked.engine, names),
                names.join(", ")
            ));
        };
        if let Some(why) = running.replica.refuses(engine, asked.on) {
            return Err(why);
        }
        decide(|| running.replica.switch(engine, asked.on)).await
    }

    async fn remove(&self, id: u64) -> Result<u64, String> {
        let running = self.serving()?;
        decide(|| running.replica.remove(id)).await
    }

    async fn mark(&self) -> Result<u64, String> {
        let running = self.serving()?;
        decide(|| running.replica.mark()).await
    }

    async fn back_up(&self, place: &str) -> Result<u64, String> {
        let running = self.serving()?;
        if place.len() > PLACE_BYTES_MAX {
            return Err(format!("a place has at most {PLACE_BYTES_MAX} bytes"));
        }
        decide(|| running.replica.back_up(place)).await
    }

    fn backup(&self) -> Result<BackupStatus, Error> {
        let running = self.running().map_err(|_| Error::operation_cancelled)?;
        let state = running.replica.backup()?.unwrap_or_default();
        Ok(BackupStatus {
            place: state.place,
            from: state.from,
            next: state.next,
            applied: running.replica.store().applied(),
            problem: state.problem,
        })
    }

    fn copy(&self, asked: &CopyStore) -> Result<CopiedPage, Error> {
        let running = self.running().map_err(|_| Error::operation_cancelled)?;
        let (page, begun) = self.copies.page(running.replica.store(), asked)?;
        if begun {
            self.tasks
                .spawn("delos copy", self.copies.clone().forget_later(page.copy));
        }
        Ok(page)
    }

    fn trim(&self, before: u64) -> Result<u64, String> {
        let running = self.serving()?;
        // What comes later is not meant.
        let before = before.min(running.replica.store().applied() + 1);
        running.replica.trim(before);
        Ok(before)
    }
}

fn parse(file: &str) -> Result<ClusterFile, String> {
    let service = ClusterFile::parse(file);
    service.map_err(|error| format!("the service's file: {error}"))
}

/// Lets the log decide what an operator asks for. The same may be asked again: when the log's sequencer goes, nobody
/// knows what became of an entry.
async fn decide<W>(ask: impl Fn() -> W) -> Result<u64, String>
where
    W: Future<Output = Result<roster::Told, Lost>>,
{
    loop {
        match ask().await {
            Err(Lost::Log(LogError::Unknown)) => sleep(RETRY_PAUSE).await,
            told => return told.map_err(|lost| lost.to_string())?,
        }
    }
}

/// What an operator is told. No answer in time is one, too.
async fn told(work: impl Future<Output = Result<u64, String>>) -> Told {
    match timeout(PATIENCE, work).await {
        Some(Ok(pos)) => Told::done(pos),
        Some(Err(why)) => Told::refused(why),
        None => Told::refused(format!(
            "there is no answer after {} s; it may be done, now or later",
            PATIENCE.as_secs()
        )),
    }
}

/// Until the process serves: a call that comes already certainly does nothing, and may be made elsewhere.
pub fn refuse_while_starting(transport: &Transport) -> Registration {
    transport.serve::<CallService>(PROCESS, |_, to: Responder<CallService>| {
        to.ok(Called::Lost {
            may_be_done: false,
            why: "the process is starting".into(),
        });
    })
}

/// Answers requests of one kind, each in a task of its own.
fn answer<R: Request, W>(
    site: &Rc<Site>,
    work: impl Fn(Rc<Site>, R) -> W + Copy + 'static,
) -> Registration
where
    W: Future<Output = Result<R::Reply, Error>> + 'static,
{
    let weak = Rc::downgrade(site);
    site.transport
        .serve::<R>(PROCESS, move |request, to: Responder<R>| {
            let Some(site) = weak.upgrade() else {
                return to.fail(Error::operation_cancelled);
            };
            if site.under_way.get() >= REQUESTS_MAX {
                return to.fail(Error::server_overloaded);
            }
            let counted = Counted::new(&site.under_way);
            let work = work(site.clone(), request);
            site.tasks.spawn("delos request", reply(work, to, counted));
        })
}

/// A request under way.
struct Counted(Rc<Cell<usize>>);

impl Counted {
    fn new(under_way: &Rc<Cell<usize>>) -> Counted {
        under_way.update(|count| count + 1);
        Counted(under_way.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.update(|count| count - 1);
    }
}

async fn reply<R: Request>(
    work: impl Future<Output = Result<R::Reply, Error>>,
    to: Responder<R>,
    _counted: Counted,
) {
    to.send(work.await);
}

/// Answers until the result is dropped.
pub fn serve(site: &Rc<Site>) -> [Registration; 15] {
    [
        answer(site, |site, _: Greet| async move { Ok(site.greeting()) }),
        answer(site, |site, asked: Adopt| async move {
            if site.is_adopting.replace(true) {
                return Ok(Told::refused("somebody else makes it a replica now"));
            }
            let adopted = site.adopt(asked).await;
            site.is_adopting.set(false);
            Ok(told(async { adopted.map(|()| 0) }).await)
        }),
        answer(site, |site, asked: CallService| async move {
            Ok(site.call(asked).await)
        }),
        answer(site, |site, _: AskStatus| async move { site.status() }),
        answer(site, |site, asked: SwitchEngine| async move {
            Ok(told(site.switch(asked)).await)
        }),
        answer(site, |site, asked: RemoveReplica| async move {
            Ok(told(site.remove(asked.id)).await)
        }),
        answer(site, |site, _: MarkLog| async move {
            Ok(told(site.mark()).await)
        }),
        answer(site, |site, asked: AskChecksum| async move {
            let found = timeout(PATIENCE, site.checksum_at(asked.mark)).await;
            found.unwrap_or(Err(Error::timed_out))
        }),
        answer(site, |site, asked: ReconfigureLog| async move {
            Ok(told(site.reconfigure(asked)).await)
        }),
        answer(site, |site, asked: BackUp| async move {
            Ok(told(site.back_up(&asked.place)).await)
        }),
        answer(site, |site, _: AskBackup| async move { site.backup() }),
        answer(site, |site, _: AskLoad| async move { site.load() }),
        answer(site, |site, asked: Restore| async move {
            if site.is_adopting.replace(true) {
                return Ok(Restored::refused(
                    "somebody else makes it a replica now".into(),
                ));
            }
            let restored = site.restore(asked).await;
            site.is_adopting.set(false);
            Ok(restored.unwrap_or_else(Restored::refused))
        }),
        answer(
            site,
            |site, asked: CopyStore| async move { site.copy(&asked) },
        ),
        answer(site, |site, asked: TrimLog| async move {
            Ok(told(async { site.trim(asked.before) }).await)
        }),
    ]
}
