//! Answers of a register, which count only when its disk has them.

use plinth_runtime::disk::Synced;

/// An answer that tells a promise.
#[must_use]
#[derive(Debug)]
pub enum Promise<T> {
    /// Nothing is promised that was not on disk before.
    AsBefore(T),
    New(Unkept<T>),
}

/// An answer that comes out only for the proof that its promise is on disk (pitfall 12).
#[must_use]
#[derive(Debug)]
pub struct Unkept<T>(T);

impl<T> Unkept<T> {
    /// The sync that gave the proof began after the change.
    pub fn on_disk(self, _: Synced) -> T {
        self.0
    }
}

impl<T> Promise<T> {
    pub fn new(answer: T) -> Self {
        Promise::New(Unkept(answer))
    }

    pub fn is_new(&self) -> bool {
        matches!(self, Promise::New(_))
    }

    #[cfg(test)]
    pub fn into_inner(self) -> T {
        match self {
            Promise::AsBefore(answer) | Promise::New(Unkept(answer)) => answer,
        }
    }
}
