//! A cluster over the network: implements [`Cluster`] with requests to proxies and storage servers.
//!
//! It hides the internals of the cluster: where the shards are, which proxies live, which replica answers. A request
//! that certainly had no effect is repeated without limit; the transaction's timeout ends it. A commit that may have
//! had an effect is never repeated here.

mod avoided;
mod locations;
mod outages;
mod patience;
mod reads;
pub(crate) mod status;
mod versions;

use crate::outage::Outage;
use crate::source::{
    Cluster, ClusterFuture, CommitData, CommitReply, CommitTracing, PointResults, RangeChunk,
    RangeRequest, ReadVersionFlags, Subject,
};
use avoided::Avoided;
use locations::Locations;
use patience::Patience;
use plinth_coordination::{Coordinators, election};
use plinth_core::{Error, Key, KeySelector, Result, Value, Version, version};
use plinth_protocol::control::{ClientInfo, GetClientInfo};
use plinth_protocol::coordination::Candidate;
use plinth_protocol::token::Token;
use plinth_protocol::transaction::{
    Commit, CommitReply as CommitAnswer, FLAG_LOCK_AWARE, FLAG_REPORT_CONFLICTS, FLAG_SYSTEM_KEYS,
    FLAG_TRACE, GetCommitTrace,
};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, Either, TaskGroup, probe};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use versions::VersionBatcher;

/// A request to the controller that takes longer is repeated.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Pause before something that failed is tried again.
const RETRY: Duration = Duration::from_millis(20);

/// Whoever asks the cluster, with the token that all of its requests show. A database has one, which shows none, and
/// shares its connection with those of its transactions that show some.
#[derive(Clone)]
pub(crate) struct Caller {
    inner: Rc<Inner>,
    token: Token,
    _tasks: Rc<TaskGroup>,
}

struct Inner {
    transport: Transport,
    /// `None` until the controller has answered.
    info: Watch<Option<ClientInfo>>,
    leader: Watch<Option<Candidate>>,
    locations: RefCell<Locations>,
    versions: RefCell<VersionBatcher>,
    /// A request has found no proxy, or has not reached the one that it has found.
    was_missed: Cell<bool>,
    patience: Patience,
    avoided: Avoided,
    coordinators: Coordinators,
}

impl Caller {
    /// Connects in the background; requests wait until it has.
    pub fn connect(transport: Transport, coordinators: Coordinators) -> Self {
        let inner = Rc::new(Inner {
            transport: transport.clone(),
            info: Watch::new(None),
            leader: Watch::new(None),
            locations: RefCell::new(Locations::new()),
            versions: RefCell::default(),
            was_missed: Cell::default(),
            patience: Patience::new(),
            avoided: Avoided::default(),
            coordinators: coordinators.clone(),
        });
        let tasks = TaskGroup::new();
        tasks.spawn(
            "observe leader",
            election::observe(transport, coordinators, inner.leader.clone()),
        );
        tasks.spawn("client info", follow(Rc::downgrade(&inner)));
        Caller {
            inner,
            token: Token::NONE,
            _tasks: Rc::new(tasks),
        }
    }
}

/// Keeps the list of proxies current.
async fn follow(connection: Weak<Inner>) {
    let mut known = 0;
    loop {
        let Some(inner) = connection.upgrade() else {
            return;
        };
        inner.leader.wait_until(Option::is_some).await;
        let Some(leader) = inner.leader.get() else {
            continue;
        };
        let endpoint = leader.controller.endpoint::<GetClientInfo>();
        let asked = plinth_runtime::timeout(
            ANSWER_LIMIT,
            inner.transport.call(&endpoint, GetClientInfo { known }),
        );
        let changed = inner.leader.wait_until(|l| l.as_ref() != Some(&leader));
        match plinth_runtime::race(asked, changed).await {
            // A long poll that ended without a change.
            Either::Left(Some(Ok(info))) if info.id == known => {}
            Either::Left(Some(Ok(info))) => {
                known = info.id;
                inner.info.set(Some(info));
            }
            Either::Left(Some(Err(_))) => plinth_runtime::sleep(RETRY * 5).await,
            Either::Left(None) => {}
            Either::Right(()) => known = 0,
        }
    }
}

impl Inner {
    /// A proxy of the kind that `choose` picks from the known ones; waits until there is one. Fails if the cluster
    /// lets this process do nothing.
    async fn proxy(&self, choose: impl Fn(&ClientInfo) -> &Vec<Interface>) -> Result<Interface> {
        let any =
            |info: &Option<ClientInfo>| info.as_ref().is_some_and(|info| !choose(info).is_empty());
        if !self.info.with(any) {
            self.was_missed.set(true);
            let waiting = plinth_runtime::race(self.info.wait_until(any), self.until_denied());
            if let Either::Right(()) = waiting.await {
                return Err(Error::permission_denied);
            }
        }
        Ok(self.info.with(|info| {
            let proxies = choose(info.as_ref().expect("waited for"));
            proxies[plinth_runtime::random::below(proxies.len() as u64) as usize]
        }))
    }

    /// Returns when the cluster has told nothing yet, and most coordinators refuse this process.
    async fn until_denied(&self) {
        let denials = self.transport.denials();
        loop {
            let (seen, cluster) = (denials.get(), self.coordinators.file());
            let denied = cluster.coordinators.iter();
            let denied = denied.filter(|place| self.transport.is_denied(place));
            if self.info.with(Option::is_none) && denied.count() >= cluster.majority() {
                return;
            }
            denials.wait_until(|now| *now != seen).await;
        }
    }

