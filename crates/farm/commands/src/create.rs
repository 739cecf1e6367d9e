//! `plinth farm create`.

use super::ClusterArgument;
use super::keeping::Keeping;
use plinth_coordination::Coordinators;
use plinth_farm_member::CoordinatedRegister;
use plinth_farm_server::{Plan, caller, create, unless_denied};
use plinth_runtime::{Duration, timeout};
use plinth_terminal::Outcome;
use plinth_terminal::numbers::within;

/// What is chosen when a cluster is made, and never changed.
#[derive(clap::Args, Clone, Debug)]
pub struct PlanArguments {
    /// Machines that must be there before a new cluster begins
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within::<u16>(1..=1024))]
    machines: u16,
    /// Regions of a new cluster; each is replicated, and has one machine that leads it
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = within::<u16>(1..=4096))]
    regions: u16,
    /// Replicas of each region of a new cluster, in the memories of so many machines
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within::<u8>(1..=8))]
    replication: u8,
    /// Size of a region of a new cluster
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = within::<u64>(1..=1 << 20))]
    region_mib: u64,
    /// Most machines and shells of a new cluster at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = within::<u16>(1..=1024))]
    machines_max: u16,
    #[command(flatten)]
    keeping: Keeping,
}

impl PlanArguments {
    pub fn plan(&self) -> Plan {
        Plan {
            machines: self.machines,
            regions: self.regions,
            replication: self.replication,
            region_mib: self.region_mib,
            machines_max: self.machines_max,
            is_durable: self.keeping.durable,
            has_backups_on_disk: self.keeping.backups.is_on_disk(),
        }
    }
}

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    cluster: ClusterArgument,
    #[command(flatten)]
    plan: PlanArguments,
    /// Seconds to wait for the coordinators before giving up; the same may be tried again
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = within::<u64>(1..=86_400))]
    timeout: u64,
}

pub async fn run(arguments: &Arguments) -> Outcome {
    let plan = arguments.plan.plan();
    plan.check()?;
    let file = arguments.cluster.load_for_tool().await?;
    let transport = caller(&file);
    let register = CoordinatedRegister::new(&transport, &Coordinators::from(file.clone()));
    let limit = Duration::from_secs(arguments.timeout);
    let made = unless_denied(&transport, &file, create(&register, &plan));
    let made = timeout(limit, made).await;
    let (_, is_new) = made.unwrap_or_else(|| {
        Err(format!(
            "no majority of the coordinators answers within {} s: start their processes (`plinth farm server`)",
            arguments.timeout
        ))
    })??;
    if !is_new {
        return Err("there is a cluster already; it is left as it is".into());
    }
    println!(
        "a cluster of {} regions, each with {} replicas; it begins when {} machines wait",
        plan.regions, plan.replication, plan.machines
    );
    Ok(())
}
