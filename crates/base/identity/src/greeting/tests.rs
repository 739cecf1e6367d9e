use super::*;
use crate::keys::KeyFile;
use crate::seal::{Checker, Sealer};
use plinth_core::testing::fuzz;
use std::cell::Cell;

const RPC: Context = Context {
    purpose: "rpc",
    address: None,
};

fn file(byte: u8) -> KeyFile {
    KeyFile::new_root([byte; 32])
}

fn servers(byte: u8) -> Keyring {
    Keyring::new(&file(byte))
}

fn lower(byte: u8, identity: Identity) -> Keyring {
    Keyring::new(&file(byte).for_identity(identity).expect("lower"))
}

fn id_of(keys: &Keyring, identity: Identity) -> KeyId {
    keys.of(identity)[0].id()
}

fn opener(keys: Option<&Keyring>, identity: Identity) -> Opener {
    Opener::new(RPC, keys, identity, Strangers::Refused, [1; 32])
}

fn greeted(keys: Option<&Keyring>, hello: &[u8]) -> Answered {
    Acceptor::greeted(RPC, keys, hello, [2; 32])
}

/// What each side makes of a whole greeting; the acceptor's is `None` if the opener has closed before its proof.
fn greet(
    opener: Opener,
    answered: Answered,
) -> (Result<Outcome, Refusal>, Option<Result<Outcome, Refusal>>) {
    let there = opener.answered(&answered.answer);
    let (proof, there) = match there {
        Ok((proof, outcome)) => (proof, Ok(outcome)),
        Err(refusal) => (None, Err(refusal)),
    };
    let back = match (answered.next, proof) {
        (Next::Settled(outcome), None) => Some(Ok(outcome)),
        (Next::Refused(refusal), None) => Some(Err(refusal)),
        (Next::Proof(acceptor), Some(proof)) => Some(acceptor.proved(&proof)),
        (Next::Proof(_), None) => None,
        (_, Some(_)) => panic!("a proof that nobody waits for"),
    };
    (there, back)
}

fn settle(
    keys: Option<&Keyring>,
    identity: Identity,
    theirs: Option<&Keyring>,
) -> (Outcome, Outcome) {
    let opener = opener(keys, identity);
    let answered = greeted(theirs, opener.hello());
    let (there, back) = greet(opener, answered);
    let back = back.expect("it got so far").expect("accepted");
    (there.expect("accepted"), back)
}

#[test]
fn each_identity_is_proved_to_the_acceptor_and_the_acceptor_to_it_and_their_seals_fit() {
    let cluster = servers(1);
    for identity in &Identity::ALL[1..] {
        let own = match identity {
            Identity::Server => servers(1),
            _ => lower(1, *identity),
        };
        for keys in [&own, &cluster] {
            let (there, back) = settle(Some(keys), *identity, Some(&cluster));
            assert_eq!((there.own, there.peer), (*identity, Identity::Server));
            assert_eq!((back.own, back.peer), (Identity::Server, *identity));
            assert_eq!(
                (there.key, back.key),
                (Some(id_of(keys, *identity)), there.key)
            );
            let (there, back) = (there.session.expect("keys"), back.session.expect("keys"));
            assert_ne!(there.send, there.receive);
            for (send, receive) in [(&there.send, &back.receive), (&back.send, &there.receive)] {
                let seal = Sealer::new(send.clone())
                    .seal([&b"hello"[..]])
                    .expect("fresh");
                assert_eq!(Checker::new(receive.clone()).check(b"hello", &seal), Ok(()));
            }
        }
    }
}

#[test]
fn without_keys_on_one_side_both_are_nobody_and_nothing_is_sealed() {
    let cluster = servers(1);
    let nobody = Outcome::strangers();
    for (keys, identity, theirs) in [
        (None, Identity::Client, None),
        (None, Identity::Server, Some(&cluster)),
        (Some(&cluster), Identity::Nobody, Some(&cluster)),
    ] {
        let settled = settle(keys, identity, theirs);
        assert_eq!(settled, (nobody.clone(), nobody.clone()));
    }
    // Keys that do not reach as high as what is wanted.
    let client = lower(1, Identity::Client);
    let settled = settle(Some(&client), Identity::Operator, Some(&cluster));
    assert_eq!(settled, (nobody.clone(), nobody));
}

