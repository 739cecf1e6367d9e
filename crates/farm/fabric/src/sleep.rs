//! How a machine that has nothing to do sleeps until a message arrives.
//!
//! The machine writes a new odd number to a word of its memory, looks at its rings once more, and waits for its bell.
//! Who has appended a message looks at the word, and rings if it is odd. Between the two steps each has a fence, so
//! that one of the two sees the other. Then the ringer replaces the odd number by the next, if it is still there:
//! others need not ring. It does so after the ring, so that a ringer that dies in between leaves nobody asleep.

use plinth_runtime::memory::Bell;
use plinth_runtime::planted;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::fence;

/// What sleeps: the tasks of one machine.
pub struct Sleeper {
    bell: Bell,
    tasks: Cell<u64>,
}

/// A task sleeps, or is about to.
struct Asleep<'a> {
    sleeper: &'a Sleeper,
    word: &'a AtomicU64,
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let tasks = self.sleeper.tasks.get();
        assert!(tasks > 0, "one who slept gets up, and nobody slept");
        let tasks = tasks - 1;
        self.sleeper.tasks.set(tasks);
        if tasks == 0 {
            wake(self.word, self.word.load(Relaxed));
        }
    }
}

/// Replaces an odd number. Without it, the word has moved on.
fn wake(word: &AtomicU64, number: u64) {
    if number % 2 == 1 {
        let _ = word.compare_exchange(number, number.wrapping_add(1), AcqRel, Relaxed);
    }
}

impl Sleeper {
    pub fn new(bell: Bell) -> Sleeper {
        Sleeper {
            bell,
            tasks: Cell::new(0),
        }
    }

    fn lie_down<'a>(&'a self, word: &'a AtomicU64) -> Asleep<'a> {
        self.tasks.set(self.tasks.get() + 1);
        // A number of its own: who rings for an earlier sleeper must not end this one's.
        word.store((word.load(Relaxed) | 1).wrapping_add(2), Relaxed);
        fence(SeqCst);
        Asleep {
            sleeper: self,
            word,
        }
    }

    /// Returns when `is_there` says so, which is asked again after each ring.
    pub async fn until(&self, word: &AtomicU64, is_there: impl Fn() -> bool) {
        while !is_there() {
            if planted!("farm_sleeps_at_once", "who lies down does not look again") {
                (0..1000).for_each(|_| std::hint::spin_loop()); // so long that it is met soon
                let _asleep = self.lie_down(word);
                self.bell.rung().await;
                continue;
            }
            let _asleep = self.lie_down(word);
            if is_there() {
                return;
            }
            self.bell.rung().await;
        }
    }
}

/// After something was appended: calls `ring` if somebody sleeps.
#[inline]
pub fn rouse(word: &AtomicU64, ring: impl FnOnce()) {
    fence(SeqCst);
    let number = word.load(Relaxed);
    if number % 2 == 1 {
        ring();
        wake(word, number);
    }
}
