//! Reads behind writes of the same client are answered in the middle of a batch, whatever is not in memory yet.

use super::gateways::{Gateway, create_with, done, get, set_to};
use plinth_client::testing::MemoryCluster;
use plinth_keeper::client::Client;
use plinth_keeper::wire::{Acl, Answer, Request, create_flags};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, sleep, spawn};

/// Data of this size is not in the stream of changes, but in the node's row.
const IN_ROW: usize = 500;
/// Data of this size has rows of its own.
const LONG: usize = 5000;

/// Waits until the gateways count on being alone: they do not read what they have written themselves.
async fn calm() {
    sleep(Duration::from_millis(1500)).await;
}

fn create(path: &str, data: Vec<u8>) -> Request {
    create_with(path, data, create_flags::PERSISTENT)
}

#[test]
fn a_list_that_the_gateways_own_last_batch_has_changed_is_read_behind_a_write() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let before = Gateway::start(&cluster).await;
        let other = before.client().await;
        for i in 0..20 {
            done(&other, create(&format!("/{i}"), Vec::new())).await;
            done(&other, create(&format!("/{i}/old"), Vec::new())).await;
        }
        // One that has not seen them come does not know the lists.
        let gateway = Gateway::start(&cluster).await;
        let client = gateway.client().await;
        calm().await;
        for i in 0..20 {
            done(&client, create(&format!("/{i}/a"), Vec::new())).await;
            let written = client.submit(create(&format!("/{i}/b"), Vec::new()));
            let path = format!("/{i}").as_str().into();
            let read = client.submit(Request::GetChildren { path, watch: false });
            written.await.expect("created");
            let (_, answer) = read.await.expect("listed");
            let names = ["a", "b", "old"].map(Into::into).to_vec();
            assert_eq!(answer, Answer::Children(names));
        }
    });
}

#[test]
fn long_data_whose_access_list_the_gateway_has_just_changed_is_read_behind_a_write() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let gateways = [
            Gateway::start(&cluster).await,
            Gateway::start(&cluster).await,
        ];
        let (client, other) = (gateways[0].client().await, gateways[1].client().await);
        for i in 0..20 {
            done(&other, create(&format!("/{i}"), vec![i; LONG])).await;
        }
        calm().await;
        for i in 0..20 {
            let path = format!("/{i}");
            let set_acl = Request::SetAcl {
                path: path.as_str().into(),
                acl: Acl::open(),
                version: -1,
            };
            done(&client, set_acl).await;
            let written = client.submit(create(&format!("/{i}/b"), Vec::new()));
            let read = client.submit(get(&path));
            written.await.expect("created");
            let (_, answer) = read.await.expect("read");
            assert!(matches!(answer, Answer::Data(Some(data), _) if data == vec![i; LONG]));
        }
    });
}

/// Reads `/hot` at one gateway, while a client of another one changes its data all the time.
async fn reads_are_whole(read: impl AsyncFn(&Client) -> Answer) {
    for sizes in [[IN_ROW, IN_ROW], [LONG, LONG], [IN_ROW, LONG]] {
        let size_of = move |version: i32| sizes[version as usize % 2];
        let cluster = MemoryCluster::new();
        let gateways = [
            Gateway::start(&cluster).await,
            Gateway::start(&cluster).await,
        ];
        let (client, other) = (gateways[0].client().await, gateways[1].client().await);
        done(&client, create("/hot", vec![0; size_of(0)])).await;
        done(&client, create("/own", Vec::new())).await;
        let changes = spawn("changes", async move {
            for i in 1.. {
                done(&other, set_to("/hot", vec![(i % 251) as u8; size_of(i)])).await;
            }
        });
        let (mut newest, mut reads) = (0, 0);
        // A read from memory may be faster than many changes: there are reads until there were changes, too.
        while reads < 300 || newest <= 10 {
            reads += 1;
            assert!(reads < 1_000_000, "only {newest} changes");
            let Answer::Data(data, stat) = read(&client).await else {
                panic!("no data");
            };
            let expected = vec![(stat.version % 251) as u8; size_of(stat.version)];
            assert_eq!(data, Some(expected.into()), "of version {}", stat.version);
            assert!(stat.version >= newest, "{} {newest}", stat.version);
            newest = stat.version;
        }
        drop(changes);
    }
}

#[test]
fn data_that_another_gateway_changes_all_the_time_is_read_whole() {
    block_on(reads_are_whole(async |client| {
        done(client, get("/hot")).await
    }));
}

#[test]
fn data_that_another_gateway_changes_all_the_time_is_read_behind_writes() {
    block_on(reads_are_whole(async |client| {
        let written = client.submit(set_to("/own", Vec::new()));
        let read = client.submit(get("/hot"));
        let written_again = client.submit(set_to("/own", Vec::new()));
        written.await.expect("written");
        let (_, answer) = read.await.expect("read");
        written_again.await.expect("written");
        answer
    }));
}
