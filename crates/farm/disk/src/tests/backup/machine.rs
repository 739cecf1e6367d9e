//! One life of the machine.

use super::model::{Model, Record, Slab, count, slab_of, word};
use crate::{Backup, Error, Journal, Layout, Position, Version};
use plinth_farm_memory::Pointer;
use plinth_runtime::{Duration, TaskGroup, disk, random, sleep, timeout};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

const ID: u64 = 11;

struct Machine {
    model: Rc<Model>,
    journal: Journal,
    backup: Backup,
    /// Timestamps of transactions that are not applied yet.
    active: RefCell<BTreeSet<u64>>,
    /// The positions of their records.
    positions: RefCell<BTreeSet<Position>>,
}

fn pause() -> Duration {
    Duration::from_micros(random::below(3000))
}

/// Waits after `Full`, and ends after other errors.
async fn is_worth_another_try(model: &Model, error: Error) -> Option<()> {
    match error {
        Error::Full { .. } => {
            count(&model.fulls);
            sleep(Duration::from_millis(5)).await;
            Some(())
        }
        Error::Failed { .. } => None,
        error => {
            model.violations.say(error.to_string());
            None
        }
    }
}

impl Machine {
    async fn durable(&self, position: Position) -> Option<()> {
        while let Err(error) = self.journal.durable(position).await {
            is_worth_another_try(&self.model, error).await?;
        }
        Some(())
    }

    async fn apply(&self, versions: &[Version]) -> Option<()> {
        if random::chance(0.05) {
            // Left in the middle, and done again.
            let applied = timeout(pause() / 10, self.backup.apply(versions));
            let _ = applied.await;
        }
        while let Err(error) = self.backup.apply(versions).await {
            is_worth_another_try(&self.model, error).await?;
        }
        Some(())
    }

    /// Writes a record to the journal, and says that it is there when it is.
    async fn keep(&self, record: &Record) -> Option<Position> {
        let position = loop {
            match self.journal.append(record.encode()) {
                Ok(position) => break position,
                Err(error) => is_worth_another_try(&self.model, error).await?,
            }
        };
        self.positions.borrow_mut().insert(position);
        self.durable(position).await?;
        self.model.acknowledge(record);
        Some(position)
    }

    async fn commit(&self, pointers: Vec<Pointer>, is_allocated: bool) -> Option<()> {
        let timestamp = self.model.next_timestamp();
        self.active.borrow_mut().insert(timestamp);
        let version = |pointer: Pointer| {
            let most = pointer.class().payload_bytes() as u64;
            let mut payload = vec![0; random::below(most + 1) as usize];
            random::fill(&mut payload);
            let is_allocated = is_allocated && random::chance(0.8);
            if !is_allocated {
                payload.clear();
            }
            Version {
                pointer,
                timestamp,
                is_allocated,
                payload: payload.into(),
            }
        };
        let versions: Vec<Version> = pointers.into_iter().map(version).collect();
        versions.iter().for_each(|v| self.model.write(v));
        let record = Record::Versions(versions.clone());
        let position = self.keep(&record).await?;
        count(&self.model.commits);
        sleep(pause()).await;
        self.apply(&versions).await?;
        for version in &versions {
            self.read(version.pointer).await?;
        }
        if random::chance(0.1) {
            self.apply(&versions).await?;
        }
        self.active.borrow_mut().remove(&timestamp);
        self.positions.borrow_mut().remove(&position);
        Some(())
    }

    /// Reads an object of which everything acknowledged was applied.
    async fn read(&self, pointer: Pointer) -> Option<()> {
        // A transaction that is not applied may be acknowledged: it is newer than those that are not active.
        let active = self.active.borrow().first().copied().unwrap_or(u64::MAX);
        let expected = self.model.expected(pointer);
        let least = expected.filter(|newest| *newest < active);
        match self.backup.read(pointer).await {
            Ok(found) => self.model.check(pointer, least, found.as_ref()),
            Err(error) => is_worth_another_try(&self.model, error).await?,
        }
        Some(())
    }

