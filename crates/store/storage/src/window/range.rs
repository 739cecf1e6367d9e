//! Range reads over window and engine.
//!
//! The segments that were cleared by the read's version cut the range into spans. Inside a segment only the window has
//! rows, and the engine is not asked. So a cleared range costs nothing to skip, however many dead rows the engine
//! still has in it. Elsewhere the rows of window and engine are merged as they come; where both have a key, the
//! window's state counts.
//!
//! A read stops when it has examined so much that other work should have its turn, even if it found no rows (cleared
//! keys give none), or when the engine has begun to wait for the disk. It returns where to go on.

use super::VersionedWindow;
use super::chain::Entry;
use bytes::Bytes;
use plinth_core::key::key_after;
use plinth_core::{Result, Version};
use plinth_engine::KeyValueStore;
use plinth_engine::sorted::{Keyed, Range};
use std::iter::Peekable;

/// Limits of a range read. The row that reaches the limit of bytes is still given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeLimits {
    pub rows: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
    /// Rows of the engine and keys of the window that are examined, including those that give no row.
    pub visits: usize,
}

/// The rows of `[begin, end)` at a version, in order or in reverse order, up to the limits.
#[derive(Clone, Copy, Debug)]
pub struct RangeRead<'a> {
    pub begin: &'a [u8],
    pub end: &'a [u8],
    pub version: Version,
    pub limits: RangeLimits,
    pub reverse: bool,
}

/// How a range read ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeEnd {
    pub rows: usize,
    pub bytes: usize,
    /// True if a limit of rows or bytes was reached; there may be more rows.
    pub more: bool,
    /// Set if the read stopped before that: the rest begins here, or, in reverse order, ends here.
    pub stopped_at: Option<Bytes>,
}

/// Cost of a span in addition to its rows, in visits: the engine is asked again.
const SPAN_VISITS: usize = 16;

/// Gives the rows of a range to `emit`.
pub fn read_range(
    window: &VersionedWindow,
    engine: &dyn KeyValueStore,
    read: &RangeRead<'_>,
    emit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<RangeEnd> {
    let RangeRead {
        begin,
        end,
        version,
        limits,
        reverse,
    } = *read;
    window.assert_readable(version);
    let sink = Sink {
        limits,
        end: RangeEnd::default(),
        visits: 0,
        reverse,
        emit,
    };
    let entries = window.entries.range(begin, end, reverse).peekable();
    let mut merge = Merge {
        entries,
        version,
        reverse,
        sink,
    };
    if limits.rows == 0 || limits.bytes == 0 {
        merge.sink.end.more = begin < end;
        return Ok(merge.sink.end);
    }
    let (mut begin, mut end) = (begin, end);
    while begin < end && !merge.sink.is_over() {
        let span = if reverse {
            Span::last_of(begin, end, window.cleared.previous_cleared(end, version))
        } else {
            Span::first_of(begin, end, window.cleared.next_cleared(begin, version))
        };
        if span.ask_engine {
            let given = |key: &[u8], value: &[u8]| merge.engine_row(key, value);
            let waited = engine.range_while_warm(span.begin, span.end, reverse, &mut { given })?;
            if let Some(last) = waited
                && !merge.sink.is_over()
            {
                merge.sink.stop_behind(&last);
            }
        }
        merge.rest_of(&span);
        if reverse {
            end = span.begin;
        } else {
            begin = span.end;
        }
        merge.sink.visits += SPAN_VISITS;
        if begin < end && !merge.sink.is_over() && merge.sink.visits >= limits.visits {
            let left = if reverse { end } else { begin };
            merge.sink.end.stopped_at = Some(Bytes::copy_from_slice(left));
        }
    }
    Ok(merge.sink.end)
}

/// A part of the range that is cleared as a whole or not at all.
struct Span<'a> {
    begin: &'a [u8],
    end: &'a [u8],
    ask_engine: bool,
}

impl<'a> Span<'a> {
    fn first_of(begin: &'a [u8], end: &'a [u8], cleared: Option<(&'a [u8], &'a [u8])>) -> Self {
        match cleared {
            Some((from, to)) if from <= begin => Span {
                begin,
                end: to.min(end),
                ask_engine: false,
            },
            Some((from, _)) => Span {
                begin,
                end: from.min(end),
                ask_engine: true,
            },
            None => Span {
                begin,
                end,
                ask_engine: true,
            },
        }
    }

    fn last_of(begin: &'a [u8], end: &'a [u8], cleared: Option<(&'a [u8], &'a [u8])>) -> Self {
        match cleared {
            Some((from, to)) if to >= end => Span {
                begin: from.max(begin),
                end,
                ask_engine: false,
            },
            Some((_, to)) => Span {
                begin: to.max(begin),
                end,
                ask_engine: true,
            },
            None => Span {
                begin,
                end,
                ask_engine: true,
            },
        }
    }
}

/// Counts rows against the limits.
struct Sink<'a> {
    limits: RangeLimits,
    end: RangeEnd,
    visits: usize,
    reverse: bool,
    emit: &'a mut dyn FnMut(&[u8], &[u8]),
}

impl Sink<'_> {
    #[inline]
    fn push(&mut self, key: &[u8], value: &[u8]) {
        (self.emit)(key, value);
        self.end.rows += 1;
        self.end.bytes += key.len() + value.len();
        self.end.more = self.end.rows >= self.limits.rows || self.end.bytes >= self.limits.bytes;
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.end.more || self.end.stopped_at.is_some()
    }

    /// Counts a row or key that has been processed. True if the read stops behind it.
    #[inline]
    fn visited(&mut self, key: &[u8]) -> bool {
        self.visits += 1;
        if self.visits >= self.limits.visits && !self.end.more {
            self.stop_behind(key);
        }
        self.is_over()
    }

    #[cold]
    fn stop_behind(&mut self, key: &[u8]) {
        self.end.stopped_at = Some(match self.reverse {
            true => Bytes::copy_from_slice(key),
            false => key_after(key),
        });
    }
}

struct Merge<'a> {
    entries: Peekable<Range<'a, Entry>>,
    version: Version,
    reverse: bool,
    sink: Sink<'a>,
}

impl Merge<'_> {
    /// Takes a row of the engine; false when a limit is reached.
    #[inline]
    fn engine_row(&mut self, key: &[u8], value: &[u8]) -> bool {
        let reverse = self.reverse;
        while let Some(entry) = self.entries.next_if(|e| {
            if reverse {
                e.key() >= key
            } else {
                e.key() <= key
            }
        }) {
            let state = entry.at(self.version);
            if let Some(Some(value)) = state {
                self.sink.push(entry.key(), value);
            }
            let is_same = entry.key() == key;
            if is_same && state.is_none() {
                self.sink.push(key, value);
            }
            if self.sink.visited(entry.key()) || is_same {
                return !self.sink.is_over();
            }
        }
        self.sink.push(key, value);
        !self.sink.visited(key)
    }

    /// Gives the remaining rows of the window in a span where the engine has no more rows.
    fn rest_of(&mut self, span: &Span<'_>) {
        let reverse = self.reverse;
        while !self.sink.is_over()
            && let Some(entry) = self.entries.next_if(|e| {
                if reverse {
                    e.key() >= span.begin
                } else {
                    e.key() < span.end
                }
            })
        {
            if let Some(Some(value)) = entry.at(self.version) {
                self.sink.push(entry.key(), value);
            }
            self.sink.visited(entry.key());
        }
    }
}
