//! gRPC on a thread of its own. Requests go to the loop of the replica, and answers come back.

#![allow(clippy::disallowed_types)] // gRPC is served beside the replica, on a thread and a socket of its own

use super::secure::{self, Protection};
use plinth_runtime::net::Chosen;
use plinth_runtime::real::spawn_worker;
use plinth_runtime::{Duration, spawn};
use plinth_table::Code;
use plinth_table::backend::{Answers, Problem};
use plinth_table::proto::{Answer, Described, Description, Page, Query, Request};
use plinth_table::service::{Tables, TablesServer};
use plinth_terminal::Outcome;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tonic::Status;
use tonic::metadata::MetadataValue;
use tonic::transport::server::TcpIncoming;

/// Requests that are dealt with at a time; others wait at the door, unread by the loop.
const REQUESTS_MAX: usize = 256;
const REQUESTS_OF_CONNECTION_MAX: usize = 64;
/// A client that is silent for so long is asked, and let go if it does not answer in the same time.
const SILENCE: Duration = Duration::from_secs(30);
/// Where a server of tables listens that is not told, and where a shell looks for it.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:4680";
/// The word for programs beside the line of a refusal.
pub const CODE: &str = "plinth-code";

type Reply<T> = oneshot::Sender<Result<T, Problem>>;

/// What the thread of the door wants from the loop's.
enum Call {
    Execute(Request, Reply<Answer>),
    Read(Query, Reply<Page>),
    Describe(Description, Reply<Described>),
}

struct Door {
    calls: mpsc::Sender<Call>,
    room: Arc<Semaphore>,
}

fn status(problem: Problem) -> Status {
    let mut status = match &problem {
        Problem::Refused(refused) => {
            let why = &refused.why;
            match refused.code {
                Code::BadRequest => Status::invalid_argument(why),
                Code::ConditionFailed => Status::failed_precondition(why),
                Code::Exists | Code::RowExists | Code::Duplicate => Status::already_exists(why),
                Code::Unknown | Code::RowNotFound => Status::not_found(why),
                Code::TooLarge => Status::out_of_range(why),
            }
        }
        Problem::Unavailable(why) => Status::unavailable(why),
        Problem::Unknown(why) => Status::unknown(why),
    };
    if let Problem::Refused(refused) = problem {
        let word = MetadataValue::from_static(refused.code.name());
        status.metadata_mut().insert(CODE, word);
    }
    status
}

impl Door {
    async fn ask<T>(&self, call: impl FnOnce(Reply<T>) -> Call) -> Result<T, Status> {
        let ended = || Status::unavailable("the replica has stopped: ask another one");
        let _room = self.room.acquire().await.map_err(|_| ended())?;
        let (reply, answer) = oneshot::channel();
        self.calls.send(call(reply)).await.map_err(|_| ended())?;
        let lost =
            |_| Status::unknown("the replica has stopped: the request may be executed, or not");
        let answer = answer.await.map_err(lost)?;
        answer.map_err(status)
    }
}

#[tonic::async_trait]
impl Tables for Door {
    async fn execute(&self, asked: Request) -> Result<Answer, Status> {
        self.ask(|reply| Call::Execute(asked, reply)).await
    }

    async fn read(&self, asked: Query) -> Result<Page, Status> {
        self.ask(|reply| Call::Read(asked, reply)).await
    }

    async fn describe(&self, asked: Description) -> Result<Described, Status> {
        self.ask(|reply| Call::Describe(asked, reply)).await
    }
}

fn shown(error: impl std::error::Error) -> String {
    error.to_string()
}

/// An open door, whose requests wait for [`serve`](Calls::serve).
pub struct Calls {
    waiting: mpsc::Receiver<Call>,
    address: SocketAddr,
}

/// Binds the address; a thread of its own speaks gRPC there, below TLS if there is `protection`.
///
/// # Errors
/// The address cannot be listened at: one line for the user.
pub fn open(address: SocketAddr, protection: Option<Protection>) -> Outcome<Calls> {
    let chosen = Chosen::flag("--listen", address.to_string() == DEFAULT_LISTEN);
    let cannot = |error: std::io::Error| chosen.refused(address, &error);
    let listener = TcpListener::bind(address).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let (calls, waiting) = mpsc::channel(REQUESTS_MAX);
    let door = Door {
        calls,
        room: Arc::new(Semaphore::new(REQUESTS_MAX)),
    };
    spawn_worker("grpc", move || async move {
        let served = async {
            let server = tonic::transport::Server::builder()
                .concurrency_limit_per_connection(REQUESTS_OF_CONNECTION_MAX)
                .http2_keepalive_interval(Some(SILENCE))
                .http2_keepalive_timeout(Some(SILENCE))
                .add_service(TablesServer::new(door));
            let Some(protection) = protection else {
                let listener = tokio::net::TcpListener::from_std(listener).map_err(shown)?;
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                return server.serve_with_incoming(incoming).await.map_err(shown);
            };
            drop(listener); // the runtime has its own
            let incoming = secure::incoming(address, protection).await?;
            server.serve_with_incoming(incoming).await.map_err(shown)
        };
        if let Err(error) = served.await {
            plinth_terminal::say!("plinth: --listen {address}: {error}; no clients from now on");
        }
    });
    Ok(Calls { waiting, address })
}

impl Calls {
    /// Answers all requests. Never returns.
    pub async fn serve<A: Answers>(mut self, answers: Rc<A>) {
        plinth_terminal::say!("plinth: table: listens at {}", self.address);
        while let Some(call) = self.waiting.recv().await {
            let answers = answers.clone();
            let answering = spawn("table request", async move {
                // A client that has gone gets no answer.
                match call {
                    Call::Execute(asked, reply) => drop(reply.send(answers.execute(asked).await)),
                    Call::Read(asked, reply) => drop(reply.send(answers.read(asked).await)),
                    Call::Describe(asked, reply) => {
                        drop(reply.send(answers.describe(asked).await));
                    }
                }
            });
            answering.detach();
        }
        std::future::pending().await
    }
}
