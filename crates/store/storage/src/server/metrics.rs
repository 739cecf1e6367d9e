//! Answers to the control plane: the progress of a move, the amount of data by range, the state of the server.

use super::Server;
use plinth_core::key::KeyRange;
use plinth_protocol::storage::{
    GetRangeMetrics, GetShardState, GetSplitPoints, GetStorageStatus, RangeMetric, RangeMetrics,
    ShardState, SplitPoints, StorageStatus,
};
use plinth_rpc::Registration;
use plinth_runtime::{Pace, planted};
use std::rc::Rc;

/// Of more points than this, an evenly spaced selection is returned: a key may have 10,000 bytes, and a reply is one
/// frame.
const SPLIT_POINTS_MAX: usize = 4000;
/// Keys of the sample that are added up between two checks of the clock.
const SAMPLED_AT_ONCE: usize = 1000;

impl Server {
    pub(super) fn serve_range_metrics(self: Rc<Self>) -> Registration {
        let transport = self.transport.clone();
        transport.serve::<GetRangeMetrics>(self.role.id, move |request, responder| {
            let server = self.clone();
            plinth_runtime::spawn("range metrics", async move {
                responder.ok(server.range_metrics(&request.ranges).await);
            })
            .detach();
        })
    }

    /// In several turns of the loop if the ranges have many sampled keys.
    async fn range_metrics(&self, ranges: &[KeyRange]) -> RangeMetrics {
        let rate = self.write_rate.borrow_mut().sorted(plinth_runtime::now());
        let mut pace = Pace::new();
        let mut metrics = Vec::with_capacity(ranges.len());
        for KeyRange { begin, end } in ranges {
            let (mut bytes, mut from) = (0, Some(begin.clone()));
            while let Some(begin) = from {
                let (some, rest) = (self.sample.borrow()).bytes_some(&begin, end, SAMPLED_AT_ONCE);
                bytes += some;
                from = rest;
                pace.rest_if_over().await;
            }
            metrics.push(RangeMetric {
                bytes,
                write_bytes_a_second: rate.bytes_a_second(begin, end),
            });
        }
        RangeMetrics { metrics }
    }

    pub(super) fn serve_split_points(self: Rc<Self>) -> Registration {
        let transport = self.transport.clone();
        transport.serve::<GetSplitPoints>(self.role.id, move |request, responder| {
            let KeyRange { begin, end } = &request.range;
            let keys = if request.bytes > 0 {
                let sample = self.sample.borrow();
                sample.split_points(begin, end, request.bytes)
            } else {
                let rate = self.write_rate.borrow_mut().sorted(plinth_runtime::now());
                rate.split_points(begin, end, request.write_bytes_a_second)
            };
            let every = keys.len().div_ceil(SPLIT_POINTS_MAX).max(1);
            let keys = keys.into_iter().step_by(every).collect();
            responder.ok(SplitPoints { keys });
        })
    }

    pub(super) fn serve_shard_state(self: Rc<Self>) -> Registration {
        let transport = self.transport.clone();
        transport.serve::<GetShardState>(self.role.id, move |request, responder| {
            let durable = self.store.durable_version();
            let ownership = self.ownership.borrow();
            let KeyRange { begin, end } = &request.range;
            responder.ok(ShardState {
                ready: (request.version <= self.latest()
                    || planted!(
                        "ready_without_hearing",
                        "a storage server says that it has a shard before it has heard of the move"
                    ))
                    && ownership.is_readable(begin, end, durable),
            });
        })
    }

    pub(super) fn serve_status(self: Rc<Self>) -> Registration {
        let transport = self.transport.clone();
        transport.serve::<GetStorageStatus>(self.role.id, move |_, responder| {
            responder.ok(StorageStatus {
                tag: self.role.tag,
                engine: self.store.kind(),
                version: self.latest(),
                durable: self.store.durable_version(),
                known_committed: self.witnessed.get().max(self.known_committed.get()),
                input_bytes: self.input_bytes.get(),
                window_bytes: self.store.window_bytes() as u64,
                disk_bytes: self.store.disk_bytes(),
                stored_bytes: self.sample.borrow().total(),
                reads_waiting: self.reads_waiting.get() as u64,
                watches: self.watches.borrow().len() as u64,
                disk_full: self.disk_full.get(),
                damaged: self.role.damaged.with(Option::is_some),
                waits_for: self.log_unheard.borrow().told(),
            });
        })
    }
}
