//! Memories and bells, on both backends.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // tests look at files from outside

use super::{Bell, Rope, attach, is_owned, kill_owner, own, own_sparse, owner, owner_ended};
use crate::real::block_on;
use crate::real::memory::LARGE_PAGE_BYTES;
use crate::sim::{Locality, MachineId, ProcessId, SimConfig, Simulation};
use crate::{Duration, TaskGroup, sleep, spawn, timeout};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(10);
const PAGE: usize = 4096;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let memory = Path::new("/dev/shm");
        let base = match memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        };
        let path = base.join(format!("plinth-memory-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("a directory");
        let names = entries.map(|entry| entry.expect("one").file_name());
        let mut names: Vec<String> = names.map(|n| n.to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn wake_and_wait(path: &Path) {
    let missing = Rope::find(path).await.err().map(|e| e.kind());
    assert_eq!(missing, Some(ErrorKind::NotFound));
    let bell = Bell::hang(path).await.expect("hung");
    let rope = Rope::find(path).await.expect("found");
    assert_eq!(timeout(SHORT, bell.rung()).await, None, "nobody rang");
    // A ring before the wait counts, and only once.
    for rings in [1, 2, 300] {
        (0..rings).for_each(|_| rope.ring());
        assert_eq!(timeout(LONG, bell.rung()).await, Some(()));
        assert_eq!(timeout(SHORT, bell.rung()).await, None, "{rings}");
    }
    for round in 0..50 {
        let later = Rope::find(path).await.expect("found");
        let ring = spawn("ring", async move {
            sleep(Duration::from_micros(round * 20)).await;
            later.ring();
        });
        assert_eq!(timeout(LONG, bell.rung()).await, Some(()), "{round}");
        ring.await;
    }
    // To ring for one who is gone, as often as one likes, harms nobody. The next finds the bell.
    drop(bell);
    (0..100_000).for_each(|_| rope.ring());
    let bell = Bell::hang(path).await.expect("hung");
    let _ = timeout(LONG, bell.rung()).await;
    assert_eq!(timeout(SHORT, bell.rung()).await, None);
    rope.ring();
    assert_eq!(timeout(LONG, bell.rung()).await, Some(()));
}

async fn wake_all(path: &Path) {
    let bell = std::rc::Rc::new(Bell::hang(path).await.expect("hung"));
    let rope = Rope::find(path).await.expect("found");
    let group = TaskGroup::new();
    let woken = std::rc::Rc::new(std::cell::Cell::new(0));
    for _ in 0..5 {
        let (bell, woken) = (bell.clone(), woken.clone());
        group.spawn("wait", async move {
            bell.rung().await;
            woken.set(woken.get() + 1);
        });
    }
    sleep(SHORT).await;
    rope.ring();
    let all = async {
        while woken.get() < 5 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    assert_eq!(timeout(LONG, all).await, Some(()));
}

#[test]
fn a_ring_wakes_who_waits_and_is_not_lost_if_nobody_does() {
    let scratch = Scratch::new("bell");
    block_on(wake_and_wait(&scratch.0.join("bell")));
    block_on(wake_all(&scratch.0.join("bell")));
    for seed in 0..20 {
        let sim = Simulation::new(seed, SimConfig::default());
        sim.run(async { wake_and_wait(Path::new("/bell")).await });
        sim.run(async { wake_all(Path::new("/bell")).await });
    }
}

#[test]
fn a_bell_is_closed_to_others_and_nothing_else_is_taken_for_one() {
    let scratch = Scratch::new("no-bell");
    let at = |name: &str| scratch.0.join(name);
    block_on(async {
        let _bell = Bell::hang(&at("bell")).await.expect("hung");
        let data = std::fs::metadata(at("bell")).expect("it is there");
        assert!(data.file_type().is_fifo());
        assert_eq!(data.permissions().mode() & 0o777, 0o600);
        std::fs::write(at("file"), b"12345678").expect("written");
        std::os::unix::fs::symlink(at("bell"), at("link")).expect("linked");
        std::fs::create_dir(at("directory")).expect("made");
        for other in ["file", "link", "directory"] {
            let hung = Bell::hang(&at(other)).await.err().expect("no bell");
            assert_eq!(hung.kind(), ErrorKind::InvalidData);
            assert!(hung.to_string().contains(other), "{hung}");
            let found = Rope::find(&at(other)).await.err().map(|e| e.kind());
            assert_eq!(found, Some(ErrorKind::InvalidData));
        }
        assert_eq!(std::fs::read(at("file")).expect("read"), b"12345678");
    });
}

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|done| done.success()));
    }
}

