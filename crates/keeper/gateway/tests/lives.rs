//! Lives of sessions in the simulator: when each ends, by a clock that differs from the gateways' by no more than
//! theirs may differ. Gateways stand on a cluster in memory, which hangs for one of them or for all.

mod ends;
mod held;
mod pings;
mod short;
mod slow;

use bytes::Bytes;
use plinth_client::testing::MemoryCluster;
use plinth_core::testing::is_nightly;
use plinth_keeper::client::{Client, Failure};
use plinth_keeper::sessions::SessionRow;
use plinth_keeper::tree::rows::Rows;
use plinth_keeper::wire::{Acl, CreateKind, Request, create_flags};
use plinth_keeper::{Keeper, Options};
use plinth_runtime::sim::{KillKind, Locality, ProcessId, SimConfig, Simulation, control};
use plinth_runtime::{
    Boxed, Duration, Instant, TaskGroup, fault, join_all, now, random, sleep, sleep_until, spawn,
    timeout,
};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

const GATEWAYS: u8 = 3;
const LIMIT: Duration = Duration::from_secs(600);
/// How often it is looked whether a session has ended.
const LOOK: Duration = Duration::from_millis(5);
/// Two clocks go apart by at most twice this part.
const DRIFT_PPM: u64 = 1000;
/// Answers of the store that a client waits for.
const PATIENCE: Duration = Duration::from_secs(3);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn address(gateway: u8) -> SocketAddr {
    ([10, 0, 0, 1 + gateway], 2181).into()
}

struct Gateway {
    process: ProcessId,
    /// The store as this gateway reaches it.
    store: MemoryCluster,
}

/// Gateways and their store, and what was seen of them.
struct World {
    store: MemoryCluster,
    gateways: Vec<Gateway>,
    wrong: RefCell<Vec<String>>,
    names: Cell<u64>,
    /// Sessions of which it was seen that they did not end early.
    judged: Cell<u64>,
    /// How late a session of a silent client has ended.
    latest: Cell<Duration>,
}

impl World {
    async fn new(delay: Duration) -> Rc<World> {
        World::with(GATEWAYS, delay).await
    }

    async fn with(gateways: u8, delay: Duration) -> Rc<World> {
        World::with_options(gateways, delay, Options::default()).await
    }

    async fn with_options(gateways: u8, delay: Duration, options: Options) -> Rc<World> {
        let options = Options {
            max_connections_per_address: 0,
            ..options
        };
        let store = MemoryCluster::new();
        store.set_delay(delay);
        let gateways = (0..gateways).map(|n| {
            let id = control().add_machine(Locality::default());
            let store = store.apart();
            let of_gateway = (store.clone(), options.clone());
            let process = control().start_process(id, address(n), move || {
                let (store, options) = of_gateway.clone();
                Box::pin(async move {
                    let keeper = Keeper::listen(store.database(), address(n), options).await;
                    keeper.expect("its port is free").serve().await;
                })
            });
            Gateway { process, store }
        });
        let world = Rc::new(World {
            gateways: gateways.collect(),
            store,
            wrong: RefCell::default(),
            names: Cell::new(0),
            judged: Cell::new(0),
            latest: Cell::default(),
        });
        let forgetful = world.clone();
        spawn("forgets", async move {
            loop {
                sleep(ms(500)).await;
                forgetful.store.forget(2000);
            }
        })
        .detach();
        // Gateways count on being alone, or not, and know one another.
        sleep(ms(3000)).await;
        world
    }

    /// One of the gateways.
    fn any(&self) -> u8 {
        random::below(self.gateways.len() as u64) as u8
    }

    fn lives(&self, session: i64) -> bool {
        let row = self
            .store
            .row(&Rows::new(&Options::default().tree).session(session));
        row.and_then(|row| SessionRow::parse(&row))
            .is_some_and(|row| !row.is_ending())
    }

    fn complain(&self, wrong: String) {
        self.wrong.borrow_mut().push(wrong);
    }

    fn next_path(&self) -> String {
        self.names.set(self.names.get() + 1);
        format!("/{}", self.names.get())
    }

    /// When the session has ended; `None` if it lives at `until`.
    async fn end_of(&self, session: i64, until: Instant) -> Option<Instant> {
        while self.lives(session) {
            if now() >= until {
                return None;
            }
            sleep(LOOK).await;
        }
        Some(now())
    }
}

/// A session, as its client knows it.
struct Life {
    world: Rc<World>,
    timeout: Duration,
    session: (i64, Bytes, i64),
    /// When the last request was sent whose answer has come.
    answered: Instant,
}

