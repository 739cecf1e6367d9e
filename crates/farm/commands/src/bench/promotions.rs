//! `plinth farm bench promotions` (§4.9): the process that leads all objects is killed, again and again, with backups
//! in memory and with backups on disk only.

use super::flags::{PORT, first};
use super::processes::enter;
use crate::fleet::{Running, Shape};
use crate::keeping::{Backups, Keeping};
use plinth_farm_bench::reads::{self, Objects};
use plinth_farm_bench::{Place, Report, values};
use plinth_farm_engine::Options;
use plinth_farm_memory::{Objects as _, Pointer};
use plinth_farm_server::{Guest, Seen};
use plinth_measure::samples::median;
use plinth_measure::server_cpu;
use plinth_runtime::random::Generator;
use plinth_runtime::{Duration, Either, Instant, now, race, sleep, timeout, yield_now};
use plinth_terminal::Outcome;
use plinth_terminal::children::first_end;
use plinth_terminal::numbers::{bytes_within, within};
use serde_json::json;
use std::cell::Cell;
use std::os::unix::fs::MetadataExt;

/// All of them have all objects.
const MACHINES: u16 = 3;
/// Of everything that is waited for after a kill.
const LIMIT: Duration = Duration::from_secs(300);
const LOOK_PAUSE: Duration = Duration::from_millis(10);
const SETTLE: Duration = Duration::from_secs(3);
const READ_PAUSE: Duration = Duration::from_millis(1);
/// Transactions side by side that make objects: most of their time they wait for messages.
const MAKERS: usize = 64;
/// A block of a file's size.
const BLOCK_BYTES: u64 = 512;

/// What is run.
#[derive(clap::Args, Debug)]
pub struct Plan {
    /// Objects, in one region of three machines
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = within::<u32>(1..=100_000_000))]
    objects: u32,
    /// Bytes of an object
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = bytes_within::<u32>(24..=4096))]
    bytes: u32,
    /// Where replicas are that do not lead: memory, disk; each is measured
    #[arg(
        long,
        value_name = "WHERE,…",
        value_delimiter = ',',
        default_values_t = [Backups::Memory, Backups::Disk]
    )]
    #[arg(value_parser = Backups::parser(), hide_possible_values = true)]
    backups: Vec<Backups>,
    /// How often the leader is killed, of each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within::<u32>(1..=100))]
    rounds: u32,
    /// Port of the first machine; each takes two
    #[arg(long, value_name = "PORT", default_value_t = PORT, value_parser = within::<u16>(1..))]
    port: u16,
    /// Decides which objects are read
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<u64>(..))]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Plan {
    /// The objects, for those who make them and look at them.
    fn reads(&self) -> reads::Plan {
        reads::Plan {
            place: Place::new(None),
            objects: self.objects as usize,
            bytes: self.bytes as usize,
            clients: 1,
            reads: 1,
            duration: Duration::ZERO,
            seed: self.seed,
        }
    }

    fn shape(&self, backups: Backups) -> Shape {
        let keeping = Keeping {
            durable: true,
            backups,
        };
        Shape {
            machines: MACHINES,
            replication: MACHINES,
            regions: 1,
            region_mib: self.reads().region_mib(),
            old_mib: 16,
            keeping,
        }
    }
}

/// Bytes that a process takes.
#[derive(Clone, Copy)]
struct Taken {
    /// Of the memory that others read.
    shared: u64,
    /// Of its own: what it knows of its disk is there.
    own: u64,
}

/// Of one failure, in milliseconds after the kill.
struct Failure {
    first_read: f64,
    loaded: f64,
    /// The longest that a read took from the first one on until all was loaded.
    slowest: f64,
    reads: u64,
    whole: f64,
}

/// What was seen after a kill, in milliseconds from it on.
#[derive(Default)]
struct Loading {
    first_read: Cell<Option<f64>>,
    loaded: Cell<Option<f64>>,
}

