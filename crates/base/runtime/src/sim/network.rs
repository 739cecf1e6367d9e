//! The simulated network: connections as two one-way pipes.
//!
//! ```text
//!   write ──▶ under way (latency, clogs, partitions) ──▶ arrived ──▶ read
//!             └── together at most `connection_bytes_max`, then the writer waits ──┘
//! ```
//!
//! Written bytes travel in pieces, each with a latency of its own; no piece overtakes another. A partition or a
//! machine without power holds pieces back, as retransmission does; they continue when it is over. A connection that
//! is cut delivers some prefix of the bytes under way, and then fails on both sides.

use super::executor::{Arrives, Event, Kind};
use super::ids::{MachineId, ProcessId};
use super::{World, current};
use crate::random;
use bytes::{Buf, Bytes, BytesMut};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

/// Most bytes in one piece, and in one read.
const CHUNK_BYTES_MAX: usize = 128 << 10;
/// Most connections that wait to be accepted; more are refused.
const BACKLOG_MAX: usize = 1024;
const FIRST_EPHEMERAL_PORT: u16 = 49_152;
/// Pause before a connect without an answer is tried again.
const CONNECT_RETRY_NS: Range<u64> = 50_000_000..200_000_000;

#[derive(Default)]
pub(super) struct Network {
    listeners: BTreeMap<SocketAddr, Rc<ListenerState>>,
    connections: BTreeMap<u64, Rc<Connection>>,
    next_connection: u64,
    ports_given: u64,
    /// One-way partitions: nothing gets from the first machine to the second.
    blocked: BTreeSet<(MachineId, MachineId)>,
    /// One-way clogs, each until a point of true time.
    clogged: BTreeMap<(MachineId, MachineId), u64>,
}

impl Network {
    fn all(&self) -> Vec<Rc<Connection>> {
        self.connections.values().cloned().collect()
    }
}

pub(crate) struct Connection {
    id: u64,
    /// Its protocol finds damaged bytes by checksums of its own.
    is_checked: bool,
    ends: [End; 2],
    /// `pipes[i]` carries the bytes that `ends[i]` writes.
    pipes: [RefCell<Pipe>; 2],
}

struct End {
    process: ProcessId,
    machine: MachineId,
    life: Arc<AtomicBool>,
}

#[derive(Default)]
struct Pipe {
    under_way: VecDeque<(u64, Piece)>,
    arrived: VecDeque<Bytes>,
    arrived_bytes: usize,
    /// Bytes under way and arrived.
    queued_bytes: usize,
    last_arrival_ns: u64,
    /// An arrival event is in the heap.
    is_scheduled: bool,
    /// A piece is due and cannot get through. The end of a partition restarts such pipes.
    is_stalled: bool,
    /// The end of the stream, after the data.
    end: Option<StreamEnd>,
    /// Writes fail, because a reset has arrived.
    is_broken: bool,
    writer_is_gone: bool,
    reader_is_gone: bool,
    /// The reader's side has sent a reset because the reader is gone.
    reset_is_sent: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

enum Piece {
    Data(Bytes),
    End(StreamEnd),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamEnd {
    Closed,
    Reset,
}

pub(super) enum Path {
    Open,
    ClosedUntil(u64),
    Closed,
}

impl Pipe {
    /// Loses a random part of the bytes under way, always from the end.
    fn truncate_at_random(&mut self) {
        let total: usize = self.under_way.iter().map(|(_, piece)| piece.len()).sum();
        let mut keep = random::below(total as u64 + 1) as usize;
        let mut kept = VecDeque::new();
        for (at, piece) in self.under_way.drain(..) {
            let Piece::Data(mut data) = piece else {
                continue;
            };
            data.truncate(keep);
            keep -= data.len();
            if !data.is_empty() {
                kept.push_back((at, Piece::Data(data)));
            }
        }
        self.under_way = kept;
        let under_way: usize = self.under_way.iter().map(|(_, piece)| piece.len()).sum();
        self.queued_bytes = self.arrived_bytes + under_way;
    }

