//! Asking a worker to make a role.

use crate::context::Context;
use plinth_core::{Error, Result, Uid};
use plinth_rpc::{Call, Interface, Request, Transport};
use plinth_runtime::{Duration, buggify, probe, random, trace};

/// A worker that has not made a role within this time is taken for dead, unless it shows progress.
pub(crate) const RECRUIT_LIMIT: Duration = Duration::from_secs(10);
/// A simulated network delivers some requests again, up to this much later.
const REPEATED_WITHIN_MS: u64 = 20_000;

/// The identity of a role that is about to be made.
pub(crate) fn new_id() -> Uid {
    Uid(random::uid())
}

/// Sends the request.
pub(crate) fn ask<R: Request<Reply = ()> + Clone>(
    transport: &Transport,
    worker: &Interface,
    request: R,
) -> Call<R> {
    let endpoint = worker.endpoint::<R>();
    if buggify!() {
        let (transport, endpoint, request) = (transport.clone(), endpoint, request.clone());
        plinth_runtime::spawn("repeated recruitment", async move {
            plinth_runtime::sleep(Duration::from_millis(random::below(REPEATED_WITHIN_MS))).await;
            probe!("recruitment_repeated");
            let _ = limited(transport.call(&endpoint, request)).await; // the result does not matter
        })
        .detach();
    }
    transport.call(&endpoint, request)
}

/// Recruits a role during a recovery.
pub(crate) async fn recruit<R: Request<Reply = ()> + Clone>(
    context: &Context,
    worker: &Interface,
    request: R,
) -> Result<()> {
    let made = limited(ask(&context.transport, worker, request)).await;
    if let Err(error) = made {
        outcome::<R>(context, worker, error);
    }
    made
}

/// Notes why a worker has not made a role.
pub(crate) fn outcome<R: Request>(context: &Context, worker: &Interface, error: Error) {
    trace!("RecruitmentFailed", "role" => R::NAME, "worker" => worker.address, "error" => error);
    if error == Error::disk_full {
        context.full_disks.report(worker.address);
    }
}

pub(crate) async fn limited<R: Request>(call: Call<R>) -> Result<R::Reply> {
    plinth_runtime::timeout(RECRUIT_LIMIT, call)
        .await
        .unwrap_or(Err(Error::recruitment_failed))
}
