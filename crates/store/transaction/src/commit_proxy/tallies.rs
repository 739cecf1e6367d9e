//! What a commit proxy has done since it started.

use super::accept::Pending;
use plinth_core::{Error, Result, Uid};
use plinth_protocol::tally;
use plinth_runtime::tally::Tally;

pub struct Tallies {
    committed: Tally,
    conflicted: Tally,
    mutations: Tally,
    mutation_bytes: Tally,
    pub locations: Tally,
    pub memory_errors: Tally,
}

impl Tallies {
    pub fn new(role: Uid) -> Tallies {
        let of = |name| Tally::of(role, name);
        Tallies {
            committed: of(tally::COMMITTED),
            conflicted: of(tally::CONFLICTED),
            mutations: of(tally::MUTATIONS),
            mutation_bytes: of(tally::MUTATION_BYTES),
            locations: of(tally::LOCATION_REQUESTS),
            memory_errors: of(tally::MEMORY_ERRORS),
        }
    }

    pub fn decided(&self, transaction: &Pending, verdict: &Result<()>) {
        match verdict {
            Ok(()) => {
                self.committed.add(1);
                self.mutations.add(u64::from(transaction.mutation_count));
                let bytes = transaction.mutations.bytes().len();
                self.mutation_bytes.add(bytes as u64);
            }
            Err(Error::not_committed) => self.conflicted.add(1),
            Err(_) => {}
        }
    }
}
