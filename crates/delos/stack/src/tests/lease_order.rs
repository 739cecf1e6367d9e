//! SessionOrder on Lease: what a proposer is told is true, while the lease changes hands and entries come late.

use super::far::{Far, Way};
use super::*;
use crate::engines::lease::{self, LeaseAbove, LeaseBelow};
use crate::engines::session_order::{self, SessionOrderAbove, SessionOrderBelow};
use plinth_runtime::{fault, race};

type Bottom = Rc<Base<Way, LeaseAbove<SessionOrderAbove<Top<Notes>>>>>;
type Lease = Rc<LeaseBelow<Bottom>>;

struct Ordered {
    base: Bottom,
    lease: Lease,
    top: Rc<SessionOrderBelow<Lease, LogPos, NoNote>>,
    _running: Task<()>,
}

async fn ordered(far: &Rc<Far>, id: u64) -> Ordered {
    let path = format!("/data/lease-order-{id}");
    let engine = plinth_engine::open(EngineKind::Memory, Path::new(&path), true, 1 << 20).await;
    let store = LocalStore::open(engine.expect("an engine")).expect("a store");
    let way = Rc::new(Way::new(far, Rc::default()));
    let above = LeaseAbove::new(SessionOrderAbove::new(Top(Notes)));
    let base = Base::new(way, store.clone(), above);
    let lease = LeaseBelow::new(base.clone(), store.clone(), id, base.applicator());
    let lease = Rc::new(lease);
    let top = SessionOrderBelow::new(lease.clone(), store, base.applicator().above());
    let top = Rc::new(top);
    let (b, l, t) = (base.clone(), lease.clone(), top.clone());
    let running = spawn("replica", async move {
        race(b.run(), race(l.run(), t.run())).await;
    });
    Ordered {
        base,
        lease,
        top,
        _running: running,
    }
}

/// Proposes notes for a while; what each led to.
async fn propose(replica: &Ordered, first: u64) -> Vec<(u64, Result<LogPos, Lost>)> {
    let mut told = Vec::new();
    for number in (first..first + 5000).step_by(10) {
        match replica.top.propose(note(number)).await {
            Ok(Answer::Done(pos)) => told.push((number, Ok(pos))),
            Err(lost) => told.push((number, Err(lost))),
            other => panic!("note {number} is answered {other:?}"),
        }
        sleep(Duration::from_millis(random::below(20))).await;
    }
    told
}

async fn change_holders(all: &[Ordered]) {
    loop {
        for replica in all {
            replica.lease.want(random::chance(0.5));
        }
        sleep(Duration::from_millis(random::below(3000))).await;
    }
}

/// Numbers of notes that were made, and of those that were refused.
async fn check_what_is_told() -> (usize, usize) {
    let far = Far::new();
    let all = [ordered(&far, 1).await, ordered(&far, 2).await];
    for guard in [lease::GUARD, session_order::GUARD] {
        guard.switch(&all[0].base, true).await.expect("it runs");
    }
    for replica in &all {
        replica.base.sync().await.expect("it runs");
    }
    far.late_part.set(0.05);
    let proposing = (0..6u64).map(|n| propose(&all[n as usize % 2], n * 10_000));
    let plinth_runtime::Either::Left(told) = race(join_all(proposing), change_holders(&all)).await
    else {
        unreachable!("they change for ever");
    };
    // What is late arrives.
    far.late_part.set(0.0);
    for replica in &all {
        replica.lease.want(false);
    }
    sleep(Duration::from_secs(20)).await;
    let rows = all[0].top.sync().await.expect("it runs");
    let (mut made, mut refused) = (0, 0);
    for (number, told) in told.into_iter().flatten() {
        let row = rows.get(&number_key(number)).expect("it is read");
        match told {
            Ok(pos) => {
                made += 1;
                assert_eq!(row.as_deref(), Some(&pos.to_le_bytes()[..]), "{number}");
            }
            Err(Lost::Elsewhere(_)) => {
                refused += 1;
                assert_eq!(row, None, "note {number} was refused");
            }
            Err(lost) => assert_eq!(lost, Lost::Log(LogError::Unknown)),
        }
    }
    (made, refused)
}

fn check_seeds(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let (sim, machine) = simulation(seed);
        let told = sim.run_on(machine, check_what_is_told());
        let (made, refused) = told.expect("nothing kills it");
        assert!(
            made > 50 && refused > 50,
            "{made} made, {refused} refused: too few"
        );
    }
}

#[test]
fn what_a_proposer_is_told_is_true_while_the_lease_changes_hands() {
    check_seeds(0..40);
}

#[test]
fn a_proposer_that_believes_its_last_refusal_is_found() {
    fault::makes_panic("delos_order_refusal_believed", "was refused", || {
        check_seeds(300..1200);
    });
}
