//! Nodes of a service: workers of this process, each a thread with a loop, a socket and a directory of its own. What
//! is measured runs on them.

use crate::rows::Stack;
use plinth_coordination::{ClusterFile, Coordinators, Family, coordinator, places};
use plinth_core::Uid;
use plinth_delos::coordinated_register::CoordinatedRegister;
use plinth_delos::log::LogError;
use plinth_delos::quorum::client::QuorumLoglets;
use plinth_delos::quorum::messages::Config;
use plinth_delos::quorum::sequencer::SequencerHost;
use plinth_delos::quorum::server::LogServer;
use plinth_delos::replica::serves::ServiceLog;
use plinth_delos::virtual_log::VirtualLog;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::real::{Remote, remote, spawn_worker};
use plinth_runtime::sync::Notify;
use plinth_runtime::{Either, offload, race, random, spawn};
use std::cell::{OnceCell, RefCell};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// What the work on a node finds there.
pub struct Site {
    pub transport: Transport,
    pub directory: PathBuf,
    coordinators: Coordinators,
    stop: Notify,
    /// Of the node's replica, once it is started.
    pub stack: OnceCell<Rc<Stack>>,
}

thread_local! {
    static SITE: RefCell<Option<Rc<Site>>> = const { RefCell::new(None) };
}

fn site() -> Rc<Site> {
    let site = SITE.with_borrow(Clone::clone);
    site.expect("it is there before the node takes work")
}

/// What a worker says when it has started.
type Started = Result<(Remote, Interface), String>;

pub struct Node {
    pub address: SocketAddr,
    pub log_server: Interface,
    remote: Remote,
    thread: Option<JoinHandle<()>>,
}

/// Three nodes, which end when this is dropped.
pub struct Nodes {
    pub all: Vec<Node>,
}

const NODES: usize = 3;

#[allow(clippy::disallowed_types)] // it only asks the system for ports that nobody uses
fn free_addresses() -> std::io::Result<Vec<SocketAddr>> {
    use std::net::TcpListener;
    let bind = |_| TcpListener::bind(("127.0.0.1", 0));
    let bound: Vec<TcpListener> = (0..NODES).map(bind).collect::<Result<_, _>>()?;
    bound.iter().map(TcpListener::local_addr).collect()
}

/// A loglet that nobody has used.
pub fn fresh_loglet() -> Uid {
    Uid(random::uid())
}

async fn live(
    address: SocketAddr,
    directory: PathBuf,
    file: ClusterFile,
    tell: mpsc::Sender<Started>,
) {
    let (remote, arrivals) = remote();
    let started = async {
        let cannot = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let log = directory.join("log");
        let made = plinth_runtime::disk::create_dir_all(&log).await;
        made.map_err(|error| cannot(&log.display().to_string(), &error))?;
        let transport = Transport::listen(address).await;
        let transport = transport.map_err(|error| cannot(&address.to_string(), &error))?;
        let log_server = LogServer::open(&transport, &log).await;
        let log_server = log_server.map_err(|error| cannot("the log server", &error))?;
        let coordinators = Coordinators::from(file);
        let key = coordinators.key();
        let cluster = (Family::Delos, &key[..]);
        let coordinator = coordinator::start(&transport, &directory, cluster, false).await?;
        let sequencers = SequencerHost::new(&transport);
        let site = Rc::new(Site {
            transport,
            directory,
            coordinators,
            stop: Notify::new(),
            stack: OnceCell::new(),
        });
        Ok::<_, String>((site, log_server, sequencers, coordinator))
    };
    let (site, log_server, _sequencers, coordinator) = match started.await {
        Ok(started) => started,
        Err(line) => return drop(tell.send(Err(line))), // who waits may have gone
    };
    SITE.set(Some(site.clone()));
    let _ = tell.send(Ok((remote, log_server.interface()))); // as above
    let lives = race(coordinator.life, log_server.failed());
    match race(race(arrivals.run(), site.stop.notified()), lives).await {
        Either::Left(_) => {}
        Either::Right(Either::Left(error) | Either::Right(error)) => {
            eprintln!("plinth: the node at {address} ends: {error}");
        }
    }
    SITE.take();
}

impl Nodes {
    /// Starts them below this directory.
    ///
    /// # Errors
    /// One line.
    pub async fn start(directory: &Path) -> Result<Nodes, String> {
        let addresses = free_addresses().map_err(|error| format!("loopback: {error}"))?;
        let file = ClusterFile::new(
            "bench",
            &format!("{:016x}", random::u64()),
            places(addresses.iter().copied()),
        );
        let mut all = Vec::new();
        for (number, address) in addresses.into_iter().enumerate() {
            let (tell, told) = mpsc::channel();
            let (directory, file) = (directory.join(format!("node-{number}")), file.clone());
            let thread = spawn_worker(&format!("node-{number}"), move || {
                live(address, directory, file, tell)
            });
            let started = offload(move || told.recv()).await;
            let ended = |_| Err("a node ended before it had started".into());
            let (remote, log_server) = started.unwrap_or_else(ended)?;
            all.push(Node {
                address,
                log_server,
                remote,
                thread: Some(thread),
            });
        }
        Ok(Nodes { all })
    }

    /// A loglet on all nodes, whose sequencer is on this one.
    pub fn config(&self, sequencer: usize) -> Config {
        Config {
            loglet: fresh_loglet(),
            sequencer: self.all[sequencer].address,
            servers: self.all.iter().map(|node| node.log_server).collect(),
        }
    }
}

impl Node {
    /// Runs work there to its end.
    ///
    /// # Errors
    /// The node has ended.
    pub async fn run<T, F>(
        &self,
        work: impl FnOnce(Rc<Site>) -> F + Send + 'static,
    ) -> Result<T, String>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, String>> + 'static,
    {
        let (tell, told) = mpsc::channel();
        self.remote.post(move || {
            let work = work(site());
            let working = spawn("measured", async move { drop(tell.send(work.await)) });
            working.detach();
        });
        let told = offload(move || told.recv()).await;
        told.unwrap_or_else(|_| Err("a node ended while it was measured".into()))
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &self.all {
            node.remote.post(|| site().stop.notify_one());
        }
        for node in &mut self.all {
            let ended = node.thread.take().map(JoinHandle::join);
            drop(ended); // a panic there has ended the process
        }
    }
}

impl Site {
    /// The virtual log of the nodes, which begins with this loglet if it is new.
    ///
    /// # Errors
    /// One line.
    pub async fn log(&self, first: &Config) -> Result<Rc<ServiceLog>, String> {
        let register = CoordinatedRegister::new(&self.transport, &self.coordinators);
        let loglets = QuorumLoglets {
            transport: self.transport.clone(),
        };
        let opened = VirtualLog::open(register, loglets, first.to_description()).await;
        opened
            .map(Rc::new)
            .map_err(|error| format!("the log: {error}"))
    }
}

impl Site {
    /// The node's replica, which has been started.
    pub fn replica(&self) -> Rc<Stack> {
        let stack = self.stack.get();
        stack.expect("it is started before it is measured").clone()
    }
}

/// A line about an append that failed.
pub fn append_failed(error: LogError) -> String {
    format!("an append failed: {error}")
}