/// Fills a file system of 256 pages. Each lock takes one.
async fn fill(scratch: &Scratch) {
    let at = |name: &str| scratch.0.join(name);
    let one = own(&at("one"), 100 * PAGE / 8).await.expect("room");
    let two = own(&at("two"), 200 * PAGE / 8).await.err();
    let two = two.expect("no room");
    assert_eq!(two.kind(), ErrorKind::StorageFull);
    let text = two.to_string();
    let missing = format!("{} too few", 46 * PAGE);
    for part in ["two: no room", &format!("{} bytes", 200 * PAGE), &missing] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(scratch.names(), ["one", "one.lock", "two.lock"]);
    // All of the rest, and nothing more. Every page can be used.
    let three = own(&at("three"), 153 * PAGE / 8).await.expect("room");
    let four = own(&at("four"), 1).await.err().map(|e| e.kind());
    assert_eq!(four, Some(ErrorKind::StorageFull));
    for word in one.mapping.words().iter().chain(three.mapping.words()) {
        word.store(7, Relaxed);
    }
    // Nor does an owner get one that was made without its room.
    drop(one);
    assert_eq!(scratch.names().len(), 6, "{:?}", scratch.names());
    std::fs::remove_file(at("one")).expect("removed");
    let holes = std::fs::File::create(at("holes")).expect("created");
    holes.set_len(150 * PAGE as u64).expect("a size");
    let taken = own(&at("holes"), 150 * PAGE / 8).await.err();
    assert_eq!(taken.map(|e| e.kind()), Some(ErrorKind::StorageFull));
    drop(own(&at("two"), 90 * PAGE / 8).await.expect("room"));
}

#[test]
fn a_memory_that_has_no_room_is_refused_and_nothing_is_left_of_it() {
    let scratch = Scratch::new("full");
    // More than there can be is refused at once, by all who reserve.
    let size = rustix::fs::statvfs(&scratch.0).expect("a file system");
    let words = (size.f_blocks * size.f_frsize) as usize / 8 + PAGE;
    let error = block_on(own(&scratch.0.join("large"), words)).err();
    let error = error.expect("no room");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(error.to_string().contains("large: no room"), "{error}");
    assert_eq!(scratch.names(), ["large.lock"]);
    std::fs::remove_file(scratch.0.join("large.lock")).expect("removed");
    // Only the superuser may mount a small one.
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "plinth-test"])
        .arg(&scratch.0)
        .output();
    if !mount.is_ok_and(|done| done.status.success()) {
        return println!("no small file system can be mounted: only its size was tried");
    }
    let _mounted = Mounted(&scratch.0);
    block_on(fill(&scratch));
}

#[test]
fn a_large_memory_has_its_room_and_begins_where_large_pages_can() {
    let scratch = Scratch::new("pages");
    for words in [LARGE_PAGE_BYTES / 8, 3 * LARGE_PAGE_BYTES / 8 + PAGE / 8] {
        let path = scratch.0.join("memory");
        let owned = block_on(own(&path, words)).expect("room");
        let attached = block_on(attach(&path)).expect("it is there");
        let data = std::fs::metadata(&path).expect("it is there");
        assert_eq!(data.len(), words as u64 * 8);
        assert!(data.blocks() * 512 >= data.len(), "{}", data.blocks());
        for mapped in [owned.mapping.words(), attached.words()] {
            assert_eq!(mapped.len(), words);
            assert_eq!(mapped.as_ptr().addr() % LARGE_PAGE_BYTES, 0);
        }
        for word in owned.mapping.words() {
            assert_eq!(word.swap(7, Relaxed), 0);
        }
        assert!(attached.words().iter().all(|word| word.load(Relaxed) == 7));
        std::fs::remove_file(&path).expect("removed");
    }
}

#[test]
fn simulated_memory_is_full_if_the_test_says_so() {
    let sim = Simulation::new(1, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    let take = |name: &'static str| {
        let taken = sim.run_on(machine, async move {
            let owned = own(Path::new(name), 4).await;
            owned.map(|owned| owned.is_new).map_err(|e| e.kind())
        });
        taken.expect("it ends")
    };
    assert_eq!(take("/one"), Ok(true));
    sim.set_memory_full(machine, true);
    assert_eq!(take("/one"), Ok(false));
    assert_eq!(take("/two"), Err(ErrorKind::StorageFull));
    sim.heal_all();
    assert_eq!(take("/two"), Ok(true));
}

/// A simulated process that owns a memory at `/m`.
fn start_owner(sim: &Simulation, machine: MachineId) -> ProcessId {
    let main = || {
        Box::pin(async {
            let _owned = own(Path::new("/m"), 1).await;
            std::future::pending::<()>().await;
        }) as _
    };
    sim.start_process(machine, "10.0.0.1:1".parse().expect("one"), main)
}

