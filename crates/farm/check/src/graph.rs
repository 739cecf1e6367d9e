//! Transactions and queries on a graph that all machines share. Queries of transactions that only read are evaluated
//! here, and by the machines that have the vertices: both must answer the same, and what the model says.

use crate::Shown;
use crate::choose::machine;
use crate::clients::{self, Snapshots, side_by_side};
use crate::insist::insist;
use crate::notes::{self, Notes};
use crate::world::{Work, World, sizes};
use plinth_core::testing::Generator;
use plinth_farm_engine::testing::fabrics::Any;
use plinth_farm_engine::{Engine, Options, Room, Transaction};
use plinth_farm_fabric::{Fabric, Machine};
use plinth_farm_graph::testing::{
    Answer, Call, Entry, Model, Mood, answered, declare, dump, judge, perform, reached, some_call,
};
use plinth_farm_graph::{
    self as graph, Desk, Error, Graph, GraphTx, Query, Result, Settings, Ship,
};
use plinth_farm_memory::{Abort, Pointer, Sizes};
use plinth_farm_structures::btree::Cache;
use plinth_farm_structures::{self as structures};
use plinth_runtime::{Duration, random, sleep};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Of a machine.
const CLIENTS: usize = 2;
const TRANSACTIONS: usize = 20;
/// How long a stage of a query may take where machines die, which then do not answer.
const IN_STORM: Duration = Duration::from_millis(40);

/// What a desk asks of its machine.
struct Site(Rc<Engine<Any>>);

impl graph::Snapshots for Site {
    type Transaction = Transaction<Any>;

    async fn at(&self, read_at: u64) -> std::result::Result<Transaction<Any>, Abort> {
        self.0.begin(Options::at(read_at)).await
    }

    fn primary(&self, region: u16) -> Option<Machine> {
        self.0.primary(region)
    }
}

type AnyDesk = Desk<Any, Site>;

#[derive(Default)]
pub struct Graphs {
    root: Cell<Option<Pointer>>,
    entries: RefCell<Vec<Entry>>,
    last: Cell<u64>,
    snapshots: Snapshots,
    /// Each serves as long as others may ask.
    desks: RefCell<Vec<Rc<AnyDesk>>>,
    shipped: Cell<usize>,
    /// Places in `entries` of transactions whose clients have not heard what became of them.
    unheard: RefCell<BTreeSet<usize>>,
    /// What clients have written about themselves.
    notes: Notes,
    found: RefCell<Option<Model>>,
}

/// The graph as a machine sees it.
struct Handles {
    graph: Graph,
    desk: Rc<AnyDesk>,
}

/// What only the graph can be blamed for, as an error of structures.
fn structural(error: Error) -> structures::Error {
    match error {
        Error::Structure(error) => error,
        _ => structures::Error::Invalid("a call on a graph is refused"),
    }
}

/// Sends a desk what no desk sends: a frame, or the beginning of one, with anything in it.
async fn send_noise(world: &World, engine: &Engine<Any>, random: &mut Generator) {
    let mut noise = vec![0; random.below(80)];
    random::fill(&mut noise);
    if random.below(2) == 0 {
        // A request of one piece.
        let head = [[0; 9].as_slice(), &[0; 4], &1u32.to_le_bytes()].concat();
        noise.splice(0..0, head);
    }
    noise.insert(0, Room::Application.tag());
    let to = Machine(random.below(world.machines) as u16);
    if to != engine.fabric().local().machine() {
        // A full ring refuses it.
        let _ = engine.fabric().send(to, &noise).await;
    }
}

