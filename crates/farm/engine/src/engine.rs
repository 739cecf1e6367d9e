//! The engine of one machine, as its users see it.

use crate::active::Active;
use crate::core::Core;
use crate::ledger::Ledger;
use crate::numbers::Numbers;
use crate::post::Post;
use crate::settings::{Options, Policy, Settings};
use crate::site::{Handler, Site};
use crate::store::{Store, Unfit};
use crate::transaction::Transaction;
use crate::view::View;
use crate::wire::Room;
use plinth_farm_fabric::Fabric;
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
