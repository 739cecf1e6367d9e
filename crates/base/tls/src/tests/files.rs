//! What is wrong with the files of a process, and files that change.

use super::*;
use crate::{Settings, Source};
use plinth_runtime::sim::{SimConfig, Simulation};
use plinth_runtime::{Duration, disk, sleep, spawn};
use std::path::Path;
use zeroize::Zeroizing;

fn line(material: &Material) -> String {
    let made = Certificates::new(material, Policy::default());
    made.err().expect("it is wrong")
}

#[test]
fn each_mistake_in_the_files_is_named_with_its_file() {
    let place = Place::new();
    let good = material(&place.issue("node"), &place.authority.pem);
    let mut wrong = good.clone();
    wrong.certificate.bytes = "nothing".into();
    assert_eq!(
        line(&wrong),
        "cert.pem: there is no certificate in it; it must be a PEM file"
    );
    let mut wrong = good.clone();
    wrong.ca.bytes = "".into();
    assert!(line(&wrong).starts_with("ca.pem: there is no certificate"));
    let mut wrong = good.clone();
    wrong.key.bytes = place.authority.pem.clone().into();
    assert!(line(&wrong).starts_with("key.pem: it is a certificate"));
    let mut wrong = good.clone();
    wrong.key.bytes = place.issue("other").key.into();
    let said = line(&wrong);
    assert!(
        said.contains("key.pem") && said.contains("cert.pem") && said.contains("one pair"),
        "{said}"
    );
    let mut wrong = good.clone();
    wrong.key.bytes = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n".into();
    assert!(line(&wrong).contains("openssl pkcs8 -topk8"));
    for mode in [0o640, 0o604, 0o620] {
        let mut open = good.clone();
        open.key.mode = Some(mode);
        let said = line(&open);
        assert!(
            said.contains("others can read") && said.contains("chmod 600"),
            "{said}"
        );
    }
    let mut closed = good.clone();
    closed.key.mode = Some(0o100_600);
    closed.certificate.mode = Some(0o100_644);
    assert!(Certificates::new(&closed, Policy::default()).is_ok());
}

/// `openssl genpkey -algorithm ed25519 -aes256 -pass pass:sesame`, and `openssl req -x509 -days 36500 -subj /CN=node`.
const WITH_PASSWORD: &str = include_str!("with_password.pem");

#[test]
fn a_key_with_a_password_opens_with_it_and_not_with_another() {
    let pair = Pair {
        certificate: WITH_PASSWORD.into(),
        key: WITH_PASSWORD.into(),
        serial: 0,
    };
    let mut files = material(&pair, WITH_PASSWORD);
    let said = line(&files);
    assert!(
        said.contains("key.pem") && said.contains("--tls-password"),
        "{said}"
    );
    files.password = Some(Zeroizing::new("wrong".into()));
    let said = line(&files);
    assert!(
        said.contains("password of the private key is wrong"),
        "{said}"
    );
    files.password = Some(Zeroizing::new("sesame".into()));
    let own = Certificates::new(&files, Policy::default()).expect("it opens");
    let (opener, acceptor) = greet(&own, &own);
    assert!(
        opener.is_open() && acceptor.is_open(),
        "{}",
        acceptor.failure()
    );
}

#[test]
fn variables_count_where_no_option_is_given() {
    let said = Settings {
        certificate: Some(Source::File("given.pem".into())),
        ..Settings::default()
    };
    let variables = |name: &str| match name {
        "FDB_TLS_CERTIFICATE_FILE" => Some("cert.pem".to_owned()),
        "FDB_TLS_KEY_FILE" => Some("key.pem".into()),
        "FDB_TLS_CA_FILE" => Some(String::new()),
        "FDB_TLS_PASSWORD" => Some("sesame".into()),
        "FDB_TLS_VERIFY_PEERS" => Some("S.CN=a|S.CN=b".into()),
        "PLINTH_TLS_IDENTITY" => Some(r"server:S.CN=a\;b;client:S.CN=c".into()),
        _ => None,
    };
    let all = said.or_variables(variables);
    let file = |name: &str| Some(Source::File(name.into()));
    assert!(all.certificate == file("given.pem") && all.key == file("key.pem") && all.ca.is_none());
    assert_eq!(all.password.as_deref().map(String::as_str), Some("sesame"));
    assert_eq!(all.verify_peers, ["S.CN=a|S.CN=b"]);
    assert!(Settings::default().or_variables(|_| None).is_empty());
    let missing = all.read_by(|_| unreachable!("one is missing"));
    assert!(
        missing
            .err()
            .expect("missing")
            .contains("--tls-ca-file is missing")
    );
}

async fn write(path: &str, text: &str) {
    let written = disk::write_file_durably(Path::new(path), text.to_owned().into());
    written.await.map(drop).expect("writes");
}

