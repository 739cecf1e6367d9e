//! A queue from many tasks to one. It has no bound of its own: code that fills it from the network must bound it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct Shared<T> {
    items: VecDeque<T>,
    receiver: Option<Waker>,
    senders: usize,
    receiver_gone: bool,
}

pub struct QueueSender<T>(Rc<RefCell<Shared<T>>>);
pub struct QueueReceiver<T>(Rc<RefCell<Shared<T>>>);

pub fn queue<T>() -> (QueueSender<T>, QueueReceiver<T>) {
    let shared = Rc::new(RefCell::new(Shared {
        items: VecDeque::new(),
        receiver: None,
        senders: 1,
        receiver_gone: false,
    }));
    (QueueSender(shared.clone()), QueueReceiver(shared))
}

impl<T> QueueSender<T> {
    /// Sends an item. Returns it as an error if the receiver is gone.
    pub fn send(&self, item: T) -> Result<(), T> {
        let waker = {
            let mut shared = self.0.borrow_mut();
            if shared.receiver_gone {
                return Err(item);
            }
            shared.items.push_back(item);
            shared.receiver.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    pub fn is_closed(&self) -> bool {
        self.0.borrow().receiver_gone
    }

    pub fn len(&self) -> usize {
        self.0.borrow().items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for QueueSender<T> {
    fn clone(&self) -> Self {
        self.0.borrow_mut().senders += 1;
        QueueSender(self.0.clone())
    }
}

impl<T> Drop for QueueSender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut shared = self.0.borrow_mut();
            shared.senders -= 1;
            if shared.senders == 0 {
                shared.receiver.take()
            } else {
                None
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> QueueReceiver<T> {
    /// The next item; `None` when the queue is empty and every sender is gone.
    pub async fn recv(&mut self) -> Option<T> {
        std::future::poll_fn(|context| self.poll_recv(context)).await
    }

    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut shared = self.0.borrow_mut();
        if let Some(item) = shared.items.pop_front() {
            return Poll::Ready(Some(item));
        }
        if shared.senders == 0 {
            return Poll::Ready(None);
        }
        super::remember(&mut shared.receiver, context);
        Poll::Pending
    }

    pub fn try_recv(&mut self) -> Option<T> {
        self.0.borrow_mut().items.pop_front()
    }

    pub fn len(&self) -> usize {
        self.0.borrow().items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for QueueReceiver<T> {
    fn drop(&mut self) {
        let items = {
            let mut shared = self.0.borrow_mut();
            shared.receiver_gone = true;
            shared.receiver = None;
            std::mem::take(&mut shared.items)
        };
        drop(items); // with nothing borrowed: an item's destructor may send
    }
}
