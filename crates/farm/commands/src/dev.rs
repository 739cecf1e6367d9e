//! `plinth farm dev`: a fresh cluster of the in-memory engine, whose machines are child processes. One that dies
//! is started again. When this process ends, for any reason, the others end too.

use super::fleet::{FirstPort, Fleet, Pages, Shape};
use super::former;
use super::keeping::{Backups, Keeping};
use plinth_coordination::Tenant;
use plinth_farm_server::Survey;
use plinth_runtime::net::Chosen;
use plinth_terminal::Outcome;
use plinth_terminal::children::{keep_alive, stop};
use plinth_terminal::connect::block_on;
use plinth_terminal::numbers::within;
use plinth_terminal::process::unless_interrupted;
use plinth_terminal::remembered::{Remembered, chosen};
use plinth_terminal::wording::{counted, pasted};
use std::path::PathBuf;

const REPLICATION_MAX: u16 = 3;
const MACHINES: u16 = 3;
/// Of the first machine.
const PORT: u16 = 4500;
const PAGES: &str = "--pages-port";
/// More machines than this are for several hosts.
const MACHINES_MAX: i64 = 16;

fn shape(machines: u16, keeping: Keeping) -> Shape {
    Shape {
        machines,
        replication: machines.min(REPLICATION_MAX),
        regions: 2 * machines,
        region_mib: 64,
        old_mib: 64,
        keeping,
    }
}

#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Directory for all files
    #[arg(long, value_name = "DIR", default_value = "plinth-data")]
    data_dir: PathBuf,
    /// Machines; each takes two ports [default: 3, or those of the durable cluster in the directory]
    #[arg(long, value_name = "N", value_parser = within::<u16>(1..=MACHINES_MAX))]
    machines: Option<u16>,
    /// Port of the first machine; the others take the ports after it [default: 4500, or that of the durable cluster in
    /// the directory]
    #[arg(long, value_name = "PORT", value_parser = within::<u16>(1..))]
    port: Option<u16>,
    /// Port of the first machine's page of metrics (/metrics, for Prometheus); the others take the ports after it; 0:
    /// none any more [default: none, or that of the durable cluster in the directory]
    #[arg(long, alias = "metrics-port", value_name = "PORT", value_parser = within::<u16>(0..))]
    pages_port: Option<u16>,
    /// Do not restart a machine that has died
    #[arg(long)]
    no_restart: bool,
    /// Let the machines keep their data on disk, and go on with what a former run has left in the directory
    #[arg(long)]
    durable: bool,
    /// Where the machines have the replicas that do not lead their region: memory, or, with --durable, disk
    #[arg(long, value_name = "WHERE", default_value_t)]
    #[arg(value_parser = Backups::parser(), hide_possible_values = true)]
    backups: Backups,
}

pub fn run(arguments: &Arguments) -> Outcome {
    let keeping = Keeping {
        durable: arguments.durable,
        backups: arguments.backups,
    };
    block_on(serve(arguments, keeping))
}

async fn serve(arguments: &Arguments, keeping: Keeping) -> Outcome {
    let directory = &arguments.data_dir;
    Tenant::Farm.check(directory).await?;
    let there = former::there(directory).await?;
    let beside = directory.join("dev.json");
    // Without a disk nothing goes on.
    let mut ports = match there {
        Some(_) => Remembered::load(beside).await?,
        None => Remembered::none(beside),
    };
    let machines = there.map(|there| there.machines);
    let machines = arguments.machines.or(machines).unwrap_or(MACHINES);
    let port = there.and_then(|there| there.port);
    let first = FirstPort {
        port: arguments.port.or(port).unwrap_or(PORT),
        by: match (arguments.port, port) {
            (None, Some(_)) => Chosen::Kept("--data-dir"),
            (said, _) => Chosen::flag("--port", said.is_none()),
        },
    };
    let port = first.port;
    let pages = Pages {
        port: ports.port(PAGES, arguments.pages_port),
        by: chosen(PAGES, arguments.pages_port),
    };
    let fleet = Fleet::prepare(directory, shape(machines, keeping), first, pages, false).await?;
    ports.save().await?;
    let mut children = Vec::new();
    let work = async {
        let seen = fleet.start_all(&mut children).await?;
        tell_other_backups(&seen, keeping.backups);
        let count = counted(machines, "machine", "machines");
        println!("{count} of the in-memory engine, from port {port} on");
        println!("use it with: plinth farm cli -C {}", pasted(&fleet.path));
        println!("ready");
        keep_alive(&mut children, !arguments.no_restart, |i| fleet.start(i)).await
    };
    let outcome = match unless_interrupted(work).await {
        Ok(None) => {
            let data = match keeping.durable {
                true => "their data stays, for the same command",
                false => "their data is gone",
            };
            let count = counted(machines, "machine", "machines");
            plinth_terminal::say!("plinth: stopping {count}; {data}");
            Ok(())
        }
        Ok(Some(outcome)) => outcome,
        Err(line) => Err(line),
    };
    stop(children).await;
    fleet.remove();
    outcome
}

/// A cluster that goes on stays as it was made.
fn tell_other_backups(seen: &Survey, asked: Backups) {
    let has = seen.record.as_ref();
    let has = has.map(|record| Backups::of(record.cluster.has_backups_on_disk));
    if let Some(has) = has.filter(|has| *has != asked) {
        let has = has.name();
        plinth_terminal::say!(
            "plinth: the cluster was made with --backups {has}, and stays so; another --data-dir is a new one"
        );
    }
}
