//! The sequencer (FDB §2.3.2, §2.4.1): hands out commit versions, knows the newest committed one.
//!
//! It promises: versions grow by about 1,000,000 a second and never repeat; each comes with the one handed out
//! before, so that resolvers and log servers can follow the chain without a gap; a repeated request gets the answer
//! it got before (pitfall 4); a read version is at or above every commit that was acknowledged before it was
//! asked for (pitfall 2). It never runs more than `MAX_VERSIONS_IN_FLIGHT` ahead of what is committed, so a
//! recovery that jumps that far can never meet a version of its predecessor again.
//!
//! It also says which keys each resolver judges from which version on, so that all have about the [same](balance) to do: it alone
//! talks to every proxy between any two versions.

mod balance;

use balance::Load;
use bytes::Bytes;
use plinth_core::hash::HashMap;
use plinth_core::version::{MAX_VERSIONS_IN_FLIGHT, VERSION_MAX, VERSIONS_PER_SECOND};
use plinth_core::{Error, Uid, Version};
use plinth_protocol::transaction::{
    CommitVersion, CommittedVersion, GetCommitVersion, GetCommittedVersion, GetResolverLoad,
    Partition, RecruitSequencer, ReportCommitted,
};
use plinth_rpc::{FailureBeacon, Interface, Responder, Transport};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::knobs::knobs;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, Instant, buggify, random, trace};
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

/// What is remembered of a proxy: its last request and the answer to it.
struct LastGrant {
    request_number: u64,
    grant: CommitVersion,
}

/// The state machine.
pub struct Sequencer {
    /// Version that belongs to `origin`.
    base: Version,
    origin: Instant,
    last_handed_out: Version,
    committed: Version,
    /// As of the committed version.
    locked: bool,
    proxies: HashMap<Uid, LastGrant>,
    /// Of the resolvers, in order; the last is that of the next version.
    partitions: Vec<Partition>,
}

/// Why a version cannot be handed out now.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too far ahead of the committed version: ask again when it has grown.
    TooFarAhead,
    /// An earlier request of this proxy has not come yet.
    OutOfOrder,
    /// Answered and answered again long ago.
    Obsolete,
}

impl Sequencer {
    /// Starts after the recovery transaction, which has taken `recovery_version` already.
    pub fn new(
        now: Instant,
        recovered_to: Version,
        recovery_version: Version,
        begins: Vec<Bytes>,
    ) -> Self {
        assert!(
            recovered_to < recovery_version,
            "recovery goes forward: {recovered_to} {recovery_version}"
        );
        Sequencer {
            base: recovery_version,
            origin: now,
            last_handed_out: recovery_version,
            committed: recovered_to,
            locked: false,
            proxies: HashMap::default(),
            partitions: vec![Partition { after: 0, begins }],
        }
    }

    fn partition(&self) -> &Partition {
        self.partitions.last().expect("it was made with one")
    }

    /// From the next version on resolvers judge other keys. Every proxy is told with its next version.
    pub fn repartition(&mut self, begins: Vec<Bytes>) {
        let after = self.last_handed_out;
        if self.partition().after == after {
            return; // no version was handed out since the last one
        }
        trace!("ResolversRepartitioned", "after" => after, "begins" => format!("{begins:?}"));
        // Proxies that have not asked for so long have no batch under way.
        let oldest = after - 2 * MAX_VERSIONS_IN_FLIGHT;
        self.partitions
            .retain(|partition| partition.after >= oldest);
        self.partitions.push(Partition { after, begins });
    }

    pub fn commit_version(
        &mut self,
        now: Instant,
        request: &GetCommitVersion,
    ) -> Result<CommitVersion, Refusal> {
        if let Some(last) = self.proxies.get(&request.proxy) {
            if request.request_number == last.request_number {
                return Ok(last.grant.clone());
            }
            if request.request_number < last.request_number {
                return Err(Refusal::Obsolete);
            }
            if request.request_number > last.request_number + 1 {
                return Err(Refusal::OutOfOrder);
            }
        } else if request.request_number != 1 {
            return Err(Refusal::OutOfOrder);
        }
        let elapsed_us = now.saturating_since(self.origin).as_micros() as i64;
        let by_clock = self.base + elapsed_us * (VERSIONS_PER_SECOND / 1_000_000);
        let limit = self.committed + MAX_VERSIONS_IN_FLIGHT - 1;
        let version = by_clock.max(self.last_handed_out + 1).min(limit);
        if version <= self.last_handed_out {
            return Err(Refusal::TooFarAhead);
        }
        let grant = CommitVersion {
            version,
            prev_version: self.last_handed_out,
            partitions: self.unknown_to(request.partition),
        };
        self.last_handed_out = version;
        let last = LastGrant {
            request_number: request.request_number,
            grant: grant.clone(),
        };
        self.proxies.insert(request.proxy, last);
        Ok(grant)
    }

