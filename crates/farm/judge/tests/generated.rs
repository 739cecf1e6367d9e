//! Histories by a store that is right, and what becomes of them when something is changed.

use crate::written::assign::has_outcomes;
use crate::written::generate::{Random, SMALL, Shape, generate, mutate};
use crate::written::search::is_explained;
use plinth_farm_judge::*;

fn accepted(seed: u64, history: &History) -> Summary {
    for verdict in [judge_by_timestamps(history), judge_by_order(history)] {
        if let Err(violation) = verdict {
            panic!("seed {seed}: {violation}");
        }
    }
    judge(history).expect("both accept it")
}

/// Histories in which it is not easy to tell who of unknown outcome freed an object.
const HARD: [u64; 6] = [1983, 3664, 4762, 11394, 43900, 64966];

#[test]
fn what_is_right_is_accepted() {
    let mut sum = Summary::default();
    for seed in (0..1000).chain(HARD) {
        let mut random = Random(seed);
        // Who writes blindly does not tell whose version it replaces: outcomes must be known.
        let (blind, unknown) = *random.of(&[(0, 0), (30, 0), (0, 20)]);
        let shape = Shape {
            transactions: 1 + random.below(120),
            objects: 1 + random.next() % 12,
            operations: 1 + random.below(6),
            at_a_time: 1 + random.below(8),
            options: *random.of(&[0, 30, 80]),
            frees: *random.of(&[0, 10, 40]),
            blind,
            unknown,
            dies: 0,
            late: 0,
            reads_all: random.chance(50),
        };
        let history = generate(seed, shape);
        let summary = accepted(seed, &history);
        sum.committed += summary.committed;
        sum.aborted_reads += summary.aborted_reads;
        sum.unknown_took_effect += summary.unknown_took_effect;
    }
    assert!(
        sum.committed > 5000 && sum.aborted_reads > 5000 && sum.unknown_took_effect > 100,
        "{sum:?}"
    );
}

#[test]
fn a_search_over_all_orders_agrees() {
    let (mut broken, mut whole) = (0, 0);
    for seed in 0..6000 {
        let mut random = Random(seed);
        let frees = *random.of(&[0, 0, 40]);
        let blind = *random.of(&[0, 0, 30]);
        let unknown = *random.of(&[0, 0, 30]);
        let mut history = generate(
            seed,
            Shape {
                frees,
                blind,
                unknown,
                ..SMALL
            },
        );
        for _ in 0..1 + random.below(3) {
            mutate(&mut history, &mut random);
        }
        let by_timestamps = judge_by_timestamps(&history);
        if by_timestamps
            .as_ref()
            .is_err_and(|violation| violation.kind == Kind::Malformed)
        {
            continue;
        }
        let by_order = judge_by_order(&history);
        let explained = is_explained(&history);
        let told =
            || format!("seed {seed}: {explained} {by_timestamps:?} {by_order:?}\n{history:#?}");
        if explained {
            whole += 1;
        } else {
            broken += 1;
            assert!(
                by_timestamps.is_err() && by_order.is_err(),
                "missed, {}",
                told()
            );
        }
        assert!(
            by_timestamps.is_err() || by_order.is_ok(),
            "an order contradicts timestamps, {}",
            told()
        );
        if explained && frees == 0 && blind == 0 && unknown == 0 {
            assert!(by_order.is_ok(), "false alarm, {}", told());
        }
    }
    assert!(
        broken > 1000 && whole > 1000,
        "{broken} broken, {whole} whole"
    );
}

/// Histories in which the first guess at who freed or allocated an object is wrong, or in which a tentative timestamp
/// misleads.
const GUESSED: [u64; 6] = [1499, 7780, 22373, 55300, 64516, 70591];

/// Clients die, before their commits and in them. Objects come and go.
fn with_deaths(seed: u64) -> History {
    let mut random = Random(seed);
    let shape = Shape {
        transactions: 4 + random.below(5),
        objects: 1 + random.next() % 3,
        frees: *random.of(&[20, 50]),
        blind: *random.of(&[0, 30, 60]),
        unknown: *random.of(&[20, 40]),
        dies: *random.of(&[0, 10]),
        late: *random.of(&[0, 50, 100]),
        reads_all: random.chance(50),
        ..SMALL
    };
    generate(seed, shape)
}

