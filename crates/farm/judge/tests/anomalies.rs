//! What is said of histories that are written by hand: by their timestamps, and by the order that reads tell.

use crate::written::*;
use Kind::*;
use plinth_farm_judge::*;

const SI: Options = Options {
    isolation: Isolation::Snapshot,
    ..Options::DEFAULT
};

/// What each of the two judges finds.
fn found(history: &History) -> (Option<Kind>, Option<Kind>) {
    (
        kind(judge_by_timestamps(history)),
        kind(judge_by_order(history)),
    )
}

fn refused(history: &History, by_timestamps: Kind, by_order: Kind) -> Box<Violation> {
    assert_eq!(found(history), (Some(by_timestamps), Some(by_order)));
    judge(history).expect_err("both refuse it")
}

fn accepted(history: &History) -> Summary {
    assert_eq!(found(history), (None, None), "{history:#?}");
    judge(history).expect("both accept it")
}

fn first_line(violation: &Violation) -> &str {
    violation.text.lines().next().expect("a line")
}

#[test]
fn a_serial_history_is_accepted() {
    let summary = accepted(&history([
        tx(1, 0, 10).reads_at(5).initial(X).sets(X).commits_at(8),
        tx(2, 20, 30).reads_at(25).of(X, 1).initial(Y).commits(),
        tx(3, 20, 30).reads_at(25).of(X, 1).sets(X).aborts(),
        tx(4, 40, 50)
            .reads_at(45)
            .of(X, 1)
            .initial(Y)
            .sets(X)
            .frees(Y)
            .commits_at(48),
        tx(5, 60, 70).reads_at(65).of(X, 4).absent(Y).commits(),
    ]));
    assert_eq!(
        (summary.committed, summary.read_only, summary.aborted),
        (2, 2, 1)
    );
    assert_eq!((summary.reads, summary.aborted_reads), (8, 1));
    assert_eq!((summary.versions, summary.objects), (3, 2));
}

#[test]
fn a_lost_update_is_found() {
    let lost = |options: Options| {
        history([
            tx(1, 0, 100)
                .with(options)
                .reads_at(5)
                .initial(X)
                .sets(X)
                .commits_at(50),
            tx(2, 0, 100)
                .with(options)
                .reads_at(5)
                .initial(X)
                .sets(X)
                .commits_at(60),
        ])
    };
    refused(&lost(SI), Overtaken, LostUpdate);
    let violation = refused(&lost(Options::DEFAULT), Overtaken, LostUpdate);
    assert_eq!(
        (&violation.transactions[..], violation.object),
        (&[2, 1][..], Some(X))
    );
    let why = "T2 committed at 60, relying on 0x10 as it was at 5, but T1 changed it at 50";
    assert_eq!(first_line(&violation), why);
}

#[test]
fn write_skew_is_refused_only_of_serializable_transactions() {
    let skewed = |one: Options, other: Options| {
        history([
            tx(1, 0, 100)
                .with(one)
                .reads_at(5)
                .initial(X)
                .initial(Y)
                .sets(X)
                .commits_at(50),
            tx(2, 0, 100)
                .with(other)
                .reads_at(5)
                .initial(X)
                .initial(Y)
                .sets(Y)
                .commits_at(60),
        ])
    };
    accepted(&skewed(SI, SI));
    refused(
        &skewed(Options::DEFAULT, Options::DEFAULT),
        Overtaken,
        Cycle,
    );
    // Only the second one relied on what had changed.
    accepted(&skewed(Options::DEFAULT, SI));
    assert_eq!(
        found(&skewed(SI, Options::DEFAULT)),
        (Some(Overtaken), None)
    );
}

#[test]
fn the_anomaly_of_a_reader_beside_write_skew_is_not_one_under_snapshot_isolation() {
    // Fekete, O'Neil and O'Neil: T3 sees the second write and not the first.
    let seen = |options: Options| {
        history([
            tx(1, 0, 100)
                .with(options)
                .reads_at(5)
                .initial(X)
                .initial(Y)
                .sets(X)
                .commits_at(50),
            tx(2, 0, 20)
                .with(options)
                .reads_at(6)
                .initial(Y)
                .sets(Y)
                .commits_at(10),
            tx(3, 30, 40).reads_at(35).initial(X).of(Y, 2).commits(),
        ])
    };
    accepted(&seen(SI));
    refused(&seen(Options::DEFAULT), Overtaken, Cycle);
}

