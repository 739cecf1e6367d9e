//! Who is heard where certificates are asked for.

use super::greetings::{
    SERVER, Served, frame, greeting, opener, read, requests, say, simulate, write,
};
use super::stands::{Certified, credentials};
use crate::wire::{First, GREETING_BYTES_MAX};
use crate::{Error, Fabric};
use bytes::{Bytes, BytesMut};
use plinth_rpc::Credentials;
use plinth_rpc::certified;
use plinth_runtime::{Duration, net, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn who_shows_no_servers_certificate_changes_and_reads_nothing() {
    simulate(async {
        let all = Certified::new();
        let served = Served::with(all.of("node")).await;
        let before = served.memory();
        let plain = [frame(&First::Greeting(greeting())), requests()].concat();
        // The last one begins like a handshake.
        for bytes in [
            plain,
            vec![0xff; 5000],
            [[0x16, 3].to_vec(), vec![9; 500]].concat(),
        ] {
            let heard = say(served.address, bytes.into()).await;
            assert!(heard.len() < 10, "at most an alert: {heard:?}");
        }
        let others = [
            Credentials::none(),
            credentials(1),
            all.of("app"),
            all.of("somebody"),
            Certified::new().of("node"),
        ];
        for credentials in others {
            let fabric = opener(served.address, &credentials).await;
            assert_eq!(fabric.open(SERVER).await, Err(Error::Unreachable));
            assert_eq!(write(&fabric, 9).await, Err(Error::Unreachable));
        }
        assert_eq!(served.memory(), before);
        let fabric = opener(served.address, &all.of("node")).await;
        assert_eq!(fabric.open(SERVER).await, Ok(()));
        assert_eq!(write(&fabric, 3).await, Ok(()));
        assert_eq!((read(&fabric).await, served.word()), (Ok(3), 3));
    });
}

#[test]
fn no_greeting_without_certificates_begins_like_a_handshake() {
    // The second byte of a handshake is 3, that of a frame with so few bytes is 0.
    const { assert!(GREETING_BYTES_MAX < 256) };
}

#[test]
fn an_opener_with_certificates_says_nothing_to_who_has_none() {
    simulate(async {
        let served = Served::with(Credentials::none()).await;
        let before = served.memory();
        let fabric = opener(served.address, &Certified::new().of("node")).await;
        assert_eq!(fabric.open(SERVER).await, Err(Error::Unreachable));
        assert_eq!(served.memory(), before);
    });
}

#[test]
fn inside_tls_too_the_opener_says_which_machine_it_means() {
    simulate(async {
        let all = Certified::new();
        let served = Served::with(all.open("node")).await;
        let before = served.memory();
        let halves = net::connect(served.address).await.expect("connected");
        let own = all.of("node");
        let opened = certified::open(halves, served.address, &own, PATIENCE).await;
        let Ok(mut opened) = opened else {
            panic!("its certificate is good");
        };
        let bytes = [frame(&First::Greeting(greeting())), requests()].concat();
        let _ = opened.writer.write_all(Bytes::from(bytes)).await;
        let mut heard = BytesMut::new();
        let reads =
            async { while matches!(opened.reader.read(&mut heard).await, Ok(n) if n > 0) {} };
        timeout(PATIENCE, reads).await.expect("it is sent away");
        assert_eq!((heard.len(), served.memory()), (0, before));
    });
}