#[test]
fn a_side_whose_key_the_other_one_lacks_is_refused_with_the_id_of_the_key() {
    let ours = lower(1, Identity::Client);
    let id = id_of(&ours, Identity::Client);
    let of_client = || opener(Some(&ours), Identity::Client);
    let answered = greeted(Some(&servers(2)), of_client().hello());
    let (there, back) = greet(of_client(), answered);
    let there = there.expect_err("unknown");
    assert_eq!(there, Refusal::KeysUnknownToPeer(vec![id]));
    assert_eq!(back, Some(Err(Refusal::KeysUnknownToUs(vec![id]))));
    assert!(there.to_string().contains(&id.to_string()), "{there}");
    let answered = greeted(None, of_client().hello());
    let (there, _) = greet(of_client(), answered);
    assert_eq!(there, Err(Refusal::PeerHasNoKeys(vec![id])));
    // An acceptor that is itself only a client has no keys to accept with.
    let answered = greeted(Some(&ours), of_client().hello());
    let (there, _) = greet(of_client(), answered);
    assert_eq!(there, Err(Refusal::PeerHasNoKeys(vec![id])));
}

#[test]
fn an_opener_with_keys_talks_to_a_process_without_only_if_it_is_told_to() {
    let keys = servers(1);
    let tolerant = || {
        Opener::new(
            RPC,
            Some(&keys),
            Identity::Server,
            Strangers::Tolerated,
            [1; 32],
        )
    };
    let answered = greeted(None, tolerant().hello());
    let (there, back) = greet(tolerant(), answered);
    assert_eq!(there, Ok(Outcome::strangers()));
    assert_eq!(back, Some(Ok(Outcome::strangers())));
    // Where the other side has keys, they are used, and a foreign one is no less foreign.
    let answered = greeted(Some(&keys), tolerant().hello());
    let (there, _) = greet(tolerant(), answered);
    assert_eq!(there.expect("accepted").peer, Identity::Server);
    let answered = greeted(Some(&servers(2)), tolerant().hello());
    assert!(greet(tolerant(), answered).0.is_err());
}

#[test]
fn processes_agree_on_a_generation_while_keys_are_exchanged() {
    let mut both = file(1);
    both.add_generation([2; 32]).expect("room");
    let both = Keyring::new(&both);
    let (old, new) = (servers(1), servers(2));
    for (keys, theirs, agreed) in [
        (&both, &old, &old),
        (&old, &both, &old),
        (&both, &new, &new),
        (&new, &both, &new),
        (&both, &both, &new),
    ] {
        let (there, _) = settle(Some(keys), Identity::Client, Some(theirs));
        assert_eq!(there.key, Some(id_of(agreed, Identity::Client)));
    }
}

#[test]
fn an_opener_offers_its_newest_generations_and_no_more_than_fit() {
    let mut many = file(1);
    for byte in 2..=OFFERS_MAX as u8 + 3 {
        many.add_generation([byte; 32]).expect("room");
    }
    let ring = Keyring::new(&many);
    let opener = opener(Some(&ring), Identity::Server);
    assert_eq!(opener.hello().len(), HELLO_BYTES_MAX);
    assert_eq!(opener.offers[0].id(), many.ids()[0].0);
}

#[test]
fn a_hello_with_more_offers_than_fit_is_malformed() {
    let cluster = servers(1);
    let offer = (id_of(&cluster, Identity::Client), Identity::Client);
    let hello = |offers| {
        let hello = Hello {
            offers: vec![offer; offers],
            meant: None,
            nonce: [1; 32],
        };
        greeted(Some(&cluster), &hello.encode()).next
    };
    assert!(matches!(hello(OFFERS_MAX), Next::Proof(_)));
    let beyond = hello(OFFERS_MAX + 1);
    assert!(matches!(beyond, Next::Refused(Refusal::Malformed)));
}

/// The words of a greeting between a client and a server, and the acceptor that waits for the last one.
fn recorded(nonce: Nonce) -> (Vec<u8>, Vec<u8>, [u8; PROOF_BYTES], Acceptor) {
    let client = lower(1, Identity::Client);
    let opener = opener(Some(&client), Identity::Client);
    let hello = opener.hello().to_vec();
    let answered = Acceptor::greeted(RPC, Some(&servers(1)), &hello, nonce);
    let (proof, _) = opener.answered(&answered.answer).expect("accepted");
    let Next::Proof(acceptor) = answered.next else {
        panic!("a key is known");
    };
    (hello, answered.answer, proof.expect("a key"), acceptor)
}

#[test]
fn what_was_recorded_is_accepted_by_neither_side_a_second_time() {
    let (hello, answer, proof, acceptor) = recorded([2; 32]);
    assert!(acceptor.proved(&proof).is_ok());
    let Next::Proof(acceptor) = Acceptor::greeted(RPC, Some(&servers(1)), &hello, [3; 32]).next
    else {
        panic!("the hello of anybody is answered");
    };
    assert!(matches!(
        acceptor.proved(&proof),
        Err(Refusal::WrongProof(_))
    ));
    let client = lower(1, Identity::Client);
    let again = Opener::new(
        RPC,
        Some(&client),
        Identity::Client,
        Strangers::Refused,
        [9; 32],
    );
    assert!(matches!(
        again.answered(&answer),
        Err(Refusal::WrongProof(_))
    ));
}

