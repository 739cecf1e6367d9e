//! A running member: a process whose server is in a cluster on a fabric.

use crate::core::Core;
use crate::deaths::Deaths;
use crate::life::Life;
use crate::manage::{Manager, misfit};
use crate::record::{Cluster, Disk, Place, Record, Seat};
use crate::register::Register;
use crate::view::{Left, View};
use bytes::Bytes;
use plinth_core::{Error, Uid};
use plinth_farm_fabric::{Fabric, Machine};
use plinth_farm_time::{Clock, MemberId, Server};
use plinth_runtime::sync::Watch;
use plinth_runtime::{
    Duration, Instant, TaskGroup, beat_after, join_all, now, race, random, sleep, timeout, trace,
};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

const STEP_MAX: Duration = Duration::from_millis(5);
/// A member that has nothing to do looks around after so long.
const QUIET_MAX: Duration = Duration::from_millis(100);
/// A new configuration is shown when all its machines are open, or after so long.
const OPEN_LIMIT: Duration = Duration::from_millis(50);

/// What a process brings to the cluster.
pub struct Options {
    /// Regions that the machine's memory has room for. 0: it only runs transactions.
    pub slots: u16,
    /// The data directory, which this process holds until it ends. In a durable cluster, each machine with slots has
    /// one, and no other.
    pub disk: Option<Disk>,
    /// Where other hosts reach its memory.
    pub socket: Option<SocketAddr>,
    /// Machines of one zone may fail together. Empty: those of one host do.
    pub zone: String,
    /// Called with each machine before the fabric opens it: a fabric may have to learn where it is.
    pub meet: Box<dyn Fn(&Seat)>,
    /// Called with the number of a configuration just before the fabric takes it, so that an engine can close itself
    /// for the one before. Nothing runs in between. If the fabric refuses, it is called again.
    pub closing: Option<Box<dyn Fn(u64)>>,
    /// The process can come again under another number: it leaves with [`Left::Taken`] if another host has this one.
    pub may_renumber: bool,
}

/// Makes a cluster, unless the register has one. Returns what it has then.
///
/// # Errors
/// The register cannot be read or written now. Whether there is a cluster then is not known.
pub async fn create(register: &impl Register, cluster: Cluster) -> Result<Record, Error> {
    let first = Record::of_new(cluster);
    if !first.is_sane() {
        return Err(Error::client_invalid_operation);
    }
    loop {
        if let Some(record) = register.read().await? {
            return Ok(record);
        }
        register.swap(&first).await?;
    }
}

/// A handle of the process's membership. When it is dropped, the process is no member any more: its clock stops, and
/// the others will notice.
pub struct Member<F: Fabric + 'static, R: Register + 'static> {
    core: Rc<Core<F, R>>,
    _tasks: TaskGroup,
}

impl<F: Fabric + 'static, R: Register + 'static> Drop for Member<F, R> {
    fn drop(&mut self) {
        // Before the life ends, which others may see at once.
        self.core.leave(Left::Removed);
    }
}

