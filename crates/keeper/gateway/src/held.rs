//! Answers to writes that are made and may not go out yet ([`crate::contact`]). Whatever else is for the client stands
//! behind them.

use crate::contact::{Contact, Moment, tick};
use bytes::Bytes;
use plinth_core::output::Output;
use plinth_runtime::sync::Watch;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Answers that go out together, to requests that were heard at nearly the same time.
struct Group {
    first: Moment,
    last: Moment,
    output: Output,
}

/// See the module. Of one connection.
pub struct Held {
    contact: Rc<Contact>,
    groups: RefCell<VecDeque<Group>>,
    /// Bytes of all connections of the life.
    total: Rc<Watch<usize>>,
}

impl Held {
    pub fn new(contact: Rc<Contact>, total: Rc<Watch<usize>>) -> Held {
        let groups = RefCell::default();
        Held {
            contact,
            groups,
            total,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.groups.borrow().is_empty()
    }

    /// What comes now answers a request that was heard then. False if it may go out, and nothing is before it.
    pub fn begins(&self, heard: &Moment) -> bool {
        let mut groups = self.groups.borrow_mut();
        if self.contact.covers(heard) {
            return !groups.is_empty();
        }
        match groups.back_mut() {
            Some(last) if heard.since(&last.first) <= tick() => {
                if heard.at > last.last.at {
                    last.last = *heard;
                }
            }
            _ => groups.push_back(Group {
                first: *heard,
                last: *heard,
                output: Output::new(),
            }),
        }
        true
    }

    /// Adds to what was begun last.
    pub fn push(&self, append: impl FnOnce(&mut Output)) {
        let mut groups = self.groups.borrow_mut();
        let last = groups.back_mut().expect("something is held");
        let before = last.output.len();
        append(&mut last.output);
        let more = last.output.len() - before;
        self.total.update(|bytes| *bytes += more);
    }

    /// The first that may go out now.
    pub fn take_covered(&self) -> Option<Vec<Bytes>> {
        let mut groups = self.groups.borrow_mut();
        groups
            .front()
            .filter(|first| self.contact.covers(&first.last))?;
        let mut first = groups.pop_front()?;
        self.forget(first.output.len());
        Some(first.output.take())
    }

    /// Drops all of it.
    pub fn clear(&self) {
        for group in std::mem::take(&mut *self.groups.borrow_mut()) {
            self.forget(group.output.len());
        }
    }

    fn forget(&self, bytes: usize) {
        let before = self.total.get();
        assert!(before >= bytes, "{bytes} of {before} held bytes go");
        self.total.set(before - bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contact::hold;
    use bytes::BufMut;
    use plinth_runtime::sim::{Locality, SimConfig, Simulation};
    use plinth_runtime::{Duration, sleep};

    fn all(held: &Held) -> Vec<u8> {
        std::iter::from_fn(|| held.take_covered())
            .flatten()
            .flatten()
            .collect()
    }

    async fn some() {
        let (contact, total) = (
            Rc::new(Contact::new(Duration::from_secs(4))),
            Rc::new(Watch::new(0)),
        );
        let (ours, theirs) = [(); 2]
            .map(|()| Held::new(contact.clone(), total.clone()))
            .into();
        assert!(!ours.begins(&Moment::now()), "contact is new");
        sleep(hold() + tick()).await;
        let sent = Moment::now();
        for number in 0..10_u8 {
            sleep(hold() / 5).await;
            assert!(ours.begins(&Moment::now()));
            ours.push(|out| out.buffer().put_u8(number));
            // An event, say.
            ours.push(|out| out.buffer().put_u8(100 + number));
        }
        assert!(theirs.begins(&Moment::now()));
        theirs.push(|out| out.buffer().put_slice(&[0; 100]));
        assert_eq!((all(&ours), total.get()), (vec![], 120));
        contact.landed(sent);
        assert_eq!(
            all(&ours),
            [0, 100, 1, 101, 2, 102, 3, 103, 4, 104],
            "what was heard in the time of an answer after the beat was sent"
        );
        assert!(!ours.is_empty() && total.get() == 110);
        assert!(ours.begins(&sent), "behind the others, though it might go");
        drop(theirs);
        assert_eq!(total.get(), 10);
        contact.landed(Moment::now());
        assert_eq!((all(&ours).len(), total.get()), (10, 0));
        assert!(ours.is_empty());
    }

    #[test]
    fn answers_go_out_in_order_when_a_beat_covers_them_and_their_bytes_are_counted() {
        let simulation = Simulation::new(1, SimConfig::default());
        let machine = simulation.add_machine(Locality::default());
        simulation
            .run_on(machine, some())
            .expect("nothing kills it");
    }

    #[test]
    fn many_answers_of_one_time_share_a_group() {
        let simulation = Simulation::new(1, SimConfig::default());
        let machine = simulation.add_machine(Locality::default());
        let many = async {
            let contact = Rc::new(Contact::new(Duration::from_secs(4)));
            sleep(hold() + tick()).await;
            let held = Held::new(contact.clone(), Rc::new(Watch::new(0)));
            for _ in 0..10_000 {
                sleep(Duration::from_micros(100)).await;
                assert!(held.begins(&Moment::now()));
            }
            let groups = held.groups.borrow().len();
            assert!(
                (20..=50).contains(&groups),
                "{groups} groups of a second's answers"
            );
        };
        simulation.run_on(machine, many).expect("nothing kills it");
    }
}
