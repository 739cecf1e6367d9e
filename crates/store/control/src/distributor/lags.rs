//! How far each storage server is behind the log, from one look to the next.
//!
//! A server that has been away catches up faster than the log grows, so one that comes nearer is not late, however far
//! behind it is. One that no longer says how far it is counts as standing still.

use super::Distributor;
use crate::knobs::{STORAGE_REPLACE_LAG_MS, STORAGE_SUSPECT_LAG_MS};
use crate::replica::{Lag, seconds_behind};
use plinth_core::{Uid, Version};
use plinth_protocol::control::RegisterWorker;
use plinth_protocol::log::LogSystem;
use plinth_protocol::storage::GetStorageStatus;
use plinth_rpc::Interface;
use plinth_runtime::{Duration, Instant, probe, trace, trace_warn};
use std::collections::BTreeMap;

/// Who has not answered by then stands still, as far as this look is concerned.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Who comes nearer by less stands still.
const NEARER_S: f64 = 1.0;

struct Seen {
    /// It has everything up to here.
    version: Version,
    /// It had more when it was asked again.
    advances: bool,
    /// How near it was at best, and when that was.
    nearest_s: f64,
    nearest_at: Instant,
    lag: Lag,
}

/// By server.
#[derive(Default)]
pub(super) struct Lags(BTreeMap<Uid, Seen>);

/// The log at the time of a look.
pub(super) struct Log {
    pub system: LogSystem,
    /// The newest version that is committed.
    pub newest: Version,
}

impl Lags {
    /// Takes in what a server has said of itself, if it has.
    pub fn see(&mut self, id: Uid, heard: Option<Version>, log: &Log, now: Instant) -> Lag {
        let seen = self.0.entry(id).or_insert(Seen {
            // Nothing is known of it until it has answered once.
            version: heard.unwrap_or(log.newest),
            advances: false,
            nearest_s: f64::MAX,
            nearest_at: now,
            lag: Lag::KeepsUp,
        });
        let version = heard.unwrap_or(seen.version);
        seen.advances |= version > seen.version;
        seen.version = version;
        let behind_s = seconds_behind(&log.system, log.newest, seen.version);
        let lag = Lag::of(behind_s);
        if lag == Lag::KeepsUp || behind_s < seen.nearest_s - NEARER_S {
            (seen.nearest_s, seen.nearest_at) = (behind_s, now);
        }
        let lag = match lag {
            Lag::Suspect if seen.is_late(behind_s, now) => Lag::Late,
            lag => lag,
        };
        seen.becomes(id, lag, behind_s);
        lag
    }

    /// True if the server has been seen to take something in. A new one that never does is not far behind at first.
    pub fn advances(&self, id: &Uid) -> bool {
        self.0.get(id).is_some_and(|seen| seen.advances)
    }

    /// It may stand still for as long again before it is late.
    pub fn forgive(&mut self, id: &Uid, now: Instant) {
        if let Some(seen) = self.0.get_mut(id) {
            seen.nearest_at = now;
        }
    }

    pub fn retain(&mut self, is_there: impl Fn(&Uid) -> bool) {
        self.0.retain(|id, _| is_there(id));
    }
}

impl Seen {
    fn is_late(&self, behind_s: f64, now: Instant) -> bool {
        let suspect = STORAGE_SUSPECT_LAG_MS.get();
        let replace = STORAGE_REPLACE_LAG_MS.get().max(suspect);
        let stands = now.saturating_since(self.nearest_at);
        behind_s * 1000.0 >= replace as f64 && stands >= Duration::from_millis(replace - suspect)
    }

    fn becomes(&mut self, id: Uid, lag: Lag, behind_s: f64) {
        let before = std::mem::replace(&mut self.lag, lag);
        match lag {
            _ if before == lag => {}
            Lag::KeepsUp => {
                probe!("distributor_trusts_a_server_again");
                trace!("StorageKeepsUpAgain", "id" => id, "behind_s" => behind_s);
            }
            Lag::Suspect => {
                probe!("distributor_suspects_a_server");
                trace_warn!("StorageLags", "id" => id, "behind_s" => behind_s);
            }
            Lag::Late => trace_warn!("StorageIsLate", "id" => id, "behind_s" => behind_s),
        }
    }
}

