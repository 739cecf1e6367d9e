//! Which rows an operation or a query is about.
//!
//! A comparison with a null in the row is false, except for equality with null. `not` turns false to true, so
//! `not (a = 5)` includes rows whose `a` is null.

use crate::proto;
use crate::proto::{Comparison, Kind};
use crate::schema::Schema;
use crate::value::{Value, kind_name};
use crate::{Refused, limits};

/// A filter of a request, as it was understood.
#[derive(Clone, PartialEq, Debug)]
pub enum Filter<Column = String> {
    Compare(Column, Comparison, Value),
    All(Vec<Filter<Column>>),
    Any(Vec<Filter<Column>>),
    Not(Box<Filter<Column>>),
}

/// The filter for rows of one schema: columns are places.
pub type Bound = Filter<usize>;

impl Filter {
    /// All rows.
    pub fn everything() -> Filter {
        Filter::All(Vec::new())
    }

    /// # Errors
    /// It is not understood, or too large.
    pub fn understand(asked: Option<proto::Filter>) -> Result<Filter, Refused> {
        match asked {
            None => Ok(Filter::everything()),
            Some(asked) => node(asked, &mut 0),
        }
    }

    /// # Errors
    /// It does not fit the table.
    pub fn bind(&self, schema: &Schema) -> Result<Bound, Refused> {
        let all = |filters: &[Filter]| {
            let bound = filters.iter().map(|filter| filter.bind(schema));
            bound.collect::<Result<Vec<Bound>, Refused>>()
        };
        Ok(match self {
            Filter::All(filters) => Bound::All(all(filters)?),
            Filter::Any(filters) => Bound::Any(all(filters)?),
            Filter::Not(filter) => Bound::Not(Box::new(filter.bind(schema)?)),
            Filter::Compare(name, comparison, value) => {
                let at = schema.column(name)?;
                let kind = schema.columns[at].kind();
                let is_text = matches!(kind, Kind::Text | Kind::Bytes);
                if *comparison == Comparison::Prefix && !is_text {
                    return refuse!(
                        BadRequest,
                        "column {name:?} is {}: it has no prefixes",
                        kind_name(kind)
                    );
                }
                let equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
                if value.is_null() && !equality {
                    return refuse!(
                        BadRequest,
                        "column {name:?} is compared with null: use = or !="
                    );
                }
                Bound::Compare(at, *comparison, value.clone().of_kind(kind, name)?)
            }
        })
    }
}

fn node(asked: proto::Filter, nodes: &mut usize) -> Result<Filter, Refused> {
    use proto::filter::Is;
    *nodes += 1;
    if *nodes > limits::FILTER_NODES {
        return refuse!(
            TooLarge,
            "a filter has at most {} parts",
            limits::FILTER_NODES
        );
    }
    let mut parts = |asked: proto::Filters| {
        let parts = asked.filters.into_iter();
        parts
            .map(|part| node(part, nodes))
            .collect::<Result<Vec<Filter>, Refused>>()
    };
    Ok(match asked.is {
        Some(Is::All(asked)) => Filter::All(parts(asked)?),
        Some(Is::Any(asked)) => Filter::Any(parts(asked)?),
        Some(Is::Not(asked)) => Filter::Not(Box::new(node(*asked, nodes)?)),
        Some(Is::Compare(asked)) => {
            let comparison = asked.comparison();
            if comparison == Comparison::None {
                return refuse!(BadRequest, "a comparison is of an unknown kind");
            }
            let value = asked.value.map_or(Value::Null, Value::from);
            Filter::Compare(asked.column, comparison, value)
        }
        None => return refuse!(BadRequest, "a part of a filter is of an unknown kind"),
    })
}

impl From<Filter> for proto::Filter {
    fn from(filter: Filter) -> Self {
        use proto::filter::Is;
        let all = |filters: Vec<Filter>| proto::Filters {
            filters: filters.into_iter().map(Into::into).collect(),
        };
        let is = match filter {
            Filter::All(filters) => Is::All(all(filters)),
            Filter::Any(filters) => Is::Any(all(filters)),
            Filter::Not(filter) => Is::Not(Box::new((*filter).into())),
            Filter::Compare(column, comparison, value) => Is::Compare(proto::Compare {
                column,
                comparison: comparison.into(),
                value: Some(value.into()),
            }),
        };
        proto::Filter { is: Some(is) }
    }
}

fn begins_with(value: &Value, prefix: &Value) -> bool {
    match (value, prefix) {
        (Value::Text(value), Value::Text(prefix)) => value.starts_with(&prefix[..]),
        (Value::Bytes(value), Value::Bytes(prefix)) => value.starts_with(prefix),
        _ => false,
    }
}

impl Bound {
    pub fn matches(&self, row: &[Value]) -> bool {
        match self {
            Bound::All(filters) => filters.iter().all(|filter| filter.matches(row)),
            Bound::Any(filters) => filters.iter().any(|filter| filter.matches(row)),
            Bound::Not(filter) => !filter.matches(row),
            Bound::Compare(at, comparison, value) => {
                let own = &row[*at];
                match comparison {
                    Comparison::Equal => own == value,
                    Comparison::NotEqual if value.is_null() => !own.is_null(),
                    _ if own.is_null() => false,
                    Comparison::NotEqual => own != value,
                    Comparison::Less => own < value,
                    Comparison::LessOrEqual => own <= value,
                    Comparison::Greater => own > value,
                    Comparison::GreaterOrEqual => own >= value,
                    Comparison::Prefix => begins_with(own, value),
                    Comparison::None => false,
                }
            }
        }
    }

    /// Comparisons that every row it matches passes.
    pub fn needs(&self) -> Vec<(usize, Comparison, &Value)> {
        match self {
            Bound::Compare(at, comparison, value) => vec![(*at, *comparison, value)],
            Bound::All(filters) => filters.iter().flat_map(Bound::needs).collect(),
            Bound::Any(filters) if filters.len() == 1 => filters[0].needs(),
            Bound::Any(_) | Bound::Not(_) => Vec::new(),
        }
    }
}
