//! Takes status at its word, in clusters of every shape: what it says may fail fails at the instant of the look,
//! whichever zones these are, those with coordinators too, and the database must go on.
//!
//! ```text
//! status says: available, n zones may fail ──► n zones end at once ──► a commit, and rows of all parts, in time
//! ```
//!
//! Zones that ended may stay away for later looks, of which each must say what is true by then. A look that is
//! answered with "not available" promises nothing.

use crate::cluster::{Shape, index_of};
use crate::patience::patience;
use crate::workloads::{Space, until_done};
use crate::{Failure, FailureKind};
use plinth_client::{Database, RangeOptions};
use plinth_coordination::election;
use plinth_protocol::status::GetStatus;
use plinth_runtime::random::{chance, range, shuffle};
use plinth_runtime::sim::{KillKind, ProcessId, control};
use plinth_runtime::{Duration, probe, sleep, timeout, trace};
use std::collections::BTreeSet;

type Verdict = Result<(), Failure>;

const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Longest pause before a look. Copies are made anew meanwhile, or not yet.
const PAUSE_MS: u64 = 90_000;
/// What has happened is known after this time, and after the patience that the run's knobs have.
const SLACK: Duration = Duration::from_secs(5);
/// A commit goes through and rows are read within this time, and that patience.
const GOES_ON_LIMIT: Duration = Duration::from_secs(60);
/// There are fewer shards in most runs.
const PARTS: u64 = 64;
const ROWS_A_PART: i32 = 10;

/// Looks `rounds` times. `spare` is a part of the key space that no workload uses.
pub async fn run(shape: &Shape, database: &Database, spare: Space, rounds: u32) -> Verdict {
    let mut ended = BTreeSet::new();
    for round in 0..rounds {
        sleep(Duration::from_millis(range(0..PAUSE_MS))).await;
        if let Some(may_fail) = look(shape).await {
            let now = end_zones(shape, may_fail, &ended);
            trace!("FaultEndZones", "may_fail" => may_fail, "zones" => format!("{now:?}"));
            probe!("status_is_taken_at_its_word_anywhere");
            let verdict = goes_on(database, &spare, round).await;
            ended.extend(now.iter().copied());
            verdict.map_err(|what| {
                let message = format!(
                    "{what}: {may_fail} zones might fail, said status; {now:?} did, by now {ended:?}"
                );
                Failure::new(FailureKind::Correctness, message)
            })?;
            sleep(SLACK + patience()).await;
        }
        if chance(0.5) {
            all_come_back();
            ended.clear();
        }
    }
    all_come_back();
    Ok(())
}

/// How many zones may fail, if the database is available at all.
async fn look(shape: &Shape) -> Option<usize> {
    let transport = shape.transport();
    let coordinators = shape.coordinators();
    let asking = election::ask_controller(&transport, &coordinators, GetStatus {});
    let reply = timeout(ANSWER_LIMIT, asking).await??;
    let document: serde_json::Value = serde_json::from_str(&reply.json).expect("it is JSON");
    let cluster = document.get("cluster")?;
    if cluster["database_available"] != true {
        return None;
    }
    let zones = &cluster["fault_tolerance"]["max_zone_failures_without_losing_availability"];
    Some(zones.as_u64()? as usize)
}

/// Ends all processes of this many zones that are not away already. Gives the zones.
fn end_zones(shape: &Shape, count: usize, away: &BTreeSet<usize>) -> Vec<usize> {
    let zone_of = |machine| shape.domain(index_of(machine));
    let lost = |machine| shape.lost.has(machine);
    let machines = control().machines().into_iter().map(|machine| machine.id);
    let zones: BTreeSet<usize> = machines.filter(|id| !lost(*id)).map(zone_of).collect();
    let mut zones: Vec<usize> = zones.difference(away).copied().collect();
    shuffle(&mut zones);
    // Those with coordinators are where most goes wrong.
    let coordinators = shape.coordinating_machines();
    let coordinates = |zone: usize| coordinators.iter().any(|machine| zone_of(*machine) == zone);
    if chance(0.5) {
        zones.sort_by_key(|zone| !coordinates(*zone));
    }
    zones.truncate(count);
    let processes = control().processes().into_iter();
    let chosen: Vec<ProcessId> = processes
        .filter(|process| zones.contains(&zone_of(process.machine)))
        .map(|process| process.id)
        .collect();
    for process in chosen {
        control().kill_process(process, KillKind::Kill);
    }
    zones
}

fn all_come_back() {
    for process in control().processes() {
        control().restart_process(process.id);
    }
}

/// A commit goes through and rows of each part are read, or what did not.
async fn goes_on(database: &Database, spare: &Space, round: u32) -> Result<(), String> {
    let limit = GOES_ON_LIMIT + patience();
    let written = until_done(database, async |tr| {
        tr.set(spare.named("words"), round.to_string());
        Ok(())
    });
    let seconds = limit.as_secs();
    let committed = timeout(limit, written).await;
    committed.ok_or_else(|| format!("no commit within {seconds} s"))?;
    let reading = (0..PARTS).map(|part| timeout(limit, read_some(database, part)));
    for (part, rows) in (0..PARTS).zip(plinth_runtime::join_all(reading).await) {
        rows.ok_or_else(|| format!("part {part} of {PARTS} is not read within {seconds} s"))?;
    }
    Ok(())
}

/// Reads the first rows of a part of the key space.
async fn read_some(database: &Database, part: u64) {
    let rows = until_done(database, async |tr| {
        let options = RangeOptions {
            limit: ROWS_A_PART,
            ..RangeOptions::default()
        };
        let space = Space::whole().part(part, PARTS);
        tr.get_rows(space.range(), options, true).await
    });
    rows.await;
}