#[test]
fn an_inconsistent_snapshot_of_an_aborted_transaction_is_found() {
    let writer = |options| {
        tx(1, 0, 100)
            .with(options)
            .reads_at(5)
            .initial(X)
            .initial(Y)
            .sets(X)
            .sets(Y)
            .commits_at(50)
    };
    let reader = tx(2, 0, 200).reads_at(10).initial(X).of(Y, 1);
    for options in [Options::DEFAULT, SI] {
        for reader in [reader.clone().aborts(), reader.clone().commits()] {
            let violation = refused(&history([writer(options), reader]), Snapshot, Cycle);
            assert_eq!(violation.object, Some(Y));
        }
    }
}

#[test]
fn a_read_that_is_fractured_over_three_transactions_is_found() {
    // T4 sees the third write of a chain, but not the second.
    let violation = refused(
        &history([
            tx(1, 0, 10).reads_at(5).initial(X).sets(X).commits_at(8),
            tx(2, 0, 20)
                .reads_at(9)
                .of(X, 1)
                .initial(Y)
                .sets(Y)
                .commits_at(12),
            tx(3, 0, 30)
                .reads_at(15)
                .of(Y, 2)
                .initial(Z)
                .sets(Z)
                .commits_at(20),
            tx(4, 0, 40).reads_at(25).initial(Y).of(Z, 3).aborts(),
        ]),
        Snapshot,
        Cycle,
    );
    assert_eq!(violation.object, Some(Y));
}

#[test]
fn the_shortest_circle_is_told() {
    let circle = judge_by_order(&history([
        tx(1, 0, 10).reads_at(5).initial(X).sets(X).commits_at(8),
        tx(2, 0, 20)
            .reads_at(9)
            .of(X, 1)
            .initial(Y)
            .sets(Y)
            .commits_at(12),
        tx(3, 0, 30)
            .reads_at(15)
            .of(Y, 2)
            .initial(Z)
            .sets(Z)
            .commits_at(20),
        tx(4, 0, 40).reads_at(25).initial(Y).of(Z, 3).aborts(),
    ]));
    let told = circle.expect_err("there is one").text;
    let steps: Vec<&str> = told.lines().take(4).collect();
    let wanted = [
        "no order of these transactions explains what they saw:",
        "  T2 before T3: T3 read 0x20 from it",
        "  T3 before T4: T4 read 0x30 from it",
        "  T4 before T2: it saw 0x20 (initial) as it was before T2 changed it",
    ];
    assert_eq!(steps, wanted);
    assert_eq!(told.lines().count(), 4 + 3);
}

#[test]
fn a_stale_read_is_found() {
    let stale = history([
        tx(1, 0, 10).reads_at(5).initial(X).sets(X).commits_at(8),
        tx(2, 20, 30).reads_at(6).initial(X).commits(),
    ]);
    let violation = refused(&stale, Strictness, Cycle);
    assert_eq!(violation.transactions, [2, 1]);
    let told = judge_by_order(&stale)
        .expect_err("it breaks strictness")
        .text;
    assert!(
        told.contains("T1 before T2: it ended at 10, T2 began at 20"),
        "{told}"
    );
    let mut late = stale;
    late.transactions[1].begin = 10;
    accepted(&late);
}

#[test]
fn a_stale_snapshot_may_be_stale() {
    let stale = |seen| {
        tx(2, 20, 30)
            .with(Options::DEFAULT.stale())
            .reads_at(6)
            .sees(X, seen)
            .commits()
    };
    let writer = tx(1, 0, 10).reads_at(5).initial(X).sets(X).commits_at(8);
    accepted(&history([writer.clone(), stale(Seen::Initial)]));
    assert_eq!(
        found(&history([writer, stale(Seen::Of(1))])),
        (Some(Snapshot), None)
    );
}

#[test]
fn a_transaction_that_is_not_strict_goes_back_only_on_another_machine() {
    let writer = tx(1, 0, 10)
        .on(7)
        .reads_at(5)
        .initial(X)
        .sets(X)
        .commits_at(8);
    let reader = tx(2, 20, 30)
        .with(Options::DEFAULT.not_strict())
        .reads_at(6)
        .initial(X)
        .commits();
    accepted(&history([writer.clone(), reader.clone()]));
    assert_eq!(
        found(&history([writer, reader.on(7)])),
        (Some(Monotonic), None)
    );
}

