//! Typed endpoints over one multiplexed connection a pair of workers.
//!
//! A role registers handlers for its requests at a [`Transport`]; a caller holds an [`Interface`] and says
//! `transport.call(&endpoint, request)`. Inside one worker the typed message itself is handed over and nothing
//! is encoded. Between workers it travels as a checksummed [`frame`].
//!
//! Promises: a request is executed at most once for each call; a reply reaches the call that asked for it, or the call
//! fails. [`Error::connection_failed`] means that the request was certainly not sent,
//! [`Error::request_maybe_delivered`] that it may have been, [`Error::broken_promise`] that the role is gone. Requests
//! that wait for an event keep their responders in [`Waiters`], which drops a request when its caller gives up or
//! loses its connection.
//! What may never happen: a byte from the network makes the worker panic or grow without bound.
//!
//! [`Error::connection_failed`]: plinth_core::Error::connection_failed
//! [`Error::request_maybe_delivered`]: plinth_core::Error::request_maybe_delivered
//! [`Error::broken_promise`]: plinth_core::Error::broken_promise

mod accepted;
mod audit;
pub mod certified;
mod connection;
mod credentials;
mod endpoint;
mod failure;
pub mod frame;
mod kinds;
pub mod knobs;
mod nobodies;
mod peer;
mod place;
mod seals;
mod silence;
mod transport;
mod waiters;
mod wire;

pub use audit::Audit;
pub use connection::Sending;
pub use credentials::{Credentials, Handshakes, hello_of_nobody};
pub use endpoint::{Endpoint, Interface};
pub use failure::{FailureBeacon, Gone, WaitFailure, answers, wait_failure};
pub use frame::{FRAME_SAFE_BYTES, PROTOCOL_VERSION};
pub use kinds::{Asked, REQUESTS, RequestKind};
pub use nobodies::{Nobodies, Standing};
pub use place::{NoPlace, Place};
pub use seals::Checks;
pub use transport::{Call, Registration, Responder, Transport, Watching};
pub use waiters::Waiters;
pub use wire::Request;

/// What the macros need from this crate's dependencies; not for direct use.
#[doc(hidden)]
pub mod macro_support {
    pub use {linkme, plinth_core, plinth_identity};
}
