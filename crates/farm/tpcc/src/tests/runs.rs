//! Loads, runs and conditions, on the model of the engine.

use crate::input::{NewOrder, NewOrderLine, Terminal};
use crate::load::{Plan, load};
use crate::transactions::Placed;
use crate::{Ending, Scale, Tpcc, carry_out, check, check_loaded, delivery, new_order};
use plinth_farm_memory::Pointer;
use plinth_farm_structures::btree::Cache;
use plinth_farm_structures::catalog::Catalog;
use plinth_farm_structures::testing::{Calls, Store, interleave, run};
use plinth_farm_structures::{Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

const NOW: u64 = 1_700_000_000_000;

fn small() -> Scale {
    Scale {
        warehouses: 2,
        items: 60,
        districts: 2,
        customers: 20,
    }
}

fn loaded(seed: u64, scale: Scale) -> (Rc<Store>, Catalog, Tpcc) {
    let store = Store::new(seed);
    let cache = Cache::new(1 << 20);
    let made = store.run(async |tx| Catalog::create(tx, Pointer::NULL, &cache).await);
    let catalog = run(made).expect("a catalogue");
    let plan = Plan {
        scale,
        copies: 2,
        near: &[],
        seed,
        now: NOW,
    };
    let db = run(load(&store, &catalog, &cache, &plan)).expect("it loads");
    (store, catalog, db)
}

#[test]
fn a_database_that_was_loaded_keeps_every_condition() {
    let scale = Scale {
        customers: 60,
        ..small()
    };
    let (store, catalog, db) = loaded(1, scale);
    let tx = store.begin();
    assert_eq!(run(check(&db, &tx)), Ok(Vec::new()));
    assert_eq!(run(check_loaded(&db, &tx)), Ok(Vec::new()));
    let again = run(Tpcc::open(&tx, &catalog, 1, &Cache::new(0))).expect("it is there");
    assert_eq!(again.scale, scale);
    assert_eq!(run(check(&again, &tx)), Ok(Vec::new()));
    assert_ne!(
        again.items.root(),
        db.items.root(),
        "each machine reads its copy"
    );
    let plan = Plan {
        scale,
        copies: 1,
        near: &[],
        seed: 1,
        now: NOW,
    };
    let twice = run(load(&store, &catalog, &Cache::new(0), &plan));
    assert_eq!(twice.err(), Some(Error::NameTaken));
}

/// What transactions of each kind did.
#[derive(Default, Debug)]
struct Counts {
    by_kind: BTreeMap<&'static str, (usize, Calls)>,
    unused_items: usize,
    aborts: usize,
}

async fn terminal(
    store: &Rc<Store>,
    db: &Tpcc,
    mut terminal: Terminal,
    inputs: usize,
    counts: &RefCell<Counts>,
) {
    for _ in 0..inputs {
        let input = terminal.next_input();
        loop {
            let tx = store.begin();
            let outcome: Result<bool> = async {
                let is_done = carry_out(db, &tx, &input, NOW + 1).await? == Ending::Commit;
                if is_done {
                    tx.commit().await?;
                }
                Ok(is_done)
            }
            .await;
            let mut counts = counts.borrow_mut();
            match outcome {
                Ok(is_done) => {
                    counts.unused_items += usize::from(!is_done);
                    let (count, calls) = counts.by_kind.entry(input.name()).or_default();
                    *count += 1;
                    calls.reads += tx.calls.get().reads;
                    calls.writes += tx.calls.get().writes;
                    break;
                }
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    counts.aborts += 1;
                }
            }
        }
    }
}

