//! Hostile bytes, limits, and the ways to write an answer without a copy.

use super::golden::{
    GREETING_ANSWERS, GREETINGS, all_answers, all_requests, bytes_of, encoded, set_watches,
};
use super::golden_clickhouse::requests as clickhouse_requests;
use super::*;
use bytes::{BufMut, Bytes, BytesMut};
use plinth_core::output::Output;
use plinth_core::testing::fuzz;

const FRAME_BYTES_MAX: usize = 1 << 20;

/// The content of the first frame in `bytes`.
fn first_frame(bytes: &[u8]) -> Option<Bytes> {
    take_frame(&mut BytesMut::from(bytes), FRAME_BYTES_MAX).ok()?
}

/// The content of the frames in `hex`.
fn contents<'a>(hex: impl IntoIterator<Item = &'a str>) -> Vec<Vec<u8>> {
    let content = |hex| bytes_of(hex).split_off(4);
    hex.into_iter().map(content).collect()
}

#[test]
fn damaged_greetings_are_refused_or_mean_what_they_say() {
    fuzz("keeper greetings", 1, contents(GREETINGS), |input| {
        let Ok(request) = decode_connect_request(Bytes::copy_from_slice(input)) else {
            return false;
        };
        let again = encoded(|out| encode_connect_request(out, &request));
        let again = take_greeting(&mut BytesMut::from(&again[..]), FRAME_BYTES_MAX);
        let again = again.expect("it has a length").expect("it is whole");
        assert_eq!(decode_connect_request(again), Ok(request));
        true
    });
    fuzz(
        "keeper greeting answers",
        2,
        contents(GREETING_ANSWERS),
        |input| {
            let Ok(answer) = decode_connect_answer(Bytes::copy_from_slice(input)) else {
                return false;
            };
            let again = encoded(|out| encode_connect_answer(out, &answer));
            let again = first_frame(&again).expect("it is whole");
            assert_eq!(decode_connect_answer(again), Ok(answer));
            true
        },
    );
}

#[test]
fn damaged_requests_are_refused_or_mean_what_they_say() {
    let all = all_requests().into_iter().chain(clickhouse_requests());
    let corpus = contents(all.map(|(hex, _)| hex));
    fuzz("keeper requests", 3, corpus, |input| {
        let Ok((header, Ok(request))) = decode_request(
            Bytes::copy_from_slice(input),
            Dialect::ClickHouse,
            XidWidth::Four,
        ) else {
            return false;
        };
        let again = encoded(|out| encode_request(out, header.xid, &request));
        let again = first_frame(&again).expect("it is whole");
        let (read, again) =
            decode_request(again, Dialect::ClickHouse, XidWidth::Four).expect("it has a header");
        assert_eq!((read.xid, again), (header.xid, Ok(request)));
        true
    });
}

fn is_same_in_java(text: &str) -> bool {
    *Text::as_java_encodes(text) == *text.as_bytes()
}

#[test]
fn damaged_answers_and_events_are_refused_or_mean_what_they_say() {
    // A client knows the kind of the request; here it is the first byte.
    let answer = |(hex, (opcode, _)): (&str, (i32, Answer))| {
        let content = bytes_of(hex).split_off(4 + AnswerHeader::BYTES);
        [vec![opcode as u8], content].concat()
    };
    fuzz(
        "keeper answers",
        4,
        all_answers().into_iter().map(answer),
        |input| {
            let Some((opcode, body)) = input.split_first() else {
                return false;
            };
            let opcode = i32::from(*opcode);
            let Ok(answer) = decode_answer(opcode, Bytes::copy_from_slice(body)) else {
                return false;
            };
            if matches!(&answer, Answer::Sync(Some(path)) if !is_same_in_java(path)) {
                return true;
            }
            let header = AnswerHeader {
                xid: 1.into(),
                zxid: 2,
                error: 0,
            };
            let again = encoded(|out| encode_answer(out, header, &answer));
            let again = first_frame(&again).expect("it is whole");
            let again = again.slice(AnswerHeader::BYTES..);
            assert_eq!(decode_answer(opcode, again), Ok(answer));
            true
        },
    );
    let event = WatchEvent::of_a_node(event::CREATED, "/a".into(), 7);
    let corpus = vec![
        encoded(|out| encode_event(out, &event, XidWidth::Four)).split_off(4),
        vec![7; AnswerHeader::BYTES],
    ];
    fuzz("keeper events", 5, corpus, |input| {
        match decode_incoming(Bytes::copy_from_slice(input), XidWidth::Four) {
            Ok(Incoming::Event(event)) if !is_same_in_java(&event.path) => true,
            Ok(Incoming::Event(event)) => {
                let again = encoded(|out| encode_event(out, &event, XidWidth::Four));
                let again = first_frame(&again).expect("it is whole");
                assert_eq!(
                    decode_incoming(again, XidWidth::Four),
                    Ok(Incoming::Event(event))
                );
                true
            }
            Ok(Incoming::Answer(..)) => true,
            Err(Malformed) => false,
        }
    });
}

