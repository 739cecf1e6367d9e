//! Workloads of the store: the work of clients while faults strike, each with an oracle that checks the result. Each
//! registers itself where it is written.

mod atomic;
mod bank;
mod bulk;
mod conflict;
mod cycle;
mod history;
mod idempotent;
mod limits;
mod moves;
mod operator;
mod ryw;
mod scattered;
mod shards;
mod streams;
mod tokens;
mod versionstamp;
mod watch;

use crate::cluster::Shape;
use crate::scenario::services;
use plinth_runtime::random;
use plinth_workload::{
    Application, Complaints, Ending, Verdict, ending, get_together, number, read_rows,
};
use std::rc::Rc;

pub use operator::exchange_coordinators;
pub use plinth_workload::{Boxed, Day, Space, Workload, until_done};

/// A kind of workload, from which runs draw.
pub struct Kind {
    pub name: &'static str,
    pub make: fn(Space, &Shape) -> Rc<dyn Workload>,
}

#[linkme::distributed_slice]
pub static KINDS: [Kind];

/// Names a workload, and registers it as a kind: how it is made from a space and a shape.
macro_rules! kind {
    ($name:literal, |$space:tt, $shape:tt| $workload:expr) => {
        fn name(&self) -> &'static str {
            #[linkme::distributed_slice(super::KINDS)]
            static KIND: super::Kind = super::Kind {
                name: $name,
                make: |$space, $shape| std::rc::Rc::new($workload),
            };
            KIND.name
        }
    };
}
use kind;

/// All kinds, by name.
fn kinds() -> Vec<&'static Kind> {
    let mut kinds: Vec<&Kind> = KINDS.iter().collect();
    kinds.sort_unstable_by_key(|kind| kind.name);
    kinds
}

/// Names of the workloads, those of the linked services included. A run can be limited to some of them.
pub fn names() -> Vec<&'static str> {
    let of_store = kinds().into_iter().map(|kind| kind.name);
    let of_store = of_store.chain([tokens::NAME]);
    let of_services = services().into_iter().flat_map(|one| one.workloads());
    of_store.chain(of_services).collect()
}

/// The workloads of a run, and a part of the key space that none of them uses.
pub type Chosen = (Vec<Rc<dyn Workload>>, Space);

/// Draws some workloads and divides `whole` among them.
pub fn draw(whole: Space, shape: &Shape, only: Option<&[String]>) -> Chosen {
    let mut kinds = kinds();
    if shape.is_named {
        // It chooses coordinators and processes by their addresses.
        kinds.retain(|kind| kind.name != "operator");
    }
    random::shuffle(&mut kinds);
    kinds.truncate(random::range(3..6) as usize);
    let parts = kinds.len() as u64 + 1;
    let mut order: Vec<u64> = (0..parts).collect();
    random::shuffle(&mut order);
    let spare = order.pop().expect("one more than workloads");
    let spaces = order.into_iter().map(|i| whole.part(i, parts));
    let chosen = kinds
        .into_iter()
        .zip(spaces)
        .map(|(kind, space)| (kind.make)(space, shape));
    let mut chosen: Vec<Rc<dyn Workload>> = chosen.collect();
    let mut spare = whole.part(spare, parts);
    // Beside the drawn ones, so that other clusters draw what they did.
    if let Some(tokens) = tokens::of(spare.part(0, 2), shape) {
        chosen.push(tokens);
        spare = spare.part(1, 2);
    }
    keep_only(&mut chosen, only);
    (chosen, spare)
}

fn keep_only(chosen: &mut Vec<Rc<dyn Workload>>, only: Option<&[String]>) {
    if let Some(only) = only {
        chosen.retain(|workload| only.iter().any(|name| name == workload.name()));
    }
}

/// All workloads of an application, beside some of the store's in the upper half of the key space.
pub fn of_application(application: &Application, shape: &Shape, only: Option<&[String]>) -> Chosen {
    let (mut chosen, spare) = draw(Space::whole().part(1, 2), shape, only);
    let site = Rc::new(shape.site());
    chosen.extend(
        application
            .workloads
            .iter()
            .map(|kind| (kind.make)(site.clone())),
    );
    keep_only(&mut chosen, only);
    (chosen, spare)
}

/// Only transactions of nearly the maximum size; a simulation has room for few of them.
pub fn at_limits() -> Chosen {
    let part = |i| Space::whole().part(i, 2);
    (vec![Rc::new(limits::Limits::new(part(0)))], part(1))
}

/// Only single rows far from each other.
pub fn over_many_shards() -> Chosen {
    let rows = Space::whole().part(0, 8).joined(Space::whole().part(6, 8));
    let scattered: Rc<dyn Workload> = Rc::new(scattered::Scattered::new(rows));
    (vec![scattered], Space::whole().part(7, 8))
}

/// Workloads that also run against real processes. They use the lowest quarter of the key space, below the keeper's
/// rows.
pub fn for_real_clusters() -> Vec<Rc<dyn Workload>> {
    let part = |i| Space::whole().part(0, 4).part(i, 7);
    vec![
        Rc::new(cycle::Cycle::new(part(0))),
        Rc::new(bank::Bank::new(part(1))),
        Rc::new(history::Histories::new(part(2))),
        Rc::new(atomic::Atomic::new(part(3))),
        Rc::new(versionstamp::Versionstamps::new(part(4))),
        Rc::new(ryw::ReadYourWrites::new(part(5))),
        Rc::new(idempotent::Idempotent::new(part(6))),
    ]
}
