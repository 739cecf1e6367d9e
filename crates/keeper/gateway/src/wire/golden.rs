//! Every message, byte for byte as ZooKeeper's own Java classes (3.8.0) write it. None of these bytes comes from our
//! encoder. The fields of the messages are the same in 3.9.

use super::*;
use bytes::{Bytes, BytesMut};
use plinth_core::output::Output;

pub(super) const ZXID: i64 = 0x1122_3344_5566_7788;
pub(super) const STAT: Stat = Stat {
    czxid: 1,
    mzxid: 2,
    ctime: 3,
    mtime: 4,
    version: 5,
    cversion: 6,
    aversion: 7,
    ephemeral_owner: 8,
    data_length: 9,
    num_children: 10,
    pzxid: 11,
};
/// Stands for `stat` in the tables.
const STAT_HEX: &str = "0000000000000001000000000000000200000000000000030000000000000004000000050000000600000007\
                        0000000000000008000000090000000a000000000000000b";

/// The bytes of a frame, with its length.
pub(super) fn bytes_of(hex: &str) -> Vec<u8> {
    let hex = hex
        .replace("stat", STAT_HEX)
        .replace(char::is_whitespace, "");
    let pairs = (0..hex.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("it is a number"))
        .collect()
}

/// The content of the one frame in `hex`.
pub(super) fn frame_of(hex: &str) -> Bytes {
    let mut buffer = BytesMut::from(&bytes_of(hex)[..]);
    let frame = take_frame(&mut buffer, 4096).expect("it is short");
    assert!(buffer.is_empty(), "the frame is all there is");
    frame.expect("it is whole")
}

pub(super) fn encoded(encode: impl FnOnce(&mut Output)) -> Vec<u8> {
    let mut out = Output::new();
    encode(&mut out);
    out.into_bytes().to_vec()
}

fn data() -> Option<Bytes> {
    Some(Bytes::from_static(b"data"))
}

fn two() -> Vec<Acl> {
    let acl = |perms, scheme: &str, id: &str| Acl {
        perms,
        scheme: scheme.into(),
        id: id.into(),
    };
    vec![acl(1, "digest", "a:b"), acl(31, "auth", "")]
}

fn create(kind: CreateKind, data: Option<Bytes>, acl: Vec<Acl>, flags: i32, ttl: i64) -> Request {
    Request::Create {
        kind,
        path: "/a".into(),
        data,
        acl,
        flags,
        ttl,
    }
}

pub(super) fn set_watches(paths: [&[&str]; 5], breaks_off: bool) -> Request {
    let [data, exist, child, persistent, recursive] =
        paths.map(|paths| paths.iter().map(|path| Text::from(*path)).collect());
    Request::SetWatches {
        relative_zxid: 9,
        data,
        exist,
        child,
        persistent,
        recursive,
        breaks_off,
    }
}

fn creates() -> Vec<(&'static str, Request)> {
    vec![
        (
            "000000350000000700000001000000022f610000000464617461000000010000001f0000 \
             0005776f726c6400000006616e796f6e6500000003",
            create(CreateKind::Plain, data(), Acl::open(), 3, -1),
        ),
        (
            "0000003f000000070000000f000000022f61ffffffff0000000200000001000000066469 \
             6765737400000003613a620000001f00000004617574680000000000000000",
            create(CreateKind::WithStat, None, two(), 0, -1),
        ),
        (
            "000000310000000700000013000000022f6100000000000000010000001f00000005776f \
             726c6400000006616e796f6e6500000004",
            create(
                CreateKind::Container,
                Some(Bytes::new()),
                Acl::open(),
                4,
                -1,
            ),
        ),
        (
            "0000003d0000000700000015000000022f610000000464617461000000010000001f0000 \
             0005776f726c6400000006616e796f6e6500000005000000000000ea60",
            create(CreateKind::Ttl, data(), Acl::open(), 5, 60_000),
        ),
    ]
}

