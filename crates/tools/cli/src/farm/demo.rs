//! `plinth farm demo`: TPC-C on three processes of this host, one of which is killed in the middle.
//!
//! 1. Starts a cluster of three machines, with three replicas of everything, and loads TPC-C.
//! 2. Runs the mix on all three, and kills the master's process with SIGKILL.
//! 3. Starts a new process in its place, and waits until its replicas are whole.
//! 4. Checks the consistency conditions (clause 3.3.2), and that every order is there that a client was told of.

use super::fleet::{Fleet, Shape, first_end};
use crate::Outcome;
use crate::children::{CHECK_INTERVAL, stop};
use plinth_runtime::real::interrupted;
use plinth_runtime::{Duration, Either, Instant, TaskGroup, now, offload, race, sleep};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout};
use std::rc::Rc;

const MACHINES: u16 = 3;
const SHAPE: Shape = Shape {
    machines: MACHINES,
    replication: 3,
    regions: 6,
    region_mib: 96,
    old_mib: 64,
    is_durable: false,
};
const LOAD_LIMIT: Duration = Duration::from_secs(300);
const WHOLE_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// So long the others run alone before a new process is started.
const ALONE: Duration = Duration::from_secs(2);

#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Seconds to run before the process is killed, and again when all is whole
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    seconds: u64,
    /// Port of the first machine; each takes two
    #[arg(long, value_name = "PORT", default_value_t = 4900, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
}

/// Removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the machines have said.
#[derive(Default)]
struct Heard {
    /// Warehouse, district and number of each order that a client was told of.
    orders: RefCell<BTreeSet<(u32, u8, u32)>>,
    twice: Cell<u64>,
    /// When orders were last told of.
    last: Cell<Option<Instant>>,
    loaded: Cell<bool>,
    stopped: Cell<usize>,
    checked: Cell<bool>,
    broken: RefCell<Vec<String>>,
    /// Count and newest order of each district.
    districts: RefCell<BTreeMap<(u32, u8), (u32, u32)>>,
}

fn numbers<const N: usize>(words: &[&str]) -> Option<[u32; N]> {
    let numbers: Vec<u32> = words.iter().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().ok()
}

impl Heard {
    fn hear(&self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["order", rest @ ..] => {
                if let Some([warehouse, district, id]) = numbers(rest) {
                    let is_new = self
                        .orders
                        .borrow_mut()
                        .insert((warehouse, district as u8, id));
                    self.twice.set(self.twice.get() + u64::from(!is_new));
                    self.last.set(Some(now()));
                }
            }
            ["loaded"] => self.loaded.set(true),
            ["stopped", ..] => self.stopped.set(self.stopped.get() + 1),
            ["checked"] => self.checked.set(true),
            ["district", rest @ ..] => {
                if let Some([warehouse, district, count, newest]) = numbers(rest) {
                    let of = (warehouse, district as u8);
                    self.districts.borrow_mut().insert(of, (count, newest));
                }
            }
            ["broken", rest @ ..] => self.broken.borrow_mut().push(rest.join(" ")),
            _ => (),
        }
    }

    fn told(&self) -> usize {
        self.orders.borrow().len()
    }

    /// What is wrong with the orders that clients were told of. Numbers of a district begin at 1, so as many as its
    /// newest one are all of them.
    fn judge(&self) -> Vec<String> {
        let mut wrong = self.broken.borrow().clone();
        if self.twice.get() > 0 {
            wrong.push(format!("{} orders were told of twice", self.twice.get()));
        }
        let districts = self.districts.borrow();
        for ((warehouse, district), (count, newest)) in &*districts {
            if count != newest {
                wrong.push(format!(
                    "district {district} of {warehouse} has {count} orders, and the newest is {newest}"
                ));
            }
        }
        let orders = self.orders.borrow();
        let is_lost = |(warehouse, district, id): &&(u32, u8, u32)| {
            let of = districts.get(&(*warehouse, *district));
            of.is_none_or(|(_, newest)| id > newest)
        };
        let lost = orders.iter().filter(is_lost).count();
        if lost > 0 {
            wrong.push(format!("{lost} orders are lost of which a client was told"));
        }
        wrong
    }
}

