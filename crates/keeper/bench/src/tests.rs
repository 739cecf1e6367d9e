//! The load against servers that behave well or badly, in the simulator.

use super::claim::claim;
use super::mix::{Kind, Workload};
use super::run::{Compared, Plan, Server, run};
use super::{markdown, report};
use bytes::Bytes;
use plinth_core::output::Output;
use plinth_keeper::wire::{
    Answer, AnswerHeader, Code, ConnectAnswer, Dialect, Header, Request, Stat, Text, XidWidth,
    create_flags, decode_connect_request, decode_request, encode_answer, encode_connect_answer,
    take_frame,
};
use plinth_runtime::net::listen;
use plinth_runtime::serve::{Inbox, Outbox, accept, session};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{Duration, TaskGroup};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Of sessions that are disturbed.
const TIMEOUT_MS: i32 = 6000;

/// What a server does wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    None,
    /// Sets are answered and not carried out, now and then.
    ForgetsSets,
    /// The last byte of data is missing.
    CutsData,
    /// Nodes that the server numbers have the same number now and then.
    NumbersTwice,
    /// Connections of sessions that are disturbed are cut; the sessions live on.
    CutsConnections,
    /// These connections are cut, and their sessions end.
    EndsSessions,
}

struct Node {
    data: Bytes,
    version: i32,
}

/// A tree of nodes, as far as the bench asks for it.
struct Fake {
    fault: Fault,
    nodes: RefCell<BTreeMap<String, Node>>,
    sessions: Cell<i64>,
    zxid: Cell<i64>,
}

fn address(machine: u8) -> SocketAddr {
    ([10, 0, 0, machine], 2181).into()
}

impl Fake {
    fn stat(node: &Node) -> Stat {
        Stat {
            version: node.version,
            data_length: node.data.len() as i32,
            ..Stat::default()
        }
    }

    fn answer(&self, request: Request) -> Result<Answer, Code> {
        let mut nodes = self.nodes.borrow_mut();
        let node = |path: &Text| path.as_str().to_owned();
        Ok(match request {
            Request::Create {
                path, data, flags, ..
            } => {
                let data = data.unwrap_or_default();
                let is_twice = self.fault == Fault::NumbersTwice;
                let path = match flags {
                    create_flags::PERSISTENT_SEQUENTIAL => {
                        let number = self.zxid.get() & !i64::from(is_twice);
                        format!("{}{number:010}", path.as_str()).into()
                    }
                    _ => path,
                };
                if nodes.contains_key(path.as_str()) && !is_twice {
                    return Err(Code::NODE_EXISTS);
                }
                nodes.insert(node(&path), Node { data, version: 0 });
                Answer::Path(path)
            }
            Request::Delete { path, .. } => {
                nodes.remove(path.as_str()).ok_or(Code::NO_NODE)?;
                Answer::Empty
            }
            Request::GetData { path, .. } => {
                let found = nodes.get(path.as_str()).ok_or(Code::NO_NODE)?;
                let mut data = found.data.clone();
                data.truncate(data.len() - usize::from(self.fault == Fault::CutsData));
                Answer::Data(Some(data), Self::stat(found))
            }
            Request::Exists { path, .. } => {
                Answer::Stat(Self::stat(nodes.get(path.as_str()).ok_or(Code::NO_NODE)?))
            }
            Request::SetData { path, data, .. } => {
                let found = nodes.get_mut(path.as_str()).ok_or(Code::NO_NODE)?;
                let mut stat = Self::stat(found);
                stat.version += 1;
                stat.data_length = data.as_ref().map_or(0, Bytes::len) as i32;
                if self.fault != Fault::ForgetsSets || self.zxid.get() % 7 > 0 {
                    found.version += 1;
                    found.data = data.unwrap_or_default();
                }
                Answer::Stat(stat)
            }
            Request::GetChildren { path, .. } => {
                let below = format!("{path}/");
                let names = nodes.range(below.clone()..).map(|(path, _)| path.as_str());
                let names = names.map_while(|path| path.strip_prefix(&below));
                Answer::Children(
                    names
                        .filter(|name| !name.contains('/'))
                        .map(Text::from)
                        .collect(),
                )
            }
            Request::Sync { path } => Answer::Sync(path),
            _ => Answer::Empty,
        })
    }

