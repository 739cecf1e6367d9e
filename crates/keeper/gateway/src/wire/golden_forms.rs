//! The forms that ClickHouse's clients may ask for: numbers of eight bytes, and compressed blocks. Byte for byte, and
//! of any content.

use super::golden::{bytes_of, encoded, frame_of};
use super::packed::{BLOCK_BYTES_MAX, Damaged, front, put_packed, unpack};
use super::*;
use bytes::{BufMut, Bytes, BytesMut};
use plinth_core::output::Output;
use plinth_core::testing::fuzz;
use proptest::prelude::*;

const EIGHT: XidWidth = XidWidth::Eight;
/// A ping with a number of eight bytes, in a block. Its checksum is from ClickHouse's own CityHash, and its content
/// from LZ4's own library.
const PACKED_PING: &str =
    "eb63845e65e5407a01adaf0e1d9a4fff821b00000010000000f0010000000cfffffffffffffffe0000000b";

fn greeting(protocol_version: i32, is_packed: bool, read_only: Option<bool>) -> ConnectRequest {
    ConnectRequest {
        protocol_version,
        is_packed,
        last_zxid_seen: 0,
        timeout_ms: 10_000,
        session_id: 0,
        password: Bytes::from_static(&[0; 16]),
        read_only,
    }
}

/// As ClickHouse's clients greet: those with numbers of eight bytes count one byte less than they send.
#[test]
fn greetings_ask_for_a_form_and_are_taken_whole() {
    let rest = "000000000000000000002710000000000000000000000010\
                00000000000000000000000000000000";
    let (packed, wide) = (true, EIGHT);
    for (begin, end, request, protocol) in [
        (
            "0000002d00000000",
            "01",
            greeting(0, false, Some(true)),
            (false, XidWidth::Four),
        ),
        (
            "0000002d0000000a",
            "01",
            greeting(10, false, Some(true)),
            (packed, XidWidth::Four),
        ),
        (
            "0000002d0000000b00",
            "01",
            greeting(11, false, Some(true)),
            (false, wide),
        ),
        (
            "0000002d0000000b01",
            "01",
            greeting(11, true, Some(true)),
            (packed, wide),
        ),
        (
            "0000002c0000000b01",
            "",
            greeting(11, true, None),
            (packed, wide),
        ),
    ] {
        let hex = [begin, rest, end].concat();
        let bytes = encoded(|out| encode_connect_request(out, &request));
        assert_eq!(bytes, bytes_of(&hex), "{request:?}");
        let mut buffer = BytesMut::new();
        for byte in &bytes[..bytes.len() - 1] {
            buffer.put_u8(*byte);
            assert_eq!(take_greeting(&mut buffer, 1000), Ok(None));
        }
        buffer.extend_from_slice(&bytes[bytes.len() - 1..]);
        buffer.extend_from_slice(b"next");
        let frame = take_greeting(&mut buffer, 1000).expect("a greeting");
        let read = decode_connect_request(frame.expect("it is whole"));
        assert_eq!(read, Ok(request.clone()));
        assert_eq!(buffer[..], b"next"[..]);
        let (is_packed, xids) = protocol;
        let protocol = Protocol { is_packed, xids };
        assert_eq!(request.protocol(), Some(protocol));
        assert_eq!(protocol.version(), request.protocol_version);
    }
    assert_eq!(greeting(12, false, None).protocol(), None);
    assert_eq!(
        greeting(-1, true, None).protocol(),
        Some(Protocol::default())
    );
}

#[test]
fn a_number_of_eight_bytes_stands_before_requests_answers_and_events() {
    let number = Xid::wide(0x1_0000_0002);
    let request = Request::Exists {
        path: "/a".into(),
        watch: true,
    };
    let hex = "0000001300000001000000020000000300 0000022f6101".replace(' ', "");
    let written = encoded(|out| encode_request(out, number, &request));
    assert_eq!(written, bytes_of(&hex));
    let header = Header {
        xid: number,
        opcode: opcode::EXISTS,
    };
    let read = decode_request(frame_of(&hex), Dialect::ClickHouse, EIGHT);
    assert_eq!(read, Ok((header, Ok(request))));

    let header = AnswerHeader {
        xid: number,
        zxid: 7,
        error: 0,
    };
    let hex = "0000001800000001000000020000000000000007000000000000002a";
    let written = encoded(|out| encode_answer(out, header, &Answer::Number(42)));
    assert_eq!(written, bytes_of(hex));
    let Ok(Incoming::Answer(read, body)) = decode_incoming(frame_of(hex), EIGHT) else {
        panic!("an answer");
    };
    assert_eq!(read, header);
    let answer = decode_answer(opcode::GET_ALL_CHILDREN_NUMBER, body);
    assert_eq!(answer, Ok(Answer::Number(42)));

    let event = WatchEvent::of_a_node(event::DELETED, "/a".into(), 9);
    let hex = "00000022ffffffffffffffff00000000000000090000000000000002000000030000 00022f61";
    let hex = hex.replace(' ', "");
    let written = encoded(|out| encode_event(out, &event, EIGHT));
    assert_eq!(written, bytes_of(&hex));
    assert_eq!(
        decode_incoming(frame_of(&hex), EIGHT),
        Ok(Incoming::Event(event))
    );

    for special in [xid::PING, xid::AUTH, xid::SET_WATCHES] {
        let written = encoded(|out| encode_request(out, EIGHT.of(special), &Request::Ping));
        assert_eq!(written[4..12], i64::from(special).to_be_bytes());
    }
    let cut = Bytes::from_static(b"12345678901");
    assert_eq!(
        decode_request(cut, Dialect::ClickHouse, EIGHT),
        Err(Malformed)
    );
}

