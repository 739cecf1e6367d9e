//! Range reads of an application: how much to read at a time, and what comes back.

use crate::reader::Budget;
use plinth_core::{Error, Key, Result, Value};

/// How much of a range to transfer at once. The numbers are the public ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StreamingMode {
    /// The whole range will be needed, as early as possible.
    WantAll,
    /// The needed part is unknown: a little first, then more and more.
    #[default]
    Iterator,
    /// Exactly the rows asked for, in one piece; needs a limit.
    Exact,
    Small,
    Medium,
    Large,
    Serial,
}

impl StreamingMode {
    pub fn from_code(code: i32) -> Result<Self> {
        Ok(match code {
            -2 => StreamingMode::WantAll,
            -1 => StreamingMode::Iterator,
            0 => StreamingMode::Exact,
            1 => StreamingMode::Small,
            2 => StreamingMode::Medium,
            3 => StreamingMode::Large,
            4 => StreamingMode::Serial,
            _ => return Err(Error::client_invalid_operation),
        })
    }
}

const SMALL_BYTES: usize = 256;
const MEDIUM_BYTES: usize = 1000;
const LARGE_BYTES: usize = 4096;
const SERIAL_BYTES: usize = 80_000;
/// Each chunk of an iteration is half as large again as the one before.
const ITERATION_BYTES: [usize; 10] = [
    4096, 6144, 9216, 13_824, 20_736, 31_104, 46_656, 69_984, 80_000, 120_000,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeOptions {
    /// Rows; 0 for no limit.
    pub limit: i32,
    /// Bytes after which a chunk ends; 0 to leave it to the mode.
    pub target_bytes: i32,
    pub mode: StreamingMode,
    /// Number of the chunk in an iteration, from 1.
    pub iteration: i32,
    /// From the end backwards; a limit takes the last rows.
    pub reverse: bool,
}

impl Default for RangeOptions {
    fn default() -> Self {
        RangeOptions {
            limit: 0,
            target_bytes: 0,
            mode: StreamingMode::Iterator,
            iteration: 1,
            reverse: false,
        }
    }
}

impl RangeOptions {
    pub fn limit(rows: i32) -> Self {
        RangeOptions {
            limit: rows,
            ..Self::default()
        }
    }
    pub fn mode(mode: StreamingMode) -> Self {
        RangeOptions {
            mode,
            ..Self::default()
        }
    }
    pub fn reversed(self) -> Self {
        self.reversed_if(true)
    }
    pub fn reversed_if(self, reverse: bool) -> Self {
        RangeOptions { reverse, ..self }
    }

    pub(crate) fn budget(&self) -> Result<Budget> {
        if self.limit < 0 || self.target_bytes < 0 {
            return Err(Error::range_limits_invalid);
        }
        let rows = if self.limit == 0 {
            usize::MAX
        } else {
            self.limit as usize
        };
        let target = if self.target_bytes == 0 {
            usize::MAX
        } else {
            self.target_bytes as usize
        };
        let by_mode = match self.mode {
            StreamingMode::Exact if self.limit == 0 && self.target_bytes == 0 => {
                return Err(Error::exact_mode_without_limits);
            }
            StreamingMode::Exact => usize::MAX,
            StreamingMode::Small => SMALL_BYTES,
            StreamingMode::Medium => MEDIUM_BYTES,
            StreamingMode::Large => LARGE_BYTES,
            StreamingMode::Serial | StreamingMode::WantAll => SERIAL_BYTES,
            StreamingMode::Iterator if self.iteration < 1 => {
                return Err(Error::client_invalid_operation);
            }
            StreamingMode::Iterator => {
                ITERATION_BYTES[(self.iteration as usize).min(ITERATION_BYTES.len()) - 1]
            }
        };
        Ok(Budget {
            rows,
            bytes: target.min(by_mode),
        })
    }
}

/// A chunk of a range, in the order of the scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeResult {
    pub rows: Vec<(Key, Value)>,
    /// There may be rows behind the last.
    pub more: bool,
}
