//! How long a peer is silent, and whether its process lives: its event loop may be in a long turn.

use crate::knobs::BUSY_PEER_MS;
use plinth_runtime::{Duration, Instant, Task, net, probe, trace};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

const ASKING_MAX: usize = 5;

/// Asks the process at an address, past its event loop, whether the loop is busy.
pub(crate) struct Pulse {
    address: SocketAddr,
    /// When the process last answered that its loop is busy.
    busy_at: Rc<Cell<Option<Instant>>>,
    /// Questions in flight. There may be several, because a question can be lost or delayed.
    asking: Vec<Task<()>>,
    /// The current silence has been traced. Each silence is traced once.
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

    /// Sends one more question. The answer counts if it arrives within `limit`.
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

    /// True if the peer answered within the last `limit` that its loop is busy. False once `silent` exceeds
    /// `busy_peer_ms`.
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

    /// The peer was heard: the next silence is a new one.
    pub fn was_heard(&mut self) {
        self.was_told = false;
    }
}

fn busy_limit() -> Duration {
    Duration::from_millis(BUSY_PEER_MS.get())
}

/// How long a peer that owes an answer has been silent. Only time in which the watcher could hear the peer counts:
/// while the watcher itself is held up, the peer's bytes remain unread.
#[derive(Default)]
pub(crate) struct Silence {
    is_owed: bool,
    silent: Duration,
}

impl Silence {
    /// Forgets what exceeds `unanswered`, the time for which a ping has waited. Under a longer limit, and with pings
    /// further apart, a peer may be silent for long without having been asked. That must not count under a shorter
    /// one.
    pub fn limit_to(&mut self, unanswered: Duration) {
        self.silent = self.silent.min(unanswered);
    }

    /// Adds the time since the last look and returns the silence so far. The watcher began to sleep at `slept` for
    /// `interval` and woke at `now`; the peer was last heard at `heard`.
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
