//! The machine that this process is: its own memory, the configuration that it is in, and the messages to it.

use crate::address::{Asker, Error, Machine};
use crate::host::{Host, Layout};
use crate::ring::{Reader, Tail};
use crate::sleep::Sleeper;
use bytes::Bytes;
use plinth_runtime::memory::{self, Bell, Owned, Rope};
use plinth_runtime::{Duration, disk, planted, sleep};
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

/// Between two looks at a door that is open.
const DOOR_PAUSE: Duration = Duration::from_millis(1);

/// A message, which lies in the memory of this machine until [`Local::release`] frees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub from: Machine,
    /// The one in which it was sent. It may be later than the receiver's: the sender has gone ahead.
    pub configuration: u64,
    pub body: Bytes,
    pub(crate) end: u64,
}

/// This machine.
pub struct Local {
    machine: Machine,
    directory: PathBuf,
    file: Rc<PathBuf>,
    host: Rc<Host>,
    readers: Vec<Reader>,
    /// To itself.
    tail: Tail,
    sleeper: Sleeper,
    /// The machine whose ring is looked at next.
    next: Cell<usize>,
    configuration: Cell<u64>,
    /// The newest one that a former life was in.
    former: Cell<u64>,
    /// Whether each machine is a member.
    members: Vec<Cell<bool>>,
    _owned: Owned,
}

/// Names the memory of a [`Local`] for as long as that lives: afterwards the file may be another process's.
#[derive(Clone, Default, Debug)]
pub struct File(Weak<PathBuf>);

impl File {
    /// As [`Local::remove`]. Does nothing if it lives no more.
    pub async fn remove(&self) -> io::Result<()> {
        match self.0.upgrade() {
            Some(path) => disk::remove(&path).await,
            None => Ok(()),
        }
    }
}

/// Where the memory of a machine of this host lies.
pub fn path(directory: &Path, machine: Machine) -> PathBuf {
    directory.join(format!("machine-{}.memory", machine.0))
}

/// What wakes a machine of this host.
fn bell_path(directory: &Path, machine: Machine) -> PathBuf {
    directory.join(format!("machine-{}.bell", machine.0))
}

/// Maps the memory of a machine of this host. Its process may be dead.
///
/// Errors: `InvalidData` if the memory is not ready or damaged, and those of the system.
pub async fn attach(directory: &Path, machine: Machine) -> io::Result<Host> {
    let path = path(directory, machine);
    let host = Host::open(memory::attach(&path).await?);
    let host = host.ok_or_else(|| damaged(&path, "it has no head"))?;
    Ok(host.with_rope(Rope::find(&bell_path(directory, machine)).await?))
}

