//! Fetching: copies the rows of a range from servers that hold it, page by page, each page at a version of its own.
//!
//! ```text
//! Fetch order ─► page is asked for ─► a version is chosen ─► rows ─► engine ─► held from the next version on
//!                mutations queue       committed, and at or above all that came before the page was asked for
//! ```
//!
//! The version is known committed, so no recovery undoes the stored rows. A page that takes longer than the window
//! lasts is asked for again, at a newer version.

use super::Server;
use crate::knobs::{FETCH_COMMIT_BYTES_MAX, FETCH_PAGE_BYTES, FETCH_PARTS_MAX, FETCH_REST};
use bytes::Bytes;
use plinth_core::key::{KeyRange, key_after};
use plinth_core::{Error, Result, Value, Version};
use plinth_engine::{LocalBoxFuture, WriteBatch};
use plinth_runtime::{Duration, buggify, never, probe, trace};
use std::convert::Infallible;

/// Pause after a page could not be read.
const RETRY: Duration = Duration::from_millis(50);
/// A page that has not come within this time is asked for again.
const PAGE_LIMIT: Duration = Duration::from_secs(10);

/// Rows from the begin of a range on, as of one version.
pub struct SnapshotPage {
    pub rows: Vec<(Bytes, Value)>,
    /// True if there are rows behind the last one.
    pub more: bool,
}

/// Reads ranges from the servers that hold them.
pub trait Snapshots {
    /// A committed version that is as new as any that a reader would get now.
    fn newest(&self) -> LocalBoxFuture<'_, Result<Version>>;

    /// The first rows of the range at `version`, about `bytes_max` bytes of them.
    fn read(
        &self,
        range: KeyRange,
        version: Version,
        bytes_max: usize,
    ) -> LocalBoxFuture<'_, Result<SnapshotPage>>;
}

/// The page, if its rows are in order and inside the range. Others have sent it.
fn checked(range: &KeyRange, fetched: (Version, SnapshotPage)) -> Result<(Version, SnapshotPage)> {
    let (version, page) = &fetched;
    let is_inside = page.rows.iter().all(|(key, _)| range.contains(key));
    let is_sorted = page.rows.is_sorted_by(|a, b| a.0 < b.0);
    match never!(
        !is_inside || !is_sorted,
        "PageOutsideItsRange",
        "range" => format!("{range:?}"),
        "version" => version,
        "rows" => page.rows.len()
    ) {
        true => Err(Error::internal_error),
        false => Ok(fetched),
    }
}

impl Server {
    /// Fetches one page after the other, for ever.
    pub(super) async fn fetch(&self) -> Infallible {
        loop {
            let gap = if self.incoming.borrow().len() < FETCH_PARTS_MAX.get() {
                let fetching = self.ownership.borrow().fetching();
                self.incoming.borrow().gap_in(&fetching)
            } else {
                None
            };
            let Some(range) = gap else {
                self.fetch_wanted.notified().await;
                continue;
            };
            let id = self.incoming.borrow_mut().begin(range.clone());
            let page = plinth_runtime::timeout(PAGE_LIMIT, self.fetch_page(&range)).await;
            if buggify!() {
                plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::below(500)))
                    .await;
            }
            match page
                .unwrap_or(Err(Error::timed_out))
                .and_then(|page| checked(&range, page))
            {
                Ok((version, page)) => self.take_page(id, &range, version, page),
                Err(error) => {
                    probe!("storage_fetch_page_again");
                    trace!("FetchFailed", "tag" => self.role.tag.0, "error" => error);
                    self.incoming.borrow_mut().give_up(id);
                    plinth_runtime::sleep(RETRY).await;
                }
            }
        }
    }

    /// Sets a rest after a commit with fetched rows, in proportion to its duration. Moving data must leave the disk to
    /// requests that wait for an answer. So the move slows down by itself when other work keeps the disk busy.
    pub(super) fn rest_from_storing(&self, took: Duration) {
        let rest = took.mul_f64(FETCH_REST.get());
        self.parts_rest_until.set(plinth_runtime::now() + rest);
    }

    /// Time until parts that have arrived may be stored; `None` if there are none.
    pub(super) fn time_to_store(&self) -> Option<Duration> {
        let until = self.parts_rest_until.get();
        let rest = until.saturating_since(plinth_runtime::now());
        self.has_parts_to_store().then_some(rest)
    }

    async fn fetch_page(&self, range: &KeyRange) -> Result<(Version, SnapshotPage)> {
        // Mutations up to here were dropped, so the rows must contain them. They must also contain the mutations of
        // the version under way that came before this.
        let from = self.latest().max(self.applying.get());
        let mut version = self.role.snapshots.newest().await?;
        while version < from {
            probe!("storage_is_ahead_of_read_versions");
            plinth_runtime::sleep(Duration::from_millis(2)).await;
            version = self.role.snapshots.newest().await?;
        }
        let bytes_max = FETCH_PAGE_BYTES.get();
        let page = self.role.snapshots.read(range.clone(), version, bytes_max);
        Ok((version, page.await?))
    }

    fn take_page(&self, id: u64, range: &KeyRange, version: Version, page: SnapshotPage) {
        let end = match page.rows.last() {
            Some((last, _)) if page.more => key_after(last),
            _ => range.end.clone(),
        };
        let mut incoming = self.incoming.borrow_mut();
        if !incoming.arrived(id, version, end, page.rows) {
            probe!("storage_page_comes_too_late");
        }
        self.progress.notify_one();
    }

    fn can_store(&self, range: &KeyRange) -> bool {
        // What the window still has in the range is from before the server left it. That goes to the engine first.
        self.store.is_untouched(&range.begin, &range.end)
    }

    fn has_parts_to_store(&self) -> bool {
        let incoming = self.incoming.borrow();
        incoming
            .to_store()
            .any(|(_, range, _)| self.can_store(range))
    }

    /// Adds the rows of some parts that have arrived at the end of the batch. Returns the ids of these parts.
    pub(super) fn store_parts(&self, batch: &mut WriteBatch) -> Vec<u64> {
        let mut stored = Vec::new();
        if self.time_to_store() != Some(Duration::ZERO) {
            return stored;
        }
        let most = batch.bytes() + FETCH_COMMIT_BYTES_MAX.get();
        for (id, range, rows) in self.incoming.borrow().to_store() {
            if !self.can_store(range) {
                probe!("storage_part_waits_for_window");
                continue;
            }
            if batch.bytes() >= most {
                break;
            }
            // Rows of an earlier attempt may be left there.
            batch.clear_range(&range.begin, &range.end);
            rows.iter().for_each(|(key, value)| batch.set(key, value));
            stored.push(id);
        }
        stored
    }

    pub(super) fn parts_stored(&self, parts: &[u64]) {
        let mut incoming = self.incoming.borrow_mut();
        parts.iter().for_each(|id| incoming.stored(*id));
    }
}
