use super::*;
use plinth_core::testing::fuzz;
use proptest::prelude::*;

fn rules(text: &str) -> Rules {
    Rules::parse([text]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn name(fields: &[(Field, &str)]) -> Name {
    Name {
        fields: fields
            .iter()
            .map(|(field, text)| (*field, (*text).to_owned()))
            .collect(),
        alternatives: Vec::new(),
    }
}

fn certificate() -> Certificate {
    let mut subject = name(&[
        (Field::Country, "US"),
        (Field::Organization, "XYZCorp, LLC"),
        (Field::Unit, "one"),
        (Field::Unit, "two"),
        (Field::CommonName, "plinth-7.example"),
    ]);
    subject.alternatives = vec![
        AlternativeName::Dns("a.example".into()),
        AlternativeName::Dns("b.example".into()),
        AlternativeName::Uri("spiffe://cluster/server".into()),
        AlternativeName::Email("ops@example".into()),
        AlternativeName::Ip("10.0.0.1".parse().expect("an address")),
    ];
    Certificate {
        is_valid: true,
        is_unexpired: true,
        subject,
        issuer: name(&[(Field::Country, "DE"), (Field::CommonName, "issuer")]),
        root: name(&[(Field::CommonName, "Our root")]),
    }
}

fn holds(text: &str) -> bool {
    rules(text).check(&certificate()).is_ok()
}

#[test]
fn the_examples_of_foundationdbs_page_are_read() {
    let text = r"Check.Unexpired=0,I.C=US,C=US,S.O=XYZCorp\, LLC";
    let shown = r"Check.Valid=1,Check.Unexpired=0,I.C=US,S.C=US,S.O=XYZCorp\, LLC";
    assert_eq!(rules(text).to_string(), shown);
    for text in [
        "Check.Valid=1",
        "Check.Valid=1,Check.Unexpired=0",
        "C=US",
        "Subject.C=US,Issuer.ST=CA,Root.CN=x",
        r"S.O=XYZCorp\=LLC",
        r"S.O=XYZCorp\0dLLC",
        "O=a=b",
        "S.CN>=begin,S.OU<=end",
        "S.subjectAltName=DNS:x.example",
        "S.subjectAltName<=DNS:.example|R.subjectAltName>=URI:spiffe://",
    ] {
        let read = rules(text);
        assert_eq!(rules(&read.to_string()), read, "{text}");
    }
}

#[test]
fn each_field_of_each_part_is_compared_whole_at_its_begin_or_at_its_end() {
    for good in [
        "C=US",
        "S.C=US",
        "Subject.C=US",
        "I.C=DE",
        "Issuer.CN=issuer",
        "R.CN=Our root",
        "Root.CN<=root",
        "CN>=plinth-",
        "CN<=.example",
        "CN<=plinth-7.example",
        r"O=XYZCorp\, LLC",
        r"O=XYZCorp\2C LLC",
        r"O=XYZCorp\2c LLC",
        "S.subjectAltName=DNS:b.example",
        "S.subjectAltName<=DNS:.example",
        "subjectAltName>=URI:spiffe://cluster/",
        "S.subjectAltName=EMAIL:ops@example",
        "S.subjectAltName=IP:10.0.0.1",
        "C=US,I.C=DE,R.CN=Our root",
        "C=FR|C=US",
    ] {
        assert!(holds(good), "{good}");
    }
    for wrong in [
        "C=us",
        "C=U",
        "C=USA",
        "CN>=plinth-8",
        "CN<=example.",
        "I.C=US",
        "R.C=US",
        "L=x",
        // Two units: which of them is meant?
        "OU=one",
        "OU>=o",
        "S.subjectAltName=DNS:example",
        "S.subjectAltName=URI:a.example",
        "S.subjectAltName=EMAIL:a.example",
        "S.subjectAltName=IP:10.0.0.2",
        "R.subjectAltName=DNS:a.example",
        "C=US,I.C=US",
        "C=FR|C=UK",
    ] {
        assert!(!holds(wrong), "{wrong}");
    }
}

#[test]
fn a_certificate_is_valid_and_in_time_unless_a_rule_waives_it() {
    let expired = Certificate {
        is_unexpired: false,
        ..certificate()
    };
    let invalid = Certificate {
        is_valid: false,
        ..certificate()
    };
    assert_eq!(Rules::default().check(&certificate()), Ok(()));
    assert_eq!(Rules::parse([]), Ok(Rules::default()));
    assert_eq!(Rules::default().check(&expired), Err(Mismatch::Expired));
    assert_eq!(Rules::default().check(&invalid), Err(Mismatch::NotValid));
    let waived = rules("Check.Unexpired=0,C=US|C=DE");
    assert_eq!(waived.check(&expired), Ok(()));
    assert_eq!(waived.check(&invalid), Err(Mismatch::NotValid));
    // The alternative that waives the dates is not the one that matches.
    let other = rules("Check.Unexpired=0,C=DE|C=US").check(&expired);
    assert_eq!(other, Err(Mismatch::Conditions(vec!["S.C=DE".into()])));
    let anybody = rules("Check.Valid=0");
    assert!(anybody.accept_anybody() && !waived.accept_anybody());
    assert_eq!(anybody.check(&Certificate::default()), Ok(()));
}

#[test]
fn what_does_not_hold_is_named_for_each_alternative() {
    let mismatch = rules("C=US,I.C=US|S.CN>=x")
        .check(&certificate())
        .expect_err("neither");
    let expected = ["I.C=US", "S.CN>=x"].map(String::from).to_vec();
    assert_eq!(mismatch, Mismatch::Conditions(expected));
    assert!(mismatch.to_string().contains("I.C=US and S.CN>=x"));
}

#[test]
fn several_texts_are_alternatives_and_a_bar_in_a_value_is_escaped() {
    let several = Rules::parse(["C=FR", "C=US|C=UK"]).expect("good");
    assert_eq!(several, rules("C=FR|C=US|C=UK"));
    assert_eq!(several.check(&certificate()), Ok(()));
    // A backslash before a backslash does not escape the bar behind both.
    assert_eq!(rules(r"O=a\|b").0.len(), 1);
    assert_eq!(rules(r"O=a\\|C=US").0.len(), 2);
    assert_eq!(rules(r"O=a\\\|b").0.len(), 1);
}

#[test]
fn each_mistake_is_refused_where_it_is() {
    for (text, at, word) in [
        ("", 0, "FIELD=VALUE"),
        ("C", 1, "FIELD=VALUE"),
        ("=US", 0, "FIELD=VALUE"),
        (" C=US", 0, "FIELD=VALUE"),
        ("C=US,", 5, "FIELD=VALUE"),
        ("C=US|", 5, "FIELD=VALUE"),
        ("|C=US", 0, "FIELD=VALUE"),
        ("C=US||C=DE", 5, "FIELD=VALUE"),
        ("C=US, O=x", 5, "FIELD=VALUE"),
        ("C>US", 2, "FIELD=VALUE"),
        ("X=US", 2, "the fields are"),
        ("c=US", 2, "the fields are"),
        ("S.=US", 3, "the fields are"),
        ("S.S.C=US", 6, "the fields are"),
        ("Q.C=US", 4, "before the dot"),
        ("C=", 2, "empty"),
        ("C=,O=x", 2, "empty"),
        ("O=#12", 2, "begins with"),
        ("O= x", 2, "begins with"),
        ("O=x ", 4, "ends in a space"),
        ("O=x ,C=US", 4, "ends in a space"),
        ("O=a+b", 3, "must stand before"),
        ("O=a\"", 3, "must stand before"),
        ("O=a;b", 3, "must stand before"),
        ("O=a<b", 3, "must stand before"),
        ("O=a>b", 3, "must stand before"),
        ("O=a\0b", 3, "must stand before"),
        ("O=a\\", 3, "after '\\'"),
        ("O=a\\1", 3, "after '\\'"),
        ("O=a\\1g", 3, "after '\\'"),
        ("C=US,S.C=DE", 5, "twice"),
        ("S.subjectAltName=DNS:a,subjectAltName=URI:b", 23, "twice"),
        ("Check.Valid=1,Check.Valid=1", 14, "twice"),
        ("Check.Valid=2", 12, "=0 or =1"),
        ("Check.Valid=", 12, "=0 or =1"),
        ("Check.Valid>=1", 13, "=0 or =1"),
        ("Check.Valid=1x", 13, "expected ','"),
        ("Check.Time=1", 11, "the checks are"),
        ("Check.Valid=0,C=US", 0, "switches all other"),
        ("C=US,Check.Valid=0", 0, "switches all other"),
        ("C=US|Check.Valid=0", 5, "switches all other"),
        ("Check.Valid=0|C=US", 14, "switches all other"),
        ("I.subjectAltName=DNS:a", 17, "no alternative names"),
        ("subjectAltName=a", 16, "is DNS:"),
        ("subjectAltName=TEL:1", 15, "the kinds"),
        ("subjectAltName=IP:10.0", 15, "whole address"),
        ("subjectAltName>=IP:10.0.0.1", 16, "whole address"),
    ] {
        let error = Rules::parse([text]).expect_err(text);
        assert!(error.to_string().contains(word), "{text}: {error}");
        assert_eq!(error.at, at, "{text}: {error}");
    }
    let long = format!("O={}", "x".repeat(RULES_BYTES_MAX));
    assert!(Rules::parse([&long[..]]).is_err());
    assert!(Rules::parse(["C=US", "Check.Valid=0"]).is_err());
}

proptest! {
    #[test]
    fn a_value_of_any_bytes_is_read_as_it_was_written(value in proptest::collection::vec(any::<u8>(), 1..20)) {
        let escaped: String = value.iter().map(|byte| format!("\\{byte:02x}")).collect();
        for field in ["S.O=", "S.subjectAltName=DNS:"] {
            let read = rules(&format!("{field}{escaped}"));
            prop_assert_eq!(&rules(&read.to_string()), &read);
            match &read.0[0].conditions[0].wanted {
                Wanted::Field(_, got) | Wanted::Dns(got) => prop_assert_eq!(got, &value),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}

/// Fuzz target.
#[test]
fn damaged_rules_are_refused_with_a_place_or_are_shown_as_they_were_read() {
    let corpus = [
        r"Check.Unexpired=0,I.C=US,C=US,S.O=XYZCorp\, LLC|R.CN>=a\2cb\|\\",
        "S.subjectAltName<=DNS:.example,UID=1|S.subjectAltName=IP:10.0.0.1|Root.subjectAltName=EMAIL:#x",
        "Check.Valid=0",
        "Check.Valid=1,Check.Unexpired=1,Issuer.DC=x,ST=y,OU<=z",
    ];
    let corpus = corpus.map(|text| text.as_bytes().to_vec());
    let certificate = certificate();
    fuzz("rules", 1, corpus, |input| {
        let Ok(text) = std::str::from_utf8(input) else {
            return false;
        };
        match Rules::parse([text]) {
            Ok(read) => {
                let again = rules(&read.to_string());
                assert_eq!(again, read);
                assert_eq!(again.check(&certificate), read.check(&certificate));
                true
            }
            Err(error) => {
                assert!(error.at <= text.len() && !error.what.is_empty());
                false
            }
        }
    });
}
