//! The engine of one machine, as its users see it.

use crate::active::Active;
use crate::core::Core;
use crate::durable::Disk;
use crate::ledger::{Known, Ledger};
use crate::links::Links;
use crate::numbers::Numbers;
use crate::pace::Pace;
use crate::post::Post;
use crate::recovery::Recovery;
use crate::settings::{Options, Policy, Settings};
use crate::site::{Alive, Handler, Site};
use crate::stage::Stage;
use crate::store::{Store, Unfit};
use crate::transaction::Transaction;
use crate::view::{Configuration, View};
use crate::wanted::Wanted;
use crate::wire::Room;
use plinth_farm_fabric::{Fabric, Machine};
use plinth_farm_memory::{Abort, Blocks, Pointer, Sizes};
use plinth_farm_time::Clock;
use plinth_runtime::sync::Notify;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The engine of one machine. It works as long as this, or one of its transactions, is there.
pub struct Engine<F: Fabric + 'static> {
    pub(crate) site: Rc<Site<F>>,
    alive: Alive,
}

/// What a machine of the cluster keeps on disks. It is the same kind at all machines.
pub enum Keeps {
    /// No machine has a disk.
    Nothing,
    /// All machines with data have disks, and this one has no data.
    Others,
    Disk(Box<Disk>),
}

/// How much of a machine's memory is in use.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemoryUse {
    /// Bytes of the regions of which it is the primary.
    pub region_bytes: u64,
    /// Of these, bytes of slabs that have no class yet.
    pub free_bytes: u64,
    /// Blocks for old versions, and those that are free.
    pub old: Blocks,
}

/// The transactions of one coordinator, as a participant knows them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccountState {
    pub coordinator: Machine,
    /// All its transactions below are truncated everywhere, or have had no effect.
    pub below: u64,
    pub known: Vec<KnownState>,
}

/// What a participant knows of a transaction that is not truncated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownState {
    pub number: u64,
    /// All regions that it writes to, here or elsewhere.
    pub regions: Vec<u16>,
    /// A primary here has locked its objects.
    pub is_locked: bool,
    /// A primary here has its new versions, with this timestamp.
    pub committed: Option<u64>,
    /// A backup here has its writes, with this timestamp.
    pub logged: Option<u64>,
}

fn state(number: u64, known: &Known) -> KnownState {
    let locked = known.locked.as_ref();
    KnownState {
        number,
        regions: known.regions.clone(),
        is_locked: locked.is_some_and(|locked| locked.committed.is_none()),
        committed: locked.and_then(|locked| locked.committed),
        logged: known.logged.as_ref().map(|logged| logged.written_at),
    }
}

/// Words of a record in a ring beside the message.
const RECORD_WORDS: u64 = 3;

