//! `plinth farm bench`: workloads on machines of the in-memory engine in this process.

mod apart;
mod compare;
mod failures;
mod flags;
mod processes;
mod promotions;

use clap::Subcommand;
use flags::{Common, PORT, first, parse_theta, parse_warmup};
use plinth_farm_bench::ycsb::Mix;
use plinth_farm_bench::{
    Machines, Mode, Policy, Report, Scale, lengths, parse_policy, policy_names, reads, scans, tpcc,
    ycsb,
};
use plinth_runtime::Duration;
use plinth_terminal::choices::among;
use plinth_terminal::numbers::{bytes_within, within};
use plinth_terminal::process::{follow_parent, unless_interrupted};
use plinth_terminal::{Outcome, connect};
use std::path::PathBuf;

/// New orders a second that the memory of a machine has room for by default.
const ORDERS_A_SECOND: u64 = 30_000;

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand, Debug)]
enum Workload {
    /// TPC-C: the full mix from clients that never think, with conditions 1 to 12 checked before and after
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth farm bench tpcc --warehouses 4 --clients 16", "In one machine"),
        (
            "plinth farm bench tpcc --machines 3 --replicas 3 --policy block,single",
            "With replicas; old versions and none are compared",
        ),
    ]))]
    Tpcc(Tpcc),
    /// Point reads, one and many a transaction, of the own memory and of another machine's
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth farm bench reads --bytes 512 --clients 64",
            "Objects of another size, more side by side",
        ),
    ]))]
    Reads(Reads),
    /// Point reads of the memory of another process, and how far two processes of a host know the time
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth farm bench processes --clients 64", "The other process takes ports 4950 and 4951"),
    ]))]
    Processes(Processes),
    /// YCSB's mixes A, B, C and E on keys and values, with rows by Zipf's distribution
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth farm bench ycsb", "All mixes, at four skews"),
        ("plinth farm bench ycsb --mix e --theta 0 --rows 1000000", "Scans of many rows"),
    ]))]
    Ycsb(Ycsb),
    /// Processes with TPC-C of which some are killed: how long the others stand still, and when all replicas are back
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth farm bench failures --rounds 3", "Each kind of failure three times"),
        (
            "plinth farm bench failures --kill master --durable",
            "The clock master, with data on disk",
        ),
    ]))]
    Failures(failures::Plan),
    /// The process that leads all objects is killed: how long until another one serves them, and has them in memory
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth farm bench promotions --backups disk --objects 100000",
            "Replicas on disk, which are read into memory",
        ),
    ]))]
    Promotions(promotions::Plan),
    /// Point reads and updates by the engine, the store, Redis and etcd, by turns; see scripts/farm-bench
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth farm bench compare", "The engine alone"),
        (
            "plinth farm bench compare --store data/plinth.cluster --redis 127.0.0.1:6379",
            "Beside servers that run already",
        ),
    ]))]
    Compare(compare::Plan),
    /// Scans of several lengths beside updates, as many keys scanned as updated
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth farm bench lengths --lengths 10,1000", "Two lengths of scans"),
    ]))]
    Lengths(Lengths),
    /// Scans of all rows beside updates, and the updates with and without them by turns
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth farm bench scans --policy block,truncate",
            "Two policies for old versions, by turns",
        ),
        ("plinth farm bench scans --apart", "Scans in a process of their own"),
    ]))]
    Scans(Scans),
    /// The process that scans for `scans --apart`
    #[command(hide = true)]
    Scanner(Scanner),
}

#[derive(clap::Args, Debug)]
struct Scanner {
    #[command(flatten)]
    scans: Scans,
    /// Where the memory of the other machine lies
    #[arg(long, value_name = "DIR")]
    beside: PathBuf,
    /// End when this process does
    #[arg(long, value_name = "PID")]
    parent: u32,
}

#[derive(clap::Args, Debug)]
struct Tpcc {
    /// Warehouses, spread over the machines; each needs about 200 MiB for each mode that is compared
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = within::<u32>(1..=10_000))]
    warehouses: u32,
    /// Transactions side by side; they spread over the warehouses
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = within::<u32>(1..=100_000))]
    clients: u32,
    /// Seconds to run before measuring
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_warmup)]
    warmup: Duration,
    /// Intervals of each mode, in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    /// What happens without memory for old versions: block, abort, truncate, or single for none; several are compared
    #[arg(
        long,
        value_name = "POLICY,…",
        value_delimiter = ',',
        default_value = "single"
    )]
    #[arg(value_parser = among(policy_names(), parse_policy), hide_possible_values = true)]
    policy: Vec<Policy>,
    /// `on`, `off`, or both, which are compared. Off: not strict, in single versions; the wait for a transaction's
    /// write timestamp stays
    #[arg(
        long,
        value_name = "on,off",
        value_delimiter = ',',
        default_value = "on"
    )]
    #[arg(value_parser = among(["on", "off"], parse_opacity), hide_possible_values = true)]
    opacity: Vec<String>,
    /// Machines
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<u16>(1..=64))]
    machines: u16,
    /// Replicas of each region, at most as many as machines
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<u16>(1..=64))]
    replicas: u16,
    /// Memory of a region; default: what the warehouses and the run need
    #[arg(long, value_name = "MIB", value_parser = within::<u64>(4..=1 << 20))]
    region_mib: Option<u64>,
    /// Memory of a machine for old versions
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = within::<u64>(1..=1 << 20))]
    old_mib: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Debug)]
