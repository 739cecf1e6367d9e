//! Who the replicas are, and which engines all of them have.

use super::*;
use crate::engines::roster::{
    Member, RosterAbove, engines_on, members, propose_join, propose_leave, propose_mark,
    propose_switch,
};
use crate::engines::{batching, guard::Guard, lease};
use plinth_core::codec::Codec;

type Bottom = Rc<Base<FileLog, RosterAbove<Top<Notes>>>>;

struct One {
    base: Bottom,
    stopped: Rc<RefCell<Option<Stopped>>>,
    _running: Task<()>,
}

/// A replica with these engines, which are of no use without an upper half.
async fn one(log: &Rc<FileLog>, name: &str, engines: &'static [Guard]) -> One {
    let path = format!("/data/roster-{name}");
    let engine = plinth_engine::open(EngineKind::Memory, Path::new(&path), true, 1 << 20).await;
    let store = LocalStore::open(engine.expect("an engine")).expect("a store");
    let above = RosterAbove::new(Top(Notes), engines, &store);
    let base = Base::new(log.clone(), store, above);
    let stopped = Rc::new(RefCell::new(None));
    let (running, told) = (base.clone(), stopped.clone());
    let running = spawn("replica", async move {
        let why = running.run().await;
        *told.borrow_mut() = Some(why);
    });
    One {
        base,
        stopped,
        _running: running,
    }
}

fn member(name: &str, port: u16, engines: &[&str]) -> Member {
    Member {
        name: name.into(),
        address: ([10, 0, 0, 1], port).into(),
        log_server: Uid(7),
        engines: engines.iter().map(|name| (*name).into()).collect(),
        release: "1".into(),
    }
}

const BOTH: [Guard; 2] = [batching::GUARD, lease::GUARD];

#[test]
fn names_and_addresses_are_of_one_replica_and_who_was_removed_does_not_come_back() {
    on_a_machine(async {
        let log = open_log().await;
        let one = one(&log, "a", &BOTH).await;
        let join = async |id, member: Member| {
            let told = propose_join(&one.base, id, &member).await;
            told.expect("it runs")
        };
        assert_eq!(join(1, member("a", 1, &[])).await, Ok(1));
        assert_eq!(join(2, member("b", 2, &[])).await, Ok(2));
        assert_eq!(join(2, member("b", 3, &["x"])).await, Ok(3), "it has moved");
        let taken = join(4, member("b", 4, &[])).await.expect_err("it is taken");
        assert!(taken.starts_with("another replica, at 10.0.0.1:3, has the name \"b\""));
        let taken = join(4, member("c", 3, &[])).await.expect_err("it is taken");
        assert!(taken.starts_with("replica \"b\" had the address 10.0.0.1:3"));
        let leave = async |id| propose_leave(&one.base, id).await.expect("it runs");
        assert_eq!(leave(2).await, Ok(6));
        assert_eq!(leave(2).await, Ok(7), "it has left");
        assert_eq!(leave(5).await, Err("there is no such replica".into()));
        assert_eq!(leave(1).await, Err("it is the only replica".into()));
        let back = join(2, member("b", 3, &[]))
            .await
            .expect_err("it was removed");
        assert!(back.starts_with("replica \"b\" was removed from the service"));
        let rows = one.base.sync().await.expect("it runs");
        assert_eq!(members(&rows), Ok(vec![(1, member("a", 1, &[]))]));
    });
}

#[test]
fn an_engine_is_switched_on_when_all_replicas_have_it_and_who_lacks_it_stops() {
    on_a_machine(async {
        let log = open_log().await;
        let a = one(&log, "a", &BOTH).await;
        let old = one(&log, "old", &BOTH[..1]).await;
        let join = async |id, member: Member| {
            let told = propose_join(&a.base, id, &member).await;
            told.expect("it runs").expect("it joins");
        };
        join(1, member("a", 1, &["batching", "lease"])).await;
        join(2, member("b", 2, &["batching"])).await;
        let switch = async |engine, on| {
            let told = propose_switch(&a.base, engine, on).await;
            told.expect("it runs")
        };
        let refused = switch(lease::GUARD, true).await.expect_err("b lacks it");
        assert!(refused.starts_with("engine lease is not in the release of replica b"));
        switch(batching::GUARD, true).await.expect("both have it");
        drop(old.base.sync().await.expect("it goes on"));
        join(2, member("b", 2, &["batching", "lease"])).await;
        switch(lease::GUARD, true).await.expect("both have it");
        let rows = a.base.sync().await.expect("it runs");
        assert_eq!(
            engines_on(&rows),
            Ok(vec!["batching".into(), "lease".into()])
        );
        // It never said that it is there.
        let before = old.base.store().applied();
        assert_eq!(old.base.sync().await.err(), Some(Lost::Stopped));
        assert!(old.stopped.borrow().is_some());
        assert_eq!(old.base.store().applied(), before + 1, "the second join");
        let why = old.base.applicator().stopped().expect("it says why");
        assert!(why.starts_with("engine lease is switched on, and this release does not have it"));
    });
}

#[test]
fn replicas_have_one_checksum_at_a_mark() {
    on_a_machine(async {
        let log = open_log().await;
        let both = [one(&log, "a", &[]).await, one(&log, "b", &[]).await];
        both[0].base.propose(note(1)).await.expect("answered");
        let mark = propose_mark(&both[0].base).await.expect("it runs");
        let mark = mark.expect("marked");
        both[0].base.propose(note(2)).await.expect("answered");
        assert_eq!(both[1].base.applicator().checksum_at(mark), None);
        drop(both[1].base.sync().await.expect("it runs"));
        let at = |n: usize| both[n].base.applicator().checksum_at(mark);
        assert!(at(0).is_some() && at(0) == at(1));
        assert_ne!(at(0), Some(both[0].base.store().checksum()));
    });
}

#[test]
fn hostile_bytes_do_the_same_to_all_replicas() {
    on_a_machine(async {
        let log = open_log().await;
        let both = [one(&log, "a", &[]).await, one(&log, "b", &[]).await];
        for _ in 0..300 {
            let mut said = vec![0; random::below(60) as usize];
            random::fill(&mut said);
            if let Some(kind) = said.first_mut() {
                *kind %= 4;
            }
            // Half of them are cut off a replica that is sound.
            if random::chance(0.5) {
                let sound = member("x", random::below(3) as u16, &["y"]).to_bytes();
                let id = random::below(3).to_le_bytes();
                said = [&[random::below(2) as u8][..], &id, &sound].concat();
                said.truncate(random::below(2 * said.len() as u64) as usize);
            }
            let mut entry = note(random::u64());
            entry.set_header("roster", said);
            let answer = both[0].base.propose(entry).await;
            assert!(matches!(answer, Ok(Answer::Own(_))), "{answer:?}");
            // What goes off need not be there.
            let mut entry = note(random::u64());
            entry.set_header("switch", random::below(256).to_le_bytes()[1..].to_vec());
            both[1].base.propose(entry).await.expect("answered");
        }
        for replica in &both {
            drop(replica.base.sync().await.expect("it runs"));
        }
        let (a, b) = (both[0].base.store(), both[1].base.store());
        assert_eq!((a.applied(), a.checksum()), (b.applied(), b.checksum()));
    });
}
