//! What a pipeline does that has lost its place.

use super::*;
use crate::setup;
use crate::tree::execute::Owner;
use crate::tree::rows::Rows;
use crate::zxid::Zxids;
use plinth_client::testing::MemoryCluster;
use plinth_runtime::real::block_on;
use plinth_runtime::{spawn, timeout};

/// Nobody's clients.
struct Nobody;

impl Listener for Nobody {
    fn before(&self, _: &Replica, _: &crate::tree::change::Change, _: i64) {}
    fn owns(&self, _: i64) -> bool {
        true
    }
    fn is_silent(&self, _: i64) -> bool {
        true
    }
    fn has_clients(&self) -> bool {
        false
    }
    fn enforces_quotas(&self) -> bool {
        false
    }
    fn exceeds(&self, _: &Exceeded, _: &str) {}
    fn lost(&self, _: &'static str) {}
}

async fn pipeline(cluster: &MemoryCluster, gateway: u64, had: Option<Zxids>) -> Rc<Pipeline> {
    let (database, rows) = (cluster.database(), Rows::new("tree"));
    let opened = setup::open(&database, &rows, "tree", had).await;
    let tree = opened.expect("it is made, or is there");
    let store = Rc::new(database.clone());
    let replica = Replica::new(store, rows, tree.zxids, tree.version, 1 << 20);
    let opened = (database, tree.stream);
    Pipeline::new(Rc::new(replica), opened, gateway, Rc::new(Nobody))
}

/// Executes what the queue has, once.
async fn write(pipeline: &Pipeline, operations: Vec<Operation>) {
    for operation in operations {
        pipeline.queue.push(Queued::of_the_gateway(operation));
    }
    assert!(pipeline.begin().await, "there is something to begin");
    pipeline.land_all().await;
}

fn open_session(session: i64) -> Operation {
    Operation::OpenSession {
        session,
        timeout_ms: 4000,
        password: vec![7; 16],
    }
}

/// It reads what others have done before it executes a batch. Its commit would rely on a version at which its lease
/// had ended already.
#[test]
fn a_gateway_that_sees_the_end_of_its_lease_commits_nothing_behind_it() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let ours = pipeline(&cluster, 1, None).await;
        let theirs = pipeline(&cluster, 2, Some(ours.replica.zxids)).await;
        let lease = b"12345678somewhere".to_vec();
        assert!(ours.beat(lease.clone()).await);
        write(&ours, vec![open_session(7)]).await;
        let close = |session| Operation::CloseSession {
            session,
            owner: Owner::Own,
            found: Default::default(),
        };
        write(&ours, vec![close(7)]).await;
        assert!(ours.is_behind_own.get(), "it counts on being alone");

        theirs.refresh().await;
        let remove = Operation::RemoveGateway {
            gateway: 1,
            lease,
            found: None,
            has_sessions: true,
        };
        write(&theirs, vec![remove]).await;
        let row = |key: Vec<u8>| cluster.row(&key);
        assert_eq!(row(ours.replica.rows.gateway(1)), None, "it has ended");

        write(&ours, vec![open_session(8), close(7)]).await;
        assert!(ours.is_lost());
        sleep(Duration::from_millis(50)).await;
        let session = row(ours.replica.rows.session(8));
        assert_eq!(session, None, "nobody would ever end it");
    });
}

#[test]
fn who_asks_for_news_all_the_time_keeps_nobody_from_writing() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let ours = pipeline(&cluster, 1, None).await;
        cluster.set_delay(Duration::from_millis(1));
        let working = ours.clone();
        let _working = spawn("works", async move { working.work().await });
        let asking = |late: u64| {
            let ours = ours.clone();
            spawn("asks", async move {
                sleep(Duration::from_micros(500 * late)).await;
                while ours.refreshed().await.is_ok() {}
            })
        };
        let _asking = [asking(0), asking(1)];
        sleep(Duration::from_millis(20)).await;
        let (sender, receiver) = oneshot();
        let complete = move |_: &Replica, _, _| {
            let _ = sender.send(()); // it waits
        };
        ours.submit(open_session(7), Box::new(complete));
        let written = timeout(Duration::from_secs(10), receiver).await;
        assert!(written.is_some(), "it has not begun");
    });
}

#[test]
fn who_comes_back_all_the_time_keeps_nobody_from_writing() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let ours = pipeline(&cluster, 1, None).await;
        ours.queue.push(Queued::of_the_gateway(open_session(7)));
        for stranger in 100..102 {
            let take = Operation::TakeSession {
                session: stranger,
                timeout_ms: 4000,
                password: Vec::new(),
                found: None,
            };
            write(&ours, vec![take]).await;
        }
        let session = cluster.row(&ours.replica.rows.session(7));
        assert!(session.is_some(), "it waits behind those who come back");
    });
}

/// A process is stopped between the answer to its commit and the read of what was committed, for longer than the store
/// keeps a version.
#[test]
fn a_gateway_that_is_stopped_behind_a_commit_goes_on() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let ours = pipeline(&cluster, 1, None).await;
        let theirs = pipeline(&cluster, 2, Some(ours.replica.zxids)).await;
        let take = |session| Operation::TakeSession {
            session,
            timeout_ms: 4000,
            password: Vec::new(),
            found: None,
        };
        for (number, operation) in [open_session(7), take(100)].into_iter().enumerate() {
            write(&theirs, vec![open_session(10 + number as i64)]).await;
            ours.refresh().await;
            let (sender, receiver) = oneshot();
            let complete = move |_: &Replica, _, _| {
                let _ = sender.send(()); // it waits
            };
            ours.submit(operation, Box::new(complete));
            assert!(ours.begin().await, "there is something to begin");
            while !ours.has_landed() {
                ours.wake.notified().await;
            }
            write(&theirs, vec![open_session(20 + number as i64)]).await;
            cluster.set_oldest(cluster.version());
            let going_on = async {
                ours.land_all().await;
                // What has changed nothing has left no trace, and is executed again.
                while ours.begin().await {
                    ours.land_all().await;
                }
            };
            let ended = timeout(Duration::from_secs(10), going_on).await;
            assert!(ended.is_some(), "it reads at a version that is gone");
            assert!(receiver.await.is_ok(), "it is answered");
        }
        let session = cluster.row(&ours.replica.rows.session(7));
        assert!(session.is_some(), "what was committed is there");
    });
}
