//! Time over a log that is far away, with replicas that stop and restart.

use super::far::{Far, Way};
use super::*;
use crate::engines::time::{GUARD, TimeAbove, TimeBelow, TimerId};
use plinth_runtime::sim::control;
use plinth_runtime::sync::queue;
use plinth_runtime::{Either, fault, race, timeout};
use std::cell::Cell;
use std::convert::Infallible;

const SECOND: Duration = Duration::from_secs(1);
/// For the log's round trips, the looks at the rows, and clocks that are wrong by a hundredth.
const MARGIN: Duration = Duration::from_millis(1600);

type Bottom = Rc<Base<Way, TimeAbove<Top<Notes>>>>;

struct Timed {
    base: Bottom,
    time: Rc<TimeBelow<Bottom>>,
    is_cut: Rc<Cell<bool>>,
    _running: Task<()>,
}

async fn timed(far: &Rc<Far>, id: u64) -> Timed {
    let path = format!("/data/timed-{id}");
    let path = Path::new(&path);
    let kind = EngineKind::Memory;
    let engine = match plinth_engine::open(kind, path, false, 1 << 20).await {
        Ok(engine) => engine,
        Err(_) => {
            let made = plinth_engine::open(kind, path, true, 1 << 20).await;
            made.expect("an engine")
        }
    };
    let store = LocalStore::open(engine).expect("a store");
    let is_cut: Rc<Cell<bool>> = Rc::default();
    let way = Rc::new(Way::new(far, is_cut.clone()));
    let base = Base::new(way, store.clone(), TimeAbove::new(Top(Notes)));
    let time = TimeBelow::new(base.clone(), store, id, base.applicator());
    let time = Rc::new(time);
    let (b, t) = (base.clone(), time.clone());
    let running = spawn("replica", async move {
        race(b.run(), t.run()).await;
    });
    Timed {
        base,
        time,
        is_cut,
        _running: running,
    }
}

async fn three(far: &Rc<Far>) -> [Timed; 3] {
    let all = [
        timed(far, 0).await,
        timed(far, 1).await,
        timed(far, 2).await,
    ];
    while GUARD.switch(&all[0].base, true).await.is_err() {}
    all
}

async fn create(at: &Timed, time: Duration, needed: u8) -> TimerId {
    loop {
        if let Ok(id) = at.time.create(time, needed).await {
            return id.expect("the engine is on");
        }
    }
}

/// How long it is until a timer fires at a replica.
async fn takes(at: &Timed, id: TimerId) -> Duration {
    let since = control().elapsed();
    at.time.fired(id).await.expect("it runs");
    control().elapsed() - since
}

#[test]
fn a_timer_fires_at_all_replicas_when_its_time_has_passed() {
    on_a_machine(async {
        let far = Far::new();
        let all = three(&far).await;
        for needed in 1..=3 {
            let id = create(&all[0], 5 * SECOND, needed).await;
            let took = join_all(all.iter().map(|replica| takes(replica, id))).await;
            for took in took {
                assert!(
                    took > Duration::from_millis(4900),
                    "it fired after {took:?}"
                );
                assert!(took < 5 * SECOND + MARGIN, "it fired after {took:?}");
            }
        }
        let rows = all[1].base.sync().await.expect("it runs");
        assert_eq!(rows.range(b"time/of", b"time/og", 9), Ok(Vec::new()));
    });
}

#[test]
fn nobody_creates_a_timer_while_the_engine_is_off_and_none_fires() {
    on_a_machine(async {
        let far = Far::new();
        let all = three(&far).await;
        let id = create(&all[0], SECOND, 2).await;
        GUARD.switch(&all[0].base, false).await.expect("it runs");
        assert_eq!(all[1].time.create(SECOND, 2).await, Ok(None));
        let fired = timeout(5 * SECOND, all[1].time.fired(id)).await;
        assert_eq!(fired, None);
        GUARD.switch(&all[0].base, true).await.expect("it runs");
        let fired = timeout(MARGIN, all[1].time.fired(id)).await;
        assert_eq!(fired, Some(Ok(())));
        // A timer for nobody is none.
        assert_eq!(all[1].time.create(SECOND, 0).await, Ok(None));
    });
}

/// Two replicas are needed, and there is one, whose entries get lost.
fn wait_for_a_second() {
    on_a_machine(async {
        let far = Far::new();
        let [one, two, three] = three(&far).await;
        two.is_cut.set(true);
        three.is_cut.set(true);
        let mut ids = Vec::new();
        for _ in 0..10 {
            ids.push(create(&one, SECOND, 2).await);
        }
        far.late_part.set(0.5);
        sleep(30 * SECOND).await;
        for id in &ids {
            let early = timeout(SECOND, one.time.fired(*id)).await;
            assert_eq!(early, None, "it fired for one replica");
        }
        two.is_cut.set(false);
        for id in &ids {
            let fired = timeout(30 * SECOND, one.time.fired(*id)).await;
            assert_eq!(fired, Some(Ok(())));
        }
    });
}

#[test]
fn a_timer_waits_for_as_many_replicas_as_it_is_for() {
    wait_for_a_second();
}

#[test]
fn a_replica_that_counts_twice_is_found() {
    let words = "it fired for one replica";
    fault::makes_panic("delos_timer_twice", words, wait_for_a_second);
}