#[test]
fn snapshot_isolation_without_strictness_may_end_before_its_time() {
    let early = |options| {
        history([
            tx(1, 0, 10)
                .with(options)
                .reads_at(5)
                .initial(X)
                .sets(X)
                .commits_at(40),
            tx(2, 20, 30).reads_at(25).initial(X).commits(),
        ])
    };
    accepted(&early(SI.not_strict()));
    refused(&early(SI), Strictness, Cycle);
    refused(&early(Options::DEFAULT.not_strict()), Strictness, Cycle);
}

#[test]
fn a_dirty_read_is_found() {
    let dirty = history([
        tx(1, 0, 10).reads_at(5).initial(X).sets(X).aborts(),
        tx(2, 0, 30).reads_at(25).of(X, 1).aborts(),
    ]);
    refused(&dirty, ReadOfAborted, ReadOfAborted);
}

#[test]
fn a_value_that_nobody_wrote_is_found() {
    let writer = tx(1, 0, 10).reads_at(5).initial(X).frees(X).commits_at(8);
    for (object, id) in [(X, 1), (Y, 1), (X, 2), (X, 3)] {
        let reader = tx(2, 0, 30).reads_at(25).of(object, id).aborts();
        refused(&history([writer.clone(), reader]), NobodyWrote, NobodyWrote);
    }
}

#[test]
fn a_read_that_is_not_repeatable_is_found() {
    let changing = history([
        tx(1, 0, 10).reads_at(5).initial(X).sets(X).commits_at(8),
        tx(2, 0, 30)
            .reads_at(25)
            .of(X, 1)
            .initial(X)
            .of(X, 1)
            .aborts(),
    ]);
    let violation = refused(&changing, NotRepeatable, NotRepeatable);
    assert_eq!(
        first_line(&violation),
        "T2 read 0x10 several times, and saw T1, then initial"
    );
}

#[test]
fn a_read_from_the_future_is_found() {
    // Without timestamps the reader is only late; with real time it is too early.
    let future = |end, begin| {
        history([
            tx(1, begin, 100)
                .reads_at(5)
                .initial(X)
                .sets(X)
                .commits_at(50),
            tx(2, 0, end).reads_at(3).of(X, 1).commits(),
        ])
    };
    assert_eq!(found(&future(100, 0)), (Some(Snapshot), None));
    refused(&future(20, 30), Snapshot, Cycle);
}

#[test]
fn versions_that_were_made_from_each_other_are_found() {
    let circle = history([
        tx(1, 0, 100).reads_at(55).of(X, 2).sets(X).commits_at(60),
        tx(2, 0, 100).reads_at(65).of(X, 1).sets(X).commits_at(70),
    ]);
    refused(&circle, Snapshot, Cycle);
}

#[test]
fn the_counterexample_of_a_write_that_did_not_wait_is_found() {
    // §7.3. T1 reads X and writes Y, and unlocks Y before its write timestamp, 10, has passed. T2 writes X at 7.
    let counterexample = |reader_of_both: Transaction| {
        history([
            tx(1, 1, 6)
                .reads_at(1)
                .initial(X)
                .initial(Y)
                .sets(Y)
                .commits_at(10),
            tx(2, 7, 7).reads_at(6).initial(X).sets(X).commits_at(7),
            reader_of_both,
            tx(4, 11, 11).reads_at(11).of(X, 2).of(Y, 1).commits(),
        ])
    };
    let early = tx(3, 8, 8).reads_at(8).of(X, 2).initial(Y);
    refused(&counterexample(early.clone().commits()), Overtaken, Cycle);
    refused(&counterexample(early.aborts()), Overtaken, Cycle);
    // Had it waited, T3 had met the lock.
    let waited = counterexample(tx(3, 8, 8).reads_at(8).of(X, 2).aborts());
    assert_eq!(found(&waited), (Some(Overtaken), None));
}

#[test]
fn a_read_of_a_freed_object_is_found() {
    let violation = refused(
        &history([
            tx(1, 0, 10).reads_at(5).allocates(X).commits_at(8),
            tx(2, 20, 30).reads_at(25).of(X, 1).frees(X).commits_at(28),
            tx(3, 40, 50).reads_at(45).of(X, 1).aborts(),
        ]),
        Snapshot,
        Cycle,
    );
    assert_eq!(violation.transactions, [3, 1, 2]);
    assert!(violation.text.contains("T2 freed it at 28"), "{violation}");
}

