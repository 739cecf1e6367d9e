//! Reads of one object at a snapshot: from the own memory, or one-sided from another machine's (§4.2, 4.4).

use crate::core::Core;
use crate::site::Site;
use crate::view::Place;
use bytes::Bytes;
use plinth_farm_fabric::Fabric;
use plinth_farm_memory::{Abort, Header, Older, Pointer, Seen, Snapshot};
use plinth_runtime::{planted, probe, yield_now};

/// So often a read may be torn, or find a lock, before the reader looks whether there are objects of this size at all.
const TORN_MAX: u32 = 64;

/// After so many reads, others of this machine have their turn. A read of memory that is mapped here waits for
/// nothing, and a member that is silent for a lease is removed.
const READS_A_TURN: u32 = 256;

/// The version of a snapshot.
pub struct Version {
    /// `None` if no object is allocated there.
    pub payload: Option<Bytes>,
    /// There is no newer one.
    pub is_newest: bool,
}

/// A version is about to be replaced, perhaps at or below the snapshot; or it is away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locked {
    Locked,
    /// It is not in the primary's memory yet.
    Away,
}

impl Locked {
    fn of<P>(seen: &Seen<P>) -> Locked {
        match seen {
            Seen::Locked { older, .. } if *older == Older::AWAY => Locked::Away,
            _ => Locked::Locked,
        }
    }

    /// What a reader makes of it.
    fn found(self) -> Result<Version, Locked> {
        let is_nothing = self == Locked::Away
            && planted!(
                "farm_away_is_nothing",
                "a reader takes an object that is not in memory yet as none"
            );
        match is_nothing {
            true => Ok(Version::newest(None)),
            false => Err(self),
        }
    }
}

impl Version {
    fn newest(payload: Option<Bytes>) -> Version {
        Version {
            payload,
            is_newest: true,
        }
    }

    fn old(payload: Option<Bytes>) -> Version {
        Version {
            payload,
            is_newest: false,
        }
    }
}

/// The newest version is of a snapshot at `read_at`, and nobody is about to replace it.
fn will_stay(header: Header, read_at: u64) -> bool {
    !header.is_locked() && header.timestamp() <= read_at
}

fn ignores_locks() -> bool {
    planted!(
        "farm_reader_ignores_lock",
        "a reader takes the version that is about to be replaced"
    )
}

impl Core {
    /// The object's version at `read_at`, in the memory of this machine, which is its primary.
    #[inline]
    pub fn read_own(&self, at: Pointer, read_at: u64) -> Result<Result<Version, Locked>, Abort> {
        let seen = self.store.with_primary(at.region(), |region| {
            region.cell(at).map(|cell| cell.read())
        });
        Ok(match seen {
            None => return Err(Abort::Failed),
            Some(Err(_)) => Ok(Version::newest(None)),
            Some(Ok(Seen::Version {
                header, payload, ..
            })) if header.timestamp() <= read_at => {
                Ok(Version::newest(header.is_allocated().then_some(payload)))
            }
            Some(Ok(Seen::Version { header, older, .. } | Seen::Locked { header, older }))
                if header.timestamp() > read_at =>
            {
                Ok(self.read_old(at, older, header.timestamp(), read_at)?)
            }
            Some(Ok(seen)) => Locked::of(&seen).found(),
        })
    }

    /// [`Site::is_current`] for an object of which this machine is the primary, and for one of no region; `None` for
    /// others. Error `Failed` if the configuration is changing.
    pub fn is_current_here(&self, at: Pointer, read_at: u64) -> Result<Option<bool>, Abort> {
        let primary = self.view.borrow().primary(at.region());
        let Some(primary) = primary else {
            return Ok(Some(true));
        };
        if primary.machine != self.own {
            return Ok(None);
        }
        let header = self.store.with_primary(at.region(), |region| {
            region.cell(at).map(|cell| cell.header())
        });
        // No cell: there is no object, as before.
        let header = header.ok_or(Abort::Failed)?;
        Ok(Some(
            header.map_or(true, |header| will_stay(header, read_at)),
        ))
    }

    fn read_old(
        &self,
        at: Pointer,
        mut older: Older,
        mut before: u64,
        read_at: u64,
    ) -> Result<Version, Abort> {
        probe!("farm old version read here");
        let old = self.store.old.borrow();
        loop {
            if older == Older::NEVER {
                probe!("farm object that came later");
                return Ok(Version::old(None));
            }
            let version = old.read(older, at.class(), before).ok_or(Abort::TooOld)?;
            if version.header.timestamp() <= read_at {
                let is_allocated = version.header.is_allocated();
                return Ok(Version::old(is_allocated.then_some(version.payload)));
            }
            (older, before) = (version.older, version.header.timestamp());
        }
    }
}

impl<F: Fabric> Site<F> {
    /// The object's version at `read_at`. Waits while it is locked, and while another configuration is recovered.
    #[inline]
    pub async fn read_version(&self, at: Pointer, read_at: u64) -> Result<Version, Abort> {
        let reads = self.core.reads.get().wrapping_add(1);
        self.core.reads.set(reads);
        if reads.is_multiple_of(READS_A_TURN) {
            yield_now().await;
        }
        loop {
            let number = self.core.stage.opened().await?;
            match self.read_in(number, at, read_at).await {
                Err(Abort::Failed) if !self.core.stage.is(number) => {
                    probe!("farm read goes on in the next configuration");
                }
                read => return read,
            }
        }
    }

