//! A machine with its fabric: what reads other machines' memory, and carries messages to them.

use crate::core::Core;
use crate::letters::Letters;
use crate::links::Links;
use crate::post::pause;
use plinth_core::codec::Codec;
use plinth_farm_fabric::{self as fabric, Address, Error, Fabric, Machine};
use plinth_farm_memory::{Abort, Header};
use plinth_runtime::sync::Notify;
use plinth_runtime::{Instant, TaskGroup, now, probe, sleep};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Takes a message of the fabric that is not the engine's.
pub type Handler = Rc<dyn Fn(&fabric::Message)>;

/// The connection to a machine.
#[derive(Default)]
struct Connection {
    /// How often it was opened anew.
    openings: Cell<u64>,
    is_opening: Cell<bool>,
    bell: Notify,
}

pub struct Site<F> {
    pub core: Core,
    pub fabric: Rc<F>,
    /// `None`: there is one configuration, in which nobody may fail.
    pub links: Option<Rc<dyn Links>>,
    /// By the room's tag.
    pub handlers: RefCell<BTreeMap<u8, Handler>>,
    /// Tasks of the present configuration.
    pub tasks: TaskGroup,
    pub letters: Letters,
    connections: Vec<Connection>,
}

const WORD_BYTES: u64 = 8;

impl<F: Fabric> Site<F> {
    pub fn new(core: Core, fabric: Rc<F>, links: Option<Rc<dyn Links>>) -> Site<F> {
        let machines = fabric.local().host().layout().machines;
        Site {
            core,
            fabric,
            links,
            handlers: RefCell::default(),
            tasks: TaskGroup::new(),
            letters: Letters::default(),
            connections: (0..machines).map(|_| Connection::default()).collect(),
        }
    }

    /// Reads words of another machine's memory, in the configuration with this number. Goes on until it has them:
    /// error `Failed` if the configuration ends, or if there is no other that may follow it.
    #[inline]
    pub async fn read(
        &self,
        number: u64,
        (machine, region): (Machine, u16),
        word: u64,
        into: &mut [u8],
    ) -> Result<(), Abort> {
        let at = Address {
            machine,
            region,
            offset: word.saturating_mul(WORD_BYTES),
        };
        let mut trouble = Trouble::default();
        // What is of a configuration reads nothing in another one: there the region may not be open, or not be there.
        while self.fabric.local().configuration() == number {
            let openings = self.openings(machine);
            match self.fabric.read(at, into).await {
                Ok(()) => return Ok(()),
                Err(Error::Full) => pause(self.core.settings.pause).await,
                Err(Error::Closed | Error::Unreachable) if self.links.is_some() => {
                    self.recover(number, machine, openings, &mut trouble)
                        .await?;
                }
                Err(_) => return Err(Abort::Failed),
            }
        }
        Err(Abort::Failed)
    }

    pub async fn header(
        &self,
        number: u64,
        place: (Machine, u16),
        word: u64,
    ) -> Result<Header, Abort> {
        let mut bytes = [0; WORD_BYTES as usize];
        self.read(number, place, word, &mut bytes).await?;
        Ok(Header::from_bits(u64::from_le_bytes(bytes)))
    }

    /// Sends a message in the configuration with this number. False if it may be lost.
    pub async fn send(&self, number: u64, to: Machine, bytes: &[u8]) -> bool {
        let mut trouble = Trouble::default();
        // What is of a configuration never goes out in another one.
        while self.fabric.local().configuration() == number {
            let openings = self.openings(to);
            match self.fabric.send(to, bytes).await {
                Ok(()) => return true,
                Err(Error::Full) => {
                    probe!("farm ring full");
                    pause(self.core.settings.pause).await;
                }
                // It has had no effect: the other is not in the configuration yet, or there was no connection.
                Err(Error::Closed) if self.links.is_some() => {
                    let recovered = self.recover(number, to, openings, &mut trouble).await;
                    if recovered.is_err() {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        false
    }

    /// Carries the engine's messages to a machine.
    pub async fn carry(&self, number: u64, to: Machine) {
        while let Some(bundle) = self.core.post.take(to).await {
            let is_there = self.send(number, to, &bundle.to_bytes()).await;
            self.core.post.taken(to, is_there);
            if !is_there {
                return self.say_trouble(number).await;
            }
        }
    }

    /// Asks for another configuration if this one does not end by itself.
    pub async fn say_trouble(&self, number: u64) {
        let Some(links) = &self.links else {
            return;
        };
        loop {
            sleep(self.core.settings.patience).await;
            if !self.core.stage.has_begun(number) {
                return;
            }
            probe!("farm engine asks for another configuration");
            links.trouble(number);
        }
    }

    #[inline]
    fn openings(&self, to: Machine) -> u64 {
        let connection = self.connections.get(usize::from(to.0));
        connection.map_or(0, |connection| connection.openings.get())
    }

    /// An operation has failed on a connection that was opened so often. Opens it again, unless somebody has.
    async fn recover(
        &self,
        number: u64,
        to: Machine,
        openings: u64,
        trouble: &mut Trouble,
    ) -> Result<(), Abort> {
        let Some(links) = &self.links else {
            return Err(Abort::Failed);
        };
        if self.openings(to) == openings {
            self.reopen(to).await;
        }
        sleep(self.core.settings.idle).await;
        match self.core.stage.has_begun(number) {
            true if trouble.is_long(self) => links.trouble(number),
            true => (),
            false => return Err(Abort::Failed),
        }
        Ok(())
    }

    /// Connects to a machine anew, or waits for who does so.
    pub async fn reopen(&self, to: Machine) {
        let connection = self.connections.get(usize::from(to.0));
        let (Some(links), Some(connection)) = (&self.links, connection) else {
            return;
        };
        if connection.is_opening.get() {
            return connection.bell.notified().await;
        }
        let opening = Opening::new(connection);
        links.reopen(to).await;
        drop(opening);
    }
}

/// A connection is being opened. Whoever does that may be dropped.
struct Opening<'a>(&'a Connection);

impl Opening<'_> {
    fn new(connection: &Connection) -> Opening<'_> {
        connection.is_opening.set(true);
        Opening(connection)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.is_opening.set(false);
        self.0.openings.set(self.0.openings.get() + 1);
        self.0.bell.notify_all();
    }
}

/// Since when a machine cannot be reached.
#[derive(Default)]
struct Trouble(Option<Instant>);

impl Trouble {
    fn is_long<F>(&mut self, site: &Site<F>) -> bool {
        let since = *self.0.get_or_insert_with(now);
        since.elapsed() >= site.core.settings.patience
    }
}

/// The machine works as long as a clone of this is there.
#[derive(Clone)]
pub struct Alive(Rc<Tasks>);

struct Tasks {
    all: TaskGroup,
    /// They hold the site, which holds them.
    of_configuration: TaskGroup,
}

impl Alive {
    pub fn new(of_configuration: TaskGroup) -> Alive {
        Alive(Rc::new(Tasks {
            all: TaskGroup::new(),
            of_configuration,
        }))
    }

    pub fn group(&self) -> &TaskGroup {
        &self.0.all
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.of_configuration.cancel_all();
    }
}