/// Checks the conditions at one snapshot after the other, while others go on.
async fn auditor(store: &Rc<Store>, db: &Tpcc, is_over: &Cell<bool>, audits: &Cell<usize>) {
    while !is_over.get() {
        let tx = store.begin();
        match check(db, &tx).await {
            Ok(broken) => {
                assert_eq!(broken, Vec::<String>::new());
                audits.set(audits.get() + 1);
            }
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

fn mix(seed: u64, scale: Scale, terminals: u32, inputs: usize) -> (Counts, Vec<String>) {
    let (store, catalog, db) = loaded(seed, scale);
    // Another machine, with a cache of its own.
    let cache = Cache::new(20_000);
    let other = run(Tpcc::open(&store.begin(), &catalog, 1, &cache)).expect("it is there");
    store.yields.set(true);
    store.abort_one_in.set(if terminals > 1 { 2000 } else { 0 });
    let counts = RefCell::new(Counts::default());
    let (is_over, audits, left) = (Cell::new(false), Cell::new(0), Cell::new(terminals));
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for i in 0..terminals {
        let db = if i % 2 == 0 { &db } else { &other };
        let (warehouse, district) = (i % scale.warehouses + 1, i as u8 % scale.districts + 1);
        let input = Terminal::new(scale, warehouse, district, seed * 100 + u64::from(i));
        let (store, counts, is_over, left) = (&store, &counts, &is_over, &left);
        tasks.push(Box::pin(async move {
            terminal(store, db, input, inputs, counts).await;
            left.set(left.get() - 1);
            is_over.set(left.get() == 0);
        }));
    }
    if !plinth_runtime::fault::is_planted("tpcc_payment_forgets_district") {
        tasks.push(Box::pin(auditor(&store, &db, &is_over, &audits)));
        interleave(seed, tasks);
        assert!(audits.get() > 2, "conditions were checked during the run");
    } else {
        interleave(seed, tasks);
    }
    store.yields.set(false);
    store.abort_one_in.set(0);
    let tx = store.begin();
    let broken = run(check(&db, &tx)).expect("nothing is damaged");
    for warehouse in db.warehouses() {
        for (name, tree) in warehouse.trees() {
            let census = run(tree.check(&tx));
            assert!(census.is_ok(), "{name}: {census:?}");
        }
        run(warehouse.customers.check(&tx)).expect("sound");
        run(warehouse.stock.check(&tx)).expect("sound");
    }
    (counts.into_inner(), broken)
}

#[test]
fn the_mix_keeps_every_condition_at_every_snapshot() {
    let mut kinds = BTreeSet::new();
    for seed in 0..6 {
        let (counts, broken) = mix(seed, small(), 4, 60);
        assert_eq!(broken, Vec::<String>::new());
        assert!(counts.aborts > 0, "some have conflicted");
        kinds.extend(counts.by_kind.into_keys());
    }
    assert_eq!(kinds.len(), 5);
}

#[test]
fn a_payment_that_forgets_its_district_breaks_conditions() {
    plinth_runtime::fault::plant(Some("tpcc_payment_forgets_district"));
    let (_, broken) = mix(1, small(), 2, 30);
    plinth_runtime::fault::plant(None);
    for condition in ["condition 1:", "condition 9:"] {
        assert!(
            broken.iter().any(|line| line.starts_with(condition)),
            "{broken:?}"
        );
    }
    plinth_runtime::fault::found("tpcc_payment_forgets_district");
}

#[test]
fn an_order_of_an_item_that_does_not_exist_leaves_nothing() {
    let (store, _, db) = loaded(3, small());
    let line = |item| NewOrderLine {
        item,
        supply_warehouse: 2,
        quantity: 7,
    };
    let mut input = NewOrder {
        warehouse: 1,
        district: 2,
        customer: 3,
        lines: vec![line(1), line(2), line(3), line(4), line(61)],
    };
    let tx = store.begin();
    let placed = run(new_order(&db, &tx, &input, NOW)).expect("it works");
    assert_eq!(placed, Placed::UnusedItem);
    drop(tx);
    assert_eq!(run(check(&db, &store.begin())), Ok(Vec::new()));
    input.lines[4].item = 5;
    let tx = store.begin();
    let placed = run(new_order(&db, &tx, &input, NOW)).expect("it works");
    assert!(matches!(placed, Placed::Order { id: 21, .. }), "{placed:?}");
    run(tx.commit()).expect("nobody conflicts");
    assert_eq!(run(check(&db, &store.begin())), Ok(Vec::new()));
}

#[test]
fn deliveries_empty_the_list_of_new_orders() {
    let (store, _, db) = loaded(3, small());
    let input = crate::input::Delivery {
        warehouse: 1,
        carrier: 9,
    };
    let mut delivered = 0;
    for _ in 0..7 {
        let tx = store.begin();
        delivered += run(delivery(&db, &tx, &input, NOW + 1)).expect("it works");
        run(tx.commit()).expect("nobody conflicts");
        assert_eq!(run(check(&db, &store.begin())), Ok(Vec::new()));
    }
    assert_eq!(
        delivered,
        2 * 6,
        "the newest three tenths of two districts' orders"
    );
}

#[test]
fn a_transaction_calls_for_few_objects() {
    let scale = Scale {
        warehouses: 1,
        items: 1000,
        districts: 10,
        customers: 60,
    };
    let (counts, _) = mix(1, scale, 1, 400);
    println!("count, calls: {:?}", counts.by_kind);
    // Per order of ten lines: item, bucket and object of the stock for each line, and what there is once.
    for (kind, reads, writes) in [
        ("new order", 50, 20),
        ("payment", 10, 5),
        ("order status", 8, 0),
    ] {
        let (count, calls) = counts.by_kind[kind];
        assert!(calls.reads <= count * reads, "{kind}: {calls:?} of {count}");
        assert!(
            calls.writes <= count * writes,
            "{kind}: {calls:?} of {count}"
        );
    }
}
