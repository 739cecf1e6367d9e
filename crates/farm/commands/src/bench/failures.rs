//! `plinth farm bench failures` (§5.5, Table 1): processes that run TPC-C are killed, and the throughput of the others
//! is looked at in small intervals.

use super::flags::{PORT, first, parse_interval};
use crate::drive::{Drive, master};
use crate::fleet::Shape;
use crate::keeping::Keeping;
use crate::work::host_us;
use plinth_core::words;
use plinth_farm_bench::Report;
use plinth_farm_member::Replica;
use plinth_farm_server::Survey;
use plinth_runtime::{Duration, now, sleep};
use plinth_terminal::Outcome;
use plinth_terminal::choices::among;
use plinth_terminal::numbers::within;
use serde_json::json;

const REPLICATION: u16 = 3;
const WHOLE_LIMIT: Duration = Duration::from_secs(180);
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Throughput is full again when so long an interval has as many orders as one before the failure.
const WINDOW_US: u64 = 20_000;
/// Of the throughput over time.
const STEP_US: u64 = 10_000;
/// The stop of all orders begins in so long a time after a kill.
const STOP_BEGINS_US: u64 = 1_000_000;

/// What is run.
#[derive(clap::Args, Debug)]
pub struct Plan {
    /// Machines, each a process; each region has three replicas
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = within::<u16>(4..=16))]
    machines: u16,
    /// Who is killed, one after another: other (one that is not the master), master, both (of them, at once)
    #[arg(
        long,
        value_name = "WHO,…",
        value_delimiter = ',',
        default_value = "other,master,both",
        value_parser = among(Case::ALL.map(Case::name), Case::parse),
        hide_possible_values = true
    )]
    kill: Vec<Case>,
    /// How often each of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<u32>(1..=100))]
    rounds: u32,
    /// Seconds before each failure, and at least so many after it
    #[arg(long, alias = "seconds", value_name = "SECONDS", default_value = "4", value_parser = parse_interval)]
    duration: Duration,
    #[command(flatten)]
    keeping: Keeping,
    /// Port of the first machine; each takes two
    #[arg(long, value_name = "PORT", default_value_t = PORT, value_parser = within::<u16>(1..))]
    port: u16,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

words! {
    /// Who is killed.
    pub enum Case {
        Other = "other",
        Master = "master",
        Both = "both",
    }
}

impl Case {
    fn parse(name: &str) -> Result<Case, String> {
        Case::from_name(name).ok_or("there are other, master and both".into())
    }
}

/// What the times of orders say about a failure. All times are in microseconds from the kill.
#[derive(Clone, PartialEq, Debug)]
struct Stop {
    /// Orders a second before it.
    before: f64,
    /// The longest time without an order.
    begin: u64,
    end: u64,
    /// The begin of the first window after it with as many orders as before the failure.
    full: Option<u64>,
}

/// `times` is in order. `None` if there were no orders before.
fn stop_of(times: &[u64], measured_from: u64, kill: u64) -> Option<Stop> {
    let count = |from: u64, until: u64| {
        let first = times.partition_point(|at| *at < from);
        times.partition_point(|at| *at < until) - first
    };
    let before = count(measured_from, kill) as f64 / (kill - measured_from).max(1) as f64;
    let last_before = times[..times.partition_point(|at| *at < kill)].last()?;
    let after = times.iter().filter(|at| **at >= kill);
    let points: Vec<u64> = std::iter::once(*last_before)
        .chain(after.copied())
        .collect();
    let gaps = points.windows(2).map(|two| (two[0].max(kill), two[1]));
    let soon = gaps.filter(|(from, _)| *from < kill + STOP_BEGINS_US);
    let (begin, end) = soon.max_by_key(|(from, until)| until - from)?;
    let enough = before * WINDOW_US as f64;
    let mut windows = points.iter().filter(|at| **at >= end);
    let full = windows.find(|at| count(**at, **at + WINDOW_US) as f64 >= enough);
    Some(Stop {
        before: 1e6 * before,
        begin: begin - kill,
        end: end - kill,
        full: full.map(|at| at - kill),
    })
}