fn writes() -> Vec<(&'static str, Request)> {
    vec![
        (
            "000000120000000700000002000000022f6100000003",
            Request::Delete {
                path: "/a".into(),
                version: 3,
            },
        ),
        (
            "0000001a0000000700000005000000022f610000000464617461ffffffff",
            Request::SetData {
                path: "/a".into(),
                data: data(),
                version: -1,
            },
        ),
        (
            "0000003b0000000700000007000000022f61000000020000000100000006646967657374 \
             00000003613a620000001f00000004617574680000000000000002",
            Request::SetAcl {
                path: "/a".into(),
                acl: two(),
                version: 2,
            },
        ),
        (
            "00000012000000070000000d000000022f6100000004",
            Request::Check {
                path: "/a".into(),
                version: 4,
            },
        ),
    ]
}

fn reads() -> Vec<(&'static str, Request)> {
    vec![
        (
            "0000000f0000000700000003000000022f6101",
            Request::Exists {
                path: "/a".into(),
                watch: true,
            },
        ),
        (
            "0000000f0000000700000004000000022f6100",
            Request::GetData {
                path: "/a".into(),
                watch: false,
            },
        ),
        (
            "0000000e0000000700000006000000022f61",
            Request::GetAcl { path: "/a".into() },
        ),
        (
            "0000000f0000000700000008000000022f6101",
            Request::GetChildren {
                path: "/a".into(),
                watch: true,
            },
        ),
        (
            "0000000f000000070000000c000000022f6100",
            Request::GetChildren2 {
                path: "/a".into(),
                watch: false,
            },
        ),
        (
            "0000000e0000000700000009000000022f61",
            Request::Sync {
                path: Some("/a".into()),
            },
        ),
        (
            "0000000e0000000700000068000000022f61",
            Request::GetAllChildrenNumber { path: "/a".into() },
        ),
    ]
}

fn of_watches() -> Vec<(&'static str, Request)> {
    vec![
        (
            "000000120000000700000011000000022f6100000003",
            Request::CheckWatches {
                path: "/a".into(),
                kind: 3,
            },
        ),
        (
            "000000120000000700000012000000022f6100000001",
            Request::RemoveWatches {
                path: "/a".into(),
                kind: 1,
            },
        ),
        (
            "00000012000000070000006a000000022f6100000001",
            Request::AddWatch {
                path: "/a".into(),
                mode: 1,
            },
        ),
        (
            "0000002efffffff800000065000000000000000900000002000000022f61000000022f62 \
             00000001000000022f6300000000",
            set_watches([&["/a", "/b"], &["/c"], &[], &[], &[]], false),
        ),
        (
            "00000036fffffff800000069000000000000000900000001000000022f61000000000000 \
             000000000001000000022f7000000001000000022f72",
            set_watches([&["/a"], &[], &[], &["/p"], &["/r"]], false),
        ),
    ]
}

fn multis() -> Vec<(&'static str, Request)> {
    let in_multi = |kind, path: &str, flags, ttl| Request::Create {
        kind,
        path: path.into(),
        data: data(),
        acl: Acl::open(),
        flags,
        ttl,
    };
    let container = in_multi(CreateKind::Container, "/c", 4, -1);
    let ttl = in_multi(CreateKind::Ttl, "/t", 5, 99);
    vec![
        (
            "000000ba000000070000000e0000000100ffffffff000000022f61000000046461746100 \
             0000010000001f00000005776f726c6400000006616e796f6e65000000000000001300ff \
             ffffff000000022f630000000464617461000000010000001f00000005776f726c640000 \
             0006616e796f6e65000000040000000200ffffffff000000022f62ffffffff0000000500 \
             ffffffff000000022f61ffffffff000000010000000d00ffffffff000000022f64000000 \
             02ffffffff01ffffffff",
            Request::Multi {
                operations: vec![
                    create(CreateKind::Plain, data(), Acl::open(), 0, -1),
                    container,
                    Request::Delete {
                        path: "/b".into(),
                        version: -1,
                    },
                    Request::SetData {
                        path: "/a".into(),
                        data: None,
                        version: 1,
                    },
                    Request::Check {
                        path: "/d".into(),
                        version: 2,
                    },
                ],
            },
        ),
        (
            "0000004f000000070000000e0000001500ffffffff000000022f74000000046461746100 \
             0000010000001f00000005776f726c6400000006616e796f6e6500000005000000000000 \
             0063ffffffff01ffffffff",
            Request::Multi {
                operations: vec![ttl],
            },
        ),
        (
            "00000011000000070000000effffffff01ffffffff",
            Request::Multi { operations: vec![] },
        ),
        (
            "0000003100000007000000160000000400ffffffff000000022f61000000000800ffffff \
             ff000000022f6200ffffffff01ffffffff",
            Request::MultiRead {
                breaks_off: false,
                operations: vec![
                    Request::GetData {
                        path: "/a".into(),
                        watch: false,
                    },
                    Request::GetChildren {
                        path: "/b".into(),
                        watch: false,
                    },
                ],
            },
        ),
    ]
}

