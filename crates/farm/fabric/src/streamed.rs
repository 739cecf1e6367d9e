//! Machines that others reach over streams: TCP between hosts, and the simulator's network.

use crate::address::{Address, Error, MESSAGE_BYTES_MAX, Machine, OPERATION_BYTES_MAX, WORD_BYTES};
use crate::fabric::Fabric;
use crate::greeting::{self, Frames, PURPOSE, greet};
use crate::local::Local;
use crate::wire::{Answer, Body, Greeting, Request};
use bytes::{Bytes, BytesMut};
use plinth_identity::greeting::Refusal;
use plinth_rpc::certified::{self, Opened};
use plinth_rpc::{Credentials, Sending};
use plinth_runtime::net::{self, Reader, Writer};
use plinth_runtime::sync::{OneshotSender, oneshot};
use plinth_runtime::{Duration, Task, race, spawn, timeout, trace_warn};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

/// Most operations under way to one machine. More are refused with [`Error::Full`].
const UNDER_WAY_MAX: usize = 1024;
/// The same in bytes that were not sent yet.
const UNSENT_BYTES_MAX: usize = 16 << 20;

/// A connection on which both sides have greeted.
type Greeted = (Reader, Writer, Sending, Frames);

struct Link {
    sending: Sending,
    /// Who waits, in the order of the requests.
    waiting: RefCell<VecDeque<OneshotSender<Answer>>>,
    is_broken: Cell<bool>,
}

impl Link {
    /// Nothing is sent any more, and who waits gets no answer.
    fn end(&self) {
        self.is_broken.set(true);
        self.sending.outbox.close();
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        drop(waiting);
    }
}

struct Open {
    link: Rc<Link>,
    _task: Task<()>,
}

/// The backend. Others reach this machine's memory through [`serve`](crate::serve).
pub struct Streamed {
    local: Rc<Local>,
    /// Of each machine, if it is known.
    addresses: Vec<Cell<Option<SocketAddr>>>,
    /// An operation that takes longer breaks the connection.
    limit: Duration,
    links: RefCell<Vec<Option<Open>>>,
    credentials: Credentials,
    /// Why the latest greeting of a machine has failed.
    ungreeted: RefCell<BTreeMap<Machine, Refusal>>,
}

impl Streamed {
    /// `addresses` has one of each machine, by its number.
    pub fn new(
        local: impl Into<Rc<Local>>,
        addresses: Vec<SocketAddr>,
        limit: Duration,
    ) -> Streamed {
        let streamed = Streamed::without_addresses(local.into(), limit);
        for (own, address) in streamed.addresses.iter().zip(addresses) {
            own.set(Some(address));
        }
        streamed
    }

    pub(crate) fn without_addresses(local: Rc<Local>, limit: Duration) -> Streamed {
        let machines = local.host().layout().machines;
        Streamed {
            local,
            addresses: vec![Cell::new(None); machines],
            limit,
            links: RefCell::new((0..machines).map(|_| None).collect()),
            credentials: Credentials::none(),
            ungreeted: RefCell::default(),
        }
    }

    /// Proves these keys to the other machines, and wants them to prove theirs.
    pub fn with(self, credentials: &Credentials) -> Streamed {
        Streamed {
            credentials: credentials.for_purpose(PURPOSE),
            ..self
        }
    }

    /// Says where the machine's memory is served. If that is news, the connection to it ends.
    pub(crate) fn set_address(&self, machine: Machine, address: Option<SocketAddr>) {
        let at = usize::from(machine.0);
        if self.addresses[at].replace(address) != address {
            let former = self.links.borrow_mut()[at].take();
            if let Some(former) = former {
                former.link.end();
            }
        }
    }

    /// Ends connections to machines that are no members.
    pub(crate) fn close_strangers(&self) {
        let mut ended = Vec::new();
        for (link, machine) in self.links.borrow_mut().iter_mut().zip(0..) {
            if !self.local.is_member(Machine(machine)) {
                ended.extend(link.take());
            }
        }
        for open in ended {
            open.link.end();
        }
    }

