//! The GRV proxy (FDB §2.4.1): read versions, batched.
//!
//! ```text
//! GetReadVersion ─► admission ─► one batch ─┬─► sequencer: GetCommittedVersion ───────┬─► ReadVersion
//!                       ▲                   └─► one whole log set: ConfirmEpoch ──────┘   to every client
//! ratekeeper: GetRate ──┘
//! ```
//!
//! It promises: a read version is at or above every commit acknowledged before the request came. For that it asks the
//! sequencer, and proves that this epoch had not ended when it asked (pitfall 1): a recovery must seal a member of
//! every log set, so one whole set that is not sealed proves that no recovery has completed.
//!
//! One batch is under way at a time; requests that arrive meanwhile form the next. An idle proxy answers a single
//! request at once. A busy proxy asks once for a thousand. The [ratekeeper](admission) limits how many transactions
//! are admitted. The state machine is in `grv_proxy/admission.rs`; this file is its shell.

mod admission;
mod bucket;
mod throttle;

use crate::knobs::GRV_QUEUE_MAX;
use admission::{Admission, Refused};
use plinth_core::transaction_tag::TAGS_MAX;
use plinth_core::{Error, Result, Tag, Version};
use plinth_identity::Identity;
use plinth_protocol::control::ClusterInfo;
use plinth_protocol::knobs::RATE_INTERVAL_MS;
use plinth_protocol::log::{ConfirmEpoch, LogGeneration};
use plinth_protocol::rate::GetRate;
use plinth_protocol::tally;
use plinth_protocol::transaction::{
    CommittedVersion, GetCommittedVersion, GetReadVersion, PRIORITY_BATCH, PRIORITY_DEFAULT,
    ReadVersion, RecruitGrvProxy,
};
use plinth_rpc::{Endpoint, FailureBeacon, Responder, Transport, Watching};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::sync::{QueueReceiver, Watch};
use plinth_runtime::tally::Tally;
use plinth_runtime::{Boxed, Duration, Either, buggify, never, probe};
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use throttle::Asked;

/// Transactions that one request stands for, at most. The client asks again for the others.
const ASKED_AT_ONCE_MAX: u32 = 10_000;

type Waiting = (GetReadVersion, Responder<GetReadVersion>);

/// Registers the proxy and returns the future that runs it. The future ends when the epoch has ended. `info` describes
/// the cluster and names the ratekeeper.
pub fn start(
    transport: &Transport,
    request: RecruitGrvProxy,
    info: Watch<Option<ClusterInfo>>,
) -> Boxed<'static, ()> {
    let transport = transport.clone();
    let beacon = FailureBeacon::new(&transport, request.id);
    let (registration, requests) = transport.serve_queue::<GetReadVersion>(request.id);
    let proxy = Proxy {
        admission: Rc::new(RefCell::new(Admission::new(plinth_runtime::now()))),
        transport,
        started: [
            tally::STARTED_IMMEDIATE,
            tally::STARTED_DEFAULT,
            tally::STARTED_BATCH,
        ]
        .map(|name| Tally::of(request.id, name)),
        rejected: Tally::of(request.id, tally::REJECTED),
        role: request,
    };
    // Detects soon that one of them cannot be reached from here, even if others can reach it.
    let logs = proxy.role.log_system.current().into_iter();
    let needed = logs.flat_map(|generation| &generation.logs);
    let needed = needed.chain([&proxy.role.sequencer]);
    let watching: Vec<Watching> = needed
        .map(|role| proxy.transport.watch(role.address))
        .collect();
    let gauges = [
        Gauge::of("grv_waiting", &proxy.admission, |a| a.borrow().waiting()),
        Gauge::of("grv_tags", &proxy.admission, |a| a.borrow().tags()),
    ];
    Box::pin(async move {
        let _serving = (beacon, registration, watching, gauges);
        let answering = proxy.answer_batches(requests);
        let error = match plinth_runtime::race(answering, proxy.follow_rate(info)).await {
            Either::Left(error) => error,
            Either::Right(never) => match never {},
        };
        plinth_runtime::trace!("GrvProxyEnded", "epoch" => proxy.role.epoch, "reason" => error);
    })
}

struct Proxy {
    transport: Transport,
    role: RecruitGrvProxy,
    admission: Rc<RefCell<Admission<Responder<GetReadVersion>>>>,
    /// Transactions by priority.
    started: [Tally; 3],
    rejected: Tally,
}

