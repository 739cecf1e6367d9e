//! Throttled tags: requests of transactions with such a tag wait here before they enter the queue of their priority,
//! so that they do not delay other requests.

use super::bucket::Bucket;
use plinth_core::hash::HashMap;
use plinth_core::transaction_tag::TransactionTag;
use plinth_protocol::rate::{TagCount, TagRate};
use plinth_runtime::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// Largest number of waiting requests with the same tags. A request is from one client.
const WAITING_MAX: usize = 1000;
/// Largest number of tags that are counted. It limits the memory that made-up tags can take.
const COUNTED_MAX: usize = 1000;

/// A request of one client, for `count` transactions.
pub(super) struct Asked<T> {
    pub count: u32,
    pub priority: u8,
    /// Each tag, and whether it may be throttled automatically.
    pub tags: Vec<(TransactionTag, bool)>,
    pub item: T,
}

type TagSet = Vec<TransactionTag>;

pub(super) struct Throttle<T> {
    /// By tag and the most urgent priority that is throttled.
    buckets: BTreeMap<(TransactionTag, u8), Bucket>,
    held: BTreeMap<(u8, TagSet), VecDeque<Asked<T>>>,
    /// Counts for tags that may be throttled automatically.
    counts: HashMap<TransactionTag, Counted>,
}

#[derive(Default)]
struct Counted {
    /// Transactions admitted so far.
    admitted: u64,
    /// Value of `admitted` in the last report.
    told: u64,
}

impl<T> Throttle<T> {
    pub fn new() -> Self {
        Throttle {
            buckets: BTreeMap::new(),
            held: BTreeMap::new(),
            counts: HashMap::default(),
        }
    }

    /// Changes the rates. A tag that is not in `rates` is no longer throttled.
    pub fn set_rates(&mut self, now: Instant, rates: &[TagRate]) {
        let mut before = std::mem::take(&mut self.buckets);
        for TagRate {
            tag,
            priority,
            rate,
        } in rates
        {
            let key = (*tag, *priority);
            let mut bucket = before.remove(&key).unwrap_or(Bucket::unlimited(now));
            bucket.set_rate(now, *rate);
            self.buckets.insert(key, bucket);
        }
    }

    /// Those of the tags that are throttled at this priority.
    fn limited<'a>(
        &self,
        tags: impl Iterator<Item = &'a TransactionTag> + Clone,
        priority: u8,
    ) -> Vec<(TransactionTag, u8)> {
        let of = |tag: &TransactionTag| (0..=priority).map(move |p| (*tag, p)).collect::<Vec<_>>();
        let keys = tags.flat_map(of);
        keys.filter(|key| self.buckets.contains_key(key)).collect()
    }

    /// Keeps the request if one of its tags is throttled. Gives it back if it may proceed; `Err` if too many wait.
    pub fn hold(&mut self, asked: Asked<T>) -> Result<Option<Asked<T>>, Asked<T>> {
        let tags = asked.tags.iter().map(|(tag, _)| tag);
        if self.buckets.is_empty() || self.limited(tags.clone(), asked.priority).is_empty() {
            return Ok(Some(asked));
        }
        let key = (asked.priority, tags.copied().collect());
        let queue = self.held.entry(key).or_default();
        if queue.len() >= WAITING_MAX {
            return Err(asked);
        }
        queue.push_back(asked);
        Ok(None)
    }

    /// The requests that may proceed now, each for as many transactions as its tags have room for.
    pub fn release(&mut self, now: Instant) -> Vec<Asked<T>> {
        let mut released = Vec::new();
        for ((priority, tags), mut queue) in std::mem::take(&mut self.held) {
            let limits = self.limited(tags.iter(), priority);
            while let Some(first) = queue.front() {
                let rooms = limits.iter().map(|key| {
                    let bucket = self.buckets.get_mut(key);
                    bucket.map_or(u32::MAX, |bucket| bucket.room(now))
                });
                let count = rooms.min().unwrap_or(u32::MAX).min(first.count.max(1));
                if count == 0 {
                    break;
                }
                for key in &limits {
                    if let Some(bucket) = self.buckets.get_mut(key) {
                        bucket.draw(count);
                    }
                }
                let first = queue.pop_front().expect("just seen");
                released.push(Asked { count, ..first });
            }
            if !queue.is_empty() {
                self.held.insert((priority, tags), queue);
            }
        }
        released
    }

    /// Time until [`Throttle::release`] has something to give; `None` if no request waits.
    pub fn wait(&self) -> Option<Duration> {
        let waits = self.held.keys().map(|(priority, tags)| {
            let limits = self.limited(tags.iter(), *priority);
            let waits = limits.iter().map(|key| self.buckets[key].wait());
            waits.max().unwrap_or(Duration::ZERO)
        });
        waits.min()
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.held.values().map(VecDeque::len).sum()
    }

    /// Number of entries kept for tags.
    pub fn tags(&self) -> usize {
        self.buckets.len() + self.held.len() + self.counts.len()
    }

    /// Counts `count` admitted transactions with these tags.
    pub fn count(&mut self, tags: &[(TransactionTag, bool)], count: u32) {
        for (tag, _) in tags.iter().filter(|(_, auto)| *auto) {
            if self.counts.len() < COUNTED_MAX || self.counts.contains_key(tag) {
                self.counts.entry(*tag).or_default().admitted += u64::from(count);
            }
        }
    }

    /// The counts to report. If there are many tags, those not used since the last report are dropped.
    pub fn tell_counts(&mut self) -> Vec<TagCount> {
        if self.counts.len() > COUNTED_MAX / 2 {
            self.counts.retain(|_, count| count.admitted > count.told);
        }
        let tell = |(tag, count): (&TransactionTag, &mut Counted)| {
            count.told = count.admitted;
            TagCount {
                tag: *tag,
                admitted: count.admitted,
            }
        };
        let mut counts: Vec<TagCount> = self.counts.iter_mut().map(tell).collect();
        counts.sort_unstable_by_key(|count| count.tag);
        counts
    }
}
