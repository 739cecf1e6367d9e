use super::*;
use bytes::Bytes;
use plinth_core::client_rows::STAMP_OPERAND;
use plinth_core::conflict_ranges::ConflictRangesBuilder;
use plinth_core::system_keys::{CONFIG, DATABASE_LOCK, TENANTS, idempotency_rows_from};
use plinth_core::{Mutation, streams};
use plinth_protocol::token::Token;

fn commit(mutations: &[Mutation], flags: u8) -> Commit {
    let batch = MutationBatch::from_mutations(mutations.iter().map(Mutation::as_ref));
    Commit {
        read_version: 1,
        reads: Bytes::new(),
        writes: Bytes::new(),
        mutations: batch.into_bytes(),
        flags,
        places: 1,
        token: Token::NONE,
    }
}

fn refused(commit: Commit, caller: Identity) -> Option<Refused> {
    let everything = (Right::Everything, Right::Everything);
    Pending::accept(commit, caller, everything).err()
}

/// What a server hears, who may do everything that is well-formed.
fn wrong(mutation: Mutation) -> Option<Error> {
    match refused(commit(&[mutation], FLAG_SYSTEM_KEYS), Identity::Server) {
        None => None,
        Some(Refused::Wrong(error)) => Some(error),
        Some(other) => panic!("{other:?}"),
    }
}

fn of(kind: MutationKind, first: impl Into<Bytes>, second: impl Into<Bytes>) -> Mutation {
    Mutation {
        kind,
        first: first.into(),
        second: second.into(),
    }
}

/// A text with a stamp at `offset`.
fn stamped(text: usize, offset: u32) -> Vec<u8> {
    [&vec![b'x'; text][..], &offset.to_le_bytes()].concat()
}

#[test]
fn a_transaction_above_the_limit_is_refused_whoever_sends_it() {
    let sets = |bytes: usize| {
        let value = vec![7; VALUE_BYTES_MAX];
        let count = bytes / VALUE_BYTES_MAX;
        commit(&vec![Mutation::set(&b"key"[..], value); count], 0)
    };
    let too_large = Some(Refused::Wrong(Error::transaction_too_large));
    assert_eq!(refused(sets(TRANSACTION_BYTES_MAX), Identity::Client), None);
    let above = sets(TRANSACTION_BYTES_MAX + 200_000);
    assert_eq!(refused(above, Identity::Server), too_large);
}

#[test]
fn no_transaction_has_more_ranges_or_mutations_than_its_size_allows() {
    let too_large = Some(Refused::Wrong(Error::transaction_too_large));
    let set = Mutation::set(&b""[..], &b""[..]);
    let sets = |count| commit(&vec![set.clone(); count], 0);
    assert_eq!(refused(sets(MUTATIONS_MAX), Identity::Client), None);
    assert_eq!(
        refused(sets(MUTATIONS_MAX + 1), Identity::Server),
        too_large
    );
    let ranges = |count| {
        let mut builder = ConflictRangesBuilder::new();
        (0..count).for_each(|_| builder.add_key(b""));
        builder.finish()
    };
    let reads = |count| Commit {
        reads: ranges(count),
        ..commit(&[], 0)
    };
    let writes = |count| Commit {
        writes: ranges(count),
        ..commit(&[], 0)
    };
    for commit in [reads(RANGES_MAX), writes(RANGES_MAX)] {
        assert_eq!(refused(commit, Identity::Client), None);
    }
    for commit in [reads(RANGES_MAX + 1), writes(RANGES_MAX + 1)] {
        assert_eq!(refused(commit, Identity::Server), too_large);
    }
}

