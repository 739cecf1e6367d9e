use super::*;
use crate::connection::Sending;
use crate::frame::HEADER_BYTES;
use bytes::Bytes;
use plinth_identity::Identity;
use plinth_identity::greeting::{Acceptor, Answered, Context, Next, Opener, Session, Strangers};
use plinth_identity::keys::{KeyFile, Keyring};
use std::sync::OnceLock;

/// What both sides of a connection have, once they have greeted: the opener first.
fn sessions() -> (Session, Session) {
    static SESSIONS: OnceLock<(Session, Session)> = OnceLock::new();
    SESSIONS.get_or_init(greeted).clone()
}

fn greeted() -> (Session, Session) {
    let ring = Keyring::new(&KeyFile::new_root([1; 32]));
    let context = || Context {
        purpose: "test",
        address: None,
    };
    let strict = Strangers::Refused;
    let opener = Opener::new(context(), Some(&ring), Identity::Client, strict, [2; 32]);
    let answered = Acceptor::greeted(context(), Some(&ring), opener.hello(), [3; 32]);
    let Answered { answer, next } = answered;
    let (proof, opened) = opener.answered(&answer).expect("a good answer");
    let Next::Proof(acceptor) = next else {
        panic!("it waits for the proof");
    };
    let accepted = acceptor.proved(&proof.expect("a proof")).expect("good");
    (
        opened.session.expect("keys"),
        accepted.session.expect("keys"),
    )
}

fn both() -> (Seals, Checks) {
    let (opened, accepted) = sessions();
    (
        Seals::new(Sealer::new(opened.send)),
        Checks::new(Checker::new(accepted.receive)),
    )
}

fn push(seals: &mut Seals, out: &mut Output, id: u64, payload: &Bytes) {
    let before = out.mark();
    out.buffer().put_bytes(0, seals.head_bytes());
    let put = |out: &mut Output| out.put_shared(payload);
    frame::encode_as(Check::Seal, out, 7, id, put).expect("short");
    seals.added(out, before).expect("not used up");
}

/// One write with frames of these lengths.
fn written(seals: &mut Seals, lengths: &[usize]) -> BytesMut {
    let mut out = Output::new();
    for (id, bytes) in (0..).zip(lengths) {
        push(seals, &mut out, id, &Bytes::from(vec![id as u8; *bytes]));
    }
    seals.end_run(&mut out).expect("not used up");
    BytesMut::from(&out.into_bytes()[..])
}

/// Lengths of the frames that are taken, and whether the stream is good to its end.
fn taken(checks: &mut Checks, mut input: BytesMut) -> (Vec<usize>, bool) {
    let mut lengths = Vec::new();
    loop {
        match checks.decode(&mut input) {
            Ok(Some(frame)) => lengths.push(frame.payload.len()),
            Ok(None) => return (lengths, input.is_empty()),
            Err(_) => return (lengths, false),
        }
    }
}

#[test]
fn frames_of_one_write_have_one_seal_and_come_back_from_any_split() {
    let lengths = [5, 0, 100];
    let (mut seals, _) = both();
    let whole = written(&mut seals, &lengths);
    let frames: usize = lengths.iter().map(|bytes| HEADER_BYTES + bytes).sum();
    assert_eq!(whole.len(), HEAD_BYTES + frames);
    for cut in 0..whole.len() {
        let (_, mut checks) = both();
        let mut input = BytesMut::from(&whole[..cut]);
        assert_eq!(checks.decode(&mut input), Ok(None), "{cut}");
        input.extend_from_slice(&whole[cut..]);
        assert_eq!(taken(&mut checks, input), (lengths.to_vec(), true));
    }
}

#[test]
fn a_long_write_is_many_runs_and_a_long_frame_is_one() {
    let (mut seals, mut checks) = both();
    let lengths = [1 << 10; 300];
    let whole = written(&mut seals, &lengths);
    let runs = (whole.len() - 300 * (HEADER_BYTES + (1 << 10))) / HEAD_BYTES;
    assert!((4..=6).contains(&runs), "{runs}");
    let first = BytesMut::from(&whole[..2 * RUN_BYTES]);
    assert!(taken(&mut checks, first).0.len() > 60);
    let (mut seals, mut checks) = both();
    let lengths = [10, 20 << 20, 10, 200 << 10, 200 << 10, 3];
    let whole = written(&mut seals, &lengths);
    assert_eq!(taken(&mut checks, whole), (lengths.to_vec(), true));
}

