//! Messages to other machines: a queue for each, so that they stay in order when a ring is full. What waits goes
//! together, as one message of the fabric.

use crate::ledger::Owed;
use crate::tally::Tally;
use crate::wire::{Bundle, Message, Number};
use plinth_farm_fabric::Machine;
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, probe, sleep, yield_now};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Bytes of a bundle beside its messages: the lists of truncation are short.
const BUNDLE_BYTES: usize = 64;
/// Bytes of a transaction's number.
const NUMBER_BYTES: usize = 8;
/// A bundle with more is closed, so that its receiver can begin.
const BUNDLE_BYTES_ENOUGH: usize = 64 << 10;

/// Ends a wait for another machine's memory, or its clock: see [`Settings`](crate::Settings).
pub async fn pause(pause: Duration) {
    match pause == Duration::ZERO {
        true => yield_now().await,
        false => sleep(pause).await,
    }
}

struct Letter {
    message: Message,
    acknowledged: Option<Tally>,
}

#[derive(Default)]
struct Way {
    queue: RefCell<VecDeque<Letter>>,
    owed: RefCell<Owed>,
    /// What is owed shall go now, with or without messages.
    hurries: Cell<bool>,
    /// Who waits for what is being sent.
    in_flight: RefCell<Vec<Tally>>,
    /// Nothing goes there any more in this configuration, or there is none.
    is_broken: Cell<bool>,
    bell: Notify,
}

pub struct Post {
    ways: Vec<Way>,
    /// Of this machine's transactions: [`Numbers::below`](crate::numbers::Numbers::below).
    below: Cell<Number>,
    /// Most bytes of a message that a ring has room for.
    message_bytes_max: usize,
    sent: Cell<u64>,
}

impl Post {
    /// `ring_bytes`: of the rings of all machines.
    pub fn new(machines: usize, ring_bytes: u64) -> Post {
        let ring = usize::try_from(ring_bytes).unwrap_or(usize::MAX);
        let most = plinth_farm_fabric::MESSAGE_BYTES_MAX.min(ring);
        let ways: Vec<Way> = (0..machines).map(|_| Way::default()).collect();
        ways.iter().for_each(|way| way.is_broken.set(true));
        Post {
            ways,
            below: Cell::new(1),
            message_bytes_max: most.saturating_sub(BUNDLE_BYTES),
            sent: Cell::new(0),
        }
    }

    /// Most [`bytes`](Message::bytes) of a message.
    pub fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }

    /// Messages of the fabric so far.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Sends it after all that was pushed before. `acknowledged` hears when it is in the other's memory.
    pub fn push(&self, to: Machine, message: Message, acknowledged: Option<Tally>) {
        let Some(way) = self.way(to).filter(|way| !way.is_broken.get()) else {
            if let Some(tally) = acknowledged {
                tally.end();
            }
            return;
        };
        let letter = Letter {
            message,
            acknowledged,
        };
        way.queue.borrow_mut().push_back(letter);
        way.bell.notify_one();
    }

    /// Lets `change` add to what goes with the next message to `to`.
    pub fn owe(&self, to: Machine, change: impl FnOnce(&mut Owed)) {
        if let Some(way) = self.way(to).filter(|way| !way.is_broken.get()) {
            change(&mut way.owed.borrow_mut());
        }
    }

    pub fn set_below(&self, below: Number) {
        let before = self.below.replace(below);
        assert!(
            before <= below,
            "all before {before} were truncated everywhere, and now those before {below}"
        );
    }

    /// What is owed goes now.
    pub fn hurry(&self) {
        for way in &self.ways {
            if !way.owed.borrow().is_empty() {
                way.hurries.set(true);
                way.bell.notify_one();
            }
        }
    }

    /// The next bundle to go, and who waits for its acknowledgement.
    fn next(&self, way: &Way) -> Option<(Bundle, Vec<Tally>)> {
        let mut queue = way.queue.borrow_mut();
        if queue.is_empty() && !way.hurries.get() {
            return None;
        }
        let mut owed = way.owed.borrow_mut();
        let enough = BUNDLE_BYTES_ENOUGH.min(self.message_bytes_max);
        let mut bundle = Bundle::default();
        let mut tallies = Vec::new();
        // The first message may fill the ring. Then what is owed goes with the next one.
        let first = queue.front().map_or(0, |letter| letter.message.bytes());
        let room = (self.message_bytes_max - first.min(self.message_bytes_max)) / NUMBER_BYTES;
        bundle.truncation = owed.take(self.below.get(), room);
        let mut bytes = bundle.truncation.count() * NUMBER_BYTES;
        way.hurries
            .set(queue.is_empty() && !owed.is_empty() && room > 0);
        while let Some(letter) = queue.front() {
            let more = letter.message.bytes();
            if bytes + more > enough && !bundle.messages.is_empty() {
                break;
            }
            let Some(letter) = queue.pop_front() else {
                break;
            };
            bytes += more;
            bundle.messages.push(letter.message);
            tallies.extend(letter.acknowledged);
        }
        Some((bundle, tallies))
    }

    /// Another configuration begins, in which nothing has been said.
    pub fn begin(&self) {
        self.close();
        self.ways.iter().for_each(|way| way.is_broken.set(false));
    }

    /// Whoever waits for an acknowledgement waits in vain.
    pub fn close(&self) {
        self.ways.iter().for_each(Way::give_up);
    }

    fn way(&self, to: Machine) -> Option<&Way> {
        self.ways.get(usize::from(to.0))
    }

    /// The next bundle for a machine, when there is one.
    pub async fn take(&self, to: Machine) -> Option<Bundle> {
        let way = self.way(to)?;
        loop {
            let Some((bundle, tallies)) = self.next(way) else {
                way.bell.notified().await;
                continue;
            };
            way.in_flight.replace(tallies);
            self.sent.set(self.sent.get() + 1);
            return Some(bundle);
        }
    }

    /// The last bundle is in the machine's memory, or may be lost. Then nothing goes there any more.
    pub fn taken(&self, to: Machine, is_there: bool) {
        let Some(way) = self.way(to) else {
            return;
        };
        match is_there {
            true => way.in_flight.take().iter().for_each(Tally::done),
            false => {
                probe!("farm machine given up");
                way.give_up();
            }
        }
    }
}

impl Way {
    fn give_up(&self) {
        self.is_broken.set(true);
        self.hurries.set(false);
        self.owed.take();
        self.in_flight.take().iter().for_each(Tally::end);
        let queue = self.queue.take();
        for tally in queue.into_iter().filter_map(|letter| letter.acknowledged) {
            tally.end();
        }
    }
}
