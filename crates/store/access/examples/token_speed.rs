//! What a token costs a role: `cargo run --release -p plinth-access --example token_speed`.

use bytes::Bytes;
use plinth_access::{Access, Clients, Guard};
use plinth_identity::Identity;
use plinth_identity::tokens::{Claims, SigningKey};
use plinth_protocol::token::Token;
use plinth_runtime::unix_time_ms;
use std::hint::black_box;
use std::rc::Rc;

/// A figure is the best of so many runs. They are short, so that some of them have the processor for themselves even
/// if others use it too.
const RUNS: usize = 300;

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

fn main() {
    let key = SigningKey::new("web", [1; 32]).expect("a name");
    let access = |clients| {
        let mut access = Access {
            clients,
            ..Access::default()
        };
        access.keys.trust("web", key.public());
        Rc::new(access)
    };
    let tokens = access(Clients::Tokens);
    let ask = |guard: &Guard, access: &Rc<Access>, token: &Token| {
        let right = guard.to_read(access, Identity::Client, black_box(token));
        let key = black_box(&b"app/05/some/key"[..]);
        assert!(right.expect("it is good").may_read(key, key));
    };
    let guard = || Guard::new("test:a".into());
    let all = access(Clients::All);
    let known = guard();
    let none = nanos(1000, || ask(&known, &all, &Token::NONE));
    println!("without a token, where none is needed: {none:6.1} ns");
    for prefixes in [1, 8, 64] {
        let read = (0..prefixes).map(|number| Bytes::from(format!("app/{number:02}/")));
        let claims = Claims {
            until: unix_time_ms() / 1000 + 3600,
            read: [Bytes::from("app/05/")]
                .into_iter()
                .chain(read)
                .take(prefixes)
                .collect(),
            ..Claims::default()
        };
        let text = key.sign(&claims).expect("good").into_bytes();
        let token = Token::new(text.clone().into()).expect("short");
        let first = nanos(10, || ask(&guard(), &tokens, &token));
        let known = guard();
        let again = nanos(1000, || ask(&known, &tokens, &token));
        println!(
            "{prefixes:3} prefixes, {:5} B: verified {:6.1} µs, remembered {again:6.1} ns",
            text.len(),
            first / 1000.0
        );
    }
}