#[test]
fn an_object_is_allocated_and_freed_in_turn() {
    let first = tx(1, 0, 10).reads_at(5).allocates(X).commits_at(8);
    let freed = tx(2, 20, 30).reads_at(25).of(X, 1).frees(X).commits_at(28);
    let again = tx(3, 40, 50)
        .reads_at(20)
        .with(SI.not_strict())
        .allocates(X)
        .commits_at(48);
    let reader = tx(4, 60, 70).reads_at(65).of(X, 3).commits();
    accepted(&history([
        first.clone(),
        freed.clone(),
        again.clone(),
        reader,
    ]));
    let absent = tx(4, 31, 70).reads_at(35).absent(X).commits();
    accepted(&history([
        first.clone(),
        freed.clone(),
        again.clone(),
        absent,
    ]));
    // Who allocates without strictness may come later than it says.
    let too_late = tx(4, 60, 70).reads_at(65).absent(X).commits();
    let all = history([
        first.clone(),
        freed.clone(),
        again.clone(),
        too_late.clone(),
    ]);
    assert_eq!(found(&all), (Some(Snapshot), None));
    let strict = tx(3, 20, 50).reads_at(22).allocates(X).commits_at(48);
    refused(
        &history([first.clone(), freed.clone(), strict, too_late]),
        Snapshot,
        Cycle,
    );
    refused(&history([first.clone(), again]), Allocation, Allocation);
    let twice = tx(3, 40, 50).reads_at(45).frees(X).commits_at(48);
    refused(&history([first, freed, twice]), Allocation, Allocation);
}

#[test]
fn who_has_read_that_an_object_is_not_allocated_relies_on_that() {
    let first = tx(1, 0, 10).reads_at(5).allocates(X).commits_at(8);
    let freed = tx(2, 20, 30).reads_at(25).of(X, 1).frees(X).commits_at(28);
    let blind = tx(3, 0, 50)
        .reads_at(3)
        .with(SI)
        .allocates(X)
        .commits_at(48);
    accepted(&history([first.clone(), freed.clone(), blind.clone()]));
    refused(&history([first, freed, blind.absent(X)]), Overtaken, Cycle);
}

#[test]
fn reads_agree_on_the_beginning() {
    let was_there = tx(1, 0, 10).reads_at(5).initial(X).commits();
    let was_not = tx(2, 0, 10).reads_at(5).absent(X).commits();
    refused(
        &history([was_there.clone(), was_not.clone()]),
        Beginning,
        Beginning,
    );
    let allocates = tx(3, 0, 10).reads_at(5).allocates(X).commits_at(8);
    refused(
        &history([was_there.clone(), allocates.clone()]),
        Beginning,
        Beginning,
    );
    accepted(&history([was_not.clone(), allocates]));
    let sets = tx(3, 0, 10).reads_at(5).sets(X).commits_at(8);
    refused(&history([was_not, sets.clone()]), Beginning, Beginning);
    accepted(&history([was_there, sets]));
}

#[test]
fn timestamps_of_writes_are_unique_and_come_after_reads() {
    let first = tx(1, 0, 100).reads_at(5).initial(X).sets(X).commits_at(50);
    let same = tx(2, 0, 100).reads_at(40).sets(X).commits_at(50);
    assert_eq!(
        found(&history([first.clone(), same])),
        (Some(SameTimestamp), None)
    );
    let at_once = tx(2, 0, 100).reads_at(60).of(X, 1).sets(X).commits_at(60);
    assert_eq!(
        found(&history([first, at_once])),
        (Some(TimestampOrder), None)
    );
    let both = |id| {
        tx(id, 0, 100)
            .reads_at(5)
            .initial(X)
            .initial(Y)
            .commits_at(50)
    };
    refused(
        &history([both(1).sets(X), both(2).sets(Y)]),
        Overtaken,
        Cycle,
    );
}

