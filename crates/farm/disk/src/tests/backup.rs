//! A machine in durable mode: transactions are acknowledged when its journal has them, applied to its backup later and
//! in any order, and its journal is cut off behind the backup's syncs. It is cleaned, read and scanned all the time,
//! and dies in every way. A model outside knows what was acknowledged.

mod damage;
mod machine;
mod model;

use super::{SEEDS, is_found, run};
use crate::Layout;
use model::Model;
use std::rc::Rc;

const SLAB_WORDS: u64 = 128;
const SUBREGION_SLABS: u32 = 8;

/// Small enough that everything is full soon. Even seeds have one byte an object, odd ones two.
fn layout(seed: u64) -> Layout {
    Layout {
        head_words: 16,
        slab_words: SLAB_WORDS,
        subregion_slabs: SUBREGION_SLABS,
        block_bytes: 512,
        extent_blocks: 8,
        group_extents: [4, 40][seed as usize % 2],
    }
}

fn run_one(seed: u64) -> Result<(u64, Rc<Model>), String> {
    let model = Rc::new(Model::default());
    let (lives, rests) = (model.clone(), model.clone());
    let knobs = [
        ("farm_journal_segment_bytes", 4096 << (seed % 4)),
        ("farm_backup_buffer_bytes", 1024 << (seed % 3)),
        ("farm_backup_manifest_bytes", 1024 << (seed % 5)),
    ];
    let fingerprint = run(
        seed,
        &knobs,
        &model.violations,
        move || Box::pin(machine::live(lives.clone(), layout(seed))),
        move || rests.is_at_rest.set(true),
    );
    match model.violations.first() {
        Some(violation) => Err(format!("seed {seed}: {violation}")),
        None if !model.has_rested.get() => Err(format!("seed {seed}: it did not begin again")),
        None => Ok((fingerprint, model)),
    }
}

#[test]
fn what_was_acknowledged_is_there_after_any_crash_and_nothing_wrong_is_ever_read() {
    let mut sum = [0; 6];
    plinth_runtime::probe::reset();
    for seed in 0..SEEDS {
        let (_, model) = run_one(seed).unwrap_or_else(|violation| panic!("{violation}"));
        let shown = model.shown();
        sum.iter_mut().zip(shown).for_each(|(sum, n)| *sum += n);
    }
    println!("commits, reads, recoveries, cleaned, freed slabs, full: {sum:?}");
    println!("{:?}", plinth_runtime::probe::hits());
    assert!(sum[0] > 10_000 && sum[1] > 10_000 && sum[2] > 1000 && sum[3] > 1000 && sum[4] > 200);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let fingerprint = |seed| run_one(seed).map(|(fingerprint, _)| fingerprint);
    assert_eq!(fingerprint(7), fingerprint(7));
}

fn finds(planted: &'static str) {
    is_found(planted, |seed| {
        run_one(seed).map(|(fingerprint, _)| fingerprint)
    });
}

#[test]
fn a_cleaner_that_loses_the_newest_version_is_found() {
    finds("farm_disk_cleans_newest");
}

#[test]
fn a_cleaner_that_lets_freed_objects_come_back_is_found() {
    finds("farm_disk_forgets_freed");
}

#[test]
fn a_place_that_is_used_again_too_early_is_found() {
    finds("farm_disk_reuses_before_sync");
}

#[test]
fn a_manifest_that_is_ahead_of_the_image_is_found() {
    finds("farm_disk_manifest_before_image");
}

#[test]
fn an_older_version_that_wins_is_found() {
    finds("farm_disk_older_wins");
}
