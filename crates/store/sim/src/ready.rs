//! Checks what processes say of themselves: that they are ready, and that they are not. A client of the tester commits
//! all the time, so it is known whether anybody could.
//!
//! ```text
//! nobody could commit for 5 s and a while  ──► no process may be ready
//! somebody could, without a gap of seconds ──► every process is ready that has run for a while
//! ```
//!
//! Meanwhile roles and processes end, disks hang, and machines are cut off.

use crate::cluster::{Pages, Shape};
use crate::{Failure, FailureKind, attrition};
use plinth_client::{Database, TransactionOption};
use plinth_core::Value;
use plinth_core::system_keys::BEAT;
use plinth_runtime::random::{below, range};
use plinth_runtime::readiness::{self, READY_LIMIT};
use plinth_runtime::sim::{Hang, KillKind, MachineId, Sickness, control};
use plinth_runtime::{
    Duration, Either, Instant, now, probe, race, sleep, sleep_until, timeout, trace,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;

type Verdict = Result<(), Failure>;

/// Between two looks at what processes say.
const LOOK: Duration = Duration::from_millis(250);
/// Between two commits of the client.
const THINK: Duration = Duration::from_millis(100);
/// A process sees a beat two seconds after it came, and says a quarter of a second later what it has seen.
const SLACK: Duration = Duration::from_millis(2500);
/// When commits go through again, a process may know it before the client does, whose work takes up to two seconds to
/// fail. Whoever says for longer that it is ready must be right.
const INSISTS: Duration = Duration::from_secs(5);
/// A gap between commits that no process may notice. In the worst case it saw the last beat 2.5 s ago, and
/// after the gap it sees one within a second.
const GAP_UNSEEN: Duration = Duration::from_millis(1500);
/// A process must be ready if there was no longer gap in this time, and it has run for as long.
const WARM: Duration = Duration::from_secs(15);
/// After the last fault every process is ready within this time.
const READY_AGAIN: Duration = Duration::from_secs(60);
const BETWEEN_FAULTS: (u64, u64) = (5_000, 40_000);

/// When the client has committed, newest last.
struct Commits {
    ends: RefCell<VecDeque<Instant>>,
    /// Who is cut off judges nothing, and who was a moment ago.
    split_until: Cell<Option<Instant>>,
}

impl Commits {
    fn last(&self) -> Instant {
        *self.ends.borrow().back().expect("one at the start")
    }

    /// The longest time without a commit since `from`.
    fn longest_gap(&self, from: Instant) -> Duration {
        let ends = self.ends.borrow();
        let times: Vec<Instant> = ends.iter().copied().chain([now()]).collect();
        let gaps = times.windows(2).filter(|pair| pair[1] >= from);
        gaps.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }
}

pub async fn run(shape: &Shape, database: &Database, seconds: u64) -> Verdict {
    let pages = shape.pages.as_ref().expect("the scenario has pages");
    all_ready(pages).await?;
    let commits = Commits {
        ends: RefCell::new([now()].into()),
        split_until: Cell::new(None),
    };
    let end = now() + Duration::from_secs(seconds);
    let striking = async {
        while now() < end {
            sleep(Duration::from_millis(range(
                BETWEEN_FAULTS.0..BETWEEN_FAULTS.1,
            )))
            .await;
            strike(shape, &commits).await;
        }
    };
    let watching = race(work(database, &commits), watch(pages, &commits));
    if let Either::Right(Either::Right(failure)) = race(striking, watching).await {
        return Err(failure);
    }
    control().heal_all();
    for process in control().processes() {
        control().restart_process(process.id);
    }
    all_ready(pages).await
}

async fn work(database: &Database, commits: &Commits) -> Infallible {
    let mut seen = None;
    loop {
        let before = seen.clone();
        let is_done = write(database, &mut seen).await.is_ok();
        // An attempt that was given up may have been done later.
        if is_done || (before.is_some() && before != seen) {
            let mut ends = commits.ends.borrow_mut();
            ends.push_back(now());
            let before = ends.iter().filter(|end| **end + WARM * 2 < now()).count();
            ends.drain(..before.saturating_sub(1));
        }
        sleep(THINK).await;
    }
}

/// It needs what probes need.
async fn write(database: &Database, seen: &mut Option<Value>) -> plinth_core::Result<()> {
    let transaction = database.create_transaction();
    for option in [
        TransactionOption::Timeout(2000),
        TransactionOption::ReadSystemKeys,
    ] {
        transaction.set_option(option)?;
    }
    transaction.get(BEAT, true).await?;
    *seen = transaction.get(&b"ready"[..], true).await?;
    let value = Value::from(now().0.to_string());
    transaction.set(&b"ready"[..], value.clone());
    transaction.commit().await?;
    *seen = Some(value);
    Ok(())
}

/// What is known of a process.
struct Run {
    starts: u32,
    since: Instant,
    /// Since when it has said without a pause that it is ready.
    ready_since: Option<Instant>,
}

/// Ends with the first lie.
async fn watch(pages: &Pages, commits: &Commits) -> Failure {
    let mut runs: BTreeMap<SocketAddr, Run> = BTreeMap::new();
    loop {
        sleep(LOOK).await;
        if commits.split_until.get().is_some_and(|until| now() < until) {
            continue;
        }
        let silent = now() - commits.last();
        let is_calm = commits.longest_gap(now() - WARM) < GAP_UNSEEN;
        let mut ready = 0;
        for process in control().processes() {
            let said = pages.of(process.address).said();
            let begun = Run {
                starts: process.starts,
                since: now(),
                ready_since: None,
            };
            let run = runs.entry(process.address).or_insert(begun);
            if run.starts != process.starts {
                (run.starts, run.since) = (process.starts, now());
            }
            run.ready_since = said.is_ready.then(|| run.ready_since.unwrap_or_else(now));
            if !process.is_alive || now() - run.since < WARM {
                continue; // what its predecessor said is still there
            }
            ready += usize::from(said.is_ready);
            if let Some(lie) = judge(run, &said, silent, is_calm) {
                return Failure::new(
                    FailureKind::Correctness,
                    format!("{} says that it is {lie}", process.address),
                );
            }
        }
        if silent > READY_LIMIT + SLACK && ready == 0 {
            probe!("nobody_is_ready_while_nothing_commits");
        }
    }
}

/// What is wrong with what a process says.
fn judge(run: &Run, said: &readiness::Verdict, silent: Duration, is_calm: bool) -> Option<String> {
    let insists = run.ready_since.is_some_and(|since| now() - since > INSISTS);
    if insists && silent > READY_LIMIT + SLACK {
        let silent = silent.as_secs_f64();
        return Some(format!(
            "ready, and nothing has committed for {silent:.1} s"
        ));
    }
    if !said.is_ready && is_calm {
        return Some(format!("not ready, and commits go through: {}", said.words));
    }
    None
}

/// Every process of the cluster becomes ready.
async fn all_ready(pages: &Pages) -> Verdict {
    let waiting = async {
        for page in pages.all() {
            while !page.said().is_ready {
                sleep(LOOK).await;
            }
        }
    };
    if timeout(READY_AGAIN, waiting).await.is_some() {
        return Ok(());
    }
    let said = pages.all().into_iter().map(|page| page.said());
    let words: Vec<String> = said.map(|said| format!("{:?}", said.words)).collect();
    let limit = READY_AGAIN.as_secs();
    let message = format!(
        "not every process is ready after {limit} s: {}",
        words.join(", ")
    );
    Err(Failure::new(FailureKind::Liveness, message))
}

async fn strike(shape: &Shape, commits: &Commits) {
    let control = control();
    let machines: Vec<MachineId> = control
        .machines()
        .iter()
        .map(|machine| machine.id)
        .collect();
    let one = machines[below(machines.len() as u64) as usize];
    let lasts = Duration::from_millis(range(1000..25_000));
    match below(5) {
        0 => attrition::kill_role(shape, &shape.transport()).await,
        1 => {
            let processes = control.processes();
            let process = &processes[below(processes.len() as u64) as usize];
            let after = Duration::from_millis(range(10..3000));
            trace!("FaultKill", "victim" => process.id.0);
            control.kill_process(process.id, KillKind::RebootProcess { after });
        }
        2 => {
            trace!("FaultEveryDiskHangs", "ms" => lasts.as_millis());
            for machine in &machines {
                let hangs = Sickness {
                    hangs: Hang::Syncs,
                    ..Sickness::default()
                };
                control.set_disk_sickness(*machine, hangs);
            }
            sleep(lasts).await;
            machines
                .iter()
                .for_each(|machine| control.end_disk_sickness(*machine));
        }
        3 => {
            trace!("FaultCutOff", "machine" => one.0, "ms" => lasts.as_millis());
            // It may be the cluster by itself.
            commits.split_until.set(Some(now() + lasts + WARM));
            for other in machines.iter().filter(|other| **other != one) {
                control.partition(one, *other, true);
            }
            control.partition(one, MachineId::TESTER, true);
            sleep(lasts).await;
            control.heal_all();
        }
        _ => sleep_until(now() + lasts).await,
    }
}
