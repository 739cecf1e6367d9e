//! One coordinator: generation registers on disk, and a vote.
//!
//! A register is a disk of disk Paxos; there is one for each set of coordinators that this one belongs or belonged to
//! (`coordinator/registers.rs`). The vote is kept in memory: it is a matter of liveness only. Every worker is ready to be
//! a coordinator: which of them are is for the cluster file to say.
//!
//! One whose registers are gone or damaged does not know any more what it has promised, and is none: it neither votes nor
//! answers for a register. A move of the coordinators makes it one again, for the registers that begin with that move
//! (`coordinated_state.rs`).

mod registers;

use bytes::Bytes;
use plinth_core::Error;
use plinth_core::Uid;
use plinth_protocol::coordination::{
    BeginRegister, COORDINATOR, Candidate, GetLeader, GetLeaderReply, Nominate, NominateReply,
    ReadRegister, Withdraw, WriteRegister,
};
use plinth_rpc::{Responder, Transport, wait_failure};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::knobs::knobs;
use plinth_runtime::sync::{QueueReceiver, QueueSender, Watch, queue};
use plinth_runtime::{Duration, Instant, TaskGroup, disk, fault, probe, trace, trace_warn};
use registers::Registers;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const FILE_NAME: &str = "coordination";
/// How long after a disk was full, or failed, the registers are written again.
const DISK_PAUSE: Duration = Duration::from_millis(500);

/// The file of a data directory that says what its coordinator has promised.
pub fn file_in(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}

/// Writes the registers of a coordinator that has promised nothing. Only for a directory that never was one's.
pub async fn begin(directory: &Path, cluster: &str) -> std::io::Result<()> {
    let registers = Registers::new(cluster.to_string());
    disk::write_file_durably(&file_in(directory), registers.encode()).await
}

/// Lets a coordinator that has lost its registers be one that has promised nothing. What it had promised may be broken: only for
/// the last resort of an operator. False if nothing is lost.
pub async fn begin_again(directory: &Path, cluster: &str) -> Result<bool, String> {
    let path = file_in(directory);
    let (_, lost) = load(&path, cluster, true).await?;
    if lost.is_none() {
        return Ok(false);
    }
    put_aside(&path).await;
    let unwritable = |e| format!("cannot write {}: {e}", path.display());
    begin(directory, cluster).await.map_err(unwritable)?;
    Ok(true)
}

/// The registers, and if those that must be there are not, why.
async fn load(
    path: &Path,
    cluster: &str,
    must_be_there: bool,
) -> Result<(Registers, Option<String>), String> {
    let new = || Registers::new(cluster.to_string());
    let lost = |what: &str| {
        probe!("coordinator_has_lost_its_registers");
        let start = Uid::from_parts(plinth_runtime::random::u64(), plinth_runtime::random::u64());
        let line = format!(
            "{} {what}: this server no longer knows what it has promised as a coordinator, and is none until the cluster's coordinators are named anew (`coordinators IP:PORT…' in `plinth cli')",
            path.display()
        );
        (Registers::lost(cluster.to_string(), start), Some(line))
    };
    if !disk::exists(path).await {
        if !must_be_there || fault::is_planted("coordinator_forgets") {
            return Ok((new(), None));
        }
        return Ok(lost("is gone"));
    }
    // A write that was killed before it was whole may be visible and not yet durable.
    let directory = path.parent().expect("a file lies in a directory");
    let unsynced = |e| format!("cannot sync {}: {e}", directory.display());
    disk::sync_dir(directory).await.map_err(unsynced)?;
    let bytes = disk::read_file(path)
        .await
        .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let Some(registers) = Registers::decode(&bytes) else {
        return Ok(lost("is corrupt"));
    };
    if registers.cluster != cluster {
        return Err(format!(
            "{} belongs to the cluster {}, not to {cluster}; use another data directory",
            path.display(),
            registers.cluster
        ));
    }
    Ok((registers, None))
}

/// Processes that may stand for election at once.
const CANDIDATES_MAX: usize = 10_000;

enum Access {
    Read(ReadRegister, Responder<ReadRegister>),
    Write(WriteRegister, Responder<WriteRegister>),
    Begin(BeginRegister, Responder<BeginRegister>),
}

type Shared = Rc<RefCell<Registers>>;

/// A coordinator that serves.
pub struct Coordinator<L> {
    /// Its life; while the disk fails it waits.
    pub life: L,
    /// While it has lost its registers: the line that says so.
    pub lost: Watch<Option<String>>,
}

