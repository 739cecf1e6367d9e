use super::*;
use plinth_identity::tokens::{Claims, SigningKey, Tenant};
use plinth_runtime::sim::{SimConfig, Simulation};
use plinth_runtime::{Duration, fault, sleep};

const CLUSTER: &str = "test:a";

fn signer() -> SigningKey {
    SigningKey::new("web", [1; 32]).expect("a name")
}

fn access(clients: Clients) -> Rc<Access> {
    let mut access = Access {
        clients,
        ..Access::default()
    };
    access.keys.trust("web", signer().public());
    Rc::new(access)
}

fn claims(seconds: u64) -> Claims {
    Claims {
        until: now() + seconds,
        read: vec![Bytes::from_static(b"app/")],
        write: vec![Bytes::from_static(b"app/cart/")],
        ..Claims::default()
    }
}

fn signed(claims: &Claims) -> Token {
    let text = signer().sign(claims).expect("good");
    Token::new(text.into_bytes().into()).expect("short")
}

/// Runs in a simulated world, whose clock is at hand.
fn at_some_time(work: impl Future<Output = ()> + 'static) {
    Simulation::new(1, SimConfig::default()).run(work);
}

fn is_everything(right: Result<Right, Refused>) -> bool {
    matches!(right, Ok(Right::Everything))
}

#[test]
fn a_client_has_what_is_configured_and_operators_have_everything() {
    at_some_time(async {
        let guard = Guard::new(CLUSTER.into());
        let none = Token::NONE;
        for (clients, reads, writes) in [
            (Clients::All, true, true),
            (Clients::Reads, true, false),
            (Clients::Tokens, false, false),
        ] {
            let access = access(clients);
            for caller in Identity::ALL {
                let is_operator = caller >= Identity::Operator;
                let read = guard.to_read(&access, caller, &none);
                assert_eq!(is_everything(read), reads || is_operator, "{caller}");
                let write = guard.to_write(&access, caller, &none);
                assert_eq!(is_everything(write), writes || is_operator, "{caller}");
            }
        }
    });
}

#[test]
fn a_token_grants_its_prefixes_and_nothing_beside_them() {
    at_some_time(async {
        let guard = Guard::new(CLUSTER.into());
        let token = signed(&claims(100));
        let access = access(Clients::Tokens);
        let right = guard.to_read(&access, Identity::Client, &token);
        let right = right.expect("it is good");
        assert!(right.may_read(b"app/", b"app/") && right.may_read(b"app/a", b"app0"));
        assert!(!right.may_read(b"app/a", b"app0\0") && !right.may_read(b"app.", b"app."));
        assert!(!right.may_read(b"app", b"app/a") && !right.may_read(b"", b"\xff"));
        assert!(
            right.may_write(b"app/cart/1", b"app/cart/2") && !right.may_write(b"app/", b"app/")
        );
        let stamp = plinth_core::system_keys::METADATA_VERSION;
        assert!(right.may_read(stamp, stamp) && !right.may_write(stamp, stamp));
        for row in [
            TENANT_MAP,
            b"\xff/conf",
            b"\xff/keyServers/",
            b"\xff\x02/idmp/",
        ] {
            assert!(!right.may_read(row, row));
        }
        let of_tenants = Claims {
            tenants: vec![Tenant::Id(3)],
            ..claims(100)
        };
        let token = signed(&of_tenants);
        let right = guard.to_read(&access, Identity::Client, &token);
        let right = right.expect("it is good");
        let (own, other) = (3u64.to_be_bytes(), 4u64.to_be_bytes());
        assert!(right.may_read(&own, &own) && right.may_write(&own, &own));
        assert!(!right.may_read(&other, &other) && !right.may_write(&other, &other));
        let name = [TENANT_MAP, b"shop"].concat();
        assert!(right.may_read(&name, &name));
        let all_names = [TENANT_MAP, b"\xff"].concat();
        assert!(!right.may_read(TENANT_MAP, &all_names));
    });
}

#[test]
fn only_places_of_granted_keys_are_told() {
    at_some_time(async {
        let guard = Guard::new(CLUSTER.into());
        let token = signed(&claims(100));
        let right = guard.to_read(&access(Clients::Tokens), Identity::Client, &token);
        let right = right.expect("it is good");
        let all = KeyRange::new(&b"app/"[..], &b"app0"[..]);
        assert_eq!(right.place(b"app/x", false), Some(all.clone()));
        assert_eq!(right.place(b"app/cart/x", false), Some(all.clone()));
        assert_eq!(right.place(b"app0", true), Some(all));
        for (at, before) in [
            (&b"app0"[..], false),
            (b"app/", true),
            (b"a", false),
            (b"", true),
        ] {
            assert_eq!(right.place(at, before), None);
        }
        let stamp = plinth_core::system_keys::METADATA_VERSION;
        assert_eq!(right.place(stamp, false), Some(KeyRange::single(stamp)));
        assert_eq!(Right::Everything.place(b"x", true), Some(KeyRange::all()));
    });
}

