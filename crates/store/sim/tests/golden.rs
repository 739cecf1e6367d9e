//! Golden traces: what happens in a small cluster, told by the events of its trace, one a line.
//!
//! Each story runs in a cluster of a fixed shape, and its text must be the same for every seed. So whoever learns the
//! system can read it beside the design, and a change of what the system does shows as a change of a text. After a
//! change that is meant:
//!
//! ```sh
//! PLINTH_WRITE_GOLDEN=1 cargo test -p plinth-sim --test golden
//! ```

#[path = "golden/cluster.rs"]
mod cluster;
#[path = "golden/telling.rs"]
mod telling;

use cluster::{Cluster, start, trace_of};
use plinth_protocol::control::ProcessClass;
use plinth_runtime::{Duration, sleep};
use std::path::Path;
use telling::{Place, Places, tell};

const SEEDS: [u64; 3] = [1, 2, 3];
const COMMAND: &str = "PLINTH_WRITE_GOLDEN=1 cargo test -p plinth-sim --test golden";
/// Lines around the first difference that a failure shows.
const CONTEXT: usize = 3;

/// Compares the story with the file of this name, or writes it there. The file's comment stays.
fn check<S: Future<Output = ()>>(
    name: &str,
    places: Places,
    story: impl FnOnce(Cluster) -> S + Copy + 'static,
) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let comment = golden.lines().take_while(|line| line.starts_with('#'));
    let comment: String = comment.map(|line| format!("{line}\n")).collect();
    let told = |seed| format!("{comment}\n{}", tell(&trace_of(seed, story), places));
    let found = told(SEEDS[0]);
    assert_same(&found, &told(SEEDS[0]), "two runs of one seed differ");
    for seed in &SEEDS[1..] {
        let what = format!("seeds {} and {seed} differ", SEEDS[0]);
        assert_same(&found, &told(*seed), &what);
    }
    if std::env::var_os("PLINTH_WRITE_GOLDEN").is_some() {
        return std::fs::write(&path, found).expect("the file can be written");
    }
    let path = path.display();
    let what = format!("the run differs from {path}; if the run is right: {COMMAND}");
    assert_same(&golden, &found, &what);
}

/// Fails with the first different line of both texts and the lines around it.
fn assert_same(wanted: &str, found: &str, what: &str) {
    if wanted == found {
        return;
    }
    let (a, b): (Vec<&str>, Vec<&str>) = (wanted.lines().collect(), found.lines().collect());
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let mut report = format!("{what}\nfirst difference in line {}:\n", same + 1);
    for line in &a[same.saturating_sub(CONTEXT)..same] {
        report += &format!("  {line}\n");
    }
    for (sign, lines) in [('-', &a), ('+', &b)] {
        for line in lines.iter().skip(same).take(1 + CONTEXT) {
            report += &format!("{sign} {line}\n");
        }
    }
    panic!("{report}");
}

#[test]
fn a_log_server_dies_and_the_next_epoch_has_everything() {
    const PLACES: Places = &[
        ("OperatorKills", Place::Step),
        ("EpochEnded", Place::Step),
        ("WorkerGone", Place::With("EpochEnded")),
        ("RecoveryPhase", Place::Step),
        ("LogSealed", Place::Here),
        ("Sealed", Place::Step),
        ("LogCreated", Place::Here),
        ("RoleBegins", Place::Here),
        ("Recovered", Place::Step),
        ("RoleBegins data-distributor", Place::After("Recovered")),
        ("RoleBegins ratekeeper", Place::After("Recovered")),
        ("StorageFollows", Place::After("Recovered")),
        ("RoleOver", Place::With("Recovered")),
        ("ClientRead", Place::After("Recovered")),
        ("ClientWrote", Place::After("Recovered")),
        ("GenerationsRemoved", Place::Step),
        ("RoleOver log", Place::After("GenerationsRemoved")),
    ];
    check("recovery", PLACES, async |cluster| {
        start(13, ProcessClass::Log);
        cluster.wait_for_workers(13).await;
        cluster.kill(9);
        cluster.read().await;
        cluster.write("new").await;
        cluster
            .wait_until(|info| info.log_system.generations.len() == 1)
            .await;
        sleep(Duration::from_secs(1)).await;
    });
}

#[test]
fn the_coordinators_move_and_everybody_follows() {
    const PLACES: Places = &[
        ("OperatorMovesCoordinators", Place::Step),
        ("CoordinatorsMove ", Place::Step),
        ("SuccessorWritten", Place::Step),
        ("StateCopied", Place::Step),
        ("CoordinatorsMoved", Place::Step),
        ("ControllerEnded", Place::Step),
        ("ElectedController", Place::Step),
        ("RecoveryPhase", Place::Step),
        ("LogSealed", Place::Here),
        ("Recovered", Place::Step),
        ("CoordinatorsFollowed", Place::With("Recovered")),
        ("OperatorKills", Place::Step),
        ("Client", Place::Step),
    ];
    check("coordinators", PLACES, async |cluster| {
        cluster.change_coordinators([3, 9, 10]).await;
        cluster
            .wait_until(|info| info.accepting && info.epoch > 1)
            .await;
        sleep(Duration::from_secs(5)).await;
        cluster.kill(1);
        cluster.kill(2);
        cluster.read().await;
        cluster.write("new").await;
    });
}

#[test]
fn a_shard_moves_to_a_new_server_while_it_is_read_and_written() {
    const PLACES: Places = &[
        ("WorkerStarted", Place::Step),
        ("StorageStarted", Place::Here),
        ("StorageAdded", Place::Step),
        ("ConfiguredAnew", Place::Here),
        ("OperatorExcludes", Place::Step),
        ("OperatorKills", Place::Step),
        ("DistributionStep", Place::Step),
        ("MoveStarted", Place::Here),
        ("ShardOrder", Place::Here),
        ("PartHeld", Place::Here),
        ("MoveReady", Place::Step),
        ("ShardOrder Keep", Place::After("MoveReady")),
        ("ShardOrder Leave", Place::After("MoveReady")),
        ("StorageRemoved", Place::Step),
        ("DeadTag", Place::Here),
        ("RoleOver", Place::Here),
        ("Client", Place::Step),
    ];
    check("shard", PLACES, async |cluster| {
        start(13, ProcessClass::Storage);
        cluster.wait_until(|info| info.servers.len() == 3).await;
        cluster.exclude(11).await;
        sleep(Duration::from_secs(3)).await;
        cluster.write("new").await;
        cluster.wait_until(|info| info.servers.len() == 2).await;
        sleep(Duration::from_secs(1)).await;
        cluster.kill(12);
        cluster.read().await;
    });
}
