//! Loglets in use while machines lose power, processes die, the network is cut and disks fill up.

use super::*;
use plinth_runtime::fault;
use std::cell::Cell;
use std::pin::Pin;

/// One thing goes wrong. It is over after a while.
async fn break_something(nodes: &[Node]) {
    let any = |below: usize| random::below(below as u64) as usize;
    let while_ms = Duration::from_millis(random::range(10..1500));
    let node = nodes[any(nodes.len())];
    let other = nodes[any(nodes.len())].machine;
    let tester = MachineId::TESTER;
    match random::below(8) {
        0 => control().reboot_machine(node.machine, while_ms),
        1 => {
            let kind = KillKind::RebootProcess { after: while_ms };
            control().kill_process(node.process, kind);
        }
        2 => control().pause_process(node.process, while_ms),
        3 => {
            let with = if random::chance(0.5) { tester } else { other };
            control().partition(node.machine, with, random::chance(0.5));
            sleep(while_ms).await;
            control().heal(node.machine, with);
        }
        4 => {
            control().set_disk_full(node.machine, true);
            sleep(while_ms).await;
            control().set_disk_full(node.machine, false);
        }
        5 => drop(control().cut_connections(node.machine, tester)),
        6 => drop(control().cut_connections(node.machine, other)),
        _ => {
            control().set_disk_slowness(node.machine, 50);
            sleep(while_ms).await;
            control().set_disk_slowness(node.machine, 1);
        }
    }
    sleep(Duration::from_millis(random::below(800))).await;
}

/// All machines lose their power at once, and come back.
async fn lights_out(nodes: &[Node]) {
    nodes
        .iter()
        .for_each(|node| control().power_cut(node.machine));
    sleep(Duration::from_millis(100)).await;
    nodes.iter().for_each(|node| control().boot(node.machine));
}

