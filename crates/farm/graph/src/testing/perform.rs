//! Calls on a graph.

use super::model::{
    Answer, Call, EDGE_TYPES, INDEXES, IndexState, MAIL, Model, ModelEdge, Name, Refusal,
    VERTEX_TYPES, Values,
};
use crate::edges::EdgeRecord;
use crate::error::{Error, Result};
use crate::lists::Direction;
use crate::query::{Query, Reached, Returns};
use crate::schema::{Property, State};
use crate::transaction::{Edge, GraphTx, Record, Vertex};
use crate::value::{Kind, Value};
use plinth_farm_memory::Objects;
use std::ops::Bound;

/// The types of the model. Tables are as small as they may be, so that they have chains.
pub async fn declare<O: Objects>(graph: &GraphTx<'_, O>) -> Result<()> {
    for name in VERTEX_TYPES {
        let properties = vec![
            Property::required("key", Kind::I64),
            Property::optional(INDEXES[0], Kind::I64),
            Property::optional(INDEXES[1], Kind::String),
            Property::optional("note", Kind::Bytes),
        ];
        graph.create_vertex_type(name, properties, "key", 8).await?;
    }
    for name in EDGE_TYPES {
        let properties = vec![
            Property::required("number", Kind::I64),
            Property::optional("weight", Kind::I64),
        ];
        graph.create_edge_type(name, properties).await?;
    }
    Ok(())
}

fn number(value: Option<&Value>) -> Option<i64> {
    match value {
        Some(Value::I64(number)) => Some(*number),
        _ => None,
    }
}

fn position(names: &[&str], name: &str) -> usize {
    let found = names.iter().position(|of| *of == name);
    found.expect("a type of the model")
}

fn named(record: &Record) -> (Name, Values) {
    let key = number(record.get("key")).expect("a key");
    let values = record.values.iter().filter(|(name, _)| name != "key");
    let name = (position(&VERTEX_TYPES, &record.type_name), key);
    (name, values.cloned().collect())
}

async fn find<O: Objects>(graph: &GraphTx<'_, O>, name: Name) -> Result<Vertex> {
    let key = Value::I64(name.1);
    let found = graph.find_vertex(VERTEX_TYPES[name.0], &key).await?;
    found.ok_or(Error::NoVertex)
}

async fn name_of<O: Objects>(graph: &GraphTx<'_, O>, vertex: Vertex) -> Result<Name> {
    Ok(named(&graph.vertex(vertex).await?).0)
}

/// All edges of a vertex, by number, listed in pages.
async fn edges_of<O: Objects>(
    graph: &GraphTx<'_, O>,
    vertex: Vertex,
    direction: Direction,
    edge_type: Option<usize>,
    page: usize,
) -> Result<Vec<(i64, Edge, EdgeRecord)>> {
    let edge_type = edge_type.map(|of| EDGE_TYPES[of]);
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let part = graph
            .edges(vertex, direction, edge_type, after.as_ref(), page)
            .await?;
        assert!(part.edges.len() <= page);
        for adjacent in part.edges {
            let edge = graph.edge(adjacent.edge).await?;
            let (own, other) = match direction {
                Direction::Out => (edge.from, edge.to),
                Direction::In => (edge.to, edge.from),
            };
            if (own, other) != (vertex, adjacent.other) {
                return Err(Error::Malformed(
                    "an edge is in the list of a vertex at neither end",
                ));
            }
            let number = number(edge.record.get("number")).expect("a number");
            found.push((number, adjacent.edge, edge));
        }
        after = match part.next {
            Some(next) => Some(next),
            None => break,
        };
    }
    found.sort_by_key(|(number, ..)| *number);
    Ok(found)
}

