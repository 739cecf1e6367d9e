//! Figure 7: where the time of applying the log goes, and how much of it the engines take.
//!
//! A stack with all engines on records a log of writes. Then replicas play it from the beginning, by turns: the same
//! stack, which times its parts, and the application on Base alone.

use crate::figure::{Figure, Goal, Table, short};
use crate::plan::Plan;
use crate::replicas::no_backups;
use crate::rows::{self, propose, switch};
use bytes::Bytes;
use plinth_delos::base::Base;
use plinth_delos::entry::Entry;
use plinth_delos::log::{LogError, LogPos, SharedLog, Tail};
use plinth_delos::stack::{Engine, Top};
use plinth_delos::stacks::{Applying, ENGINES, Standard};
use plinth_runtime::{Duration, Either, join_all, now, race, sleep};
use plinth_table::application::Tables;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

const WRITES: u64 = 60_000;
/// Writes under way at a time, when they are to share entries.
const TOGETHER: usize = 100;
const SHARE: f64 = 0.10;
const LEASE_LIMIT: Duration = Duration::from_secs(30);
const CLOCK_READS: u32 = 100_000;

/// A log in memory: what an append costs is not the question.
#[derive(Default)]
struct Recorded(RefCell<Vec<Bytes>>);

impl SharedLog for Recorded {
    async fn append(&self, entry: Bytes) -> Result<LogPos, LogError> {
        let mut entries = self.0.borrow_mut();
        entries.push(entry);
        Ok(entries.len() as LogPos)
    }

    async fn check_tail(&self) -> Result<Tail, LogError> {
        Ok(Tail::open(self.0.borrow().len() as LogPos + 1))
    }

    async fn read_next(
        &self,
        from: LogPos,
        bytes_max: usize,
    ) -> Result<Vec<(LogPos, Bytes)>, LogError> {
        let entries = self.0.borrow();
        let (mut read, mut bytes) = (Vec::new(), 0);
        for (pos, entry) in (from..).zip(entries.iter().skip(from as usize - 1)) {
            if bytes >= bytes_max {
                break;
            }
            bytes += entry.len();
            read.push((pos, entry.clone()));
        }
        Ok(read)
    }

    async fn prefix_trim(&self, _: LogPos) -> Result<(), LogError> {
        Ok(())
    }

