//! Results of reads that travel together: one allocation and one lock for all, where [`slot`](crate::slot) has one
//! each.
//!
//! The application's side adds places while it gathers reads, and then awaits each place. The loop fills the places of
//! those reads that have ended, under one lock, and wakes whoever waits once a turn.

use crate::open_error::Result;
use crate::slot::wake_in_turn;
use plinth_core::Error;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Room for what most transactions read at once.
const PLACES: usize = 10;

enum Place<T> {
    Waiting,
    Ready(Result<T>),
    Taken,
}

struct Inside<T> {
    places: Vec<Place<T>>,
    /// Tasks that wait for any of them: nearly always one.
    readers: Vec<Waker>,
    /// The reads are on their way to the loop.
    is_sent: bool,
}

/// The application's end.
pub(crate) struct Group<T>(Arc<Mutex<Inside<T>>>);

/// The loop's end. When it is dropped, the places that are not filled get an error.
pub(crate) struct Filler<T>(Group<T>);

impl<T> Clone for Group<T> {
    fn clone(&self) -> Self {
        Group(self.0.clone())
    }
}

impl<T> Group<T> {
    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        // No code under the lock can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a place, and returns its number.
    pub fn add(&self) -> usize {
        let mut inside = self.lock();
        inside.places.push(Place::Waiting);
        inside.places.len() - 1
    }

    /// The result in a place, which can be taken once; and whether the reads are on their way.
    pub fn poll(&self, place: usize, context: &mut Context<'_>) -> (Poll<Result<T>>, bool) {
        let mut inside = self.lock();
        let result = match std::mem::replace(&mut inside.places[place], Place::Taken) {
            Place::Ready(result) => Poll::Ready(result),
            Place::Waiting => {
                inside.places[place] = Place::Waiting;
                let readers = &mut inside.readers;
                if !readers.iter().any(|known| known.will_wake(context.waker())) {
                    readers.push(context.waker().clone());
                }
                Poll::Pending
            }
            Place::Taken => panic!("a future is not polled after its end"),
        };
        (result, inside.is_sent)
    }
}

/// A group without places, and its other end.
pub(crate) fn group<T>() -> (Filler<T>, Group<T>) {
    let group = Group(Arc::new(Mutex::new(Inside {
        places: Vec::with_capacity(PLACES),
        readers: Vec::new(),
        is_sent: false,
    })));
    (Filler(group.clone()), group)
}

impl<T> Filler<T> {
    /// For the batch that takes the reads to the loop.
    pub fn send(self) -> Arc<Self> {
        self.0.lock().is_sent = true;
        Arc::new(self)
    }

    /// Fills places, while it lives.
    pub fn filling(&self) -> Filling<'_, T> {
        Filling {
            filler: self,
            inside: None,
        }
    }
}

/// Takes the lock with the first result, and wakes the readers at its end, if there was one.
pub(crate) struct Filling<'a, T> {
    filler: &'a Filler<T>,
    inside: Option<MutexGuard<'a, Inside<T>>>,
}

impl<T> Filling<'_, T> {
    /// Puts a result into its place.
    pub fn fill(&mut self, place: usize, result: Result<T>) {
        let inside = self.inside.get_or_insert_with(|| self.filler.0.lock());
        inside.places[place] = Place::Ready(result);
    }

    /// Puts the error into those of the places that are not filled.
    pub fn fail(&mut self, places: RangeInclusive<usize>, error: Error) {
        let inside = self.inside.get_or_insert_with(|| self.filler.0.lock());
        for place in &mut inside.places[places] {
            if matches!(place, Place::Waiting) {
                *place = Place::Ready(Err(error));
            }
        }
    }
}

impl<T> Drop for Filling<'_, T> {
    fn drop(&mut self) {
        if let Some(inside) = &mut self.inside {
            inside.readers.drain(..).for_each(wake_in_turn);
        }
    }
}

impl<T> Drop for Filler<T> {
    fn drop(&mut self) {
        let mut inside = self.0.lock();
        let mut lost = false;
        for place in &mut inside.places {
            if matches!(place, Place::Waiting) {
                *place = Place::Ready(Err(Error::operation_cancelled));
                lost = true;
            }
        }
        let readers = std::mem::take(&mut inside.readers);
        drop(inside);
        if lost {
            readers.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::wake_all;

    #[test]
    fn places_are_filled_one_by_one_and_the_rest_at_the_end() {
        let mut context = Context::from_waker(Waker::noop());
        let (filler, group) = group();
        let (first, second) = (group.add(), group.add());
        assert!(matches!(
            group.poll(first, &mut context),
            (Poll::Pending, false)
        ));
        let filler = filler.send();
        assert!(matches!(
            group.poll(second, &mut context),
            (Poll::Pending, true)
        ));
        filler.filling().fill(second, Ok(7));
        assert!(wake_all() && !wake_all());
        assert_eq!(group.poll(second, &mut context).0, Poll::Ready(Ok(7)));
        assert!(group.poll(first, &mut context).0.is_pending());
        let third = group.add();
        filler
            .filling()
            .fail(second..=third, Error::transaction_cancelled);
        let failed = Poll::Ready(Err(Error::transaction_cancelled));
        assert_eq!(group.poll(third, &mut context).0, failed);
        drop(filler);
        let lost = Poll::Ready(Err(Error::operation_cancelled));
        assert_eq!(group.poll(first, &mut context).0, lost);
    }
}