async fn listen(out: ChildStdout, heard: Rc<Heard>) {
    let mut reader = BufReader::new(out);
    loop {
        let (lines, returned) = offload(move || {
            let mut lines = Vec::new();
            // What is there already comes along.
            loop {
                let mut line = String::new();
                if !matches!(reader.read_line(&mut line), Ok(1..)) {
                    break;
                }
                lines.push(line);
                if !reader.buffer().contains(&b'\n') {
                    break;
                }
            }
            (lines, reader)
        })
        .await;
        reader = returned;
        if lines.is_empty() {
            return; // it has ended
        }
        lines.iter().for_each(|line| heard.hear(line));
    }
}

struct Demo {
    fleet: Fleet,
    children: Vec<Option<Child>>,
    heard: Rc<Heard>,
    tasks: TaskGroup,
    begun: Instant,
    seconds: u64,
}

fn order(child: &mut Option<Child>, what: &str) -> Outcome {
    let input = child.as_mut().and_then(|child| child.stdin.as_mut());
    let input = input.ok_or("a machine has ended")?;
    let said = writeln!(input, "{what}").and_then(|()| input.flush());
    said.map_err(|error| format!("a machine does not listen: {error}"))
}

impl Demo {
    fn say(&self, line: &str) {
        println!("{:8.3} s  {line}", self.begun.elapsed().as_secs_f64());
    }

    fn start(&mut self, i: u16) -> Outcome {
        let mut child = self.fleet.start(i)?;
        let out = child.stdout.take().ok_or("a machine says nothing")?;
        self.tasks
            .spawn("farm listen", listen(out, self.heard.clone()));
        let at = usize::from(i);
        if self.children.len() <= at {
            self.children.resize_with(at + 1, || None);
        }
        self.children[at] = Some(child);
        Ok(())
    }

    async fn wait(
        &mut self,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&Heard) -> bool,
    ) -> Outcome {
        let begun = now();
        while !is_so(&self.heard) {
            for (i, child) in self.children.iter_mut().enumerate() {
                if let Some(Ok(Some(_))) = child.as_mut().map(Child::try_wait) {
                    return Err(format!("machine {i} has ended; it said why above"));
                }
            }
            if begun.elapsed() > limit {
                return Err(format!("{what} takes longer than {} s", limit.as_secs()));
            }
            sleep(CHECK_INTERVAL).await;
        }
        Ok(())
    }

    /// Orders a second in the time from `since`, when there were so many.
    fn rate(&self, since: Instant, told: usize) -> f64 {
        let more = self.heard.told() - told;
        more as f64 / since.elapsed().as_secs_f64().max(1e-9)
    }

    async fn begin(&mut self) -> Outcome {
        for i in 0..MACHINES {
            self.start(i)?;
        }
        match race(self.fleet.ready(), first_end(&mut self.children)).await {
            Either::Left(outcome) => outcome?,
            Either::Right(line) => return Err(line),
        }
        self.say("three processes are a cluster; each region has three replicas");
        order(&mut self.children[0], "load")?;
        self.wait(LOAD_LIMIT, "loading", |heard| heard.loaded.get())
            .await?;
        self.say("TPC-C is loaded");
        for child in &mut self.children {
            order(child, "run")?;
        }
        Ok(())
    }

    /// Kills the master's process. Returns which it was.
    async fn kill(&mut self) -> Outcome<u16> {
        let seen = self.fleet.look().await;
        let record = seen.record.as_ref();
        let master = record
            .and_then(|record| record.master())
            .ok_or("there is no master")?;
        let of = seen.machines.iter().find(|seen| seen.seat.id == master.id);
        let at = of
            .and_then(|seen| seen.address)
            .ok_or("the master has no address")?;
        let i = self.fleet.index(at);
        let leads = of
            .and_then(|seen| seen.status.as_ref())
            .map_or(0, |said| said.primaries);
        let child = self.children.get_mut(usize::from(i)).and_then(Option::take);
        let mut child = child.ok_or("the master is no process of this program")?;
        child
            .kill()
            .map_err(|error| format!("the master is not killed: {error}"))?;
        let _ = child.wait();
        self.say(&format!(
            "machine {}, the master and the primary of {leads} regions, was killed with signal 9",
            master.machine
        ));
        Ok(i)
    }

    async fn go_on(&mut self, victim: u16) -> Outcome {
        let (killed, told) = (now(), self.heard.told());
        self.wait(WHOLE_LIMIT, "the next order", |heard| {
            // Some that were told before are still on the way.
            heard
                .last
                .get()
                .is_some_and(|at| at.saturating_since(killed) > Duration::from_millis(50))
        })
        .await?;
        self.say("the others go on: there are new orders");
        sleep(ALONE).await;
        self.start(victim)?;
        self.say("a new process was started in its place");
        self.fleet.whole(usize::from(MACHINES), WHOLE_LIMIT).await?;
        let rate = self.rate(killed, told);
        let seconds = killed.elapsed().as_secs_f64();
        self.say(&format!(
            "all replicas are whole again, {seconds:.1} s after the kill"
        ));
        self.say(&format!("during: {rate:.0} new orders a second"));
        order(&mut self.children[usize::from(victim)], "run")
    }

    async fn measure(&self, when: &str) {
        let (since, told) = (now(), self.heard.told());
        sleep(Duration::from_secs(self.seconds)).await;
        self.say(&format!(
            "{when}: {:.0} new orders a second",
            self.rate(since, told)
        ));
    }

    async fn judge(&mut self) -> Outcome {
        for child in &mut self.children {
            order(child, "stop")?;
        }
        self.wait(STOP_LIMIT, "stopping", |heard| {
            heard.stopped.get() == usize::from(MACHINES)
        })
        .await?;
        order(&mut self.children[0], "check")?;
        self.wait(LOAD_LIMIT, "checking", |heard| heard.checked.get())
            .await?;
        let wrong = self.heard.judge();
        for line in &wrong {
            self.say(&format!("WRONG: {line}"));
        }
        match wrong.first() {
            Some(first) => Err(format!("{} checks failed; the first: {first}", wrong.len())),
            None => {
                self.say(&format!(
                    "the consistency conditions hold, and all {} orders are there that clients were told of",
                    self.heard.told()
                ));
                Ok(())
            }
        }
    }

    async fn run(&mut self) -> Outcome {
        self.begin().await?;
        self.measure("before").await;
        let victim = self.kill().await?;
        self.go_on(victim).await?;
        self.measure("after").await;
        self.judge().await
    }
}

