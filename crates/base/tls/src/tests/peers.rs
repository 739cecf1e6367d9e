//! Who is taken, who is refused, and what both sides are told.

use super::*;
use crate::ToVerdict;
use crate::judge::{Judge, Trust};
use crate::session::{Session, encode};
use crate::verifier::{Findings, Peers};
use bytes::Buf;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use rustls::client::UnbufferedClientConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use std::sync::Arc;

/// The other side is refused by the acceptor. Returns what both say.
fn refused(opener: &Certificates, acceptor: &Certificates) -> (String, String) {
    let (opener, acceptor) = greet(opener, acceptor);
    assert!(acceptor.has_failed && acceptor.verdict.peer().is_none());
    assert!(opener.has_failed, "the opener is told");
    (opener.failure(), acceptor.failure())
}

#[test]
fn without_identities_whoever_satisfies_the_rules_is_a_server() {
    let place = Place::new();
    let (one, other) = (
        place.process("a", Policy::default()),
        place.process("b", Policy::default()),
    );
    let (mut opener, mut acceptor) = greet(&one, &other);
    assert!(opener.is_open() && acceptor.is_open());
    assert_eq!(opener.verdict.peer(), Some(Identity::Server));
    assert_eq!(acceptor.verdict.peer(), Some(Identity::Server));
    for size in [1, 100, 16 << 10, (16 << 10) + 1, 1_000_000] {
        let said = vec![size as u8; size];
        assert!(acceptor.take(&opener.say(&said)).is_empty());
        assert!(acceptor.heard.split() == said[..], "{size}");
        assert!(opener.take(&acceptor.say(&said)).is_empty());
        assert!(opener.heard.split() == said[..], "{size}");
    }
    let mut end = BytesMut::new();
    opener.layer.end(&mut end);
    acceptor.take(&end);
    assert!(acceptor.layer.has_ended() && !acceptor.has_failed);
}

#[test]
fn the_first_identity_that_fits_a_certificate_counts() {
    let place = Place::new();
    let rules = [
        "client:S.CN>=app-",
        "server:S.CN=node",
        "operator:S.O=Plinth",
    ];
    let node = place.process("node", policy(&[], &rules));
    for (name, identity) in [
        ("app-7", Identity::Client),
        ("node", Identity::Server),
        ("alice", Identity::Operator),
    ] {
        let (opener, acceptor) = greet(&place.process(name, policy(&[], &rules)), &node);
        assert!(opener.is_open());
        assert_eq!(acceptor.verdict.peer(), Some(identity), "{name}");
    }
    // An opener takes only servers.
    let (opener, acceptor) = greet(&node, &place.process("app-7", policy(&[], &rules)));
    assert!(opener.has_failed && !acceptor.is_open());
    let line = opener.failure();
    assert!(
        line.contains("stands for a client") && line.contains("CN=app-7"),
        "{line}"
    );
    let stranger = place.authority.issue(&Wanted {
        organization: "Elsewhere",
        ..Wanted::named("x")
    });
    let stranger = certificates(&stranger, &place.authority.pem, Policy::default());
    let (told, seen) = refused(&stranger, &node);
    assert!(
        seen.contains("no --tls-identity fits") && seen.contains("CN=x"),
        "{seen}"
    );
    assert!(
        told.contains("the rules of the other side") && told.contains("cert.pem"),
        "{told}"
    );
}

#[test]
fn a_certificate_of_a_foreign_authority_is_refused_by_either_side() {
    let (ours, theirs) = (Place::new(), Place::new());
    let own = ours.process("node", Policy::default());
    let foreign = certificates(
        &theirs.issue("node"),
        &ours.authority.pem,
        Policy::default(),
    );
    let (told, seen) = refused(&foreign, &own);
    assert!(
        seen.contains("not signed by a trusted root") && seen.contains("nobody in ca.pem"),
        "{seen}"
    );
    assert!(
        told.contains("compare the CA files") && told.contains("CN=node"),
        "{told}"
    );
    let (opener, acceptor) = greet(&own, &foreign);
    assert!(opener.has_failed && !acceptor.is_open());
    assert!(
        opener.failure().contains("nobody in ca.pem"),
        "{}",
        opener.failure()
    );
}

