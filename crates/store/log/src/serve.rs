//! The log server's shell: receives pushes, serves everything that has gathered with one sync, and answers peeks as
//! soon as there is something to return.

use crate::disk_queue::{Block, DiskQueue, Position};
use crate::disk_reads::{DiskRead, DiskReads, REPLY_BYTES_MAX};
use crate::entries::{self, BLOCK_BYTES_WANTED, put};
use crate::knobs::LOG_MEMORY_BYTES_MAX;
use crate::log_server::{Entry, LogServer, Peeked, Popped, Recovery, VersionEntry};
use crate::traces::Traces;
use plinth_core::{Epoch, Error, Result, Uid, Version};
use plinth_protocol::DurableVersion;
use plinth_protocol::control::ClusterInfo;
use plinth_protocol::log::{
    ConfirmEpoch, CopyTail, GetLogStatus, LogStatus, POPPED_FOR_EVER, Peek, PeekReply, Pop, Push,
    PushReply, Seal, SealReply, TracePush,
};
use plinth_protocol::tally;
use plinth_rpc::{FailureBeacon, Registration, Responder, Transport, Waiters};
use plinth_runtime::disk::Synced;
use plinth_runtime::gauge::Gauge;
use plinth_runtime::standing::Standing;
use plinth_runtime::sync::{Notify, Watch};
use plinth_runtime::tally::Tally;
use plinth_runtime::{Boxed, Duration, Either, buggify, planted, probe, trace, trace_warn};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

/// Peeks that may wait here; more are refused.
const PEEKS_WAITING_MAX: usize = 10_000;

/// The future that runs a log server. Its output is the reason why it ended.
pub type Life = Pin<Box<dyn Future<Output = Error>>>;

/// A block that is on its way to the disk.
#[derive(Default)]
struct Gathering {
    block: Block,
    /// First and last version in it.
    versions: Option<(Version, Version)>,
    /// Answered when the block is on disk.
    seals: Vec<Responder<Seal>>,
    /// The oldest segment that is needed when the block is on disk.
    oldest: u32,
}

impl Gathering {
    /// A block whose first version follows `version`.
    fn after(version: Version, server: &LogServer, oldest: u32) -> Self {
        let mut gathering = Gathering {
            oldest,
            ..Gathering::default()
        };
        let begin = Entry::Begin(server.begin_entry(version));
        put(&mut gathering.block, &begin);
        put(&mut gathering.block, &Entry::Oldest(oldest));
        gathering
    }
}

struct Shell {
    transport: Transport,
    id: Uid,
    server: RefCell<LogServer>,
    /// Blocks in the order in which they are written. New entries go into the last one.
    gathering: RefCell<VecDeque<Gathering>>,
    written: Notify,
    pushes: RefCell<BTreeMap<Version, Vec<Responder<Push>>>>,
    traces: Traces,
    peeks: Waiters<Peek, Peek>,
    queue_bytes: Cell<u64>,
    /// Served between two commits.
    disk_reads: DiskReads,
    cut_wanted: Cell<bool>,
    /// The oldest segment that is needed. Segments before it are removed when a block on disk says so.
    oldest: Cell<u32>,
    disk_full: Cell<bool>,
    /// How long it takes to write blocks to the disk.
    sync: RefCell<Standing>,
    input_bytes: Tally,
    durable_bytes: Tally,
    peeked: Tally,
    peeked_cold: Tally,
}

/// A log server that was brought back.
pub struct Reopened {
    pub epoch: Epoch,
    pub life: Life,
    /// What it cannot read, if its files are damaged: versions behind the first of each pair, up to the second. It
    /// serves the rest.
    pub damage: Option<Vec<(Version, Version)>>,
}

/// Brings back a log server from its disk. It takes no more pushes. `None` if its creation was never finished.
pub fn reopen<'a>(
    transport: &'a Transport,
    prefix: &'a Path,
    id: Uid,
    info: Watch<Option<ClusterInfo>>,
) -> Boxed<'a, Result<Option<Reopened>>> {
    Box::pin(async move {
        let mut recovery = Recovery::default();
        let memory_bytes_max = LOG_MEMORY_BYTES_MAX.get();
        let opened = DiskQueue::open(prefix, id, |persisted, block| {
            let bytes = block.len();
            recovery.block(&persisted, &entries::of(&block)?, bytes, memory_bytes_max)
        });
        let (queue, server, damage) = match opened.await {
            Err(error) if error.is_damage() => {
                let Some((queue, server)) = open_what_is_left(prefix, id).await? else {
                    return Err(error);
                };
                let lost = server.lost().to_vec();
                (queue, server, Some(lost))
            }
            Err(error) => return Err(error),
            Ok(None) => return Ok(None),
            Ok(Some(queue)) => match recovery.finish()? {
                Some(server) => (queue, server, None),
                None => return Ok(None),
            },
        };
        let epoch = server.epoch();
        trace!("LogRecovered", "id" => id, "epoch" => epoch, "durable" => server.durable());
        let life = start(transport, id, server, queue, info);
        Ok(Some(Reopened {
            epoch,
            life,
            damage,
        }))
    })
}