    fn unknown_to(&self, newest_known: Version) -> Vec<Partition> {
        let known = self.partitions.partition_point(|p| p.after <= newest_known);
        self.partitions[known..].to_vec()
    }

    /// [`Error::client_invalid_operation`]: that version was never handed out. No proxy of this epoch says so.
    pub fn report_committed(&mut self, version: Version, locked: bool) -> Result<(), Error> {
        if version > self.last_handed_out {
            return Err(Error::client_invalid_operation);
        }
        if version > self.committed {
            (self.committed, self.locked) = (version, locked);
        }
        Ok(())
    }

    /// The newest committed version, and whether the database is locked as of it.
    pub fn newest(&self) -> CommittedVersion {
        CommittedVersion {
            version: self.committed,
            locked: self.locked,
        }
    }
}

/// Requests that cannot be answered yet.
#[derive(Default)]
struct Waiting {
    requests: RefCell<Vec<(GetCommitVersion, Responder<GetCommitVersion>)>>,
    arrived: Notify,
}

/// Whether a sequencer can begin so: whoever asks for one may be anybody.
pub fn is_possible(request: &RecruitSequencer) -> bool {
    let versions = 0..=VERSION_MAX;
    versions.contains(&request.recovered_to)
        && versions.contains(&request.recovery_version)
        && request.recovered_to < request.recovery_version
        && !request.resolvers.is_empty()
}

/// The shell: registers the sequencer and returns the future that is its life.
pub fn start(transport: &Transport, request: RecruitSequencer) -> impl Future<Output = ()> + use<> {
    let now = plinth_runtime::now();
    let begins = request.resolvers.iter().map(|(begin, _)| begin.clone());
    let (recovered_to, recovery_version) = (request.recovered_to, request.recovery_version);
    let mut sequencer = Sequencer::new(now, recovered_to, recovery_version, begins.collect());
    sequencer.locked = request.locked;
    let state = Rc::new(RefCell::new(sequencer));
    let waiting: Rc<Waiting> = Rc::default();
    let beacon = FailureBeacon::new(transport, request.id);
    let grants = transport.serve::<GetCommitVersion>(request.id, {
        let (state, waiting) = (state.clone(), waiting.clone());
        move |request, responder| grant_or_wait(&state, &waiting, request, responder)
    });
    let reports = transport.serve::<ReportCommitted>(request.id, {
        let state = state.clone();
        move |request, responder| {
            let mut state = state.borrow_mut();
            responder.send(state.report_committed(request.version, request.locked));
        }
    });
    let reads = transport.serve::<GetCommittedVersion>(request.id, {
        let state = state.clone();
        move |_, responder| {
            responder.ok(state.borrow().newest());
        }
    });
    let balancing = balance_resolvers(transport.clone(), request.resolvers, state.clone());
    let gauge = Gauge::of("sequencer_waiting", &waiting, |w| w.requests.borrow().len());
    async move {
        let _serving = (beacon, grants, reports, reads, gauge);
        let _balancing = plinth_runtime::spawn("balance resolvers", balancing);
        // Requests that had to wait are rare (out of order, or far ahead): a coarse retry serves them.
        loop {
            waiting.arrived.notified().await;
            plinth_runtime::sleep(Duration::from_millis(5)).await;
            let retry = std::mem::take(&mut *waiting.requests.borrow_mut());
            for (request, responder) in retry {
                grant_or_wait(&state, &waiting, request, responder);
            }
        }
    }
}

/// Looks again and again which resolver has how much to do, and evens that out.
async fn balance_resolvers(
    transport: Transport,
    resolvers: Vec<(Bytes, Interface)>,
    sequencer: Rc<RefCell<Sequencer>>,
) {
    if resolvers.len() < 2 {
        return;
    }
    loop {
        plinth_runtime::sleep(Duration::from_millis(knobs().resolver_balance_ms)).await;
        let asked = resolvers.iter().map(|(_, resolver)| {
            transport.call(&resolver.endpoint::<GetResolverLoad>(), GetResolverLoad {})
        });
        let answers = plinth_runtime::join_all(asked.collect::<Vec<_>>()).await;
        // A connection was cut, perhaps; a resolver that has ended ends the epoch.
        let Ok(loads) = answers.into_iter().collect::<Result<Vec<_>, _>>() else {
            continue;
        };
        let loads = loads.into_iter().map(|load| Load {
            judged: load.judged,
            sample: load.sample,
        });
        let loads: Vec<Load> = loads.collect();
        let begins = sequencer.borrow().partition().begins.clone();
        let mut wanted = balance::repartition(&begins, &loads);
        if buggify!() {
            wanted = wanted.or_else(|| at_random(begins.len(), &loads));
        }
        if let Some(wanted) = wanted {
            sequencer.borrow_mut().repartition(wanted);
        }
    }
}

