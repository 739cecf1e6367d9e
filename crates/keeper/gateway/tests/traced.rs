//! A client that asks for it is told what its gateway has done with its last write, and when.

use super::gateways::{Gateway, ask, create, done, get, set_to};
use plinth_client::testing::MemoryCluster;
use plinth_keeper::Options;
use plinth_keeper::client::Client;
use plinth_keeper::trace::{self, Mark, Told};
use plinth_keeper::wire::{Answer, Code};
use plinth_runtime::real::block_on;

async fn last_write(client: &Client) -> Option<Told> {
    match done(client, get(trace::NODE)).await {
        Answer::Data(Some(data), _) => Told::parse(&data),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_is_traced_from_the_request_to_the_answer_for_who_has_asked() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateway = Gateway::start(&cluster).await;
        let (client, other) = (gateway.client().await, gateway.client().await);
        done(&client, create("/a")).await;
        assert_eq!(last_write(&client).await, None, "nobody has asked before");
        done(&client, set_to("/a", "1")).await;
        let told = last_write(&client).await.expect("it is told");
        let marks: Vec<Mark> = told.marks.iter().map(|(mark, _)| *mark).collect();
        assert_eq!(
            marks,
            [
                Mark::Queued,
                Mark::Taken,
                Mark::Loaded,
                Mark::Sent,
                Mark::Committed,
                Mark::Landing,
                Mark::Shown,
                Mark::Answered
            ]
        );
        assert!(told.marks.is_sorted_by_key(|(_, at)| *at), "{told:?}");
        assert_eq!(told.commit, None, "a cluster in memory has no proxies");
        let rows = trace::rows(&told, told.total() + 10);
        assert_eq!(
            rows.iter().map(|row| row.took).sum::<u64>(),
            told.total() + 10
        );
        // What others write is theirs.
        done(&other, set_to("/a", "2")).await;
        assert_eq!(last_write(&client).await, Some(told));
        assert_eq!(last_write(&other).await, None);
        // One that is refused is traced, too.
        assert_eq!(ask(&client, create("/a")).await, Err(Code::NODE_EXISTS));
        assert!(
            last_write(&client)
                .await
                .is_some_and(|told| told.total() > 0)
        );
    });
}

#[test]
fn a_gateway_that_is_a_plain_zookeeper_traces_nothing() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let options = Options {
            clickhouse: false,
            ..Options::default()
        };
        let gateway = Gateway::start_with(&cluster, options).await;
        let client = gateway.client().await;
        assert_eq!(ask(&client, get(trace::NODE)).await, Err(Code::NO_NODE));
    });
}
