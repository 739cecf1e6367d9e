//! What the timestamps say of histories that are written by hand.

mod written;

use plinth_farm_judge::*;
use written::*;

fn refused(history: &History) -> Box<Violation> {
    judge_by_timestamps(history).expect_err("it breaks a promise")
}

fn accepted(history: &History) -> Summary {
    judge_by_timestamps(history).unwrap_or_else(|violation| panic!("{violation}"))
}

const SI: Options = Options {
    isolation: Isolation::Snapshot,
    ..Options::DEFAULT
};

#[test]
fn a_serial_history_is_accepted() {
    let summary = accepted(&history([
        tx(1, 0, 10).reads_at(5).initial(X).sets(X).commits_at(8),
        tx(2, 20, 30).reads_at(25).of(X, 1).initial(Y).commits(),
        tx(3, 20, 30).reads_at(25).of(X, 1).sets(X).aborts(),
        tx(4, 40, 50)
            .reads_at(45)
            .of(X, 1)
            .sets(X)
            .frees(Y)
            .commits_at(48),
        tx(5, 60, 70).reads_at(65).of(X, 4).absent(Y).commits(),
    ]));
    assert_eq!(
        (summary.committed, summary.read_only, summary.aborted),
        (2, 2, 1)
    );
    assert_eq!((summary.reads, summary.aborted_reads), (7, 1));
    assert_eq!((summary.versions, summary.objects), (3, 2));
}

#[test]
fn a_lost_update_is_found() {
    let lost = history([
        tx(1, 0, 100).reads_at(5).initial(X).sets(X).commits_at(50),
        tx(2, 0, 100).reads_at(5).initial(X).sets(X).commits_at(60),
    ]);
    let violation = refused(&lost);
    assert_eq!(
        (violation.kind, &violation.transactions[..]),
        (Kind::Overtaken, &[2, 1][..])
    );
    assert_eq!(violation.object, Some(X));
    let first = violation.text.lines().next().expect("a line");
    assert_eq!(
        first,
        "T2 committed at 60, relying on 0x10 as it was at 5, but T1 changed it at 50"
    );
    let snapshot: Vec<Transaction> = lost.transactions.into_iter().map(|t| t.with(SI)).collect();
    let transactions = snapshot;
    assert_eq!(refused(&History { transactions }).kind, Kind::Overtaken);
}

#[test]
fn write_skew_is_refused_only_of_serializable_transactions() {
    let skewed = |options: Options| {
        history([
            tx(1, 0, 100)
                .with(options)
                .reads_at(5)
                .initial(X)
                .initial(Y)
                .sets(X)
                .commits_at(50),
            tx(2, 0, 100)
                .with(options)
                .reads_at(5)
                .initial(X)
                .initial(Y)
                .sets(Y)
                .commits_at(60),
        ])
    };
    accepted(&skewed(SI));
    assert_eq!(refused(&skewed(Options::DEFAULT)).kind, Kind::Overtaken);
}

#[test]
fn an_inconsistent_snapshot_of_an_aborted_transaction_is_found() {
    let violation = refused(&history([
        tx(1, 0, 100)
            .reads_at(5)
            .initial(X)
            .initial(Y)
            .sets(X)
            .sets(Y)
            .commits_at(50),
        tx(2, 0, 200).reads_at(10).initial(X).of(Y, 1).aborts(),
    ]));
    assert_eq!(violation.kind, Kind::Snapshot);
    assert_eq!(violation.object, Some(Y));
}

#[test]
fn a_stale_read_is_found() {
    let violation = refused(&history([
        tx(1, 0, 10).reads_at(5).initial(X).sets(X).commits_at(8),
        tx(2, 20, 30).reads_at(6).initial(X).commits(),
    ]));
    assert_eq!(
        (violation.kind, &violation.transactions[..]),
        (Kind::Strictness, &[2, 1][..])
    );
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
        refused(&history([writer, stale(Seen::Of(1))])).kind,
        Kind::Snapshot
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
        refused(&history([writer, reader.on(7)])).kind,
        Kind::Monotonic
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
    assert_eq!(refused(&early(SI)).kind, Kind::Strictness);
    assert_eq!(
        refused(&early(Options::DEFAULT.not_strict())).kind,
        Kind::Strictness
    );
}

