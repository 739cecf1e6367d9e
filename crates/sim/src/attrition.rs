//! What breaks, when. Everything here heals: no fault destroys what was synced, so the cluster must always come back.

use crate::cluster::Shape;
use crate::scenario::{FaultMix, Scenario};
use plinth_coordination::election;
use plinth_protocol::control::{GetClientInfo, KillRole, WORKER};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::random::{below, chance, range};
use plinth_runtime::sim::{KillKind, MachineId, ProcessId, control};
use plinth_runtime::{Duration, trace};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Breaks things until the time is up.
pub async fn run(shape: Shape, scenario: Scenario) {
    if scenario.fault_interval_ms == 0 {
        return;
    }
    let transport = Transport::client();
    let end = plinth_runtime::now() + Duration::from_secs(scenario.fault_seconds);
    loop {
        plinth_runtime::sleep(ms(range(1..scenario.fault_interval_ms * 2))).await;
        if plinth_runtime::now() >= end {
            return;
        }
        strike(&shape, &transport, &scenario.mix).await;
    }
}

async fn strike(shape: &Shape, transport: &Transport, mix: &FaultMix) {
    let weights = [
        mix.kill_process,
        mix.power_cut,
        mix.power_cut_all,
        mix.partition,
        mix.clog,
        mix.cut_connections,
        mix.pause_process,
        mix.disk_full,
        mix.slow_disk,
        mix.kill_role,
    ];
    let mut pick = below(weights.iter().map(|w| u64::from(*w)).sum());
    let kind = weights.iter().position(|weight| {
        let hit = pick < u64::from(*weight);
        pick = pick.wrapping_sub(u64::from(*weight));
        hit
    });
    let control = control();
    let (machine, process) = victim();
    let other = victim().0;
    match kind.expect("the weights add up to what was drawn from") {
        0 => {
            trace!("FaultKill", "process" => process.0);
            control.kill_process(
                process,
                KillKind::RebootProcess {
                    after: ms(range(10..3000)),
                },
            );
        }
        1 => {
            trace!("FaultPowerCut", "machine" => machine.0);
            control.reboot_machine(machine, ms(range(10..5000)));
        }
        2 => {
            trace!("FaultPowerCutAll");
            for machine in machines() {
                control.reboot_machine(machine, ms(range(10..3000)));
            }
        }
        3 if machine != other => {
            let both = chance(0.5);
            trace!("FaultPartition", "a" => machine.0, "b" => other.0, "both" => both);
            control.partition(machine, other, both);
            later(range(100..8000), move || {
                plinth_runtime::sim::control().heal(machine, other)
            });
        }
        4 if machine != other => control.clog(machine, other, ms(range(10..3000))),
        5 => drop(control.cut_connections(machine, other)),
        6 => control.pause_process(process, ms(range(10..3000))),
        7 => {
            trace!("FaultDiskFull", "machine" => machine.0);
            control.set_disk_full(machine, true);
            later(range(100..5000), move || {
                plinth_runtime::sim::control().set_disk_full(machine, false)
            });
        }
        8 => {
            control.set_disk_slowness(machine, range(2..30) as u32);
            later(range(100..10_000), move || {
                plinth_runtime::sim::control().set_disk_slowness(machine, 1)
            });
        }
        9 => kill_role(shape, transport).await,
        _ => {}
    }
}

fn later(after_ms: u64, action: impl FnOnce() + 'static) {
    plinth_runtime::spawn("heal", async move {
        plinth_runtime::sleep(ms(after_ms)).await;
        action();
    })
    .detach();
}

fn machines() -> Vec<MachineId> {
    control()
        .machines()
        .iter()
        .map(|m| m.id)
        .filter(|id| *id != MachineId::TESTER)
        .collect()
}

fn victim() -> (MachineId, ProcessId) {
    let processes: Vec<_> = control()
        .processes()
        .into_iter()
        .filter(|p| p.machine != MachineId::TESTER)
        .collect();
    let chosen = &processes[below(processes.len() as u64) as usize];
    (chosen.machine, chosen.id)
}

/// Ends a proxy alone, its process living on.
async fn kill_role(shape: &Shape, transport: &Transport) {
    let killing = async {
        let leader = election::current_leader(transport, &shape.cluster_file()).await?;
        let info = transport.call(
            &leader.controller.endpoint::<GetClientInfo>(),
            GetClientInfo { known: 0 },
        );
        let info = info.await.ok()?;
        let roles: Vec<Interface> = info
            .commit_proxies
            .into_iter()
            .chain(info.grv_proxies)
            .collect();
        let role = roles[below(roles.len().max(1) as u64) as usize];
        trace!("FaultKillRole", "id" => role.id);
        let worker = Interface::new(role.address, WORKER);
        transport
            .call(&worker.endpoint::<KillRole>(), KillRole { id: role.id })
            .await
            .ok()
    };
    plinth_runtime::timeout(Duration::from_secs(1), killing).await;
}