/// Starts a coordinator of the cluster with this key, whose registers lie in `directory`, and `must_be_there` if it was used before.
/// Fails if they belong to another cluster or cannot be read.
pub async fn start(
    transport: &Transport,
    directory: &Path,
    cluster: &str,
    must_be_there: bool,
) -> Result<Coordinator<impl Future<Output = Error> + use<>>, String> {
    let path = file_in(directory);
    let (registers, lost) = load(&path, cluster, must_be_there).await?;
    if let Some(line) = &lost {
        trace_warn!("CoordinatorLost", "file" => path.display(), "what" => line);
    }
    let (registers, lost) = (Rc::new(RefCell::new(registers)), Watch::new(lost));
    let (accesses, accessed) = queue();
    let votes = Rc::new(Votes::new(transport.clone()));
    let gauges = [
        Gauge::of("coordinator_candidates", &votes, |v| {
            v.candidates.borrow().len()
        }),
        Gauge::of("coordinator_watching", &votes, |v| {
            v.watching.borrow().len()
        }),
    ];
    let serving = (
        gauges,
        serve_registers(transport, &registers, accesses),
        serve_votes(transport, &registers, &votes),
    );
    let found = lost.clone();
    let life = async move {
        let _serving = serving;
        let error = keep_registers(registers, path, accessed, found).await;
        trace!("CoordinatorEnded", "reason" => error);
        error
    };
    Ok(Coordinator { life, lost })
}

fn serve_registers(
    transport: &Transport,
    registers: &Shared,
    accesses: QueueSender<Access>,
) -> [plinth_rpc::Registration; 3] {
    let (reads, writes, begins) = (accesses.clone(), accesses.clone(), accesses);
    let (readable, writable) = (registers.clone(), registers.clone());
    [
        transport.serve::<ReadRegister>(COORDINATOR, move |request, responder| {
            match readable.borrow().admit(&request.register) {
                Ok(()) => drop(reads.send(Access::Read(request, responder))), // ended: the responder says so
                Err(error) => responder.fail(error),
            }
        }),
        transport.serve::<WriteRegister>(COORDINATOR, move |request, responder| {
            match writable.borrow().admit(&request.register) {
                Ok(()) => drop(writes.send(Access::Write(request, responder))), // ended: the responder says so
                Err(error) => responder.fail(error),
            }
        }),
        transport.serve::<BeginRegister>(COORDINATOR, move |request, responder| {
            drop(begins.send(Access::Begin(request, responder))); // ended: the responder says so
        }),
    ]
}

/// One access at a time: persist, then answer.
async fn keep_registers(
    registers: Shared,
    path: PathBuf,
    mut accesses: QueueReceiver<Access>,
    lost: Watch<Option<String>>,
) -> Error {
    while let Some(access) = accesses.recv().await {
        let (answer, changed): (Box<dyn FnOnce()>, bool) = match access {
            Access::Read(request, responder) => {
                let (reply, changed) = registers.borrow_mut().read(&request);
                (Box::new(move || responder.ok(reply)), changed)
            }
            Access::Write(request, responder) => {
                let (reply, changed) = registers.borrow_mut().write(&request);
                (Box::new(move || responder.ok(reply)), changed)
            }
            Access::Begin(request, responder) => {
                let begun = registers
                    .borrow_mut()
                    .begin(&request.register, request.lost);
                if begun.is_ok() {
                    probe!("lost_coordinator_begins_again");
                    trace!("CoordinatorBegins", "register" => request.register);
                    lost.set(None);
                    put_aside(&path).await;
                }
                (Box::new(move || responder.send(begun)), begun.is_ok())
            }
        };
        if changed {
            persist(&registers, &path).await;
        }
        answer();
    }
    Error::operation_cancelled
}

/// What was damaged, for whoever wants to look at it.
async fn put_aside(path: &Path) {
    if disk::exists(path).await {
        let aside = path.with_file_name(format!("damaged-{FILE_NAME}"));
        let renamed = disk::rename(path, &aside).await;
        trace!("CoordinatorSetAside", "file" => path.display(), "done" => renamed.is_ok()); // else it is written over
    }
}

/// Nothing is answered before it is on disk: whoever asked waits, or asks another. A write that failed is done anew, whole and
/// under another name, so an attempt that succeeds does not build on one that did not.
async fn persist(registers: &Shared, path: &Path) {
    let bytes: Bytes = registers.borrow().encode();
    while let Err(error) = disk::write_file_durably(path, bytes.clone()).await {
        trace_warn!("CoordinatorDiskFailed", "file" => path.display(), "error" => error);
        probe!("coordinator_waits_for_disk");
        plinth_runtime::sleep(DISK_PAUSE).await;
    }
}

struct Seen {
    candidate: Candidate,
    at: Instant,
    leading: bool,
}

/// The vote of this coordinator: the leader while it is heard of, else the best candidate.
struct Votes {
    transport: Transport,
    candidates: RefCell<BTreeMap<(u32, Uid), Seen>>,
    watching: RefCell<BTreeMap<Uid, TaskGroup>>,
}

