//! Figures of seals, greetings and tokens: `cargo run --release -p plinth-identity --example identity_speed`.
//!
//! Beside the seal stand CRC32C of the same bytes, which frames have anyway, and GMAC, which would do as well.

use bytes::Bytes;
use plinth_identity::Identity;
use plinth_identity::greeting::{Acceptor, Context, Next, Opener, Outcome, Strangers};
use plinth_identity::keys::{KeyFile, Keyring};
use plinth_identity::seal::{Checker, Sealer};
use plinth_identity::tokens::{Claims, SigningKey, TrustedKeys, verify};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use std::hint::black_box;

/// A figure is the best of so many runs. They are short, so that some of them have the processor for themselves even
/// if others use it too.
const RUNS: usize = 1000;
const RUN_BYTES: usize = 300 << 10;

/// Nanoseconds of a call.
#[allow(clippy::disallowed_types, clippy::disallowed_methods)] // it measures real time
fn nanos(calls: usize, mut call: impl FnMut()) -> f64 {
    let run = |_| {
        let begin = std::time::Instant::now();
        (0..calls).for_each(|_| call());
        begin.elapsed().as_nanos() as f64 / calls as f64
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}

fn line(what: &str, bytes: usize, nanos: f64) {
    let rate = bytes as f64 / nanos;
    println!("{what:42} {bytes:6} B: {nanos:9.1} ns {rate:6.2} GB/s");
}

fn settled() -> (Outcome, Outcome) {
    greet(&Keyring::new(&KeyFile::new_root([1; 32])), [2; 32])
}

fn greet(keys: &Keyring, nonce: [u8; 32]) -> (Outcome, Outcome) {
    let context = Context {
        purpose: "rpc",
        address: None,
    };
    let opener = Opener::new(
        context,
        Some(keys),
        Identity::Client,
        Strangers::Refused,
        nonce,
    );
    let answered = Acceptor::greeted(context, Some(keys), opener.hello(), nonce);
    let (proof, there) = opener.answered(&answered.answer).expect("the same keys");
    let (Next::Proof(acceptor), Some(proof)) = (answered.next, proof) else {
        panic!("both have keys");
    };
    (there, acceptor.proved(&proof).expect("the same keys"))
}

fn seals(bytes: usize) {
    let data = vec![7; bytes];
    let calls = RUN_BYTES / (bytes + 500) + 1;
    let (there, back) = settled();
    let mut sealer = Sealer::new(there.session.expect("keys").send);
    let mut checker = Checker::new(back.session.expect("keys").receive);
    let sealed = nanos(calls, || {
        black_box(sealer.seal([black_box(&data[..])])).expect("not used up");
    });
    line("seal", bytes, sealed);
    let (there, _) = settled();
    let mut sealer = Sealer::new(there.session.expect("keys").send);
    let both = nanos(calls, || {
        let seal = sealer.seal([&data[..]]).expect("not used up");
        checker
            .check(black_box(&data), &seal)
            .expect("the same keys");
    });
    line("seal and check", bytes, both);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[1; 16]).expect("128 bits"));
    let gmac = nanos(calls, || {
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(black_box(&data)), &mut []);
        let _ = black_box(tag.expect("short"));
    });
    line("GMAC, for comparison", bytes, gmac);
    let crc = nanos(calls, || {
        black_box(crc32c::crc32c(black_box(&data)));
    });
    line("CRC32C, for comparison", bytes, crc);
}

/// Frames that go out together and have one seal.
fn together(frames: usize, bytes: usize) {
    let data = vec![7; bytes];
    let (there, _) = settled();
    let mut sealer = Sealer::new(there.session.expect("keys").send);
    let sealed = nanos(RUN_BYTES / (frames * bytes + 500) + 1, || {
        let pieces = (0..frames).map(|_| black_box(&data[..]));
        black_box(sealer.seal(pieces)).expect("not used up");
    });
    let what = format!("seal over {frames} frames, for each of them");
    line(&what, bytes, sealed / frames as f64);
}

fn greetings() {
    let keys = Keyring::new(&KeyFile::new_root([1; 32]));
    let both = nanos(5, || {
        black_box(greet(&keys, [1; 32]));
    });
    println!("{:42} {:17.1} µs", "a greeting, both sides", both / 1000.0);
}

fn tokens() {
    let key = SigningKey::new("web", [1; 32]).expect("a name");
    let mut keys = TrustedKeys::new();
    keys.trust(key.name(), key.public());
    let claims = Claims {
        until: 10,
        read: vec![Bytes::from_static(b"app/")],
        ..Claims::default()
    };
    let token = key.sign(&claims).expect("good");
    let verified = nanos(5, || {
        let grant = verify(black_box(token.as_bytes()), &keys, "", 1);
        black_box(grant.expect("good"));
    });
    println!("{:42} {:17.1} µs", "a token, verified", verified / 1000.0);
    let grant = verify(token.as_bytes(), &keys, "", 1).expect("good");
    let asked = nanos(1000, || {
        assert!(black_box(&grant).may_read(black_box(b"app/x"), black_box(b"app/y")));
    });
    println!("{:42} {asked:17.1} ns", "a range, looked up in a grant");
}

fn main() {
    for bytes in [64, 200, 1 << 10, 64 << 10, 9 << 20] {
        seals(bytes);
    }
    for frames in [5, 20] {
        together(frames, 200);
    }
    greetings();
    tokens();
    let bytes = std::mem::size_of::<Sealer>() + std::mem::size_of::<Checker>();
    println!("{:42} {bytes:17} B", "seals of both directions, in memory");
}
