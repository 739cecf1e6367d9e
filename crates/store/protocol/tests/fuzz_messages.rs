//! Fuzz targets: every kind of message that may arrive at a socket, against damaged input. No input causes a panic,
//! and input that decodes gives the same bytes when it is encoded again.

use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::testing::fuzz;
use plinth_core::transaction_tag::TransactionTag;
use plinth_core::{DatabaseConfig, EngineKind, KeyRange, KeySelector, Tag, Uid};
use plinth_protocol::database::DatabaseId;
use plinth_protocol::token::Token;
use plinth_protocol::{control::*, coordination::*, log::*, rate::*, storage::*, transaction::*};
use plinth_rpc::{Interface, Place};

fn fuzz_message<M: Codec>(samples: impl IntoIterator<Item = M>) {
    let name = std::any::type_name::<M>();
    let corpus: Vec<Vec<u8>> = samples.into_iter().map(|m| m.to_bytes().to_vec()).collect();
    fuzz(name, 1, corpus, |input| {
        let Some(message) = M::from_bytes(Bytes::copy_from_slice(input)) else {
            return false;
        };
        let written = message.to_bytes();
        let again = M::from_bytes(written.clone()).expect("what was written can be read");
        assert_eq!(again.to_bytes(), written, "{name}: it changed on the way");
        true
    });
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn interface(n: u16) -> Interface {
    Interface::new(([127, 0, 0, 1], n).into(), Uid(u128::from(n)))
}

fn log_system(generations: u64) -> LogSystem {
    let generation = |epoch| LogGeneration {
        epoch,
        logs: (0..epoch as u16 % 4).map(interface).collect(),
        replication: 2,
        tags_a_set: 3,
        start: epoch as i64 * 100,
        recovered_to: 99,
    };
    LogSystem {
        generations: (0..generations).map(generation).collect(),
    }
}

fn token() -> Token {
    Token::new(bytes("a.b.c")).expect("short")
}

fn tag() -> TransactionTag {
    TransactionTag::new(b"web").expect("short")
}

fn coordinated_value() -> CoordinatedValue {
    CoordinatedValue {
        successor: "a:b_2@10.0.0.1:4500".into(),
        moved: false,
        state: bytes("state"),
    }
}

fn range() -> KeyRange {
    KeyRange {
        begin: bytes("a"),
        end: bytes("b"),
    }
}

#[test]
fn damaged_log_messages_are_refused_or_mean_what_they_say() {
    fuzz_message([Push {
        epoch: 1,
        prev_version: 2,
        version: 3,
        known_committed: 2,
        body: bytes("body"),
    }]);
    fuzz_message([Peek {
        tag: Tag(3),
        begin: 1,
        bytes_max: 1000,
        return_if_blocked: true,
    }]);
    fuzz_message((0..4).map(|count| {
        PeekReply {
            messages: (0..count)
                .map(|version| VersionedMessages {
                    version,
                    runs: vec![bytes("run"); version as usize],
                })
                .collect(),
            end: 9,
            known_committed: 8,
            popped: 7,
        }
    }));
    fuzz_message([CopyTail {
        tags: vec![Tag(1), Tag::SYSTEM],
        begin: 5,
        to: 9,
        bytes_max: 1000,
    }]);
    fuzz_message((0..4).map(|count| {
        let version = |version| CopiedVersion {
            version,
            body: bytes("body"),
        };
        CopyTailReply {
            versions: (0..count).map(version).collect(),
            end: 9,
        }
    }));
    fuzz_message([CopyProgress { pieces: 3, to: 9 }]);
    fuzz_message((0..4).map(log_system));
    fuzz_message([RecruitLog {
        id: Uid(4),
        epoch: 7,
        generation: log_system(3).generations.remove(2),
        place: 1,
        old: log_system(2),
        tags: vec![Tag(1), Tag::SYSTEM],
    }]);
    fuzz_message([LogStatus {
        epoch: 1,
        version: 2,
        durable: 2,
        known_committed: 1,
        sealed: false,
        queue_bytes: 1 << 40,
        memory_bytes: 5,
        sync_s: 0.001,
        needed_from: 1,
        disk_full: true,
    }]);
}

#[test]
fn damaged_transaction_messages_are_refused_or_mean_what_they_say() {
    fuzz_message([GetReadVersion {
        count: 3,
        priority: PRIORITY_BATCH,
        tags: vec![(tag(), false), (tag(), true)],
    }]);
    fuzz_message([Commit {
        read_version: 5,
        reads: bytes("reads"),
        writes: bytes("writes"),
        mutations: bytes("mutations"),
        flags: FLAG_SYSTEM_KEYS,
        places: 3,
        token: token(),
    }]);
    fuzz_message([GetKeyLocations {
        range: range(),
        reverse: true,
        limit: 10,
        token: Token::NONE,
    }]);
    fuzz_message((0..3).map(|count| KeyLocations {
        shards: vec![(range(), vec![interface(1); count]); count],
    }));
    fuzz_message([RecruitCommitProxy {
        id: Uid(1),
        epoch: 2,
        sequencer: interface(1),
        resolvers: vec![(bytes(""), interface(2)), (bytes("m"), interface(3))],
        log_system: log_system(2),
        recovered_to: 5,
        recovery_version: 6,
        first: true,
        new_database: false,
    }]);
    fuzz_message([LoadSystemState {
        number: 1,
        rows: vec![(bytes("conf"), bytes("double"))],
        last: true,
    }]);
}

#[test]
fn damaged_resolver_messages_are_refused_or_mean_what_they_say() {
    let transaction = |system: bool| ResolveTransaction {
        read_version: 4,
        reads: bytes("reads"),
        writes: bytes("writes"),
        system_mutations: system.then(|| bytes("system")),
        lock_aware: system,
        report_conflicts: system,
    };
    fuzz_message([ResolveBatch {
        epoch: 1,
        proxy: Uid(3),
        prev_version: 4,
        version: 5,
        last_received: 3,
        transactions: vec![transaction(false), transaction(true)],
    }]);
    fuzz_message([ResolveReply {
        verdicts: Bytes::from_static(&[VERDICT_COMMITTED, VERDICT_CONFLICT]),
        conflicting: vec![(1, vec![range()])],
        system: vec![SystemTransactions {
            version: 4,
            transactions: [(true, "set"), (false, "clear")]
                .map(|(admitted, mutations)| SystemTransaction {
                    admitted,
                    lock_aware: !admitted,
                    mutations: bytes(mutations),
                })
                .into(),
        }],
    }]);
    fuzz_message([RecruitResolver {
        id: Uid(1),
        epoch: 2,
        recovery_version: 3,
        proxies: vec![Uid(4), Uid(5)],
    }]);
}

#[test]
fn damaged_storage_messages_are_refused_or_mean_what_they_say() {
    fuzz_message([None, Some(bytes("value"))].map(|value| GetReply { value }));
    fuzz_message([GetRange {
        begin: bytes("a"),
        end: bytes("b"),
        version: 5,
        limit_rows: 10,
        limit_bytes: 1000,
        reverse: true,
        token: token(),
    }]);
    fuzz_message([GetKey {
        selector: KeySelector {
            key: bytes("key"),
            or_equal: true,
            offset: -3,
        },
        begin: bytes("a"),
        end: bytes("b"),
        version: 5,
        token: token(),
    }]);
    fuzz_message([None, Some(bytes("key"))].map(|key| GetKeyReply { key, offset: -1 }));
    fuzz_message([Watch {
        key: bytes("key"),
        value: Some(bytes("value")),
        version: 5,
        token: token(),
    }]);
    fuzz_message([RecruitStorage {
        id: Uid(1),
        tag: Tag(2),
        engine: EngineKind::Ssd,
        after: 3,
        cluster: "a:b".into(),
    }]);
    let range = KeyRange::new("a", "b");
    fuzz_message([GetShardState {
        range: range.clone(),
        version: 3,
    }]);
    fuzz_message([GetRangeMetrics {
        ranges: vec![range.clone(), range.clone()],
    }]);
    let metric = RangeMetric {
        bytes: 1,
        write_bytes_a_second: 2,
    };
    fuzz_message([RangeMetrics {
        metrics: vec![metric.clone(), metric],
    }]);
    fuzz_message([GetSplitPoints {
        range,
        bytes: 1,
        write_bytes_a_second: 0,
    }]);
    fuzz_message([SplitPoints {
        keys: vec![bytes("a"), bytes("b")],
    }]);
}

#[test]
fn the_rows_of_a_damaged_range_reply_are_refused_or_all_there() {
    let reply = |count: u32| {
        let mut rows = plinth_core::output::Output::copying();
        for i in 0..count {
            Bytes::from(format!("key{i}")).put(&mut rows);
            Bytes::from(vec![i as u8; i as usize * 9]).put(&mut rows);
        }
        let reply = GetRangeReply {
            rows: rows.into_bytes(),
            row_count: count,
            more: count > 2,
        };
        reply.to_bytes().to_vec()
    };
    fuzz("range reply", 1, (0..6).map(reply), |input| {
        let reply = GetRangeReply::from_bytes(Bytes::copy_from_slice(input));
        let rows = reply.as_ref().and_then(GetRangeReply::decode_rows);
        if let (Some(reply), Some(rows)) = (&reply, &rows) {
            assert_eq!(rows.len(), reply.row_count as usize);
            let bytes: usize = rows.iter().map(|(k, v)| k.len() + v.len()).sum();
            assert!(bytes <= reply.rows.len());
        }
        rows.is_some()
    });
}

fn older_copy() -> OlderCopy {
    OlderCopy {
        id: Uid(8),
        version: 9,
        log_begins: 10,
    }
}

fn damaged_storage() -> DamagedStorage {
    DamagedStorage {
        id: Uid(5),
        file: "/data/storage-5.redb".into(),
        parts: vec![DamagedPart::new(8192, b"a", b"b")],
        more: 3,
    }
}

#[test]
fn damaged_control_messages_and_the_coordinated_state_are_refused_or_mean_what_they_say() {
    fuzz_message([RegisterWorker {
        worker: interface(1),
        name: Some(Place::Named("db".into(), 4500)),
        declared: ProcessClass::Log,
        given: Some(ProcessClass::Storage),
        locality: Locality {
            process: Uid(1),
            machine: "m".into(),
            zone: "z".into(),
            data_hall: "h".into(),
            data_center: String::new(),
        },
        logs: vec![(Uid(3), 4)],
        storage: vec![(Uid(5), Tag(6))],
        damaged: vec![damaged_storage()],
        older: vec![older_copy()],
        unreachable: vec![([127, 0, 0, 1], 3).into()],
        disk: Some(SickDisk {
            directory: "/d".into(),
            what: "a sync does not come back".into(),
            since_ms: 7,
            works: true,
        }),
        epoch: 9,
        database: Uid(10),
        holds_data: true,
        lost_registers: true,
    }]);
    fuzz_message([ClusterInfo {
        id: 1,
        controller: interface(1),
        epoch: 2,
        accepting: true,
        database: DatabaseId {
            id: Uid(9),
            is_former: true,
        },
        log_system: log_system(2),
        servers: vec![(Uid(3), Tag(4))],
        next_tag: 5,
        ratekeeper: Some(interface(7)),
        distributor: None,
        classes: vec![(Uid(8), ProcessClass::Stateless)],
        knobs: vec![("moves_max".into(), "7".into())],
        client: ClientInfo {
            id: 3,
            grv_proxies: vec![interface(1)],
            commit_proxies: vec![interface(2), interface(3)],
        },
    }]);
    fuzz_message([DatabaseState {
        format: 1,
        epoch: 2,
        database: DatabaseId {
            id: Uid(9),
            is_former: false,
        },
        is_confirmed: true,
        config: DatabaseConfig::default(),
        log_system: log_system(3),
    }]);
    fuzz_message([FormerDatabaseState {
        format: 2,
        epoch: 2,
        config: DatabaseConfig::default(),
        log_system: log_system(3),
    }]);
}

#[test]
fn damaged_coordination_messages_are_refused_or_mean_what_they_say() {
    let generation = Generation {
        number: 5,
        writer: Uid(6),
    };
    fuzz_message(
        [None, Some(coordinated_value())].map(|value| ReadRegisterReply {
            read_generation: generation,
            write_generation: Generation::default(),
            value,
        }),
    );
    fuzz_message([WriteRegister {
        register: "a:b_2".into(),
        generation,
        value: coordinated_value(),
    }]);
    let candidate = Candidate {
        controller: interface(4),
        priority: 1,
    };
    fuzz_message([Nominate {
        register: "a:b_2".into(),
        candidate: candidate.clone(),
        leading: true,
    }]);
    fuzz_message([None, Some(candidate)].map(|leader| GetLeaderReply {
        leader,
        is_coordinator: true,
        successor: "a:b_3@10.0.0.1:4500".into(),
        lost: Some(Uid(4)),
        database: Some(Uid(5)),
    }));
    fuzz_message([ChangeCoordinators {
        coordinators: vec![Place::At(([127, 0, 0, 1], 4500).into())],
    }]);
    fuzz_message([ChangeCoordinatorsReply {
        refusal: "why not".into(),
    }]);
}

#[test]
fn damaged_messages_about_versions_and_resolvers_are_refused_or_mean_what_they_say() {
    fuzz_message([GetCommitVersion {
        proxy: Uid(1),
        request_number: 7,
        partition: 5,
    }]);
    let partition = || Partition {
        after: 6,
        begins: vec![bytes(""), bytes("m")],
    };
    fuzz_message([0, 2].map(|count| CommitVersion {
        version: 9,
        prev_version: 8,
        partitions: (0..count).map(|_| partition()).collect(),
    }));
    fuzz_message([ResolverLoad {
        judged: 1000,
        sample: vec![bytes("a"), bytes("b")],
    }]);
}

#[test]
fn damaged_messages_about_rates_are_refused_or_mean_what_they_say() {
    fuzz_message([GetRate {
        proxy: Uid(3),
        admitted: 1 << 50,
        tags: vec![TagCount {
            tag: tag(),
            admitted: 9,
        }],
    }]);
    let rate = || TagRate {
        tag: tag(),
        priority: 1,
        rate: 0.5,
    };
    fuzz_message([1.5, f64::INFINITY].map(|default| Rate {
        default,
        batch: 0.0,
        tags: vec![rate()],
    }));
    fuzz_message([CommitProxyStatus {
        latency_s: 0.25,
        arrived: 8,
        answered: 7,
        bytes_held: 1 << 20,
    }]);
    fuzz_message([RateStatus {
        default: 1000.0,
        batch: 500.0,
        admitted: 990.0,
        pressure: 1.01,
        reason: "workload".into(),
        server: Uid(9),
        manual_tags: 1,
        auto_tags: vec![rate()],
    }]);
    fuzz_message([0, 3].map(|found| DistributorStatus {
        least_copies: 3,
        rounds: 2,
        round_ended_s: 1 << 31,
        bytes: 1 << 40,
        found,
        differences: vec!["replicas differ".into(); found as usize],
        moving_bytes: 5,
        moved_bytes: 6,
    }));
    fuzz_message([GetRangeSummary {
        begin: bytes("a"),
        end: bytes("b"),
        version: 5,
        limit_bytes: 1000,
    }]);
    fuzz_message([RangeSummary {
        row_count: 3,
        bytes: 90,
        checksum: 0xdead_beef,
        last_key: bytes("az"),
        more: true,
    }]);
    fuzz_message([RecruitRatekeeper {
        id: Uid(1),
        epoch: 2,
        controller: interface(3),
        cluster: "a:b".into(),
    }]);
}

#[test]
fn damaged_messages_about_processes_are_refused_or_mean_what_they_say() {
    fuzz_message([WorkerStatus {
        disk_total: 1 << 40,
        disk_free: 1 << 30,
        loop_lag_ms: 0.3,
    }]);
    fuzz_message([GetReach {
        places: vec![([127, 0, 0, 1], 3).into()],
    }]);
    fuzz_message([Reach {
        answered: vec![true, false],
    }]);
    let count = Count {
        name: "cpu_us".into(),
        total: 7,
        hz: 0.5,
    };
    fuzz_message([ProcessStatus {
        uptime_s: 1.5,
        command_line: "plinth server".into(),
        resident_bytes: 1,
        virtual_bytes: 2,
        memory_limit_bytes: 3,
        machine_memory_bytes: 4,
        machine_memory_available_bytes: 5,
        counts: vec![count.clone()],
        roles: vec![RoleCounts {
            role: Uid(9),
            counts: vec![count],
        }],
        latencies: vec![RequestLatency {
            request: "Get".into(),
            count: 3,
            sum_s: 0.01,
            buckets: vec![0, 1, 2],
        }],
    }]);
}

#[test]
fn a_length_that_lies_costs_no_memory() {
    // The length field announces up to four billion messages; the input has a few bytes.
    for length in [&[0xff; 4][..], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0xff; 10]] {
        let input = Bytes::copy_from_slice(length);
        assert_eq!(PeekReply::from_bytes(input.clone()), None);
        assert_eq!(LogSystem::from_bytes(input.clone()), None);
        assert_eq!(KeyLocations::from_bytes(input), None);
    }
}
