//! HTTP pages beside what a process serves: its metrics for Prometheus, and a gateway's AdminServer.

// The pages are served beside the database, on a thread and a socket of their own.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod body;
mod doors;
mod looked;
pub mod view;

use crate::Outcome;
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use axum::routing::get;
use doors::Doors;
use plinth_coordination::key_file;
use plinth_identity::keys::Keyring;
use plinth_runtime::metric::page::{Page, text};
use plinth_runtime::net::Chosen;
use plinth_runtime::readiness::Verdict;
use plinth_runtime::real::spawn_worker;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

const NEEDS_TOKEN: &str = "this page needs the header `Authorization: Bearer TOKEN'; \
    `plinth keys page-token' shows the token
";
/// Prometheus' text format.
pub const METRICS_FORMAT: &str = "text/plain; version=0.0.4";

/// A page of the samples of all `pages`, at `/metrics`.
pub fn router(pages: Vec<Page>) -> Router {
    let page = async move || {
        let samples = pages.iter().flat_map(Page::samples).collect();
        ([(CONTENT_TYPE, METRICS_FORMAT)], text(samples))
    };
    Router::new().route("/metrics", get(page))
}

/// Pages for whoever starts and watches processes, such as Kubernetes: `/health/live` answers while the process
/// runs, `/health/ready` with 200 while all of `pages` say that they are ready, and with 503 and the reason otherwise.
/// The pages say nothing that is secret, and nobody needs a token for them.
pub fn health(pages: Vec<Page>) -> Router {
    let ready = async move || readiness(&pages);
    Router::new()
        .route("/health/live", get(async || "live\n"))
        .route("/health/ready", get(ready))
}

const READY: &str = "ready";

/// What `/health/ready` says.
pub fn words_of(verdict: &Verdict) -> String {
    let (is_ready, words) = (verdict.is_ready, &verdict.words);
    match is_ready {
        true if words.is_empty() => format!("{READY}\n"),
        true => format!("{READY}: {words}\n"),
        false => format!("not {READY}: {words}\n"),
    }
}

/// The status with which `/health/ready` says this.
pub fn code_of(words: &str) -> StatusCode {
    match words.starts_with(READY) {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn readiness(pages: &[Page]) -> (StatusCode, String) {
    let verdicts: Vec<Verdict> = pages.iter().map(Page::ready).collect();
    let is_ready = !verdicts.is_empty() && verdicts.iter().all(|verdict| verdict.is_ready);
    let said = verdicts
        .iter()
        .filter(|verdict| verdict.is_ready == is_ready);
    let mut words: Vec<&str> = said.map(|verdict| &*verdict.words).collect();
    words.retain(|words| !words.is_empty());
    words.dedup();
    let words = words_of(&Verdict {
        is_ready,
        words: words.join("; "),
    });
    (code_of(&words), words)
}

/// Whose keys a page asks for.
pub struct Keys<'a> {
    pub cluster_file: &'a Path,
    /// Everybody else proves something to this process: nobody is let in because there are no keys.
    pub are_needed: bool,
}

/// The flag that gives the address of a process's pages, as the user has typed it: it had other names once.
pub fn flag() -> &'static str {
    const NAMES: [&str; 3] = ["--pages", "--metrics", "--admin"];
    let is_said = |name: &&&str| {
        let typed = |said: &str| said.split('=').next() == Some(name);
        std::env::args_os().any(|said| said.to_str().is_some_and(typed))
    };
    NAMES.iter().find(is_said).unwrap_or(&NAMES[0])
}