/// Any partition will do.
fn at_random(parts: usize, loads: &[Load]) -> Option<Vec<Bytes>> {
    let keys = loads.iter().flat_map(|load| &load.sample);
    let mut begins: Vec<Bytes> = keys.filter(|_| random::chance(0.2)).cloned().collect();
    begins.truncate(parts - 1);
    begins.resize_with(parts - 1, || vec![random::below(256) as u8].into());
    begins.push(Bytes::new());
    begins.sort_unstable();
    begins.dedup();
    (begins.len() == parts).then_some(begins)
}

fn grant_or_wait(
    state: &RefCell<Sequencer>,
    waiting: &Waiting,
    request: GetCommitVersion,
    responder: Responder<GetCommitVersion>,
) {
    let answer = state
        .borrow_mut()
        .commit_version(plinth_runtime::now(), &request);
    match answer {
        Ok(grant) => responder.ok(grant),
        Err(Refusal::Obsolete) => responder.fail(plinth_core::Error::operation_obsolete),
        Err(Refusal::TooFarAhead | Refusal::OutOfOrder) => {
            waiting.requests.borrow_mut().push((request, responder));
            waiting.arrived.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(s: &mut Sequencer, at_us: u64, proxy: u128, n: u64) -> Result<CommitVersion, Refusal> {
        s.commit_version(
            Instant(at_us * 1000),
            &GetCommitVersion {
                proxy: Uid(proxy),
                request_number: n,
                partition: 0,
            },
        )
    }

    #[test]
    fn a_version_that_was_never_handed_out_cannot_be_committed_whoever_says_so() {
        let mut s = Sequencer::new(Instant(0), 0, 1000, vec![]);
        let refused = s.report_committed(Version::MAX, true);
        assert_eq!(refused, Err(Error::client_invalid_operation));
        assert_eq!(s.newest().version, 0);
    }

    #[test]
    fn versions_follow_the_clock_and_chain_without_a_gap() {
        let mut s = Sequencer::new(Instant(0), 0, 1000, vec![]);
        s.report_committed(1000, false).expect("handed out");
        let a = ask(&mut s, 10, 1, 1).expect("granted");
        let b = ask(&mut s, 10, 2, 1).expect("granted");
        let c = ask(&mut s, 500, 1, 2).expect("granted");
        assert_eq!((a.prev_version, a.version), (1000, 1010));
        assert_eq!((b.prev_version, b.version), (1010, 1011));
        assert_eq!((c.prev_version, c.version), (1011, 1500));
    }

    #[test]
    fn a_repeated_request_gets_the_same_version() {
        let mut s = Sequencer::new(Instant(0), 0, 1000, vec![]);
        s.report_committed(1000, false).expect("handed out");
        let first = ask(&mut s, 10, 1, 1);
        assert_eq!(ask(&mut s, 99, 1, 1), first);
        assert_eq!(ask(&mut s, 99, 1, 3), Err(Refusal::OutOfOrder));
        assert!(ask(&mut s, 99, 1, 2).is_ok());
        assert_eq!(ask(&mut s, 99, 1, 1), Err(Refusal::Obsolete));
    }

    #[test]
    fn every_proxy_hears_of_a_partition_with_its_first_version_above_it() {
        let mut s = Sequencer::new(Instant(0), 0, 1000, vec![]);
        s.report_committed(1000, false).expect("handed out");
        let before = ask(&mut s, 10, 1, 1).expect("granted");
        assert_eq!(before.partitions, []);
        s.repartition(vec![Bytes::new(), Bytes::from("m")]);
        s.repartition(vec![Bytes::new(), Bytes::from("n")]); // too soon
        for proxy in [1, 2] {
            let grant = ask(&mut s, 20, proxy, if proxy == 1 { 2 } else { 1 });
            let partitions = grant.expect("granted").partitions;
            assert_eq!(partitions.len(), 1);
            assert_eq!(partitions[0].after, before.version);
            assert_eq!(partitions[0].begins[1], "m");
        }
        let known = GetCommitVersion {
            proxy: Uid(1),
            request_number: 3,
            partition: before.version,
        };
        let grant = s.commit_version(Instant(30_000), &known).expect("granted");
        assert_eq!(grant.partitions, []);
    }

    #[test]
    fn nothing_is_handed_out_before_the_recovery_transaction_and_never_too_far_ahead_of_it() {
        let mut s = Sequencer::new(Instant(0), 7, 7 + MAX_VERSIONS_IN_FLIGHT, vec![]);
        assert_eq!(ask(&mut s, 1, 1, 1), Err(Refusal::TooFarAhead));
        s.report_committed(7 + MAX_VERSIONS_IN_FLIGHT, false)
            .expect("handed out");
        let far = ask(&mut s, 1_000_000_000, 1, 1).expect("granted up to the limit");
        assert_eq!(far.version, 7 + 2 * MAX_VERSIONS_IN_FLIGHT - 1);
        assert_eq!(ask(&mut s, 1_000_000_001, 1, 2), Err(Refusal::TooFarAhead));
        s.report_committed(far.version, false).expect("handed out");
        assert!(ask(&mut s, 1_000_000_002, 1, 2).is_ok());
    }
}
