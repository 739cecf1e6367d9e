//! Applications: processes beside the database's, as a layer brings them.

use crate::{Boxed, Workload};
use plinth_coordination::ClusterFile;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

/// A service on top of the store. In the scenario `applications` the simulator starts its processes beside those of
/// the database, on the same machines, and strikes them with the same faults.
pub struct Application {
    pub name: &'static str,
    /// `module_path!()`: runs with this application also draw from the knobs and requests of its crate.
    pub module: &'static str,
    /// The life of one process. It ends by being killed, or it is started again soon after it has ended.
    pub serve: fn(Place) -> Boxed<'static, ()>,
    /// Its processes alone have what they keep on their disks. So these lose nothing that was synced: no such disk
    /// lies, rots or is lost for good.
    pub keeps_data: bool,
    /// Workloads that use the processes.
    pub workloads: &'static [Kind],
}

/// A workload of an application.
pub struct Kind {
    pub name: &'static str,
    /// The store's workloads stay out of the keys that begin with an ASCII character: they belong to the application.
    pub make: fn(Rc<Site>) -> Rc<dyn Workload>,
}

impl fmt::Debug for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Where one process runs.
pub struct Place {
    pub listen: SocketAddr,
    /// On a disk of the process's machine, used by no other process. It may not exist yet.
    pub data_directory: PathBuf,
    pub cluster: ClusterFile,
}

/// Where clients find the application and the database.
pub struct Site {
    /// Addresses of the application's processes.
    pub servers: Vec<SocketAddr>,
    pub cluster: ClusterFile,
}

#[doc(hidden)]
#[linkme::distributed_slice]
pub static APPLICATIONS: [Application];

/// Registers an application: `plinth_workload::application! { Application { name: "counter", .. } }`.
#[macro_export]
macro_rules! application {
    ($application:expr) => {
        #[$crate::linkme::distributed_slice($crate::APPLICATIONS)]
        #[linkme(crate = $crate::linkme)]
        static APPLICATION: $crate::Application = $application;
    };
}

/// Every application linked into this program, by name.
pub fn applications() -> Vec<&'static Application> {
    let mut all: Vec<&Application> = APPLICATIONS.iter().collect();
    all.sort_unstable_by_key(|application| application.name);
    all
}
