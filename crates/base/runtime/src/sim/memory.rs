//! Memory of a machine: it outlives its processes, and is gone after a power cut.

use super::World;
use crate::memory::{owned_already, plain, wrong_size};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

pub(super) type Memories = BTreeMap<PathBuf, Held>;

pub(super) struct Held {
    words: Arc<[AtomicU64]>,
    /// The life of the owner's process, and the owner's handle.
    owner: (Arc<AtomicBool>, Weak<()>),
}

impl Held {
    fn is_owned(&self) -> bool {
        self.owner.0.load(Ordering::Relaxed) && self.owner.1.strong_count() > 0
    }
}

impl World {
    fn with_memories<T>(&self, work: impl FnOnce(&mut Memories) -> T) -> T {
        let machine = self.machine_of(self.current.get());
        work(&mut self.machines.borrow_mut()[machine.0 as usize].memories)
    }

    pub(crate) fn own_memory(
        &self,
        path: &Path,
        words: usize,
    ) -> io::Result<(Arc<[AtomicU64]>, bool, Arc<()>)> {
        let (life, handle) = (self.life_of(self.current.get()), Arc::new(()));
        let owner = (life, Arc::downgrade(&handle));
        self.with_memories(|memories| {
            let Some(held) = memories.get_mut(path) else {
                let words = plain(words);
                let held = Held {
                    words: words.clone(),
                    owner,
                };
                memories.insert(path.to_owned(), held);
                return Ok((words, true, handle));
            };
            if held.is_owned() {
                return Err(owned_already(path));
            }
            if held.words.len() != words {
                return Err(wrong_size(path, held.words.len() as u64 * 8, words));
            }
            held.owner = owner;
            Ok((held.words.clone(), false, handle))
        })
    }

    pub(crate) fn attach_memory(&self, path: &Path) -> io::Result<Arc<[AtomicU64]>> {
        let found =
            self.with_memories(|memories| memories.get(path).map(|held| held.words.clone()));
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) fn is_memory_owned(&self, path: &Path) -> bool {
        self.with_memories(|memories| memories.get(path).is_some_and(Held::is_owned))
    }
}
