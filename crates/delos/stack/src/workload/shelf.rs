//! A place of backups that all simulated machines reach. Sometimes it is slow, or out of reach.

use crate::backup::{Doing, Outcome, Place};
use bytes::Bytes;
use plinth_runtime::random::{below, chance};
use plinth_runtime::{Duration, Instant, now, probe, sleep};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What operators call it.
pub const SHELF: &str = "shelf";

thread_local! {
    static OBJECTS: RefCell<BTreeMap<String, Bytes>> = const { RefCell::new(BTreeMap::new()) };
    static IS_GOOD: Cell<bool> = const { Cell::new(false) };
    /// It is out of reach until then.
    static AWAY_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Longer than the log takes to be trimmed.
const AWAY_MS_MAX: u64 = 4000;

/// Nothing is there, as a run begins.
pub fn clear() {
    OBJECTS.with_borrow_mut(BTreeMap::clear);
    IS_GOOD.set(false);
    AWAY_UNTIL.set(None);
}

/// From now on it is always in reach.
pub fn become_good() {
    IS_GOOD.set(true);
}

pub fn open(place: &str) -> Outcome<Rc<dyn Place>> {
    match place == SHELF {
        true => Ok(Rc::new(Shelf)),
        false => Err(format!("backup {place}: there is only the shelf")),
    }
}

struct Shelf;

impl Shelf {
    /// Does the work, and says so or not; or does nothing and says so.
    async fn try_to<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Bytes>) -> T) -> Outcome<T> {
        let away = || Err("backup shelf: it is out of reach".into());
        if IS_GOOD.get() {
            return Ok(OBJECTS.with_borrow_mut(work));
        }
        sleep(Duration::from_millis(below(30))).await;
        if AWAY_UNTIL.get().is_some_and(|until| now() < until) {
            return away();
        }
        if chance(0.02) {
            if chance(0.3) {
                let outage = Duration::from_millis(below(AWAY_MS_MAX));
                AWAY_UNTIL.set(Some(now() + outage));
            }
            return away();
        }
        let done = OBJECTS.with_borrow_mut(work);
        sleep(Duration::from_millis(below(30))).await;
        if chance(0.02) {
            probe!("delos_shelf_done_unsaid");
            return away();
        }
        Ok(done)
    }
}

impl Place for Shelf {
    fn put<'a>(&'a self, name: &'a str, content: Bytes) -> Doing<'a> {
        Box::pin(self.try_to(move |all| drop(all.insert(name.into(), content))))
    }

    fn get<'a>(&'a self, name: &'a str) -> Doing<'a, Option<Bytes>> {
        Box::pin(self.try_to(move |all| all.get(name).cloned()))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Doing<'a, Vec<String>> {
        Box::pin(self.try_to(move |all| {
            let names = all.keys();
            let found = names.filter(|name| name.starts_with(prefix));
            found.cloned().collect()
        }))
    }

    fn remove<'a>(&'a self, name: &'a str) -> Doing<'a> {
        Box::pin(self.try_to(move |all| drop(all.remove(name))))
    }

    fn name(&self) -> String {
        SHELF.into()
    }
}