impl<F: Fabric + 'static> Engine<F> {
    /// Starts in the view's first configuration, to which the fabric has gone, with connections to all its machines.
    /// The regions are empty. All rings of the cluster have the same size. There will be no other configuration, so a
    /// machine that cannot be reached makes transactions `Failed`, or `Unknown` if they may have committed.
    pub fn start(
        fabric: Rc<F>,
        clock: Rc<Clock>,
        view: View,
        sizes: Sizes,
        policy: Policy,
        settings: Settings,
    ) -> Result<Engine<F>, Unfit> {
        let engine = Engine::make(fabric, clock, sizes, policy, settings, None, Keeps::Nothing)?;
        let core = &engine.site.core;
        let first = view.first_configuration();
        core.change_to(&first)?;
        (0..view.regions.len() as u16).for_each(|region| core.lead_if_primary(region));
        for machine in core.others() {
            let site = engine.site.clone();
            let number = view.number;
            engine.site.tasks.spawn("farm post", async move {
                site.carry(number, machine).await;
            });
        }
        core.stage.open(view.number);
        Ok(engine)
    }

    /// Starts without a configuration. The membership says when one [ends](Engine::close) and when one
    /// [begins](Engine::begin_configuration).
    pub fn join(
        fabric: Rc<F>,
        clock: Rc<Clock>,
        sizes: Sizes,
        policy: Policy,
        settings: Settings,
        links: Rc<dyn Links>,
        keeps: Keeps,
    ) -> Result<Engine<F>, Unfit> {
        Engine::make(fabric, clock, sizes, policy, settings, Some(links), keeps)
    }

    fn make(
        fabric: Rc<F>,
        clock: Rc<Clock>,
        sizes: Sizes,
        policy: Policy,
        settings: Settings,
        links: Option<Rc<dyn Links>>,
        keeps: Keeps,
    ) -> Result<Engine<F>, Unfit> {
        let is_durable = !matches!(keeps, Keeps::Nothing);
        let is_on_disk = matches!(&keeps, Keeps::Disk(disk) if disk.is_on_disk);
        let (durable, loaded, newest) = match keeps {
            Keeps::Disk(disk) => {
                let newest = disk.newest();
                (Some(disk.durable), disk.loaded, newest)
            }
            Keeps::Nothing | Keeps::Others => (None, BTreeMap::new(), 0),
        };
        let own = fabric.local().machine();
        let host = fabric.local().host().clone();
        let layout = host.layout();
        let ring_bytes = 8 * layout.ring_words.saturating_sub(RECORD_WORDS);
        let core = Core {
            own,
            settings,
            bounds: clock.update(|server, _| *server.bounds()),
            clock,
            stage: Stage::default(),
            view: RefCell::new(Rc::new(View::none(own))),
            authors: RefCell::default(),
            store: Store::make(host.clone(), own, sizes, policy, is_on_disk)?,
            post: Post::new(layout.machines, ring_bytes),
            numbers: RefCell::new(Numbers::default()),
            ledger: RefCell::new(Ledger::new(layout.machines)),
            active: Active::default(),
            oat: RefCell::default(),
            locking: RefCell::default(),
            keeping: RefCell::default(),
            durable,
            is_durable,
            committing: RefCell::default(),
            recovery: RefCell::new(Recovery::new(own)),
            locks: RefCell::default(),
            copies: RefCell::default(),
            recovers: links.is_some(),
            parked: RefCell::default(),
            wanted: Wanted::default(),
            asks: RefCell::default(),
            last_ask: Cell::new(0),
            reads: Cell::new(0),
            waiting: Cell::new(0),
            bell: Notify::new(),
            pace: Pace::default(),
        };
        core.store.restore(loaded);
        core.store.installed(newest);
        let site = Rc::new(Site::new(core, fabric, links));
        let alive = Alive::new(site.tasks.clone());
        let of = site.clone();
        let group = alive.group();
        group.spawn("farm drive", async move { of.drive().await });
        let of = site.clone();
        group.spawn("farm rounds", async move { of.core.run_rounds().await });
        site.write_disk(group);
        site.load_regions(group);
        Ok(Engine { site, alive })
    }

    /// The present configuration ends. To be called before the fabric closes it: transactions of this machine do
    /// nothing more in it, and wait for the next one.
    pub fn close(&self) {
        self.site.core.close();
        self.site.tasks.cancel_all();
    }

    /// Begins a configuration to which the fabric has gone. Its regions are open when it is recovered.
    pub fn begin_configuration(&self, configuration: &Configuration) {
        self.site.begin(configuration);
    }

    /// The number of the configuration in which transactions run here; `None` between two, and before the first.
    pub fn is_open(&self) -> Option<u64> {
        self.site.core.stage.number()
    }

    /// This process is no member any more, or data is lost.
    pub fn has_left(&self) -> bool {
        self.site.core.stage.has_left()
    }

    /// This process is no member any more: all transactions end with `Left`, or `Unknown` if they may have committed.
    pub fn leave(&self) {
        self.site.core.stage.leave();
        self.close();
    }

    /// Begins a transaction. Errors: `NotAllowed` for a snapshot that is too old, or not of a read-only transaction;
    /// `Left` if the clock is broken.
    pub async fn begin(&self, options: Options) -> Result<Transaction<F>, Abort> {
        let begun = self.site.core.begin(&options).await?;
        let (site, alive) = (self.site.clone(), self.alive.clone());
        Ok(Transaction::new(site, alive, options, begun))
    }

    /// Calls `handler` with each message of the fabric for another room than the engine. The message is released
    /// afterwards.
    pub fn on_message(&self, room: Room, handler: Handler) {
        self.site.handlers.borrow_mut().insert(room.tag(), handler);
    }

    /// What this machine knows of transactions that are not truncated here, by coordinator.
    pub fn accounts(&self) -> Vec<AccountState> {
        let ledger = self.site.core.ledger.borrow();
        let accounts = ledger
            .accounts()
            .map(|(coordinator, account)| AccountState {
                coordinator,
                below: account.below(),
                known: account
                    .known()
                    .map(|(number, known)| state(number, known))
                    .collect(),
            });
        accounts.collect()
    }

    /// Transactions of this machine that are not truncated everywhere, each with the machines where it is not.
    pub fn coordinated(&self) -> Vec<(u64, Vec<Machine>)> {
        let numbers = self.site.core.numbers.borrow();
        let open = numbers.open();
        open.map(|(number, machines)| (number, machines.to_vec()))
            .collect()
    }

    /// Messages of the fabric that the engine has sent.
    pub fn messages(&self) -> u64 {
        self.site.core.post.sent()
    }

    pub fn fabric(&self) -> &Rc<F> {
        &self.site.fabric
    }

    /// The machine with the primary of a region, as far as this one knows.
    pub fn primary(&self, region: u16) -> Option<Machine> {
        let place = self.site.core.view().primary(region)?;
        Some(place.machine)
    }

    /// The safe point: what was replaced before it may be collected (§4.5).
    pub fn safe_point(&self) -> u64 {
        self.site.core.oat.borrow().safe()
    }

    /// Commits wait for room on this machine's disk.
    pub fn is_disk_full(&self) -> bool {
        let durable = self.site.core.durable.as_ref();
        durable.is_some_and(|durable| durable.is_full())
    }

    pub fn memory_use(&self) -> MemoryUse {
        let store = &self.site.core.store;
        let mut used = MemoryUse {
            old: store.old.borrow().blocks(),
            ..MemoryUse::default()
        };
        let slab_bytes = 8 * store.shape.slab_words();
        for region in store.primaries() {
            let free = store.with_slabs(region, |slabs| slabs.free_slabs());
            used.region_bytes += u64::from(store.shape.slabs()) * slab_bytes;
            used.free_bytes += free.unwrap_or_default() as u64 * slab_bytes;
        }
        used
    }

    /// Objects of regions of which this machine is the primary are not in its memory yet (§4.9).
    pub fn is_loading(&self) -> bool {
        self.site.core.store.next_loading().is_some()
    }

    /// The objects of a replica that is on disk only, each with its timestamp and payload, when everything is there
    /// that was truncated. `None` if it is in memory. For tests.
    pub async fn objects_on_disk(&self, region: u16) -> Option<Vec<(Pointer, u64, Vec<u8>)>> {
        self.site.core.store.table(region)?;
        let durable = self.site.core.durable.as_ref()?;
        durable.objects(region).await.ok()
    }

    /// Transactions that count as active: running, or not yet truncated everywhere (§4.8).
    pub fn active(&self) -> usize {
        self.site.core.active.len()
    }
}
