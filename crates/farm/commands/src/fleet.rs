//! Machines of a fresh cluster on this host, as child processes.
//!
//! ```text
//! DIR/plinth.cluster       the cluster file
//! DIR/plinth.keys          its keys
//! DIR/dev.json             the port of the pages of a durable one, as it was said last
//! DIR/plinth.lock          keeps a second cluster out of the directory
//! DIR/farm-ID/             data directories and traces of the processes; removed at the end, unless it is durable
//! /dev/shm/plinth-farm-…   their memories; removed at the end
//! ```

use super::former::{self, Wanted};
use super::keeping::Keeping;
use plinth_coordination::{
    ClusterFile, FARM_DESCRIPTION, cannot_use, cluster_file, key_file, places,
};
use plinth_farm_server::{Survey, caller, memory_directory, survey};
use plinth_rpc::Transport;
use plinth_runtime::disk::{self, DirLock};
use plinth_runtime::net::Chosen;
use plinth_runtime::{Duration, Either, now, race, sleep};
use plinth_terminal::children::{self, CHECK_INTERVAL, Supervised, first_end};
use plinth_terminal::ports::Claims;
use plinth_terminal::{Outcome, keys, leavings};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Limit of the wait for a new cluster to serve.
const START_LIMIT: Duration = Duration::from_secs(60);
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// What the machines of a fleet have in common.
pub struct Shape {
    pub machines: u16,
    pub replication: u16,
    pub regions: u16,
    pub region_mib: u64,
    pub old_mib: u64,
    /// A durable one goes on with what a former one has left in the directory, and leaves it there.
    pub keeping: Keeping,
}

impl Shape {
    fn ask_for_cluster(&self, command: &mut Command) {
        command
            .args(["--new", "--machines", &self.machines.to_string()])
            .args(["--regions", &self.regions.to_string()])
            .args(["--replication", &self.replication.to_string()])
            .args(["--region-mib", &self.region_mib.to_string()])
            .args(self.keeping.arguments());
    }
}

pub struct Fleet {
    pub file: ClusterFile,
    pub path: PathBuf,
    directory: PathBuf,
    pub memory: PathBuf,
    first_port: u16,
    pages_port: Option<u16>,
    shape: Shape,
    /// The machines find a cluster, and make none.
    is_kept: bool,
    /// They run TPC-C, as their standard input says.
    works: bool,
    transport: Transport,
    /// Keeps other clusters out of the directory.
    _lock: Option<DirLock>,
    /// Keeps others from its ports before the machines listen there, and while one is started again.
    _claims: Claims,
}

/// The port of the first machine.
#[derive(Clone, Copy)]
pub struct FirstPort {
    pub port: u16,
    pub by: Chosen,
}

/// The port of the first machine's page, if they have any.
#[derive(Clone, Copy, Default)]
pub struct Pages {
    pub port: Option<u16>,
    pub by: Chosen,
}

/// Where so many machines will listen: each at two ports, and perhaps at one for its page.
fn listeners(
    first: FirstPort,
    pages: Pages,
    machines: u16,
) -> impl Iterator<Item = (SocketAddr, Chosen)> {
    let own = (0..machines).flat_map(move |i| {
        let at = address(first.port, i);
        [at, SocketAddr::new(at.ip(), at.port() + 1)].map(|at| (at, first.by))
    });
    let pages_by = pages.by;
    let pages = pages.port.into_iter().flat_map(move |port| {
        let ports = (port..=u16::MAX).take(usize::from(machines));
        ports.map(move |port| {
            let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
            (at, pages_by)
        })
    });
    own.chain(pages)
}

fn address(first_port: u16, i: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), first_port + 2 * i)
}

/// Where the memories of a cluster are that `plinth farm dev` has made.
fn memory_of(id: &str) -> PathBuf {
    memory_directory(&ClusterFile::new(FARM_DESCRIPTION, id, Vec::new()))
}

/// One survives no loss, three survive the loss of one.
fn coordinators(machines: u16) -> u16 {
    if machines < 3 { 1 } else { 3 }
}

impl Fleet {
    /// Writes the cluster file, and makes the directories. Nothing runs yet.
    pub async fn prepare(
        above: &Path,
        shape: Shape,
        first: FirstPort,
        pages: Pages,
        works: bool,
    ) -> Outcome<Fleet> {
        shape.keeping.check()?;
        let first_port = first.port;
        let last = u32::from(first_port) + 2 * u32::from(shape.machines) + 2;
        if last > 1 << 16 {
            return Err(format!(
                "ports from {first_port} on do not suffice: each machine takes two; choose a lower --port"
            ));
        }
        let path = above.join(cluster_file::DEFAULT_NAME);
        let mut lock = match above.is_dir() {
            true => Some(former::lock(above).await?),
            false => None, // one that is refused leaves nothing
        };
        let wanted = Wanted {
            machines: shape.machines,
            is_durable: shape.keeping.durable,
            first: address(first_port, 0),
        };
        let kept = former::kept(above, &path, wanted).await?;
        if lock.is_some() {
            former::await_end(above, &path, memory_of).await;
        }
        let claims = Claims::of(listeners(first, pages, shape.machines))?;
        let (is_kept, kept_id) = (kept.is_some(), kept.clone().unwrap_or_default());
        let id = kept.unwrap_or_else(|| format!("{:016x}", plinth_runtime::random::u64()));
        if lock.is_some() {
            for line in former::sweep(above, &kept_id, memory_of).await {
                plinth_terminal::say!("plinth: {line}");
            }
        }
        let directory = former::directory(above, &id);
        let cannot = cannot_use(above);
        disk::create_dir_all(above).await.map_err(cannot)?;
        if lock.is_none() {
            lock = Some(former::lock(above).await?);
        }
        disk::create_dir_all(&directory).await.map_err(cannot)?;
        let named = 0..coordinators(shape.machines);
        let mut file = ClusterFile::new(
            FARM_DESCRIPTION,
            &id,
            places(named.map(|i| address(first_port, i))),
        );
        file.save(&path).await.map_err(cannot)?;
        keys::make_closed(&path)?;
        file.keys = key_file::keyring(&path).await?;
        Ok(Fleet {
            memory: memory_directory(&file),
            path,
            directory,
            first_port,
            pages_port: pages.port,
            shape,
            is_kept,
            works,
            transport: caller(&file),
            file,
            _lock: lock,
            _claims: claims,
        })
    }

