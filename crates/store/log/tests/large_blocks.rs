//! Log servers whose disks hold blocks larger than a frame. Earlier releases wrote everything that shared a sync as
//! one block, whatever its size. Such blocks are read, and taken over by the next generation, in pieces.

use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::log_body::LogBodyBuilder;
use plinth_core::{Error, Tag, Uid, Version};
use plinth_log::disk_queue::{Block, DiskQueue};
use plinth_log::log_server::{Begin, Entry, VersionEntry};
use plinth_log::{creation, serve};
use plinth_protocol::log::{
    GetLogStatus, LogGeneration, LogSystem, Peek, PeekReply, RecruitLog, Seal,
};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sim::{Locality, MachineId, SimConfig, Simulation};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, disk};
use std::net::SocketAddr;
use std::path::Path;

const OLD: Uid = Uid(7);
const NEW: Uid = Uid(8);
const VERSIONS: Version = 8;
/// In each version: nearly the largest transaction.
const VALUE_BYTES: usize = 9_800_000;

fn at(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

fn value(version: Version) -> Vec<u8> {
    vec![version as u8; VALUE_BYTES]
}

/// Writes a log server's files as they were written when everything that shared a sync was one block.
async fn write_one_large_block() {
    disk::create_dir_all(Path::new("/data"))
        .await
        .expect("a directory");
    let mut queue = DiskQueue::create(Path::new("/data/log"), OLD)
        .await
        .expect("new");
    let mut block = Block::default();
    let begin = Entry::Begin(Begin {
        epoch: 1,
        prev_version: 0,
        start: 1,
    });
    block.push(|out| begin.put(out));
    for version in 1..=VERSIONS {
        let mut body = LogBodyBuilder::new();
        body.push(&[Tag(0), Tag(1)], &value(version));
        body.push(&[Tag(1)], b"for one of them");
        let entry = Entry::Version(VersionEntry {
            version,
            known_committed: 0,
            body: body.finish(),
        });
        block.push(|out| entry.put(out));
    }
    assert!(block.bytes() > 64 << 20);
    queue.commit(&block.finish()).await.expect("written");
}

fn nothing_known() -> Watch<Option<plinth_protocol::control::ClusterInfo>> {
    Watch::new(None)
}

/// Starts a process with the old log server, brought back from its files.
fn start_old(simulation: &Simulation, machine: MachineId) {
    simulation.start_process(machine, at(1), || {
        Box::pin(async {
            let transport = Transport::listen(at(1)).await.expect("listens");
            let prefix = Path::new("/data/log");
            let opened = serve::reopen(&transport, prefix, OLD, nothing_known()).await;
            let reopened = opened.expect("whole").expect("it was made");
            reopened.life.await;
        })
    });
}

/// Returns when the log server answers.
async fn wait_for(transport: &Transport, log: Interface) {
    loop {
        let asked = transport.call(&log.endpoint::<GetLogStatus>(), GetLogStatus {});
        match asked.await {
            Ok(_) => return,
            Err(Error::broken_promise | Error::connection_failed) => {
                plinth_runtime::sleep(Duration::from_millis(100)).await
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn read_all(transport: &Transport, log: Interface, tag: Tag) -> Vec<(Version, Vec<Bytes>)> {
    wait_for(transport, log).await;
    let (mut begin, mut found) = (1, Vec::new());
    while begin <= VERSIONS {
        let peek = Peek {
            tag,
            begin,
            bytes_max: 1 << 20,
            return_if_blocked: false,
        };
        let asked = transport.call(&log.endpoint::<Peek>(), peek).await;
        let reply: PeekReply = asked.expect("a reply that fits into a frame");
        assert!(reply.end > begin);
        begin = reply.end;
        found.extend(reply.messages.into_iter().map(|m| (m.version, m.runs)));
    }
    found
}

fn check(found: &[(Version, Vec<Bytes>)], runs: usize) {
    assert_eq!(found.len() as i64, VERSIONS);
    for (i, (version, messages)) in found.iter().enumerate() {
        assert_eq!(*version, i as Version + 1);
        assert_eq!(messages.len(), runs);
        assert!(messages[0] == value(*version));
    }
}

fn world() -> (Simulation, MachineId) {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let written = simulation.run_on(machine, write_one_large_block());
    written.expect("nothing kills it");
    start_old(&simulation, machine);
    (simulation, machine)
}

#[test]
fn a_block_larger_than_a_frame_is_read_in_replies_that_fit() {
    let (simulation, _) = world();
    let client = async {
        let transport = Transport::client();
        let log = Interface::new(at(1), OLD);
        check(&read_all(&transport, log, Tag(0)).await, 1);
        check(&read_all(&transport, log, Tag(1)).await, 2);
    };
    let ended = simulation.run_until(client, Duration::from_secs(600));
    ended.expect("it comes to its end");
}

#[test]
fn a_block_larger_than_a_frame_is_taken_over_by_the_next_generation() {
    let (simulation, machine) = world();
    simulation.start_process(machine, at(2), || {
        Box::pin(async {
            let transport = Transport::listen(at(2)).await.expect("listens");
            let generation = |id, address, epoch, start, recovered_to| LogGeneration {
                epoch,
                logs: vec![Interface::new(address, id)],
                replication: 1,
                tags_a_set: 1,
                start,
                recovered_to,
            };
            let old = generation(OLD, at(1), 1, 1, 0);
            wait_for(&transport, old.logs[0]).await;
            let sealed = transport.call(&old.logs[0].endpoint::<Seal>(), Seal { epoch: 2 });
            let sealed = sealed.await.expect("sealed");
            assert_eq!(sealed.durable.version(), VERSIONS);
            let request = RecruitLog {
                id: NEW,
                epoch: 2,
                generation: generation(NEW, at(2), 2, 1, VERSIONS),
                place: 0,
                old: LogSystem {
                    generations: vec![old],
                },
                tags: vec![Tag(0), Tag(1)],
            };
            let prefix = Path::new("/data/new");
            let made = creation::create(&transport, prefix, request, nothing_known()).await;
            made.expect("it has copied everything").await;
        })
    });
    let client = async {
        let transport = Transport::client();
        let log = Interface::new(at(2), NEW);
        check(&read_all(&transport, log, Tag(0)).await, 1);
        check(&read_all(&transport, log, Tag(1)).await, 2);
    };
    let ended = simulation.run_until(client, Duration::from_secs(600));
    ended.expect("it comes to its end");
}

#[test]
fn a_log_server_that_dies_while_it_copies_was_never_made() {
    let (simulation, machine) = world();
    let reopened = simulation.run_on(machine, async {
        let transport = Transport::client();
        let mut queue = DiskQueue::create(Path::new("/data/half"), NEW)
            .await
            .expect("new");
        let mut block = Block::default();
        let begin = Entry::Begin(Begin {
            epoch: 2,
            prev_version: 0,
            start: 1,
        });
        block.push(|out| begin.put(out));
        block.push(|out| Entry::Copying.put(out));
        queue.commit(&block.finish()).await.expect("written");
        drop(queue);
        let prefix = Path::new("/data/half");
        let opened = serve::reopen(&transport, prefix, NEW, nothing_known()).await;
        opened.expect("whole").is_some()
    });
    assert_eq!(reopened, Some(false));
}
