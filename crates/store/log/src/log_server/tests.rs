use super::*;
use plinth_core::codec::Codec;
use plinth_runtime::disk;
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use std::path::Path;

/// A block, with the proof of a sync of a simulated disk.
fn on_disk(segment: u32, offset: u32) -> Persisted {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let synced = simulation.run_on(machine, disk::sync_dir(Path::new("/")));
    let synced = synced.expect("it ends").expect("the disk works");
    Persisted::at(Position { segment, offset }, synced)
}
use plinth_core::log_body::LogBodyBuilder;

fn server() -> LogServer {
    LogServer::new(&Begin {
        epoch: 1,
        prev_version: 10,
        start: 5,
    })
}

fn body(tags: &[u32], data: &[u8]) -> Bytes {
    let mut builder = LogBodyBuilder::new();
    builder.push(&tags.iter().map(|t| Tag(*t)).collect::<Vec<_>>(), data);
    builder.finish()
}

fn push(prev: Version, version: Version, body: Bytes) -> Push {
    Push {
        epoch: 1,
        prev_version: prev,
        version,
        known_committed: prev,
        body,
    }
}

fn versions(peeked: Peeked) -> (Vec<Version>, Version) {
    let Peeked::Reply(reply) = peeked else {
        panic!("{peeked:?}")
    };
    (
        reply.messages.iter().map(|m| m.version).collect(),
        reply.end,
    )
}

#[test]
fn pushes_are_taken_along_the_chain_whatever_order_they_come_in() {
    let mut s = server();
    assert!(
        s.push(push(20, 30, body(&[1], b"c")))
            .expect("waits")
            .is_empty()
    );
    let taken = s.push(push(10, 20, body(&[1], b"b"))).expect("taken");
    assert_eq!(
        taken.iter().map(|e| e.version).collect::<Vec<_>>(),
        [20, 30]
    );
    assert!(
        s.push(push(10, 20, body(&[1], b"b")))
            .expect("a duplicate")
            .is_empty()
    );
    assert_eq!(versions(s.peek(Tag(1), 1, 100)), (vec![20, 30], 31));
    assert_eq!(versions(s.peek(Tag(2), 1, 100)), (vec![], 31));
    assert!(matches!(s.peek(Tag(1), 31, 100), Peeked::Blocked));
}

#[test]
fn a_push_with_a_malformed_body_is_refused_alone_and_at_once() {
    let mut s = server();
    let malformed = Bytes::from_static(&[1]);
    let refused = s.push(push(20, 30, malformed));
    assert_eq!(refused.err(), Some(Error::client_invalid_operation));
    let taken = s.push(push(10, 20, body(&[1], b"b"))).expect("taken");
    assert_eq!((taken.len(), s.version()), (1, 20));
    let taken = s.push(push(20, 30, body(&[1], b"c"))).expect("taken");
    assert_eq!((taken.len(), s.version()), (1, 30));
}

#[test]
fn a_sealed_server_takes_nothing_and_still_answers() {
    let mut s = server();
    s.push(push(10, 20, body(&[1], b"b"))).expect("taken");
    s.seal();
    assert_eq!(
        s.push(push(20, 30, body(&[1], b"c"))),
        Err(Error::tlog_stopped)
    );
    assert_eq!(versions(s.peek(Tag(1), 1, 100)).0, [20]);
}

#[test]
fn a_reply_that_reaches_its_limit_ends_before_the_version_it_leaves_out() {
    let mut s = server();
    for i in 1..4 {
        s.push(push(i * 10, i * 10 + 10, body(&[1], b"0123456789")))
            .expect("taken");
    }
    assert_eq!(versions(s.peek(Tag(1), 1, 10)), (vec![20], 30));
    assert_eq!(versions(s.peek(Tag(1), 30, 20)), (vec![30, 40], 41));
}

#[test]
fn what_is_popped_leaves_memory_and_what_is_spilled_is_read_from_disk() {
    let mut s = server();
    for i in 1..5 {
        s.push(push(i * 10, i * 10 + 10, body(&[1, 2], b"0123456789")))
            .expect("taken");
        let version = i * 10 + 10;
        s.became_durable(&on_disk(0, i as u32), version, version, 1 << 20);
    }
    assert_eq!(s.memory_bytes(), 80);
    assert!(s.pop(Tag(1), 31));
    assert_eq!(s.memory_bytes(), 60);
    assert_eq!(s.needed_from(), 20);
    s.spill(40);
    assert!(s.memory_bytes() <= 40);
    assert!(matches!(s.peek(Tag(2), 20, 100), Peeked::OnDisk));
    assert_eq!(s.position_of(20).map(|position| position.offset), Some(1));
    assert_eq!(versions(s.peek(Tag(1), 31, 100)).0, [40, 50]);
    s.pop(Tag(2), 41);
    assert_eq!(
        s.cut(),
        Some(Position {
            segment: 0,
            offset: 3
        }),
        "version 40 is needed by tag 1"
    );
}

