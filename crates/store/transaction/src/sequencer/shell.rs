//! The shell of the sequencer: registers its requests, keeps those that cannot be answered yet, and asks the resolvers
//! for their load.

use super::balance::{self, Load};
use super::{Refusal, Sequencer};
use crate::knobs::RESOLVER_BALANCE_MS;
use bytes::Bytes;
use plinth_core::Error;
use plinth_protocol::transaction::{
    GetCommitVersion, GetCommittedVersion, GetResolverLoad, RecruitSequencer, ReportCommitted,
};
use plinth_rpc::{FailureBeacon, Interface, Responder, Transport};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Boxed, Duration, buggify, random};
use std::cell::RefCell;
use std::rc::Rc;

/// Requests that cannot be answered yet.
#[derive(Default)]
struct Waiting {
    requests: RefCell<Vec<(GetCommitVersion, Responder<GetCommitVersion>)>>,
    arrived: Notify,
}

/// Registers the sequencer and returns the future that runs it.
pub fn start(transport: &Transport, request: RecruitSequencer) -> Boxed<'static, ()> {
    let now = plinth_runtime::now();
    let begins = request.resolvers.iter().map(|(begin, _)| begin.clone());
    let (recovered_to, recovery_version) = (request.recovered_to, request.recovery_version);
    let (begins, proxies) = (begins.collect(), &request.proxies);
    let mut sequencer = Sequencer::new(now, recovered_to, recovery_version, begins, proxies);
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
    Box::pin(async move {
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
    })
}

/// Asks the resolvers for their load again and again, and evens it out.
async fn balance_resolvers(
    transport: Transport,
    resolvers: Vec<(Bytes, Interface)>,
    sequencer: Rc<RefCell<Sequencer>>,
) {
    if resolvers.len() < 2 {
        return;
    }
    loop {
        plinth_runtime::sleep(Duration::from_millis(RESOLVER_BALANCE_MS.get())).await;
        let asked = resolvers.iter().map(|(_, resolver)| {
            transport.call(&resolver.endpoint::<GetResolverLoad>(), GetResolverLoad {})
        });
        let answers = plinth_runtime::join_all(asked.collect::<Vec<_>>()).await;
        // An error may be a cut connection. A resolver that has ended ends the epoch.
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

/// A random partition. Any partition is correct.
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
        Err(Refusal::Obsolete) => responder.fail(Error::operation_obsolete),
        Err(Refusal::Unknown) => responder.fail(Error::client_invalid_operation),
        Err(Refusal::TooFarAhead | Refusal::OutOfOrder) => {
            waiting.requests.borrow_mut().push((request, responder));
            waiting.arrived.notify_one();
        }
    }
}
