//! The log server's shell: takes pushes off the network, lets one sync serve everything that has gathered, answers
//! peeks as soon as there is something to see.

use crate::cursor;
use crate::disk_queue::{self, Block, DiskQueue, Position};
use crate::log_server::{Begin, Entry, LogServer, Peeked, Popped, Recovery, VersionEntry};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::log_body::LogBodyBuilder;
use plinth_core::{Epoch, Error, Result, Tag, Uid, Version};
use plinth_protocol::control::ClusterInfo;
use plinth_protocol::log::{
    ConfirmEpoch, GetLogStatus, LogStatus, POPPED_FOR_EVER, Peek, PeekReply, Pop, Push, PushReply,
    RecruitLog, Seal, SealReply, VersionedMessages,
};
use plinth_rpc::{FailureBeacon, Registration, Responder, Transport, Waiters};
use plinth_runtime::gauge::Gauge;
use plinth_runtime::knobs::knobs;
use plinth_runtime::standing::Standing;
use plinth_runtime::sync::{Notify, Watch};
use plinth_runtime::{Duration, Either, buggify, fault, probe, trace, trace_warn};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

/// Peeks that may wait here; more are refused.
const PEEKS_WAITING_MAX: usize = 10_000;

/// A log server's life.
pub type Life = Pin<Box<dyn Future<Output = ()>>>;

/// Entries that are on their way to the next block.
#[derive(Default)]
struct Gathering {
    block: Block,
    /// First and last version in it.
    versions: Option<(Version, Version)>,
}

struct Shell {
    transport: Transport,
    id: Uid,
    server: RefCell<LogServer>,
    gathering: RefCell<Gathering>,
    written: Notify,
    pushes: RefCell<BTreeMap<Version, Vec<Responder<Push>>>>,
    peeks: Waiters<Peek, Peek>,
    seals: RefCell<Vec<Responder<Seal>>>,
    /// Seals that the block under way covers.
    queue_bytes: Cell<u64>,
    /// Peeks of spilled data, served between two commits.
    disk_peeks: RefCell<Vec<(Position, Peek, Responder<Peek>)>>,
    cut_wanted: Cell<bool>,
    disk_full: Cell<bool>,
    /// How long blocks take to the disk.
    sync: RefCell<Standing>,
}

/// Makes the log server of a new generation: copies what it takes over (FDB §2.4.4), has it on disk, then serves.
pub async fn create(
    transport: &Transport,
    prefix: &Path,
    request: RecruitLog,
    info: Watch<Option<ClusterInfo>>,
) -> Result<Life> {
    let place = request.place as usize;
    let generation = &request.generation;
    if generation
        .logs
        .get(place)
        .is_none_or(|log| log.id != request.id)
    {
        return Err(Error::client_invalid_operation);
    }
    let mine: Vec<Tag> = request
        .tags
        .iter()
        .copied()
        .filter(|tag| generation.log_set(*tag).any(|p| p == place))
        .collect();
    let mut queue = DiskQueue::create(prefix, request.id).await?;
    let begin = Begin {
        epoch: request.epoch,
        prev_version: generation.start - 1,
        start: generation.start,
    };
    let mut server = LogServer::new(&begin);
    let mut block = Block::default();
    put(&mut block, &Entry::Begin(begin));
    let copied = copy_tail(transport, &request, &mine).await?;
    let (mut first, mut last) = (generation.recovered_to, generation.start - 1);
    for (version, body) in copied {
        first = first.min(version);
        last = version;
        let entry = VersionEntry {
            version,
            known_committed: generation.start - 1,
            body,
        };
        server.take(&entry)?;
        put(&mut block, &Entry::Version(entry));
    }
    if generation.recovered_to > last {
        // The chain goes on from RV, whether or not anything of ours happened there.
        last = generation.recovered_to;
        first = first.min(last);
        let entry = VersionEntry {
            version: last,
            known_committed: generation.start - 1,
            body: Bytes::new(),
        };
        server.take(&entry)?;
        put(&mut block, &Entry::Version(entry));
    }
    let bytes = block.bytes();
    let persisted = queue.commit(&block).await?;
    server.became_durable(persisted.position, first, last, bytes);
    trace!("LogCreated", "id" => request.id, "epoch" => request.epoch, "copied_to" => last, "bytes" => bytes);
    Ok(start(transport, request.id, server, queue, info))
}

