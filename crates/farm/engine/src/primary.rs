//! A participant as a primary: locks, new versions, cells for new objects (§4.2, 4.4, 4.8).

use crate::core::{Core, Parked};
use crate::ledger::{Former, Locked};
use crate::settings::Policy;
use crate::wire::{Change, Lock, Message, Number, Write};
use plinth_farm_fabric::Machine;
use plinth_farm_memory::{Abort, Cell, Class, Header, Older, Pointer, Region, TIMESTAMP_MAX};
use plinth_runtime::{nobody_has_lied, now, probe, trace_warn};

/// Why a lock was not granted.
enum Denied {
    Refused(Abort),
    /// There is no memory for the old version. There may be later.
    NoRoom,
}

/// Whether a transaction with this snapshot may replace the version.
fn may_replace(header: Header, change: Change, read_at: u64) -> Result<(), Abort> {
    if header.is_locked() {
        return Err(Abort::Conflict);
    }
    match change {
        // Whatever was there before was freed: the timestamp will be later.
        Change::Allocate => match header.is_allocated() {
            true => Err(Abort::Conflict),
            false => Ok(()),
        },
        // A version at or below the snapshot is the one that was read, or would have been.
        Change::Update | Change::Free if header.timestamp() > read_at => Err(Abort::Conflict),
        Change::Update | Change::Free if !header.is_allocated() => Err(Abort::NotAllocated),
        Change::Update | Change::Free => Ok(()),
    }
}

/// The cell of an object that was locked when it had this header.
fn locked_cell(region: &Region, at: Pointer, header: Header) -> Option<Cell<'_>> {
    let cell = region.cell(at).ok();
    cell.filter(|cell| cell.header() == header.locked())
}

impl Core {
    /// Locks all objects of the transaction, or none, and answers its coordinator.
    pub fn lock(&self, coordinator: Machine, lock: Lock) {
        let number = lock.number;
        match self.try_lock(coordinator, lock) {
            Ok(newest) => self.answer_lock(coordinator, number, Ok(newest)),
            Err((_, Denied::Refused(abort))) => {
                self.answer_lock(coordinator, number, Err(abort));
            }
            Err((lock, Denied::NoRoom)) => {
                probe!("farm writer blocked");
                self.parked.borrow_mut().push(Parked {
                    coordinator,
                    lock,
                    until: now() + self.settings.block,
                });
            }
        }
    }

    /// Tries again the locks for which there was no memory.
    pub fn retry_parked(&self) {
        let parked = std::mem::take(&mut *self.parked.borrow_mut());
        for Parked {
            coordinator,
            lock,
            until,
        } in parked
        {
            let number = lock.number;
            match self.try_lock(coordinator, lock) {
                Ok(newest) => self.answer_lock(coordinator, number, Ok(newest)),
                Err((_, Denied::Refused(abort))) => {
                    self.answer_lock(coordinator, number, Err(abort));
                }
                Err((lock, Denied::NoRoom)) if now() < until => {
                    self.parked.borrow_mut().push(Parked {
                        coordinator,
                        lock,
                        until,
                    });
                }
                Err((_, Denied::NoRoom)) => {
                    probe!("farm writer refused after it was blocked");
                    self.answer_lock(coordinator, number, Err(Abort::Full));
                }
            }
        }
    }

    fn try_lock(&self, coordinator: Machine, lock: Lock) -> Result<u64, (Lock, Denied)> {
        let mut ledger = self.ledger.borrow_mut();
        let account = ledger.of(coordinator);
        let known = account.and_then(|account| account.entry(lock.number));
        let Some(known) = known.filter(|known| known.locked.is_none()) else {
            // A transaction that has ended, or has its locks: nobody asks for that.
            return Err((lock, Denied::Refused(Abort::Conflict)));
        };
        let mut former = Vec::with_capacity(lock.writes.len());
        for write in &lock.writes {
            match self.lock_one(write, lock.read_at) {
                Ok(one) => former.push(one),
                Err(denied) => {
                    self.release((coordinator, lock.number), &lock.writes, former);
                    let account = ledger.of(coordinator);
                    account.and_then(|account| account.forget_unless_logged(lock.number));
                    return Err((lock, denied));
                }
            }
        }
        let newest = former.iter().map(|former| former.header.timestamp()).max();
        known.regions = lock.regions;
        known.locked = Some(Locked {
            writes: lock.writes,
            former,
            committed: None,
        });
        Ok(newest.unwrap_or(0))
    }

