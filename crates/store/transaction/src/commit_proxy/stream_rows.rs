//! The rows that a version adds to the streams of changes. See [`plinth_core::streams`].

use super::assign::Bodies;
use crate::system_state::SystemState;
use bytes::BytesMut;
use plinth_core::Version;
use plinth_core::mutation::{MutationBatch, MutationRef};
use plinth_core::streams::{self, ChangeRows, Position, StreamRecord};
use plinth_runtime::{Pace, planted, probe};
use std::cell::RefCell;
use std::rc::Rc;

/// Collects the changes of one version, for every stream that has some.
pub struct StreamRows {
    version: Version,
    /// By the id of the stream.
    rows: Vec<(u64, ChangeRows)>,
}

impl StreamRows {
    pub fn new(version: Version) -> Self {
        StreamRows {
            version,
            rows: Vec::new(),
        }
    }

    /// Adds the changes of an admitted transaction. `streams` are those that exist at its place in the history.
    pub fn add(&mut self, streams: &Rc<Vec<StreamRecord>>, order: u16, mutations: &MutationBatch) {
        for stream in &**streams {
            let at = self.rows.iter().position(|(id, _)| *id == stream.id);
            let at = at.unwrap_or_else(|| {
                self.rows.push((stream.id, ChangeRows::new(self.version)));
                self.rows.len() - 1
            });
            self.rows[at].1.add(&stream.ranges, order, mutations);
        }
    }

    /// Adds the rows to the bodies of the version, behind everything else. A stream that a transaction of this version
    /// has dropped gets none: the drop has removed its rows.
    pub async fn push(
        self,
        state: &RefCell<SystemState>,
        bodies: &mut Bodies<'_>,
        pace: &mut Pace,
    ) {
        for (id, rows) in self.rows {
            let exists = |stream: &StreamRecord| stream.id == id;
            if rows.is_empty() {
                continue;
            }
            if !state.borrow().change_streams().iter().any(exists) {
                probe!("stream_dropped_in_its_version");
                continue;
            }
            for (number, (position, row)) in rows.finish().enumerate() {
                if number > 0 {
                    probe!("stream_has_several_rows_of_a_version");
                    if planted!(
                        "stream_loses_rows",
                        "a commit proxy gives a stream only the first row of a version"
                    ) {
                        continue;
                    }
                }
                push_set(state, bodies, &streams::entry_key(id, position), &row);
                pace.rest_if_over().await;
            }
            let end = Position::end_of_version(self.version);
            push_set(state, bodies, &streams::head_key(id), &end.to_bytes());
        }
    }
}

fn push_set(state: &RefCell<SystemState>, bodies: &mut Bodies<'_>, key: &[u8], value: &[u8]) {
    let set = MutationRef::set(key, value);
    let mut packed = BytesMut::with_capacity(set.packed_len());
    set.pack(&mut packed);
    bodies.push(state.borrow().tags_of_key(key), &packed);
}