#[test]
fn who_was_not_told_of_an_outcome_is_resolved_by_readers() {
    for outcome in [Outcome::Unknown(None), Outcome::Unknown(Some(9))] {
        let lost = tx(1, 0, NEVER)
            .reads_at(5)
            .initial(X)
            .initial(Y)
            .sets(X)
            .frees(Y);
        let lost = lost.change(|t| t.outcome = outcome);
        let reader = || tx(2, 20, 30).reads_at(25);
        for (took_effect, reader) in [
            (0, reader().initial(X).initial(Y).commits()),
            (1, reader().of(X, 1).absent(Y).commits()),
            (1, reader().absent(Y).aborts()),
            (1, reader().of(X, 1).aborts()),
        ] {
            let summary = accepted(&history([lost.clone(), reader]));
            assert_eq!(summary.unknown_took_effect, took_effect);
        }
        refused(
            &history([lost.clone(), reader().of(X, 1).initial(Y).commits()]),
            Snapshot,
            Cycle,
        );
        refused(
            &history([lost.clone(), reader().initial(X).absent(Y).commits()]),
            Snapshot,
            Cycle,
        );
    }
}

#[test]
fn who_was_not_told_of_an_outcome_may_take_effect_late() {
    let lost = |outcome: Outcome| {
        let t = tx(1, 0, 10).reads_at(5).initial(X).sets(X);
        t.change(|t| t.outcome = outcome)
    };
    let before = tx(2, 20, 30).reads_at(25).initial(X).commits();
    let after = tx(3, 40, 50).reads_at(45).of(X, 1).commits();
    for outcome in [Outcome::Unknown(None), Outcome::Unknown(Some(40))] {
        accepted(&history([lost(outcome), before.clone(), after.clone()]));
    }
    refused(
        &history([lost(Outcome::Committed(40)), before, after]),
        Strictness,
        Cycle,
    );
}

#[test]
fn when_an_unknown_outcome_took_effect_follows_from_all_that_is_known() {
    // T1 was before T3, which changed X, so T2, which did not see T1's Y, was before T3, too. T5 wrote Z blindly.
    let lost = |id| tx(id, 0, NEVER).reads_at(5);
    accepted(&history([
        lost(1).initial(X).initial(Y).sets(Y),
        lost(2).initial(Y).initial(Z).sets(Z),
        tx(3, 0, 100).reads_at(10).initial(X).sets(X).commits_at(30),
        tx(4, 0, 100)
            .reads_at(60)
            .of(X, 3)
            .of(Y, 1)
            .of(Z, 5)
            .commits(),
        tx(5, 0, 100).with(SI).reads_at(52).sets(Z).commits_at(55),
        tx(6, 0, 100).reads_at(53).of(Z, 2).aborts(),
    ]));
    accepted(&history([
        lost(1).with(SI).sets(X).sets(Y),
        tx(2, 0, 100).reads_at(60).of(Y, 1).commits(),
        tx(3, 0, 100).with(SI).reads_at(52).sets(X).commits_at(55),
        tx(4, 0, 100).reads_at(70).of(X, 3).commits(),
    ]));
}

#[test]
fn an_object_that_nobody_saw_before_the_history_may_have_been_allocated_by_who_died() {
    for outcome in [Outcome::Unknown(None), Outcome::Unknown(Some(20))] {
        let lost = || tx(1, 0, NEVER).reads_at(5).allocates(X);
        let lost = || lost().change(|t| t.outcome = outcome);
        let before = || tx(2, 0, 10).reads_at(8).absent(X).commits();
        let free = || tx(3, 0, 40).reads_at(30).frees(X).commits_at(35);
        let summary = accepted(&history([lost(), before(), free()]));
        assert_eq!(summary.unknown_took_effect, 1);
        // It need not have been the one: the object may have been there.
        let summary = accepted(&history([lost(), free()]));
        assert_eq!(summary.unknown_took_effect, 0);
        // After the free it is.
        let again = tx(4, 0, 40).reads_at(10).frees(X).commits_at(15);
        let summary = accepted(&history([lost(), again, free()]));
        assert_eq!(summary.unknown_took_effect, 1);
    }
    // Nobody can have allocated it.
    let before = tx(2, 0, 10).reads_at(8).absent(X).commits();
    let free = tx(3, 0, 40).reads_at(30).frees(X).commits_at(35);
    let kind = judge_by_timestamps(&history([before, free]));
    assert_eq!(kind.map_err(|it| it.kind), Err(Beginning));
}

#[test]
fn an_object_that_was_absent_from_the_beginning_needs_nobody_who_freed_it() {
    // T3 had read long after T1 found nothing. It is of no account, and has not freed X before T2 allocated it.
    let summary = accepted(&history([
        tx(1, 0, 10).reads_at(5).absent(X).commits(),
        tx(2, 0, 30).reads_at(6).allocates(X).commits_at(20),
        tx(3, 0, NEVER).reads_at(25).frees(X),
    ]));
    assert_eq!(summary.unknown_took_effect, 0);
}

