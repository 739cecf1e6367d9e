//! Syncs: the image first, then the manifest, then what was freed may be used again.
//!
//! What a sync covers is fixed when it begins. A block that was told to be on disk is never written again, so open
//! blocks are completed then. Extents that were freed before are not in the manifest that this sync writes; when that
//! is on disk, nothing will look for their versions any more, and their places are free.

use super::group::{Extent, Group};
use super::manifest::{ExtentRecord, GroupRecord, Record};
use super::store::{State, Store};
use crate::layout::Key;
use crate::{BACKUP_MANIFEST_BYTES, Error};
use plinth_core::codec::Codec;
use plinth_runtime::disk::Synced;
use plinth_runtime::{planted, probe};
use std::rc::Rc;

/// The manifest is written whole when it is so many times as long as a whole one, and has as much as the knob says.
const MANIFEST_FACTOR: u64 = 4;

/// What a sync writes to the manifest.
struct Capture {
    record: Record,
    /// Extents that are free when the record is on disk: the group, the number in it, the place.
    freed: Vec<(Key, usize, u32)>,
    /// The changes of groups that the record has.
    changes: Vec<(Key, u64)>,
}

fn record_of(group: &Group) -> GroupRecord {
    let all = group.extents.iter().enumerate();
    let used = all.filter_map(|(local, extent)| Some((local, extent.as_ref()?)));
    let listed = used.filter(|(_, e)| !e.is_freed && e.blocks > 0);
    let extents = listed.map(|(local, e)| ExtentRecord {
        local: local as u16,
        place: e.place,
        sequence: e.sequence,
        blocks: e.blocks,
    });
    GroupRecord {
        key: group.key,
        extents: extents.collect(),
        freed: group.freed.iter().map(|(s, t)| (*s, *t)).collect(),
    }
}

impl Store {
    fn capture(&self, is_whole: bool) -> Capture {
        let state = &mut *self.state.borrow_mut();
        let keys: Vec<Key> = state.groups.keys().copied().collect();
        let (mut groups, mut freed, mut changes) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            if !is_whole && !state.groups[&key].is_dirty() {
                continue;
            }
            state.close_block(key);
            let group = &state.groups[&key];
            changes.push((key, group.changes));
            groups.push(record_of(group));
            let all = group.extents.iter().enumerate();
            let gone = all.filter_map(|(local, e)| Some((local, e.as_ref()?)));
            let gone = gone.filter(|(_, e)| e.is_freed);
            freed.extend(gone.map(|(local, e)| (key, local, e.place)));
        }
        let record = Record {
            is_whole,
            layout: self.layout,
            safe_point: state.safe_point,
            next_sequence: state.next_sequence,
            groups,
        };
        Capture {
            record,
            freed,
            changes,
        }
    }

    fn has_changed(&self) -> bool {
        let state = self.state.borrow();
        let is_dirty = state.groups.values().any(Group::is_dirty);
        is_dirty || state.safe_point > state.synced_safe_point
    }

    pub async fn sync(self: &Rc<Self>) -> Result<Synced, Error> {
        let _permit = self.syncing.take().await;
        self.check_failed()?;
        if !self.has_changed() {
            return Ok(self.state.borrow().synced);
        }
        let is_whole = self.is_whole_due();
        let capture = self.capture(is_whole);
        match self.write(&capture).await {
            Ok(synced) => {
                let state = &mut *self.state.borrow_mut();
                state.synced = synced;
                state.synced_safe_point = capture.record.safe_point;
                self.release(state, &capture);
                Ok(synced)
            }
            Err(error) => self.fail(error),
        }
    }

    /// True if the manifest has become much longer than what it says.
    fn is_whole_due(&self) -> bool {
        let state = self.state.borrow();
        let extents = state.places as usize;
        let whole = (extents * size_of::<ExtentRecord>() + 64 * state.groups.len()) as u64;
        state.manifest_bytes > (BACKUP_MANIFEST_BYTES.get() as u64).max(MANIFEST_FACTOR * whole)
    }

    async fn write(self: &Rc<Self>, capture: &Capture) -> Result<Synced, Error> {
        self.flush().await?;
        // A record that has found no room comes first.
        self.manifest.sync().await?;
        let lies = planted!(
            "farm_disk_manifest_before_image",
            "the manifest says that blocks are on disk which were only written"
        );
        if !lies {
            let synced = self.image.sync().await;
            synced.map_err(|e| Error::Failed {
                // Nobody knows any more what of it is on disk, whatever the reason is.
                path: self.path.clone(),
                why: e.to_string(),
            })?;
        }
        let record = capture.record.to_bytes();
        let bytes = record.len() as u64;
        let position = self.manifest.append(record)?;
        let durable = self.manifest.durable(position).await?;
        let state = &mut *self.state.borrow_mut();
        if capture.record.is_whole {
            probe!("farm_disk_manifest_whole");
            state.manifest_bytes = 0;
            self.manifest.truncate_below(position, durable.synced);
        }
        state.manifest_bytes += bytes;
        Ok(durable.synced)
    }

    fn release(&self, state: &mut State, capture: &Capture) {
        for (key, changes) in &capture.changes {
            let group = state.groups.get_mut(key);
            group.expect("only a sync removes groups").synced = *changes;
        }
        for &(key, local, place) in &capture.freed {
            let group = state.groups.get_mut(&key).expect("it has extents");
            let freed = group.extents[local].take();
            let is_it = |extent: &Extent| extent.is_freed && extent.place == place;
            let is_new = state.free.insert(place);
            // What is written to a free place must not be listed anywhere.
            assert!(
                is_new && freed.as_ref().is_some_and(is_it),
                "place {place} of extent {local} of {key:?} is free, and was {freed:?}"
            );
        }
        state.groups.retain(|_, group| {
            let is_used = group.extents.iter().any(Option::is_some);
            is_used || group.is_dirty() || !group.freed.is_empty()
        });
    }
}