    /// Greets, then answers.
    async fn serve(self: Rc<Self>, mut inbox: Inbox, outbox: Rc<Outbox>) {
        let (mut served, mut is_short) = (0, false);
        loop {
            let Some(frame) = take_frame(&mut inbox.buffer, 1 << 20).expect("it has a length")
            else {
                match inbox.read().await {
                    Some(_) => continue,
                    None => return,
                }
            };
            served += 1;
            if served > 50
                && is_short
                && matches!(self.fault, Fault::CutsConnections | Fault::EndsSessions)
            {
                return;
            }
            let append = |out: &mut Output| {
                if served == 1 {
                    is_short = self.greet(out, frame) == TIMEOUT_MS;
                    return Ok::<(), Infallible>(());
                }
                let (Header { xid, .. }, request) =
                    decode_request(frame, Dialect::ZooKeeper, XidWidth::Four)
                        .expect("it has a header");
                self.zxid.set(self.zxid.get() + 1);
                let answer = self.answer(request.expect("it can be read"));
                let header = AnswerHeader {
                    xid,
                    zxid: self.zxid.get(),
                    error: answer.as_ref().err().map_or(0, |code| code.0),
                };
                encode_answer(out, header, &answer.unwrap_or(Answer::Empty));
                Ok(())
            };
            outbox.push(append).expect("there is room");
        }
    }

    /// Returns the session's time-out.
    fn greet(&self, out: &mut Output, frame: Bytes) -> i32 {
        let greeting = decode_connect_request(frame).expect("it is a greeting");
        let is_over = greeting.session_id != 0 && self.fault == Fault::EndsSessions;
        self.sessions.set(self.sessions.get() + 1);
        let answer = ConnectAnswer {
            protocol_version: 0,
            timeout_ms: if is_over { 0 } else { greeting.timeout_ms },
            session_id: self.sessions.get(),
            password: Bytes::from_static(b"secret"),
            read_only: greeting.read_only,
        };
        encode_connect_answer(out, &answer);
        greeting.timeout_ms
    }
}

/// A server of each fault, and a plan for them.
fn planned(names: &[&str], faults: &[Fault]) -> (Simulation, Plan) {
    let simulation = Simulation::new(1, SimConfig::default());
    let mut servers = Vec::new();
    for (machine, fault) in (1..).zip(faults.iter().copied()) {
        servers.push(Server {
            name: format!("{fault:?}-{machine}"),
            addresses: vec![address(machine)],
            parts: vec![],
            directory: None,
        });
        let host = simulation.add_machine(Locality::default());
        simulation.start_process(host, address(machine), move || {
            Box::pin(async move {
                let listener = listen(address(machine)).await.expect("the address is free");
                let fake = Rc::new(Fake {
                    fault,
                    nodes: RefCell::default(),
                    sessions: Cell::new(0),
                    zxid: Cell::new(0),
                });
                let sessions = TaskGroup::new();
                accept(listener, |connection| {
                    let fake = fake.clone();
                    let work = move |inbox, outbox| fake.serve(inbox, outbox);
                    sessions.spawn("session", session(connection, work));
                    ControlFlow::Continue(())
                })
                .await;
            })
        });
    }
    let parse = |name: &&str| Workload::parse(name).expect("known");
    let plan = Plan {
        peer: servers.len() - 1,
        servers,
        workloads: names.iter().map(parse).collect(),
        clients: vec![1, 5],
        outstanding: 2,
        warmup: Duration::from_millis(10),
        first_warmup: Duration::from_millis(100),
        duration: Duration::from_millis(500),
        settle: Duration::from_secs(1),
        rounds: 2,
        nodes: 500,
        node_bytes: 1024,
        seed: 7,
        disturbance: None,
        timeout_ms: TIMEOUT_MS,
        keep: false,
        cores: 2,
        has_own_cores: false,
    };
    (simulation, plan)
}

/// Runs the plan with a server of each fault.
fn bench(names: &[&str], faults: &[Fault]) -> Result<(Plan, Vec<Compared>), String> {
    let (simulation, plan) = planned(names, faults);
    let measured = Rc::new(RefCell::new(Vec::new()));
    let (ours, of_run) = (measured.clone(), plan.clone());
    let running =
        async move { run(&of_run, |_| (), |compared| ours.borrow_mut().push(compared)).await };
    let ended = simulation.run_until(running, Duration::from_secs(3600));
    ended.expect("it comes to its end")?;
    Ok((plan, measured.take()))
}