fn others() -> Vec<(&'static str, Request)> {
    vec![
        ("00000008fffffffe0000000b", Request::Ping),
        (
            "0000002600000007000000100000000a7365727665722e313d78ffffffffffffffffffff \
             ffffffffffff",
            Request::Reconfig {
                joining: Some("server.1=x".into()),
                leaving: None,
                new_members: None,
                config_id: -1,
            },
        ),
        (
            "0000001000000007000000660000000464617461",
            Request::Sasl {
                token: Bytes::from_static(b"data"),
            },
        ),
        (
            "0000001dfffffffc00000064000000000000000664696765737400000003753a70",
            Request::Auth {
                kind: 0,
                scheme: "digest".into(),
                auth: Some(Bytes::from_static(b"u:p")),
            },
        ),
        (
            "0000000e0000000700000067000000022f61",
            Request::GetEphemerals {
                prefix: "/a".into(),
            },
        ),
        ("00000008000000070000006b", Request::WhoAmI),
        ("0000000800000007fffffff5", Request::CloseSession),
    ]
}

fn answers_of_a_node() -> Vec<(&'static str, (i32, Answer))> {
    vec![
        (
            "00000020000000071122334455667788000000000000000c2f6130303030303030303031",
            (opcode::CREATE, Answer::Path("/a0000000001".into())),
        ),
        (
            "0000005a00000007112233445566778800000000000000022f61 stat",
            (opcode::CREATE_2, Answer::PathAndStat("/a".into(), STAT)),
        ),
        (
            "0000005a00000007112233445566778800000000000000022f61 stat",
            (opcode::CREATE_TTL, Answer::PathAndStat("/a".into(), STAT)),
        ),
        (
            "0000005400000007112233445566778800000000 stat",
            (opcode::EXISTS, Answer::Stat(STAT)),
        ),
        (
            "0000005400000007112233445566778800000000 stat",
            (opcode::SET_DATA, Answer::Stat(STAT)),
        ),
        (
            "0000005400000007112233445566778800000000 stat",
            (opcode::SET_ACL, Answer::Stat(STAT)),
        ),
        (
            "0000005c000000071122334455667788000000000000000464617461 stat",
            (opcode::GET_DATA, Answer::Data(data(), STAT)),
        ),
        (
            "0000005800000007112233445566778800000000ffffffff stat",
            (opcode::GET_DATA, Answer::Data(None, STAT)),
        ),
        (
            "0000007d0000000711223344556677880000000000000002000000010000000664696765 \
             737400000003613a620000001f000000046175746800000000 stat",
            (opcode::GET_ACL, Answer::Acl(two(), STAT)),
        ),
    ]
}

fn other_answers() -> Vec<(&'static str, (i32, Answer))> {
    vec![
        (
            "0000001f0000000711223344556677880000000000000002000000017800000002c3bc",
            (
                opcode::GET_CHILDREN,
                Answer::Children(vec!["x".into(), "ü".into()]),
            ),
        ),
        (
            "00000062000000071122334455667788000000000000000200000001780000000179 stat",
            (
                opcode::GET_CHILDREN_2,
                Answer::ChildrenAndStat(vec!["x".into(), "y".into()], STAT),
            ),
        ),
        (
            "0000001600000007112233445566778800000000000000022f61",
            (opcode::SYNC, Answer::Sync(Some("/a".into()))),
        ),
        (
            "0000001a0000000711223344556677880000000000000001000000022f61",
            (
                opcode::GET_EPHEMERALS,
                Answer::Ephemerals(vec!["/a".into()]),
            ),
        ),
        (
            "00000014000000071122334455667788000000000000004d",
            (opcode::GET_ALL_CHILDREN_NUMBER, Answer::Number(77)),
        ),
        (
            "000000140000000711223344556677880000000000000000",
            (opcode::ADD_WATCH, Answer::Number(0)),
        ),
        (
            "000000270000000711223344556677880000000000000001000000026970000000093132 \
             372e302e302e31",
            (
                opcode::WHO_AM_I,
                Answer::WhoAmI(vec![ClientInfo {
                    scheme: "ip".into(),
                    user: "127.0.0.1".into(),
                }]),
            ),
        ),
        (
            "00000018000000071122334455667788000000000000000464617461",
            (opcode::SASL, Answer::Sasl(Bytes::from_static(b"data"))),
        ),
    ]
}