#[test]
fn a_certificate_that_was_revoked_is_refused_by_either_side() {
    let place = Place::new();
    let (bad, good) = (place.issue("bad"), place.issue("good"));
    // A list that is due for renewal still counts.
    for next in [2002, 2100] {
        let list = place.authority.revoked(&[&bad], next);
        let ca = format!("{}{list}", place.authority.pem);
        let own = |rules| certificates(&place.issue("node"), &ca, policy(rules, &[]));
        let of_good = certificates(&good, &ca, Policy::default());
        assert!(greet(&of_good, &own(&[])).1.is_open());
        let of_bad = certificates(&bad, &place.authority.pem, Policy::default());
        let (told, seen) = refused(&of_bad, &own(&[]));
        assert!(
            seen.contains("was revoked") && seen.contains("CN=bad") && seen.contains("in ca.pem"),
            "{seen}"
        );
        assert!(told.contains("revoked"), "{told}");
        let (opener, acceptor) = greet(&own(&[]), &of_bad);
        assert!(opener.has_failed && !acceptor.is_open());
        assert!(opener.failure().contains("was revoked"));
        // Rules that do not look at dates still look at lists.
        refused(&of_bad, &own(&["Check.Unexpired=0,S.O=Plinth"]));
        // Who has signed the certificate through another one has no list, and so nothing is known against it.
        let between = place.authority.intermediate(&Wanted::named("Between"));
        let mut through = between.issue(&Wanted::named("through"));
        through.certificate += &between.pem;
        let through = certificates(&through, &ca, Policy::default());
        assert!(greet(&through, &own(&[])).1.is_open());
    }
}

#[test]
fn a_list_of_revoked_certificates_that_somebody_else_has_signed_is_told() {
    let (ours, theirs) = (Place::new(), Place::new());
    let list = theirs.authority.revoked(&[], 2100);
    let ca = format!("{}{list}", ours.authority.pem);
    let own = certificates(&ours.issue("node"), &ca, Policy::default());
    let (_, seen) = refused(&ours.process("a", Policy::default()), &own);
    assert!(
        seen.contains("has a list of revoked certificates"),
        "{seen}"
    );
    let cut = ca.replace("MII", "MIA");
    assert!(Certificates::new(&material(&ours.issue("node"), &cut), Policy::default()).is_err());
}

#[test]
fn a_certificate_that_has_ended_or_not_begun_is_refused_unless_rules_do_not_look() {
    let place = Place::new();
    let own = place.process("node", Policy::default());
    let lenient = place.process("node", policy(&["Check.Unexpired=0,S.O=Plinth"], &[]));
    for (from, to) in [(2001, 2002), (2090, 2100)] {
        let wanted = Wanted {
            from,
            to,
            ..Wanted::named("old")
        };
        let old = certificates(
            &place.authority.issue(&wanted),
            &place.authority.pem,
            Policy::default(),
        );
        let (told, seen) = refused(&old, &own);
        assert!(
            seen.contains("not good at this time") && seen.contains("CN=old"),
            "{seen}"
        );
        assert!(
            told.contains("renew it") && told.contains("cert.pem"),
            "{told}"
        );
        let (_, acceptor) = greet(&old, &lenient);
        assert_eq!(acceptor.verdict.peer(), Some(Identity::Server));
        // Of a foreign authority it is refused all the same.
        let foreign = Authority::new("Our root").issue(&wanted);
        let foreign = certificates(&foreign, &place.authority.pem, Policy::default());
        let (_, seen) = refused(&foreign, &lenient);
        assert!(seen.contains("not signed by a trusted root"), "{seen}");
    }
}

