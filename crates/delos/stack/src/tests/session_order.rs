//! SessionOrder over a log that reorders what comes at the same time, and often does not know what became of it.

use super::*;
use crate::engines::session_order::{GUARD, SessionOrderAbove, SessionOrderBelow};
use crate::log::Tail;
use plinth_runtime::{fault, race, timeout};
use std::cell::Cell;
use std::pin::Pin;

/// Some appends are late, and of some nobody knows how they ended.
struct Unruly(Rc<FileLog>);

impl SharedLog for Unruly {
    async fn append(&self, entry: Bytes) -> Result<LogPos, LogError> {
        if random::chance(0.02) {
            sleep(Duration::from_millis(random::below(10))).await;
        }
        if random::chance(0.01) {
            return Err(LogError::Unknown);
        }
        let pos = self.0.append(entry).await?;
        match random::chance(0.01) {
            true => Err(LogError::Unknown),
            false => Ok(pos),
        }
    }
    async fn check_tail(&self) -> Result<Tail, LogError> {
        self.0.check_tail().await
    }
    async fn read_next(
        &self,
        from: LogPos,
        bytes_max: usize,
    ) -> Result<Vec<(LogPos, Bytes)>, LogError> {
        self.0.read_next(from, bytes_max).await
    }
    async fn prefix_trim(&self, before: LogPos) -> Result<(), LogError> {
        self.0.prefix_trim(before).await
    }
    async fn seal(&self) -> Result<Tail, LogError> {
        self.0.seal().await
    }
}

type Bottom = Rc<Base<Unruly, SessionOrderAbove<Top<Notes>>>>;

struct Ordered {
    base: Bottom,
    top: Rc<SessionOrderBelow<Bottom, LogPos, NoNote>>,
    _running: Task<()>,
}

async fn ordered(log: &Rc<Unruly>, name: &str) -> Ordered {
    let path = format!("/data/ordered-{name}");
    let engine = plinth_engine::open(EngineKind::Memory, Path::new(&path), true, 1 << 20).await;
    let store = LocalStore::open(engine.expect("an engine")).expect("a store");
    let base = Base::new(
        log.clone(),
        store.clone(),
        SessionOrderAbove::new(Top(Notes)),
    );
    let top = SessionOrderBelow::new(base.clone(), store, base.applicator());
    let top = Rc::new(top);
    let (bottom, carrier) = (base.clone(), top.clone());
    let running = spawn("replica", async move {
        race(bottom.run(), carrier.run()).await;
    });
    Ordered {
        base,
        top,
        _running: running,
    }
}

/// Switches the engine, and waits until all of `replicas` know.
async fn switch(replicas: &[&Ordered], on: bool) {
    while GUARD.switch(&replicas[0].base, on).await.is_err() {}
    for replica in replicas {
        replica.top.sync().await.expect("it runs");
    }
}

/// Proposes `numbers` at once; the position of each that was noted. All are answered, and none twice.
async fn propose_all(replica: &Ordered, numbers: std::ops::Range<u64>) -> Vec<LogPos> {
    let proposed = numbers
        .clone()
        .map(|number| replica.top.propose(note(number)));
    let mut noted = Vec::new();
    for (number, answer) in numbers.zip(join_all(proposed).await) {
        match answer.expect("it runs") {
            Answer::Done(pos) => noted.push(pos),
            Answer::Refused(NoNote::Seven) => assert_eq!(number % 10, 7),
            other => panic!("note {number} is answered {other:?}"),
        }
    }
    noted
}

async fn together<A, B>(one: impl Future<Output = A>, two: impl Future<Output = B>) -> (A, B) {
    let (a, b) = (Cell::new(None), Cell::new(None));
    let both: [Pin<Box<dyn Future<Output = ()> + '_>>; 2] = [
        Box::pin(async { a.set(Some(one.await)) }),
        Box::pin(async { b.set(Some(two.await)) }),
    ];
    join_all(both).await;
    (a.take().expect("it is done"), b.take().expect("it is done"))
}

fn with_two(work: impl AsyncFnOnce(Ordered, Ordered) + 'static) {
    on_a_machine(async {
        let log = Rc::new(Unruly(open_log().await));
        let one = ordered(&log, "one").await;
        let two = ordered(&log, "two").await;
        work(one, two).await;
    });
}

fn propose_at_both() {
    with_two(async |one, two| {
        switch(&[&one, &two], true).await;
        let both = [propose_all(&one, 0..300), propose_all(&two, 1000..1300)];
        for noted in join_all(both).await {
            assert_eq!(noted.len(), 270);
            assert!(noted.is_sorted(), "out of order: {noted:?}");
        }
        one.top.sync().await.expect("it runs");
        two.top.sync().await.expect("it runs");
        let (one, two) = (one.base.store(), two.base.store());
        assert_eq!(
            (one.applied(), one.checksum()),
            (two.applied(), two.checksum())
        );
    });
}

#[test]
fn proposals_are_applied_once_and_in_the_order_in_which_they_were_made() {
    propose_at_both();
}

#[test]
fn a_replica_that_overlooks_the_order_is_found() {
    fault::makes_panic("delos_order_overlooked", "", propose_at_both);
}

#[test]
fn a_read_sees_the_proposals_made_before_it_that_are_not_answered_yet() {
    with_two(async |one, _two| {
        switch(&[&one], true).await;
        for round in 0..30 {
            let number = 1 + 10 * round;
            let read = async {
                let rows = one.top.sync().await.expect("it runs");
                rows.get(&number_key(number)).expect("it is read").is_some()
            };
            let proposed = one.top.propose(note(number));
            let (answer, is_seen) = together(proposed, read).await;
            assert!(matches!(answer, Ok(Answer::Done(_))), "{answer:?}");
            assert!(is_seen, "the read behind note {number} does not see it");
        }
    });
}

#[test]
fn a_proposer_that_goes_away_holds_nobody_up() {
    with_two(async |one, _two| {
        switch(&[&one], true).await;
        for number in (0..200).step_by(20) {
            let gone = one.top.propose(note(number));
            let _ = timeout(Duration::from_millis(random::below(5)), gone).await;
            let behind = one.top.propose(note(number + 1)).await;
            assert!(matches!(behind, Ok(Answer::Done(_))), "{behind:?}");
        }
    });
}

#[test]
fn it_is_switched_on_in_the_middle_of_proposals() {
    with_two(async |one, two| {
        for round in 0..20u64 {
            let both = join_all([1000 * round, 1000 * round + 500].map(|first| {
                let at = if first % 1000 == 0 { &one } else { &two };
                async move {
                    let noted = join_all((first + 1..first + 7).map(|n| at.top.propose(note(n))));
                    noted
                        .await
                        .into_iter()
                        .filter(|a| matches!(a, Ok(Answer::Done(_))))
                        .count()
                }
            }));
            together(both, switch(&[&one], round % 2 == 0)).await;
        }
        switch(&[&two, &one], true).await;
        assert!(propose_all(&one, 100_000..100_050).await.is_sorted());
        assert!(propose_all(&two, 200_000..200_050).await.is_sorted());
    });
}