impl Life {
    /// With some ephemeral nodes. The connection breaks when the last is answered.
    async fn begin(world: &Rc<World>, gateway: u8, timeout: Duration, nodes: usize) -> Life {
        let began = now();
        let client = loop {
            let timeout_ms = timeout.as_millis() as i32;
            match Client::connect(address(gateway), timeout_ms, None).await {
                Ok(client) => break client,
                Err(_) => sleep(ms(50)).await,
            }
        };
        let mut life = Life {
            world: world.clone(),
            timeout,
            session: client.session(),
            answered: began,
        };
        let created = join_all((0..nodes).map(|_| client.submit(create(&world.next_path()))));
        created
            .await
            .into_iter()
            .for_each(|created| drop(created.expect("created")));
        life.ping(&client).await.expect("nothing is broken yet");
        life
    }

    fn id(&self) -> i64 {
        self.session.0
    }

    /// A request that is answered from memory.
    async fn ping(&mut self, client: &Client) -> Option<()> {
        let sent = now();
        let asked = client.submit(Request::Exists {
            path: "/".into(),
            watch: false,
        });
        timeout(PATIENCE, asked).await?.ok()?;
        self.answered = sent;
        self.session = client.session();
        Some(())
    }

    /// Connects with the session. `None`: there is no answer. `Some(None)`: it has expired.
    async fn come_back(&mut self, gateway: u8) -> Option<Option<Client>> {
        let sent = now();
        let timeout_ms = self.timeout.as_millis() as i32;
        let session = Some(self.session.clone());
        match Client::connect(address(gateway), timeout_ms, session).await {
            Ok(client) => {
                self.answered = sent;
                Some(Some(client))
            }
            Err(Failure::Refused(_)) => Some(None),
            Err(_) => None,
        }
    }

    fn due(&self) -> Instant {
        self.answered + self.timeout
    }

    /// Nothing is heard of the client any more: waits for the end, and complains if it comes early, or later than
    /// `most` after it is due.
    async fn fall_silent(self, most: Duration) {
        let due = self.due();
        let ended = self.world.end_of(self.id(), due + most).await;
        let told = format!("session {:#x} with {:?}", self.id(), self.timeout);
        match ended {
            None => self
                .world
                .complain(format!("{told} lives {most:?} after it was due")),
            Some(ended) if ended < due => {
                let early = due - ended;
                self.world
                    .complain(format!("{told} has ended {early:?} early"));
            }
            Some(ended) => {
                let latest = &self.world.latest;
                latest.set(latest.get().max(ended - due));
            }
        }
    }
}

fn create(path: &str) -> Request {
    Request::Create {
        kind: CreateKind::Plain,
        path: path.into(),
        data: Some(Bytes::from_static(b"mine")),
        acl: Acl::open(),
        flags: create_flags::EPHEMERAL,
        ttl: -1,
    }
}

/// Runs a story with a seed.
///
/// # Errors
/// It has something to complain of.
fn tell<F: Future<Output = Rc<World>> + 'static>(seed: u64, story: F) -> Result<Rc<World>, String> {
    let config = SimConfig {
        clock_drift_ppm_max: DRIFT_PPM,
        ..SimConfig::default()
    };
    let simulation = Simulation::new(seed, config);
    let ended = simulation.run_until(story, LIMIT);
    let world = ended.unwrap_or_else(|| panic!("seed {seed} comes to no end"));
    let wrong = world.wrong.borrow();
    if let Some(first) = wrong.first() {
        return Err(format!("seed {seed}: {} of: {first}", wrong.len()));
    }
    drop(wrong);
    Ok(world)
}

/// Runs `story` with each seed, until one has something to complain of.
fn look<F: Future<Output = Rc<World>> + 'static>(
    seeds: u64,
    story: impl Fn() -> F,
) -> Result<(), String> {
    (1..=seeds).try_for_each(|seed| tell(seed, story()).map(drop))
}

fn holds<F: Future<Output = Rc<World>> + 'static>(seeds: u64, story: impl Fn() -> F) {
    let seeds = if is_nightly() { 20 * seeds } else { seeds };
    if let Err(wrong) = look(seeds, story) {
        panic!("{wrong}");
    }
}

fn is_found<F: Future<Output = Rc<World>> + 'static>(planted: &'static str, story: impl Fn() -> F) {
    fault::plant(Some(planted));
    let found = look(30, story);
    fault::plant(None);
    println!("{planted}: {}", found.expect_err("the oracle finds it"));
    fault::found(planted);
}

