//! Values of properties.

use crate::codec::code_for;
use std::cmp::Ordering;

/// Type of a property.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Bool,
    I64,
    F64,
    String,
    Bytes,
}

code_for!(
    enum Kind {
        Bool = 0,
        I64 = 1,
        F64 = 2,
        String = 3,
        Bytes = 4,
    }
);

/// A value. Numbers of floating point have the total order of IEEE 754: -0 is below 0, and not a number is equal to
/// itself.
#[derive(Clone, Debug)]
pub enum Value {
    Bool(bool),
    I64(i64),
    F64(f64),
    String(String),
    Bytes(Vec<u8>),
}

impl Value {
    pub fn kind(&self) -> Kind {
        match self {
            Value::Bool(_) => Kind::Bool,
            Value::I64(_) => Kind::I64,
            Value::F64(_) => Kind::F64,
            Value::String(_) => Kind::String,
            Value::Bytes(_) => Kind::Bytes,
        }
    }

    /// Bytes whose order is that of the values of a kind, and of which none are the beginning of another's.
    pub(crate) fn ordered(&self) -> Vec<u8> {
        match self {
            Value::Bool(flag) => vec![u8::from(*flag)],
            Value::I64(number) => (*number as u64 ^ 1 << 63).to_be_bytes().to_vec(),
            Value::F64(number) => {
                let bits = number.to_bits();
                let flip = if bits >> 63 == 1 { u64::MAX } else { 1 << 63 };
                (bits ^ flip).to_be_bytes().to_vec()
            }
            Value::String(text) => escaped(text.as_bytes()),
            Value::Bytes(bytes) => escaped(bytes),
        }
    }
}

code_for!(enum Value {
    Bool(flag: bool) = 0,
    I64(number: i64) = 1,
    F64(number: f64) = 2,
    String(text: String) = 3,
    Bytes(bytes: Vec<u8>) = 4,
});

/// Zeros become 0, 255; two zeros end it.
fn escaped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 2);
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
    out
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::I64(a), Value::I64(b)) => a.cmp(b),
            (Value::F64(a), Value::F64(b)) => a.total_cmp(b),
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
            _ => self.kind().cmp(&other.kind()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}
