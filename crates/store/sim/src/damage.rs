//! Checks what becomes of data when the files of several copies of it are damaged at once. The damaged blocks hold
//! rows of different parts of the key space in different copies, or the same rows in all of them. Or the files of one
//! copy are [wrecked](wreck) in whatever way.
//!
//! - Whatever some copy can read is read, right, and all of it becomes whole again.
//! - What no copy can read has no answer: it is neither missing nor old. The files stay where they are. It has none
//!   either when the servers have started again and its bytes read well.
//! - Status counts no damaged copy as one that could serve.

mod wreck;

use crate::cluster::Shape;
use crate::workloads::until_done;
use crate::{Failure, FailureKind, consistency};
use bytes::Bytes;
use plinth_client::{Database, RangeOptions, TransactionOption};
use plinth_control::movement;
use plinth_coordination::election;
use plinth_core::{KeySelector, MutationKind, Result, Uid};
use plinth_protocol::status::GetStatus;
use plinth_runtime::random::{below, chance, range, shuffle};
use plinth_runtime::sim::{MachineId, control};
use plinth_runtime::{Duration, Either, join_all, now, probe, race, sleep, timeout, trace};
use serde_json::Value;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Rows in a part of the key space, of which the middle one is damaged. The block has some of its neighbours.
const PART: usize = 40;
const PARTS: usize = 12;
const ROWS: usize = PART * PARTS;
/// Where blocks begin in the file of an engine, and their size there.
const FRAMES_AT: u64 = 8192;
const FRAME: u64 = 4104;
/// A block of a memory engine's log is smaller.
const LOG_BLOCK_MAX: u64 = 10_000;
/// Limit of a read; without a reply in this time it has none.
const READ_LIMIT_MS: i64 = 3000;
const RANGE_ROWS: usize = 25;
/// Places of own rows in about so many of the last records of a log.
const LAST_RECORDS: usize = 12;
/// A row that nobody can read is read for so long: each of its copies is asked, again and again.
const REFUSED_FOR: Duration = Duration::from_secs(40);
/// A row that some copy can read has been read by then, however often the read meets damage.
const ROW_READ: Duration = Duration::from_secs(60);
/// Damaged copies have been made anew by then.
const WHOLE_AGAIN: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_secs(2);

type Verdict = std::result::Result<(), Failure>;

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Correctness, message)
}

fn stands(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Liveness, message)
}

/// Rows are spread over the key space.
fn key(row: usize) -> Vec<u8> {
    let first = (row * 250 / ROWS) as u8;
    [&[first, b'd'][..], &(row as u16).to_be_bytes()].concat()
}

/// Its bytes are nowhere else. Later ones are larger.
fn value(row: usize, turn: u32) -> String {
    format!("{turn:06}.{row:04}|").repeat(35)
}

/// What the rows may be: each is written by one client, whose turns go up.
struct Rows(Vec<Turns>);

#[derive(Default)]
struct Turns {
    begun: Cell<u32>,
    done: Cell<u32>,
}

impl Rows {
    /// What is wrong with a row that a read has given, which began when these turns were done.
    fn judge(&self, row: usize, found: Option<&[u8]>, done: u32) -> Verdict {
        let Some(found) = found else {
            return Err(wrong(format!("row {row} is missing")));
        };
        let turns = done..=self.0[row].begun.get();
        match turns
            .clone()
            .any(|turn| value(row, turn).as_bytes() == found)
        {
            true => Ok(()),
            false => {
                let found = String::from_utf8_lossy(&found[..found.len().min(12)]).into_owned();
                Err(wrong(format!(
                    "row {row} is {found}, and not of the turns {turns:?}"
                )))
            }
        }
    }

    fn done(&self, row: usize) -> u32 {
        self.0[row].done.get()
    }
}

/// The parts that are damaged.
#[derive(Default, Debug)]
struct Damaged {
    parts: BTreeSet<usize>,
    /// Rows of which every copy may be damaged.
    lost: BTreeSet<usize>,
    machines: BTreeSet<MachineId>,
    /// For each part that is damaged in every copy the files that have it, or had it before it moved.
    last: BTreeMap<usize, BTreeSet<(MachineId, PathBuf)>>,
    /// Rows that are damaged wherever they are. Nobody writes them again.
    refused: BTreeSet<usize>,
    /// Where a row was damaged.
    struck: Vec<(MachineId, PathBuf, u64, usize)>,
}

/// A block of a file on a machine's disk.
type Block = (MachineId, PathBuf, u64);

