//! One coordinator: generation registers on disk, and a vote.
//!
//! ```text
//! ReadRegister, WriteRegister ─► registers ─► disk ─► answer
//! BeginRegister ─► lost registers begin again ─► disk ─► answer
//! Nominate, Withdraw ─► votes ◄─ the lease of the leader runs out, or its process is certainly gone
//! GetLeader ─► the leader, the successors of these coordinators, whether the registers are lost
//! ```
//!
//! It promises: once it has answered a read of generation g, it accepts no write below g; what it has promised for a
//! register is on disk before the answer leaves; it names at most one leader at a time, and takes no candidate for
//! a set of coordinators whose state has moved.
//!
//! A register is one disk of disk Paxos. There is one register for each set of coordinators that this one belongs or
//! belonged to (`coordinator/registers.rs`). The vote (`coordinator/votes.rs`) is kept in memory, because it only
//! affects liveness. Every worker is ready to be a coordinator: the cluster file names those that are.
//!
//! A register that holds the state of a database that was perhaps served takes no state of another one: somebody has
//! created that without knowing of this one (`owner.rs`).
//!
//! Every system runs coordinators in processes of its own, and all of them speak alike. So a coordinator takes no
//! state of another system: somebody has taken its cluster file for another one's ([`Family`]).
//!
//! A coordinator whose registers are gone or damaged no longer knows its promises, so it does not act as one: it
//! neither votes nor answers for a register. A move of the coordinators makes it one again, for the registers that
//! begin with that move (`coordinated_state.rs`).

mod promise;
mod registers;
mod votes;

use crate::Family;
use crate::knobs::COORDINATOR_LEASE_MS;
use bytes::Bytes;
use plinth_core::Error;
use plinth_core::Uid;
use plinth_protocol::coordination::{
    BeginRegister, COORDINATOR, Candidate, GetLeader, GetLeaderReply, Nominate, NominateReply,
    ReadRegister, Withdraw, WriteRegister, coordinator_id,
};
use plinth_protocol::database::named;
use plinth_rpc::{Interface, Registration, Responder, Transport, wait_failure};
use plinth_runtime::disk::Synced;
use plinth_runtime::gauge::Gauge;
use plinth_runtime::sync::{QueueReceiver, QueueSender, Watch, queue};
use plinth_runtime::{
    Boxed, Duration, Instant, TaskGroup, disk, planted, probe, trace, trace_warn,
};
use promise::Promise;
use registers::Registers;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use votes::Votes;

const FILE_NAME: &str = "coordination";
/// Pause before the registers are written again after the disk was full, or failed.
const DISK_PAUSE: Duration = Duration::from_millis(500);

/// The file of a data directory with the promises of its coordinator.
pub fn file_in(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}

/// Writes the registers of a coordinator that has promised nothing. Only for a directory that never had registers:
/// those of this cluster that are there, from a start that was interrupted, stay. Those of another that have promised
/// something are an error; a start that was interrupted for good may have left some that have not.
/// Damaged ones are an error, too: `InvalidData`.
pub fn begin<'a>(directory: &'a Path, cluster: &'a str) -> Boxed<'a, std::io::Result<()>> {
    Box::pin(async move {
        let path = file_in(directory);
        if disk::exists(&path).await? {
            // It may be visible and not yet durable.
            disk::sync_dir(directory).await?;
            let found = Registers::decode(&disk::read_file(&path).await?);
            match found {
                Some(found) if found.cluster == cluster => return Ok(()),
                Some(found) if found == Registers::new(found.cluster.clone()) => {}
                Some(found) => {
                    let line = format!("{FILE_NAME} belongs to the cluster {}", found.cluster);
                    return Err(std::io::Error::other(line));
                }
                None => {
                    let line = format!("{FILE_NAME} is damaged");
                    return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, line));
                }
            }
        }
        let registers = Registers::new(cluster.to_string());
        let written = disk::write_file_durably(&path, registers.encode()).await;
        written.map(drop)
    })
}