impl Proxy {
    async fn answer_batches(&self, mut requests: QueueReceiver<Waiting>) -> Error {
        let committed = self.role.sequencer.endpoint::<GetCommittedVersion>();
        let Some(generation) = self.role.log_system.current() else {
            return Error::internal_error;
        };
        let epoch = self.role.epoch;
        if never!(generation.copies() == 0, "GrvProxyWithoutLogs", "epoch" => epoch) {
            return Error::internal_error; // nobody could prove that the epoch lives
        }
        let mut round = 0u32;
        let mut newest = Version::MIN;
        loop {
            while let Some(waiting) = requests.try_recv() {
                self.arrive(waiting);
            }
            let batch = self.admission.borrow_mut().take(plinth_runtime::now());
            if batch.is_empty() {
                match self.next(&mut requests).await {
                    Ok(()) => continue,
                    Err(error) => return error,
                }
            }
            if buggify!() {
                plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::below(50)))
                    .await;
            }
            round = round.wrapping_add(1);
            let asked = read_version(&self.transport, &committed, generation, epoch, round);
            let CommittedVersion { version, locked } = match asked.await {
                Ok(committed) => committed,
                Err(error) => return error,
            };
            if never!(version < newest, "ReadVersionSinks", "version" => version, "after" => newest)
            {
                return Error::internal_error;
            }
            newest = version;
            for (responder, priority, count) in batch {
                self.started[priority as usize].add(u64::from(count));
                responder.ok(ReadVersion {
                    version,
                    locked,
                    count,
                });
            }
        }
    }

    /// Returns when there may be a request to admit.
    async fn next(&self, requests: &mut QueueReceiver<Waiting>) -> Result<()> {
        let wait = self.admission.borrow().wait();
        let arrived = match wait {
            None => requests.recv().await.ok_or(Error::operation_cancelled)?,
            Some(wait) => {
                probe!("grv_waits_for_budget");
                // The rate may change meanwhile.
                let wait = wait.clamp(SHORTEST_WAIT, rate_interval());
                match plinth_runtime::timeout(wait, requests.recv()).await {
                    None => return Ok(()),
                    Some(arrived) => arrived.ok_or(Error::operation_cancelled)?,
                }
            }
        };
        self.arrive(arrived);
        Ok(())
    }

    fn arrive(&self, (request, responder): Waiting) {
        if request.tags.len() > TAGS_MAX {
            return responder.fail(Error::too_many_tags);
        }
        let asked = Asked {
            // One request does not take everything that others could have.
            count: request.count.min(ASKED_AT_ONCE_MAX),
            priority: match responder.caller() >= Identity::Operator {
                true => request.priority,
                // The priority of the cluster's own work passes every limit.
                false => request.priority.max(PRIORITY_DEFAULT),
            },
            tags: request.tags,
            item: responder,
        };
        let waiting_max = if buggify!(0.02) {
            0
        } else {
            GRV_QUEUE_MAX.get()
        };
        let pushed = self.admission.borrow_mut().push(asked, waiting_max);
        let Err((asked, why)) = pushed else {
            return;
        };
        probe!("grv_queue_full");
        self.rejected.add(1);
        asked.item.fail(match why {
            Refused::Tag => Error::tag_throttled,
            Refused::Queue if asked.priority >= PRIORITY_BATCH => {
                Error::batch_transaction_throttled
            }
            Refused::Queue => Error::grv_proxy_memory_limit_exceeded,
        });
    }

    /// Reports admitted transactions to the ratekeeper and adopts the rate that it answers. While there is no
    /// ratekeeper, the last rate stays in force: the absence of a ratekeeper must not stop the database.
    async fn follow_rate(&self, info: Watch<Option<ClusterInfo>>) -> Infallible {
        loop {
            plinth_runtime::sleep(rate_interval()).await;
            let Some(ratekeeper) = info.with(|info| info.as_ref().and_then(|i| i.ratekeeper))
            else {
                continue;
            };
            let tags = self.admission.borrow_mut().tell_tag_counts();
            let request = GetRate {
                proxy: self.role.id,
                admitted: self.admission.borrow().admitted(),
                tags,
            };
            let endpoint = ratekeeper.endpoint::<GetRate>();
            let call = self.transport.call(&endpoint, request);
            if let Some(Ok(rate)) = plinth_runtime::timeout(ANSWER_LIMIT, call).await {
                let now = plinth_runtime::now();
                self.admission.borrow_mut().set_rate(now, &rate);
            }
        }
    }
}

/// Timers are not finer than this.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

fn rate_interval() -> Duration {
    Duration::from_millis(RATE_INTERVAL_MS.get())
}

/// The sequencer's newest committed version, with proof that the epoch lived when it was asked.
async fn read_version(
    transport: &Transport,
    committed: &Endpoint,
    generation: &LogGeneration,
    epoch: u64,
    round: u32,
) -> Result<CommittedVersion> {
    let asked = transport.call(committed, GetCommittedVersion {});
    // A different set each time spreads the load over all log servers.
    let set = generation.log_set(Tag(
        round.wrapping_mul(generation.tags_a_set.max(1)) & 0xffff
    ));
    let proofs: Vec<_> = set
        .map(|place| {
            let endpoint = generation.logs[place].endpoint::<ConfirmEpoch>();
            transport.call(&endpoint, ConfirmEpoch { epoch })
        })
        .collect();
    assert!(
        proofs.len() == generation.copies() && !proofs.is_empty(),
        "{} of {} log servers are a whole set",
        proofs.len(),
        generation.copies()
    );
    let newest = asked.await?;
    for proof in plinth_runtime::join_all(proofs).await {
        proof?;
    }
    Ok(newest)
}
