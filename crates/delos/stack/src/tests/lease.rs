//! Lease over a log that is far away, with replicas that stop and restart, and clocks that drift.

use super::far::{Far, ROUND_TRIP, Way};
use super::*;
use crate::engines::batching::{self, BatchingAbove, BatchingBelow};
use crate::engines::lease::{DRIFT_PART, GUARD, LEASE, LeaseAbove, LeaseBelow};
use plinth_runtime::sim::{ProcessId, control};
use plinth_runtime::{fault, race, timeout};
use std::cell::Cell;

/// Counts its requests. Its one row is how many there were.
struct Counter;

fn count_in(row: Option<Bytes>) -> u64 {
    row.map_or(0, |row| {
        u64::from_le_bytes(row[..].try_into().expect("a count"))
    })
}

impl Application for Counter {
    type Return = u64;
    type Refusal = ();

    fn execute(&self, tx: &mut RwTx, _: &Bytes, _: LogPos) -> Result<u64, Failure<()>> {
        let count = 1 + count_in(tx.get(b"count")?);
        tx.set(b"count", count.to_le_bytes().to_vec());
        Ok(count)
    }
}

type Bottom = Rc<Base<Way, LeaseAbove<BatchingAbove<Top<Counter>>>>>;
type Lease = Rc<LeaseBelow<Bottom>>;

struct Leased {
    base: Bottom,
    lease: Lease,
    top: Rc<BatchingBelow<Lease, u64, ()>>,
    is_cut: Rc<Cell<bool>>,
    _running: Task<()>,
}

impl Leased {
    async fn count(&self) -> Result<u64, Lost> {
        let rows = self.top.sync().await?;
        Ok(count_in(rows.get(b"count").expect("a new snapshot")))
    }

    async fn add(&self) -> Proposed<u64, ()> {
        self.top.propose(Entry::new("")).await
    }

