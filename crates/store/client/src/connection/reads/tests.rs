//! A team of three servers in the simulator, of which some never answer.

use super::{ask_team, by_team, get_from_team};
use crate::connection::Caller;
use crate::connection::locations::Location;
use plinth_coordination::{ClusterFile, Coordinators};
use plinth_core::key::{ALL_KEYS_END, KeyRange};
use plinth_core::{Error, Key, Result, Uid, Value};
use plinth_protocol::storage::{Get, GetReply, GetValues, GetValuesReply};
use plinth_protocol::token::Token;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{Duration, now};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

const ROLE: Uid = Uid(7);
const VALUE: &[u8] = b"value";
/// Twice the limit of silence, and what is between.
const SOON: Duration = Duration::from_secs(11);

/// What a server does with requests.
#[derive(Clone, Copy)]
enum Manner {
    Answers,
    /// The first request fails; later ones are answered.
    FailsFirst,
    /// Its disk hangs, but its process lives.
    IsSilent,
}

fn address(i: usize) -> SocketAddr {
    ([10, 0, 0, 1 + i as u8], 4500).into()
}

async fn serve(i: usize, manner: Manner) {
    let transport = Transport::listen(address(i)).await.expect("listens");
    let (held, is_first) = (RefCell::new(Vec::new()), Cell::new(true));
    let _serving = transport.serve::<Get>(ROLE, move |_, responder| match manner {
        Manner::IsSilent => held.borrow_mut().push(responder),
        Manner::FailsFirst if is_first.replace(false) => {
            responder.fail(Error::wrong_shard_server);
        }
        Manner::FailsFirst | Manner::Answers => responder.ok(GetReply {
            value: Some(Value::from_static(VALUE)),
        }),
    });
    std::future::pending::<()>().await;
}

