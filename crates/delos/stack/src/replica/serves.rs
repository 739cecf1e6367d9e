//! What a service is to the process that hosts it.

use super::messages::Called;
use super::settings::Settings;
use crate::base::Stopped;
use crate::coordinated_register::CoordinatedRegister;
use crate::engines::roster;
use crate::log::LogError;
use crate::quorum::client::QuorumLoglets;
use crate::stack::{Application, Lost, ReplicaId};
use crate::stacks::Standard;
use crate::virtual_log::VirtualLog;
use bytes::Bytes;
use std::net::SocketAddr;
use std::rc::Rc;

/// The log of a service: on log servers, with its map on coordinators.
pub type ServiceLog = VirtualLog<CoordinatedRegister, QuorumLoglets>;
pub type ServiceStack<D> = Standard<ServiceLog, D>;

/// An application whose requests come by the process's own protocol.
#[allow(async_fn_in_trait)] // all tasks of a process share one thread
pub trait Serves: Application + Sized {
    /// What operators call it.
    const KIND: &'static str;

    fn create(settings: &Settings) -> Self;

    /// Why operators must not switch on the engine with this name, if the service cannot do with it.
    fn refuses(engine: &str) -> Option<&'static str> {
        let _ = engine;
        None
    }

    /// Why operators must not switch off the engine with this name, if the service cannot do without it.
    fn needs(engine: &str) -> Option<&'static str> {
        let _ = engine;
        None
    }

    /// Answers a client's request.
    async fn call(stack: &ServiceStack<Self>, operation: &str, request: &Bytes) -> Called;

    /// Does what the service needs beside requests, until the process has to stop.
    async fn attend(stack: &Rc<ServiceStack<Self>>) -> Stopped {
        let _ = stack;
        std::future::pending().await
    }
}

/// Where a replica is, as far as this one has applied the log.
/// What a client of this stack is told about a proposal without an answer.
pub fn lost_at<D: Application>(stack: &ServiceStack<D>, error: Lost) -> Called {
    lost(error, |id| roster::address(&stack.store().snapshot(), id))
}

/// What a client is told about a proposal without an answer. `find` knows the addresses of replicas.
pub fn lost(lost: Lost, find: impl Fn(ReplicaId) -> Option<SocketAddr>) -> Called {
    let may_be_done = match lost {
        Lost::Elsewhere(holder) => match find(holder) {
            Some(address) => return Called::Elsewhere(address),
            None => false,
        },
        Lost::Log(LogError::Sealed | LogError::TooLong(_)) => false,
        Lost::Log(_) | Lost::Stopped => true,
    };
    Called::Lost {
        may_be_done,
        why: lost.to_string(),
    }
}
