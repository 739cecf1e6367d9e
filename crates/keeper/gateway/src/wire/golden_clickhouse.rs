//! Messages that only ClickHouse's keeper has, byte for byte as ClickHouse's client writes and reads them. None of
//! these bytes comes from our encoder.

use super::golden::{STAT, are_answers, bytes_of, encoded, frame_of};
use super::*;
use bytes::Bytes;
use plinth_core::testing::fuzz;

fn path() -> Text {
    "/a".into()
}

fn list(watch: bool, filter: Filter, details: Option<Details>) -> Request {
    Request::List {
        path: path(),
        watch,
        filter,
        details,
    }
}

fn details(stat: bool, data: bool) -> Option<Details> {
    Some(Details { stat, data })
}

fn create() -> Request {
    Request::Create {
        kind: CreateKind::IfNotExists,
        path: path(),
        data: Some(Bytes::from_static(b"data")),
        acl: Acl::open(),
        flags: create_flags::EPHEMERAL,
        ttl: -1,
    }
}

fn check_not_exists() -> Request {
    Request::CheckNotExists {
        path: path(),
        version: -1,
    }
}

fn check_stat() -> Request {
    Request::CheckStat {
        path: path(),
        version: 5,
        stat: STAT,
    }
}

fn try_delete() -> Request {
    Request::TryDelete {
        path: path(),
        version: 3,
    }
}

fn delete_recursive() -> Request {
    Request::DeleteRecursive {
        path: path(),
        most: 1000,
    }
}

fn list_recursive(most: u32) -> Request {
    Request::ListRecursive { path: path(), most }
}

fn alone() -> Vec<(&'static str, Request)> {
    vec![
        (
            "00000010 00000007 000001f4 00000002 2f61 01 02",
            list(true, Filter::Ephemeral, None),
        ),
        (
            "00000010 00000007 000001f4 00000002 2f61 00 01",
            list(false, Filter::Persistent, None),
        ),
        (
            "00000012 00000007 000001f5 00000002 2f61 ffffffff",
            check_not_exists(),
        ),
        (
            "00000035 00000007 000001f6 00000002 2f61 00000004 64617461 00000001 0000001f \
             00000005 776f726c64 00000006 616e796f6e65 00000001",
            create(),
        ),
        (
            "00000012 00000007 000001f7 00000002 2f61 000003e8",
            delete_recursive(),
        ),
        (
            "00000056 00000007 000001f8 00000002 2f61 00000005 stat",
            check_stat(),
        ),
        (
            "00000012 00000007 000001f9 00000002 2f61 00000003",
            try_delete(),
        ),
        (
            "00000012 00000007 000001fa 00000002 2f61 00 00 01 00",
            list(false, Filter::All, details(true, false)),
        ),
        (
            "00000012 00000007 000001fb 00000002 2f61 ffffffff",
            list_recursive(u32::MAX),
        ),
    ]
}

fn several() -> Vec<(&'static str, Request)> {
    let (watch, unwatched) = (true, false);
    vec![
        (
            "000000d7 00000007 0000000e \
             000001f6 00 ffffffff 00000002 2f61 00000004 64617461 00000001 0000001f \
             00000005 776f726c64 00000006 616e796f6e65 00000001 \
             000001f5 00 ffffffff 00000002 2f61 ffffffff \
             000001f9 00 ffffffff 00000002 2f61 00000003 \
             000001f7 00 ffffffff 00000002 2f61 000003e8 \
             000001f8 00 ffffffff 00000002 2f61 00000005 stat \
             ffffffff 01 ffffffff",
            Request::Multi {
                operations: vec![
                    create(),
                    check_not_exists(),
                    try_delete(),
                    delete_recursive(),
                    check_stat(),
                ],
            },
        ),
        (
            "00000078 00000007 00000016 \
             00000003 00 ffffffff 00000002 2f61 01 \
             00000004 00 ffffffff 00000002 2f61 00 \
             0000000c 00 ffffffff 00000002 2f61 01 \
             000001f4 00 ffffffff 00000002 2f61 01 02 \
             000001fa 00 ffffffff 00000002 2f61 00 00 01 01 \
             000001fb 00 ffffffff 00000002 2f61 00000005 \
             ffffffff 01 ffffffff",
            Request::MultiRead {
                operations: vec![
                    Request::Exists {
                        path: path(),
                        watch,
                    },
                    Request::GetData {
                        path: path(),
                        watch: unwatched,
                    },
                    Request::GetChildren2 {
                        path: path(),
                        watch,
                    },
                    list(true, Filter::Ephemeral, None),
                    list(false, Filter::All, details(true, true)),
                    list_recursive(5),
                ],
                breaks_off: false,
            },
        ),
    ]
}

pub(super) fn requests() -> Vec<(&'static str, Request)> {
    [alone(), several()].concat()
}

fn listed() -> Listed {
    Listed {
        names: vec!["b".into()],
        stat: STAT,
        stats: vec![STAT],
        data: vec![Some(Bytes::from_static(b"x"))],
    }
}

fn answers() -> Vec<(&'static str, (i32, Answer))> {
    vec![
        (
            "0000005d 00000007 1122334455667788 00000000 00000001 00000001 62 stat",
            (
                opcode::FILTERED_LIST,
                Answer::ChildrenAndStat(vec!["b".into()], STAT),
            ),
        ),
        (
            "00000010 00000007 1122334455667788 00000000",
            (opcode::CHECK_NOT_EXISTS, Answer::Empty),
        ),
        (
            "00000016 00000007 1122334455667788 00000000 00000002 2f61",
            (opcode::CREATE_IF_NOT_EXISTS, Answer::Path(path())),
        ),
        (
            "00000010 00000007 1122334455667788 00000000",
            (opcode::REMOVE_RECURSIVE, Answer::Empty),
        ),
        (
            "000000ae 00000007 1122334455667788 00000000 00000001 00000001 62 stat \
             00000001 stat 00000001 00000001 78",
            (opcode::LIST_WITH_STAT_AND_DATA, Answer::Listed(listed())),
        ),
        (
            "0000001c 00000007 1122334455667788 00000000 00000001 00000004 2f612f62",
            (
                opcode::LIST_RECURSIVE,
                Answer::Children(vec!["/a/b".into()]),
            ),
        ),
    ]
}

