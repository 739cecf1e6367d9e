use super::*;
use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_core::testing::fuzz;

const CLUSTER: &str = "test:a1B2";
const NOW: u64 = 1_000_000;

fn signer() -> SigningKey {
    SigningKey::new("web", [1; 32]).expect("a name")
}

fn trusted() -> TrustedKeys {
    let mut keys = TrustedKeys::new();
    keys.trust("web", signer().public());
    keys
}

fn claims() -> Claims {
    Claims {
        until: NOW + 10,
        from: Some(NOW - 10),
        audience: vec!["other:c".into(), CLUSTER.into()],
        subject: Some("the shop".into()),
        read: vec![Bytes::from_static(b"app/")],
        write: vec![Bytes::from_static(b"app/cart/")],
        tenants: vec![Tenant::Id(17), Tenant::Name(Bytes::from_static(b"shop"))],
    }
}

fn check(token: &str, now: u64) -> Result<Grant, TokenError> {
    verify(token.as_bytes(), &trusted(), CLUSTER, now)
}

const HEADER: &str = r#"{"alg":"EdDSA","kid":"web"}"#;

/// What becomes of a well-signed token with this JSON.
fn of_json(header: &str, claims: &str) -> Result<Grant, TokenError> {
    check(&signer().sign_parts(header, claims), NOW)
}

fn is_malformed(header: &str, claims: &str) {
    let got = of_json(header, claims);
    assert!(
        matches!(got, Err(TokenError::Malformed(_))),
        "{header} {claims}: {got:?}"
    );
}

