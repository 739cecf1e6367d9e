//! A server's half: what comes from clients is checked here, proposed or read, and answered.

use crate::application::Answer;
use crate::request::Request;
use crate::{Ended, Refused, limits, proto, query};
use bytes::Bytes;
use plinth_core::Error;
use plinth_core::texts;
use plinth_delos::entry::Entry;
use plinth_delos::log::LogError;
use plinth_delos::stack::{Answer as Proposed, Engine, Lost};
use plinth_delos::store::RoTx;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, sleep};

const RETRY_PAUSE: Duration = Duration::from_secs(1);

texts! {
    /// Why a request has no answer.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Problem {
        Refused(refused: Refused) = "{refused}";
        /// Nothing has changed; ask again, or ask another replica.
        Unavailable(why: String) = "{why}";
        /// It may have been executed, or may still be.
        Unknown(why: String) = "{why}";
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Problem::Refused(refused)
    }
}

impl From<Ended> for Problem {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Refused(refused) => Problem::Refused(refused),
            Ended::Failed(Error::transaction_too_old) => Problem::Unavailable(
                "the read took longer than a snapshot is kept (5 s): narrow the filter, or ask for fewer rows".into(),
            ),
            Ended::Failed(error) => Problem::Unavailable(format!("this replica cannot read: {error}")),
        }
    }
}

impl From<Lost> for Problem {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Log(LogError::Unknown) | Lost::Stopped => {
                Problem::Unknown(format!("{lost}; the request may be executed, or not"))
            }
            _ => Problem::Unavailable(lost.to_string()),
        }
    }
}

/// What replicates the tables.
#[allow(async_fn_in_trait)] // all tasks of a process share one thread
pub trait Backend: 'static {
    /// Executes the request in `payload` on all replicas.
    ///
    /// # Errors
    /// There is no answer, or a refusal.
    async fn propose(&self, payload: Bytes) -> Result<Answer, Problem>;

    /// The rows, with everything that was answered anywhere before the call.
    ///
    /// # Errors
    /// They cannot be read here and now.
    async fn sync(&self) -> Result<RoTx, Problem>;
}

impl<E: Engine<Return = Answer, Refusal = Refused>> Backend for E {
    async fn propose(&self, payload: Bytes) -> Result<Answer, Problem> {
        match Engine::propose(self, Entry::new(payload)).await? {
            Proposed::Done(answer) => Ok(answer),
            Proposed::Refused(refused) => Err(refused.into()),
            Proposed::Own(_) | Proposed::Filtered => Err(Problem::Unavailable(
                "an engine of the stack keeps requests back: look at the engines that are on"
                    .into(),
            )),
        }
    }

    async fn sync(&self) -> Result<RoTx, Problem> {
        Ok(Engine::sync(self).await?)
    }
}

/// What is proposed for a request of a client.
///
/// # Errors
/// It makes no sense, or is too large.
pub fn payload(asked: proto::Request) -> Result<Bytes, Refused> {
    let payload = Request::understand(asked)?.payload();
    if payload.len() > limits::REQUEST_BYTES {
        return refuse!(
            TooLarge,
            "the request has {} bytes; at most {} are taken",
            payload.len(),
            limits::REQUEST_BYTES
        );
    }
    Ok(payload)
}

impl From<Answer> for proto::Answer {
    fn from(answer: Answer) -> Self {
        proto::Answer {
            position: answer.pos,
            changed: answer.changed,
            working: answer.is_working,
        }
    }
}

/// Answers clients of the tables.
#[allow(async_fn_in_trait)] // as above
pub trait Answers: 'static {
    /// Executes a request.
    ///
    /// # Errors
    /// It is refused, or there is no answer.
    async fn execute(&self, asked: proto::Request) -> Result<proto::Answer, Problem>;

    /// A page of rows.
    ///
    /// # Errors
    /// It is refused, or cannot be read here and now.
    async fn read(&self, asked: proto::Query) -> Result<proto::Page, Problem>;

    /// What the tables look like.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    async fn describe(&self, asked: proto::Description) -> Result<proto::Described, Problem>;
}

/// Answers clients from what this process replicates.
pub struct Server<B> {
    backend: B,
    wake_worker: Notify,
}

impl<B: Backend> Answers for Server<B> {
    async fn execute(&self, asked: proto::Request) -> Result<proto::Answer, Problem> {
        let answer = self.backend.propose(payload(asked)?).await?;
        if answer.is_working {
            self.wake_worker.notify_one();
        }
        Ok(answer.into())
    }

    async fn read(&self, asked: proto::Query) -> Result<proto::Page, Problem> {
        let rows = self.backend.sync().await?;
        Ok(query::page(&rows, asked).await?)
    }

    async fn describe(&self, asked: proto::Description) -> Result<proto::Described, Problem> {
        let rows = self.backend.sync().await?;
        Ok(query::describe(&rows, &asked)?)
    }
}

impl<B: Backend> Server<B> {
    pub fn new(backend: B) -> Self {
        Server {
            backend,
            wake_worker: Notify::new(),
        }
    }

    /// Goes on with what requests have left to be done in steps. Never returns.
    pub async fn work(&self) {
        loop {
            self.wake_worker.notified().await;
            loop {
                match self.backend.propose(Request::Step.payload()).await {
                    Ok(answer) if answer.is_working => {}
                    Ok(_) => break,
                    Err(_) => sleep(RETRY_PAUSE).await,
                }
            }
        }
    }
}