    fn lock_one(&self, write: &Write, read_at: u64) -> Result<Former, Denied> {
        let locked = self.store.with_primary(write.at.region(), |region| {
            let cell = region
                .cell(write.at)
                .map_err(|_| Denied::Refused(Abort::NotAllocated))?;
            let header = cell.header();
            if cell.is_away() {
                probe!("farm lock of an object that is away");
                self.want(write.at, self.own);
                return Err(Denied::Refused(Abort::Conflict));
            }
            may_replace(header, write.change, read_at).map_err(Denied::Refused)?;
            if !cell.lock(header) {
                return Err(Denied::Refused(Abort::Conflict));
            }
            // Before the first version there was nothing.
            if header.timestamp() == 0 || self.store.policy == Policy::SingleVersion {
                return Ok(Former { header, kept: None });
            }
            let mut old = self.store.old.borrow_mut();
            let kept = old.keep(cell);
            if kept.is_some() || self.store.policy == Policy::MvTruncate {
                return Ok(Former { header, kept });
            }
            cell.unlock(header);
            // One that is larger than a block finds no room later either.
            let may_come = old.room_after(write.at.class()).is_some() || old.blocks().undecided > 0;
            match self.store.policy == Policy::MvBlock && may_come {
                true => Err(Denied::NoRoom),
                false => Err(Denied::Refused(Abort::Full)),
            }
        });
        // The coordinator's configuration is not this one.
        locked.unwrap_or(Err(Denied::Refused(Abort::Failed)))
    }

    /// Ends locks without effect. `former` may be of the first writes only.
    fn release(
        &self,
        (coordinator, number): (Machine, Number),
        writes: &[Write],
        former: Vec<Former>,
    ) {
        for (write, former) in writes.iter().zip(former) {
            let unlocked = self.store.with_primary(write.at.region(), |region| {
                let cell = locked_cell(region, write.at, former.header)?;
                cell.unlock(former.header);
                Some(())
            });
            if unlocked.flatten().is_none() {
                self.miss_lock(coordinator, number, write.at, former.header);
            }
            if let Some(kept) = former.kept {
                self.store.old.borrow_mut().abort(kept);
            }
        }
    }

    /// The transaction has no effect.
    pub fn unlock(&self, coordinator: Machine, number: Number) {
        let locked = {
            let mut ledger = self.ledger.borrow_mut();
            let account = ledger.of(coordinator);
            account.and_then(|account| account.unlock(number))
        };
        if let Some(locked) = locked {
            self.release((coordinator, number), &locked.writes, locked.former);
        }
    }

    /// An object that is locked here is not, or not there any more. A lock keeps its slab, and its configuration its
    /// primary, unless a member says what none says. The write is here as if it had never been, and on other machines
    /// it is.
    fn miss_lock(&self, coordinator: Machine, number: Number, at: Pointer, header: Header) {
        let by = coordinator.0;
        assert!(
            !nobody_has_lied(),
            "{at:?} was locked at {header:?} for transaction {number} of machine {by}, and its lock is gone"
        );
        trace_warn!("FarmLockIsGone", "object" => format!("{at:?}"), "number" => number, "by" => by);
    }

