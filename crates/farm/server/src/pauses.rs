//! How long this process has stood still: one that does not get the processor misses its lease, and then the others go
//! on without it.

use plinth_runtime::{Duration, Instant, now, sleep};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;

const TICK: Duration = Duration::from_millis(50);
/// What is shorter is no pause.
const SHORTEST: Duration = Duration::from_millis(100);
/// The others leave out who has missed its lease, and it learns of that within this time.
const KEPT: Duration = Duration::from_secs(10);

pub struct Pauses {
    /// When this process ran for the last time.
    ran: Cell<Instant>,
    /// When each pause was over, and how long it was; those that may still matter.
    past: RefCell<VecDeque<(Instant, Duration)>>,
}

impl Pauses {
    pub fn new() -> Pauses {
        Pauses {
            ran: Cell::new(now()),
            past: RefCell::default(),
        }
    }

    pub async fn note(&self) -> Infallible {
        loop {
            sleep(TICK).await;
            self.note_now();
        }
    }

    fn note_now(&self) {
        let (now, pause) = (now(), self.pause());
        self.ran.set(now);
        let mut past = self.past.borrow_mut();
        if pause >= SHORTEST {
            past.push_back((now, pause));
        }
        while past.front().is_some_and(|(at, _)| at.elapsed() > KEPT) {
            past.pop_front();
        }
    }

    /// How much too late a tick would be now.
    fn pause(&self) -> Duration {
        now().saturating_since(self.ran.get()).saturating_sub(TICK)
    }

    /// Why a lease of this length was missed, if a pause is the cause. It may be noted only after this.
    pub fn cause(&self, lease: Duration) -> Option<String> {
        self.note_now();
        let longest = self.past.borrow().iter().map(|(_, pause)| *pause).max();
        // It is renewed before it ends.
        let longest = longest.filter(|longest| *longest >= lease / 4)?;
        Some(format!(
            "lease missed, because this process did not get the processor for {} ms",
            longest.as_millis()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::real::block_on;
    use plinth_runtime::{Either, race};

    #[test]
    #[allow(clippy::disallowed_methods)] // the process has to stand still
    fn the_longest_pause_is_the_cause_of_a_missed_lease() {
        block_on(async {
            let pauses = Pauses::new();
            let lease = Duration::from_millis(500);
            assert_eq!(pauses.cause(lease), None);
            for ms in [250, 400, 150] {
                std::thread::sleep(Duration::from_millis(ms));
                match race(pauses.note(), sleep(TICK * 2)).await {
                    Either::Left(never) => match never {},
                    Either::Right(()) => {}
                }
            }
            assert_eq!(pauses.cause(lease * 20), None);
            let cause = pauses.cause(lease).expect("it stood still");
            let ms = cause.split(' ').rev().nth(1).expect("milliseconds");
            let ms: u64 = ms.parse().expect("a number");
            assert!(ms >= 350, "{cause}");
        });
    }
}