    fn discard_arrived(&mut self) {
        self.queued_bytes -= self.arrived_bytes;
        self.arrived_bytes = 0;
        self.arrived.clear();
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()]
            .into_iter()
            .flatten()
        {
            waker.wake();
        }
    }
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Data(data) => data.len(),
            Piece::End(_) => 0,
        }
    }
}

impl Arrives for Connection {
    fn arrive(self: Rc<Self>, world: &Rc<World>, direction: usize) {
        world.arrive(&self, direction);
    }
}

impl Connection {
    fn machines(&self, direction: usize) -> (MachineId, MachineId) {
        (
            self.ends[direction].machine,
            self.ends[1 - direction].machine,
        )
    }

    fn is_over(&self) -> bool {
        self.pipes.iter().all(|pipe| {
            let pipe = pipe.borrow();
            pipe.writer_is_gone && pipe.reader_is_gone
        })
    }
}

/// A random value from the range, mostly near the low end.
fn skewed(range: &Range<u64>) -> u64 {
    let u = random::unit();
    range.start + ((range.end - range.start) as f64 * u * u * u) as u64
}

impl World {
    pub(super) fn latency_ns(&self, (from, to): (MachineId, MachineId)) -> u64 {
        let config = self.config.borrow();
        if from == to {
            return 1000 * skewed(&config.loopback_latency_us);
        }
        let mut us = skewed(&config.network_latency_us);
        if random::chance(config.network_tail_probability) {
            us += random::below(config.network_tail_us_max + 1);
        }
        1000 * us
    }

    pub(super) fn path(&self, pair: (MachineId, MachineId)) -> Path {
        if !self.is_up(pair.1) {
            return Path::Closed;
        }
        let network = self.network.borrow();
        if network.blocked.contains(&pair) {
            return Path::Closed;
        }
        match network.clogged.get(&pair) {
            Some(&until) if until > self.executor.now() => Path::ClosedUntil(until),
            _ => Path::Open,
        }
    }

    /// Sends a piece, behind the pieces before it.
    fn send(&self, connection: &Rc<Connection>, direction: usize, piece: Piece) {
        let latency = self.latency_ns(connection.machines(direction));
        let transmission =
            piece.len() as u64 * 1000 / self.config.borrow().network_bytes_per_us.max(1);
        let pipe = &mut *connection.pipes[direction].borrow_mut();
        let at = pipe.last_arrival_ns.max(self.executor.now() + latency) + transmission;
        pipe.last_arrival_ns = at;
        pipe.queued_bytes += piece.len();
        pipe.under_way.push_back((at, piece));
        if !pipe.is_scheduled && !pipe.is_stalled {
            self.schedule_arrival(at, connection, direction, pipe);
        }
    }

    fn schedule_arrival(
        &self,
        at: u64,
        connection: &Rc<Connection>,
        direction: usize,
        pipe: &mut Pipe,
    ) {
        pipe.is_scheduled = true;
        self.executor
            .schedule(at, Event::Arrival(connection.clone(), direction));
    }

    /// Delivers the pieces that are due in one direction, if the path is open.
    fn arrive(self: &Rc<Self>, connection: &Rc<Connection>, direction: usize) {
        let path = self.path(connection.machines(direction));
        let now = self.executor.now();
        {
            let pipe = &mut *connection.pipes[direction].borrow_mut();
            pipe.is_scheduled = false;
            match path {
                Path::Open => pipe.is_stalled = false,
                Path::Closed => {
                    pipe.is_stalled = true;
                    return;
                }
                Path::ClosedUntil(until) => {
                    let at = until + random::below(1_000_000);
                    return self.schedule_arrival(at, connection, direction, pipe);
                }
            }
        }
        loop {
            let piece = {
                let pipe = &mut *connection.pipes[direction].borrow_mut();
                match pipe.under_way.front() {
                    Some((at, _)) if *at <= now => {
                        pipe.under_way.pop_front().expect("it has a front").1
                    }
                    Some(&(at, _)) => {
                        return self.schedule_arrival(at, connection, direction, pipe);
                    }
                    None => return,
                }
            };
            self.deliver(connection, direction, piece);
        }
    }

