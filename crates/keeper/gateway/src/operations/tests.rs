//! The log of operations on disks that are well, full, or hang.

use super::*;
use plinth_runtime::disk;
use plinth_runtime::knobs::{Knobs, set_knobs};
use plinth_runtime::real::block_on;
use plinth_runtime::sim::{Hang, Locality, MachineId, Sickness, SimConfig, Simulation, control};

#[test]
fn moments_are_written_as_in_zookeepers_logs() {
    for (ms, text) in [
        (0, "1970-01-01 00:00:00,000"),
        (951_782_399_999, "2000-02-28 23:59:59,999"),
        (951_782_400_000, "2000-02-29 00:00:00,000"),
        (1_709_251_199_001, "2024-02-29 23:59:59,001"),
        (1_709_251_200_000, "2024-03-01 00:00:00,000"),
        (4_102_444_800_000, "2100-01-01 00:00:00,000"),
    ] {
        assert_eq!(stamp(ms), text);
    }
}

#[test]
fn nobody_writes_a_line_of_his_own() {
    assert_eq!(shown("/a b/ü"), "/a b/ü");
    assert_eq!(
        shown("/a\nsession=0x1\t\\"),
        "/a\\u000asession=0x1\\u0009\\\\"
    );
    let entry = |perms, scheme: &str, id: &str| Acl {
        perms,
        scheme: scheme.into(),
        id: id.into(),
    };
    let list = [entry(31, "world", "anyone"), entry(5, "digest", "bob:x")];
    assert_eq!(list_of(&list), "world:anyone:cdrwa,digest:bob:x:cr");
}

#[test]
fn a_full_file_is_renamed_and_the_oldest_goes() {
    let mut knobs = Knobs::default();
    for (name, value) in [
        ("keeper_operations_log_bytes", "1000"),
        ("keeper_operations_log_files", "2"),
    ] {
        knobs.set(name, value).expect("a knob");
    }
    set_knobs(knobs);
    let directory = std::env::temp_dir().join(format!("plinth-ops-{}", std::process::id()));
    block_on(async {
        disk::create_dir_all(&directory).await.expect("made");
        let path = directory.join("operations.log");
        for number in 0..100 {
            // A gateway that is started again goes on with the file.
            let operations = Operations::open(path.clone()).await.expect("it opens");
            operations.of_server(&format!("number{number}"), "success");
            operations.flushed().await;
        }
        let names = disk::list_dir(&directory).await.expect("listed");
        let expected = ["operations.log", "operations.log.1", "operations.log.2"];
        assert_eq!(names, expected);
        let mut all = String::new();
        for name in names.iter().rev() {
            let text = disk::read_file(&directory.join(name)).await.expect("read");
            assert!(text.len() <= 1000, "{name}");
            all.push_str(std::str::from_utf8(&text).expect("text"));
        }
        let lines: Vec<&str> = all.lines().collect();
        let last = "user=plinth\toperation=number99\tresult=success";
        assert!(lines.last().expect("lines").ends_with(last), "{all}");
        let numbered = lines.iter().filter(|line| line.contains("=number"));
        let numbered: Vec<&&str> = numbered.collect();
        for (place, line) in numbered.iter().rev().enumerate() {
            let number = format!("=number{}\t", 99 - place);
            assert!(line.contains(&number), "none is missing: {all}");
        }
        for name in names {
            disk::remove(&directory.join(name)).await.expect("removed");
        }
    });
}

#[test]
fn what_finds_no_room_is_counted() {
    let directory = std::env::temp_dir().join(format!("plinth-lost-{}", std::process::id()));
    block_on(async {
        disk::create_dir_all(&directory).await.expect("made");
        let path = directory.join("operations.log");
        let operations = Operations::open(path.clone()).await.expect("it opens");
        operations.flushed().await;
        let line = "x".repeat(1 << 20);
        // Nothing is written before this task waits.
        (0..10).for_each(|_| operations.of_server(&line, "success"));
        assert!(operations.lines.waiting.borrow().len() <= WAITING_BYTES_MAX);
        operations.flushed().await;
        operations.of_server("next", "success");
        operations.flushed().await;
        let text = disk::read_file(&path).await.expect("read");
        let text = String::from_utf8(text.to_vec()).expect("text");
        assert!(text.contains(" 7 lines were lost\n"), "some are told of");
        disk::remove(&path).await.expect("removed");
    });
}

/// A log on a simulated disk, and the numbers of the lines that were added.
struct Logged {
    machine: MachineId,
    operations: Operations,
    added: Cell<u64>,
}

const FILE: &str = "/log/operations.log";

impl Logged {
    async fn begin(machine: MachineId) -> Logged {
        disk::create_dir_all(Path::new("/log")).await.expect("made");
        let operations = Operations::open(FILE.into()).await.expect("it opens");
        operations.flushed().await;
        Logged {
            machine,
            operations,
            added: Cell::new(0),
        }
    }

