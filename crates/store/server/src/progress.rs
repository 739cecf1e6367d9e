//! What a server tells the person who has started it: that it listens, that it has joined its cluster, and why not.

use plinth_coordination::{Coordinators, look_at, together};
use plinth_protocol::coordination::Candidate;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::Duration;
use plinth_runtime::sync::Watch;
use std::convert::Infallible;

/// Who has not been let in for this long says why, and again when the reason changes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells it by `tell`. `joined` is the controller that has let the server in.
pub async fn tell(
    tell: fn(&str),
    transport: Transport,
    coordinators: Coordinators,
    leader: Watch<Option<Candidate>>,
    joined: Watch<Option<Interface>>,
) -> Infallible {
    let address = transport.address().expect("a worker has an address");
    tell(&format!(
        "server {address}: listens; its cluster is {}",
        coordinators.file()
    ));
    let mut told = String::new();
    loop {
        let let_in = joined.wait_until(Option::is_some);
        if plinth_runtime::timeout(PATIENCE, let_in).await.is_none() {
            let why = match leader.get() {
                Some(leader) => format!(
                    "its controller at {} has not let it in",
                    leader.controller.address
                ),
                None => format!("coordinators: {}", why_not(&transport, &coordinators).await),
            };
            if why != told {
                tell(&format!("server {address}: is in no cluster yet; {why}"));
                told = why;
            }
            continue;
        }
        let Some(controller) = joined.get() else {
            continue;
        };
        told.clear();
        tell(&format!(
            "server {address}: has joined the cluster; its controller is at {}",
            controller.address
        ));
        joined.wait_until(|now| *now != Some(controller)).await;
    }
}

/// What each coordinator does.
async fn why_not(transport: &Transport, coordinators: &Coordinators) -> String {
    let file = &coordinators.file();
    let looks = file.coordinators.iter().map(|place| async move {
        let look = look_at(transport, file, place).await;
        (place, look.to_string())
    });
    together(plinth_runtime::join_all(looks).await.into_iter())
}
