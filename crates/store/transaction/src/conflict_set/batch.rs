//! One batch on its way through the conflict set.
//!
//! Its keys are sorted once and numbered in order. Equal keys get the same number, their *rank*. From then on a range
//! is a pair of small integers, the batch's own writes are a set of ranks, and the history is walked in key order.

use super::bits::BitTree;
use super::history::{Chunks, Finger, History, Location, WrittenRange};
use super::points::{Point, Sorter};
use super::{TransactionConflicts, Verdict};
use plinth_core::conflict_ranges::Endpoint;

/// The ranges of one transaction: `reads_from..writes_from` it reads, `writes_from..to` it writes.
struct Span {
    reads_from: u32,
    writes_from: u32,
    to: u32,
}

/// Buffers kept between batches. Their contents have no meaning between batches.
#[derive(Default)]
pub(super) struct Buffers {
    endpoints: Vec<Endpoint<'static>>,
    owners: Vec<Owner>,
    spans: Vec<Span>,
    points: Vec<Point>,
    ranks: Vec<u32>,
    locations: Vec<Location>,
    keys: Vec<u32>,
    sorter: Sorter,
    written: BitTree,
    unwritten: BitTree,
}

/// The owner of a range.
#[derive(Clone, Copy)]
struct Owner {
    transaction: u32,
    is_read: bool,
}

pub(super) struct Batch<'a> {
    transactions: &'a [TransactionConflicts<'a>],
    /// Range `i` is `[endpoints[2 * i], endpoints[2 * i + 1])`.
    endpoints: Vec<Endpoint<'a>>,
    owners: Vec<Owner>,
    spans: Vec<Span>,
    points: Vec<Point>,
    /// Rank of each endpoint.
    ranks: Vec<u32>,
    /// Location of each rank.
    locations: Vec<Location>,
    /// An endpoint of each rank.
    keys: Vec<u32>,
    sorter: Sorter,
    /// Ranks `r` such that the keys from rank `r` up to rank `r + 1` are written. `unwritten` holds all other ranks.
    written: BitTree,
    unwritten: BitTree,
}

