//! Stores whose commits take long, all the time or now and then.

use super::*;
use plinth_runtime::knobs::{Knobs, set_knobs};

/// How long an answer may take beside commits.
const BESIDE: Duration = Duration::from_millis(600);

impl World {
    /// From now on commits take so long at each gateway: a part of it passes before the commit.
    fn slow_down(&self, took: Duration) {
        for gateway in &self.gateways {
            let before = took.mul_f64(random::unit());
            gateway.store.set_commits_late(before, took - before);
        }
    }

    fn hang(&self, is_hung: bool) {
        let stores = self.gateways.iter().map(|gateway| &gateway.store);
        stores.for_each(|store| store.set_hung(is_hung));
    }
}

fn set(path: &str) -> Request {
    Request::SetData {
        path: path.into(),
        data: Some(Bytes::from_static(b"more")),
        version: -1,
    }
}

/// Requests that are answered from memory wait for a beat, and writes for those before them and for their commits.
async fn ask_slowly(world: Rc<World>, took: Duration) {
    let gateway = world.any();
    let mut life = Life::begin(&world, gateway, ms(24_000), 1).await;
    let path = world.next_path();
    let until = now() + ms(20_000);
    let client = loop {
        match life.come_back(gateway).await {
            Some(Some(client)) => break client,
            Some(None) => return world.complain("a session has ended".into()),
            None if now() > until => return world.complain("nobody is greeted".into()),
            None => {}
        }
    };
    let _ = client.submit(create(&path)).await;
    while now() < until {
        sleep(ms(random::below(1000))).await;
        let sent = now();
        let (request, most) = match random::chance(0.5) {
            true => (Request::Ping, took + BESIDE),
            // Another gateway may have had it refused once.
            false => (set(&path), 5 * took + BESIDE),
        };
        match timeout(most, client.submit(request)).await {
            Some(Ok(_)) => life.answered = sent,
            outcome => {
                let answer = outcome.map(|answered| answered.is_ok());
                return world.complain(format!("commits of {took:?}: {answer:?} in {most:?}"));
            }
        }
    }
    drop(client);
    life.fall_silent(10 * took + ms(1000)).await;
}

async fn slow_commits() -> Rc<World> {
    let world = World::new(ms(1)).await;
    let took = ms([500, 800, 1300, 2000][random::below(4) as usize]);
    world.slow_down(took);
    join_all((0..12).map(|_| ask_slowly(world.clone(), took))).await;
    world
}

#[test]
fn requests_are_answered_if_commits_take_up_to_two_seconds() {
    holds(8, slow_commits);
}

/// A gateway that hears late what has become of its commits is cut off. It counts from when it has sent them.
async fn cut_off_from_a_slow_store() -> Rc<World> {
    let world = World::new(ms(1)).await;
    let gateway = world.any();
    let store = world.gateways[usize::from(gateway)].store.clone();
    store.set_commits_late(Duration::ZERO, ms(800));
    let cut_at = now() + ms(6000 + random::below(1000));
    let one = async |world: Rc<World>| {
        let mut life = Life::begin(&world, gateway, ms(4000), 1).await;
        let Some(Some(client)) = life.come_back(gateway).await else {
            return world.complain("nothing is broken yet".into());
        };
        while now() < cut_at + ms(6000) {
            sleep(ms(20)).await;
            let sent = now();
            match timeout(ms(8000), client.submit(Request::Ping)).await {
                Some(Ok(_)) => life.answered = sent,
                _ => break,
            }
        }
        drop(client);
        life.fall_silent(ms(2500)).await;
    };
    let clients = join_all((0..5).map(|_| one(world.clone())));
    let _cutting = spawn("breaks", async move {
        sleep_until(cut_at).await;
        store.set_hung(true);
    });
    clients.await;
    world
}

#[test]
fn what_a_gateway_has_answered_counts_if_it_hears_late_of_its_commits() {
    holds(10, cut_off_from_a_slow_store);
}

