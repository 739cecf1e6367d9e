//! The writing half of a connection.

use super::inbox::LastLarge;
use crate::net::Writer;
use crate::sync::Notify;
use crate::{Pace, probe, timeout, yield_now};
use bytes::Bytes;
use plinth_core::output::{Mark, Output};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Limit of unsent bytes. Above it, long messages are refused and the sender gets an error.
const BYTES_MAX: usize = 256 << 20;
/// Above this many unsent bytes, short messages included, the connection is closed.
const BYTES_CUT: usize = BYTES_MAX + (64 << 20);
/// Messages longer than this are refused when the outbox is full.
const LONG_BYTES: usize = 16 << 10;
/// Most bytes in one write call. Other tasks may run between two calls of a large write.
const WRITE_BYTES: usize = 512 << 10;
/// In a write larger than this, each accepted slice counts as a sign of life. A ping does not: the other side's kernel
/// accepts it even if the process is stopped.
const PROGRESS_BYTES: usize = 1 << 20;

/// Why a message was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused<E> {
    /// The message itself could not be encoded.
    Message(E),
    /// The peer has not read earlier messages yet.
    Full,
}

/// Messages waiting to be written. Everything that was added before a write goes out in it.
pub struct Outbox {
    output: RefCell<Output>,
    ready: Notify,
    /// Notified when unsent bytes were taken to be written.
    taken: Notify,
    /// Notified when it was closed.
    closing: Notify,
    closed: Cell<bool>,
    gathers: bool,
}

impl Outbox {
    /// For messages of many tasks: those that are ready in this turn of the loop add theirs to the same write.
    pub fn new() -> Rc<Self> {
        Self::make(true)
    }

    /// For answers of one session, which are added together. The writer does not wait for others.
    pub fn of_session() -> Rc<Self> {
        Self::make(false)
    }

    fn make(gathers: bool) -> Rc<Self> {
        Rc::new(Outbox {
            output: RefCell::default(),
            ready: Notify::new(),
            taken: Notify::new(),
            closing: Notify::new(),
            closed: Cell::new(false),
            gathers,
        })
    }

    /// Lets `append` add a message. A long message is refused if there are too many bytes already. Does nothing after
    /// [`Outbox::close`].
    pub fn push<E>(
        &self,
        append: impl FnOnce(&mut Output) -> Result<(), E>,
    ) -> Result<(), Refused<E>> {
        self.push_with(append, |_, _| ())
    }

    /// The same. `finish` is called when the message was added and stays, with where it begins.
    pub fn push_with<E>(
        &self,
        append: impl FnOnce(&mut Output) -> Result<(), E>,
        finish: impl FnOnce(&mut Output, Mark),
    ) -> Result<(), Refused<E>> {
        if self.closed.get() {
            return Ok(());
        }
        let mut output = self.output.borrow_mut();
        let (before, was_empty) = (output.mark(), output.is_empty());
        append(&mut output).map_err(Refused::Message)?;
        if output.len() > BYTES_MAX {
            if output.len_from(before) > LONG_BYTES {
                output.truncate(before);
                probe!("outbox_full");
                return Err(Refused::Full);
            }
            if output.len() > BYTES_CUT {
                self.close();
            }
        }
        finish(&mut output, before);
        if was_empty || self.closed.get() {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Takes out what was added, before anybody writes it.
    pub fn take(&self) -> Vec<Bytes> {
        self.take_with(|_| ())
    }

    /// The same. `finish` is called before.
    pub fn take_with(&self, finish: impl FnOnce(&mut Output)) -> Vec<Bytes> {
        let mut output = self.output.borrow_mut();
        finish(&mut output);
        output.take()
    }

    /// Takes no more messages. Those that were added are still written.
    pub fn close(&self) {
        self.closed.set(true);
        for waiting in [&self.ready, &self.taken, &self.closing] {
            waiting.notify_one();
        }
    }

    /// Ends when the outbox is closed. One task may wait.
    pub async fn until_closed(&self) {
        while !self.closed.get() {
            self.closing.notified().await;
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Number of bytes that no write has taken yet.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a number of bytes, not a collection"
    )]
    pub fn len(&self) -> usize {
        self.output.borrow().len()
    }

    /// Waits until fewer than `bytes` bytes are unsent, or the outbox is closed. One task may wait: the one that
    /// reads requests, so that a peer that does not read its answers is not read either.
    pub async fn has_room(&self, bytes: usize) {
        while self.len() >= bytes && !self.closed.get() {
            self.taken.notified().await;
        }
    }

    /// Writes until the connection breaks or the outbox is closed and empty. Calls `moved` when a slice of a large
    /// write was accepted: the other side reads then, because its kernel buffers a limited amount.
    pub async fn drain(&self, writer: Writer, moved: impl Fn()) {
        self.drain_with(writer, |_| (), moved).await;
    }

    /// The same. `finish` is called before what was added goes out in a write.
    pub async fn drain_with(
        &self,
        mut writer: Writer,
        finish: impl Fn(&mut Output),
        moved: impl Fn(),
    ) {
        let mut last_large = LastLarge::default();
        loop {
            if self.output.borrow().is_empty() {
                if self.closed.get() {
                    return;
                }
                self.wait_for_messages(&mut last_large).await;
                if self.gathers {
                    yield_now().await;
                }
                continue;
            }
            let pieces = self.take_with(&finish);
            self.taken.notify_one();
            let bytes: usize = pieces.iter().map(Bytes::len).sum();
            last_large.note(bytes);
            let written = write(&mut writer, pieces, bytes > PROGRESS_BYTES, &moved).await;
            if written.is_err() {
                self.closed.set(true);
                return;
            }
        }
    }

    /// Waits until there are messages or the outbox is closed.
    async fn wait_for_messages(&self, last_large: &mut LastLarge) {
        if let Some(kept_for) = last_large.kept_for() {
            if timeout(kept_for, self.ready.notified()).await.is_some() {
                return;
            }
            let mut output = self.output.borrow_mut();
            // Messages may have been added at the same moment; they must not be lost.
            if !output.is_empty() {
                return;
            }
            *output = Output::new();
            *last_large = LastLarge::default();
            probe!("gives_back_large_outbox");
        }
        self.ready.notified().await;
    }
}

/// Writes the pieces in order. Calls `moved` while the other side takes something large.
async fn write(
    writer: &mut Writer,
    pieces: Vec<Bytes>,
    is_large: bool,
    moved: &impl Fn(),
) -> std::io::Result<()> {
    let mut pace = Pace::new();
    for mut piece in pieces {
        while !piece.is_empty() {
            let slice = piece.split_to(piece.len().min(WRITE_BYTES));
            writer.write_all(slice).await?;
            if is_large {
                moved();
                pace.rest_if_over().await;
            }
        }
    }
    Ok(())
}
