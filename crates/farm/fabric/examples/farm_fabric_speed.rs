//! Figures of the fabric on this host: `cargo run --release -p plinth-farm-fabric --example farm_fabric_speed`.
//!
//! Reads of 64 bytes (own memory, that of another process, over a socket), a message alone, and one there and back,
//! while the receiver looks all the time and while it sleeps; and the processor time of two machines that sleep. The
//! other process is this program again. Reads and writes are in processor time, the rest in time.

use plinth_farm_fabric::{
    Address, Error, Fabric, Layout, Local, Machine, Message, Shared, Streamed, serve_with,
};
use plinth_identity::Identity;
use plinth_identity::keys::{KeyFile, Keyring};
use plinth_rpc::Credentials;
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, disk, join_all, net, now, spawn, timeout, yield_now};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

const OWN: Machine = Machine(0);
const OTHER: Machine = Machine(1);
const ALL: [Machine; 2] = [OWN, OTHER];
const REGION_WORDS: u64 = 8 << 20;
/// Lines of the cache.
const WHOLE: u64 = REGION_WORDS / 8;
const CACHED: u64 = 256;
const READS: u64 = 5_000_000;
const READS_OVER_SOCKETS: u64 = 100_000;
/// Reads that are under way at a time, where several are.
const AT_A_TIME: u64 = 32;
const ROUNDS: usize = 5;
const MESSAGES: u64 = 200_000;
const MESSAGES_ALONE: u64 = 2_000_000;
/// So many polls in vain, then others may run: with fewer cores than processes nobody waits for ever.
const SPINS: u32 = 10_000;
/// The first byte of a message after which the other does not sleep.
const SPINS_FOR_IT: u8 = 1;
/// The argument to measure nothing else.
const ONLY_SOCKETS: &str = "sockets";
const IDLE: Duration = Duration::from_secs(2);

fn layout() -> Layout {
    Layout {
        machines: 2,
        ring_words: 1 << 12,
        region_words: vec![REGION_WORDS],
    }
}

async fn start(directory: &Path, machine: Machine) -> Local {
    let local = Local::start(directory, machine, &layout()).await;
    local.expect("a memory")
}

async fn next(fabric: &impl Fabric, sleeps: bool) -> Message {
    let mut spins = 0;
    loop {
        if let Some(message) = fabric.receive() {
            return message;
        }
        if sleeps {
            fabric.local().arrival().await;
            continue;
        }
        spins += 1;
        std::hint::spin_loop();
        if spins % SPINS == 0 {
            std::thread::yield_now();
            yield_now().await;
        }
    }
}

/// Sends back what comes. The first byte of a message says whether to sleep until the next.
async fn echo(directory: &Path) {
    let fabric = Shared::new(start(directory, OTHER).await);
    fabric.configure(1, &ALL).await.expect("the first");
    while fabric.open(OWN).await == Err(Error::Unreachable) {
        yield_now().await;
    }
    let mut sleeps = true;
    loop {
        let message = next(&fabric, sleeps).await;
        fabric.release(&message);
        sleeps = message.body.first() != Some(&SPINS_FOR_IT);
        fabric.send(OWN, &message.body).await.expect("room");
    }
}

/// Nanoseconds of each of `count` reads of 64 bytes, in so many lines, far from each other.
async fn read(fabric: &impl Fabric, machine: Machine, lines: u64, count: u64) -> f64 {
    let (mut line, mut sum, begin) = ([0; 64], 0, own_time());
    for n in 0..count {
        let place = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % lines;
        let at = Address {
            machine,
            region: 0,
            offset: 64 * place,
        };
        fabric.read(at, &mut line).await.expect("read");
        sum += u64::from(line[0]);
    }
    assert_eq!(std::hint::black_box(sum), 0);
    (own_time() - begin) / count as f64
}

/// Nanoseconds of each message of 64 bytes there and back.
async fn send(fabric: &impl Fabric, sleeps: bool, count: u64) -> f64 {
    let first = if sleeps { 0 } else { SPINS_FOR_IT };
    let begin = now();
    for _ in 0..count {
        fabric.send(OTHER, &[first; 64]).await.expect("room");
        let message = next(fabric, sleeps).await;
        fabric.release(&message);
    }
    begin.elapsed().as_nanos() as f64 / count as f64
}

/// Nanoseconds of each message of 64 bytes to itself, sent, received and released.
async fn alone(fabric: &impl Fabric) -> f64 {
    let begin = own_time();
    for _ in 0..MESSAGES_ALONE {
        fabric.send(OWN, &[0; 64]).await.expect("room");
        fabric.release(&fabric.receive().expect("it is there"));
    }
    (own_time() - begin) / MESSAGES_ALONE as f64
}

/// Nanoseconds of each write of 64 bytes at one place.
async fn write(fabric: &impl Fabric, machine: Machine) -> f64 {
    let at = Address {
        machine,
        region: 0,
        offset: 0,
    };
    let begin = own_time();
    for _ in 0..READS {
        fabric.write(at, &[0; 64]).await.expect("written");
    }
    (own_time() - begin) / READS as f64
}

/// Processor time that a process has used so far, in hundredths of a second.
#[allow(clippy::disallowed_methods)] // of the system, which never waits
fn processor_time(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives");
    let fields = text.rsplit(')').next().expect("one").split_whitespace();
    let times = fields
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().expect("a number"));
    times.sum()
}

