//! Clients that are no processes of Plinth.

use super::*;
use crate::judge::{Judge, Trust};
use crate::verifier::{Findings, Peers};
use crate::{ClientAuth, Guest, Guests, Wanted as Asked};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, SupportedProtocolVersion};
use std::io::{Read, Write};
use std::sync::Arc;

/// A client as others make it, which takes every server and has no certificate.
fn bare(version: &'static SupportedProtocolVersion) -> ClientConfig {
    let judge = Judge::new(policy(&["Check.Valid=0"], &[]), Trust::default());
    let looker = Peers {
        judge: Arc::new(judge),
        side: Side::Opener,
    };
    ClientConfig::builder_with_provider(crate::PROVIDER.clone())
        .with_protocol_versions(&[version])
        .expect("a version")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Findings::new(looker)))
        .with_no_client_auth()
}

/// One that shows `own`, if it has one. Whether the key fits is not looked at.
fn client(version: &'static SupportedProtocolVersion, own: Option<&Pair>) -> ClientConnection {
    client_for(version, own, &[])
}

/// One that offers to speak `protocols`.
fn client_for(
    version: &'static SupportedProtocolVersion,
    own: Option<&Pair>,
    protocols: &[&[u8]],
) -> ClientConnection {
    let mut config = bare(version);
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    if let Some(pair) = own {
        let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
        let chain = chain.collect::<Result<_, _>>().expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
        let key = any_supported_type(&key).expect("a key");
        let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        config.client_auth_cert_resolver = Arc::new(shown);
    }
    let name = "example".try_into().expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("it fits")
}

/// The side of the server.
struct Host {
    layer: Box<dyn Layer>,
    guest: Rc<Guest>,
    heard: BytesMut,
    unread: BytesMut,
    has_failed: bool,
}

impl Host {
    fn new(guests: &Guests) -> Host {
        let (layer, guest) = guests.begin();
        Host {
            layer,
            guest,
            heard: BytesMut::new(),
            unread: BytesMut::new(),
            has_failed: false,
        }
    }

    fn take(&mut self, bytes: &[u8]) -> BytesMut {
        let mut answer = BytesMut::new();
        if !self.has_failed {
            self.unread.extend_from_slice(bytes);
            let (unread, heard) = (&mut self.unread, &mut self.heard);
            self.has_failed = self.layer.receive(unread, heard, &mut answer).is_err();
        }
        answer
    }

    fn is_open(&self) -> bool {
        self.layer.is_greeted() && !self.has_failed
    }
}

/// Carries bytes between both sides until neither has more to say.
fn carry(client: &mut ClientConnection, mut take: impl FnMut(&[u8]) -> BytesMut) {
    loop {
        let mut out = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut out).expect("memory");
        }
        let answer = take(&out);
        let mut unread = &answer[..];
        while !unread.is_empty() {
            client.read_tls(&mut unread).expect("memory");
            if client.process_new_packets().is_err() {
                break; // it is refused
            }
        }
        if !client.wants_write() {
            return;
        }
    }
}

fn visit(guests: &Guests, version: &'static SupportedProtocolVersion, own: Option<&Pair>) -> Host {
    let (mut client, mut host) = (client(version, own), Host::new(guests));
    carry(&mut client, |bytes| host.take(bytes));
    if host.is_open() {
        client.writer().write_all(b"asks").expect("memory");
        carry(&mut client, |bytes| host.take(bytes));
        assert_eq!(host.heard, b"asks"[..]);
        let mut wire = BytesMut::new();
        host.layer.send(b"answers", &mut wire).expect("it is open");
        client.read_tls(&mut &wire[..]).expect("memory");
        client.process_new_packets().expect("it is open");
        let mut heard = [0; 7];
        client.reader().read_exact(&mut heard).expect("it is whole");
        assert_eq!(&heard, b"answers");
    }
    host
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];
const ALL: [ClientAuth; 3] = [ClientAuth::Need, ClientAuth::Want, ClientAuth::None];

fn guests(place: &Place, auth: ClientAuth) -> Guests {
    Guests::new(
        &material(&place.issue("keeper"), &place.authority.pem),
        auth,
    )
    .expect("they fit")
}

#[test]
fn rules_for_guests_and_the_name_of_their_protocol_count() {
    let place = Place::new();
    let asked = Asked {
        rules: policy(&["S.CN=app"], &[]).rules,
        protocol: Some(b"h2"),
        ..Asked::default()
    };
    let own = material(&place.issue("node"), &place.authority.pem);
    let guests = Guests::new(&own, asked).expect("they fit");
    for version in VERSIONS {
        assert!(visit(&guests, version, Some(&place.issue("app"))).is_open());
        let other = visit(&guests, version, Some(&place.issue("other")));
        let why = other.guest.failure().expect("it is refused");
        assert!(!other.is_open() && why.contains("S.CN=app"), "{why}");
        for (offered, spoken) in [(&b"h2"[..], true), (b"http/1.1", false)] {
            let mut host = Host::new(&guests);
            let mut client = client_for(version, Some(&place.issue("app")), &[offered]);
            carry(&mut client, |bytes| host.take(bytes));
            assert_eq!(host.is_open(), spoken);
            assert_eq!(client.alpn_protocol(), spoken.then_some(offered));
        }
    }
}

