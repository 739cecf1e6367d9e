//! Keys with values, as they lie in buckets and leaves: a short value beside its key, a long one in an object of its
//! own.
//!
//! ```text
//!   entry:         bytes of the key 2 | 0 | key | value
//!                  bytes of the key 2 | 1 | key | place of the value's object 8
//!   long value:    a page of one record
//! ```

use crate::error::{Error, Result, damaged};
use crate::page::{Kind, Mark, Page, PageWriter, page_bytes, take_pointer, take_u16};
use bytes::Bytes;
use plinth_farm_memory::{Class, OBJECT_BYTES_MAX, Objects, Pointer};

const HEAD_BYTES: usize = 3;
const IS_INLINE: u8 = 0;
const IS_LONG: u8 = 1;
pub const POINTER_BYTES: usize = 8;
/// Most bytes of a value: one object.
pub const VALUE_BYTES_MAX: usize = OBJECT_BYTES_MAX - page_bytes(1, 0);

/// Where a value is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stored {
    Inline(Bytes),
    Long(Pointer),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub key: Bytes,
    pub stored: Stored,
}

/// Bytes of the record of an entry with a key of so many bytes, and a value inline of so many.
pub const fn entry_bytes(key: usize, value: usize) -> usize {
    HEAD_BYTES + key + value
}

impl Entry {
    /// Bytes of its record.
    pub fn bytes(&self) -> usize {
        let value = match &self.stored {
            Stored::Inline(value) => value.len(),
            Stored::Long(_) => POINTER_BYTES,
        };
        entry_bytes(self.key.len(), value)
    }

    pub fn write(&self, writer: &mut PageWriter) {
        match &self.stored {
            Stored::Inline(value) => write_inline(&self.key, value, writer),
            Stored::Long(at) => {
                let length = (self.key.len() as u16).to_le_bytes();
                let bits = at.bits().to_le_bytes();
                writer.record(&[&length, &[IS_LONG], &self.key, &bits]);
            }
        }
    }

    /// Record `i` of the page.
    pub fn read(page: &Page, i: usize) -> Option<Entry> {
        let length = key_of(page.record(i)?)?.len();
        Some(Entry {
            key: page.part(i, HEAD_BYTES..HEAD_BYTES + length)?,
            stored: Entry::read_stored(page, i)?,
        })
    }

    /// The value of record `i` of the page.
    #[inline]
    pub fn read_stored(page: &Page, i: usize) -> Option<Stored> {
        let record = page.record(i)?;
        let value_at = HEAD_BYTES + key_of(record)?.len();
        match record[2] {
            IS_INLINE => Some(Stored::Inline(page.part(i, value_at..record.len())?)),
            IS_LONG => {
                let (at, rest) = take_pointer(&record[value_at..])?;
                rest.is_empty().then_some(Stored::Long(at))
            }
            _ => None,
        }
    }
}

/// Writes the record of an entry whose value lies beside its key.
pub fn write_inline(key: &[u8], value: &[u8], writer: &mut PageWriter) {
    let length = (key.len() as u16).to_le_bytes();
    writer.record(&[&length, &[IS_INLINE], key, value]);
}

/// Whether the value of the record, which is [that of an entry](is_entry), lies beside its key.
pub fn is_inline(record: &[u8]) -> bool {
    record[2] == IS_INLINE
}

/// Whether it is the record of an entry, which [`Entry::read`] would read.
pub fn is_entry(record: &[u8]) -> bool {
    let Some(key) = key_of(record) else {
        return false;
    };
    let value = &record[HEAD_BYTES + key.len()..];
    match record[2] {
        IS_INLINE => true,
        IS_LONG => take_pointer(value).is_some_and(|(_, rest)| rest.is_empty()),
        _ => false,
    }
}

/// The key of a record of an entry.
#[inline]
pub fn key_of(record: &[u8]) -> Option<&[u8]> {
    let (length, rest) = take_u16(record)?;
    rest.get(1..1 + usize::from(length))
}

/// What a structure stores its values by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub key_bytes_max: usize,
    /// Longer values lie in objects of their own.
    pub inline_bytes_max: usize,
}

impl Limits {
    pub fn check(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong {
                bytes: value.len(),
                most: VALUE_BYTES_MAX,
            });
        }
        Ok(())
    }

    pub fn check_key(&self, key: &[u8]) -> Result<()> {
        if key.len() > self.key_bytes_max {
            return Err(Error::KeyTooLong {
                bytes: key.len(),
                most: self.key_bytes_max,
            });
        }
        Ok(())
    }

    /// Most bytes of an entry's record.
    pub fn entry_bytes_max(&self) -> usize {
        entry_bytes(self.key_bytes_max, self.inline_bytes_max.max(POINTER_BYTES))
    }
}

/// The value itself.
pub async fn load<O: Objects>(tx: &O, mark: Mark, stored: Stored) -> Result<Bytes> {
    let at = match stored {
        Stored::Inline(value) => return Ok(value),
        Stored::Long(at) => at,
    };
    let page = Page::parse(tx.read(at).await?, Kind::Value, mark);
    page.and_then(|page| page.whole(0))
        .ok_or(damaged(at, "it is not the value that a key points to"))
}

/// Puts a value where it belongs; `former` is where the key's value was before, and its object ends or is used again.
pub async fn store<O: Objects>(
    tx: &O,
    mark: Mark,
    near: Pointer,
    limits: Limits,
    value: &[u8],
    former: Option<Stored>,
) -> Result<Stored> {
    if value.len() <= limits.inline_bytes_max {
        drop_stored(tx, former).await?;
        return Ok(Stored::Inline(Bytes::copy_from_slice(value)));
    }
    let bytes = page_bytes(1, value.len());
    let fits = |at: Pointer| Class::of(bytes) == Some(at.class());
    let at = match former {
        Some(Stored::Long(at)) if fits(at) => at,
        former => {
            drop_stored(tx, former).await?;
            tx.allocate(bytes, near).await?
        }
    };
    let mut writer = PageWriter::new(Kind::Value, 0, mark, 1, bytes);
    writer.record(&[value]);
    tx.write(at, writer.finish()).await?;
    Ok(Stored::Long(at))
}

/// Ends the object of a value that has one.
pub async fn drop_stored<O: Objects>(tx: &O, stored: Option<Stored>) -> Result<()> {
    if let Some(Stored::Long(at)) = stored {
        tx.free(at).await?;
    }
    Ok(())
}
