//! Queries that follow edges: what can be asked, and in which stages it is evaluated.
//!
//! ```text
//!   Start ──▶ vertices ── Step ──▶ vertices ── Step ──▶ … ──▶ count, or properties
//! ```
//!
//! What a query carries from step to step are vertices, each with the number of paths that lead to it. A vertex that
//! two paths have reached is followed once.

use crate::error::{Result, at_most};
use crate::lists::Direction;
use crate::schema::{Property, Schema, check_value, position};
use crate::value::Value;
use plinth_farm_memory::Pointer;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Most vertices that a query has reached after a step.
pub const FRONTIER_MAX: usize = 1 << 20;
/// Most steps of a query, and most conditions of a step.
pub const STEPS_MAX: usize = 64;

/// Vertices by place, each with its number of paths.
pub(crate) type Frontier = BTreeMap<Pointer, u64>;

/// How a property must compare to a value. A property that is absent compares to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    Less,
    AtMost,
    Equal,
    NotEqual,
    AtLeast,
    Greater,
}

impl Compare {
    pub(crate) const ALL: [Compare; 6] = [
        Compare::Less,
        Compare::AtMost,
        Compare::Equal,
        Compare::NotEqual,
        Compare::AtLeast,
        Compare::Greater,
    ];

    fn holds(self, order: Ordering) -> bool {
        match self {
            Compare::Less => order.is_lt(),
            Compare::AtMost => order.is_le(),
            Compare::Equal => order.is_eq(),
            Compare::NotEqual => order.is_ne(),
            Compare::AtLeast => order.is_ge(),
            Compare::Greater => order.is_gt(),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    pub property: String,
    pub compare: Compare,
    pub value: Value,
}

impl Condition {
    pub fn new(property: &str, compare: Compare, value: Value) -> Condition {
        Condition {
            property: property.to_owned(),
            compare,
            value,
        }
    }

    /// Whether it holds for a value of the property.
    pub fn holds(&self, value: Option<&Value>) -> bool {
        let value = value.filter(|value| value.kind() == self.value.kind());
        value.is_some_and(|value| self.compare.holds(value.cmp(&self.value)))
    }
}

/// Where a query begins.
#[derive(Clone, PartialEq, Debug)]
pub enum Start {
    /// The vertex with this primary key, if there is one.
    Key { vertex_type: String, key: Value },
    /// The first vertices of an index in this range, up to `limit`.
    Index {
        vertex_type: String,
        index: String,
        range: (Bound<Value>, Bound<Value>),
        limit: usize,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// To the vertices at the other end of edges of a type for which all conditions hold.
    Follow {
        direction: Direction,
        edge_type: String,
        conditions: Vec<Condition>,
    },
    /// Keeps vertices of a type, or of any, for which all conditions hold. A vertex of a type without the property
    /// goes.
    Keep {
        vertex_type: Option<String>,
        conditions: Vec<Condition>,
    },
    /// Keeps the first vertices in the order of their places.
    Limit(usize),
}

/// What a query returns.
#[derive(Clone, PartialEq, Debug)]
pub enum Returns {
    /// Only numbers.
    Count,
    /// These properties of each vertex; a type that has no such property gives none.
    Properties(Vec<String>),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Query {
    pub start: Start,
    pub steps: Vec<Step>,
    pub returns: Returns,
}

/// A vertex that was reached.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    pub vertex_type: String,
    /// How many paths lead to it.
    pub paths: u64,
    /// In the order in which the query names them.
    pub values: Vec<Option<Value>>,
}

/// What a query has reached.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reached {
    pub vertices: u64,
    pub paths: u64,
    /// In the order of the vertices' places; none for a count.
    pub rows: Vec<Row>,
}

/// A query that begins somewhere, to which steps are added.
impl Query {
    pub fn from_key(vertex_type: &str, key: Value) -> Query {
        let vertex_type = vertex_type.to_owned();
        Query::new(Start::Key { vertex_type, key })
    }

    /// From up to `limit` vertices of an index.
    pub fn from_index(
        vertex_type: &str,
        index: &str,
        range: (Bound<Value>, Bound<Value>),
        limit: usize,
    ) -> Query {
        Query::new(Start::Index {
            vertex_type: vertex_type.to_owned(),
            index: index.to_owned(),
            range,
            limit,
        })
    }

    fn new(start: Start) -> Query {
        Query {
            start,
            steps: Vec::new(),
            returns: Returns::Count,
        }
    }

    fn with(mut self, step: Step) -> Query {
        self.steps.push(step);
        self
    }

    pub fn follow(self, direction: Direction, edge_type: &str, conditions: &[Condition]) -> Query {
        self.with(Step::Follow {
            direction,
            edge_type: edge_type.to_owned(),
            conditions: conditions.to_vec(),
        })
    }

    pub fn keep(self, vertex_type: Option<&str>, conditions: &[Condition]) -> Query {
        self.with(Step::Keep {
            vertex_type: vertex_type.map(str::to_owned),
            conditions: conditions.to_vec(),
        })
    }

    pub fn limit(self, vertices: usize) -> Query {
        self.with(Step::Limit(vertices))
    }

    pub fn properties(mut self, names: &[&str]) -> Query {
        let names = names.iter().map(|name| (*name).to_owned());
        self.returns = Returns::Properties(names.collect());
        self
    }

    /// The schema has what the query names.
    pub(crate) fn check(&self, schema: &Schema) -> Result<()> {
        at_most("steps of a query", self.steps.len(), STEPS_MAX)?;
        for step in &self.steps {
            let conditions = match step {
                Step::Follow {
                    edge_type,
                    conditions,
                    ..
                } => {
                    let of = &schema.edges[schema.edge_type(edge_type)?];
                    check_conditions(conditions, &of.properties)?;
                    conditions
                }
                Step::Keep {
                    vertex_type: Some(of),
                    conditions,
                } => {
                    let of = &schema.vertices[schema.vertex_type(of)?];
                    check_conditions(conditions, &of.properties)?;
                    conditions
                }
                Step::Keep { conditions, .. } => conditions,
                Step::Limit(_) => continue,
            };
            at_most("conditions of a step", conditions.len(), STEPS_MAX)?;
        }
        match &self.returns {
            Returns::Properties(names) => at_most("properties of a query", names.len(), STEPS_MAX),
            Returns::Count => Ok(()),
        }
    }

    /// What is evaluated where vertices are, and what between.
    pub(crate) fn plan(&self) -> Vec<Part> {
        let (mut parts, mut keeps) = (Vec::new(), Vec::new());
        let stage = |keeps: &mut Vec<Keep>, then| {
            let keeps = std::mem::take(keeps);
            Part::Stage(Stage { keeps, then })
        };
        for step in &self.steps {
            match step.clone() {
                Step::Keep {
                    vertex_type,
                    conditions,
                } => keeps.push(Keep {
                    vertex_type,
                    conditions,
                }),
                Step::Follow {
                    direction,
                    edge_type,
                    conditions,
                } => {
                    let follow = Then::Follow {
                        direction,
                        edge_type,
                        conditions,
                    };
                    parts.push(stage(&mut keeps, follow));
                }
                Step::Limit(most) => {
                    if !keeps.is_empty() {
                        parts.push(stage(&mut keeps, Then::Stay));
                    }
                    parts.push(Part::Limit(most));
                }
            }
        }
        match &self.returns {
            Returns::Properties(names) => parts.push(stage(&mut keeps, Then::Rows(names.clone()))),
            Returns::Count if keeps.is_empty() => (),
            Returns::Count => parts.push(stage(&mut keeps, Then::Stay)),
        }
        parts
    }
}

fn check_conditions(conditions: &[Condition], properties: &[Property]) -> Result<()> {
    for condition in conditions {
        let i = position(properties, &condition.property)?;
        check_value(&properties[i], Some(&condition.value))?;
    }
    Ok(())
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Keep {
    pub vertex_type: Option<String>,
    pub conditions: Vec<Condition>,
}

/// What the machine does that has the vertices.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Stage {
    pub keeps: Vec<Keep>,
    pub then: Then,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Then {
    Stay,
    Follow {
        direction: Direction,
        edge_type: String,
        conditions: Vec<Condition>,
    },
    Rows(Vec<String>),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Part {
    Stage(Stage),
    Limit(usize),
}

/// What a stage gives: the vertices behind it, with rows if it ends the query.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Outcome {
    pub frontier: Frontier,
    pub rows: Vec<(Pointer, Row)>,
}

pub(crate) fn reach(frontier: &mut Frontier, at: Pointer, paths: u64) -> Result<()> {
    let there = frontier.entry(at).or_default();
    // A sum at the end of numbers stays there, in whatever order they are added.
    *there = there.saturating_add(paths);
    at_most(
        "vertices after a step of a query",
        frontier.len(),
        FRONTIER_MAX,
    )
}