/// The versions `[start, recovered_to]` of the tags that are ours, from the generation before.
async fn copy_tail(
    transport: &Transport,
    request: &RecruitLog,
    mine: &[Tag],
) -> Result<BTreeMap<Version, Bytes>> {
    let generation = &request.generation;
    let Some(old) = request.old.current() else {
        return Ok(BTreeMap::new());
    };
    let anyone = vec![true; old.logs.len()];
    let mut bodies: BTreeMap<Version, LogBodyBuilder> = BTreeMap::new();
    for tag in mine
        .iter()
        .skip(usize::from(fault::is_planted("drop_tag_at_recovery")))
    {
        let range = generation.start..=generation.recovered_to;
        let messages = cursor::read_sealed(transport, old, &anyone, *tag, range).await?;
        for VersionedMessages { version, runs } in messages {
            let body = bodies.entry(version).or_default();
            runs.iter().for_each(|run| body.push(&[*tag], run));
        }
    }
    if !bodies.is_empty() {
        probe!("log_copies_tail_at_recovery");
    }
    Ok(bodies
        .into_iter()
        .map(|(version, body)| (version, body.finish()))
        .collect())
}

/// Brings back a log server from its disk. It takes no more pushes. `None`: its creation was never finished.
pub async fn reopen(
    transport: &Transport,
    prefix: &Path,
    id: Uid,
    info: Watch<Option<ClusterInfo>>,
) -> Result<Option<(Epoch, Life)>> {
    let mut recovery = Recovery::default();
    let memory_bytes_max = knobs().log_memory_bytes_max as usize;
    let opened = DiskQueue::open(prefix, id, |position, block| {
        let bytes = block.len();
        let entries = decode_entries(&block)?;
        recovery.block(position, &entries, bytes, memory_bytes_max)
    });
    let Some(queue) = opened.await? else {
        return Ok(None);
    };
    let Some(server) = recovery.finish() else {
        return Ok(None);
    };
    let epoch = server.epoch();
    trace!("LogRecovered", "id" => id, "epoch" => epoch, "durable" => server.durable());
    Ok(Some((epoch, start(transport, id, server, queue, info))))
}

fn put(block: &mut Block, entry: &Entry) {
    block.push(&[&entry.to_bytes()]);
}

fn decode_entries(block: &Bytes) -> Result<Vec<Entry>> {
    let entries = disk_queue::entries(block).ok_or(Error::file_corrupt)?;
    entries
        .into_iter()
        .map(|bytes| Entry::from_bytes(bytes).ok_or(Error::file_corrupt))
        .collect()
}

fn start(
    transport: &Transport,
    id: Uid,
    server: LogServer,
    queue: DiskQueue,
    info: Watch<Option<ClusterInfo>>,
) -> Life {
    let beacon = FailureBeacon::new(transport, id);
    let shell = Rc::new(Shell {
        transport: transport.clone(),
        id,
        server: RefCell::new(server),
        gathering: RefCell::default(),
        written: Notify::new(),
        pushes: RefCell::default(),
        peeks: Waiters::new("log_peeks"),
        seals: RefCell::default(),
        queue_bytes: Cell::new(0),
        disk_peeks: RefCell::default(),
        cut_wanted: Cell::new(false),
        disk_full: Cell::new(false),
        sync: RefCell::default(),
    });
    let serving = (shell.clone().serve(), shell.gauges());
    Box::pin(async move {
        let _serving = (beacon, serving);
        let work = shell.write_blocks(queue);
        let error = match plinth_runtime::race(work, shell.drop_dead_tags(info)).await {
            Either::Left(error) => error,
            Either::Right(never) => match never {},
        };
        trace!("LogEnded", "id" => shell.id, "reason" => error);
    })
}

impl Shell {
    fn gauges(self: &Rc<Self>) -> [Gauge; 3] {
        [
            Gauge::of("log_pushes", self, |s| s.pushes.borrow().len()),
            Gauge::of("log_disk_peeks", self, |s| s.disk_peeks.borrow().len()),
            Gauge::of("log_seals", self, |s| s.seals.borrow().len()),
        ]
    }

    fn serve(self: Rc<Self>) -> Vec<Registration> {
        let (id, transport) = (self.id, self.transport.clone());
        let (a, b, c, d, e, f) = (
            self.clone(),
            self.clone(),
            self.clone(),
            self.clone(),
            self.clone(),
            self,
        );
        vec![
            transport.serve::<Push>(id, move |push, responder| a.push(push, responder)),
            transport.serve::<Peek>(id, move |peek, responder| b.peek(peek, responder)),
            transport.serve::<Pop>(id, move |pop, responder| {
                c.pop(&pop);
                responder.ok(());
            }),
            transport.serve::<Seal>(id, move |seal, responder| d.seal(&seal, responder)),
            transport.serve::<ConfirmEpoch>(id, move |request, responder| {
                let server = e.server.borrow();
                let lives = !server.is_sealed() && server.epoch() == request.epoch;
                responder.send(if lives {
                    Ok(())
                } else {
                    Err(Error::tlog_stopped)
                });
            }),
            transport.serve::<GetLogStatus>(id, move |_, responder| responder.ok(f.status())),
        ]
    }