impl<F: Fabric + 'static, R: Register + 'static> Member<F, R> {
    /// Begins a life of this process's machine, and asks to be let in. `record` is one that the register has had.
    ///
    /// The caller takes what the fabric receives and hands frames that begin with [`TAG`](crate::TAG) to
    /// [`receive`](Member::receive).
    ///
    /// # Errors
    /// `InvalidInput` if the machine does not fit the cluster, `WouldBlock` if another process of this machine lives,
    /// and those of the system.
    pub async fn start(
        fabric: Rc<F>,
        register: R,
        record: Record,
        options: Options,
    ) -> io::Result<Member<F, R>> {
        let local = fabric.local();
        let (id, machine) = (Uid(random::uid()), local.machine().0);
        let life = Life::begin(local.directory(), machine, id).await?;
        let place = Place {
            host: life.host(),
            socket: options.socket,
            zone: options.zone,
        };
        let own = Seat {
            machine,
            id,
            place,
            slots: options.slots,
            disk: options.disk,
        };
        if let Some(misfit) = misfit(&record, &own, local.host().layout().machines) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                misfit.to_string(),
            ));
        }
        let cluster = record.cluster.clone();
        let server = Server::new(id, cluster.time());
        let server = match cluster.is_durable {
            true => server.restorable(),
            false => server,
        };
        let mut core = Core::new((fabric, register, own, life), server, record);
        core.meet = options.meet;
        core.closing = options.closing;
        core.may_renumber = options.may_renumber;
        let core = Rc::new(core);
        let tasks = TaskGroup::new();
        let step = Duration::from_nanos(cluster.sync_ns.min(cluster.resend_ns) / 4);
        let step = step.min(STEP_MAX);
        tasks.spawn("member tick", tick(core.clone(), step));
        tasks.spawn("member deaths", Deaths::new(&core, 2 * step).run());
        tasks.spawn("member configure", configure(core.clone()));
        tasks.spawn("member manage", Manager::new(&core, step).run());
        Ok(Member {
            core,
            _tasks: tasks,
        })
    }

    /// This life.
    pub fn id(&self) -> MemberId {
        self.core.id()
    }

    /// Gives timestamps while this process is a member.
    pub fn clock(&self) -> &Rc<Clock> {
        &self.core.clock
    }

    /// The membership; `None` before this process is a member. It does not change any more when the process has left.
    pub fn view(&self) -> &Watch<Option<View>> {
        &self.core.view
    }

    /// Set when the process must end.
    pub fn left(&self) -> &Watch<Option<Left>> {
        &self.core.left
    }

    /// Leaves at once if the clock is broken, and not at the next beat.
    pub fn look_at_clock(&self) {
        self.core.update(|server, now| {
            let _ = server.time(now); // what is wrong with it becomes a notice
        });
    }

    pub fn is_master(&self) -> bool {
        self.core.update(|server, _| server.is_master())
    }

    /// Takes a message of the fabric whose first byte is [`TAG`](crate::TAG). `from` is who the fabric says has sent
    /// it.
    pub fn receive(&self, from: Machine, message: Bytes) {
        self.core.receive(from, message);
    }

    /// Connects the fabric to a member anew. Returns when it is open, or cannot be opened now. Nobody else may open
    /// it.
    pub async fn open(&self, machine: Machine) {
        self.core.post.open(machine.0).await;
    }

    /// This machine's replicas of these regions are whole, in the configuration with this number. The record will show
    /// it. If there is another configuration, the report is dropped: the replica may lack what the change has brought.
    pub fn report_whole(&self, number: u64, regions: &[u16]) {
        let own = self.core.own.machine;
        self.core.note_whole(number, own, regions);
    }

    /// The engine cannot go on in the configuration with this number: asks for one more of the same members, in which
    /// it recovers from the beginning. Whatever configuration comes next will do, so that one request or many lead to
    /// one, and a request for a former one does nothing.
    pub fn want_anew(&self, number: u64) {
        self.core.note_anew(number);
    }
}

/// Moves the server on when its time has come, and when something has happened to it.
async fn tick<F: Fabric + 'static, R: Register + 'static>(core: Rc<Core<F, R>>, step: Duration) {
    while !core.has_left() {
        let stirred = core.stirred.notified();
        let quiet_until = core.update(|server, now| {
            server.tick(now);
            server.quiet_until()
        });
        let is_shared = share_time(&core).await;
        core.show();
        let next = match is_shared {
            true => Instant(quiet_until).min(now() + QUIET_MAX),
            false => now(),
        };
        race(stirred, beat_after(next, step)).await;
    }
}

/// Says what time it is to the processes of this host, as the master, or hears it from the master. False if it has to
/// be tried again soon.
async fn share_time<F: Fabric + 'static, R: Register + 'static>(core: &Core<F, R>) -> bool {
    let (own, master) = core.clock.update(|server, _| {
        let master = server.configuration().map(|c| c.master);
        (server.shared(), master)
    });
    if let Some(own) = own {
        core.life.publish(&own);
        return true;
    }
    let record = core.record();
    let Some(seat) = master.and_then(|master| record.seat_of(master)) else {
        return true;
    };
    if !core.life.is_near(seat) {
        return true;
    }
    match core.life.published(seat).await {
        Some(shared) => core
            .clock
            .update(|server, now| server.share(seat.id, shared, now)),
        None => false,
    }
}

/// Takes the fabric to each new configuration, and shows it then.
async fn configure<F: Fabric + 'static, R: Register + 'static>(core: Rc<Core<F, R>>) {
    while !core.has_left() {
        let news = core.news.notified();
        let record = core.record();
        let number = record.number();
        let is_member = record.seat_of(core.id()).is_some();
        if !is_member || core.post.configured.get() >= number {
            news.await;
            continue;
        }
        let machines: Vec<Machine> = record.machines.iter().map(|s| Machine(s.machine)).collect();
        record.machines.iter().for_each(|seat| (core.meet)(seat));
        if let Some(closing) = &core.closing {
            closing(number);
        }
        match core.fabric.configure(number, &machines).await {
            Ok(()) => {
                trace!("FarmFabricConfigured", "number" => number);
                let before = core.post.configured.get();
                assert!(
                    before < number,
                    "the fabric goes from configuration {before} to {number}"
                );
                core.post.configured.set(number);
            }
            Err(error) => {
                // A former life of this machine has been in a later one, so the record is old.
                core.outdate();
                trace!("FarmFabricRefuses", "number" => number, "error" => error);
                sleep(STEP_MAX).await;
                continue;
            }
        }
        let limit = Duration::from_nanos(record.cluster.lease_ns / 8).min(OPEN_LIMIT);
        let others = machines
            .iter()
            .filter(|machine| machine.0 != core.own.machine);
        let opened = join_all(others.map(|machine| core.post.open(machine.0)));
        race(timeout(limit, opened), news).await;
        core.show();
    }
}