pub async fn run(shape: &Shape, database: &Database) -> Verdict {
    let rows = Rows((0..ROWS).map(|_| Turns::default()).collect());
    until_done(database, async |tr| {
        (0..ROWS).for_each(|row| tr.set(key(row), value(row, 0)));
        Ok(())
    })
    .await;
    let damaged = if chance(0.3) {
        wreck::strike(database, &rows).await
    } else {
        sleep(Duration::from_millis(range(12_000..30_000))).await;
        strike(shape.config.replication as usize)
    };
    if damaged.machines.is_empty() {
        return Ok(());
    }
    let refused = &damaged.refused;
    let clients = race(
        client(database, &rows, refused, 0),
        client(database, &rows, refused, 1),
    );
    let working = race(clients, watch_status(shape, database));
    let checking = check(shape, database, &rows, &damaged);
    match race(checking, working).await {
        Either::Left(verdict) => verdict,
        Either::Right(Either::Left(Either::Left(failure) | Either::Right(failure))) => Err(failure),
        Either::Right(Either::Right(failure)) => Err(failure),
    }
}

/// True for a file of a storage server's ssd engine.
fn is_tree(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("storage-") && name.ends_with(".redb")
}

/// True for a file of a storage server's memory engine.
fn is_log(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("storage-") && name.ends_with(".log")
}

/// Where a row lies on a machine's disk.
fn places(machine: MachineId, row: usize) -> Vec<(PathBuf, u64)> {
    let mut files = control().files(machine);
    files.retain(|path| is_tree(path) || is_log(path));
    let of = |file: PathBuf| {
        let places = control().places_in_file(machine, &file, value(row, 0).as_bytes());
        places.into_iter().map(move |at| (file.clone(), at))
    };
    files.into_iter().flat_map(of).collect()
}

/// True if one of these places is in a block that also has rows of the system keyspace or of the server itself. If
/// that is damaged in all copies, the database may stand.
fn is_beside_own_rows(machine: MachineId, places: &[(PathBuf, u64)]) -> bool {
    places.iter().any(|(file, at)| {
        let own = control().places_in_file(machine, file, b"\xff/");
        own.into_iter().any(|own| match is_log(file) {
            true => own.abs_diff(*at) < LOG_BLOCK_MAX,
            false => block_of(own) == block_of(*at),
        })
    })
}

fn block_of(at: u64) -> u64 {
    at.saturating_sub(FRAMES_AT) / FRAME
}

/// The block at a place. In a log, whose blocks begin anywhere, it is the place itself.
fn block_at(file: &Path, at: u64) -> u64 {
    match is_log(file) {
        true => at,
        false => block_of(at),
    }
}

/// The blocks that are lost with the one at a place: in a log, those that may be in one with it.
fn lost_with(rows: &[Vec<Block>], machine: MachineId, file: &Path, at: u64) -> Vec<Block> {
    let is_near = |block: &&Block| {
        let (its_machine, its_file, place) = block;
        *its_machine == machine && its_file == file && place.abs_diff(at) < LOG_BLOCK_MAX
    };
    match is_log(file) {
        true => rows.iter().flatten().filter(is_near).cloned().collect(),
        false => vec![(machine, file.to_owned(), block_of(at))],
    }
}

/// The blocks that have a row, of each. Some may have had it before, or have it where nothing is used.
fn blocks_of_rows() -> Vec<Vec<Block>> {
    let machines: Vec<MachineId> = control().machines().iter().map(|m| m.id).collect();
    let of = |row: usize| {
        let on = |machine: &MachineId| {
            let (machine, places) = (*machine, places(*machine, row));
            let blocks = places.into_iter();
            blocks.map(move |(file, at)| {
                let block = block_at(&file, at);
                (machine, file, block)
            })
        };
        machines.iter().flat_map(on).collect()
    };
    (0..ROWS).map(of).collect()
}

/// Rows that have a damaged block on as many machines as there are copies, or on all that have them. A machine may
/// still have a row that has moved away from it.
fn lost_rows(rows: &[Vec<Block>], damaged: &BTreeSet<Block>, copies: usize) -> BTreeSet<usize> {
    let is_lost = |row: &usize| {
        let holders: BTreeSet<MachineId> =
            rows[*row].iter().map(|(machine, ..)| *machine).collect();
        let hit = rows[*row].iter().filter(|block| damaged.contains(*block));
        let hit: BTreeSet<MachineId> = hit.map(|(machine, ..)| *machine).collect();
        hit.len() >= copies || holders.is_subset(&hit)
    };
    (0..rows.len()).filter(is_lost).collect()
}

