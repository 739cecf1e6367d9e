//! Range reads over window and engine.
//!
//! The range is cut into spans by the segments that were cleared by the read's version: inside those only the
//! window has rows, and the engine is not asked, so a cleared range costs nothing to skip, however many dead rows the
//! engine still has in it. Elsewhere the two are merged as they come; the window wins where both have a key.

use super::VersionedWindow;
use super::chain::Entry;
use plinth_core::{Result, Version};
use plinth_engine::KeyValueStore;
use plinth_engine::sorted::{Keyed, Range};
use std::iter::Peekable;

/// Where a range read stops. The row that reaches the limit of bytes is still given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeLimits {
    pub rows: usize,
    /// Of keys and values.
    pub bytes: usize,
}

/// How a range read ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RangeEnd {
    pub rows: usize,
    pub bytes: usize,
    /// A limit was reached; there may be more rows.
    pub more: bool,
}

/// Gives the rows of `[begin, end)` at `version`, in order or in reverse order, to `emit`, up to the limits.
pub fn read_range(
    window: &VersionedWindow,
    engine: &dyn KeyValueStore,
    begin: &[u8],
    end: &[u8],
    version: Version,
    limits: RangeLimits,
    reverse: bool,
    emit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<RangeEnd> {
    window.assert_readable(version);
    let sink = Sink {
        limits,
        end: RangeEnd::default(),
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
    while begin < end && !merge.sink.end.more {
        let span = if reverse {
            Span::last_of(begin, end, window.cleared.previous_cleared(end, version))
        } else {
            Span::first_of(begin, end, window.cleared.next_cleared(begin, version))
        };
        if span.ask_engine {
            engine.range(span.begin, span.end, reverse, &mut |key, value| {
                merge.engine_row(key, value)
            })?;
        }
        merge.rest_of(&span);
        if reverse {
            end = span.begin;
        } else {
            begin = span.end;
        }
    }
    Ok(merge.sink.end)
}

/// A part of the range that is cleared as a whole, or not at all.
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
                if self.sink.end.more {
                    return false;
                }
            }
            if entry.key() == key {
                if state.is_none() {
                    self.sink.push(key, value);
                }
                return !self.sink.end.more;
            }
        }
        self.sink.push(key, value);
        !self.sink.end.more
    }

    /// Gives the window's rows that are left in a span that the engine has no more rows in.
    fn rest_of(&mut self, span: &Span<'_>) {
        let reverse = self.reverse;
        while !self.sink.end.more
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
        }
    }
}