    /// What must not stay when the machines have ended.
    fn goes(&self) -> impl Iterator<Item = &Path> {
        let data = (!self.shape.keeping.durable).then_some(&self.directory);
        std::iter::once(&self.memory)
            .chain(data)
            .map(PathBuf::as_path)
    }

    /// Starts the machine with this number.
    pub fn start(&self, i: u16) -> Outcome<Supervised> {
        let listen = address(self.first_port, i);
        let data = former::machine(&self.directory, i);
        let made = std::fs::create_dir_all(&data);
        made.map_err(|error| format!("{}: {error}", data.display()))?;
        let mut command = children::itself();
        command
            .args(["farm", "server", "--listen", &listen.to_string()])
            .arg("--data-dir")
            .arg(&data)
            .arg("--cluster-file")
            .arg(&self.path)
            .arg("--memory-dir")
            .arg(&self.memory)
            .arg("--trace")
            .arg(data.join("trace.jsonl"))
            .args(["--old-mib", &self.shape.old_mib.to_string()]);
        if !self.is_kept {
            self.shape.ask_for_cluster(&mut command);
        }
        if let Some(port) = self.pages_port {
            let page = SocketAddr::new(listen.ip(), port + i);
            command.args(["--pages", &page.to_string()]);
        }
        if self.works {
            command
                .arg("--work")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
        }
        // As its own lines call it: which number it gets is its own affair.
        Supervised::start(format!("farm server {listen}"), &mut command)
    }

    /// The number of the machine that listens at this address.
    pub fn index(&self, at: SocketAddr) -> u16 {
        at.port().saturating_sub(self.first_port) / 2
    }

    pub async fn look(&self) -> Survey {
        survey(&self.transport, &self.file, LOOK_LIMIT).await
    }

    /// Waits until so many machines serve, and nothing is missing.
    pub async fn whole(&self, machines: usize, limit: Duration) -> Outcome<Survey> {
        let begun = now();
        loop {
            let seen = self.look().await;
            let missing = seen.missing();
            let members = seen.machines.iter().filter(|seen| seen.is_member).count();
            if seen.serves() && missing.is_empty() && members >= machines {
                return Ok(seen);
            }
            if begun.elapsed() > limit {
                return Err(format!(
                    "the cluster is not whole after {} s: {}",
                    limit.as_secs(),
                    missing.join("; ")
                ));
            }
            sleep(CHECK_INTERVAL).await;
        }
    }

    /// Starts all machines, which are `children` then, and waits until they are a whole cluster.
    pub async fn start_all(&self, children: &mut Vec<Supervised>) -> Outcome<Survey> {
        self.goes().for_each(leavings::note_directory);
        for i in 0..self.shape.machines {
            children.push(self.start(i)?);
        }
        let ready = self.whole(usize::from(self.shape.machines), START_LIMIT);
        match race(ready, first_end(children)).await {
            Either::Left(outcome) => outcome,
            Either::Right(line) => Err(line),
        }
    }

    /// Removes what the machines have left.
    pub fn remove(&self) {
        for directory in self.goes() {
            let _ = std::fs::remove_dir_all(directory); // it may never have been made
        }
    }
}

/// A fleet in a directory of its own, whose processes are killed when this is dropped. Then nothing of it is left.
pub struct Running {
    pub fleet: Fleet,
    /// By the machine's place in the fleet.
    pub children: Vec<Supervised>,
    above: PathBuf,
}

impl Running {
    /// Nothing runs yet. `name` is of the directory.
    pub async fn prepare(
        name: &str,
        shape: Shape,
        first: FirstPort,
        works: bool,
    ) -> Outcome<Running> {
        let begin = format!("plinth-farm-{name}-");
        for line in former::sweep_killed(&std::env::temp_dir(), &begin, memory_of).await {
            plinth_terminal::say!("plinth: {line}");
        }
        let above = std::env::temp_dir().join(format!("{begin}{}", std::process::id()));
        leavings::note_directory(&above);
        let fleet = Fleet::prepare(&above, shape, first, Pages::default(), works).await?;
        Ok(Running {
            fleet,
            children: Vec::new(),
            above,
        })
    }

    /// Starts all machines, and waits until they serve.
    pub async fn start(&mut self) -> Outcome {
        self.fleet.start_all(&mut self.children).await.map(drop)
    }

    /// Kills a process with signal 9.
    pub fn kill(&mut self, i: u16) -> Outcome {
        let child = self.children.get_mut(usize::from(i));
        let child = child.and_then(|one| one.child.take());
        let mut child = child.ok_or("the machine is no process of this program")?;
        let killed = child.kill();
        killed.map_err(|error| format!("machine {i} is not killed: {error}"))?;
        let _ = child.wait();
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in self
            .children
            .iter_mut()
            .filter_map(|one| one.child.as_mut())
        {
            let _ = child.kill(); // it may have ended
            let _ = child.wait();
        }
        self.fleet.remove();
        let _ = std::fs::remove_dir_all(&self.above);
    }
}
