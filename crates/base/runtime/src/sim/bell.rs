//! Bells of a simulated machine.

use super::World;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

pub(super) type Bells = BTreeMap<PathBuf, Rope>;

/// Shared by all sides.
#[derive(Clone, Default)]
pub(crate) struct Rope(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    rings: u64,
    waiting: Vec<Waker>,
}

pub(crate) struct Bell {
    rope: Rope,
    /// Rings that some task has taken off.
    taken: Cell<u64>,
}

impl Rope {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while it is held")
    }

    pub fn ring(&self) {
        let mut state = self.state();
        state.rings += 1;
        state.waiting.drain(..).for_each(Waker::wake);
    }
}

impl Bell {
    pub async fn rung(&self) {
        let taken = self.taken.get();
        std::future::poll_fn(|context| {
            let mut state = self.rope.state();
            if state.rings != taken {
                self.taken.set(state.rings);
                return Poll::Ready(());
            }
            let waker = context.waker();
            if !state.waiting.iter().any(|other| other.will_wake(waker)) {
                state.waiting.push(waker.clone());
            }
            Poll::Pending
        })
        .await;
    }
}

impl World {
    fn with_bells<T>(&self, work: impl FnOnce(&mut Bells) -> T) -> T {
        let machine = self.machine_of(self.current.get());
        work(
            &mut self.machines.borrow_mut()[machine.0 as usize]
                .memories
                .bells,
        )
    }

    pub(crate) fn hang_bell(&self, path: &Path) -> Bell {
        let rope = self.with_bells(|bells| bells.entry(path.to_owned()).or_default().clone());
        Bell {
            rope,
            taken: Cell::new(0),
        }
    }

    pub(crate) fn find_rope(&self, path: &Path) -> io::Result<Rope> {
        let found = self.with_bells(|bells| bells.get(path).cloned());
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
