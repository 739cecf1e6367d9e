//! The in-memory engine with backups on disk only, in real processes: a machine dies that leads the data, while others
//! read and write.

use crate::common::farm::{Machines, Shell};
use crate::common::{BINARY, error_line};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const ROWS: usize = 600;
const VALUE_BYTES: usize = 60_000;
const REGION_MIB: u64 = 64;
const PATIENCE: Duration = Duration::from_secs(60);

/// The versions of a row, which rise.
#[derive(Default)]
struct Row {
    acknowledged: AtomicU64,
    tried: AtomicU64,
}

/// What clients know, and have done.
struct Known {
    rows: Vec<Row>,
    reads: AtomicU64,
    writes: AtomicU64,
    ends: AtomicBool,
}

/// Clients end when it is dropped.
struct Ended<'a>(&'a Known);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ends.store(true, SeqCst);
    }
}

/// The value of a row, by which a part of another version would be seen anywhere.
fn value(row: usize, version: u64) -> String {
    let part = format!("{row}.{version}.");
    let count = VALUE_BYTES / part.len() + 1;
    part.repeat(count)[..VALUE_BYTES].to_owned()
}

/// The version of an answer to `get`.
fn version_of(answer: &str, row: usize) -> u64 {
    let begin = &answer[..answer.len().min(80)];
    let value_of = answer.strip_prefix(&format!("`r{row}' is `"));
    let found = value_of.and_then(|rest| rest.strip_suffix("'"));
    let found = found.unwrap_or_else(|| panic!("row {row} is not there: {begin}"));
    let version = found.split('.').nth(1).and_then(|text| text.parse().ok());
    let version = version.unwrap_or_else(|| panic!("row {row} is no value: {begin}"));
    assert!(
        found == value(row, version),
        "row {row} is not whole: {begin}"
    );
    version
}

