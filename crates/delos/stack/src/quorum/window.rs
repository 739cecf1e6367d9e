//! What a sequencer knows: the entries that it has given positions to, how far each log server has them on disk, and
//! the appends that wait. Plain state, without time or network.
//!
//! The entries that are not committed yet stay in memory, and so do those that some log server lacks, up to
//! [`WINDOW_BYTES`]. A log server that is further behind gets older ones from another log server.

use crate::log::LogPos;
use crate::quorum::messages::{Held, batch_len};
use crate::quorum::tails::held_by;
use bytes::Bytes;
use plinth_runtime::{nobody_has_lied, planted, probe, trace_warn};
use std::collections::VecDeque;

/// Bytes of committed entries that are kept for servers that lack them.
const WINDOW_BYTES: usize = 16 << 20;
/// With so many bytes of entries that are not committed, no more are taken.
const UNCOMMITTED_BYTES_MAX: usize = 64 << 20;

/// What a server is to be sent next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// It has everything.
    Nothing,
    Store {
        first: LogPos,
        entries: Vec<Bytes>,
    },
    /// Entries from `from` on, which are in memory only from `to` on.
    Copy {
        from: LogPos,
        to: LogPos,
    },
}

struct Waiting<T> {
    first: LogPos,
    count: u64,
    whom: T,
}

/// An append that can be answered: so many of its entries are in the log.
#[derive(PartialEq, Eq, Debug)]
pub struct Done<T> {
    pub first: LogPos,
    pub taken: u64,
    pub whom: T,
}

/// `T` is whom an append is answered to.
pub struct Window<T> {
    majority: usize,
    /// Position of the first entry in memory.
    first: LogPos,
    entries: VecDeque<Bytes>,
    bytes: usize,
    uncommitted_bytes: usize,
    committed: LogPos,
    /// The tail of each server, when it was last heard of. It was not sealed then.
    stored: Vec<LogPos>,
    waiting: VecDeque<Waiting<T>>,
}

impl<T> Window<T> {
    pub fn new(servers: usize) -> Window<T> {
        Window {
            majority: servers / 2 + 1,
            first: 1,
            entries: VecDeque::new(),
            bytes: 0,
            uncommitted_bytes: 0,
            committed: 1,
            stored: vec![1; servers],
            waiting: VecDeque::new(),
        }
    }

    /// Position of the next entry.
    pub fn next(&self) -> LogPos {
        self.first + self.entries.len() as u64
    }

