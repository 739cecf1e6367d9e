//! `plinth farm create`.

use super::ClusterArgument;
use super::keeping::Backups;
use plinth_coordination::Coordinators;
use plinth_farm_member::{CoordinatedRegister, Register};
use plinth_farm_server::{Asked, caller, check_room, create, survey, unless_denied};
use plinth_runtime::{Duration, timeout};
use plinth_terminal::Outcome;
use plinth_terminal::connect::telling;
use plinth_terminal::numbers::{seconds_within, within};
use plinth_terminal::wording::counted;

/// What is chosen when a cluster is made, and never changed.
#[derive(clap::Args, Clone, Debug)]
pub struct PlanArguments {
    /// Machines that must be there before a new cluster begins [default: 3]
    #[arg(long, value_name = "N", value_parser = within::<u16>(1..=1024))]
    machines: Option<u16>,
    /// Regions of a new cluster; each is replicated, and has one machine that leads it [default: 6]
    #[arg(long, value_name = "N", value_parser = within::<u16>(1..=4096))]
    regions: Option<u16>,
    /// Replicas of each region of a new cluster, in the memories of so many machines [default: 3]
    #[arg(long, value_name = "N", value_parser = within::<u8>(1..=8))]
    replication: Option<u8>,
    /// Size of a region of a new cluster [default: 64]
    #[arg(long, value_name = "MIB", value_parser = within::<u64>(1..=1 << 20))]
    region_mib: Option<u64>,
    /// Most machines and shells of a new cluster at a time [default: 32]
    #[arg(long, value_name = "N", value_parser = within::<u16>(1..=1024))]
    machines_max: Option<u16>,
    /// Commits of a new cluster are on the disks of all replicas before they are acknowledged, so that it survives the
    /// end of all its processes
    #[arg(long)]
    durable: bool,
    /// Where a new cluster has the replicas that do not lead their region: memory, or, if it is durable, disk
    /// [default: memory]
    #[arg(long, value_name = "WHERE", value_parser = Backups::parser(), hide_possible_values = true)]
    backups: Option<Backups>,
}

impl PlanArguments {
    /// What was said; the rest is as it is by default.
    pub fn asked(&self) -> Asked {
        Asked {
            machines: self.machines,
            regions: self.regions,
            replication: self.replication,
            region_mib: self.region_mib,
            machines_max: self.machines_max,
            is_durable: self.durable,
            has_backups_on_disk: self.backups.map(Backups::is_on_disk),
        }
    }
}

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    cluster: ClusterArgument,
    #[command(flatten)]
    plan: PlanArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Seconds to wait for the coordinators before giving up; the same may be tried again
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = seconds_within(1..=86_400))]
    timeout: u64,
}

fn what_it_lacks(is_lost: bool) -> &'static str {
    match is_lost {
        true => {
            "it kept its data in memory, and no machine answers that it had: if their processes have ended, the data \
             is gone"
        }
        false => {
            "its machines serve when as many of them run as it was made with (`plinth farm status' tells what it \
             lacks)"
        }
    }
}

pub async fn run(arguments: &Arguments) -> Outcome {
    let plan = arguments.plan.asked().plan();
    plan.check()?;
    let file = arguments.cluster.load_for_tool().await?;
    let transport = caller(&file);
    let register = CoordinatedRegister::new(&transport, &Coordinators::from(file.clone()));
    let limit = Duration::from_secs(arguments.timeout);
    let making = async {
        if let Ok(None) = register.read().await {
            check_room(&transport, &file, &plan).await?;
        }
        create(&register, &plan).await
    };
    let made = unless_denied(&transport, &file, making);
    let why = async { Some("no majority of the coordinators answers".into()) };
    let made = telling(timeout(limit, made), arguments.timeout, why).await;
    let (_, is_new) = made.unwrap_or_else(|| {
        Err(format!(
            "no majority of the coordinators answers within {} s: start their processes (`plinth farm server')",
            arguments.timeout
        ))
    })??;
    if !is_new {
        let is_lost = survey(&transport, &file, limit).await.has_lost_all();
        return Err(format!(
            "there is a cluster already, and it is left as it is: {}; another one needs a cluster file of its own, \
             and empty data directories",
            what_it_lacks(is_lost)
        ));
    }
    if arguments.json {
        println!(
            "{}",
            serde_json::json!({
                "machines": plan.machines, "regions": plan.regions, "replication": plan.replication,
                "region_mib": plan.region_mib, "machines_max": plan.machines_max, "is_durable": plan.is_durable,
                "backups": Backups::of(plan.has_backups_on_disk).name(),
            })
        );
        return Ok(());
    }
    println!(
        "a cluster of {}, each with {}; it begins when {} wait",
        counted(plan.regions, "region", "regions"),
        counted(plan.replication, "replica", "replicas"),
        counted(plan.machines, "machine", "machines"),
    );
    Ok(())
}
