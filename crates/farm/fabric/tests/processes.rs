//! Real processes that share memory, one of which is killed at any moment. The other process is this program again,
//! which runs only the test `other_process`.

use plinth_farm_fabric::{Address, Error, Fabric, Layout, Local, Machine, Message, Shared, attach};
use plinth_runtime::real::{block_on, spawn_worker};
use plinth_runtime::{Duration, disk, fault, now, random, sleep, timeout, yield_now};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering::{Acquire, Release};

const DIRECTORY: &str = "PLINTH_FABRIC_TEST_DIRECTORY";
const WORK: &str = "PLINTH_FABRIC_TEST_WORK";
const OWN: Machine = Machine(0);
const OTHER: Machine = Machine(1);
const THIRD: Machine = Machine(2);
const ALL: [Machine; 3] = [OWN, OTHER, THIRD];
/// Words of a region in which the other process notes what was acknowledged.
const WRITTEN: usize = 0;
const SENT: usize = 1;
const COUNTER: u64 = 8 * 100;
const COUNTS: u64 = 200_000;
const BLOCK_BYTES: usize = 8 * 32;

fn layout() -> Layout {
    Layout {
        machines: 3,
        ring_words: 300,
        region_words: vec![128],
    }
}

fn at(machine: Machine, offset: u64) -> Address {
    Address {
        machine,
        region: 0,
        offset,
    }
}

struct Scratch(PathBuf);

