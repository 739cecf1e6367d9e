//! Operations that wait until they are written ([`crate::writes::Writes`]), and the memory that they take.

use crate::trace::Trace;
use crate::tree::execute::{Operation, Owner};
use crate::wire::Request;
use crate::writes::Complete;
use plinth_runtime::sync::Watch;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// An operation, and who waits for its outcome.
pub struct Queued {
    pub operation: Operation,
    pub complete: Complete,
    /// Where it is noted what is done with it, if its client wants to know that.
    pub trace: Option<Rc<Trace>>,
}

impl Queued {
    /// One that nobody waits for.
    pub fn of_the_gateway(operation: Operation) -> Queued {
        let complete = Box::new(|_: &_, _, _| ());
        Queued {
            operation,
            complete,
            trace: None,
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
        let is_data =
            |request: &Request| matches!(request, Request::GetData { .. } | Request::List { .. });
        request.parts().iter().any(is_data)
    }
}

/// In the order in which they are to be written. Nothing that is done with one operation looks at all that wait.
#[derive(Default)]
pub struct Queue {
    line: RefCell<Line>,
    /// Bytes of the clients' requests.
    bytes: Watch<usize>,
}

/// First `returns`, then `others`.
#[derive(Default)]
struct Line {
    /// Clients who come back and stand before all others.
    returns: VecDeque<Queued>,
    /// The first of them is no return.
    others: VecDeque<Queued>,
    /// How many of the others are of each session.
    of_sessions: BTreeMap<i64, usize>,
}

impl Line {
    fn len(&self) -> usize {
        self.returns.len() + self.others.len()
    }

    fn push(&mut self, queued: Queued) {
        let is_return = queued.takes_a_session();
        let goes_before = is_return && sent_by(&queued).is_none_or(|session| !self.has(session));
        match goes_before {
            true => self.returns.push_back(queued),
            false => {
                self.count(&queued);
                self.others.push_back(queued);
            }
        }
        self.check();
    }

    fn push_front(&mut self, queued: Queued) {
        if queued.takes_a_session() {
            return self.returns.push_front(queued);
        }
        // It comes before them, too.
        while let Some(last) = self.returns.pop_back() {
            self.count(&last);
            self.others.push_front(last);
        }
        self.count(&queued);
        self.others.push_front(queued);
    }

    fn pop_front(&mut self) -> Option<Queued> {
        let first = match self.returns.pop_front() {
            Some(first) => first,
            None => self.pop_other()?,
        };
        while self.others.front().is_some_and(Queued::takes_a_session) {
            let next = self.pop_other();
            self.returns.extend(next);
        }
        self.check();
        Some(first)
    }

    fn pop_other(&mut self) -> Option<Queued> {
        let first = self.others.pop_front()?;
        if let Some(session) = sent_by(&first) {
            let left = self.of_sessions.get_mut(&session);
            let left = left.expect("it was counted when it came");
            *left -= 1;
            if *left == 0 {
                self.of_sessions.remove(&session);
            }
        }
        Some(first)
    }

    fn count(&mut self, queued: &Queued) {
        if let Some(session) = sent_by(queued) {
            *self.of_sessions.entry(session).or_default() += 1;
        }
    }

    fn has(&self, session: i64) -> bool {
        self.of_sessions.contains_key(&session)
    }

    fn check(&self) {
        let first = self.others.front();
        assert!(
            !first.is_some_and(Queued::takes_a_session),
            "{} clients come back, and one stands behind them for no reason",
            self.returns.len()
        );
    }
}

/// The session whose client has sent it, or has come back with it.
fn sent_by(queued: &Queued) -> Option<i64> {
    match &queued.operation {
        Operation::CloseSession {
            session,
            owner: Owner::Own,
            ..
        }
        | Operation::TakeSession { session, .. } => Some(*session),
        other => other.session(),
    }
}

impl Queue {
    /// Adds an operation behind all others. A client that comes back with its session has little time, and relies on
    /// nobody's writes: it goes before them, behind those who have come so before it. But it does not pass what its
    /// session has sent before, or that would be carried out after what the client sends next.
    pub fn push(&self, queued: Queued) {
        self.count(&queued);
        self.line.borrow_mut().push(queued);
    }

    pub fn push_front(&self, queued: Queued) {
        self.count(&queued);
        self.line.borrow_mut().push_front(queued);
    }

    /// Puts operations before all others, in their order.
    pub fn put_back(&self, operations: Vec<Queued>) {
        let last_first = operations.into_iter().rev();
        last_first.for_each(|queued| self.push_front(queued));
    }

