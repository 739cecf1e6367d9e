//! No answer is older than its zxid says: all changes that were committed up to there are in it.

use super::gateways::{Gateway, create, create_with, delete, done};
use plinth_client::testing::MemoryCluster;
use plinth_keeper::client::Client;
use plinth_keeper::wire::{Answer, Request, create_flags};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, Either, join_all, race, random, sleep};
use std::cell::RefCell;

const ROUNDS: u32 = 40;

/// A gateway on a database that answers late, and two of its clients.
async fn start() -> (Gateway, [Client; 2]) {
    let cluster = MemoryCluster::new();
    let gateway = Gateway::start(&cluster).await;
    let clients = [gateway.client().await, gateway.client().await];
    cluster.set_delay(Duration::from_millis(4));
    (gateway, clients)
}

async fn some_time() {
    sleep(Duration::from_micros(random::below(20_000))).await;
}

#[test]
fn the_list_of_a_sessions_ephemeral_nodes_is_as_new_as_its_zxid() {
    block_on(async {
        let (_gateway, [ours, theirs]) = start().await;
        for _ in 0..ROUNDS {
            done(&ours, create_with("/mine", "", create_flags::EPHEMERAL)).await;
            let prefix = "".into();
            let asking = async {
                some_time().await;
                ours.submit(Request::GetEphemerals { prefix }).await
            };
            let deleting = async {
                some_time().await;
                theirs.submit(delete("/mine")).await
            };
            let both: [plinth_runtime::Boxed<'_, _>; 2] = [Box::pin(asking), Box::pin(deleting)];
            let mut both = join_all(both).await.into_iter();
            let mut next = || both.next().expect("two").expect("answered");
            let ((asked, answer), (deleted, _)) = (next(), next());
            let Answer::Ephemerals(found) = answer else {
                panic!("{answer:?}");
            };
            assert!(
                found.is_empty() || asked < deleted,
                "an answer of {asked:#x} has a node that was deleted at {deleted:#x}"
            );
        }
    });
}

/// What is counted while a client creates one node after the other below `/c`.
async fn count_while_they_come(count: impl AsyncFn(&Client) -> (i64, usize)) {
    let (_gateway, [ours, theirs]) = start().await;
    done(&ours, create("/c")).await;
    let created = RefCell::new(Vec::new());
    let creating = async {
        for number in 0.. {
            let made = theirs.submit(create(&format!("/c/{number}"))).await;
            created.borrow_mut().push(made.expect("created").0);
        }
    };
    let counting = async {
        for _ in 0..ROUNDS {
            let (zxid, counted) = count(&ours).await;
            // Some that have come are not answered yet.
            let created = created.borrow();
            let earlier = created.iter().filter(|at| **at <= zxid).count();
            assert!(
                earlier <= counted,
                "an answer of {zxid:#x} has {counted} of {earlier} nodes"
            );
        }
    };
    match race(counting, creating).await {
        Either::Left(()) => {}
        Either::Right(()) => unreachable!("it goes on for ever"),
    }
}

#[test]
fn a_number_of_nodes_that_is_counted_is_as_new_as_its_zxid() {
    block_on(count_while_they_come(async |client| {
        let counting = client.submit(Request::GetAllChildrenNumber { path: "/c".into() });
        match counting.await.expect("counted") {
            (zxid, Answer::Number(number)) => (zxid, number as usize),
            other => panic!("{other:?}"),
        }
    }));
}
