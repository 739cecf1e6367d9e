//! Values and their kinds: one order, the same in memory and in keys.

use crate::Refused;
use crate::proto::{self, Kind, value::Is};
use bytes::Bytes;
use plinth_core::Error;
use plinth_core::tuple::Element;
use std::cmp::Ordering;

/// A value of a row. Null is below all others; floats have one zero, and one NaN that is above the other floats.
#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// Not `-0.0`, and no other NaN than [`f64::NAN`].
    Float(f64),
    Text(String),
    Bytes(Bytes),
    /// Microseconds since 1970.
    Timestamp(i64),
}

impl Value {
    /// The float, as it is stored.
    pub fn float(float: f64) -> Value {
        Value::Float(match float {
            _ if float.is_nan() => f64::NAN,
            _ => float + 0.0, // turns -0.0 to 0.0
        })
    }

    /// None for null.
    pub fn kind(&self) -> Option<Kind> {
        Some(match self {
            Value::Null => return None,
            Value::Bool(_) => Kind::Bool,
            Value::Int(_) => Kind::Int,
            Value::Float(_) => Kind::Float,
            Value::Text(_) => Kind::Text,
            Value::Bytes(_) => Kind::Bytes,
            Value::Timestamp(_) => Kind::Timestamp,
        })
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The value for a column of `kind`: a whole number is also a float, if the float is that number.
    ///
    /// # Errors
    /// It is of another kind.
    pub fn of_kind(self, kind: Kind, column: &str) -> Result<Value, Refused> {
        match (self, kind) {
            (Value::Int(int), Kind::Float) if (int as f64) as i128 == i128::from(int) => {
                Ok(Value::Float(int as f64))
            }
            (value, _) if value.kind().is_none_or(|own| own == kind) => Ok(value),
            (value, _) => refuse!(
                BadRequest,
                "column {column:?} is {}, and the value is {}",
                kind_name(kind),
                value.kind().map_or("null", kind_name)
            ),
        }
    }

    /// About as many bytes as it takes up.
    pub fn size(&self) -> usize {
        match self {
            Value::Text(text) => 8 + text.len(),
            Value::Bytes(bytes) => 8 + bytes.len(),
            _ => 8,
        }
    }

    pub fn to_element(&self) -> Element {
        match self {
            Value::Null => Element::Null,
            Value::Bool(value) => Element::Bool(*value),
            Value::Int(value) | Value::Timestamp(value) => Element::Int(*value),
            Value::Float(value) => Element::Double(*value),
            Value::Text(value) => Element::Text(value.clone()),
            Value::Bytes(value) => Element::Bytes(value.clone()),
        }
    }

    /// # Errors
    /// The element is not what a value of `kind` becomes.
    pub fn from_element(element: Element, kind: Kind) -> Result<Value, Error> {
        Ok(match (element, kind) {
            (Element::Null, _) => Value::Null,
            (Element::Bool(value), Kind::Bool) => Value::Bool(value),
            (Element::Int(value), Kind::Int) => Value::Int(value),
            (Element::Int(value), Kind::Timestamp) => Value::Timestamp(value),
            (Element::Double(value), Kind::Float) => Value::float(value),
            (Element::Text(value), Kind::Text) => Value::Text(value),
            (Element::Bytes(value), Kind::Bytes) => Value::Bytes(value),
            _ => return Err(Error::file_corrupt),
        })
    }
}

pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Unknown => "unknown",
        Kind::Bool => "bool",
        Kind::Int => "int",
        Kind::Float => "float",
        Kind::Text => "text",
        Kind::Bytes => "bytes",
        Kind::Timestamp => "timestamp",
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) | (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
            _ => self.kind().cmp(&other.kind()), // null first
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
        self.cmp(other).is_eq()
    }
}

impl Eq for Value {}

impl From<proto::Value> for Value {
    fn from(value: proto::Value) -> Self {
        match value.is {
            None => Value::Null,
            Some(Is::Bool(value)) => Value::Bool(value),
            Some(Is::Int(value)) => Value::Int(value),
            Some(Is::Float(value)) => Value::float(value),
            Some(Is::Text(value)) => Value::Text(value),
            Some(Is::Bytes(value)) => Value::Bytes(value),
            Some(Is::Timestamp(value)) => Value::Timestamp(value),
        }
    }
}

impl From<Value> for proto::Value {
    fn from(value: Value) -> Self {
        let is = match value {
            Value::Null => None,
            Value::Bool(value) => Some(Is::Bool(value)),
            Value::Int(value) => Some(Is::Int(value)),
            Value::Float(value) => Some(Is::Float(value)),
            Value::Text(value) => Some(Is::Text(value)),
            Value::Bytes(value) => Some(Is::Bytes(value)),
            Value::Timestamp(value) => Some(Is::Timestamp(value)),
        };
        proto::Value { is }
    }
}
