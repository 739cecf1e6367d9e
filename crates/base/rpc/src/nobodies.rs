//! Connections of those who have proved nothing: all of them share one small allowance, so that they cannot use up
//! what a process may have open.

use plinth_runtime::probe;
use plinth_runtime::serve::Outbox;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// Connections of nobodies that a worker has at a time. A greeting takes one round trip, so that somebody with a key
/// becomes somebody before so many others have come.
pub(crate) const NOBODIES_MAX: usize = 1000;

/// Of all connections of a worker.
#[derive(Default)]
pub struct Nobodies {
    count: Cell<usize>,
    /// The oldest first. Those that are somebody, or have ended, are forgotten with time.
    oldest: RefCell<VecDeque<Weak<Standing>>>,
}

/// What a connection counts as. It is nobody's at first, and ends with this.
pub struct Standing {
    all: Rc<Nobodies>,
    is_nobody: Cell<bool>,
    outbox: Rc<Outbox>,
}

impl Nobodies {
    /// One more connection. The oldest one of a nobody is closed if there are too many.
    pub fn add(self: &Rc<Self>, outbox: Rc<Outbox>) -> Rc<Standing> {
        let standing = Rc::new(Standing {
            all: self.clone(),
            is_nobody: Cell::new(true),
            outbox,
        });
        self.count.set(self.count.get() + 1);
        let mut oldest = self.oldest.borrow_mut();
        oldest.push_back(Rc::downgrade(&standing));
        if oldest.len() > 2 * NOBODIES_MAX {
            let is_nobody = |one: &Weak<Standing>| one.upgrade().is_some_and(|o| o.is_nobody.get());
            oldest.retain(is_nobody);
        }
        while self.count.get() > NOBODIES_MAX {
            let Some(first) = oldest.pop_front() else {
                break;
            };
            if let Some(first) = first.upgrade().filter(|first| first.is_nobody.get()) {
                probe!("rpc_nobody_makes_room");
                first.becomes_somebody();
                first.outbox.close();
            }
        }
        standing
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.count.get()
    }
}

impl Standing {
    /// It counts no longer: it has proved a key, or it ends.
    pub fn becomes_somebody(&self) {
        if self.is_nobody.replace(false) {
            self.all.count.set(self.all.count.get() - 1);
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.becomes_somebody();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_nobody_makes_room_and_somebody_never_does() {
        let all = Rc::new(Nobodies::default());
        let come = || {
            let outbox = Outbox::new();
            (all.add(outbox.clone()), outbox)
        };
        let (first, first_outbox) = come();
        first.becomes_somebody();
        let mut others: VecDeque<_> = (0..NOBODIES_MAX).map(|_| come()).collect();
        assert_eq!(all.count(), NOBODIES_MAX);
        assert!(others.iter().all(|(_, outbox)| !outbox.is_closed()));
        let (_late, late_outbox) = come();
        assert!(others[0].1.is_closed() && !others[1].1.is_closed());
        assert!(!first_outbox.is_closed() && !late_outbox.is_closed());
        // Those that end make room, too.
        others.truncate(10);
        assert_eq!(all.count(), 10);
        let many: Vec<_> = (0..3 * NOBODIES_MAX)
            .map(|_| {
                let one = come();
                one.0.becomes_somebody();
                one
            })
            .collect();
        assert!(many.iter().all(|(_, outbox)| !outbox.is_closed()));
        assert!(all.oldest.borrow().len() <= 2 * NOBODIES_MAX);
    }
}
