//! Mapped ranges: for each row of an index, the row or rows that it points to.
//!
//! The mapper is a packed tuple. An element `{K[i]}` becomes element i of the index row's key, `{V[i]}` of its value, `{...}` at
//! the end asks for everything below, `{{` and `}}` are braces; all else stays. FoundationDB's storage servers do the
//! second read; here the client does, with one request a row, all at once.

use crate::future::RowEntry;
use bytes::Bytes;
use plinth_client::{RangeOptions, Transaction};
use plinth_core::key::{key_after, prefix_end};
use plinth_core::tuple::{self, Element};
use plinth_core::{Error, KeySelector, Result};

/// A row of the index, and what it leads to.
pub struct MappedRow {
    pub key: Bytes,
    pub value: Bytes,
    pub begin: Bytes,
    pub end: Bytes,
    #[allow(dead_code)] // keeps what the entries point to
    pub rows: Vec<(Bytes, Bytes)>,
    pub entries: Vec<RowEntry>,
}

enum Part {
    Constant(Element),
    OfKey(usize),
    OfValue(usize),
}

struct Mapper {
    parts: Vec<Part>,
    /// It ends with `{...}`.
    is_range: bool,
}

/// The number in `{K[3]}` or `{V[3]}`.
fn index_in(text: &str, letter: char) -> Option<usize> {
    let inner = text.strip_prefix('{')?.strip_suffix("]}")?;
    inner.strip_prefix(letter)?.strip_prefix('[')?.parse().ok()
}

fn parse(mapper: &Bytes) -> Result<Mapper> {
    let bad = |_| Error::client_invalid_operation;
    let mut elements = tuple::unpack(mapper).map_err(bad)?;
    let is_range = elements.last().and_then(Element::as_text) == Some("{...}");
    if is_range {
        elements.pop();
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
        let plain = text.replace("{{", "").replace("}}", "");
        if plain.contains(['{', '}']) {
            return Err(Error::client_invalid_operation);
        }
        let unescaped = text.replace("{{", "{").replace("}}", "}");
        Ok(Part::Constant(Element::Text(unescaped)))
    };
    let parts = elements.into_iter().map(part).collect::<Result<_>>()?;
    Ok(Mapper { parts, is_range })
}

impl Mapper {
    /// The range that a row of the index leads to.
    fn range_of(&self, key: &Bytes, value: &Bytes) -> Result<(Bytes, Bytes)> {
        let bad = Error::client_invalid_operation;
        let unpacked = |wanted: bool, bytes: &Bytes| {
            let elements = wanted.then(|| tuple::unpack(bytes).map_err(|_| bad));
            elements.unwrap_or(Ok(Vec::new()))
        };
        let of_key = self.parts.iter().any(|p| matches!(p, Part::OfKey(_)));
        let of_value = self.parts.iter().any(|p| matches!(p, Part::OfValue(_)));
        let (keys, values) = (unpacked(of_key, key)?, unpacked(of_value, value)?);
        let element = |part: &Part| match part {
            Part::Constant(element) => Ok(element.clone()),
            Part::OfKey(i) => keys.get(*i).cloned().ok_or(bad),
            Part::OfValue(i) => values.get(*i).cloned().ok_or(bad),
        };
        let elements: Vec<Element> = self.parts.iter().map(element).collect::<Result<_>>()?;
        let begin = tuple::pack(&elements).map_err(|_| bad)?;
        let end = if self.is_range {
            prefix_end(&begin).ok_or(bad)?
        } else {
            key_after(&begin)
        };
        Ok((begin, end))
    }
}

/// One chunk of the index range, and what its rows lead to; whether there is more of the index.
pub async fn read(
    transaction: Transaction,
    begin: KeySelector,
    end: KeySelector,
    mapper: Bytes,
    options: RangeOptions,
    snapshot: bool,
) -> Result<(Vec<MappedRow>, bool)> {
    let mapper = parse(&mapper)?;
    let index = transaction.get_range(begin, end, options, snapshot).await?;
    let reads = index.rows.into_iter().map(|(key, value)| {
        let (mapper, transaction) = (&mapper, &transaction);
        async move {
            let (begin, end) = mapper.range_of(&key, &value)?;
            let rows = transaction.get_range_all(
                KeySelector::first_greater_or_equal(begin.clone()),
                KeySelector::first_greater_or_equal(end.clone()),
                RangeOptions::default(),
                snapshot,
            );
            let rows = rows.await?;
            let entries = rows.iter().map(RowEntry::of).collect();
            Ok(MappedRow {
                key,
                value,
                begin,
                end,
                rows,
                entries,
            })
        }
    });
    let rows = plinth_runtime::join_all(reads).await;
    Ok((rows.into_iter().collect::<Result<_>>()?, index.more))
}
