//! Calls at random.

use super::model::{AGE, Call, EDGE_TYPES, INDEXES, MAIL, ModelEdge, Name, VERTEX_TYPES, Values};
use crate::lists::Direction;
use crate::query::{Compare, Condition, Query};
use crate::value::Value;
use plinth_core::testing::Generator;
use std::ops::Bound;

/// Primary keys of a type.
const KEYS: usize = 8;

/// What a client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    Reads,
    Writes,
    /// Makes indexes, builds and drops them.
    Indexes,
}

fn one_in(random: &mut Generator, n: usize) -> bool {
    random.below(n) == 0
}

fn some_name(random: &mut Generator) -> Name {
    // Some vertices get most of the edges.
    let key = random.below(KEYS).min(random.below(KEYS));
    (usize::from(one_in(random, 4)), key as i64 - 2)
}

fn some_age(random: &mut Generator) -> Value {
    Value::I64(random.below(6) as i64 * 7 - 14)
}

fn some_mail(random: &mut Generator) -> Value {
    let mails = ["", "a", "a\0b", "b", "ba", "c", "d", "e", "f", "g"];
    Value::String(mails[random.below(mails.len())].to_owned())
}

fn some_note(random: &mut Generator) -> Value {
    let lengths = [0, 5, 300, 1000, 1100, 2500];
    Value::Bytes(vec![7; lengths[random.below(lengths.len())]])
}

fn some_value(random: &mut Generator) -> (&'static str, Value) {
    match random.below(3) {
        0 => (INDEXES[AGE], some_age(random)),
        1 => (INDEXES[MAIL], some_mail(random)),
        _ => ("note", some_note(random)),
    }
}

fn some_values(random: &mut Generator) -> Values {
    let mut values = Values::new();
    for _ in 0..random.below(4) {
        let (name, value) = some_value(random);
        values.insert(name.to_owned(), value);
    }
    values
}

fn some_edge(random: &mut Generator) -> ModelEdge {
    let (from, to) = (some_name(random), some_name(random));
    ModelEdge {
        edge_type: random.below(2),
        from,
        to: if one_in(random, 8) { from } else { to },
        weight: one_in(random, 2).then(|| random.below(5) as i64),
    }
}

fn some_lookup(random: &mut Generator) -> Call {
    let index = random.below(2);
    let value = |random: &mut Generator| match index {
        AGE => some_age(random),
        _ => some_mail(random),
    };
    let from = (!one_in(random, 4)).then(|| value(random));
    let to = match random.below(3) {
        0 => from.clone(),
        1 => Some(value(random)),
        _ => None,
    };
    let limit = [1, 3, 1000][random.below(3)];
    Call::Lookup(index, from, to, limit)
}

fn some_conditions(random: &mut Generator, of: &[&str]) -> Vec<Condition> {
    let one = |random: &mut Generator| {
        let property = of[random.below(of.len())];
        let value = match property {
            "age" => some_age(random),
            "mail" => some_mail(random),
            _ => Value::I64(random.below(5) as i64),
        };
        Condition::new(property, Compare::ALL[random.below(6)], value)
    };
    (0..random.below(5) / 3).map(|_| one(random)).collect()
}

fn some_query(random: &mut Generator) -> Query {
    let mut query = match some_lookup(random) {
        Call::Lookup(index, from, to, _) if one_in(random, 3) => {
            let bound = |value: Option<Value>| value.map_or(Bound::Unbounded, Bound::Included);
            Query::from_index(
                VERTEX_TYPES[0],
                INDEXES[index],
                (bound(from), bound(to)),
                1000,
            )
        }
        _ => {
            let name = some_name(random);
            Query::from_key(VERTEX_TYPES[name.0], Value::I64(name.1))
        }
    };
    for _ in 0..random.below(5) {
        query = if one_in(random, 3) {
            let of = one_in(random, 3).then(|| VERTEX_TYPES[random.below(2)]);
            query.keep(of, &some_conditions(random, &["age", "mail", "key"]))
        } else {
            let direction = [Direction::Out, Direction::In][random.below(2)];
            let conditions = some_conditions(random, &["weight"]);
            query.follow(direction, EDGE_TYPES[random.below(2)], &conditions)
        };
    }
    match random.below(3) {
        0 => query,
        1 => query.properties(&["age", "key"]),
        _ => query
            .limit(1 + random.below(3))
            .properties(&["key", "note", "none"]),
    }
}

fn some_read(random: &mut Generator) -> Call {
    match random.below(8) {
        0 | 1 => Call::Read(some_name(random)),
        2 => some_lookup(random),
        3 | 4 => Call::Query(some_query(random)),
        _ => {
            let direction = [Direction::Out, Direction::In][random.below(2)];
            let edge_type = one_in(random, 2).then(|| random.below(2));
            let page = [1, 3, 1000][random.below(3)];
            Call::Edges(some_name(random), direction, edge_type, page)
        }
    }
}

fn some_index_call(random: &mut Generator) -> Call {
    let (index, most) = (random.below(2), 1 + random.below(3));
    match random.below(12) {
        0 | 1 => Call::CreateIndex(index),
        2..9 => Call::BuildSome(index, most),
        9 => Call::DropIndex(index),
        _ => Call::DropSome(index, most),
    }
}

/// A call; `number` is for a new edge, and must be no other's.
pub fn some_call(mood: Mood, number: i64, random: &mut Generator) -> Call {
    match mood {
        Mood::Reads => return some_read(random),
        Mood::Indexes if !one_in(random, 4) => return some_index_call(random),
        _ if one_in(random, 3) => return some_read(random),
        _ => (),
    }
    match random.below(24) {
        0..6 => Call::Create(some_name(random), some_values(random)),
        6..8 => {
            let changes = (0..1 + random.below(2)).map(|_| some_value(random));
            let changes: Vec<_> = changes.collect();
            let changes = changes.into_iter().map(|(name, value)| {
                let value = (!one_in(random, 5)).then_some(value);
                (name.to_owned(), value)
            });
            let changes = changes.collect();
            Call::Update(some_name(random), changes)
        }
        8 => Call::Delete(some_name(random)),
        9..20 => Call::Connect(number, some_edge(random)),
        20..22 => Call::Disconnect(some_name(random), random.below(10)),
        _ => {
            let weight = one_in(random, 2).then(|| random.below(5) as i64);
            Call::Weigh(some_name(random), random.below(10), weight)
        }
    }
}
