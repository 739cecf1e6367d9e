//! Throttled tags: those that an operator has set, which are rows of the system keyspace, and those that the
//! ratekeeper finds.
//!
//! ```text
//! \xff\x02/throttledTags/tag/<priority u8><tag>   →  rate f64 | until f64, a version | reason
//! \xff\x02/throttledTags/auto                     →  "0" or "1"; without it, "1"
//! ```
//!
//! A throttle ends at a version, which all machines agree on: those who set it and those who obey it may have clocks
//! that differ by hours. A recovery takes a little of it away, because it jumps ahead.
//!
//! A tag is found when the database is limited and more than half of all transactions have it. Only that tag is
//! slowed down, one step at a time, until the database is no longer limited; then its limit rises in steps until it
//! is removed.

use crate::movement;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_core::transaction_tag::TransactionTag;
use plinth_core::version::VERSIONS_PER_SECOND;
use plinth_core::{KeyRange, Result, Version};
use plinth_protocol::rate::TagRate;
use plinth_protocol::transaction::{PRIORITY_BATCH, PRIORITY_DEFAULT};
use plinth_runtime::{Boxed, Duration, Instant, probe, trace};
use std::collections::BTreeMap;

const PREFIX: &[u8] = b"\xff\x02/throttledTags/tag/";
const PREFIX_END: &[u8] = b"\xff\x02/throttledTags/tag0";
const AUTO: &[u8] = b"\xff\x02/throttledTags/auto";
/// Limit of throttles that an operator can set at once.
pub const MANUAL_MAX: usize = 100;
const REASON_BYTES_MAX: usize = 200;

/// A tag with more than this share of all transactions is taken for the cause of an overload.
const GUILTY_SHARE: f64 = 0.5;
/// Time from one step of a found tag to the next.
const STEP: Duration = Duration::from_secs(1);
const STEP_DOWN: f64 = 0.7;
const STEP_UP: f64 = 1.2;
/// A limit of this many times the tag's use is removed.
const RELEASED: f64 = 4.0;
/// Lowest limit that is set automatically.
const FLOOR: f64 = 5.0;
const AUTO_MAX: usize = 10;

/// A throttle that an operator has set.
#[derive(Clone, PartialEq, Debug)]
pub struct Manual {
    pub tag: TransactionTag,
    /// The throttle applies to this priority and to less urgent ones.
    pub priority: u8,
    /// Transactions a second.
    pub rate: f64,
    /// How long it lasts from now on.
    pub seconds: f64,
    pub reason: String,
}

fn key(tag: TransactionTag, priority: u8) -> Vec<u8> {
    [PREFIX, &[priority], tag.as_bytes()].concat()
}

impl Manual {
    fn value(&self, now: Version) -> Bytes {
        let mut value = BytesMut::new();
        value.put_f64_le(self.rate);
        value.put_f64_le(now as f64 + self.seconds * VERSIONS_PER_SECOND as f64);
        value.put_slice(self.reason.as_bytes());
        value.freeze()
    }

    /// `None` if the row is not in our format.
    fn parse(key: &[u8], mut value: Bytes, now: Version) -> Option<Self> {
        let (priority, tag) = key.strip_prefix(PREFIX)?.split_first()?;
        let rate = value.try_get_f64_le().ok()?;
        let until = value.try_get_f64_le().ok()?;
        let is_valid = *priority <= PRIORITY_BATCH && rate >= 0.0 && until.is_finite();
        let reason = String::from_utf8_lossy(&value).into_owned();
        is_valid.then_some(Manual {
            tag: TransactionTag::new(tag).ok()?,
            priority: *priority,
            rate,
            seconds: (until - now as f64) / VERSIONS_PER_SECOND as f64,
            reason,
        })
    }

    fn is_over(&self) -> bool {
        self.seconds <= 0.0
    }
}

async fn rows(tr: &Transaction) -> Result<Vec<Manual>> {
    let now = tr.get_read_version().await?;
    let all = KeyRange::new(PREFIX, PREFIX_END);
    let options = RangeOptions::limit(MANUAL_MAX as i32);
    let rows = tr.get_rows(all, options, false).await?;
    let parsed = rows
        .into_iter()
        .map(|(key, value)| Manual::parse(&key, value, now));
    Ok(parsed.flatten().collect())
}

/// The throttles that hold now, and whether tags may be throttled automatically.
pub fn read(database: &Database) -> Boxed<'_, Result<(Vec<Manual>, bool)>> {
    Box::pin(async move {
        movement::run(database, async |tr| {
            let mut manual = rows(tr).await?;
            manual.retain(|throttle| !throttle.is_over());
            let auto = tr.get(AUTO, false).await?;
            Ok((manual, auto.is_none_or(|value| value != "0")))
        })
        .await
    })
}

/// Throttles a tag. Removes expired throttles. False if there are too many.
pub fn set(database: &Database, mut throttle: Manual) -> Boxed<'_, Result<bool>> {
    Box::pin(async move {
        throttle
            .reason
            .truncate(throttle.reason.floor_char_boundary(REASON_BYTES_MAX));
        movement::run(database, async |tr| {
            let mut left = 0;
            for old in rows(tr).await? {
                match old.is_over() {
                    false => left += 1,
                    true => tr.clear(key(old.tag, old.priority)),
                }
            }
            let key = key(throttle.tag, throttle.priority);
            if left >= MANUAL_MAX && tr.get(&key, false).await?.is_none() {
                return Ok(false);
            }
            tr.set(key, throttle.value(tr.get_read_version().await?));
            Ok(true)
        })
        .await
    })
}

