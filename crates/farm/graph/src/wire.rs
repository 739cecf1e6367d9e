//! What machines send each other for a query: stages, and what they give. Bytes may be anything: a length is checked
//! before anything is made of it, and what comes is no longer than what it was made from.

use crate::codec::{
    Reader, put_bytes, put_count, put_list, put_option, put_pointer, put_u16, put_u64,
};
use crate::lists::Direction;
use crate::query::{
    Compare, Condition, FRONTIER_MAX, Frontier, Keep, Outcome, Row, STEPS_MAX, Stage, Then,
};
use crate::value::Value;
use plinth_farm_memory::{Abort, Pointer};

/// Most bytes of the reason why a machine has refused a stage.
const WHY_BYTES_MAX: usize = 300;

/// A stage for vertices of one machine, at one snapshot.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Request {
    /// The root object of the graph.
    pub root: Pointer,
    pub read_at: u64,
    pub stage: Stage,
    pub frontier: Frontier,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Reply {
    Outcome(Outcome),
    Abort(Abort),
    Refused(String),
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn put_conditions(out: &mut Vec<u8>, conditions: &[Condition]) {
    put_list(out, conditions, |out, condition| {
        put_text(out, &condition.property);
        out.push(condition.compare as u8);
        condition.value.write(out);
    });
}

fn take_conditions(reader: &mut Reader<'_>) -> Option<Vec<Condition>> {
    reader.list(STEPS_MAX, |r| {
        Some(Condition {
            property: r.text()?,
            compare: *Compare::ALL.get(usize::from(r.u8()?))?,
            value: Value::read(r)?,
        })
    })
}

fn put_stage(out: &mut Vec<u8>, stage: &Stage) {
    put_list(out, &stage.keeps, |out, keep| {
        put_option(out, &keep.vertex_type, |out, name| put_text(out, name));
        put_conditions(out, &keep.conditions);
    });
    match &stage.then {
        Then::Stay => out.push(0),
        Then::Follow {
            direction,
            edge_type,
            conditions,
        } => {
            out.push(1);
            out.push(direction.list() as u8);
            put_text(out, edge_type);
            put_conditions(out, conditions);
        }
        Then::Rows(names) => {
            out.push(2);
            put_list(out, names, |out, name| put_text(out, name));
        }
    }
}

fn take_stage(reader: &mut Reader<'_>) -> Option<Stage> {
    let keeps = reader.list(STEPS_MAX, |r| {
        Some(Keep {
            vertex_type: r.option(Reader::text)?,
            conditions: take_conditions(r)?,
        })
    })?;
    let then = match reader.u8()? {
        0 => Then::Stay,
        1 => Then::Follow {
            direction: match reader.flag()? {
                false => Direction::Out,
                true => Direction::In,
            },
            edge_type: reader.text()?,
            conditions: take_conditions(reader)?,
        },
        2 => Then::Rows(reader.list(STEPS_MAX, Reader::text)?),
        _ => return None,
    };
    Some(Stage { keeps, then })
}

fn put_frontier(out: &mut Vec<u8>, frontier: &Frontier) {
    put_count(out, frontier.len());
    for (at, paths) in frontier {
        put_pointer(out, *at);
        put_u64(out, *paths);
    }
}

fn take_frontier(reader: &mut Reader<'_>) -> Option<Frontier> {
    let list = reader.list(FRONTIER_MAX, |r| Some((r.pointer()?, r.u64()?)))?;
    Some(list.into_iter().collect())
}

impl Request {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_pointer(&mut out, self.root);
        put_u64(&mut out, self.read_at);
        put_stage(&mut out, &self.stage);
        put_frontier(&mut out, &self.frontier);
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Request> {
        let mut reader = Reader(bytes);
        let request = Request {
            root: reader.pointer()?,
            read_at: reader.u64()?,
            stage: take_stage(&mut reader)?,
            frontier: take_frontier(&mut reader)?,
        };
        reader.0.is_empty().then_some(request)
    }
}

fn put_row(out: &mut Vec<u8>, row: &Row) {
    put_text(out, &row.vertex_type);
    put_u64(out, row.paths);
    put_list(out, &row.values, |out, value| {
        put_option(out, value, |out, value| value.write(out));
    });
}

fn take_row(reader: &mut Reader<'_>) -> Option<Row> {
    Some(Row {
        vertex_type: reader.text()?,
        paths: reader.u64()?,
        values: reader.list(STEPS_MAX, |r| r.option(Value::read))?,
    })
}

impl Reply {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Reply::Outcome(outcome) => {
                out.push(0);
                put_frontier(&mut out, &outcome.frontier);
                put_list(&mut out, &outcome.rows, |out, (at, row)| {
                    put_pointer(out, *at);
                    put_row(out, row);
                });
            }
            Reply::Abort(abort) => {
                out.push(1);
                let code = Abort::ALL.iter().position(|other| other == abort);
                put_u16(&mut out, code.unwrap_or(Abort::ALL.len()) as u16);
            }
            Reply::Refused(why) => {
                out.push(2);
                let length = why.floor_char_boundary(WHY_BYTES_MAX);
                put_text(&mut out, &why[..length]);
            }
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Reply> {
        let mut reader = Reader(bytes);
        let reply = match reader.u8()? {
            0 => Reply::Outcome(Outcome {
                frontier: take_frontier(&mut reader)?,
                rows: reader.list(FRONTIER_MAX, |r| Some((r.pointer()?, take_row(r)?)))?,
            }),
            1 => Reply::Abort(*Abort::ALL.get(usize::from(reader.u16()?))?),
            2 => Reply::Refused(reader.text().filter(|why| why.len() <= WHY_BYTES_MAX)?),
            _ => return None,
        };
        reader.0.is_empty().then_some(reply)
    }
}