/// Keeps the connection for two seconds, in which the session must live.
async fn stay(mut life: Life, client: Client, how: String) {
    let began = now();
    while began.elapsed() < ms(2000) {
        if life.ping(&client).await.is_none() || !life.world.lives(life.id()) {
            let after = began.elapsed();
            let wrong = format!("{how}: told that the session lives, it is lost {after:?} later");
            return life.world.complain(wrong);
        }
        sleep(ms(50)).await;
    }
    let _ = client.close().await;
}

/// Clients come back when `after` has passed since they were last heard, at the same gateway or any.
async fn return_after(
    world: Rc<World>,
    count: u64,
    after: std::ops::Range<u64>,
    is_same: bool,
) -> Rc<World> {
    let one = async |world: Rc<World>| {
        sleep(ms(random::below(2000))).await;
        let gateway = world.any();
        let mut life = Life::begin(&world, gateway, ms(4000), 1).await;
        let wait = ms(random::range(after.clone()));
        sleep_until(life.answered + wait).await;
        let to = match is_same {
            true => gateway,
            false => world.any(),
        };
        let how = format!("from {gateway} to {to} after {wait:?}");
        let back = loop {
            if let Some(answered) = life.come_back(to).await {
                break answered;
            }
        };
        match back {
            Some(client) => stay(life, client, how).await,
            None => world.complain(format!("{how}: expired")),
        }
    };
    join_all((0..count).map(|_| one(world.clone()))).await;
    world
}

async fn return_in_time() -> Rc<World> {
    let delay = ms([0, 1, 5][random::below(3) as usize]);
    return_after(World::new(delay).await, 60, 3850..4020, false).await
}

/// The store is so slow that it confirms nothing before the time-out.
async fn return_to_a_slow_store() -> Rc<World> {
    return_after(World::with(1, ms(150)).await, 30, 3850..4020, true).await
}

/// They come when the gateway has decided to end the session, and has not begun to write that: a beat that was sent
/// four times as long after the time-out as one takes has landed.
async fn return_before_the_end_is_written() -> Rc<World> {
    return_after(World::with(1, ms(150)).await, 20, 4760..4900, true).await
}

#[test]
fn a_client_that_comes_back_in_time_keeps_its_session_at_any_gateway() {
    holds(10, return_in_time);
}

#[test]
fn hearing_from_a_client_counts_before_the_store_has_confirmed_it() {
    holds(5, return_to_a_slow_store);
}

#[test]
fn an_end_that_is_not_yet_written_is_called_off_when_the_client_is_heard() {
    holds(5, return_before_the_end_is_written);
}

#[test]
fn an_end_that_nobody_calls_off_is_found() {
    is_found(
        "keeper_close_not_called_off",
        return_before_the_end_is_written,
    );
}

#[test]
fn a_greeting_that_does_not_count_is_found() {
    is_found("keeper_greeting_not_counted", return_to_a_slow_store);
}

/// Some clients ask all the time, others are away and come back as soon as they can.
async fn stall() -> Rc<World> {
    let world = World::new(ms(2)).await;
    let stalled = now() + ms(4000 + random::below(1000));
    let one = async |world: Rc<World>, is_away: bool| {
        let gateway = world.any();
        sleep_until(stalled - ms(random::range(200..3500))).await;
        let mut life = Life::begin(&world, gateway, ms(4000), 1).await;
        if is_away {
            sleep_until(stalled + ms(random::below(3000)).min(ms(3900))).await;
            sleep_until((life.due() - ms(random::range(20..500))).max(now())).await;
        }
        // As clients do: elsewhere if there is no answer.
        let until = stalled + ms(12_000);
        while now() < until {
            let to = world.any();
            match life.come_back(to).await {
                Some(Some(client)) => {
                    while now() < until && life.ping(&client).await.is_some() {
                        sleep(ms(200)).await;
                    }
                }
                Some(None) => return world.complain("a session ends for a stall".into()),
                None => sleep(ms(50)).await,
            }
        }
        if !world.lives(life.id()) {
            world.complain("a session has ended for a stall".into());
        }
    };
    let clients = join_all((0..30).map(|i| one(world.clone(), i % 2 == 0)));
    let beside = world.clone();
    let _stalling = spawn("breaks", async move {
        sleep_until(stalled).await;
        beside.gateways.iter().for_each(|g| g.store.set_hung(true));
        sleep(ms(3000)).await;
        beside.gateways.iter().for_each(|g| g.store.set_hung(false));
    });
    clients.await;
    world
}

#[test]
fn no_session_ends_because_the_database_stalls_for_three_seconds() {
    holds(10, stall);
}

