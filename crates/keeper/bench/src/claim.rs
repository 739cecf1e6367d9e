//! A bench has a server for itself: another one would remove its nodes, and be measured with it. A node that is gone
//! with its session says so.

use crate::run::{Plan, at};
use bytes::Bytes;
use plinth_keeper::client::{Client, Failure, why_lost};
use plinth_keeper::wire::{Acl, Code, CreateKind, Request, create_flags};
use plinth_runtime::{Boxed, Duration, timeout};
use std::net::SocketAddr;

/// While it is there, a bench uses what is below [`ROOT`](crate::tree::ROOT).
const PATH: &str = "/plinth-bench-run";
/// One that was killed is over after so long.
const TIMEOUT_MS: i32 = 10_000;
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// No other bench begins on these servers while it lives.
pub struct Claims(Vec<Client>);

/// Claims every server of the plan.
///
/// # Errors
/// One line: another bench has a server, or it cannot be asked.
pub fn claim(plan: &Plan) -> Boxed<'_, Result<Claims, String>> {
    Box::pin(async move {
        let mut claims = Claims(Vec::new());
        for server in &plan.servers {
            match claim_at(&server.addresses).await {
                Ok(client) => claims.0.push(client),
                Err(why) => {
                    claims.end().await;
                    return Err(at(server, &why));
                }
            }
        }
        Ok(claims)
    })
}

async fn claim_at(addresses: &[SocketAddr]) -> Result<Client, String> {
    let mut connected = Err("there is no address".to_owned());
    for address in addresses {
        connected = match Client::connect(*address, TIMEOUT_MS, None).await {
            Ok(client) => Ok(client),
            Err(Failure::Lost) => Err(why_lost(*address).await),
            Err(failure) => Err(failure.to_string()),
        };
        if connected.is_ok() {
            break;
        }
    }
    let client = connected?;
    let create = Request::Create {
        kind: CreateKind::Plain,
        path: PATH.into(),
        data: Some(Bytes::new()),
        acl: Acl::open(),
        flags: create_flags::EPHEMERAL,
        ttl: -1,
    };
    match client.submit(create).await {
        Ok(_) => Ok(client),
        Err(Failure::Refused(Code::NODE_EXISTS)) => {
            let _ = timeout(CLOSE_LIMIT, client.close()).await; // it ends by itself, too
            Err(format!(
                "another `plinth keeper bench' measures it ({PATH} is there): wait until that has ended, or name \
                 another with --server; one that was killed is gone after {} s",
                TIMEOUT_MS / 1000
            ))
        }
        Err(failure) => Err(format!("{PATH} cannot be created: {failure}")),
    }
}

impl Claims {
    /// Lets others begin. Without this they can when the sessions have timed out.
    pub async fn end(self) {
        for client in self.0 {
            let deleted = client.submit(Request::Delete {
                path: PATH.into(),
                version: -1,
            });
            let ending = async {
                let _ = deleted.await; // the session's end removes it, too
                let _ = client.close().await;
            };
            let _ = timeout(CLOSE_LIMIT, ending).await;
        }
    }
}
