//! Queues of a replicated service on three real processes, which are killed, stopped and exchanged in the log while
//! clients push. What was answered stays: once, with the id of the answer, and in the order of the answers; and what
//! was not answered is there at most once. `PLINTH_CHAOS_SECONDS` sets the duration; `make chaos` runs it for long.

use crate::common::replicas::{Replicas, Service};
use crate::common::text;
use plinth_runtime::Duration;
use plinth_runtime::random::Generator;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const CLIENTS: u64 = 3;
/// A peek shows so many of a queue.
const PEEKED: u64 = 100;
/// One of these answers nothing, or late, for up to this long.
const FAULT_MS_MAX: u64 = 3000;

/// The pushes of one client.
#[derive(Default)]
struct Pushed {
    /// By queue: id and body of each answer, in their order.
    answered: BTreeMap<String, Vec<(u64, String)>>,
    /// Bodies that had no answer.
    open: BTreeSet<String>,
}

/// Pushes until it is told to end. Each body is another one.
fn push(service: &Service, client: u64, is_over: &AtomicBool) -> Pushed {
    let mut pushed = Pushed::default();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        // Half of what a peek shows: some pushes without an answer may be there too.
        let queue = format!("{client}-{}", number / (PEEKED / 2));
        let body = format!("{client}/{number}");
        let request = json!({ "queue": queue, "body": body }).to_string();
        let output = service.run("call", &["push", &request]);
        if !output.status.success() {
            pushed.open.insert(body);
            continue;
        }
        let said: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
        let id = said["id"].as_u64().expect("an id");
        pushed.answered.entry(queue).or_default().push((id, body));
    }
    pushed
}

fn signal(replicas: &Replicas, i: u16, signal: Signal) {
    let process = replicas.processes[usize::from(i)].as_ref();
    let id = process.expect("it runs").0.id();
    let pid = Pid::from_raw(id as i32).expect("an id");
    kill_process(pid, signal).expect("it is there");
}

/// Strikes once, and heals.
fn strike(replicas: &mut Replicas, random: &mut Generator) {
    let victim = random.below(3) as u16;
    let a_while = Duration::from_millis(100 + random.below(FAULT_MS_MAX));
    match random.below(4) {
        0 => {
            println!("r{victim} is killed for {a_while:?}");
            replicas.kill(victim);
            std::thread::sleep(a_while);
            replicas.restart(victim);
        }
        1 => {
            println!("r{victim} is stopped for {a_while:?}");
            signal(replicas, victim, Signal::STOP);
            std::thread::sleep(a_while);
            signal(replicas, victim, Signal::CONT);
        }
        2 => {
            println!("all are killed");
            (0..3).for_each(|i| replicas.kill(i));
            (0..3).for_each(|i| replicas.restart(i));
        }
        _ => {
            println!("r{victim} gives out the positions of the log");
            // It may be refused, while another one begins to do so.
            replicas
                .service
                .run("reconfigure-log", &["--sequencer", &format!("r{victim}")]);
        }
    }
}

fn check(service: &Service, pushed: &Pushed) {
    for (queue, answered) in &pushed.answered {
        let peeked = service.call("peek", &json!({ "queue": queue, "limit": PEEKED }));
        let there: Vec<(u64, String)> = serde_json::from_value::<Vec<Value>>(peeked)
            .expect("a list")
            .iter()
            .map(|message| {
                let body = message["body"].as_str().expect("text").to_string();
                (message["id"].as_u64().expect("an id"), body)
            })
            .collect();
        let bodies: BTreeSet<&String> = there.iter().map(|(_, body)| body).collect();
        assert_eq!(
            bodies.len(),
            there.len(),
            "a push is there twice: {there:?}"
        );
        let (known, others): (Vec<_>, Vec<_>) = there
            .into_iter()
            .partition(|(_, body)| !pushed.open.contains(body));
        assert_eq!(&known, answered, "the queue {queue}, besides {others:?}");
    }
}

#[test]
fn answered_pushes_stay_once_and_in_order_while_replicas_are_killed_and_stopped() {
    let seconds = std::env::var("PLINTH_CHAOS_SECONDS").ok();
    let seconds = seconds.map_or(10, |said| said.parse().expect("a number of seconds"));
    let seed = u64::from(std::process::id());
    println!("faults of seed {seed}");
    let mut random = Generator::new(seed);
    let mut replicas = Replicas::new("delos-chaos", 3);
    let created = replicas.create("queue");
    assert!(created.status.success(), "{}", text(&created.stderr));
    let begun = Instant::now();
    for round in 0.. {
        if begun.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        let is_over = AtomicBool::new(false);
        let clients: Vec<u64> = (0..CLIENTS)
            .map(|client| round * CLIENTS + client)
            .collect();
        let service = replicas.service.clone();
        let all = std::thread::scope(|scope| {
            let pushing: Vec<_> = clients
                .iter()
                .map(|client| scope.spawn(|| push(&service, *client, &is_over)))
                .collect();
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(random.below(1500)));
                strike(&mut replicas, &mut random);
            }
            is_over.store(true, Ordering::Relaxed);
            let ended = pushing.into_iter().map(|client| client.join());
            ended
                .collect::<Result<Vec<_>, _>>()
                .expect("no client fails")
        });
        replicas.await_all();
        let checked: Value =
            serde_json::from_str(&service.succeeds("check", &["--json"])).expect("JSON");
        assert_eq!(checked["equal"], true, "{checked}");
        let answered: usize = all
            .iter()
            .flat_map(|one| one.answered.values())
            .map(Vec::len)
            .sum();
        let open: usize = all.iter().map(|one| one.open.len()).sum();
        println!("round {round}: {answered} pushes were answered, {open} were not");
        assert!(answered > 0, "nothing was answered");
        all.iter().for_each(|pushed| check(&service, pushed));
    }
}