fn answers_to_multis() -> Vec<(&'static str, (i32, Answer))> {
    vec![
        (
            "000000da00000007112233445566778800000000000000010000000000000000022f6100 \
             00000f0000000000000000022f63 stat 000000020000000000000000050000000000 stat \
             0000000d0000000000ffffffff01ffffffff",
            (
                opcode::MULTI,
                Answer::Multi(vec![
                    MultiResult::Path("/a".into()),
                    MultiResult::PathAndStat("/c".into(), STAT),
                    MultiResult::Deleted,
                    MultiResult::Stat(STAT),
                    MultiResult::Checked,
                ]),
            ),
        ),
        (
            "0000003300000007112233445566778800000000ffffffff00ffffff9bffffff9bffffff \
             ff00fffffffefffffffeffffffff01ffffffff",
            (
                opcode::MULTI,
                Answer::Multi(vec![
                    MultiResult::Error(Code::NO_NODE),
                    MultiResult::Error(Code::RUNTIME_INCONSISTENCY),
                ]),
            ),
        ),
        (
            "0000008d0000000711223344556677880000000000000004000000000000000004646174 61 \
             stat \
             000000080000000000000000010000000178ffffffff00ffffff9affffff9affffffff01 \
             ffffffff",
            (
                opcode::MULTI_READ,
                Answer::MultiRead(vec![
                    MultiResult::Data(data(), STAT),
                    MultiResult::Children(vec!["x".into()]),
                    MultiResult::Error(Code::NO_AUTH),
                ]),
            ),
        ),
    ]
}

fn xid_of(request: &Request) -> i32 {
    match request {
        Request::Ping => xid::PING,
        Request::Auth { .. } => xid::AUTH,
        Request::SetWatches { .. } => xid::SET_WATCHES,
        _ => 7,
    }
}

pub(super) fn all_requests() -> Vec<(&'static str, Request)> {
    [
        creates(),
        writes(),
        reads(),
        of_watches(),
        multis(),
        others(),
    ]
    .concat()
}

pub(super) fn all_answers() -> Vec<(&'static str, (i32, Answer))> {
    [answers_of_a_node(), other_answers(), answers_to_multis()].concat()
}

#[test]
fn every_request_is_written_and_read_as_zookeeper_does() {
    for (hex, request) in all_requests() {
        let xid = xid_of(&request);
        let written = encoded(|out| encode_request(out, xid, &request));
        assert_eq!(written, bytes_of(hex), "{request:?}");
        let header = Header {
            xid: xid.into(),
            opcode: request.opcode(),
        };
        assert_eq!(
            decode_request(frame_of(hex), Dialect::ZooKeeper, XidWidth::Four),
            Ok((header, Ok(request)))
        );
    }
}

/// Asserts that each answer, to a request of this kind, is written so and read so.
pub(super) fn are_answers(all: Vec<(&str, (i32, Answer))>) {
    let header = AnswerHeader {
        xid: 7.into(),
        zxid: ZXID,
        error: 0,
    };
    for (hex, (opcode, answer)) in all {
        let written = encoded(|out| encode_answer(out, header, &answer));
        assert_eq!(written, bytes_of(hex), "{answer:?}");
        let Ok(Incoming::Answer(read, body)) = decode_incoming(frame_of(hex), XidWidth::Four)
        else {
            panic!("no answer: {answer:?}");
        };
        assert_eq!(read, header);
        assert_eq!(decode_answer(opcode, body), Ok(answer));
    }
}

