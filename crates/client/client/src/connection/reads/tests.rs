//! A team of three servers in the simulator, of which some never answer.

use super::ask_team;
use crate::connection::Connection;
use crate::connection::locations::Location;
use plinth_coordination::{ClusterFile, Coordinators};
use plinth_core::key::{ALL_KEYS_END, KeyRange};
use plinth_core::{Error, Key, Result, Uid, Value};
use plinth_protocol::storage::{Get, GetReply};
use plinth_protocol::token::Token;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{Duration, now};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

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
    let connection = Connection::new(Transport::client(), Coordinators::from(file));
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
        match ask_team(&connection.caller.inner, &location, &request).await {
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