    /// All entries below this are committed.
    pub fn committed(&self) -> LogPos {
        self.committed
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn has_room(&self) -> bool {
        self.uncommitted_bytes < UNCOMMITTED_BYTES_MAX
    }

    /// Gives positions to entries.
    pub fn append(&mut self, entries: Vec<Bytes>, whom: T) {
        let (first, count) = (self.next(), entries.len() as u64);
        let bytes: usize = entries.iter().map(Bytes::len).sum();
        self.bytes += bytes;
        self.uncommitted_bytes += bytes;
        self.entries.extend(entries);
        let before = self.waiting.back().map(|w| w.first + w.count);
        assert!(
            before.is_none_or(|before| before == first),
            "an append goes to {first}, and the one before it ends at {before:?}"
        );
        self.waiting.push_back(Waiting { first, count, whom });
    }

    pub fn next_for(&self, server: usize) -> Next {
        let from = self.stored[server];
        if from < self.first {
            let to = self.first;
            return Next::Copy { from, to };
        }
        let entries = self.entries.range((from - self.first) as usize..);
        match batch_len(entries.clone()) {
            0 => Next::Nothing,
            count => Next::Store {
                first: from,
                entries: entries.take(count).cloned().collect(),
            },
        }
    }

    /// Servers that have entries from `from` on, other than `server`.
    pub fn sources(&self, server: usize, from: LogPos) -> Vec<usize> {
        let servers = 0..self.stored.len();
        let has_some = |other: &usize| *other != server && self.stored[*other] > from;
        servers.filter(has_some).collect()
    }

    /// Takes in what a server says that is not sealed. Returns the appends that are committed by it.
    pub fn hear(&mut self, server: usize, held: &Held) -> Vec<Done<T>> {
        assert!(
            !held.is_sealed,
            "the tail of a sealed server counts for nothing"
        );
        let (before, now) = (self.stored[server], held.next.0.min(self.next()));
        if held.next.0 > self.next() || now < before {
            assert!(!nobody_has_lied(), "a server goes from {before} to {now}");
            trace_warn!("QuorumServerTail", "server" => server, "before" => before, "now" => held.next.0);
        }
        self.stored[server] = now;
        let enough = match planted!(
            "delos_quorum_minority",
            "the sequencer of a loglet answers an append when one log server has it"
        ) {
            true => 1,
            false => self.majority,
        };
        let committed = held_by(enough, self.stored.iter().copied());
        let mut done = Vec::new();
        if committed > self.committed {
            assert!(
                self.first <= self.committed && committed <= self.next(),
                "entries below {committed} are committed, after {}, of {} to {}",
                self.committed,
                self.first,
                self.next()
            );
            let known = (self.committed - self.first) as usize..(committed - self.first) as usize;
            let bytes: usize = self.entries.range(known).map(Bytes::len).sum();
            assert!(
                bytes <= self.uncommitted_bytes,
                "{bytes} bytes are committed, of {}",
                self.uncommitted_bytes
            );
            self.uncommitted_bytes -= bytes;
            self.committed = committed;
            done = self.take_done(committed);
        }
        self.forget();
        done
    }

    fn take_done(&mut self, committed: LogPos) -> Vec<Done<T>> {
        let mut done = Vec::new();
        let is_done = |waiting: &Waiting<T>| waiting.first + waiting.count <= committed;
        while let Some(Waiting { first, count, whom }) =
            self.waiting.pop_front_if(|waiting| is_done(waiting))
        {
            let taken = count;
            done.push(Done { first, taken, whom });
        }
        done
    }

    /// Lets go of what all servers have, and of the oldest that some lack if it is too much.
    fn forget(&mut self) {
        let everywhere = self.stored.iter().min().copied().unwrap_or(1);
        while self.first < self.committed
            && (self.first < everywhere || self.bytes > WINDOW_BYTES)
            && let Some(gone) = self.entries.pop_front()
        {
            if self.first >= everywhere {
                probe!("quorum_window_overflows");
            }
            self.bytes -= gone.len();
            self.first += 1;
        }
    }

    /// The loglet ends at `end`. Returns all appends that wait.
    pub fn end(&mut self, end: LogPos) -> Vec<Done<T>> {
        assert!(
            end >= self.committed || !nobody_has_lied(),
            "the loglet ends at {end}, and appends below {} were answered",
            self.committed
        );
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        self.entries = VecDeque::new();
        let done = waiting.map(|Waiting { first, count, whom }| Done {
            first,
            taken: end.saturating_sub(first).min(count),
            whom,
        });
        done.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::messages::Pos;

    fn held(next: LogPos) -> Held {
        Held {
            next: Pos(next),
            ..Held::nothing()
        }
    }

    fn entries(count: usize) -> Vec<Bytes> {
        vec![Bytes::from_static(b"entry"); count]
    }

    fn done(first: LogPos, taken: u64, whom: char) -> Done<char> {
        Done { first, taken, whom }
    }

    #[test]
    fn an_append_is_answered_when_a_majority_has_it_and_all_before_it() {
        let mut window = Window::new(3);
        window.append(entries(2), 'a');
        window.append(entries(1), 'b');
        assert_eq!(window.hear(0, &held(4)), []);
        assert_eq!(window.hear(1, &held(2)), [], "the first half of an append");
        assert_eq!(window.hear(1, &held(3)), [done(1, 2, 'a')]);
        assert_eq!(window.hear(2, &held(4)), [done(3, 1, 'b')]);
        assert_eq!(window.committed(), 4);
    }

    #[test]
    fn a_server_gets_what_it_lacks_in_one_message() {
        let mut window = Window::new(3);
        assert_eq!(window.next_for(0), Next::Nothing);
        window.append(entries(2), ());
        window.append(entries(3), ());
        window.hear(1, &held(3));
        let five = Next::Store {
            first: 1,
            entries: entries(5),
        };
        let three = Next::Store {
            first: 3,
            entries: entries(3),
        };
        assert_eq!((window.next_for(0), window.next_for(1)), (five, three));
    }

    #[test]
    fn what_all_servers_have_is_forgotten_and_a_slow_one_costs_a_bounded_memory() {
        let mut window = Window::new(3);
        let megabyte = Bytes::from(vec![0; 1 << 20]);
        for next in 2..=40 {
            window.append(vec![megabyte.clone()], ());
            window.hear(0, &held(next));
            window.hear(1, &held(next));
            assert!(window.bytes <= WINDOW_BYTES && window.has_room());
        }
        let Next::Copy { from: 1, to } = window.next_for(2) else {
            panic!("the first entry is still in memory");
        };
        assert_eq!(window.sources(2, 1), [0, 1]);
        window.hear(2, &held(to));
        assert!(matches!(window.next_for(2), Next::Store { first, .. } if first == to));
        window.hear(2, &held(40));
        assert_eq!((window.bytes, window.first), (0, 40));
    }

    #[test]
    fn entries_that_no_majority_takes_fill_the_memory_up_to_a_limit() {
        let mut window = Window::new(3);
        let entry = Bytes::from(vec![0; UNCOMMITTED_BYTES_MAX / 2]);
        window.append(vec![entry.clone()], ());
        assert!(window.has_room());
        window.append(vec![entry], ());
        assert!(!window.has_room());
        window.hear(0, &held(3));
        window.hear(1, &held(2));
        assert!(window.has_room());
    }

    #[test]
    fn the_end_decides_what_becomes_of_the_appends_that_wait() {
        let mut window = Window::new(3);
        window.append(entries(2), 'a');
        window.append(entries(4), 'b');
        window.append(entries(1), 'c');
        let ended = [done(1, 2, 'a'), done(3, 2, 'b'), done(7, 0, 'c')];
        assert_eq!(window.end(5), ended);
    }
}
