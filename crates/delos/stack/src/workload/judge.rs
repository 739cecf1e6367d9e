//! What may not happen to the registers, whatever breaks.
//!
//! Every write that is done has a place in one history, so linearizability is simple to judge: an operation sees all
//! places that were told to anybody before it began, and what it is told itself is in the history for good.

use super::messages::{Outcome, Past, Rows, Write};
use plinth_runtime::random::{below, chance};
use plinth_workload::{Complaints, Verdict};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

struct Tried {
    write: Write,
    burst: u64,
    outcome: Outcome,
}

/// Hears what clients do, and complains when an answer contradicts another.
#[derive(Default)]
pub struct Judge {
    pub complaints: Complaints,
    /// The last place that anybody was told.
    told: Cell<u64>,
    /// By their values: the first is 1. Values of a burst ascend in its order.
    tried: RefCell<BTreeMap<u64, Tried>>,
    bursts: Cell<u64>,
    /// What reads saw, by `count`.
    seen: RefCell<BTreeMap<u64, Rows>>,
    pub done: Cell<u64>,
}

impl Judge {
    /// The places that an operation must see which begins now.
    pub fn floor(&self) -> u64 {
        self.told.get()
    }

    fn tell(&self, place: u64) {
        self.told.set(self.told.get().max(place));
    }

    pub fn draw_burst(&self, registers: u64, len: u64) -> Vec<Write> {
        let burst = self.bursts.get() + 1;
        self.bursts.set(burst);
        let mut tried = self.tried.borrow_mut();
        let next = tried.len() as u64 + 1;
        let writes = (next..next + len).map(|value| Write {
            register: below(registers),
            value,
            is_refused: chance(0.1),
        });
        let writes: Vec<_> = writes.collect();
        tried.extend(writes.iter().map(|write| {
            let tried = Tried {
                write: write.clone(),
                burst,
                outcome: Outcome::UNKNOWN,
            };
            (write.value, tried)
        }));
        writes
    }

    /// The writes of a burst that began at this floor were answered.
    pub fn take_outcomes(&self, floor: u64, writes: &[Write], outcomes: &[Outcome]) {
        for (write, outcome) in writes.iter().zip(outcomes) {
            if let Some(of) = self.tried.borrow_mut().get_mut(&write.value) {
                of.outcome = *outcome;
            }
            if *outcome == Outcome::REFUSED && !write.is_refused {
                self.complain(format!("value {} is refused for nothing", write.value));
            }
            let Some(place) = outcome.place() else {
                continue;
            };
            self.done.set(self.done.get() + 1);
            if place <= floor {
                self.complain(format!(
                    "value {} is written at place {place}, after {floor} was told",
                    write.value
                ));
            }
            self.tell(place);
        }
    }

    /// A read that began at this floor was answered.
    pub fn take_read(&self, floor: u64, rows: Rows) {
        let count = rows.count;
        if count < floor {
            self.complain(format!(
                "a read sees {count} writes, after {floor} were told"
            ));
        }
        self.tell(count);
        let mut seen = self.seen.borrow_mut();
        let before = seen.entry(count).or_insert_with(|| rows.clone());
        if *before != rows {
            self.complain(format!("two reads see {before:?} and {rows:?}"));
        }
    }

    pub fn complain(&self, text: String) {
        self.complaints.add(text);
    }

    /// Judges everything by the history at the end. `keeps_order`: the engine was on all the time that promises an
    /// order, and that nothing is done twice.
    ///
    /// # Errors
    /// The broken promise.
    pub fn finish(&self, history: &[Past], keeps_order: bool) -> Verdict {
        let told = self.told.get();
        if (history.len() as u64) < told {
            let count = history.len();
            return Err(format!(
                "the history has {count} writes, and {told} were told"
            ));
        }
        let places = self.check_writes(history, keeps_order)?;
        self.check_answers(&places)?;
        if keeps_order {
            self.check_order(&places)?;
        }
        self.check_reads(history)
    }

    /// Each write is one that was tried, and is there once. The places, by the values.
    fn check_writes(
        &self,
        history: &[Past],
        keeps_order: bool,
    ) -> Result<BTreeMap<u64, Vec<u64>>, String> {
        let tried = self.tried.borrow();
        let mut places: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (place, past) in (1..).zip(history) {
            let known = tried.get(&past.value);
            let Some(of) = known.filter(|of| of.write.register == past.register) else {
                return Err(format!("nobody wrote what is at place {place}: {past:?}"));
            };
            if of.write.is_refused || of.outcome == Outcome::NOT_DONE {
                let (value, outcome) = (past.value, of.outcome);
                return Err(format!(
                    "value {value} is at place {place}, and must not be ({outcome:?})"
                ));
            }
            places.entry(past.value).or_default().push(place);
        }
        let repeated = places.iter().find(|(_, at)| at.len() > 1);
        match repeated.filter(|_| keeps_order) {
            Some((value, at)) => Err(format!("value {value} is written more than once: {at:?}")),
            None => Ok(places),
        }
    }