impl<'a> Batch<'a> {
    /// Gathers the ranges of all transactions that `verdicts` has not ruled out already.
    pub(super) fn new(
        transactions: &'a [TransactionConflicts<'a>],
        verdicts: &[Verdict],
        buffers: &mut Buffers,
    ) -> Self {
        let buffers = std::mem::take(buffers);
        let mut batch = Batch {
            transactions,
            endpoints: recycle(buffers.endpoints),
            owners: buffers.owners,
            spans: buffers.spans,
            points: buffers.points,
            ranks: buffers.ranks,
            locations: buffers.locations,
            keys: buffers.keys,
            sorter: buffers.sorter,
            written: buffers.written,
            unwritten: buffers.unwritten,
        };
        batch.owners.clear();
        batch.spans.clear();
        for (index, (transaction, verdict)) in transactions.iter().zip(verdicts).enumerate() {
            let reads_from = batch.owners.len() as u32;
            let mut writes_from = reads_from;
            if *verdict == Verdict::Committed {
                batch.gather(transaction, index, true);
                writes_from = batch.owners.len() as u32;
                batch.gather(transaction, index, false);
            }
            batch.spans.push(Span {
                reads_from,
                writes_from,
                to: batch.owners.len() as u32,
            });
        }
        assert!(
            batch.endpoints.len() < 1 << 31,
            "a batch of {} endpoints",
            batch.endpoints.len()
        );
        batch
    }

    pub(super) fn recycle_into(self, buffers: &mut Buffers) {
        *buffers = Buffers {
            endpoints: recycle(self.endpoints),
            owners: self.owners,
            spans: self.spans,
            points: self.points,
            ranks: self.ranks,
            locations: self.locations,
            keys: self.keys,
            sorter: self.sorter,
            written: self.written,
            unwritten: self.unwritten,
        };
    }

    fn gather(&mut self, transaction: &TransactionConflicts<'a>, index: usize, is_read: bool) {
        let ranges = if is_read {
            transaction.reads
        } else {
            transaction.writes
        };
        for range in ranges {
            self.endpoints.push(Endpoint::at(range.begin));
            self.endpoints.push(range.end);
            self.owners.push(Owner {
                transaction: index as u32,
                is_read,
            });
        }
    }

    /// Lines 1–5 of Algorithm 1: ranks and locates every key, and rules out transactions that read keys written after
    /// their read version.
    pub(super) fn check_against(&mut self, history: &History, verdicts: &mut [Verdict]) {
        let prefix_len = self.sorter.sort(&self.endpoints, &mut self.points);
        self.ranks.clear();
        self.ranks.resize(self.endpoints.len(), 0);
        self.locations.clear();
        self.keys.clear();
        let prefix = self
            .endpoints
            .first()
            .map_or(&[][..], |first| &first.bytes[..prefix_len]);
        let mut finger = Finger::new(history, prefix);
        let mut chunks = Chunks::default();
        for point in &self.points {
            let endpoint = point.endpoint as usize;
            if point.is_new {
                self.keys.push(point.endpoint);
                self.locations
                    .push(finger.find(self.endpoints[endpoint], point.head));
            }
            let rank = self.locations.len() - 1;
            self.ranks[endpoint] = rank as u32;
            let is_end = endpoint % 2 == 1;
            let owner = self.owners[endpoint / 2];
            let transaction = owner.transaction as usize;
            if is_end && owner.is_read && verdicts[transaction] == Verdict::Committed {
                let begin = self.locations[self.ranks[endpoint - 1] as usize];
                let version = self.transactions[transaction].read_version;
                if history.any_newer(begin, self.locations[rank], version, &mut chunks) {
                    verdicts[transaction] = Verdict::Conflict;
                }
            }
        }
    }

    /// Rules out, in the batch's order, transactions that read keys written by an earlier one that was not ruled out.
    pub(super) fn check_against_itself(&mut self, verdicts: &mut [Verdict]) {
        self.written.reset(self.keys.len(), false);
        self.unwritten.reset(self.keys.len(), true);
        for (span, verdict) in self.spans.iter().zip(verdicts) {
            if *verdict != Verdict::Committed {
                continue;
            }
            let is_written = |range: u32| {
                let (from, to) = ranks_of(&self.ranks, range);
                self.written.any(from, to)
            };
            if (span.reads_from..span.writes_from).any(is_written) {
                *verdict = Verdict::Conflict;
                continue;
            }
            for range in span.writes_from..span.to {
                let (from, to) = ranks_of(&self.ranks, range);
                // Each rank is taken out once, so that wide writes which overlap cost no more than narrow ones.
                while let Some(rank) = self.unwritten.next(from).filter(|&rank| rank < to) {
                    self.unwritten.remove(rank);
                    self.written.insert(rank);
                }
            }
        }
    }

    /// The ranges of keys that the batch writes, in key order. Ranges that touch are one.
    pub(super) fn written(&self) -> impl Iterator<Item = WrittenRange<'a>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (from, to) = self.next_written(at)?;
            at = to;
            Some(WrittenRange {
                begin: (self.locations[from], self.key(from)),
                end: (self.locations[to], self.key(to)),
            })
        })
    }

    /// The first run of written ranks that does not begin before `from`.
    fn next_written(&self, from: usize) -> Option<(usize, usize)> {
        let begin = self.written.next(from)?;
        let end = self
            .unwritten
            .next(begin)
            .expect("nothing is written from the last key on");
        Some((begin, end))
    }

    fn key(&self, rank: usize) -> Endpoint<'a> {
        self.endpoints[self.keys[rank] as usize]
    }
}

#[inline]
fn ranks_of(ranks: &[u32], range: u32) -> (usize, usize) {
    let at = 2 * range as usize;
    (ranks[at] as usize, ranks[at + 1] as usize)
}

/// Reuses the allocation for endpoints with another lifetime.
fn recycle<'b>(mut endpoints: Vec<Endpoint<'_>>) -> Vec<Endpoint<'b>> {
    endpoints.clear();
    endpoints.into_iter().map(|_| Endpoint::at(b"")).collect()
}
