//! Random transactions, recorded.

use super::world::{Object, World};
use crate::testing::fabrics::Any;
use crate::{Engine, Options, Transaction};
use bytes::Bytes;
use plinth_farm_judge::{self as judge, Change, Isolation, Outcome, Recording, Seen};
use plinth_farm_memory::{Abort, Objects, Pointer};
use plinth_runtime::{Duration, random, sleep, timeout};
use std::collections::BTreeSet;
use std::rc::Rc;

pub async fn work(world: Rc<World>, engine: Rc<Engine<Any>>) {
    while world.begin_one() {
        sleep(world.latency * random::below(4) as u32).await;
        one(&world, &engine).await;
        world.end_one();
    }
}

fn some_options(world: &World) -> Options {
    let mut options = Options {
        is_serializable: random::chance(0.7),
        is_strict: random::chance(0.7),
        is_read_only: random::chance(0.3),
        at: None,
        will_write: random::chance(0.2),
    };
    let snapshots = world.snapshots.borrow();
    if options.is_read_only && !snapshots.is_empty() && random::chance(0.4) {
        let back = random::below(snapshots.len().min(10) as u64) as usize;
        options.at = Some(snapshots[snapshots.len() - 1 - back]);
    }
    options
}

fn recorded(options: &Options) -> judge::Options {
    judge::Options {
        isolation: match options.is_serializable {
            true => Isolation::Serializable,
            false => Isolation::Snapshot,
        },
        strict: options.is_strict,
        read_only: options.is_read_only,
        stale: options.at.is_some(),
    }
}

/// Whether the transaction may be tried on: it is aborted.
struct Ended;

async fn one(world: &World, engine: &Engine<Any>) {
    let options = some_options(world);
    let machine = engine.machine_number();
    let recording = world.recorder.begin(machine, recorded(&options));
    let transaction = match engine.begin(options).await {
        Ok(transaction) => transaction,
        Err(Abort::NotAllowed) if options.at.is_some() => {
            recording.end(Outcome::Aborted);
            world.aborted(Abort::NotAllowed);
            return;
        }
        Err(abort) => return world.blame(format!("a transaction does not begin: {abort}")),
    };
    recording.started(transaction.read_at());
    world.snapshots.borrow_mut().push(transaction.read_at());
    let mut run = Run {
        world,
        recording,
        transaction,
        is_read_only: options.is_read_only,
        gone: BTreeSet::new(),
        made: Vec::new(),
        freed: Vec::new(),
    };
    for _ in 0..1 + random::below(6) {
        if run.step().await.is_err() {
            run.freed.iter().for_each(|object| world.not_freed(object));
            run.recording.end(Outcome::Aborted);
            return;
        }
        if random::chance(0.2) {
            sleep(world.latency * random::below(6) as u32).await;
        }
    }
    run.commit().await;
}

struct Run<'a> {
    world: &'a World,
    recording: Recording,
    transaction: Transaction<Any>,
    is_read_only: bool,
    /// Made and freed by this transaction: they are nothing to the history.
    gone: BTreeSet<Pointer>,
    made: Vec<Pointer>,
    freed: Vec<Object>,
}