#[test]
fn every_answer_is_written_and_read_as_zookeeper_does() {
    are_answers(all_answers());
}

#[test]
fn an_answer_without_a_body_is_its_header() {
    let ping = AnswerHeader {
        xid: xid::PING.into(),
        zxid: ZXID,
        error: 0,
    };
    let failed = AnswerHeader {
        xid: 7.into(),
        zxid: ZXID,
        error: Code::NO_NODE.0,
    };
    let bytes = [
        ("00000010fffffffe112233445566778800000000", ping),
        ("00000010000000071122334455667788ffffff9b", failed),
    ];
    for (hex, header) in bytes {
        let written = encoded(|out| encode_answer(out, header, &Answer::Empty));
        assert_eq!(written, bytes_of(hex));
        let read = decode_incoming(frame_of(hex), XidWidth::Four);
        assert_eq!(read, Ok(Incoming::Answer(header, Bytes::new())));
    }
}

#[test]
fn an_event_is_written_and_read_as_zookeeper_does() {
    let event = WatchEvent::of_a_node(event::DATA_CHANGED, "/a".into(), ZXID);
    let hex = "0000001effffffff1122334455667788000000000000000300000003000000022f61";
    assert_eq!(
        encoded(|out| encode_event(out, &event, XidWidth::Four)),
        bytes_of(hex)
    );
    assert_eq!(
        decode_incoming(frame_of(hex), XidWidth::Four),
        Ok(Incoming::Event(event))
    );
}

/// The greeting and its answer, without and with the byte that came in 3.4.
pub(super) const GREETINGS: [&str; 2] = [
    "0000002c0000000000000000000000050000753000000000000012340000001000010203 \
             0405060708090a0b0c0d0e0f",
    "0000002d00000000000000000000000500007530000000000000123400000010000102030405060708090a0b0c0d0e0f01",
];
pub(super) const GREETING_ANSWERS: [&str; 2] = [
    "000000240000000000007530000000000000123400000010000102030405060708090a0b \
             0c0d0e0f",
    "000000250000000000007530000000000000123400000010000102030405060708090a0b0c0d0e0f00",
];

#[test]
fn the_greeting_is_written_and_read_as_zookeeper_does_with_and_without_the_byte_of_newer_clients() {
    let password = Bytes::from_iter(0..16);
    for (hex, read_only) in GREETINGS.into_iter().zip([None, Some(true)]) {
        let request = ConnectRequest {
            protocol_version: 0,
            is_packed: false,
            last_zxid_seen: 5,
            timeout_ms: 30_000,
            session_id: 0x1234,
            password: password.clone(),
            read_only,
        };
        assert_eq!(
            encoded(|out| encode_connect_request(out, &request)),
            bytes_of(hex)
        );
        assert_eq!(decode_connect_request(frame_of(hex)), Ok(request));
    }
    for (hex, read_only) in GREETING_ANSWERS.into_iter().zip([None, Some(false)]) {
        let answer = ConnectAnswer {
            protocol_version: 0,
            timeout_ms: 30_000,
            session_id: 0x1234,
            password: password.clone(),
            read_only,
        };
        assert_eq!(
            encoded(|out| encode_connect_answer(out, &answer)),
            bytes_of(hex)
        );
        assert_eq!(decode_connect_answer(frame_of(hex)), Ok(answer));
    }
}

#[test]
fn what_is_null_is_read_as_zookeeper_understands_it() {
    let read = |hex| {
        decode_request(frame_of(hex), Dialect::ZooKeeper, XidWidth::Four)
            .expect("it has a header")
            .1
    };
    let no_acl = read("0000001e0000000700000001000000022f610000000464617461ffffffff00000000");
    assert_eq!(no_acl, Ok(create(CreateKind::Plain, data(), vec![], 0, -1)));
    let no_path = read(
        "000000330000000700000001ffffffff0000000464617461000000010000001f00000005 \
             776f726c6400000006616e796f6e6500000000",
    );
    assert!(matches!(no_path, Ok(Request::NoPath(_))));
    let no_prefix = read("0000000c0000000700000067ffffffff");
    assert_eq!(
        no_prefix,
        Ok(Request::GetEphemerals {
            prefix: Text::default()
        })
    );
}
