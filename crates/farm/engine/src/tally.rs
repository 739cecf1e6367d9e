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

/// Clones share the count. A count of nothing takes no memory.
#[derive(Clone)]
pub struct Tally(Option<Rc<Count>>);

impl Tally {
    pub fn new(open: usize) -> Tally {
        let count = (open > 0).then(Rc::<Count>::default);
        if let Some(count) = &count {
            count.open.set(open);
        }
        Tally(count)
    }

    pub fn done(&self) {
        let Some(count) = &self.0 else {
            return;
        };
        let open = count.open.get();
        // Who waits for nothing more has been told that one will not come.
        assert!(
            open > 0 || count.has_failed.get(),
            "more has come than was waited for"
        );
        let open = open.saturating_sub(1);
        count.open.set(open);
        if open == 0 {
            count.bell.notify_all();
        }
    }

    /// Nothing more will come.
    pub fn end(&self) {
        let Some(count) = &self.0 else {
            return;
        };
        if count.open.get() > 0 {
            count.has_failed.set(true);
            count.open.set(0);
            count.bell.notify_all();
        }
    }

    /// Waits for all. False if one has failed.
    pub async fn wait(&self) -> bool {
        let Some(count) = &self.0 else {
            return true;
        };
        while count.open.get() > 0 {
            count.bell.notified().await;
        }
        !count.has_failed.get()
    }
}