    /// What was answered is where the answer says.
    fn check_answers(&self, places: &BTreeMap<u64, Vec<u64>>) -> Verdict {
        for (value, of) in &*self.tried.borrow() {
            let Some(place) = of.outcome.place() else {
                continue;
            };
            let at = places.get(value);
            if !at.is_some_and(|at| at.contains(&place)) {
                return Err(format!(
                    "value {value} was answered at place {place}, and is at {at:?}"
                ));
            }
        }
        Ok(())
    }

    /// The writes of a burst that are done are done in its order.
    fn check_order(&self, places: &BTreeMap<u64, Vec<u64>>) -> Verdict {
        let tried = self.tried.borrow();
        let mut last = (0, 0);
        for (value, of) in &*tried {
            let Some(&place) = places.get(value).and_then(|at| at.first()) else {
                continue;
            };
            if last.0 == of.burst && place < last.1 {
                return Err(format!(
                    "value {value} is at place {place}, before one that was proposed earlier, at {}",
                    last.1
                ));
            }
            last = (of.burst, place);
        }
        Ok(())
    }

    /// A read sees a beginning of the history, and no entry of the log by half.
    fn check_reads(&self, history: &[Past]) -> Verdict {
        for (count, rows) in &*self.seen.borrow() {
            let count = *count as usize;
            if count > history.len() {
                return Err(format!("a read saw {count} writes, which are gone"));
            }
            for (register, seen) in rows.registers.iter().enumerate() {
                let is_it = |past: &&Past| past.register == register as u64;
                let last = (1..).zip(history).take(count);
                let last = last.filter(|(_, past)| is_it(past)).last();
                let (place, value) = last.map_or((0, 0), |(place, past)| (place, past.value));
                if (seen.place, seen.value) != (place, value) {
                    return Err(format!(
                        "with {count} writes, register {register} was {seen:?}, not {value} of place {place}"
                    ));
                }
            }
            let (inside, behind) = (count.checked_sub(1), history.get(count));
            let inside = inside.and_then(|at| history.get(at));
            if let (Some(inside), Some(behind)) = (inside, behind)
                && inside.pos == behind.pos
            {
                return Err(format!(
                    "a read saw {count} writes, the last of which is in one entry of the log with the next: {}",
                    inside.pos
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::Register;
    use super::*;
    use plinth_runtime::sim::{SimConfig, Simulation};

    fn past(value: u64, pos: u64) -> Past {
        Past {
            register: 0,
            value,
            pos,
        }
    }

    fn rows(count: u64, value: u64) -> Rows {
        Rows {
            count,
            registers: vec![Register {
                place: count,
                value,
            }],
        }
    }

    /// Two bursts: values 1 and 2, the first of which is answered at place 1; and value 3.
    fn judged(test: impl FnOnce(&Judge) -> Verdict + 'static) -> Verdict {
        let sim = Simulation::new(1, SimConfig::default());
        sim.run(async move {
            let judge = Judge::default();
            let writes = judge.draw_burst(1, 2);
            judge.draw_burst(1, 1);
            for of in judge.tried.borrow_mut().values_mut() {
                of.write.is_refused = false;
            }
            judge.take_outcomes(0, &writes, &[Outcome::done(1), Outcome::UNKNOWN]);
            test(&judge).and(judge.complaints.verdict())
        })
        .result
    }

    #[test]
    fn a_sound_history_passes_and_each_kind_of_damage_is_found() {
        let finish = |history: Vec<Past>| judged(move |judge| judge.finish(&history, true));
        assert_eq!(finish(vec![past(1, 5), past(2, 5), past(3, 6)]), Ok(()));
        assert_eq!(finish(vec![past(1, 5)]), Ok(()));
        for damaged in [
            vec![],
            vec![past(2, 5), past(1, 6)],
            vec![past(1, 5), past(1, 6)],
            vec![past(1, 5), past(9, 6)],
            vec![past(3, 5), past(1, 6)],
        ] {
            let found = finish(damaged.clone());
            assert!(found.is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn a_stale_read_and_one_of_half_an_entry_are_found() {
        let read = |floor, seen: Rows| {
            judged(move |judge| {
                judge.take_read(floor, seen);
                judge.finish(&[past(1, 5), past(2, 6), past(3, 6)], true)
            })
        };
        assert_eq!(read(1, rows(1, 1)), Ok(()));
        assert_eq!(read(1, rows(3, 3)), Ok(()));
        assert!(read(1, rows(0, 0)).is_err(), "stale");
        assert!(read(1, rows(2, 2)).is_err(), "half an entry");
        assert!(read(1, rows(1, 2)).is_err(), "another value");
        assert!(read(1, rows(4, 4)).is_err(), "from nowhere");
    }
}