#[test]
fn a_block_is_as_clickhouse_makes_it() {
    let ping = encoded(|out| encode_request(out, EIGHT.of(xid::PING), &Request::Ping));
    let packed = encoded(|out| put_packed(out, |out| out.buffer().extend_from_slice(&ping)));
    assert_eq!(packed, bytes_of(PACKED_PING));
    // By LZ4's own library, with a match.
    let repeated = bytes_of("1f6101004b506161616161");
    let checked = [&[0x82, 20, 0, 0, 0, 100, 0, 0, 0][..], &repeated].concat();
    let mut block = BytesMut::from(&[0; 16][..]);
    block.extend_from_slice(&checked);
    let mut plain = BytesMut::new();
    assert_eq!(unpack(&mut block, &mut plain), Err(Damaged::Checksum));
    let mut block = BytesMut::from(&packed::checksum(&checked)[..]);
    block.extend_from_slice(&checked);
    assert_eq!(unpack(&mut block, &mut plain), Ok(true));
    assert_eq!((&plain[..], block.len()), (&[b'a'; 100][..], 0));
}

#[test]
fn nobody_makes_room_for_what_a_block_says_of_itself() {
    let header = |method: u8, packed: u32, plain: u32| {
        let mut block = BytesMut::from(&[0; 16][..]);
        block.put_u8(method);
        block.put_u32_le(packed);
        block.put_u32_le(plain);
        front(&block)
    };
    let most = u32::try_from(BLOCK_BYTES_MAX).expect("small");
    assert!(header(0x82, 9 + most, most).is_ok_and(|front| front.is_some()));
    for (packed, plain) in [
        (u32::MAX, most),
        (2 * most, most),
        (100, most + 1),
        (100, u32::MAX),
        (100, 0),
        (9, 1),
        (0, 1),
        (100, 10),
    ] {
        assert_eq!(header(0x82, packed, plain), Err(Damaged::Length));
    }
    assert_eq!(header(0x02, 100, 100), Err(Damaged::Method(2)));
}

#[test]
fn damaged_blocks_are_refused() {
    let corpus = [&[7_u8; 3][..], &[1; 5000], b"abcdefghijklmnopqrstuvwxyz"]
        .map(|plain| encoded(|out| put_packed(out, |out| out.buffer().extend_from_slice(plain))));
    let plains = corpus.clone().map(|packed| {
        let mut plain = BytesMut::new();
        assert_eq!(
            unpack(&mut BytesMut::from(&packed[..]), &mut plain),
            Ok(true)
        );
        plain
    });
    fuzz("compressed blocks", 7, corpus, |input| {
        let (mut buffer, mut plain) = (BytesMut::from(input), BytesMut::new());
        while let Ok(true) = unpack(&mut buffer, &mut plain) {}
        let is_known = plains.iter().any(|known| plain.starts_with(known));
        assert!(plain.is_empty() || is_known, "a block that nobody has made");
        is_known
    });
}

proptest! {
    #[test]
    fn what_goes_into_blocks_comes_out_of_them_however_it_arrives(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..2000), 1..10),
        repeat in 1..2000_usize,
        piece in 1..5000_usize,
    ) {
        let mut out = Output::new();
        let frames: Vec<Vec<u8>> = frames.into_iter().map(|frame| frame.repeat(repeat)).collect();
        for frame in &frames {
            put_packed(&mut out, |out| out.buffer().extend_from_slice(frame));
        }
        let (mut buffer, mut plain) = (BytesMut::new(), BytesMut::new());
        for some in out.into_bytes().chunks(piece * repeat) {
            buffer.extend_from_slice(some);
            while unpack(&mut buffer, &mut plain).expect("blocks") {}
        }
        prop_assert!(buffer.is_empty());
        prop_assert!(plain == frames.concat());
    }

    #[test]
    fn a_number_of_any_size_comes_back_as_it_was(number in any::<i64>(), is_wide in any::<bool>()) {
        let xid = if is_wide { Xid::wide(number) } else { Xid::from(number as i32) };
        let request = Request::WhoAmI;
        let frame = encoded(|out| encode_request(out, xid, &request)).split_off(4);
        let (header, _) = decode_request(frame.into(), Dialect::ZooKeeper, xid.width())
            .expect("it has a header");
        prop_assert_eq!(header.xid, xid);
        let header = AnswerHeader { xid, zxid: 1, error: 0 };
        let frame = encoded(|out| encode_answer(out, header, &Answer::Empty)).split_off(4);
        let event = xid.number() == -1;
        match decode_incoming(frame.into(), xid.width()) {
            Ok(Incoming::Answer(read, _)) => prop_assert_eq!(read, header),
            // It says that it is an event, and has none.
            other => prop_assert!(event && other == Err(Malformed)),
        }
    }
}