#[test]
fn a_replica_that_restarts_waits_again_for_the_whole_time() {
    on_a_machine(async {
        let far = Far::new();
        let [one, two, three] = three(&far).await;
        drop((two, three));
        let id = create(&one, 5 * SECOND, 1).await;
        sleep(4 * SECOND).await;
        drop(one);
        let one = timed(&far, 0).await;
        let took = takes(&one, id).await;
        assert!(
            took > Duration::from_millis(4900),
            "it fired after {took:?}"
        );
        assert!(took < 5 * SECOND + MARGIN, "it fired after {took:?}");
    });
}

#[test]
fn hostile_bytes_do_the_same_to_all_replicas() {
    on_a_machine(async {
        let far = Far::new();
        let [one, two, _three] = three(&far).await;
        let id = create(&one, SECOND, 3).await;
        for _ in 0..300 {
            let mut said = vec![0; random::below(30) as usize];
            random::fill(&mut said);
            for byte in said.iter_mut().take(2) {
                *byte %= 2;
            }
            if said.len() > 10 && random::chance(0.5) {
                said[2..10].copy_from_slice(&id.to_le_bytes());
            }
            let mut entry = note(random::u64());
            entry.set_header("time", said);
            one.base.propose(entry).await.expect("answered");
        }
        two.base.sync().await.expect("it runs");
        one.base.sync().await.expect("it runs");
        let (one, two) = (one.base.store(), two.base.store());
        assert_eq!(
            (one.applied(), one.checksum()),
            (two.applied(), two.checksum())
        );
    });
}

/// Lets the log be trimmed of what is older than `age` by the clocks of two replicas, for ever.
async fn trim_by_age<E: Engine>(time: &TimeBelow<E>, age: Duration) -> Infallible {
    let (sender, mut created) = queue();
    let create = async {
        loop {
            if let Ok(Some(id)) = time.create(age, 2).await {
                let _ = sender.send(id); // the receiver is below
            }
            sleep(SECOND).await;
        }
    };
    let trim = async {
        loop {
            let Some(id) = created.recv().await else {
                continue;
            };
            match time.fired(id).await {
                Ok(()) => time.set_trim_prefix(id),
                Err(_) => sleep(SECOND).await, // a later one trims more
            }
        }
    };
    match race(create, trim).await {
        Either::Left(never) | Either::Right(never) => never,
    }
}

#[test]
fn the_log_is_trimmed_by_age() {
    on_a_machine(async {
        let far = Far::new();
        let [one, two, _three] = three(&far).await;
        let age = 10 * SECOND;
        let trim = trim_by_age(&one.time, age);
        let check = async {
            for number in (0..300).step_by(10) {
                two.time.propose(note(number)).await.expect("it runs");
                sleep(SECOND).await;
                let trimmed = far.trimmed.get() as usize;
                let came = far.came.borrow().clone();
                let age_of = |pos: usize| control().elapsed() - came[pos - 1];
                if trimmed > 1 {
                    let least = age.mul_f64(0.99);
                    assert!(age_of(trimmed - 1) >= least, "{trimmed} is too young");
                }
                if control().elapsed() > age + 10 * SECOND {
                    let most = age + 4 * SECOND;
                    assert!(age_of(trimmed + 1) < most, "{trimmed} is too old");
                }
            }
        };
        race(trim, check).await;
    });
}

/// Creates timers at replicas that stop and restart. All fire, none too early, and the replicas agree.
async fn live_through_restarts() {
    let far = Far::new();
    far.late_part.set(0.1);
    let mut all = Vec::from(three(&far).await);
    let mut timers: Vec<(TimerId, Duration)> = Vec::new();
    let mut fired = 0;
    for round in 0..200 {
        let at = random::below(3) as usize;
        if round < 100 && random::chance(0.3) {
            let time = Duration::from_millis(random::below(5000));
            let over = control().elapsed() + time.mul_f64(0.99);
            timers.push((create(&all[at], time, 2).await, over));
        }
        if random::chance(0.2) {
            drop(all.remove(at));
            sleep(Duration::from_millis(random::below(2000))).await;
            all.insert(at, timed(&far, at as u64).await);
        }
        sleep(Duration::from_millis(random::below(300))).await;
        let rows = all[at].base.sync().await.expect("it runs");
        for (id, over) in std::mem::take(&mut timers) {
            let key = GUARD.key(&id.to_be_bytes());
            if rows.get(&key).expect("it is read").is_some() {
                timers.push((id, over));
                continue;
            }
            fired += 1;
            assert!(control().elapsed() >= over, "timer {id} fired early");
        }
    }
    assert!(timers.is_empty() && fired > 10, "{fired} have fired");
    far.late_part.set(0.0);
    for replica in &all {
        replica.base.sync().await.expect("it runs");
    }
    let states = all.iter().map(|replica| replica.base.store());
    let mut states = states.map(|store| (store.applied(), store.checksum()));
    let first = states.next().expect("there are three");
    assert!(states.all(|(applied, sum)| applied != first.0 || sum == first.1));
}

#[test]
fn all_timers_fire_in_time_through_restarts_and_lost_entries() {
    for seed in 0..10 {
        let (sim, machine) = simulation(seed);
        sim.run_on(machine, live_through_restarts())
            .expect("nothing kills it");
    }
}
