//! Lists of operations and of their results. Before each item stands a header with its kind; the last header is alone.

use super::codes::opcode;
use super::jute::{Taken, put_bool, put_int, take_bool, take_int};
use bytes::Bytes;
use plinth_core::output::Output;

/// Takes the items with `take`, which gets the opcode and the error of each.
pub(super) fn take_steps<T>(
    input: &mut Bytes,
    take: impl Fn((i32, i32), &mut Bytes) -> Taken<T>,
) -> Taken<Vec<T>> {
    let mut steps = Vec::new();
    loop {
        let (opcode, is_end, error) = (take_int(input)?, take_bool(input)?, take_int(input)?);
        if is_end {
            return Ok(steps);
        }
        steps.push(take((opcode, error), input)?);
    }
}

/// Appends the header of an item. In a list of operations the error is -1.
pub(super) fn put_step(out: &mut Output, opcode: i32, error: i32) {
    put_int(out, opcode);
    put_bool(out, false);
    put_int(out, error);
}

pub(super) fn put_end(out: &mut Output) {
    put_int(out, opcode::ERROR);
    put_bool(out, true);
    put_int(out, -1);
}
