//! The ratekeeper (FDB §2.3.1): protects the database from overload.
//!
//! ```text
//! storage servers, log servers ─┐
//! commit proxies ───────────────┼─► signals ─► limit ─► GetRate: one share for each GRV proxy
//! disks of the workers ─────────┘                ▲            │
//!                                                └─ admitted ─┘
//! ```
//!
//! It promises: every GRV proxy gets the same share of the limit; the limit never falls below ten transactions a
//! second; a server that has not answered for two seconds does not count.
//!
//! It asks every process with a queue (storage servers, log servers, commit proxies, disks), computes how many
//! transactions may begin ([`limit`]), and the GRV proxies admit that many. Its failure loses nothing: proxies keep
//! their last rate, and the controller recruits another ratekeeper, which learns everything by asking.

pub mod limit;
mod meter;
mod signals;
pub mod tags;

use limit::Limits;
use meter::{History, Meter};
use plinth_client::Database;
use plinth_core::transaction_tag::TransactionTag;
use plinth_core::{Error, Uid};
use plinth_protocol::control::{ClusterInfo, GetWorkers, RegisterWorker};
use plinth_protocol::knobs::RATE_INTERVAL_MS;
use plinth_protocol::rate::{
    GetRate, GetRateStatus, Rate, RateStatus, RecruitRatekeeper, TagCount, TagRate,
};
use plinth_rpc::{FailureBeacon, Interface, Registration, Request, Transport};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, Either, Instant, TaskGroup, probe, trace};
use signals::{Reason, Watched};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::rc::{Rc, Weak};
use tags::{Found, Manual};

/// An older answer is ignored: the queue of a dead server does not matter.
const STALE: Duration = Duration::from_secs(2);
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// At or below this pressure, the limit is not reported as limiting, and no tag is throttled.
const LIMITING: f64 = 0.9;
/// The list of workers, and the throttles that operators have set, are read this often.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// Limit of tags of one proxy that are considered.
const TAGS_MAX: usize = 1000;

/// Transactions that a GRV proxy has admitted.
#[derive(Default)]
struct Admitted {
    all: Meter,
    tags: BTreeMap<TransactionTag, Meter>,
}

impl Admitted {
    fn read(&mut self, now: Instant, request: &GetRate) {
        self.all.read(now, request.admitted as f64);
        for TagCount { tag, admitted } in request.tags.iter().take(TAGS_MAX) {
            if self.tags.len() < TAGS_MAX || self.tags.contains_key(tag) {
                let meter = self.tags.entry(*tag).or_default();
                meter.read(now, *admitted as f64);
            }
        }
    }
}

pub(crate) struct Ratekeeper {
    transport: Transport,
    role: RecruitRatekeeper,
    info: Watch<Option<ClusterInfo>>,
    workers: RefCell<Vec<RegisterWorker>>,
    watched: RefCell<BTreeMap<Uid, Watched>>,
    committed: RefCell<History>,
    proxies: RefCell<BTreeMap<Uid, Admitted>>,
    limits: Cell<Limits>,
    limiting: Cell<Option<(Reason, Uid)>>,
    pressure: Cell<f64>,
    wanted: RefCell<Wanted>,
    found: RefCell<Found>,
    /// Weak: the tasks hold the ratekeeper, and end with it.
    tasks: Weak<TaskGroup>,
}

/// What operators have said about tags.
#[derive(Default)]
struct Wanted {
    throttles: Vec<Manual>,
    /// Whether the ratekeeper may throttle tags by itself.
    may_find: bool,
    /// When it was read.
    read: Option<Instant>,
}