#[test]
fn every_workload_runs_on_every_server_in_turn_and_the_kinds_are_those_of_the_mix() {
    let names: Vec<String> = Workload::all()
        .into_iter()
        .map(|workload| workload.name)
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (plan, measured) = bench(&names, &[Fault::None, Fault::None]).expect("they behave well");
    // The number of sessions is a part of these: three, the bulk load and the failures.
    assert_eq!(measured.len(), 2 * (names.len() - 5) + 5);
    for compared in &measured {
        let objects = report::objects(&plan, compared);
        assert_eq!(objects.len(), 2);
        for object in &objects {
            let rate = object["operations_per_second"].as_f64();
            assert!(rate.is_some_and(|rate| rate > 100.0), "{object}");
            assert_eq!(object["rounds"].as_array().map(Vec::len), Some(2));
        }
        let ratio = &objects[0]["times_peer"]["operations_per_second"];
        let median = ratio["median"].as_f64();
        assert!(
            median.is_some_and(|ratio| (0.1..10.0).contains(&ratio)),
            "{ratio}"
        );
        assert!(objects[1]["times_peer"].is_null() && objects[1]["goals"].is_null());
        let goal = &objects[0]["goals"][0];
        assert!(goal["is_met"].is_boolean(), "{goal}");
        let kinds = &objects[0]["kinds"];
        let share = |kind: Kind| {
            let of = kinds[kind.name()]["operations"].as_f64().unwrap_or(0.0);
            of / objects[0]["operations"].as_f64().expect("a number")
        };
        match compared.workload.name.as_str() {
            "reads-0" => {
                assert!(share(Kind::Get) == 0.0 && (0.2..0.45).contains(&share(Kind::Remove)))
            }
            "reads-100" | "ycsb-c" => assert!(share(Kind::Get) > 0.8),
            "ycsb-f" => assert!((0.15..0.35).contains(&share(Kind::Set)), "{kinds}"),
            "bulk-load" => assert_eq!(objects[0]["operations"], 500),
            "one-session-sets" => {
                assert!(share(Kind::Set) > 0.99);
                let (clients, outstanding) = (&objects[0]["clients"], &objects[0]["outstanding"]);
                assert_eq!((clients, outstanding), (&1.into(), &100.into()));
            }
            "one-session-creates" | "numbered-creates" => assert!(share(Kind::Create) > 0.99),
            "hot-1" => assert!((0.3..0.7).contains(&share(Kind::Set)), "{kinds}"),
            _ => {}
        }
        let page = report::page(&objects);
        assert!(page.contains(&compared.workload.name) && !page.contains("http"));
        assert!(report::lines(&objects).contains("throughput"));
        let tables = markdown::tables(&objects);
        match compared.workload.is_disturbed {
            true => assert!(tables.contains("sessions that moved"), "{tables}"),
            false => assert!(tables.contains(&compared.workload.name), "{tables}"),
        }
    }
}

#[test]
fn a_server_that_is_wrong_is_no_fast_one() {
    let error_of = |workload, fault| match bench(&[workload], &[Fault::None, fault]) {
        Ok(_) => panic!("{fault:?} is not seen"),
        Err(error) => error,
    };
    let error = |fault| error_of("reads-50", fault);
    let forgets = error(Fault::ForgetsSets);
    assert!(
        forgets.contains("writes were answered") && forgets.contains("ForgetsSets"),
        "{forgets}"
    );
    let cuts = error(Fault::CutsData);
    assert!(cuts.contains("a wrong answer: Some(1023) bytes"), "{cuts}");
    let twice = error_of("numbered-creates", Fault::NumbersTwice);
    assert!(
        twice.contains("was created and cannot be removed"),
        "{twice}"
    );
}

#[test]
fn sessions_that_are_disturbed_go_on_over_another_connection_or_are_counted_as_lost() {
    for (fault, is_lost) in [(Fault::CutsConnections, false), (Fault::EndsSessions, true)] {
        let served = bench(&["failures"], &[fault]);
        let (plan, measured) = served.expect("it goes on");
        let sessions = &report::objects(&plan, &measured[0])[0]["sessions"];
        assert_eq!(sessions["sessions"], 10);
        let (moved, lost) = (sessions["moved"].as_u64(), sessions["lost"].as_u64());
        assert_eq!(
            (moved > Some(0), lost > Some(0)),
            (!is_lost, is_lost),
            "{sessions}"
        );
        assert!(sessions["longest_gap_s"]["max"].as_f64() > Some(0.0));
    }
}

#[test]
fn a_bench_is_refused_while_another_one_has_the_server() {
    let (simulation, plan) = planned(&["reads-50"], &[Fault::None, Fault::None]);
    let second = Plan {
        servers: plan.servers[1..].to_vec(),
        peer: 0,
        ..plan.clone()
    };
    let claiming = async move {
        let own = claim(&second).await.expect("nobody has it");
        let line = claim(&plan).await.err().expect("the other has one of them");
        assert!(line.contains("another `plinth keeper bench'"), "{line}");
        own.end().await;
        let all = claim(&plan).await.expect("what was refused holds nothing");
        all.end().await;
    };
    let ended = simulation.run_until(claiming, Duration::from_secs(60));
    ended.expect("it comes to its end");
}