impl Distributor {
    /// The version of each server that is there and answers.
    pub(super) async fn hear_versions(&self, workers: &[RegisterWorker]) -> BTreeMap<Uid, Version> {
        let hosted = workers.iter().flat_map(|worker| {
            let address = worker.worker.address;
            let ids = worker.storage.iter().map(|(id, _)| *id);
            ids.map(move |id| Interface::new(address, id))
        });
        let asked = hosted.map(|server| async move {
            let endpoint = server.endpoint::<GetStorageStatus>();
            let call = self.transport.call(&endpoint, GetStorageStatus {});
            let answer = plinth_runtime::timeout(ANSWER_LIMIT, call).await;
            answer
                .and_then(Result::ok)
                .map(|status| (server.id, status.version))
        });
        let answers = plinth_runtime::join_all(asked).await;
        answers.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::version::VERSIONS_PER_SECOND;

    fn at(s: u64) -> Instant {
        Instant(s * 1_000_000_000)
    }

    fn log(s: i64) -> Log {
        let generations = vec![];
        Log {
            system: LogSystem { generations },
            newest: s * VERSIONS_PER_SECOND,
        }
    }

    const ID: Uid = Uid(7);

    #[test]
    fn who_stands_still_or_says_no_more_is_suspect_at_30_s_and_late_at_60_and_counts_when_it_is_back()
     {
        for says in [true, false] {
            let mut lags = Lags::default();
            let mut see = |s: u64, version_s: i64| {
                let heard = says.then_some(version_s * VERSIONS_PER_SECOND);
                let first = (s == 100).then_some(100 * VERSIONS_PER_SECOND);
                lags.see(ID, first.or(heard), &log(s as i64), at(s))
            };
            let seen: Vec<Lag> = (100..200).map(|s| see(s, 100)).collect();
            assert!(seen[..30].iter().all(|lag| *lag == Lag::KeepsUp));
            assert!(seen[30..60].iter().all(|lag| *lag == Lag::Suspect));
            assert!(seen[60..].iter().all(|lag| *lag == Lag::Late));
        }
        let mut lags = Lags::default();
        let version = |s: i64| Some(s * VERSIONS_PER_SECOND);
        assert_eq!(lags.see(ID, version(10), &log(100), at(100)), Lag::Suspect);
        assert_eq!(lags.see(ID, version(71), &log(101), at(101)), Lag::Suspect);
        assert_eq!(lags.see(ID, version(102), &log(102), at(102)), Lag::KeepsUp);
    }

    #[test]
    fn who_catches_up_is_not_late_however_far_behind_it_is() {
        let mut lags = Lags::default();
        for s in 1000..1400 {
            let version = 3 * (s - 1000);
            let heard = Some(version * VERSIONS_PER_SECOND);
            let lag = lags.see(ID, heard, &log(s), at(s as u64));
            assert_eq!(lag, Lag::Suspect, "at {s}");
        }
        // It came no nearer for half a minute.
        let stays = Some(1200 * VERSIONS_PER_SECOND);
        for s in 1400..1430 {
            lags.see(ID, stays, &log(s), at(s as u64));
        }
        assert_eq!(lags.see(ID, stays, &log(1430), at(1430)), Lag::Late);
    }

    #[test]
    fn who_has_taken_something_in_advances_whatever_becomes_of_it() {
        let mut lags = Lags::default();
        let mut see = |s: u64, heard: Option<i64>| {
            let heard = heard.map(|s| s * VERSIONS_PER_SECOND);
            lags.see(ID, heard, &log(s as i64), at(s));
            lags.advances(&ID)
        };
        let told = [Some(100), None, Some(100), Some(101), Some(101), None];
        let seen = (100..).zip(told).map(|(s, heard)| see(s, heard));
        let seen: Vec<bool> = seen.collect();
        assert_eq!(seen, [false, false, false, true, true, true]);
    }

    #[test]
    fn who_is_forgiven_has_half_a_minute_more() {
        let mut lags = Lags::default();
        let stays = Some(100 * VERSIONS_PER_SECOND);
        let mut see = |s: u64| lags.see(ID, stays, &log(s as i64), at(s));
        assert_eq!((see(100), see(160)), (Lag::KeepsUp, Lag::Late));
        lags.forgive(&ID, at(160));
        let mut see = |s: u64| lags.see(ID, stays, &log(s as i64), at(s));
        assert_eq!((see(189), see(190)), (Lag::Suspect, Lag::Late));
    }

    #[test]
    fn who_has_never_answered_is_behind_since_it_was_looked_for() {
        let mut lags = Lags::default();
        let lag = |lags: &mut Lags, s: u64| lags.see(ID, None, &log(s as i64), at(s));
        assert_eq!(lag(&mut lags, 500), Lag::KeepsUp);
        assert_eq!(lag(&mut lags, 529), Lag::KeepsUp);
        assert_eq!(lag(&mut lags, 530), Lag::Suspect);
        assert_eq!(lag(&mut lags, 560), Lag::Late);
    }
}
