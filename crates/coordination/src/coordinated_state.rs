//! The coordinated state: one value on a majority of coordinators (FDB §2.3.1, §2.4.4), wherever those are.
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
//! 3. old set: "the state has moved to …": whoever asks an old coordinator is sent on
//! ```
//!
//! Between 1 and 3 whoever reads the old set finishes the move before anything else. So no recovery ever goes on with the
//! old set after the new one has the state: it would have to write to the old set over step 1.

use crate::register::Register;
use crate::{ClusterFile, Coordinators};
use bytes::Bytes;
use plinth_core::{Error, Result, Uid};
use plinth_protocol::coordination::CoordinatedValue;
use plinth_rpc::Transport;
use plinth_runtime::{Duration, buggify, fault, probe, trace};
use std::net::SocketAddr;

/// Between two attempts to write where others write too.
const PAUSE_MS: std::ops::Range<u64> = 20..100;

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

    /// Reads the newest value and fences all earlier readers' writes. Waits until a majority answers. `None` if there is no
    /// database yet. [`Error::coordinators_changed`] if the state is elsewhere: its owner ends, for others are elected there.
    pub async fn read(&mut self) -> Result<Option<Bytes>> {
        match self.register.read().await {
            None => Ok(None),
            Some(value) if value.successor.is_empty() => Ok(Some(value.state)),
            Some(value) if fault::is_planted("move_of_coordinators_forgotten") && !value.moved => {
                Ok(Some(value.state))
            }
            Some(value) => {
                probe!("coordinated_state_is_elsewhere");
                self.complete_move(value).await?;
                Err(Error::coordinators_changed)
            }
        }
    }

    /// Reads what must be `state`, as this owner left it there.
    pub async fn read_own(&mut self, state: &Bytes) -> Result<()> {
        match self.read().await? {
            Some(found) if found == state => Ok(()),
            _ => Err(Error::coordinated_state_conflict),
        }
    }

    /// Replaces the value read. Fails if somebody has read since.
    pub async fn write(&mut self, state: Bytes) -> Result<()> {
        self.register.write(here(state)).await
    }

    /// Moves the value just read to other coordinators, which must all live. Afterwards this is of no more use.
    pub async fn move_to(&mut self, coordinators: Vec<SocketAddr>, state: Bytes) -> Result<()> {
        let successor = self.register.file.succeeded_by(coordinators);
        trace!("CoordinatorsMove", "to" => successor);
        let value = CoordinatedValue {
            successor: successor.to_string(),
            moved: false,
            state,
        };
        self.register.write(value.clone()).await?;
        self.finish_move(value).await
    }

    /// Does what is left of a move that was found under way.
    async fn complete_move(&mut self, value: CoordinatedValue) -> Result<()> {
        if value.moved {
            self.coordinators.follow(&value.successor);
            return Ok(());
        }
        probe!("move_of_coordinators_resumed");
        // What was read may be on a minority only: nothing may follow from it before a majority has it.
        self.register.write(value.clone()).await?;
        self.finish_move(value).await
    }

    async fn finish_move(&mut self, value: CoordinatedValue) -> Result<()> {
        let file = ClusterFile::parse(&value.successor).map_err(|_| Error::file_corrupt)?;
        give_up_sometimes()?;
        self.copy_to(file, &value.state).await;
        give_up_sometimes()?;
        self.mark_moved(value.successor).await;
        Ok(())
    }

    /// Step 2. Somebody else may do the same at the same time, or may have recovered there long ago.
    async fn copy_to(&self, file: ClusterFile, state: &Bytes) {
        let mut successor = Register::new(&self.transport, file, self.writer);
        loop {
            if successor.read().await.is_some() {
                return;
            }
            if successor.write(here(state.clone())).await.is_ok() {
                probe!("coordinated_state_moved");
                return;
            }
            pause().await;
        }
    }

    /// Step 3.
    async fn mark_moved(&mut self, successor: String) {
        let moved = CoordinatedValue {
            successor: successor.clone(),
            moved: true,
            state: Bytes::new(),
        };
        loop {
            let found = self.register.read().await;
            if found.is_some_and(|value| value.moved) {
                break;
            }
            if self.register.write(moved.clone()).await.is_ok() {
                self.register.tell_all(moved);
                break;
            }
            pause().await;
        }
        trace!("CoordinatorsMoved", "to" => successor);
        self.coordinators.follow(&successor);
    }
}

/// As if this process ended here.
fn give_up_sometimes() -> Result<()> {
    // Those who forget a move are planted together with controllers that end on the way: else too few runs have both.
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
