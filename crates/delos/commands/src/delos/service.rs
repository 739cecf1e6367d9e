//! A service as its clients and operators reach it.

use super::Common;
use bytes::Bytes;
use plinth_coordination::{ClusterFile, Family};
use plinth_core::Error;
use plinth_delos::engines::roster::Member;
use plinth_delos::replica::messages::{
    AskStatus, CallService, Called, ReplicaStatus, Told, process,
};
use plinth_identity::Identity;
use plinth_rpc::{Place, Request, Transport};
use plinth_runtime::{Duration, Instant, join_all, now, sleep, timeout};
use plinth_terminal::Outcome;
use plinth_terminal::connect::telling;
use plinth_terminal::tls::TlsArguments;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

/// A process that says nothing for so long is passed over.
pub const GLANCE: Duration = Duration::from_secs(2);
pub const RETRY_PAUSE: Duration = Duration::from_millis(200);
const REDIRECT_PAUSE: Duration = Duration::from_millis(5);

/// Why a request to a service has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unanswered {
    /// The service refused it: a word for programs, and a line for people.
    Refused { code: String, why: String },
    /// It may be executed, now or later.
    Unsure(String),
    /// It is not executed.
    Silent(String),
}

/// See the module.
pub struct Service {
    pub file: ClusterFile,
    pub transport: Transport,
    /// Where requests are sent, those first that answered last.
    known: Rc<RefCell<VecDeque<SocketAddr>>>,
    end: Cell<Instant>,
    seconds: u64,
    /// A person is told why it waits, once.
    tells: Cell<bool>,
}

/// A replica of the roster, with what its process says.
pub struct Seen {
    pub id: u64,
    pub member: Member,
    /// `None` if it does not answer, or is something else now.
    pub status: Option<ReplicaStatus>,
}

/// Sends a request to the process at an address.
pub async fn ask<R: Request>(
    transport: &Transport,
    address: SocketAddr,
    request: R,
    limit: Duration,
) -> Result<R::Reply, Error> {
    let endpoint = process(address).endpoint::<R>();
    let asked = timeout(limit, transport.call(&endpoint, request)).await;
    asked.unwrap_or(Err(Error::timed_out))
}

/// Reads the service's file, the keys beside it, and the certificates of this process.
pub async fn load(path: &Path, tls: &TlsArguments) -> Outcome<ClusterFile> {
    let file = Family::Delos.load(path, tls.settings()).await;
    let file = file.and_then(|file| file.addresses_for("plinth delos", path).map(|_| file));
    let tell = |file: &ClusterFile| tls.tell_if_unused(file.is_tls, path.display());
    file.inspect(tell)
        .map_err(|error| match error.0.strip_prefix("cluster file") {
            Some(rest) if rest.contains("--tls") => format!("service file{rest}"),
            Some(_)
                if !path.is_file()
                    && let Some(line) = super::names::in_directory(path) =>
            {
                line
            }
            Some(_) if path.try_exists().is_ok_and(|is_there| !is_there) => {
                let asked = super::names::meant(path);
                let asked = asked.unwrap_or_else(|| {
                    "name one with -C, or start a service with `plinth delos dev'".into()
                });
                format!("service file {}: there is none; {asked}", path.display())
            }
            Some(rest) => format!(
                "service file{rest}; name the file that `plinth delos create' or `dev' wrote"
            ),
            None => error.0,
        })
}

impl Service {
    pub async fn open(common: &Common) -> Outcome<Service> {
        let file = load(&common.which.service, &common.which.tls).await?;
        let service = Service::of(file, common.timeout);
        service.tells.set(true);
        Ok(service)
    }

    pub fn of(file: ClusterFile, seconds: u64) -> Service {
        let transport = Transport::client_with(file.credentials(Identity::Server));
        Service::over(file, transport, seconds)
    }

    pub fn over(file: ClusterFile, transport: Transport, seconds: u64) -> Service {
        let known = file.addresses().into_iter().collect();
        Service {
            file,
            transport,
            known: Rc::new(RefCell::new(known)),
            end: Cell::new(now() + Duration::from_secs(seconds)),
            seconds,
            tells: Cell::new(false),
        }
    }

    #[cfg(feature = "tables")]
    /// The same, for a request that has so much time from now on.
    pub fn again(&self, seconds: u64) -> Service {
        Service {
            file: self.file.clone(),
            transport: self.transport.clone(),
            known: self.known.clone(),
            end: Cell::new(now() + Duration::from_secs(seconds)),
            seconds,
            tells: Cell::new(false),
        }
    }

    /// Has all its time again.
    pub fn renew(&self) {
        self.end.set(now() + Duration::from_secs(self.seconds));
    }

    pub fn name(&self) -> &str {
        &self.file.description
    }

    pub fn left(&self) -> Duration {
        self.end.get().saturating_since(now())
    }

    pub fn has_time(&self) -> bool {
        self.left() > Duration::ZERO
    }

