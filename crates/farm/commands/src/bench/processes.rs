//! `plinth farm bench processes`: a machine of its own process has the objects, and this process, a member without
//! data, reads them through the engine's transactions.

use crate::fleet::{FirstPort, Running, Shape};
use crate::keeping::Keeping;
use plinth_farm_bench::{Report, reads, uncertainty};
use plinth_farm_server::{Guest, GuestConfig};
use plinth_measure::server_cpu;
use plinth_runtime::{Duration, now, sleep};
use plinth_terminal::Outcome;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Child;

/// Limit of the wait to become a member.
const ENTER_LIMIT: Duration = Duration::from_secs(30);

/// Makes this process a member without data.
pub async fn enter(running: &Running) -> Outcome<Guest> {
    let guest = Guest::enter(GuestConfig {
        cluster: running.fleet.file.clone(),
        memory_directory: Some(running.fleet.memory.clone()),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        limit: ENTER_LIMIT,
    });
    guest.await
}

/// The share of a core that the process takes while nobody uses it.
async fn idle(server: &Child, duration: Duration, report: &mut Report) -> Outcome {
    let look = || server_cpu::usage(&[server.id()]).ok_or("the other process has ended");
    let (before, begun) = (look()?, now());
    sleep(duration).await;
    let share = look()?.since(&before).cpu_s / begun.elapsed().as_secs_f64();
    let line = format!("an idle server takes {:.2} % of a core", 100.0 * share);
    report.add(json!({ "idle_share_of_a_core": share }), line);
    Ok(())
}

/// Errors are a line for the user.
pub async fn run(plan: &reads::Plan, first: FirstPort, tell: &dyn Fn(&str)) -> Outcome<Report> {
    let shape = Shape {
        machines: 1,
        replication: 1,
        regions: 1,
        region_mib: plan.region_mib(),
        old_mib: 16,
        keeping: Keeping::default(),
    };
    let mut running = Running::prepare("processes", shape, first, false).await?;
    tell("starting another process");
    running.start().await?;
    let guest = enter(&running).await?;
    let access = &guest.joined.access;
    let mut report = reads::run_beside(plan, access, access.engine(), tell).await?;
    tell("looking at the clock");
    let (clock, who) = (
        guest.joined.node.member().clock(),
        "a member that is not the master",
    );
    uncertainty::measure(clock, plan.duration, who, &mut report).await?;
    if let Some(server) = running.children.first().and_then(|one| one.child.as_ref()) {
        idle(server, plan.duration, &mut report).await?;
    }
    guest.leave().await;
    Ok(report)
}