    pub fn pop_front(&self) -> Option<Queued> {
        let first = self.line.borrow_mut().pop_front()?;
        let held = first.operation.held_bytes();
        let before = self.bytes.get();
        assert!(before >= held, "{held} of {before} bytes leave the queue");
        self.bytes.set(before - held);
        Some(first)
    }

    /// Takes out the clients who come back and stand before all others; none if nobody else waits.
    pub fn pop_takes_before_others(&self) -> Vec<Queued> {
        let come_back = self.line.borrow().returns.len();
        match come_back < self.len() {
            true => (0..come_back).filter_map(|_| self.pop_front()).collect(),
            false => Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.line.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

    fn close(session: i64) -> Queued {
        Queued::of_the_gateway(Operation::CloseSession {
            session,
            owner: Owner::Own,
            found: Default::default(),
        })
    }

    /// A number of its own, and what it is.
    type Known = (i64, bool, u32);

    /// The same order, by looking at all that wait.
    fn place_of(all: &[Known], (session, is_return, _): Known) -> usize {
        let come_back = all.iter().take_while(|(_, is_return, _)| *is_return);
        let come_back = come_back.count();
        let is_its_own = |other: &Known| other.0 == session;
        match is_return && !all[come_back..].iter().any(is_its_own) {
            true => come_back,
            false => all.len(),
        }
    }

    /// Numbered by their time-outs, or by their paths.
    fn number(queued: &Queued) -> u32 {
        match &queued.operation {
            Operation::TakeSession { timeout_ms, .. } => *timeout_ms,
            Operation::Look { most, .. } => *most as u32,
            other => panic!("{other:?}"),
        }
    }

    fn numbered((session, is_return, number): Known) -> Queued {
        Queued::of_the_gateway(match is_return {
            true => Operation::TakeSession {
                session,
                timeout_ms: number,
                password: Vec::new(),
                found: None,
            },
            false => Operation::Look {
                session,
                request: Request::WhoAmI,
                most: number as usize,
            },
        })
    }

    #[test]
    fn the_order_is_that_of_a_look_at_all_that_wait() {
        let mut seed = 1_u64;
        let mut below = |most: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            (seed >> 33) % most
        };
        let (queue, mut all, mut out) = (Queue::default(), Vec::new(), Vec::new());
        let known = |all: &[Known], queued: &Queued| {
            let is_it = |known: &&Known| known.2 == number(queued);
            *all.iter().find(is_it).expect("it was pushed")
        };
        let mut pushed = Vec::new();
        for round in 0..20_000 {
            match below(10) {
                0..4 => {
                    let new = (below(6) as i64, below(2) == 0, round);
                    pushed.push(new);
                    let place = place_of(&all, new);
                    all.insert(place, new);
                    queue.push(numbered(new));
                }
                4..7 if !all.is_empty() => {
                    let first = queue.pop_front().expect("some wait");
                    assert_eq!(number(&first), all.remove(0).2);
                    out.push(first);
                }
                7 => {
                    let back: Vec<Queued> = std::mem::take(&mut out);
                    let back = back.into_iter().take(3).collect::<Vec<_>>();
                    for queued in back.iter().rev() {
                        all.insert(0, known(&pushed, queued));
                    }
                    queue.put_back(back);
                }
                8 => {
                    let come_back = all.iter().take_while(|known| known.1).count();
                    let come_back = if come_back < all.len() { come_back } else { 0 };
                    let taken = queue.pop_takes_before_others();
                    let expected: Vec<u32> = all.drain(..come_back).map(|known| known.2).collect();
                    assert_eq!(taken.iter().map(number).collect::<Vec<_>>(), expected);
                }
                _ => assert_eq!(queue.len(), all.len()),
            }
        }
        let rest: Vec<Queued> = std::iter::from_fn(|| queue.pop_front()).collect();
        let expected: Vec<u32> = all.iter().map(|known| known.2).collect();
        assert_eq!(rest.iter().map(number).collect::<Vec<_>>(), expected);
        assert!(queue.line.borrow().of_sessions.is_empty());
    }

    /// Each of them would look at all of the others otherwise.
    #[test]
    fn many_who_come_back_at_once_cost_no_more_than_others() {
        const MANY: i64 = 200_000;
        let queue = Queue::default();
        for session in 0..MANY {
            queue.push(numbered((session, false, 0)));
        }
        for session in MANY..2 * MANY {
            queue.push(numbered((session, true, 1)));
        }
        let first = queue.pop_front().expect("it waits");
        assert!(first.takes_a_session() && queue.len() as i64 == 2 * MANY - 1);
        assert_eq!(queue.pop_takes_before_others().len() as i64, MANY - 1);
    }
}
