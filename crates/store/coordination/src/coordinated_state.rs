//! The coordinated state: one value on a majority of coordinators (FDB §2.3.1, §2.4.4), which can move to others.
//!
//! A recovery reads it with a generation of its own, which fences every writer before it; then it writes once. If
//! another recovery has read in between, the write fails with [`Error::coordinated_state_conflict`] and its owner
//! ends: of two recoveries at once, one wins (pitfall 14).
//!
//! It moves to other coordinators in three steps, each a write of a register:
//!
//! ```text
//! 1. old set: "the successor will be …", with the state, which from now on never changes there
//! 2. new set: the state, unless it is there already
//! 3. old set: "the state has moved to …": an old coordinator redirects every request
//! ```
//!
//! Between 1 and 3 every reader of the old set finishes the move before anything else. So no recovery ever goes on
//! with the old set after the new one has the state: it would have to write to the old set over step 1.
//!
//! A value that a read finds may be on a minority only, and the next reader may miss it. So nothing follows from a
//! value before a majority is known to have it; if that is not known, the reader first writes the value again, with
//! its own generation (pitfall 32). The mark of step 3 is an exception: it is written when the new set has the state,
//! so one coordinator that has it is enough. Those who knew the old set only find the new one, though most of the old
//! one are gone for good.
//!
//! The old set keeps its last state beside the mark of step 3. Nothing acts on it, because recoveries of the new set
//! have replaced it since. It is there for people.

use crate::register::{Register, Unheard};
use crate::{ClusterFile, Coordinators};
use bytes::Bytes;
use plinth_core::{Error, Result, Uid};
use plinth_protocol::coordination::{BeginRegister, CoordinatedValue, ask};
use plinth_rpc::{Place, Transport};
use plinth_runtime::{Boxed, Duration, buggify, fault, planted, probe, trace};

/// Pause between two attempts to write while others write too.
const PAUSE_MS: std::ops::Range<u64> = 20..100;
/// A lost coordinator that has not begun its register within this time does so with the next move.
const BEGIN_LIMIT: Duration = Duration::from_secs(2);

pub struct CoordinatedState {
    transport: Transport,
    coordinators: Coordinators,
    register: Register,
    writer: Uid,
}

fn here(state: Bytes) -> CoordinatedValue {
    CoordinatedValue {
        successor: String::new(),
        moved: false,
        state,
    }
}

impl CoordinatedState {
    pub fn new(transport: &Transport, coordinators: &Coordinators, writer: Uid) -> Self {
        CoordinatedState {
            transport: transport.clone(),
            coordinators: coordinators.clone(),
            register: Register::new(transport, coordinators.file(), writer),
            writer,
        }
    }

