//! What is wrong with the disk of a simulated machine.

use crate::random;
use crate::sync::Notify;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// What a disk does instead of what it is told. By default nothing is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sickness {
    /// Of a million reads, writes and syncs, so many fail.
    pub read_errors_ppm: u32,
    pub write_errors_ppm: u32,
    pub sync_errors_ppm: u32,
    /// Whatever changes something fails.
    pub read_only: bool,
    pub hangs: Hang,
    /// Syncs of such files, and of their names, return and make nothing durable.
    pub lies: &'static [Lie],
    /// [`heal_all`](super::Control::heal_all) leaves it as it is.
    pub for_good: bool,
}

/// What does not come back until the disk is well again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Hang {
    #[default]
    Nothing,
    Syncs,
    Everything,
}

/// Files about which a disk lies: a power cut may take what it said was durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lie {
    /// Their names begin with this,
    pub begin: &'static str,
    /// and have this in them.
    pub with: &'static str,
    /// What is lost of one is what was written last; else each write may be lost by itself.
    pub in_order: bool,
}

impl Lie {
    pub fn is_about(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(self.begin) && name.contains(self.with)
    }
}

/// What is asked of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Read = 1,
    Write = 2,
    Sync = 3,
}

impl Sickness {
    /// Every operation fails with this probability.
    pub fn errors(probability: f64) -> Sickness {
        let ppm = (probability * 1e6) as u32;
        Sickness {
            read_errors_ppm: ppm,
            write_errors_ppm: ppm,
            sync_errors_ppm: ppm,
            ..Sickness::default()
        }
    }

    fn strikes(&self, operation: Operation) -> io::Result<()> {
        if self.read_only && operation != Operation::Read {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let ppm = match operation {
            Operation::Read => self.read_errors_ppm,
            Operation::Write => self.write_errors_ppm,
            Operation::Sync => self.sync_errors_ppm,
        };
        if ppm > 0 && random::below(1_000_000) < u64::from(ppm) {
            return Err(io::Error::other("simulated I/O error"));
        }
        Ok(())
    }

    fn holds(&self, operation: Operation) -> bool {
        match self.hangs {
            Hang::Nothing => false,
            Hang::Syncs => operation == Operation::Sync,
            Hang::Everything => true,
        }
    }
}

/// Shared with the disk's blocking files, hence atomics.
pub(super) struct DiskFaults {
    pub is_full: AtomicBool,
    pub slowness: AtomicU32,
    sickness: Mutex<Sickness>,
}

impl Default for DiskFaults {
    fn default() -> Self {
        DiskFaults {
            is_full: AtomicBool::new(false),
            slowness: AtomicU32::new(1),
            sickness: Mutex::default(),
        }
    }
}

impl DiskFaults {
    fn sickness(&self) -> MutexGuard<'_, Sickness> {
        self.sickness.lock().expect("no panic while it is held")
    }

    /// Whoever waits for the disk looks again.
    pub fn set(&self, sickness: Sickness, changed: &Notify) {
        *self.sickness() = sickness;
        changed.notify_all();
    }

    /// What a healer can do.
    pub fn heal(&self, changed: &Notify) {
        self.is_full.store(false, Ordering::Relaxed);
        self.slowness.store(1, Ordering::Relaxed);
        self.end_sickness(changed);
    }

    pub fn end_sickness(&self, changed: &Notify) {
        if !self.sickness().for_good {
            self.set(Sickness::default(), changed);
        }
    }

    /// Fails when the disk feels like it.
    pub fn strike(&self, operation: Operation) -> io::Result<()> {
        let sickness = *self.sickness();
        sickness.strikes(operation)
    }

    pub fn lie_about(&self, path: &Path) -> Option<Lie> {
        let lies = self.sickness().lies;
        lies.iter().find(|lie| lie.is_about(path)).copied()
    }

    pub async fn wait_while_it_hangs(&self, operation: Operation, changed: &Notify) {
        while self.sickness().holds(operation) {
            changed.notified().await;
        }
    }
}
