//! Many runs of the model, and the planted faults that it finds.

use super::world::{Counts, World};
use plinth_runtime::fault;

/// The rarest mistake that was made on purpose, outcomes that are told too early, showed at seed 4774.
const SEEDS: u64 = 12_000;
const STEPS: usize = 800;

fn run(seed: u64) -> Result<Counts, String> {
    let mut world = World::new(seed, seed.is_multiple_of(16));
    let failures = 10 + world.chance.below(150);
    let commits = 1 + world.chance.below(6);
    for _ in 0..STEPS {
        if world.is_lost() {
            break;
        }
        if world.chance.once_in(failures) {
            world.fail();
            continue;
        }
        let name = world.any();
        match world.chance.below(18 + commits) {
            0..=1 => world.take_configuration(name)?,
            2..=7 => world.deliver()?,
            8..=9 => world.copy(name),
            10..=12 => world.take_in_any(name),
            13 => world.start(name),
            _ => world.advance()?,
        }
    }
    world.settle()?;
    world.end()?;
    Ok(world.counts)
}

#[test]
fn whatever_dies_and_whenever_transactions_end_everywhere_as_they_were_seen() {
    let mut sum = Counts::default();
    for seed in 0..SEEDS {
        let counts = run(seed).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        sum.transactions += counts.transactions;
        sum.configurations += counts.configurations;
        sum.interrupted += counts.interrupted;
        sum.opened += counts.opened;
        sum.outcomes_committed += counts.outcomes_committed;
        sum.outcomes_without_effect += counts.outcomes_without_effect;
        sum.installs += counts.installs;
        sum.releases += counts.releases;
        sum.made_whole += counts.made_whole;
        sum.lost += counts.lost;
    }
    println!("{sum:?}");
    let enough = [
        (sum.transactions, 20_000),
        (sum.interrupted, 5000),
        (sum.opened, 20_000),
        (sum.outcomes_committed, 500),
        (sum.outcomes_without_effect, 500),
        (sum.installs, 1000),
        (sum.releases, 1000),
        (sum.made_whole, 1000),
        (sum.lost, 100),
    ];
    assert!(
        enough.iter().all(|(count, least)| count >= least),
        "{sum:?}"
    );
}

#[test]
fn a_seed_gives_the_same_run_again() {
    assert_eq!(run(7), run(7));
}

fn is_found(planted: &'static str, said: &str) {
    fault::plant(Some(planted));
    let mut found = (0..SEEDS).filter_map(|seed| run(seed).err());
    let found = found.find(|found| found.contains(said));
    fault::plant(None);
    println!("{planted}: {}", found.expect("the oracle finds it"));
    fault::found(planted);
}

#[test]
fn writes_that_are_forgotten_are_found() {
    is_found("farm_recovery_forgets_writes", "differ");
}

#[test]
fn locks_that_are_forgotten_are_found() {
    is_found("farm_recovery_forgets_locks", "a lock is left");
}
