//! Memory of a machine: it outlives its processes, and is gone after a power cut.

use super::bell::Bells;
use super::{ProcessId, World};
use crate::memory::kinds::{no_room, own_process, owned_already, plain, wrong_size};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

#[derive(Default)]
pub(super) struct Memories {
    held: BTreeMap<PathBuf, Held>,
    pub bells: Bells,
    /// No memory can be made.
    pub is_full: bool,
}

struct Held {
    words: Arc<[AtomicU64]>,
    owner: Owner,
}

struct Owner {
    process: ProcessId,
    /// Of the process.
    life: Arc<AtomicBool>,
    handle: Weak<()>,
}

impl Held {
    fn is_owned(&self) -> bool {
        self.owner.life.load(Ordering::Relaxed) && self.owner.handle.strong_count() > 0
    }
}

impl Memories {
    pub fn clear(&mut self) {
        self.held.clear();
        self.bells.clear();
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
        let process = self.current.get();
        let (life, handle) = (self.life_of(process), Arc::new(()));
        let owner = Owner {
            process,
            life,
            handle: Arc::downgrade(&handle),
        };
        self.with_memories(|memories| {
            let Some(held) = memories.held.get_mut(path) else {
                if memories.is_full {
                    return Err(no_room(path, words as u64 * 8, 0));
                }
                let words = plain(words);
                let held = Held {
                    words: words.clone(),
                    owner,
                };
                memories.held.insert(path.to_owned(), held);
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
            self.with_memories(|memories| memories.held.get(path).map(|held| held.words.clone()));
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) fn is_memory_at(&self, words: &Arc<[AtomicU64]>, path: &Path) -> bool {
        self.with_memories(|memories| {
            let held = memories.held.get(path);
            held.is_some_and(|held| Arc::ptr_eq(&held.words, words))
        })
    }

    /// The process that owns the memory. The tester's number is 0.
    fn owner_of(&self, path: &Path) -> Option<ProcessId> {
        self.with_memories(|memories| {
            let held = memories.held.get(path).filter(|held| held.is_owned());
            held.map(|held| held.owner.process)
        })
    }

    pub(crate) fn memory_owner(&self, path: &Path) -> Option<u32> {
        self.owner_of(path).map(|process| process.0)
    }

    pub(crate) fn kill_memory_owner(self: &Rc<Self>, path: &Path) -> io::Result<bool> {
        let Some(process) = self.owner_of(path) else {
            return Ok(false);
        };
        if process == self.current.get() {
            return Err(own_process(path));
        }
        self.end_process(process, false);
        Ok(true)
    }
}