fn damaged(path: &Path, what: &str) -> io::Error {
    let text = format!("{}: {what}; remove the file", path.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Local {
    /// Makes the memory of `machine` in `directory`, or takes over what its former process has left there.
    ///
    /// Errors: `WouldBlock` if that process lives, `InvalidData` if the memory has another layout or is damaged,
    /// `InvalidInput` if there is no such layout, `StorageFull` if there is no room for it.
    pub async fn start(directory: &Path, machine: Machine, layout: &Layout) -> io::Result<Local> {
        Local::start_sparse(directory, machine, layout, 0).await
    }

    /// The same, but the first `sparse` regions have no room before it is [reserved](crate::Memory::reserve).
    pub async fn start_sparse(
        directory: &Path,
        machine: Machine,
        layout: &Layout,
        sparse: usize,
    ) -> io::Result<Local> {
        let is_one = usize::from(machine.0) < layout.machines;
        let Some(words) = layout.words().filter(|_| is_one) else {
            let text = format!("machine {} has no memory with {layout:?}", machine.0);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let path = path(directory, machine);
        let owned = match layout.beside(sparse).filter(|_| sparse > 0) {
            None => memory::own(&path, words).await?,
            Some(parts) => {
                let owned = memory::own_sparse(&path, words).await?;
                for part in parts {
                    owned.mapping.reserve(part).await?;
                }
                owned
            }
        };
        // Without a first word, its maker has died before anybody could use it.
        if owned.mapping.words()[0].load(std::sync::atomic::Ordering::Acquire) == 0 {
            Host::make(&owned.mapping, layout);
        }
        let host = Host::open(owned.mapping.clone());
        let host = host.filter(|host| host.layout() == layout);
        let host = host.ok_or_else(|| damaged(&path, "it has another layout, or is damaged"))?;
        let bell = bell_path(directory, machine);
        let sleeper = Sleeper::new(Bell::hang(&bell).await?);
        let host = host.with_rope(Rope::find(&bell).await?);
        let readers = host.readers();
        let readers = readers.map_err(|_| damaged(&path, "a ring of messages is damaged"))?;
        let tail = host.join(machine).map_err(io::Error::other)?;
        Ok(Local {
            machine,
            directory: directory.to_owned(),
            file: Rc::new(path),
            host: Rc::new(host),
            readers,
            tail,
            sleeper,
            next: Cell::new(0),
            configuration: Cell::new(0),
            former: Cell::new(0),
            members: vec![Cell::new(false); layout.machines],
            _owned: owned,
        })
    }

    #[inline]
    pub fn machine(&self) -> Machine {
        self.machine
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Removes the name of this machine's memory, so that its room is free when nobody has it mapped any more. Who has
    /// mapped it keeps it. For a process that is about to end for good.
    pub async fn remove(&self) -> io::Result<()> {
        disk::remove(&self.file).await
    }

    /// The same for who ends the process, and does not have this.
    pub fn file(&self) -> File {
        File(Rc::downgrade(&self.file))
    }

    /// The number of the configuration; 0 before the first.
    pub fn configuration(&self) -> u64 {
        self.configuration.get()
    }

    pub fn host(&self) -> &Rc<Host> {
        &self.host
    }

    /// This machine as one that asks `whom`, which must be a member.
    #[inline]
    pub fn asker(&self, whom: Machine) -> Result<Asker, Error> {
        if !self.is_member(whom) {
            return Err(Error::Closed);
        }
        Ok(Asker {
            machine: self.machine,
            configuration: self.configuration.get(),
        })
    }

    #[inline]
    pub fn is_member(&self, machine: Machine) -> bool {
        let member = self.members.get(usize::from(machine.0));
        member.is_some_and(Cell::get)
    }

    /// Goes to a configuration, and closes all before it. When this has returned, nothing changes here any more that
    /// was asked for in one of them, or by a machine that is no member. Messages that had arrived before are still
    /// given out: they were acknowledged.
    ///
    /// Waits for a living process that is in the middle of an operation, which takes no time. But if that process is
    /// stopped, so is this. Who must not wait for ever drops the future after a while. Then [`inside`](Local::inside)
    /// says whom it waits for, and [`kill`](Local::kill) ends that one. Until this has returned for the number, called
    /// anew, the promise is not given. A dead process, and one that never comes back, holds up nobody.
    ///
    /// Error: `Closed` if this machine, in this life or a former one, has been in a later configuration.
    pub async fn configure(&self, number: u64, members: &[Machine]) -> Result<(), Error> {
        let newest = self.newest_fence().max(self.former.get());
        if number == 0 || number < newest.max(self.configuration.get()) {
            return Err(Error::Closed);
        }
        self.configuration.set(number);
        for (machine, member) in self.machines().zip(&self.members) {
            member.set(members.contains(&machine));
            let fence = if member.get() { number } else { 0 };
            self.host.set_fence(machine, fence);
        }
        self.wait_for_doors().await;
        // Another call may have gone further meanwhile, and none goes back.
        let now = self.configuration.get();
        assert!(
            number <= now,
            "configuration {number} is closed to all before it, and {now} is open"
        );
        Ok(())
    }

    async fn wait_for_doors(&self) {
        if planted!("farm_doors_are_not_awaited", "who closes does not wait") {
            return;
        }
        for machine in self.machines() {
            while self.is_inside(machine).await {
                sleep(DOOR_PAUSE).await;
            }
        }
    }

    /// Closes everything that the machine's former life was in. When this has returned, nobody reads or changes
    /// anything here until it is [configured](Local::configure): its owner may prepare the memory. To be called before
    /// the first configuration.
    pub async fn close(&self) {
        self.former.set(self.newest_fence().max(self.former.get()));
        for machine in self.machines() {
            self.host.set_fence(machine, 0);
        }
        self.wait_for_doors().await;
    }

    fn newest_fence(&self) -> u64 {
        let fences = self.machines().map(|m| self.host.fence(m));
        fences.max().unwrap_or(0)
    }

    /// All that have a number.
    fn machines(&self) -> impl Iterator<Item = Machine> + use<> {
        (0..self.readers.len()).map(|at| Machine(at as u16))
    }

    /// True while the machine is in the middle of an operation here, and its process is not known to be dead.
    async fn is_inside(&self, machine: Machine) -> bool {
        if !self.host.is_inside(machine) {
            return false;
        }
        let owned = memory::is_owned(&path(&self.directory, machine)).await;
        owned.unwrap_or(true) && self.host.is_inside(machine)
    }

    /// The machines of this host that are in the middle of an operation here at this moment. One that is among them
    /// twice, some milliseconds apart, is stopped, or its host is overloaded.
    pub async fn inside(&self) -> Vec<Machine> {
        let mut inside = Vec::new();
        for machine in self.machines() {
            if self.is_inside(machine).await {
                inside.push(machine);
            }
        }
        inside
    }

    /// The number of the process that a machine of this host is; `None` if it is dead, or of another host, and 0 if
    /// it is not known.
    pub async fn process(&self, machine: Machine) -> io::Result<Option<u32>> {
        memory::owner(&path(&self.directory, machine)).await
    }

    /// Kills the process that a machine of this host is, with all machines that are threads of it. Returns false if
    /// there is none.
    ///
    /// Errors: `InvalidInput` if it is this process, `PermissionDenied`, and those of the system.
    pub async fn kill(&self, machine: Machine) -> io::Result<bool> {
        memory::kill_owner(&path(&self.directory, machine)).await
    }

    pub fn send(&self, message: &[u8]) -> Result<(), Error> {
        self.host
            .append(self.asker(self.machine)?, &self.tail, message)
    }

    /// The next message that has arrived. Those of one sender come in its order. One that was not released before the
    /// process ended comes again.
    pub fn receive(&self) -> Option<Message> {
        let first = self.next.get();
        for at in (first..self.readers.len()).chain(0..first) {
            let Some(record) = self.readers[at].next() else {
                continue;
            };
            self.next.set((at + 1) % self.readers.len());
            return Some(Message {
                from: Machine(at as u16),
                configuration: record.configuration,
                body: record.body,
                end: record.end,
            });
        }
        None
    }

    /// Returns when [`receive`](Local::receive) has a message: at once if it has, or else as soon as one arrives,
    /// whoever has appended it. In between it takes no processor time. It may be dropped at any time, and several
    /// tasks may wait. A message that it has announced may be gone if another task has taken it.
    pub async fn arrival(&self) {
        let is_there = || self.readers.iter().any(|reader| reader.peek().is_some());
        self.sleeper.until(self.host.asleep(), is_there).await;
    }

    /// Frees the message and all before it of the same sender.
    pub fn release(&self, message: &Message) {
        if let Some(reader) = self.readers.get(usize::from(message.from.0)) {
            reader.free(message.end);
        }
    }
}
