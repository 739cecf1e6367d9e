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
use plinth_runtime::sim::control;
use plinth_runtime::{Duration, net, spawn, timeout};

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

/// How many greetings are on record.
fn greeted() -> usize {
    let all = control().trace_tail();
    let is_one = |line: &&String| line.contains("ConnectionGreeted") && line.contains("server");
    all.iter().filter(is_one).count()
}

#[test]
fn who_has_proved_something_is_on_record_and_nobody_else() {
    simulate(async {
        let all = Certified::new();
        let by_certificate = Served::with(all.of("node")).await;
        let fabric = opener(by_certificate.address, &all.of("node")).await;
        assert_eq!((fabric.open(SERVER).await, greeted()), (Ok(()), 1));
        drop(fabric);
        let fabric = opener(by_certificate.address, &all.of("app")).await;
        assert_eq!(fabric.open(SERVER).await, Err(Error::Unreachable));
        assert_eq!(greeted(), 1);
    });
    simulate(async {
        let by_key = Served::with(credentials(1)).await;
        let fabric = opener(by_key.address, &credentials(1)).await;
        assert_eq!((fabric.open(SERVER).await, greeted()), (Ok(()), 1));
    });
    simulate(async {
        let open = Served::with(Credentials::none()).await;
        let fabric = opener(open.address, &Credentials::none()).await;
        assert_eq!((fabric.open(SERVER).await, greeted()), (Ok(()), 0));
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
        let node = Certified::new().of("node");
        let fabric = opener(served.address, &node).await;
        assert_eq!(fabric.open(SERVER).await, Err(Error::Unreachable));
        assert_eq!(served.memory(), before);
        drop(fabric);
        // Somebody who listens, and never answers.
        let mut listener = net::listen(([10, 255, 0, 0], 4601).into())
            .await
            .expect("listens");
        let fabric = opener(listener.local_addr().expect("its own"), &node).await;
        let listening = spawn("listening", async move {
            let (mut reader, _writer, _) = listener.accept().await.expect("a connection");
            let mut said = BytesMut::new();
            while matches!(reader.read(&mut said).await, Ok(n) if n > 0) {}
            said
        });
        assert_eq!(fabric.open(SERVER).await, Err(Error::Unreachable));
        let said = listening.await;
        assert_eq!(said[..2], [0x16, 3]);
        let record = usize::from(u16::from_be_bytes([said[3], said[4]]));
        assert_eq!(
            said.len(),
            5 + record,
            "the first word of TLS, and nothing else"
        );
        let hello = frame(&First::Greeting(greeting()));
        assert!(
            !said
                .windows(8)
                .any(|part| hello.windows(8).any(|of| of == part))
        );
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
        assert_eq!((heard.len(), served.memory()), (0, before.clone()));

        // The hello of an opener that means another machine, and of one that means this.
        let other = ([10, 255, 0, 9], 4501).into();
        for (meant, is_heard) in [(other, false), (served.address, true)] {
            let halves = net::connect(served.address).await.expect("connected");
            let opened = certified::open(halves, meant, &own, PATIENCE).await;
            let Ok(mut opened) = opened else {
                panic!("its certificate is good");
            };
            let hello = opened.opener.as_ref().expect("it means a machine").hello();
            let hello = First::Hello(Bytes::copy_from_slice(hello));
            let bytes = [frame(&hello), frame(&greeting()), requests()].concat();
            let _ = opened.writer.write_all(Bytes::from(bytes)).await;
            let mut heard = BytesMut::new();
            let reads =
                async { while matches!(opened.reader.read(&mut heard).await, Ok(n) if n > 0) {} };
            let ended = timeout(Duration::from_secs(1), reads).await;
            assert_eq!(ended.is_none(), is_heard, "who is meant listens on");
            assert_eq!(served.memory() != before, is_heard);
        }
    });
}
