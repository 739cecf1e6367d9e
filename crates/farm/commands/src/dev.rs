//! `plinth dev --farm N`: a fresh cluster of the in-memory engine, whose machines are child processes. One that dies
//! is started again. When this process ends, for any reason, the others end too.

use super::fleet::{Fleet, Shape, first_end};
use super::keeping::{Backups, Keeping};
use plinth_farm_server::Survey;
use plinth_runtime::real::interrupted;
use plinth_runtime::{Duration, Either, now, race, sleep};
use plinth_terminal::Outcome;
use plinth_terminal::children::{CHECK_INTERVAL, describe, stop};
use plinth_terminal::connect::block_on;
use std::path::Path;
use std::process::Child;

const RESTART_AFTER: Duration = Duration::from_secs(2);
const REPLICATION_MAX: u16 = 3;
/// More machines than this are for several hosts.
pub const MACHINES_MAX: i64 = 16;

fn shape(machines: u16, keeping: Keeping) -> Shape {
    Shape {
        machines,
        replication: machines.min(REPLICATION_MAX),
        regions: 2 * machines,
        region_mib: 64,
        old_mib: 64,
        keeping,
    }
}

pub fn run(
    directory: &Path,
    machines: u16,
    port: u16,
    metrics_port: Option<u16>,
    no_restart: bool,
    keeping: Keeping,
) -> Outcome {
    let shape = shape(machines, keeping);
    block_on(serve(directory, shape, port, metrics_port, no_restart))
}

async fn serve(
    directory: &Path,
    shape: Shape,
    port: u16,
    metrics_port: Option<u16>,
    no_restart: bool,
) -> Outcome {
    let (machines, keeping) = (shape.machines, shape.keeping);
    let fleet = Fleet::prepare(directory, shape, port, metrics_port, false).await?;
    let mut children = Vec::new();
    let work = async {
        for i in 0..machines {
            children.push(Some(fleet.start(i)?));
        }
        match race(fleet.ready(), first_end(&mut children)).await {
            Either::Left(outcome) => tell_other_backups(&outcome?, keeping.backups),
            Either::Right(line) => return Err(line),
        }
        println!("{machines} machines of the in-memory engine, from port {port} on");
        println!("use it with: plinth farm cli -C {}", fleet.path.display());
        println!("ready");
        keep_alive(&fleet, &mut children, no_restart).await
    };
    let outcome = match race(interrupted(), work).await {
        Either::Left(Ok(())) => {
            let data = match keeping.durable {
                true => "their data stays, for the same command",
                false => "their data is gone",
            };
            eprintln!("plinth: stopping {machines} machines; {data}");
            Ok(())
        }
        Either::Left(Err(error)) => Err(format!("cannot wait for signals: {error}")),
        Either::Right(outcome) => outcome,
    };
    stop(children.into_iter().flatten().collect()).await;
    fleet.remove();
    outcome
}

/// A cluster that goes on stays as it was made.
fn tell_other_backups(seen: &Survey, asked: Backups) {
    let has = seen.record.as_ref();
    let has = has.map(|record| Backups::of(record.cluster.has_backups_on_disk));
    if let Some(has) = has.filter(|has| *has != asked) {
        let has = has.name();
        eprintln!(
            "plinth: the cluster was made with --backups {has}, and stays so; another --data-dir is a new one"
        );
    }
}

async fn keep_alive(fleet: &Fleet, children: &mut [Option<Child>], no_restart: bool) -> Outcome {
    let mut ended: Vec<_> = children.iter().map(|_| None).collect();
    loop {
        for (i, (child, ended)) in (0..).zip(children.iter_mut().zip(&mut ended)) {
            if let Some(Ok(Some(status))) = child.as_mut().map(Child::try_wait) {
                let how = describe(status);
                let next = if no_restart {
                    ""
                } else {
                    "; it is started again in 2 s"
                };
                eprintln!("plinth: machine {i} ended with {how}{next}");
                (*child, *ended) = (None, Some(now()));
            }
            if ended.is_some_and(|at| at.elapsed() >= RESTART_AFTER) && !no_restart {
                (*child, *ended) = (Some(fleet.start(i)?), None);
            }
        }
        sleep(CHECK_INTERVAL).await;
    }
}