async fn nth<O: Objects>(graph: &GraphTx<'_, O>, from: Name, nth: usize) -> Result<(i64, Edge)> {
    let vertex = find(graph, from).await?;
    let edges = edges_of(graph, vertex, Direction::Out, None, 1000).await?;
    match edges.is_empty() {
        true => Err(Error::NoEdge),
        false => {
            let (number, edge, _) = &edges[nth % edges.len()];
            Ok((*number, *edge))
        }
    }
}

/// What a query has reached, as an answer.
pub fn reached(query: &Query, reached: Reached) -> Answer {
    let key = match &query.returns {
        Returns::Properties(names) => names.iter().position(|name| name == "key"),
        Returns::Count => None,
    };
    let rows = reached.rows.into_iter().map(|row| {
        let key = key.and_then(|i| number(row.values[i].as_ref()));
        let name = (
            position(&VERTEX_TYPES, &row.vertex_type),
            key.expect("a key"),
        );
        (name, row.paths, row.values)
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|(name, ..)| *name);
    Answer::Reached(reached.vertices, reached.paths, rows)
}

/// Carries out a call. Error: one that is not an answer.
pub async fn perform<O: Objects>(graph: &GraphTx<'_, O>, call: &Call) -> Result<Answer> {
    answered(answer(graph, call).await)
}

/// Errors that are answers, as such.
pub fn answered(answer: Result<Answer>) -> Result<Answer> {
    match answer {
        Err(Error::KeyTaken) => Ok(Answer::Refused(Refusal::KeyTaken)),
        Err(Error::NotUnique { .. }) => Ok(Answer::Refused(Refusal::NotUnique)),
        Err(Error::NotReady { .. }) => Ok(Answer::Refused(Refusal::NotReady)),
        Err(Error::NoVertex) => Ok(Answer::Refused(Refusal::NoVertex)),
        Err(Error::NoEdge) => Ok(Answer::Refused(Refusal::NoEdge)),
        Err(Error::Unknown { what: "index", .. }) => Ok(Answer::Refused(Refusal::Unknown)),
        Err(Error::Taken { what: "index", .. }) => Ok(Answer::Refused(Refusal::Taken)),
        answer => answer,
    }
}

async fn answer<O: Objects>(graph: &GraphTx<'_, O>, call: &Call) -> Result<Answer> {
    match call {
        Call::Create(name, values) => {
            let mut given = vec![("key", Value::I64(name.1))];
            given.extend(
                values
                    .iter()
                    .map(|(name, value)| (&name[..], value.clone())),
            );
            graph.create_vertex(VERTEX_TYPES[name.0], &given).await?;
        }
        Call::Read(name) => {
            let vertex = find(graph, *name).await?;
            return Ok(Answer::Values(named(&graph.vertex(vertex).await?).1));
        }
        Call::Update(name, changes) => {
            let changes: Vec<_> = (changes.iter())
                .map(|(name, value)| (&name[..], value.clone()))
                .collect();
            graph
                .update_vertex(find(graph, *name).await?, &changes)
                .await?;
        }
        Call::Delete(name) => {
            let vertex = find(graph, *name).await?;
            return Ok(Answer::Deleted(graph.delete_vertex(vertex).await?));
        }
        Call::Connect(number, edge) => {
            let (from, to) = (find(graph, edge.from).await?, find(graph, edge.to).await?);
            let mut values = vec![("number", Value::I64(*number))];
            values.extend(edge.weight.map(|weight| ("weight", Value::I64(weight))));
            let edge_type = EDGE_TYPES[edge.edge_type];
            graph.create_edge(edge_type, from, to, &values).await?;
        }
        Call::Disconnect(from, n) => {
            let (number, edge) = nth(graph, *from, *n).await?;
            graph.delete_edge(edge).await?;
            return Ok(Answer::Edge(number));
        }
        Call::Weigh(from, n, weight) => {
            let (number, edge) = nth(graph, *from, *n).await?;
            let changes = [("weight", weight.map(Value::I64))];
            graph.update_edge(edge, &changes).await?;
            return Ok(Answer::Edge(number));
        }
        Call::Edges(name, direction, edge_type, page) => {
            let vertex = find(graph, *name).await?;
            let mut found = Vec::new();
            for (number, _, edge) in edges_of(graph, vertex, *direction, *edge_type, *page).await? {
                let other = match direction {
                    Direction::Out => edge.to,
                    Direction::In => edge.from,
                };
                found.push((number, name_of(graph, other).await?));
            }
            return Ok(Answer::Edges(found));
        }
        Call::Lookup(index, from, to, limit) => {
            return lookup(graph, *index, (from, to), *limit).await;
        }
        Call::Query(query) => return Ok(reached(query, graph.query(query).await?)),
        _ => return index_call(graph, call).await,
    }
    Ok(Answer::Done)
}

async fn index_call<O: Objects>(graph: &GraphTx<'_, O>, call: &Call) -> Result<Answer> {
    let indexed = VERTEX_TYPES[0];
    match call {
        Call::CreateIndex(index) => {
            let (name, is_unique) = (INDEXES[*index], *index == MAIL);
            graph.create_index(indexed, name, name, is_unique).await?;
        }
        Call::BuildSome(index, most) => {
            let is_last = graph.build_some(indexed, INDEXES[*index], *most).await?;
            return Ok(Answer::Last(is_last));
        }
        Call::DropIndex(index) => graph.drop_index(indexed, INDEXES[*index]).await?,
        Call::DropSome(index, most) => {
            let is_last = graph.drop_some(indexed, INDEXES[*index], *most).await?;
            return Ok(Answer::Last(is_last));
        }
        _ => return Err(Error::Malformed("no call on an index")),
    }
    Ok(Answer::Done)
}

/// Pages of one and then of the rest must be the same as one page.
async fn lookup<O: Objects>(
    graph: &GraphTx<'_, O>,
    index: usize,
    (from, to): (&Option<Value>, &Option<Value>),
    limit: usize,
) -> Result<Answer> {
    let bound = |value: &'_ Option<Value>| value.clone().map_or(Bound::Unbounded, Bound::Included);
    let (from, to) = (bound(from), bound(to));
    let range = (from.as_ref(), to.as_ref());
    let (of, name) = (VERTEX_TYPES[0], INDEXES[index]);
    let first = graph.lookup(of, name, range, None, 1).await?;
    let mut vertices = first.vertices;
    if let (Some(next), true) = (first.next, limit > 1) {
        let rest = graph
            .lookup(of, name, range, Some(&next), limit - 1)
            .await?;
        vertices.extend(rest.vertices);
    }
    let mut found = Vec::new();
    for vertex in vertices {
        let record = graph.vertex(vertex).await?;
        let Some(value) = record.get(name).cloned() else {
            return Err(Error::Malformed(
                "an index leads to a vertex without the value",
            ));
        };
        found.push((value, named(&record).0));
    }
    found.sort();
    Ok(Answer::Vertices(found))
}

/// The whole graph as a model, found from vertices of all keys that `some_call` chooses.
pub async fn dump<O: Objects>(graph: &GraphTx<'_, O>) -> Result<Model> {
    let mut model = Model::default();
    for at in graph.vertices().await? {
        let (name, values) = named(&graph.vertex(at).await?);
        for (number, _, edge) in edges_of(graph, at, Direction::Out, None, 1000).await? {
            let edge = ModelEdge {
                edge_type: position(&EDGE_TYPES, &edge.record.type_name),
                from: name,
                to: name_of(graph, edge.to).await?,
                weight: self::number(edge.record.get("weight")),
            };
            model.edges.insert(number, edge);
        }
        model.vertices.insert(name, values);
    }
    for index in &graph.schema().vertices[0].indexes {
        let state = match index.state {
            State::Building => IndexState::Building,
            State::Ready => IndexState::Ready,
            State::Dropping => IndexState::Dropping,
        };
        model.indexes.insert(position(&INDEXES, &index.name), state);
    }
    Ok(model)
}
