//! What the ratekeeper sees: one entry a server, and the signals from it that may limit the database.

use super::Ratekeeper;
use super::limit::Signal;
use super::meter::{History, Meter, share};
use crate::knobs::{
    RATE_COMMIT_LATENCY_S, RATE_DURABILITY_LAG_S, RATE_FREE_BYTES, RATE_STORAGE_LAG_S,
};
use plinth_core::version::VERSIONS_PER_SECOND;
use plinth_core::words;
use plinth_core::{Uid, Version};
use plinth_protocol::control::{
    DistributorStatus, GetDistributorStatus, GetWorkerStatus, WorkerStatus,
};
use plinth_protocol::knobs::{STORAGE_WINDOW_BYTES_MAX, VERSION_WINDOW};
use plinth_protocol::log::{GetLogStatus, LogStatus};
use plinth_protocol::rate::{CommitProxyStatus, GetCommitProxyStatus};
use plinth_protocol::storage::{GetStorageStatus, StorageStatus};
use plinth_rpc::Interface;
use plinth_runtime::{Instant, probe};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A disk with a smaller lag keeps up: it works in batches.
const KEEPS_UP_S: f64 = 3.0;
/// Disk writes that a commit waits for: the one under way when it arrives, its own, and as many again as a margin.
const COMMIT_SYNCS: f64 = 4.0;
/// Share of a disk that should stay free. On a large disk a knob limits the bytes.
const FREE_SHARE: f64 = 0.05;

words! {
    /// By FoundationDB's names, where it has them.
    pub(super) enum Reason {
        StorageQueue = "storage_server_write_queue_size",
        StorageLag = "storage_server_readable_behind",
        DurabilityLag = "storage_server_durability_lag",
        CommitLatency = "commit_latency",
        FreeSpace = "min_free_space",
    }
}

enum Seen {
    Nothing,
    Storage(StorageStatus),
    Log(LogStatus),
    CommitProxy(CommitProxyStatus),
    Worker(WorkerStatus),
    Distributor(DistributorStatus),
}

/// A server with its last answer.
pub(super) struct Watched {
    /// Replicas never share a zone.
    zone: String,
    seen: Seen,
    heard: Option<Instant>,
    asked: bool,
    input: Meter,
    output: Meter,
    version: Meter,
    durable: Meter,
}

impl Default for Watched {
    fn default() -> Self {
        Watched {
            zone: String::new(),
            seen: Seen::Nothing,
            heard: None,
            asked: false,
            input: Meter::lumpy(),
            output: Meter::lumpy(),
            version: Meter::default(),
            durable: Meter::lumpy(),
        }
    }
}

impl Watched {
    /// Marks the server as asked. False if an answer is outstanding.
    pub fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }
    pub fn answered(&mut self) {
        self.asked = false;
    }
    pub fn is_asked(&self) -> bool {
        self.asked
    }
    pub fn heard(&self) -> Option<Instant> {
        self.heard
    }

    fn see(&mut self, now: Instant, seen: Seen) {
        self.heard = Some(now);
        match &seen {
            Seen::Storage(status) => {
                let input = status.input_bytes as f64;
                self.input.read(now, input);
                self.output.read(now, input - status.window_bytes as f64);
                self.version.read(now, status.version as f64);
                self.durable.read(now, status.durable as f64);
            }
            Seen::Log(status) => self.version.read(now, status.known_committed as f64),
            Seen::CommitProxy(status) => {
                self.input.read(now, status.arrived as f64);
                self.output.read(now, status.answered as f64);
            }
            Seen::Nothing | Seen::Worker(_) | Seen::Distributor(_) => {}
        }
        self.seen = seen;
    }
}

/// The committed version, as far as the log servers know.
struct Newest<'a> {
    history: &'a History,
    speed: &'a Meter,
    /// Seconds that a sync takes on the slowest log server's disk.
    sync_s: f64,
}

