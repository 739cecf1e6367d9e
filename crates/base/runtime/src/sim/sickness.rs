//! Faults of the disk of a simulated machine.

use crate::random;
use crate::sync::Notify;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The faults of a disk. The default is a healthy disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sickness {
    /// Failures among a million reads, writes and syncs.
    pub read_errors_ppm: u32,
    pub write_errors_ppm: u32,
    pub sync_errors_ppm: u32,
    /// Every operation but a read fails.
    pub read_only: bool,
    pub hangs: Hang,
    /// Syncs of these files, and of their names, return success but make nothing durable.
    pub lies: &'static [Lie],
    /// [`heal_all`](super::Control::heal_all) does not end the sickness.
    pub for_good: bool,
}

/// Operations that do not return until the disk is healthy again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Hang {
    #[default]
    Nothing,
    Syncs,
    Everything,
}

/// Files about which a disk lies: a power cut may lose data that the disk reported as durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lie {
    /// The names of the files begin with this,
    pub begin: &'static str,
    /// and contain this.
    pub with: &'static str,
    /// A power cut loses the newest writes of a file; otherwise it may lose each write separately.
    pub in_order: bool,
}

impl Lie {
    pub fn is_about(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(self.begin) && name.contains(self.with)
    }
}

/// An operation of a disk.
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

/// Faults of one disk. Shared with the disk's blocking files, hence atomics.
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

    /// Sets the sickness. Operations that wait for the disk check again.
    pub fn set(&self, sickness: Sickness, changed: &Notify) {
        *self.sickness() = sickness;
        changed.notify_all();
    }

    /// Ends every fault, except a sickness for good.
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

    /// Fails at random, as the sickness says.
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
