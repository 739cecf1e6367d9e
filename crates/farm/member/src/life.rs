//! One life of a member's process, as the processes of its host see it: a small memory beside the machine's own.
//!
//! ```text
//!   life-N.memory   the life's id, two words         owned by the process of machine N while it lives
//!   host.memory     the number of this directory     made by the first process
//! ```
//! A process owns the memory by a lock of the operating system, which ends with the process and not before. So a
//! member is dead for sure if nobody owns its memory any more, or if another life's id is in it. The kernel tells when
//! to look. That is how a death is known in milliseconds, however long leases are.
//!
//! Two hosts may have a directory with the same path. So the number of the directory, drawn at random, is in the place
//! of each member, and nobody judges a member of another directory.
//!
//! The clock master says here how its time follows from the clock of the host, which all processes of the host have.
//! So they know the time without a message, and however busy the master is. It is written once in an era.
//!
//! Trust: whoever removes the lock of a living process ([`plinth_runtime::memory`]) makes others believe that it is
//! dead, and then two masters may give out timestamps. The directory is the processes' alone.

use crate::record::Seat;
use plinth_farm_time::{MemberId, Shared};
use plinth_runtime::memory::{self, Mapping, Owned};
use plinth_runtime::{
    Boxed, Duration, HOST_CLOCK_ERROR_NS, host_clock_origin, planted, probe, random, sleep,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

const WORDS: usize = 8;
const ID_WORDS: std::ops::Range<usize> = 0..2;
const ERA: usize = 2;
const TIME: usize = 3;
const CLOCK: usize = 4;
const HOST_TRIES: usize = 100;
const HOST_PAUSE: Duration = Duration::from_millis(2);

/// Held while the process is a member, or may become one. Nothing that it has promised as one may go on when it is
/// dropped.
pub struct Life {
    directory: PathBuf,
    host: u128,
    owned: Owned,
    /// Of other members of the host.
    others: RefCell<BTreeMap<u16, Mapping>>,
}

fn path(directory: &Path, machine: u16) -> PathBuf {
    directory.join(format!("life-{machine}.memory"))
}

fn load(words: &[AtomicU64]) -> u128 {
    let word = |at: usize| u128::from(words[at].load(Acquire));
    word(0) << 64 | word(1)
}

/// The first word is written last.
fn store(words: &[AtomicU64], number: u128) {
    words[1].store(number as u64, Release);
    words[0].store((number >> 64) as u64, Release);
}

/// The number of the directory: [`Place::host`](crate::Place). Each process of the host finds the same.
pub fn host_of(directory: &Path) -> Boxed<'_, io::Result<u128>> {
    Box::pin(async move {
        let path = directory.join("host.memory");
        for _ in 0..HOST_TRIES {
            if let Ok(mapping) = memory::attach(&path).await
                && mapping.words()[0].load(Acquire) != 0
            {
                return Ok(load(mapping.words()));
            }
            match memory::own(&path, 2).await {
                Ok(owned) => {
                    let words = owned.mapping.words();
                    if words[0].load(Acquire) == 0 {
                        store(words, random::uid() | 1 << 64);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(HOST_PAUSE).await,
                Err(error) => return Err(error),
            }
        }
        let text = format!(
            "{}: another process holds it; end that process",
            path.display()
        );
        Err(io::Error::new(io::ErrorKind::WouldBlock, text))
    })
}

impl Life {
    /// The process of `machine`, whose memory lies in `directory`, begins this life.
    ///
    /// Errors: `WouldBlock` if another process of this machine lives, and those of the system.
    pub fn begin(directory: &Path, machine: u16, id: MemberId) -> Boxed<'_, io::Result<Life>> {
        Box::pin(async move {
            let host = host_of(directory).await?;
            let owned = memory::own(&path(directory, machine), WORDS).await?;
            // What the life before has said of the time is of no use under another id.
            owned.mapping.words()[ERA].store(0, Release);
            store(&owned.mapping.words()[ID_WORDS], id.0);
            Ok(Life {
                directory: directory.to_owned(),
                host,
                owned,
                others: RefCell::default(),
            })
        })
    }

    /// The number of the directory: [`Place::host`](crate::Place).
    pub fn host(&self) -> u128 {
        self.host
    }

    /// Whether this is a life of a process of this host.
    pub fn is_near(&self, seat: &Seat) -> bool {
        seat.place.host == self.host
    }

    async fn mapping(&self, machine: u16) -> Option<Mapping> {
        let known = self.others.borrow().get(&machine).cloned();
        if known.is_some() {
            return known;
        }
        let mapping = memory::attach(&path(&self.directory, machine)).await.ok()?;
        if mapping.words().len() < WORDS {
            return None;
        }
        self.others.borrow_mut().insert(machine, mapping.clone());
        Some(mapping)
    }

    /// The life in this seat has ended for sure. Its process has once begun it: it is in a record. False if nobody
    /// here can know.
    pub fn is_over<'a>(&'a self, seat: &'a Seat) -> Boxed<'a, bool> {
        Box::pin(async move {
            if !self.is_near(seat) {
                return false;
            }
            let Some(mapping) = self.mapping(seat.machine).await else {
                return false;
            };
            if planted!(
                "farm_death_is_guessed",
                "a member that may live is called dead"
            ) && random::chance(0.002)
            {
                return true;
            }
            if load(&mapping.words()[ID_WORDS]) != seat.id.0 {
                probe!("farm_life_followed_by_another");
                return true;
            }
            let owned = memory::is_owned(&path(&self.directory, seat.machine)).await;
            owned.is_ok_and(|is_owned| !is_owned)
        })
    }

    /// Returns when the process of a machine of this host may have ended: [`is_over`](Life::is_over) says whether the
    /// life has. It may return for no reason.
    ///
    /// # Errors
    /// It cannot be watched now.
    pub fn ends(&self, machine: u16) -> Boxed<'_, io::Result<()>> {
        Box::pin(async move { memory::owner_ended(&path(&self.directory, machine)).await })
    }

    /// Says what time it is, as the clock master. `shared` counts the clock as this process does.
    pub fn publish(&self, shared: &Shared) {
        let words = self.owned.mapping.words();
        let Some(origin) = host_clock_origin() else {
            return;
        };
        let before = words[ERA].load(Acquire);
        // Others may go by it already.
        assert!(
            before <= shared.era && shared.era > 0,
            "era {before} was published, and now {}",
            shared.era
        );
        if before != shared.era {
            words[ERA].store(0, SeqCst);
            words[TIME].store(shared.time, SeqCst);
            words[CLOCK].store(shared.local.saturating_add(origin), SeqCst);
            words[ERA].store(shared.era, SeqCst);
        }
    }

    /// What the master in this seat says of the time, as this process counts the clock. `None` if it is on another
    /// host, or has not said anything.
    pub fn published<'a>(&'a self, master: &'a Seat) -> Boxed<'a, Option<Shared>> {
        Box::pin(async move {
            if !self.is_near(master) {
                return None;
            }
            let (mapping, origin) = (self.mapping(master.machine).await?, host_clock_origin()?);
            let words = mapping.words();
            let era = words[ERA].load(SeqCst);
            let (time, clock) = (words[TIME].load(SeqCst), words[CLOCK].load(SeqCst));
            let is_whole =
                era != 0 && words[ERA].load(SeqCst) == era && load(&words[ID_WORDS]) == master.id.0;
            // The master may have begun before this process did: later on, it is the same time.
            let late = origin.saturating_sub(clock);
            is_whole.then(|| Shared {
                era,
                time: time.saturating_add(late),
                local: clock.saturating_add(late) - origin,
                error_ns: 2 * HOST_CLOCK_ERROR_NS,
            })
        })
    }
}
