//! The tuple encoding: typed elements as one key, in their natural order.
//!
//! [`pack`] turns a list of elements into bytes whose plain byte order is the order of the lists: element by element,
//! and a list before every longer list that begins with it. So a tuple is a key with parts, and all tuples with the
//! same beginning are one contiguous [`range`]. The encoding is FoundationDB's, shared by all of its bindings and
//! layers; a key written by one is read by another.
//!
//! Each element is a type code and a self-delimiting body:
//!
//! ```text
//! 00               null                     inside a nested tuple: 00 ff
//! 01 … 00          bytes                    every 00 in the body is written as 00 ff
//! 02 … 00          text in UTF-8            as bytes
//! 05 … 00          nested tuple
//! 0b ^n …          integer below -(2^64)+1  n bytes, one's complement; n is written complemented
//! 0c … 13          negative integer         8 … 1 bytes, big-endian one's complement
//! 14               zero
//! 15 … 1c          positive integer         1 … 8 bytes, big-endian
//! 1d n …           integer above 2^64 - 1   n bytes
//! 20, 21           float, double            big-endian; sign bit flipped, or all bits if it was set
//! 26, 27           false, true
//! 30               UUID                     16 bytes
//! 33               versionstamp             10 bytes of the transaction, 2 of the user
//! ```
//!
//! No type code is `ff`, so a terminating `00` can be distinguished from an escaped one.
//!
//! Packed bytes are hostile input. Unpacking them never panics, nests at most [`DEPTH_MAX`] deep, and takes memory in
//! proportion to the input.

use crate::error::{Error, Result};
use crate::key::KeyRange;
use crate::version::Versionstamp;
use bytes::Bytes;
use std::cmp::Ordering;

/// Deepest nesting of tuples, in packing and in unpacking.
pub const DEPTH_MAX: usize = 100;
/// Most bytes of an integer: its length is stored in one byte.
pub const INTEGER_BYTES_MAX: usize = 255;

const NULL: u8 = 0x00;
const BYTES: u8 = 0x01;
const TEXT: u8 = 0x02;
const NESTED: u8 = 0x05;
const BIG_NEGATIVE: u8 = 0x0b;
const ZERO: u8 = 0x14;
const BIG_POSITIVE: u8 = 0x1d;
const FLOAT: u8 = 0x20;
const DOUBLE: u8 = 0x21;
const FALSE: u8 = 0x26;
const TRUE: u8 = 0x27;
const UUID: u8 = 0x30;
const VERSIONSTAMP: u8 = 0x33;
/// After a `00`: that byte is data, not an end.
const ESCAPE: u8 = 0xff;

/// Placeholder for an unknown versionstamp, until the commit fills it in.
const INCOMPLETE: Versionstamp = Versionstamp([0xff; Versionstamp::LEN]);

/// One element of a tuple. Order and equality are those of the packed forms: floats by IEEE total order.
#[derive(Clone, Debug)]
pub enum Element {
    Null,
    Bytes(Bytes),
    Text(String),
    Nested(Vec<Element>),
    Int(i64),
    /// An integer that does not fit in `Int`.
    BigInt(BigInt),
    Float(f32),
    Double(f64),
    Bool(bool),
    Uuid([u8; 16]),
    /// `stamp` is `None` while the transaction has not committed; `user_version` orders within the transaction.
    Versionstamp {
        stamp: Option<Versionstamp>,
        user_version: u16,
    },
}

/// An integer outside the range of `i64`, of at most [`INTEGER_BYTES_MAX`] bytes. Made by [`Element::integer`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BigInt {
    negative: bool,
    /// Big-endian, without leading zeros.
    magnitude: Box<[u8]>,
}

impl BigInt {
    pub fn is_negative(&self) -> bool {
        self.negative
    }
    /// The absolute value, big-endian, without leading zeros.
    pub fn magnitude(&self) -> &[u8] {
        &self.magnitude
    }
}

impl Element {
    /// The integer with this sign and big-endian absolute value; `None` if it is longer than [`INTEGER_BYTES_MAX`].
    pub fn integer(negative: bool, magnitude: &[u8]) -> Option<Element> {
        let zeros = magnitude.iter().take_while(|&&byte| byte == 0).count();
        let magnitude = &magnitude[zeros..];
        if magnitude.len() > INTEGER_BYTES_MAX {
            return None;
        }
        if magnitude.len() <= 8 {
            let value = i128::from(
                magnitude
                    .iter()
                    .fold(0u64, |value, &byte| value << 8 | u64::from(byte)),
            );
            if let Ok(value) = i64::try_from(if negative { -value } else { value }) {
                return Some(Element::Int(value));
            }
        }
        Some(Element::BigInt(BigInt {
            negative,
            magnitude: magnitude.into(),
        }))
    }