impl Graphs {
    fn next(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    async fn open(&self, tx: &Transaction<Any>, cache: &Cache) -> structures::Result<Graph> {
        let root = self.root.get().expect("it was made");
        Graph::open(tx, root, cache).await.map_err(structural)
    }

    async fn client(&self, world: &World, engine: &Engine<Any>, handles: &Handles) {
        let mut random = Generator::new(random::u64());
        let of = (world, engine, &self.notes);
        let working = clients::client(of, TRANSACTIONS, async |note| {
            if random.below(8) == 0 {
                send_noise(world, engine, &mut random).await;
            }
            self.one(world, engine, handles, note, &mut random).await;
        });
        working.await;
    }

    async fn one(
        &self,
        world: &World,
        engine: &Engine<Any>,
        handles: &Handles,
        note: Option<Pointer>,
        random: &mut Generator,
    ) {
        let moods = [Mood::Reads, Mood::Writes, Mood::Writes, Mood::Indexes];
        let mood = moods[random.below(4)];
        let is_read_only = || mood == Mood::Reads && random::chance(0.9);
        let options = self.snapshots.some_options(is_read_only, 0.3);
        let Some(tx) = self.snapshots.begin(world, engine, options).await else {
            return;
        };
        let mut entry = Entry {
            id: self.next(),
            read_at: tx.read_at(),
            ..Entry::default()
        };
        let what = (mood, options.is_read_only);
        let steps = self.steps(world, handles, &tx, what, random, &mut entry);
        let mut outcome = steps.await;
        if let (Ok(()), Some(note), false) = (&outcome, note, options.is_read_only) {
            outcome = notes::write(&tx, note, entry.id).await.map_err(Error::from);
        }
        let (id, read_at, at) = (entry.id, entry.read_at, self.entries.borrow().len());
        self.entries.borrow_mut().push(entry);
        self.unheard.borrow_mut().insert(at);
        let outcome = match outcome {
            Ok(()) => tx.commit().await.map_err(Error::from),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(committed) => self.entries.borrow_mut()[at].written_at = committed.written_at,
            Err(Error::Structure(structures::Error::Abort(abort))) => {
                world.aborted(abort);
                if abort == Abort::Unknown {
                    return;
                }
            }
            Err(Error::Gone { .. }) if world.is_stormy => world.count("a machine is gone"),
            Err(error) => world.blame(format!(
                "transaction {id} of machine {} reading at {read_at}: {error}",
                machine(engine),
            )),
        }
        self.unheard.borrow_mut().remove(&at);
    }

    async fn steps(
        &self,
        world: &World,
        handles: &Handles,
        tx: &Transaction<Any>,
        (mood, is_read_only): (Mood, bool),
        random: &mut Generator,
        entry: &mut Entry,
    ) -> Result<()> {
        let graph = handles.graph.on(tx).await?;
        for _ in 0..1 + random.below(5) {
            let call = some_call(mood, self.next() as i64, random);
            let seen = perform(&graph, &call).await?;
            if is_read_only {
                self.ship(world, handles, &graph, tx.read_at(), &call, &seen)
                    .await?;
            }
            entry.steps.push((call, seen));
            if random.below(5) == 0 {
                sleep(world.latency * random::below(6) as u32).await;
            }
        }
        if mood == Mood::Writes && random.below(40) == 0 {
            graph.grow("person", 1).await?;
        }
        Ok(())
    }

    /// Evaluates a query once more, where the vertices are.
    async fn ship(
        &self,
        world: &World,
        handles: &Handles,
        graph: &GraphTx<'_, Transaction<Any>>,
        read_at: u64,
        call: &Call,
        seen: &Answer,
    ) -> Result<()> {
        let Call::Query(query) = call else {
            return Ok(());
        };
        let there = graph.query_shipped(query, read_at, &*handles.desk).await;
        let there = answered(there.map(|there| reached(query, there)));
        match there {
            Ok(there) if there != *seen => {
                world.blame(format!(
                    "at {read_at} {query:?} is {seen:?} here, and {there:?} where the vertices are"
                ));
            }
            Ok(_) => self.shipped.set(self.shipped.get() + 1),
            // It has not heard of the oldest snapshot yet.
            Err(Error::Behind { .. }) => world.count("a machine is behind"),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// With all desks gone, a query that needs one ends with an error after its limit.
    async fn ask_nobody(&self, world: &World, engine: &Rc<Engine<Any>>) -> Result<()> {
        self.desks.borrow_mut().clear();
        let cache = Cache::new(0);
        let limit = world.latency * 20;
        let desk = self.desk(world, engine, &cache, limit);
        let tx = engine.begin(Options::read_only()).await?;
        let graph = Graph::open(&tx, self.root.get().expect("it was made"), &cache).await?;
        let on = graph.on(&tx).await?;
        for vertex in on.vertices().await? {
            let Some(machine) = desk.place(vertex.place().region()) else {
                continue;
            };
            let record = on.vertex(vertex).await?;
            let key = record.get("key").cloned().expect("a key");
            let query = Query::from_key(&record.type_name, key).properties(&["key"]);
            let asked = on.query_shipped(&query, tx.read_at(), &desk).await;
            if asked != Err(Error::Gone { machine: machine.0 }) {
                world.blame(format!("a machine without a desk has answered {asked:?}"));
            }
            world.count("nobody answered");
            break;
        }
        Ok(())
    }

    fn desk(
        &self,
        world: &World,
        engine: &Rc<Engine<Any>>,
        cache: &Cache,
        limit: Duration,
    ) -> AnyDesk {
        let settings = Settings {
            limit,
            pause: world.latency / 10,
            frame_bytes: [40, 200, 64 << 10][random::below(3) as usize],
        };
        let site = Site(engine.clone());
        let room = Room::Application;
        let desk = Desk::new(engine.fabric().clone(), room.tag(), site, cache, settings);
        engine.on_message(room, desk.handler());
        desk
    }

    async fn is_sound(&self, tx: &Transaction<Any>) -> Result<Model> {
        let root = self.root.get().expect("it was made");
        let graph = Graph::open(tx, root, &Cache::new(0)).await?;
        let on = graph.on(tx).await?;
        on.check().await?;
        dump(&on).await
    }
}

impl Work for Graphs {
    fn sizes(&self, world: &World) -> Sizes {
        sizes(2048, 60, if world.is_small { 8 } else { 40 })
    }

    fn ring_words(&self) -> u64 {
        16_000
    }

    async fn prepare(&self, world: &World, engine: &Rc<Engine<Any>>) {
        let cache = Cache::new(1 << 16);
        let made = insist(world, engine, Options::default(), async |tx| {
            let graph = Graph::create(tx, Pointer::NULL, &cache).await;
            let graph = graph.map_err(structural)?;
            let on = graph.on(tx).await.map_err(structural)?;
            declare(&on).await.map_err(structural)?;
            Ok(graph.root())
        });
        self.root.set(made.await);
        if self.root.get().is_none() {
            world.blame("the graph cannot be made".to_owned());
        }
    }

    async fn work(self: Rc<Self>, world: Rc<World>, engine: Rc<Engine<Any>>) {
        let cache = Cache::new([0, 2000, 1 << 20][random::below(3) as usize]);
        let options = Options::read_only();
        let open = insist(&world, &engine, options, async |tx| {
            self.open(tx, &cache).await
        });
        let Some(graph) = open.await else { return };
        let limit = match world.is_stormy {
            true => IN_STORM,
            false => Duration::from_secs(5),
        };
        let desk = Rc::new(self.desk(&world, &engine, &cache, limit));
        if !world.is_stormy {
            self.desks.borrow_mut().push(desk.clone());
        }
        // A request to a machine that has no desk yet would wait for its limit.
        while !world.is_stormy && self.desks.borrow().len() < world.machines && !world.is_blamed() {
            sleep(world.latency).await;
        }
        let handles = Rc::new(Handles { graph, desk });
        let client = || {
            let (graphs, world) = (self.clone(), world.clone());
            let (engine, handles) = (engine.clone(), handles.clone());
            async move { graphs.client(&world, &engine, &handles).await }
        };
        side_by_side(&world, CLIENTS, client).await;
    }

    async fn finish(&self, world: &World, engine: &Rc<Engine<Any>>) {
        let refusal = RefCell::new(None);
        let options = Options::read_only();
        let found = insist(world, engine, options, async |tx| {
            match self.is_sound(tx).await {
                Ok(model) => Ok(Some(model)),
                Err(Error::Structure(error)) => Err(error),
                Err(error) => {
                    refusal.replace(Some(error));
                    Ok(None)
                }
            }
        });
        let found = found.await.flatten();
        if let Some(error) = refusal.take() {
            world.blame(format!("in the end: {error}"));
        }
        self.found.replace(found);
        if !world.is_blamed()
            && !world.is_stormy
            && let Err(error) = self.ask_nobody(world, engine).await
            && !error.is_retryable()
        {
            world.blame(format!("in the end: {error}"));
        }
    }

    fn resolve(&self, object: impl Fn(Pointer) -> Option<(u64, Vec<u8>)>) -> usize {
        let unheard = self.unheard.take();
        for at in &unheard {
            let entry = &mut self.entries.borrow_mut()[*at];
            let told = self.notes.find(entry.id, &object);
            entry.written_at = told.map(|told| told.written_at);
        }
        unheard.len()
    }

    fn judge(&self) -> std::result::Result<Shown, String> {
        let entries = self.entries.borrow();
        let (judged, model) = judge(&entries)?;
        let found = self.found.borrow();
        let committed = entries.iter().filter(|entry| entry.written_at.is_some());
        let shipped = ("shipped".to_owned(), self.shipped.get() as u64);
        match found.as_ref() == Some(&model) {
            true => Ok(Shown {
                committed: committed.count(),
                judged,
                aborts: [shipped].into(),
                ..Shown::default()
            }),
            false => Err(format!("in the end there is {found:?}, and not {model:?}")),
        }
    }
}
