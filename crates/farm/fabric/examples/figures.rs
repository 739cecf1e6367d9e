//! Figures of the fabric on this host: `cargo run --release -p plinth-farm-fabric --example figures`.
//!
//! Three reads of 64 bytes (own memory, that of another process, over a socket), and a message there and back. The
//! other process is this program again; both poll, so that each needs a core.

use plinth_farm_fabric::{
    Address, Error, Fabric, Layout, Local, Machine, Message, Shared, Streamed, serve,
};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, disk, net, now, spawn, yield_now};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

const OWN: Machine = Machine(0);
const OTHER: Machine = Machine(1);
const ALL: [Machine; 2] = [OWN, OTHER];
const REGION_WORDS: u64 = 8 << 20;
const READS: u64 = 5_000_000;
const READS_OVER_SOCKETS: u64 = 20_000;
const MESSAGES: u64 = 200_000;
/// So many polls in vain, then others may run: with fewer cores than processes nobody waits for ever.
const SPINS: u32 = 10_000;

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

async fn next(fabric: &impl Fabric) -> Message {
    let mut spins = 0;
    loop {
        if let Some(message) = fabric.receive() {
            return message;
        }
        spins += 1;
        std::hint::spin_loop();
        if spins % SPINS == 0 {
            std::thread::yield_now();
            yield_now().await;
        }
    }
}

/// Sends back what comes.
async fn echo(directory: &Path) {
    let fabric = Shared::new(start(directory, OTHER).await);
    fabric.configure(1, &ALL).await.expect("the first");
    while fabric.open(OWN).await == Err(Error::Unreachable) {
        yield_now().await;
    }
    loop {
        let message = next(&fabric).await;
        fabric.release(&message);
        fabric.send(OWN, &message.body).await.expect("room");
    }
}

/// Nanoseconds of each of `count` reads of 64 bytes, at places far from each other.
async fn read(fabric: &impl Fabric, machine: Machine, count: u64) -> f64 {
    let (mut line, mut sum, begin) = ([0; 64], 0, now());
    for n in 0..count {
        let place = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (REGION_WORDS / 8);
        let at = Address {
            machine,
            region: 0,
            offset: 64 * place,
        };
        fabric.read(at, &mut line).await.expect("read");
        sum += u64::from(line[0]);
    }
    assert_eq!(std::hint::black_box(sum), 0);
    begin.elapsed().as_nanos() as f64 / count as f64
}

/// Nanoseconds of each message of 64 bytes there and back.
async fn send(fabric: &impl Fabric) -> f64 {
    let begin = now();
    for _ in 0..MESSAGES {
        fabric.send(OTHER, &[1; 64]).await.expect("room");
        let message = next(fabric).await;
        fabric.release(&message);
    }
    begin.elapsed().as_nanos() as f64 / MESSAGES as f64
}

async fn over_sockets(directory: PathBuf) -> f64 {
    let local = start(&directory, OTHER).await;
    local.configure(1, &ALL).await.expect("the first");
    let listener = net::listen("127.0.0.1:0".parse().expect("one")).await;
    let listener = listener.expect("a listener");
    let address = listener.local_addr().expect("its own");
    let _server = spawn("serve", serve(listener, OTHER, local.host().clone()));
    let addresses = vec![address; 2];
    let fabric = Streamed::new(
        start(&directory, OWN).await,
        addresses,
        Duration::from_secs(5),
    );
    fabric.configure(1, &ALL).await.expect("the first");
    fabric.open(OTHER).await.expect("it is there");
    read(&fabric, OTHER, READS_OVER_SOCKETS).await
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
        fabric.release(&next(&fabric).await);
        for _ in 0..2 {
            println!(
                "own memory, 64 bytes: {:.1} ns",
                read(&fabric, OWN, READS).await
            );
            println!(
                "of another process, 64 bytes: {:.1} ns",
                read(&fabric, OTHER, READS).await
            );
            println!("a message there and back: {:.1} ns", send(&fabric).await);
        }
    }
    other.kill().expect("it is ours");
    other.wait().expect("it has ended");
    let socket = over_sockets(directory.to_owned()).await;
    println!("over a socket, one loop for both sides, 64 bytes: {socket:.1} ns");
}

#[allow(clippy::disallowed_methods)] // it removes what it has made
fn main() {
    if let Some(directory) = std::env::args().nth(1) {
        return block_on(echo(Path::new(&directory)));
    }
    let name = format!("/dev/shm/plinth-figures-{}", std::process::id());
    let directory = Path::new(&name);
    block_on(async {
        disk::create_dir_all(directory).await.expect("a directory");
        let program = std::env::current_exe().expect("its own path");
        let other = Command::new(program).arg(directory).spawn();
        measure(directory, other.expect("a process")).await;
    });
    std::fs::remove_dir_all(directory).expect("it is ours");
}