    async fn write(self: Rc<Self>) -> Option<()> {
        while !self.model.is_at_rest.get() {
            let mut pointers = Vec::new();
            for _ in 0..1 + random::below(3) {
                pointers.extend(self.model.any_object());
            }
            pointers.sort_unstable();
            pointers.dedup();
            let slabs: Vec<Slab> = pointers.iter().map(|p| slab_of(*p)).collect();
            self.use_slabs(&slabs, 1);
            self.commit(pointers, true).await?;
            self.use_slabs(&slabs, u64::MAX);
            sleep(pause()).await;
        }
        Some(())
    }

    fn use_slabs(&self, slabs: &[Slab], users: u64) {
        for slab in slabs {
            let mut all = self.model.slabs.borrow_mut();
            let slab = all.get_mut(slab).expect("an object was chosen there");
            slab.users = slab.users.wrapping_add(users);
        }
    }

    /// Frees slabs: first their objects, then, when nobody can read those any more, the slab.
    async fn free(self: Rc<Self>) -> Option<()> {
        loop {
            sleep(10 * pause()).await;
            let at = Model::any_slab();
            let objects = {
                let mut slabs = self.model.slabs.borrow_mut();
                let slab = slabs.entry(at).or_default();
                if slab.objects.is_empty() {
                    continue;
                }
                slab.is_freeing = true;
                slab.objects.clone()
            };
            while self.model.slabs.borrow()[&at].users > 0 {
                sleep(Duration::from_millis(1)).await;
            }
            self.commit(objects, false).await?;
            let timestamp = self.model.next_timestamp();
            let record = Record::Free {
                slab: at,
                at: timestamp,
            };
            let position = self.keep(&record).await?;
            let freed = self.backup.free_slab(at.0, word(at), timestamp);
            if let Err(error) = freed {
                self.model.violations.say(error.to_string());
            }
            self.positions.borrow_mut().remove(&position);
            count(&self.model.freed);
        }
    }

    async fn read_on(self: Rc<Self>) -> Option<()> {
        loop {
            sleep(pause()).await;
            let objects = self.model.objects();
            if !objects.is_empty() {
                let which = random::below(objects.len() as u64) as usize;
                self.read(objects[which]).await?;
            }
        }
    }

    /// Syncs, cuts the journal off, and moves the safe point.
    async fn settle(self: Rc<Self>) -> Option<()> {
        loop {
            sleep(4 * pause()).await;
            let needed = self.positions.borrow().first().copied();
            let needed = needed.unwrap_or(self.journal.end());
            if random::chance(0.1) {
                let _ = timeout(pause(), self.backup.sync()).await;
            }
            match self.backup.sync().await {
                Ok(synced) => self.journal.truncate_below(needed, synced),
                Err(error) => is_worth_another_try(&self.model, error).await?,
            }
            let oldest = self.active.borrow().first().copied();
            let safe = oldest.unwrap_or(self.model.now() + 1);
            self.backup.set_safe_point(safe);
        }
    }

    async fn clean(self: Rc<Self>) -> Option<()> {
        loop {
            sleep(pause()).await;
            if random::chance(0.1) {
                let _ = timeout(pause(), self.backup.clean()).await;
            }
            match self.backup.clean().await {
                Ok(true) => count(&self.model.cleaned),
                Ok(false) => {}
                Err(error) => is_worth_another_try(&self.model, error).await?,
            }
        }
    }

    async fn clean_forever(self: Rc<Self>) -> Option<()> {
        let error = self.backup.clean_forever().await;
        self.model.violations.check(!error.is_full(), || {
            "the cleaner has ended because the disk is full".into()
        });
        is_worth_another_try(&self.model, error).await
    }

    /// Scans a region while transactions go on.
    async fn scan(self: Rc<Self>) -> Option<()> {
        loop {
            sleep(5 * pause()).await;
            let region = random::below(2) as u16;
            let active = self.active.borrow().first().copied().unwrap_or(u64::MAX);
            let objects = self.model.objects().into_iter();
            let least = objects.filter(|p| p.region() == region).map(|pointer| {
                let expected = self.model.expected(pointer);
                (pointer, expected.filter(|newest| *newest < active))
            });
            let least: Vec<_> = least.collect();
            let mut scanned: BTreeMap<Pointer, Version> = BTreeMap::new();
            let mut scan = self.backup.scan(region);
            loop {
                match scan.next().await {
                    Ok(Some(found)) => scanned.extend(found.into_iter().map(|v| (v.pointer, v))),
                    Ok(None) => break,
                    Err(error) => is_worth_another_try(&self.model, error).await?,
                }
            }
            for (pointer, least) in least {
                self.model.check(pointer, least, scanned.get(&pointer));
            }
        }
    }