/// Clients with these time-outs begin within some milliseconds and fall silent.
struct Silence {
    timeouts_ms: [u64; 4],
    begin_ms: u64,
    /// When a gateway dies, if any does.
    kill_ms: u64,
}

/// Clients fall silent; one gateway dies, or all live on.
async fn silence(is_any_killed: bool) -> Rc<World> {
    let usual = Silence {
        timeouts_ms: [4000, 4000, 10_000, 40_000],
        begin_ms: 2500,
        kill_ms: 3000,
    };
    silence_in(World::new(ms(1)).await, usual, is_any_killed).await
}

async fn silence_in(world: Rc<World>, of: Silence, is_any_killed: bool) -> Rc<World> {
    let killed = world.any();
    let kill_at = now() + ms(of.kill_ms);
    let of = &of;
    let one = async |world: Rc<World>| {
        let gateway = world.any();
        let timeout = ms(of.timeouts_ms[random::below(4) as usize]);
        sleep(ms(random::below(of.begin_ms))).await;
        let life = Life::begin(&world, gateway, timeout, 2).await;
        // Only a gateway that lives knows how long a client has been silent.
        let most = match is_any_killed && gateway == killed {
            true => kill_at.max(life.answered) - life.answered + ms(1500),
            false => ms(500),
        };
        life.fall_silent(most).await;
    };
    let clients = join_all((0..40).map(|_| one(world.clone())));
    let beside = world.clone();
    let _killing = spawn("breaks", async move {
        sleep_until(kill_at).await;
        if is_any_killed {
            let process = beside.gateways[usize::from(killed)].process;
            control().kill_process(process, KillKind::Kill);
        }
    });
    clients.await;
    world
}

#[test]
fn a_silent_clients_session_ends_when_it_is_due_at_a_gateway_that_lives() {
    holds(5, || silence(false));
}

#[test]
fn a_silent_clients_session_ends_soon_after_it_is_due_at_a_gateway_that_is_dead() {
    holds(10, || silence(true));
}

/// A gateway that cannot commit answers for a while: what it has answered counts.
async fn cut_off() -> Rc<World> {
    let world = World::new(ms(1)).await;
    let gateway = world.any();
    let cut_at = now() + ms(1000 + random::below(1000));
    let one = async |world: Rc<World>| {
        let mut life = Life::begin(&world, gateway, ms(4000), 1).await;
        let Some(Some(client)) = life.come_back(gateway).await else {
            return world.complain("nothing is broken yet".into());
        };
        let mut failed = None;
        while failed.is_none() && now() < cut_at + ms(6000) {
            sleep(ms(20)).await;
            let sent = now();
            match timeout(ms(8000), client.submit(Request::Ping)).await {
                Some(Ok(_)) => life.answered = sent,
                _ => failed = Some(now()),
            }
        }
        if failed.is_none_or(|at| at < cut_at + ms(4000 / 3)) {
            world.complain(format!("it is cut {:?} after {cut_at:?}", failed));
        }
        if life.answered > cut_at + ms(1000) {
            world.complain("it answers for longer than it may".into());
        }
        drop(client);
        life.fall_silent(ms(1500)).await;
    };
    let clients = join_all((0..5).map(|_| one(world.clone())));
    let beside = world.clone();
    let _cutting = spawn("breaks", async move {
        sleep_until(cut_at).await;
        beside.gateways[usize::from(gateway)].store.set_hung(true);
    });
    clients.await;
    world
}

#[test]
fn what_a_gateway_that_is_cut_off_has_answered_counts() {
    holds(10, cut_off);
}

#[test]
fn a_session_that_ends_early_is_found() {
    is_found("keeper_session_ends_early", cut_off);
}

/// Whatever breaks: no session ends before the time-out after the last request whose answer came.
async fn storm(clients: usize) -> Rc<World> {
    storm_over(World::new(ms(random::below(5))).await, clients, ms(4000)).await
}

