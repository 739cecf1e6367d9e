//! A durable cluster: power cuts, disks that return late or never, and members that are killed while it is restored.

use super::disks::SHELL;
use super::oracle::{self, World};
use super::{Fleet, MACHINES, Shown, is_found_by, some_ms};
use plinth_core::testing::is_nightly;
use plinth_runtime::sim::{KillKind, SimConfig, Simulation, control};
use plinth_runtime::{Duration, TaskGroup, random, sleep};
use std::rc::Rc;

/// A machine with a host of its own.
const ALONE: u16 = 4;
/// Seeds of the full length. Otherwise a third of them are run.
const SEEDS: u64 = 60;

fn late() -> KillKind {
    let after = match random::below(4) {
        0 => some_ms(3),
        1 => some_ms(3000),
        _ => some_ms(200),
    };
    KillKind::RebootProcess { after }
}

impl Fleet {
    fn cut_power_of(&self, machine: u16, kind: KillKind) {
        self.world.end_life(machine);
        control().kill_process(self.processes[usize::from(machine)], kind);
    }

    /// All machines, or all but one.
    async fn cut_power(&self, spared: u64) {
        for machine in (0..MACHINES).filter(|machine| u64::from(*machine) != spared) {
            self.cut_power_of(machine, late());
            if random::chance(0.1) {
                sleep(some_ms(5)).await;
            }
        }
    }

    async fn disturb_durable(&self) {
        match random::below(5) {
            0 => {
                self.cut_power(random::below(2 * u64::from(MACHINES))).await;
                sleep(some_ms(1500)).await;
                self.disturb_once().await;
            }
            1 => {
                self.cut_power(random::below(2 * u64::from(MACHINES))).await;
                sleep(some_ms(800)).await;
                self.cut_power_of(random::below(MACHINES.into()) as u16, late());
                self.cut_off(random::below(3) as usize).await;
            }
            2 => {
                for _ in 0..2 + random::below(2) {
                    self.cut_power_of(self.victim(), late());
                }
            }
            _ => self.disturb_once().await,
        }
        sleep(some_ms(600)).await;
    }

    async fn heal(&self, limit: Duration) -> Result<(), String> {
        control().heal_all();
        self.world.calm.set(true);
        let (before, begin) = (self.world.timestamps(), plinth_runtime::now());
        while begin.elapsed() < limit && !self.world.has_ended() {
            sleep(Duration::from_millis(50)).await;
            if self.world.is_healed().is_ok() && self.world.timestamps() > before + 20 {
                break;
            }
        }
        self.world.is_healed()?;
        self.world.calm.set(false);
        Ok(())
    }
}

fn run(seed: u64) -> Result<Shown, String> {
    let config = SimConfig {
        clock_drift_ppm_max: 499,
        ..SimConfig::default()
    };
    let sim = Simulation::new(seed, config);
    let world = Rc::new(World::default());
    world.disks.is_durable.set(true);
    world.replication.set(2 + (seed % 2) as u8);
    let fleet = Fleet::start(&sim, &world);
    let judged = world.clone();
    let ran = sim.run(async move {
        let group = TaskGroup::new();
        group.spawn("register", oracle::land(fleet.world.clone()));
        sleep(Duration::from_millis(400)).await;
        for _ in 0..20 {
            fleet.disturb_durable().await;
            if fleet.world.has_ended() {
                return Ok(());
            }
        }
        fleet.heal(Duration::from_secs(20)).await?;
        let restores = fleet.world.disks.restores.get();
        let is_gone = seed.is_multiple_of(4);
        if is_gone {
            fleet.world.disks.gone.borrow_mut().insert(ALONE);
            fleet.cut_power_of(ALONE, KillKind::Kill);
        }
        fleet.cut_power(ALONE.into()).await;
        if !is_gone {
            fleet.cut_power_of(ALONE, late());
        }
        fleet.heal(Duration::from_secs(45)).await?;
        match fleet.world.disks.restores.get() > restores {
            true => Ok(()),
            false => Err("nothing was restored".to_owned()),
        }
    });
    if let Some(violation) = judged.violation() {
        return Err(format!("seed {seed}: {violation}"));
    }
    if let Err(sick) = ran.result {
        return Err(format!("seed {seed}: {sick}\n{:?}", judged.held()));
    }
    Ok(judged.shown(sim.fingerprint()))
}

#[test]
fn a_cluster_is_restored_from_its_disks_and_nothing_that_was_reported_is_lost() {
    let (mut timestamps, mut configurations, mut restores, mut commits) = (0, 0, 0, 0);
    let part = if is_nightly() { 1 } else { 3 };
    for seed in 0..SEEDS / part {
        let shown = run(seed).unwrap_or_else(|violation| panic!("{violation}"));
        timestamps += shown.timestamps;
        configurations += shown.configurations;
        restores += shown.restores;
        commits += shown.commits;
    }
    println!(
        "timestamps, configurations, restores, commits: {timestamps}, {configurations}, {restores}, {commits}"
    );
    assert!(timestamps > 10_000 / part && configurations > 500 / part);
    assert!(restores > 3 * SEEDS / part && commits > 5000 / part);
}

#[test]
fn a_restore_that_is_hasty_is_found() {
    is_found_by(run, "farm_restore_is_hasty", &["is given up"]);
}

const _: () = assert!(SHELL != ALONE);