    fn deliver(&self, connection: &Rc<Connection>, direction: usize, piece: Piece) {
        let edge = |data: &Bytes| {
            data.iter()
                .take(8)
                .fold(0, |word, byte| (word << 8) | u64::from(*byte))
        };
        let (content, len) = match &piece {
            Piece::Data(data) => (edge(data), data.len() as u64),
            Piece::End(end) => (*end as u64, 0),
        };
        self.executor.record(
            Kind::Deliver,
            connection.id * 2 + direction as u64,
            content ^ (len << 40),
        );
        let mut pipe = connection.pipes[direction].borrow_mut();
        match piece {
            Piece::Data(data) if pipe.reader_is_gone => {
                pipe.queued_bytes -= data.len();
                let tell = !std::mem::replace(&mut pipe.reset_is_sent, true);
                drop(pipe);
                if tell {
                    self.send(connection, 1 - direction, Piece::End(StreamEnd::Reset));
                }
            }
            // Written before the writer learned of the cut. It must not follow the prefix, because bytes between them
            // are missing.
            Piece::Data(data) if pipe.end.is_some() => pipe.queued_bytes -= data.len(),
            Piece::Data(data) => {
                pipe.arrived_bytes += data.len();
                pipe.arrived.push_back(data);
                if let Some(reader) = pipe.reader.take() {
                    reader.wake();
                }
            }
            Piece::End(end) => {
                pipe.end.get_or_insert(end);
                pipe.wake();
                drop(pipe);
                if end == StreamEnd::Reset {
                    let mut back = connection.pipes[1 - direction].borrow_mut();
                    back.is_broken = true;
                    back.wake();
                }
            }
        }
    }

    /// Breaks a connection: each side reads some prefix of the bytes under way, then gets an error.
    fn cut(&self, connection: &Rc<Connection>) {
        for direction in 0..2 {
            connection.pipes[direction]
                .borrow_mut()
                .truncate_at_random();
            self.send(connection, direction, Piece::End(StreamEnd::Reset));
        }
    }

    /// Closes the listeners and connections of a process that has died.
    pub(super) fn end_connections_of(&self, process: ProcessId, power_is_lost: bool) {
        let (listeners, connections) = {
            let mut network = self.network.borrow_mut();
            let mine: Vec<SocketAddr> = network
                .listeners
                .iter()
                .filter(|(_, l)| l.process == process)
                .map(|(a, _)| *a)
                .collect();
            let listeners: Vec<_> = mine
                .iter()
                .filter_map(|a| network.listeners.remove(a))
                .collect();
            let all = network.connections.values();
            let connections: Vec<Rc<Connection>> = all
                .filter(|c| c.ends.iter().any(|e| e.process == process))
                .cloned()
                .collect();
            (listeners, connections)
        };
        for connection in connections {
            for i in 0..2 {
                if connection.ends[i].process == process {
                    self.end_side(&connection, i, power_is_lost);
                }
            }
            self.forget_if_over(&connection);
        }
        drop(listeners);
    }

    /// Closes one side of a connection. The kernel of a killed process closes or resets its connections. A machine
    /// without power sends nothing, and the other side may learn of the end only when the machine has come back.
    fn end_side(&self, connection: &Rc<Connection>, side: usize, power_is_lost: bool) {
        {
            let incoming = &mut *connection.pipes[1 - side].borrow_mut();
            incoming.reader_is_gone = true;
            incoming.discard_arrived();
        }
        let was_gone = {
            let outgoing = &mut *connection.pipes[side].borrow_mut();
            std::mem::replace(&mut outgoing.writer_is_gone, true)
        };
        if was_gone {
            return;
        }
        let is_silent = power_is_lost && random::chance(0.5);
        if power_is_lost || random::chance(0.5) {
            connection.pipes[side].borrow_mut().truncate_at_random();
            if !is_silent {
                self.send(connection, side, Piece::End(StreamEnd::Reset));
            }
        } else {
            self.send(connection, side, Piece::End(StreamEnd::Closed));
        }
    }