#[test]
fn files_that_change_are_taken_while_it_runs_and_wrong_ones_are_not() {
    Simulation::new(1, SimConfig::default()).run(async {
        let place = Place::new();
        let put = async |pair: Pair| {
            write("/cert", &pair.certificate).await;
            write("/key", &pair.key).await;
        };
        put(place.issue("first")).await;
        write("/ca", &place.authority.pem).await;
        let file = |path: &str| Some(Source::File(path.into()));
        let settings = Settings {
            certificate: file("/cert"),
            key: file("/key"),
            ca: file("/ca"),
            ..Settings::default()
        };
        let (own, known) = settings
            .load()
            .await
            .expect("they fit")
            .expect("there are some");
        let (followed, again) = (own.clone(), settings.clone());
        let _following = spawn("follow", async move {
            match followed.follow(&again, known).await {}
        });
        let wants = |name: &str| place.process("other", policy(&[&format!("S.CN={name}")], &[]));
        let is_now = |name: &str| greet(&own, &wants(name)).0.is_open();
        assert!(is_now("first"));
        // The certificate has come and its key has not.
        let second = place.issue("second");
        write("/cert", &second.certificate).await;
        sleep(Duration::from_secs(3)).await;
        assert!(is_now("first") && !is_now("second"));
        put(second).await;
        sleep(Duration::from_secs(3)).await;
        assert!(is_now("second") && !is_now("first"));
        disk::remove(Path::new("/ca")).await.expect("removes");
        sleep(Duration::from_secs(3)).await;
        assert!(is_now("second"));
        // Another authority: connections begin as its files say.
        let elsewhere = Place::new();
        put(elsewhere.issue("third")).await;
        write("/ca", &elsewhere.authority.pem).await;
        sleep(Duration::from_secs(3)).await;
        assert!(!is_now("third") && !is_now("second"));
        assert!(
            greet(&own, &elsewhere.process("x", Policy::default()))
                .0
                .is_open()
        );
    });
}

#[test]
fn a_file_that_is_seen_between_two_writes_is_not_taken() {
    Simulation::new(1, SimConfig::default()).run(async {
        let place = Place::new();
        let own = place.issue("own");
        write("/cert", &own.certificate).await;
        write("/key", &own.key).await;
        let stolen = place.issue("stolen");
        let root = place.authority.pem.clone();
        let whole = format!("{root}{}", place.authority.revoked(&[&stolen], 2100));
        write("/ca", &whole).await;
        let file = |path: &str| Some(Source::File(path.into()));
        let settings = Settings {
            certificate: file("/cert"),
            key: file("/key"),
            ca: file("/ca"),
            ..Settings::default()
        };
        let loaded = settings.load().await.expect("they fit");
        let (own, known) = loaded.expect("there are some");
        let followed = own.clone();
        let _following = spawn("follow", async move {
            match followed.follow(&settings, known).await {}
        });
        let thief = Certificates::new(&material(&stolen, &root), Policy::default());
        let thief = thief.expect("they fit");
        let is_refused = || !greet(&thief, &own).0.is_open() || !greet(&thief, &own).1.is_open();
        assert!(is_refused());
        for _ in 0..20 {
            write("/ca", &root).await;
            sleep(Duration::from_millis(400)).await;
            assert!(is_refused(), "the list counts");
            write("/ca", &whole).await;
            sleep(Duration::from_millis(1130)).await;
        }
        write("/ca", &root).await;
        sleep(Duration::from_secs(2)).await;
        assert!(!is_refused(), "the file has no list any more");
    });
}

#[test]
fn two_files_overlap_if_one_authority_is_in_both_or_has_signed_one_in_the_other() {
    let [ours, other, namesake] = ["Our root", "Other root", "Our root"].map(Authority::new);
    let below = ours.issue(&Wanted::named("Below"));
    let file = |all: &[&str]| Source::Bytes(all.concat().into());
    let overlap = |one: &[&str], other: &[&str]| {
        let (one, other) = (file(one), file(other));
        let simulation = Simulation::new(1, SimConfig::default());
        let looked = async move { crate::overlap(&one, &other).await };
        let looked = simulation.run_until(looked, Duration::from_secs(1));
        looked.expect("it ends")
    };
    let (ours, other, namesake) = (&ours.pem[..], &other.pem[..], &namesake.pem[..]);
    assert_eq!(overlap(&[ours], &[ours]), Ok(true));
    assert_eq!(overlap(&[other, ours], &[ours]), Ok(true));
    assert_eq!(overlap(&[&below.certificate], &[ours]), Ok(true));
    assert_eq!(overlap(&[ours], &[&below.certificate, other]), Ok(true));
    assert_eq!(overlap(&[ours], &[other]), Ok(false));
    assert_eq!(overlap(&[ours], &[namesake]), Ok(false));
    let wrong = overlap(&[ours], &["nothing"]).expect_err("it is no CA file");
    assert!(wrong.contains("there is no certificate in it"), "{wrong}");
}
