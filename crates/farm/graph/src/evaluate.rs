//! Queries evaluated by the machine that reads all vertices, or that has them.

use crate::edges::{After, span};
use crate::error::Result;
use crate::object::{List, VertexObject};
use crate::query::{
    Condition, FRONTIER_MAX, Frontier, Keep, Outcome, Part, Query, Reached, Row, Stage, Start,
    Then, reach,
};
use crate::schema::{self, Property, get};
use crate::transaction::GraphTx;
use plinth_farm_memory::{Objects, Pointer};
use plinth_runtime::yield_now;

/// Entries of a list that are read together.
const ENTRIES: usize = 512;
/// After so many vertices, or so many entries of a list, others of the machine have a turn: own memory is read
/// without a wait.
const VERTICES_A_TURN: usize = 64;

fn hold(conditions: &[Condition], properties: &[Property], row: &schema::Row) -> bool {
    conditions.iter().all(|condition| {
        let i = properties.iter().position(|p| p.name == condition.property);
        condition.holds(i.and_then(|i| get(row, i)))
    })
}

impl<O: Objects> GraphTx<'_, O> {
    /// Evaluates a query at the transaction's snapshot, with its own changes. Errors: `Unknown`, `Property`,
    /// `NotReady`, and `TooMany` if more than [`FRONTIER_MAX`] vertices are reached.
    pub async fn query(&self, query: &Query) -> Result<Reached> {
        self.query_by(query, async |stage, frontier| {
            self.stage(&stage, &frontier).await
        })
        .await
    }

    /// Evaluates a query whose stages are evaluated somehow.
    pub(crate) async fn query_by(
        &self,
        query: &Query,
        by: impl AsyncFn(Stage, Frontier) -> Result<Outcome>,
    ) -> Result<Reached> {
        query.check(&self.loaded().schema)?;
        let mut outcome = Outcome {
            frontier: self.start(&query.start).await?,
            ..Outcome::default()
        };
        for part in query.plan() {
            outcome = match part {
                Part::Limit(most) => limited(outcome, most),
                Part::Stage(stage) => by(stage, outcome.frontier).await?,
            };
        }
        Ok(reached(outcome))
    }

    /// The vertices where a query begins.
    async fn start(&self, start: &Start) -> Result<Frontier> {
        let found = match start {
            Start::Key { vertex_type, key } => self
                .find_vertex(vertex_type, key)
                .await?
                .into_iter()
                .collect(),
            Start::Index {
                vertex_type,
                index,
                range,
                limit,
            } => {
                let range = (range.0.as_ref(), range.1.as_ref());
                let limit = (*limit).min(FRONTIER_MAX + 1);
                self.lookup(vertex_type, index, range, None, limit)
                    .await?
                    .vertices
            }
        };
        let mut frontier = Frontier::new();
        for vertex in found {
            reach(&mut frontier, vertex.0, 1)?;
        }
        Ok(frontier)
    }

    /// Evaluates a stage for the vertices of a frontier.
    pub(crate) async fn stage(&self, stage: &Stage, frontier: &Frontier) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for (i, (at, paths)) in frontier.iter().enumerate() {
            if i % VERTICES_A_TURN == VERTICES_A_TURN - 1 {
                yield_now().await;
            }
            let vertex = self.known_vertex(*at).await?;
            if !self.is_kept(&stage.keeps, *at, &vertex).await? {
                continue;
            }
            match &stage.then {
                Then::Stay => reach(&mut outcome.frontier, *at, *paths)?,
                Then::Follow {
                    direction,
                    edge_type,
                    conditions,
                } => {
                    let list = &vertex.lists[direction.list()];
                    let next = &mut outcome.frontier;
                    self.follow(list, edge_type, conditions, *paths, next)
                        .await?;
                }
                Then::Rows(names) => {
                    reach(&mut outcome.frontier, *at, *paths)?;
                    let row = self.row_of(*at, &vertex, names, *paths).await?;
                    outcome.rows.push((*at, row));
                }
            }
        }
        Ok(outcome)
    }

    async fn is_kept(&self, keeps: &[Keep], at: Pointer, vertex: &VertexObject) -> Result<bool> {
        if keeps.is_empty() {
            return Ok(true);
        }
        let loaded = self.loaded();
        let of = &loaded.schema.vertices[usize::from(vertex.vertex_type)];
        if keeps.iter().any(|keep| {
            keep.vertex_type
                .as_ref()
                .is_some_and(|name| *name != of.name)
        }) {
            return Ok(false);
        }
        let row = self.vertex_row(at, vertex).await?;
        Ok(keeps
            .iter()
            .all(|keep| hold(&keep.conditions, &of.properties, &row)))
    }

    async fn row_of(
        &self,
        at: Pointer,
        vertex: &VertexObject,
        names: &[String],
        paths: u64,
    ) -> Result<Row> {
        let loaded = self.loaded();
        let of = &loaded.schema.vertices[usize::from(vertex.vertex_type)];
        let row = self.vertex_row(at, vertex).await?;
        let value = |name: &String| {
            let i = of.properties.iter().position(|p| p.name == *name)?;
            get(&row, i).cloned()
        };
        Ok(Row {
            vertex_type: of.name.clone(),
            paths,
            values: names.iter().map(value).collect(),
        })
    }

    /// Adds the other ends of edges in the list.
    async fn follow(
        &self,
        list: &List,
        edge_type: &str,
        conditions: &[Condition],
        paths: u64,
        next: &mut Frontier,
    ) -> Result<()> {
        let loaded = self.loaded();
        let number = loaded.schema.edge_type(edge_type)?;
        let properties = &loaded.schema.edges[number].properties;
        let mut after: Option<After> = None;
        loop {
            let span = span(Some(number as u16), after.as_ref());
            let part = self.list_part(list, &span, ENTRIES).await?;
            for entry in &part.entries {
                if !conditions.is_empty() {
                    let edge = self.known_edge(entry.edge).await?;
                    let row = self.edge_row(entry.edge, &edge).await?;
                    if !hold(conditions, properties, &row) {
                        continue;
                    }
                }
                reach(next, entry.other, paths)?;
            }
            match part.entries.last().filter(|_| part.more) {
                Some(last) => after = Some(After(*last)),
                None => return Ok(()),
            }
            yield_now().await;
        }
    }
}

fn limited(mut outcome: Outcome, most: usize) -> Outcome {
    if let Some((first, _)) = outcome.frontier.iter().nth(most) {
        let first = *first;
        outcome.frontier.split_off(&first);
    }
    outcome
}

/// The whole answer, when all stages are done.
fn reached(mut outcome: Outcome) -> Reached {
    outcome.rows.sort_by_key(|(at, _)| *at);
    let paths = outcome.frontier.values();
    Reached {
        vertices: outcome.frontier.len() as u64,
        paths: paths.fold(0, |sum, paths| sum.saturating_add(*paths)),
        rows: outcome.rows.into_iter().map(|(_, row)| row).collect(),
    }
}

/// Brings together what two machines have.
pub(crate) fn merge(into: &mut Outcome, other: Outcome) -> Result<()> {
    for (at, paths) in other.frontier {
        reach(&mut into.frontier, at, paths)?;
    }
    into.rows.extend(other.rows);
    Ok(())
}