impl Ratekeeper {
    pub(super) fn ask_everybody(self: &Rc<Self>) {
        let Some(info) = self.info.get() else {
            return;
        };
        for worker in self.workers.borrow().iter() {
            // All workers have the same role id, so the process id distinguishes them.
            let (process, address) = (worker.locality.process, worker.worker.address);
            for (id, _) in &worker.storage {
                if info.servers.iter().any(|(server, _)| server == id) {
                    let server = Interface::new(address, *id);
                    let zone = worker.locality.zone.clone();
                    self.ask(
                        server,
                        *id,
                        GetStorageStatus {},
                        move |known, now, status| {
                            known.zone = zone;
                            known.see(now, Seen::Storage(status));
                        },
                    );
                }
            }
            let zone = worker.locality.zone.clone();
            let seen = move |known: &mut super::Watched, now, status| {
                known.zone = zone;
                known.see(now, Seen::Worker(status));
            };
            self.ask(worker.worker, process, GetWorkerStatus {}, seen);
        }
        if let Some(distributor) = info.distributor {
            let seen = |known: &mut Watched, now, status| {
                known.see(now, Seen::Distributor(status));
            };
            self.ask(distributor, distributor.id, GetDistributorStatus {}, seen);
        }
        let current = info.log_system.current();
        for log in current.iter().flat_map(|generation| &generation.logs) {
            self.ask(*log, log.id, GetLogStatus {}, |known, now, status| {
                known.see(now, Seen::Log(status));
            });
        }
        for proxy in &info.client.commit_proxies {
            self.ask(
                *proxy,
                proxy.id,
                GetCommitProxyStatus {},
                |known, now, status| {
                    known.see(now, Seen::CommitProxy(status));
                },
            );
        }
    }

    pub(super) fn signals(&self) -> Vec<Signal<(Reason, Uid)>> {
        let watched = self.watched.borrow();
        let now = plinth_runtime::now();
        let is_fresh = |server: &&Watched| {
            let heard = server.heard.map(|at| now.saturating_since(at));
            heard.is_some_and(|age| age < super::STALE)
        };
        let fresh = || watched.iter().filter(|(_, server)| is_fresh(server));
        let mut signals = Vec::new();
        let mut history = self.committed.borrow_mut();
        let logs = fresh().filter_map(|(_, server)| match &server.seen {
            Seen::Log(status) => Some((status, &server.version)),
            _ => None,
        });
        let Some((newest, speed)) = logs.clone().max_by_key(|(log, _)| log.known_committed) else {
            return signals;
        };
        history.read(now, newest.known_committed);
        let newest = Newest {
            history: &history,
            speed,
            sync_s: logs.map(|(log, _)| log.sync_s).fold(0.0, f64::max),
        };
        // Until the distributor answers, each server may hold the only copy of some data.
        let mut least_copies = 0;
        let mut by_zone: BTreeMap<&str, Vec<Signal<(Reason, Uid)>>> = BTreeMap::new();
        for (id, server) in fresh() {
            match &server.seen {
                // It may never make anything durable again, however slow all others are.
                Seen::Storage(status) if status.damaged => probe!("damaged_copy_limits_nobody"),
                Seen::Storage(status) => {
                    let zone = by_zone.entry(&server.zone).or_default();
                    zone.extend(of_storage(*id, server, status, &newest));
                }
                Seen::CommitProxy(status) => {
                    signals.push(of_commit_proxy(*id, server, status, &newest));
                }
                Seen::Worker(status) => {
                    let zone = by_zone.entry(&server.zone).or_default();
                    zone.push(of_disk(*id, status));
                }
                Seen::Distributor(status) => least_copies = status.least_copies,
                Seen::Nothing | Seen::Log(_) => {}
            }
        }
        if least_copies > 1 {
            leave_out_the_worst(&mut by_zone);
        }
        signals.extend(by_zone.into_values().flatten());
        signals
    }
}