    async fn until_valid(&self) {
        while !self.lease.is_valid() {
            sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn leased(far: &Rc<Far>, id: u64, is_cut: Rc<Cell<bool>>) -> Leased {
    let path = format!("/leased-{id}");
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
    let way = Rc::new(Way::new(far, is_cut.clone()));
    let above = LeaseAbove::new(BatchingAbove::new(Top(Counter)));
    let base = Base::new(way, store.clone(), above);
    let lease = LeaseBelow::new(base.clone(), store.clone(), id, base.applicator());
    let lease = Rc::new(lease);
    let top = Rc::new(BatchingBelow::new(lease.clone(), store));
    let (b, l, t) = (base.clone(), lease.clone(), top.clone());
    let running = spawn("replica", async move {
        race(b.run(), race(l.run(), t.run())).await;
    });
    Leased {
        base,
        lease,
        top,
        is_cut,
        _running: running,
    }
}

/// Two replicas; the first has the lease.
fn with_holder(work: impl AsyncFnOnce(Leased, Leased, Rc<Far>) + 'static) {
    on_a_machine(async {
        let far = Far::new();
        let one = leased(&far, 1, Rc::default()).await;
        let two = leased(&far, 2, Rc::default()).await;
        GUARD.switch(&one.base, true).await.expect("it runs");
        one.lease.want(true);
        one.until_valid().await;
        work(one, two, far).await;
    });
}

#[test]
fn the_holder_reads_in_no_time_and_others_in_a_round_trip() {
    with_holder(async |one, two, _far| {
        for count in 1..50 {
            assert_eq!(one.add().await, Ok(Answer::Done(count)));
            let since = control().elapsed();
            assert_eq!(one.count().await, Ok(count));
            assert_eq!(control().elapsed(), since, "a read took time");
            assert_eq!(two.count().await, Ok(count));
            let took = control().elapsed() - since;
            // It may have to wait for a look at the tail that began before.
            assert!(took >= ROUND_TRIP && took < 3 * ROUND_TRIP, "{took:?}");
        }
        assert!(one.lease.is_valid(), "it is renewed");
    });
}

#[test]
fn a_replica_without_the_lease_refuses_proposals_and_says_who_has_it() {
    with_holder(async |one, two, far| {
        // It has not heard of the lease.
        assert_eq!(two.lease.holder(), Ok(None));
        let before = far.entries.borrow().len();
        assert_eq!(two.add().await, Err(Lost::Elsewhere(1)));
        assert!(far.entries.borrow().len() > before, "the log said it");
        let before = far.entries.borrow().len();
        let since = control().elapsed();
        assert_eq!(two.add().await, Err(Lost::Elsewhere(1)));
        assert_eq!(control().elapsed(), since, "it knew");
        assert_eq!(far.entries.borrow().len(), before);
        assert_eq!(one.count().await, Ok(0));
        one.lease.want(false);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(two.add().await, Ok(Answer::Done(1)));
        assert_eq!(one.count().await, Ok(1));
    });
}

#[test]
fn another_replica_takes_over_from_a_holder_that_dies() {
    with_holder(async |one, two, _far| {
        assert_eq!(one.add().await, Ok(Answer::Done(1)));
        two.lease.want(true);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(two.lease.holder(), Ok(Some(1)));
        drop(one);
        let bound = LEASE + LEASE / DRIFT_PART + Duration::from_millis(1500);
        timeout(bound, two.until_valid()).await.expect("it is soon");
        assert_eq!(two.count().await, Ok(1));
        assert_eq!(two.add().await, Ok(Answer::Done(2)));
    });
}

#[test]
fn a_holder_that_restarts_asks_the_log_until_it_has_claimed_again() {
    with_holder(async |one, two, far| {
        drop(one);
        let one = leased(&far, 1, Rc::default()).await;
        two.count().await.expect("it runs");
        assert_eq!(two.lease.holder(), Ok(Some(1)));
        assert_eq!(one.count().await, Ok(0));
        assert!(!one.lease.is_valid());
        one.lease.want(true);
        let soon = Duration::from_secs(1);
        timeout(soon, one.until_valid()).await.expect("it is soon");
        assert_eq!(one.add().await, Ok(Answer::Done(1)));
    });
}

#[test]
fn a_lease_outlives_the_switch() {
    with_holder(async |one, two, _far| {
        one.is_cut.set(true);
        GUARD.switch(&two.base, false).await.expect("it runs");
        // The holder has not heard of it.
        assert!(one.lease.is_valid());
        assert_eq!(two.add().await, Err(Lost::Elsewhere(1)));
        assert_eq!(one.count().await, Ok(0));
        let ended = async {
            while two.add().await != Ok(Answer::Done(1)) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(2 * LEASE, ended).await.expect("it ends");
        assert!(!one.lease.is_valid());
        one.is_cut.set(false);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(one.count().await, Ok(1));
        assert!(!one.lease.is_valid(), "nobody claims it any more");
        assert_eq!(two.add().await, Ok(Answer::Done(2)));
    });
}

#[test]
fn a_holder_that_hears_of_the_switch_gives_the_lease_up_at_once() {
    with_holder(async |one, two, _far| {
        GUARD.switch(&one.base, false).await.expect("it runs");
        sleep(Duration::from_millis(1200)).await;
        assert_eq!(two.add().await, Ok(Answer::Done(1)));
    });
}

#[test]
fn hostile_bytes_do_the_same_to_all_replicas() {
    with_holder(async |one, two, _far| {
        for _ in 0..300 {
            let mut entry = Entry::default();
            if random::chance(0.5) {
                entry = Entry::new("");
            }
            for name in ["lease", "lease_by", "lease_end"] {
                let mut said = vec![0; random::below(40) as usize];
                random::fill(&mut said);
                if let Some(kind) = said.first_mut() {
                    *kind %= 2;
                }
                if random::chance(0.4) {
                    entry.set_header(name, said);
                }
            }
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

#[test]
fn an_end_does_not_touch_a_later_claim() {
    with_holder(async |one, two, far| {
        sleep(LEASE).await; // it is renewed some times
        let entries = far.entries.borrow().clone();
        let mut claims: Vec<LogPos> = Vec::new();
        for (pos, bytes) in (1..).zip(entries) {
            let entry = Entry::decode(bytes).expect("an entry");
            claims.extend(entry.header("lease").map(|_| pos));
        }
        let last = claims.pop().expect("a claim");
        assert!(claims.len() > 2, "{claims:?}");
        for claim in claims {
            let mut end = Entry::default();
            end.set_header("lease_end", claim.to_le_bytes().to_vec());
            two.base.propose(end).await.expect("it runs");
            assert_eq!(two.lease.holder(), Ok(Some(1)), "{claim} is not {last}");
        }
        assert!(one.lease.is_valid());
    });
}

/// What a client did, in true time. Counts grow with the log, so the log's order is right for the clients if no
/// operation has a smaller count than one that had ended when it began.
#[derive(Clone, Copy, Debug)]
struct Done {
    began: Duration,
    ended: Duration,
    count: u64,
    is_write: bool,
    #[allow(dead_code)] // it is in the message
    replica: u64,
}

/// Checks that the history is linearizable.
fn check_history(history: &[Done]) {
    let mut by_end = history.to_vec();
    by_end.sort_by_key(|done| done.ended);
    let mut by_begin = history.to_vec();
    by_begin.sort_by_key(|done| done.began);
    let (mut ended, mut newest) = (by_end.into_iter().peekable(), None::<Done>);
    for done in by_begin {
        while let Some(before) = ended.next_if(|before| before.ended < done.began) {
            if newest.is_none_or(|newest| newest.count < before.count) {
                newest = Some(before);
            }
        }
        let Some(newest) = newest else {
            continue;
        };
        let least = newest.count + u64::from(done.is_write);
        assert!(done.count >= least, "{done:?} comes after {newest:?}");
    }
}

struct World {
    far: Rc<Far>,
    cuts: [Rc<Cell<bool>>; 3],
    history: RefCell<Vec<Done>>,
    /// Reads that took no time.
    free: Cell<u64>,
    /// Operators change their minds.
    is_restless: bool,
}

async fn use_replica(world: &World, replica: &Leased, id: u64) {
    loop {
        let began = control().elapsed();
        // A holder whose writes are stuck asks the log. So let some be read-only while they are cut off.
        let may_write = world.is_restless || !replica.is_cut.get();
        let is_write = random::chance(0.2) && may_write;
        let count = match is_write {
            true => match replica.add().await {
                Ok(Answer::Done(count)) => Some(count),
                _ => None,
            },
            false => replica.count().await.ok(),
        };
        let ended = control().elapsed();
        if !is_write && began == ended {
            world.free.update(|free| free + 1);
        }
        world.history.borrow_mut().extend(count.map(|count| Done {
            began,
            ended,
            count,
            is_write,
            replica: id,
        }));
        sleep(Duration::from_millis(1 + random::below(40))).await;
    }
}

/// A replica's process: three clients, and an operator who changes his mind.
async fn serve(world: Rc<World>, id: u64) {
    let is_cut = world.cuts[id as usize].clone();
    let replica = leased(&world.far, id, is_cut).await;
    let _ = GUARD.switch(&replica.base, true).await; // the others do the same
    let operate = async {
        loop {
            let is_wanted = !world.is_restless || random::chance(0.6);
            replica.lease.want(is_wanted);
            if world.is_restless && random::chance(0.3) {
                let guard = [GUARD, batching::GUARD][random::below(2) as usize];
                let _ = guard.switch(&replica.base, random::chance(0.8)).await; // the next one
            }
            sleep(Duration::from_millis(random::below(4000))).await;
        }
    };
    let clients = join_all((0..3).map(|_| use_replica(&world, &replica, id)));
    race(operate, clients).await;
}

/// Breaks things for a while.
async fn disturb(world: Rc<World>, processes: Vec<(MachineId, ProcessId)>) {
    let far = &world.far;
    far.late_part
        .set([0.0, 0.005, 0.05][random::below(3) as usize]);
    let drift_ppm = 1_000_000 / i64::from(DRIFT_PART);
    for _ in 0..40 {
        sleep(Duration::from_millis(random::below(1500))).await;
        let at = random::below(3) as usize;
        let (machine, process) = processes[at];
        let pause = Duration::from_millis(random::below(4000));
        match random::below(6) {
            0 => control().pause_process(process, pause),
            1 => control().busy_process(process, pause),
            2 => {
                let after = pause / 4;
                control().kill_process(process, KillKind::RebootProcess { after });
            }
            3 => {
                let drift = random::below(2 * drift_ppm as u64 + 1) as i64 - drift_ppm;
                let extreme = [-drift_ppm, drift_ppm, drift][random::below(3) as usize];
                control().set_clock_drift(machine, extreme);
            }
            _ => {
                let is_cut = world.cuts[at].clone();
                is_cut.set(true);
                spawn("heal", async move {
                    sleep(pause).await;
                    is_cut.set(false);
                })
                .detach();
            }
        }
    }
}

/// Leaves the clocks as far apart as they may be, and cuts off one replica after the other.
async fn drift_apart(world: Rc<World>, processes: Vec<(MachineId, ProcessId)>) {
    let drift_ppm = 1_000_000 / i64::from(DRIFT_PART);
    world.far.round_trip.set(Duration::from_millis(2));
    for _ in 0..10 {
        let (at, is_cut) = (random::below(3) as usize, &world.cuts);
        for (which, (machine, _)) in processes.iter().enumerate() {
            let drift = if which == at { -drift_ppm } else { drift_ppm };
            control().set_clock_drift(*machine, drift);
        }
        sleep(Duration::from_millis(4000 + random::below(500))).await;
        is_cut[at].set(true);
        sleep(Duration::from_millis(3500)).await;
        is_cut[at].set(false);
    }
}

fn run_history(seed: u64) -> (usize, u64, u64) {
    run_world(seed, true, disturb)
}

/// Numbers of operations and of reads that took no time, and the run's fingerprint.
fn run_world<F: Future<Output = ()> + 'static>(
    seed: u64,
    is_restless: bool,
    disturb: impl FnOnce(Rc<World>, Vec<(MachineId, ProcessId)>) -> F,
) -> (usize, u64, u64) {
    let sim = Simulation::new(seed, SimConfig::default());
    let world = Rc::new(World {
        far: Far::new(),
        cuts: Default::default(),
        history: RefCell::default(),
        free: Cell::new(0),
        is_restless,
    });
    let mut processes = Vec::new();
    for id in 0..3 {
        let machine = sim.add_machine(Locality::default());
        let mine = world.clone();
        let address = format!("10.0.0.{}:4500", id + 1).parse();
        let serve = move || Box::pin(serve(mine.clone(), id)) as _;
        let process = sim.start_process(machine, address.expect("an address"), serve);
        processes.push((machine, process));
    }
    sim.run(disturb(world.clone(), processes));
    let history = world.history.borrow();
    check_history(&history);
    (history.len(), world.free.get(), sim.fingerprint())
}

#[test]
fn no_read_is_stale_while_holders_stop_and_clocks_drift() {
    let (mut done, mut free) = (0, 0);
    for seed in 0..40 {
        let (of_seed, of_them_free, _) = run_history(seed);
        done += of_seed;
        free += of_them_free;
    }
    assert!(done > 10_000 && free > 2000, "{done}, {free} at no cost");
    assert_eq!(run_history(3), run_history(3));
}

#[test]
fn no_read_is_stale_with_clocks_as_far_apart_as_they_may_be() {
    (0..40).for_each(|seed| assert!(run_world(seed, false, drift_apart).1 > 0));
}

#[test]
fn replicas_that_trust_each_others_clocks_are_found() {
    fault::makes_panic("delos_lease_drift", "comes after", || {
        (0..40).for_each(|seed| assert!(run_world(seed, false, drift_apart).1 > 0));
    });
}

#[test]
fn a_lease_that_is_used_after_its_end_is_found() {
    fault::makes_panic("delos_lease_stale", "comes after", || {
        (0..20).for_each(|seed| assert!(run_history(seed).0 > 0));
    });
}

#[test]
fn a_holder_behind_what_another_has_read_of_it_is_found() {
    fault::makes_panic("delos_lease_unwaited", "comes after", || {
        (0..20).for_each(|seed| assert!(run_history(seed).0 > 0));
    });
}