/// Lets a coordinator that has lost its registers start as one that has promised nothing. That may break its former
/// promises, so it is only a last resort of an operator. False if nothing is lost.
pub fn begin_again<'a>(directory: &'a Path, cluster: &'a str) -> Boxed<'a, Result<bool, String>> {
    Box::pin(async move {
        let path = file_in(directory);
        let (_, lost) = load(&path, cluster, true).await?;
        if lost.is_none() {
            return Ok(false);
        }
        put_aside(&path).await;
        let unwritable = |e| format!("cannot write {}: {e}", path.display());
        begin(directory, cluster).await.map_err(unwritable)?;
        Ok(true)
    })
}

/// Loads the registers. If registers that must be there are gone or damaged, also returns why they are lost.
async fn load(
    path: &Path,
    cluster: &str,
    must_be_there: bool,
) -> Result<(Registers, Option<String>), String> {
    let new = || Registers::new(cluster.to_string());
    let lost = |what: &str| {
        probe!("coordinator_has_lost_its_registers");
        let start = Uid(plinth_runtime::random::uid());
        let line = format!(
            "{} {what}: this server no longer knows what it has promised as a coordinator, \
            and is none until the cluster's coordinators are named anew (`coordinators IP:PORT…' in `plinth cli')",
            path.display()
        );
        (Registers::lost(cluster.to_string(), start), Some(line))
    };
    let unreadable = |e| format!("cannot read {}: {e}", path.display());
    if !disk::exists(path).await.map_err(unreadable)? {
        if !must_be_there
            || planted!(
                "coordinator_forgets",
                "a coordinator whose registers are gone serves as one that never promised anything"
            )
        {
            return Ok((new(), None));
        }
        return Ok(lost("is gone"));
    }
    // An interrupted write may be visible and not yet durable.
    let directory = path.parent().expect("a file lies in a directory");
    let unsynced = |e| format!("cannot sync {}: {e}", directory.display());
    disk::sync_dir(directory).await.map_err(unsynced)?;
    let bytes = disk::read_file(path).await.map_err(unreadable)?;
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

enum Access {
    Read(ReadRegister, Responder<ReadRegister>),
    Write(WriteRegister, Responder<WriteRegister>),
    Begin(BeginRegister, Responder<BeginRegister>),
}

type Shared = Rc<RefCell<Registers>>;

/// A coordinator that serves.
pub struct Coordinator<L> {
    /// The future that runs it. It waits while the disk fails.
    pub life: L,
    /// The line that reports lost registers, while they are lost.
    pub lost: Watch<Option<String>>,
}

/// Starts a coordinator of the cluster with the key `cluster`, in a process of this system. It answers those who call
/// it by its address, and those who call it by its own name, if the transport has one. Its registers lie in
/// `directory`; they `must_be_there` if the directory was used before. Fails if they belong to another cluster or
/// cannot be read.
pub fn start<'a>(
    transport: &'a Transport,
    directory: &'a Path,
    (family, cluster): (Family, &'a str),
    must_be_there: bool,
) -> Boxed<'a, Result<Coordinator<impl Future<Output = Error> + use<>>, String>> {
    Box::pin(async move {
        let path = file_in(directory);
        let (registers, lost) = load(&path, cluster, must_be_there).await?;
        if let Some(line) = &lost {
            trace_warn!("CoordinatorLost", "file" => path.display(), "what" => line);
        }
        let (registers, lost) = (Rc::new(RefCell::new(registers)), Watch::new(lost));
        let (accesses, accessed) = queue();
        let voting = Rc::new(Voting::new(transport.clone()));
        let gauges = [
            Gauge::of("coordinator_candidates", &voting, |v| {
                v.votes.borrow().len()
            }),
            Gauge::of("coordinator_watching", &voting, |v| {
                v.watching.borrow().len()
            }),
        ];
        let mut ids = vec![COORDINATOR];
        let name = transport.name();
        ids.extend(
            name.as_ref()
                .map(coordinator_id)
                .filter(|id| *id != COORDINATOR),
        );
        let serve = |id| {
            (
                serve_registers(transport, (id, family), &registers, accesses.clone()),
                serve_votes(transport, id, &registers, &voting),
            )
        };
        let serving: (_, Vec<_>) = (gauges, ids.into_iter().map(serve).collect());
        let found = lost.clone();
        let life = async move {
            let _serving = serving;
            let error = keep_registers(registers, path, accessed, found).await;
            trace!("CoordinatorEnded", "reason" => error);
            error
        };
        Ok(Coordinator { life, lost })
    })
}

