//! A stack as what the keeper's front end stands on: rows come from the local store, writes go into the log.

use crate::application::Zelos;
use crate::front::{Front, Proposes};
use crate::view::{ZXIDS, page};
use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_core::{Result, Version};
use plinth_delos::entry::Entry;
use plinth_delos::log::{LogPos, SharedLog};
use plinth_delos::stack::{Answer, Engine, Lost};
use plinth_delos::stacks::Standard;
use plinth_keeper::CACHE_BYTES_MAX;
use plinth_keeper::backing::{Backing, Beginning, Begun, NoLife};
use plinth_keeper::quotas;
use plinth_keeper::replica::Replica;
use plinth_keeper::store::{Boxed, Most, Page, Store};
use plinth_keeper::tree::execute::Operation;
use plinth_keeper::writes::Writes;
use plinth_runtime::yield_now;
use std::rc::Rc;

/// See the module.
pub struct OnStack<L: SharedLog + 'static>(Rc<Standard<L, Zelos>>);

impl<L: SharedLog + 'static> Clone for OnStack<L> {
    fn clone(&self) -> Self {
        OnStack(self.0.clone())
    }
}

impl<L: SharedLog + 'static> OnStack<L> {
    pub fn new(stack: &Rc<Standard<L, Zelos>>) -> Self {
        OnStack(stack.clone())
    }

    /// Ends when the rows are those of the gateway's replica: it may be in the middle of a position.
    async fn told(&self) {
        while !self.0.application().is_told() {
            yield_now().await;
        }
    }
}

impl<L: SharedLog + 'static> Proposes for OnStack<L> {
    fn propose(&self, entry: Entry) -> Boxed<'_, std::result::Result<bool, Lost>> {
        Box::pin(async move {
            let answer = self.0.propose(entry).await?;
            Ok(matches!(answer, Answer::Done(())))
        })
    }

    fn sync(&self) -> Boxed<'_, std::result::Result<(), Lost>> {
        Box::pin(async move { self.0.sync().await.map(drop) })
    }

    fn applied(&self) -> LogPos {
        self.0.store().applied()
    }
}

/// The replica is told of every entry when it is applied: the newest rows are those of its version.
impl<L: SharedLog + 'static> Store for OnStack<L> {
    fn row<'a>(&'a self, _: Version, key: &'a [u8]) -> Boxed<'a, Result<Option<Bytes>>> {
        Box::pin(async move {
            self.told().await;
            self.0.store().snapshot().get(key)
        })
    }

    fn page(&self, _: Version, range: KeyRange, most: Most) -> Boxed<'_, Result<Page>> {
        Box::pin(async move {
            self.told().await;
            let rows = self.0.store().snapshot();
            page(&range, most, |begin, end, limit| {
                rows.range(begin, end, limit)
            })
        })
    }
}

impl<L: SharedLog + 'static> Backing for OnStack<L> {
    fn begin<'a>(&'a self, by: Beginning<'a>) -> Boxed<'a, std::result::Result<Begun, NoLife>> {
        Box::pin(async move {
            let application = self.0.application();
            self.told().await;
            let store = Rc::new(self.clone());
            let rows = application.rows.clone();
            let version = self.applied() as Version;
            let replica = Replica::new(store, rows, ZXIDS, version, CACHE_BYTES_MAX.get());
            quotas::load(&replica).await?;
            let replica = Rc::new(replica);
            let stack = Rc::new(self.clone());
            let front = Front::new(replica.clone(), stack, by.gateway, by.listener);
            application.tell(&front);
            // The first thing that the log has of a gateway is its lease.
            front.submit(Operation::Beat { row: Vec::new() }, Box::new(|_, _, _| ()));
            let writes = front;
            Ok(Begun { replica, writes })
        })
    }
}
