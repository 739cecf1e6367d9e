//! Messages to other machines: a queue for each, so that they stay in order when a ring is full. What waits goes
//! together, as one message of the fabric.

use crate::ledger::Owed;
use crate::tally::Tally;
use crate::wire::{Bundle, Message, Number};
use plinth_core::codec::Codec;
use plinth_farm_fabric::{Error, Fabric, Machine};
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
    /// The fabric has refused. Nothing goes there any more in this configuration.
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
        Post {
            ways: (0..machines).map(|_| Way::default()).collect(),
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
        let way = self.ways.get(usize::from(to.0));
        let Some(way) = way.filter(|way| !way.is_broken.get()) else {
            if let Some(tally) = acknowledged {
                tally.fail();
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
        if let Some(way) = self.ways.get(usize::from(to.0)) {
            change(&mut way.owed.borrow_mut());
        }
    }

    pub fn set_below(&self, below: Number) {
        self.below.set(below);
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

    /// Carries messages to one machine until the fabric refuses.
    pub async fn carry(&self, fabric: &impl Fabric, to: Machine, between: Duration) {
        let Some(way) = self.ways.get(usize::from(to.0)) else {
            return;
        };
        loop {
            let Some((bundle, tallies)) = self.next(way) else {
                way.bell.notified().await;
                continue;
            };
            let bytes = bundle.to_bytes();
            self.sent.set(self.sent.get() + 1);
            let sent = loop {
                match fabric.send(to, &bytes).await {
                    Err(Error::Full) => {
                        probe!("farm ring full");
                        pause(between).await;
                    }
                    sent => break sent,
                }
            };
            for tally in tallies {
                match sent {
                    Ok(()) => tally.done(),
                    Err(_) => tally.fail(),
                }
            }
            if sent.is_err() {
                return self.give_up(way);
            }
        }
    }

    fn give_up(&self, way: &Way) {
        probe!("farm machine given up");
        way.is_broken.set(true);
        let queue = std::mem::take(&mut *way.queue.borrow_mut());
        for tally in queue.into_iter().filter_map(|letter| letter.acknowledged) {
            tally.fail();
        }
    }
}
