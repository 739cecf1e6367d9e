//! One coordinator: a generation register on disk, and a vote.
//!
//! The register is a disk of disk Paxos. It promises: once it has answered a read of generation g, no write below g
//! is accepted; what it answers is on disk before the answer leaves. The vote is kept in memory: it is a
//! matter of liveness only.

use bytes::{BufMut, Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::{Error, Uid, record};
use plinth_protocol::coordination::{
    COORDINATOR, Candidate, Generation, GetLeader, GetLeaderReply, Nominate, NominateReply,
    ReadRegister, ReadRegisterReply, Withdraw, WriteRegister, WriteRegisterReply,
};
use plinth_rpc::{Responder, Transport, wait_failure};
use plinth_runtime::knobs::knobs;
use plinth_runtime::sync::{QueueReceiver, QueueSender, queue};
use plinth_runtime::{Duration, Instant, TaskGroup, disk, probe, trace, trace_warn};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const FORMAT: u32 = 1;
const FILE_NAME: &str = "coordination";
/// How long after a full disk the register is written again.
const DISK_FULL_PAUSE: Duration = Duration::from_millis(500);

record! {
    /// What is on the coordinator's disk.
    pub struct RegisterState {
        pub cluster: String,
        pub read_generation: Generation,
        pub write_generation: Generation,
        pub value: Option<Bytes>,
    }
}

/// The state machine of the register. A method that changes it says so: the change must be on disk before
/// the reply is sent.
impl RegisterState {
    pub fn new(cluster: String) -> Self {
        let none = Generation::default();
        RegisterState {
            cluster,
            read_generation: none,
            write_generation: none,
            value: None,
        }
    }

    /// Gives the reply, and whether the state has changed.
    pub fn read(&mut self, request: &ReadRegister) -> (ReadRegisterReply, bool) {
        let changed = request.generation > self.read_generation;
        if changed {
            self.read_generation = request.generation;
        }
        let reply = ReadRegisterReply {
            read_generation: self.read_generation,
            write_generation: self.write_generation,
            value: self.value.clone(),
        };
        (reply, changed)
    }

    pub fn write(&mut self, request: &WriteRegister) -> (WriteRegisterReply, bool) {
        let accepted = request.generation >= self.read_generation
            && request.generation > self.write_generation;
        if accepted {
            self.read_generation = request.generation;
            self.write_generation = request.generation;
            self.value = Some(Bytes::copy_from_slice(&request.value));
        }
        let highest = self.read_generation.max(self.write_generation);
        (WriteRegisterReply { accepted, highest }, accepted)
    }
}

/// `format: u32 | crc32c: u32 | state`
fn encode(state: &RegisterState) -> Bytes {
    let body = state.to_bytes();
    let mut out = BytesMut::with_capacity(body.len() + 8);
    out.put_u32_le(FORMAT);
    out.put_u32_le(crc32c::crc32c(&body));
    out.put_slice(&body);
    out.freeze()
}

/// `None` if the bytes are not what [`encode`] wrote.
pub fn decode(bytes: &Bytes) -> Option<RegisterState> {
    let format = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let crc = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    let body = bytes.slice(8..);
    (format == FORMAT && crc32c::crc32c(&body) == crc)
        .then(|| RegisterState::from_bytes(body))
        .flatten()
}

async fn load(path: &Path, cluster: &str) -> Result<RegisterState, String> {
    if !disk::exists(path).await {
        return Ok(RegisterState::new(cluster.to_string()));
    }
    // A write that was killed before it was whole may be visible and not yet durable.
    let directory = path.parent().expect("a file lies in a directory");
    let unsynced = |e| format!("cannot sync {}: {e}", directory.display());
    disk::sync_dir(directory).await.map_err(unsynced)?;
    let bytes = disk::read_file(path)
        .await
        .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let state = decode(&bytes).ok_or_else(|| {
        format!(
            "{} is corrupt; restore it from another copy or remove this coordinator",
            path.display()
        )
    })?;
    if state.cluster != cluster {
        return Err(format!(
            "{} belongs to the cluster {}, not to {cluster}; use another data directory",
            path.display(),
            state.cluster
        ));
    }
    Ok(state)
}

enum Access {
    Read(ReadRegister, Responder<ReadRegister>),
    Write(WriteRegister, Responder<WriteRegister>),
}

/// Starts a coordinator whose register lies in `directory`. Fails if that belongs to another cluster or is corrupt.
/// The future is its life; it ends with an error when the disk does.
pub async fn start(
    transport: &Transport,
    directory: &Path,
    cluster: &str,
) -> Result<impl Future<Output = Error> + use<>, String> {
    let path = directory.join(FILE_NAME);
    let state = load(&path, cluster).await?;
    let (accesses, accessed) = queue();
    let votes = Rc::new(Votes::new(transport.clone()));
    let cluster = cluster.to_string();
    let serving = (
        serve_register(transport, &cluster, accesses),
        serve_votes(transport, &cluster, &votes),
    );
    Ok(async move {
        let _serving = serving;
        let error = keep_register(state, path, accessed).await;
        trace!("CoordinatorEnded", "reason" => error);
        error
    })
}

fn serve_register(
    transport: &Transport,
    cluster: &str,
    accesses: QueueSender<Access>,
) -> [plinth_rpc::Registration; 2] {
    let (reads, writes) = (accesses.clone(), accesses);
    let (ours, ours_too) = (cluster.to_string(), cluster.to_string());
    [
        transport.serve::<ReadRegister>(COORDINATOR, move |request, responder| {
            if request.cluster != ours {
                return responder.fail(Error::connection_string_invalid);
            }
            let _ = reads.send(Access::Read(request, responder)); // ended: the responder says so
        }),
        transport.serve::<WriteRegister>(COORDINATOR, move |request, responder| {
            if request.cluster != ours_too {
                return responder.fail(Error::connection_string_invalid);
            }
            let _ = writes.send(Access::Write(request, responder)); // ended: the responder says so
        }),
    ]
}

/// One access at a time: persist, then answer.
async fn keep_register(
    mut state: RegisterState,
    path: PathBuf,
    mut accesses: QueueReceiver<Access>,
) -> Error {
    while let Some(access) = accesses.recv().await {
        let changed = match &access {
            Access::Read(request, _) => state.read(request).1,
            Access::Write(request, _) => state.write(request).1,
        };
        while changed && let Err(error) = disk::write_file_durably(&path, encode(&state)).await {
            trace_warn!("CoordinatorDiskFailed", "file" => path.display(), "error" => error);
            if !is_disk_full(&error) {
                return Error::io_error;
            }
            // Nothing was answered: whoever asked waits, or asks another, until there is room again.
            probe!("coordinator_disk_full");
            plinth_runtime::sleep(DISK_FULL_PAUSE).await;
        }
        // Asked again, the same access changes nothing and gives the reply.
        match access {
            Access::Read(request, responder) => responder.ok(state.read(&request).0),
            Access::Write(request, responder) => {
                let highest = state.read_generation.max(state.write_generation);
                responder.ok(WriteRegisterReply {
                    accepted: changed,
                    highest,
                });
                debug_assert!(!changed || state.write_generation == request.generation);
            }
        }
    }
    Error::operation_cancelled
}

fn is_disk_full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
    )
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
        self.candidates.borrow_mut().insert(key, seen);
        let candidates = self.candidates.borrow();
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
    cluster: &str,
    votes: &Rc<Votes>,
) -> [plinth_rpc::Registration; 3] {
    let (a, b, c) = (votes.clone(), votes.clone(), votes.clone());
    let (x, y, z) = (
        cluster.to_string(),
        cluster.to_string(),
        cluster.to_string(),
    );
    let stranger = Error::connection_string_invalid;
    [
        transport.serve::<Nominate>(COORDINATOR, move |request, responder| {
            if request.cluster != x {
                return responder.fail(stranger);
            }
            responder.ok(NominateReply {
                nominee: a.nominate(request),
            });
        }),
        transport.serve::<Withdraw>(COORDINATOR, move |request, responder| {
            if request.cluster != y {
                return responder.fail(stranger);
            }
            b.withdraw(request.id);
            responder.ok(());
        }),
        transport.serve::<GetLeader>(COORDINATOR, move |request, responder| {
            if request.cluster != z {
                return responder.fail(stranger);
            }
            responder.ok(GetLeaderReply { leader: c.leader() });
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(number: u64) -> Generation {
        Generation {
            number,
            writer: Uid(1),
        }
    }

    fn read(state: &mut RegisterState, number: u64) -> ReadRegisterReply {
        state
            .read(&ReadRegister {
                cluster: "a:b".into(),
                generation: generation(number),
            })
            .0
    }

    fn write(state: &mut RegisterState, number: u64, value: &'static str) -> bool {
        let value = Bytes::from_static(value.as_bytes());
        state
            .write(&WriteRegister {
                cluster: "a:b".into(),
                generation: generation(number),
                value,
            })
            .0
            .accepted
    }

    #[test]
    fn a_read_fences_every_write_below_it() {
        let mut state = RegisterState::new("a:b".into());
        assert!(write(&mut state, 1, "one"));
        assert_eq!(read(&mut state, 5).value.as_deref(), Some(&b"one"[..]));
        assert!(!write(&mut state, 4, "four"));
        assert!(write(&mut state, 5, "five"));
        assert!(!write(&mut state, 5, "again"));
        assert_eq!(read(&mut state, 2).value.as_deref(), Some(&b"five"[..]));
        assert_eq!(state.read_generation, generation(5));
    }

    #[test]
    fn what_is_on_disk_is_refused_with_any_bit_flipped() {
        let mut state = RegisterState::new("a:b".into());
        write(&mut state, 3, "value");
        let bytes = encode(&state);
        assert_eq!(decode(&bytes), Some(state));
        for bit in 0..bytes.len() * 8 {
            let mut broken = bytes.to_vec();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&Bytes::from(broken)), None, "bit {bit}");
        }
    }
}
