//! The tasks that wait for the disk: one for the journal, one for the backup.

use super::record::Entry;
use super::{
    DISK_HANG_SECONDS, Durable, Item, JOURNAL_BYTES, LINE_BYTES_MAX, TIME_AHEAD_SECONDS, Waiter,
};
use crate::recovery::Below;
use crate::site::Site;
use crate::wire::{Message, Number};
use plinth_farm_disk::{Backup, Error, Position, Version};
use plinth_farm_fabric::{Fabric, Machine};
use plinth_farm_memory::{Pointer, Region, Seen, TIMESTAMP_MAX};
use plinth_farm_time::Clock;
use plinth_runtime::disk::{Health, Trouble};
use plinth_runtime::{
    Duration, TaskGroup, now, planted, probe, race, sleep, trace, trace_warn, yield_now,
};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::rc::Rc;

/// A disk that is full or slow is tried again after this time.
const PAUSE: Duration = Duration::from_millis(50);
/// So many transactions are acknowledged in one message.
const NUMBERS_MAX: usize = 1000;
/// After so many items of a line that does not end, the journal may be cut.
const ITEMS_A_CUT: u64 = 1000;
/// So many objects of a replica that was copied go to the backup in one turn.
const OBJECTS_A_TURN: u32 = 256;

impl Durable {
    /// Appends what the journal had no room for. Error: for good.
    fn append_rest(&self) -> Result<(), Error> {
        let mut unwritten = self.unwritten.borrow_mut();
        while let Some(bytes) = unwritten.front() {
            match self.journal.append(bytes.clone()) {
                Ok(_) => {
                    unwritten.pop_front();
                }
                Err(Error::Full { .. } | Error::Refused { .. }) => {
                    probe!("farm journal has no room");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn wait_for_room(&self) {
        self.full_at.set(Some(now()));
        sleep(PAUSE).await;
    }

    /// Returns when an operation on the disk does not come back, with what is to be said of it.
    async fn hangs(&self) -> String {
        let limit = Duration::from_secs_f64(DISK_HANG_SECONDS.get());
        let mut did_hang = false;
        loop {
            sleep(limit / 4).await;
            // Operations that fail are the business of who waits for them.
            let trouble = |health: &Health| health.trouble(limit, health.failures());
            let mut troubles = self.healths.iter().filter_map(trouble);
            let hangs = troubles.find(|trouble| matches!(trouble, Trouble::Hangs(_)));
            match hangs {
                // A process that was stopped finds old operations, which come back as soon as it runs.
                Some(hangs) if did_hang => return format!("the disk does not answer: {hangs}"),
                hangs => did_hang = hangs.is_some(),
            }
        }
    }

    /// Waits until the disk has what the first waiter waits for. Returns up to where it has everything.
    async fn next_on_disk(&self) -> Result<Position, Error> {
        loop {
            self.append_rest()?;
            let first = self.waiters.borrow().front().map(|(first, ..)| *first);
            match first {
                None => self.waiter.notified().await,
                Some(first) if first >= self.journal.end() => self.wait_for_room().await,
                Some(first) => match self.journal.durable(first).await {
                    Ok(durable) => return Ok(durable.below),
                    Err(full) if full.is_full() => self.wait_for_room().await,
                    Err(error) => return Err(error),
                },
            }
        }
    }

    fn waiters_below(&self, position: Position) -> Vec<(u64, Waiter)> {
        let mut waiters = self.waiters.borrow_mut();
        let count = waiters.partition_point(|(at, ..)| *at < position);
        let served = waiters.drain(..count);
        served.map(|(_, number, waiter)| (number, waiter)).collect()
    }

    /// The objects of a region, with timestamps and payloads of whole cells, when the line is empty.
    pub async fn objects(&self, region: u16) -> Result<Vec<(Pointer, u64, Vec<u8>)>, Error> {
        while !self.line.borrow().is_empty() {
            self.done.notified().await;
        }
        let mut objects = BTreeMap::new();
        let mut scan = self.backup.scan(region);
        while let Some(versions) = scan.next().await? {
            for version in versions {
                objects.insert(version.pointer.word(), version);
            }
        }
        let allocated = objects.into_values().filter(|version| version.is_allocated);
        let object = |version: Version| {
            let mut payload = version.payload.to_vec();
            payload.resize(version.pointer.class().payload_bytes(), 0);
            (version.pointer, version.timestamp, payload)
        };
        Ok(allocated.map(object).collect())
    }

    /// Waits until the line has room for what is not urgent.
    pub async fn until_half_done(&self) {
        while self.line_bytes.get() > LINE_BYTES_MAX.get() / 2 {
            self.done.notified().await;
        }
    }

    /// The first item of the line, which stays there until the backup has it.
    async fn next_item(&self) -> Rc<Item> {
        loop {
            if let Some(item) = self.line.borrow().front() {
                return item.clone();
            }
            self.item.notified().await;
        }
    }

    /// Does `work` until the disk has room for it.
    async fn with_room<T>(
        &self,
        mut work: impl AsyncFnMut(&Backup) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            match work(&self.backup).await {
                Err(full) if full.is_full() => {
                    probe!("farm backup has no room");
                    self.wait_for_room().await;
                }
                done => return done,
            }
        }
    }

    /// Waits until the journal has the entry at `position` on disk, also if that is full for a while.
    async fn on_disk(&self, position: Position) -> Result<(), Error> {
        while position >= self.journal.end() {
            self.append_rest()?;
            self.wait_for_room().await;
        }
        loop {
            match self.journal.durable(position).await {
                Ok(_) => return Ok(()),
                Err(full) if full.is_full() => self.wait_for_room().await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves the mark of time on before time comes to it.
    async fn mark_time(&self, clock: &Clock) -> Error {
        let ahead = Duration::from_secs_f64(TIME_AHEAD_SECONDS.get());
        loop {
            if let Ok(now) = clock.time() {
                let ahead = ahead.as_nanos() as u64;
                if now.upper.saturating_add(ahead / 2) > self.time_mark.get() {
                    let mark = now.upper.saturating_add(ahead).min(TIMESTAMP_MAX);
                    let position = self.append(&Entry::Time(mark));
                    if let Err(error) = self.on_disk(position).await {
                        return error;
                    }
                    let before = self.time_mark.replace(mark);
                    assert!(
                        before <= mark,
                        "the mark of time goes back from {before} to {mark}"
                    );
                }
            }
            race(self.time_wanted.notified(), sleep(ahead / 4)).await;
        }
    }

    /// Cuts off the journal what the backup has. `below`: what is settled, of each coordinator.
    async fn cut(&self, below: Vec<Below>) -> Result<(), Error> {
        let position = self.settled_below(&below);
        if position <= self.cut.get() {
            return Ok(());
        }
        let synced = self.with_room(async |backup| backup.sync().await).await?;
        let below = match planted!(
            "farm_journal_is_cut_without_a_mark",
            "what is cut off the journal was never there, for who reads it"
        ) {
            true => Vec::new(),
            false => below,
        };
        self.append(&Entry::Time(self.time_mark.get()));
        let mark = self.append(&Entry::Below(below));
        self.on_disk(mark).await?;
        self.journal.truncate_below(position, synced);
        self.cut.set(position);
        Ok(())
    }
}

impl<F: Fabric + 'static> Site<F> {
    /// Begins what waits for the disk, if there is one.
    pub fn write_disk(self: &Rc<Self>, group: &TaskGroup) {
        if self.core.durable.is_none() {
            return;
        }
        let site = self.clone();
        group.spawn("farm journal", async move {
            if let Some(durable) = &site.core.durable {
                let failed = site.acknowledge(durable).await;
                site.fail_disk(&failed);
            }
        });
        let site = self.clone();
        group.spawn("farm backup", async move {
            if let Some(durable) = &site.core.durable {
                let failed = site.fill_backup(durable).await;
                site.fail_disk(&failed);
            }
        });
        let site = self.clone();
        group.spawn("farm time mark", async move {
            if let Some(durable) = &site.core.durable {
                let failed = durable.mark_time(&site.core.clock).await;
                site.fail_disk(&failed);
            }
        });
        let site = self.clone();
        group.spawn("farm disk watch", async move {
            if let Some(durable) = &site.core.durable {
                let hangs = durable.hangs().await;
                site.fail_disk(&hangs);
            }
        });
        let site = self.clone();
        group.spawn("farm cleaner", async move {
            if let Some(durable) = &site.core.durable {
                let failed = durable.backup.clean_forever().await;
                site.fail_disk(&failed);
            }
        });
    }

    /// The machine cannot go on with what it has.
    pub fn fail_disk(&self, why: &dyn Display) {
        let why = why.to_string();
        trace_warn!("FarmDiskFailed", "machine" => self.core.own.0, "why" => why);
        self.core.stage.leave();
        if let Some(links) = &self.links {
            links.disk_failed(why);
        }
    }

    async fn acknowledge(self: &Rc<Self>, durable: &Durable) -> Error {
        loop {
            let below = match durable.next_on_disk().await {
                Ok(below) => below,
                Err(error) => return error,
            };
            // A backup that is far behind holds up commits, so that the line does not grow.
            while durable.line_bytes.get() > LINE_BYTES_MAX.get() {
                probe!("farm backup holds up commits");
                durable.done.notified().await;
            }
            let mut kept: BTreeMap<Machine, Vec<Number>> = BTreeMap::new();
            for (configuration, waiter) in durable.waiters_below(below) {
                match waiter {
                    Waiter::Known => self.say_known(configuration),
                    Waiter::Settled { region } => self.say_redone(configuration, region),
                    Waiter::Commit {
                        coordinator,
                        number,
                    } if self.core.stage.has_begun(configuration) => {
                        kept.entry(coordinator).or_default().push(number);
                    }
                    Waiter::Commit { .. } => probe!("farm commit kept for a former configuration"),
                }
            }
            for (machine, numbers) in kept {
                self.say_kept(machine, &numbers);
            }
        }
    }

    fn say_kept(&self, coordinator: Machine, numbers: &[Number]) {
        if coordinator == self.core.own {
            return self.core.kept(numbers, coordinator);
        }
        for numbers in numbers.chunks(NUMBERS_MAX) {
            let numbers = numbers.to_vec();
            let kept = Message::Kept { numbers };
            self.core.post.push(coordinator, kept, None);
        }
    }

    async fn fill_backup(&self, durable: &Durable) -> Error {
        let mut taken = 0u64;
        loop {
            let item = durable.next_item().await;
            if let Err(error) = self.take_item(durable, &item).await {
                return error;
            }
            durable.has_taken(&item);
            taken += 1;
            let is_turn = taken.is_multiple_of(ITEMS_A_CUT) || durable.line_bytes.get() == 0;
            let is_long = durable.journal.bytes() > JOURNAL_BYTES.get() as u64;
            if is_turn && is_long && self.core.stage.number().is_some() {
                let below = self.core.belows();
                if let Err(error) = durable.cut(below).await {
                    return error;
                }
            }
        }
    }

    async fn take_item(&self, durable: &Durable, item: &Item) -> Result<(), Error> {
        match item {
            Item::Apply { versions, .. } => {
                let apply = async |backup: &Backup| backup.apply(versions).await;
                durable.with_room(apply).await?;
            }
            Item::Free { freed, .. } => {
                let word = self.core.store.shape.slab_word(freed.slab);
                durable.backup.free_slab(freed.region, word, freed.at)?;
            }
            Item::Clear { region, .. } => durable.backup.drop_region(*region),
            Item::Safe(safe) => durable.backup.set_safe_point(*safe),
            Item::Copied(versions) => {
                let copy = async |backup: &Backup| backup.copy(versions).await;
                durable.with_room(copy).await?;
            }
            Item::Whole {
                configuration,
                region,
            } => {
                durable
                    .with_room(async |backup| backup.sync().await)
                    .await?;
                trace!("FarmReplicaOnDisk", "number" => *configuration, "region" => *region);
                self.say_whole(*configuration, *region);
            }
        }
        Ok(())
    }

    /// The replica here has all objects in memory. It is whole when the backup has them too. Objects are read when
    /// they join the line, so that the backup takes in all changes of a slab in the order in which the memory did.
    pub async fn copy_to_disk(&self, durable: &Durable, configuration: u64, region: u16) {
        // One that is on disk only has given them to the backup as they came.
        let slabs = match self.core.store.is_on_disk {
            true => 0..0,
            false => 0..self.core.store.shape.slabs(),
        };
        for slab in slabs {
            let mut next = Some(0);
            while let Some(first) = next {
                durable.until_half_done().await;
                let read = |region: &Region| versions_of(region, slab, first);
                let (versions, rest) = self.core.store.with(region, read).unwrap_or_default();
                if !versions.is_empty() {
                    durable.push(Item::Copied(versions));
                }
                next = rest;
                yield_now().await;
            }
        }
        durable.push(Item::Whole {
            configuration,
            region,
        });
    }
}

/// Some versions of a slab, of freed objects too, and the cell that comes next.
fn versions_of(region: &Region, slab: u32, first: u32) -> (Vec<Version>, Option<u32>) {
    let Some(class) = region.slab_class(slab) else {
        return (Vec::new(), None);
    };
    let cells = region.shape().cells(class);
    let end = first.saturating_add(OBJECTS_A_TURN).min(cells);
    let version = |index: u32| {
        let pointer = region.shape().pointer(region.number(), class, slab, index);
        let Seen::Version {
            header, payload, ..
        } = region.cell(pointer).ok()?.read()
        else {
            // A replica that is not whole is nobody's primary, so nobody locks it.
            return None;
        };
        (header.timestamp() > 0).then_some(Version {
            pointer,
            timestamp: header.timestamp(),
            is_allocated: header.is_allocated(),
            payload,
        })
    };
    let versions = (first..end).filter_map(version).collect();
    (versions, (end < cells).then_some(end))
}