#[test]
fn a_server_rebuilt_from_its_entries_has_what_it_had() {
    let mut recovery = Recovery::default();
    let begin = Entry::Begin(Begin {
        epoch: 7,
        prev_version: 10,
        start: 5,
    });
    let version = |v: Version| {
        Entry::Version(VersionEntry {
            version: v,
            known_committed: v - 1,
            body: body(&[1], b"x"),
        })
    };
    let popped = Entry::Popped(Popped {
        tag: Tag(1),
        version: 20,
    });
    let blocks = [
        vec![begin.clone(), version(15), version(20)],
        vec![begin, version(25), popped],
    ];
    for (i, block) in blocks.iter().enumerate() {
        let decoded: Vec<Entry> = block
            .iter()
            .map(|e| Entry::from_bytes(e.to_bytes()).expect("whole"))
            .collect();
        recovery
            .block(&on_disk(0, i as u32), &decoded, 10, 1000)
            .expect("consistent");
    }
    let mut server = recovery.finish().expect("whole").expect("it began");
    assert_eq!(
        (
            server.epoch(),
            server.version(),
            server.durable().version(),
            server.known_committed()
        ),
        (7, 25, 25, 24)
    );
    assert_eq!(versions(server.peek(Tag(1), 1, 100)).0, [20, 25]);
    assert!(
        server.push(push(25, 30, Bytes::new())).is_err(),
        "it is sealed"
    );
}

#[test]
fn a_segment_that_is_gone_and_was_never_popped_is_damage() {
    let recovered = |blocks: &[(u32, u32)]| {
        let mut recovery = Recovery::default();
        for (segment, oldest) in blocks {
            let begin = Entry::Begin(server().begin_entry(10));
            let entries = [begin, Entry::Oldest(*oldest)];
            recovery.block(&on_disk(*segment, 64), &entries, 10, 1000)?;
        }
        recovery.finish().map(|server| server.is_some())
    };
    assert_eq!(recovered(&[(0, 0), (1, 0)]), Ok(true));
    assert_eq!(recovered(&[(2, 0), (3, 2)]), Ok(true), "popped since");
    assert_eq!(recovered(&[(2, 0), (3, 1)]), Err(Error::file_corrupt));
}

#[test]
fn what_was_popped_is_known_when_the_blocks_that_said_so_are_gone() {
    let mut s = server();
    s.push(push(10, 20, body(&[1, 2], b"b"))).expect("taken");
    s.pop(Tag(1), 21);
    let begin = Entry::Begin(s.begin_entry(20));
    let mut entries = vec![begin, Entry::Oldest(3)];
    entries.extend(s.all_popped().map(Entry::Popped));
    let mut recovery = Recovery::default();
    let block = on_disk(3, 64);
    recovery.block(&block, &entries, 10, 1000).expect("whole");
    let server = recovery.finish().expect("whole").expect("it began");
    // Otherwise a storage server that has lost versions 11 to 20 would be told that there was nothing.
    assert_eq!(server.empty_reply(Tag(1), 21).popped, 21);
    assert_eq!(server.empty_reply(Tag(2), 21).popped, 0);
}

/// Fuzz target: what a block of the disk queue may hold.
#[test]
fn a_damaged_entry_is_refused_or_means_what_it_says() {
    let corpus = [
        Entry::Begin(server().begin_entry(9)),
        Entry::Version(VersionEntry {
            version: 11,
            known_committed: 10,
            body: body(&[1, 2], b"data"),
        }),
        Entry::Seal(5),
        Entry::Popped(Popped {
            tag: Tag(1),
            version: 3,
        }),
        Entry::Copying,
        Entry::Copied,
        Entry::Oldest(7),
    ];
    let corpus = corpus.map(|entry| entry.to_bytes().to_vec());
    plinth_core::testing::fuzz("log entry", 1, corpus, |input| {
        let Some(entry) = Entry::from_bytes(Bytes::copy_from_slice(input)) else {
            return false;
        };
        assert_eq!(Entry::from_bytes(entry.to_bytes()), Some(entry.clone()));
        if let Entry::Version(version) = &entry {
            log_body::parse(&version.body);
        }
        true
    });
}
