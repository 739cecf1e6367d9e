//! Tasks, timers and virtual time.

use super::ids::ProcessId;
use super::{World, current, enter_process};
use crate::random;
use crate::task::cell::{Owner, Runnable, Task, prepare};
use crate::{Instant, buggify};
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Start of virtual time, so that a subtraction near the beginning stays positive.
const BEGIN_NS: u64 = 1_000_000_000;
/// Cancelled timers are removed from the heap when they are this many and more than half of it.
const STALE_TIMERS_MAX: usize = 1024;

/// The kinds of events in a fingerprint.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Poll = 1,
    Deliver,
    Disk,
    Process,
    Trace,
}

pub(crate) struct Executor {
    now_ns: Cell<u64>,
    ready: Arc<Mutex<VecDeque<TaskKey>>>,
    /// Probability that a random ready task runs first.
    randomness: f64,
    tasks: RefCell<Tasks>,
    running: Cell<Option<&'static str>>,
    timers: RefCell<Timers>,
    events: RefCell<BinaryHeap<Scheduled>>,
    next_sequence: Cell<u64>,
    fingerprint: Cell<u64>,
    executed: Cell<u64>,
    polls_this_instant: Cell<u64>,
    polls_per_instant_max: u64,
}

/// Identifies a task. Slot numbers are reused; the generation distinguishes the tasks of one slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskKey {
    slot: u32,
    generation: u32,
}

#[derive(Default)]
struct Tasks {
    slots: Vec<TaskSlot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct TaskSlot {
    generation: u32,
    task: Option<Rc<SimTask>>,
}

struct SimTask {
    runnable: Rc<dyn Runnable>,
    waker: Waker,
    state: Arc<TaskWaker>,
    process: ProcessId,
    name: &'static str,
    name_hash: u64,
}

struct TaskWaker {
    key: TaskKey,
    /// The task is in the ready queue already.
    is_queued: AtomicBool,
    ready: Arc<Mutex<VecDeque<TaskKey>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Relaxed) {
            self.ready
                .lock()
                .expect("no panic while it is held")
                .push_back(self.key);
        }
    }
}

impl Tasks {
    fn remove(&mut self, key: TaskKey) -> Option<Rc<SimTask>> {
        let slot = &mut self.slots[key.slot as usize];
        if slot.generation != key.generation {
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.slot);
        slot.task.take()
    }

    fn get(&self, key: TaskKey) -> Option<Rc<SimTask>> {
        let slot = &self.slots[key.slot as usize];
        if slot.generation == key.generation {
            slot.task.clone()
        } else {
            None
        }
    }
}

/// Something that pieces arrive at.
pub(super) trait Arrives {
    /// Delivers the pieces that are due in one direction, if the path is open.
    fn arrive(self: Rc<Self>, world: &Rc<World>, direction: usize);
}

/// An event at a point of virtual time.
pub(super) enum Event {
    Timer {
        slot: u32,
        generation: u32,
    },
    /// A piece in one direction of a connection may have arrived.
    Arrival(Rc<dyn Arrives>, usize),
    Call(Box<dyn FnOnce(&Rc<World>)>),
}

struct Scheduled {
    at_ns: u64,
    sequence: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    /// The earliest event is the greatest, because the heap returns its greatest element first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.sequence).cmp(&(self.at_ns, self.sequence))
    }
}

#[derive(Default)]
struct Timers {
    slots: Vec<TimerSlot>,
    free: Vec<u32>,
    stale: usize,
}

#[derive(Default)]
struct TimerSlot {
    generation: u32,
    has_fired: bool,
    waker: Option<Waker>,
}

/// A timer that was set. Dropping it cancels the timer.
pub(crate) struct TimerHandle {
    world: Weak<World>,
    slot: u32,
}

