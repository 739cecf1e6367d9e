//! Operations that wait until they are written ([`crate::writes::Writes`]), and the memory that they take.

use crate::tree::execute::{Operation, Owner};
use crate::wire::Request;
use crate::writes::Complete;
use plinth_runtime::sync::Watch;
use std::cell::RefCell;
use std::collections::VecDeque;

/// An operation, and who waits for its outcome.
pub struct Queued {
    pub operation: Operation,
    pub complete: Complete,
}

impl Queued {
    /// One that nobody waits for.
    pub fn of_the_gateway(operation: Operation) -> Queued {
        let complete = Box::new(|_: &_, _, _| ());
        Queued {
            operation,
            complete,
        }
    }

    pub fn is_look(&self) -> bool {
        matches!(self.operation, Operation::Look { .. })
    }

    /// True for a client's return with its session.
    pub fn takes_a_session(&self) -> bool {
        matches!(self.operation, Operation::TakeSession { .. })
    }

    /// True for a read of data behind a write.
    pub fn looks_at_data(&self) -> bool {
        let Operation::Look { request, .. } = &self.operation else {
            return false;
        };
        let is_data = |request: &Request| matches!(request, Request::GetData { .. });
        request.parts().iter().any(is_data)
    }
}

/// In the order in which they are to be written.
#[derive(Default)]
pub struct Queue {
    operations: RefCell<VecDeque<Queued>>,
    /// Bytes of the clients' requests.
    bytes: Watch<usize>,
}

impl Queue {
    /// Adds an operation behind all others. A client that comes back with its session has little time, and relies on
    /// nobody's writes: it goes before them, behind those who have come so before it. But it does not pass what its
    /// session has sent before, or that would be carried out after what the client sends next.
    pub fn push(&self, queued: Queued) {
        self.count(&queued);
        let place = self.place_of(&queued.operation);
        self.operations.borrow_mut().insert(place, queued);
    }

    fn place_of(&self, operation: &Operation) -> usize {
        let operations = self.operations.borrow();
        let Operation::TakeSession { session, .. } = operation else {
            return operations.len();
        };
        let is_its_own = |queued: &Queued| match &queued.operation {
            Operation::CloseSession {
                session: closed,
                owner: Owner::Own,
                ..
            } => closed == session,
            Operation::TakeSession { session: taken, .. } => taken == session,
            other => other.session() == Some(*session),
        };
        let come_back = self.come_back();
        match operations.iter().skip(come_back).any(is_its_own) {
            true => operations.len(),
            false => come_back,
        }
    }

    pub fn push_front(&self, queued: Queued) {
        self.count(&queued);
        self.operations.borrow_mut().push_front(queued);
    }

    /// Puts operations before all others, in their order.
    pub fn put_back(&self, operations: Vec<Queued>) {
        let last_first = operations.into_iter().rev();
        last_first.for_each(|queued| self.push_front(queued));
    }

    pub fn pop_front(&self) -> Option<Queued> {
        let first = self.operations.borrow_mut().pop_front()?;
        let held = first.operation.held_bytes();
        let before = self.bytes.get();
        assert!(before >= held, "{held} of {before} bytes leave the queue");
        self.bytes.set(before - held);
        Some(first)
    }

    /// How many clients who come back stand before all others.
    fn come_back(&self) -> usize {
        let operations = self.operations.borrow();
        operations
            .iter()
            .take_while(|queued| queued.takes_a_session())
            .count()
    }

    /// Takes out the clients who come back and stand before all others; none if nobody else waits.
    pub fn pop_takes_before_others(&self) -> Vec<Queued> {
        let come_back = self.come_back();
        match come_back < self.len() {
            true => (0..come_back).filter_map(|_| self.pop_front()).collect(),
            false => Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.operations.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.operations.borrow().is_empty()
    }

    pub fn bytes(&self) -> &Watch<usize> {
        &self.bytes
    }

    fn count(&self, queued: &Queued) {
        let held = queued.operation.held_bytes();
        self.bytes.update(|bytes| *bytes += held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(path: &str) -> Queued {
        let request = Request::Exists {
            path: path.into(),
            watch: false,
        };
        Queued::of_the_gateway(Operation::Look {
            session: 1,
            request,
            most: usize::MAX,
        })
    }

    fn path(queued: Queued) -> String {
        match queued.operation {
            Operation::Look {
                request: Request::Exists { path, .. },
                ..
            } => path.to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn take(session: i64) -> Queued {
        Queued::of_the_gateway(Operation::TakeSession {
            session,
            timeout_ms: 4000,
            password: Vec::new(),
            found: None,
        })
    }

    #[test]
    fn who_comes_back_passes_all_but_what_the_session_has_sent_before() {
        let queue = Queue::default();
        for queued in [look("/a"), look("/b"), take(7), take(8), take(1)] {
            queue.push(queued);
        }
        let name = |queued: Queued| match queued.operation {
            Operation::TakeSession { session, .. } => session.to_string(),
            _ => path(queued),
        };
        let all: Vec<String> = std::iter::from_fn(|| queue.pop_front()).map(name).collect();
        assert_eq!(all, ["7", "8", "/a", "/b", "1"]);
    }

    #[test]
    fn who_comes_back_does_not_pass_the_end_of_its_session_or_another_return_with_it() {
        let queue = Queue::default();
        let close = |session| {
            Queued::of_the_gateway(Operation::CloseSession {
                session,
                owner: Owner::Own,
                found: Default::default(),
            })
        };
        for queued in [look("/a"), close(7), take(7), take(1), take(8), take(8)] {
            queue.push(queued);
        }
        let name = |queued: Queued| match queued.operation {
            Operation::TakeSession { session, .. } => format!("take {session}"),
            Operation::CloseSession { session, .. } => format!("close {session}"),
            _ => path(queued),
        };
        let all: Vec<String> = std::iter::from_fn(|| queue.pop_front()).map(name).collect();
        assert_eq!(
            all,
            ["take 8", "take 8", "/a", "close 7", "take 7", "take 1"]
        );
    }

    #[test]
    fn what_is_put_back_comes_first_and_bytes_are_those_of_what_waits() {
        let queue = Queue::default();
        for name in ["/a", "/b", "/c"] {
            queue.push(look(name));
        }
        let all = queue.bytes().get();
        let taken = vec![
            queue.pop_front().expect("/a"),
            queue.pop_front().expect("/b"),
        ];
        assert!(queue.bytes().get() > 0 && queue.bytes().get() < all);
        queue.put_back(taken);
        assert_eq!((queue.len(), queue.bytes().get()), (3, all));
        let rest: Vec<String> = std::iter::from_fn(|| queue.pop_front()).map(path).collect();
        assert_eq!(rest, ["/a", "/b", "/c"]);
        assert_eq!((queue.is_empty(), queue.bytes().get()), (true, 0));
    }
}
