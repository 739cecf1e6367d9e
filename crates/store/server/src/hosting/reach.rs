//! Tells a controller which processes this one reaches: the controller may be cut off from them.

use plinth_core::{Error, Uid};
use plinth_protocol::control::{GetReach, PLACES_MAX, Reach};
use plinth_rpc::{Registration, Responder, Transport, answers};
use plinth_runtime::{Duration, join_all};

/// A process that does not answer within this time is not reached.
const LIMIT: Duration = Duration::from_millis(500);

pub fn serve(transport: &Transport, worker: Uid) -> Registration {
    let own = transport.clone();
    transport.serve::<GetReach>(worker, move |request, responder| {
        tell(&own, request, responder)
    })
}

fn tell(transport: &Transport, request: GetReach, responder: Responder<GetReach>) {
    if request.places.len() > PLACES_MAX {
        return responder.fail(Error::invalid_option_value);
    }
    let transport = transport.clone();
    plinth_runtime::spawn("look for processes", async move {
        let places = request.places.iter();
        let answered = join_all(places.map(|place| answers(&transport, *place, LIMIT))).await;
        responder.ok(Reach { answered });
    })
    .detach();
}
