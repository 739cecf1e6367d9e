//! The reading side of a transaction: values, keys that selectors denote, and ranges, with its own writes over all.

use super::database::Engine;
use super::transaction::Transaction;
use super::writes::{Own, Writes, fold};
use plinth_core::key::{SYSTEM_BEGIN, key_after};
use plinth_core::{Error, Key, KeySelector, Result, Value};
use std::rc::Rc;

/// How much of a range is asked for at a time if own writes may hide or add rows.
const ROWS: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RangeOptions {
    /// Rows; 0 for no limit.
    pub limit: i32,
    /// From the end backwards; a limit takes the last rows.
    pub reverse: bool,
}

impl RangeOptions {
    pub fn limit(rows: i32) -> Self {
        RangeOptions {
            limit: rows,
            ..Self::default()
        }
    }

    pub fn reversed(self) -> Self {
        RangeOptions {
            reverse: true,
            ..self
        }
    }
}

/// Rows of a range, in the order of the scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeResult {
    pub rows: Vec<(Key, Value)>,
    /// There may be rows behind the last.
    pub more: bool,
}

impl<E: Engine> Transaction<E> {
    /// The value of `key`; `None` if it is absent.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        let writes = self.writes()?;
        if key >= SYSTEM_BEGIN {
            return Err(Error::key_outside_legal_range);
        }
        let tree = self.database.tree();
        if key.len() > tree.settings().key_bytes_max {
            return Ok(None);
        }
        match writes.of(key) {
            Own::Value(value) => Ok(value),
            Own::Operations(operations) => {
                let attempt = self.attempt().await?;
                let found = tree.get(&*attempt.tx, key).await;
                Ok(fold(&operations, self.outcome(&attempt, found)?))
            }
        }
    }

    /// The key that `selector` denotes among the keys that the transaction sees; the empty key, or `\xff`, if there is
    /// none.
    pub async fn get_key(&self, selector: KeySelector) -> Result<Key> {
        let writes = self.writes()?;
        check(&selector)?;
        self.resolve(&writes, selector).await
    }

    /// The range from `begin` to `end`, up to the limit of the options.
    pub async fn get_range(
        &self,
        begin: KeySelector,
        end: KeySelector,
        options: RangeOptions,
    ) -> Result<RangeResult> {
        let writes = self.writes()?;
        let limit = match usize::try_from(options.limit) {
            Ok(0) => usize::MAX,
            Ok(rows) => rows,
            Err(_) => return Err(Error::range_limits_invalid),
        };
        check(&begin)?;
        check(&end)?;
        let begin = self.bound(&writes, begin).await?;
        let end = self.bound(&writes, end).await?;
        self.scan(&writes, begin, end, limit, options.reverse).await
    }

    /// The key where a range begins or ends. The first key at or after `key` bounds it no better than `key` itself.
    async fn bound(&self, writes: &Rc<Writes>, selector: KeySelector) -> Result<Key> {
        match selector.offset {
            1 => Ok(anchor(&selector)),
            _ => self.resolve(writes, selector).await,
        }
    }

    async fn resolve(&self, writes: &Rc<Writes>, selector: KeySelector) -> Result<Key> {
        let anchor = anchor(&selector);
        let end = Key::from_static(SYSTEM_BEGIN);
        let forwards = selector.offset >= 1;
        let steps = i64::from(selector.offset);
        let steps = if forwards { steps } else { 1 - steps } as usize;
        let (begin, end, outside) = if forwards {
            (anchor, end.clone(), end)
        } else {
            (Key::new(), anchor, Key::new())
        };
        let found = self.scan(writes, begin, end, steps, !forwards).await?;
        let last = found.rows.into_iter().nth(steps - 1);
        Ok(last.map_or(outside, |(key, _)| key))
    }

    async fn scan(
        &self,
        writes: &Rc<Writes>,
        mut begin: Key,
        mut end: Key,
        limit: usize,
        reverse: bool,
    ) -> Result<RangeResult> {
        let mut result = RangeResult::default();
        end = end.min(Key::from_static(SYSTEM_BEGIN));
        while begin < end {
            let left = limit - result.rows.len();
            if left == 0 {
                result.more = true;
                break;
            }
            let attempt = self.attempt().await?;
            let asked = if writes.is_empty() {
                left
            } else {
                left.min(ROWS)
            };
            let tree = self.database.tree();
            let found = tree
                .range(&*attempt.tx, &begin, Some(&end), asked, reverse)
                .await;
            let found = self.outcome(&attempt, found)?;
            // The part of the range that the rows are all of.
            let (mut low, mut high) = (begin.clone(), end.clone());
            match found.rows.last() {
                Some((last, _)) if found.more && reverse => low = last.clone(),
                Some((last, _)) if found.more => high = key_after(last),
                _ => {}
            }
            let mut rows = found.rows;
            if reverse {
                rows.reverse();
            }
            let mut rows = writes.over(&low, &high, rows);
            if reverse {
                rows.reverse();
            }
            result.more = rows.len() > left;
            rows.truncate(left);
            result.rows.append(&mut rows);
            if result.more {
                break;
            }
            if reverse {
                end = low.clone();
            } else {
                begin = high.clone();
            }
            if !found.more {
                break;
            }
        }
        Ok(result)
    }
}

/// Every key below it lies before where the selector begins to count.
fn anchor(selector: &KeySelector) -> Key {
    if selector.or_equal {
        key_after(&selector.key)
    } else {
        selector.key.clone()
    }
}

fn check(selector: &KeySelector) -> Result<()> {
    if selector.key[..] > *SYSTEM_BEGIN {
        return Err(Error::key_outside_legal_range);
    }
    Ok(())
}