/// Nanoseconds of processor time that this process has used so far: others may use the core meanwhile.
fn own_time() -> f64 {
    processor_time(std::process::id()) as f64 * 1e7
}

/// Processor time of two machines, neither of which has anything to do.
async fn idle(fabric: &impl Fabric, other: u32) -> u64 {
    let both = || processor_time(other) + processor_time(std::process::id());
    let before = both();
    assert!(timeout(IDLE, fabric.local().arrival()).await.is_none());
    both() - before
}

/// Nanoseconds of each of `count` reads of 64 bytes, of which several are under way.
async fn read_together(fabric: &impl Fabric, machine: Machine, count: u64) -> f64 {
    let begin = own_time();
    for n in 0..count / AT_A_TIME {
        let reads = (0..AT_A_TIME).map(async |of| {
            let at = Address {
                machine,
                region: 0,
                offset: 64 * (n * AT_A_TIME + of) % WHOLE,
            };
            fabric.read(at, &mut [0; 64]).await.expect("read");
        });
        join_all(reads.collect::<Vec<_>>()).await;
    }
    (own_time() - begin) / count as f64
}

/// One at a time, and several.
async fn over_sockets(directory: PathBuf, credentials: Credentials) -> [f64; 2] {
    let local = start(&directory, OTHER).await;
    local.configure(1, &ALL).await.expect("the first");
    let listener = net::listen("127.0.0.1:0".parse().expect("one")).await;
    let listener = listener.expect("a listener");
    let address = listener.local_addr().expect("its own");
    let (host, keys) = (local.host().clone(), credentials.clone());
    let serve = async move { serve_with(listener, OTHER, host, &keys).await };
    let _server = spawn("serve", serve);
    let addresses = vec![address; 2];
    let fabric = Streamed::new(
        start(&directory, OWN).await,
        addresses,
        Duration::from_secs(5),
    );
    let fabric = fabric.with(&credentials);
    fabric.configure(1, &ALL).await.expect("the first");
    fabric.open(OTHER).await.expect("it is there");
    [
        read(&fabric, OTHER, WHOLE, READS_OVER_SOCKETS).await,
        read_together(&fabric, OTHER, READS_OVER_SOCKETS).await,
    ]
}

async fn measure(directory: &Path, mut other: Child) {
    {
        let fabric = Shared::new(start(directory, OWN).await);
        fabric.configure(1, &ALL).await.expect("the first");
        while fabric.open(OTHER).await == Err(Error::Unreachable) {
            yield_now().await;
        }
        while fabric.send(OTHER, &[]).await == Err(Error::Closed) {
            yield_now().await;
        }
        fabric.release(&next(&fabric, true).await);
        for _ in 0..2 {
            for (name, place) in [("own memory", WHOLE), ("own memory, in the cache", CACHED)] {
                let ns = read(&fabric, OWN, place, READS).await;
                println!("{name}, 64 bytes: {ns:.1} ns");
                let ns = read(&fabric, OTHER, place, READS).await;
                println!("{name} of another process, 64 bytes: {ns:.1} ns");
            }
            let (own, other) = (write(&fabric, OWN).await, write(&fabric, OTHER).await);
            println!("a write, 64 bytes: {own:.1} ns, to another process {other:.1} ns");
            println!("a message to itself: {:.1} ns", alone(&fabric).await);
            let (spins, sleeps) = (
                send(&fabric, false, MESSAGES).await,
                send(&fabric, true, MESSAGES / 4).await,
            );
            println!("a message there and back: {spins:.1} ns, if both sleep {sleeps:.1} ns");
        }
        send(&fabric, true, 1).await;
        let hundredths = idle(&fabric, other.id()).await;
        println!("two that sleep for {IDLE:?}: {hundredths} hundredths of processor time");
    }
    other.kill().expect("it is ours");
    other.wait().expect("it has ended");
}

/// With and without keys, in turn.
async fn measure_sockets(directory: &Path) {
    let keys = Keyring::new(&KeyFile::new_root([1; 32]));
    let keys = Credentials::new(Some(keys), Identity::Server);
    for _ in 0..ROUNDS {
        for (name, keys) in [
            ("without keys", Credentials::none()),
            ("with keys", keys.clone()),
        ] {
            let [one, several] = over_sockets(directory.to_owned(), keys).await;
            println!(
                "over a socket, one loop for both sides, 64 bytes, {name}: {one:.1} ns, {AT_A_TIME} at a time \
                 {several:.1} ns"
            );
        }
    }
}

#[allow(clippy::disallowed_methods)] // it removes what it has made
fn main() {
    let asked = std::env::args().nth(1);
    let only_sockets = asked.as_deref() == Some(ONLY_SOCKETS);
    if let Some(directory) = asked.filter(|_| !only_sockets) {
        return block_on(echo(Path::new(&directory)));
    }
    let name = format!("/dev/shm/plinth-figures-{}", std::process::id());
    let directory = Path::new(&name);
    block_on(async {
        disk::create_dir_all(directory).await.expect("a directory");
        if !only_sockets {
            let program = std::env::current_exe().expect("its own path");
            let other = Command::new(program).arg(directory).spawn();
            measure(directory, other.expect("a process")).await;
        }
        measure_sockets(directory).await;
    });
    std::fs::remove_dir_all(directory).expect("it is ours");
}
