//! Requests that wait for an event: long polls, watches, peeks.
//!
//! Each request is removed when its call is given up or its connection ends. So the list is never longer than the
//! number of calls that wait.

use crate::{Request, Responder};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::{Duration, Instant};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

type Waiting<R, T> = BTreeMap<u64, (Instant, T, Responder<R>)>;

/// Requests `R` that wait, each with a `T`, in order of arrival.
pub struct Waiters<R: Request, T: 'static = ()> {
    waiting: Rc<RefCell<Waiting<R, T>>>,
    /// Number of requests added so far.
    came: Cell<u64>,
    _gauge: Gauge,
}

impl<R: Request, T: 'static> Waiters<R, T> {
    /// `name` is the name of its [`Gauge`].
    pub fn new(name: &'static str) -> Self {
        let waiting = Rc::default();
        let gauge = Gauge::of(name, &waiting, |w: &RefCell<Waiting<R, T>>| {
            w.borrow().len()
        });
        Waiters {
            waiting,
            came: Cell::new(0),
            _gauge: gauge,
        }
    }

    pub fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Keeps the request until it is taken out or its caller has gone.
    pub fn add(&self, what: T, mut responder: Responder<R>) {
        let place = self.came.get();
        self.came.set(place + 1);
        let waiting = Rc::downgrade(&self.waiting);
        let is_wanted = responder.on_gone(move || {
            let gone = waiting
                .upgrade()
                .and_then(|waiting| waiting.borrow_mut().remove(&place));
            if let Some((_, _, responder)) = gone {
                responder.abandon();
            }
        });
        if is_wanted {
            let entry = (plinth_runtime::now(), what, responder);
            self.waiting.borrow_mut().insert(place, entry);
        } else {
            responder.abandon();
        }
    }

    /// Looks at all requests, in order of arrival.
    pub fn each(&self, mut look: impl FnMut(&Responder<R>)) {
        let waiting = self.waiting.borrow();
        waiting
            .values()
            .for_each(|(_, _, responder)| look(responder));
    }

    /// Takes out all requests, in order of arrival.
    pub fn take(&self) -> impl Iterator<Item = (T, Responder<R>)> + use<R, T> {
        let all = self.waiting.take();
        all.into_values()
            .map(|(_, what, responder)| (what, responder))
    }

    /// Takes out the oldest request, if it has waited for longer than `age`.
    pub fn take_older(&self, age: Duration) -> Option<(T, Responder<R>)> {
        let mut waiting = self.waiting.borrow_mut();
        let first = waiting.first_entry()?;
        let since = plinth_runtime::now().saturating_since(first.get().0);
        (since > age).then(|| {
            let (_, what, responder) = first.remove();
            (what, responder)
        })
    }
}