/// Opens damaged files for what can be read of them. `None` if nothing can.
async fn open_what_is_left(prefix: &Path, id: Uid) -> Result<Option<(DiskQueue, LogServer)>> {
    let mut recovery = Recovery::of_what_is_left();
    let memory_bytes_max = LOG_MEMORY_BYTES_MAX.get();
    let opened = DiskQueue::open_what_is_left(prefix, id, |persisted, block| {
        let bytes = block.len();
        recovery.block(&persisted, &entries::of(&block)?, bytes, memory_bytes_max)
    });
    let Some(queue) = opened.await? else {
        return Ok(None);
    };
    let Some(server) = recovery.finish_damaged(queue.begins_behind_damage())? else {
        return Ok(None);
    };
    probe!("log_serves_what_is_left");
    let lost = format!("{:?}", server.lost());
    trace_warn!("LogServesWhatIsLeft", "id" => id, "epoch" => server.epoch(), "lost" => lost);
    Ok(Some((queue, server)))
}

pub(crate) fn start(
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
        traces: Traces::default(),
        peeks: Waiters::new("log_peeks"),
        queue_bytes: Cell::new(0),
        disk_reads: DiskReads::default(),
        cut_wanted: Cell::new(false),
        oldest: Cell::new(queue.first_segment()),
        disk_full: Cell::new(false),
        sync: RefCell::default(),
        input_bytes: Tally::of(id, tally::INPUT_BYTES),
        durable_bytes: Tally::of(id, tally::DURABLE_BYTES),
        peeked: Tally::of(id, tally::PEEKS),
        peeked_cold: Tally::of(id, tally::COLD_PEEKS),
    });
    let serving = (shell.clone().serve(), shell.gauges());
    Box::pin(async move {
        let _serving = (beacon, serving);
        let work = shell.write_blocks(queue);
        let error = match plinth_runtime::race(work, shell.drop_dead_tags(info)).await {
            Either::Left(error) => error,
            Either::Right(never) => match never {},
        };
        trace_warn!("LogEnded", "id" => shell.id, "reason" => error);
        error
    })
}

impl Shell {
    fn gauges(self: &Rc<Self>) -> [Gauge; 3] {
        [
            Gauge::of("log_pushes", self, |s| s.pushes.borrow().len()),
            Gauge::of("log_disk_reads", self, |s| s.disk_reads.len()),
            Gauge::of("log_blocks", self, |s| s.gathering.borrow().len()),
        ]
    }

