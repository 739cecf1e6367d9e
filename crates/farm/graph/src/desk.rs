//! [`Ship`] over a fabric: one desk a machine, which sends requests of its own and serves those of others.

use crate::codec::Code;
use crate::error::{Error, Result, at_most};
use crate::frames::{Assembly, Kind, WHOLE_BYTES_MAX, frames};
use crate::graph::Graph;
use crate::ship::{Ship, parse, reply, serve};
use plinth_farm_fabric::{self as fabric, Fabric, MESSAGE_BYTES_MAX, Machine, Message};
use plinth_farm_memory::{Abort, Objects, Pointer};
use plinth_farm_structures::btree::Cache;
use plinth_runtime::sync::{OneshotSender, oneshot};
use plinth_runtime::{Duration, TaskGroup, planted, probe, random, sleep, timeout, yield_now};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::{Rc, Weak};

/// Most requests that a desk serves at a time. Others are refused, and may be tried again.
const SERVED_MAX: usize = 64;
/// Graphs of which a desk remembers the schema.
const GRAPHS_MAX: usize = 16;
/// A frame takes no more than this part of a ring, so that others find room beside it.
const RING_PARTS: u64 = 8;

/// What a desk asks of the engine of its machine.
pub trait Snapshots: 'static {
    type Transaction: Objects;

    /// A transaction that only reads, at the snapshot of another machine's transaction that is active.
    fn at(
        &self,
        read_at: u64,
    ) -> impl Future<Output = std::result::Result<Self::Transaction, Abort>>;

    /// The machine with the primary of a region.
    fn primary(&self, region: u16) -> Option<Machine>;
}

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a request waits for its answer.
    pub limit: Duration,
    /// Between two attempts to put a frame into a full ring. Zero is one turn of the loop: for real machines.
    pub pause: Duration,
    /// Most bytes of a message of the fabric. Longer requests and answers go in pieces.
    pub frame_bytes: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            limit: Duration::from_secs(5),
            pause: Duration::ZERO,
            frame_bytes: 64 << 10,
        }
    }
}

struct Inner<F, S> {
    fabric: Rc<F>,
    room: u8,
    snapshots: S,
    settings: Settings,
    cache: Cache,
    graphs: RefCell<BTreeMap<Pointer, Graph>>,
    assembly: RefCell<Assembly>,
    /// Who waits for the answer to a call, and from whom it must come.
    waiting: RefCell<BTreeMap<u64, (Machine, OneshotSender<Vec<u8>>)>>,
    last_call: Cell<u64>,
    /// Snapshot of the last request; 0 before the first.
    last_read_at: Cell<u64>,
    group: TaskGroup,
}

/// Sends stages of queries to other machines, and serves those that come from there. It serves as long as it is
/// there.
pub struct Desk<F: Fabric + 'static, S: Snapshots>(Rc<Inner<F, S>>);

impl<F: Fabric + 'static, S: Snapshots> Desk<F, S> {
    /// `room` is the first byte of its messages of the fabric; whoever takes such a message calls the
    /// [`handler`](Desk::handler) with it. `cache` is for inner nodes of trees.
    pub fn new(fabric: Rc<F>, room: u8, snapshots: S, cache: &Cache, settings: Settings) -> Self {
        Desk(Rc::new(Inner {
            fabric,
            room,
            snapshots,
            settings,
            cache: cache.clone(),
            graphs: RefCell::default(),
            assembly: RefCell::default(),
            waiting: RefCell::default(),
            last_call: Cell::new(random::u64()),
            last_read_at: Cell::new(0),
            group: TaskGroup::new(),
        }))
    }

    /// Takes messages of the fabric, which may be anything.
    pub fn handler(&self) -> Rc<dyn Fn(&Message)> {
        let inner: Weak<Inner<F, S>> = Rc::downgrade(&self.0);
        Rc::new(move |message| {
            if let Some(inner) = inner.upgrade() {
                inner.take(message.from, &message.body);
            }
        })
    }
}

impl<F: Fabric + 'static, S: Snapshots> Drop for Desk<F, S> {
    fn drop(&mut self) {
        // Tasks have a part in what they work on.
        self.0.group.cancel_all();
    }
}

/// Forgets a call when nobody waits for it any more.
struct Waiting<'a, F, S> {
    inner: &'a Inner<F, S>,
    call: u64,
}

impl<F, S> Drop for Waiting<'_, F, S> {
    fn drop(&mut self) {
        self.inner.waiting.borrow_mut().remove(&self.call);
    }
}