impl Votes {
    fn new(transport: Transport) -> Self {
        Votes {
            transport,
            candidates: RefCell::default(),
            watching: RefCell::default(),
        }
    }

    fn expire(&self) {
        let lease = Duration::from_millis(knobs().coordinator_lease_ms);
        let now = plinth_runtime::now();
        self.candidates
            .borrow_mut()
            .retain(|_, seen| now.saturating_since(seen.at) < lease);
        let candidates = self.candidates.borrow();
        self.watching
            .borrow_mut()
            .retain(|id, _| candidates.keys().any(|key| key.1 == *id));
    }

    fn leader(&self) -> Option<Candidate> {
        self.expire();
        self.candidates
            .borrow()
            .values()
            .find(|seen| seen.leading)
            .map(|seen| seen.candidate.clone())
    }

    fn nominate(self: &Rc<Self>, request: Nominate) -> Candidate {
        let candidate = request.candidate;
        let key = (candidate.priority, candidate.controller.id);
        self.expire();
        let leading = self
            .candidates
            .borrow()
            .values()
            .find(|seen| seen.leading)
            .map(|seen| seen.candidate.clone());
        let may_lead = leading
            .as_ref()
            .is_none_or(|leader| leader.controller == candidate.controller);
        let seen = Seen {
            candidate,
            at: plinth_runtime::now(),
            leading: request.leading && may_lead,
        };
        if seen.leading {
            self.watch(&seen.candidate);
        }
        let mut candidates = self.candidates.borrow_mut();
        candidates.insert(key, seen);
        if candidates.len() > CANDIDATES_MAX {
            candidates.pop_last(); // the worst
        }
        let best = candidates
            .values()
            .find(|seen| seen.leading)
            .or_else(|| candidates.values().next());
        best.expect("one was inserted").candidate.clone()
    }

    fn withdraw(&self, id: Uid) {
        self.candidates.borrow_mut().retain(|key, _| key.1 != id);
        self.watching.borrow_mut().remove(&id);
    }

    /// Forgets a leader as soon as it is certainly gone, without waiting for its lease.
    fn watch(self: &Rc<Self>, leader: &Candidate) {
        let id = leader.controller.id;
        if self.watching.borrow().contains_key(&id) {
            return;
        }
        let tasks = TaskGroup::new();
        // Weak: the votes own their watches, not they them.
        let (votes, transport, interface) = (
            Rc::downgrade(self),
            self.transport.clone(),
            leader.controller,
        );
        tasks.spawn("watch leader", async move {
            wait_failure(&transport, interface).await;
            let Some(votes) = votes.upgrade() else { return };
            probe!("coordinator_drops_dead_leader");
            trace!("LeaderGone", "id" => id, "address" => interface.address);
            votes.candidates.borrow_mut().retain(|key, _| key.1 != id);
            // Ends this very task, so it comes last. Should the leader be heard of again, it is watched anew.
            let gone = votes.watching.borrow_mut().remove(&id);
            drop(gone);
        });
        self.watching.borrow_mut().insert(id, tasks);
    }
}

fn serve_votes(
    transport: &Transport,
    registers: &Shared,
    votes: &Rc<Votes>,
) -> [plinth_rpc::Registration; 3] {
    let (a, b, c) = (votes.clone(), votes.clone(), votes.clone());
    let (x, y, z) = (registers.clone(), registers.clone(), registers.clone());
    [
        transport.serve::<Nominate>(COORDINATOR, move |request, responder| {
            let registers = x.borrow();
            match registers.check(&request.register) {
                Err(error) => responder.fail(error),
                // Nobody is to lead from here any more.
                Ok(()) if !registers.successor(&request.register).is_empty() => {
                    responder.fail(Error::coordinators_changed)
                }
                Ok(()) => responder.ok(NominateReply {
                    nominee: a.nominate(request),
                }),
            }
        }),
        transport.serve::<Withdraw>(COORDINATOR, move |request, responder| {
            match y.borrow().check(&request.register) {
                Err(error) => responder.fail(error),
                Ok(()) => {
                    b.withdraw(request.id);
                    responder.ok(());
                }
            }
        }),
        transport.serve::<GetLeader>(COORDINATOR, move |request, responder| {
            let registers = z.borrow();
            let known = match registers.lost {
                Some(_) => registers.belongs(&request.register),
                None => registers.check(&request.register),
            };
            match known {
                Err(error) => responder.fail(error),
                Ok(()) => responder.ok(GetLeaderReply {
                    leader: c.leader(),
                    is_coordinator: registers.has(&request.register),
                    successor: registers.successor(&request.register).to_string(),
                    lost: registers.lost,
                }),
            }
        }),
    ]
}
