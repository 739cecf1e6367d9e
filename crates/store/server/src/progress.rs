//! What a server tells the person who has started it: that it listens, that it has joined its cluster, and why not.

use plinth_coordination::{Coordinators, look_at};
use plinth_protocol::coordination::Candidate;
use plinth_rpc::Transport;
use plinth_runtime::Duration;
use plinth_runtime::sync::Watch;
use std::convert::Infallible;

/// Who has not found a controller for this long says why, and again when the reason changes.
const PATIENCE: Duration = Duration::from_secs(5);

pub async fn tell(
    tell: fn(&str),
    transport: Transport,
    coordinators: Coordinators,
    leader: Watch<Option<Candidate>>,
) -> Infallible {
    let address = transport.address().expect("a worker has an address");
    tell(&format!(
        "server {address}: listens; its cluster is {}",
        coordinators.file()
    ));
    let mut told = String::new();
    loop {
        let found = leader.wait_until(Option::is_some);
        if plinth_runtime::timeout(PATIENCE, found).await.is_none() {
            let why = why_not(&transport, &coordinators).await;
            if why != told {
                tell(&format!(
                    "server {address}: is in no cluster yet; coordinators: {why}"
                ));
                told = why;
            }
            continue;
        }
        let Some(controller) = leader.get().map(|leader| leader.controller) else {
            continue;
        };
        told.clear();
        tell(&format!(
            "server {address}: has joined the cluster; its controller is at {}",
            controller.address
        ));
        let is_it =
            |of: &Option<Candidate>| of.as_ref().is_some_and(|of| of.controller == controller);
        leader.wait_until(|of| !is_it(of)).await;
    }
}

/// What each coordinator does.
async fn why_not(transport: &Transport, coordinators: &Coordinators) -> String {
    let file = &coordinators.file();
    let looks = file.coordinators.iter().map(|place| async move {
        let look = look_at(transport, file, place).await;
        format!("{place} ({look})")
    });
    plinth_runtime::join_all(looks).await.join(", ")
}
