//! Clients of a gateway whose life ends, or that only reads.

use super::*;

/// The tree goes while a client waits for a new session.
async fn greet_one_that_stops() -> Rc<World> {
    let world = World::with(1, ms(1)).await;
    world.gateways[0].store.set_hung(true);
    let began = now();
    let clearing = async {
        sleep(ms(500)).await;
        let transaction = world.store.database().create_transaction();
        transaction.clear(Rows::new(&Options::default().tree).meta());
        transaction.commit().await.expect("nothing is in its way");
        world.gateways[0].store.set_hung(false);
    };
    let greeting = Client::connect(address(0), 30_000, None);
    let (greeted, ()) = both(greeting, clearing).await;
    if greeted.is_ok() {
        world.complain("a session of a tree that is gone".into());
    }
    if began.elapsed() > ms(1500) {
        let took = began.elapsed();
        world.complain(format!("a client waits {took:?} for one that has stopped"));
    }
    world
}

async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (first, second) = (Cell::new(None), Cell::new(None));
    let a = async { first.set(Some(a.await)) };
    let b = async { second.set(Some(b.await)) };
    let halves: [Boxed<'_, ()>; 2] = [Box::pin(a), Box::pin(b)];
    join_all(halves).await;
    let ended = "it was waited for";
    (first.take().expect(ended), second.take().expect(ended))
}

#[test]
fn a_client_does_not_wait_for_a_gateway_that_has_stopped() {
    holds(5, greet_one_that_stops);
}

/// Somebody who only reads names a session of which nothing was heard for three seconds before the gateway was cut
/// off.
async fn read_with_a_session_of_somebody() -> Rc<World> {
    let world = World::with(1, ms(1)).await;
    let life = Life::begin(&world, 0, ms(4000), 1).await;
    sleep_until(life.answered + ms(3000)).await;
    let store = &world.gateways[0].store;
    store.set_hung(true);
    sleep(ms(2800)).await;
    let named = Some((life.id(), Bytes::from_static(&[7; 16]), 0));
    let reader = Client::connect_to_read(address(0), 4000, named).await;
    let reader = reader.expect("anybody may read");
    assert!(reader.is_read_only());
    let until = now() + ms(1500);
    while now() < until {
        let asked = reader.submit(Request::Ping).await;
        asked.expect("a reader is answered");
        sleep(ms(50)).await;
    }
    store.set_hung(false);
    let back = now();
    let ended = world.end_of(life.id(), back + ms(2500)).await;
    match ended {
        None => world.complain("a reader keeps somebody's session alive".into()),
        Some(ended) if ended < back + ms(500) => {
            world.complain("the time in which the gateway was cut off counts".into());
        }
        Some(_) => {}
    }
    world
}

#[test]
fn who_only_reads_keeps_nobodys_session_alive() {
    holds(5, read_with_a_session_of_somebody);
}