/// Whether a token counts that is over after ten seconds, before and after that time.
async fn counts_before_and_after() -> (bool, bool) {
    let guard = Guard::new(CLUSTER.into());
    let (access, token) = (access(Clients::Tokens), signed(&claims(10)));
    let asked = || guard.to_write(&access, Identity::Client, &token);
    let before = asked();
    assert_eq!(guard.remembered(), 1);
    sleep(Duration::from_secs(11)).await;
    let waited = before
        .as_ref()
        .is_ok_and(|right| right.still_counts(&access, Identity::Client));
    let after = asked();
    assert_eq!(
        after.is_ok(),
        waited,
        "what waits has the right of what comes"
    );
    (before.is_ok(), after.is_ok())
}

#[test]
fn a_token_that_was_verified_is_over_at_its_end() {
    at_some_time(async {
        assert_eq!(counts_before_and_after().await, (true, false));
    });
    at_some_time(async {
        fault::plant(Some("token_outlives_its_end"));
        let with_fault = counts_before_and_after().await;
        fault::plant(None);
        assert_eq!(with_fault, (true, true), "the planted fault is not found");
        fault::found("token_outlives_its_end");
    });
}

#[test]
fn a_token_is_good_from_its_begin_on_and_for_this_cluster() {
    at_some_time(async {
        let guard = Guard::new(CLUSTER.into());
        let access = access(Clients::Tokens);
        let asked = |claims: Claims| {
            let token = signed(&claims);
            guard.to_read(&access, Identity::Client, &token).map(drop)
        };
        let later = Claims {
            from: Some(now() + 5),
            ..claims(100)
        };
        let early = Refused::Token(TokenError::TooEarly(now() + 5));
        assert_eq!(asked(later.clone()), Err(early));
        sleep(Duration::from_secs(6)).await;
        assert_eq!(asked(later), Ok(()));
        let elsewhere = Claims {
            audience: vec!["other:b".into()],
            ..claims(100)
        };
        assert_eq!(asked(elsewhere), Err(Refused::Token(TokenError::Audience)));
        let here = Claims {
            audience: vec![CLUSTER.into()],
            ..claims(100)
        };
        assert_eq!(asked(here), Ok(()));
    });
}

#[test]
fn what_a_revoked_or_exchanged_key_has_signed_is_over_at_once() {
    at_some_time(async {
        let guard = Guard::new(CLUSTER.into());
        let (trusting, token) = (access(Clients::Tokens), signed(&claims(100)));
        let right = guard.to_read(&trusting, Identity::Client, &token);
        let right = right.expect("it is good");
        let revoked = Rc::new(Access {
            clients: Clients::Tokens,
            ..Access::default()
        });
        let unknown = Refused::Token(TokenError::UnknownKey("web".into()));
        let got = guard.to_read(&revoked, Identity::Client, &token);
        assert_eq!(got.map(drop), Err(unknown));
        assert!(
            right.still_counts(&trusting, Identity::Client)
                && !right.still_counts(&revoked, Identity::Client)
        );
        let mut exchanged = Access::clone(&revoked);
        let other = SigningKey::new("web", [2; 32]).expect("a name");
        exchanged.keys.trust("web", other.public());
        let foreign = Refused::Token(TokenError::Signature("web".into()));
        let got = guard.to_read(&Rc::new(exchanged), Identity::Client, &token);
        assert_eq!(got.map(drop), Err(foreign));
    });
}

#[test]
fn a_role_remembers_so_many_tokens_and_no_bad_one() {
    at_some_time(async {
        let guard = Guard::new(CLUSTER.into());
        let access = access(Clients::Tokens);
        let bad = Token::new(Bytes::from_static(b"a.b.c")).expect("short");
        assert!(guard.to_read(&access, Identity::Client, &bad).is_err());
        assert_eq!(guard.remembered(), 0);
        for number in 0..TOKENS_MAX as u64 + 10 {
            let token = signed(&claims(100 + number));
            assert!(guard.to_read(&access, Identity::Client, &token).is_ok());
            assert!(guard.remembered() <= TOKENS_MAX);
        }
    });
}