#[test]
fn damaged_frames_are_taken_whole_or_skipped_or_refused() {
    const BYTES_MAX: usize = 40;
    let corpus = all_requests().into_iter().map(|(hex, _)| bytes_of(hex));
    fuzz("keeper frames", 6, corpus, |input| {
        let mut buffer = BytesMut::from(input);
        let mut taken = false;
        loop {
            let before = buffer.len();
            match take_frame(&mut buffer, BYTES_MAX) {
                Ok(Some(frame)) => {
                    assert!(frame.len() <= BYTES_MAX);
                    assert_eq!(before, buffer.len() + 4 + frame.len());
                }
                Ok(None) => return taken,
                Err(FrameError::Negative) => return taken,
                Err(FrameError::TooLong { bytes }) => {
                    assert!(bytes > BYTES_MAX);
                    assert_eq!(before, buffer.len(), "it still lies there");
                    let Ok(Some(mut skip)) = Skip::begin(&mut buffer, XidWidth::Four) else {
                        return taken;
                    };
                    let is_over = skip.is_over(&mut buffer);
                    assert_eq!(is_over, before >= 4 + bytes);
                }
            }
            taken = true;
        }
    });
}

#[test]
fn a_frame_is_taken_when_it_is_whole() {
    let whole = encoded(|out| encode_request(out, 3, &Request::WhoAmI));
    let mut buffer = BytesMut::new();
    for byte in &whole[..whole.len() - 1] {
        buffer.put_u8(*byte);
        assert_eq!(take_frame(&mut buffer, 100), Ok(None));
    }
    buffer.extend_from_slice(&whole[whole.len() - 1..]);
    buffer.extend_from_slice(&whole);
    assert_eq!(
        take_frame(&mut buffer, 100),
        Ok(Some(whole[4..].to_vec().into()))
    );
    assert_eq!(
        take_frame(&mut buffer, 8),
        Ok(Some(whole[4..].to_vec().into()))
    );
    assert!(buffer.is_empty());
}

#[test]
fn a_request_that_is_too_long_is_skipped_as_it_arrives_and_the_next_one_is_read() {
    let long = Request::SetData {
        path: "/a".into(),
        data: Some(Bytes::from(vec![7; 10_000])),
        version: 3,
    };
    let mut stream = Output::new();
    encode_request(&mut stream, 8, &long);
    encode_request(&mut stream, 9, &Request::WhoAmI);
    let stream = stream.into_bytes();
    let (mut buffer, mut skipping, mut most) = (BytesMut::new(), None::<Skip>, 0);
    let mut next = None;
    for piece in stream.chunks(5) {
        buffer.extend_from_slice(piece);
        most = most.max(buffer.len());
        if let Some(skip) = &mut skipping {
            if !skip.is_over(&mut buffer) {
                continue;
            }
            skipping = None;
        }
        match take_frame(&mut buffer, 1000) {
            Ok(frame) => next = frame.or(next),
            Err(error) => {
                let bytes = 8 + 4 + 2 + 4 + 10_000 + 4;
                assert_eq!(error, FrameError::TooLong { bytes });
                skipping = Skip::begin(&mut buffer, XidWidth::Four).expect("it has a header");
                if let Some(skip) = skipping {
                    assert_eq!(skip.header.xid, 8.into());
                    assert_eq!(skip.header.opcode, opcode::SET_DATA);
                }
            }
        }
    }
    let (header, request) =
        decode_request(next.expect("it came"), Dialect::ZooKeeper, XidWidth::Four)
            .expect("it has a header");
    assert_eq!((header.xid, request), (9.into(), Ok(Request::WhoAmI)));
    assert!(most < 20, "{most} bytes were kept");
}

