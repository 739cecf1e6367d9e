//! The standard stack, whose engines are switched on and off.

use super::*;
use crate::backup::objects::Origin;
use crate::backup::{Backups, Directory, claim, directories};
use crate::engines::view_tracking::EJECT_AFTER;
use crate::engines::{batching, log_backup, session_order};
use crate::stacks::{ENGINES, Standard};
use plinth_runtime::timeout;
use std::ops::Deref;

struct Whole {
    stack: Rc<Standard<FileLog, Notes>>,
    _running: Task<()>,
}

impl Deref for Whole {
    type Target = Standard<FileLog, Notes>;

    fn deref(&self) -> &Self::Target {
        &self.stack
    }
}

async fn whole(log: &Rc<FileLog>, id: u64, kind: EngineKind) -> Whole {
    let path = format!("/data/whole-{id}");
    let engine = match plinth_engine::open(kind, Path::new(&path), false, 1 << 20).await {
        Ok(engine) => engine,
        Err(_) => {
            let made = plinth_engine::open(kind, Path::new(&path), true, 1 << 20).await;
            made.expect("an engine")
        }
    };
    let store = LocalStore::open(engine).expect("a store");
    let backups = Backups {
        origin: Origin::new("whole:1", "notes", "whole"),
        open: directories,
    };
    let stack = Standard::new(log.clone(), store, id, Notes, backups);
    let running = stack.clone();
    let running = spawn("replica", async move {
        running.run().await;
    });
    Whole {
        stack,
        _running: running,
    }
}

async fn switch_all_on(replica: &Whole) {
    for engine in ENGINES {
        replica
            .switch(engine, true)
            .await
            .expect("it runs")
            .expect("all have it");
    }
}

#[test]
fn a_place_that_is_refused_leaves_the_backup_off() {
    on_a_machine(async {
        let log = open_log().await;
        let one = whole(&log, 1, EngineKind::Memory).await;
        let session = one.back_up("/good").await.expect("it runs");
        session.expect("the place is good");
        let off = one.switch(log_backup::GUARD, false).await.expect("it runs");
        off.expect("it is there");
        let other = Origin::new("other:1", "notes", "other");
        let claimed = claim(&Directory("/others".into()), &other).await;
        assert_eq!(claimed, Ok(true));
        let refused = one.back_up("/others").await.expect("it runs");
        let line = refused.expect_err("it is another's");
        assert!(line.contains("the backup of another service"), "{line}");
        one.stack.sync().await.expect("it runs");
        assert_eq!(one.backup.backup(), Ok(None), "it is off");
    });
}

#[test]
fn an_engine_changes_nothing_before_it_is_switched_on() {
    on_a_machine(async {
        let log = open_log().await;
        let one = whole(&log, 1, EngineKind::Memory).await;
        let writes = [(Bytes::from_static(b"x"), Some(Bytes::from_static(b"y")))];
        assert_eq!(one.doctor.operate(&writes).await, Ok(false));
        sleep(Duration::from_secs(3)).await; // reports
        one.stack.propose(note(1)).await.expect("answered");
        let rows = one.stack.sync().await.expect("it runs");
        let all = rows.range(b"", b"\xff", 100).expect("read");
        let keys: Vec<&[u8]> = all.iter().map(|(key, _)| &key[..]).collect();
        assert_eq!(keys, [&number_key(1)[..]], "only the note is there");
        drop(rows);
        switch_all_on(&one).await;
        assert_eq!(one.doctor.operate(&writes).await, Ok(true));
        let rows = one.stack.sync().await.expect("it runs");
        assert_eq!(rows.get(b"x"), Ok(Some(Bytes::from_static(b"y"))));
    });
}

#[test]
fn proposals_that_come_together_share_an_entry_and_fail_alone() {
    on_a_machine(async {
        let log = open_log().await;
        let one = whole(&log, 1, EngineKind::Memory).await;
        switch_all_on(&one).await;
        let before = log.check_tail().await.expect("a tail").next;
        let numbers = 1..201u64;
        let proposed = join_all(numbers.clone().map(|n| one.stack.propose(note(n)))).await;
        for (number, answer) in numbers.zip(proposed) {
            match answer.expect("it runs") {
                Answer::Done(_) => assert_ne!(number % 10, 7),
                Answer::Refused(NoNote::Seven) => assert_eq!(number % 10, 7),
                other => panic!("{number}: {other:?}"),
            }
        }
        let entries = log.check_tail().await.expect("a tail").next - before;
        assert!(entries < 20, "{entries} entries for 200 proposals");
        let rows = one.stack.sync().await.expect("it runs");
        let notes = rows.range(b"number/", b"number0", 1000).expect("read");
        assert_eq!(notes.len(), 180);
        // Switched off, each has an entry of its own.
        let switched = one.switch(batching::GUARD, false);
        let switched = switched.await.expect("it runs");
        switched.expect("all have it");
        let proposed = join_all((201..207).map(|n| one.stack.propose(note(n)))).await;
        assert!(
            proposed
                .iter()
                .all(|answer| matches!(answer, Ok(Answer::Done(_))))
        );
    });
}