/// Orders of each step from `from` on.
fn timeline(times: &[u64], from: u64, steps: u64) -> Vec<usize> {
    let begin = |step: u64| times.partition_point(|at| *at < from + step * STEP_US);
    (0..steps)
        .map(|step| begin(step + 1) - begin(step))
        .collect()
}

/// A configuration after this one, and all replicas of it are whole.
fn is_whole(seen: &Survey, after: u64) -> bool {
    let Some(record) = &seen.record else {
        return false;
    };
    let replication = usize::from(record.cluster.replication);
    let has_all = |region: &Vec<Replica>| {
        region.len() >= replication && region.iter().all(|replica| replica.is_whole)
    };
    record.number() > after && record.regions.iter().all(has_all)
}

struct Bench<'a> {
    drive: Drive,
    plan: &'a Plan,
    report: Report,
    tell: &'a dyn Fn(&str),
}

impl Bench<'_> {
    /// The places of those who are killed: the master, and the last that is not.
    async fn victims(&self, case: Case) -> Outcome<(Vec<u16>, u64)> {
        let fleet = &self.drive.running.fleet;
        let seen = fleet.look().await;
        let at = master(&seen)?.address.ok_or("the master has no address")?;
        let first = fleet.index(at);
        let last = (0..self.plan.machines).rfind(|i| *i != first);
        let last = last.ok_or("there is only one machine")?;
        let number = seen.record.as_ref().map_or(0, |record| record.number());
        let victims = match case {
            Case::Other => vec![last],
            Case::Master => vec![first],
            Case::Both => vec![first, last],
        };
        Ok((victims, number))
    }

    async fn wait_whole(&self, after: u64) -> Outcome<u64> {
        let begun = now();
        while begun.elapsed() < WHOLE_LIMIT {
            if is_whole(&self.drive.running.fleet.look().await, after) {
                return Ok(host_us());
            }
            sleep(LOOK_PAUSE).await;
        }
        Err(format!(
            "replicas are not whole after {} s",
            WHOLE_LIMIT.as_secs()
        ))
    }

    fn committed(&self) -> Vec<u64> {
        let mut times = self.drive.heard.committed_at.borrow().clone();
        times.sort_unstable();
        times
    }

    async fn fail(&mut self, case: Case) -> Outcome {
        let measured_from = host_us();
        sleep(self.plan.duration).await;
        let (victims, number) = self.victims(case).await?;
        let killed_at = host_us();
        for victim in &victims {
            self.drive.running.kill(*victim)?;
        }
        (self.tell)(&format!("killed: {}", case.name()));
        // Three that are left of five have no room for all replicas.
        let needs_new = self.plan.machines - (victims.len() as u16) < REPLICATION + 1;
        let whole_at = match needs_new {
            false => Some(self.wait_whole(number).await?),
            true => None,
        };
        let so_far = Duration::from_micros(host_us() - killed_at);
        sleep(self.plan.duration.saturating_sub(so_far)).await;
        self.note(case, measured_from, killed_at, whole_at)?;
        for victim in &victims {
            self.drive.start(*victim)?;
        }
        let machines = usize::from(self.plan.machines);
        let fleet = &self.drive.running.fleet;
        fleet.whole(machines, WHOLE_LIMIT).await?;
        victims
            .iter()
            .try_for_each(|victim| self.drive.run(*victim))?;
        sleep(self.plan.duration / 4).await;
        Ok(())
    }

    fn note(
        &mut self,
        case: Case,
        measured_from: u64,
        killed_at: u64,
        whole_at: Option<u64>,
    ) -> Outcome {
        let times = self.committed();
        let stop = stop_of(&times, measured_from, killed_at);
        let stop = stop.ok_or("there were no orders, before the failure or after it")?;
        let pauses = self.drive.heard.without_time.borrow();
        let pauses = pauses.iter().filter(|(from, _)| *from >= killed_at);
        let clock = pauses.map(|(from, until)| until - from).max();
        let ms = |us: u64| us as f64 / 1000.0;
        let (clock, whole) = (clock.map_or(0.0, ms), whole_at.map(|at| ms(at - killed_at)));
        let full = stop.full.map(ms);
        let text =
            |ms: Option<f64>| ms.map_or_else(|| "not seen".into(), |ms| format!("{ms:.0} ms"));
        let line = format!(
            "{:<7} {:>7.0} new orders/s before; none from {:>5.1} to {:>6.1} ms after the kill; full {}; clocks \
             disabled {clock:.1} ms; replicas whole {}",
            case.name(),
            stop.before,
            ms(stop.begin),
            ms(stop.end),
            text(full),
            text(whole),
        );
        (self.tell)(&line);
        let figure = json!({
            "killed": case.name(),
            "new_orders_a_second_before": stop.before,
            "none_from_ms": ms(stop.begin),
            "none_until_ms": ms(stop.end),
            "full_after_ms": full,
            "clocks_disabled_ms": clock,
            "whole_after_ms": whole,
            "step_ms": ms(STEP_US),
            "new_orders_by_step_from_100_ms_before": timeline(&times, killed_at - 100_000, 70),
        });
        self.report.add(figure, line);
        Ok(())
    }

    async fn run(&mut self) -> Outcome {
        (self.tell)("starting the processes, and loading TPC-C");
        self.drive.begin().await?;
        self.drive.load().await?;
        self.drive.run_all()?;
        sleep(self.plan.duration / 2).await;
        for _ in 0..self.plan.rounds {
            for case in &self.plan.kill {
                self.fail(*case).await?;
            }
        }
        let wrong = self.drive.judge().await?;
        self.report.add_broken("failures", wrong);
        Ok(())
    }
}