#[test]
fn a_dirty_read_is_found() {
    let violation = refused(&history([
        tx(1, 0, 10).reads_at(5).initial(X).sets(X).aborts(),
        tx(2, 0, 30).reads_at(25).of(X, 1).aborts(),
    ]));
    assert_eq!(violation.kind, Kind::ReadOfAborted);
}

#[test]
fn a_read_from_the_future_is_found() {
    let violation = refused(&history([
        tx(1, 0, 100).reads_at(5).initial(X).sets(X).commits_at(50),
        tx(2, 0, 100).reads_at(40).of(X, 1).commits(),
    ]));
    assert_eq!(
        (violation.kind, &violation.transactions[..]),
        (Kind::Snapshot, &[2, 1][..])
    );
}

#[test]
fn a_read_of_a_freed_object_is_found() {
    let violation = refused(&history([
        tx(1, 0, 10).reads_at(5).allocates(X).commits_at(8),
        tx(2, 20, 30).reads_at(25).of(X, 1).frees(X).commits_at(28),
        tx(3, 40, 50).reads_at(45).of(X, 1).aborts(),
    ]));
    assert_eq!(
        (violation.kind, &violation.transactions[..]),
        (Kind::Snapshot, &[3, 1, 2][..])
    );
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
    accepted(&history([first.clone(), freed.clone(), again.clone()]));
    assert_eq!(
        refused(&history([first.clone(), again])).kind,
        Kind::Allocation
    );
    let twice = tx(3, 40, 50).reads_at(45).frees(X).commits_at(48);
    assert_eq!(
        refused(&history([first, freed, twice])).kind,
        Kind::Allocation
    );
}

#[test]
fn who_was_not_told_of_an_outcome_is_resolved_by_readers() {
    let lost = |outcome| {
        tx(1, 0, NEVER)
            .reads_at(5)
            .initial(X)
            .initial(Y)
            .sets(X)
            .frees(Y)
            .change(|t| t.outcome = outcome)
    };
    for outcome in [Outcome::Unknown(None), Outcome::Unknown(Some(9))] {
        let unseen = tx(2, 20, 30).reads_at(25).initial(X).initial(Y).commits();
        assert_eq!(
            accepted(&history([lost(outcome), unseen])).unknown_took_effect,
            0
        );
        let seen = tx(2, 20, 30).reads_at(25).of(X, 1).absent(Y).commits();
        assert_eq!(
            accepted(&history([lost(outcome), seen])).unknown_took_effect,
            1
        );
        let half = tx(2, 20, 30).reads_at(25).of(X, 1).initial(Y).commits();
        assert_eq!(
            refused(&history([lost(outcome), half])).kind,
            Kind::Snapshot
        );
        let only_free = tx(2, 20, 30).reads_at(25).absent(Y).commits();
        assert_eq!(
            accepted(&history([lost(outcome), only_free])).unknown_took_effect,
            1
        );
        let half = tx(2, 20, 30).reads_at(25).initial(X).absent(Y).commits();
        assert_eq!(
            refused(&history([lost(outcome), half])).kind,
            Kind::Snapshot
        );
    }
}

#[test]
fn a_record_that_contradicts_itself_is_refused() {
    for record in [
        tx(1, 10, 5).reads_at(5).initial(X).commits(),
        tx(1, 0, 5).reads_at(5).commits_at(7),
        tx(1, 0, 5).reads_at(5).sets(X).commits(),
        tx(1, 0, 5).initial(X).aborts(),
        tx(1, 0, NEVER).reads_at(3).sets(X).commits_at(5),
        tx(1, 0, 5).reads_at(3).sets(X).frees(X).commits_at(5),
    ] {
        assert_eq!(refused(&history([record])).kind, Kind::Malformed);
    }
    let twice = tx(1, 0, 5).reads_at(5).initial(X).commits();
    assert_eq!(
        refused(&history([twice.clone(), twice])).kind,
        Kind::Malformed
    );
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