struct Reads {
    /// Objects
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = within::<u32>(1..=100_000_000))]
    objects: u32,
    /// Bytes of an object
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = bytes_within::<u32>(24..=16_384))]
    bytes: u32,
    /// Transactions of one read side by side
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = within::<u32>(1..=100_000))]
    clients: u32,
    /// Reads of a transaction that has many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = within::<u32>(1..=100_000))]
    reads: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Debug)]
struct Processes {
    #[command(flatten)]
    reads: Reads,
    /// Port of the other process, which takes two
    #[arg(long, value_name = "PORT", default_value_t = PORT, value_parser = within::<u16>(1..))]
    port: u16,
}

#[derive(clap::Args, Debug)]
struct Lengths {
    #[command(flatten)]
    scans: Scans,
    /// Keys of a scan: 1, or even numbers
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,10,100,1000,10000,100000",
        value_parser = within::<u64>(1..)
    )]
    lengths: Vec<u64>,
}

#[derive(clap::Args, Debug)]
struct Ycsb {
    /// Rows
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = within::<u32>(1..=100_000_000))]
    rows: u32,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 1000, value_parser = bytes_within::<u32>(24..=3000))]
    value_bytes: u32,
    /// Transactions side by side
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = within::<u32>(1..=100_000))]
    clients: u32,
    /// a: half updates, b: 5 in 100, c: reads only, e: scans of up to 100 rows with 5 inserts in 100
    #[arg(
        long,
        value_name = "MIX,…",
        value_delimiter = ',',
        default_value = "a,b,c,e"
    )]
    #[arg(value_parser = among(Mix::ALL.map(Mix::name), Mix::parse), hide_possible_values = true)]
    mix: Vec<Mix>,
    /// Skew of the rows, from 0, which is uniform, to below 1; each is measured
    #[arg(
        long,
        value_name = "THETA,…",
        value_delimiter = ',',
        default_value = "0,0.5,0.9,0.99",
        value_parser = parse_theta
    )]
    theta: Vec<f64>,
    /// What happens without memory for old versions: block, abort, truncate, or single for none
    #[arg(long, value_name = "POLICY", default_value = "block")]
    #[arg(value_parser = among(policy_names(), parse_policy), hide_possible_values = true)]
    policy: Policy,
    /// Memory for objects; default: what the rows need
    #[arg(long, value_name = "MIB", value_parser = within::<u64>(4..=1 << 20))]
    region_mib: Option<u64>,
    /// Memory for old versions
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = within::<u64>(1..=1 << 20))]
    old_mib: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Debug)]
struct Scans {
    /// Rows, all of which a scan reads
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = within::<u32>(2..=100_000_000))]
    rows: u32,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = bytes_within::<u32>(24..=3000))]
    value_bytes: u32,
    /// Updates side by side
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = within::<u32>(1..=100_000))]
    updaters: u32,
    /// Scans side by side
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<u32>(1..=1000))]
    scanners: u32,
    /// Scans run in a process of their own, which reads this one's memory: that needs another core
    #[arg(long)]
    apart: bool,
    /// Intervals with and without scans, in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    /// What happens without memory for old versions: block, abort, truncate, or single for none; several are compared.
    /// With block and abort, a scan that aborts is an error
    #[arg(
        long,
        value_name = "POLICY,…",
        value_delimiter = ',',
        default_value = "block"
    )]
    #[arg(value_parser = among(policy_names(), parse_policy), hide_possible_values = true)]
    policy: Vec<Policy>,
    /// Memory for objects; default: what the rows need
    #[arg(long, value_name = "MIB", value_parser = within::<u64>(4..=1 << 20))]
    region_mib: Option<u64>,
    /// Memory for old versions
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = within::<u64>(1..=1 << 20))]
    old_mib: u64,
    #[command(flatten)]
    common: Common,
}

impl Tpcc {
    fn plan(&self) -> tpcc::Plan {
        let is_asked = |which: &str| self.opacity.iter().any(|asked| asked == which);
        let machines = Machines {
            machines: self.machines,
            replicas: self.replicas,
            region_mib: 0,
            old_mib: self.old_mib,
        };
        let mut plan = tpcc::Plan {
            machines,
            place: self.common.place(),
            scale: Scale::full(self.warehouses),
            clients: self.clients,
            duration: self.common.duration,
            warmup: self.warmup,
            rounds: self.rounds,
            modes: Mode::all(&self.policy, is_asked("on"), is_asked("off")),
            seed: self.common.seed,
        };
        let needed = plan.region_mib(ORDERS_A_SECOND);
        plan.machines.region_mib = self.region_mib.unwrap_or(needed);
        plan
    }
}