    fn link(&self, machine: Machine) -> Result<Rc<Link>, Error> {
        let links = self.links.borrow();
        let open = links.get(usize::from(machine.0)).and_then(Option::as_ref);
        let open = open.ok_or(Error::Unreachable)?;
        match open.link.is_broken.get() {
            true => Err(Error::Closed),
            false => Ok(open.link.clone()),
        }
    }

    fn address(&self, machine: Machine) -> Option<SocketAddr> {
        self.addresses.get(usize::from(machine.0))?.get()
    }

    async fn greet(&self, machine: Machine, address: SocketAddr) -> Option<Greeted> {
        let halves = net::connect(address).await.ok()?;
        let why = match self.greet_over(halves, machine, address).await {
            Ok(greeted) => {
                self.ungreeted.borrow_mut().remove(&machine);
                return Some(greeted);
            }
            Err(why) => why?,
        };
        let former = self.ungreeted.borrow_mut().insert(machine, why.clone());
        if former.as_ref() != Some(&why) {
            trace_warn!("FabricGreetingFailed", "machine" => machine.0, "peer" => address, "why" => why);
        }
        None
    }

    /// The error is the reason, if there is one to tell.
    async fn greet_over(
        &self,
        halves: (Reader, Writer),
        machine: Machine,
        address: SocketAddr,
    ) -> Result<Greeted, Option<Refusal>> {
        // Shorter than the limit of the whole: a handshake that is not answered is told as one.
        let limit = self.limit / 2;
        let opened = certified::open(halves, address, &self.credentials, limit).await;
        let Opened {
            mut reader,
            mut writer,
            opener,
            verdict,
        } = opened.map_err(|failure| Some(failure.why()))?;
        let sending = Sending::new();
        let greeting = Greeting {
            from: self.local.machine().0,
            to: machine.0,
        };
        let greeted = greet((&mut reader, &mut writer), &sending, opener, &greeting).await;
        // Whoever refuses our certificate ends the connection, and has said why.
        let by_certificate = || Some(certified::Failure::of(verdict.as_ref()?).why());
        let frames = greeted.map_err(|why| why.or_else(by_certificate))?;
        Ok((reader, writer, sending, frames))
    }

    /// Asks and waits for the answer.
    async fn ask(&self, machine: Machine, configuration: u64, body: Body) -> Result<Answer, Error> {
        let link = self.link(machine)?;
        let is_full = link.waiting.borrow().len() >= UNDER_WAY_MAX
            || link.sending.outbox.len() >= UNSENT_BYTES_MAX;
        if is_full {
            return Err(Error::Full);
        }
        let (sender, receiver) = oneshot();
        link.waiting.borrow_mut().push_back(sender);
        let request = Request {
            configuration,
            body,
        };
        if greeting::push(&link.sending, &request).is_err() {
            link.end();
        }
        match timeout(self.limit, receiver).await {
            Some(Ok(Answer::Failed(error))) => Err(error),
            Some(Ok(answer)) => Ok(answer),
            Some(Err(_)) => Err(Error::Unreachable),
            None => {
                link.end();
                Err(Error::Unreachable)
            }
        }
    }

    /// An answer of another kind than the question: the other side is not what it says.
    fn break_link(&self, machine: Machine) -> Error {
        if let Ok(link) = self.link(machine) {
            link.end();
        }
        Error::Unreachable
    }
}

async fn carry(link: Rc<Link>, reader: Reader, writer: Writer, frames: Frames) {
    race(
        read_answers(&link, reader, frames),
        link.sending.drain(writer, || ()),
    )
    .await;
    link.end();
}

