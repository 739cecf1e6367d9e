//! A log that is far away, in memory, and loses entries from sight.

use crate::log::{LogError, LogPos, SharedLog, Tail};
use bytes::Bytes;
use plinth_runtime::sim::control;
use plinth_runtime::{Duration, random, sleep};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

pub const ROUND_TRIP: Duration = Duration::from_millis(48);

/// A log in memory, a round trip away. It outlives the processes that use it.
pub struct Far {
    pub round_trip: Cell<Duration>,
    pub entries: RefCell<Vec<Bytes>>,
    /// Sent, and nobody waits for them. They come into the log some time later.
    late: RefCell<VecDeque<Bytes>>,
    /// Part of the entries that are lost from sight.
    pub late_part: Cell<f64>,
    /// When each entry came, in true time.
    pub came: RefCell<Vec<Duration>>,
    /// Entries before this one are not needed any more.
    pub trimmed: Cell<LogPos>,
}

impl Far {
    pub fn new() -> Rc<Far> {
        Rc::new(Far {
            round_trip: Cell::new(ROUND_TRIP),
            entries: RefCell::default(),
            late: RefCell::default(),
            late_part: Cell::default(),
            came: RefCell::default(),
            trimmed: Cell::default(),
        })
    }
}

/// A replica's way to the log.
pub struct Way {
    far: Rc<Far>,
    is_cut: Rc<Cell<bool>>,
}

/// An entry on its way. If its sender goes away, it arrives late.
struct Sent {
    far: Rc<Far>,
    entry: Option<Bytes>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.far.late.borrow_mut().extend(self.entry.take());
    }
}

impl Way {
    pub fn new(far: &Rc<Far>, is_cut: Rc<Cell<bool>>) -> Way {
        Way {
            far: far.clone(),
            is_cut,
        }
    }

    async fn travel(&self) {
        let half = self.far.round_trip.get() / 2;
        sleep(half.mul_f64(1.0 + 0.1 * random::unit())).await;
        while self.is_cut.get() {
            sleep(half).await;
        }
    }
}

impl SharedLog for Way {
    async fn append(&self, entry: Bytes) -> Result<LogPos, LogError> {
        let mut sent = Sent {
            far: self.far.clone(),
            entry: Some(entry),
        };
        self.travel().await;
        if random::chance(self.far.late_part.get()) {
            return Err(LogError::Unknown);
        }
        let pos = {
            let mut entries = self.far.entries.borrow_mut();
            if random::chance(0.5) {
                entries.extend(self.far.late.borrow_mut().pop_front());
            }
            entries.extend(sent.entry.take());
            let came = &mut *self.far.came.borrow_mut();
            came.resize(entries.len(), control().elapsed());
            entries.len() as LogPos
        };
        self.travel().await;
        Ok(pos)
    }
    async fn check_tail(&self) -> Result<Tail, LogError> {
        self.travel().await;
        let next = self.far.entries.borrow().len() as LogPos + 1;
        self.travel().await;
        Ok(Tail {
            next,
            is_sealed: false,
        })
    }
    async fn read_next(&self, from: LogPos, _: usize) -> Result<Vec<(LogPos, Bytes)>, LogError> {
        while self.is_cut.get() {
            sleep(ROUND_TRIP).await;
        }
        let entries = self.far.entries.borrow();
        let numbered = (1..).zip(entries.iter().cloned());
        Ok(numbered.skip(from as usize - 1).take(50).collect())
    }
    async fn prefix_trim(&self, before: LogPos) -> Result<(), LogError> {
        self.far.trimmed.set(before.max(self.far.trimmed.get()));
        Ok(())
    }
    async fn seal(&self) -> Result<Tail, LogError> {
        unreachable!("nobody seals it")
    }
}