/// Registers the ratekeeper and returns the future that runs it.
pub fn start(
    transport: &Transport,
    request: RecruitRatekeeper,
    info: Watch<Option<ClusterInfo>>,
    database: Database,
) -> impl Future<Output = ()> + use<> {
    let beacon = FailureBeacon::new(transport, request.id);
    let tasks = Rc::new(TaskGroup::new());
    let ratekeeper = Rc::new(Ratekeeper {
        transport: transport.clone(),
        role: request,
        info,
        workers: RefCell::default(),
        watched: RefCell::default(),
        committed: RefCell::default(),
        proxies: RefCell::default(),
        limits: Cell::default(),
        limiting: Cell::new(None),
        pressure: Cell::new(0.0),
        wanted: RefCell::default(),
        found: RefCell::default(),
        tasks: Rc::downgrade(&tasks),
    });
    let gauges = [
        Gauge::of("ratekeeper_servers", &ratekeeper, |r| {
            r.watched.borrow().len()
        }),
        Gauge::of("ratekeeper_proxies", &ratekeeper, |r| {
            let proxies = r.proxies.borrow();
            proxies.values().map(|proxy| 1 + proxy.tags.len()).sum()
        }),
    ];
    let serving = (ratekeeper.clone().serve(), gauges);
    async move {
        let _ended_with_this = (beacon, tasks, serving);
        let looking = plinth_runtime::race(ratekeeper.keep_list(), ratekeeper.look());
        match plinth_runtime::race(looking, ratekeeper.read_tags(&database)).await {
            Either::Left(Either::Left(never) | Either::Right(never)) | Either::Right(never) => {
                match never {}
            }
        }
    }
}

impl Ratekeeper {
    fn serve(self: Rc<Self>) -> [Registration; 2] {
        let (id, transport) = (self.role.id, self.transport.clone());
        let status = self.clone();
        [
            transport.serve::<GetRate>(id, move |request, responder| {
                responder.ok(self.rate_of(&request));
            }),
            transport.serve::<GetRateStatus>(id, move |_, responder| {
                responder.ok(status.status());
            }),
        ]
    }

    /// The rate of one proxy. Every proxy gets the same share, because clients ask any of them.
    fn rate_of(&self, request: &GetRate) -> Rate {
        let now = plinth_runtime::now();
        if self.is_proxy(request.proxy) {
            self.proxies
                .borrow_mut()
                .entry(request.proxy)
                .or_default()
                .read(now, request);
        }
        let count = self.info.with(|info| {
            let info = info.as_ref();
            info.map_or(1, |info| info.client.grv_proxies.len().max(1))
        });
        let Limits { default, batch } = self.limits.get();
        Rate {
            default: default / count as f64,
            batch: batch / count as f64,
            tags: self.tag_rates(count as f64),
        }
    }

    /// One rate for each tag and priority: the lowest that is set.
    fn tag_rates(&self, proxies: f64) -> Vec<TagRate> {
        let wanted = self.wanted.borrow();
        let passed = wanted.read.map_or(0.0, |read| read.elapsed().as_secs_f64());
        let manual = wanted
            .throttles
            .iter()
            .filter(|throttle| throttle.seconds > passed);
        let manual = manual.map(|throttle| TagRate {
            tag: throttle.tag,
            priority: throttle.priority,
            rate: throttle.rate,
        });
        let mut rates: Vec<TagRate> = manual.chain(self.found.borrow().rates()).collect();
        rates.sort_by(|a, b| {
            let key = |rate: &TagRate| (rate.tag, rate.priority);
            key(a).cmp(&key(b)).then(a.rate.total_cmp(&b.rate))
        });
        rates.dedup_by_key(|rate| (rate.tag, rate.priority));
        rates.iter_mut().for_each(|rate| rate.rate /= proxies);
        rates
    }

    /// True if the proxy belongs to the epoch, as far as is known. No other proxy admits transactions.
    fn is_proxy(&self, id: Uid) -> bool {
        let is_it = |proxy: &Interface| proxy.id == id;
        self.info.with(|info| {
            let proxies = info.iter().flat_map(|info| &info.client.grv_proxies);
            proxies.copied().any(|proxy| is_it(&proxy))
        })
    }

    fn admitted(&self) -> f64 {
        self.proxies.borrow().values().map(|p| p.all.rate()).sum()
    }

    fn admitted_by_tag(&self) -> BTreeMap<TransactionTag, f64> {
        let mut sums = BTreeMap::new();
        for proxy in self.proxies.borrow().values() {
            for (tag, meter) in &proxy.tags {
                *sums.entry(*tag).or_default() += meter.rate();
            }
        }
        sums
    }

    fn status(&self) -> RateStatus {
        let Limits { default, batch } = self.limits.get();
        let (reason, server) = match self.limiting.get() {
            Some((reason, server)) => (reason.name(), server),
            None => ("workload", Uid(0)),
        };
        RateStatus {
            default,
            batch,
            admitted: self.admitted(),
            pressure: self.pressure.get(),
            reason: reason.into(),
            server,
            manual_tags: self.wanted.borrow().throttles.len() as u32,
            auto_tags: self.found.borrow().rates(),
        }
    }

