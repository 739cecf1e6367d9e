//! A gateway: clients on one side, the store on the other, and between them one life after the other.

use crate::counters::Counters;
use crate::life::{Gateway, Life, Options};
use crate::{leases, requests};
use plinth_client::Database;
use plinth_runtime::net::listen;
use plinth_runtime::serve::accept;
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, TaskGroup, now, race, sleep, trace, trace_warn};
use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Pause between two lives, and between attempts to begin one.
const NEXT_LIFE_PAUSE: Duration = Duration::from_millis(100);

/// One life of a process in the simulator. Ends only if the port cannot be had.
pub async fn run(place: plinth_workload::Place) {
    let database = plinth_client::connect(place.cluster);
    if let Err(error) = serve(database, place.listen, Options::default()).await {
        trace_warn!("KeeperNotListening", "address" => place.listen, "error" => error);
    }
}

/// Serves at `address` until the future is dropped.
///
/// # Errors
/// The address cannot be listened at.
pub async fn serve(
    database: Database,
    address: SocketAddr,
    options: Options,
) -> std::io::Result<()> {
    let listener = listen(address).await?;
    let address = listener.local_addr().unwrap_or(address);
    let gateway = Rc::new(Gateway {
        options,
        database,
        address,
        life: Watch::new(None),
        next_client: Cell::new(1),
        started: now(),
        counters: Rc::new(Counters::default()),
    });
    let connections = TaskGroup::new();
    let start = |connection: plinth_runtime::serve::Connection| {
        let client = gateway.next_client.get();
        gateway.next_client.set(client + 1);
        connections.spawn(
            "keeper client",
            requests::serve(gateway.clone(), client, connection),
        );
        ControlFlow::Continue(())
    };
    race(accept(listener, start), live(&gateway)).await;
    Ok(())
}

async fn live(gateway: &Gateway) {
    loop {
        match Life::begin(gateway).await {
            Ok(life) => {
                trace!("KeeperGatewayBegins", "gateway" => life.id, "address" => gateway.address);
                gateway.life.set(Some(life.clone()));
                run_life(&life).await;
                gateway.life.set(None);
                life.end();
            }
            Err(error) => trace_warn!("KeeperGatewayCannotBegin", "error" => error),
        }
        sleep(NEXT_LIFE_PAUSE).await;
    }
}

async fn run_life(life: &Rc<Life>) {
    let serving = life.pipeline.clone().serve();
    let sessions = race(life.beat(), life.expire_sessions());
    let others = race(leases::watch_others(life), leases::reap(life));
    race(race(serving, sessions), others).await;
}