impl Run<'_> {
    fn seen(&self, at: Pointer, seen: Seen) {
        self.recording.read(at.bits(), seen);
    }

    /// What an error of a call means.
    fn judge(&self, at: Pointer, abort: Abort) -> Result<(), Ended> {
        match abort {
            Abort::NotAllocated => {
                self.seen(at, Seen::Absent);
                Ok(())
            }
            Abort::Conflict | Abort::TooOld | Abort::Full => {
                self.world.aborted(abort);
                Err(Ended)
            }
            abort => {
                self.world.blame(format!("{at:?}: {abort}"));
                Err(Ended)
            }
        }
    }

    async fn step(&mut self) -> Result<(), Ended> {
        let some = self.world.some_object();
        let object = match some.filter(|object| !self.gone.contains(&object.at)) {
            Some(object) => object,
            None if self.is_read_only => return Ok(()),
            None => return self.allocate().await,
        };
        let at = object.at;
        match random::below(if self.is_read_only { 4 } else { 10 }) {
            0..4 => self.read(at).await.map(|_| ()),
            4..7 => {
                // Most know better than to write to nothing.
                match self.read(at).await? || random::chance(0.1) {
                    true => self.write(at).await,
                    false => Ok(()),
                }
            }
            7 if random::chance(0.3) => self.write(at).await,
            7 | 8 => self.free(object).await,
            _ => self.allocate().await,
        }
    }

    /// Whether there is an object.
    async fn read(&self, at: Pointer) -> Result<bool, Ended> {
        let payload = match self.transaction.read(at).await {
            Ok(payload) => payload,
            Err(abort) => return self.judge(at, abort).map(|()| false),
        };
        let of = |from: usize| {
            let word = payload
                .get(from..from + 8)
                .and_then(|word| word.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        };
        // Its last word repeats the first, so that a torn one would be seen.
        let last = at.class().payload_bytes() - 8;
        if payload.len() != last + 8 || of(0) != of(last) {
            self.world.blame(format!("{at:?} is torn: {payload:?}"));
        }
        self.seen(at, Seen::Of(of(0)));
        Ok(true)
    }

    fn value(&self, at: Pointer) -> Bytes {
        let words = at.class().payload_bytes() / 8;
        self.recording.id().to_le_bytes().repeat(words).into()
    }

    async fn write(&self, at: Pointer) -> Result<(), Ended> {
        match self.transaction.write(at, self.value(at)).await {
            Ok(()) => {
                self.recording.write(at.bits(), Change::Set);
                Ok(())
            }
            // It has freed the object itself.
            Err(Abort::NotAllocated) => Ok(()),
            Err(abort) => self.judge(at, abort),
        }
    }

    async fn free(&mut self, object: Object) -> Result<(), Ended> {
        let at = object.at;
        self.world.begin_free(&object);
        self.freed.push(object);
        match self.transaction.free(at).await {
            Ok(()) => {
                if self.made.contains(&at) {
                    self.gone.insert(at);
                }
                self.recording.write(at.bits(), Change::Free);
                Ok(())
            }
            Err(abort) => self.judge(at, abort),
        }
    }

    async fn allocate(&mut self) -> Result<(), Ended> {
        let near = match random::chance(0.5) {
            true => self
                .world
                .some_object()
                .map_or(Pointer::NULL, |object| object.at),
            false => Pointer::NULL,
        };
        let bytes = match self.world.is_of_one_size {
            true => 8,
            false => [8, 16, 40][random::below(3) as usize],
        };
        let at = match self.transaction.allocate(bytes, near).await {
            Ok(at) => at,
            Err(Abort::Full) => {
                self.world.aborted(Abort::Full);
                return Err(Ended);
            }
            Err(abort) => {
                self.world.blame(format!("no object: {abort}"));
                return Err(Ended);
            }
        };
        self.made.push(at);
        self.recording.write(at.bits(), Change::Allocate);
        if self.world.is_of_one_size {
            self.world.made(at);
        }
        self.write(at).await
    }

    async fn commit(self) {
        let Run {
            world,
            recording,
            transaction,
            freed,
            made,
            gone,
            ..
        } = self;
        if random::chance(0.05) {
            drop(transaction);
            freed.iter().for_each(|object| world.not_freed(object));
            recording.end(Outcome::Aborted);
            return;
        }
        // Not all see who has made or freed an object, so its outcome has to be known.
        let limit = match random::chance(0.05) && freed.is_empty() && made.is_empty() {
            true => world.latency * random::below(8) as u32,
            false => Duration::from_secs(1),
        };
        let is_patient = limit == Duration::from_secs(1);
        let outcome = match timeout(limit, transaction.commit()).await {
            Some(Ok(committed)) => match committed.written_at {
                Some(written_at) => Outcome::Committed(written_at),
                None => Outcome::ReadOnly,
            },
            // A blind write may be to nothing.
            Some(Err(abort @ (Abort::Conflict | Abort::Full | Abort::NotAllocated))) => {
                world.aborted(abort);
                Outcome::Aborted
            }
            Some(Err(abort)) => {
                world.blame(format!("a commit ends with: {abort}"));
                Outcome::Unknown(None)
            }
            None => {
                if is_patient {
                    world.blame("a commit does not end".to_owned());
                }
                return; // it may go on, and end whenever it does
            }
        };
        if matches!(outcome, Outcome::Committed(_)) {
            let made = made
                .iter()
                .filter(|at| !world.is_of_one_size && !gone.contains(at));
            made.for_each(|at| world.made(*at));
        } else {
            freed.iter().for_each(|object| world.not_freed(object));
        }
        recording.end(outcome);
    }
}

impl Engine<Any> {
    fn machine_number(&self) -> u32 {
        u32::from(
            plinth_farm_fabric::Fabric::local(&**self.fabric())
                .machine()
                .0,
        )
    }
}
