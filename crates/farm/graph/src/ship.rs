//! Queries evaluated by the machines that have the vertices (§4.6, §6).
//!
//! ```text
//!   coordinator, at its snapshot         other machines, at the same snapshot
//!     frontier, split by machine ──────▶ stage for their vertices
//!     next frontier ◀──────────────────── their part of it                        for each stage
//! ```
//!
//! The coordinator's transaction keeps the snapshot's versions for all, as long as it is active.

use crate::codec::Code;
use crate::error::{Error, Result};
use crate::evaluate::merge;
use crate::graph::Graph;
use crate::query::{Frontier, Outcome, Query, Reached, Stage};
use crate::transaction::GraphTx;
use crate::wire::{Reply, Request};
use plinth_farm_fabric::Machine;
use plinth_farm_memory::{Abort, Objects};
use plinth_farm_structures::Error as StructureError;
use plinth_runtime::{join_all, probe};
use std::collections::BTreeMap;
use std::future::Future;

/// How stages get to other machines.
pub trait Ship {
    /// The machine with the primary of a region. `None` for this one, and for a region that is nowhere.
    fn place(&self, region: u16) -> Option<Machine>;

    /// Sends a request to a machine, where [`serve`] takes it, and returns the answer. Error: `Gone` if the machine
    /// does not answer.
    fn ship(&self, to: Machine, request: Vec<u8>) -> impl Future<Output = Result<Vec<u8>>>;
}

impl<O: Objects> GraphTx<'_, O> {
    /// Evaluates a query as [`query`](GraphTx::query) does, with the same answer, but each stage where its vertices
    /// are. `read_at` is the transaction's snapshot. The transaction must not have written: others do not see that.
    /// Errors: those of [`query`](GraphTx::query), `Elsewhere`, `Gone`, and `Behind`.
    pub async fn query_shipped<S: Ship>(
        &self,
        query: &Query,
        read_at: u64,
        ship: &S,
    ) -> Result<Reached> {
        self.query_by(query, async |stage, frontier| {
            self.stage_shipped(stage, frontier, read_at, ship).await
        })
        .await
    }

    async fn stage_shipped<S: Ship>(
        &self,
        stage: Stage,
        frontier: Frontier,
        read_at: u64,
        ship: &S,
    ) -> Result<Outcome> {
        let mut split: BTreeMap<Option<Machine>, Frontier> = BTreeMap::new();
        for (at, paths) in frontier {
            let part = split.entry(ship.place(at.region())).or_default();
            part.insert(at, paths);
        }
        let stage = &stage;
        let parts = split.into_iter().map(async |(machine, frontier)| {
            let Some(machine) = machine else {
                return self.stage(stage, &frontier).await;
            };
            probe!("graph_stage_is_shipped");
            let request = Request {
                root: self.graph.root(),
                read_at,
                stage: stage.clone(),
                frontier,
            };
            let reply = ship.ship(machine, request.encode()).await?;
            match Reply::decode(&reply) {
                Some(Reply::Outcome(outcome)) => Ok(outcome),
                Some(Reply::Abort(Abort::NotAllowed)) => Err(Error::Behind { machine: machine.0 }),
                Some(Reply::Abort(abort)) => Err(abort.into()),
                Some(Reply::Refused(what)) => Err(Error::Elsewhere {
                    machine: machine.0,
                    what,
                }),
                None => Err(Error::Malformed("the answer to a stage of a query")),
            }
        });
        let mut whole = Outcome::default();
        for part in join_all(parts).await {
            merge(&mut whole, part?)?;
        }
        Ok(whole)
    }
}

/// The root object of the graph that a request is for, and the snapshot. Error: `Malformed`.
pub(crate) fn parse(request: &[u8]) -> Result<Request> {
    let request = Request::decode(request);
    request.ok_or(Error::Malformed("a stage of a query"))
}

/// The answer to a request, in a transaction at its snapshot.
pub(crate) async fn serve<O: Objects>(graph: &Graph, tx: &O, request: &Request) -> Vec<u8> {
    let outcome = async {
        let on = graph.on(tx).await?;
        on.stage(&request.stage, &request.frontier).await
    };
    reply(outcome.await).encode()
}

/// An outcome, or why there is none.
pub(crate) fn reply(outcome: Result<Outcome>) -> Reply {
    match outcome {
        Ok(outcome) => Reply::Outcome(outcome),
        Err(Error::Structure(StructureError::Abort(abort))) => Reply::Abort(abort),
        Err(error) => Reply::Refused(error.to_string()),
    }
}
