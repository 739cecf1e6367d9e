//! Tables of a replicated service: requests go to a replica, and its answers come back. It keeps nothing, so there can
//! be any number of gateways, beside clients or replicas.

use super::secure::Protection;
use super::{door, readiness};
use crate::delos::service::{Service, Unanswered, load};
use plinth_delos::replica::messages::CallService;
use plinth_runtime::readiness::Readiness;
use plinth_runtime::{Either, race};
use plinth_table::backend::{Answers, Problem};
use plinth_table::proto::{Answer, Described, Description, Page, Query, Request};
use plinth_table::serving::Operation;
use plinth_table::{Code, KIND, Refused};
use plinth_terminal::Outcome;
use plinth_terminal::process::unless_interrupted;
use plinth_terminal::tls::TlsArguments;
use prost::Message;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

/// A request without an answer in this time is given up: before its client gives up, who then would not hear why.
const SECONDS: u64 = 25;
/// The same of a look at the replicas.
const SECONDS_OF_A_LOOK: u64 = 2;

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

pub async fn serve(
    file: &Path,
    listen: SocketAddr,
    protection: Option<Protection>,
    readiness: &RefCell<Readiness>,
) -> Outcome {
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
    let gateway = Rc::new(Gateway { service });
    let mut before = None;
    // Replicas of an idle service append, too: each says at least once a second how far it is.
    let has_grown = async || {
        let seen = gateway.service.again(SECONDS_OF_A_LOOK).look().await;
        let statuses = seen
            .iter()
            .flatten()
            .filter_map(|seen| seen.status.as_ref());
        let end = statuses.map(|status| status.applied).max();
        let former = std::mem::replace(&mut before, end);
        former.is_some() && former < end
    };
    let keeping = readiness::keep(readiness, &*gateway, has_grown);
    let serving = async {
        match race(calls.serve(gateway.clone()), keeping).await {
            Either::Left(ended) => ended,
            Either::Right(never) => match never {},
        }
    };
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
             `plinth delos dev tables --kind {}'",
            service.name(),
            KIND.name,
            KIND.name
        )),
    }
}