#[test]
fn keys_and_values_are_as_long_as_they_may_be_and_no_longer() {
    let key = |bytes: usize| vec![b'k'; bytes];
    let system = |bytes: usize| [&b"\xff\x02"[..], &key(bytes - 2)].concat();
    let longest = KEY_BYTES_MAX + TENANT_PREFIX_BYTES;
    for kind in [
        MutationKind::Set,
        MutationKind::Add,
        MutationKind::AppendIfFits,
    ] {
        assert_eq!(wrong(of(kind, key(longest), key(VALUE_BYTES_MAX))), None);
        assert_eq!(wrong(of(kind, system(SYSTEM_KEY_BYTES_MAX), key(1))), None);
        for long in [key(longest + 1), system(SYSTEM_KEY_BYTES_MAX + 1)] {
            assert_eq!(wrong(of(kind, long, key(1))), Some(Error::key_too_large));
        }
        let long = of(kind, key(1), key(VALUE_BYTES_MAX + 1));
        assert_eq!(wrong(long), Some(Error::value_too_large));
    }
    let clear = |begin: usize, end: usize| wrong(Mutation::clear_range(key(begin), key(end)));
    assert_eq!(clear(longest, longest + 1), None);
    assert_eq!(clear(1, longest + 2), Some(Error::key_too_large));
    let inverted = Some(Error::inverted_range);
    assert_eq!(clear(2, 1), inverted);
}

#[test]
fn a_stamp_fits_its_key_or_value() {
    let (in_key, in_value) = (
        MutationKind::SetVersionstampedKey,
        MutationKind::SetVersionstampedValue,
    );
    let malformed = Some(Error::client_invalid_operation);
    for (text, offset) in [(10, 0), (12, 2), (KEY_BYTES_MAX, 7)] {
        assert_eq!(wrong(of(in_key, stamped(text, offset), &b""[..])), None);
        assert_eq!(wrong(of(in_value, &b"k"[..], stamped(text, offset))), None);
    }
    for (text, offset) in [(9, 0), (10, 1), (100, u32::MAX), (0, 0)] {
        assert_eq!(
            wrong(of(in_key, stamped(text, offset), &b""[..])),
            malformed
        );
        assert_eq!(
            wrong(of(in_value, &b"k"[..], stamped(text, offset))),
            malformed
        );
    }
    assert_eq!(wrong(of(in_key, &b"abc"[..], &b""[..])), malformed);
    // It would make a row of which the proxies keep a copy, and other proxies do not know its key.
    let hidden = [&b"\xff\x02"[..], &[0; 10], &1u32.to_le_bytes()].concat();
    assert_eq!(wrong(of(in_key, hidden, &b""[..])), malformed);
    let kept = [&b"\xff/x"[..], &[0; 10], &3u32.to_le_bytes()].concat();
    assert_eq!(wrong(of(in_key, kept, &b""[..])), malformed);
}

#[test]
fn an_unknown_kind_of_mutation_is_refused() {
    for kind in 0..=u8::MAX {
        let known = MutationKind::from_u8(kind).is_some();
        let mutations = Bytes::from(vec![kind, 1, 1, b'a', b'b']);
        let commit = Commit {
            mutations,
            ..commit(&[], 0)
        };
        let malformed = Some(Refused::Wrong(Error::client_invalid_operation));
        // A stamp does not fit into one byte.
        let is_short = kind == MutationKind::SetVersionstampedKey as u8
            || kind == MutationKind::SetVersionstampedValue as u8;
        let expected = if known && !is_short { None } else { malformed };
        assert_eq!(refused(commit, Identity::Server), expected, "{kind}");
    }
}

#[test]
fn system_keys_are_for_operators_whatever_the_flags_of_a_client_say() {
    let all = FLAG_SYSTEM_KEYS | FLAG_LOCK_AWARE;
    for mutation in [
        Mutation::set(CONFIG, &b"x"[..]),
        Mutation::set(DATABASE_LOCK, &b"x"[..]),
        Mutation::set([TENANTS, b"map/t"].concat(), &b"x"[..]),
        Mutation::set(&b"\xff\x02/x"[..], &b"x"[..]),
        Mutation::clear_range(&b""[..], &b"\xff\xff"[..]),
        Mutation::clear_range(&b"\xff"[..], &b"\xff/a"[..]),
    ] {
        for caller in Identity::ALL {
            let got = refused(
                commit(std::slice::from_ref(&mutation), FLAG_SYSTEM_KEYS),
                caller,
            );
            let is_denied = matches!(got, Some(Refused::Denied(_)));
            assert_eq!(
                is_denied,
                caller < Identity::Operator,
                "{caller} {mutation:?}"
            );
            let unnamed = refused(commit(std::slice::from_ref(&mutation), 0), caller);
            let outside = Refused::Wrong(Error::key_outside_legal_range);
            assert_eq!(unnamed, Some(outside));
        }
    }
    for beyond in [
        Mutation::set(ALL_KEYS_END, &b""[..]),
        Mutation::clear_range(&b"a"[..], &b"\xff\xff\0"[..]),
    ] {
        let outside = Refused::Wrong(Error::key_outside_legal_range);
        assert_eq!(
            refused(commit(&[beyond], all), Identity::Server),
            Some(outside)
        );
    }
}

