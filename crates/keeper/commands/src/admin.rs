//! ZooKeeper's AdminServer, and the metrics page: `plinth keeper server --pages`, and for Zelos `--zookeeper-admin`.

#![allow(clippy::disallowed_types)] // the pages are served on a thread and a socket of their own

use crate::page;
use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use plinth_keeper::Keeper;
use plinth_runtime::metric::page::{Page, of_cluster, text};
use plinth_runtime::readiness::Verdict;
use plinth_runtime::{Duration, Either, race, sleep};
use plinth_terminal::pages;
use serde_json::Value;
use std::net::SocketAddr;
use tokio::sync::{mpsc, oneshot};

/// Between two looks at the numbers of the page for people.
const NUMBERS_INTERVAL: Duration = Duration::from_secs(1);
/// Questions that may wait for the gateway.
const WAITING_MAX: usize = 16;

pub enum Question {
    Command(String),
    Metrics,
    /// Answered with the words of `/health/ready`.
    Ready,
}

/// What the thread of the pages wants to know from the gateway's, and the page that it shows to people.
pub struct Questions {
    asked: mpsc::Receiver<(Question, oneshot::Sender<String>)>,
    page: Page,
}

type Asking = mpsc::Sender<(Question, oneshot::Sender<String>)>;

/// Binds the address that `flag` names; a thread of its own serves the pages. From afar they ask for the token of the
/// keys, if there are any.
///
/// # Errors
/// The address cannot be listened at: one line for the user.
pub fn listen(
    flag: &'static str,
    address: SocketAddr,
    keys: pages::Keys,
) -> Result<Questions, String> {
    let (asking, questions) = mpsc::channel(WAITING_MAX);
    let page = Page::default();
    let (people, open) = pages::for_people(page.clone(), page::show);
    let router = router(asking.clone()).merge(people);
    let router = pages::guarded(flag, address, router, keys)?;
    let router = router.merge(ready(asking)).merge(open);
    pages::serve(flag, address, router)?;
    Ok(Questions {
        asked: questions,
        page,
    })
}

fn router(asking: Asking) -> Router {
    let metrics = asking.clone();
    let metrics = async move || ask(&metrics, Question::Metrics, pages::METRICS_FORMAT).await;
    let command = async move |Path(name): Path<String>| {
        ask(&asking, Question::Command(name), "application/json").await
    };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/commands", get(async || Html(list())))
        .route("/commands/", get(async || Html(list())))
        .route("/commands/{name}", get(command))
}

/// `/ready`, as ClickHouse's keeper has it, and `/health/live` and `/health/ready`, as all servers have them, for
/// whoever starts and watches processes. They say nothing that is secret, and nobody needs a token for them.
fn ready(asking: Asking) -> Router {
    let health = asking.clone();
    let health = async move || {
        let said = said(&health, Question::Ready).await;
        let said = said.unwrap_or_else(|| pages::words_of(&Verdict::not("it does not answer")));
        (pages::code_of(&said), said)
    };
    let page = async move || {
        let said = said(&asking, Question::Ready).await;
        let is_ready = said.is_some_and(|said| pages::code_of(&said) == StatusCode::OK);
        let (code, status) = match is_ready {
            true => (StatusCode::OK, "ok"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "fail"),
        };
        let text =
            format!("{{\"status\":\"{status}\",\"details\":{{\"hasLeader\":{is_ready}}}}}\n");
        (code, [(CONTENT_TYPE, "application/json")], text)
    };
    Router::new()
        .route("/ready", get(page))
        .route("/health/live", get(async || "live\n"))
        .route("/health/ready", get(health))
}

/// Links to the commands.
fn list() -> String {
    let link = |name| format!("<a href=\"/commands/{name}\">{name}</a>\n<br/>\n");
    Keeper::commands().map(link).collect()
}

async fn said(asking: &Asking, question: Question) -> Option<String> {
    let (answer, answered) = oneshot::channel();
    match asking.try_send((question, answer)) {
        Ok(()) => answered.await.ok(),
        Err(_) => None,
    }
}

async fn ask(asking: &Asking, question: Question, format: &'static str) -> Response {
    match said(asking, question).await {
        Some(text) => ([(CONTENT_TYPE, format)], text).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// What is behind a gateway: the key of its cluster or service, and the status of the database, if it has one.
pub trait Behind {
    fn cluster(&self) -> String;

    /// `None`: it does not answer.
    fn status(&self) -> impl Future<Output = Option<Value>>;
}

/// Answers the questions on the gateway's thread, and keeps the page for people, for ever.
pub async fn answer(keeper: &Keeper, behind: impl Behind, questions: Option<Questions>) {
    let Some(Questions { mut asked, page }) = questions else {
        return std::future::pending().await;
    };
    let answering = async {
        while let Some((question, answer)) = asked.recv().await {
            let text = match question {
                Question::Command(name) => format!("{:#}\n", keeper.command(&name).await),
                Question::Metrics => text(of_cluster(&behind.cluster(), keeper.samples())),
                Question::Ready => pages::words_of(&keeper.verdict()),
            };
            let _ = answer.send(text); // fails if the asker has gone
        }
        std::future::pending().await
    };
    let numbers = async {
        loop {
            page.name_cluster(&behind.cluster());
            page.set(keeper.samples());
            page.set_ready(keeper.verdict());
            sleep(NUMBERS_INTERVAL).await;
        }
    };
    let ask = async || {
        let status = behind.status().await;
        Some(page::document(&page, status).to_string())
    };
    let looking = page.keep_status(ask);
    match race(answering, race(numbers, looking)).await {
        Either::Left(()) => {}
        Either::Right(Either::Left(never) | Either::Right(never)) => match never {},
    }
}
