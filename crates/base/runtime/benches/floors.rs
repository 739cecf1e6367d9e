//! Cost of the runtime itself, which limits everything above it. Prints a line for each measurement.
//!
//! `cargo bench --package plinth-runtime --bench floors`

use bytes::{Bytes, BytesMut};
use plinth_runtime::sim::{SimConfig, Simulation};
use plinth_runtime::sync::queue;
use plinth_runtime::{Duration, Task, disk, join_all, net, now, offload, real, sleep, spawn};

fn main() {
    real::block_on(real_backend());
    polls_a_second("timers", timers());
    polls_a_second("queues", queues());
}

/// Runs `work` in a simulation and measures it with the wall clock, not with simulated time.
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
fn polls_a_second(what: &str, work: impl Future<Output = ()> + 'static) {
    let start = std::time::Instant::now();
    let outcome = Simulation::new(1, SimConfig::default()).run(work);
    let rate = outcome.events as f64 / start.elapsed().as_secs_f64();
    println!("simulated {what}: {:.2} million polls a second", rate / 1e6);
}

async fn timers() {
    let tasks: Vec<Task<()>> = (0..100u64)
        .map(|i| {
            spawn("worker", async move {
                for _ in 0..20_000 {
                    sleep(Duration::from_micros(50 + i)).await;
                }
            })
        })
        .collect();
    join_all(tasks).await;
}

async fn queues() {
    let (there, mut here) = queue::<u64>();
    let (back, mut answers) = queue::<u64>();
    let server = spawn("server", async move {
        while let Some(item) = here.recv().await {
            let _ = back.send(item);
        }
    });
    for i in 0..2_000_000 {
        there.send(i).expect("the server listens");
        answers.recv().await;
        if i % 1000 == 0 {
            sleep(Duration::from_micros(1)).await;
        }
    }
    drop(there);
    server.await;
}

async fn real_backend() {
    calls("offload", 10_000, async |_| offload(|| ()).await).await;
    calls("spawn and join", 1_000_000, async |_| {
        spawn("nothing", async {}).await
    })
    .await;
    disk_calls().await;
    round_trips().await;
}

async fn calls(what: &str, count: u32, call: impl AsyncFn(u64)) {
    let started = now();
    for i in 0..count {
        call(u64::from(i)).await;
    }
    println!("{what}: {:?}", started.elapsed() / count);
}

async fn disk_calls() {
    let path = std::env::temp_dir().join(format!("plinth-floors-{}", std::process::id()));
    let create = disk::OpenOptions {
        create: true,
        ..Default::default()
    };
    let file = disk::open(&path, create).await.expect("can be made");
    file.allocate(1 << 20).await.expect("there is room");
    file.sync().await.expect("the disk works");
    let block = Bytes::from(vec![1; 4096]);
    calls("write_and_sync of 4 KiB", 200, async |i| {
        let written = file.write_and_sync(i * 4096, vec![block.clone()]).await;
        written.expect("the disk works");
    })
    .await;
    calls("read_at of cached 4 KiB", 10_000, async |i| {
        let read = file.read_at((i % 200) * 4096, 4096).await;
        read.expect("the disk works");
    })
    .await;
    disk::remove(&path).await.expect("it is ours");
}

async fn round_trips() {
    let any_port = "127.0.0.1:0".parse().expect("an address");
    let mut listener = net::listen(any_port).await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    spawn("echo", async move {
        let (mut reader, mut writer, _) = listener.accept().await.expect("a caller");
        let mut buffer = BytesMut::new();
        while reader.read(&mut buffer).await.is_ok_and(|read| read > 0) {
            let echo = writer.write_all(buffer.split().freeze()).await;
            echo.expect("the caller listens");
        }
    })
    .detach();
    let (mut reader, mut writer) = net::connect(address).await.expect("it listens");
    let mut buffer = BytesMut::new();
    let (started, count) = (now(), 20_000);
    for _ in 0..count {
        let ping = writer.write_all(Bytes::from_static(b"ping")).await;
        ping.expect("the echo listens");
        buffer.clear();
        reader.read(&mut buffer).await.expect("the echo answers");
    }
    println!(
        "TCP round trip in one loop: {:?}",
        started.elapsed() / count
    );
}