    fn push(&self, push: Push, responder: Responder<Push>) {
        let version = push.version;
        let mut server = self.server.borrow_mut();
        let before = server.version();
        let taken = match server.push(push) {
            Ok(taken) => taken,
            Err(error) => return responder.fail(error),
        };
        if version <= server.durable() {
            return responder.ok(PushReply {
                durable: server.durable(),
            });
        }
        if fault::is_planted("reply_before_fsync") {
            responder.ok(PushReply { durable: version });
            return self.gather(before, taken, server);
        }
        if version > server.version() {
            probe!("log_push_out_of_order");
        }
        self.pushes
            .borrow_mut()
            .entry(version)
            .or_default()
            .push(responder);
        self.gather(before, taken, server);
    }

    /// Puts what was taken after version `before` into the next block.
    fn gather(&self, before: Version, taken: Vec<VersionEntry>, server: RefMut<'_, LogServer>) {
        let (Some(first), last) = (taken.first().map(|entry| entry.version), server.version())
        else {
            return;
        };
        let mut gathering = self.gathering.borrow_mut();
        if gathering.block.is_empty() {
            put(
                &mut gathering.block,
                &Entry::Begin(server.begin_entry(before)),
            );
        }
        for entry in taken {
            put(&mut gathering.block, &Entry::Version(entry));
        }
        gathering.versions = Some((gathering.versions.map_or(first, |v| v.0), last));
        drop((gathering, server));
        self.written.notify_one();
        self.answer_peeks();
    }

    fn peek(&self, peek: Peek, responder: Responder<Peek>) {
        let bytes_max = (peek.bytes_max as usize).min(8 << 20);
        let peeked = self.server.borrow().peek(peek.tag, peek.begin, bytes_max);
        match peeked {
            Peeked::Reply(reply) => responder.ok(reply),
            Peeked::Blocked if peek.return_if_blocked => {
                let server = self.server.borrow();
                let (end, known_committed) = (server.version() + 1, server.known_committed());
                responder.ok(PeekReply {
                    messages: vec![],
                    end,
                    known_committed,
                    popped: 0,
                });
            }
            Peeked::Blocked if self.peeks.len() >= PEEKS_WAITING_MAX => {
                responder.fail(Error::server_request_queue_full);
            }
            Peeked::Blocked => self.peeks.add(peek, responder),
            Peeked::OnDisk(_) if self.disk_peeks.borrow().len() >= PEEKS_WAITING_MAX => {
                responder.fail(Error::server_request_queue_full);
            }
            Peeked::OnDisk(position) => {
                probe!("log_peek_from_disk");
                self.disk_peeks
                    .borrow_mut()
                    .push((position, peek, responder));
                self.written.notify_one();
            }
        }
    }

    fn answer_peeks(&self) {
        for (peek, responder) in self.peeks.take() {
            self.peek(peek, responder);
        }
    }

    /// Nobody asks again for the tag of a storage server that is no more (pitfall 17).
    async fn drop_dead_tags(&self, info: Watch<Option<ClusterInfo>>) -> Infallible {
        loop {
            let dead = info.with(|info| match info {
                Some(info) => self.server.borrow().tags_without_owner(info),
                None => Vec::new(),
            });
            for tag in dead {
                probe!("log_drops_dead_tag");
                trace!("DeadTag", "id" => self.id, "tag" => tag.0);
                let version = POPPED_FOR_EVER;
                self.pop(&Pop { tag, version });
            }
            info.changed().await;
        }
    }

    fn pop(&self, pop: &Pop) {
        let mut server = self.server.borrow_mut();
        if server.pop(pop.tag, pop.version) {
            let mut gathering = self.gathering.borrow_mut();
            // Written along with the next block; a pop that is lost is repeated by its owner.
            if !gathering.block.is_empty() {
                put(
                    &mut gathering.block,
                    &Entry::Popped(Popped {
                        tag: pop.tag,
                        version: pop.version,
                    }),
                );
            }
            self.cut_wanted.set(true);
            self.written.notify_one();
        }
    }

