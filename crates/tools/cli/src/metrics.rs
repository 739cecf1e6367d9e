//! `plinth server --metrics`: the metrics of the process, as a page for Prometheus.

#![allow(clippy::disallowed_types)] // the page is served beside the database, on a thread and a socket of its own

use crate::Outcome;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use plinth_runtime::real::spawn_worker;
use plinth_server::metrics::{Page, text};
use std::net::{SocketAddr, TcpListener};

const FORMAT: &str = "text/plain; version=0.0.4";

/// Binds the address; a thread of its own serves the page.
pub fn serve(address: SocketAddr, pages: Vec<Page>) -> Outcome {
    let cannot = |error: std::io::Error| {
        format!("--metrics {address}: cannot listen there: {error}; choose another")
    };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    spawn_worker("metrics", move || async move {
        let page = async move || {
            let samples = pages.iter().flat_map(Page::samples).collect();
            ([(CONTENT_TYPE, FORMAT)], text(samples))
        };
        let router = Router::new().route("/metrics", get(page));
        let served = async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, router).await
        };
        if let Err(error) = served.await {
            // The database continues without the page.
            eprintln!("plinth: --metrics {address}: {error}; no metrics from now on");
        }
    });
    Ok(())
}
