//! Mapped ranges: for each row of an index, the row or rows that it points to.
//!
//! The mapper is a packed tuple. An element `{K[i]}` becomes element i of the index row's key, `{V[i]}` of its value.
//! `{...}` at the end asks for everything below, `{{` and `}}` are braces, and all other elements stay.
//! FoundationDB's storage servers do the second read; here the client does, with one request a row, all at once.
//!
//! Like FoundationDB's, a mapped range does not see the transaction's own writes, and is refused if it meets any: the
//! application then reads the index and the rows one after the other. An option makes mapped ranges see own writes
//! instead.

use crate::range::{RangeOptions, RangeResult, StreamingMode};
use crate::read_future::ReadFuture;
use crate::reader::Anchor;
use crate::reads::Prepared;
use crate::special;
use crate::transaction::Transaction;
use crate::write_map::WriteMap;
use bytes::Bytes;
use plinth_core::key::{key_after, prefix_end};
use plinth_core::tuple::{self, Element};
use plinth_core::{Error, Key, KeyRange, KeySelector, Result, Value};

/// A row of the index, and the rows that it points to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappedRow {
    pub key: Key,
    pub value: Value,
    /// `[begin, end)` is the range that the row points to.
    pub begin: Key,
    pub end: Key,
    pub rows: Vec<(Key, Value)>,
}

/// A chunk of the index, and the rows that its rows point to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MappedResult {
    pub rows: Vec<MappedRow>,
    /// There may be rows of the index behind the last.
    pub more: bool,
}

enum Part {
    Constant(Element),
    OfKey(usize),
    OfValue(usize),
}

struct Mapper {
    parts: Vec<Part>,
    /// True if it ends with `{...}`.
    is_range: bool,
}

/// The number in `{K[3]}` or `{V[3]}`.
fn index_in(text: &str, letter: char) -> Option<usize> {
    let inner = text.strip_prefix('{')?.strip_suffix("]}")?;
    inner.strip_prefix(letter)?.strip_prefix('[')?.parse().ok()
}

/// A constant of the mapper. Each doubled brace becomes a single one.
fn constant(text: &str) -> Result<Element> {
    let plain = text.replace("{{", "").replace("}}", "");
    if plain.contains(['{', '}']) {
        return Err(Error::mapper_bad_index);
    }
    let unescaped = text.replace("{{", "{").replace("}}", "}");
    Ok(Element::Text(unescaped))
}

fn parse(mapper: &Bytes) -> Result<Mapper> {
    let mut elements = tuple::unpack(mapper).map_err(|_| Error::mapper_not_tuple)?;
    let is_rest = |element: &Element| element.as_text() == Some("{...}");
    let is_range = elements.last().is_some_and(is_rest);
    if is_range {
        elements.pop();
    }
    if elements.iter().any(is_rest) {
        return Err(Error::mapper_bad_range_decriptor);
    }
    let part = |element: Element| {
        let Some(text) = element.as_text() else {
            return Ok(Part::Constant(element));
        };
        if let Some(i) = index_in(text, 'K') {
            return Ok(Part::OfKey(i));
        }
        if let Some(i) = index_in(text, 'V') {
            return Ok(Part::OfValue(i));
        }
        constant(text).map(Part::Constant)
    };
    let parts = elements.into_iter().map(part).collect::<Result<_>>()?;
    Ok(Mapper { parts, is_range })
}

impl Mapper {
    /// The range that a row of the index points to.
    fn range_of(&self, key: &Bytes, value: &Bytes) -> Result<(Bytes, Bytes)> {
        let unpacked = |wanted: bool, bytes: &Bytes, bad: Error| {
            let elements = wanted.then(|| tuple::unpack(bytes).map_err(|_| bad));
            elements.unwrap_or(Ok(Vec::new()))
        };
        let of_key = self.parts.iter().any(|p| matches!(p, Part::OfKey(_)));
        let of_value = self.parts.iter().any(|p| matches!(p, Part::OfValue(_)));
        let keys = unpacked(of_key, key, Error::key_not_tuple)?;
        let values = unpacked(of_value, value, Error::value_not_tuple)?;
        let element = |part: &Part| match part {
            Part::Constant(element) => Ok(element.clone()),
            Part::OfKey(i) => keys.get(*i).cloned().ok_or(Error::mapper_bad_index),
            Part::OfValue(i) => values.get(*i).cloned().ok_or(Error::mapper_bad_index),
        };
        let elements: Vec<Element> = self.parts.iter().map(element).collect::<Result<_>>()?;
        let begin = tuple::pack(&elements).map_err(|_| Error::mapper_bad_index)?;
        let end = if self.is_range {
            prefix_end(&begin).ok_or(Error::mapper_bad_index)?
        } else {
            key_after(&begin)
        };
        Ok((begin, end))
    }
}

/// The own writes that a mapped range may not meet.
type Forbidden = Option<std::rc::Rc<WriteMap>>;

fn check_untouched(own: &Forbidden, begin: &Key, end: &Key) -> Result<()> {
    match own {
        Some(own) if own.touches(begin, end) => Err(Error::get_mapped_range_reads_your_writes),
        _ => Ok(()),
    }
}