#[test]
fn a_negative_length_ends_the_connection() {
    let mut buffer = BytesMut::from(&[0x80, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8][..]);
    assert_eq!(take_frame(&mut buffer, 100), Err(FrameError::Negative));
    assert_eq!(Skip::begin(&mut buffer, XidWidth::Four), Err(Malformed));
}

/// A request with the fields that `put` adds.
fn request(opcode: i32, put: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i32(7);
    frame.put_i32(opcode);
    put(&mut frame);
    frame.freeze()
}

fn read(opcode: i32, put: impl FnOnce(&mut BytesMut)) -> Result<Request, Code> {
    decode_request(request(opcode, put), Dialect::ZooKeeper, XidWidth::Four)
        .expect("it has a header")
        .1
}

fn put_path(frame: &mut BytesMut) {
    frame.put_i32(2);
    frame.put_slice(b"/a");
}

#[test]
fn false_lengths_and_missing_fields_are_marshalling_errors() {
    let refused = Err(Code::MARSHALLING_ERROR);
    for length in [3, 1 << 20, i32::MAX, -2, i32::MIN] {
        let path = |frame: &mut BytesMut| {
            frame.put_i32(length);
            frame.put_slice(b"/a");
        };
        assert_eq!(read(opcode::SYNC, path), refused, "{length}");
    }
    assert_eq!(read(opcode::EXISTS, put_path), refused);
    for count in [1, 1000, i32::MAX] {
        let acl = |frame: &mut BytesMut| {
            put_path(frame);
            frame.put_i32(count);
        };
        assert_eq!(read(opcode::SET_ACL, acl), refused, "{count}");
    }
    assert_eq!(
        decode_request(
            Bytes::from_static(b"1234567"),
            Dialect::ZooKeeper,
            XidWidth::Four
        ),
        Err(Malformed)
    );
}

#[test]
fn a_list_of_negative_length_is_empty_and_trailing_bytes_are_ignored() {
    let acl = |frame: &mut BytesMut| {
        put_path(frame);
        frame.put_i32(-5);
        frame.put_i32(1);
        frame.put_slice(b"more");
    };
    let expected = Request::SetAcl {
        path: "/a".into(),
        acl: vec![],
        version: 1,
    };
    assert_eq!(read(opcode::SET_ACL, acl), Ok(expected));
}

#[test]
fn an_attempt_to_authenticate_that_cannot_be_read_ends_the_connection() {
    for opcode in [opcode::AUTH, opcode::SASL] {
        let cut = request(opcode, |frame| frame.put_u8(0));
        assert_eq!(
            decode_request(cut, Dialect::ZooKeeper, XidWidth::Four),
            Err(Malformed)
        );
    }
}

#[test]
fn a_request_of_an_unknown_kind_is_told_apart_from_one_that_cannot_be_read() {
    for opcode in [0, 10, 23, 99, 108, opcode::CREATE_SESSION, i32::MIN] {
        assert_eq!(read(opcode, |_| ()), Ok(Request::Unknown { opcode }));
    }
}

fn step(frame: &mut BytesMut, opcode: i32) {
    frame.put_i32(opcode);
    frame.put_u8(0);
    frame.put_i32(-1);
}

fn end(frame: &mut BytesMut) {
    frame.put_i32(-1);
    frame.put_u8(1);
    frame.put_i32(-1);
}

