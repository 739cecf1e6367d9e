//! The GRV proxy (FDB §2.4.1): read versions, batched.
//!
//! It promises: a read version is at or above every commit acknowledged before the request came. For that it
//! asks the sequencer, and makes sure that this epoch had not ended when it asked (pitfall 1): a recovery
//! must seal a member of every log set, so one whole set that is not sealed proves that none has completed.
//!
//! One batch is under way at a time; what arrives meanwhile forms the next. An idle system answers a
//! single request at once, a busy one a thousand with one question.

use plinth_core::{Error, Result, Tag};
use plinth_protocol::log::{ConfirmEpoch, LogGeneration};
use plinth_protocol::transaction::{
    GetCommittedVersion, GetReadVersion, PRIORITY_BATCH, ReadVersion, RecruitGrvProxy,
};
use plinth_rpc::{Endpoint, FailureBeacon, Responder, Transport};
use plinth_runtime::knobs::knobs;
use plinth_runtime::sync::QueueReceiver;
use plinth_runtime::{Duration, buggify, probe};
use std::future::Future;

type Waiting = (GetReadVersion, Responder<GetReadVersion>);

/// Registers the proxy and returns the future that is its life. It ends when the epoch has.
pub fn start(transport: &Transport, request: RecruitGrvProxy) -> impl Future<Output = ()> + use<> {
    let transport = transport.clone();
    let beacon = FailureBeacon::new(&transport, request.id);
    let (registration, requests) = transport.serve_queue::<GetReadVersion>(request.id);
    async move {
        let _serving = (beacon, registration);
        let error = answer_batches(&transport, &request, requests).await;
        plinth_runtime::trace!("GrvProxyEnded", "epoch" => request.epoch, "reason" => error);
    }
}

async fn answer_batches(
    transport: &Transport,
    role: &RecruitGrvProxy,
    mut requests: QueueReceiver<Waiting>,
) -> Error {
    let committed = role.sequencer.endpoint::<GetCommittedVersion>();
    let Some(generation) = role.log_system.current() else {
        return Error::internal_error;
    };
    let mut round = 0u32;
    while let Some(first) = requests.recv().await {
        let mut batch = Vec::new();
        admit(&mut batch, first);
        while let Some(waiting) = requests.try_recv() {
            admit(&mut batch, waiting);
        }
        if batch.is_empty() {
            continue;
        }
        if buggify!() {
            plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::below(50))).await;
        }
        round = round.wrapping_add(1);
        let version = match read_version(transport, &committed, generation, role.epoch, round).await
        {
            Ok(version) => version,
            Err(error) => return error,
        };
        for (_, responder) in batch {
            responder.ok(version.clone());
        }
    }
    Error::operation_cancelled
}

fn admit(batch: &mut Vec<Waiting>, waiting: Waiting) {
    if batch.len() < knobs().grv_queue_max && !buggify!(0.02) {
        batch.push(waiting);
        return;
    }
    probe!("grv_queue_full");
    let batch_priority = waiting.0.priority >= PRIORITY_BATCH;
    waiting.1.fail(if batch_priority {
        Error::batch_transaction_throttled
    } else {
        Error::proxy_memory_limit_exceeded
    });
}

/// The sequencer's newest committed version, with proof that the epoch lived when it was asked.
async fn read_version(
    transport: &Transport,
    committed: &Endpoint,
    generation: &LogGeneration,
    epoch: u64,
    round: u32,
) -> Result<ReadVersion> {
    let asked = transport.call(committed, GetCommittedVersion {});
    // A different set each time, so that no log server bears the load of all.
    let set = generation.log_set(Tag(
        round.wrapping_mul(generation.tags_a_set.max(1)) & 0xffff
    ));
    let proofs: Vec<_> = set
        .map(|place| {
            let endpoint = generation.logs[place].endpoint::<ConfirmEpoch>();
            transport.call(&endpoint, ConfirmEpoch { epoch })
        })
        .collect();
    let newest = asked.await?;
    for proof in plinth_runtime::join_all(proofs).await {
        proof?;
    }
    Ok(ReadVersion {
        version: newest.version,
        locked: newest.locked,
    })
}
