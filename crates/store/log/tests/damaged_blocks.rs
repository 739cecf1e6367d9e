//! A log server that runs, and a block in one of its files that has rotted meanwhile.

use plinth_core::codec::Codec;
use plinth_core::log_body::LogBodyBuilder;
use plinth_core::{Error, Result, Tag, Uid, Version};
use plinth_log::disk_queue::{Block, DiskQueue};
use plinth_log::log_server::{Begin, Entry, VersionEntry};
use plinth_log::serve;
use plinth_protocol::log::CopyTail;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sim::{Locality, SimConfig, Simulation, control};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, disk};
use std::net::SocketAddr;
use std::path::Path;

const LOG: Uid = Uid(7);
const VERSIONS: Version = 20;
/// Bytes of the header of the first block in a segment.
const FIRST_HEADER: std::ops::Range<u64> = 64..88;

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 1).into()
}

/// Writes the files of a log server: a small block for each version.
async fn write_blocks() {
    let directory = Path::new("/data");
    disk::create_dir_all(directory).await.expect("a directory");
    let created = DiskQueue::create(&directory.join("log"), LOG).await;
    let mut queue = created.expect("new");
    for version in 1..=VERSIONS {
        let mut block = Block::default();
        let begin = Entry::Begin(Begin {
            epoch: 1,
            prev_version: version - 1,
            start: 1,
        });
        block.push(|out| begin.put(out));
        let mut body = LogBodyBuilder::new();
        body.push(&[Tag(1)], b"a row");
        let entry = Entry::Version(VersionEntry {
            version,
            known_committed: 0,
            body: body.finish(),
        });
        block.push(|out| entry.put(out));
        queue.commit(&block.finish()).await.expect("written");
    }
}

/// The versions in the copy of everything from `begin` on.
async fn copy(transport: &Transport, begin: Version) -> Result<Vec<Version>> {
    let request = CopyTail {
        tags: vec![Tag(1)],
        begin,
        to: VERSIONS,
        bytes_max: 1 << 20,
    };
    let endpoint = Interface::new(address(), LOG).endpoint::<CopyTail>();
    let reply = transport.call(&endpoint, request).await?;
    Ok(reply.versions.iter().map(|copied| copied.version).collect())
}

#[test]
fn the_end_of_a_log_is_copied_although_an_older_block_is_damaged() {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    simulation.start_process(machine, address(), || {
        Box::pin(async {
            write_blocks().await;
            let transport = Transport::listen(address()).await.expect("listens");
            let prefix = Path::new("/data/log");
            let opened = serve::reopen(&transport, prefix, LOG, Watch::new(None)).await;
            let reopened = opened.expect("whole").expect("it was made");
            reopened.life.await;
        })
    });
    let client = async move {
        plinth_runtime::sleep(Duration::from_secs(5)).await; // it has begun
        let transport = Transport::client();
        let all: Vec<Version> = (1..=VERSIONS).collect();
        assert_eq!(copy(&transport, 1).await, Ok(all));
        let file = Path::new("/data/log.00000000");
        assert!(control().flip_bit_in_file(machine, file, FIRST_HEADER));
        assert_eq!(copy(&transport, 1).await, Err(Error::file_corrupt));
        let end: Vec<Version> = (2..=VERSIONS).collect();
        assert_eq!(copy(&transport, 2).await, Ok(end));
    };
    let ended = simulation.run_until(client, Duration::from_secs(60));
    ended.expect("it comes to its end");
}