#[test]
fn a_client_writes_what_its_library_writes_for_every_application() {
    let proof = [&idempotency_rows_from(7)[..], b"/", &[1; 16]].concat();
    let prefix = streams::entry_prefix(1);
    let place = prefix.len() as u32;
    let entry = [&prefix[..], &[0; 12], &place.to_le_bytes()].concat();
    let rows = [
        of(MutationKind::SetVersionstampedValue, proof, STAMP_OPERAND),
        of(MutationKind::SetVersionstampedKey, entry, &b"entry"[..]),
        Mutation::set(streams::LAST_STREAM_ID, &[0; 8][..]),
    ];
    for row in rows {
        let row = commit(&[row], FLAG_SYSTEM_KEYS);
        assert_eq!(refused(row, Identity::Client), None);
    }
    let stamp = of(
        MutationKind::SetVersionstampedValue,
        METADATA_VERSION,
        STAMP_OPERAND,
    );
    assert_eq!(refused(commit(&[stamp], 0), Identity::Client), None);
    for caller in [Identity::Client, Identity::Server] {
        let other = Mutation::set(METADATA_VERSION, &[0; 10][..]);
        let malformed = Refused::Wrong(Error::client_invalid_operation);
        assert_eq!(
            refused(commit(&[other], FLAG_SYSTEM_KEYS), caller),
            Some(malformed)
        );
    }
}

#[test]
fn a_client_passes_a_lock_only_without_an_effect() {
    let set = [Mutation::set(&b"key"[..], &b"x"[..])];
    let locked_out = refused(commit(&set, FLAG_LOCK_AWARE), Identity::Client);
    assert!(matches!(locked_out, Some(Refused::Denied(_))));
    assert_eq!(
        refused(commit(&[], FLAG_LOCK_AWARE), Identity::Client),
        None
    );
    assert_eq!(refused(commit(&set, 0), Identity::Client), None);
    let everything = (Right::Everything, Right::Everything);
    let commit = commit(&set, FLAG_LOCK_AWARE);
    let aware = Pending::accept(commit, Identity::Operator, everything);
    assert!(aware.is_ok_and(|pending| pending.lock_aware));
}

#[test]
fn a_client_cannot_make_the_database_s_own_transactions_conflict() {
    let over = |begin: &[u8], end: &[u8]| {
        let mut builder = ConflictRangesBuilder::new();
        builder.add(begin, end);
        Commit {
            writes: builder.finish(),
            ..commit(&[], FLAG_SYSTEM_KEYS)
        }
    };
    let moves = over(b"\xff/keyServers/", b"\xff/keyServers0");
    assert_eq!(refused(moves.clone(), Identity::Operator), None);
    assert!(matches!(
        refused(moves, Identity::Client),
        Some(Refused::Denied(_))
    ));
    assert_eq!(refused(over(b"", b"\xff"), Identity::Client), None);
    assert_eq!(
        refused(over(b"\xff/SC/x", b"\xff/SC/x\0"), Identity::Client),
        None
    );
}

#[test]
fn a_client_that_is_believed_is_found() {
    plinth_runtime::fault::plant(Some("commit_believes_the_client"));
    let wipe = Mutation::clear_range(&b""[..], &b"\xff\xff"[..]);
    let taken = refused(
        commit(&[wipe], FLAG_SYSTEM_KEYS | FLAG_LOCK_AWARE),
        Identity::Client,
    );
    plinth_runtime::fault::plant(None);
    assert_eq!(taken, None);
    plinth_runtime::fault::found("commit_believes_the_client");
}