    /// Installs the new versions and ends the locks.
    pub fn commit_primary(&self, coordinator: Machine, number: Number, written_at: u64) {
        let mut ledger = self.ledger.borrow_mut();
        let known = ledger
            .of(coordinator)
            .and_then(|account| account.get_mut(number));
        let Some(locked) = known.and_then(|known| known.locked.as_mut()) else {
            return;
        };
        // No coordinator says a time that is not after all that the transaction replaces.
        let is_after = |former: &Former| former.header.timestamp() < written_at;
        let is_time = written_at <= TIMESTAMP_MAX && locked.former.iter().all(is_after);
        if locked.committed.is_some() || !is_time {
            return;
        }
        locked.committed = Some(written_at);
        self.store.installed(written_at);
        for (write, former) in locked.writes.iter().zip(&mut locked.former) {
            let older = match &former.kept {
                Some(kept) => kept.older(),
                // A snapshot below sees that there was nothing, and does not take it for lost.
                None if former.header.timestamp() == 0 => Older::NEVER,
                None => Older::NONE,
            };
            let is_allocated = write.change != Change::Free;
            let installed = self.store.with_primary(write.at.region(), |region| {
                let cell = locked_cell(region, write.at, former.header)?;
                cell.install(written_at, is_allocated, older, &write.payload);
                Some(())
            });
            if installed.flatten().is_none() {
                self.miss_lock(coordinator, number, write.at, former.header);
            }
            if let Some(kept) = former.kept.take() {
                self.store.old.borrow_mut().commit(kept, written_at);
            }
            if write.change == Change::Free {
                let given_back = self.give_back(write.at);
                // Unless somebody has made the object without a reservation.
                assert!(
                    given_back == Some(Ok(())) || !nobody_has_lied(),
                    "the cell of {:?}, which is freed at {written_at}, cannot be given back: {given_back:?}",
                    write.at
                );
            }
        }
    }

    // ---- cells for new objects ----

    /// A cell of a region of which this machine is the primary.
    pub fn reserve(&self, region: u16, class: Class) -> Option<Pointer> {
        let reserved = self.store.with_slabs(region, |slabs| slabs.reserve(class));
        reserved.flatten().map(|(at, _)| at)
    }

    /// The object was freed, or its reservation came to nothing. `None` if this machine is not its primary. Who gives
    /// back what another machine says does nothing with an error.
    pub fn give_back(&self, at: Pointer) -> Option<Result<(), plinth_farm_memory::Error>> {
        let time = self.store.newest();
        let released = self
            .store
            .with_slabs(at.region(), |slabs| slabs.release(at, time));
        if released.is_some_and(|released| released.is_err()) {
            probe!("farm cell given back twice");
        }
        released
    }

    /// Asks backups to free the slabs that nobody needs any more.
    pub fn reuse_slabs(&self, safe: u64) {
        let view = self.view();
        for region in self.store.primaries() {
            let slabs = self.store.with_slabs(region, |slabs| slabs.reuse(safe));
            let backups = view
                .replicas(region)
                .map_or(&[][..], |replicas| &replicas.backups);
            for slab in slabs.unwrap_or_default() {
                probe!("farm slab leaves its class");
                let machines = backups.iter().map(|place| place.machine).collect();
                self.store
                    .leaving
                    .borrow_mut()
                    .insert((region, slab), machines);
                let at = self.newest_in(region, slab);
                for backup in backups {
                    let free = Message::FreeSlab { region, slab, at };
                    self.post.push(backup.machine, free, None);
                }
                self.slab_is_free(self.own, region, slab);
            }
        }
    }

    /// A backup has freed the slab, or there is none.
    pub fn slab_is_free(&self, by: Machine, region: u16, slab: u32) {
        let mut leaving = self.store.leaving.borrow_mut();
        let Some(open) = leaving.get_mut(&(region, slab)) else {
            return;
        };
        open.retain(|machine| *machine != by);
        if open.is_empty() {
            leaving.remove(&(region, slab));
            self.keep_free(region, slab, 0);
            let freed = self.store.with_slabs(region, |slabs| slabs.put_free(slab));
            assert!(
                freed == Some(Ok(())),
                "slab {slab} of region {region} was leaving, and cannot be free: {freed:?}"
            );
        }
    }
}