    /// The same in a configuration. Error `Failed` if it ends.
    async fn read_in(&self, number: u64, at: Pointer, read_at: u64) -> Result<Version, Abort> {
        let primary = self.core.view.borrow().primary(at.region());
        let primary = primary.ok_or(Abort::NotAllocated)?;
        let mut waiting = None;
        for waits in 0u32.. {
            let is_own = primary.machine == self.core.own && !ignores_locks();
            let found = match is_own {
                true => self.core.read_own(at, read_at)?,
                false => self.read_remote(number, primary, at, read_at).await?,
            };
            match found {
                Ok(version) => return Ok(version),
                Err(locked) => {
                    if locked == Locked::Away {
                        self.core.ask_for(primary.machine, at).await;
                        self.core.stage.check(number)?;
                        continue;
                    }
                    probe!("farm read waits for a lock");
                    // A lock ends soon. What looks like one may be a word of an object of another size.
                    let may_be_other = !is_own && waits % TORN_MAX == TORN_MAX - 1;
                    if may_be_other && !self.is_of_class(number, primary, at).await? {
                        return Ok(Version::newest(None));
                    }
                    waiting.get_or_insert_with(|| self.core.waiting());
                    self.core.pause().await;
                    self.core.stage.check(number)?;
                }
            }
        }
        Err(Abort::Failed)
    }

    async fn read_remote(
        &self,
        number: u64,
        primary: Place,
        at: Pointer,
        read_at: u64,
    ) -> Result<Result<Version, Locked>, Abort> {
        let class = at.class();
        // A pointer may come from anywhere.
        if self.core.store.shape.place(at).is_err() {
            return Ok(Ok(Version::newest(None)));
        }
        let mut bytes = vec![0; Snapshot::bytes(class)];
        for torn in 0u32.. {
            let place = (primary.machine, primary.slot);
            self.read(number, place, at.word(), &mut bytes).await?;
            match Snapshot::judge(&bytes, class) {
                Seen::Version {
                    header, payload, ..
                } if header.timestamp() <= read_at => {
                    let payload = Bytes::from(bytes).slice(payload);
                    return Ok(Ok(Version::newest(
                        header.is_allocated().then_some(payload),
                    )));
                }
                Seen::Version { header, older, .. } | Seen::Locked { header, older }
                    if header.timestamp() > read_at =>
                {
                    let old = (older, header.timestamp());
                    let old = self.read_old_remote(number, primary, at, old, read_at);
                    let old = old.await;
                    // The words may be of an object of another size, and lead anywhere.
                    if old.is_err() && !self.is_of_class(number, primary, at).await? {
                        probe!("farm pointer to another size");
                        return Ok(Ok(Version::newest(None)));
                    }
                    return old.map(Ok);
                }
                Seen::Locked { header, .. } if ignores_locks() => {
                    bytes.truncate(bytes.len() - 8);
                    let payload = Bytes::from(bytes).slice(16..);
                    return Ok(Ok(Version::newest(
                        header.is_allocated().then_some(payload),
                    )));
                }
                seen @ (Seen::Version { .. } | Seen::Locked { .. }) => {
                    return Ok(Locked::of(&seen).found());
                }
                Seen::Torn => {
                    probe!("farm torn read");
                    if torn >= TORN_MAX && !self.is_of_class(number, primary, at).await? {
                        return Ok(Ok(Version::newest(None)));
                    }
                    self.core.pause().await;
                }
            }
        }
        Err(Abort::Failed)
    }

    async fn read_old_remote(
        &self,
        number: u64,
        primary: Place,
        at: Pointer,
        (mut older, mut before): (Older, u64),
        read_at: u64,
    ) -> Result<Version, Abort> {
        probe!("farm old version read elsewhere");
        let mut bytes = vec![0; Snapshot::old_bytes(at.class())];
        let region = self.core.store.sizes.old();
        loop {
            if older == Older::NEVER {
                probe!("farm object that came later elsewhere");
                return Ok(Version::old(None));
            }
            let word = older.word().ok_or(Abort::TooOld)?;
            let place = (primary.machine, region);
            self.read(number, place, word, &mut bytes).await?;
            let old = Snapshot::judge_old(&bytes, at.class(), before).ok_or(Abort::TooOld)?;
            let (header, next, payload) = old;
            if header.timestamp() <= read_at {
                let payload = Bytes::from(bytes).slice(payload);
                return Ok(Version::old(header.is_allocated().then_some(payload)));
            }
            (older, before) = (next, header.timestamp());
        }
    }

    /// Whether there are objects of this size at the pointer's place. It may come from anywhere.
    async fn is_of_class(&self, number: u64, primary: Place, at: Pointer) -> Result<bool, Abort> {
        let shape = self.core.store.shape;
        let Ok((slab, _)) = shape.place(at) else {
            return Ok(false);
        };
        let place = (primary.machine, primary.slot);
        let table = self.header(number, place, shape.table_word(slab)).await?;
        Ok(shape.class_in(table.bits()) == Some(at.class()))
    }

    /// Whether the version that a transaction has read at `read_at` is still the newest, and will stay so in this
    /// configuration.
    pub async fn is_current(&self, number: u64, at: Pointer, read_at: u64) -> Result<bool, Abort> {
        if let Some(is_current) = self.core.is_current_here(at, read_at)? {
            return Ok(is_current);
        }
        let Some(primary) = self.core.view.borrow().primary(at.region()) else {
            return Ok(true);
        };
        let place = (primary.machine, primary.slot);
        let header = self.header(number, place, at.word()).await?;
        Ok(will_stay(header, read_at))
    }
}