fn serve_registers(
    transport: &Transport,
    (id, family): (Uid, Family),
    registers: &Shared,
    accesses: QueueSender<Access>,
) -> [Registration; 3] {
    let (reads, writes, begins) = (accesses.clone(), accesses.clone(), accesses);
    let (readable, writable) = (registers.clone(), registers.clone());
    [
        transport.serve::<ReadRegister>(id, move |request, responder| {
            match readable
                .borrow()
                .admit(&request.register, request.generation)
            {
                Ok(()) => drop(reads.send(Access::Read(request, responder))), // ended: the responder says so
                Err(error) => responder.fail(error),
            }
        }),
        transport.serve::<WriteRegister>(id, move |request, responder| {
            let admitted = writable
                .borrow()
                .admit(&request.register, request.generation);
            match admitted.and_then(|()| family.admit(&request.value.state)) {
                Ok(()) => drop(writes.send(Access::Write(request, responder))), // ended: the responder says so
                Err(error) => responder.fail(error),
            }
        }),
        transport.serve::<BeginRegister>(id, move |request, responder| {
            drop(begins.send(Access::Begin(request, responder))); // ended: the responder says so
        }),
    ]
}

/// Serves one access at a time: persists, then answers.
async fn keep_registers(
    registers: Shared,
    path: PathBuf,
    mut accesses: QueueReceiver<Access>,
    lost: Watch<Option<String>>,
) -> Error {
    let mut refused = None;
    while let Some(access) = accesses.recv().await {
        match access {
            Access::Read(request, responder) => {
                let promise = registers.borrow_mut().read(&request);
                responder.ok(keep(promise, &registers, &path).await);
            }
            Access::Write(request, responder) => {
                let kept = registers.borrow().keeps(&request);
                if let Some(kept) = kept {
                    if refused.replace(kept) != Some(kept) {
                        tell_kept(&path, kept);
                    }
                    responder.fail(Error::invalid_cluster_id);
                    continue;
                }
                let promise = registers.borrow_mut().write(&request);
                responder.ok(keep(promise, &registers, &path).await);
            }
            Access::Begin(request, responder) => {
                let promise = registers
                    .borrow_mut()
                    .begin(&request.register, request.lost);
                if promise.is_new() {
                    probe!("lost_coordinator_begins_again");
                    trace!("CoordinatorBegins", "register" => request.register);
                    lost.set(None);
                    put_aside(&path).await;
                }
                responder.send(keep(promise, &registers, &path).await);
            }
        }
        assert_eq!(
            lost.with(Option::is_some),
            registers.borrow().lost.is_some(),
            "registers are reported as lost exactly while they are"
        );
    }
    Error::operation_cancelled
}

/// Says that these registers are not those of the database that the others serve.
fn tell_kept(path: &Path, kept: Uid) {
    probe!("coordinator_keeps_another_database");
    let line = format!(
        "{} is of {}, and the cluster's controller serves another one: this coordinator does not take part. See Two \
         databases of one cluster in docs/operating.md",
        path.display(),
        named(kept)
    );
    trace_warn!("CoordinatorOfAnotherDatabase", "file" => path.display(), "what" => line);
}