#[test]
fn no_frame_of_a_run_is_taken_if_any_bit_of_it_is_wrong() {
    let lengths = [5, 0, 100];
    let whole = written(&mut both().0, &lengths);
    for bit in 0..whole.len() * 8 {
        let (_, mut checks) = both();
        let mut input = whole.clone();
        input[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(taken(&mut checks, input), (Vec::new(), false), "{bit}");
    }
}

#[test]
fn runs_that_are_repeated_left_out_or_swapped_are_refused() {
    let (mut seals, _) = both();
    let [a, b, c] = [1, 2, 3].map(|bytes| written(&mut seals, &[bytes]));
    let come = |runs: &[&BytesMut]| {
        let stream: BytesMut = runs.iter().flat_map(|run| run.iter()).collect();
        taken(&mut both().1, stream)
    };
    assert_eq!(come(&[&a, &b, &c]), (vec![1, 2, 3], true));
    assert_eq!(come(&[&a, &a, &b]), (vec![1], false));
    assert_eq!(come(&[&a, &c]), (vec![1], false));
    assert_eq!(come(&[&b, &a]), (vec![], false));
}

/// A sealed run of any bytes: what a holder of a key could send.
fn run_of(bytes: &[u8]) -> BytesMut {
    let (mut seals, _) = both();
    let mut out = Output::new();
    let before = out.mark();
    out.buffer().put_bytes(0, seals.head_bytes());
    out.buffer().put_slice(bytes);
    seals.added(&mut out, before).expect("not used up");
    seals.end_run(&mut out).expect("not used up");
    BytesMut::from(&out.into_bytes()[..])
}

#[test]
fn a_run_ends_where_a_frame_ends() {
    let frames = &written(&mut both().0, &[3, 4])[HEAD_BYTES..];
    for end in 0..frames.len() {
        let (lengths, is_good) = taken(&mut both().1, run_of(&frames[..end]));
        let whole = [HEADER_BYTES + 3, 2 * HEADER_BYTES + 7];
        assert_eq!(is_good, whole.contains(&end), "{end}");
        assert!(lengths.len() <= 1);
        // The rest of a frame is not taken from the next run.
        if end > 0 {
            let mut both_parts = run_of(&frames[..end]);
            both_parts.extend_from_slice(&run_of(&frames[end..]));
            let (lengths, _) = taken(&mut both().1, both_parts);
            assert!(lengths.len() <= 1, "{end}");
        }
    }
}

/// Fuzz target: frames of a holder of a key who means harm.
#[test]
fn damaged_frames_in_a_good_run_never_panic() {
    let seeds = [&[5][..], &[0, 0], &[100, 2, 30]];
    let frames = |lengths: &&[usize]| written(&mut both().0, lengths)[HEAD_BYTES..].to_vec();
    plinth_core::testing::fuzz("runs", 1, seeds.iter().map(frames), |input| {
        taken(&mut both().1, run_of(input)).1
    });
}

#[test]
fn a_frame_that_is_too_long_leaves_nothing_behind() {
    let (opened, accepted) = sessions();
    let sending = Sending::new();
    sending.seal_with(Sealer::new(opened.send));
    let push = |bytes: usize| {
        let payload = Bytes::from(vec![0; bytes]);
        let put = move |out: &mut Output| out.put_shared(&payload);
        sending.push(|check, out| frame::encode_as(check, out, 7, 1, put))
    };
    assert!(push(FRAME_BYTES_MAX).is_err());
    assert_eq!(push(5), Ok(()));
    assert!(push(FRAME_BYTES_MAX).is_err());
    assert_eq!(push(6), Ok(()));
    let mut checks = Checks::new(Checker::new(accepted.receive));
    let end = |out: &mut Output| {
        sending.end_run(out);
        Ok::<_, frame::TooLarge>(())
    };
    assert_eq!(sending.outbox.push(end), Ok(()));
    let bytes = sending.outbox.take();
    let stream: BytesMut = bytes.iter().flat_map(|piece| piece.iter()).collect();
    assert_eq!(taken(&mut checks, stream), (vec![5, 6], true));
}