/// What a nonce that is used twice does. The caller makes nonces, and plants the fault there.
#[test]
fn a_nonce_that_is_used_twice_lets_a_recorded_proof_in() {
    let (hello, _, proof, _) = recorded([2; 32]);
    let Next::Proof(acceptor) = Acceptor::greeted(RPC, Some(&servers(1)), &hello, [2; 32]).next
    else {
        panic!("a key is known");
    };
    assert!(acceptor.proved(&proof).is_ok());
}

#[test]
fn each_connection_has_session_keys_of_its_own() {
    let session = |nonce| {
        let (_, _, proof, acceptor) = recorded(nonce);
        let outcome = acceptor.proved(&proof).expect("accepted");
        outcome.session.expect("a key")
    };
    let (one, other) = (session([2; 32]), session([3; 32]));
    assert_ne!(one.send, other.send);
    assert_ne!(one.receive, other.receive);
    assert_eq!(one, session([2; 32]), "they follow from what was said");
}

#[test]
fn the_acceptors_own_proof_is_no_proof_of_the_opener() {
    let (_, answer, _, acceptor) = recorded([2; 32]);
    let own = &answer[answer.len() - PROOF_BYTES..];
    assert!(matches!(acceptor.proved(own), Err(Refusal::WrongProof(_))));
}

#[test]
fn a_proof_for_one_purpose_is_none_for_another() {
    let client = lower(1, Identity::Client);
    let opener = opener(Some(&client), Identity::Client);
    let other = Context {
        purpose: "fabric",
        ..RPC
    };
    let answered = Acceptor::greeted(other, Some(&servers(1)), opener.hello(), [2; 32]);
    assert!(matches!(
        greet(opener, answered).0,
        Err(Refusal::WrongProof(_))
    ));
}

#[test]
fn a_connection_that_was_led_to_another_process_is_refused_by_both_and_cannot_be_relabelled() {
    let at = |text: &str| Context {
        address: Some(text.parse().expect("an address")),
        ..RPC
    };
    let keys = servers(1);
    let of_client = |context| {
        Opener::new(
            context,
            Some(&keys),
            Identity::Client,
            Strangers::Refused,
            [1; 32],
        )
    };
    let (meant, reached) = (at("1.2.3.4:5"), at("1.2.3.4:6"));
    let accept = |context, hello: &[u8]| Acceptor::greeted(context, Some(&keys), hello, [2; 32]);
    let answered = accept(reached, of_client(meant).hello());
    let (there, back) = greet(of_client(meant), answered);
    let refusal = Refusal::Misdirected {
        meant: meant.address,
        reached: reached.address,
    };
    assert!(
        refusal
            .to_string()
            .contains("1.2.3.4:5 and has reached 1.2.3.4:6")
    );
    assert_eq!((there, back), (Err(refusal.clone()), Some(Err(refusal))));
    // The same place, and places that are not known, are fine; a mapped address is the same.
    for (meant, own) in [
        (meant, meant),
        (RPC, reached),
        (meant, RPC),
        (at("[::ffff:1.2.3.4]:5"), meant),
        (meant, at("[::ffff:1.2.3.4]:5")),
        (at("[::1]:5"), at("[::1]:5")),
    ] {
        let answered = accept(own, of_client(meant).hello());
        assert!(greet(of_client(meant), answered).0.is_ok(), "{own:?}");
    }
    // Somebody on the way writes the other address into the hello.
    let relabelled = of_client(reached).hello().to_vec();
    let answered = accept(reached, &relabelled);
    assert!(matches!(
        greet(of_client(meant), answered).0,
        Err(Refusal::WrongProof(_))
    ));
}

#[test]
fn every_changed_bit_of_a_greeting_ends_it() {
    let client = lower(1, Identity::Client);
    let (hello, answer, proof, _) = recorded([2; 32]);
    let flipped = |bytes: &[u8], bit: usize| {
        let mut bytes = bytes.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    };
    let fails = |hello: &[u8], answer: Option<&[u8]>, proof: Option<&[u8]>| {
        let opener = opener(Some(&client), Identity::Client);
        let answered = greeted(Some(&servers(1)), hello);
        let there = opener.answered(answer.unwrap_or(&answered.answer));
        let Next::Proof(acceptor) = answered.next else {
            return there.is_err();
        };
        let own = there.as_ref().ok().and_then(|(proof, _)| *proof);
        let sent = proof.or(own.as_ref().map(|own| &own[..]));
        there.is_err() || sent.is_none_or(|proof| acceptor.proved(proof).is_err())
    };
    assert!(!fails(&hello, None, None));
    for bit in 0..hello.len() * 8 {
        assert!(fails(&flipped(&hello, bit), None, None), "hello, {bit}");
    }
    for bit in 0..answer.len() * 8 {
        assert!(
            fails(&hello, Some(&flipped(&answer, bit)), None),
            "answer, {bit}"
        );
    }
    for bit in 0..proof.len() * 8 {
        assert!(
            fails(&hello, None, Some(&flipped(&proof, bit))),
            "proof, {bit}"
        );
    }
}

