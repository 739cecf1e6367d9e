//! What machines send each other for a query: stages, and what they give. Bytes may be anything: a length is checked
//! before anything is made of it, and what comes is no longer than what it was made from.

use crate::codec::{Code, Reader, code_for, listed, put_bytes, put_count};
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

listed!(STEPS_MAX; Keep, Condition, String, Option<Value>);
listed!(FRONTIER_MAX; (Pointer, u64), (Pointer, Row));

code_for!(Request {
    root,
    read_at,
    stage,
    frontier,
});
code_for!(Stage { keeps, then });
code_for!(Keep {
    vertex_type,
    conditions,
});
code_for!(Condition {
    property,
    compare,
    value,
});
code_for!(
    enum Compare {
        Less = 0,
        AtMost = 1,
        Equal = 2,
        NotEqual = 3,
        AtLeast = 4,
        Greater = 5,
    }
);
code_for!(enum Then {
    Stay = 0,
    Follow { direction, edge_type, conditions } = 1,
    Rows(names: Vec<String>) = 2,
});
code_for!(
    enum Direction {
        Out = 0,
        In = 1,
    }
);
code_for!(Outcome { frontier, rows });
code_for!(Row {
    vertex_type,
    paths,
    values,
});

impl Code for Frontier {
    fn put(&self, out: &mut Vec<u8>) {
        put_count(out, self.len());
        for (at, paths) in self {
            at.put(out);
            paths.put(out);
        }
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let list: Vec<(Pointer, u64)> = reader.get()?;
        Some(list.into_iter().collect())
    }
}

/// Its place among all of them, in two bytes.
impl Code for Abort {
    fn put(&self, out: &mut Vec<u8>) {
        let code = Abort::ALL.iter().position(|other| other == self);
        (code.unwrap_or(Abort::ALL.len()) as u16).put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let code: u16 = reader.get()?;
        Abort::ALL.get(usize::from(code)).copied()
    }
}

impl Code for Reply {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Outcome(outcome) => {
                out.push(0);
                outcome.put(out);
            }
            Reply::Abort(abort) => {
                out.push(1);
                abort.put(out);
            }
            Reply::Refused(why) => {
                out.push(2);
                let length = why.floor_char_boundary(WHY_BYTES_MAX);
                put_bytes(out, &why.as_bytes()[..length]);
            }
        }
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        Some(match reader.get::<u8>()? {
            0 => Reply::Outcome(reader.get()?),
            1 => Reply::Abort(reader.get()?),
            2 => Reply::Refused(
                reader
                    .get()
                    .filter(|why: &String| why.len() <= WHY_BYTES_MAX)?,
            ),
            _ => return None,
        })
    }
}
