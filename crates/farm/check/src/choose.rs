//! Keys and values at random, and the numbers of structures.

use bytes::Bytes;
use plinth_farm_engine::Engine;
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_fabric::Fabric;
use plinth_runtime::random;

pub const TREE: u8 = 0;
pub const TABLE: u8 = 1;
pub const PAIRS: u8 = 2;
const KEYS: u64 = 60;

pub fn machine(engine: &Engine<Any>) -> u32 {
    u32::from(engine.fabric().local().machine().0)
}

pub fn some_key() -> Bytes {
    let number = random::below(KEYS) as usize;
    Bytes::from(format!("{number:02}")[..1 + number % 2].repeat(1 + number % 3))
}

/// A value carries the transaction that wrote it. The lengths are of several sizes of objects, and the bytes look like
/// small numbers: such are the words that a pointer of another time finds.
pub fn some_value(id: u64) -> Bytes {
    let lengths = [8, 12, 17, 40, 90, 200, 400];
    let length = lengths[random::below(lengths.len() as u64) as usize];
    let mut value = id.to_le_bytes().to_vec();
    let fill = [0, 0, 1, 0x11, 0x3f, 0x80][random::below(6) as usize];
    value.resize(length, fill);
    Bytes::from(value)
}