/// Asks a team of such servers until one answers, as a read does.
async fn read(servers: usize) -> Result<Option<Value>> {
    let file = ClusterFile::parse("test:test@10.0.0.9:4500").expect("it is one");
    let connection = Caller::connect(Transport::client(), Coordinators::from(file));
    let servers = (0..servers).map(|i| Interface::new(address(i), ROLE));
    let location = Location {
        range: KeyRange::new(Key::new(), Key::from_static(ALL_KEYS_END)),
        servers: servers.collect::<Vec<_>>().into(),
    };
    let request = Get {
        key: Key::from_static(b"key"),
        version: 1,
        token: Token::NONE,
    };
    loop {
        match ask_team(&connection.inner, &location, &request).await {
            Ok(reply) => return Ok(reply.value),
            Err(Error::wrong_shard_server | Error::all_alternatives_failed) => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_answered(manners: [Manner; 3]) {
    for seed in 0..20 {
        let simulation = Simulation::new(seed, SimConfig::default());
        for (i, manner) in manners.into_iter().enumerate() {
            let machine = simulation.add_machine(Locality::default());
            simulation.start_process(machine, address(i), move || Box::pin(serve(i, manner)));
        }
        let work = async {
            let begun = now();
            (read(3).await, begun.elapsed())
        };
        let ended = simulation.run_until(work, Duration::from_secs(60));
        let (answer, took) = ended.unwrap_or_else(|| panic!("seed {seed}: it waits for ever"));
        assert_eq!(answer, Ok(Some(Value::from_static(VALUE))), "seed {seed}");
        assert!(took < SOON, "seed {seed}: {took:?}");
    }
}

#[test]
fn a_server_that_never_answers_is_not_the_last_word_if_others_have_failed_before() {
    is_answered([Manner::IsSilent, Manner::FailsFirst, Manner::FailsFirst]);
}

#[test]
fn two_servers_that_never_answer_do_not_keep_a_read_from_the_third() {
    is_answered([Manner::IsSilent, Manner::IsSilent, Manner::Answers]);
}

/// What a server makes of reads that come together. Alone, it answers each with its key, and refuses `DENIED`.
#[derive(Clone, Copy)]
enum Together {
    /// So many values, and no more.
    AnswersFirst(usize),
    Fails(Error),
}

const DENIED: &[u8] = b"denied";

async fn serve_together(manner: Together) {
    let transport = Transport::listen(address(0)).await.expect("listens");
    let _together = transport.serve::<GetValues>(ROLE, move |request, responder| match manner {
        Together::AnswersFirst(count) => responder.ok(GetValuesReply {
            values: request.keys.into_iter().map(Some).take(count).collect(),
        }),
        Together::Fails(error) => responder.fail(error),
    });
    let _alone = transport.serve::<Get>(ROLE, |request, responder| match &request.key[..] {
        DENIED => responder.fail(Error::permission_denied),
        _ => responder.ok(GetReply {
            value: Some(request.key),
        }),
    });
    std::future::pending::<()>().await;
}

fn connection_to_one_server() -> (Caller, Location) {
    let file = ClusterFile::parse("test:test@10.0.0.9:4500").expect("it is one");
    let location = Location {
        range: KeyRange::new(Key::new(), Key::from_static(ALL_KEYS_END)),
        servers: Rc::new([Interface::new(address(0), ROLE)]),
    };
    let connection = Caller::connect(Transport::client(), Coordinators::from(file));
    let known = &connection.inner.locations;
    known.borrow_mut().fill(vec![location.clone()]);
    (connection, location)
}

fn read_together(manner: Together, keys: &[&'static [u8]]) -> Vec<Result<Option<Value>>> {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    simulation.start_process(machine, address(0), move || {
        Box::pin(serve_together(manner))
    });
    let reads: Vec<_> = keys
        .iter()
        .copied()
        .map(Key::from_static)
        .enumerate()
        .collect();
    let work = async {
        let (connection, location) = connection_to_one_server();
        get_from_team(connection.clone(), location, reads, 1).await
    };
    let mut results = simulation
        .run_until(work, Duration::from_secs(60))
        .expect("it ends");
    results.sort_by_key(|(number, _)| *number);
    let numbers: Vec<_> = results.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (0..keys.len()).collect::<Vec<_>>());
    results.into_iter().map(|(_, result)| result).collect()
}

#[test]
fn reads_that_a_server_does_not_answer_together_are_answered_singly() {
    let keys: [&'static [u8]; 3] = [b"a", DENIED, b"c"];
    let value = |key: &'static [u8]| Ok(Some(Value::from_static(key)));
    let singly = [value(b"a"), Err(Error::permission_denied), value(b"c")];
    for manner in [
        Together::AnswersFirst(0),
        Together::AnswersFirst(1),
        Together::Fails(Error::permission_denied),
        Together::Fails(Error::wrong_shard_server),
        Together::Fails(Error::server_request_queue_full),
    ] {
        assert_eq!(read_together(manner, &keys), singly);
    }
    let together = read_together(Together::AnswersFirst(2), &keys[..2]);
    assert_eq!(together, [value(b"a"), value(DENIED)]);
}

#[test]
fn reads_together_of_a_version_that_is_gone_all_fail() {
    let failed = read_together(Together::Fails(Error::transaction_too_old), &[b"a", b"b"]);
    assert_eq!(failed, vec![Err(Error::transaction_too_old); 2]);
}

#[test]
fn no_more_reads_than_a_request_may_have_go_together() {
    let simulation = Simulation::new(1, SimConfig::default());
    simulation.run(async {
        let (connection, _) = connection_to_one_server();
        let reads = (0..GetValues::KEYS_MAX + 1).map(|i| (i, Key::from(format!("{i:03}"))));
        let groups = by_team(&connection.inner, reads.collect());
        let sizes: Vec<_> = groups.iter().map(|(_, reads)| reads.len()).collect();
        assert_eq!(sizes, [GetValues::KEYS_MAX, 1]);
    });
}

#[test]
fn reads_together_go_past_a_server_that_never_answers() {
    for seed in 0..20 {
        let simulation = Simulation::new(seed, SimConfig::default());
        let machine = |i| {
            let machine = simulation.add_machine(Locality::default());
            simulation.start_process(machine, address(i), move || {
                Box::pin(async move {
                    let transport = Transport::listen(address(i)).await.expect("listens");
                    let held = RefCell::new(Vec::new());
                    let _serving =
                        transport.serve::<GetValues>(ROLE, move |request, responder| match i {
                            0 => held.borrow_mut().push(responder),
                            _ => responder.ok(GetValuesReply {
                                values: request.keys.into_iter().map(Some).collect(),
                            }),
                        });
                    std::future::pending::<()>().await;
                })
            });
        };
        (0..2).for_each(machine);
        let work = async {
            let (connection, location) = connection_to_one_server();
            let location = Location {
                servers: (0..2).map(|i| Interface::new(address(i), ROLE)).collect(),
                ..location
            };
            let reads = [b"a", b"b"].map(|key| Key::from_static(key));
            let reads = reads.into_iter().enumerate().collect();
            get_from_team(connection.clone(), location, reads, 1).await
        };
        let results = simulation.run_until(work, Duration::from_secs(60));
        let results = results.unwrap_or_else(|| panic!("seed {seed}: it waits for ever"));
        let value = |key: &'static [u8]| Ok(Some(Value::from_static(key)));
        assert_eq!(results, [(0, value(b"a")), (1, value(b"b"))], "seed {seed}");
    }
}
