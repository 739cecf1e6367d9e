//! Whole stacks on simulated disks that lose their power: a test application, Figure 4's engine, the base, a log in
//! files.

mod engines;
mod far;
mod lease;
mod lease_order;
mod log_backup;
mod roster;
mod session_order;
mod store;
mod time;

use crate::base::{Base, Stopped};
use crate::entry::Entry;
use crate::file_log::FileLog;
use crate::log::{LogError, LogPos, SharedLog, Tail};
use crate::stack::{
    Answer, Application, Applicator, Applied, Engine, Failure, Lost, Proposed, Top, Upper,
};
use crate::store::{LocalStore, RoTx, RwTx};
use bytes::Bytes;
use plinth_core::{EngineKind, Error, Uid};
use plinth_runtime::sim::{KillKind, Locality, MachineId, SimConfig, Simulation};
use plinth_runtime::{Duration, Task, disk, join_all, random, sleep, spawn, timeout};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

const LOG: Uid = Uid(7);

/// A log in a database, rows of which somebody removes.
struct Cleared;

impl SharedLog for Cleared {
    async fn append(&self, _: Bytes) -> Result<LogPos, LogError> {
        Err(LogError::Cleared)
    }
    async fn check_tail(&self) -> Result<Tail, LogError> {
        Err(LogError::Cleared)
    }
    async fn read_next(&self, _: LogPos, _: usize) -> Result<Vec<(LogPos, Bytes)>, LogError> {
        Err(LogError::Cleared)
    }
    async fn prefix_trim(&self, _: LogPos) -> Result<(), LogError> {
        Ok(()) // there is nothing to trim
    }
    async fn seal(&self) -> Result<Tail, LogError> {
        Err(LogError::Cleared)
    }
}

/// Notes numbers, each once. Refuses those that end with 7, after it has written them. Cannot go on at [`POISON`].
struct Notes;

const POISON: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NoNote {
    Seven,
    Repeated(LogPos),
}

fn number_key(number: u64) -> Vec<u8> {
    [&b"number/"[..], &number.to_be_bytes()].concat()
}

impl Application for Notes {
    /// The position of the note.
    type Return = LogPos;
    type Refusal = NoNote;

    fn execute(
        &self,
        tx: &mut RwTx,
        request: &Bytes,
        pos: LogPos,
    ) -> Result<LogPos, Failure<NoNote>> {
        let number = u64::from_le_bytes(request[..].try_into().expect("a number"));
        if number == POISON {
            return Err(Failure::Stop(Error::internal_error));
        }
        let key = number_key(number);
        if let Some(at) = tx.get(&key)? {
            let at = u64::from_le_bytes(at[..].try_into().expect("a position"));
            return Err(Failure::Refused(NoNote::Repeated(at)));
        }
        tx.set(&key, pos.to_le_bytes().to_vec());
        match number % 10 {
            7 => Err(Failure::Refused(NoNote::Seven)),
            _ => Ok(pos),
        }
    }
}

/// Keeps entries from those above while it is closed (Figure 4), and counts what comes by.
struct BlockingAbove<A> {
    upper: Upper<A>,
}

const BLOCKING: &str = "blocking";

impl<A: Applicator> Applicator for BlockingAbove<A> {
    type Return = A::Return;
    type Refusal = A::Refusal;

    fn apply(&self, tx: &mut RwTx, entry: &Entry, pos: LogPos) -> Applied<A::Return, A::Refusal> {
        let seen = tx.get(b"blocking/seen")?.map_or(0, |row| row.len());
        tx.set(b"blocking/seen", vec![b'x'; seen + 1]);
        let is_closed = tx.get(b"blocking/closed")?.is_some();
        self.upper.pass_over();
        match entry.header(BLOCKING) {
            Some(_) if is_closed => {
                tx.clear(b"blocking/closed");
                Ok(Answer::Own(Bytes::new()))
            }
            Some(_) => {
                tx.set(b"blocking/closed", "");
                Ok(Answer::Own(Bytes::new()))
            }
            None if is_closed => Ok(Answer::Filtered),
            None => self.upper.apply(tx, entry, pos),
        }
    }

    fn post_apply(&self, entry: &Entry, pos: LogPos) {
        self.upper.post_apply(entry, pos);
    }
}