fn of_storage(
    id: Uid,
    server: &Watched,
    status: &StorageStatus,
    newest: &Newest<'_>,
) -> [Signal<(Reason, Uid)>; 3] {
    let queue_target = STORAGE_WINDOW_BYTES_MAX.get() as f64 * 0.75;
    // As of the time of its answer: later commits are not its lag.
    let behind_s = |version: Version| {
        let heard = server.heard.unwrap_or_default();
        newest.history.behind_s(heard, version)
    };
    let lag = behind_s(status.version);
    let window = VERSION_WINDOW.get() as f64 / VERSIONS_PER_SECOND as f64;
    let durability_lag = behind_s(status.durable) - window;
    // Data within the window need not go out yet, whatever comes in.
    let output = if durability_lag > KEEPS_UP_S {
        share(&server.output, &server.input, queue_target / 1000.0)
    } else {
        1.0
    };
    [
        Signal {
            reason: (Reason::StorageQueue, id),
            pressure: status.window_bytes as f64 / queue_target,
            drained: output,
            gain: 0.6,
        },
        Signal {
            reason: (Reason::StorageLag, id),
            pressure: lag / RATE_STORAGE_LAG_S.get(),
            drained: share(&server.version, newest.speed, 0.0),
            gain: 0.2,
        },
        Signal {
            reason: (Reason::DurabilityLag, id),
            pressure: durability_lag / RATE_DURABILITY_LAG_S.get(),
            drained: share(&server.durable, newest.speed, 0.0),
            gain: 0.6,
        },
    ]
}

fn of_commit_proxy(
    id: Uid,
    server: &Watched,
    status: &CommitProxyStatus,
    newest: &Newest<'_>,
) -> Signal<(Reason, Uid)> {
    let target = RATE_COMMIT_LATENCY_S.get() + COMMIT_SYNCS * newest.sync_s;
    Signal {
        reason: (Reason::CommitLatency, id),
        pressure: status.latency_s / target,
        drained: share(&server.output, &server.input, 1.0),
        gain: 0.2,
    }
}

fn of_disk(id: Uid, status: &WorkerStatus) -> Signal<(Reason, Uid)> {
    let keep = (status.disk_total as f64 * FREE_SHARE).min(RATE_FREE_BYTES.get());
    let free = status.disk_free as f64;
    Signal {
        reason: (Reason::FreeSpace, id),
        // 0 at twice the space that should stay free, 1 when only that space is left, 2 when nothing is left.
        pressure: if keep > 0.0 {
            (2.0 - free / keep).max(0.0)
        } else {
            0.0
        },
        drained: 1.0,
        gain: 1.0,
    }
}

/// Leaves out the zone with the highest pressure. Every shard has another copy elsewhere, and one sick machine must
/// not slow down everything. If the machine does not recover, data distribution stops using it.
fn leave_out_the_worst(zones: &mut BTreeMap<&str, Vec<Signal<(Reason, Uid)>>>) {
    let worst_of = |signals: &Vec<Signal<(Reason, Uid)>>| {
        let pressures = signals.iter().map(|signal| signal.pressure);
        pressures.fold(0.0, f64::max)
    };
    if zones.len() > 1 {
        let worst = zones
            .iter()
            .max_by(|(_, a), (_, b)| worst_of(a).total_cmp(&worst_of(b)))
            .map(|(zone, _)| *zone);
        worst.and_then(|zone| zones.remove(zone));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(server: u128, pressure: f64) -> Signal<(Reason, Uid)> {
        Signal {
            reason: (Reason::StorageLag, Uid(server)),
            pressure,
            drained: 1.0,
            gain: 0.2,
        }
    }

    #[test]
    fn one_sick_zone_does_not_slow_down_everybody_but_two_do() {
        let left = |mut zones| {
            leave_out_the_worst(&mut zones);
            zones.into_values().flatten().collect::<Vec<_>>()
        };
        let zones = BTreeMap::from([
            ("a", vec![signal(1, 0.1), signal(2, 9.0)]),
            ("b", vec![signal(3, 3.0)]),
            ("c", vec![signal(4, 0.2)]),
        ]);
        assert_eq!(left(zones), [signal(3, 3.0), signal(4, 0.2)]);
        let only = BTreeMap::from([("a", vec![signal(1, 4.0)])]);
        assert_eq!(left(only), [signal(1, 4.0)]);
    }

    #[test]
    fn a_disk_presses_when_less_is_free_than_is_to_stay() {
        let disk = |total: f64, free: f64| {
            let status = WorkerStatus {
                disk_total: total as u64,
                disk_free: free as u64,
                loop_lag_ms: 0.0,
            };
            of_disk(Uid(1), &status).pressure
        };
        assert_eq!(disk(100e6, 50e6), 0.0);
        assert_eq!(disk(100e6, 5e6), 1.0);
        assert_eq!(disk(100e6, 0.0), 2.0);
        assert_eq!(disk(8e12, 10e9), 0.0);
        assert_eq!(disk(0.0, 0.0), 0.0);
    }
}
