//! The graph in plain maps.

use crate::lists::Direction;
use crate::query::{Condition, Query, Returns, Start, Step};
use crate::value::Value;
use std::collections::BTreeMap;
use std::ops::Bound;

pub const VERTEX_TYPES: [&str; 2] = ["person", "place"];
pub const EDGE_TYPES: [&str; 2] = ["knows", "likes"];
/// Index and property have the same name. The second one is unique.
pub const INDEXES: [&str; 2] = ["age", "mail"];
pub const AGE: usize = 0;
pub const MAIL: usize = 1;

/// A vertex: number of the type in [`VERTEX_TYPES`], primary key.
pub type Name = (usize, i64);
/// Properties beside the primary key.
pub type Values = BTreeMap<String, Value>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelEdge {
    pub edge_type: usize,
    pub from: Name,
    pub to: Name,
    pub weight: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexState {
    Building,
    Ready,
    Dropping,
}

/// A vertex that a query has reached, its paths, and the properties that were asked for.
pub type Reach = (Name, u64, Vec<Option<Value>>);

/// An operation, by names and not by places. Indexes are on vertices of the first type.
#[derive(Clone, PartialEq, Debug)]
pub enum Call {
    Create(Name, Values),
    Read(Name),
    Update(Name, Vec<(String, Option<Value>)>),
    Delete(Name),
    /// The edge gets this number.
    Connect(i64, ModelEdge),
    /// One of the edges from the vertex: the one at this position by its number, modulo how many there are.
    Disconnect(Name, usize),
    Weigh(Name, usize, Option<i64>),
    /// The edges of the vertex, in pages of so many.
    Edges(Name, Direction, Option<usize>, usize),
    /// Up to so many vertices with values from here to there, both included.
    Lookup(usize, Option<Value>, Option<Value>, usize),
    Query(Query),
    CreateIndex(usize),
    BuildSome(usize, usize),
    DropIndex(usize),
    DropSome(usize, usize),
}

/// Why a call was refused, where that is an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    KeyTaken,
    NotUnique,
    NotReady,
    NoVertex,
    NoEdge,
    /// There is no such index.
    Unknown,
    /// There is such an index.
    Taken,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    Refused(Refusal),
    Done,
    /// Edges that went with a vertex.
    Deleted(usize),
    Values(Values),
    /// The number of an edge.
    Edge(i64),
    /// Numbers of edges, with the other end, by number.
    Edges(Vec<(i64, Name)>),
    /// By value and name.
    Vertices(Vec<(Value, Name)>),
    /// Vertices and paths, and rows in order.
    Reached(u64, u64, Vec<Reach>),
    /// Whether a piece was the last.
    Last(bool),
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Model {
    pub vertices: BTreeMap<Name, Values>,
    /// By number.
    pub edges: BTreeMap<i64, ModelEdge>,
    pub indexes: BTreeMap<usize, IndexState>,
}

impl Model {
    /// Carries out a call. What the graph has answered decides where the model cannot know: how far an index is
    /// built.
    pub fn apply(&mut self, call: &Call, seen: &Answer) -> Answer {
        match call {
            Call::Create(name, values) => self.create(*name, values, seen),
            Call::Read(name) => match self.vertices.get(name) {
                Some(values) => Answer::Values(values.clone()),
                None => Answer::Refused(Refusal::NoVertex),
            },
            Call::Update(name, changes) => self.update(*name, changes, seen),
            Call::Delete(name) => match self.vertices.remove(name) {
                Some(_) => {
                    let before = self.edges.len();
                    self.edges
                        .retain(|_, edge| edge.from != *name && edge.to != *name);
                    Answer::Deleted(before - self.edges.len())
                }
                None => Answer::Refused(Refusal::NoVertex),
            },
            Call::Connect(number, edge) => {
                let is_there = |name| self.vertices.contains_key(name);
                if !is_there(&edge.from) || !is_there(&edge.to) {
                    return Answer::Refused(Refusal::NoVertex);
                }
                self.edges.insert(*number, edge.clone());
                Answer::Done
            }
            Call::Disconnect(from, nth) => match self.nth(*from, *nth) {
                Ok(number) => {
                    self.edges.remove(&number);
                    Answer::Edge(number)
                }
                Err(refusal) => Answer::Refused(refusal),
            },
            Call::Weigh(from, nth, weight) => match self.nth(*from, *nth) {
                Ok(number) => {
                    let edge = self.edges.get_mut(&number).expect("it is there");
                    edge.weight = *weight;
                    Answer::Edge(number)
                }
                Err(refusal) => Answer::Refused(refusal),
            },
            Call::Edges(name, direction, edge_type, _) => {
                self.edges_of(*name, *direction, *edge_type)
            }
            Call::Lookup(index, from, to, limit) => self.lookup(*index, from, to, *limit, seen),
            Call::Query(query) => self.query(query, seen),
            _ => self.apply_to_index(call, seen),
        }
    }

    fn apply_to_index(&mut self, call: &Call, seen: &Answer) -> Answer {
        match call {
            Call::CreateIndex(index) => match self.indexes.contains_key(index) {
                true => Answer::Refused(Refusal::Taken),
                false => {
                    self.indexes.insert(*index, IndexState::Building);
                    Answer::Done
                }
            },
            Call::BuildSome(index, _) => self.build(*index, seen),
            Call::DropIndex(index) => match self.indexes.get_mut(index) {
                None => Answer::Refused(Refusal::Unknown),
                Some(IndexState::Dropping) => Answer::Refused(Refusal::NotReady),
                Some(state) => {
                    *state = IndexState::Dropping;
                    Answer::Done
                }
            },
            Call::DropSome(index, _) => match (self.indexes.get(index), seen) {
                (None, _) => Answer::Refused(Refusal::Unknown),
                (Some(IndexState::Dropping), Answer::Last(is_last)) => {
                    if *is_last {
                        self.indexes.remove(index);
                    }
                    Answer::Last(*is_last)
                }
                (Some(_), _) => Answer::Refused(Refusal::NotReady),
            },
            _ => Answer::Refused(Refusal::Unknown),
        }
    }

    /// Another vertex has the value in a unique index.
    fn is_double(&self, name: Name, values: &Values) -> bool {
        let mail = values.get(INDEXES[MAIL]);
        let others = self
            .vertices
            .iter()
            .filter(|(other, _)| **other != name && other.0 == 0);
        mail.is_some()
            && name.0 == 0
            && others
                .into_iter()
                .any(|(_, v)| v.get(INDEXES[MAIL]) == mail)
    }

    /// Whether a unique index refuses the values.
    fn refuses(&self, name: Name, values: &Values, seen: &Answer) -> bool {
        let is_double = self.is_double(name, values);
        match self.indexes.get(&MAIL) {
            Some(IndexState::Ready) => is_double,
            // It depends on whether the other one was entered already.
            Some(IndexState::Building) => is_double && *seen == Answer::Refused(Refusal::NotUnique),
            Some(IndexState::Dropping) | None => false,
        }
    }

    fn create(&mut self, name: Name, values: &Values, seen: &Answer) -> Answer {
        if self.vertices.contains_key(&name) {
            return Answer::Refused(Refusal::KeyTaken);
        }
        if self.refuses(name, values, seen) {
            return Answer::Refused(Refusal::NotUnique);
        }
        self.vertices.insert(name, values.clone());
        Answer::Done
    }

    fn update(&mut self, name: Name, changes: &[(String, Option<Value>)], seen: &Answer) -> Answer {
        let Some(former) = self.vertices.get(&name) else {
            return Answer::Refused(Refusal::NoVertex);
        };
        let mut values = former.clone();
        for (property, value) in changes {
            match value {
                Some(value) => values.insert(property.clone(), value.clone()),
                None => values.remove(property),
            };
        }
        let mail = INDEXES[MAIL];
        if former.get(mail) != values.get(mail) && self.refuses(name, &values, seen) {
            return Answer::Refused(Refusal::NotUnique);
        }
        self.vertices.insert(name, values);
        Answer::Done
    }

    fn nth(&self, from: Name, nth: usize) -> Result<i64, Refusal> {
        if !self.vertices.contains_key(&from) {
            return Err(Refusal::NoVertex);
        }
        let own = self.edges.iter().filter(|(_, edge)| edge.from == from);
        let numbers: Vec<i64> = own.map(|(number, _)| *number).collect();
        match numbers.is_empty() {
            true => Err(Refusal::NoEdge),
            false => Ok(numbers[nth % numbers.len()]),
        }
    }

    fn edges_of(&self, name: Name, direction: Direction, edge_type: Option<usize>) -> Answer {
        if !self.vertices.contains_key(&name) {
            return Answer::Refused(Refusal::NoVertex);
        }
        let ends = |edge: &ModelEdge| match direction {
            Direction::Out => (edge.from, edge.to),
            Direction::In => (edge.to, edge.from),
        };
        let found = self.edges.iter().filter(|(_, edge)| {
            ends(edge).0 == name && edge_type.is_none_or(|of| of == edge.edge_type)
        });
        Answer::Edges(
            found
                .map(|(number, edge)| (*number, ends(edge).1))
                .collect(),
        )
    }

    /// What the index has from here to there.
    pub fn indexed(
        &self,
        index: usize,
        from: &Option<Value>,
        to: &Option<Value>,
    ) -> Vec<(Value, Name)> {
        let mut found = Vec::new();
        for (name, values) in self.vertices.iter().filter(|(name, _)| name.0 == 0) {
            if let Some(value) = values.get(INDEXES[index])
                && from.as_ref().is_none_or(|from| from <= value)
                && to.as_ref().is_none_or(|to| value <= to)
            {
                found.push((value.clone(), *name));
            }
        }
        found.sort();
        found
    }

    fn lookup(
        &self,
        index: usize,
        from: &Option<Value>,
        to: &Option<Value>,
        limit: usize,
        seen: &Answer,
    ) -> Answer {
        match self.indexes.get(&index) {
            None => return Answer::Refused(Refusal::Unknown),
            Some(IndexState::Ready) => (),
            Some(_) => return Answer::Refused(Refusal::NotReady),
        }
        let all = self.indexed(index, from, to);
        // The order among equal values is that of places.
        let Answer::Vertices(seen) = seen else {
            return Answer::Vertices(all);
        };
        let values = |rows: &[(Value, Name)]| -> Vec<Value> {
            rows.iter().map(|(value, _)| value.clone()).collect()
        };
        let cut = &all[..all.len().min(limit)];
        let is_subset = seen.iter().all(|row| all.contains(row));
        match is_subset && values(seen) == values(cut) {
            true => Answer::Vertices(seen.clone()),
            false => Answer::Vertices(all),
        }
    }

    fn start(&self, start: &Start) -> Result<BTreeMap<Name, u64>, Refusal> {
        let (index, range) = match start {
            Start::Key { vertex_type, key } => {
                let is_it = |name: &&Name| {
                    VERTEX_TYPES[name.0] == vertex_type && *key == Value::I64(name.1)
                };
                let found = self.vertices.keys().find(is_it);
                return Ok(found.map(|name| (*name, 1)).into_iter().collect());
            }
            Start::Index { index, range, .. } => (index, range),
        };
        let index = INDEXES.iter().position(|name| name == index);
        let index = index.ok_or(Refusal::Unknown)?;
        match self.indexes.get(&index) {
            None => return Err(Refusal::Unknown),
            Some(IndexState::Ready) => (),
            Some(_) => return Err(Refusal::NotReady),
        }
        let bound = |bound: &Bound<Value>| match bound {
            Bound::Included(value) | Bound::Excluded(value) => Some(value.clone()),
            Bound::Unbounded => None,
        };
        let found = self.indexed(index, &bound(&range.0), &bound(&range.1));
        Ok(found.into_iter().map(|(_, name)| (name, 1)).collect())
    }

    fn holds(&self, name: Name, conditions: &[Condition]) -> bool {
        let key = Value::I64(name.1);
        conditions
            .iter()
            .all(|condition| match &condition.property[..] {
                "key" => condition.holds(Some(&key)),
                property => condition.holds(self.vertices[&name].get(property)),
            })
    }

    /// Limits are heeded at the end only.
    fn query(&self, query: &Query, seen: &Answer) -> Answer {
        let mut frontier = match self.start(&query.start) {
            Ok(frontier) => frontier,
            Err(refusal) => return Answer::Refused(refusal),
        };
        let mut limit = usize::MAX;
        for step in &query.steps {
            match step {
                Step::Limit(most) => limit = *most,
                Step::Keep {
                    vertex_type,
                    conditions,
                } => frontier.retain(|name, _| {
                    let is_type = |of: &String| of == VERTEX_TYPES[name.0];
                    vertex_type.as_ref().is_none_or(is_type) && self.holds(*name, conditions)
                }),
                Step::Follow {
                    direction,
                    edge_type,
                    conditions,
                } => {
                    let mut next = BTreeMap::new();
                    for edge in self
                        .edges
                        .values()
                        .filter(|e| EDGE_TYPES[e.edge_type] == edge_type)
                    {
                        let weight = edge.weight.map(Value::I64);
                        let (from, to) = match direction {
                            Direction::Out => (edge.from, edge.to),
                            Direction::In => (edge.to, edge.from),
                        };
                        if let Some(paths) = frontier.get(&from)
                            && conditions.iter().all(|c| c.holds(weight.as_ref()))
                        {
                            *next.entry(to).or_insert(0) += paths;
                        }
                    }
                    frontier = next;
                }
            }
        }
        self.reached(query, &frontier, limit, seen)
    }

    fn reached(
        &self,
        query: &Query,
        frontier: &BTreeMap<Name, u64>,
        limit: usize,
        seen: &Answer,
    ) -> Answer {
        let Returns::Properties(names) = &query.returns else {
            return Answer::Reached(frontier.len() as u64, frontier.values().sum(), Vec::new());
        };
        let value = |name: &Name, property: &String| match &property[..] {
            "key" => Some(Value::I64(name.1)),
            property => self.vertices[name].get(property).cloned(),
        };
        let row = |(name, paths): (&Name, &u64)| {
            let values = names.iter().map(|property| value(name, property));
            (*name, *paths, values.collect())
        };
        let rows: Vec<Reach> = frontier.iter().map(row).collect();
        // The order of a limit is that of places.
        if let Answer::Reached(vertices, paths, seen_rows) = seen
            && rows.len() > limit
            && (seen_rows.len(), *vertices) == (limit, limit as u64)
            && seen_rows.iter().all(|row| rows.contains(row))
            && *paths == seen_rows.iter().map(|(_, paths, _)| paths).sum::<u64>()
        {
            return seen.clone();
        }
        Answer::Reached(frontier.len() as u64, frontier.values().sum(), rows)
    }

    fn build(&mut self, index: usize, seen: &Answer) -> Answer {
        let has_double = index == MAIL
            && self
                .vertices
                .iter()
                .any(|(name, values)| self.is_double(*name, values));
        match (self.indexes.get(&index), seen) {
            (None, _) => Answer::Refused(Refusal::Unknown),
            (Some(IndexState::Dropping), _) => Answer::Refused(Refusal::NotReady),
            (Some(IndexState::Ready), _) => Answer::Last(true),
            (Some(_), Answer::Refused(Refusal::NotUnique)) if has_double => seen.clone(),
            (Some(_), Answer::Last(true)) if !has_double => {
                self.indexes.insert(index, IndexState::Ready);
                Answer::Last(true)
            }
            (Some(_), _) => Answer::Last(false),
        }
    }

    /// Brings over to `self` what has changed between two models.
    pub fn take_changes(&mut self, before: &Model, after: &Model) {
        take(&mut self.vertices, &before.vertices, &after.vertices);
        take(&mut self.edges, &before.edges, &after.edges);
        take(&mut self.indexes, &before.indexes, &after.indexes);
    }
}

fn take<K: Ord + Clone, V: PartialEq + Clone>(
    into: &mut BTreeMap<K, V>,
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
) {
    for key in before.keys().filter(|key| !after.contains_key(key)) {
        into.remove(key);
    }
    for (key, value) in after
        .iter()
        .filter(|(key, value)| before.get(key) != Some(value))
    {
        into.insert(key.clone(), value.clone());
    }
}