struct BlockingBelow<E> {
    down: E,
}

impl<E: Engine> BlockingBelow<E> {
    async fn toggle(&self) {
        let mut entry = Entry::default();
        entry.set_header(BLOCKING, "");
        let answer = self.down.propose(entry).await;
        assert!(matches!(answer, Ok(Answer::Own(_))));
    }
}

impl<E: Engine> Engine for BlockingBelow<E> {
    type Return = E::Return;
    type Refusal = E::Refusal;

    async fn propose(&self, entry: Entry) -> Proposed<E::Return, E::Refusal> {
        self.down.propose(entry).await
    }
    async fn sync(&self) -> Result<RoTx, Lost> {
        self.down.sync().await
    }
    fn set_trim_prefix(&self, pos: LogPos) {
        self.down.set_trim_prefix(pos);
    }
}

type Above = BlockingAbove<Top<Notes>>;

struct Replica {
    base: Rc<Base<FileLog, Above>>,
    top: BlockingBelow<Rc<Base<FileLog, Above>>>,
    stopped: Rc<RefCell<Option<Stopped>>>,
    _running: Task<()>,
}

async fn replica(log: &Rc<FileLog>, name: &str, kind: EngineKind) -> Replica {
    let path = Path::new("/data").join(name);
    let engine = match plinth_engine::open(kind, &path, false, 1 << 20).await {
        Ok(engine) => engine,
        Err(_) => {
            let made = plinth_engine::open(kind, &path, true, 1 << 20).await;
            made.expect("an engine")
        }
    };
    let store = LocalStore::open(engine).expect("a store");
    let above = BlockingAbove {
        upper: Upper::new(Top(Notes)),
    };
    let base = Base::new(log.clone(), store, above);
    let stopped = Rc::new(RefCell::new(None));
    let (running, told) = (base.clone(), stopped.clone());
    let running = spawn("replica", async move {
        let why = running.run().await;
        *told.borrow_mut() = Some(why);
    });
    Replica {
        top: BlockingBelow { down: base.clone() },
        base,
        stopped,
        _running: running,
    }
}

async fn open_log() -> Rc<FileLog> {
    let log = FileLog::open(Path::new("/data/log"), LOG).await;
    Rc::new(log.expect("a log"))
}

fn note(number: u64) -> Entry {
    Entry::new(number.to_le_bytes().to_vec())
}

fn simulation(seed: u64) -> (Simulation, MachineId) {
    let sim = Simulation::new(seed, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    let made = sim.run_on(machine, async {
        let directory = Path::new("/data");
        disk::create_dir_all(directory).await.expect("a directory");
        disk::sync_dir(Path::new("/")).await.expect("its name");
    });
    made.expect("nothing kills it");
    (sim, machine)
}

fn on_a_machine<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    let (sim, machine) = simulation(1);
    sim.run_on(machine, work).expect("nothing kills it")
}

#[test]
fn a_refusal_takes_back_the_application_alone() {
    on_a_machine(async {
        let log = open_log().await;
        let one = replica(&log, "one", EngineKind::Memory).await;
        assert_eq!(one.top.propose(note(1)).await, Ok(Answer::Done(1)));
        let seven = one.top.propose(note(17)).await;
        assert_eq!(seven, Ok(Answer::Refused(NoNote::Seven)));
        let again = one.top.propose(note(1)).await;
        assert_eq!(again, Ok(Answer::Refused(NoNote::Repeated(1))));
        let rows = one.top.sync().await.expect("it runs");
        assert_eq!(rows.get(&number_key(17)), Ok(None));
        let seen = rows.get(b"blocking/seen").expect("it is read");
        assert_eq!(seen, Some(Bytes::from_static(b"xxx")));
        one.top.toggle().await;
        assert_eq!(one.top.propose(note(2)).await, Ok(Answer::Filtered));
        one.top.toggle().await;
        assert_eq!(one.top.propose(note(2)).await, Ok(Answer::Done(7)));
    });
}