async fn append_until(judge: &Judge, log: &impl SharedLog, name: &str, is_over: &Cell<bool>) {
    for number in 0.. {
        if is_over.get() {
            return;
        }
        let entry = Bytes::from(format!("{name} {number}"));
        match judge.append(log, entry).await {
            Ok(_) => sleep(Duration::from_millis(random::below(20))).await,
            Err(LogError::Sealed) => return,
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn read_until(judge: &Judge, log: &impl SharedLog, is_over: &Cell<bool>) {
    let mut next = 1;
    while !is_over.get() {
        if random::chance(0.3) {
            judge.check_tail(log).await;
        }
        next = judge.read(log, next, random::below(500) as usize).await;
        sleep(Duration::from_millis(random::below(50))).await;
    }
}

/// One loglet, three clients, faults, and two that seal it at about the same time. Returns how many appends were
/// answered.
async fn use_one_loglet(cluster: Cluster) -> usize {
    let config = cluster.config(7, 0).await;
    let logs: Vec<_> = (0..3).map(|_| log(&config)).collect();
    let (judge, is_over) = (Judge::default(), Cell::new(false));
    let ends: RefCell<Vec<Tail>> = RefCell::default();
    let appends = (0..6).map(|n| {
        let (judge, log, is_over) = (&judge, &logs[n % 3], &is_over);
        async move { append_until(judge, log, &format!("{n}"), is_over).await }
    });
    let reads = logs.iter().map(|log| read_until(&judge, log, &is_over));
    let seal = |log: Rc<QuorumLog>| {
        let (ends, is_over) = (&ends, &is_over);
        async move {
            sleep(Duration::from_millis(random::below(500))).await;
            loop {
                if let Ok(tail) = log.seal().await {
                    ends.borrow_mut().push(tail);
                    is_over.set(true);
                    return;
                }
            }
        }
    };
    let trouble = async {
        for _ in 0..random::below(15) {
            break_something(&cluster.nodes).await;
        }
        join_all(logs[..2].iter().map(|log| seal(log.clone()))).await;
        for _ in 0..random::below(4) {
            break_something(&cluster.nodes).await;
        }
        lights_out(&cluster.nodes).await;
        control().heal_all();
    };
    all_of([
        Box::pin(async { drop(join_all(appends).await) }),
        Box::pin(async { drop(join_all(reads).await) }),
        Box::pin(trouble),
    ])
    .await;
    let end = ends.borrow()[0];
    assert!(ends.borrow().iter().all(|other| *other == end), "{ends:?}");
    for log in [log(&config), logs[2].clone()] {
        assert_eq!(settled(|| log.check_tail()).await, end);
        judge.finish(&log).await;
    }
    judge.appended()
}

type Work<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Waits for all of them.
async fn all_of<const N: usize>(work: [Work<'_>; N]) {
    let done = timeout(Duration::from_secs(300), join_all(work)).await;
    assert!(done.is_some(), "a client hangs");
}

/// Asks again until there is an answer.
async fn settled<T, F: Future<Output = Result<T, LogError>>>(ask: impl Fn() -> F) -> T {
    let begun = now();
    loop {
        if let Ok(answer) = ask().await {
            return answer;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "no answer when all is well"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn answered_appends_stay_and_the_end_does_not_move_whatever_breaks_at_three_servers() {
    let appended: usize = (0..40).map(|seed| run(seed, 3, use_one_loglet)).sum();
    assert!(
        appended > 2000,
        "{appended} appends are too few to prove anything"
    );
}

#[test]
fn answered_appends_stay_and_the_end_does_not_move_whatever_breaks_at_five_servers() {
    let appended: usize = (100..120).map(|seed| run(seed, 5, use_one_loglet)).sum();
    assert!(
        appended > 1000,
        "{appended} appends are too few to prove anything"
    );
}

#[test]
fn a_sequencer_that_is_content_with_one_disk_is_found() {
    fault::makes_panic("delos_quorum_minority", "", || {
        for seed in 0..40 {
            run(seed, 3, use_one_loglet);
        }
    });
}

#[derive(Clone)]
struct Memory(Rc<RefCell<(u64, Bytes)>>);

impl Register for Memory {
    async fn read(&self) -> Result<(u64, Bytes), Error> {
        sleep(Duration::from_millis(random::below(3))).await;
        Ok(self.0.borrow().clone())
    }

    async fn swap(&self, version: u64, value: Bytes) -> Result<bool, Error> {
        sleep(Duration::from_millis(random::below(3))).await;
        let mut now = self.0.borrow_mut();
        if now.0 != version {
            return Ok(false);
        }
        *now = (version + 1, value);
        Ok(true)
    }
}

type Log = VirtualLog<Memory, QuorumLoglets>;

async fn virtual_log(register: &Memory, first: &Config) -> Log {
    let loglets = QuorumLoglets {
        transport: Transport::client(),
    };
    let log = VirtualLog::open(register.clone(), loglets, first.to_description()).await;
    log.expect("a log")
}

/// Exchanges loglets again and again, each time with the sequencer at another node.
async fn exchange(cluster: &Cluster, logs: &[Log], is_over: &Cell<bool>) {
    let mut loglet = 1;
    while !is_over.get() {
        sleep(Duration::from_millis(random::below(400))).await;
        let sequencer = loglet as usize % cluster.nodes.len();
        let next = cluster.config(loglet, sequencer).await.to_description();
        let log = &logs[loglet as usize % logs.len()];
        // Until then appends wait. It may have failed after it was done.
        while let Err(error) = log.reconfigure(next.clone()).await {
            assert!(matches!(error, LogError::Failed(_)), "{error}");
            sleep(Duration::from_millis(50)).await;
        }
        loglet += 1;
    }
}

/// A virtual log whose loglets are exchanged under load, with faults or without. Returns how many loglets it had.
async fn exchange_loglets(cluster: Cluster, faults: u64) -> usize {
    let register = Memory(Rc::default());
    let first = cluster.config(1000, 0).await;
    let mut logs = Vec::new();
    for _ in 0..2 {
        logs.push(virtual_log(&register, &first).await);
    }
    let (judge, is_over) = (Judge::default(), Cell::new(false));
    let appends = (0..6).map(|n| {
        let (judge, log, is_over) = (&judge, &logs[n % 2], &is_over);
        async move { append_until(judge, log, &format!("{n}"), is_over).await }
    });
    let reads = logs.iter().map(|log| read_until(&judge, log, &is_over));
    let exchanging = exchange(&cluster, &logs, &is_over);
    let trouble = async {
        for _ in 0..faults {
            break_something(&cluster.nodes).await;
        }
        control().heal_all();
        sleep(Duration::from_secs(3)).await;
        is_over.set(true);
    };
    all_of([
        Box::pin(async { drop(join_all(appends).await) }),
        Box::pin(async { drop(join_all(reads).await) }),
        Box::pin(exchanging),
        Box::pin(trouble),
    ])
    .await;
    if faults == 0 {
        assert_eq!(judge.unknown.get(), 0, "no append is lost by an exchange");
    }
    let fresh = virtual_log(&register, &first).await;
    judge.finish(&fresh).await;
    assert!(judge.appended() > 100, "{} appends", judge.appended());
    fresh.parts().len()
}

#[test]
fn loglets_are_exchanged_under_load_and_every_append_is_answered() {
    for seed in 0..5 {
        let loglets = run(seed, 3, |cluster| exchange_loglets(cluster, 0));
        assert!(loglets > 3, "{loglets} loglets");
    }
}

#[test]
fn loglets_are_exchanged_while_things_break_and_nothing_is_lost() {
    for seed in 0..20 {
        run(seed, 3, |cluster| exchange_loglets(cluster, 12));
    }
}