pub fn run(arguments: &Arguments) -> Outcome {
    let name = format!("plinth-farm-demo-{}", std::process::id());
    let scratch = Scratch(std::env::temp_dir().join(name));
    crate::connect::block_on(async {
        let fleet = Fleet::prepare(&scratch.0, SHAPE, arguments.port, None, true).await?;
        let mut demo = Demo {
            fleet,
            children: Vec::new(),
            heard: Rc::default(),
            tasks: TaskGroup::new(),
            begun: now(),
            seconds: arguments.seconds,
        };
        let outcome = match race(interrupted(), demo.run()).await {
            Either::Left(Ok(())) => Err("it was interrupted".into()),
            Either::Left(Err(error)) => Err(format!("cannot wait for signals: {error}")),
            Either::Right(outcome) => outcome,
        };
        stop(
            std::mem::take(&mut demo.children)
                .into_iter()
                .flatten()
                .collect(),
        )
        .await;
        demo.fleet.remove();
        outcome.map_err(|line| format!("farm demo: {line}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> Vec<String> {
        let heard = Heard::default();
        lines.iter().for_each(|line| heard.hear(line));
        heard.judge()
    }

    #[test]
    fn an_order_that_was_told_and_is_not_there_is_found() {
        let order = "order 1 2 7";
        assert_eq!(heard(&[order, "district 1 2 7 7"]), Vec::<String>::new());
        for (lines, said) in [
            (vec![order], "are lost"),
            (vec![order, "district 1 2 6 6"], "are lost"),
            (vec![order, "district 1 2 6 7"], "has 6 orders"),
            (vec![order, order, "district 1 2 7 7"], "twice"),
            (vec!["broken condition 3"], "condition 3"),
        ] {
            let wrong = heard(&lines);
            assert!(
                wrong.iter().any(|line| line.contains(said)),
                "{lines:?}: {wrong:?}"
            );
        }
    }
}