#[test]
fn contact_that_is_counted_from_the_answer_is_found() {
    is_found("keeper_contact_from_the_answer", cut_off_from_a_slow_store);
}

/// Keeps so many writes under way at a gateway, as long as it runs.
async fn press(world: Rc<World>, gateway: u8, writes: usize) {
    let client = loop {
        if let Ok(client) = Client::connect(address(gateway), 30_000, None).await {
            break client;
        }
        sleep(ms(50)).await;
    };
    let path = world.next_path();
    let _ = client.submit(create(&path)).await;
    let one = async || {
        while client.failure().is_none() {
            let _ = client.submit(set(&path)).await;
        }
    };
    join_all((0..writes).map(|_| one())).await;
    sleep(ms(60_000)).await;
}

/// Gateways have much to write, and the database stalls again and again.
async fn return_behind_a_full_queue() -> Rc<World> {
    let mut knobs = Knobs::default();
    // Those who press are not to take the time of the test: what is small here are the batches, not the queue.
    knobs
        .set("keeper_batch_operations_max", "10")
        .expect("a knob");
    set_knobs(knobs);
    let world = World::new(ms(2)).await;
    let pressing = TaskGroup::new();
    for gateway in 0..GATEWAYS {
        pressing.spawn("press", press(world.clone(), gateway, 500));
    }
    let beside = world.clone();
    let _stalling = spawn("breaks", async move {
        loop {
            sleep(ms(random::range(500..1500))).await;
            beside.hang(true);
            sleep(ms(random::range(300..900))).await;
            beside.hang(false);
        }
    });
    return_after(world, 40, 3850..4000, false).await
}

#[test]
fn a_client_that_comes_back_in_time_stands_behind_nobodys_writes() {
    holds(4, return_behind_a_full_queue);
}

/// One gateway writes all the time and counts on being alone; another one has written nothing for long.
async fn write_beside_one_that_counts_on_being_alone() -> Rc<World> {
    let world = World::with(2, ms(1)).await;
    let took = ms(1000);
    let client = Client::connect(address(1), 30_000, None).await;
    let client = client.expect("it serves");
    for gateway in &world.gateways {
        gateway.store.set_commits_late(took, Duration::ZERO);
    }
    let _pressing = spawn("press", press(world.clone(), 0, 3));
    sleep(ms(10_000)).await;
    let path = world.next_path();
    let written = timeout(8 * took, client.submit(create(&path))).await;
    if written.is_none_or(|written| written.is_err()) {
        world.complain("a write is never carried out".into());
    }
    world
}

#[test]
fn a_gateway_that_counts_on_being_alone_hears_of_another_one() {
    holds(10, write_beside_one_that_counts_on_being_alone);
}

/// One gateway writes all the time, in no time. The commits of the other one take two seconds.
async fn write_slowly_beside_a_quick_one() -> Rc<World> {
    let world = World::with(2, ms(1)).await;
    let client = Client::connect(address(1), 40_000, None).await;
    let client = client.expect("it serves");
    let took = ms(random::range(1500..2000));
    let store = &world.gateways[1].store;
    store.set_commits_late(took, Duration::ZERO);
    let _pressing = spawn("press", write_all_the_time(0));
    sleep(ms(5000)).await;
    for _ in 0..2 {
        let began = now();
        let written = client.submit(create(&world.next_path()));
        let written = timeout(ms(25_000), written).await;
        if !matches!(written, Some(Ok(_))) {
            let after = began.elapsed();
            world.complain(format!("commits of {took:?}: {written:?} after {after:?}"));
            return world;
        }
        // The quick one may come to count on being alone again.
        sleep(ms(random::below(10_000))).await;
    }
    world
}

