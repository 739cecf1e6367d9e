//! Machines, their clocks, and the processes that run on them.

use super::disk::DiskState;
use super::executor::{Event, Kind, TaskKey};
use super::ids::{MachineId, ProcessId};
use super::memory::Memories;
use super::{World, enter_process};
use crate::random;
use std::any::Any;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Location of a machine: the groups of machines that fail together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Locality {
    pub data_center: String,
    pub zone: String,
    pub name: String,
}

const MILLION: i128 = 1_000_000;

/// A clock that runs a little fast or slow, from an origin of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    base_true_ns: u64,
    base_local_ns: u64,
    drift_ppm: i64,
}

impl Clock {
    pub fn new(base_true_ns: u64, base_local_ns: u64, drift_ppm: i64) -> Clock {
        assert!(
            drift_ppm.abs() < 500_000,
            "a clock that drifts by {drift_ppm} ppm is none"
        );
        Clock {
            base_true_ns,
            base_local_ns,
            drift_ppm,
        }
    }

    pub fn local(&self, true_ns: u64) -> u64 {
        let passed = i128::from(true_ns.saturating_sub(self.base_true_ns));
        let local = passed + passed * i128::from(self.drift_ppm) / MILLION;
        self.base_local_ns.saturating_add(local as u64)
    }

    /// The first point of true time at which the clock shows `local_ns` or more.
    pub fn true_time(&self, local_ns: u64) -> u64 {
        let passed = i128::from(local_ns.saturating_sub(self.base_local_ns));
        let rate = MILLION + i128::from(self.drift_ppm);
        let estimate = (passed * MILLION / rate - 2).max(0);
        let mut true_ns = self
            .base_true_ns
            .saturating_add(u64::try_from(estimate).unwrap_or(u64::MAX));
        while true_ns < u64::MAX && self.local(true_ns) < local_ns {
            true_ns += 1; // the estimate is low by a few roundings
        }
        true_ns
    }

    /// The same clock, which shows another time from now on.
    fn with_jump(&self, now_ns: u64, by_ns: i64) -> Clock {
        let local = self.local(now_ns).saturating_add_signed(by_ns);
        Clock::new(now_ns, local, self.drift_ppm)
    }

    /// The same clock at another rate from now on, without a jump.
    fn with_drift(&self, now_ns: u64, drift_ppm: i64) -> Clock {
        Clock::new(now_ns, self.local(now_ns), drift_ppm)
    }
}

pub(super) struct Machine {
    pub locality: Locality,
    pub clock: Clock,
    /// How far its clock has jumped in all. Its second clock does not jump.
    jumped_ns: i64,
    /// Error of the wall clock in milliseconds.
    pub wall_offset_ms: i64,
    pub is_up: bool,
    /// The machine is lost for good.
    pub is_lost: bool,
    pub disk: Rc<DiskState>,
    pub memories: Memories,
}

impl Machine {
    fn new(locality: Locality, clock: Clock) -> Machine {
        Machine {
            locality,
            clock,
            jumped_ns: 0,
            wall_offset_ms: 0,
            is_up: true,
            is_lost: false,
            disk: Rc::default(),
            memories: Memories::default(),
        }
    }
}

pub(super) type Main = Rc<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>;

/// Why the tasks of a process do not run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// As by SIGSTOP: no part of the process runs.
    Stopped,
    /// One task computes, and the loop waits for it. Threads beside the loop run.
    Busy { since_ns: u64 },
}

pub(super) struct Held {
    pub how: Hold,
    /// Tasks that became ready in the meantime.
    ready: Vec<TaskKey>,
}

pub(super) struct Process {
    pub machine: MachineId,
    pub address: SocketAddr,
    main: Option<Main>,
    /// True if the process starts again when its machine boots.
    pub is_wanted: bool,
    pub is_alive: bool,
    /// Shared with its file handles, so that the destructors of a dead process change nothing.
    pub life: Arc<AtomicBool>,
    /// Set while none of its tasks runs.
    pub held: Option<Held>,
    pub starts: u32,
    /// What others keep for this life of the process, one value a type.
    locals: Vec<Rc<dyn Any>>,
}

impl World {
    /// Machine 0 and process 0.
    pub(super) fn add_tester(self: &Rc<Self>) {
        let locality = Locality {
            name: "tester".to_owned(),
            ..Locality::default()
        };
        let clock = Clock::new(0, 0, 0);
        let machine = Machine::new(locality, clock);
        self.machines.borrow_mut().push(machine);
        let process = self.add_process(MachineId::TESTER, None);
        assert_eq!(process, ProcessId::TESTER);
    }

    pub(super) fn add_machine(&self, locality: Locality) -> MachineId {
        const OFFSET_NS_MAX: u64 = 1_000_000_000_000;
        let drift_max = self.config.borrow().clock_drift_ppm_max;
        let drift = random::below(2 * drift_max + 1) as i64 - drift_max as i64;
        let clock = Clock::new(self.executor.now(), random::range(1..OFFSET_NS_MAX), drift);
        let mut machines = self.machines.borrow_mut();
        machines.push(Machine::new(locality, clock));
        MachineId(machines.len() as u32 - 1)
    }