#[test]
fn a_guest_has_the_name_of_its_certificate_by_both_versions() {
    let place = Place::new();
    for version in VERSIONS {
        for auth in ALL {
            let host = visit(&guests(&place, auth), version, Some(&place.issue("a,b")));
            assert!(host.is_open(), "{:?}", host.guest.failure());
            let asked = auth != ClientAuth::None;
            let name = asked.then(|| "CN=a\\,b,O=Plinth".to_owned());
            assert_eq!(host.guest.name(), name, "{auth:?}");
        }
    }
}

#[test]
fn who_shows_no_certificate_is_refused_only_where_one_is_needed() {
    let place = Place::new();
    for version in VERSIONS {
        for auth in ALL {
            let host = visit(&guests(&place, auth), version, None);
            assert_eq!(host.is_open(), auth != ClientAuth::Need);
            assert_eq!(host.guest.name(), None);
            let line = host.guest.failure().unwrap_or_default();
            assert_eq!(
                line.contains("shown no certificate"),
                !host.is_open(),
                "{line}"
            );
        }
    }
}

#[test]
fn a_certificate_that_is_not_good_is_refused_where_none_is_needed_too() {
    let place = Place::new();
    let foreign = Authority::new("Our root").issue(&Wanted::named("client"));
    let old = place.authority.issue(&Wanted {
        to: 2001,
        ..Wanted::named("client")
    });
    let of_server = place.authority.issue(&Wanted {
        usages: &[ExtendedKeyUsagePurpose::ServerAuth],
        ..Wanted::named("client")
    });
    let wrong = [
        (&foreign, "nobody in ca.pem has signed it"),
        (&old, "not good at this time"),
        (&of_server, "not for this use"),
        (&self_signed("client"), "nobody in ca.pem has signed it"),
    ];
    for version in VERSIONS {
        for auth in [ClientAuth::Need, ClientAuth::Want] {
            for (pair, why) in wrong {
                let host = visit(&guests(&place, auth), version, Some(pair));
                assert!(!host.is_open() && host.guest.name().is_none());
                let line = host.guest.failure().expect("it is refused");
                assert!(line.contains(why) && line.contains("CN=client"), "{line}");
            }
        }
    }
}

#[test]
fn who_has_not_the_key_of_its_certificate_is_refused() {
    let place = Place::new();
    let own = guests(&place, ClientAuth::Need);
    for version in VERSIONS {
        let mut pair = place.issue("client");
        pair.key = place.issue("other").key;
        let host = visit(&own, version, Some(&pair));
        assert!(!host.is_open());
        let line = host.guest.failure().expect("it is refused");
        assert!(line.contains("does not have the key"), "{line}");
    }
}

#[test]
fn processes_speak_no_older_version_than_before() {
    let place = Place::new();
    let own = place.process("node", Policy::default());
    for (version, is_taken) in [(&TLS12, false), (&TLS13, true)] {
        let mut client = client(version, Some(&place.issue("app")));
        let mut acceptor = End::new(&own, Side::Acceptor);
        carry(&mut client, |bytes| acceptor.take(bytes));
        assert_eq!(acceptor.is_open(), is_taken);
        assert_eq!(acceptor.verdict.peer().is_some(), is_taken);
    }
}

#[test]
fn who_speaks_something_else_is_refused_at_once() {
    let place = Place::new();
    let own = guests(&place, ClientAuth::Want);
    let request = [0, 0, 0, 44, 0, 0, 0, 0, 0, 0, 0, 0];
    for said in [&b"ruok"[..], &request, &[0xff; 100], b"GET / HTTP/1.1\r\n"] {
        let mut host = Host::new(&own);
        let padded = [said, &[0; 8]].concat();
        host.take(&padded);
        assert!(host.has_failed, "{said:?}");
        let line = host.guest.failure().expect("it is refused");
        assert!(line.contains("does not speak TLS"), "{line}");
    }
    // A record that is too long, and a handshake that never becomes whole.
    let mut host = Host::new(&own);
    host.take(&[0x16, 3, 1, 0xff, 0xff, 1]);
    assert!(host.has_failed);
    let mut host = Host::new(&own);
    let begin = [0x16, 3, 1, 0x10, 0, 1, 0xff, 0xff, 0xff];
    host.take(&begin);
    let taken = (0..100).take_while(|_| {
        host.take(&[0; 4096]);
        !host.has_failed
    });
    assert!(taken.count() < 100, "its bytes are bounded");
}