impl Known {
    fn new() -> Known {
        Known {
            rows: (0..ROWS).map(|_| Row::default()).collect(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        }
    }

    /// False if the shell has ended: then nobody knows whether the row was written.
    fn write(&self, shell: &mut Shell, at: usize) -> bool {
        let row = &self.rows[at];
        let version = row.tried.fetch_add(1, SeqCst) + 1;
        let answer = shell.ask(&format!("set r{at} {}", value(at, version)));
        let is_done = answer.as_deref() == Some("Committed");
        if is_done {
            row.acknowledged.store(version, SeqCst);
            self.writes.fetch_add(1, SeqCst);
        }
        is_done
    }

    /// False if the shell has ended.
    fn read(&self, shell: &mut Shell, at: usize) -> bool {
        let row = &self.rows[at];
        let least = row.acknowledged.load(SeqCst);
        let Some(answer) = shell.ask(&format!("get r{at}")) else {
            return false;
        };
        let (version, most) = (version_of(&answer, at), row.tried.load(SeqCst));
        assert!(
            (least..=most).contains(&version),
            "row {at}: version {version} was read, {least} was acknowledged before, and {most} was tried"
        );
        self.reads.fetch_add(1, SeqCst);
        true
    }

    /// Reads or writes rows until it is told to end.
    fn use_rows(&self, machines: &Machines, work: fn(&Known, &mut Shell, usize) -> bool) {
        let mut shell = machines.open_shell();
        let mut at = 0;
        while !self.ends.load(SeqCst) {
            at = (at + 89) % ROWS;
            if !work(self, &mut shell, at) {
                shell = machines.open_shell();
            }
        }
    }

    /// Does `work` while clients read and write.
    fn while_clients_run(&self, machines: &Machines, work: impl FnOnce()) {
        let ways: [fn(&Known, &mut Shell, usize) -> bool; 3] =
            [Known::write, Known::read, Known::read];
        self.ends.store(false, SeqCst);
        std::thread::scope(|scope| {
            for way in ways {
                scope.spawn(move || self.use_rows(machines, way));
            }
            // Also if `work` panics.
            let _ended = Ended(self);
            work();
        });
    }

    /// Waits for so many more reads and writes.
    fn wait(&self, reads: u64, writes: u64) {
        let done = || (self.reads.load(SeqCst), self.writes.load(SeqCst));
        let (before, begun) = (done(), Instant::now());
        loop {
            let now = done();
            if now.0 >= before.0 + reads && now.1 >= before.1 + writes {
                return;
            }
            let waits = begun.elapsed() < PATIENCE;
            assert!(waits, "reads and writes were {before:?}, and are {now:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Reads or writes every row, in other shells if one loses its lease.
    fn use_each_row(&self, machines: &Machines, work: fn(&Known, &mut Shell, usize) -> bool) {
        let begun = Instant::now();
        let mut shell = machines.open_shell();
        for at in 0..ROWS {
            while !work(self, &mut shell, at) {
                drop(shell);
                machines.expect_lost_lease(&format!("row {at}"));
                assert!(begun.elapsed() < PATIENCE, "shells end at row {at}");
                shell = machines.open_shell();
            }
        }
    }

    /// Every row has what was acknowledged.
    fn check(&self, machines: &Machines) {
        self.use_each_row(machines, Known::read);
    }
}

fn numbered(status: &Value, what: &str) -> Vec<(u16, u64)> {
    let machines = status["machines"].as_array().expect("machines");
    let data = machines
        .iter()
        .filter(|machine| machine["has_data"] == true);
    let number = |machine: &Value| machine["machine"].as_u64().expect("a number") as u16;
    data.map(|machine| (number(machine), machine[what].as_u64().unwrap_or_default()))
        .collect()
}

/// Bytes of the memory of a machine that take room.
fn memory_bytes(machines: &Machines, number: u16) -> u64 {
    let file = machines.memory(0).join(format!("machine-{number}.memory"));
    512 * std::fs::metadata(file).expect("it is there").blocks()
}

/// Waits until each machine takes room for what it leads, and for little else.
fn expect_small_backups(machines: &Machines) {
    let data = (ROWS * VALUE_BYTES) as u64;
    let begun = Instant::now();
    loop {
        let primaries = numbered(&machines.whole(), "primaries");
        assert!(
            primaries.iter().any(|(_, count)| *count == 0),
            "{primaries:?}"
        );
        let taken = |(number, count): &(u16, u64)| {
            let bytes = memory_bytes(machines, *number);
            (
                *number,
                *count,
                bytes,
                bytes.saturating_sub(*count * (REGION_MIB << 20)),
            )
        };
        let taken: Vec<_> = primaries.iter().map(taken).collect();
        if taken.iter().all(|(.., besides)| *besides < data / 2) {
            let most = taken.iter().map(|(_, _, bytes, _)| *bytes).max();
            assert!(
                most > Some(data),
                "nobody has the data in memory: {taken:?}"
            );
            return;
        }
        let waits = begun.elapsed() < PATIENCE;
        assert!(
            waits,
            "machine, regions it leads, bytes, and bytes besides these regions, for {data} bytes of data: {taken:?}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The place of the process that leads the data, and is the master if one machine leads all regions.
fn leader(machines: &Machines) -> u16 {
    let status = machines.status();
    let (all, free) = (
        numbered(&status, "region_bytes"),
        numbered(&status, "region_free_bytes"),
    );
    let used = all
        .iter()
        .zip(&free)
        .map(|((number, all), (_, free))| (all - free, *number));
    let number = used.max().expect("machines").1;
    let places = status["machines"].as_array().expect("machines").iter();
    let mut places = places.filter(|machine| machine["machine"] == number);
    let address = places
        .next()
        .and_then(|machine| machine["address"].as_str().map(str::to_owned));
    let address = address.expect("it has an address");
    (0..3)
        .find(|i| machines.address(*i) == address)
        .expect("it is one of the processes")
}

#[test]
fn a_machine_that_had_the_data_on_disk_leads_it_when_the_one_dies_that_had_it_in_memory() {
    let mut machines = Machines::with_coordinators("farm-on-disk", 3, 3);
    (0..3).for_each(|i| machines.start(i));
    let size = REGION_MIB.to_string();
    let plan = [
        "--machines",
        "3",
        "--regions",
        "2",
        "--region-mib",
        &size,
        "--machines-max",
        "12",
    ];
    let made = machines.run(
        "create",
        &[&plan[..], &["--durable", "--backups", "disk"]].concat(),
    );
    assert!(made.status.success(), "{made:?}");
    let status = machines.whole();
    assert_eq!(
        (&status["durable"], &status["backups"]),
        (&true.into(), &"disk".into())
    );

    let known = Known::new();
    known.use_each_row(&machines, Known::write);
    expect_small_backups(&machines);

    for round in 0..2 {
        let victim = leader(&machines);
        known.while_clients_run(&machines, || {
            known.wait(20, 20);
            machines.send_kill(victim);
            known.wait(500, 100);
        });
        machines.until(|status| {
            let loads = |machine: &Value| machine["is_loading"] == true;
            !status["machines"]
                .as_array()
                .expect("machines")
                .iter()
                .any(loads)
        });
        known.check(&machines);
        assert_ne!(leader(&machines), victim, "round {round}");
        machines.kill(victim);
        machines.start(victim);
        expect_small_backups(&machines);
        known.check(&machines);
    }

    // After the loss of power, too: nothing but the data directories is left.
    (0..3).for_each(|i| machines.kill(i));
    std::fs::remove_dir_all(machines.memory(0)).expect("removed");
    (0..3).for_each(|i| machines.start(i));
    expect_small_backups(&machines);
    known.check(&machines);
}

#[test]
fn backups_on_disk_of_a_cluster_without_disks_are_refused_with_one_line() {
    let machines = Machines::new("farm-no-disk", 1);
    let directory = machines.directory.file("dev").display().to_string();
    let run = |arguments: &[&str]| {
        let output = Command::new(BINARY).args(arguments).output();
        error_line(&output.expect("it runs"))
    };
    let mut lines = vec![
        error_line(&machines.run("create", &["--backups", "disk"])),
        run(&["farm", "demo", "--backups", "disk"]),
        run(&["farm", "bench", "failures", "--backups", "disk"]),
        run(&[
            "dev",
            "--farm",
            "3",
            "--data-dir",
            &directory,
            "--backups",
            "disk",
        ]),
    ];
    let mut server = machines.command(0, &["--new", "--backups", "disk"]);
    lines.push(error_line(&server.output().expect("it runs")));
    for line in lines {
        assert!(
            line.contains("--backups disk: ") && line.contains("add --durable"),
            "{line}"
        );
    }
    assert!(!machines.directory.file("d0").exists() && !machines.directory.file("dev").exists());
}
