//! Somebody on the way changes bytes.

use super::*;

/// What happens to a stretch of bytes on the way.
type Tamper = fn(&mut Vec<u8>);

const TAMPERS: [(&str, Tamper); 5] = [
    ("a bit is flipped", |bytes| {
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
    }),
    ("the last byte is flipped", |bytes| {
        *bytes.last_mut().expect("not empty") ^= 0x80;
    }),
    ("it is cut in the middle, and goes on", |bytes| {
        let at = bytes.len() / 2;
        bytes.drain(at..at + 1);
        bytes.extend_from_slice(&[7; 30_000]);
    }),
    ("it comes twice", |bytes| bytes.extend_from_within(..)),
    ("it is replaced", |bytes| bytes.fill(0x17)),
];

fn ends() -> (End, End) {
    let place = Place::new();
    let (opener, acceptor) = (
        place.process("a", Policy::default()),
        place.process("b", Policy::default()),
    );
    greet(&opener, &acceptor)
}

#[test]
fn nothing_that_was_changed_on_the_way_is_heard() {
    for (how, tamper) in TAMPERS {
        let (mut opener, mut acceptor) = ends();
        acceptor.take(&opener.say(b"first"));
        let mut wire = opener.say(b"second, which somebody touches").to_vec();
        tamper(&mut wire);
        acceptor.take(&wire);
        assert!(acceptor.has_failed, "{how}");
        let heard = acceptor.heard.split();
        // What comes twice is heard once.
        let once = [&b"first"[..], b"firstsecond, which somebody touches"];
        assert!(once.contains(&&heard[..]), "{how}: {heard:?}");
        acceptor.take(&opener.say(b"third"));
        assert!(acceptor.heard.is_empty(), "{how}");
        assert!(!acceptor.failure().is_empty());
    }
}

#[test]
fn what_is_left_out_repeated_or_swapped_ends_the_connection() {
    for order in [&[0, 2][..], &[0, 0], &[1], &[1, 0]] {
        let (mut opener, mut acceptor) = ends();
        let said = [opener.say(b"a"), opener.say(b"b"), opener.say(b"c")];
        for at in order {
            acceptor.take(&said[*at]);
        }
        assert!(acceptor.has_failed, "{order:?}");
        let heard = if order[0] == 0 { &b"a"[..] } else { b"" };
        assert_eq!(acceptor.heard, heard, "{order:?}");
        let line = acceptor.failure();
        assert!(line.contains("changed, left out or repeated"), "{line}");
    }
}

#[test]
fn a_greeting_that_somebody_touches_leads_to_no_connection() {
    let place = Place::new();
    let (one, other) = (
        place.process("a", Policy::default()),
        place.process("b", Policy::default()),
    );
    // Which of the flights is touched: the hello, the answer, or what the opener shows.
    for flight in 0..3 {
        for (how, tamper) in TAMPERS {
            let mut ends = [
                End::new(&one, Side::Opener),
                End::new(&other, Side::Acceptor),
            ];
            let mut bytes = ends[0].take(&[]).to_vec();
            for round in 0..6 {
                if round == flight {
                    tamper(&mut bytes);
                }
                bytes = ends[(round + 1) % 2].take(&bytes).to_vec();
            }
            // The last flight of a side that has finished is heard by nobody.
            assert!(!ends[1].is_open(), "flight {flight}: {how}");
            assert!(ends[1].heard.is_empty() && ends[0].heard.is_empty());
        }
    }
}

#[test]
fn a_recorded_connection_is_no_use_later() {
    let place = Place::new();
    let (one, other) = (
        place.process("a", Policy::default()),
        place.process("b", Policy::default()),
    );
    let (mut opener, mut first) = (
        End::new(&one, Side::Opener),
        End::new(&other, Side::Acceptor),
    );
    let hello = opener.take(&[]);
    let shown = opener.take(&first.take(&hello));
    first.take(&shown);
    let request = opener.say(b"request");
    assert!(first.is_open());
    let mut second = End::new(&other, Side::Acceptor);
    for recorded in [hello, shown, request] {
        second.take(&recorded);
    }
    assert!(second.has_failed && second.heard.is_empty());
}

/// Fuzz target: what strangers send first.
#[test]
fn a_damaged_hello_is_refused_and_never_a_panic() {
    let place = Place::new();
    let own = place.process("node", Policy::default());
    let corpus: Vec<Vec<u8>> = (0..3)
        .map(|_| End::new(&own, Side::Opener).take(&[]).to_vec())
        .collect();
    plinth_core::testing::fuzz("tls hello", 1, corpus, |input| {
        let mut acceptor = End::new(&own, Side::Acceptor);
        acceptor.take(input);
        assert!(!acceptor.is_open());
        !acceptor.has_failed
    });
}

#[test]
fn a_record_that_comes_in_pieces_is_heard_whole_although_others_are_said_meanwhile() {
    let (mut opener, mut acceptor) = ends();
    for _ in 0..3 {
        let wire = opener.say(&[3; 20_000]);
        for piece in wire.chunks(7_001) {
            acceptor.take(piece);
            assert!(opener.take(&acceptor.say(b"meanwhile")).is_empty());
        }
        assert!(acceptor.heard.split() == [3; 20_000][..]);
        assert_eq!(opener.heard.split(), b"meanwhile".repeat(3)[..]);
    }
}

/// `rustls` keeps a message that is not whole by its place in the buffer that it is shown.
#[test]
fn a_message_of_the_handshake_that_is_not_whole_harms_nobody_who_writes() {
    let place = Place::new();
    let anybody = place.process("node", policy(&["Check.Valid=0"], &[]));
    let mut acceptor = End::new(&anybody, Side::Acceptor);
    let mut opener = super::peers::stranger();
    let (mut to_acceptor, mut unread) = (BytesMut::new(), BytesMut::new());
    while !acceptor.layer.is_greeted() {
        opener.greet(&mut unread, &mut to_acceptor);
        unread.extend_from_slice(&acceptor.take(&to_acceptor.split()));
    }
    // The first byte of a message that would exchange keys, and what goes on behind it.
    for content in [&[24][..], &[0], &[0]] {
        acceptor.take(&opener.record(22, content));
        assert!(!acceptor.has_failed, "{}", acceptor.failure());
        assert!(!acceptor.say(b"meanwhile").is_empty());
    }
    acceptor.take(&opener.record(22, &[1, 0]));
    assert!(!acceptor.has_failed, "{}", acceptor.failure());
    assert!(!acceptor.say(b"under a new key").is_empty());
    // It counts from zero under its own new key, which this test does not make.
    acceptor.take(&opener.record(23, b"under the former key"));
    assert!(acceptor.has_failed && acceptor.heard.is_empty());
}
