//! Clients on a simple store of objects, judged by the model.

use crate::graph::Graph;
use crate::testing::{Answer, Call, Entry, Model, Mood, declare, dump, judge, perform, some_call};
use crate::transaction::GraphTx;
use plinth_core::testing::Generator;
use plinth_farm_memory::Pointer;
use plinth_farm_structures::btree::Cache;
use plinth_farm_structures::testing::{Store, Tx, interleave, run};
use plinth_runtime::{fault, probe};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

const CLIENTS: u64 = 4;
const TRANSACTIONS: usize = 40;

struct Run {
    store: Rc<Store>,
    root: Pointer,
    entries: RefCell<Vec<Entry>>,
    last: Cell<u64>,
    blame: RefCell<Option<String>>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let store = Store::new(seed);
        let cache = Cache::new(0);
        let made = store.run(async |tx| {
            let graph = Graph::create(tx, Pointer::NULL, &cache)
                .await
                .expect("a graph");
            let on = graph.on(tx).await.expect("its operations");
            declare(&on).await.expect("types");
            Ok(graph.root())
        });
        let root = run(made).expect("a graph");
        Run {
            store,
            root,
            entries: RefCell::default(),
            last: Cell::new(0),
            blame: RefCell::default(),
        }
    }

    fn next(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    async fn client(&self, seed: u64) {
        let mut random = Generator::new(seed);
        let cache = Cache::new([0, 3000, 1 << 20][random.below(3)]);
        let open = self
            .store
            .run(async |tx| match Graph::open(tx, self.root, &cache).await {
                Ok(graph) => Ok(graph),
                Err(crate::Error::Structure(error)) => Err(error),
                Err(error) => panic!("{error}"),
            });
        let graph = open.await.expect("a graph");
        for _ in 0..TRANSACTIONS {
            if self.blame.borrow().is_some() {
                return;
            }
            let tx = self.store.begin();
            let mut entry = Entry {
                id: self.next(),
                read_at: tx.snapshot,
                ..Entry::default()
            };
            let outcome = match self.steps(&graph, &tx, &mut random, &mut entry).await {
                Ok(()) => tx.commit().await.map_err(Into::into),
                Err(error) => Err(error),
            };
            match outcome {
                Ok(at) => entry.written_at = Some(at).filter(|at| *at > tx.snapshot),
                Err(error) if error.is_retryable() => (),
                Err(error) => {
                    let what = format!("transaction {}: {error}", entry.id);
                    self.blame.borrow_mut().get_or_insert(what);
                }
            }
            self.entries.borrow_mut().push(entry);
        }
    }

    async fn steps(
        &self,
        graph: &Graph,
        tx: &Tx,
        random: &mut Generator,
        entry: &mut Entry,
    ) -> crate::Result<()> {
        let graph = graph.on(tx).await?;
        let mood = [Mood::Reads, Mood::Writes, Mood::Writes, Mood::Indexes][random.below(4)];
        for _ in 0..1 + random.below(5) {
            let call = some_call(mood, self.next() as i64, random);
            let seen = perform(&graph, &call).await?;
            entry.steps.push((call, seen));
        }
        if mood == Mood::Writes && random.below(40) == 0 {
            graph.grow("person", 1).await?;
        }
        Ok(())
    }

    /// The graph in the end is the model, sound, and there is nothing else in the store.
    fn check_end(&self, model: &Model) -> Result<(), String> {
        self.store.abort_one_in.set(0);
        run(async {
            let tx = self.store.begin();
            let graph = Graph::open(&tx, self.root, &Cache::new(0)).await;
            let graph = graph.map_err(|error| error.to_string())?;
            let on: GraphTx<'_, Tx> = graph.on(&tx).await.map_err(|error| error.to_string())?;
            let census = on.check().await.map_err(|error| error.to_string())?;
            let found = dump(&on).await.map_err(|error| error.to_string())?;
            if found != *model {
                return Err(format!("in the end there is {found:?}, and not {model:?}"));
            }
            let objects: BTreeSet<Pointer> = census.objects.iter().copied().collect();
            let is_once = objects.len() == census.objects.len();
            match is_once && objects == self.store.allocated() {
                true => Ok(()),
                false => Err("objects are lost, or in two places".to_owned()),
            }
        })
    }
}

/// Runs a seed. Returns answers that were judged, and transactions that wrote.
fn one(seed: u64) -> Result<(usize, usize), String> {
    let run = Run::new(seed);
    run.store.yields.set(true);
    run.store
        .abort_one_in
        .set(if seed.is_multiple_of(3) { 300 } else { 0 });
    let clients = (0..CLIENTS).map(|client| {
        let client = run.client(seed * 100 + client);
        Box::pin(client) as Pin<Box<dyn Future<Output = ()> + '_>>
    });
    let clients = clients.collect();
    interleave(seed, clients);
    if let Some(blame) = run.blame.take() {
        return Err(blame);
    }
    let entries = run.entries.take();
    let (judged, model) = judge(&entries)?;
    run.check_end(&model)?;
    Ok((
        judged,
        entries
            .iter()
            .filter(|entry| entry.written_at.is_some())
            .count(),
    ))
}

#[test]
fn a_graph_is_the_model_at_every_version() {
    let (mut judged, mut committed) = (0, 0);
    for seed in 0..150 {
        let (j, c) = one(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        judged += j;
        committed += c;
    }
    println!(
        "{judged} judged, {committed} committed, {:?}",
        probe::hits()
    );
    assert!(judged > 20_000 && committed > 2_000);
    for path in [
        "graph_list_becomes_a_tree",
        "graph_schema_is_stale",
        "graph_index_has_it_from_a_writer",
    ] {
        assert!(probe::hits().contains_key(path), "never: {path}");
    }
}

fn is_found(planted: &'static str) {
    fault::plant(Some(planted));
    let found = (0..100).find_map(|seed| one(seed).err());
    fault::plant(None);
    println!(
        "{}",
        found.unwrap_or_else(|| panic!("{planted} is not found"))
    );
    fault::found(planted);
}

#[test]
fn an_edge_that_stays_at_one_end_is_found() {
    is_found("graph_edge_stays_at_one_end");
}

#[test]
fn an_index_that_keeps_a_former_value_is_found() {
    is_found("graph_index_keeps_former_value");
}

#[test]
fn an_index_that_is_used_too_early_is_found() {
    is_found("graph_index_is_used_too_early");
}

#[test]
fn a_schema_that_is_not_read_is_found() {
    is_found("graph_schema_is_not_read");
}

#[test]
fn the_model_tells_calls_apart() {
    let mut model = Model::default();
    let call = Call::Create((0, 1), Default::default());
    assert_eq!(model.apply(&call, &Answer::Done), Answer::Done);
    assert_ne!(model.apply(&call, &Answer::Done), Answer::Done);
}
