//! The in-memory engine in real processes, one of which has a clock that jumps or runs too fast (Debian's
//! `faketime`): it leaves with one line, what it was asked for is an error and no wrong answer, and the others go on.

use crate::common::farm::Machines;
use crate::common::text;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LINE: &str = "a clock has drifted or jumped beyond its bounds";
/// The library looks for another time so often.
const LOOKS_EVERY_S: &str = "1";
const PATIENCE: Duration = Duration::from_secs(30);

/// Between the C library and the programs that it is loaded with.
fn library() -> PathBuf {
    let triples = std::fs::read_dir("/usr/lib").expect("there is one");
    let mut found = triples.flatten().map(|triple| {
        let library = triple.path().join("faketime/libfaketimeMT.so.1");
        library.exists().then_some(library)
    });
    let found = found.find_map(|library| library);
    found.expect("libfaketime is there: scripts/need faketime:faketime installs it")
}

/// The command, with the time that the file says; its monotonic clock, too.
fn under_time_of(command: &mut Command, file: &PathBuf) {
    command
        .env("LD_PRELOAD", library())
        .env("FAKETIME_TIMESTAMP_FILE", file)
        .env("FAKETIME_CACHE_DURATION", LOOKS_EVERY_S);
}

fn say(file: &PathBuf, time: &str) {
    // At once, so that nobody reads half of it.
    let other = file.with_extension("new");
    std::fs::write(&other, time).expect("written");
    std::fs::rename(&other, file).expect("renamed");
}

fn assert_has_left(line: &str) {
    assert!(line.contains(LINE), "{line}");
    assert!(line.contains("start the process again"), "{line}");
}

#[test]
fn a_process_whose_clock_jumps_leaves_and_the_others_go_on() {
    let mut machines = Machines::new("farm-jump", 3);
    let time = machines.directory.file("time");
    say(&time, "+0");
    (0..2).for_each(|i| machines.start(i));
    let mut jumping = machines.command(2, &[]);
    under_time_of(&mut jumping, &time);
    machines.start_as(2, jumping);
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    assert!(machines.create().status.success());
    machines.whole();
    machines.cli("set a 1");

    // A shell with the same clock, which has read before, and may not read an old value afterwards.
    let mut shell = machines.shell(&[]);
    under_time_of(&mut shell, &time);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut asked = shell.stdin.take().expect("it was asked for");
    let mut answers = BufReader::new(shell.stdout.take().expect("it was asked for")).lines();
    writeln!(asked, "get a").expect("it reads");
    let answer = answers.next().expect("an answer").expect("text");
    assert!(answer.contains("`a' is `1'"), "{answer}");
    // Two seconds: a lease is shorter, and a clock that has gone back believes that its lease still runs.
    say(&time, "-2");
    assert_has_left(&machines.end_of(2));
    let said = machines.cli("set a 2; get a");
    assert!(said.contains("`a' is `2'"), "{said}");
    // Until its clock has jumped, too, the answer is right. Then there is none.
    let begun = Instant::now();
    loop {
        let _ = writeln!(asked, "get a"); // it may have ended
        let Some(answer) = answers.next() else { break };
        let answer = answer.expect("text");
        assert!(answer.contains("`a' is `2'"), "{answer}");
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(asked);
    let output = shell.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert_has_left(text(&output.stderr).trim_end());

    // With the right clock it comes back.
    machines.start(2);
    machines.whole();
    assert!(machines.cli("get a").contains("`a' is `2'"));
}

#[test]
fn a_process_whose_clock_runs_too_fast_never_gets_in() {
    let mut machines = Machines::new("farm-fast", 2);
    machines.start(0);
    let one = ["--machines", "1", "--replication", "1", "--regions", "1"];
    let one = [&one[..], &["--region-mib", "8"]].concat();
    machines.until(|status| status["coordinators"][0]["answers"] == true);
    assert!(machines.run("create", &one).status.success());
    machines.until(|status| status["serves"] == true);
    let mut fast = machines.command(1, &[]);
    fast.env("LD_PRELOAD", library())
        .env("FAKETIME", "+0 x1.01");
    machines.start_as(1, fast);
    assert_has_left(&machines.end_of(1));
    assert!(machines.cli("set a 1; get a").contains("`a' is `1'"));
}