#[test]
fn a_search_over_all_outcomes_and_one_over_all_orders_agree_when_clients_die() {
    // Of histories in which nothing was changed, that were changed and are right, and that are not.
    let mut counts = [0; 3];
    for seed in (0..8000).chain(GUESSED) {
        let mut history = with_deaths(seed);
        let mut random = Random(!seed);
        for mutations in 0..3 {
            let by_timestamps = judge_by_timestamps(&history);
            let by_order = judge_by_order(&history);
            let told = || {
                format!("seed {seed}, {mutations}: {by_timestamps:?} {by_order:?}\n{history:#?}")
            };
            if let Some(is_right) = has_outcomes(&history) {
                assert!(is_right || mutations > 0, "the oracle, {}", told());
                assert_eq!(by_timestamps.is_ok(), is_right, "{}", told());
                counts[if mutations == 0 {
                    0
                } else {
                    2 - usize::from(is_right)
                }] += 1;
            }
            assert!(by_timestamps.is_err() || by_order.is_ok(), "{}", told());
            assert!(by_order.is_err() || is_explained(&history), "{}", told());
            mutate(&mut history, &mut random);
        }
    }
    assert!(counts.iter().all(|count| *count > 5000), "{counts:?}");
}

#[test]
fn a_change_in_a_long_history_is_found() {
    let (mut by_both, mut by_timestamps_only) = (0, 0);
    for seed in 0..400 {
        let mut random = Random(seed);
        let frees = *random.of(&[0, 20]);
        let shape = Shape {
            transactions: 60,
            objects: 6,
            operations: 4,
            at_a_time: 6,
            frees,
            ..SMALL
        };
        let mut history = generate(seed, shape);
        mutate(&mut history, &mut random);
        match (judge_by_timestamps(&history), judge_by_order(&history)) {
            (Ok(_), Err(violation)) => panic!("seed {seed}: only the order, {violation}"),
            (Err(_), Err(_)) => by_both += 1,
            (Err(_), Ok(_)) => by_timestamps_only += 1,
            (Ok(_), Ok(_)) => {}
        }
    }
    assert!(
        by_both > 150,
        "{by_both} by both, {by_timestamps_only} by timestamps only"
    );
}

/// Reads are the largest part of what a change can break: each other version is a wrong one.
#[test]
fn every_read_of_another_version_is_found_by_timestamps() {
    let mut changed = 0;
    for seed in 0..60 {
        let mut random = Random(seed);
        let history = generate(
            seed,
            Shape {
                transactions: 40,
                objects: 4,
                ..SMALL
            },
        );
        for at in 0..history.transactions.len() {
            let mut broken = history.clone();
            let all = &mut broken.transactions;
            let reads = all[at].reads.len();
            if reads == 0 {
                continue;
            }
            let read = all[at].reads[random.below(reads)];
            let wrote_it = |t: &&Transaction| {
                let committed = matches!(t.outcome, Outcome::Committed(_));
                committed && t.writes.iter().any(|write| write.object == read.object)
            };
            let mut others: Vec<Seen> = all
                .iter()
                .filter(wrote_it)
                .map(|t| Seen::Of(t.id))
                .collect();
            others.extend([Seen::Initial, Seen::Absent]);
            others.retain(|&seen| seen != read.seen && seen != Seen::Of(all[at].id));
            let other = *random.of(&others);
            let same = all[at]
                .reads
                .iter_mut()
                .filter(|it| it.object == read.object);
            same.for_each(|it| it.seen = other);
            changed += 1;
            assert!(
                judge_by_timestamps(&broken).is_err(),
                "seed {seed}: {read:?} became {other:?}"
            );
        }
    }
    assert!(changed > 1000, "{changed} reads");
}

#[test]
fn the_second_judge_agrees() {
    let (mut by_both, mut by_first_only, mut whole) = (0, 0, 0);
    for seed in 0..1500 {
        let mut random = Random(seed);
        let shape = Shape {
            transactions: 12,
            options: *random.of(&[0, 30, 80]),
            frees: *random.of(&[0, 0, 20]),
            unknown: *random.of(&[0, 20]),
            ..SMALL
        };
        let mut history = generate(seed, shape);
        if let Err(violation) = second_opinion(&history) {
            panic!("seed {seed}: {violation}");
        }
        mutate(&mut history, &mut random);
        match (judge_by_order(&history), second_opinion(&history)) {
            (Ok(_), Err(violation)) => {
                panic!("seed {seed}: only the second judge, {violation}\n{history:#?}")
            }
            (Err(_), Err(_)) => by_both += 1,
            (Err(_), Ok(_)) => by_first_only += 1,
            (Ok(_), Ok(_)) => whole += 1,
        }
    }
    // It does not look at transactions that aborted, nor at real time unless all are strict.
    assert!(
        by_both > 150 && whole > 500,
        "{by_both} by both, {by_first_only} only by the first"
    );
}
