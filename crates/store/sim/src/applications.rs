//! Applications on top of the store: their processes run on the machines of the cluster.
//!
//! An application registers itself in its own crate ([`plinth_workload::application!`]). The simulator knows it in
//! programs that link that crate: the binary `plinth`, and the tests of the application.

use crate::cluster::{Shape, index_of};
use crate::scenario::APPLICATION_PORT;
use plinth_runtime::sim::{MachineId, Simulation};
use plinth_runtime::{Duration, sleep, trace_warn};
use plinth_workload::{Place, Site};
use std::net::SocketAddr;

/// Processes of the application, each on a machine of its own.
const PROCESSES_MAX: usize = 3;
/// A process that ended is restarted after this time, as by a supervisor.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

fn address(machine: usize) -> SocketAddr {
    SocketAddr::new(Shape::address(machine, 0).ip(), APPLICATION_PORT)
}

impl Shape {
    /// Where clients find the application of this run.
    pub fn site(&self) -> Site {
        Site {
            servers: (0..self.machines.min(PROCESSES_MAX)).map(address).collect(),
            cluster: self.cluster_file(),
        }
    }

    /// True for a machine whose disk keeps all that was synced, because an application has nothing else.
    pub fn keeps_data(&self, machine: MachineId) -> bool {
        let keeps = self.application.is_some_and(|of| of.keeps_data);
        keeps && index_of(machine) < PROCESSES_MAX
    }
}

/// Starts the processes of the application on the first machines.
pub fn start(simulation: &Simulation, shape: &Shape, machines: &[MachineId]) {
    let Some(application) = shape.application else {
        return;
    };
    for (machine, listen) in machines.iter().zip(shape.site().servers) {
        let cluster = shape.cluster_file();
        simulation.start_process(*machine, listen, move || {
            let cluster = cluster.clone();
            Box::pin(async move {
                loop {
                    let place = Place {
                        listen,
                        data_directory: format!("/{}", application.name).into(),
                        cluster: cluster.clone(),
                    };
                    (application.serve)(place).await;
                    trace_warn!("ApplicationEnded", "name" => application.name);
                    sleep(RESTART_PAUSE).await;
                }
            })
        });
    }
}