#[test]
fn a_certificate_between_that_has_ended_ends_those_that_it_has_signed() {
    let place = Place::new();
    let wanted = Wanted {
        from: 2001,
        to: 2002,
        ..Wanted::named("between")
    };
    let between = place.authority.intermediate(&wanted);
    let mut pair = between.issue(&Wanted::named("node"));
    pair.certificate.push_str(&between.pem);
    let late = certificates(&pair, &place.authority.pem, Policy::default());
    let (_, seen) = refused(&late, &place.process("node", Policy::default()));
    assert!(seen.contains("not good at this time"), "{seen}");
    let lenient = policy(&["Check.Unexpired=0"], &[]);
    let (_, acceptor) = greet(&late, &place.process("node", lenient));
    assert!(acceptor.is_open());

    let between = place.authority.intermediate(&Wanted::named("between"));
    let mut pair = between.issue(&Wanted::named("node"));
    pair.certificate.push_str(&between.pem);
    let chained = certificates(&pair, &place.authority.pem, Policy::default());
    let wants = policy(&["I.CN=between,R.CN=Our root"], &[]);
    let (opener, acceptor) = greet(&chained, &place.process("node", wants));
    assert!(
        opener.is_open() && acceptor.is_open(),
        "{}",
        acceptor.failure()
    );
}

#[test]
fn a_certificate_that_rules_leave_out_is_refused() {
    let place = Place::new();
    let own = place.process("node", policy(&["S.CN=node", "S.CN>=app-"], &[]));
    let (opener, _) = greet(&place.process("app-1", Policy::default()), &own);
    assert!(opener.is_open());
    let (told, seen) = refused(&place.process("stolen", Policy::default()), &own);
    assert!(
        seen.contains("fails S.CN=node and S.CN>=app-") && seen.contains("CN=stolen"),
        "{seen}"
    );
    assert!(told.contains("compare --tls-verify-peers"), "{told}");
}

#[test]
fn one_that_has_signed_itself_is_taken_only_from_the_ca_file() {
    let place = Place::new();
    let own = self_signed("alone");
    let alone = certificates(&own, &place.authority.pem, Policy::default());
    let (told, seen) = refused(&alone, &place.process("node", Policy::default()));
    assert!(seen.contains("nobody in ca.pem has signed it"), "{seen}");
    assert!(
        told.contains("nobody in its CA file has signed it"),
        "{told}"
    );
    let both = certificates(&own, &own.certificate, Policy::default());
    let (opener, acceptor) = greet(&both, &both);
    assert!(
        opener.is_open() && acceptor.is_open(),
        "{}",
        acceptor.failure()
    );
    // One with its name is another one.
    let twin = certificates(&self_signed("alone"), &own.certificate, Policy::default());
    refused(&twin, &both);
}

#[test]
fn a_certificate_for_another_use_is_refused() {
    let place = Place::new();
    let pair = place.authority.issue(&Wanted {
        usages: &[ExtendedKeyUsagePurpose::ServerAuth],
        ..Wanted::named("node")
    });
    let server_only = certificates(&pair, &place.authority.pem, Policy::default());
    let other = place.process("node", Policy::default());
    let (_, seen) = refused(&server_only, &other);
    assert!(seen.contains("not for this use"), "{seen}");
    let (opener, _) = greet(&other, &server_only);
    assert!(opener.is_open());
}

#[test]
fn who_shows_no_certificate_or_one_without_its_key_is_refused() {
    let place = Place::new();
    let own = place.process("node", Policy::default());
    let anybody = place.process("node", policy(&["Check.Valid=0"], &[]));
    for (acceptor, is_taken) in [(&own, false), (&anybody, true)] {
        let mut acceptor = End::new(acceptor, Side::Acceptor);
        let mut opener = without_certificate();
        let mut to_acceptor = opener.take(&[]);
        loop {
            let to_opener = acceptor.take(&to_acceptor);
            to_acceptor = opener.take(&to_opener);
            if to_acceptor.is_empty() && to_opener.is_empty() {
                break;
            }
        }
        assert_eq!(acceptor.is_open(), is_taken);
        if !is_taken {
            let line = acceptor.failure();
            assert!(line.contains("has shown no certificate"), "{line}");
        }
    }
}