/// The part of the index that was read: up to the last row if the chunk ended there.
fn looked_at(begin: &Anchor, end: &Anchor, reverse: bool, index: &RangeResult) -> (Key, Key) {
    let mut keys: Vec<&Key> = index.rows.iter().map(|(key, _)| key).collect();
    if reverse {
        keys.reverse();
    }
    let (mut from, mut to) = (begin.key.clone(), end.key.clone());
    if let (Some(first), Some(last)) = (keys.first(), keys.last()) {
        let lowest = from.clone().min((*first).clone());
        let highest = to.clone().max(key_after(last));
        from = if index.more && reverse {
            (*first).clone()
        } else {
            lowest
        };
        to = if index.more && !reverse {
            key_after(last)
        } else {
            highest
        };
    }
    (from, to)
}

impl Transaction {
    /// One chunk of the index from `begin` to `end`, and the rows that the mapper derives from its rows.
    ///
    /// Fails with `get_mapped_range_reads_your_writes` if it meets anything that this transaction wrote; the
    /// transaction can still commit. Fails with `unsupported_operation` for a snapshot, in reverse, and without
    /// read-your-writes. The option `MappedRangeReadsOwnWrites` lifts all these limits.
    pub fn get_mapped_range(
        &self,
        begin: KeySelector,
        end: KeySelector,
        mapper: Bytes,
        options: RangeOptions,
        snapshot: bool,
    ) -> ReadFuture<MappedResult> {
        let (prepared, own) = match self.prepare_mapped((&begin, &end), options, snapshot) {
            Ok(prepared) => prepared,
            Err(error) => return self.inner.refuse(Err(error)),
        };
        let begin = Anchor::new(begin, &prepared.keys_end);
        let end = Anchor::new(end, &prepared.keys_end);
        if begin.offset >= end.offset && begin.key >= end.key {
            return self.inner.refuse(Ok(MappedResult::default()));
        }
        let attempt = self.inner.state.borrow().attempt.clone();
        let read = read(prepared, own, (begin, end), mapper, options);
        self.inner.start_apart(async move {
            let result = read.await;
            match &result {
                Err(Error::get_mapped_range_reads_your_writes) | Ok(_) => {}
                Err(error) => attempt.note_read_error(*error),
            }
            result
        })
    }

    fn prepare_mapped(
        &self,
        (begin, end): (&KeySelector, &KeySelector),
        options: RangeOptions,
        snapshot: bool,
    ) -> Result<(Prepared, Forbidden)> {
        if special::is_special(&begin.key) && special::is_special(&end.key) {
            return Err(Error::client_invalid_operation);
        }
        options.budget()?;
        let (sees_writes, disabled) = {
            let options = &self.inner.state.borrow().options;
            (options.mapped_reads_own_writes, options.ryw_disabled)
        };
        let mut prepared = self.inner.prepare(&[begin, end], snapshot)?;
        if sees_writes {
            return Ok((prepared, None));
        }
        if snapshot || options.reverse || disabled {
            return Err(Error::unsupported_operation);
        }
        let own = prepared.writes.take();
        Ok((prepared, own))
    }
}

/// One chunk of the index range, and the rows that its rows point to.
async fn read(
    prepared: Prepared,
    own: Forbidden,
    (begin, end): (Anchor, Anchor),
    mapper: Bytes,
    options: RangeOptions,
) -> Result<MappedResult> {
    let mapper = parse(&mapper)?;
    let index = prepared
        .clone()
        .get_range(begin.clone(), end.clone(), options);
    let index = index.await?;
    let (from, to) = looked_at(&begin, &end, options.reverse, &index);
    check_untouched(&own, &from, &to)?;
    let reads = index.rows.into_iter().map(|(key, value)| {
        let (mapper, prepared, own) = (&mapper, &prepared, &own);
        async move {
            let (begin, end) = mapper.range_of(&key, &value)?;
            check_untouched(own, &begin, &end)?;
            let rows = read_all(prepared, &begin, &end).await?;
            Ok(MappedRow {
                key,
                value,
                begin,
                end,
                rows,
            })
        }
    });
    let rows = plinth_runtime::join_all(reads).await;
    Ok(MappedResult {
        rows: rows.into_iter().collect::<Result<_>>()?,
        more: index.more,
    })
}

/// All rows of `[begin, end)`.
async fn read_all(prepared: &Prepared, begin: &Key, end: &Key) -> Result<Vec<(Key, Value)>> {
    if *end > prepared.keys_end {
        return Err(Error::key_outside_legal_range);
    }
    let options = RangeOptions::mode(StreamingMode::WantAll);
    let (mut next, to) = KeyRange::new(begin.clone(), end.clone()).selectors();
    let mut rows: Vec<(Key, Value)> = Vec::new();
    loop {
        let from = Anchor::new(next, &prepared.keys_end);
        let to = Anchor::new(to.clone(), &prepared.keys_end);
        let chunk = prepared.clone().get_range(from, to, options).await?;
        rows.extend(chunk.rows);
        match rows.last() {
            Some((last, _)) if chunk.more => {
                next = KeySelector::first_greater_than(last.clone());
            }
            _ => return Ok(rows),
        }
    }
}
