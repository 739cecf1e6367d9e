//! Checks what status says of copies: how many could be read now, and how many zones may fail. It is taken at its
//! word:
//!
//! ```text
//! status says: n copies, f zones may fail ──► f other storage servers are killed at once ──► each row is read
//! ```
//!
//! Meanwhile storage servers are cut off from the log servers alone, so that everybody reaches them and they do not
//! advance, or the files of one are set back to what they were. Where all copies of a shard are cut off, the shard
//! must stay where it is. A client writes all the time, so it is known how new each row must be.

use crate::cluster::{self, Shape, index_of};
use crate::missing::machine_at;
use crate::{Failure, FailureKind, attrition};
use plinth_client::{Database, TransactionOption};
use plinth_control::knobs::{STORAGE_REPLACE_LAG_MS, STORAGE_SUSPECT_LAG_MS};
use plinth_control::{movement, singletons};
use plinth_coordination::election;
use plinth_core::{Key, Result, Uid};
use plinth_protocol::status::GetStatus;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::random::{below, chance, range, shuffle};
use plinth_runtime::sim::{FilesCopy, KillKind, MachineId, ProcessId, control};
use plinth_runtime::{Duration, Either, Instant, now, probe, race, sleep, timeout, trace};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;

type Verdict = std::result::Result<(), Failure>;

/// One row in each part of the key space.
const ROWS: usize = 60;
/// Between two writes.
const THINK: Duration = Duration::from_millis(100);
/// A row that is not read in this time has no copy that could be read.
const READ_LIMIT: Duration = Duration::from_secs(60);
/// What has been found out within this time is what status must say.
const SLACK: Duration = Duration::from_secs(5);
/// All data is copied within this time.
const COPIED: Duration = Duration::from_secs(75);
/// After a fault everything is whole again within this time.
const WHOLE_AGAIN: Duration = Duration::from_secs(240);
const BETWEEN_LOOKS_MS: (u64, u64) = (500, 12_000);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

fn key(row: usize) -> [u8; 2] {
    [(row * 4) as u8, b'k']
}

/// What status says.
#[derive(Clone, Copy, Debug)]
struct Said {
    healthy: bool,
    copies: u64,
    may_fail: u64,
}

/// Who has a shard, by machine, and who is to have it.
type Team = (BTreeSet<MachineId>, BTreeSet<MachineId>);

struct Story<'a> {
    shape: &'a Shape,
    database: &'a Database,
    transport: Transport,
    /// What was acknowledged last of each row.
    written: RefCell<Vec<u64>>,
    copies: RefCell<BTreeMap<MachineId, FilesCopy>>,
    /// It has the controller, which must reach the log servers: it is left in peace.
    controlling: Cell<Option<MachineId>>,
}

pub async fn run(shape: &Shape, database: &Database, seconds: u64) -> Verdict {
    let story = Story {
        shape,
        database,
        transport: shape.transport(),
        written: RefCell::new(vec![0; ROWS]),
        copies: RefCell::default(),
        controlling: Cell::new(None),
    };
    story.copy_files();
    story.fill().await;
    let apart = timeout(WHOLE_AGAIN, story.bring_logs_apart()).await;
    apart.ok_or_else(|| Failure::new(FailureKind::Liveness, "logs stay beside data"))?;
    story.is_whole_within(WHOLE_AGAIN).await?;
    let end = now() + Duration::from_secs(seconds);
    match race(story.strike_until(end), story.write()).await {
        Either::Left(verdict) => verdict,
        Either::Right(never) => match never {},
    }
}

