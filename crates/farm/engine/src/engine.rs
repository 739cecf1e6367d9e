//! The engine of one machine, as its users see it.

use crate::active::Active;
use crate::core::Core;
use crate::ledger::{Known, Ledger};
use crate::numbers::Numbers;
use crate::post::Post;
use crate::settings::{Options, Policy, Settings};
use crate::site::{Handler, Site};
use crate::store::{Store, Unfit};
use crate::transaction::Transaction;
use crate::view::View;
use crate::wire::Room;
use plinth_farm_fabric::{Fabric, Machine};
use plinth_farm_memory::{Abort, Sizes};
use plinth_farm_time::Clock;
use plinth_runtime::TaskGroup;
use plinth_runtime::sync::Notify;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The engine of one machine. It works as long as this, or one of its transactions, is there.
pub struct Engine<F: Fabric + 'static> {
    site: Rc<Site<F>>,
    group: TaskGroup,
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
    /// The regions are empty. All rings of the cluster have the same size.
    pub fn start(
        fabric: Rc<F>,
        clock: Rc<Clock>,
        view: View,
        sizes: Sizes,
        policy: Policy,
        settings: Settings,
    ) -> Result<Engine<F>, Unfit> {
        let own = fabric.local().machine();
        let host = fabric.local().host().clone();
        let store = Store::make(&host, own, &view, sizes, policy)?;
        let layout = host.layout();
        let ring_bytes = 8 * layout.ring_words.saturating_sub(RECORD_WORDS);
        let core = Core {
            own,
            settings,
            bounds: clock.update(|server, _| *server.bounds()),
            clock,
            view: RefCell::new(Rc::new(view)),
            store,
            post: Post::new(layout.machines, ring_bytes),
            numbers: RefCell::new(Numbers::default()),
            ledger: RefCell::new(Ledger::new(layout.machines)),
            active: Active::default(),
            oat: RefCell::default(),
            locking: RefCell::default(),
            parked: RefCell::default(),
            asks: RefCell::default(),
            last_ask: Cell::new(0),
            waiting: Cell::new(0),
            bell: Notify::new(),
        };
        let engine = Engine {
            site: Rc::new(Site {
                core,
                fabric,
                handlers: RefCell::new(BTreeMap::new()),
            }),
            group: TaskGroup::new(),
        };
        engine.spawn_tasks();
        Ok(engine)
    }

    fn spawn_tasks(&self) {
        let site = self.site.clone();
        self.group
            .spawn("farm drive", async move { site.drive().await });
        let site = self.site.clone();
        self.group
            .spawn("farm rounds", async move { site.core.run_rounds().await });
        for machine in self.site.core.view().machines.clone() {
            if machine == self.site.core.own {
                continue;
            }
            let site = self.site.clone();
            self.group.spawn("farm post", async move {
                let core = &site.core;
                core.post
                    .carry(&*site.fabric, machine, core.settings.pause)
                    .await;
            });
        }
    }

    /// Begins a transaction. Errors: `NotAllowed` for a snapshot that is too old, or not of a read-only transaction;
    /// `Left` if the clock is broken.
    pub async fn begin(&self, options: Options) -> Result<Transaction<F>, Abort> {
        let begun = self.site.core.begin(&options).await?;
        let (site, group) = (self.site.clone(), self.group.clone());
        Ok(Transaction::new(site, group, options, begun))
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

    /// The safe point: what was replaced before it may be collected (§4.5).
    pub fn safe_point(&self) -> u64 {
        self.site.core.oat.borrow().safe()
    }

    /// Transactions that count as active: running, or not yet truncated everywhere (§4.8).
    pub fn active(&self) -> usize {
        self.site.core.active.len()
    }
}