impl Scratch {
    async fn make(name: &str) -> Scratch {
        let memory = Path::new("/dev/shm");
        let base = match memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        };
        let path = base.join(format!("plinth-processes-{}-{name}", std::process::id()));
        disk::create_dir_all(&path).await.expect("a directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    #[allow(clippy::disallowed_methods)] // a test removes what it has made
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn start(directory: &Path, machine: Machine) -> Shared {
    let local = Local::start(directory, machine, &layout()).await;
    Shared::new(local.expect("a memory"))
}

/// Another process, killed when it is dropped.
struct Other(Child);

impl Other {
    fn start(directory: &Path, machine: Machine, work: &str) -> Other {
        let program = std::env::current_exe().expect("its own path");
        let mut command = Command::new(program);
        command.args(["--exact", "other_process", "--nocapture"]);
        command
            .env(DIRECTORY, directory)
            .env(WORK, format!("{work} {}", machine.0));
        Other(command.spawn().expect("a process"))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is ours");
    }

    /// Stops it, wherever it is.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let stopped = waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("it is ours");
        assert!(stopped.expect("it was waited for").1.stopped());
    }

    fn kill(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it has ended");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// ---- what the other process does ----

#[test]
fn other_process() {
    let (Ok(directory), Ok(work)) = (std::env::var(DIRECTORY), std::env::var(WORK)) else {
        return; // an ordinary run of the tests
    };
    let (work, machine) = work.split_once(' ').expect("two words");
    let machine = Machine(machine.parse().expect("a number"));
    block_on(async {
        let fabric = start(Path::new(&directory), machine).await;
        fabric.configure(1, &ALL).await.expect("the first");
        fabric.open(OWN).await.expect("it is there");
        match work {
            "write" => write_for_ever(&fabric).await,
            "answer" => answer(&fabric, false).await,
            "answer-asleep" => answer(&fabric, true).await,
            _ => count(&fabric).await,
        }
    });
}

/// Writes blocks of one number and sends messages, and notes in its own memory what was acknowledged.
async fn write_for_ever(fabric: &Shared) {
    let notes = fabric.local().host().region(0).expect("a region").words();
    // A number that was written and not sent is written again.
    for number in notes[SENT].load(Acquire) + 1.. {
        let block = number.to_le_bytes().repeat(BLOCK_BYTES / 8);
        match fabric.write(at(OWN, 0), &block).await {
            Ok(()) => notes[WRITTEN].store(number, Release),
            Err(Error::Closed) => yield_now().await,
            Err(error) => panic!("{error}"),
        }
        let length = 1 + number as usize % 20;
        let message = number.to_le_bytes().repeat(length);
        loop {
            match fabric.send(OWN, &message).await {
                Ok(()) => break notes[SENT].store(number, Release),
                Err(Error::Full | Error::Closed) => yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Sends back what comes, after a moment. It sleeps meanwhile, or looks all the time.
async fn answer(fabric: &Shared, sleeps: bool) {
    let mut spins = 0u64;
    loop {
        let Some(message) = fabric.receive() else {
            spins += 1;
            if sleeps {
                fabric.local().arrival().await;
            } else if spins.is_multiple_of(10_000) {
                std::thread::yield_now();
            }
            continue;
        };
        fabric.release(&message);
        wait_a_moment();
        fabric.send(OWN, &message.body).await.expect("room");
    }
}

/// As long as it takes to lie down, more or less.
fn wait_a_moment() {
    for _ in 0..random::below(200) {
        std::hint::spin_loop();
    }
}

async fn count(fabric: &Shared) {
    for _ in 0..COUNTS {
        let mut bytes = [0; 8];
        fabric
            .read(at(OWN, COUNTER), &mut bytes)
            .await
            .expect("read");
        let mut expected = u64::from_le_bytes(bytes);
        loop {
            let found = fabric.compare_and_swap(at(OWN, COUNTER), expected, expected + 1);
            match found.await.expect("answered") {
                found if found == expected => break,
                found => expected = found,
            }
        }
    }
}

// ---- what this process judges ----

/// Checks that the message follows, and is what was sent. A message that was sent and not noted may have no follower
/// of its number: the next life sends the number that was noted last, and one.
fn judge(message: &Message, last: &mut u64) {
    let head = message.body[..8].try_into().expect("eight bytes");
    let number = u64::from_le_bytes(head);
    let length = 1 + number as usize % 20;
    assert_eq!(message.body, number.to_le_bytes().repeat(length));
    let again = *last;
    assert!(
        number == *last + 1 || number == again,
        "{number} after {last}"
    );
    *last = number;
}

async fn receive_for(fabric: &Shared, time: Duration, last: &mut u64) -> u64 {
    let (begin, mut count) = (plinth_runtime::now(), 0);
    while begin.elapsed() < time {
        while let Some(message) = fabric.receive() {
            judge(&message, last);
            fabric.release(&message);
            count += 1;
        }
        yield_now().await;
    }
    count
}

/// What the dead process was told is true.
async fn check(directory: &Path, fabric: &Shared, last: u64) -> bool {
    let notes = attach(directory, OTHER).await.expect("its memory");
    let notes = notes.region(0).expect("a region").words();
    let (written, sent) = (notes[WRITTEN].load(Acquire), notes[SENT].load(Acquire));
    assert!(
        last == sent || last == sent + 1,
        "{last} came, {sent} were acknowledged"
    );
    let mut block = [0; BLOCK_BYTES];
    fabric.read(at(OWN, 0), &mut block).await.expect("read");
    let words = block
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
    let words: Vec<u64> = words.collect();
    // Of a write that was not acknowledged, the first words may be there, in order.
    assert!(words.is_sorted_by(|one, two| one >= two), "{words:?}");
    let (newest, oldest) = (words[0], words[words.len() - 1]);
    assert!(
        oldest >= written && newest <= written + 1,
        "{written}: {words:?}"
    );
    newest != oldest
}

#[test]
fn what_a_killed_process_was_told_is_there_and_nothing_is_half_read() {
    const LIVES: u64 = 40;
    block_on(async {
        let scratch = Scratch::make("killed").await;
        let fabric = start(&scratch.0, OWN).await;
        fabric.configure(1, &ALL).await.expect("the first");
        let (mut last, mut messages, mut torn) = (0, 0, 0);
        for life in 0..LIVES {
            let mut other = Other::start(&scratch.0, OTHER, "write");
            let before = messages;
            while messages == before {
                messages += receive_for(&fabric, Duration::from_millis(1), &mut last).await;
            }
            let time = Duration::from_micros(random::below(8000));
            messages += receive_for(&fabric, time, &mut last).await;
            other.kill();
            // A dead process holds no door, wherever it was.
            fabric.configure(1, &ALL).await.expect("the same");
            // All that arrived, however late this process gets its turn.
            receive_all(&fabric, &mut last);
            torn += u64::from(check(&scratch.0, &fabric, last).await);
            assert!(life == 0 || last > life);
        }
        println!("{LIVES} lives, {messages} messages, {torn} writes cut in the middle");
    });
}

#[test]
fn processes_that_count_in_one_word_lose_no_count() {
    block_on(async {
        let scratch = Scratch::make("count").await;
        let fabric = start(&scratch.0, OWN).await;
        fabric.configure(1, &ALL).await.expect("the first");
        let mut others = [OTHER, THIRD].map(|machine| Other::start(&scratch.0, machine, "count"));
        count(&fabric).await;
        for other in &mut others {
            while other.0.try_wait().expect("ours").is_none() {
                sleep(Duration::from_millis(5)).await;
            }
            assert!(other.0.wait().expect("ours").success());
        }
        let mut bytes = [0; 8];
        fabric
            .read(at(OWN, COUNTER), &mut bytes)
            .await
            .expect("read");
        assert_eq!(u64::from_le_bytes(bytes), 3 * COUNTS);
    });
}

#[test]
fn a_process_that_was_removed_writes_nothing_more() {
    block_on(async {
        for _ in 0..20 {
            let scratch = Scratch::make("removed").await;
            let fabric = start(&scratch.0, OWN).await;
            fabric.configure(1, &ALL).await.expect("the first");
            let _other = Other::start(&scratch.0, OTHER, "write");
            let mut last = 0;
            while last < 100 {
                receive_all(&fabric, &mut last);
                yield_now().await;
            }
            let members = [OWN, THIRD];
            fabric.configure(2, &members).await.expect("a later one");
            // What had arrived is received. Then nothing comes, although the process lives.
            receive_all(&fabric, &mut last);
            let mut before = [0; BLOCK_BYTES];
            fabric.read(at(OWN, 0), &mut before).await.expect("read");
            sleep(Duration::from_millis(5)).await;
            let mut after = [0; BLOCK_BYTES];
            fabric.read(at(OWN, 0), &mut after).await.expect("read");
            assert!(before == after && fabric.receive().is_none());
        }
    });
}

fn receive_all(fabric: &Shared, last: &mut u64) {
    while let Some(message) = fabric.receive() {
        judge(&message, last);
        fabric.release(&message);
    }
}

const SLEEP_MAX: Duration = Duration::from_secs(5);

/// Sends and sleeps until the answer is there. False if it was there, and nobody was woken.
async fn is_woken(fabric: &Shared, limit: Duration) -> bool {
    fabric.send(OTHER, &[1; 9]).await.expect("room");
    wait_a_moment();
    let woken = timeout(limit, fabric.local().arrival()).await;
    let mut message = fabric.receive();
    let is_woken = woken.is_some() || message.is_none(); // it may also be late
    let begin = now();
    while message.is_none() && begin.elapsed() < SLEEP_MAX {
        sleep(Duration::from_millis(1)).await;
        message = fabric.receive();
    }
    fabric.release(&message.expect("an answer"));
    is_woken
}

async fn with_one_that_answers(name: &str, work: &str) -> (Scratch, Shared, Other) {
    let scratch = Scratch::make(name).await;
    let fabric = start(&scratch.0, OWN).await;
    fabric.configure(1, &ALL).await.expect("the first");
    let other = Other::start(&scratch.0, OTHER, work);
    while fabric.open(OTHER).await == Err(Error::Unreachable) {
        sleep(Duration::from_millis(1)).await;
    }
    while fabric.send(OTHER, &[]).await == Err(Error::Closed) {
        sleep(Duration::from_millis(1)).await;
    }
    fabric.local().arrival().await;
    fabric.release(&fabric.receive().expect("the first answer"));
    (scratch, fabric, other)
}

#[test]
fn who_sleeps_is_woken_by_another_process_every_time() {
    for name in ["answer", "answer-asleep"] {
        block_on(async {
            let (_scratch, fabric, _other) = with_one_that_answers(name, name).await;
            for round in 0..20_000 {
                assert!(is_woken(&fabric, SLEEP_MAX).await, "{name}: {round}");
            }
        });
    }
}

#[test]
fn a_sleeper_who_does_not_look_again_is_found() {
    block_on(async {
        let (_scratch, fabric, _other) = with_one_that_answers("careless", "answer").await;
        fault::plant(Some("farm_sleeps_at_once"));
        let mut rounds = 0;
        while is_woken(&fabric, Duration::from_millis(200)).await {
            rounds += 1;
            assert!(rounds < 1_000_000, "never found");
        }
        fault::plant(None);
        println!("a wake-up was lost after {rounds} rounds");
        fault::found("farm_sleeps_at_once");
    });
}

#[test]
fn machines_that_are_threads_of_one_process_are_like_processes() {
    const ROUNDS: u64 = 3000;
    let directory = block_on(async { Scratch::make("threads").await });
    let live = |machine: Machine, directory: PathBuf| async move {
        let fabric = start(&directory, machine).await;
        fabric.configure(1, &ALL).await.expect("the first");
        for other in ALL {
            while fabric.open(other).await.is_err() {
                sleep(Duration::from_millis(1)).await;
            }
        }
        // A token goes round. Each sleeps until it comes, and counts it in the memory of the first.
        let next = ALL[(usize::from(machine.0) + 1) % ALL.len()];
        let mut mine = u64::from(machine == OWN);
        for round in 0..ROUNDS {
            while mine == 0 {
                let arrival = timeout(SLEEP_MAX, fabric.local().arrival());
                assert!(arrival.await.is_some(), "{machine:?} sleeps in {round}");
                while let Some(message) = fabric.receive() {
                    fabric.release(&message);
                    mine += 1;
                }
            }
            let expected = 3 * round + u64::from(machine.0);
            let counter = at(OWN, COUNTER);
            let found = fabric.compare_and_swap(counter, expected, expected + 1);
            assert_eq!(found.await, Ok(expected));
            mine -= 1;
            while fabric.send(next, &[1; 20]).await == Err(Error::Closed) {
                yield_now().await; // it is not in the configuration yet
            }
        }
    };
    let threads = ALL.map(|machine| {
        let directory = directory.0.clone();
        spawn_worker("machine", move || live(machine, directory))
    });
    for thread in threads {
        thread.join().expect("no panic");
    }
}

/// A process that was stopped in the middle of an operation on the memory of this one.
async fn with_one_stopped_inside(name: &str) -> (Scratch, Shared, Other) {
    let scratch = Scratch::make(name).await;
    let fabric = start(&scratch.0, OWN).await;
    fabric.configure(1, &ALL).await.expect("the first");
    let other = Other::start(&scratch.0, OTHER, "write");
    let mut last = 0;
    while last == 0 {
        receive_for(&fabric, Duration::from_millis(1), &mut last).await;
    }
    loop {
        let time = Duration::from_micros(random::below(300));
        receive_for(&fabric, time, &mut last).await;
        other.stop();
        if fabric.local().inside().await == [OTHER] {
            return (scratch, fabric, other);
        }
        other.signal(Signal::CONT);
    }
}

#[test]
fn a_writer_that_is_stopped_in_the_middle_is_named_and_can_be_killed() {
    block_on(async {
        let (_scratch, fabric, mut other) = with_one_stopped_inside("stopped").await;
        let members = [OWN, THIRD];
        let short = Duration::from_millis(50);
        for _ in 0..2 {
            let closing = timeout(short, fabric.configure(2, &members));
            assert_eq!(closing.await, None, "it may still write");
        }
        let local = fabric.local();
        assert_eq!(local.inside().await, [OTHER]);
        let process = local.process(OTHER).await.expect("an answer");
        assert_eq!(process, Some(other.0.id()));
        assert!(local.kill(OTHER).await.expect("it is ours"));
        let closing = timeout(SLEEP_MAX, fabric.configure(2, &members));
        assert_eq!(closing.await, Some(Ok(())));
        // Its door is open for ever, and holds up nobody.
        assert!(local.host().is_inside(OTHER));
        assert_eq!(local.inside().await, []);
        assert_eq!(local.process(OTHER).await.expect("an answer"), None);
        assert!(!local.kill(OTHER).await.expect("nobody"));
        assert_eq!(fabric.configure(3, &members).await, Ok(()));
        other.0.wait().expect("it has ended");
    });
}

#[test]
fn who_closes_a_configuration_and_does_not_wait_for_doors_is_found() {
    block_on(async {
        for life in 1.. {
            assert!(life < 200, "never found");
            let (_scratch, fabric, other) = with_one_stopped_inside("doors").await;
            fault::plant(Some("farm_doors_are_not_awaited"));
            let closed = fabric.configure(2, &[OWN, THIRD]).await;
            fault::plant(None);
            assert_eq!(closed, Ok(()));
            while let Some(message) = fabric.receive() {
                fabric.release(&message);
            }
            let words = || async {
                let mut words = [0; BLOCK_BYTES];
                fabric.read(at(OWN, 0), &mut words).await.expect("read");
                words
            };
            let before = words().await;
            other.signal(Signal::CONT);
            sleep(Duration::from_millis(5)).await;
            if words().await != before || fabric.receive().is_some() {
                println!("a late write was seen in life {life}");
                return fault::found("farm_doors_are_not_awaited");
            }
        }
    });
}
