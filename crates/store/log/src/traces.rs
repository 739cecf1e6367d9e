//! When a log server does what with a version, for a proxy that asks before it pushes it. All others cost a look at an
//! empty list.

use plinth_core::{Error, Uid, Version};
use plinth_protocol::log::{PushTrace, TracePush};
use plinth_rpc::Responder;
use plinth_runtime::{Duration, Instant, now};
use std::cell::RefCell;

/// Questions that wait; more are refused.
const WAITING_MAX: usize = 16;

struct Asked {
    version: Version,
    at: Instant,
    /// When the last block was on disk that has come before its own.
    free: Instant,
    /// When its block was begun to be written.
    begun: Option<Instant>,
    responder: Responder<TracePush>,
}

#[derive(Default)]
pub(crate) struct Traces(RefCell<Vec<Asked>>);

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Traces {
    /// Everything up to version `has` is on disk.
    pub fn ask(&self, asked: &TracePush, has: Version, responder: Responder<TracePush>) {
        let mut waiting = self.0.borrow_mut();
        if asked.version <= has || waiting.len() >= WAITING_MAX {
            return responder.fail(Error::operation_obsolete);
        }
        let at = now();
        waiting.push(Asked {
            version: asked.version,
            at,
            free: at,
            begun: None,
            responder,
        });
    }

    /// A block with these versions is about to be written.
    pub fn begins(&self, versions: Option<(Version, Version)>) {
        let mut waiting = self.0.borrow_mut();
        if waiting.is_empty() {
            return;
        }
        for asked in waiting
            .iter_mut()
            .filter(|asked| is_in(asked.version, versions))
        {
            asked.begun = Some(now());
        }
    }

    /// It is on disk.
    pub fn ends(&self, id: Uid, versions: Option<(Version, Version)>, bytes: usize) {
        if self.0.borrow().is_empty() {
            return;
        }
        let all = std::mem::take(&mut *self.0.borrow_mut());
        let (done, left): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|asked| is_in(asked.version, versions));
        let last = versions.map_or(Version::MIN, |(_, last)| last);
        let still = left.into_iter().filter(|asked| asked.version > last);
        let still = still.map(|asked| Asked {
            free: now(),
            ..asked
        });
        *self.0.borrow_mut() = still.collect();
        for Asked {
            at,
            free,
            begun,
            responder,
            ..
        } in done
        {
            let begun = begun.unwrap_or(free);
            responder.ok(PushTrace {
                id,
                waited: micros(free.saturating_since(at)),
                written: micros(begun.elapsed()),
                bytes: bytes as u64,
            });
        }
    }

    /// Nothing is taken any more.
    pub fn forget(&self) {
        self.0.borrow_mut().clear();
    }
}

fn is_in(version: Version, versions: Option<(Version, Version)>) -> bool {
    versions.is_some_and(|(first, last)| (first..=last).contains(&version))
}
