//! One value, once, from one task to another: the reply to a request.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The other side is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the other side of the channel is gone")
    }
}

impl std::error::Error for Closed {}

struct Shared<T> {
    value: Option<T>,
    receiver: Option<Waker>,
    sender_gone: bool,
    receiver_gone: bool,
    /// Called when the receiver is dropped before there is a value.
    on_close: Option<Box<dyn FnOnce()>>,
}

pub struct OneshotSender<T>(Rc<RefCell<Shared<T>>>);
pub struct OneshotReceiver<T>(Rc<RefCell<Shared<T>>>);

pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let shared = Rc::new(RefCell::new(Shared {
        value: None,
        receiver: None,
        sender_gone: false,
        receiver_gone: false,
        on_close: None,
    }));
    (OneshotSender(shared.clone()), OneshotReceiver(shared))
}

impl<T> OneshotSender<T> {
    /// Sends the value. Returns it as an error if the receiver was dropped.
    pub fn send(self, value: T) -> Result<(), T> {
        let mut shared = self.0.borrow_mut();
        if shared.receiver_gone {
            return Err(value);
        }
        shared.value = Some(value);
        Ok(()) // dropping `self` wakes the receiver
    }

    /// True if the receiver was dropped: the sender need not compute the value.
    pub fn is_closed(&self) -> bool {
        self.0.borrow().receiver_gone
    }

    /// Calls `f` when the receiver is dropped before there is a value; false if it was dropped already.
    pub fn on_close(&self, f: impl FnOnce() + 'static) -> bool {
        let mut shared = self.0.borrow_mut();
        if !shared.receiver_gone {
            shared.on_close = Some(Box::new(f));
        }
        !shared.receiver_gone
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        let (waker, on_close) = {
            let mut shared = self.0.borrow_mut();
            shared.sender_gone = true;
            (shared.receiver.take(), shared.on_close.take())
        };
        drop(on_close);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> OneshotReceiver<T> {
    /// The value, if it is there.
    pub fn try_recv(&mut self) -> Option<T> {
        self.0.borrow_mut().value.take()
    }
}

impl<T> Future for OneshotReceiver<T> {
    type Output = Result<T, Closed>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut shared = self.0.borrow_mut();
        if let Some(value) = shared.value.take() {
            return Poll::Ready(Ok(value));
        }
        if shared.sender_gone {
            return Poll::Ready(Err(Closed));
        }
        super::remember(&mut shared.receiver, context);
        Poll::Pending
    }
}

impl<T> Drop for OneshotReceiver<T> {
    fn drop(&mut self) {
        let (value, waker, on_close) = {
            let mut shared = self.0.borrow_mut();
            shared.receiver_gone = true;
            let on_close = shared.on_close.take();
            (shared.value.take(), shared.receiver.take(), on_close)
        };
        drop((value, waker));
        if let Some(on_close) = on_close {
            on_close();
        }
    }
}
