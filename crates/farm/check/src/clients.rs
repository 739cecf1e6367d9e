//! Clients of a machine, each with one transaction after the other.

use crate::notes::Notes;
use crate::world::World;
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::{Engine, Options, Transaction};
use plinth_farm_memory::{Abort, Pointer};
use plinth_runtime::{Duration, TaskGroup, random, sleep};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Snapshots of transactions that are, or were, active.
#[derive(Default)]
pub struct Snapshots(RefCell<Vec<u64>>);

impl Snapshots {
    /// Options of a transaction. One that only reads may do so at a former snapshot, as often as `back` says.
    pub fn some_options(&self, is_read_only: impl FnOnce() -> bool, back: f64) -> Options {
        let mut options = Options {
            is_serializable: true,
            is_strict: random::chance(0.7),
            is_read_only: is_read_only(),
            at: None,
            will_write: random::chance(0.1),
        };
        let snapshots = self.0.borrow();
        if options.is_read_only && !snapshots.is_empty() && random::chance(back) {
            let back = random::below(snapshots.len().min(10) as u64) as usize;
            options.at = Some(snapshots[snapshots.len() - 1 - back]);
        }
        options
    }

    /// `None` if no transaction begins; then the world is blamed, unless there is an excuse.
    pub async fn begin(
        &self,
        world: &World,
        engine: &Engine<Any>,
        options: Options,
    ) -> Option<Transaction<Any>> {
        match engine.begin(options).await {
            Ok(tx) => {
                self.0.borrow_mut().push(tx.read_at());
                return Some(tx);
            }
            Err(Abort::NotAllowed) if options.at.is_some() => {}
            Err(abort) if world.is_excused(abort) => world.aborted(abort),
            Err(abort) => world.blame(format!("a transaction does not begin: {abort}")),
        }
        None
    }
}

/// Carries out `transaction` again and again, with the client's note where machines die.
pub async fn client(
    (world, engine, notes): (&World, &Engine<Any>, &Notes),
    transactions: usize,
    mut transaction: impl AsyncFnMut(Option<Pointer>),
) {
    let mut note = None;
    if world.is_stormy {
        note = notes.begin(world, engine).await;
        if note.is_none() {
            return;
        }
    }
    for done in 0.. {
        sleep(world.latency * random::below(4) as u32).await;
        if world.is_stormy {
            sleep(Duration::from_micros(random::below(20_000))).await;
        }
        if !world.goes_on(done, transactions) || engine.has_left() {
            return;
        }
        transaction(note).await;
    }
}

/// Runs so many clients side by side, to their ends.
pub async fn side_by_side<F: Future<Output = ()> + 'static>(
    world: &World,
    count: usize,
    client: impl Fn() -> F,
) {
    let group = TaskGroup::new();
    let running = Rc::new(Cell::new(count));
    for _ in 0..count {
        let (work, running) = (client(), running.clone());
        group.spawn("client", async move {
            work.await;
            running.set(running.get() - 1);
        });
    }
    while running.get() > 0 {
        sleep(world.latency).await;
    }
}