    /// Keeps the list of processes and their roles current.
    async fn keep_list(&self) -> Infallible {
        loop {
            let endpoint = self.role.controller.endpoint::<GetWorkers>();
            let call = self.transport.call(&endpoint, GetWorkers {});
            if let Some(Ok(list)) = plinth_runtime::timeout(ANSWER_LIMIT, call).await {
                self.workers.replace(list.workers);
            }
            plinth_runtime::sleep(LIST_INTERVAL).await;
        }
    }

    async fn look(self: &Rc<Self>) -> Infallible {
        loop {
            plinth_runtime::sleep(Duration::from_millis(RATE_INTERVAL_MS.get())).await;
            self.ask_everybody();
            self.forget_the_gone();
            let signals = self.signals();
            let worst = signals.iter().map(|signal| signal.pressure);
            self.pressure.set(worst.fold(0.0, f64::max));
            let mut limits = self.limits.get();
            let limiting = limits.step(self.admitted(), &signals);
            self.limits.set(limits);
            let limiting = limiting.filter(|_| self.pressure.get() > LIMITING);
            self.look_at_tags(limiting.is_some());
            self.tell(limiting);
        }
    }

    fn look_at_tags(&self, is_limited: bool) {
        let mut found = self.found.borrow_mut();
        if !self.wanted.borrow().may_find {
            return found.clear();
        }
        let (now, tags) = (plinth_runtime::now(), self.admitted_by_tag());
        found.look(now, is_limited, self.admitted(), &tags);
    }

    /// Keeps the throttles that operators have set current.
    async fn read_tags(&self, database: &Database) -> Infallible {
        loop {
            let read = plinth_runtime::timeout(ANSWER_LIMIT, tags::read(database));
            if let Some(Ok((throttles, may_find))) = read.await {
                let read = Some(plinth_runtime::now());
                self.wanted.replace(Wanted {
                    throttles,
                    may_find,
                    read,
                });
            }
            plinth_runtime::sleep(LIST_INTERVAL).await;
        }
    }

    fn tell(&self, limiting: Option<(Reason, Uid)>) {
        let before = self.limiting.replace(limiting);
        if before.map(|(reason, _)| reason) == limiting.map(|(reason, _)| reason) {
            return;
        }
        match limiting {
            Some((reason, server)) => {
                probe!("ratekeeper_limits");
                trace!("Limited", "reason" => reason.name(), "server" => server,
                    "rate" => self.limits.get().default, "pressure" => self.pressure.get());
            }
            None => trace!("NotLimited"),
        }
    }

    fn forget_the_gone(&self) {
        let now = plinth_runtime::now();
        let is_recent = |at: Option<Instant>| at.is_some_and(|at| now.saturating_since(at) < STALE);
        let mut proxies = self.proxies.borrow_mut();
        proxies.retain(|_, proxy| is_recent(proxy.all.last()));
        for proxy in proxies.values_mut() {
            proxy.tags.retain(|_, meter| is_recent(meter.last()));
        }
        let mut watched = self.watched.borrow_mut();
        watched.retain(|_, server| server.is_asked() || is_recent(server.heard()));
    }

    /// Asks one server, unless an answer of it is outstanding, and passes on its answer.
    fn ask<R: Request + 'static>(
        self: &Rc<Self>,
        server: Interface,
        name: Uid,
        request: R,
        take: impl FnOnce(&mut Watched, Instant, R::Reply) + 'static,
    ) {
        if !self.watched.borrow_mut().entry(name).or_default().ask() {
            return;
        }
        let Some(tasks) = self.tasks.upgrade() else {
            return;
        };
        let ratekeeper = self.clone();
        tasks.spawn("look", async move {
            let call = ratekeeper.transport.call(&server.endpoint::<R>(), request);
            let answer = plinth_runtime::timeout(ANSWER_LIMIT, call).await;
            let answer = answer.unwrap_or(Err(Error::timed_out));
            let mut watched = ratekeeper.watched.borrow_mut();
            let Some(known) = watched.get_mut(&name) else {
                return;
            };
            known.answered();
            if let Ok(reply) = answer {
                take(known, plinth_runtime::now(), reply);
            }
        });
    }
}
