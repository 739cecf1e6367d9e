//! How long a peer is silent, and why: its process may live, and its loop be in a long turn.

use plinth_runtime::knobs::knobs;
use plinth_runtime::{Duration, Instant, Task, net, probe, trace};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

const ASKING_MAX: usize = 5;

/// What the process at an address says past its loop.
pub(crate) struct Pulse {
    address: SocketAddr,
    /// When it last said that its loop is busy.
    busy_at: Rc<Cell<Option<Instant>>>,
    /// Questions under way: one may be lost, or be long on its way.
    asking: Vec<Task<()>>,
    /// That it was spared is said once for each silence.
    was_told: bool,
}

impl Pulse {
    pub fn new(address: SocketAddr) -> Self {
        Pulse {
            address,
            busy_at: Rc::default(),
            asking: Vec::new(),
            was_told: false,
        }
    }

    /// Asks once more. The answer counts if it comes within `limit`.
    pub fn ask(&mut self, limit: Duration) {
        self.asking.retain(|task| !task.is_finished());
        if self.asking.len() >= ASKING_MAX {
            return;
        }
        let (address, busy_at) = (self.address, self.busy_at.clone());
        self.asking.push(plinth_runtime::spawn("pulse", async move {
            let turn = plinth_runtime::timeout(limit, net::pulse(address)).await;
            let turn = turn.flatten().unwrap_or_default();
            if turn > Duration::ZERO && turn <= busy_limit() {
                busy_at.set(Some(plinth_runtime::now()));
            }
        }));
    }

    /// Whether a peer that has been silent for so long has said within `limit` that it is busy, and not for too long.
    pub fn is_busy(&mut self, silent: Duration, limit: Duration) -> bool {
        let said = self.busy_at.get().is_some_and(|at| at.elapsed() <= limit);
        if !said || silent > busy_limit() {
            return false;
        }
        if !std::mem::replace(&mut self.was_told, true) {
            probe!("rpc_peer_is_busy");
            trace!("PeerIsBusy", "address" => self.address, "silent_milliseconds" => silent.as_millis());
        }
        true
    }

    /// It was heard: the next silence is another.
    pub fn was_heard(&mut self) {
        self.was_told = false;
    }
}

fn busy_limit() -> Duration {
    Duration::from_millis(knobs().busy_peer_ms)
}

/// For how long a peer that owes an answer has been silent, of the time in which it could be heard: while the watcher itself is
/// held up, what the peer says stays to be read.
#[derive(Default)]
pub(crate) struct Silence {
    is_owed: bool,
    silent: Duration,
}

impl Silence {
    /// The watcher wanted to look `interval` after `slept`, and does now. The peer was last heard at `heard`.
    pub fn goes_on(
        &mut self,
        slept: Instant,
        now: Instant,
        heard: Instant,
        interval: Duration,
    ) -> Duration {
        if now.saturating_since(slept) > interval * 2 {
            probe!("rpc_watcher_was_held_up");
        }
        let more = now.saturating_since(slept.max(heard)).min(interval);
        self.silent = match std::mem::replace(&mut self.is_owed, true) {
            false => Duration::ZERO,
            true if heard >= slept => more,
            true => self.silent + more,
        };
        self.silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn at(milliseconds: u64) -> Instant {
        Instant::default() + Duration::from_millis(milliseconds)
    }

    /// The silence at each look, in milliseconds.
    fn silences(looks: &[u64], heard: impl Fn(u64) -> u64) -> Vec<u128> {
        let mut silence = Silence::default();
        let pairs = looks.iter().zip(&looks[1..]);
        let silences = pairs.map(|(slept, now)| {
            let heard = at(heard(*now));
            silence.goes_on(at(*slept), at(*now), heard, INTERVAL)
        });
        silences.map(|silent| silent.as_millis()).collect()
    }

    #[test]
    fn silence_begins_when_something_is_owed_or_was_last_heard() {
        let looks = [1000, 1100, 1200, 1300, 1400];
        assert_eq!(silences(&looks, |_| 10), [0, 100, 200, 300]);
        assert_eq!(silences(&looks, |_| 1130), [0, 70, 170, 270]);
        assert_eq!(silences(&looks, |now| now - 5), [0, 5, 5, 5]);
    }

    #[test]
    fn time_in_which_the_watcher_does_not_listen_is_no_silence() {
        let looks = [1000, 1100, 1290, 1480, 9000, 9100];
        assert_eq!(silences(&looks, |_| 10), [0, 100, 200, 300, 400]);
        assert_eq!(silences(&looks, |_| 8000), [0, 0, 0, 100, 200]);
    }
}