#[test]
fn a_multi_with_another_multi_or_of_the_other_kind_or_without_an_end_is_refused() {
    let refused = Err(Code::MARSHALLING_ERROR);
    for inner in [
        opcode::MULTI,
        opcode::MULTI_READ,
        opcode::PING,
        opcode::SYNC,
        -1,
    ] {
        for outer in [opcode::MULTI, opcode::MULTI_READ] {
            let nested = |frame: &mut BytesMut| {
                step(frame, inner);
                put_path(frame);
                end(frame);
                end(frame);
            };
            assert_eq!(read(outer, nested), refused, "{inner} in {outer}");
        }
    }
    let delete = |frame: &mut BytesMut| {
        step(frame, opcode::DELETE);
        put_path(frame);
        frame.put_i32(1);
    };
    assert_eq!(read(opcode::MULTI, delete), refused, "it has no end");
    let delete = |frame: &mut BytesMut| {
        delete(frame);
        end(frame);
    };
    assert!(read(opcode::MULTI, delete).is_ok());
    let get = |frame: &mut BytesMut| {
        step(frame, opcode::GET_DATA);
        put_path(frame);
        frame.put_u8(1);
        end(frame);
    };
    assert_eq!(read(opcode::MULTI, get), refused);
    let read_without_watch = Request::GetData {
        path: "/a".into(),
        watch: false,
    };
    let operations = vec![read_without_watch];
    assert_eq!(
        read(opcode::MULTI_READ, get),
        Ok(Request::MultiRead {
            operations,
            breaks_off: false
        })
    );
}

#[test]
fn writes_where_reads_should_be_are_refused_when_they_are_to_be_executed() {
    let refused = Err(Code::MARSHALLING_ERROR);
    let nothing_is_read = Ok(Request::MultiRead {
        operations: Vec::new(),
        breaks_off: true,
    });
    let delete = |frame: &mut BytesMut| {
        step(frame, opcode::DELETE);
        put_path(frame);
        frame.put_i32(1);
    };
    let of_null = |opcode| {
        move |frame: &mut BytesMut| {
            step(frame, opcode);
            frame.put_i32(-1);
            match opcode {
                opcode::SET_DATA => frame.put_i64(-1),
                opcode::CREATE => frame.put_slice(&[0; 12]),
                _ => frame.put_i32(1),
            }
        }
    };
    let get = |frame: &mut BytesMut| {
        step(frame, opcode::GET_DATA);
        put_path(frame);
        frame.put_u8(1);
    };
    let read_all = |steps: &[&dyn Fn(&mut BytesMut)]| {
        read(opcode::MULTI_READ, |frame: &mut BytesMut| {
            steps.iter().for_each(|step| step(frame));
            end(frame);
        })
    };
    for write in [
        opcode::DELETE,
        opcode::CHECK,
        opcode::SET_DATA,
        opcode::CREATE,
    ] {
        assert_eq!(read_all(&[&of_null(write)]), nothing_is_read, "{write}");
    }
    assert_eq!(read_all(&[&delete]), nothing_is_read);
    assert_eq!(read_all(&[&delete, &delete]), nothing_is_read);
    assert_eq!(read_all(&[&delete, &get]), refused);
    assert_eq!(read_all(&[&get, &delete]), refused);
    let unknown = |frame: &mut BytesMut| {
        step(frame, opcode::EXISTS);
        put_path(frame);
        frame.put_u8(1);
    };
    assert_eq!(read_all(&[&unknown]), refused);
}