/// The copies of a part to damage: where its middle row lies on each machine.
fn copies_of(part: usize) -> Vec<(MachineId, Vec<(PathBuf, u64)>)> {
    let machines = control().machines().into_iter().map(|machine| machine.id);
    let row = part * PART + PART / 2;
    let copies = machines.map(|machine| (machine, places(machine, row)));
    copies.filter(|(_, places)| !places.is_empty()).collect()
}

/// Damages blocks of several copies while their machines are without power: what is in memory is not read from the
/// disk again, and could be written anew.
fn strike(copies: usize) -> Damaged {
    let mut damaged = Damaged::default();
    let mut parts: Vec<usize> = (0..PARTS).collect();
    shuffle(&mut parts);
    parts.truncate(2 + below(6) as usize);
    // Different parts in the copies, the same ones, or both.
    let everywhere = [0.0, 1.0, 0.4][below(3) as usize];
    let mut blocks = BTreeSet::new();
    for machine in control().machines() {
        control().reboot_machine(machine.id, Duration::from_millis(range(10..3000)));
    }
    let rows_before = blocks_of_rows();
    let mut beside_own = strike_own_rows(&mut damaged, &rows_before, &mut blocks);
    for part in parts {
        let mut chosen = copies_of(part);
        let is_lost = chance(everywhere);
        shuffle(&mut chosen);
        if chosen.len() < 2 {
            continue; // it has not come to every disk
        }
        if !is_lost {
            chosen.truncate(1);
        }
        let mut besides = chosen
            .iter()
            .filter(|(machine, places)| is_beside_own_rows(*machine, places));
        if let Some((machine, _)) = besides.next()
            && (besides.next().is_some() || *beside_own.get_or_insert(*machine) != *machine)
        {
            continue; // a copy of it is needed for more
        }
        let row = part * PART + PART / 2;
        if is_lost && chosen.len() >= copies {
            damaged.refused.insert(row);
        }
        for (machine, places) in chosen {
            for (file, at) in places {
                control().flip_bit_in_file(machine, &file, at..at + 1);
                blocks.extend(lost_with(&rows_before, machine, &file, at));
                damaged.struck.push((machine, file.clone(), at, row));
                if is_lost {
                    let files = damaged.last.entry(part).or_default();
                    files.insert((machine, file));
                }
            }
            damaged.parts.insert(part);
            damaged.machines.insert(machine);
        }
    }
    damaged.lost = lost_rows(&rows_before, &blocks, copies);
    probe!("fault_damages_several_copies");
    trace!("FaultDamageCopies", "damaged" => format!("{damaged:?}"));
    damaged
}

/// Sometimes damages rows that a storage server has for itself, in one of their places. Gives the machine.
fn strike_own_rows(
    damaged: &mut Damaged,
    rows: &[Vec<Block>],
    blocks: &mut BTreeSet<Block>,
) -> Option<MachineId> {
    let mut places: Vec<(MachineId, PathBuf, u64)> = Vec::new();
    for machine in control().machines() {
        let mut files = control().files(machine.id);
        files.retain(|path| is_tree(path) || is_log(path));
        for file in files {
            let own = [&b"\xff\xff/durable"[..], b"\xff\xff/held/"];
            let own = own.map(|key| control().places_in_file(machine.id, &file, key));
            let mut own = own.concat();
            own.sort_unstable();
            if is_log(&file) {
                own.truncate(own.len().saturating_sub(LAST_RECORDS)); // these could look torn
            }
            places.extend(own.into_iter().map(|at| (machine.id, file.clone(), at)));
        }
    }
    if places.is_empty() || chance(0.5) {
        return None;
    }
    let (machine, file, at) = places.swap_remove(below(places.len() as u64) as usize);
    control().flip_bit_in_file(machine, &file, at..at + 1);
    // It may have rows of data, too. In a log, the place may be in the directory of a whole record.
    match is_tree(&file) {
        true => {
            blocks.insert((machine, file, block_of(at)));
        }
        false => {
            let of_file = |block: &&Block| block.0 == machine && block.1 == file;
            blocks.extend(rows.iter().flatten().filter(of_file).cloned());
        }
    }
    damaged.machines.insert(machine);
    probe!("fault_damages_own_rows_of_a_copy");
    Some(machine)
}