    /// Reads the newest value and fences all earlier readers' writes. Waits until a majority answers. `None` if there
    /// is no database yet. [`Error::coordinators_changed`] if the state has moved: the caller ends, because the new
    /// coordinators elect another controller. [`Error::invalid_cluster_id`] if no majority has the state of one
    /// database, and some have those of others: [`divided`](Self::divided) tells.
    pub fn read(&mut self) -> Boxed<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            match self.register.read_settled().await? {
                None => Ok(None),
                Some(value) if value.successor.is_empty() => Ok(Some(value.state)),
                Some(value)
                    if planted!(
                        "move_of_coordinators_forgotten",
                        "a recovery goes on with coordinators whose state may have moved"
                    ) && !value.moved =>
                {
                    Ok(Some(value.state))
                }
                Some(value) => {
                    probe!("coordinated_state_is_elsewhere");
                    self.complete_move(value).await?;
                    Err(Error::coordinators_changed)
                }
            }
        })
    }

    /// The id that tells its writes from those of others: one that was drawn at random for it.
    pub fn writer(&self) -> Uid {
        self.writer
    }

    /// The coordinators that a read or a write under way waits for.
    pub fn unheard(&self) -> Unheard {
        self.register.unheard.clone()
    }

    /// Who holds what, if the last read found states of two databases.
    pub fn divided(&self) -> Option<String> {
        self.register.divided.clone()
    }

    /// Whether the coordinators are of the system whose states begin like this one. It changes nothing there.
    pub(crate) async fn takes(&self, state: &'static [u8]) -> bool {
        let state = here(Bytes::from_static(state));
        self.register.would_take(state).await
    }

    /// Reads the newest value, without holding up those who write. `None` if it is not certain, because somebody is
    /// writing it or moves it now: [`read`](Self::read) tells then. Waits until a majority answers.
    pub fn peek(&self) -> Boxed<'_, Option<Option<Bytes>>> {
        Box::pin(async move {
            match self.register.peek().await? {
                None => Some(None),
                Some(value) if value.successor.is_empty() => Some(Some(value.state)),
                Some(_) => None,
            }
        })
    }

    /// Reads the value, which must still be the `state` that this owner left there.
    pub fn read_own<'a>(&'a mut self, state: &'a Bytes) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            match self.read().await? {
                Some(found) if found == state => Ok(()),
                _ => Err(Error::coordinated_state_conflict),
            }
        })
    }

    /// Replaces the value read. Fails if there was another reader since.
    pub fn write(&mut self, state: Bytes) -> Boxed<'_, Result<()>> {
        Box::pin(async move { self.register.write(here(state)).await })
    }

    /// Moves the value just read to other coordinators, which must all live. Those in `lost`, which have just
    /// reported that they lost their registers, may begin again. Must not be used afterwards.
    pub fn move_to(
        &mut self,
        coordinators: Vec<Place>,
        state: Bytes,
        lost: Vec<(Place, Uid)>,
    ) -> Boxed<'_, Result<()>> {
        Box::pin(async move {
            let successor = self.register.file.succeeded_by(coordinators);
            trace!("CoordinatorsMove", "to" => successor);
            let value = CoordinatedValue {
                successor: successor.to_string(),
                moved: false,
                state,
            };
            self.register.write(value.clone()).await?;
            trace!("SuccessorWritten", "to" => successor);
            self.let_begin(&successor, lost).await;
            self.finish_move(value).await
        })
    }

    /// Lets coordinators that have lost their registers begin this one. None of them can have had it before: each had
    /// lost its registers before the write that made this the next set, and has not started again since. A process
    /// that resumes the move does not know that, and does without them.
    async fn let_begin(&self, successor: &ClusterFile, lost: Vec<(Place, Uid)>) {
        let told = lost.into_iter().map(|(place, lost)| {
            let request = BeginRegister {
                register: successor.register(),
                lost,
            };
            let call = ask(&self.transport, &place, request);
            plinth_runtime::timeout(BEGIN_LIMIT, call)
        });
        plinth_runtime::join_all(told.collect::<Vec<_>>()).await;
    }

    /// Finishes a move that was found under way.
    async fn complete_move(&mut self, value: CoordinatedValue) -> Result<()> {
        if value.moved {
            self.coordinators.follow(&value.successor);
            return Ok(());
        }
        probe!("move_of_coordinators_resumed");
        self.finish_move(value).await
    }

    async fn finish_move(&mut self, value: CoordinatedValue) -> Result<()> {
        assert!(
            !value.moved && !value.successor.is_empty(),
            "no move of the coordinators is under way"
        );
        let file = ClusterFile::parse(&value.successor).map_err(|_| Error::file_corrupt)?;
        give_up_sometimes()?;
        self.copy_to(file, &value.state).await;
        trace!("StateCopied", "to" => value.successor);
        give_up_sometimes()?;
        self.mark_moved(value).await;
        Ok(())
    }

    /// Step 2. Another process may do the same at the same time, or may have recovered there long ago.
    async fn copy_to(&self, file: ClusterFile, state: &Bytes) {
        let mut successor = Register::new(&self.transport, file, self.writer);
        loop {
            match successor.read_settled().await {
                Ok(Some(_)) => return,
                Ok(None) if successor.write(here(state.clone())).await.is_ok() => {
                    probe!("coordinated_state_moved");
                    return;
                }
                Ok(None) | Err(_) => pause().await,
            }
        }
    }

    /// Step 3.
    async fn mark_moved(&mut self, value: CoordinatedValue) {
        let successor = value.successor.clone();
        let moved = CoordinatedValue {
            moved: true,
            ..value
        };
        loop {
            match self.register.read_settled().await {
                Ok(Some(found)) if found.moved => break,
                Ok(_) if self.register.write(moved.clone()).await.is_ok() => {
                    self.register.tell_all(moved);
                    break;
                }
                Ok(_) | Err(_) => pause().await,
            }
        }
        trace!("CoordinatorsMoved", "to" => successor);
        self.coordinators.follow(&successor);
    }
}

/// Fails as if this process ended here.
fn give_up_sometimes() -> Result<()> {
    // Recoveries that forget a move are planted together with controllers that end on the way: otherwise too few runs
    // have both.
    let forgetful = fault::is_planted("move_of_coordinators_forgotten");
    match buggify!() || forgetful && plinth_runtime::random::chance(0.3) {
        true => Err(Error::coordinated_state_conflict),
        false => Ok(()),
    }
}

async fn pause() {
    plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::range(
        PAUSE_MS,
    )))
    .await;
}