#[test]
fn in_a_multi_the_flags_of_a_create_say_what_it_creates() {
    let as_read = |opcode, flags, ttl: Option<i64>| {
        let multi = read(opcode::MULTI, |frame: &mut BytesMut| {
            step(frame, opcode);
            put_path(frame);
            frame.put_i32(-1);
            frame.put_i32(0);
            frame.put_i32(flags);
            if let Some(ttl) = ttl {
                frame.put_i64(ttl);
            }
            end(frame);
        });
        match multi.map(|multi| match multi {
            Request::Multi { mut operations } => operations.pop(),
            _ => None,
        }) {
            Ok(Some(Request::Create {
                kind, flags, ttl, ..
            })) => Ok((kind, flags, ttl)),
            Ok(other) => panic!("{other:?}"),
            Err(code) => Err(code),
        }
    };
    let refused = Err(Code::MARSHALLING_ERROR);
    for (opcode, kind) in [
        (opcode::CREATE, CreateKind::Plain),
        (opcode::CREATE_2, CreateKind::WithStat),
        (opcode::CREATE_CONTAINER, CreateKind::Container),
    ] {
        for flags in 0..=3 {
            assert_eq!(as_read(opcode, flags, None), Ok((kind, flags, -1)));
        }
        assert_eq!(as_read(opcode, 4, None), Ok((CreateKind::Container, 4, -1)));
        for flags in [5, 6, 7, -1] {
            assert_eq!(as_read(opcode, flags, None), refused);
        }
    }
    let ttl = |flags| as_read(opcode::CREATE_TTL, flags, Some(9));
    assert_eq!(ttl(0), Ok((CreateKind::Plain, 0, -1)));
    assert_eq!(ttl(4), Ok((CreateKind::Container, 4, -1)));
    assert_eq!(ttl(5), Ok((CreateKind::Ttl, 5, 9)));
    assert_eq!(
        ttl(7),
        Ok((CreateKind::Ttl, 7, 9)),
        "the operation fails later"
    );
}

#[test]
fn a_hostile_multi_costs_a_small_multiple_of_its_bytes() {
    // The shortest operation takes 14 bytes of its frame.
    assert!(size_of::<Request>() <= 144, "{}", size_of::<Request>());
    assert!(size_of::<Text>() <= 32 && size_of::<Acl>() <= 72);
}

#[test]
fn data_and_children_are_written_from_borrowed_memory_as_from_owned() {
    let header = AnswerHeader {
        xid: 5.into(),
        zxid: 6,
        error: 0,
    };
    let stat = Stat {
        version: 9,
        ..Stat::default()
    };
    for data in [None, Some(&b""[..]), Some(b"data")] {
        let borrowed = encoded(|out| encode_data(out, header, data, &stat));
        let owned = Answer::Data(data.map(Bytes::copy_from_slice), stat);
        assert_eq!(borrowed, encoded(|out| encode_answer(out, header, &owned)));
    }
    for names in [&[][..], &["a"], &["a", "", "ü"]] {
        let texts: Vec<Text> = names.iter().map(|name| Text::from(*name)).collect();
        let children = || names.iter().copied();
        let borrowed = encoded(|out| encode_children(out, header, children(), None));
        let owned = Answer::Children(texts.clone());
        assert_eq!(borrowed, encoded(|out| encode_answer(out, header, &owned)));
        let borrowed = encoded(|out| encode_children(out, header, children(), Some(&stat)));
        let owned = Answer::ChildrenAndStat(texts, stat);
        assert_eq!(borrowed, encoded(|out| encode_answer(out, header, &owned)));
    }
}

#[test]
fn long_data_is_shared_and_the_length_of_its_frame_counts_it() {
    let header = AnswerHeader {
        xid: 5.into(),
        zxid: 6,
        error: 0,
    };
    let long = Bytes::from(vec![1; 300 << 10]);
    let answer = Answer::Data(Some(long.clone()), Stat::default());
    let mut out = Output::new();
    out.buffer().put_slice(b"before");
    encode_answer(&mut out, header, &answer);
    let pieces = out.take();
    assert!(pieces.iter().any(|piece| piece.as_ptr() == long.as_ptr()));
    let mut buffer = BytesMut::from(&pieces.concat()[6..]);
    let frame = take_frame(&mut buffer, FRAME_BYTES_MAX).expect("it is short enough");
    assert!(buffer.is_empty());
    let Ok(Incoming::Answer(_, body)) =
        decode_incoming(frame.expect("it is whole"), XidWidth::Four)
    else {
        panic!("no answer");
    };
    assert_eq!(decode_answer(opcode::GET_DATA, body), Ok(answer));
}