    fn serve(self: Rc<Self>) -> Vec<Registration> {
        let (id, transport) = (self.id, self.transport.clone());
        let [a, b, c, d, e, f, g, h] = std::array::from_fn(|_| self.clone());
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
            transport.serve::<TracePush>(id, move |asked, responder| {
                let has = h.server.borrow().durable().version();
                h.traces.ask(&asked, has, responder);
            }),
            transport.serve::<GetLogStatus>(id, move |_, responder| responder.ok(f.status())),
            transport.serve::<CopyTail>(id, move |copy, responder| {
                if g.disk_reads.len() >= PEEKS_WAITING_MAX {
                    return responder.fail(Error::server_request_queue_full);
                }
                g.disk_reads.push(DiskRead::Copy(copy, responder));
                g.written.notify_one();
            }),
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
        if version <= server.durable().version() {
            return responder.ok(PushReply {
                durable: server.durable(),
            });
        }
        if planted!(
            "reply_before_fsync",
            "a log server acknowledges a push that is not on disk yet"
        ) {
            let synced = Synced::pretended("reply_before_fsync");
            let durable = DurableVersion::new(version, synced);
            responder.ok(PushReply { durable });
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

    /// Puts the versions that were taken after version `before` into the next blocks.
    fn gather(&self, before: Version, taken: Vec<VersionEntry>, server: RefMut<'_, LogServer>) {
        if taken.is_empty() {
            return;
        }
        let mut gathering = self.gathering.borrow_mut();
        let mut before = before;
        for entry in taken {
            let version = entry.version;
            let full = |g: &Gathering| g.block.bytes() >= BLOCK_BYTES_WANTED;
            if gathering.back().is_none_or(full) {
                gathering.push_back(Gathering::after(before, &server, self.oldest.get()));
            }
            assert!(before < version, "a block has {version} after {before}");
            let last = gathering.back_mut().expect("there is one");
            let begun = last.block.bytes();
            put(&mut last.block, &Entry::Version(entry));
            self.input_bytes.add((last.block.bytes() - begun) as u64);
            last.versions = Some((last.versions.map_or(version, |v| v.0), version));
            before = version;
        }
        drop((gathering, server));
        self.written.notify_one();
        self.answer_peeks();
    }

    fn peek(&self, peek: Peek, responder: Responder<Peek>) {
        let bytes_max = (peek.bytes_max as usize).min(REPLY_BYTES_MAX);
        let peeked = self.server.borrow().peek(peek.tag, peek.begin, bytes_max);
        match peeked {
            Peeked::Reply(reply) => {
                self.peeked.add(1);
                responder.ok(reply);
            }
            Peeked::Damaged => responder.fail(Error::file_corrupt),
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
            Peeked::OnDisk if self.disk_reads.len() >= PEEKS_WAITING_MAX => {
                responder.fail(Error::server_request_queue_full);
            }
            Peeked::OnDisk => {
                probe!("log_peek_from_disk");
                self.peeked.add(1);
                self.peeked_cold.add(1);
                self.disk_reads.push(DiskRead::Peek(peek, responder));
                self.written.notify_one();
            }
        }
    }

    fn answer_peeks(&self) {
        for (peek, responder) in self.peeks.take() {
            self.peek(peek, responder);
        }
    }

    /// Pops the tags of storage servers that no longer exist: nothing asks for them again (pitfall 17).
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
            // Written with the block that is gathering, if there is one. If a pop is lost, the tag's owner repeats it.
            if let Some(last) = self.gathering.borrow_mut().back_mut() {
                let popped = Popped {
                    tag: pop.tag,
                    version: pop.version,
                };
                put(&mut last.block, &Entry::Popped(popped));
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
        trace!("LogSealed", "id" => self.id, "epoch" => server.epoch(), "by" => seal.epoch);
        let mut gathering = self.gathering.borrow_mut();
        if gathering.is_empty() {
            let oldest = self.oldest.get();
            gathering.push_back(Gathering::after(server.version(), &server, oldest));
        }
        let last = gathering.back_mut().expect("there is one");
        put(&mut last.block, &Entry::Seal(seal.epoch));
        last.seals.push(responder);
        drop((gathering, server));
        self.traces.forget();
        // Pushes that wait for a link that will never be taken must not make their proxy wait.
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
            durable: server.durable().version(),
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
            self.disk_reads.answer(&self.server, &queue).await;
            self.cut(&queue);
            if self.gathering.borrow().is_empty() {
                self.written.notified().await;
                // Everything else that arrives in this turn shares the sync.
                plinth_runtime::yield_now().await;
            }
            if buggify!() {
                plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::below(20)))
                    .await;
            }
            let next = self.gathering.borrow_mut().pop_front();
            let Some(Gathering {
                block,
                versions,
                seals,
                oldest,
            }) = next
            else {
                continue;
            };
            let block = block.finish();
            let begun = plinth_runtime::now();
            self.traces.begins(versions);
            let persisted = loop {
                match queue.commit(&block).await {
                    Ok(persisted) => break persisted,
                    Err(Error::disk_full) => {
                        // Nothing was acknowledged. Commits wait until there is room again.
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
            self.durable_bytes.add(block.bytes() as u64);
            self.queue_bytes.set(queue.bytes());
            self.traces.ends(self.id, versions, block.bytes());
            if let Some((first, last)) = versions {
                let mut server = self.server.borrow_mut();
                server.became_durable(&persisted, first, last, block.bytes());
                server.spill(LOG_MEMORY_BYTES_MAX.get());
            }
            self.answer_durable(seals);
            if oldest > queue.first_segment() {
                let position = Position::start_of(oldest);
                self.disk_reads.forget_before(position);
                queue.pop(position).await;
            }
        }
    }

    /// Has segments removed that no tag needs. A block on disk must say so first.
    fn cut(&self, queue: &DiskQueue) {
        let mut server = self.server.borrow_mut();
        assert!(
            queue.first_segment() <= self.oldest.get(),
            "segment {} is needed, and the first is {}",
            self.oldest.get(),
            queue.first_segment()
        );
        if self.cut_wanted.take()
            && let Some(position) = server.cut()
            && position.segment > self.oldest.get()
        {
            self.oldest.set(position.segment);
            // The pops in these segments go with them. Without a record of a pop, popped data would look as if it had
            // never existed.
            let mut said = Gathering::after(server.version(), &server, position.segment);
            let put_popped = |popped| put(&mut said.block, &Entry::Popped(popped));
            server.all_popped().for_each(put_popped);
            return self.gathering.borrow_mut().push_back(said);
        }
        let oldest = self.oldest.get();
        let mut gathering = self.gathering.borrow_mut();
        if oldest > queue.first_segment() && gathering.is_empty() {
            gathering.push_back(Gathering::after(server.version(), &server, oldest));
        }
    }

    fn answer_durable(&self, seals: Vec<Responder<Seal>>) {
        let reply = {
            let server = self.server.borrow();
            SealReply {
                durable: server.durable(),
                known_committed: server.known_committed(),
                came_back: server.came_back(),
                lost: server.lost().to_vec(),
            }
        };
        let durable = reply.durable;
        let done = {
            let mut pushes = self.pushes.borrow_mut();
            let later = pushes.split_off(&(durable.version() + 1));
            std::mem::replace(&mut *pushes, later)
        };
        done.into_values()
            .flatten()
            .for_each(|responder| responder.ok(PushReply { durable }));
        for responder in seals {
            responder.ok(reply.clone());
        }
    }
}