    fn forget_if_over(&self, connection: &Rc<Connection>) {
        if connection.is_over() {
            self.network.borrow_mut().connections.remove(&connection.id);
        }
    }

    pub(super) fn block(&self, from: MachineId, to: MachineId) {
        self.network.borrow_mut().blocked.insert((from, to));
    }

    pub(super) fn unblock(&self, pairs: impl Fn((MachineId, MachineId)) -> bool) {
        {
            let network = &mut *self.network.borrow_mut();
            network.blocked.retain(|pair| !pairs(*pair));
            network.clogged.retain(|pair, _| !pairs(*pair));
        }
        self.restart_stalled_traffic();
    }

    pub(super) fn clog(&self, from: MachineId, to: MachineId, for_ns: u64) {
        let until = self.executor.now().saturating_add(for_ns);
        let network = &mut *self.network.borrow_mut();
        let clogged = network.clogged.entry((from, to)).or_insert(until);
        *clogged = until.max(*clogged);
    }

    /// Cuts the connections whose two machines pass the test; returns how many.
    pub(super) fn cut_connections(&self, test: impl Fn(MachineId, MachineId) -> bool) -> usize {
        let all = self.network.borrow().all();
        let cut = all
            .iter()
            .filter(|c| test(c.ends[0].machine, c.ends[1].machine));
        cut.map(|connection| self.cut(connection)).count()
    }

    /// Restarts stalled traffic after a partition has healed or a machine has booted.
    pub(super) fn restart_stalled_traffic(&self) {
        let all = self.network.borrow().all();
        for connection in all {
            for direction in 0..2 {
                let pipe = &mut *connection.pipes[direction].borrow_mut();
                if std::mem::take(&mut pipe.is_stalled) {
                    let at = self.executor.now() + self.latency_ns(connection.machines(direction));
                    self.schedule_arrival(at, &connection, direction, pipe);
                }
            }
        }
    }

    fn ephemeral_port(&self) -> u16 {
        let mut network = self.network.borrow_mut();
        network.ports_given += 1;
        let ports = u64::from(u16::MAX - FIRST_EPHEMERAL_PORT);
        FIRST_EPHEMERAL_PORT + (network.ports_given % ports) as u16
    }

    pub(super) fn listens_at(&self, address: SocketAddr) -> Option<ProcessId> {
        let network = self.network.borrow();
        network.listeners.get(&address).map(|l| l.process)
    }

    /// Replaces the wildcard and loopback addresses by the running process's own address.
    fn own_address(&self, address: SocketAddr) -> SocketAddr {
        if address.ip().is_unspecified() || address.ip().is_loopback() {
            let own = self.processes.borrow()[self.current.get().0 as usize].address;
            return SocketAddr::new(own.ip(), address.port());
        }
        address
    }

    pub async fn listen(self: &Rc<Self>, address: SocketAddr) -> io::Result<Listener> {
        let process = self.current.get();
        if !self.is_alive(process) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut address = self.own_address(address);
        if self.machine_at(address.ip()) != Some(self.machine_of(process)) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        if address.port() == 0 {
            address.set_port(self.ephemeral_port());
        }
        let mut network = self.network.borrow_mut();
        if network.listeners.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let state = Rc::new(ListenerState {
            address,
            process,
            backlog: RefCell::default(),
            waker: Cell::default(),
        });
        network.listeners.insert(address, state.clone());
        Ok(Listener {
            state,
            world: Rc::downgrade(self),
        })
    }

