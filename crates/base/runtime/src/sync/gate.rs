//! A version that only grows, and tasks that wait until it reaches theirs.
//!
//! Most waits in the database use one of these: a read for its version, a batch for the batch before it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A handle; clones share the version.
#[derive(Clone)]
pub struct VersionGate(Rc<Shared>);

struct Shared {
    version: Cell<i64>,
    next_waiter: Cell<u64>,
    /// By version, then by arrival. A set wakes exactly the waiters whose version is reached, in that order.
    waiters: RefCell<BTreeMap<(i64, u64), Waker>>,
}

impl VersionGate {
    pub fn new(version: i64) -> VersionGate {
        VersionGate(Rc::new(Shared {
            version: Cell::new(version),
            next_waiter: Cell::new(0),
            waiters: RefCell::new(BTreeMap::new()),
        }))
    }

    #[inline]
    pub fn get(&self) -> i64 {
        self.0.version.get()
    }

    /// Sets a new version, which must not be lower than the old one.
    pub fn set(&self, version: i64) {
        let old = self.0.version.replace(version);
        assert!(
            version >= old,
            "a version gate went back from {old} to {version}"
        );
        loop {
            // Borrowed again for each waker, because waking may run any code.
            let waker = {
                let mut waiters = self.0.waiters.borrow_mut();
                match waiters.first_entry() {
                    Some(first) if first.key().0 <= version => first.remove(),
                    _ => return,
                }
            };
            waker.wake();
        }
    }

    /// Waits until the version is `version` or more.
    pub fn at_least(&self, version: i64) -> AtLeast {
        AtLeast {
            gate: self.clone(),
            version,
            waiter: None,
        }
    }

    /// Number of waiters.
    pub fn waiting(&self) -> usize {
        self.0.waiters.borrow().len()
    }
}

/// The future of [`VersionGate::at_least`].
pub struct AtLeast {
    gate: VersionGate,
    version: i64,
    waiter: Option<u64>,
}

impl Future for AtLeast {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let shared = self.gate.0.clone();
        if shared.version.get() >= self.version {
            return Poll::Ready(());
        }
        let id = *self.waiter.get_or_insert_with(|| {
            let id = shared.next_waiter.get();
            shared.next_waiter.set(id + 1);
            id
        });
        shared
            .waiters
            .borrow_mut()
            .insert((self.version, id), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for AtLeast {
    fn drop(&mut self) {
        if let Some(id) = self.waiter {
            self.gate.0.waiters.borrow_mut().remove(&(self.version, id));
        }
    }
}