#[test]
fn who_died_may_have_allocated_what_was_freed_after_its_snapshot() {
    // T1 read before X was free. T2, which freed X, read before T1.
    let summary = accepted(&history([
        tx(1, 0, NEVER).reads_at(10).allocates(X),
        tx(2, 0, 30).reads_at(5).initial(X).frees(X).commits_at(20),
        tx(3, 40, 50).reads_at(45).of(X, 1).commits(),
    ]));
    assert_eq!(summary.unknown_took_effect, 1);
    refused(
        &history([
            tx(1, 0, NEVER).reads_at(10).sets(X),
            tx(2, 0, 30).reads_at(5).initial(X).frees(X).commits_at(20),
            tx(3, 40, 50).reads_at(45).of(X, 1).commits(),
        ]),
        Allocation,
        Allocation,
    );
}

#[test]
fn another_is_taken_if_the_first_one_cannot_have_freed_an_object() {
    // T1 and T2 can have freed X. T1 would have been seen at Y.
    let summary = accepted(&history([
        tx(1, 0, NEVER)
            .reads_at(5)
            .initial(X)
            .frees(X)
            .sets(Y)
            .at_if_any(20),
        tx(2, 0, NEVER).reads_at(6).frees(X).sets(Z),
        tx(3, 0, 50).reads_at(45).absent(X).initial(Y).aborts(),
    ]));
    assert_eq!(summary.unknown_took_effect, 1);
}

#[test]
fn a_blind_write_relies_on_the_version_that_it_replaces() {
    let writer = tx(1, 0, 100)
        .with(SI)
        .reads_at(5)
        .initial(Y)
        .sets(X)
        .sets(Y)
        .commits_at(50);
    let blind = |options| {
        tx(2, 0, 100)
            .with(options)
            .reads_at(6)
            .initial(Y)
            .sets(X)
            .commits_at(60)
    };
    refused(&history([writer.clone(), blind(SI)]), Overtaken, Cycle);
    refused(
        &history([writer, blind(Options::DEFAULT)]),
        Overtaken,
        Cycle,
    );
}

#[test]
fn a_record_that_contradicts_itself_is_refused() {
    for record in [
        tx(1, 10, 5).reads_at(5).initial(X).commits(),
        tx(1, 0, 5).reads_at(5).commits_at(7),
        tx(1, 0, 5).reads_at(5).sets(X).commits(),
        tx(1, 0, 5)
            .with(Options::DEFAULT.read_only())
            .reads_at(5)
            .sets(X)
            .commits_at(7),
        tx(1, 0, 5).initial(X).aborts(),
        tx(1, 0, 5).sets(X).commits_at(7),
        tx(1, 0, NEVER).reads_at(3).sets(X).commits_at(5),
        tx(1, 0, 5).reads_at(3).sets(X).frees(X).commits_at(5),
    ] {
        refused(&history([record]), Malformed, Malformed);
    }
    let twice = tx(1, 0, 5).reads_at(5).initial(X).commits();
    refused(&history([twice.clone(), twice]), Malformed, Malformed);
}

#[test]
fn the_recorder_keeps_what_counts() {
    let recorder = Recorder::counting();
    let first = recorder.begin(3, Options::DEFAULT);
    first.started(100);
    first.read(X, Seen::Initial);
    first.write(X, Change::Set);
    first.read(X, Seen::Of(first.id()));
    first.write(X, Change::Free);
    first.write(Y, Change::Allocate);
    first.write(Y, Change::Set);
    first.write(Z, Change::Allocate);
    first.write(Z, Change::Free);
    let id = first.end(Outcome::Committed(110));
    let dropped = recorder.begin(4, Options::DEFAULT);
    dropped.started(120);
    drop(dropped);
    let history = recorder.history();
    let wanted = tx(id, 1, 2)
        .on(3)
        .reads_at(100)
        .initial(X)
        .frees(X)
        .allocates(Y)
        .commits_at(110);
    assert_eq!(history.transactions[0], wanted);
    let wanted = tx(id + 1, 3, NEVER).on(4).reads_at(120);
    assert_eq!(history.transactions[1], wanted);
    accepted(&history);
}