#[test]
fn the_log_is_trimmed_to_what_all_have_and_a_silent_replica_is_put_out() {
    on_a_machine(async {
        let log = open_log().await;
        let one = whole(&log, 1, EngineKind::Memory).await;
        let two = whole(&log, 2, EngineKind::Ssd).await;
        switch_all_on(&one).await;
        // Without a place for the backup, it would keep all.
        let off = one.switch(log_backup::GUARD, false).await;
        off.expect("it runs").expect("all have it");
        for number in (10..1000).step_by(10) {
            let at = if number % 20 == 0 { &one } else { &two };
            at.stack.propose(note(number)).await.expect("answered");
            at.stack.set_trim_prefix(LogPos::MAX);
        }
        sleep(Duration::from_secs(5)).await;
        assert_eq!(one.views.replicas(), [1, 2]);
        let trimmed = log.read_next(1, 1).await;
        let Err(LogError::Trimmed(first)) = trimmed else {
            panic!("nothing was trimmed: {trimmed:?}");
        };
        let least = one.store().flushed().min(two.store().flushed());
        assert!(
            first <= least + 1,
            "trimmed up to {first}, and somebody has {least}"
        );
        drop(two);
        let alone = async {
            while one.views.replicas() != [1] {
                sleep(Duration::from_secs(1)).await;
            }
        };
        timeout(2 * EJECT_AFTER, alone)
            .await
            .expect("it is put out");
        // The log does not wait for it any more. It has to be restored.
        one.stack.propose(note(1001)).await.expect("answered");
        sleep(Duration::from_secs(3)).await;
        let two = whole(&log, 2, EngineKind::Ssd).await;
        assert_eq!(two.stack.propose(note(1002)).await, Err(Lost::Stopped));
        // So has a new one.
        let three = whole(&log, 3, EngineKind::Memory).await;
        assert_eq!(
            three.stack.sync().await.err(),
            Some(Lost::Stopped),
            "it begins at 1"
        );
    });
}

/// Opens the log and two replicas, checks them, and proposes for ever.
async fn live(known: Rc<RefCell<Known>>) {
    let log = open_log().await;
    let both = [
        whole(&log, 1, EngineKind::Memory).await,
        whole(&log, 2, EngineKind::Ssd).await,
    ];
    let stores: Vec<_> = both.iter().map(|replica| replica.store()).collect();
    for replica in &both {
        let rows = replica.stack.sync().await.expect("it runs");
        check_rows(&rows, &known.borrow());
    }
    if stores[0].applied() == stores[1].applied() {
        assert_eq!(
            stores[0].checksum(),
            stores[1].checksum(),
            "the replicas differ"
        );
    }
    if random::chance(0.5) {
        switch_all_on(&both[0]).await;
    }
    let propose = async |replica: &Whole| loop {
        propose_next(&replica.stack, &known).await;
        replica.stack.set_trim_prefix(LogPos::MAX);
        if random::chance(0.01) {
            let engine = ENGINES[random::below(ENGINES.len() as u64) as usize];
            let switched = replica.switch(engine, random::chance(0.5));
            let switched = switched.await.expect("it runs");
            switched.expect("all have it");
        }
    };
    join_all((0..10).map(|n| propose(&both[n % 2]))).await;
}

#[test]
fn answered_proposals_of_whole_stacks_survive_power_cuts_while_engines_are_switched() {
    let mut noted = 0;
    for seed in 100..112 {
        noted += crash_with(seed, live).0;
    }
    assert!(noted > 1000, "{noted} is too few to prove anything");
    assert_eq!(crash_with(107, live), crash_with(107, live));
}

#[test]
fn a_read_sees_what_its_replica_has_proposed_before_though_it_waits_for_a_batch() {
    on_a_machine(async {
        let log = open_log().await;
        let one = whole(&log, 1, EngineKind::Memory).await;
        for engine in [session_order::GUARD, batching::GUARD] {
            one.switch(engine, true)
                .await
                .expect("it runs")
                .expect("all have it");
        }
        for round in 0..20u64 {
            let numbers = (1..50).map(|n| round * 1000 + 10 * n);
            let writes = join_all(numbers.map(|n| one.propose(note(n))));
            let read = async {
                let rows = one.sync().await.expect("it runs");
                rows.range(b"number/", b"number0", 10_000).expect("read")
            };
            let both = plinth_runtime::sync::Watch::new(0);
            let write = async {
                for answer in writes.await {
                    assert!(matches!(answer, Ok(Answer::Done(_))));
                }
                both.update(|done| *done += 1);
            };
            let read = async {
                let found = read.await.len() as u64;
                assert_eq!(found, (round + 1) * 49);
                both.update(|done| *done += 1);
            };
            // In this order, so the read comes after the writes.
            let work: [std::pin::Pin<Box<dyn Future<Output = ()>>>; 2] =
                [Box::pin(write), Box::pin(read)];
            join_all(work).await;
            assert_eq!(both.get(), 2);
        }
    });
}
