//! What a gateway counts for operators.

use plinth_runtime::Duration;
use std::cell::{Cell, RefCell};

/// Since the start, or since an operator reset them.
#[derive(Default)]
pub struct Counters {
    pub received: Cell<u64>,
    pub sent: Cell<u64>,
    pub latency: RefCell<Latency>,
}

/// Of requests, in milliseconds.
#[derive(Clone, Copy, Default)]
pub struct Latency {
    pub count: u64,
    pub total_ms: u64,
    pub min_ms: u64,
    pub max_ms: u64,
}

impl Latency {
    pub fn note(&mut self, took: Duration) {
        let ms = took.as_millis() as u64;
        self.min_ms = if self.count == 0 {
            ms
        } else {
            self.min_ms.min(ms)
        };
        self.max_ms = self.max_ms.max(ms);
        self.count += 1;
        self.total_ms += ms;
    }
}