impl Reads {
    fn plan(&self) -> reads::Plan {
        reads::Plan {
            place: self.common.place(),
            objects: self.objects as usize,
            bytes: self.bytes as usize,
            clients: self.clients,
            reads: self.reads as usize,
            duration: self.common.duration,
            seed: self.common.seed,
        }
    }
}

impl Lengths {
    fn plan(&self) -> lengths::Plan {
        lengths::Plan {
            scans: self.scans.plan(),
            lengths: self.lengths.clone(),
        }
    }
}

impl Ycsb {
    fn plan(&self) -> ycsb::Plan {
        let (rows, value_bytes) = (u64::from(self.rows), self.value_bytes as usize);
        let needed = ycsb::Plan::region_mib(rows, value_bytes);
        ycsb::Plan {
            place: self.common.place(),
            rows,
            value_bytes,
            clients: self.clients,
            mixes: self.mix.clone(),
            thetas: self.theta.clone(),
            duration: self.common.duration,
            mode: Mode::opaque(self.policy),
            region_mib: self.region_mib.unwrap_or(needed),
            old_mib: self.old_mib,
            seed: self.common.seed,
        }
    }
}

impl Scans {
    fn plan(&self) -> scans::Plan {
        let (rows, value_bytes) = (u64::from(self.rows), self.value_bytes as usize);
        let needed = ycsb::Plan::region_mib(rows, value_bytes);
        scans::Plan {
            place: self.common.place(),
            rows,
            value_bytes,
            updaters: self.updaters,
            scanners: self.scanners,
            duration: self.common.duration,
            rounds: self.rounds,
            modes: Mode::all(&self.policy, true, false),
            region_mib: self.region_mib.unwrap_or(needed),
            old_mib: self.old_mib,
            seed: self.common.seed,
        }
    }
}

fn parse_opacity(name: &str) -> Result<String, String> {
    match name {
        "on" | "off" => Ok(name.into()),
        _ => Err("expected on or off".into()),
    }
}

pub fn run(arguments: &Arguments) -> Outcome {
    connect::block_on(async {
        let measured = unless_interrupted(measure(&arguments.workload)).await?;
        measured.unwrap_or(Err("farm bench: it was interrupted".into()))
    })
}

async fn measure(workload: &Workload) -> Outcome {
    let tell = |line: &str| plinth_terminal::say!("plinth: {line}");
    let (name, json, measured) = match workload {
        Workload::Tpcc(asked) => {
            let measured = tpcc::run(&asked.plan(), &tell).await;
            ("tpcc", asked.common.json, measured)
        }
        Workload::Reads(asked) => {
            let measured = reads::run(&asked.plan(), &tell).await;
            ("reads", asked.common.json, measured)
        }
        Workload::Processes(asked) => {
            let (plan, first) = (asked.reads.plan(), first(asked.port));
            let measured = processes::run(&plan, first, &tell).await;
            ("processes", asked.reads.common.json, measured)
        }
        Workload::Failures(asked) => {
            let measured = failures::run(asked, &tell).await;
            ("failures", asked.json, measured)
        }
        Workload::Promotions(asked) => {
            let measured = promotions::run(asked, &tell).await;
            ("promotions", asked.json, measured)
        }
        Workload::Compare(asked) => {
            let measured = compare::run(asked, &tell).await;
            ("compare", asked.common.json, measured)
        }
        Workload::Lengths(asked) if asked.scans.apart => {
            return Err("farm bench lengths: --apart: all run in one process; leave it out".into());
        }
        Workload::Lengths(asked) => {
            let measured = lengths::run(&asked.plan(), &tell).await;
            ("lengths", asked.scans.common.json, measured)
        }
        Workload::Ycsb(asked) => {
            let measured = ycsb::run(&asked.plan(), &tell).await;
            ("ycsb", asked.common.json, measured)
        }
        Workload::Scans(asked) => {
            let measured = match asked.apart {
                true => apart::run(&asked.plan(), &tell).await,
                false => scans::run(&asked.plan(), &tell).await,
            };
            ("scans", asked.common.json, measured)
        }
        Workload::Scanner(asked) => {
            follow_parent(asked.parent)?;
            return apart::serve(&asked.beside, &asked.scans.plan()).await;
        }
    };
    let report: Report = measured.map_err(|line| format!("farm bench {name}: {line}"))?;
    match json {
        true => println!("{}", report.to_json()),
        false => print!("{}", report.text()),
    }
    match report.broken() {
        [] => Ok(()),
        [first, ..] => Err(format!("farm bench {name}: a check has failed: {first}")),
    }
}