    /// Reads all objects one by one, and all at once.
    async fn check_all(&self) -> Option<()> {
        let mut scanned: BTreeMap<Pointer, Version> = BTreeMap::new();
        for region in 0..2 {
            let mut scan = self.backup.scan(region);
            loop {
                match scan.next().await {
                    Ok(Some(found)) => scanned.extend(found.into_iter().map(|v| (v.pointer, v))),
                    Ok(None) => break,
                    Err(error) => is_worth_another_try(&self.model, error).await?,
                }
            }
        }
        for pointer in self.model.objects() {
            let expected = self.model.expected(pointer);
            let found = loop {
                match self.backup.read(pointer).await {
                    Ok(found) => break found,
                    Err(error) => is_worth_another_try(&self.model, error).await?,
                }
            };
            self.model.check(pointer, expected, found.as_ref());
            let is_same = scanned.remove(&pointer) == found;
            let violations = &self.model.violations;
            violations.check(is_same, || format!("a scan has found another {pointer:?}"));
        }
        for (pointer, version) in scanned {
            let what = format!("a scan has found {pointer:?} of {}", version.timestamp);
            self.model.violations.say(what);
        }
        Some(())
    }
}

/// Applies what the journal has, as the backup may have it: in any order, some of it twice.
async fn replay(machine: &Machine, mut records: Vec<Record>) -> Option<()> {
    // The freeing of a slab stays between what was there before and what came later.
    let is_free = |record: &Record| matches!(record, Record::Free { .. });
    for part in records.split_inclusive_mut(is_free) {
        let end = part.len() - usize::from(part.last().is_some_and(is_free));
        random::shuffle(&mut part[..end]);
        for record in part {
            match record {
                Record::Versions(versions) => {
                    for _ in 0..1 + random::below(2) {
                        machine.apply(versions).await?;
                    }
                }
                Record::Free { slab, at } => {
                    let freed = machine.backup.free_slab(slab.0, word(*slab), *at);
                    if let Err(error) = freed {
                        machine.model.violations.say(error.to_string());
                    }
                }
            }
        }
    }
    Some(())
}

async fn open(model: &Rc<Model>, layout: Layout) -> Result<(Machine, Vec<Record>), Error> {
    let directory = Path::new("/data");
    let made = disk::create_dir_all(directory).await;
    made.map_err(|e| Error::of(directory, &e))?;
    let mut found = Vec::new();
    let path = directory.join("journal");
    let journal = Journal::open(&path, ID, |_, record| {
        found.push(Record::parse(record));
        Ok(())
    });
    let journal = journal.await?;
    let machine = Machine {
        model: model.clone(),
        backup: Backup::open(directory, ID, layout).await?,
        journal,
        active: RefCell::default(),
        positions: RefCell::default(),
    };
    Ok((machine, found))
}

async fn live_on(model: Rc<Model>, layout: Layout) -> Option<()> {
    model.forget_life();
    let (machine, found) = match open(&model, layout).await {
        Ok(opened) => opened,
        Err(error) => return is_worth_another_try(&model, error).await,
    };
    found.iter().for_each(|record| model.acknowledge(record));
    replay(&machine, found).await?;
    machine.check_all().await?;
    count(&model.recoveries);
    if model.is_at_rest.get() {
        model.has_rested.set(true);
        return Some(());
    }
    let machine = Rc::new(machine);
    let tasks = TaskGroup::new();
    let all = |name, life: std::pin::Pin<Box<dyn Future<Output = Option<()>>>>| {
        tasks.spawn(name, async { life.await.unwrap_or_default() })
    };
    all("write", Box::pin(machine.clone().write()));
    all("free", Box::pin(machine.clone().free()));
    all("read", Box::pin(machine.clone().read_on()));
    all("scan", Box::pin(machine.clone().scan()));
    all("settle", Box::pin(machine.clone().settle()));
    all("clean", Box::pin(machine.clone().clean()));
    all("clean forever", Box::pin(machine.clone().clean_forever()));
    machine.write().await
}

pub async fn live(model: Rc<Model>, layout: Layout) {
    let _ = live_on(model, layout).await;
}