    /// What the processes at these addresses say, those of this service that answer.
    async fn statuses(&self, addresses: &[SocketAddr]) -> Vec<(SocketAddr, ReplicaStatus)> {
        let limit = GLANCE.min(self.left().max(Duration::from_millis(100)));
        let asked = addresses.iter().map(|address| async move {
            let status = ask(&self.transport, *address, AskStatus {}, limit).await;
            status.ok().map(|status| (*address, status))
        });
        let answered = join_all(asked.collect::<Vec<_>>()).await;
        let is_own = |status: &ReplicaStatus| {
            ClusterFile::parse(&status.service).is_ok_and(|file| file.key() == self.file.key())
        };
        let answered = answered.into_iter().flatten();
        answered.filter(|(_, status)| is_own(status)).collect()
    }

    #[cfg(feature = "tables")]
    /// The kind of the service, if a replica answers at once.
    pub async fn kind(&self) -> Option<String> {
        let answered = self.statuses(&self.file.addresses()).await;
        answered.into_iter().next().map(|(_, status)| status.kind)
    }

    /// Does `work`, and says after a while that it waits, if nobody was told before.
    async fn telling<T>(&self, work: impl Future<Output = T>) -> T {
        let why = async { self.tells.replace(false).then(|| self.not_yet()) };
        telling(work, self.seconds, why).await
    }

    /// Why it takes long.
    pub fn not_yet(&self) -> String {
        format!(
            "service {} does not answer yet; {}",
            self.name(),
            self.tried()
        )
    }

    /// Where its processes are, and why one has not answered, as far as is known.
    fn tried(&self) -> String {
        let why = self.ungreeted(|_| true);
        let why = why.map_or_else(String::new, |why| format!("; {why}"));
        let at: Vec<String> = self
            .file
            .coordinators
            .iter()
            .map(Place::to_string)
            .collect();
        format!("its processes are at {}{why}", at.join(", "))
    }

    /// The replicas, as the one that knows most of the log says, in the order of their names.
    pub async fn look(&self) -> Outcome<Vec<Seen>> {
        self.telling(self.look_quietly()).await
    }

