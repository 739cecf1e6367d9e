//! The page of metrics of a process: the numbers of its status.

use crate::messages::MachineStatus;
use crate::status::Own;
use plinth_runtime::metric::page::{Page, Samples, Verdict};
use plinth_runtime::readiness::READY;
use plinth_runtime::{Duration, metric, sleep};
use std::convert::Infallible;
use std::net::SocketAddr;

const INTERVAL: Duration = Duration::from_secs(1);

metric! {
    MEMBER: Gauge = "plinth_farm_member", "1 if the process is a member and waits for nothing, 0 if it waits";
    MASTER: Gauge = "plinth_farm_master", "1 if the process is the configuration manager and clock master";
    CONFIGURATION: Gauge = "plinth_farm_configuration", "number of the configuration that the process is in";
    UNCERTAINTY: Gauge = "plinth_farm_clock_uncertainty_seconds",
        "how far the time is known; no sample while it may not be used";
    REGIONS: Gauge = "plinth_farm_regions",
        "regions of which the process is the primary, a backup, or has a replica that is not whole, by part";
    COMMITTED: Counter = "plinth_farm_transactions_committed_total", "transactions of the process that have committed";
    ABORTED: Counter = "plinth_farm_transactions_aborted_total",
        "commits of the process that had no effect, or whose effect is not known";
    REGION_BYTES: Gauge = "plinth_farm_region_bytes", "bytes of the regions of which the process is the primary";
    FREE_BYTES: Gauge = "plinth_farm_region_free_bytes", "of these, bytes of slabs that nothing uses";
    OLD_BLOCKS: Gauge = "plinth_farm_old_blocks", "blocks for old versions";
    OLD_BLOCKS_FREE: Gauge = "plinth_farm_old_blocks_free", "of these, free ones";
    SAFE_POINT_AGE: Gauge = "plinth_farm_safe_point_age_seconds",
        "how far the safe point is behind the time; older versions are collected";
    MEMORY: Gauge = "plinth_farm_memory_bytes", "bytes of memory that the machine takes";
    LOADING: Gauge = "plinth_farm_loading",
        "1 while the process has not read all of the regions that it leads from its disk";
}

const NS_A_SECOND: f64 = 1e9;

fn add(out: &mut Samples, status: &MachineStatus) {
    let is_member = status.number > 0 && status.waits_for.is_empty();
    out.add(&MEMBER, &[], f64::from(u8::from(is_member)));
    out.add(&MASTER, &[], f64::from(u8::from(status.is_master)));
    out.add(&LOADING, &[], f64::from(u8::from(status.is_loading)));
    out.add(&CONFIGURATION, &[], status.number as f64);
    if let Some(ns) = status.uncertainty_ns {
        out.add(&UNCERTAINTY, &[], ns as f64 / NS_A_SECOND);
    }
    let parts = [
        ("primary", status.primaries),
        ("backup", status.backups),
        ("not whole", status.lacking),
    ];
    for (part, count) in parts {
        out.add(&REGIONS, &[("part", part.to_owned())], count as f64);
    }
    for (family, count) in [
        (&MEMORY, status.memory_bytes),
        (&COMMITTED, status.committed),
        (&ABORTED, status.aborted),
        (&REGION_BYTES, status.region_bytes),
        (&FREE_BYTES, status.free_bytes),
        (&OLD_BLOCKS, status.old_blocks),
        (&OLD_BLOCKS_FREE, status.old_blocks_free),
    ] {
        out.add(family, &[], count as f64);
    }
    if let Some(ns) = status.safe_point_age_ns {
        out.add(&SAFE_POINT_AGE, &[], ns as f64 / NS_A_SECOND);
    }
}

/// Whether transactions can run here: the lease is held, for without one the time may not be used.
fn verdict(status: &MachineStatus) -> Verdict {
    let why_not = match status {
        _ if !status.waits_for.is_empty() => &status.waits_for,
        _ if status.number == 0 => "it is no member yet",
        _ if status.uncertainty_ns.is_none() => "it holds no lease, or its clock is not in step",
        _ if status.is_loading => "regions that it leads are still read from its disk",
        _ if status.is_disk_full => "commits wait for room on its disk",
        _ => {
            return Verdict {
                is_ready: true,
                words: String::new(),
            };
        }
    };
    Verdict::not(why_not)
}

/// Keeps the page up to date, for ever, if there is one.
pub async fn keep_page(own: &Own, at: SocketAddr, page: Option<&Page>) -> Infallible {
    let Some(page) = page else {
        return std::future::pending().await;
    };
    loop {
        let status = own.status();
        let verdict = verdict(&status);
        page.name_cluster(&status.cluster);
        let mut out = Samples::of_process(at);
        add(&mut out, &status);
        out.add(&READY, &[], f64::from(u8::from(verdict.is_ready)));
        out.add_counted();
        page.set(out.into_list());
        page.set_ready(verdict);
        sleep(INTERVAL).await;
    }
}