    /// Adds a process without a main, which lives until it is killed. Without an address it gets one.
    pub(super) fn add_process(&self, machine: MachineId, address: Option<SocketAddr>) -> ProcessId {
        let mut processes = self.processes.borrow_mut();
        let id = processes.len() as u32;
        let own = Ipv4Addr::new(10, 255, (id >> 8) as u8, id as u8);
        let address = address.unwrap_or(SocketAddr::new(IpAddr::V4(own), 4500));
        let other = processes
            .iter()
            .find(|p| p.address.ip() == address.ip() && p.machine != machine);
        assert!(
            other.is_none(),
            "the address {} belongs to another machine",
            address.ip()
        );
        assert!(
            self.machines.borrow()[machine.0 as usize].is_up,
            "machine {} is switched off",
            machine.0
        );
        processes.push(Process {
            machine,
            address,
            main: None,
            is_wanted: false,
            is_alive: true,
            life: Arc::new(AtomicBool::new(true)),
            held: None,
            starts: 1,
            locals: Vec::new(),
        });
        ProcessId(id)
    }

    pub(super) fn start_process(
        self: &Rc<Self>,
        machine: MachineId,
        address: SocketAddr,
        main: Main,
    ) -> ProcessId {
        let id = self.add_process(machine, Some(address));
        {
            let process = &mut self.processes.borrow_mut()[id.0 as usize];
            process.main = Some(main);
            process.is_wanted = true;
            process.is_alive = false;
            process.starts = 0;
        }
        self.launch(id);
        id
    }

    /// Starts a process that is not running, if its machine is.
    pub(super) fn launch(self: &Rc<Self>, id: ProcessId) {
        let main = {
            let machines = self.machines.borrow();
            let process = &mut self.processes.borrow_mut()[id.0 as usize];
            let Some(main) = process.main.clone() else {
                return;
            };
            process.is_wanted = true;
            if process.is_alive || !machines[process.machine.0 as usize].is_up {
                return;
            }
            process.is_alive = true;
            process.life = Arc::new(AtomicBool::new(true));
            process.starts += 1;
            process.locals = Vec::new();
            main
        };
        self.executor.record(Kind::Process, u64::from(id.0), 1);
        let _as_process = enter_process(id);
        let world = Rc::downgrade(self);
        let main = self.start("main", async move {
            main().await;
            // Like the return of a real main, this ends all tasks that are still running.
            if let Some(world) = world.upgrade() {
                world.end_process(id, false);
                world.processes.borrow_mut()[id.0 as usize].is_wanted = false;
            }
        });
        main.detach();
    }

    /// Ends a process: its connections, writes under way and tasks, in the order in which a kernel would.
    pub(super) fn end_process(self: &Rc<Self>, id: ProcessId, power_is_lost: bool) {
        let disk = {
            let process = &mut self.processes.borrow_mut()[id.0 as usize];
            if !process.is_alive {
                return;
            }
            process.is_alive = false;
            process.life.store(false, Ordering::Relaxed);
            if process.held.take().is_some() {
                self.held.set(self.held.get() - 1);
            }
            self.machines.borrow()[process.machine.0 as usize]
                .disk
                .clone()
        };
        self.executor.record(Kind::Process, u64::from(id.0), 2);
        disk.end_writes_of(id);
        self.end_connections_of(id, power_is_lost);
        self.drop_tasks(id);
    }

    pub(super) fn restart_later(self: &Rc<Self>, id: ProcessId, after_ns: u64) {
        let at = self.executor.now().saturating_add(after_ns);
        self.executor
            .schedule(at, Event::Call(Box::new(move |world| world.launch(id))));
    }

    pub(super) fn power_cut(self: &Rc<Self>, machine: MachineId) {
        assert_ne!(
            machine,
            MachineId::TESTER,
            "the tester's machine never fails"
        );
        self.machines.borrow_mut()[machine.0 as usize].is_up = false;
        for id in self.processes_on(machine) {
            self.end_process(id, true);
        }
        self.machines.borrow_mut()[machine.0 as usize]
            .memories
            .clear();
        let disk = self.machines.borrow()[machine.0 as usize].disk.clone();
        disk.power_cut();
    }

    /// The machine never comes back, and its disk is gone.
    pub(super) fn lose(self: &Rc<Self>, machine: MachineId) {
        self.power_cut(machine);
        let lost = &mut self.machines.borrow_mut()[machine.0 as usize];
        (lost.is_lost, lost.disk) = (true, Rc::default());
    }

    pub(super) fn boot(self: &Rc<Self>, machine: MachineId) {
        if self.machines.borrow()[machine.0 as usize].is_lost {
            return;
        }
        let was_up = std::mem::replace(
            &mut self.machines.borrow_mut()[machine.0 as usize].is_up,
            true,
        );
        if was_up {
            return;
        }
        self.restart_stalled_traffic();
        for id in self.processes_on(machine) {
            if self.processes.borrow()[id.0 as usize].is_wanted {
                self.launch(id);
            }
        }
    }

