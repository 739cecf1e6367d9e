//! The register: its answers are late or get lost.

use super::some_ms;
use plinth_core::{Error, Result};
use plinth_farm_member::{Record, Register};
use plinth_runtime::{random, sleep};
use std::cell::RefCell;
use std::rc::Rc;

#[derive(Clone, Default)]
pub struct Reach(Rc<RefCell<Vec<Record>>>);

impl Reach {
    pub fn held(&self) -> Option<Record> {
        self.0.borrow().last().cloned()
    }

    /// One that it holds or has held.
    pub fn any(&self) -> Option<Record> {
        let all = self.0.borrow();
        let at = random::below(all.len().max(1) as u64) as usize;
        all.get(at).cloned()
    }

    fn take(&self, next: &Record) -> bool {
        let held = self.held();
        if held.as_ref() == Some(next) {
            return true;
        }
        let fits = held.map_or(0, |held| held.revision) + 1 == next.revision;
        if fits {
            self.0.borrow_mut().push(next.clone());
        }
        fits
    }
}

impl Register for Reach {
    async fn read(&self) -> Result<Option<Record>> {
        sleep(some_ms(3)).await;
        let held = self.held();
        sleep(some_ms(1)).await;
        match random::chance(0.05) {
            true => Err(Error::timed_out),
            false => Ok(held),
        }
    }

    async fn swap(&self, next: &Record) -> Result<bool> {
        sleep(some_ms(3)).await;
        if random::chance(0.03) {
            return Err(Error::timed_out);
        }
        let is_taken = self.take(next);
        sleep(some_ms(2)).await;
        match random::chance(0.03) {
            true => Err(Error::timed_out),
            false => Ok(is_taken),
        }
    }
}