#[test]
fn signatures_are_those_of_rfc_8037() {
    let secret = unbase64("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A").expect("base64url");
    let key = SigningKey::new("rfc", secret.try_into().expect("32 bytes")).expect("a name");
    let public = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    assert_eq!(key.public().to_string(), public);
    assert_eq!(PublicKey::parse(public), Some(key.public()));
    let signed = concat!(
        "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.",
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
    );
    assert_eq!(
        key.sign_parts(r#"{"alg":"EdDSA"}"#, "Example of Ed25519 signing"),
        signed
    );
}

#[test]
fn a_signed_token_grants_what_it_says() {
    let grant = check(&signer().sign(&claims()).expect("good"), NOW).expect("good");
    assert_eq!((grant.key(), grant.subject()), ("web", Some("the shop")));
    assert_eq!(grant.until(), NOW + 10);
    assert_eq!(grant.tenants(), claims().tenants);
    let tenant = 17u64.to_be_bytes();
    for (key, reads, writes) in [
        (&b"app/x"[..], true, false),
        (b"app/cart/x", true, true),
        (b"apq", false, false),
        (&[&tenant[..], b"x"].concat(), true, true),
        (&16u64.to_be_bytes(), false, false),
        (b"\xff/x", false, false),
    ] {
        let KeyRange { begin, end } = KeyRange::single(key);
        assert_eq!(
            (grant.may_read(&begin, &end), grant.may_write(&begin, &end)),
            (reads, writes)
        );
    }
}

#[test]
fn what_a_token_says_is_what_was_signed_and_a_damaged_one_says_nothing_without_a_panic() {
    let token = signer().sign(&claims()).expect("signs");
    assert_eq!(said(token.as_bytes()), Ok(("web".into(), claims())));
    let read = fuzz("said of a token", 1, [token.into_bytes()], |input| {
        said(input).is_ok()
    });
    assert!(read > 0);
    let long = vec![b'.'; TOKEN_BYTES_MAX + 1];
    assert!(matches!(said(&long), Err(TokenError::TooLong(_))));
}

#[test]
fn the_empty_prefix_grants_all_keys_but_those_of_the_system() {
    let grant = of_json(HEADER, r#"{"exp":1000001,"plinth":{"read":[""]}}"#).expect("good");
    assert!(grant.may_read(b"", b"\xff"));
    assert!(!grant.may_read(b"", b"\xff\0") && !grant.may_read(b"\xff", b"\xff\0"));
    assert!(!grant.may_write(b"", b"a"));
}

#[test]
fn a_token_is_good_from_its_first_second_to_its_last() {
    let token = signer().sign(&claims()).expect("good");
    assert_eq!(check(&token, NOW - 11), Err(TokenError::TooEarly(NOW - 10)));
    for now in [NOW - 10, NOW + 9] {
        assert!(!check(&token, now).expect("good").is_over(now));
    }
    for now in [NOW + 10, u64::MAX] {
        assert_eq!(check(&token, now), Err(TokenError::Over(NOW + 10)));
        assert!(check(&token, NOW).expect("good").is_over(now));
    }
}

#[test]
fn only_a_trusted_key_of_that_name_counts() {
    let token = signer().sign(&claims()).expect("good");
    let other = SigningKey::new("web", [2; 32]).expect("a name");
    let forged = other.sign(&claims()).expect("good");
    assert_eq!(
        check(&forged, NOW),
        Err(TokenError::Signature("web".into()))
    );
    let mut keys = trusted();
    assert!(keys.revoke("web") && !keys.revoke("web"));
    let got = verify(token.as_bytes(), &keys, CLUSTER, NOW);
    assert_eq!(got, Err(TokenError::UnknownKey("web".into())));
    assert!(SigningKey::new("", [1; 32]).is_none());
    assert!(SigningKey::new("k".repeat(KEY_NAME_BYTES_MAX + 1), [1; 32]).is_none());
}

#[test]
fn a_token_for_another_cluster_is_refused() {
    let token = signer().sign(&claims()).expect("good");
    let got = verify(token.as_bytes(), &trusted(), "test:zzz", NOW);
    assert_eq!(got, Err(TokenError::Audience));
    let of = |aud: &str| {
        of_json(
            HEADER,
            &format!(r#"{{"exp":9000000,"aud":{aud},"plinth":{{"read":[""]}}}}"#),
        )
    };
    assert!(of(r#""test:a1B2""#).is_ok() && of(r#"["x","test:a1B2"]"#).is_ok());
    for aud in [r#""x""#, r#"["x"]"#, "[]", r#""""#] {
        assert_eq!(of(aud), Err(TokenError::Audience), "{aud}");
    }
    for aud in ["null", "1", "{}", "[1]"] {
        assert!(matches!(of(aud), Err(TokenError::Malformed(_))), "{aud}");
    }
}

#[test]
fn every_other_header_is_refused() {
    let claims = r#"{"exp":9000000,"plinth":{"read":[""]}}"#;
    for good in [
        HEADER,
        r#"{"typ":"JWT","alg":"EdDSA","kid":"web"}"#,
        r#"{"alg":"EdDSA","kid":"web","typ":"jwt"}"#,
    ] {
        assert!(of_json(good, claims).is_ok(), "{good}");
    }
    for alg in ["none", "None", "HS256", "ES256", "Ed25519", "eddsa", ""] {
        let header = format!(r#"{{"alg":"{alg}","kid":"web"}}"#);
        assert_eq!(
            of_json(&header, claims),
            Err(TokenError::Algorithm),
            "{alg}"
        );
    }
    for header in [
        r#"{"alg":"EdDSA"}"#,
        r#"{"kid":"web"}"#,
        r#"{"alg":"EdDSA","kid":""}"#,
        r#"{"alg":"EdDSA","kid":null}"#,
        r#"{"alg":"EdDSA","kid":"web","typ":null}"#,
        r#"{"alg":"EdDSA","kid":"web","typ":"JWE"}"#,
        r#"{"alg":"EdDSA","kid":"web","crit":["exp"]}"#,
        r#"{"alg":"EdDSA","kid":"web","jwk":{}}"#,
        r#"{"alg":"none","alg":"EdDSA","kid":"web"}"#,
        r#"{"alg":"EdDSA","kid":"x","\u006bid":"web"}"#,
        r#"["EdDSA","web"]"#,
        r#"{"alg":"EdDSA","kid":"web"} x"#,
        "",
        "null",
    ] {
        is_malformed(header, claims);
    }
}

#[test]
fn every_malformed_claim_is_refused_and_unknown_ones_are_ignored() {
    assert!(
        of_json(
            HEADER,
            r#"{"exp":9000000,"jti":[1],"iat":"?","plinth":{"read":["YQ"]}}"#
        )
        .is_ok()
    );
    for claims in [
        "",
        "[]",
        r#"{"plinth":{"read":["YQ"]}}"#,
        r#"{"exp":9000000}"#,
        r#"{"exp":"9000000","plinth":{"read":["YQ"]}}"#,
        r#"{"exp":9000000.0,"plinth":{"read":["YQ"]}}"#,
        r#"{"exp":-1,"plinth":{"read":["YQ"]}}"#,
        r#"{"exp":1e9,"plinth":{"read":["YQ"]}}"#,
        r#"{"exp":99999999999999999999,"plinth":{"read":["YQ"]}}"#,
        r#"{"exp":1,"exp":9000000,"plinth":{"read":["YQ"]}}"#,
        r#"{"exp":9000000,"nbf":null,"plinth":{"read":["YQ"]}}"#,
        r#"{"exp":9000000,"sub":1,"plinth":{"read":["YQ"]}}"#,
        r#"{"exp":9000000,"plinth":{}}"#,
        r#"{"exp":9000000,"plinth":null}"#,
        r#"{"exp":9000000,"plinth":[["YQ"],[],[]]}"#,
        r#"{"exp":9000000,"plinth":{"read":[]}}"#,
        r#"{"exp":9000000,"plinth":{"read":null}}"#,
        r#"{"exp":9000000,"plinth":{"read":["YQ"],"only":["YQ"]}}"#,
        r#"{"exp":9000000,"plinth":{"read":["YQ"],"read":["Yg"]}}"#,
        r#"{"exp":9000000,"plinth":{"read":["YQ=="]}}"#,
        r#"{"exp":9000000,"plinth":{"read":["YR"]}}"#,
        r#"{"exp":9000000,"plinth":{"read":["+/"]}}"#,
        r#"{"exp":9000000,"plinth":{"read":["_w"]}}"#,
        r#"{"exp":9000000,"plinth":{"write":["_y8"]}}"#,
        r#"{"exp":9000000,"plinth":{"tenants":[-1]}}"#,
        r#"{"exp":9000000,"plinth":{"tenants":[9223372036854775808]}}"#,
        r#"{"exp":9000000,"plinth":{"tenants":["?"]}}"#,
        r#"{"exp":9000000,"plinth":{"tenants":[null]}}"#,
    ] {
        is_malformed(HEADER, claims);
    }
}

#[test]
fn a_token_stays_within_its_bounds() {
    let many = |count: u16| Claims {
        read: (0..count)
            .map(|at| Bytes::from(at.to_be_bytes().to_vec()))
            .collect(),
        ..Claims {
            write: Vec::new(),
            tenants: Vec::new(),
            ..claims()
        }
    };
    let most = signer()
        .sign(&many(PREFIXES_MAX as u16))
        .expect("as many as are allowed");
    assert_eq!(
        check(&most, NOW).expect("good").reads().len(),
        1,
        "they touch"
    );
    assert!(signer().sign(&many(PREFIXES_MAX as u16 + 1)).is_err());
    let long = Claims {
        read: vec![Bytes::from(vec![7; TOKEN_BYTES_MAX])],
        ..claims()
    };
    assert!(matches!(signer().sign(&long), Err(TokenError::TooLong(_))));
    let deep = format!(
        r#"{{"exp":9000000,"x":{}{}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    is_malformed(HEADER, &deep);
}

#[test]
fn every_changed_character_of_a_token_is_noticed() {
    let token = signer().sign(&claims()).expect("good");
    assert!(check(&token, NOW).is_ok());
    for at in 0..token.len() {
        for other in ["A", "b", "-", ".", "="] {
            let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
            assert!(changed == token || check(&changed, NOW).is_err(), "{at}");
        }
        assert!(check(&token[..at], NOW).is_err());
    }
}

#[test]
fn debug_output_of_a_signing_key_shows_no_secret() {
    let shown = format!("{:?}", SigningKey::new("web", [0x41; 32]).expect("a name"));
    assert!(!shown.contains("AAAA") && !shown.contains("4141") && !shown.contains("65, 65"));
}

/// Fuzz target: everything before the signature. A signature takes long to verify, so most inputs meet no trusted key.
#[test]
fn a_damaged_token_is_refused_without_a_panic() {
    let token = |claims: &Claims| signer().sign(claims).expect("good").into_bytes();
    let few = Claims {
        audience: Vec::new(),
        subject: None,
        ..claims()
    };
    let good = [token(&claims()), token(&few)];
    let mut inputs = 0;
    let (none, trusted) = (TrustedKeys::new(), trusted());
    fuzz("token", 1, good.clone(), |input| {
        inputs += 1;
        let keys = if inputs % 32 == 0 { &trusted } else { &none };
        match verify(input, keys, CLUSTER, NOW) {
            Ok(_) => assert!(good.iter().any(|token| token == input)),
            Err(error) => {
                assert!(error.to_string().len() < 700);
                return matches!(error, TokenError::UnknownKey(name) if name == "web");
            }
        }
        true
    });
}

/// Fuzz target: what a signer may say.
#[test]
fn damaged_claims_are_refused_or_grant_no_system_key() {
    let corpus = [
        r#"{"exp":9000000,"nbf":1,"aud":"test:a1B2","sub":"x","plinth":{"read":["YXBwLw"],"write":["YXBw","_g"]}}"#,
        r#"{"exp":9000000,"aud":["test:a1B2"],"plinth":{"read":[""],"tenants":[17,"c2hvcA",0]}}"#,
    ];
    let corpus = corpus.map(|text| text.as_bytes().to_vec());
    fuzz("claims", 2, corpus, |input| {
        let Ok(grant) = claims::granted(input, "web".into(), CLUSTER, NOW) else {
            return false;
        };
        assert!(grant.until() > NOW);
        for ranges in [grant.reads(), grant.writes()] {
            assert!(ranges.len() <= PREFIXES_MAX);
            assert!(
                ranges
                    .iter()
                    .all(|range| range.begin < range.end && range.end[..] <= b"\xff"[..])
            );
            assert!(ranges.windows(2).all(|two| two[0].end < two[1].begin));
        }
        true
    });
}

/// Fuzz target.
#[test]
fn a_damaged_token_header_names_a_key_or_is_refused() {
    let corpus = [HEADER, r#"{"typ":"JWT","alg":"EdDSA","kid":"web"}"#];
    let corpus = corpus.map(|text| text.as_bytes().to_vec());
    fuzz("token header", 3, corpus, |input| {
        match claims::key_name(input) {
            Ok(name) => is_key_name(&name),
            Err(_) => false,
        }
    });
}