    /// Stops the tasks of a process for a while. Everything around them continues, its timers included.
    pub(super) fn hold(self: &Rc<Self>, id: ProcessId, how: Hold, for_ns: u64) {
        assert_ne!(id, ProcessId::TESTER, "the tester is never held");
        {
            let process = &mut self.processes.borrow_mut()[id.0 as usize];
            if !process.is_alive || process.held.is_some() {
                return;
            }
            let ready = Vec::new();
            process.held = Some(Held { how, ready });
        }
        self.held.set(self.held.get() + 1);
        let starts = self.processes.borrow()[id.0 as usize].starts;
        let resume = move |world: &Rc<World>| {
            let process = &mut world.processes.borrow_mut()[id.0 as usize];
            // A process that was killed and restarted in the meantime is not the one that was held.
            if process.starts == starts
                && let Some(Held { ready, .. }) = process.held.take()
            {
                world.held.set(world.held.get() - 1);
                world.executor.requeue(ready);
            }
        };
        let at = self.executor.now().saturating_add(for_ns);
        self.executor.schedule(at, Event::Call(Box::new(resume)));
    }

    /// Holds a ready task back if its process is held. True if so.
    pub(super) fn defer(&self, id: ProcessId, key: TaskKey) -> bool {
        match &mut self.processes.borrow_mut()[id.0 as usize].held {
            Some(held) => {
                held.ready.push(key);
                true
            }
            None => false,
        }
    }

    pub(super) fn set_clock_drift(&self, machine: MachineId, drift_ppm: i64) {
        let machine = &mut self.machines.borrow_mut()[machine.0 as usize];
        machine.clock = machine.clock.with_drift(self.executor.now(), drift_ppm);
    }

    pub(super) fn jump_clock(&self, machine: MachineId, by_ns: i64) {
        let machine = &mut self.machines.borrow_mut()[machine.0 as usize];
        machine.clock = machine.clock.with_jump(self.executor.now(), by_ns);
        machine.jumped_ns += by_ns;
    }

    /// How far the clock of the process's machine has jumped in all.
    pub(super) fn jumped_ns(&self, id: ProcessId) -> i64 {
        let machine = self.machine_of(id);
        self.machines.borrow()[machine.0 as usize].jumped_ns
    }

    pub(super) fn set_wall_clock(&self, machine: MachineId, offset_ms: i64) {
        self.machines.borrow_mut()[machine.0 as usize].wall_offset_ms = offset_ms;
    }

    pub(super) fn wall_offset_ms(&self, id: ProcessId) -> i64 {
        let machine = self.machine_of(id);
        self.machines.borrow()[machine.0 as usize].wall_offset_ms
    }

    fn processes_on(&self, machine: MachineId) -> Vec<ProcessId> {
        let processes = self.processes.borrow();
        let here = processes
            .iter()
            .enumerate()
            .filter(|(_, p)| p.machine == machine);
        here.map(|(i, _)| ProcessId(i as u32)).collect()
    }

    pub(super) fn is_alive(&self, id: ProcessId) -> bool {
        self.processes.borrow()[id.0 as usize].is_alive
    }

    pub(super) fn is_up(&self, machine: MachineId) -> bool {
        self.machines.borrow()[machine.0 as usize].is_up
    }

    pub(super) fn machine_of(&self, id: ProcessId) -> MachineId {
        self.processes.borrow()[id.0 as usize].machine
    }

    /// The machine with this address; the newest process with it counts.
    pub(super) fn machine_at(&self, ip: IpAddr) -> Option<MachineId> {
        self.processes
            .borrow()
            .iter()
            .rev()
            .find(|p| p.address.ip() == ip)
            .map(|p| p.machine)
    }

    pub(super) fn clock_of(&self, id: ProcessId) -> Clock {
        let machine = self.machine_of(id);
        self.machines.borrow()[machine.0 as usize].clock
    }

    pub(super) fn life_of(&self, id: ProcessId) -> Arc<AtomicBool> {
        self.processes.borrow()[id.0 as usize].life.clone()
    }

    /// What somebody keeps for this life of the running process, made when it is first asked for.
    pub(crate) fn local<T: Default + 'static>(&self) -> Rc<T> {
        let locals = &mut self.processes.borrow_mut()[self.current.get().0 as usize].locals;
        let known = locals
            .iter()
            .find_map(|local| local.clone().downcast().ok());
        known.unwrap_or_else(|| {
            let made = Rc::new(T::default());
            locals.push(made.clone());
            made
        })
    }

    pub(super) fn disk_of(&self, machine: MachineId) -> Rc<DiskState> {
        self.machines.borrow()[machine.0 as usize].disk.clone()
    }

    pub(super) fn mark_all_dead(&self) {
        for process in self.processes.borrow_mut().iter_mut() {
            process.is_alive = false;
            process.life.store(false, Ordering::Relaxed);
        }
    }
}
