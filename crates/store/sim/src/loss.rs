//! Checks that lost data is never taken for data that never existed. All replicas of a shard are lost at once, for
//! good. From then on a read of the shard must get no answer, and the cluster must not report itself as healthy.

use crate::cluster::Shape;
use crate::missing::machine_at;
use crate::protection;
use crate::workloads::until_done;
use crate::{Failure, FailureKind};
use plinth_client::{Database, RangeOptions, TransactionOption};
use plinth_coordination::election;
use plinth_core::key::SYSTEM_BEGIN;
use plinth_core::{KeyRange, Result};
use plinth_protocol::status::GetStatus;
use plinth_runtime::random::{below, range};
use plinth_runtime::sim::control;
use plinth_runtime::{Duration, probe, trace};
use std::collections::BTreeSet;

/// One row in each part of the key space.
const ROWS: u16 = 250;
/// Limit of a read; without a reply in this time it has none.
const READ_LIMIT_MS: i64 = 3000;
/// How long the cluster is watched for a wrong answer: long enough to give up the lost servers and heal the rest.
const WATCHED: Duration = Duration::from_secs(60);

type Verdict = std::result::Result<(), Failure>;

fn silent(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Correctness, message)
}

fn key(row: u16) -> [u8; 2] {
    [row as u8, b'k']
}

pub async fn run(shape: &Shape, database: &Database) -> Verdict {
    let first = until_done(database, async |tr| {
        tr.clear_range(&b""[..], &b"\xff"[..]);
        for row in 0..ROWS {
            tr.set(&key(row)[..], row.to_string());
        }
        Ok(())
    });
    first.await;
    plinth_runtime::sleep(Duration::from_millis(range(0..20_000))).await;
    let Some(machines) = replicas_of_a_shard(shape, database).await else {
        return Ok(()); // the shard is moving; other seeds find it at rest
    };
    probe!("loss_of_every_replica");
    trace!("LoseEveryReplica", "machines" => format!("{machines:?}"));
    for machine in &machines {
        control().lose_machine(*machine);
    }
    let end = plinth_runtime::now() + WATCHED;
    while plinth_runtime::now() < end {
        let row = below(u64::from(ROWS)) as u16;
        let read = read_row(database, row).await;
        if read
            .as_ref()
            .is_ok_and(|value| value.as_deref() != Some(row.to_string().as_bytes()))
        {
            return Err(silent(format!(
                "row {row} was lost without a word: {read:?}"
            )));
        }
        if let Ok(count) = count_rows(database).await
            && count != usize::from(ROWS)
        {
            return Err(silent(format!("a range read gave {count} of {ROWS} rows")));
        }
    }
    check_status(shape).await
}

/// The machines that hold the copies of a random shard; `None` if it is moving.
async fn replicas_of_a_shard(
    shape: &Shape,
    database: &Database,
) -> Option<BTreeSet<plinth_runtime::sim::MachineId>> {
    let transport = shape.transport();
    let looked = protection::look(shape, &transport, database);
    let (_, shards) = plinth_runtime::timeout(Duration::from_secs(20), looked).await??;
    let (holders, stands) = &shards[below(shards.len() as u64) as usize];
    let machines = holders.iter().map(machine_at).collect();
    stands.then_some(machines)
}

async fn read_row(database: &Database, row: u16) -> Result<Option<bytes::Bytes>> {
    let tr = database.create_transaction();
    tr.set_option(TransactionOption::Timeout(READ_LIMIT_MS))?;
    tr.get(&key(row)[..], false).await
}

async fn count_rows(database: &Database) -> Result<usize> {
    let tr = database.create_transaction();
    tr.set_option(TransactionOption::Timeout(READ_LIMIT_MS))?;
    let all = KeyRange::new(&b""[..], SYSTEM_BEGIN);
    let rows = tr.get_rows(all, RangeOptions::default(), false);
    // An application may write rows of its own meanwhile.
    let is_ours = |key: &[u8]| matches!(key, [_, b'k']);
    Ok(rows.await?.iter().filter(|(key, _)| is_ours(key)).count())
}

/// Checks the status document, if a controller still answers.
async fn check_status(shape: &Shape) -> Verdict {
    let transport = shape.transport();
    let coordinators = shape.coordinators();
    let asking = election::ask_controller(&transport, &coordinators, GetStatus {});
    let Some(Some(reply)) = plinth_runtime::timeout(Duration::from_secs(10), asking).await else {
        return Ok(());
    };
    let document: serde_json::Value = serde_json::from_str(&reply.json).expect("it is JSON");
    // A log server may be healthy.
    for claim in [
        "/cluster/full_replication",
        "/cluster/data/state/healthy",
        "/cluster/data/team_trackers/0/state/healthy",
    ] {
        if document.pointer(claim) == Some(&true.into()) {
            return Err(silent(format!(
                "a shard is lost, and the status says that {claim} is true"
            )));
        }
    }
    probe!("loss_is_told");
    Ok(())
}
