//! A bell: one who sleeps is woken by another process of the machine.
//!
//! Promises: a ring that comes after the last return of [`Bell::rung`] ends the next one, also if nobody waits yet.
//! Several rings may count as one, and `rung` may return without any. To ring never waits, and harms nobody: neither
//! who rings nor who is dead.

use crate::{buggify, real, sim};
use std::io;
use std::path::Path;

/// The side that is woken. It belongs to the thread that has hung it.
pub struct Bell(AnyBell);

enum AnyBell {
    Real(real::bell::Bell),
    Sim(sim::bell::Bell),
}

/// The side that wakes.
pub struct Rope(AnyRope);

enum AnyRope {
    Real(real::bell::Rope),
    Sim(sim::bell::Rope),
}

impl Bell {
    /// Makes the bell `path`, or takes over the one that is there. Only its user may use it (mode 0600).
    ///
    /// Errors: `InvalidData` if something else is there, and those of the system.
    pub async fn hang(path: &Path) -> io::Result<Bell> {
        Ok(Bell(match sim::current() {
            Some(world) => AnyBell::Sim(world.hang_bell(path)),
            None => AnyBell::Real(real::bell::hang(path).await?),
        }))
    }

    /// Returns after a ring. Several tasks may wait; each of them is woken. It may be dropped at any time.
    pub async fn rung(&self) {
        if buggify!() {
            return crate::yield_now().await;
        }
        match &self.0 {
            AnyBell::Real(bell) => bell.rung().await,
            AnyBell::Sim(bell) => bell.rung().await,
        }
    }
}

impl Rope {
    /// Finds a bell that a process of this machine has hung. That process may be dead.
    ///
    /// Errors: `NotFound`, `InvalidData` if it is no bell, and those of the system.
    pub async fn find(path: &Path) -> io::Result<Rope> {
        Ok(Rope(match sim::current() {
            Some(world) => AnyRope::Sim(world.find_rope(path)?),
            None => AnyRope::Real(real::bell::find(path).await?),
        }))
    }

    pub fn ring(&self) {
        match &self.0 {
            AnyRope::Real(rope) => rope.ring(),
            AnyRope::Sim(rope) => rope.ring(),
        }
    }
}