    async fn seal(&self) -> Result<Tail, LogError> {
        Err(LogError::Failed(
            plinth_core::Error::client_invalid_operation,
        ))
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What one look at the clock costs.
fn clock_cost() -> Duration {
    let since = now();
    for _ in 0..CLOCK_READS {
        std::hint::black_box(now());
    }
    since.elapsed() / CLOCK_READS
}

/// The log of a stack with all engines on, whose clients have so many writes under way.
async fn record(at: &Path, clients: usize) -> Result<Rc<Recorded>, String> {
    let log = Rc::new(Recorded::default());
    let store = rows::store(at, &format!("recorded-{clients}")).await?;
    let stack = Standard::new(log.clone(), store, 1, Tables, no_backups());
    let work = async {
        for engine in ENGINES {
            switch(&stack, engine, true).await?;
        }
        stack.lease.want(true);
        let since = now();
        while !stack.lease.is_valid() {
            if since.elapsed() > LEASE_LIMIT {
                return Err("the replica does not get the lease".into());
            }
            sleep(Duration::from_millis(10)).await;
        }
        propose(&stack, rows::creation()).await?;
        let next = Cell::new(0);
        let write = async || {
            while next.get() < WRITES {
                let number = next.replace(next.get() + 1);
                propose(&stack, rows::write(number)).await?;
            }
            Ok::<_, String>(())
        };
        let written = join_all((0..clients).map(|_| write())).await;
        written.into_iter().collect::<Result<(), String>>()
    };
    match race(stack.run(), work).await {
        Either::Left(stopped) => Err(format!("the replica stops: {stopped}")),
        Either::Right(Ok(())) => Ok(log),
        Either::Right(Err(line)) => Err(line),
    }
}

/// The same writes, as the application alone proposes them.
fn bare_log() -> Rc<Recorded> {
    let payloads = [rows::creation()]
        .into_iter()
        .chain((0..WRITES).map(rows::write));
    let entries = payloads.map(|payload| Entry::new(payload).encode());
    Rc::new(Recorded(RefCell::new(entries.collect())))
}

/// Plays a log to its end; the processor time of it.
async fn play<L, A>(base: &Base<L, A>) -> Result<Duration, String>
where
    L: SharedLog + 'static,
    A: plinth_delos::stack::Applicator,
{
    let since = cpu();
    match race(base.run(), base.sync()).await {
        Either::Left(stopped) => Err(format!("the replica stops: {stopped}")),
        Either::Right(Ok(_)) => Ok(cpu() - since),
        Either::Right(Err(lost)) => Err(format!("the log is lost: {lost}")),
    }
}

/// What the replays of a log have taken.
#[derive(Default)]
struct Played {
    /// Of each round, in the whole: with all engines, and without any.
    with: Vec<Duration>,
    without: Vec<Duration>,
    parts: Vec<Applying>,
    /// Entries in the log.
    entries: u64,
}

fn add(all: &mut Vec<Applying>, more: Vec<Applying>) {
    if all.is_empty() {
        *all = more;
        return;
    }
    for (sum, more) in all.iter_mut().zip(more) {
        sum.sum += more.sum;
        sum.clocks += more.clocks;
    }
}

async fn replay(at: &Path, log: &Rc<Recorded>, rounds: usize) -> Result<Played, String> {
    let (bare, entries) = (bare_log(), log.0.borrow().len() as u64);
    let mut played = Played {
        entries,
        ..Played::default()
    };
    for round in 0..rounds {
        let name = format!("{round}-of-{entries}");
        let fresh = rows::store(at, &format!("with-{name}")).await?;
        let stack = Standard::new(log.clone(), fresh, 2, Tables, no_backups());
        let fresh = rows::store(at, &format!("without-{name}")).await?;
        let base = Base::new(bare.clone(), fresh, Top(Tables));
        played.with.push(play(&stack.base).await?);
        played.without.push(play(&base).await?);
        add(&mut played.parts, stack.applying());
    }
    Ok(played)
}

/// The part of each in the whole, without what reading the clock has cost.
fn shares(parts: &[Applying], clock: Duration) -> Vec<(&'static str, f64)> {
    let own = |part: &Applying| part.sum.saturating_sub(clock * part.clocks as u32);
    let all: f64 = parts.iter().map(|part| own(part).as_secs_f64()).sum();
    let share = |part: &Applying| own(part).as_secs_f64() / all.max(1e-9);
    parts.iter().map(|part| (part.part, share(part))).collect()
}

fn is_engine(part: &str) -> bool {
    part == "roster" || ENGINES.iter().any(|engine| engine.name == part)
}

fn of_engines(shares: &[(&'static str, f64)]) -> f64 {
    let engines = shares.iter().filter(|(part, _)| is_engine(part));
    engines.map(|(_, share)| share).sum()
}

fn least_us(times: &[Duration], count: u64) -> f64 {
    let least = times.iter().min().copied().unwrap_or_default();
    least.as_secs_f64() * 1e6 / count as f64
}

pub async fn measure(plan: &Plan, at: &Path, tell: &dyn Fn(&str)) -> Result<Figure, String> {
    let clock = clock_cost();
    let (mut tables, mut remarks, mut data) = (Vec::new(), Vec::new(), Vec::new());
    let mut goals = Vec::new();
    for (clients, name) in [(1, "one at a time"), (TOGETHER, "100 at a time")] {
        tell(&format!("figure-7, writes {name}"));
        let log = record(at, clients).await?;
        let played = replay(at, &log, plan.rounds).await?;
        let (whole, raw) = (
            shares(&played.parts, clock),
            shares(&played.parts, Duration::ZERO),
        );
        let [with, without] = [&played.with, &played.without].map(|all| least_us(all, WRITES));
        tables.push(Table {
            title: format!("writes {name}: {} entries of the log", played.entries),
            columns: vec!["", "% of applying", "% with the clock's own cost"],
            rows: whole
                .iter()
                .zip(&raw)
                .map(|((part, share), (_, raw))| {
                    vec![(*part).to_owned(), short(share * 100.0), short(raw * 100.0)]
                })
                .collect(),
        });
        remarks.push(format!(
            "Writes {name}, whole replays by turns: {} µs of processor time a write with all engines, {} with none: \
             {} % more.",
            short(with),
            short(without),
            short((with / without - 1.0) * 100.0)
        ));
        goals.push(Goal::new(
            format!(
                "writes {name}: engines take less than {:.0} % of applying: {} %",
                SHARE * 100.0,
                short(of_engines(&whole) * 100.0)
            ),
            of_engines(&whole) < SHARE,
        ));
        data.push(part_data(name, &played, &whole, &raw, [with, without]));
    }
    remarks.push(format!(
        "One entry in 16 is timed. A look at the clock costs {} ns, and is subtracted. base: begin reads the entry \
         and makes its transaction.",
        clock.as_nanos()
    ));
    Ok(Figure {
        name: "figure-7",
        title: "where a replica's time goes when it applies writes of 100 bytes to a table".into(),
        tables,
        goals,
        remarks,
        data: json!(data),
    })
}

fn part_data(
    name: &str,
    played: &Played,
    whole: &[(&'static str, f64)],
    raw: &[(&'static str, f64)],
    [with, without]: [f64; 2],
) -> Value {
    let object = |shares: &[(&'static str, f64)]| -> serde_json::Map<String, Value> {
        let shares = shares.iter();
        shares
            .map(|(part, share)| ((*part).to_owned(), json!(share)))
            .collect()
    };
    json!({
        "writes": name,
        "entries": played.entries,
        "shares": object(whole),
        "shares_with_the_clock": object(raw),
        "engines": of_engines(whole),
        "us_a_write": { "all_engines": with, "no_engines": without },
    })
}