/// Errors are a line for the user.
pub async fn run(plan: &Plan, tell: &dyn Fn(&str)) -> Outcome<Report> {
    let shape = Shape {
        machines: plan.machines,
        replication: REPLICATION,
        regions: 6,
        region_mib: 96,
        old_mib: 64,
        keeping: plan.keeping,
    };
    let settings = json!({
        "machines": plan.machines,
        "replication": REPLICATION,
        "seconds": plan.duration.as_secs_f64(),
        "rounds": plan.rounds,
        "durable": plan.keeping.durable,
        "backups": plan.keeping.backups.name(),
    });
    let mut bench = Bench {
        drive: Drive::prepare("failures", shape, first(plan.port)).await?,
        plan,
        report: Report::new("failures", settings),
        tell,
    };
    bench.run().await?;
    Ok(bench.report)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An order a millisecond, but for a hole, after which some steps have only every fourth.
    fn times(hole: std::ops::Range<u64>, slow_until: u64) -> Vec<u64> {
        let all = (0..2000).map(|ms| 1000 * ms);
        let is_there = |at: &u64| {
            let ms = at / 1000;
            !hole.contains(&ms) && (ms < hole.end || ms >= slow_until || ms.is_multiple_of(4))
        };
        all.filter(is_there).collect()
    }

    #[test]
    fn a_stop_is_the_longest_gap_and_ends_when_there_are_as_many_orders_as_before() {
        let stop = stop_of(&times(1003..1040, 1100), 0, 1_000_000).expect("there were orders");
        assert_eq!((stop.begin, stop.end), (2000, 40_000));
        assert_eq!(stop.full, Some(100_000));
        assert!((stop.before - 1000.0).abs() < 1.0);
        let never = stop_of(&times(1003..1040, 3000), 0, 1_000_000).expect("there were orders");
        assert_eq!(never.full, None);
        assert_eq!(stop_of(&[], 0, 1_000_000), None);
        assert_eq!(stop_of(&[5, 10], 0, 1_000_000), None, "none came after it");
    }

    #[test]
    fn steps_count_each_order_once() {
        let times = times(1003..1040, 1100);
        let steps = timeline(&times, 990_000, 6);
        // The last has 1040, 1044 and 1048.
        assert_eq!(steps, [10, 3, 0, 0, 0, 3]);
    }

    #[test]
    fn cases_have_names() {
        for case in [Case::Other, Case::Master, Case::Both] {
            assert_eq!(Case::parse(case.name()), Ok(case));
        }
        assert!(Case::parse("all").is_err());
    }
}