impl Story<'_> {
    async fn strike_until(&self, end: Instant) -> Verdict {
        while now() < end {
            sleep(Duration::from_millis(range(1000..15_000))).await;
            let info = timeout(ANSWER_LIMIT, cluster::info(self.shape, &self.transport)).await;
            let Some(info) = info.flatten() else {
                continue;
            };
            self.controlling
                .set(Some(machine_at(&info.controller.address)));
            if chance(0.5) {
                self.copy_files();
            }
            match below(4) {
                0 => self.cut_off_a_shard().await?,
                1 => self.set_back().await?,
                _ => self.cut_off_one().await?,
            }
            control().heal_all();
            self.is_whole_within(WHOLE_AGAIN).await?;
            self.look(&BTreeSet::new()).await?;
        }
        Ok(())
    }

    /// When the first epoch began, not every process may have been there yet: a log server beside a storage server
    /// would not be cut off from it. The next epoch has better places.
    async fn bring_logs_apart(&self) {
        loop {
            let info = timeout(ANSWER_LIMIT, cluster::info(self.shape, &self.transport)).await;
            let generations = info.flatten().map(|info| info.log_system.generations);
            let is_apart = |log: &Interface| {
                let machine = index_of(machine_at(&log.address));
                self.shape.is_for_logs(machine)
            };
            match generations.unwrap_or_default().as_slice() {
                [only] if only.logs.iter().all(is_apart) => return,
                [_] => attrition::kill_role(self.shape, &self.transport).await,
                _ => {}
            }
            sleep(Duration::from_secs(3)).await;
        }
    }

    // ---- the client ----

    async fn fill(&self) {
        let filled = self.database.run(async |tr| {
            (0..ROWS).for_each(|row| tr.set(&key(row)[..], "0"));
            Ok(())
        });
        filled.await.expect("it is retried");
    }

    async fn write(&self) -> Infallible {
        let mut number = 0;
        loop {
            number += 1;
            let row = number as usize % ROWS;
            let written = self.database.run(async |tr| {
                tr.set(&key(row)[..], number.to_string());
                Ok(())
            });
            if written.await.is_ok() {
                self.written.borrow_mut()[row] = number;
            }
            sleep(THINK).await;
        }
    }

    /// Reads each row, as new as it must be.
    async fn read_all(&self) -> Verdict {
        let least = self.written.borrow().clone();
        let reading = (0..ROWS).map(|row| async move { (row, self.read(row).await) });
        for (row, value) in plinth_runtime::join_all(reading).await {
            let Some(Ok(value)) = value else {
                return Err(wrong(format!("row {row} is not read")));
            };
            let text = value.as_deref().map(String::from_utf8_lossy);
            let found = text.and_then(|text| text.parse::<u64>().ok());
            if found.is_none_or(|found| found < least[row]) {
                let least = least[row];
                return Err(wrong(format!("row {row} has {found:?}, after {least}")));
            }
        }
        Ok(())
    }

    async fn read(&self, row: usize) -> Option<Result<Option<bytes::Bytes>>> {
        let read = self.database.run(async |tr| {
            tr.set_option(TransactionOption::LockAware)?;
            tr.get(&key(row)[..], false).await
        });
        timeout(READ_LIMIT, read).await
    }

    // ---- what is said ----

    async fn said(&self) -> Option<Said> {
        let coordinators = self.shape.coordinators();
        let asking = election::ask_controller(&self.transport, &coordinators, GetStatus {});
        let reply = timeout(ANSWER_LIMIT, asking).await??;
        let document: serde_json::Value = serde_json::from_str(&reply.json).expect("it is JSON");
        let (state, tolerance) = (
            document.pointer("/cluster/data/state")?,
            document.pointer("/cluster/fault_tolerance")?,
        );
        Some(Said {
            healthy: state["healthy"] == true,
            copies: state["min_replicas_remaining"].as_u64()?,
            may_fail: tolerance["max_zone_failures_without_losing_availability"].as_u64()?,
        })
    }

    async fn is_whole_within(&self, limit: Duration) -> Verdict {
        let waiting = async {
            while !self.said().await.is_some_and(|said| said.healthy) {
                sleep(Duration::from_secs(1)).await;
            }
        };
        if timeout(limit, waiting).await.is_some() {
            return Ok(());
        }
        let (said, limit) = (self.said().await, limit.as_secs());
        let message = format!("not whole within {limit} s: {said:?}");
        Err(Failure::new(FailureKind::Liveness, message))
    }

    /// Takes status at its word: kills as many others as may fail. `spared` are those that are struck already.
    async fn look(&self, spared: &BTreeSet<MachineId>) -> Verdict {
        let Some(said) = self.said().await.filter(|said| said.copies > 0) else {
            return Ok(());
        };
        let killed = self.victims(spared, said.may_fail as usize).await;
        trace!("FaultKillWhatMayFail", "said" => format!("{said:?}"), "killed" => format!("{killed:?}"));
        let processes = processes_of(&killed);
        for process in &processes {
            control().kill_process(*process, KillKind::Kill);
        }
        let verdict = self.read_all().await;
        for process in &processes {
            control().restart_process(*process);
        }
        if !killed.is_empty() {
            probe!("status_is_taken_at_its_word");
        }
        verdict.map_err(|failure| {
            let (words, at) = (failure.message, now().0 / 1_000_000_000);
            wrong(format!(
                "{words} at {at} s; status said {said:?}, {killed:?} were killed, {spared:?} struck"
            ))
        })
    }

    /// Machines with storage servers. Often those that share a shard with one that is struck.
    async fn victims(&self, spared: &BTreeSet<MachineId>, count: usize) -> Vec<MachineId> {
        let mut others = self.storage_machines();
        others.retain(|machine| !spared.contains(machine));
        shuffle(&mut others);
        if let Some(machine) = spared.first().filter(|_| chance(0.8)) {
            let teams = self.teams().await.unwrap_or_default().into_values();
            let shared: BTreeSet<MachineId> = teams
                .filter(|(team, _)| team.contains(machine))
                .flat_map(|(team, _)| team)
                .collect();
            others.sort_by_key(|other| !shared.contains(other));
        }
        others.truncate(count);
        others
    }

    // ---- who is where ----

    /// The machines with storage servers that may be struck.
    fn storage_machines(&self) -> Vec<MachineId> {
        let all = control().machines().into_iter().map(|machine| machine.id);
        all.filter(|id| self.may_strike(*id)).collect()
    }

    fn may_strike(&self, machine: MachineId) -> bool {
        self.shape.is_for_storage(index_of(machine)) && self.controlling.get() != Some(machine)
    }

    /// The team of each shard, by its begin.
    async fn teams(&self) -> Option<BTreeMap<Key, Team>> {
        let read = movement::run(self.database, async |tr| {
            let list = singletons::read_servers(tr).await?;
            Ok((list, movement::read_shards(tr).await?))
        });
        let (list, shards) = timeout(SLACK, read).await?.ok()?;
        let machines: BTreeMap<Uid, MachineId> = list
            .servers
            .iter()
            .map(|(id, record)| (*id, machine_at(&record.address)))
            .collect();
        let of = |ids: &[Uid]| {
            ids.iter()
                .filter_map(|id| machines.get(id).copied())
                .collect()
        };
        let shards = shards.into_iter();
        let shards = shards
            .map(|(range, record)| (range.begin, (of(&record.team), of(&record.destination))));
        Some(shards.collect())
    }

    // ---- the faults ----

    fn cut_off(&self, machines: &BTreeSet<MachineId>) {
        let all = control().machines().into_iter().map(|machine| machine.id);
        let logs: Vec<MachineId> = all
            .filter(|id| self.shape.is_for_logs(index_of(*id)))
            .collect();
        trace!("FaultCutOffFromLogs", "machines" => format!("{machines:?}"));
        for machine in machines {
            logs.iter()
                .for_each(|log| control().partition(*machine, *log, true));
        }
    }

    /// Lets looks pass until `end`, and now and then a recovery.
    async fn looks_until(&self, end: Instant, struck: &BTreeSet<MachineId>) -> Verdict {
        while now() < end {
            let pause = Duration::from_millis(range(BETWEEN_LOOKS_MS.0..BETWEEN_LOOKS_MS.1));
            sleep(pause.min(end.saturating_since(now()))).await;
            if chance(0.2) {
                attrition::kill_role(self.shape, &self.transport).await;
            }
            self.look(struck).await?;
        }
        Ok(())
    }

    async fn cut_off_one(&self) -> Verdict {
        let machines = self.storage_machines();
        let one = machines[below(machines.len() as u64) as usize];
        let struck = BTreeSet::from([one]);
        let lasts = Duration::from_millis(range(10_000..220_000));
        let (begun, end) = (now(), now() + lasts);
        self.cut_off(&struck);
        let suspect = begun + ms(STORAGE_SUSPECT_LAG_MS.get()) + SLACK;
        sleep(suspect.min(end).saturating_since(now())).await;
        let late = begun + ms(STORAGE_REPLACE_LAG_MS.get()) + SLACK;
        self.looks_until(late.min(end), &struck).await?;
        let others = machines.len() - 1;
        if late + COPIED < end && others >= self.shape.config.replication as usize {
            self.is_whole_within(COPIED).await?;
            probe!("lagging_replica_is_replaced");
        }
        self.looks_until(end, &struck).await
    }

    /// All copies of some shard are cut off, and not those of the map. Nobody can give the shard to others.
    async fn cut_off_a_shard(&self) -> Verdict {
        let Some(teams) = self.teams().await else {
            return Ok(());
        };
        let first = teams.keys().filter(|begin| **begin <= b"\xff"[..]).count();
        let of_map: Vec<&Team> = teams.values().skip(first.saturating_sub(1)).collect();
        let mut all: Vec<&BTreeSet<MachineId>> = teams.values().map(|(team, _)| team).collect();
        all.retain(|team| team.iter().all(|id| self.may_strike(*id)));
        all.retain(|team| of_map.iter().all(|(of_map, _)| !of_map.is_subset(team)));
        if all.is_empty() {
            return Ok(());
        }
        let struck = all[below(all.len() as u64) as usize].clone();
        let end = now() + Duration::from_millis(range(50_000..200_000));
        self.cut_off(&struck);
        sleep(ms(STORAGE_SUSPECT_LAG_MS.get()) + SLACK).await;
        // What has begun until then goes on.
        let mut before = self.teams().await.unwrap_or_default();
        before.retain(|_, (team, to)| team.is_subset(&struck) && to.is_empty());
        if !before.is_empty() {
            probe!("every_replica_of_a_shard_lags");
        }
        while now() < end {
            sleep(Duration::from_millis(range(1000..8000))).await;
            self.look(&struck).await?;
            let teams = self.teams().await.unwrap_or_default();
            for (begin, team) in &before {
                let found = teams.get(begin).unwrap_or(team);
                if found != team {
                    return Err(wrong(format!(
                        "all copies at {begin:?} lag, and it goes from {team:?} to {found:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    fn copy_files(&self) {
        for machine in self.storage_machines() {
            if chance(0.5) {
                let copy = control().copy_of_files(machine, is_storage);
                self.copies.borrow_mut().insert(machine, copy);
            }
        }
    }

    async fn set_back(&self) -> Verdict {
        let copies: Vec<(MachineId, FilesCopy)> =
            self.copies.borrow().clone().into_iter().collect();
        if copies.is_empty() {
            return Ok(());
        }
        let (machine, copy) = &copies[below(copies.len() as u64) as usize];
        if chance(0.5) {
            attrition::kill_role(self.shape, &self.transport).await;
            self.is_whole_within(WHOLE_AGAIN).await?;
            sleep(Duration::from_millis(range(1..20_000))).await;
        }
        trace!("FaultSetBack", "machine" => machine.0, "files" => copy.paths().count());
        let struck = BTreeSet::from([*machine]);
        let processes = processes_of(&[*machine]);
        for process in &processes {
            control().kill_process(*process, KillKind::Kill);
        }
        control().set_files_back(*machine, copy, is_storage);
        for process in &processes {
            control().restart_process(*process);
        }
        sleep(SLACK).await;
        let end = now() + Duration::from_millis(range(1000..60_000));
        self.looks_until(end, &struck).await
    }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn wrong(message: String) -> Failure {
    Failure::new(FailureKind::Correctness, message)
}

fn processes_of(machines: &[MachineId]) -> Vec<ProcessId> {
    let all = control().processes().into_iter();
    all.filter(|process| machines.contains(&process.machine))
        .map(|process| process.id)
        .collect()
}

fn is_storage(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("storage-")
}