#[test]
fn a_replica_whose_log_was_cleared_stops_with_a_line_that_says_what_to_do() {
    for is_write in [true, false] {
        on_a_machine(async move {
            let engine = plinth_engine::open(EngineKind::Memory, Path::new("/data/one"), true, 0);
            let store = LocalStore::open(engine.await.expect("an engine")).expect("a store");
            let base = Base::new(Rc::new(Cleared), store, Top(Notes));
            let (running, asking) = (base.clone(), base.clone());
            let asking = async move {
                match is_write {
                    true => asking
                        .propose(note(1))
                        .await
                        .map(|_| ())
                        .expect_err("no log"),
                    false => asking.sync().await.map(|_| ()).expect_err("no log"),
                }
            };
            let asking = spawn("client", asking);
            let stopped = timeout(Duration::from_secs(1), running.run()).await;
            let why = stopped.expect("it stops").to_string();
            assert!(
                why.contains("has removed rows of the log") && why.contains("begin anew"),
                "{why}"
            );
            let told = match is_write {
                true => Lost::Log(LogError::Cleared),
                false => Lost::Stopped,
            };
            assert_eq!(asking.await, told);
        });
    }
}

#[test]
fn a_sync_sees_what_was_answered_at_another_replica() {
    on_a_machine(async {
        let log = open_log().await;
        let one = replica(&log, "one", EngineKind::Memory).await;
        let two = replica(&log, "two", EngineKind::Ssd).await;
        for number in (10..60).step_by(10) {
            let (at, from) = match number % 20 {
                0 => (&one, &two),
                _ => (&two, &one),
            };
            at.top.propose(note(number)).await.expect("answered");
            let rows = from.top.sync().await.expect("it runs");
            let found = rows.get(&number_key(number)).expect("it is read");
            assert!(found.is_some(), "{number} is not there");
            let next = rows.range(b"number/", b"number0", 100).expect("they are");
            assert_eq!(next.len() as u64, number / 10);
        }
        one.top.sync().await.expect("it runs");
        let (one, two) = (one.base.store(), two.base.store());
        assert_eq!(
            (one.applied(), one.checksum()),
            (two.applied(), two.checksum())
        );
    });
}

#[test]
fn a_replica_behind_the_begin_of_the_log_stops_and_says_so() {
    on_a_machine(async {
        let log = open_log().await;
        let one = replica(&log, "one", EngineKind::Memory).await;
        for number in 1..6 {
            one.top.propose(note(number)).await.expect("answered");
        }
        one.base.store().flush().await.expect("flushed");
        log.prefix_trim(4).await.expect("trimmed");
        let late = replica(&log, "late", EngineKind::Memory).await;
        assert_eq!(late.top.sync().await.err(), Some(Lost::Stopped));
        let why = late.stopped.borrow().clone().expect("it has stopped");
        assert!(
            why.0
                .starts_with("the log begins at 4, and this replica is at 1"),
            "{why}"
        );
        assert_eq!(late.top.propose(note(9)).await.err(), Some(Lost::Stopped));
    });
}

#[test]
fn an_entry_that_no_replica_can_apply_stops_each_at_each_start_with_a_way_out() {
    on_a_machine(async {
        let log = open_log().await;
        let one = replica(&log, "one", EngineKind::Memory).await;
        one.top.propose(note(1)).await.expect("answered");
        assert_eq!(one.top.propose(note(POISON)).await, Err(Lost::Stopped));
        let again = replica(&log, "two", EngineKind::Memory).await;
        assert_eq!(again.top.sync().await.err(), Some(Lost::Stopped));
        for stopped in [&one.stopped, &again.stopped] {
            let why = stopped.borrow().clone().expect("it has stopped").0;
            assert!(why.starts_with("the entry at position 2: "), "{why}");
            assert!(
                why.ends_with("restore a backup with --to-position 1"),
                "{why}"
            );
        }
        assert_eq!(again.base.store().applied(), 1);
    });
}

#[test]
fn a_sealed_log_takes_no_more_and_keeps_what_it_has() {
    on_a_machine(async {
        let log = open_log().await;
        assert_eq!(log.append(Bytes::from_static(b"a")).await, Ok(1));
        let tail = log.seal().await.expect("sealed");
        assert_eq!((tail.next, tail.is_sealed), (2, true));
        let refused = log.append(Bytes::from_static(b"b")).await;
        assert_eq!(refused, Err(LogError::Sealed));
        drop(log);
        let log = open_log().await;
        assert_eq!(log.check_tail().await, Ok(tail));
        let found = log.read_next(1, 100).await;
        assert_eq!(found, Ok(vec![(1, Bytes::from_static(b"a"))]));
    });
}