/// Lets in from afar only who has a key of the cluster, if the cluster has keys. Pages on loopback addresses are for
/// everybody on this machine. `flag` names the address.
///
/// # Errors
/// There are no keys, and they are needed: a line for the user.
pub fn guarded(flag: &str, address: SocketAddr, router: Router, of: Keys) -> Outcome<Router> {
    if address.ip().is_loopback() {
        return Ok(router.layer(from_fn(looked::refuse_foreign)));
    }
    let path: Arc<Path> = key_file::beside(of.cluster_file).into();
    if of.are_needed && matches!(keys_at(&path), Ok(None)) {
        return Err(format!(
            "{flag} {address}: the page has no certificates, and there are no keys to guard it, so everybody could \
             read it; make {} with plinth keys new, or choose a loopback address",
            path.display()
        ));
    }
    let are_needed = of.are_needed;
    Ok(router.layer(from_fn(move |request: Request, next: Next| {
        // Read each time: keys are exchanged while the process runs.
        let keys = keys_at(&path);
        async move {
            let said = request.headers().get(AUTHORIZATION);
            let token = said.and_then(|said| said.as_bytes().strip_prefix(b"Bearer "));
            let is_page = request.uri().path() == "/";
            let cookie = looked::token_in_cookie(request.headers()).filter(|_| is_page);
            let token = token.or(cookie);
            match keys {
                Ok(None) if !are_needed => next.run(request).await,
                Ok(Some(keys)) if token.is_some_and(|token| keys.is_page_token(token)) => {
                    next.run(request).await
                }
                Ok(_) if is_page => looked::to_form(),
                Ok(_) => {
                    let ask = [(WWW_AUTHENTICATE, "Bearer")];
                    (StatusCode::UNAUTHORIZED, ask, NEEDS_TOKEN).into_response()
                }
                Err(line) => {
                    crate::say!("plinth: {line}");
                    StatusCode::INTERNAL_SERVER_ERROR.into_response()
                }
            }
        }
    })))
}

/// The page for people at `/`, which `guarded` is to guard, and the form for who has no token, which nobody guards.
pub fn for_people(page: Page, show: view::Show) -> (Router, Router) {
    (looked::looked(page, show), looked::form())
}

/// Serves all pages of a process at the address that the user has given: its metrics, its health, and the page for
/// people of the first of `pages`, as `show` shows its status.
///
/// # Errors
/// See [`guarded`] and [`serve`].
pub fn serve_all(address: SocketAddr, pages: &[Page], show: view::Show, of: Keys) -> Outcome {
    let (people, open) = for_people(pages[0].clone(), show);
    let router = router(pages.to_vec()).merge(people);
    let router = guarded(flag(), address, router, of)?;
    let router = router.merge(health(pages.to_vec())).merge(open);
    serve(flag(), address, router)
}

fn keys_at(path: &Path) -> Result<Option<Keyring>, String> {
    let found = std::fs::metadata(path).and_then(|of| Ok((of, std::fs::read(path)?)));
    match found {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("key file {}: {error}", path.display())),
        Ok((of, bytes)) => {
            let file = key_file::parse(path, of.permissions().mode(), &bytes)?;
            Ok(Some(Keyring::new(&file)))
        }
    }
}

/// Binds the address that `flag` names; a thread of its own serves `router`.
pub fn serve(flag: &'static str, address: SocketAddr, router: Router) -> Outcome {
    let cannot = |error: std::io::Error| Chosen::By(flag).refused(address, &error);
    let listener = TcpListener::bind(address).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    spawn_worker("pages", move || async move {
        let served = async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(Doors::new(listener), router).await
        };
        if let Err(error) = served.await {
            // The process serves its clients without the pages.
            crate::say!("plinth: {flag} {address}: {error}; no pages there from now on");
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_all_its_workers_are_and_says_why_not() {
        let pages = [Page::default(), Page::default()];
        let words = |pages: &[Page]| readiness(pages).1;
        assert_eq!(words(&[]), "not ready: \n");
        assert_eq!(words(&pages), "not ready: it has just begun\n");
        let ready = |words: &str| Verdict {
            is_ready: true,
            words: words.into(),
        };
        pages[0].set_ready(ready(""));
        pages[1].set_ready(Verdict::not("no commit for 6.2 s"));
        let said = "not ready: no commit for 6.2 s\n".to_owned();
        assert_eq!(readiness(&pages), (StatusCode::SERVICE_UNAVAILABLE, said));
        pages[1].set_ready(ready(""));
        assert_eq!(readiness(&pages), (StatusCode::OK, "ready\n".into()));
        pages
            .iter()
            .for_each(|page| page.set_ready(ready("locked")));
        assert_eq!(
            readiness(&pages),
            (StatusCode::OK, "ready: locked\n".into())
        );
    }
}