struct Side<'a> {
    running: Running,
    guest: Guest,
    objects: Objects,
    plan: &'a Plan,
}

fn ms(duration: Duration) -> f64 {
    1000.0 * duration.as_secs_f64()
}

/// Enters a fresh cluster, in which nothing is.
async fn begin(plan: &Plan, backups: Backups) -> Outcome<(Running, Guest)> {
    let shape = plan.shape(backups);
    let mut running = Running::prepare("promotions", shape, first(plan.port), false).await?;
    running.start().await?;
    let guest = enter(&running).await?;
    Ok((running, guest))
}

/// The machines, each with whether it leads the objects.
async fn machines(running: &Running) -> Vec<(Seen, bool)> {
    let seen = running.fleet.look().await.machines.into_iter();
    let leads = |seen: &Seen| {
        let status = seen.status.as_ref();
        status.is_some_and(|status| status.primaries > 0)
    };
    let seen = seen.map(|seen| (leads(&seen), seen));
    seen.map(|(leads, seen)| (seen, leads)).collect()
}

/// What each process takes that does not lead the objects.
async fn taken_by_backups(running: &Running) -> Outcome<Vec<Taken>> {
    let mut taken = Vec::new();
    for (seen, leads) in machines(running).await {
        let Some(at) = seen.address.filter(|_| !leads) else {
            continue;
        };
        let i = usize::from(running.fleet.index(at));
        let child = running.children.get(i).and_then(|one| one.child.as_ref());
        let own = child.and_then(|child| server_cpu::own_memory_bytes(child.id()));
        let own = own.ok_or("a process has ended")?;
        let name = format!("machine-{}.memory", seen.seat.machine);
        let file = running.fleet.memory.join(name);
        let blocks = std::fs::metadata(&file).map(|of| of.blocks());
        let blocks = blocks.map_err(|error| format!("{}: {error}", file.display()))?;
        let shared = BLOCK_BYTES * blocks;
        taken.push(Taken { shared, own });
    }
    match taken.len() == usize::from(MACHINES) - 1 {
        true => Ok(taken),
        false => Err(format!("{} machines do not lead the objects", taken.len())),
    }
}

/// The mean of what the backups take, less what they took before.
fn growth(before: &[Taken], after: &[Taken], of: fn(&Taken) -> u64) -> f64 {
    let sum = |taken: &[Taken]| taken.iter().map(of).sum::<u64>() as f64;
    (sum(after) - sum(before)) / after.len().max(1) as f64
}