    /// A placeholder that the commit of this transaction replaces by its versionstamp.
    pub fn incomplete_versionstamp(user_version: u16) -> Element {
        Element::Versionstamp {
            stamp: None,
            user_version,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Element::Int(value) => Some(*value),
            _ => None,
        }
    }
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Element::Int(value) => u64::try_from(*value).ok(),
            Element::BigInt(big) if !big.negative && big.magnitude.len() == 8 => Some(
                u64::from_be_bytes(big.magnitude[..].try_into().expect("eight bytes")),
            ),
            _ => None,
        }
    }
    pub fn as_bytes(&self) -> Option<&Bytes> {
        match self {
            Element::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Element::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Elements of different types are ordered by their type codes; all integers are one type.
    fn type_order(&self) -> u8 {
        match self {
            Element::Null => NULL,
            Element::Bytes(_) => BYTES,
            Element::Text(_) => TEXT,
            Element::Nested(_) => NESTED,
            Element::Int(_) | Element::BigInt(_) => ZERO,
            Element::Float(_) => FLOAT,
            Element::Double(_) => DOUBLE,
            Element::Bool(_) => FALSE,
            Element::Uuid(_) => UUID,
            Element::Versionstamp { .. } => VERSIONSTAMP,
        }
    }
}

impl Ord for BigInt {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_magnitude = || {
            let (mine, theirs) = (&self.magnitude, &other.magnitude);
            mine.len().cmp(&theirs.len()).then_with(|| mine.cmp(theirs))
        };
        match (self.negative, other.negative) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => by_magnitude(),
            (true, true) => by_magnitude().reverse(),
        }
    }
}

