//! A count of what is still to come, for one who waits for all of it.

use plinth_runtime::sync::Notify;
use std::cell::Cell;
use std::rc::Rc;

#[derive(Default)]
struct Count {
    open: Cell<usize>,
    has_failed: Cell<bool>,
    bell: Notify,
}

/// Clones share the count.
#[derive(Clone, Default)]
pub struct Tally(Rc<Count>);

impl Tally {
    pub fn new(open: usize) -> Tally {
        let tally = Tally::default();
        tally.0.open.set(open);
        tally
    }

    pub fn done(&self) {
        let open = self.0.open.get().saturating_sub(1);
        self.0.open.set(open);
        if open == 0 {
            self.0.bell.notify_all();
        }
    }

    /// Nothing more will come.
    pub fn end(&self) {
        if self.0.open.get() > 0 {
            self.0.has_failed.set(true);
            self.0.open.set(0);
            self.0.bell.notify_all();
        }
    }

    /// Waits for all. False if one has failed.
    pub async fn wait(&self) -> bool {
        while self.0.open.get() > 0 {
            self.0.bell.notified().await;
        }
        !self.0.has_failed.get()
    }
}