async fn read_answers(link: &Link, mut reader: Reader, mut frames: Frames) {
    let mut buffer = BytesMut::new();
    loop {
        match frames.take::<Answer>(&mut buffer) {
            Ok(Some(answer)) => {
                let waiting = link.waiting.borrow_mut().pop_front();
                let Some(waiting) = waiting else { return };
                let is_closed = answer == Answer::Failed(Error::Closed);
                // Who was dropped needs no answer.
                let _ = waiting.send(answer);
                if is_closed {
                    return;
                }
            }
            Ok(None) => {
                if !matches!(reader.read(&mut buffer).await, Ok(bytes) if bytes > 0) {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

/// What would be refused by the other side, refused here.
fn check(offset: u64, bytes: usize) -> Result<(), Error> {
    if !offset.is_multiple_of(WORD_BYTES as u64) || !bytes.is_multiple_of(WORD_BYTES) {
        return Err(Error::Unaligned);
    }
    match bytes > OPERATION_BYTES_MAX {
        true => Err(Error::TooLarge),
        false => Ok(()),
    }
}

impl Fabric for Streamed {
    #[inline]
    fn local(&self) -> &Local {
        &self.local
    }

    async fn open(&self, machine: Machine) -> Result<(), Error> {
        if machine == self.local.machine() || self.link(machine).is_ok() {
            return Ok(());
        }
        let address = self.address(machine).ok_or(Error::Unreachable)?;
        let greeted = timeout(self.limit, self.greet(machine, address)).await;
        let (reader, writer, sending, frames) = greeted.flatten().ok_or(Error::Unreachable)?;
        if self.address(machine) != Some(address) {
            return Err(Error::Unreachable); // it is elsewhere by now
        }
        // Of two tasks that have asked, the later one has the connection that counts.
        let link = Rc::new(Link {
            sending,
            waiting: RefCell::default(),
            is_broken: Cell::new(false),
        });
        let task = spawn("fabric", carry(link.clone(), reader, writer, frames));
        let open = Open { link, _task: task };
        let former = self.links.borrow_mut()[usize::from(machine.0)].replace(open);
        if let Some(former) = former {
            former.link.end();
        }
        Ok(())
    }

    async fn configure(&self, number: u64, members: &[Machine]) -> Result<(), Error> {
        self.local.configure(number, members).await?;
        self.close_strangers();
        Ok(())
    }

    async fn read(&self, at: Address, into: &mut [u8]) -> Result<(), Error> {
        let who = self.local.asker(at.machine)?;
        if at.machine == self.local.machine() {
            return self.local.host().region(at.region)?.read(at.offset, into);
        }
        check(at.offset, into.len())?;
        let body = Body::Read {
            region: at.region,
            offset: at.offset,
            bytes: into.len() as u32,
        };
        match self.ask(at.machine, who.configuration, body).await? {
            Answer::Read(bytes) if bytes.len() == into.len() => {
                into.copy_from_slice(&bytes);
                Ok(())
            }
            _ => Err(self.break_link(at.machine)),
        }
    }

    async fn write(&self, at: Address, from: &[u8]) -> Result<(), Error> {
        let who = self.local.asker(at.machine)?;
        if at.machine == self.local.machine() {
            return self.local.host().region(at.region)?.write(at.offset, from);
        }
        check(at.offset, from.len())?;
        let body = Body::Write {
            region: at.region,
            offset: at.offset,
            from: Bytes::copy_from_slice(from),
        };
        match self.ask(at.machine, who.configuration, body).await? {
            Answer::Done => Ok(()),
            _ => Err(self.break_link(at.machine)),
        }
    }

    async fn compare_and_swap(&self, at: Address, expected: u64, new: u64) -> Result<u64, Error> {
        let who = self.local.asker(at.machine)?;
        if at.machine == self.local.machine() {
            let region = self.local.host().region(at.region)?;
            return region.compare_and_swap(at.offset, expected, new);
        }
        check(at.offset, WORD_BYTES)?;
        let body = Body::Swap {
            region: at.region,
            offset: at.offset,
            expected,
            new,
        };
        match self.ask(at.machine, who.configuration, body).await? {
            Answer::Was(word) => Ok(word),
            _ => Err(self.break_link(at.machine)),
        }
    }

    async fn send(&self, to: Machine, message: &[u8]) -> Result<(), Error> {
        let who = self.local.asker(to)?;
        if to == self.local.machine() {
            return self.local.send(message);
        }
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let body = Body::Send {
            message: Bytes::copy_from_slice(message),
        };
        match self.ask(to, who.configuration, body).await? {
            Answer::Done => Ok(()),
            _ => Err(self.break_link(to)),
        }
    }
}
