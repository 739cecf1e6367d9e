//! A semaphore: a limited number of permits.

use super::Notify;
use std::cell::Cell;
use std::rc::Rc;

/// A handle; clones share the permits.
#[derive(Clone)]
pub struct Permits(Rc<Shared>);

struct Shared {
    free: Cell<usize>,
    freed: Notify,
}

/// A permit. It is returned when dropped.
pub struct Permit(Rc<Shared>);

impl Permits {
    pub fn new(count: usize) -> Self {
        Permits(Rc::new(Shared {
            free: Cell::new(count),
            freed: Notify::new(),
        }))
    }

    /// Waits until a permit is free and takes it.
    pub async fn take(&self) -> Permit {
        while self.0.free.get() == 0 {
            self.0.freed.notified().await;
        }
        self.0.free.set(self.0.free.get() - 1);
        Permit(self.0.clone())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.free.set(self.0.free.get() + 1);
        self.0.freed.notify_one();
    }
}