    fn seal(&self, seal: &Seal, responder: Responder<Seal>) {
        let mut server = self.server.borrow_mut();
        if seal.epoch <= server.epoch() {
            return responder.fail(Error::operation_obsolete);
        }
        server.seal();
        let mut gathering = self.gathering.borrow_mut();
        if gathering.block.is_empty() {
            put(
                &mut gathering.block,
                &Entry::Begin(server.begin_entry(server.version())),
            );
        }
        put(&mut gathering.block, &Entry::Seal(seal.epoch));
        self.seals.borrow_mut().push(responder);
        drop((gathering, server));
        // Pushes that wait for a link that will never be taken must not keep their proxy waiting.
        let mut pushes = self.pushes.borrow_mut();
        let beyond = pushes.split_off(&(self.server.borrow().version() + 1));
        drop(pushes);
        beyond
            .into_values()
            .flatten()
            .for_each(|responder| responder.fail(Error::tlog_stopped));
        self.written.notify_one();
    }

    fn status(&self) -> LogStatus {
        let sync = self.sync.borrow_mut().least(plinth_runtime::now());
        let server = self.server.borrow();
        LogStatus {
            epoch: server.epoch(),
            version: server.version(),
            durable: server.durable(),
            known_committed: server.known_committed(),
            sealed: server.is_sealed(),
            queue_bytes: self.queue_bytes.get(),
            memory_bytes: server.memory_bytes() as u64,
            sync_s: sync.map_or(0.0, |took| took.as_secs_f64()),
            needed_from: server.needed_from(),
            disk_full: self.disk_full.get(),
        }
    }

    /// Writes one block after the other: persist, then answer.
    async fn write_blocks(&self, mut queue: DiskQueue) -> Error {
        loop {
            self.answer_from_disk(&queue).await;
            if self.cut_wanted.take() {
                let place = self.server.borrow_mut().cut();
                if let Some(position) = place {
                    queue.pop(position).await;
                }
            }
            if self.gathering.borrow().block.is_empty() {
                self.written.notified().await;
                // Whatever else arrives in this turn shares the sync.
                plinth_runtime::yield_now().await;
                if self.gathering.borrow().block.is_empty() {
                    continue;
                }
            }
            if buggify!() {
                plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::below(20)))
                    .await;
            }
            let Gathering { block, versions } = self.gathering.take();
            let seals = self.seals.take();
            let begun = plinth_runtime::now();
            let persisted = loop {
                match queue.commit(&block).await {
                    Ok(persisted) => break persisted,
                    Err(Error::disk_full) => {
                        // Nothing was acknowledged: commits wait until there is room again.
                        probe!("log_disk_full");
                        if !self.disk_full.replace(true) {
                            trace_warn!("LogDiskFull", "id" => self.id);
                        }
                        plinth_runtime::sleep(Duration::from_millis(500)).await;
                    }
                    Err(error) => return error,
                }
            };
            let now = plinth_runtime::now();
            self.sync.borrow_mut().add(now, now.saturating_since(begun));
            self.disk_full.set(false);
            self.queue_bytes.set(queue.bytes());
            if let Some((first, last)) = versions {
                let mut server = self.server.borrow_mut();
                server.became_durable(persisted.position, first, last, block.bytes());
                server.spill(knobs().log_memory_bytes_max as usize);
            }
            self.answer_durable(seals);
        }
    }

    fn answer_durable(&self, seals: Vec<Responder<Seal>>) {
        let (durable, known_committed) = {
            let server = self.server.borrow();
            (server.durable(), server.known_committed())
        };
        let done = {
            let mut pushes = self.pushes.borrow_mut();
            let later = pushes.split_off(&(durable + 1));
            std::mem::replace(&mut *pushes, later)
        };
        done.into_values()
            .flatten()
            .for_each(|responder| responder.ok(PushReply { durable }));
        for responder in seals {
            responder.ok(SealReply {
                durable,
                known_committed,
            });
        }
    }

    /// Serves peeks of what has left memory.
    async fn answer_from_disk(&self, queue: &DiskQueue) {
        for (position, peek, responder) in self.disk_peeks.take() {
            responder.send(self.read_for(queue, position, &peek).await);
        }
    }

    async fn read_for(
        &self,
        queue: &DiskQueue,
        mut position: Position,
        peek: &Peek,
    ) -> Result<PeekReply> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        let mut exhausted = true;
        while let Some((block, next)) = queue.read(position).await? {
            let found = decode_entries(&block)?;
            let useful = found
                .iter()
                .any(|e| matches!(e, Entry::Version(v) if v.version >= peek.begin));
            if useful {
                bytes += block.len();
                entries.extend(found);
            }
            if bytes >= peek.bytes_max as usize && useful {
                exhausted = false;
                break;
            }
            position = next;
        }
        self.server
            .borrow()
            .reply_from_disk(peek.tag, peek.begin, &entries, exhausted)
    }
}
