//! HTTP pages beside what a process serves: its metrics for Prometheus, and a gateway's AdminServer.

#![allow(clippy::disallowed_types)] // the pages are served beside the database, on a thread and a socket of their own

use crate::Outcome;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use plinth_runtime::metric::page::{Page, text};
use plinth_runtime::real::spawn_worker;
use std::net::{SocketAddr, TcpListener};

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

/// Binds the address that `flag` names; a thread of its own serves `router`.
pub fn serve(flag: &'static str, address: SocketAddr, router: Router) -> Outcome {
    let cannot = |error: std::io::Error| {
        format!("{flag} {address}: cannot listen there: {error}; choose another")
    };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    spawn_worker("pages", move || async move {
        let served = async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, router).await
        };
        if let Err(error) = served.await {
            // The process serves its clients without the pages.
            eprintln!("plinth: {flag} {address}: {error}; no pages there from now on");
        }
    });
    Ok(())
}