impl Side<'_> {
    fn bytes(&self) -> usize {
        self.plan.bytes as usize
    }

    /// Of the configuration that the reader is in.
    fn number(&self) -> u64 {
        let view = self.guest.joined.view().get();
        view.map_or(0, |view| view.number())
    }

    /// Reads one object. `None` if the cluster is not ready for it.
    async fn read(&self, row: u64) -> Outcome<Option<()>> {
        let engine = self.guest.joined.access.engine();
        let Ok(reader) = engine.begin(Options::read_only()).await else {
            return Ok(None);
        };
        let Ok(found) = reader.read(self.objects.0[row as usize]).await else {
            return Ok(None);
        };
        let whole = found.get(..self.bytes());
        match whole.and_then(|whole| values::serial_of(whole, row)) {
            Some(0) => Ok(Some(())),
            _ => Err(format!("object {row} is not what was written")),
        }
    }

    /// Reads at random until all is loaded, from a configuration after `former` on: before, it may still read
    /// the memory of the dead process. Returns the longest read after the first one, and how many there were.
    async fn read_until(
        &self,
        since: Instant,
        former: u64,
        seen: &Loading,
        random: &mut Generator,
    ) -> Outcome<(f64, u64)> {
        let (mut slowest, mut count) = (0.0, 0);
        while seen.loaded.get().is_none() {
            let begun = now();
            let row = random.below(self.objects.0.len() as u64);
            if self.number() == former {
                sleep(READ_PAUSE).await;
                continue;
            }
            while self.read(row).await?.is_none() {
                if since.elapsed() > LIMIT {
                    return Err("an object cannot be read".into());
                }
                sleep(READ_PAUSE).await;
            }
            count += 1;
            match seen.first_read.get() {
                None => seen.first_read.set(Some(ms(since.elapsed()))),
                Some(_) => slowest = f64::max(slowest, ms(begun.elapsed())),
            }
            yield_now().await;
        }
        Ok((slowest, count))
    }

    /// Waits until another machine than the one at `i` leads the objects, and has them all in memory. Before the first
    /// read it may lead them, and not have begun to load them.
    async fn wait_loaded(&self, i: u16, since: Instant, seen: &Loading) -> Outcome<f64> {
        let fleet = &self.running.fleet;
        let is_loaded = |seen: &Seen| {
            let is_other = seen.address.is_some_and(|at| fleet.index(at) != i);
            let status = seen.status.as_ref();
            is_other && status.is_some_and(|status| !status.is_loading)
        };
        while since.elapsed() < LIMIT {
            let has_begun = seen.first_read.get().is_some();
            let machines = machines(&self.running).await;
            let mut leaders = machines.iter().filter(|(_, leads)| *leads);
            if has_begun && leaders.any(|(leader, _)| is_loaded(leader)) {
                return Ok(ms(since.elapsed()));
            }
            sleep(LOOK_PAUSE).await;
        }
        Err(format!("not loaded after {} s", LIMIT.as_secs()))
    }

    /// Waits until all machines have all objects. On a busy host a process may be silent for so long while it copies
    /// that the others go on without it: then it is started again.
    async fn wait_whole(&mut self, since: Instant) -> Outcome {
        let Running {
            fleet, children, ..
        } = &mut self.running;
        while since.elapsed() < LIMIT {
            let whole = fleet.whole(usize::from(MACHINES), LIMIT);
            if let Either::Left(whole) = race(whole, first_end(children)).await {
                return whole.map(drop);
            }
            for (i, one) in (0..).zip(children.iter_mut()) {
                if one.child.is_none() {
                    *one = fleet.start(i)?;
                }
            }
        }
        Err(format!(
            "replicas are not whole after {} s",
            LIMIT.as_secs()
        ))
    }

    /// Kills the process that leads the objects, and starts it again at the end.
    async fn fail(&mut self, random: &mut Generator) -> Outcome<Failure> {
        let seen = machines(&self.running).await;
        let leader = seen.iter().find(|(_, leads)| *leads);
        let at = leader.and_then(|(seen, _)| seen.address);
        let victim = self
            .running
            .fleet
            .index(at.ok_or("nobody leads the objects")?);
        let (killed, former) = (now(), self.number());
        self.running.kill(victim)?;
        let loading = Loading::default();
        let watching = async {
            match self.wait_loaded(victim, killed, &loading).await {
                Ok(at) => loading.loaded.set(Some(at)),
                Err(line) => return line,
            }
            std::future::pending().await
        };
        let reading = self.read_until(killed, former, &loading, random);
        let (slowest, reads) = match race(reading, watching).await {
            Either::Left(read) => read?,
            Either::Right(line) => return Err(line),
        };
        let started = now();
        self.running.children[usize::from(victim)] = self.running.fleet.start(victim)?;
        self.wait_whole(started).await?;
        Ok(Failure {
            first_read: loading.first_read.get().unwrap_or_default(),
            loaded: loading.loaded.get().unwrap_or_default(),
            slowest,
            reads,
            whole: ms(started.elapsed()),
        })
    }
}