fn all_answers() -> Vec<(&'static str, (i32, Answer))> {
    [answers(), answers_of_multis()].concat()
}

/// The answers to multis.
fn answers_of_multis() -> Vec<(&'static str, (i32, Answer))> {
    vec![
        (
            "0000004c 00000007 1122334455667788 00000000 \
             000001f6 00 00000000 00000002 2f61 \
             000001f5 00 00000000 000001f9 00 00000000 000001f7 00 00000000 000001f8 00 00000000 \
             ffffffff 01 ffffffff",
            (
                opcode::MULTI,
                Answer::Multi(vec![
                    MultiResult::Ensured(path()),
                    MultiResult::Done(opcode::CHECK_NOT_EXISTS),
                    MultiResult::Done(opcode::TRY_REMOVE),
                    MultiResult::Done(opcode::REMOVE_RECURSIVE),
                    MultiResult::Done(opcode::CHECK_STAT),
                ]),
            ),
        ),
        (
            "0000018e 00000007 1122334455667788 00000000 \
             00000003 00 00000000 stat \
             0000000c 00 00000000 00000001 00000001 62 stat \
             000001fa 00 00000000 00000001 00000001 62 stat 00000001 stat 00000001 00000001 78 \
             000001fb 00 00000000 00000001 00000004 2f612f62 \
             ffffffff 00 ffffff9b ffffff9b \
             00000004 00 ffffff9b \
             ffffffff 01 ffffffff",
            (
                opcode::MULTI_READ,
                Answer::MultiRead(vec![
                    MultiResult::Exists(STAT),
                    MultiResult::ChildrenAndStat(vec!["b".into()], STAT),
                    MultiResult::Listed(listed()),
                    MultiResult::Paths(vec!["/a/b".into()]),
                    MultiResult::Error(Code::NO_NODE),
                    MultiResult::Failed(opcode::GET_DATA, Code::NO_NODE),
                ]),
            ),
        ),
    ]
}

#[test]
fn every_request_of_clickhouse_is_written_and_read_as_its_client_does() {
    for (hex, request) in requests() {
        let written = encoded(|out| encode_request(out, 7, &request));
        assert_eq!(written, bytes_of(hex), "{request:?}");
        let header = Header {
            xid: 7.into(),
            opcode: request.opcode(),
        };
        let read = decode_request(frame_of(hex), Dialect::ClickHouse, XidWidth::Four);
        assert_eq!(read, Ok((header, Ok(request))));
    }
}

#[test]
fn to_plain_zookeeper_these_requests_are_of_an_unknown_kind_or_cannot_be_read() {
    let read = |hex| {
        let read = decode_request(frame_of(hex), Dialect::ZooKeeper, XidWidth::Four);
        read.expect("it has a header")
    };
    for (hex, _) in alone() {
        let (Header { opcode, .. }, request) = read(hex);
        assert_eq!(request, Ok(Request::Unknown { opcode }));
    }
    for (hex, _) in several() {
        assert_eq!(read(hex).1, Err(Code::MARSHALLING_ERROR));
    }
}

#[test]
fn every_answer_of_clickhouse_is_written_and_read_as_its_client_does() {
    are_answers(all_answers());
}

#[test]
fn damaged_answers_of_clickhouse_are_refused_or_mean_what_they_say() {
    // A client knows the kind of the request; here the first byte says it.
    let of = |(hex, (opcode, _)): (&str, (i32, Answer))| {
        let content = bytes_of(hex).split_off(4 + AnswerHeader::BYTES);
        [vec![(opcode % opcode::FILTERED_LIST) as u8], content].concat()
    };
    fuzz(
        "answers of ClickHouse",
        6,
        all_answers().into_iter().map(of),
        |input| {
            let Some((kind, body)) = input.split_first() else {
                return false;
            };
            let opcode = match i32::from(*kind) {
                kind @ 0..=7 => opcode::FILTERED_LIST + kind,
                kind => kind,
            };
            let body = Bytes::copy_from_slice(body);
            let Ok(answer) = decode_answer(opcode, body) else {
                return false;
            };
            if matches!(answer, Answer::Sync(_)) {
                return true;
            }
            let header = AnswerHeader {
                xid: 1.into(),
                zxid: 2,
                error: 0,
            };
            let again = encoded(|out| encode_answer(out, header, &answer));
            let again = Bytes::from(again).slice(4 + AnswerHeader::BYTES..);
            assert_eq!(decode_answer(opcode, again), Ok(answer));
            true
        },
    );
}

#[test]
fn a_list_of_all_names_is_the_one_that_zookeeper_knows() {
    let simple = Request::GetChildren2 {
        path: path(),
        watch: true,
    };
    assert_eq!(list(true, Filter::All, None).simplified(), simple);
    let other = list(true, Filter::Ephemeral, None);
    let both = |operations| Request::MultiRead {
        operations,
        breaks_off: true,
    };
    let several = both(vec![list(true, Filter::All, None), other.clone()]);
    assert_eq!(several.simplified(), both(vec![simple, other]));
}
