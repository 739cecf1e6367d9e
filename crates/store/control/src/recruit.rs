//! Asking a worker to make a role.

use crate::context::Context;
use plinth_core::{Error, Result, Uid};
use plinth_protocol::log::{GetCopyProgress, RecruitLog};
use plinth_rpc::{Call, Interface, Request, Transport};
use plinth_runtime::{Duration, Either, buggify, probe, random, trace};

/// A worker that has not made a role within this time is taken for dead, unless it shows progress.
const RECRUIT_LIMIT: Duration = Duration::from_secs(10);
/// How often a log server that is being made is asked for its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
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
    outcome::<R>(context, worker, made)
}

/// Recruits a log server. It may have much to copy, so it is waited for as long as it makes progress.
pub(crate) async fn recruit_log(
    context: &Context,
    worker: &Interface,
    request: RecruitLog,
) -> Result<()> {
    let log = Interface::new(worker.address, request.id);
    let to = request.generation.recovered_to;
    let mut making = std::pin::pin!(ask(&context.transport, worker, request));
    let (mut pieces, mut since) = (0, plinth_runtime::now());
    let made = loop {
        let patience = plinth_runtime::sleep(PROGRESS_INTERVAL);
        match plinth_runtime::race(making.as_mut(), patience).await {
            Either::Left(made) => break made,
            Either::Right(()) => {}
        }
        let asked = context
            .transport
            .call(&log.endpoint::<GetCopyProgress>(), GetCopyProgress {});
        if let Some(Ok(progress)) = plinth_runtime::timeout(PROGRESS_INTERVAL, asked).await
            && progress.pieces > pieces
        {
            probe!("recovery_waits_for_copier");
            (pieces, since) = (progress.pieces, plinth_runtime::now());
            context.phase.wait_for(format!(
                "log server {} at {}, which has copied the end of the old log up to version {} of {to}",
                log.id, log.address, progress.to
            ));
        }
        if since.elapsed() >= RECRUIT_LIMIT {
            break Err(Error::recruitment_failed);
        }
    };
    outcome::<RecruitLog>(context, worker, made)
}

fn outcome<R: Request>(context: &Context, worker: &Interface, made: Result<()>) -> Result<()> {
    if let Err(error) = made {
        trace!("RecruitmentFailed", "role" => R::NAME, "worker" => worker.address, "error" => error);
        if error == Error::disk_full {
            context.full_disks.report(worker.address);
        }
    }
    made
}

pub(crate) async fn limited<R: Request>(call: Call<R>) -> Result<R::Reply> {
    plinth_runtime::timeout(RECRUIT_LIMIT, call)
        .await
        .unwrap_or(Err(Error::recruitment_failed))
}
