//! Figures of handshakes and records: `cargo run --release -p plinth-tls --features testing --example tls_speed`.

use bytes::BytesMut;
use plinth_identity::Side;
use plinth_runtime::net::Layer;
use plinth_tls::testing::{Authority, Wanted, material};
use plinth_tls::{Certificates, Policy};
use std::hint::black_box;

/// A figure is the best of so many runs, so that some of them have the processor for themselves.
const RUNS: usize = 300;

/// Nanoseconds of what is done in a call.
#[allow(clippy::disallowed_types, clippy::disallowed_methods)] // it measures real time
fn nanos<T>(call: impl FnOnce() -> T) -> (T, f64) {
    let begin = std::time::Instant::now();
    let done = call();
    (done, begin.elapsed().as_nanos() as f64)
}

type Ends = [Box<dyn Layer>; 2];

/// Lets both sides greet; returns the nanoseconds of each.
fn greet(certificates: &Certificates) -> (Ends, [f64; 2]) {
    let sides = [Side::Opener, Side::Acceptor];
    let begun = sides.map(|side| nanos(|| certificates.begin(side).0));
    let mut spent = [begun[0].1, begun[1].1];
    let mut ends = begun.map(|(end, _)| end);
    let mut wire = BytesMut::new();
    for turn in 0..4 {
        let end = &mut ends[turn % 2];
        let (mut plain, mut answer) = (BytesMut::new(), BytesMut::new());
        let (received, took) = nanos(|| end.receive(&mut wire, &mut plain, &mut answer));
        received.expect("they fit");
        spent[turn % 2] += took;
        wire = answer;
    }
    assert!(ends.iter().all(|end| end.is_greeted()));
    (ends, spent)
}

fn records([one, other]: &mut Ends, bytes: usize) {
    let said = vec![7; bytes];
    let mut best = [f64::INFINITY; 2];
    for _ in 0..RUNS {
        let mut wire = BytesMut::new();
        let (sent, took) = nanos(|| one.send(&said, &mut wire));
        sent.expect("it is open");
        best[0] = best[0].min(took);
        let (mut plain, mut answer) = (BytesMut::new(), BytesMut::new());
        let (received, took) = nanos(|| other.receive(&mut wire, &mut plain, &mut answer));
        received.expect("it is whole");
        best[1] = best[1].min(took);
        assert_eq!(black_box(plain).len(), bytes);
    }
    println!(
        "{bytes:8} B: {:9.0} ns to send, {:9.0} ns to receive",
        best[0], best[1]
    );
}

fn main() {
    let authority = Authority::new("root");
    let own = authority.issue(&Wanted::named("node"));
    let certificates = Certificates::new(&material(&own, &authority.pem), Policy::default());
    let certificates = certificates.expect("they fit");
    let mut best = [f64::INFINITY; 2];
    for _ in 0..RUNS {
        let (_, spent) = greet(&certificates);
        best = [best[0].min(spent[0]), best[1].min(spent[1])];
    }
    println!(
        "handshake, P-256 certificates: {:.0} µs of the opener, {:.0} µs of the acceptor",
        best[0] / 1000.0,
        best[1] / 1000.0
    );
    let (mut ends, _) = greet(&certificates);
    for bytes in [64, 200, 1 << 10, 16 << 10, 64 << 10, 1 << 20] {
        records(&mut ends, bytes);
    }
}