impl TimerHandle {
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(world) = self.world.upgrade() else {
            return Poll::Pending;
        };
        let mut timers = world.executor.timers.borrow_mut();
        let slot = &mut timers.slots[self.slot as usize];
        if slot.has_fired {
            return Poll::Ready(());
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => slot.waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for TimerHandle {
    fn drop(&mut self) {
        let Some(world) = self.world.upgrade() else {
            return;
        };
        let executor = &world.executor;
        let mut timers = executor.timers.borrow_mut();
        let slot = &mut timers.slots[self.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let waker = slot.waker.take();
        let was_pending = !slot.has_fired;
        timers.free.push(self.slot);
        if was_pending {
            timers.stale += 1;
            let mut events = executor.events.borrow_mut();
            if timers.stale > STALE_TIMERS_MAX && timers.stale > events.len() / 2 {
                let slots = &timers.slots;
                events.retain(|scheduled| match scheduled.event {
                    Event::Timer { slot, generation } => {
                        slots[slot as usize].generation == generation
                    }
                    _ => true,
                });
                timers.stale = 0;
            }
        }
        drop(timers);
        drop(waker);
    }
}

impl Executor {
    pub fn new(randomness: f64, polls_per_instant_max: u64) -> Executor {
        Executor {
            now_ns: Cell::new(BEGIN_NS),
            ready: Arc::default(),
            randomness,
            tasks: RefCell::default(),
            running: Cell::new(None),
            timers: RefCell::default(),
            events: RefCell::default(),
            next_sequence: Cell::new(0),
            fingerprint: Cell::new(0),
            executed: Cell::new(0),
            polls_this_instant: Cell::new(0),
            polls_per_instant_max,
        }
    }

    /// True time, which no process can read.
    pub fn now(&self) -> u64 {
        self.now_ns.get()
    }

    pub fn elapsed_ns(&self) -> u64 {
        self.now() - BEGIN_NS
    }

    pub fn fingerprint(&self) -> u64 {
        self.fingerprint.get()
    }

    pub fn executed(&self) -> u64 {
        self.executed.get()
    }

    /// Tasks that have not ended, by name.
    pub fn tasks(&self) -> BTreeMap<&'static str, usize> {
        let mut count = BTreeMap::new();
        for task in self
            .tasks
            .borrow()
            .slots
            .iter()
            .filter_map(|s| s.task.as_ref())
        {
            *count.entry(task.name).or_insert(0) += 1;
        }
        count
    }

    /// Adds an event to the fingerprint.
    #[inline]
    pub(super) fn record(&self, kind: Kind, a: u64, b: u64) {
        const K: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut hash = self.fingerprint.get();
        for word in [self.now_ns.get() ^ ((kind as u64) << 56), a, b] {
            hash = (hash.rotate_left(23) ^ word).wrapping_mul(K);
        }
        self.fingerprint.set(hash ^ (hash >> 32));
        self.executed.set(self.executed.get() + 1);
    }

    pub(super) fn record_bytes(&self, bytes: &[u8]) {
        let hash = bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            random::spread(hash ^ u64::from_le_bytes(word))
        });
        self.record(Kind::Trace, hash, 0);
    }

    pub(super) fn schedule(&self, at_ns: u64, event: Event) {
        let sequence = self.next_sequence.get();
        self.next_sequence.set(sequence + 1);
        let at_ns = at_ns.max(self.now());
        self.events.borrow_mut().push(Scheduled {
            at_ns,
            sequence,
            event,
        });
    }

    /// The next event that is not after the deadline. Drops cancelled timers on the way; they do not advance the
    /// clock.
    fn next_event(&self, deadline_ns: u64) -> Option<Scheduled> {
        let mut events = self.events.borrow_mut();
        loop {
            let first = events.peek()?;
            if let Event::Timer { slot, generation } = first.event {
                let mut timers = self.timers.borrow_mut();
                if timers.slots[slot as usize].generation != generation {
                    timers.stale = timers.stale.saturating_sub(1);
                    events.pop();
                    continue;
                }
            }
            return if first.at_ns <= deadline_ns {
                events.pop()
            } else {
                None
            };
        }
    }