    /// Returns when `proxy` is no longer among those that serve.
    fn retired(&self, proxy: Interface) -> impl Future<Output = ()> + use<> {
        let info = self.info.clone();
        async move {
            let serves = |i: &ClientInfo| {
                i.commit_proxies.contains(&proxy) || i.grv_proxies.contains(&proxy)
            };
            info.wait_until(|info| info.as_ref().is_some_and(|i| !serves(i)))
                .await;
        }
    }

    async fn commit(&self, data: CommitData, token: Token) -> Result<CommitReply> {
        let mut flags = 0;
        if data.flags.system_keys {
            flags |= FLAG_SYSTEM_KEYS;
        }
        if data.flags.lock_aware {
            flags |= FLAG_LOCK_AWARE;
        }
        if data.conflicts.is_some() {
            flags |= FLAG_REPORT_CONFLICTS;
        }
        if data.trace.is_some() {
            flags |= FLAG_TRACE;
        }
        let request = Commit {
            read_version: data.read_version,
            reads: data.reads,
            writes: data.writes,
            mutations: data.mutations.into_bytes(),
            flags,
            places: data.places,
            token,
        };
        loop {
            let proxy = self.proxy(|info| &info.commit_proxies).await?;
            let call = self
                .transport
                .call(&proxy.endpoint::<Commit>(), request.clone());
            match plinth_runtime::race(call, self.retired(proxy)).await {
                Either::Left(Ok(reply)) if reply.version == version::INVALID => {
                    if let Some(conflicts) = &data.conflicts {
                        *conflicts.borrow_mut() = reply.conflicting;
                    }
                    return Err(Error::not_committed);
                }
                Either::Left(Ok(reply)) => {
                    let CommitAnswer { version, order, .. } = reply;
                    if let Some(tracing) = data.trace {
                        self.ask_for_trace(proxy, (version, order), tracing);
                    }
                    return Ok(CommitReply { version, order });
                }
                // It was certainly not sent, so it is repeated.
                Either::Left(Err(Error::connection_failed)) => {
                    self.was_missed.set(true);
                    plinth_runtime::sleep(RETRY).await;
                }
                Either::Left(Err(Error::broken_promise)) | Either::Right(()) => {
                    probe!("client_commit_unknown");
                    return Err(Error::request_maybe_delivered);
                }
                Either::Left(Err(error)) => return Err(error),
            }
        }
    }
}

impl Inner {
    /// Nobody waits for the answer.
    fn ask_for_trace(
        &self,
        proxy: Interface,
        (version, order): (Version, u16),
        tracing: CommitTracing,
    ) {
        let asked = GetCommitTrace { version, order };
        let call = self
            .transport
            .call(&proxy.endpoint::<GetCommitTrace>(), asked);
        let telling = async move {
            if let Ok(trace) = call.await {
                tracing.tell(trace);
            }
        };
        plinth_runtime::spawn("commit trace", telling).detach();
    }
}

impl Cluster for Caller {
    fn get_read_version(&self, flags: ReadVersionFlags) -> ClusterFuture<Version> {
        let asked = VersionBatcher::ask(&self.inner, flags.priority, flags.tags);
        Box::pin(async move {
            let answer = asked.await?;
            if answer.locked && !flags.lock_aware {
                return Err(Error::database_locked);
            }
            Ok(answer.version)
        })
    }

    fn get(&self, key: Key, version: Version) -> ClusterFuture<Option<Value>> {
        reads::get(self, key, version)
    }

    fn get_together(&self, reads: Vec<(usize, Key)>, version: Version) -> Vec<PointResults> {
        reads::get_together(self, reads, version)
    }

    fn get_range(&self, request: RangeRequest) -> ClusterFuture<RangeChunk> {
        let caller = self.clone();
        Box::pin(async move { reads::get_range(&caller, request).await })
    }

    fn get_key(
        &self,
        selector: KeySelector,
        keys_end: Key,
        version: Version,
    ) -> ClusterFuture<Key> {
        let caller = self.clone();
        Box::pin(async move { reads::get_key(&caller, selector, keys_end, version).await })
    }

    fn commit(&self, data: CommitData) -> ClusterFuture<CommitReply> {
        let (inner, token) = (self.inner.clone(), self.token.clone());
        Box::pin(async move { inner.commit(data, token).await })
    }

    fn watch(&self, key: Key, value: Option<Value>, version: Version) -> ClusterFuture<()> {
        let caller = self.clone();
        Box::pin(async move { reads::watch(caller, key, value, version).await })
    }

    fn outage(&self) -> Pin<Box<dyn Future<Output = Outage>>> {
        Box::pin(outages::next(self.inner.clone()))
    }

    fn describe(&self, subject: Subject) -> ClusterFuture<Option<Value>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            Ok(Some(match subject {
                Subject::ConnectionString => inner.coordinators.file().to_string().into(),
                Subject::Status => status::document(&inner).await,
            }))
        })
    }

    fn with_token(&self, token: &Token) -> Option<Rc<dyn Cluster>> {
        Some(Rc::new(Caller {
            token: token.clone(),
            ..self.clone()
        }))
    }
}
