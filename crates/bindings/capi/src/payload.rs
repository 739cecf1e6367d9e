//! What a future can hold: the results of the client, with the structures of the C header that point into them.

use crate::arguments::Flag;
use crate::captured::{Changes, Streams};
use crate::entries::KeyEntry;
use bytes::Bytes;
use plinth_client::{MappedResult, MappedRow};
use std::any::Any;
use std::ffi::{CString, c_char, c_int};
use std::sync::Arc;

/// `FDBKeyValue`.
#[repr(C, packed(4))]
pub struct RowEntry {
    key: *const u8,
    key_length: c_int,
    value: *const u8,
    value_length: c_int,
}

impl RowEntry {
    /// Points into the row: valid as long as the row.
    pub fn of((key, value): &(Bytes, Bytes)) -> Self {
        RowEntry {
            key: key.as_ptr(),
            key_length: key.len() as c_int,
            value: value.as_ptr(),
            value_length: value.len() as c_int,
        }
    }
}

/// `FDBKeySelector`.
#[repr(C, packed(4))]
struct SelectorEntry {
    key: KeyEntry,
    or_equal: Flag,
    offset: c_int,
}

/// `FDBMappedKeyValue`, 112 bytes: a row of the index, the range that it points to, and the rows of that range.
#[repr(C, packed(4))]
pub struct MappedEntry {
    key: KeyEntry,
    value: KeyEntry,
    begin: SelectorEntry,
    end: SelectorEntry,
    rows: *const RowEntry,
    row_count: c_int,
    capacity: c_int,
    reserved: [u8; 32],
}

const _: () = assert!(size_of::<MappedEntry>() == 112);

impl MappedEntry {
    /// Points into the row, and into the entries of the rows that it points to.
    fn of(row: &MappedRow, entries: &[RowEntry]) -> Self {
        let selector = |key| SelectorEntry {
            key: KeyEntry::of(key),
            or_equal: 0,
            offset: 1,
        };
        MappedEntry {
            key: KeyEntry::of(&row.key),
            value: KeyEntry::of(&row.value),
            begin: selector(&row.begin),
            end: selector(&row.end),
            rows: entries.as_ptr(),
            row_count: entries.len() as c_int,
            capacity: entries.len() as c_int,
            reserved: [0; 32],
        }
    }
}

/// The result in a future.
pub enum Payload {
    Nothing,
    Int64(i64),
    Uint64(u64),
    Key(Bytes),
    Value(Option<Bytes>),
    Rows(Rows),
    #[allow(dead_code)] // keeps what the entries point to
    Mapped(Vec<MappedRow>, Vec<Vec<RowEntry>>, Vec<MappedEntry>, bool),
    #[allow(dead_code)] // keeps what the entries point to
    Keys(Vec<Bytes>, Vec<KeyEntry>),
    Streams(Streams),
    Changes(Changes),
    /// An object of the caller's own.
    Handle(Arc<dyn Any + Send + Sync>),
    #[allow(dead_code)]
    Strings(Vec<CString>, Vec<*const c_char>),
}

// SAFETY: the raw pointers inside point into the byte strings beside them, which are never changed.
unsafe impl Send for Payload {}

pub struct Rows {
    #[allow(dead_code)] // keeps what the entries point to
    rows: Vec<(Bytes, Bytes)>,
    pub entries: Vec<RowEntry>,
    pub more: bool,
}

impl Payload {
    pub fn rows(rows: Vec<(Bytes, Bytes)>, more: bool) -> Self {
        let entries = rows.iter().map(RowEntry::of).collect();
        Payload::Rows(Rows {
            rows,
            entries,
            more,
        })
    }

    pub fn mapped(MappedResult { rows, more }: MappedResult) -> Self {
        let led_to = |row: &MappedRow| row.rows.iter().map(RowEntry::of).collect();
        let inner: Vec<Vec<RowEntry>> = rows.iter().map(led_to).collect();
        let both = rows.iter().zip(&inner);
        let entries = both
            .map(|(row, inner)| MappedEntry::of(row, inner))
            .collect();
        Payload::Mapped(rows, inner, entries, more)
    }

    pub fn keys(keys: Vec<Bytes>) -> Self {
        let entries = keys.iter().map(KeyEntry::of).collect();
        Payload::Keys(keys, entries)
    }

    pub fn strings(strings: Vec<String>) -> Self {
        let strings: Vec<CString> = strings
            .into_iter()
            .filter_map(|text| CString::new(text).ok())
            .collect();
        let pointers = strings.iter().map(|text| text.as_ptr()).collect();
        Payload::Strings(strings, pointers)
    }
}