    fn next_ready(&self) -> Option<TaskKey> {
        let mut ready = self.ready.lock().expect("no panic while it is held");
        let len = ready.len();
        if len > 1 && (self.randomness >= 1.0 || random::chance(self.randomness)) {
            ready.swap(0, random::below(len as u64) as usize);
        }
        ready.pop_front()
    }

    fn fire(&self, slot: u32) {
        let waker = {
            let mut timers = self.timers.borrow_mut();
            let timer = &mut timers.slots[slot as usize];
            timer.has_fired = true;
            timer.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Puts back tasks that were taken from the ready queue and not run.
    pub(super) fn requeue(&self, keys: Vec<TaskKey>) {
        self.ready
            .lock()
            .expect("no panic while it is held")
            .extend(keys);
    }

    /// Removes the tasks that pass the test from the executor, for the caller to cancel.
    fn take_tasks(&self, mut test: impl FnMut(ProcessId) -> bool) -> Vec<Rc<SimTask>> {
        let mut tasks = self.tasks.borrow_mut();
        let keys: Vec<TaskKey> = tasks
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.task.as_ref().is_some_and(|task| test(task.process)))
            .map(|(i, slot)| TaskKey {
                slot: i as u32,
                generation: slot.generation,
            })
            .collect();
        keys.into_iter()
            .filter_map(|key| tasks.remove(key))
            .collect()
    }
}

impl World {
    pub fn local_now(&self) -> Instant {
        Instant(self.clock_of(self.current.get()).local(self.executor.now()))
    }

    /// The second clock of the running process's machine.
    pub fn second_now(&self) -> Instant {
        let jumped = self.jumped_ns(self.current.get());
        Instant(self.local_now().0.saturating_add_signed(-jumped))
    }

    /// The wall clock of the running process's machine: deterministic, plausible in a log, and off by the machine's
    /// offset.
    pub fn unix_time_ms(&self) -> u64 {
        const BEGIN_MS: u64 = 1_700_000_000_000;
        let right = BEGIN_MS + self.executor.elapsed_ns() / 1_000_000;
        right.saturating_add_signed(self.wall_offset_ms(self.current.get()))
    }

    /// Sets a timer by the clock of the running process.
    pub fn set_local_timer(self: &Rc<Self>, deadline: Instant) -> TimerHandle {
        let at_ns = self.clock_of(self.current.get()).true_time(deadline.0);
        self.set_timer(at_ns)
    }

    /// Sets a timer in true time.
    pub(super) fn set_timer(self: &Rc<Self>, at_ns: u64) -> TimerHandle {
        let mut timers = self.executor.timers.borrow_mut();
        let slot = timers.free.pop().unwrap_or_else(|| {
            timers.slots.push(TimerSlot::default());
            timers.slots.len() as u32 - 1
        });
        let timer = &mut timers.slots[slot as usize];
        timer.has_fired = false;
        let generation = timer.generation;
        drop(timers);
        self.executor
            .schedule(at_ns, Event::Timer { slot, generation });
        TimerHandle {
            world: Rc::downgrade(self),
            slot,
        }
    }

    pub(super) async fn sleep_ns(self: &Rc<Self>, ns: u64) {
        self.sleep_until_ns(self.executor.now().saturating_add(ns))
            .await;
    }

    pub(super) async fn sleep_until_ns(self: &Rc<Self>, at_ns: u64) {
        let mut timer = self.set_timer(at_ns);
        std::future::poll_fn(|context| timer.poll(context)).await;
    }

    /// Starts a task of the running process.
    pub fn start<T: 'static>(
        &self,
        name: &'static str,
        future: impl Future<Output = T> + 'static,
    ) -> Task<T> {
        let owner = Owner {
            process: self.current.get().0,
            run: |process, work| {
                let _as_its_process = enter_process(ProcessId(process));
                work();
            },
        };
        let (task, runnable) = prepare(future, owner);
        self.spawn(name, runnable);
        task
    }