#[test]
fn watches_are_set_again_up_to_the_first_null() {
    const NOTHING: &[Option<&str>] = &[];
    let lists = |lists: [Option<&[Option<&str>]>; 5]| {
        read(opcode::SET_WATCHES_2, |frame: &mut BytesMut| {
            frame.put_i64(9);
            for list in lists {
                frame.put_i32(list.map_or(-1, |list| list.len() as i32));
                for path in list.unwrap_or_default() {
                    frame.put_i32(path.map_or(-1, |path| path.len() as i32));
                    frame.put_slice(path.unwrap_or_default().as_bytes());
                }
            }
        })
    };
    let (a, b, nothing) = ([Some("/a")], [Some("/b")], Some(NOTHING));
    let only_a = Ok(set_watches([&["/a"], &[], &[], &[], &[]], true));
    let a_null_b = [a[0], None, b[0]];
    let read = lists([Some(&a_null_b), Some(&b), None, Some(&b), None]);
    assert_eq!(read, only_a);
    let read = lists([Some(&a), None, Some(&b), nothing, nothing]);
    assert_eq!(read, only_a);
    let read = lists([nothing, nothing, Some(&b), Some(&a_null_b), None]);
    let expected = set_watches([&[], &[], &["/b"], &["/a", "\0", "/b"], &[]], true);
    assert_eq!(read, Ok(expected));
    let read = lists([nothing, nothing, nothing, nothing, Some(&[None])]);
    let expected = set_watches([&[], &[], &[], &[], &["\0"]], false);
    assert_eq!(read, Ok(expected));
}

#[test]
fn requests_that_break_off_are_written_as_they_are_read() {
    let path = || Text::from("/a");
    let delete = Request::Delete {
        path: Text::default(),
        version: 3,
    };
    for request in [
        set_watches([&[], &[], &[], &[], &[]], true),
        set_watches([&["/a"], &[], &["/b"], &[], &[]], true),
        set_watches([&["/a"], &[], &["/b"], &["/c"], &[]], true),
        Request::MultiRead {
            operations: vec![Request::GetData {
                path: path(),
                watch: false,
            }],
            breaks_off: true,
        },
        Request::NoPath(Box::new(delete)),
        Request::NoPath(Box::new(Request::DeleteContainer {
            path: Text::default(),
        })),
        Request::DeleteContainer { path: path() },
    ] {
        let frame = encoded(|out| encode_request(out, 5, &request));
        let frame = first_frame(&frame).expect("it is whole");
        let (header, again) =
            decode_request(frame, Dialect::ZooKeeper, XidWidth::Four).expect("it has a header");
        assert_eq!((header.xid, again), (5.into(), Ok(request)));
    }
}

#[test]
fn null_as_a_path_or_an_access_list() {
    let null = |frame: &mut BytesMut| frame.put_i32(-1);
    let refused = Err(Code::MARSHALLING_ERROR);
    assert_eq!(read(opcode::SYNC, null), Ok(Request::Sync { path: None }));
    assert_eq!(read(opcode::GET_ACL, null), refused);
    let null_and_more = |frame: &mut BytesMut| {
        null(frame);
        frame.put_slice(&[0; 20]);
    };
    for (opcode, is_no_path) in [
        (opcode::CREATE, true),
        (opcode::DELETE, true),
        (opcode::DELETE_CONTAINER, true),
        (opcode::SET_DATA, false),
        (opcode::SET_ACL, false),
        (opcode::CHECK, false),
    ] {
        let request = read(opcode, null_and_more).expect("it can be read");
        let found = matches!(request, Request::NoPath(_));
        assert_eq!((found, request.opcode()), (is_no_path, opcode));
        let in_a_multi = |frame: &mut BytesMut| {
            step(frame, opcode);
            null_and_more(frame);
            end(frame);
        };
        assert_eq!(read(opcode::MULTI, in_a_multi), refused, "{opcode}");
    }
    let create = |opcode, acl: i32| {
        read(opcode::MULTI, |frame: &mut BytesMut| {
            step(frame, opcode);
            put_path(frame);
            frame.put_i32(-1);
            frame.put_i32(acl);
            frame.put_i32(0);
            if opcode == opcode::CREATE_TTL {
                frame.put_i64(9);
            }
            end(frame);
        })
    };
    assert_eq!(create(opcode::CREATE, -1), refused);
    assert!(create(opcode::CREATE, 0).is_ok());
    assert!(create(opcode::CREATE_TTL, -1).is_ok());
}
