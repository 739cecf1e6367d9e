//! The handle with which a test, or a workload inside the simulation, builds the world and injects faults.

use super::executor::Event;
use super::files::FilesCopy;
use super::ids::{MachineId, ProcessId};
use super::machine::{Hold, Locality};
use super::sickness::Sickness;
use super::{SimConfig, World, current};
use crate::{Duration, buggify, random};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;

/// What happens after a process is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KillKind {
    /// The process stays dead until [`Control::restart_process`].
    Kill,
    RebootProcess {
        after: Duration,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessInfo {
    pub id: ProcessId,
    pub machine: MachineId,
    pub address: SocketAddr,
    pub is_alive: bool,
    /// Number of starts.
    pub starts: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineInfo {
    pub id: MachineId,
    pub locality: Locality,
    pub is_up: bool,
}

/// Controls a world; clones control the same one. All methods can be called from inside simulated tasks and from
/// outside.
#[derive(Clone)]
pub struct Control(Weak<World>);

/// The control of the simulation that is running.
pub fn control() -> Control {
    Control::new(&current().expect("control() is called inside a simulation"))
}

impl Control {
    pub(super) fn new(world: &Rc<World>) -> Control {
        Control(Rc::downgrade(world))
    }

    fn within<R>(&self, f: impl FnOnce(&Rc<World>) -> R) -> R {
        let world = self
            .0
            .upgrade()
            .expect("the simulation outlives its controls' use");
        let _entered = world.enter();
        f(&world)
    }

    // ---- building ----

    pub fn add_machine(&self, locality: Locality) -> MachineId {
        self.within(|world| world.add_machine(locality))
    }

    /// Starts `main` as a process, and again at each restart. When `main` returns, the process has exited.
    pub fn start_process(
        &self,
        machine: MachineId,
        address: SocketAddr,
        main: impl Fn() -> Pin<Box<dyn Future<Output = ()>>> + 'static,
    ) -> ProcessId {
        self.within(|world| world.start_process(machine, address, Rc::new(main)))
    }

    /// Every machine but the tester's.
    pub fn machines(&self) -> Vec<MachineInfo> {
        self.within(|world| {
            let machines = world.machines.borrow();
            let info = |(i, m): (usize, &super::machine::Machine)| MachineInfo {
                id: MachineId(i as u32),
                locality: m.locality.clone(),
                is_up: m.is_up,
            };
            machines.iter().enumerate().skip(1).map(info).collect()
        })
    }

    /// Every process but the tester, dead ones included.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.within(|world| {
            let processes = world.processes.borrow();
            let info = |(i, p): (usize, &super::machine::Process)| ProcessInfo {
                id: ProcessId(i as u32),
                machine: p.machine,
                address: p.address,
                is_alive: p.is_alive,
                starts: p.starts,
            };
            processes.iter().enumerate().skip(1).map(info).collect()
        })
    }

    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.within(|world| world.is_alive(process))
    }

    /// Changes rates and ranges while the world runs.
    pub fn configure(&self, change: impl FnOnce(&mut SimConfig)) {
        self.within(|world| change(&mut world.config.borrow_mut()));
    }

    // ---- processes and machines ----

    /// Kills a process. Data that it has written survives; its memory does not.
    pub fn kill_process(&self, process: ProcessId, kind: KillKind) {
        assert_ne!(process, ProcessId::TESTER, "the tester is never killed");
        self.within(|world| {
            world.processes.borrow_mut()[process.0 as usize].is_wanted = kind != KillKind::Kill;
            world.end_process(process, false);
            if let KillKind::RebootProcess { after } = kind {
                world.restart_later(process, after.as_nanos() as u64);
            }
        });
    }

    /// Starts a process that was killed or has exited, if its machine has power.
    pub fn restart_process(&self, process: ProcessId) {
        self.within(|world| world.launch(process));
    }

    /// Like SIGSTOP: the process does nothing for a while, and its peers get no notice.
    pub fn pause_process(&self, process: ProcessId, duration: Duration) {
        self.within(|world| world.hold(process, Hold::Stopped, duration.as_nanos() as u64));
    }

    /// One task of the process computes for a while, and all others wait. Only its pulse shows that the process lives.
    pub fn busy_process(&self, process: ProcessId, duration: Duration) {
        self.within(|world| {
            let since_ns = world.executor.now();
            let busy = Hold::Busy { since_ns };
            world.hold(process, busy, duration.as_nanos() as u64)
        });
    }

    /// Kills every process of the machine. Each unsynced write and name is kept, lost or torn.
    pub fn power_cut(&self, machine: MachineId) {
        self.within(|world| world.power_cut(machine));
    }

    /// Gives the machine its power back and starts its processes, except those that were killed for good.
    pub fn boot(&self, machine: MachineId) {
        self.within(|world| world.boot(machine));
    }

    /// Removes the machine for good, with its disk.
    pub fn lose_machine(&self, machine: MachineId) {
        self.within(|world| world.lose(machine));
    }

    /// A power cut, and a boot after a while.
    pub fn reboot_machine(&self, machine: MachineId, after: Duration) {
        self.within(|world| {
            world.power_cut(machine);
            let at = world.executor.now().saturating_add(after.as_nanos() as u64);
            let boot = move |world: &Rc<World>| world.boot(machine);
            world.executor.schedule(at, Event::Call(Box::new(boot)));
        });
    }

    /// Sets the drift of the machine's clock: fast if positive, slow if negative.
    pub fn set_clock_drift(&self, machine: MachineId, drift_ppm: i64) {
        self.within(|world| world.set_clock_drift(machine, drift_ppm));
    }

    /// Lets the machine's clock jump, forward or back. Its second clock does not, and timers that are set stay as they
    /// are.
    pub fn jump_clock(&self, machine: MachineId, by_ns: i64) {
        self.within(|world| world.jump_clock(machine, by_ns));
    }

    /// Sets the error of the machine's wall clock: the clock jumps. The tester's machine has one, too.
    pub fn set_wall_clock(&self, machine: MachineId, offset_ms: i64) {
        self.within(|world| world.set_wall_clock(machine, offset_ms));
    }

    // ---- network ----

    /// Blocks all traffic from `a` to `b`; with `both`, also from `b` to `a`.
    pub fn partition(&self, a: MachineId, b: MachineId, both: bool) {
        self.within(|world| {
            world.block(a, b);
            if both {
                world.block(b, a);
            }
        });
    }

    /// Ends partitions and clogs between two machines; delayed traffic arrives.
    pub fn heal(&self, a: MachineId, b: MachineId) {
        self.within(|world| world.unblock(|pair| pair == (a, b) || pair == (b, a)));
    }

    /// Holds back everything from `a` to `b` for a while.
    pub fn clog(&self, a: MachineId, b: MachineId, duration: Duration) {
        self.within(|world| world.clog(a, b, duration.as_nanos() as u64));
    }

    /// Cuts every connection between two machines, in the middle of the bytes under way; returns how many.
    pub fn cut_connections(&self, a: MachineId, b: MachineId) -> usize {
        self.within(|world| world.cut_connections(|x, y| (x, y) == (a, b) || (x, y) == (b, a)))
    }

    // ---- disks ----

    /// From now on the host's name stands for this address, or for none.
    pub fn name(&self, host: &str, ip: Option<IpAddr>) {
        self.within(|world| world.name(host, ip));
    }

    /// Gives a machine another address, which no other machine has. Its processes must be dead.
    pub fn move_machine(&self, machine: MachineId, ip: IpAddr) {
        self.within(|world| world.move_machine(machine, ip));
    }

    /// Writes that need space fail with `StorageFull`; overwrites of allocated space still succeed.
    pub fn set_disk_full(&self, machine: MachineId, full: bool) {
        self.within(|world| {
            world
                .disk_of(machine)
                .faults
                .is_full
                .store(full, Ordering::Relaxed)
        });
    }

    /// Memories that are made fail with `StorageFull`; those that are there stay.
    pub fn set_memory_full(&self, machine: MachineId, full: bool) {
        self.within(|world| {
            let mut machines = world.machines.borrow_mut();
            machines[machine.0 as usize].memories.is_full = full;
        });
    }

    /// Replaces the sickness of the machine's disk.
    pub fn set_disk_sickness(&self, machine: MachineId, sickness: Sickness) {
        self.within(|world| {
            let disk = world.disk_of(machine);
            let lies = !sickness.lies.is_empty();
            world.has_lied.set(world.has_lied.get() || lies);
            disk.faults.set(sickness, &disk.changed);
        });
    }

    /// Marks the run as one in which false data may be trusted: [`nobody_has_lied`](crate::nobody_has_lied) is false
    /// from now on.
    pub fn expect_lies(&self) {
        self.within(|world| world.has_lied.set(true));
    }

    /// The next write to a file is lost although its caller gets success, or lands somewhere in the file `into`, which
    /// may be the same; false if a file does not exist.
    pub fn lead_next_write_astray(
        &self,
        machine: MachineId,
        path: &Path,
        into: Option<&Path>,
    ) -> bool {
        self.within(|world| {
            world.has_lied.set(true);
            world.disk_of(machine).lead_astray(path, into)
        })
    }

    /// Cancels stray writes that have not happened yet.
    pub fn end_stray_writes(&self, machine: MachineId) {
        self.within(|world| world.disk_of(machine).end_strays());
    }

    /// Ends the sickness of the disk, unless it is for good.
    pub fn end_disk_sickness(&self, machine: MachineId) {
        self.within(|world| {
            let disk = world.disk_of(machine);
            disk.faults.end_sickness(&disk.changed);
        });
    }

    /// Multiplies every delay of the disk by `factor`.
    pub fn set_disk_slowness(&self, machine: MachineId, factor: u32) {
        self.within(|world| {
            world
                .disk_of(machine)
                .faults
                .slowness
                .store(factor, Ordering::Relaxed)
        });
    }

    /// The files of a machine.
    pub fn files(&self, machine: MachineId) -> Vec<PathBuf> {
        self.within(|world| world.disk_of(machine).paths())
    }

    /// Flips one bit of a file, at a random offset in the range; false if the file has no bytes there.
    pub fn flip_bit_in_file(&self, machine: MachineId, path: &Path, within: Range<u64>) -> bool {
        self.within(|world| world.disk_of(machine).flip_bit(path, within))
    }

    /// Where these bytes stand in a file, so that a test can damage what holds a certain row.
    pub fn places_in_file(&self, machine: MachineId, path: &Path, wanted: &[u8]) -> Vec<u64> {
        self.within(|world| world.disk_of(machine).places_of(path, wanted))
    }

    /// Changes the bytes of a file on its disk, as damage does, or cuts it; false if it does not exist. Its processes
    /// must be dead.
    pub fn change_file(
        &self,
        machine: MachineId,
        path: &Path,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        self.within(|world| world.disk_of(machine).change(path, change))
    }

    /// Removes a file for good, as an operator's mistake would; false if it does not exist.
    pub fn lose_file(&self, machine: MachineId, path: &Path) -> bool {
        self.within(|world| world.disk_of(machine).lose(path))
    }

    /// Copies every file of a machine to another.
    pub fn copy_files(&self, from: MachineId, to: MachineId) {
        self.within(|world| world.disk_of(from).copy_to(&world.disk_of(to)));
    }

    /// Files of a machine as they are now.
    pub fn copy_of_files(&self, machine: MachineId, is_meant: impl Fn(&Path) -> bool) -> FilesCopy {
        self.within(|world| world.disk_of(machine).copy_of(is_meant))
    }

    /// Sets files back to what they were, as somebody does who puts an old copy of a directory in place. Its
    /// processes must be dead. Other files that are meant go. False data may be trusted from now on.
    pub fn set_files_back(
        &self,
        machine: MachineId,
        copy: &FilesCopy,
        is_meant: impl Fn(&Path) -> bool,
    ) {
        self.expect_lies();
        self.within(|world| {
            let disk = world.disk_of(machine);
            let there = disk.paths().into_iter().filter(|path| is_meant(path));
            for path in there {
                disk.lose(&path);
            }
            disk.put_back(copy);
        });
    }

    // ---- the end of the faults ----

    /// Heals the network and the disks, except those that are sick for good, sets the rates of flipped bits and cut
    /// connections to zero, and disables `buggify!`. Dead processes stay dead.
    pub fn heal_all(&self) {
        self.within(|world| {
            world.unblock(|_| true);
            for machine in world.machines.borrow_mut().iter_mut() {
                machine.disk.faults.heal(&machine.disk.changed);
                machine.memories.is_full = false;
            }
            let mut config = world.config.borrow_mut();
            config.bit_flip_probability = 0.0;
            config.connection_cut_probability = 0.0;
            buggify::replace(None);
        });
    }

    /// Enables `buggify!`, with a new choice of sites, or disables it.
    pub fn set_buggify(&self, enabled: bool) {
        self.within(|_| buggify::replace(enabled.then(random::u64)));
    }

    // ---- looking ----

    pub fn fingerprint(&self) -> u64 {
        self.within(|world| world.executor.fingerprint())
    }

    /// True time since the start of the simulation.
    pub fn elapsed(&self) -> Duration {
        self.within(|world| Duration::from_nanos(world.executor.elapsed_ns()))
    }

    /// Tasks of all processes that have not ended, by name.
    pub fn tasks(&self) -> BTreeMap<&'static str, usize> {
        self.within(|world| world.executor.tasks())
    }

    /// Number of executed events.
    pub fn events(&self) -> u64 {
        self.within(|world| world.executor.executed())
    }

    /// The newest trace events, oldest first.
    pub fn trace_tail(&self) -> Vec<String> {
        self.within(|world| world.trace.borrow().iter().cloned().collect())
    }
}
