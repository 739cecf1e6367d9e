//! What a recovery says of the coordinators while it reads or writes the coordinated state.

use crate::context::Context;
use plinth_coordination::Unheard;
use plinth_runtime::{Duration, Either, race, sleep};
use std::convert::Infallible;
use std::future::Future;

/// Coordinators that have not answered for this long are told.
const COORDINATORS_TOLD: Duration = Duration::from_secs(1);

/// Does `work`, and says each second which coordinators it waits for.
pub(super) async fn telling<T>(
    context: &Context,
    unheard: Unheard,
    work: impl Future<Output = T>,
) -> T {
    match race(work, tell(context, &unheard)).await {
        Either::Left(done) => done,
        Either::Right(never) => match never {},
    }
}

async fn tell(context: &Context, unheard: &Unheard) -> Infallible {
    loop {
        sleep(COORDINATORS_TOLD).await;
        let who = unheard.told();
        context.phase.wait_for(who.unwrap_or_default());
    }
}