async fn storm_over(world: Rc<World>, clients: usize, wanted: Duration) -> Rc<World> {
    let until = now() + ms(40_000);
    let one = async |world: Rc<World>| {
        while now() < until {
            let gateway = world.any();
            let opening = Client::connect(address(gateway), wanted.as_millis() as i32, None);
            let opening = timeout(ms(3000), opening).await;
            let Some(Ok(client)) = opening else {
                sleep(ms(100)).await;
                continue;
            };
            let mut life = Life {
                world: world.clone(),
                timeout: wanted,
                session: client.session(),
                answered: now() - ms(3000),
            };
            live(&mut life, client).await;
            let due = life.due();
            let ended = world.end_of(life.id(), due).await;
            if let Some(ended) = ended.filter(|ended| *ended < due) {
                world.complain(format!("a session has ended {:?} early", due - ended));
            }
            world.judged.set(world.judged.get() + 1);
        }
    };
    let clients = join_all((0..clients).map(|_| one(world.clone())));
    let beside = world.clone();
    let _breaking = spawn("breaks", async move {
        while now() < until {
            sleep(ms(random::below(3000))).await;
            break_one(&beside, ms(random::below(5000))).await;
        }
    });
    clients.await;
    world
}

/// Asks, goes away and comes back, for a while.
async fn live(life: &mut Life, mut client: Client) {
    for _ in 0..random::below(6) {
        for _ in 0..random::below(40) {
            if life.ping(&client).await.is_none() {
                break;
            }
            sleep(ms(random::below(100))).await;
        }
        drop(client);
        let of_80 = [0, 20, 76, 79][random::below(4) as usize];
        let away = life.timeout * of_80 / 80;
        sleep_until((life.answered + away).max(now())).await;
        loop {
            let to = life.world.any();
            let due = life.due();
            match timeout(ms(3000), life.come_back(to)).await.flatten() {
                Some(Some(back)) => {
                    client = back;
                    break;
                }
                // The other look says whether it was early.
                Some(None) => return,
                None if now() > due => return,
                None => sleep(ms(20)).await,
            }
        }
    }
}

async fn break_one(world: &World, length: Duration) {
    let gateway = &world.gateways[usize::from(world.any())];
    let process = gateway.process;
    match random::below(5) {
        0 => {
            control().kill_process(process, KillKind::Kill);
            sleep(length).await;
            control().restart_process(process);
        }
        1 => control().pause_process(process, length),
        2 => control().busy_process(process, length),
        3 => {
            gateway.store.set_hung(true);
            sleep(length).await;
            gateway.store.set_hung(false);
        }
        _ => {
            world.gateways.iter().for_each(|g| g.store.set_hung(true));
            sleep(length).await;
            world.gateways.iter().for_each(|g| g.store.set_hung(false));
        }
    }
}

#[test]
fn no_session_ends_early_in_a_storm() {
    holds(20, || storm(8));
}

#[test]
fn none_of_many_sessions_ends_early() {
    let (mut lives, most) = (0, if is_nightly() { 100_000 } else { 1000 });
    for seed in 1000.. {
        let world = tell(seed, storm(40)).unwrap_or_else(|wrong| panic!("{wrong}"));
        lives += world.judged.get();
        if lives >= most {
            return println!("{lives} sessions in {} runs", seed - 999);
        }
    }
}

/// A gateway that computes for long, again and again.
async fn busy() -> Rc<World> {
    let world = World::new(ms(1)).await;
    let until = now() + ms(30_000);
    let one = async |world: Rc<World>| {
        let mut life = Life::begin(&world, 0, ms(30_000), 1).await;
        let Some(Some(client)) = life.come_back(0).await else {
            return world.complain("nothing is broken yet".into());
        };
        while now() < until {
            if client.failure().is_some() {
                return world.complain("a busy loop has cut off a client".into());
            }
            sleep(ms(100)).await;
        }
    };
    let clients = join_all((0..5).map(|_| one(world.clone())));
    let beside = world.clone();
    let _working = spawn("breaks", async move {
        while now() < until {
            // In between it has time for what has gathered.
            sleep(ms(random::range(500..1000))).await;
            let busy = ms(random::range(1000..9000));
            control().busy_process(beside.gateways[0].process, busy);
            sleep(busy).await;
        }
    });
    clients.await;
    world
}

#[test]
fn a_busy_event_loop_cuts_off_nobody() {
    holds(5, busy);
}

/// Many sessions of one gateway, due at nearly the same time.
async fn many_ends(sessions: u64) -> Rc<World> {
    let world = World::new(ms(1)).await;
    let lives = join_all((0..sessions).map(|_| Life::begin(&world, 0, ms(4000), 10))).await;
    control().kill_process(world.gateways[0].process, KillKind::Kill);
    join_all(lives.into_iter().map(|life| life.fall_silent(ms(1500)))).await;
    world
}

#[test]
fn many_sessions_of_a_dead_gateway_end_together() {
    let sessions = if is_nightly() { 1000 } else { 200 };
    let world = tell(1, many_ends(sessions)).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!(
        "{sessions} sessions end at most {:?} late",
        world.latest.get()
    );
}