    fn spawn(&self, name: &'static str, runnable: Rc<dyn Runnable>) {
        let process = self.current.get();
        if !self.is_alive(process) {
            runnable.cancel(); // spawned by a destructor of a dead process
            return;
        }
        let mut tasks = self.executor.tasks.borrow_mut();
        let slot = tasks.free.pop().unwrap_or_else(|| {
            tasks.slots.push(TaskSlot::default());
            tasks.slots.len() as u32 - 1
        });
        let key = TaskKey {
            slot,
            generation: tasks.slots[slot as usize].generation,
        };
        let ready = self.executor.ready.clone();
        let state = Arc::new(TaskWaker {
            key,
            is_queued: AtomicBool::new(false),
            ready,
        });
        let waker = Waker::from(state.clone());
        state.wake_by_ref();
        let name_hash = buggify::site(name, 0, 0);
        tasks.slots[slot as usize].task = Some(Rc::new(SimTask {
            runnable,
            waker,
            state,
            process,
            name,
            name_hash,
        }));
    }

    /// Runs one ready task, or one event. False if there is nothing to do until the deadline.
    pub(super) fn step(self: &Rc<Self>, deadline_ns: u64) -> bool {
        if let Some(key) = self.executor.next_ready() {
            self.poll_task(key);
            return true;
        }
        let Some(scheduled) = self.executor.next_event(deadline_ns) else {
            if deadline_ns < u64::MAX {
                self.executor
                    .now_ns
                    .set(self.executor.now().max(deadline_ns));
            }
            return false;
        };
        if scheduled.at_ns > self.executor.now() {
            self.executor.now_ns.set(scheduled.at_ns);
            self.executor.polls_this_instant.set(0);
        }
        match scheduled.event {
            Event::Timer { slot, .. } => self.executor.fire(slot),
            Event::Arrival(connection, direction) => connection.arrive(self, direction),
            Event::Call(call) => call(self),
        }
        true
    }

    fn poll_task(self: &Rc<Self>, key: TaskKey) {
        let executor = &self.executor;
        let task = executor.tasks.borrow().get(key);
        let Some(task) = task else { return };
        if self.held.get() > 0 && self.defer(task.process, key) {
            return;
        }
        let polls = executor.polls_this_instant.get() + 1;
        executor.polls_this_instant.set(polls);
        executor.running.set(Some(task.name));
        assert!(
            polls <= executor.polls_per_instant_max,
            "livelock: {polls} polls and no time has passed; the last was of task '{}'",
            task.name
        );
        task.state.is_queued.store(false, Relaxed);
        executor.record(Kind::Poll, task.name_hash, u64::from(task.process.0));
        self.current.set(task.process);
        let polled = task.runnable.run(&mut Context::from_waker(&task.waker));
        self.current.set(ProcessId::TESTER);
        executor.running.set(None);
        if polled.is_ready() {
            let removed = executor.tasks.borrow_mut().remove(key);
            drop(removed);
        }
    }

    /// The running task, for the message of a failed run.
    pub(super) fn describe_running(&self) -> String {
        let at = self.executor.elapsed_ns() as f64 / 1e9;
        let task = self.executor.running.get().unwrap_or("none");
        format!(
            "task '{task}' of process {}, {at:.6} s after the beginning",
            self.current.get().0
        )
    }

    /// Drops every task of a process, as that process.
    pub(super) fn drop_tasks(&self, process: ProcessId) {
        let tasks = self.executor.take_tasks(|p| p == process);
        for task in tasks {
            task.runnable.cancel();
        }
    }

    /// Cancels all tasks and drops all events: tasks refer to the world, and the world to its tasks.
    pub(super) fn shut_down(&self) {
        self.mark_all_dead();
        let tasks = self.executor.take_tasks(|_| true);
        for task in tasks {
            task.runnable.cancel();
        }
        let events = std::mem::take(&mut *self.executor.events.borrow_mut());
        drop(events);
        debug_assert!(current().is_some(), "a world is shut down from inside");
    }
}