    pub async fn connect(self: &Rc<Self>, address: SocketAddr) -> io::Result<(Reader, Writer)> {
        let process = self.current.get();
        let address = self.own_address(address);
        let here = self.machine_of(process);
        let give_up_at = self.executor.now() + self.config.borrow().connect_timeout_ms * 1_000_000;
        loop {
            if let Some(there) = self.machine_at(address.ip()) {
                self.sleep_ns(self.latency_ns((here, there))).await;
                let there_and_back = [self.path((here, there)), self.path((there, here))];
                if there_and_back.iter().all(|path| matches!(path, Path::Open)) {
                    let answer = self.open_connection(process, here, address);
                    self.sleep_ns(self.latency_ns((there, here))).await;
                    return answer;
                }
            }
            if self.executor.now() >= give_up_at {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let pause = random::range(CONNECT_RETRY_NS).min(give_up_at - self.executor.now());
            self.sleep_ns(pause).await;
        }
    }

    /// Opens a connection as the listener's kernel does: both halves exist from now on, accepted or not.
    fn open_connection(
        self: &Rc<Self>,
        process: ProcessId,
        machine: MachineId,
        address: SocketAddr,
    ) -> io::Result<(Reader, Writer)> {
        let listener = self.network.borrow().listeners.get(&address).cloned();
        let Some(listener) = listener.filter(|l| l.backlog.borrow().len() < BACKLOG_MAX) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let own_ip = self.processes.borrow()[process.0 as usize].address.ip();
        let peer_address = SocketAddr::new(own_ip, self.ephemeral_port());
        let end = |process: ProcessId, machine| End {
            process,
            machine,
            life: self.life_of(process),
        };
        let other = listener.process;
        let connection = {
            let mut network = self.network.borrow_mut();
            let id = network.next_connection;
            network.next_connection += 1;
            let ends = [end(process, machine), end(other, self.machine_of(other))];
            let connection = Rc::new(Connection {
                id,
                is_checked: self.config.borrow().unchecked_port != Some(address.port()),
                ends,
                pipes: Default::default(),
            });
            network.connections.insert(id, connection.clone());
            connection
        };
        let (reader, writer) = self.halves(&connection, 1);
        listener
            .backlog
            .borrow_mut()
            .push_back((reader, writer, peer_address));
        let waker = listener.waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(self.halves(&connection, 0))
    }

    fn halves(self: &Rc<Self>, connection: &Rc<Connection>, side: usize) -> (Reader, Writer) {
        let half = || Half {
            connection: connection.clone(),
            world: Rc::downgrade(self),
            side,
        };
        (Reader(half()), Writer(half()))
    }
}

struct ListenerState {
    address: SocketAddr,
    process: ProcessId,
    backlog: RefCell<VecDeque<(Reader, Writer, SocketAddr)>>,
    waker: Cell<Option<Waker>>,
}

pub(crate) struct Listener {
    state: Rc<ListenerState>,
    world: Weak<World>,
}

impl Listener {
    pub async fn accept(&mut self) -> io::Result<(Reader, Writer, SocketAddr)> {
        std::future::poll_fn(
            |context| match self.state.backlog.borrow_mut().pop_front() {
                Some(accepted) => Poll::Ready(Ok(accepted)),
                None => {
                    self.state.waker.set(Some(context.waker().clone()));
                    Poll::Pending
                }
            },
        )
        .await
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.state.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(world) = self.world.upgrade() {
            let mut network = world.network.borrow_mut();
            // The address may belong to another listener by now.
            if network
                .listeners
                .get(&self.state.address)
                .is_some_and(|l| Rc::ptr_eq(l, &self.state))
            {
                network.listeners.remove(&self.state.address);
            }
        }
        // Connections that were never accepted are closed.
        let backlog = std::mem::take(&mut *self.state.backlog.borrow_mut());
        drop(backlog);
    }
}

/// One side of a connection.
struct Half {
    connection: Rc<Connection>,
    world: Weak<World>,
    side: usize,
}

impl Half {
    fn is_alive(&self) -> bool {
        self.connection.ends[self.side].life.load(Ordering::Relaxed)
    }
}

pub(crate) struct Reader(Half);

impl Reader {
    pub async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        std::future::poll_fn(|context| {
            let pipe = &mut *self.0.connection.pipes[1 - self.0.side].borrow_mut();
            if !self.0.is_alive() {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            }
            if pipe.arrived_bytes > 0 {
                return Poll::Ready(Ok(take_arrived(pipe, buffer)));
            }
            match pipe.end {
                Some(StreamEnd::Closed) => Poll::Ready(Ok(0)),
                Some(StreamEnd::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                None => {
                    pipe.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

fn take_arrived(pipe: &mut Pipe, buffer: &mut BytesMut) -> usize {
    let mut limit = pipe.arrived_bytes.min(CHUNK_BYTES_MAX);
    let short = current().map_or(0.0, |world| world.config.borrow().short_read_probability);
    if random::chance(short) {
        limit = 1 + random::below(limit as u64) as usize;
    }
    let mut left = limit;
    while left > 0 {
        let first = pipe
            .arrived
            .front_mut()
            .expect("arrived bytes are in pieces");
        let n = first.len().min(left);
        buffer.extend_from_slice(&first[..n]);
        first.advance(n);
        left -= n;
        if first.is_empty() {
            pipe.arrived.pop_front();
        }
    }
    pipe.arrived_bytes -= limit;
    pipe.queued_bytes -= limit;
    if let Some(writer) = pipe.writer.take() {
        writer.wake();
    }
    limit
}

impl Drop for Reader {
    fn drop(&mut self) {
        let half = &self.0;
        {
            let pipe = &mut *half.connection.pipes[1 - half.side].borrow_mut();
            pipe.reader_is_gone = true;
            pipe.reader = None;
            pipe.discard_arrived();
        }
        if let Some(world) = half.world.upgrade() {
            world.forget_if_over(&half.connection);
        }
    }
}

pub(crate) struct Writer(Half);

impl Writer {
    pub async fn write_all(&mut self, mut data: Bytes) -> io::Result<()> {
        while !data.is_empty() {
            self.has_room().await?;
            let Some(world) = self.0.world.upgrade() else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            let config = world.config.borrow();
            let mut n = data.len().min(CHUNK_BYTES_MAX);
            if random::chance(config.chunk_split_probability) {
                n = 1 + random::below(n as u64) as usize;
            }
            let mut piece = data.split_to(n);
            if self.0.connection.is_checked && random::chance(config.bit_flip_probability) {
                piece = with_a_bit_flipped(&piece);
            }
            let is_cut = random::chance(config.connection_cut_probability);
            drop(config);
            world.send(&self.0.connection, self.0.side, Piece::Data(piece));
            if is_cut {
                world.cut(&self.0.connection);
            }
        }
        Ok(())
    }

    /// Waits until the connection takes more, or fails.
    async fn has_room(&self) -> io::Result<()> {
        let bytes_max = match self.0.world.upgrade() {
            Some(world) => world.config.borrow().connection_bytes_max,
            None => 0,
        };
        std::future::poll_fn(|context| {
            let pipe = &mut *self.0.connection.pipes[self.0.side].borrow_mut();
            if !self.0.is_alive() {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            }
            if pipe.is_broken {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            if pipe.writer_is_gone {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            if pipe.queued_bytes < bytes_max.max(1) {
                return Poll::Ready(Ok(()));
            }
            pipe.writer = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    pub fn shutdown(&mut self) -> io::Result<()> {
        let was_gone = {
            let pipe = &mut *self.0.connection.pipes[self.0.side].borrow_mut();
            std::mem::replace(&mut pipe.writer_is_gone, true)
        };
        if !was_gone
            && self.0.is_alive()
            && let Some(world) = self.0.world.upgrade()
        {
            world.send(
                &self.0.connection,
                self.0.side,
                Piece::End(StreamEnd::Closed),
            );
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.shutdown();
        self.0.connection.pipes[self.0.side].borrow_mut().writer = None;
        if let Some(world) = self.0.world.upgrade() {
            world.forget_if_over(&self.0.connection);
        }
    }
}

fn with_a_bit_flipped(piece: &Bytes) -> Bytes {
    let mut copy = BytesMut::from(&piece[..]);
    let at = random::below(copy.len() as u64) as usize;
    copy[at] ^= 1 << random::below(8);
    copy.freeze()
}