/// Removes the throttles of this tag, or all of them. Returns how many there were.
pub fn clear(database: &Database, tag: Option<TransactionTag>) -> Boxed<'_, Result<usize>> {
    Box::pin(async move {
        movement::run(database, async |tr| {
            let mut throttles = rows(tr).await?;
            throttles.retain(|throttle| tag.is_none_or(|tag| tag == throttle.tag));
            for throttle in &throttles {
                tr.clear(key(throttle.tag, throttle.priority));
            }
            Ok(throttles.len())
        })
        .await
    })
}

pub fn set_auto(database: &Database, on: bool) -> Boxed<'_, Result<()>> {
    Box::pin(async move {
        movement::run(database, async |tr| {
            tr.set(AUTO, if on { "1" } else { "0" });
            Ok(())
        })
        .await
    })
}

/// The tags that the ratekeeper slows down by itself. Pure.
#[derive(Default)]
pub(super) struct Found {
    rates: BTreeMap<TransactionTag, f64>,
    stepped: Option<Instant>,
}

impl Found {
    /// Takes a look. `admitted` is the rate of admitted transactions a second in all, `tags` that of each tag.
    pub fn look(
        &mut self,
        now: Instant,
        is_limited: bool,
        admitted: f64,
        tags: &BTreeMap<TransactionTag, f64>,
    ) {
        let stepped = *self.stepped.get_or_insert(now);
        if now.saturating_since(stepped) < STEP {
            return;
        }
        self.stepped = Some(now);
        let used = |tag: &TransactionTag| tags.get(tag).copied().unwrap_or(0.0);
        if !is_limited {
            for (tag, rate) in &mut self.rates {
                trace!("TagSetFree", "tag" => format!("{tag:?}"), "rate" => *rate);
                *rate *= STEP_UP;
            }
            self.rates
                .retain(|tag, rate| *rate < RELEASED * used(tag).max(FLOOR));
            return;
        }
        let most = tags.iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        let Some((tag, rate)) = most.filter(|(_, rate)| **rate > GUILTY_SHARE * admitted) else {
            return;
        };
        if self.rates.len() < AUTO_MAX || self.rates.contains_key(tag) {
            probe!("ratekeeper_throttles_tag");
            let slower = (rate * STEP_DOWN).max(FLOOR);
            trace!("TagThrottled", "tag" => format!("{tag:?}"), "rate" => slower);
            self.rates.insert(*tag, slower);
        }
    }

    pub fn clear(&mut self) {
        self.rates.clear();
    }

    pub fn rates(&self) -> Vec<TagRate> {
        let rates = self.rates.iter().map(|(tag, rate)| TagRate {
            tag: *tag,
            priority: PRIORITY_DEFAULT,
            rate: *rate,
        });
        rates.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(name: &str) -> TransactionTag {
        TransactionTag::new(name.as_bytes()).expect("short")
    }

    #[test]
    fn the_tag_that_overloads_the_database_is_slowed_down_and_set_free_again() {
        let mut found = Found::default();
        let capacity = 1000.0;
        let (hot, cold) = (tag("hot"), tag("cold"));
        let mut last = 0.0;
        for second in 0..120 {
            let wish: f64 = if second < 60 { 5000.0 } else { 50.0 };
            let limit = found.rates.get(&hot).copied().unwrap_or(f64::INFINITY);
            let uses = wish.min(limit);
            let others = 100.0;
            let is_limited = uses + others > capacity;
            let tags = BTreeMap::from([(hot, uses), (cold, others)]);
            found.look(
                Instant(second * 1_000_000_000),
                is_limited,
                uses + others,
                &tags,
            );
            assert!(!found.rates.contains_key(&cold));
            if second == 59 {
                last = uses;
            }
        }
        assert!((500.0..1100.0).contains(&last), "{last}");
        assert!(found.rates.is_empty(), "{:?}", found.rates);
    }

    #[test]
    fn a_throttle_comes_back_as_it_was_written_and_strange_rows_are_ignored() {
        let throttle = Manual {
            tag: tag("web"),
            priority: 1,
            rate: 12.5,
            seconds: 3600.0,
            reason: "too much".into(),
        };
        let (key, set_at) = (key(throttle.tag, throttle.priority), 5_000_000);
        let value = throttle.value(set_at);
        let later = |seconds: i64| {
            let now = set_at + seconds * VERSIONS_PER_SECOND;
            Manual::parse(&key, value.clone(), now).expect("ours")
        };
        assert_eq!(later(0), throttle);
        assert_eq!(later(600).seconds, 3000.0);
        assert!(!later(3599).is_over() && later(3600).is_over() && later(1 << 20).is_over());
        let parse = |key: &[u8], value: Bytes| Manual::parse(key, value, set_at);
        assert_eq!(parse(&key, Bytes::from_static(b"short")), None);
        assert_eq!(parse(PREFIX, value.clone()), None);
        let long = [PREFIX, &[1], &[b'x'; 17]].concat();
        assert_eq!(parse(&long, value.clone()), None);
    }
}
