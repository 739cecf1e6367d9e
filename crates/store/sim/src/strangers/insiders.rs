//! Insiders: strangers with the key of a reader or a client. They send every request that is for others, and commits
//! that claim more than a client may do. None of it may have an effect.

use super::random_fields::RandomFields;
use super::{HARMFUL, REQUESTS_MAX, SIEGE_PAUSE_MS, roles};
use crate::cluster::Shape;
use bytes::Bytes;
use plinth_core::conflict_ranges::ConflictRangesBuilder;
use plinth_core::key::{ALL_KEYS_END, KEY_BYTES_MAX, SYSTEM_BEGIN, VALUE_BYTES_MAX};
use plinth_core::system_keys::{
    CONFIG, DATABASE_LOCK, IDEMPOTENCY, KEY_SERVERS, KEY_SERVERS_END, METADATA_VERSION,
    MOVE_KEYS_LOCK, SERVER_LIST, TENANTS,
};
use plinth_core::{Mutation, MutationBatch, Uid, streams};
use plinth_identity::Identity;
use plinth_protocol::control::WORKER;
use plinth_protocol::coordination::COORDINATOR;
use plinth_protocol::token::Token;
use plinth_protocol::transaction::{Commit, FLAG_LOCK_AWARE, FLAG_SYSTEM_KEYS};
use plinth_rpc::{Asked, Interface, REQUESTS, RequestKind, Transport};
use plinth_runtime::random::{below, chance, range};
use plinth_runtime::{Duration, join_all, probe, trace};

/// One insider, who stays for a while.
pub async fn visit(shape: &Shape) {
    let identity = match chance(0.3) {
        true => Identity::Reader,
        false => Identity::Client,
    };
    trace!("Insider", "identity" => identity);
    let transport = Transport::client_with(shape.holder(identity));
    let mut known = roles(shape).await;
    let machine = below(shape.machines as u64) as usize;
    let process = below(shape.processes_a_machine as u64) as usize;
    let address = Shape::address(machine, process);
    known.extend([WORKER, COORDINATOR].map(|id| Interface::new(address, id)));
    let mut kinds: Vec<&RequestKind> = REQUESTS
        .iter()
        .filter(|kind| shape.draws_from(kind.module) && asks(kind, identity))
        .collect();
    kinds.sort_by_key(|kind| kind.method); // the linker's order is not stable
    let mut asked: Vec<Asked> = Vec::new();
    for _ in 0..range(1..REQUESTS_MAX) {
        let role = known[below(known.len() as u64) as usize];
        if chance(0.2) {
            let call = transport.call(&role.endpoint::<Commit>(), commit(&known));
            asked.push(Box::pin(async move { call.await.map(drop) }));
            continue;
        }
        let kind = kinds[below(kinds.len() as u64) as usize];
        let mut fields = RandomFields::new(&known);
        asked.push((kind.ask)(&transport, &role, &mut fields));
    }
    let stays = Duration::from_millis(below(SIEGE_PAUSE_MS));
    if let Some(answers) = plinth_runtime::timeout(stays, join_all(asked)).await {
        let refused = plinth_core::Error::permission_denied;
        if answers.contains(&Err(refused)) {
            probe!("insider_is_refused");
        }
    }
}

/// What is for others, and what is for everybody with its key and does no harm.
fn asks(kind: &RequestKind, identity: Identity) -> bool {
    let is_harmful = HARMFUL.iter().any(|(name, _)| *name == kind.name);
    !kind.audience.admits(identity) || !is_harmful
}

/// A commit that no client may send. Most would be noticed at once.
fn commit(known: &[Interface]) -> Commit {
    let mut writes = ConflictRangesBuilder::new();
    let mut flags = FLAG_SYSTEM_KEYS | FLAG_LOCK_AWARE;
    let wipe = || Mutation::clear_range(&b""[..], SYSTEM_BEGIN);
    let mutations = match below(10) {
        0 => vec![Mutation::clear_range(&b""[..], ALL_KEYS_END)],
        1 => vec![wipe()],
        2 => {
            flags = FLAG_SYSTEM_KEYS;
            vec![wipe(), Mutation::set(system_key(), garbage())]
        }
        3 => vec![Mutation::set(DATABASE_LOCK, Bytes::from(vec![1; 16]))],
        4 => vec![Mutation::clear_range(KEY_SERVERS, KEY_SERVERS_END)],
        5 => {
            let id = known[below(known.len() as u64) as usize].id;
            let gone = plinth_core::system_keys::server_list_key(id);
            vec![Mutation::clear_range(
                gone.clone(),
                [&gone[..], b"\0"].concat(),
            )]
        }
        6 => vec![wipe(), Mutation::set(METADATA_VERSION, garbage())],
        7 => {
            flags = 0;
            vec![
                wipe(),
                Mutation::set(vec![b'k'; KEY_BYTES_MAX + 9], garbage()),
            ]
        }
        8 => {
            flags = 0;
            vec![
                wipe(),
                Mutation::set(&b"k"[..], vec![b'v'; VALUE_BYTES_MAX + 1]),
            ]
        }
        _ => {
            flags = FLAG_SYSTEM_KEYS;
            writes.add(KEY_SERVERS, KEY_SERVERS_END);
            vec![wipe()]
        }
    };
    Commit {
        read_version: 1 << 40,
        reads: Bytes::new(),
        writes: writes.finish(),
        mutations: MutationBatch::from_mutations(mutations.iter().map(Mutation::as_ref))
            .into_bytes(),
        flags,
        places: 1,
        token: Token::NONE,
    }
}

fn system_key() -> Bytes {
    let keys = [
        CONFIG,
        MOVE_KEYS_LOCK,
        SERVER_LIST,
        TENANTS,
        IDEMPOTENCY,
        KEY_SERVERS,
        streams::STREAM_MAP,
    ];
    let key = keys[below(keys.len() as u64) as usize];
    Bytes::from([key, &Uid(u128::from(below(9))).to_bytes()].concat())
}

fn garbage() -> Bytes {
    Bytes::from(vec![below(256) as u8; below(40) as usize])
}
