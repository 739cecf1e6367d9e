//! Machines that the contract is tried on: one stand for each backend.

use crate::{Fabric, Layout, Local, Machine, Mixed, Place, Shared, Streamed, serve_with};
use plinth_identity::Identity;
use plinth_identity::keys::{KeyFile, Keyring};
use plinth_rpc::Credentials;
use plinth_runtime::{Duration, Task, disk, net, sleep, spawn};
use plinth_tls::testing::{Authority, Wanted, material};
use plinth_tls::{Certificates, Policy};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub const MACHINES: usize = 3;
const LIMIT: Duration = Duration::from_secs(5);

pub fn layout() -> Layout {
    Layout {
        machines: MACHINES,
        ring_words: 100,
        region_words: vec![64, 5000],
    }
}

pub trait Stand {
    type Fabric: Fabric + 'static;

    /// Starts the machine's process. Its former life was dropped, and stopped.
    async fn start(&self, machine: Machine) -> Rc<Self::Fabric>;

    /// What the death of its process ends beside the fabric.
    fn stop(&self, machine: Machine);
}

pub struct SharedStand(pub PathBuf);

impl Stand for SharedStand {
    type Fabric = Shared;

    async fn start(&self, machine: Machine) -> Rc<Shared> {
        let local = Local::start(&self.0, machine, &layout()).await;
        Rc::new(Shared::new(local.expect("a memory")))
    }

    fn stop(&self, _: Machine) {}
}

pub struct StreamedStand {
    directory: PathBuf,
    addresses: Vec<SocketAddr>,
    servers: RefCell<Vec<Option<Task<()>>>>,
    credentials: Credentials,
}

/// Those of a server with this secret.
pub fn credentials(secret: u8) -> Credentials {
    let keys = Keyring::new(&KeyFile::new_root([secret; 32]));
    Credentials::new(Some(keys), Identity::Server)
}

/// Processes with certificates of one authority.
pub struct Certified(Authority);

impl Certified {
    pub fn new() -> Certified {
        Certified(Authority::new("Our root"))
    }

    /// What one proves whose certificate has this name: `node` stands for a server, `app` for a client. Nobody gets in
    /// there without.
    pub fn of(&self, name: &str) -> Credentials {
        self.open(name).closed_without_certificate()
    }

    /// The same for who trusts those without a certificate.
    pub fn open(&self, name: &str) -> Credentials {
        let own = self.0.issue(&Wanted::named(name));
        let policy = Policy::parse([], ["server:S.CN=node", "client:S.CN=app"]);
        let policy = policy.expect("valid");
        let certificates = Certificates::new(&material(&own, &self.0.pem), policy);
        let handshakes = certificates.expect("they fit").handshakes();
        let protected = Credentials::none().with_certificates(handshakes);
        protected.opening_by_certificate()
    }
}

impl StreamedStand {
    pub async fn new(directory: PathBuf, ip: &str) -> StreamedStand {
        let mut addresses = Vec::new();
        let mut listeners = Vec::new();
        for _ in 0..MACHINES {
            let listener = net::listen(format!("{ip}:0").parse().expect("an address")).await;
            let listener = listener.expect("a listener");
            addresses.push(listener.local_addr().expect("an address"));
            listeners.push(listener);
        }
        StreamedStand {
            directory,
            addresses,
            servers: RefCell::new((0..MACHINES).map(|_| None).collect()),
            credentials: Credentials::none(),
        }
    }

    /// All machines have the same certificate, and open nothing without it.
    pub fn with_certificates(self) -> StreamedStand {
        StreamedStand {
            credentials: Certified::new().of("node"),
            ..self
        }
    }

    /// All machines have the same keys.
    pub fn with_keys(self) -> StreamedStand {
        StreamedStand {
            credentials: credentials(1),
            ..self
        }
    }
}

impl StreamedStand {
    async fn serve(&self, local: &Local) {
        let at = usize::from(local.machine().0);
        // A connection of somebody else may have it for a moment.
        let mut left = 500;
        let listener = loop {
            match net::listen(self.addresses[at]).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse && left > 0 => left -= 1,
                listener => break listener.expect("its port"),
            }
            sleep(Duration::from_millis(20)).await;
        };
        let (host, keys) = (local.host().clone(), self.credentials.clone());
        let machine = local.machine();
        let serve = async move { serve_with(listener, machine, host, &keys).await };
        self.servers.borrow_mut()[at] = Some(spawn("serve", serve));
    }
}

impl Stand for StreamedStand {
    type Fabric = Streamed;

    async fn start(&self, machine: Machine) -> Rc<Streamed> {
        let local = Local::start(&self.directory, machine, &layout()).await;
        let local = local.expect("a memory");
        self.serve(&local).await;
        let streamed = Streamed::new(local, self.addresses.clone(), LIMIT);
        Rc::new(streamed.with(&self.credentials))
    }

    fn stop(&self, machine: Machine) {
        let server = self.servers.borrow_mut()[usize::from(machine.0)].take();
        drop(server);
    }
}

/// The last machine is on another host than the others.
pub struct MixedStand {
    others: StreamedStand,
    /// Of each machine.
    directories: Vec<PathBuf>,
}

impl MixedStand {
    pub async fn new(directory: PathBuf, ip: &str) -> MixedStand {
        let host = |machine| format!("host-{}", usize::from(machine + 1 == MACHINES));
        let directories = (0..MACHINES).map(|machine| directory.join(host(machine)));
        let directories: Vec<PathBuf> = directories.collect();
        for directory in &directories {
            disk::create_dir_all(directory).await.expect("a directory");
        }
        MixedStand {
            others: StreamedStand::new(directory, ip).await,
            directories,
        }
    }
}

impl Stand for MixedStand {
    type Fabric = Mixed;

    async fn start(&self, machine: Machine) -> Rc<Mixed> {
        let own = &self.directories[usize::from(machine.0)];
        let local = Local::start(own, machine, &layout()).await;
        let local = local.expect("a memory");
        self.others.serve(&local).await;
        let mixed = Mixed::new(local, LIMIT);
        let places = self.directories.iter().zip(&self.others.addresses);
        for ((directory, address), machine) in places.zip(0..) {
            let place = match directory == own {
                true => Place::Here,
                false => Place::At(*address),
            };
            mixed.set_place(Machine(machine), place);
        }
        Rc::new(mixed)
    }

    fn stop(&self, machine: Machine) {
        self.others.stop(machine);
    }
}

/// A directory in memory that is removed at the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let memory = Path::new("/dev/shm");
        let base = match memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        };
        Scratch(base.join(format!("plinth-fabric-{}-{name}", std::process::id())))
    }

    pub async fn make(&self) -> PathBuf {
        disk::create_dir_all(&self.0).await.expect("a directory");
        self.0.clone()
    }
}

impl Drop for Scratch {
    #[allow(clippy::disallowed_methods)] // a test removes what it has made
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