/// Sets damaged registers aside for inspection.
async fn put_aside(path: &Path) {
    if disk::exists(path).await.unwrap_or(true) {
        let aside = path.with_file_name(format!("damaged-{FILE_NAME}"));
        let renamed = disk::rename(path, &aside).await;
        trace!("CoordinatorSetAside", "file" => path.display(), "done" => renamed.is_ok()); // else it is overwritten
    }
}

/// The answer that tells a promise, when the promise is on disk.
async fn keep<T>(promise: Promise<T>, registers: &Shared, path: &Path) -> T {
    match promise {
        Promise::AsBefore(answer) => answer,
        Promise::New(unkept) => unkept.on_disk(persist(registers, path).await),
    }
}

/// Makes the registers durable. Nothing is answered before: the requester waits, or asks another coordinator. A write
/// that failed is repeated as a whole under another name, so a successful attempt does not build on a failed one.
async fn persist(registers: &Shared, path: &Path) -> Synced {
    let bytes: Bytes = registers.borrow().encode();
    let synced = loop {
        match disk::write_file_durably(path, bytes.clone()).await {
            Ok(synced) => break synced,
            Err(error) => {
                trace_warn!("CoordinatorDiskFailed", "file" => path.display(), "error" => error);
                probe!("coordinator_waits_for_disk");
                plinth_runtime::sleep(DISK_PAUSE).await;
            }
        }
    };
    assert!(
        Registers::decode(&bytes).as_ref() == Some(&*registers.borrow()),
        "what is on disk is not what is about to be acknowledged"
    );
    synced
}

/// The shell of the vote: watches the leader.
struct Voting {
    transport: Transport,
    votes: RefCell<Votes>,
    watching: RefCell<BTreeMap<Uid, TaskGroup>>,
}

fn lease() -> Duration {
    Duration::from_millis(COORDINATOR_LEASE_MS.get())
}

impl Voting {
    fn new(transport: Transport) -> Self {
        Voting {
            transport,
            votes: RefCell::default(),
            watching: RefCell::default(),
        }
    }

    fn expire(&self, now: Instant) {
        self.votes.borrow_mut().expire(now, lease());
        let votes = self.votes.borrow();
        self.watching
            .borrow_mut()
            .retain(|id, _| votes.is_candidate(*id));
    }

    fn leader(&self) -> Option<Candidate> {
        let now = plinth_runtime::now();
        self.expire(now);
        self.votes.borrow().leader(now, lease()).cloned()
    }

    fn nominate(self: &Rc<Self>, request: Nominate) -> Candidate {
        let now = plinth_runtime::now();
        self.expire(now);
        let mut votes = self.votes.borrow_mut();
        let nominated = votes.nominate(now, lease(), request.candidate, request.leading);
        drop(votes);
        if let Some(leader) = nominated.watch {
            self.watch(leader);
        }
        nominated.nominee
    }

    fn withdraw(&self, id: Uid) {
        self.votes.borrow_mut().withdraw(id);
        self.watching.borrow_mut().remove(&id);
    }

    /// Forgets a leader as soon as it is certainly gone, without waiting for its lease.
    fn watch(self: &Rc<Self>, leader: Interface) {
        let id = leader.id;
        if self.watching.borrow().contains_key(&id) {
            return;
        }
        let tasks = TaskGroup::new();
        // Weak, because the shell owns its watches.
        let (voting, transport) = (Rc::downgrade(self), self.transport.clone());
        tasks.spawn("watch leader", async move {
            wait_failure(&transport, leader).await;
            let Some(voting) = voting.upgrade() else {
                return;
            };
            probe!("coordinator_drops_dead_leader");
            trace!("LeaderGone", "id" => id, "address" => leader.address);
            voting.votes.borrow_mut().withdraw(id);
            // Ends this very task, so it comes last. If the leader is heard of again, it is watched anew.
            let gone = voting.watching.borrow_mut().remove(&id);
            drop(gone);
        });
        self.watching.borrow_mut().insert(id, tasks);
    }
}