#[test]
fn the_owner_is_known_and_can_be_killed_by_others() {
    let scratch = Scratch::new("owner");
    let path = scratch.0.join("memory");
    block_on(async {
        assert_eq!(owner(&path).await.expect("an answer"), None);
        assert!(!kill_owner(&path).await.expect("nobody"));
        let owned = own(&path, 1).await.expect("owned");
        let known = owner(&path).await.expect("an answer");
        assert_eq!(known, Some(std::process::id()));
        let itself = kill_owner(&path).await.err().map(|e| e.kind());
        assert_eq!(itself, Some(ErrorKind::InvalidInput));
        drop(owned);
        assert_eq!(owner(&path).await.expect("an answer"), None);
        assert!(!kill_owner(&path).await.expect("nobody"));
    });
    let sim = Simulation::new(1, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    let process = start_owner(&sim, machine);
    let killed = sim.run_on(machine, async {
        sleep(SHORT).await;
        let known = owner(Path::new("/m")).await.expect("an answer");
        (known, kill_owner(Path::new("/m")).await.expect("killed"))
    });
    assert_eq!(killed, Some((Some(process.0), true)));
    assert!(!sim.is_alive(process));
    let left = sim.run_on(machine, async {
        assert!(attach(Path::new("/m")).await.is_ok());
        owner(Path::new("/m")).await.expect("an answer")
    });
    assert_eq!(left, Some(None));
}

const OWNED: &str = "PLINTH_MEMORY_TEST_OWNED";

/// What the process does that the next test starts.
#[test]
fn other_owner() {
    let Ok(path) = std::env::var(OWNED) else {
        return; // an ordinary run of the tests
    };
    block_on(async {
        let _owned = own(Path::new(&path), 1).await.expect("owned");
        std::future::pending::<()>().await;
    });
}

#[test]
fn who_watches_an_owner_hears_of_its_end_and_of_no_end_before() {
    let scratch = Scratch::new("ended");
    let path = scratch.0.join("memory");
    block_on(async {
        let nobody = timeout(LONG, owner_ended(&path)).await;
        assert!(nobody.is_some_and(|ended| ended.is_ok()));
        let program = std::env::current_exe().expect("its own path");
        let mut command = Command::new(program);
        let command = command.args(["--exact", "memory::tests::other_owner"]);
        let mut child = command.env(OWNED, &path).spawn().expect("a process");
        while owner(&path).await.expect("an answer").unwrap_or(0) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let mut ended = std::pin::pin!(owner_ended(&path));
        assert!(timeout(SHORT, &mut ended).await.is_none());
        child.kill().expect("it is ours");
        let ended = timeout(LONG, ended).await;
        assert!(ended.is_some_and(|ended| ended.is_ok()));
        assert!(!is_owned(&path).await.expect("an answer"));
        child.wait().expect("it has ended");
    });
}

#[test]
fn who_watches_a_simulated_owner_hears_of_its_end() {
    let sim = Simulation::new(1, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    start_owner(&sim, machine);
    let ended = sim.run_on(machine, async {
        sleep(SHORT).await;
        kill_owner(Path::new("/m")).await.expect("killed");
        timeout(SHORT, owner_ended(Path::new("/m"))).await.is_some()
    });
    assert_eq!(ended, Some(true));
}

#[test]
fn a_sparse_memory_takes_up_what_is_reserved_and_gives_it_back() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new("sparse");
    let path = scratch.0.join("one");
    let words = 64 * PAGE / 8;
    let taken = || 512 * std::fs::metadata(&path).expect("it is there").blocks();
    block_on(async {
        let owned = own_sparse(&path, words).await.expect("owned");
        assert!(owned.is_new && taken() <= PAGE as u64);
        let half = words / 2..words;
        owned
            .mapping
            .reserve(half.clone())
            .await
            .expect("there is room");
        assert!(taken() >= 32 * PAGE as u64);
        owned.mapping.words()[words - 1].store(7, Relaxed);
        drop(owned);
        // The next owner takes over what is there, and no more.
        let owned = own_sparse(&path, words).await.expect("owned");
        assert_eq!(owned.mapping.words()[words - 1].load(Relaxed), 7);
        assert!(!owned.is_new && taken() <= 33 * PAGE as u64);
        owned.mapping.release(half).await.expect("released");
        assert!(taken() <= PAGE as u64);
        assert_eq!(owned.mapping.words()[0].load(Relaxed), 0);
    });
}
