//! A program that is always the same: some of every kind of instruction, and the binding's own unit tests.

use crate::program::{MAIN, Program, Script, WORK, bytes, error, pack};
use plinth_core::tuple::Element;

pub fn generate() -> Program {
    let mut script = Script::new(MAIN);
    let key = |name: &str| bytes([WORK, name.as_bytes()].concat());
    let absent = || bytes("RESULT_NOT_PRESENT");
    script.op("NEW_TRANSACTION");
    for (name, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        script.call("SET", vec![key(name), bytes(value)]);
    }
    script.op("COMMIT");
    script.answers(absent());
    script.op("RESET");
    let all = || {
        vec![
            bytes(WORK),
            Element::Int(0),
            Element::Int(0),
            Element::Int(-2),
        ]
    };
    script.call("GET_RANGE_STARTS_WITH_SNAPSHOT", all());
    let rows = [
        key("a"),
        bytes("1"),
        key("b"),
        bytes("2"),
        key("c"),
        bytes("3"),
    ];
    script.returns(bytes(pack(&rows)));
    // Two transactions that read each other's writes: the second commit conflicts.
    for (name, read, written) in [("one", "a", "b"), ("two", "b", "a")] {
        script.call("USE_TRANSACTION", vec![bytes(name)]);
        script.op("NEW_TRANSACTION");
        script.call("GET", vec![key(read)]);
        script.answers(bytes(if read == "a" { "1" } else { "2" }));
        script.call("SET", vec![key(written), bytes(name)]);
    }
    for (name, result) in [("one", absent()), ("two", error(1020))] {
        script.call("USE_TRANSACTION", vec![bytes(name)]);
        script.op("COMMIT");
        script.answers(result);
    }
    script.call("CLEAR_DATABASE", vec![key("c")]);
    script.answers(absent());
    script.call("GET_DATABASE", vec![key("c")]);
    script.answers(absent());
    script.op("UNIT_TESTS");
    script.push(Element::Text("the end".into()));
    script.log();
    let rows = [("a", "1"), ("b", "one")]
        .map(|(name, value)| ([WORK, name.as_bytes()].concat().into(), bytes(value)));
    Program::of(script, rows.to_vec())
}
