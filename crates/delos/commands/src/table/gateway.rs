//! Tables of a replicated service: requests go to a replica, and its answers come back. It keeps nothing, so there can
//! be any number of gateways, beside clients or replicas.

use super::door;
use super::secure::Protection;
use crate::delos::service::{Service, Unanswered, load};
use plinth_delos::replica::messages::CallService;
use plinth_table::backend::{Answers, Problem};
use plinth_table::proto::{Answer, Described, Description, Page, Query, Request};
use plinth_table::serving::Operation;
use plinth_table::{Code, KIND, Refused};
use plinth_terminal::Outcome;
use plinth_terminal::process::unless_interrupted;
use plinth_terminal::tls::TlsArguments;
use prost::Message;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

/// A request without an answer in this time is given up: before its client gives up, who then would not hear why.
const SECONDS: u64 = 25;

struct Gateway {
    service: Service,
}

impl Gateway {
    async fn ask<T: Message + Default>(
        &self,
        operation: Operation,
        request: impl Message,
    ) -> Result<T, Problem> {
        let called = CallService {
            operation: operation.name().into(),
            request: request.encode_to_vec().into(),
        };
        let service = self.service.again(SECONDS);
        let answer = service.call(called, operation.reads()).await;
        let answer = answer.map_err(|unanswered| match unanswered {
            Unanswered::Refused { code, why } => {
                // A later release's word is passed on as one that every client knows.
                let code = Code::from_name(&code).unwrap_or(Code::BadRequest);
                Problem::Refused(Refused { code, why })
            }
            Unanswered::Unsure(why) => Problem::Unknown(why),
            Unanswered::Silent(why) => Problem::Unavailable(why),
        })?;
        T::decode(answer).map_err(|error| {
            let why = format!("the replica's answer is damaged: {error}");
            match operation.reads() {
                true => Problem::Unavailable(why),
                false => Problem::Unknown(why),
            }
        })
    }
}

impl Answers for Gateway {
    async fn execute(&self, asked: Request) -> Result<Answer, Problem> {
        self.ask(Operation::Execute, asked).await
    }

    async fn read(&self, asked: Query) -> Result<Page, Problem> {
        self.ask(Operation::Read, asked).await
    }

    async fn describe(&self, asked: Description) -> Result<Described, Problem> {
        self.ask(Operation::Describe, asked).await
    }
}

pub async fn serve(file: &Path, listen: SocketAddr, protection: Option<Protection>) -> Outcome {
    // The options are about clients.
    let file = load(file, &TlsArguments::default()).await;
    let file = file.map_err(|line| match protection {
        Some(_) if line.contains("--tls") => format!(
            "{line}; towards the service, a gateway has those of the variables only: options are about its clients"
        ),
        _ => line,
    })?;
    let service = Service::of(file, SECONDS);
    check_kind(&service).await?;
    let calls = door::open(listen, protection)?;
    let serving = calls.serve(Rc::new(Gateway { service }));
    let ended = unless_interrupted(serving).await.map(drop);
    ended.map_err(|line| format!("table {listen}: {line}"))
}

/// Refuses a service of another kind. One that does not answer yet may be what it should be.
async fn check_kind(service: &Service) -> Outcome {
    match service.kind().await {
        None => service.of_another_system().await.map_or(Ok(()), Err),
        Some(kind) if kind == KIND.name => Ok(()),
        Some(kind) => Err(format!(
            "service {} is of kind {kind}, and tables need one of kind {}: name its file with -C, or make one with \
             `plinth delos dev tables --kind {}`",
            service.name(),
            KIND.name,
            KIND.name
        )),
    }
}