/// Writes one after the other: not so many that the store would forget the versions at which the slow one commits.
async fn write_all_the_time(gateway: u8) {
    let client = Client::connect(address(gateway), 30_000, None).await;
    let client = client.expect("it serves");
    let _ = client.submit(create("/quick")).await;
    loop {
        let written = client.submit(set("/quick")).await;
        written.expect("nothing is in its way for long");
        sleep(ms(10)).await;
    }
}

#[test]
fn a_gateway_whose_commits_take_long_gets_its_writes_through_beside_a_quick_one() {
    holds(2, write_slowly_beside_a_quick_one);
}

/// Two gateways die, and another one whose commits take two seconds looks after what they leave: it removes the lease
/// of one that had no sessions when those of the other one are due.
async fn end_beside_a_removal() -> Rc<World> {
    let world = World::new(ms(1)).await;
    let mut life = Life::begin(&world, 1, ms(24_000), 1).await;
    let half = ms(1000);
    for gateway in [0, 2] {
        world.gateways[gateway].store.set_commits_late(half, half);
    }
    sleep(ms(4000)).await;
    let kill = |gateway: usize| {
        control().kill_process(world.gateways[gateway].process, KillKind::Kill);
    };
    kill(1);
    // Nobody hears of the gateway any more either.
    life.answered = now();
    sleep(ms(random::range(26_500..27_800))).await;
    kill(2);
    // The time of its answers, four slow beats for one who went elsewhere, one that is a proof, and half a commit.
    life.fall_silent(ms(900 + 4 * 2000 + 2000 + 1000 + 400))
        .await;
    world
}

#[test]
fn the_end_of_a_session_does_not_wait_for_the_removal_of_another_gateway() {
    holds(8, end_beside_a_removal);
}

/// Many clients of one gateway fall silent within a few seconds, and commits take long.
async fn silence_beside_slow_commits(took: Duration) -> Rc<World> {
    let world = World::with(1, ms(1)).await;
    let opening = (0..60).map(|_| async {
        sleep(ms(random::below(6000))).await;
        Life::begin(&world, 0, ms(10_000), 3).await
    });
    let lives = join_all(opening).await;
    world.slow_down(took);
    // One after the other they would take sixty commits.
    let most = 8 * took + ms(500);
    join_all(lives.into_iter().map(|life| life.fall_silent(most))).await;
    world
}

#[test]
fn sessions_that_end_on_a_slow_store_share_commits() {
    for took in [ms(500), ms(2000)] {
        for seed in 1..=2 {
            let world = tell(seed, silence_beside_slow_commits(took));
            let world = world.unwrap_or_else(|wrong| panic!("{wrong}"));
            println!("commits of {took:?}: at most {:?} late", world.latest.get());
        }
    }
}

/// Nodes with a time to live of which many are over together.
async fn outlive(nodes: usize, took: Duration) -> Rc<World> {
    let world = World::with(1, ms(1)).await;
    let client = Client::connect(address(0), 40_000, None).await;
    let client = client.expect("it serves");
    let short = |path: String| Request::Create {
        kind: CreateKind::Ttl,
        path: path.as_str().into(),
        data: None,
        acl: Acl::open(),
        flags: create_flags::PERSISTENT_WITH_TTL,
        ttl: 100,
    };
    let operations = (0..nodes).map(|number| short(format!("/{number}")));
    let operations = operations.collect();
    let made = client.submit(Request::Multi { operations }).await;
    made.expect("created");
    world.slow_down(took);
    let rows = Rows::new(&Options::default().tree);
    let left = || {
        let numbers = (0..nodes).map(|number| rows.node(&format!("/{number}")));
        numbers.filter(|row| world.store.row(row).is_some()).count()
    };
    // It is looked for them at most 15 s later.
    sleep(ms(15_000) + 5 * took).await;
    if left() > 0 {
        world.complain(format!("{} nodes are left whose time is over", left()));
    }
    drop(client);
    world
}

#[test]
fn nodes_whose_time_is_over_share_commits() {
    holds(3, || outlive(60, ms(500)));
}