/// An opener as others make it, which has nothing to show and takes everybody.
fn without_certificate() -> End {
    let (connection, findings) = bare_opener();
    let verdict = Rc::new(Verdict::default());
    let hearer = ToVerdict {
        findings,
        verdict: verdict.clone(),
        side: Side::Opener,
        shown: "none".into(),
    };
    let layer = Box::new(Session::new(connection, hearer));
    End {
        layer,
        verdict,
        heard: BytesMut::new(),
        unread: BytesMut::new(),
        has_failed: false,
    }
}

fn bare_opener() -> (UnbufferedClientConnection, Arc<Findings<Peers>>) {
    let judge = Judge::new(policy(&["Check.Valid=0"], &[]), Trust::default());
    let looker = Peers {
        judge: Arc::new(judge),
        side: Side::Opener,
    };
    let findings = Arc::new(Findings::new(looker));
    let mut config = rustls::ClientConfig::builder_with_provider(crate::PROVIDER.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version")
        .dangerous()
        .with_custom_certificate_verifier(findings.clone())
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    let name = "example".try_into().expect("a name");
    let connection = UnbufferedClientConnection::new(Arc::new(config), name);
    (connection.expect("it fits"), findings)
}

/// An opener that writes its own records.
pub fn stranger() -> Stranger {
    Stranger {
        connection: Some(bare_opener().0),
        key: None,
        count: 0,
    }
}

pub struct Stranger {
    connection: Option<UnbufferedClientConnection>,
    key: Option<(LessSafeKey, [u8; 12])>,
    count: u64,
}

impl Stranger {
    /// Goes on with the handshake.
    pub fn greet(&mut self, unread: &mut BytesMut, answer: &mut BytesMut) {
        let connection = self.connection.as_mut().expect("it greets");
        loop {
            let UnbufferedStatus { discard, state } = connection.process_tls_records(unread);
            let is_done = match state.expect("it goes on") {
                ConnectionState::EncodeTlsData(message) => {
                    encode(message, answer).expect("it is encoded")
                }
                ConnectionState::TransmitTlsData(message) => {
                    message.done();
                    false
                }
                _ => true,
            };
            unread.advance(discard);
            if is_done {
                return;
            }
        }
    }

    /// A record of this type.
    pub fn record(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        if let Some(connection) = self.connection.take() {
            #[expect(deprecated, reason = "it is a test")]
            let secrets = connection
                .dangerous_extract_secrets()
                .expect("it is asked for");
            let (count, ConnectionTrafficSecrets::Aes256Gcm { key, iv }) = secrets.tx else {
                panic!("the best algorithm of both");
            };
            let key = UnboundKey::new(&AES_256_GCM, key.as_ref()).expect("its length");
            let iv = iv.as_ref().try_into().expect("its length");
            self.key = Some((LessSafeKey::new(key), iv));
            self.count = count;
        }
        let (key, iv) = self.key.as_ref().expect("there is one");
        let mut nonce = *iv;
        for (byte, counted) in nonce[4..].iter_mut().zip(self.count.to_be_bytes()) {
            *byte ^= counted;
        }
        self.count += 1;
        let mut body = [content, &[kind]].concat();
        let [high, low] = (body.len() as u16 + 16).to_be_bytes();
        let head = [0x17, 3, 3, high, low];
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = key.seal_in_place_append_tag(nonce, Aad::from(head), &mut body);
        sealed.expect("it is short");
        [&head[..], &body].concat()
    }
}

#[test]
fn an_identity_that_does_not_exist_and_a_wrong_rule_are_named() {
    let line = |rules: &[&str], identities: &[&str]| {
        let parsed = Policy::parse(rules.iter().copied(), identities.iter().copied());
        parsed.expect_err("wrong")
    };
    assert!(line(&["S.XX=1"], &[]).contains("the fields are"));
    assert!(line(&[], &["client:S.XX=1"]).contains("`client:S.XX=1': rules for certificates"));
    for wrong in ["nobody:S.CN=x", "S.CN=x", "", "client"] {
        let said = Policy::parse([], [wrong]).expect_err(wrong);
        assert!(
            said.contains("does not begin with") || wrong == "client",
            "{said}"
        );
    }
}
