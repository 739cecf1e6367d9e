//! A value that tasks watch. They see the newest value and may miss those in between.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A handle; clones share the value.
pub struct Watch<T>(Rc<Shared<T>>);

struct Shared<T> {
    value: RefCell<T>,
    /// Counts sets and updates.
    sets: Cell<u64>,
    next_waiter: Cell<u64>,
    waiters: RefCell<BTreeMap<u64, Waker>>,
}

impl<T> Clone for Watch<T> {
    fn clone(&self) -> Self {
        Watch(self.0.clone())
    }
}

impl<T: Default> Default for Watch<T> {
    fn default() -> Self {
        Watch::new(T::default())
    }
}

impl<T> Watch<T> {
    pub fn new(value: T) -> Watch<T> {
        Watch(Rc::new(Shared {
            value: RefCell::new(value),
            sets: Cell::new(0),
            next_waiter: Cell::new(0),
            waiters: RefCell::new(BTreeMap::new()),
        }))
    }

    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.0.value.borrow().clone()
    }

    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.0.value.borrow())
    }

    pub fn set(&self, value: T) {
        let old = self.0.value.replace(value);
        self.wake_all();
        drop(old);
    }

    pub fn update<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let result = f(&mut self.0.value.borrow_mut());
        self.wake_all();
        result
    }

    fn wake_all(&self) {
        self.0.sets.set(self.0.sets.get() + 1);
        let waiters = std::mem::take(&mut *self.0.waiters.borrow_mut());
        for waker in waiters.into_values() {
            waker.wake();
        }
    }

    /// Waits for the next set or update after this call (not after the first poll).
    pub fn changed(&self) -> Changed<T> {
        Changed {
            watch: self.clone(),
            seen: self.0.sets.get(),
            waiter: None,
        }
    }

    /// Waits until the value passes the test; returns at once if it does now.
    pub async fn wait_until(&self, mut test: impl FnMut(&T) -> bool) {
        loop {
            let changed = self.changed();
            if self.with(&mut test) {
                return;
            }
            changed.await;
        }
    }
}

/// The future of [`Watch::changed`].
pub struct Changed<T> {
    watch: Watch<T>,
    seen: u64,
    /// Its place in the list of waiters, and whom that place wakes.
    waiter: Option<(u64, Waker)>,
}

impl<T> Future for Changed<T> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let shared = self.watch.0.clone();
        if shared.sets.get() != self.seen {
            self.waiter = None; // the set has emptied the list
            return Poll::Ready(());
        }
        let id = match &self.waiter {
            // A task that waits for several things polls all of them whenever it wakes up.
            Some((_, waker)) if waker.will_wake(context.waker()) => return Poll::Pending,
            Some((id, _)) => *id,
            None => {
                let id = shared.next_waiter.get();
                shared.next_waiter.set(id + 1);
                id
            }
        };
        let waker = context.waker().clone();
        self.waiter = Some((id, waker.clone()));
        shared.waiters.borrow_mut().insert(id, waker);
        Poll::Pending
    }
}

impl<T> Drop for Changed<T> {
    fn drop(&mut self) {
        if let Some((id, _)) = &self.waiter {
            self.watch.0.waiters.borrow_mut().remove(id);
        }
    }
}
