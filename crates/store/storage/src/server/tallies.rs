//! What a storage server has done since it started.

use plinth_core::Uid;
use plinth_protocol::tally;
use plinth_runtime::tally::Tally;

pub(super) struct Tallies {
    pub asked: Tally,
    pub cold: Tally,
    pub answered: Tally,
    pub rows_read: Tally,
    pub bytes_read: Tally,
    pub mutations: Tally,
    pub mutation_bytes: Tally,
    pub versions: Tally,
    pub peeks: Tally,
    pub input_bytes: Tally,
    pub durable_bytes: Tally,
}

/// Rows of an answer, and their bytes.
pub(super) struct Amount {
    pub rows: u64,
    pub bytes: u64,
}

impl Tallies {
    pub fn new(role: Uid) -> Tallies {
        let of = |name| Tally::of(role, name);
        Tallies {
            asked: of(tally::TOTAL_QUERIES),
            cold: of(tally::COLD_QUERIES),
            answered: of(tally::FINISHED_QUERIES),
            rows_read: of(tally::KEYS_QUERIED),
            bytes_read: of(tally::BYTES_QUERIED),
            mutations: of(tally::MUTATIONS),
            mutation_bytes: of(tally::MUTATION_BYTES),
            versions: of(tally::FETCHED_VERSIONS),
            peeks: of(tally::FETCHES_FROM_LOGS),
            input_bytes: of(tally::INPUT_BYTES),
            durable_bytes: of(tally::DURABLE_BYTES),
        }
    }

    #[inline]
    pub fn answer(&self, reads: u64, amount: Amount) {
        self.answered.add(reads);
        self.rows_read.add(amount.rows);
        self.bytes_read.add(amount.bytes);
    }
}