fn note_memory(
    backups: Backups,
    objects: usize,
    before: &[Taken],
    after: &[Taken],
    report: &mut Report,
) {
    let an_object = |of: fn(&Taken) -> u64| growth(before, after, of) / objects as f64;
    let most = |of: fn(&Taken) -> u64| after.iter().map(of).max().unwrap_or_default();
    let (shared, own) = (|of: &Taken| of.shared, |of: &Taken| of.own);
    let (all_shared, all_own) = (most(shared), most(own));
    let own_an_object = an_object(own);
    let line = format!(
        "backups {:<6} {own_an_object:>6.1} bytes of own memory an object at a backup; {:.0} MiB of shared memory and \
         {:.0} MiB of its own in all",
        backups.name(),
        all_shared as f64 / f64::from(1 << 20),
        all_own as f64 / f64::from(1 << 20),
    );
    let figure = json!({
        "backups": backups.name(),
        "backup_own_bytes_an_object": own_an_object,
        "backup_shared_bytes": all_shared,
        "backup_own_bytes": all_own,
    });
    report.add(figure, line);
}

fn note_failures(backups: Backups, failures: &[Failure], report: &mut Report) {
    let of = |what: fn(&Failure) -> f64| -> Vec<f64> { failures.iter().map(what).collect() };
    let text = |values: &[f64]| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        format!(
            "{:.0} ms ({least:.0} to {most:.0})",
            median(values.to_vec()).unwrap_or(0.0)
        )
    };
    let (first, loaded) = (of(|f| f.first_read), of(|f| f.loaded));
    let (slowest, whole) = (of(|f| f.slowest), of(|f| f.whole));
    let line = format!(
        "backups {:<6} first read {} after the kill; all in memory {}; slowest read in between {}; whole {} after a \
         new process",
        backups.name(),
        text(&first),
        text(&loaded),
        text(&slowest),
        text(&whole),
    );
    let figure = json!({
        "backups": backups.name(),
        "first_read_ms": first,
        "loaded_ms": loaded,
        "slowest_read_ms": slowest,
        "reads": failures.iter().map(|f| f.reads).collect::<Vec<_>>(),
        "whole_after_start_ms": whole,
    });
    report.add(figure, line);
}

async fn run_side(
    plan: &Plan,
    backups: Backups,
    report: &mut Report,
    tell: &dyn Fn(&str),
) -> Outcome {
    let (name, reads) = (backups.name(), plan.reads());
    tell(&format!("backups {name}: making {} objects", plan.objects));
    let (running, guest) = begin(plan, backups).await?;
    let before = taken_by_backups(&running).await?;
    let made = Objects::make(&guest.joined.access, Pointer::NULL, &reads, MAKERS).await?;
    // What was written comes to the backup's log a little later.
    sleep(SETTLE).await;
    let after = taken_by_backups(&running).await?;
    note_memory(backups, reads.objects, &before, &after, report);
    let mut side = Side {
        running,
        guest,
        objects: made,
        plan,
    };
    let mut random = Generator::new(plan.seed);
    let mut failures = Vec::new();
    for round in 0..plan.rounds {
        tell(&format!(
            "backups {name}: killing the leader, {} of {}",
            round + 1,
            plan.rounds
        ));
        failures.push(side.fail(&mut random).await?);
    }
    note_failures(backups, &failures, report);
    let engine = side.guest.joined.access.engine();
    let checked = timeout(LIMIT, side.objects.verify(engine, &reads)).await;
    let broken = checked.unwrap_or_else(|| vec!["the check does not end".into()]);
    report.add_broken(name, broken);
    side.guest.leave().await;
    Ok(())
}

/// Errors are a line for the user.
pub async fn run(plan: &Plan, tell: &dyn Fn(&str)) -> Outcome<Report> {
    let settings = json!({
        "objects": plan.objects,
        "bytes": plan.bytes,
        "machines": MACHINES,
        "rounds": plan.rounds,
        "seed": plan.seed,
    });
    let mut report = Report::new("promotions", settings);
    for backups in &plan.backups {
        run_side(plan, *backups, &mut report, tell).await?;
    }
    Ok(report)
}