    async fn look_quietly(&self) -> Outcome<Vec<Seen>> {
        let mut last_word = String::new();
        loop {
            let first = self.statuses(&self.file.addresses()).await;
            let best = first.iter().max_by_key(|(_, status)| status.applied);
            if let Some((_, best)) = best.filter(|(_, best)| !best.members.is_empty()) {
                return Ok(self.complete(best.members.clone(), &first).await);
            }
            if self.is_denied() {
                return Err(self.denial());
            }
            if let Some((_, status)) = first.first() {
                last_word = format!(": it waits for {}", status.waits_for);
            }
            if !self.has_time() {
                return Err(match self.of_another_system().await {
                    Some(line) => line,
                    None => self.silent(&last_word),
                });
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// The line about a file that somebody has written by hand, if its processes are those of another system.
    pub async fn of_another_system(&self) -> Option<String> {
        // Its own transport: who is refused once gives up elsewhere, too.
        let transport = Transport::client_with(self.file.credentials(Identity::Server));
        let found = Family::Delos.other_behind(&transport, &self.file).await?;
        let line = Family::Delos.not_own(found);
        Some(format!("service {}: {line}", self.name()))
    }

    async fn complete(
        &self,
        members: Vec<(u64, Member)>,
        known: &[(SocketAddr, ReplicaStatus)],
    ) -> Vec<Seen> {
        let asked: BTreeSet<SocketAddr> = self.file.addresses().into_iter().collect();
        let others: Vec<SocketAddr> = members
            .iter()
            .map(|(_, member)| member.address)
            .filter(|address| !asked.contains(address))
            .collect();
        let mut all = self.statuses(&others).await;
        all.extend(known.iter().cloned());
        let mut seen: Vec<Seen> = members
            .into_iter()
            .map(|(id, member)| {
                let status = all.iter().find(|(_, status)| status.id == id);
                let status = status.map(|(_, status)| status.clone());
                Seen { id, member, status }
            })
            .collect();
        seen.sort_by(|a, b| a.member.name.cmp(&b.member.name));
        seen
    }

    /// The line when this process may not ask what it asks.
    pub fn denial(&self) -> String {
        let name = self.name();
        let is_denied = |at: &&Place| self.transport.is_denied(at);
        match (self.ungreeted(is_denied), self.file.is_tls) {
            (Some(why), _) => format!("service {name}: {why}"),
            (None, true) => format!(
                "service {name} refuses this: the certificate of this process does not stand for who may ask it; show \
                 another one, or see --tls-identity of the replicas"
            ),
            (None, false) => format!(
                "service {name} refuses this: it needs a key for it; put the service's key file beside its file, as \
                 NAME.keys, or one with a higher key. If the service speaks TLS, use its file with :tls"
            ),
        }
    }

    /// Why the first of these processes that has not answered a greeting has not, as far as is known.
    fn ungreeted(&self, of: impl Fn(&&Place) -> bool) -> Option<String> {
        let mut all = self.file.coordinators.iter().filter(of);
        all.find_map(|at| {
            Some(format!(
                "the process at {at}: {}",
                self.transport.ungreeted(at)?
            ))
        })
    }

    /// No majority lets this process ask anything. A process that is down cannot say so.
    fn is_denied(&self) -> bool {
        let all = self.file.coordinators.iter();
        let denied = all.filter(|at| self.transport.is_denied(at));
        self.file.coordinators.len() - denied.count() < self.file.majority()
    }

    /// The line when nobody answers.
    pub fn silent(&self, last_word: &str) -> String {
        format!(
            "service {} does not answer after {} s{last_word}; {}",
            self.name(),
            self.seconds,
            self.tried()
        )
    }

    /// Sends a request to the service, to another replica when one certainly has not executed it. One that only
    /// `reads` is also sent again when nobody knows.
    ///
    /// # Errors
    /// It is refused, or has no answer.
    pub async fn call(&self, called: CallService, reads: bool) -> Result<Bytes, Unanswered> {
        self.telling(self.call_quietly(called, reads)).await
    }

    async fn call_quietly(&self, called: CallService, reads: bool) -> Result<Bytes, Unanswered> {
        let mut last_word = String::new();
        let mut next = self.known.borrow().clone();
        loop {
            let Some(address) = next.pop_front() else {
                if !self.has_time() {
                    return Err(Unanswered::Silent(self.silent(&last_word)));
                }
                sleep(RETRY_PAUSE).await;
                let seen = self.look().await.map_err(Unanswered::Silent)?;
                next = seen.iter().map(|seen| seen.member.address).collect();
                self.known.replace(next.clone());
                continue;
            };
            let limit = self.left().max(Duration::from_secs(1));
            let unsure = match ask(&self.transport, address, called.clone(), limit).await {
                Ok(Called::Done(answer)) => {
                    self.prefer(address);
                    return Ok(answer);
                }
                Ok(Called::Refused { code, why }) => {
                    return Err(Unanswered::Refused { code, why });
                }
                Ok(Called::Elsewhere(address)) => {
                    next.push_front(address);
                    sleep(REDIRECT_PAUSE).await; // the lease may be changing hands
                    None
                }
                Ok(Called::Lost {
                    may_be_done: true,
                    why,
                }) => Some(why),
                Ok(Called::Lost { why, .. }) => {
                    last_word = format!(": {why}");
                    None
                }
                Err(Error::permission_denied) => {
                    return Err(Unanswered::Silent(self.denial()));
                }
                // Others may let this process in.
                Err(Error::connection_failed) if next.is_empty() && self.is_denied() => {
                    return Err(Unanswered::Silent(self.denial()));
                }
                Err(Error::connection_failed | Error::server_overloaded) => None,
                // Also when the process gave it up: it may have begun.
                Err(error) => Some(format!("{address} gave no answer ({error})")),
            };
            match unsure {
                Some(why) if !reads => {
                    let name = self.name();
                    return Err(Unanswered::Unsure(format!(
                        "service {name}: {why}: the request may be executed, now or later"
                    )));
                }
                Some(why) => last_word = format!(": {why}"),
                None => {}
            }
            if !self.has_time() {
                return Err(Unanswered::Silent(self.silent(&last_word)));
            }
        }
    }

    /// Requests begin with this replica from now on.
    fn prefer(&self, address: SocketAddr) {
        let mut known = self.known.borrow_mut();
        if known.front() != Some(&address) {
            known.retain(|other| *other != address);
            known.push_front(address);
        }
    }

    /// Asks a replica that serves, whichever is found first. `R` may be sent again if it certainly did not arrive.
    pub async fn operate<R: Request<Reply = Told> + Clone>(&self, request: R) -> Outcome<u64> {
        let mut last_word = String::new();
        loop {
            for seen in self.look().await? {
                if !seen.serves() {
                    continue;
                }
                let address = seen.member.address;
                let limit = self.left().max(GLANCE);
                match ask(&self.transport, address, request.clone(), limit).await {
                    Ok(told) if told.refused.is_empty() => return Ok(told.pos),
                    Ok(told) => return Err(format!("service {}: {}", self.name(), told.refused)),
                    Err(Error::permission_denied) => return Err(self.denial()),
                    Err(Error::connection_failed) => {
                        last_word = format!(": {address} is not reached");
                    }
                    Err(error) => {
                        return Err(format!(
                            "service {}: {address} gave no answer ({error}): it may be done, now or later",
                            self.name()
                        ));
                    }
                }
            }
            if !self.has_time() {
                return Err(self.silent(&last_word));
            }
            sleep(RETRY_PAUSE).await;
        }
    }
}

impl Seen {
    pub fn serves(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.waits_for.is_empty())
    }
}

/// The process of the replica with this address answers.
pub fn answers(seen: &[Seen], address: &SocketAddr) -> bool {
    let mut answering = seen.iter().filter(|one| one.status.is_some());
    answering.any(|one| one.member.address == *address)
}

/// The name of the replica with this address, or the address.
pub fn at(seen: &[Seen], address: SocketAddr) -> String {
    let found = seen.iter().find(|seen| seen.member.address == address);
    found.map_or_else(|| address.to_string(), |seen| seen.member.name.clone())
}