    /// Adds lines of so many bytes, a hundred a second.
    async fn add(&self, lines: u64, bytes: usize) {
        for _ in 0..lines {
            let number = self.added.get();
            self.added.set(number + 1);
            let line = format!("number{number}-{}", "x".repeat(bytes));
            self.operations.of_server(&line, "success");
            let waiting = self.operations.lines.waiting.borrow().len();
            assert!(waiting <= WAITING_BYTES_MAX + 1000, "{waiting} bytes");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// All that was added is in the file once and in order, but for the lines that it says are lost.
    async fn check(&self, lost: u64) {
        self.operations.flushed().await;
        let text = disk::read_file(Path::new(FILE)).await.expect("read");
        let text = String::from_utf8(text.to_vec()).expect("text");
        let mut next = 0;
        let mut told = 0;
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once("operation=number") {
                let number: u64 = rest
                    .split_once('-')
                    .and_then(|(n, _)| n.parse().ok())
                    .expect("a number");
                assert!(
                    number == next && line.ends_with("\tresult=success"),
                    "{line:.80}"
                );
                next += 1;
            } else if let Some((_, rest)) = line.split_once(" WARN audit.Slf4jAuditLogger: ") {
                let lines = rest.strip_suffix(" lines were lost");
                let lines: u64 = lines.and_then(|n| n.parse().ok()).expect("a number");
                told += lines;
                next += lines;
            } else {
                assert!(
                    line.ends_with("operation=serverStart\tresult=success"),
                    "{line}"
                );
            }
        }
        assert_eq!(next, self.added.get());
        assert_eq!((told, self.operations.lost()), (lost, lost));
        assert!(!self.operations.is_stuck());
    }
}

/// How often it was said so far.
fn said(event: &str) -> usize {
    let event = format!("\"{event}\"");
    let tail = control().trace_tail();
    tail.iter().filter(|line| line.contains(&event)).count()
}

fn on_a_disk<W: Future<Output = ()> + 'static>(work: impl FnOnce(MachineId) -> W) {
    let sim = Simulation::new(1, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    sim.run_on(machine, work(machine))
        .expect("nothing kills it");
}

fn hang(machine: MachineId) {
    let hangs = Hang::Everything;
    let sickness = Sickness {
        hangs,
        ..Sickness::default()
    };
    control().set_disk_sickness(machine, sickness);
}

#[test]
fn a_full_disk_takes_later_what_there_is_room_for() {
    on_a_disk(|machine| async move {
        let log = Logged::begin(machine).await;
        log.add(100, 100).await;
        control().set_disk_full(log.machine, true);
        log.add(3000, 100).await;
        assert!(log.operations.is_stuck());
        assert_eq!(said("KeeperOperationsNotWritten"), 1);
        control().set_disk_full(log.machine, false);
        log.add(100, 100).await;
        log.check(0).await;
        assert_eq!(said("KeeperOperationsWritten"), 1);
    });
}

#[test]
fn a_full_disk_loses_what_there_is_no_room_for_and_says_how_much() {
    on_a_disk(|machine| async move {
        let log = Logged::begin(machine).await;
        control().set_disk_full(log.machine, true);
        log.add(200, 10_000).await;
        log.add(1000, 10_000).await;
        let lost = log.operations.lost();
        assert!(lost > 300, "{lost}");
        control().set_disk_full(log.machine, false);
        // Nobody adds a line before it is said.
        log.check(lost).await;
        log.add(10, 100).await;
        log.check(lost).await;
    });
}

#[test]
fn a_disk_that_hangs_keeps_nobody_waiting() {
    on_a_disk(|machine| async move {
        let log = Logged::begin(machine).await;
        log.add(10, 100).await;
        log.operations.flushed().await;
        hang(log.machine);
        log.add(1000, 10_000).await;
        assert!(log.operations.is_stuck());
        assert_eq!(said("KeeperOperationsNotWritten"), 1);
        let lost = log.operations.lost();
        assert!(lost > 100, "{lost}");
        control().end_disk_sickness(log.machine);
        log.check(lost).await;
    });
}

#[test]
fn who_begins_on_a_disk_that_hangs_is_told_so() {
    on_a_disk(|machine| async move {
        disk::create_dir_all(Path::new("/log")).await.expect("made");
        hang(machine);
        let opening = timeout(Duration::from_secs(60), Operations::open(FILE.into()));
        let refused = opening.await.expect("it is told").err();
        let line = "operations log /log/operations.log: the disk does not answer; choose another with \
                    --operations-log";
        assert_eq!(refused.as_deref(), Some(line));
    });
}

#[test]
fn a_disk_that_fails_now_and_then_loses_nothing() {
    on_a_disk(|machine| async move {
        let mut knobs = Knobs::default();
        knobs
            .set("keeper_operations_log_bytes", "1000000")
            .expect("a knob");
        set_knobs(knobs);
        let log = Logged::begin(machine).await;
        control().set_disk_sickness(machine, Sickness::errors(0.3));
        log.add(1000, 100).await;
        control().end_disk_sickness(machine);
        log.check(0).await;
    });
}

#[test]
fn what_a_process_left_of_a_line_is_on_a_line_of_its_own() {
    on_a_disk(|machine| async move {
        let log = Logged::begin(machine).await;
        log.add(3, 100).await;
        log.operations.flushed().await;
        let text = disk::read_file(Path::new(FILE)).await.expect("read");
        drop(log);
        let torn = text.slice(..text.len() - 20);
        let written = disk::write_file_durably(Path::new(FILE), torn.clone()).await;
        written.expect("written");
        let log = Logged::begin(machine).await;
        log.operations.flushed().await;
        let text = disk::read_file(Path::new(FILE)).await.expect("read");
        assert_eq!(text.slice(..torn.len()), torn);
        assert_eq!(text[torn.len()], b'\n');
        let rest = text.slice(torn.len() + 1..);
        assert!(rest.ends_with(b"\toperation=serverStart\tresult=success\n"));
        assert_eq!(rest.iter().filter(|byte| **byte == b'\n').count(), 1);
    });
}
