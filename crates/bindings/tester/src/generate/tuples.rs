//! Tuples of all types, packed, unpacked, sorted, with versionstamps.

use crate::program::{MAIN, Program, Script, bytes, pack};
use crate::rng::Rng;
use plinth_core::tuple::{self, Element};

const STEPS: usize = 60;

pub fn generate(seed: u64) -> Program {
    let (mut script, mut rng) = (Script::new(MAIN), Rng::new(seed));
    script.op("NEW_TRANSACTION");
    for _ in 0..STEPS {
        step(&mut script, &mut rng);
        if script.depth() > 30 {
            script.log();
        }
    }
    script.log();
    Program::of(script, Vec::new())
}

fn element(rng: &mut Rng, depth: usize) -> Element {
    match rng.below(if depth < 3 { 10 } else { 9 }) {
        0 => Element::Null,
        1 => bytes(rng.bytes(10)),
        2 => Element::Text(text(rng)),
        3 => integer(rng),
        4 => Element::Float(float(rng) as f32),
        5 => Element::Double(float(rng)),
        6 => Element::Bool(rng.chance(50)),
        7 => Element::Uuid(std::array::from_fn(|_| rng.byte())),
        8 => {
            let stamp = std::array::from_fn(|_| rng.next() as u8);
            Element::Versionstamp {
                stamp: Some(plinth_core::Versionstamp(stamp)),
                user_version: rng.next() as u16,
            }
        }
        _ => Element::Nested((0..rng.below(4)).map(|_| element(rng, depth + 1)).collect()),
    }
}

fn text(rng: &mut Rng) -> String {
    let letters = ['a', '\0', '\u{e9}', '\u{4e2d}', 'z', '\u{1f300}'];
    (0..rng.below(5)).map(|_| *rng.choose(&letters)).collect()
}

fn integer(rng: &mut Rng) -> Element {
    let bits = rng.below(64);
    let number = (rng.next() >> bits) as i64;
    Element::Int(if rng.chance(50) {
        number
    } else {
        number.saturating_neg()
    })
}

fn float(rng: &mut Rng) -> f64 {
    match rng.below(6) {
        0 => 0.0,
        1 => -0.0,
        2 => f64::INFINITY,
        3 => -1.5,
        4 => rng.between(-1_000_000, 1_000_000) as f64,
        _ => rng.between(-1_000_000, 1_000_000) as f64 / 1024.0,
    }
}

fn elements(rng: &mut Rng) -> Vec<Element> {
    (0..rng.below(5)).map(|_| element(rng, 0)).collect()
}

/// The number of elements, then the elements, as instructions expect them.
fn counted(elements: &[Element]) -> Vec<Element> {
    let count = Element::Int(elements.len() as i64);
    std::iter::once(count)
        .chain(elements.iter().cloned())
        .collect()
}

fn step(script: &mut Script, rng: &mut Rng) {
    match rng.below(8) {
        0 | 1 => {
            let elements = elements(rng);
            script.call("TUPLE_PACK", counted(&elements));
            script.returns(bytes(pack(&elements)));
        }
        2 => {
            let elements = elements(rng);
            script.call("TUPLE_UNPACK", vec![bytes(pack(&elements))]);
            for element in elements {
                script.returns(bytes(pack(&[element])));
            }
        }
        3 => {
            let elements = elements(rng);
            script.call("TUPLE_RANGE", counted(&elements));
            let packed = pack(&elements);
            script.returns(bytes([&packed[..], &[0]].concat()));
            script.returns(bytes([&packed[..], &[0xff]].concat()));
        }
        4 => {
            let mut packed: Vec<_> = (0..rng.below(5)).map(|_| pack(&elements(rng))).collect();
            let items: Vec<Element> = packed.iter().map(bytes).collect();
            script.call("TUPLE_SORT", counted(&items));
            packed.sort();
            packed
                .into_iter()
                .for_each(|packed| script.returns(bytes(packed)));
        }
        5 => with_versionstamp(script, rng),
        6 => {
            let number = float(rng) as f32;
            script.call("ENCODE_FLOAT", vec![bytes(number.to_be_bytes())]);
            script.returns(Element::Float(number));
            script.call("DECODE_FLOAT", vec![Element::Float(number)]);
            script.returns(bytes(number.to_be_bytes()));
        }
        _ => {
            let number = float(rng);
            script.call("ENCODE_DOUBLE", vec![bytes(number.to_be_bytes())]);
            script.returns(Element::Double(number));
            script.call("DECODE_DOUBLE", vec![Element::Double(number)]);
            script.returns(bytes(number.to_be_bytes()));
        }
    }
}

fn with_versionstamp(script: &mut Script, rng: &mut Rng) {
    let prefix = rng.bytes(4);
    let mut elements = elements(rng);
    let incomplete = rng.below(3);
    for _ in 0..incomplete {
        let at = rng.below(elements.len() + 1);
        elements.insert(at, Element::incomplete_versionstamp(rng.next() as u16));
    }
    let arguments = [vec![bytes(&prefix)], counted(&elements)].concat();
    // An incomplete stamp is pushed in the packed form of the tuple layer.
    script.call("TUPLE_PACK_WITH_VERSIONSTAMP", arguments);
    match incomplete {
        0 => script.returns(bytes("ERROR: NONE")),
        1 => {
            let packed = tuple::pack_with_versionstamp(&prefix, &elements);
            script.returns(bytes("OK"));
            script.returns(bytes(packed.expect("one is incomplete")));
        }
        _ => script.returns(bytes("ERROR: MULTIPLE")),
    }
}