/// Starts all servers again, after the bytes that were damaged have become what they were. Nobody has written there
/// since, if all else is as it was.
fn heal_and_start_again(damaged: &Damaged) {
    for machine in control().machines() {
        let after = Duration::from_millis(range(10..3000));
        control().reboot_machine(machine.id, after);
    }
    for (machine, file, at, row) in &damaged.struck {
        let value = value(*row, 0);
        let rest = control().places_in_file(*machine, file, &value.as_bytes()[1..]);
        if rest.contains(&(at + 1)) {
            let heal = |bytes: &mut Vec<u8>| bytes[*at as usize] = value.as_bytes()[0];
            control().change_file(*machine, file, heal);
        }
    }
    probe!("fault_heals_what_was_damaged");
}

/// Reads and writes. Ends with the first wrong answer.
async fn client(
    database: &Database,
    rows: &Rows,
    refused: &BTreeSet<usize>,
    number: usize,
) -> Failure {
    loop {
        sleep(Duration::from_millis(range(20..300))).await;
        let row = below(ROWS as u64) as usize;
        let done = match below(10) {
            0..4 => read_row(database, rows, refused, row).await,
            4..7 => read_range(database, rows, refused, row).await,
            _ => {
                let row = row - row % 2 + number;
                if !refused.contains(&row) {
                    write(database, rows, row).await;
                }
                Ok(())
            }
        };
        if let Err(failure) = done {
            return failure;
        }
    }
}

async fn write(database: &Database, rows: &Rows, row: usize) {
    let turn = rows.done(row) + 1;
    rows.0[row].begun.set(turn);
    let over_what_was = chance(0.4);
    until_done(database, async |tr| {
        match over_what_was {
            // Storage servers have to read the value for it.
            true => tr.atomic_op(MutationKind::ByteMax, key(row), value(row, turn)),
            false => tr.set(key(row), value(row, turn)),
        }
        Ok(())
    })
    .await;
    rows.0[row].done.set(turn);
}

/// What is wrong with an answer about a row that is damaged wherever it is.
fn is_answered(row: usize) -> Failure {
    wrong(format!(
        "row {row} is damaged in every copy, and a read has an answer"
    ))
}

async fn read_row(
    database: &Database,
    rows: &Rows,
    refused: &BTreeSet<usize>,
    row: usize,
) -> Verdict {
    let done = rows.done(row);
    let read = async || {
        let tr = database.create_transaction();
        tr.set_option(TransactionOption::Timeout(READ_LIMIT_MS))?;
        tr.get(key(row), false).await
    };
    match read().await {
        Ok(_) if refused.contains(&row) => Err(is_answered(row)),
        Ok(found) => rows.judge(row, found.as_deref(), done),
        Err(_) => Ok(()), // no answer
    }
}

async fn read_range(
    database: &Database,
    rows: &Rows,
    refused: &BTreeSet<usize>,
    row: usize,
) -> Verdict {
    let last = (row + RANGE_ROWS).min(ROWS) - 1;
    let done: Vec<u32> = (row..=last).map(|row| rows.done(row)).collect();
    let reverse = chance(0.5);
    let read = async || -> Result<Vec<(Bytes, Bytes)>> {
        let tr = database.create_transaction();
        tr.set_option(TransactionOption::Timeout(READ_LIMIT_MS))?;
        let options = RangeOptions {
            reverse,
            ..RangeOptions::limit(RANGE_ROWS as i32)
        };
        let begin = KeySelector::first_greater_or_equal(key(row));
        let end = KeySelector::first_greater_than(key(last));
        let found = tr.get_range(begin, end, options, false).await?;
        Ok(found.rows.into_iter().collect())
    };
    let Ok(mut found) = read().await else {
        return Ok(()); // no answer
    };
    // It may give fewer than were asked for, without a gap.
    let first = if reverse {
        found.reverse();
        last + 1 - found.len().min(last + 1 - row)
    } else {
        row
    };
    for (at, (found_key, found)) in (first..).zip(&found) {
        if at > last || found_key[..] != key(at) {
            return Err(wrong(format!(
                "rows from {row} to {last} do not follow each other at {at}"
            )));
        }
        if refused.contains(&at) {
            return Err(is_answered(at));
        }
        rows.judge(at, Some(found), done[at - row])?;
    }
    match found.is_empty() {
        true => Err(wrong(format!("rows from {row} to {last} are missing"))),
        false => Ok(()),
    }
}

