use super::*;
use crate::disk::{self, OpenOptions};
use crate::{Duration, net, sleep, spawn, timeout};
use bytes::{Bytes, BytesMut};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory for one test, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("plinth-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_sent_over_tcp_comes_back() {
    block_on(async {
        let mut listener = net::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        spawn("echo", async move {
            let (mut reader, mut writer, _) = listener.accept().await.unwrap();
            let mut buffer = BytesMut::new();
            while reader.read(&mut buffer).await.unwrap() > 0 {
                writer.write_all(buffer.split().freeze()).await.unwrap();
            }
        })
        .detach();
        let (mut reader, mut writer) = net::connect(address).await.unwrap();
        let sent = Bytes::from(
            (0..3_000_000u32)
                .map(|i| (i * 7) as u8)
                .collect::<Vec<u8>>(),
        );
        let data = sent.clone();
        let writing = spawn("write", async move {
            writer.write_all(data).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        let mut back = BytesMut::new();
        while reader.read(&mut back).await.unwrap() > 0 {}
        writing.await;
        assert!(back == sent);
    });
}

#[test]
fn a_file_gives_back_what_was_written() {
    let scratch = Scratch::new("file");
    let path = scratch.0.join("data");
    block_on(async {
        assert!(disk::open(&path, OpenOptions::default()).await.is_err());
        let file = disk::open(
            &path,
            OpenOptions {
                create: true,
                ..Default::default()
            },
        )
        .await
        .unwrap();
        file.write_and_sync(
            0,
            vec![Bytes::from("hello "), Bytes::new(), Bytes::from("world")],
        )
        .await
        .unwrap();
        file.write_at(6, Bytes::from("there")).await.unwrap();
        file.sync().await.unwrap();
        assert_eq!(file.read_at(0, 100).await.unwrap(), "hello there");
        assert_eq!(file.read_at(6, 5).await.unwrap(), "there");
        file.allocate(1 << 20).await.unwrap();
        assert_eq!(file.size().await.unwrap(), 1 << 20);
        file.truncate(5).await.unwrap();
        assert_eq!(disk::read_file(&path).await.unwrap(), "hello");
        let blocking = file.blocking();
        let four = crate::offload(move || {
            blocking.write_all_at(0, b"J").unwrap();
            let mut four = [0; 4];
            blocking.read_exact_at(0, &mut four).unwrap();
            assert!(blocking.read_exact_at(3, &mut [0; 4]).is_err());
            four
        })
        .await;
        assert_eq!(&four, b"Jell");
        disk::write_file_durably(&path, Bytes::from("new"))
            .await
            .unwrap();
        assert_eq!(disk::read_file(&path).await.unwrap(), "new");
        assert_eq!(disk::list_dir(&scratch.0).await.unwrap(), ["data"]);
        disk::remove(&path).await.unwrap();
        assert!(!disk::exists(&path).await.unwrap());
    });
}

/// Opens a new file.
async fn made(path: &std::path::Path) -> disk::File {
    let options = OpenOptions {
        create: true,
        ..Default::default()
    };
    disk::open(path, options).await.unwrap()
}

#[test]
fn what_writes_to_a_file_runs_in_order_on_one_thread() {
    let scratch = Scratch::new("lane");
    block_on(async {
        let file = made(&scratch.0.join("data")).await;
        let work = |pause_ms| {
            move || {
                std::thread::sleep(std::time::Duration::from_millis(pause_ms));
                (std::time::Instant::now(), std::thread::current().id())
            }
        };
        let slow_and_fast = [file.offload(true, work(50)), file.offload(true, work(0))];
        let done = crate::join_all(slow_and_fast).await;
        assert!(done[0].0 < done[1].0);
        assert_eq!(done[0].1, done[1].1);
        assert_ne!(file.offload(false, work(0)).await.1, done[0].1);
    });
}

#[test]
fn a_loop_ends_after_what_it_has_begun_to_write() {
    let scratch = Scratch::new("lane-end");
    let flag = || Arc::new(AtomicBool::new(false));
    let (begun, ended) = (flag(), flag());
    let (has_begun, has_ended) = (begun.clone(), ended.clone());
    block_on(async {
        let file = made(&scratch.0.join("data")).await;
        let writing = spawn("write", async move {
            let running = file.offload(true, move || {
                has_begun.store(true, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(100));
                has_ended.store(true, Ordering::SeqCst);
            });
            let never = file.offload(true, || panic!("nobody waits for it any more"));
            crate::race(running, never).await;
        });
        writing.detach();
        while !begun.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(ended.load(Ordering::SeqCst));
}

#[test]
fn a_directory_is_locked_by_one_at_a_time() {
    let scratch = Scratch::new("lock");
    block_on(async {
        let lock = disk::lock_dir(&scratch.0).await.unwrap();
        assert!(disk::lock_dir(&scratch.0).await.is_err());
        drop(lock);
        disk::lock_dir(&scratch.0).await.unwrap();
    });
}

#[test]
fn an_exclusive_file_is_opened_again_when_its_last_handle_is_gone() {
    let scratch = Scratch::new("exclusive");
    let path = scratch.0.join("file");
    let options = disk::OpenOptions {
        create: true,
        truncate: true,
        exclusive: true,
        ..Default::default()
    };
    block_on(async {
        let file = disk::open(&path, options).await.unwrap();
        file.write_at(0, Bytes::from("old")).await.unwrap();
        let forgotten = file.blocking();
        drop(file);
        let opening = disk::open(&path, options);
        let opened = crate::timeout(Duration::from_millis(100), opening).await;
        assert!(opened.is_none());
        assert_eq!(disk::read_file(&path).await.unwrap(), "old");
        drop(forgotten);
        let file = disk::open(&path, options).await.unwrap();
        assert_eq!(file.size().await.unwrap(), 0);
    });
}

struct SetOnDrop(Rc<Cell<bool>>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

#[test]
fn dropping_a_task_drops_its_future_before_drop_returns() {
    block_on(async {
        let dropped = Rc::new(Cell::new(false));
        let guard = SetOnDrop(dropped.clone());
        let task = spawn("sleeper", async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        crate::yield_now().await;
        assert!(!task.is_finished());
        drop(task);
        assert!(dropped.get());
    });
}

#[test]
fn a_timeout_ends_what_takes_too_long_and_a_worker_returns_its_result() {
    let worker = spawn_worker("second", || async {
        let nested = spawn("child", async { 41 });
        sleep(Duration::from_millis(2)).await;
        nested.await + 1
    });
    block_on(async {
        assert_eq!(
            timeout(Duration::from_millis(5), std::future::pending::<()>()).await,
            None
        );
        assert_eq!(timeout(Duration::from_secs(5), async { 1 }).await, Some(1));
        let started = crate::now();
        sleep(Duration::from_millis(3)).await;
        assert!(started.elapsed() >= Duration::from_millis(3));
        assert_eq!(
            crate::join_all((0..3).map(|i| offload(move || i))).await,
            [0, 1, 2]
        );
    });
    assert_eq!(worker.join().unwrap(), 42);
}

const TOLD_TO_PANIC: &str = "PLINTH_TEST_TOLD_TO_PANIC";

#[test]
fn a_panic_in_a_task_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "real::tests::child_that_panics"])
        .env(TOLD_TO_PANIC, "")
        .output()
        .unwrap();
    const SIGABRT: i32 = 6;
    assert_eq!(child.status.signal(), Some(SIGABRT));
    let message = String::from_utf8_lossy(&child.stderr);
    assert!(
        message.contains("the broken invariant") && message.contains("task 'role'"),
        "{message}"
    );
}

/// The child of `a_panic_in_a_task_ends_the_process`: it panics in a process of its own. As a test of its own it does
/// nothing.
#[test]
fn child_that_panics() {
    if std::env::var_os(TOLD_TO_PANIC).is_some() {
        block_on(async {
            spawn("role", async { panic!("the broken invariant") }).detach();
            sleep(Duration::from_secs(60)).await;
        });
    }
}

#[test]
fn a_loop_that_is_always_busy_looks_at_its_timers_after_every_turn() {
    block_on(async {
        let polls = std::rc::Rc::new(Cell::new(0u64));
        let _busy: Vec<_> = (0..100)
            .map(|_| {
                let polls = polls.clone();
                spawn("busy", async move {
                    loop {
                        std::thread::sleep(Duration::from_micros(100));
                        polls.set(polls.get() + 1);
                        crate::yield_now().await;
                    }
                })
            })
            .collect();
        sleep(Duration::from_millis(1)).await;
        // A turn is some sixty tasks; a loop with 61 turns between two polls of sockets would reach 3,700.
        assert!(polls.get() < 1000, "{} polls", polls.get());
    });
}

#[test]
fn a_spin_is_not_shorter_than_asked_and_lets_others_run() {
    block_on(async {
        let begun = crate::now();
        let others = crate::spawn("other", async {
            crate::yield_now().await;
            crate::now()
        });
        crate::spin(Duration::from_micros(200)).await;
        assert!(begun.elapsed() >= Duration::from_micros(200));
        let ran = others.await;
        assert!(ran > begun && ran <= crate::now());
    });
}

#[cfg(target_os = "linux")]
#[test]
fn the_origin_is_where_the_clock_of_the_host_was() {
    let origin = crate::host_clock_origin().expect("there is one");
    assert_eq!(crate::host_clock_origin(), Some(origin), "it stays");
    let before = crate::now().0 + origin;
    let host = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let after = crate::now().0 + origin;
    let host = host.tv_sec as u64 * 1_000_000_000 + host.tv_nsec as u64;
    let error = crate::HOST_CLOCK_ERROR_NS;
    assert!(before <= host + error && host <= after + error);
}

#[cfg(target_os = "linux")]
#[test]
fn the_second_clock_advances_as_the_clock_does() {
    let second = || crate::second_clock().expect("there is one").0;
    let (first, begun) = (second(), crate::now().0);
    std::thread::sleep(Duration::from_millis(20));
    let (ended, last) = (crate::now().0, second());
    // The looks at the second clock are around those at the clock.
    assert!(last - first >= ended - begun && ended - begun >= 20_000_000);
}