fn serve_votes(
    transport: &Transport,
    id: Uid,
    registers: &Shared,
    voting: &Rc<Voting>,
) -> [Registration; 3] {
    let (a, b, c) = (voting.clone(), voting.clone(), voting.clone());
    let (x, y, z) = (registers.clone(), registers.clone(), registers.clone());
    [
        transport.serve::<Nominate>(id, move |request, responder| {
            let registers = x.borrow();
            match registers.check(&request.register) {
                Err(error) => responder.fail(error),
                // These coordinators elect no leader any more.
                Ok(()) if !registers.successor(&request.register).is_empty() => {
                    responder.fail(Error::coordinators_changed)
                }
                Ok(()) => responder.ok(NominateReply {
                    nominee: a.nominate(request),
                }),
            }
        }),
        transport.serve::<Withdraw>(id, move |request, responder| {
            match y.borrow().check(&request.register) {
                Err(error) => responder.fail(error),
                Ok(()) => {
                    b.withdraw(request.id);
                    responder.ok(());
                }
            }
        }),
        transport.serve::<GetLeader>(id, move |request, responder| {
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
                    database: registers.database(&request.register),
                }),
            }
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::sim::{Locality, Sickness, SimConfig, Simulation, control};

    #[test]
    fn registers_on_a_disk_that_cannot_be_read_are_not_lost() {
        let simulation = Simulation::new(1, SimConfig::default());
        let machine = simulation.add_machine(Locality::default());
        let ran = simulation.run_on(machine, async move {
            let directory = Path::new("/data");
            let path = file_in(directory);
            disk::create_dir_all(directory).await.expect("made");
            begin(directory, "a:b").await.expect("begun");
            control().set_disk_sickness(machine, Sickness::errors(1.0));
            let unread = load(&path, "a:b", true).await.err();
            let line = unread.expect("nobody knows what it has promised");
            assert!(line.starts_with("cannot read /data/coordination"), "{line}");
            control().set_disk_sickness(machine, Sickness::errors(0.0));
            let (_, lost) = load(&path, "a:b", true).await.expect("it can be read");
            assert_eq!(lost, None);
            disk::remove(&path).await.expect("removed");
            let (_, lost) = load(&path, "a:b", true).await.expect("it can be read");
            assert!(lost.is_some_and(|line| line.contains("is gone")));
        });
        ran.expect("it comes to its end");
    }

    #[test]
    fn registers_that_are_there_are_not_begun_over() {
        let simulation = Simulation::new(1, SimConfig::default());
        let machine = simulation.add_machine(Locality::default());
        let ran = simulation.run_on(machine, async move {
            let directory = Path::new("/data");
            let path = file_in(directory);
            disk::create_dir_all(directory).await.expect("made");
            begin(directory, "e:f").await.expect("none are there");
            begin(directory, "a:b").await.expect("nothing was promised");
            let (mut registers, _) = load(&path, "a:b", true).await.expect("they are a:b's");
            let asked = registers.read(&ReadRegister {
                register: "a:b".into(),
                generation: Default::default(),
            });
            let _ = asked.into_inner();
            let before = registers.encode();
            assert_ne!(before, Registers::new("a:b".into()).encode(), "a promise");
            let written = disk::write_file_durably(&path, before.clone());
            written.await.expect("written");
            begin(directory, "a:b").await.expect("it was interrupted");
            let refused = begin(directory, "c:d")
                .await
                .expect_err("of another cluster");
            assert_eq!(
                refused.to_string(),
                "coordination belongs to the cluster a:b"
            );
            assert_eq!(disk::read_file(&path).await.expect("there"), before);
            let written = disk::write_file_durably(&path, before.slice(1..));
            written.await.expect("written");
            let refused = begin(directory, "a:b").await.expect_err("damaged");
            assert_eq!(refused.to_string(), "coordination is damaged");
        });
        ran.expect("it comes to its end");
    }
}