/// The storage servers that the map names.
async fn holders(database: &Database) -> Option<BTreeSet<String>> {
    let shards = movement::run(database, async |tr| movement::read_shards(tr).await);
    let shards = timeout(LOOK, shards).await?.ok()?;
    let ids = |team: &[Uid]| team.iter().map(Uid::to_string).collect::<Vec<_>>();
    Some(
        shards
            .iter()
            .flat_map(|(_, record)| ids(&record.team))
            .collect(),
    )
}

async fn status(shape: &Shape) -> Option<Value> {
    let (transport, coordinators) = (shape.transport(), shape.coordinators());
    let asking = election::ask_controller(&transport, &coordinators, GetStatus {});
    let reply = timeout(Duration::from_secs(10), asking).await??;
    Some(serde_json::from_str(&reply.json).expect("it is JSON"))
}

/// The storage servers that a status document calls damaged.
fn damaged_in(document: &Value) -> BTreeSet<String> {
    let servers = document.pointer("/cluster/storage_servers");
    let servers = servers.and_then(Value::as_array).into_iter().flatten();
    let damaged = servers.filter(|server| !server["damaged"].is_null());
    damaged
        .filter_map(|server| Some(server["id"].as_str()?.to_owned()))
        .collect()
}

/// Ends when status counts a damaged copy.
async fn watch_status(shape: &Shape, database: &Database) -> Failure {
    loop {
        sleep(LOOK).await;
        let (Some(before), Some(document), Some(after)) = (
            holders(database).await,
            status(shape).await,
            holders(database).await,
        ) else {
            continue;
        };
        let damaged = damaged_in(&document);
        let holds = |id: &&String| before.contains(*id) && after.contains(*id);
        let Some(holder) = damaged.iter().find(holds) else {
            continue;
        };
        probe!("damaged_copy_is_told");
        if document.pointer("/cluster/data/state/healthy") == Some(&true.into()) {
            return wrong(format!(
                "{holder} is damaged and holds data, and all copies count"
            ));
        }
    }
}

async fn check(shape: &Shape, database: &Database, rows: &Rows, damaged: &Damaged) -> Verdict {
    all_are_read(database, rows, damaged).await?;
    if damaged.lost.is_empty() {
        becomes_whole(shape).await?;
        probe!("damaged_copies_become_whole");
    } else {
        sleep(Duration::from_millis(range(10_000..120_000))).await;
        all_are_refused(database, damaged).await?;
        heal_and_start_again(damaged);
        all_are_refused(database, damaged).await?;
    }
    all_are_read(database, rows, damaged).await?;
    for (part, files) in &damaged.last {
        let mut files = files.iter();
        if !files.any(|(machine, file)| control().files(*machine).contains(file)) {
            return Err(wrong(format!(
                "part {part} can be read nowhere, and all its files are gone"
            )));
        }
    }
    match damaged.lost.is_empty() {
        true => consistency::check(database, shape).await,
        false => Ok(()),
    }
}

/// Every row that some copy can read is read.
async fn all_are_read(database: &Database, rows: &Rows, damaged: &Damaged) -> Verdict {
    for row in (0..ROWS).filter(|row| !damaged.lost.contains(row)) {
        let done = rows.done(row);
        let reading = database.run(async |tr| tr.get(key(row), false).await);
        let Some(read) = timeout(ROW_READ, reading).await else {
            return Err(stands(format!(
                "row {row} is intact in some copy, and no read gets it"
            )));
        };
        let found = read.map_err(|error| wrong(format!("row {row}: {error}")))?;
        rows.judge(row, found.as_deref(), done)?;
    }
    Ok(())
}

/// Reads what nobody can read, for so long that each copy is asked.
async fn all_are_refused(database: &Database, damaged: &Damaged) -> Verdict {
    let reads = damaged.refused.iter().map(|row| async {
        let reading = database.run(async |tr| tr.get(key(*row), false).await);
        match timeout(REFUSED_FOR, reading).await {
            None | Some(Err(_)) => Ok(()),
            Some(Ok(_)) => Err(is_answered(*row)),
        }
    });
    join_all(reads).await.into_iter().collect()
}

async fn becomes_whole(shape: &Shape) -> Verdict {
    let end = now() + WHOLE_AGAIN;
    while now() < end {
        if let Some(document) = status(shape).await
            && document.pointer("/cluster/data/state/healthy") == Some(&true.into())
            && !document.to_string().contains("damaged_storage")
        {
            return Ok(());
        }
        sleep(LOOK).await;
    }
    let limit = WHOLE_AGAIN.as_secs();
    Err(stands(format!(
        "what was damaged is not whole again after {limit} s"
    )))
}
