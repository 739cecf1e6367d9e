//! A notification without a value: wakes one waiter, or all.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A handle; clones share the waiters.
#[derive(Clone, Default)]
pub struct Notify(Rc<Bell>);

#[derive(Default)]
struct Bell {
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
    /// `notify_one` was called while there was no waiter.
    permit: Cell<bool>,
    /// Counts calls of `notify_all`.
    rings: Cell<u64>,
}

struct Waiter {
    waker: RefCell<Option<Waker>>,
    chosen: Cell<bool>,
}

impl Notify {
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Wakes the waiter that has waited longest. If there is none, the next `notified` returns at once.
    pub fn notify_one(&self) {
        let first = self.0.waiters.borrow_mut().pop_front();
        match first {
            Some(waiter) => {
                waiter.chosen.set(true);
                if let Some(waker) = waiter.waker.take() {
                    waker.wake();
                }
            }
            None => self.0.permit.set(true),
        }
    }

    /// Wakes all waiters whose `notified` was called before. Leaves no permit.
    pub fn notify_all(&self) {
        self.0.rings.set(self.0.rings.get() + 1);
        let waiters = std::mem::take(&mut *self.0.waiters.borrow_mut());
        for waiter in waiters {
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    pub fn notified(&self) -> Notified {
        Notified {
            bell: self.clone(),
            rings: self.0.rings.get(),
            waiter: None,
        }
    }
}

/// The future of [`Notify::notified`].
pub struct Notified {
    bell: Notify,
    rings: u64,
    waiter: Option<Rc<Waiter>>,
}

impl Future for Notified {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let chosen = self.waiter.as_ref().is_some_and(|w| w.chosen.get());
        if chosen || self.bell.0.rings.get() != self.rings {
            self.leave_queue(chosen);
            return Poll::Ready(());
        }
        match &self.waiter {
            Some(waiter) => super::remember(&mut waiter.waker.borrow_mut(), context),
            None if self.bell.0.permit.take() => return Poll::Ready(()),
            None => {
                let waker = RefCell::new(Some(context.waker().clone()));
                let waiter = Rc::new(Waiter {
                    waker,
                    chosen: Cell::new(false),
                });
                self.bell.0.waiters.borrow_mut().push_back(waiter.clone());
                self.waiter = Some(waiter);
            }
        }
        Poll::Pending
    }
}

impl Notified {
    /// Removes the waiter. If it was woken by `notify_one` and did not use that, the next waiter is woken.
    fn leave_queue(&mut self, used: bool) {
        let Some(waiter) = self.waiter.take() else {
            return;
        };
        if waiter.chosen.get() {
            if !used {
                self.bell.notify_one();
            }
            return;
        }
        self.bell
            .0
            .waiters
            .borrow_mut()
            .retain(|w| !Rc::ptr_eq(w, &waiter));
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        self.leave_queue(false);
    }
}