/// What the test knows after a crash.
#[derive(Default)]
struct Known {
    next: u64,
    /// Answered notes and their positions.
    noted: BTreeMap<u64, LogPos>,
    refused: Vec<u64>,
}

async fn check(replica: &Replica, known: &Rc<RefCell<Known>>) {
    let rows = replica.top.sync().await.expect("it runs");
    check_rows(&rows, &known.borrow());
}

fn check_rows(rows: &RoTx, known: &Known) {
    for (number, pos) in &known.noted {
        let row = rows.get(&number_key(*number)).expect("it is read");
        assert_eq!(
            row.as_deref(),
            Some(&pos.to_le_bytes()[..]),
            "note {number}"
        );
    }
    for number in &known.refused {
        assert_eq!(
            rows.get(&number_key(*number)),
            Ok(None),
            "{number} was refused"
        );
    }
}

/// Proposes a note that no one has proposed, and pauses now and then.
async fn propose_next<E>(top: &E, known: &RefCell<Known>)
where
    E: Engine<Return = LogPos, Refusal = NoNote>,
{
    let number = known.borrow().next;
    known.borrow_mut().next += 1;
    match top.propose(note(number)).await.expect("it runs") {
        Answer::Done(pos) => drop(known.borrow_mut().noted.insert(number, pos)),
        // Filtered: an engine that keeps an order was switched off meanwhile.
        Answer::Refused(NoNote::Seven) | Answer::Filtered => {
            known.borrow_mut().refused.push(number);
        }
        other => panic!("note {number} is answered {other:?}"),
    }
    if random::chance(0.3) {
        sleep(Duration::from_millis(random::below(30))).await;
    }
}

/// Opens the log and two replicas of it, checks them, and proposes for ever.
async fn live(known: Rc<RefCell<Known>>) {
    let log = open_log().await;
    let both = [
        replica(&log, "one", EngineKind::Memory).await,
        replica(&log, "two", EngineKind::Ssd).await,
    ];
    for replica in &both {
        check(replica, &known).await;
    }
    let (one, two) = (both[0].base.store(), both[1].base.store());
    assert_eq!(one.applied(), two.applied());
    assert_eq!(one.checksum(), two.checksum(), "the replicas differ");
    let propose = async |replica: &Replica| loop {
        propose_next(&replica.top, &known).await;
        if random::chance(0.05) {
            check(replica, &known).await;
        }
        // No engine tracks the replicas here.
        let flushed = both.iter().map(|replica| replica.base.store().flushed());
        let both_have = flushed.min().expect("there are two");
        replica.top.set_trim_prefix(both_have + 1);
    };
    join_all((0..6).map(|n| propose(&both[n % 2]))).await;
}

/// Runs `live` several times, each until the process is killed or its machine loses power.
fn crash_with<F: Future<Output = ()> + 'static>(
    seed: u64,
    live: impl Fn(Rc<RefCell<Known>>) -> F + Clone + 'static,
) -> (usize, u64) {
    let (sim, machine) = simulation(seed);
    let known = Rc::new(RefCell::new(Known::default()));
    for _ in 0..6 {
        let (control, mine) = ((*sim).clone(), known.clone());
        let address = "10.0.0.1:4500".parse().expect("an address");
        let live = live.clone();
        let process = sim.start_process(machine, address, move || Box::pin(live(mine.clone())));
        sim.run(async move {
            sleep(Duration::from_millis(random::range(
                10..[30, 300, 1500][random::below(3) as usize],
            )))
            .await;
            if random::chance(0.7) {
                control.power_cut(machine);
                control.boot(machine);
            }
            control.kill_process(process, KillKind::Kill);
        });
    }
    let noted = known.borrow().noted.len();
    (noted, sim.fingerprint())
}

#[test]
fn answered_proposals_survive_power_cuts_at_both_replicas_once() {
    let mut noted = 0;
    for seed in 0..12 {
        noted += crash_with(seed, live).0;
    }
    assert!(noted > 1000, "{noted} is too few to prove anything");
    assert_eq!(
        crash_with(7, live),
        crash_with(7, live),
        "the same seed gives the same run"
    );
}
