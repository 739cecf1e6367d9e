//! The distributor's background task: compares all replicas, page by page, round after round.

use super::Distributor;
use crate::consistency::Comparison;
use crate::knobs::{SCAN_BYTES_PER_SECOND, SCAN_PAUSE_MS};
use plinth_protocol::control::{DistributorStatus, GetDistributorStatus};
use plinth_rpc::Registration;
use plinth_runtime::{Duration, probe, trace, trace_warn};
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

/// Limit of reported differences.
const TOLD: usize = 10;

/// Progress and results of the scan, for status.
#[derive(Default)]
pub(super) struct Scan(RefCell<DistributorStatus>);

impl Distributor {
    pub(super) fn serve_status(self: &Rc<Self>) -> Registration {
        let distributor = self.clone();
        self.transport
            .serve::<GetDistributorStatus>(self.id, move |_, responder| {
                let (moving_bytes, moved_bytes) = distributor.moves.borrow().bytes();
                responder.ok(DistributorStatus {
                    moving_bytes,
                    moved_bytes,
                    least_copies: distributor.least_copies.get() as u32,
                    ..distributor.scan.0.borrow().clone()
                });
            })
    }

    pub(super) async fn scan(&self) -> Infallible {
        loop {
            let mut comparison = Comparison::new(&self.transport, &self.database);
            let (mut bytes, mut told) = (0, 0);
            while comparison.next().is_some() {
                comparison.step().await;
                let compared = &comparison.compared;
                for difference in &compared.differences[told..] {
                    assert!(!plinth_runtime::is_simulated(), "{difference}");
                    trace_warn!("ReplicasDiffer", "what" => difference);
                    let mut status = self.scan.0.borrow_mut();
                    status.found += 1;
                    if status.differences.len() < TOLD {
                        status.differences.push(difference.to_string());
                    }
                }
                told = compared.differences.len();
                self.scan.0.borrow_mut().bytes += compared.bytes - bytes;
                let page = (compared.bytes - bytes).max(1000);
                bytes = compared.bytes;
                let pace = SCAN_BYTES_PER_SECOND.get().max(1) as f64;
                plinth_runtime::sleep(Duration::from_secs_f64(page as f64 / pace)).await;
            }
            probe!("consistency_scan_round");
            trace!("ScanRound", "bytes" => bytes, "differences" => told);
            {
                let mut status = self.scan.0.borrow_mut();
                status.rounds += 1;
                status.round_ended_s = plinth_runtime::unix_time_ms() / 1000;
            }
            plinth_runtime::sleep(Duration::from_millis(SCAN_PAUSE_MS.get())).await;
        }
    }
}