impl<F: Fabric + 'static, S: Snapshots> Ship for Desk<F, S> {
    fn place(&self, region: u16) -> Option<Machine> {
        let own = self.0.fabric.local().machine();
        let primary = self.0.snapshots.primary(region);
        primary.filter(|machine| *machine != own)
    }

    async fn ship(&self, to: Machine, request: Vec<u8>) -> Result<Vec<u8>> {
        let inner = &self.0;
        at_most(
            "bytes of a stage of a query",
            request.len(),
            WHOLE_BYTES_MAX,
        )?;
        let call = inner.last_call.get().wrapping_add(1);
        inner.last_call.set(call);
        let (sender, receiver) = oneshot();
        let former = inner.waiting.borrow_mut().insert(call, (to, sender));
        assert!(former.is_none(), "two calls have number {call}");
        let _waiting = Waiting { inner, call };
        let answer = timeout(inner.settings.limit, async {
            let sent = inner.send(to, Kind::Request, call, &request).await;
            sent.ok()?;
            receiver.await.ok()
        });
        let answer = answer.await.flatten();
        answer.ok_or(Error::Gone { machine: to.0 })
    }
}

impl<F: Fabric + 'static, S: Snapshots> Inner<F, S> {
    fn frame_bytes(&self) -> usize {
        let ring = 8 * self.fabric.local().host().layout().ring_words / RING_PARTS;
        let ring = usize::try_from(ring).unwrap_or(usize::MAX);
        self.settings.frame_bytes.min(MESSAGE_BYTES_MAX).min(ring)
    }

    /// Sends a message in frames. Each waits for the one before, so they stay in order.
    async fn send(
        &self,
        to: Machine,
        kind: Kind,
        call: u64,
        bytes: &[u8],
    ) -> std::result::Result<(), fabric::Error> {
        for frame in frames(self.room, kind, call, bytes, self.frame_bytes()) {
            loop {
                match self.fabric.send(to, &frame).await {
                    Err(fabric::Error::Full) => {
                        probe!("graph_ring_is_full");
                        match self.settings.pause == Duration::ZERO {
                            true => yield_now().await,
                            false => sleep(self.settings.pause).await,
                        }
                    }
                    Err(error) => return Err(error),
                    Ok(()) => break,
                }
            }
        }
        Ok(())
    }

    fn take(self: &Rc<Self>, from: Machine, frame: &[u8]) {
        let whole = self.assembly.borrow_mut().take(from, frame);
        let Some((kind, call, bytes)) = whole else {
            return;
        };
        if kind == Kind::Answer {
            let mut waiting = self.waiting.borrow_mut();
            // Nobody waits for it any more, or it comes from another machine than the request went to.
            if waiting
                .get(&call)
                .is_some_and(|(machine, _)| *machine == from)
                && let Some((_, sender)) = waiting.remove(&call)
            {
                let _ = sender.send(bytes);
            }
            return;
        }
        let inner = Rc::downgrade(self);
        let is_busy = self.group.len() >= SERVED_MAX;
        self.group.spawn("graph stage", async move {
            let Some(inner) = inner.upgrade() else { return };
            let answer = match is_busy {
                true => reply(Err(Abort::Full.into())).encode(),
                false => inner.answer(&bytes).await,
            };
            // Who asked has gone, or gives up in its own time.
            let sent = inner.send(from, Kind::Answer, call, &answer);
            let _ = timeout(inner.settings.limit, sent).await;
        });
    }

    async fn answer(&self, request: &[u8]) -> Vec<u8> {
        let served = async {
            let mut request = parse(request)?;
            let former = self.last_read_at.replace(request.read_at);
            if planted!(
                "graph_stage_at_another_snapshot",
                "a stage is evaluated at the snapshot of the request before"
            ) && former > 0
            {
                request.read_at = former;
            }
            let tx = self.snapshots.at(request.read_at).await?;
            let known = self.graphs.borrow().get(&request.root).cloned();
            let graph = match known {
                Some(graph) => graph,
                None => {
                    let graph = Graph::open(&tx, request.root, &self.cache).await?;
                    let mut graphs = self.graphs.borrow_mut();
                    if graphs.len() >= GRAPHS_MAX {
                        graphs.clear();
                    }
                    graphs.insert(request.root, graph.clone());
                    graph
                }
            };
            Ok(serve(&graph, &tx, &request).await)
        };
        let served: Result<Vec<u8>> = served.await;
        served.unwrap_or_else(|error| reply(Err(error)).encode())
    }
}