#[test]
fn an_offered_id_counts_only_with_its_identity() {
    let keys = servers(1);
    let reader = id_of(&keys, Identity::Reader);
    let hello = Hello {
        offers: vec![(reader, Identity::Server)],
        meant: None,
        nonce: [1; 32],
    };
    let answered = greeted(Some(&keys), &hello.encode());
    assert!(matches!(
        answered.next,
        Next::Refused(Refusal::KeysUnknownToUs(_))
    ));
}

#[test]
fn another_version_is_named_to_both_sides() {
    let cluster = servers(1);
    let of_client = || opener(Some(&cluster), Identity::Client);
    let mut hello = of_client().hello().to_vec();
    hello[0] = 9;
    let answered = greeted(Some(&cluster), &hello);
    assert!(matches!(answered.next, Next::Refused(Refusal::Version(9))));
    assert_eq!(answered.answer, [1]);
    assert_eq!(of_client().answered(&[9]), Err(Refusal::Version(9)));
}

#[test]
fn an_answer_that_does_not_fit_the_hello_is_malformed() {
    let keys = servers(1);
    let (_, chosen, _, _) = recorded([2; 32]);
    for answer in [
        &chosen[..],
        &Answer::unknown_keys(),
        &chosen[..50],
        &[],
        &[1],
        &[1, 7],
    ] {
        let nobody = opener(None, Identity::Client);
        assert_eq!(nobody.answered(answer), Err(Refusal::Malformed));
    }
    // A choice of what was not offered.
    let operator = opener(Some(&keys), Identity::Operator);
    assert_eq!(operator.answered(&chosen), Err(Refusal::Malformed));
    let (_, _, proof, acceptor) = recorded([2; 32]);
    assert_eq!(acceptor.proved(&proof[..31]), Err(Refusal::Malformed));
}

/// Fuzz target: the side that was connected to.
#[test]
fn a_damaged_hello_is_refused_or_answered_and_leads_to_nobody_without_a_proof() {
    let cluster = servers(1);
    let at = Context {
        address: Some("1.2.3.4:5".parse().expect("an address")),
        ..RPC
    };
    let hello = |keys: Option<&Keyring>, context| {
        let opener = Opener::new(context, keys, Identity::Client, Strangers::Refused, [1; 32]);
        opener.hello().to_vec()
    };
    let corpus = [
        hello(None, RPC),
        hello(Some(&cluster), RPC),
        hello(Some(&cluster), at),
        hello(Some(&servers(2)), at),
    ];
    let proofs = Cell::new(0);
    fuzz("hello", 1, corpus, |input| {
        let answered = Acceptor::greeted(at, Some(&cluster), input, [2; 32]);
        assert!(answered.answer.len() <= ANSWER_BYTES_MAX);
        match answered.next {
            Next::Settled(outcome) => assert_eq!(outcome, Outcome::strangers()),
            Next::Proof(acceptor) => {
                proofs.set(proofs.get() + 1);
                assert!(
                    acceptor
                        .proved(input.get(..PROOF_BYTES).unwrap_or(&[]))
                        .is_err()
                );
            }
            Next::Refused(refusal) => return !refusal.to_string().is_empty() && input.len() > 50,
        }
        assert!(input.len() <= HELLO_BYTES_MAX);
        true
    });
    assert!(proofs.get() > 0, "known keys were offered");
}

/// Fuzz target: the side that has connected.
#[test]
fn a_damaged_answer_is_refused_unless_it_says_that_there_are_no_keys() {
    let cluster = servers(1);
    let client = lower(1, Identity::Client);
    let of_client =
        |strangers| Opener::new(RPC, Some(&client), Identity::Client, strangers, [1; 32]);
    let chosen = greeted(Some(&cluster), of_client(Strangers::Refused).hello()).answer;
    let misdirected = Answer::misdirected("1.2.3.4:5".parse().expect("an address"));
    let corpus = [
        chosen.clone(),
        Answer::open(),
        Answer::unknown_keys(),
        misdirected,
    ];
    fuzz("answer", 2, corpus, |input| {
        let tolerant = of_client(Strangers::Tolerated).answered(input);
        match of_client(Strangers::Refused).answered(input) {
            Ok(_) => assert_eq!(input, chosen),
            Err(Refusal::PeerHasNoKeys(_)) => {
                assert_eq!(tolerant, Ok((None, Outcome::strangers())));
            }
            Err(refusal) => {
                assert!(!refusal.to_string().is_empty());
                return refusal != Refusal::Malformed;
            }
        }
        true
    });
}
