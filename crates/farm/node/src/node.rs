//! A running machine.

use crate::configuration;
use crate::links::ToMember;
use plinth_farm_engine::{Engine, Keeps, Policy, Room, Settings};
use plinth_farm_fabric::Fabric;
use plinth_farm_member::{self as member, Cluster, Left, Member, Record, Register};
use plinth_farm_memory::Sizes;
use plinth_runtime::TaskGroup;
use plinth_runtime::sync::Watch;
use std::cell::RefCell;
use std::io;
use std::rc::{Rc, Weak};

const WORD_BYTES: u64 = 8;

/// What a process brings to the cluster.
pub struct Options {
    /// Their `closing` is called after the engine has closed itself.
    pub member: member::Options,
    /// Of this machine's memory: [`sizes`].
    pub sizes: Sizes,
    /// The same at all machines of a cluster.
    pub policy: Policy,
    pub settings: Settings,
    /// What this machine has on its disk. The replicas of its seat in the record are loaded.
    pub keeps: Keeps,
}

/// Sizes of the memory of a machine with so many slots, and so many bytes for old versions, which it needs if it has
/// slots.
pub fn sizes(cluster: &Cluster, slots: u16, old_bytes: u64) -> Sizes {
    let sizes = Sizes::new(
        slots,
        cluster.region_bytes / WORD_BYTES,
        old_bytes / WORD_BYTES,
    );
    Sizes {
        slab_words: cluster.slab_bytes / WORD_BYTES,
        block_words: sizes.block_words.min(sizes.old_words.max(1)),
        ..sizes
    }
}

type Slot<F> = Rc<RefCell<Weak<Engine<F>>>>;

/// A machine of a cluster. When it is dropped, the process is no member any more.
pub struct Node<F: Fabric + 'static, R: Register + 'static> {
    engine: Rc<Engine<F>>,
    member: Rc<Member<F, R>>,
    lost: Watch<Vec<u16>>,
    failed: Watch<Option<String>>,
    _tasks: TaskGroup,
}

impl<F: Fabric + 'static, R: Register + 'static> Node<F, R> {
    /// Begins a life of this process's machine, and asks to be let in. `record` is one that the register has had. The
    /// node takes all messages of the fabric.
    ///
    /// # Errors
    /// Those of [`Member::start`], and `InvalidInput` if the memory does not have these sizes.
    pub async fn start(
        fabric: Rc<F>,
        register: R,
        record: Record,
        options: Options,
    ) -> io::Result<Node<F, R>> {
        let slot: Slot<F> = Rc::default();
        let (closing, of_caller) = (slot.clone(), options.member.closing);
        let member_options = member::Options {
            closing: Some(Box::new(move |number| {
                if let Some(engine) = closing.borrow().upgrade() {
                    engine.close();
                }
                if let Some(of_caller) = &of_caller {
                    of_caller(number);
                }
            })),
            ..options.member
        };
        let started = Member::start(fabric.clone(), register, record, member_options).await?;
        let member = Rc::new(started);
        let lost = Watch::new(Vec::new());
        let failed = Watch::new(None);
        let links = Rc::new(ToMember {
            member: Rc::downgrade(&member),
            lost: lost.clone(),
            failed: failed.clone(),
        });
        let clock = member.clock().clone();
        let Options {
            sizes,
            policy,
            settings,
            keeps,
            ..
        } = options;
        // Nothing has run since the member began: its tasks find the engine.
        let joined = Engine::join(fabric, clock, sizes, policy, settings, links, keeps);
        let joined =
            joined.map_err(|unfit| io::Error::new(io::ErrorKind::InvalidInput, unfit.to_string()));
        let engine = Rc::new(joined?);
        slot.replace(Rc::downgrade(&engine));
        let hearer = Rc::downgrade(&member);
        let hear = move |message: &plinth_farm_fabric::Message| {
            if let Some(member) = hearer.upgrade() {
                member.receive(message.from, message.body.clone());
            }
        };
        engine.on_message(Room::Member, Rc::new(hear));
        let tasks = TaskGroup::new();
        tasks.spawn("farm follow", follow(member.clone(), engine.clone()));
        Ok(Node {
            engine,
            member,
            lost,
            failed,
            _tasks: tasks,
        })
    }

    /// Transactions wait until all regions are open, and go on after failures.
    pub fn engine(&self) -> &Rc<Engine<F>> {
        &self.engine
    }

    pub fn member(&self) -> &Member<F, R> {
        &self.member
    }

    /// Set when the process must end.
    pub fn left(&self) -> &Watch<Option<Left>> {
        self.member.left()
    }

    /// Set when this machine's disk has failed: why. The process must end.
    pub fn disk_failed(&self) -> &Watch<Option<String>> {
        &self.failed
    }

    /// Regions of which no whole replica is left, if there are any: the cluster's data is gone, and transactions end
    /// with `Left`.
    pub fn lost(&self) -> &Watch<Vec<u16>> {
        &self.lost
    }
}

/// Takes the engine to each configuration that the member shows, until this process is no member any more.
async fn follow<F: Fabric + 'static, R: Register + 'static>(
    member: Rc<Member<F, R>>,
    engine: Rc<Engine<F>>,
) {
    let mut begun = 0;
    loop {
        let (shown, left) = (member.view().changed(), member.left().changed());
        if member.left().with(Option::is_some) {
            engine.leave();
            return;
        }
        let record = member.view().get().map(|view| view.record);
        let news = record.filter(|record| record.number() > begun);
        if let Some(next) = news.and_then(|record| configuration::of(&record)) {
            begun = next.number;
            // The member has called `closing` before its fabric went there.
            assert!(
                engine.is_open().is_none(),
                "configuration {begun} begins, and transactions run in {:?}",
                engine.is_open()
            );
            engine.begin_configuration(&next);
        }
        plinth_runtime::race(shown, left).await;
    }
}