impl PartialOrd for BigInt {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        use Element::*;
        match (self, other) {
            (Bytes(a), Bytes(b)) => a.cmp(b),
            (Text(a), Text(b)) => a.cmp(b),
            (Nested(a), Nested(b)) => a.cmp(b),
            (Int(a), Int(b)) => a.cmp(b),
            (BigInt(a), BigInt(b)) => a.cmp(b),
            // A big integer is outside the range of the others, so its sign decides.
            (BigInt(a), Int(_)) => {
                if a.negative {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            (Int(_), BigInt(b)) => {
                if b.negative {
                    Ordering::Greater
                } else {
                    Ordering::Less
                }
            }
            (Float(a), Float(b)) => a.total_cmp(b),
            (Double(a), Double(b)) => a.total_cmp(b),
            (Bool(a), Bool(b)) => a.cmp(b),
            (Uuid(a), Uuid(b)) => a.cmp(b),
            (
                Versionstamp {
                    stamp: a,
                    user_version: c,
                },
                Versionstamp {
                    stamp: b,
                    user_version: d,
                },
            ) => (a.unwrap_or(INCOMPLETE), c).cmp(&(b.unwrap_or(INCOMPLETE), d)),
            _ => self.type_order().cmp(&other.type_order()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element {}

macro_rules! from {
    ($($type:ty => |$value:ident| $element:expr;)*) => {$(
        impl From<$type> for Element {
            fn from($value: $type) -> Self {
                $element
            }
        }
    )*};
}

from! {
    Bytes => |value| Element::Bytes(value);
    &[u8] => |value| Element::Bytes(Bytes::copy_from_slice(value));
    String => |value| Element::Text(value);
    &str => |value| Element::Text(value.to_owned());
    Vec<Element> => |value| Element::Nested(value);
    i32 => |value| Element::Int(i64::from(value));
    u32 => |value| Element::Int(i64::from(value));
    i64 => |value| Element::Int(value);
    u64 => |value| Element::integer(false, &value.to_be_bytes()).expect("eight bytes are few enough");
    f32 => |value| Element::Float(value);
    f64 => |value| Element::Double(value);
    bool => |value| Element::Bool(value);
}

/// Packs `elements` into a key or value. `client_invalid_operation` if one of them is an incomplete versionstamp
/// (see [`pack_with_versionstamp`]), or if they nest deeper than [`DEPTH_MAX`].
pub fn pack(elements: &[Element]) -> Result<Bytes> {
    pack_after(&[], elements)
}

/// As [`pack`], with `prefix` in front.
pub fn pack_after(prefix: &[u8], elements: &[Element]) -> Result<Bytes> {
    let packer = Packer::run(prefix, elements)?;
    match packer.stamps {
        0 => Ok(Bytes::from(packer.out)),
        _ => Err(Error::client_invalid_operation),
    }
}

/// Packs `prefix` and `elements`, one of which is an incomplete versionstamp (maybe nested), into the parameter of a
/// versionstamped operation: the bytes, then the stamp's offset as four bytes little-endian.
/// `client_invalid_operation` if there is no incomplete versionstamp, or more than one.
pub fn pack_with_versionstamp(prefix: &[u8], elements: &[Element]) -> Result<Bytes> {
    let mut packer = Packer::run(prefix, elements)?;
    if packer.stamps != 1 {
        return Err(Error::client_invalid_operation);
    }
    let offset = u32::try_from(packer.stamp_at).map_err(|_| Error::client_invalid_operation)?;
    packer.out.extend_from_slice(&offset.to_le_bytes());
    Ok(Bytes::from(packer.out))
}

/// The range of all longer tuples that begin with `elements`. Errors as for [`pack`].
pub fn range(elements: &[Element]) -> Result<KeyRange> {
    let packed = pack(elements)?;
    let with_last = |last: u8| Bytes::from([&packed[..], &[last]].concat());
    Ok(KeyRange {
        begin: with_last(NULL),
        end: with_last(ESCAPE),
    })
}

struct Packer {
    out: Vec<u8>,
    /// Number of incomplete versionstamps so far, and the position of the last one in `out`.
    stamps: usize,
    stamp_at: usize,
}

impl Packer {
    fn run(prefix: &[u8], elements: &[Element]) -> Result<Packer> {
        let mut out = Vec::with_capacity(prefix.len() + 16 * elements.len());
        out.extend_from_slice(prefix);
        let mut packer = Packer {
            out,
            stamps: 0,
            stamp_at: 0,
        };
        for element in elements {
            packer.element(element, 0)?;
        }
        Ok(packer)
    }

    fn element(&mut self, element: &Element, depth: usize) -> Result<()> {
        match element {
            Element::Null => self.out.push(NULL),
            Element::Bytes(bytes) => self.escaped(BYTES, bytes),
            Element::Text(text) => self.escaped(TEXT, text.as_bytes()),
            Element::Nested(inner) => self.nested(inner, depth + 1)?,
            Element::Int(value) => self.integer(*value < 0, &value.unsigned_abs().to_be_bytes()),
            Element::BigInt(big) => self.integer(big.negative, &big.magnitude),
            Element::Float(value) => {
                let bits = value.to_bits();
                let flip = if value.is_sign_negative() {
                    u32::MAX
                } else {
                    1 << 31
                };
                self.fixed(FLOAT, &(bits ^ flip).to_be_bytes());
            }
            Element::Double(value) => {
                let bits = value.to_bits();
                let flip = if value.is_sign_negative() {
                    u64::MAX
                } else {
                    1 << 63
                };
                self.fixed(DOUBLE, &(bits ^ flip).to_be_bytes());
            }
            Element::Bool(value) => self.out.push(if *value { TRUE } else { FALSE }),
            Element::Uuid(bytes) => self.fixed(UUID, bytes),
            Element::Versionstamp {
                stamp,
                user_version,
            } => {
                let stamp = stamp.unwrap_or(INCOMPLETE);
                if stamp == INCOMPLETE {
                    self.stamps += 1;
                    self.stamp_at = self.out.len() + 1;
                }
                self.fixed(VERSIONSTAMP, &stamp.0);
                self.out.extend_from_slice(&user_version.to_be_bytes());
            }
        }
        Ok(())
    }

    fn fixed(&mut self, code: u8, body: &[u8]) {
        self.out.push(code);
        self.out.extend_from_slice(body);
    }

    fn escaped(&mut self, code: u8, body: &[u8]) {
        self.out.push(code);
        let mut pieces = body.split(|&byte| byte == 0);
        self.out
            .extend_from_slice(pieces.next().unwrap_or_default());
        for piece in pieces {
            self.out.extend_from_slice(&[0, ESCAPE]);
            self.out.extend_from_slice(piece);
        }
        self.out.push(0);
    }

    fn nested(&mut self, inner: &[Element], depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(Error::client_invalid_operation);
        }
        self.out.push(NESTED);
        for element in inner {
            self.element(element, depth)?;
            if matches!(element, Element::Null) {
                self.out.push(ESCAPE);
            }
        }
        self.out.push(0);
        Ok(())
    }

    fn integer(&mut self, negative: bool, magnitude: &[u8]) {
        let zeros = magnitude.iter().take_while(|&&byte| byte == 0).count();
        let magnitude = &magnitude[zeros..];
        let len = u8::try_from(magnitude.len()).expect("integers are bounded when they are made");
        match (negative, len) {
            (false, 0..=8) => self.out.push(ZERO + len),
            (true, 0..=8) => self.out.push(ZERO - len),
            (false, _) => self.out.extend_from_slice(&[BIG_POSITIVE, len]),
            (true, _) => self.out.extend_from_slice(&[BIG_NEGATIVE, !len]),
        }
        let flip = if negative { 0xff } else { 0 };
        self.out.extend(magnitude.iter().map(|&byte| byte ^ flip));
    }
}

/// Unpacks a whole packed tuple; byte strings are slices of `input` where they can be. `invalid_tuple_data_type` if
/// the bytes are not a packed tuple or nest deeper than [`DEPTH_MAX`].
pub fn unpack(input: &Bytes) -> Result<Vec<Element>> {
    let mut unpacker = Unpacker { input, at: 0 };
    let mut elements = Vec::new();
    while unpacker.at < input.len() {
        elements.push(unpacker.element(0).ok_or(Error::invalid_tuple_data_type)?);
    }
    Ok(elements)
}

struct Unpacker<'a> {
    input: &'a Bytes,
    at: usize,
}

impl Unpacker<'_> {
    fn take(&mut self, len: usize) -> Option<&[u8]> {
        let taken = self.input.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn element(&mut self, depth: usize) -> Option<Element> {
        let [code] = self.array()?;
        Some(match code {
            NULL => Element::Null,
            BYTES => Element::Bytes(self.escaped()?),
            TEXT => Element::Text(String::from_utf8(self.escaped()?.into()).ok()?),
            NESTED => Element::Nested(self.nested(depth + 1)?),
            BIG_NEGATIVE => {
                let [len] = self.array()?;
                self.integer(true, usize::from(!len))?
            }
            0x0c..ZERO => self.integer(true, usize::from(ZERO - code))?,
            ZERO..BIG_POSITIVE => self.integer(false, usize::from(code - ZERO))?,
            BIG_POSITIVE => {
                let [len] = self.array()?;
                self.integer(false, usize::from(len))?
            }
            FLOAT => {
                let bits = u32::from_be_bytes(self.array()?);
                let flip = if bits >> 31 == 0 { u32::MAX } else { 1 << 31 };
                Element::Float(f32::from_bits(bits ^ flip))
            }
            DOUBLE => {
                let bits = u64::from_be_bytes(self.array()?);
                let flip = if bits >> 63 == 0 { u64::MAX } else { 1 << 63 };
                Element::Double(f64::from_bits(bits ^ flip))
            }
            FALSE => Element::Bool(false),
            TRUE => Element::Bool(true),
            UUID => Element::Uuid(self.array()?),
            VERSIONSTAMP => {
                let stamp = Versionstamp(self.array()?);
                let user_version = u16::from_be_bytes(self.array()?);
                Element::Versionstamp {
                    stamp: (stamp != INCOMPLETE).then_some(stamp),
                    user_version,
                }
            }
            _ => return None,
        })
    }

    /// Reads a body up to a `00` that no `ff` follows, and moves behind that.
    fn escaped(&mut self) -> Option<Bytes> {
        let rest = &self.input[self.at..];
        let mut end = rest.iter().position(|&byte| byte == 0)?;
        if rest.get(end + 1) != Some(&ESCAPE) {
            let body = self.input.slice(self.at..self.at + end);
            self.at += end + 1;
            return Some(body);
        }
        let mut body = Vec::new();
        let mut from = 0;
        loop {
            body.extend_from_slice(&rest[from..end]);
            if rest.get(end + 1) != Some(&ESCAPE) {
                break;
            }
            body.push(0);
            from = end + 2;
            end = from + rest[from..].iter().position(|&byte| byte == 0)?;
        }
        self.at += end + 1;
        Some(Bytes::from(body))
    }

    fn nested(&mut self, depth: usize) -> Option<Vec<Element>> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut inner = Vec::new();
        loop {
            if *self.input.get(self.at)? != NULL {
                inner.push(self.element(depth)?);
            } else if self.input.get(self.at + 1) == Some(&ESCAPE) {
                self.at += 2;
                inner.push(Element::Null);
            } else {
                self.at += 1;
                return Some(inner);
            }
        }
    }

    fn integer(&mut self, negative: bool, len: usize) -> Option<Element> {
        let mut body = [0; INTEGER_BYTES_MAX];
        let body = &mut body[..len];
        body.copy_from_slice(self.take(len)?);
        if negative {
            body.iter_mut().for_each(|byte| *byte = !*byte);
        }
        Element::integer(negative, body)
    }
}

#[cfg(test)]
mod tests;
