//! Frames on a connection: its two halves.

use crate::frame::{self, Check, Frame};
use crate::seals::{Checks, Seals};
use bytes::{BufMut, Bytes};
use plinth_core::output::Output;
use plinth_identity::seal::Sealer;
use plinth_runtime::net::Writer;
use plinth_runtime::serve::{self, Inbox, Outbox};
use plinth_runtime::{Pace, probe, trace, trace_warn};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

/// Cost of a small frame, measured in copied bytes; and the cost after which a reader looks at the clock.
const FRAME_COST_BYTES: usize = 2 << 10;
const LOOK_EVERY_BYTES: usize = 64 << 10;

/// Why a frame was not sent: it is too large, or the peer has not read earlier frames.
pub(crate) type Refused = serve::Refused<frame::TooLarge>;

/// The writing half: frames that wait to be written, and their seals.
pub struct Sending {
    pub outbox: Rc<Outbox>,
    seals: RefCell<Option<Seals>>,
}

impl Sending {
    /// Without seals.
    #[expect(clippy::new_without_default, reason = "it begins a connection")]
    pub fn new() -> Sending {
        Sending::through(Outbox::new())
    }

    /// Without seals, through this outbox, to which nobody else adds anything.
    pub fn through(outbox: Rc<Outbox>) -> Sending {
        Sending {
            outbox,
            seals: RefCell::default(),
        }
    }

    /// Adds a frame that `encode` appends.
    pub fn push<E>(
        &self,
        encode: impl FnOnce(Check, &mut Output) -> Result<(), E>,
    ) -> Result<(), serve::Refused<E>> {
        let mut seals = self.seals.borrow_mut();
        let Some(seals) = &mut *seals else {
            return self.outbox.push(|out| encode(Check::Sum, out));
        };
        let (head_bytes, mut is_used_up) = (seals.head_bytes(), false);
        let pushed = self.outbox.push_with(
            |out| {
                let before = out.mark();
                out.buffer().put_bytes(0, head_bytes);
                encode(Check::Seal, out).inspect_err(|_| out.truncate(before))
            },
            |out, before| is_used_up = seals.added(out, before).is_err(),
        );
        if is_used_up {
            self.outbox.close();
        }
        pushed
    }

    /// All frames from here on have seals, and those of this crate that nobody has taken to be written.
    pub fn seal_with(&self, sealer: Sealer) {
        let early = self.outbox.take();
        self.seals.replace(Some(Seals::new(sealer)));
        let mut early: bytes::BytesMut = early.iter().flat_map(|piece| piece.iter()).collect();
        while let Ok(Some(Frame {
            token,
            request_id,
            payload,
        })) = frame::decode(&mut early, Check::Sum)
        {
            // They have been in the outbox before, so there is room for them.
            let put = |out: &mut Output| out.put_shared(&payload);
            let _ = self.push(|check, out| frame::encode_as(check, out, token, request_id, put));
        }
    }

    /// Seals what was added and has no seal yet.
    pub fn end_run(&self, out: &mut Output) {
        let mut seals = self.seals.borrow_mut();
        let ended = seals.as_mut().map_or(Ok(()), |seals| seals.end_run(out));
        if ended.is_err() {
            self.outbox.close(); // the other side refuses what has no seal
        }
    }

    /// Takes out what was added, with its seal, before anybody writes it.
    pub fn take(&self) -> Vec<Bytes> {
        self.outbox.take_with(|out| self.end_run(out))
    }

    /// Writes until the connection breaks, or the outbox is closed and empty; see [`Outbox::drain`].
    pub async fn drain(&self, writer: Writer, moved: impl Fn()) {
        let finish = |out: &mut Output| self.end_run(out);
        self.outbox.drain_with(writer, finish, moved).await;
    }

    /// Adds a frame of the greeting.
    pub(crate) fn say(&self, what: Bytes) {
        let put = |out: &mut Output| {
            out.put_shared(&what);
            Ok(())
        };
        let _ = self.outbox.push::<frame::TooLarge>(put); // never too large, and the first there
    }
}

/// Reads frames and passes each to `on_frame`, until the stream ends, breaks, or `on_frame` returns `None`. Otherwise
/// `on_frame` returns about how many bytes it has processed. Calls `arrived` after every read. Frames have seals as
/// soon as there are `checks`.
pub(crate) async fn read_frames(
    mut inbox: Inbox,
    checks: &RefCell<Option<Checks>>,
    peer: SocketAddr,
    arrived: impl Fn(),
    mut on_frame: impl FnMut(Frame) -> Option<usize>,
) {
    let mut pace = Pace::new();
    let mut since_look = 0;
    loop {
        loop {
            // A short request may cause a long reply, so a turn is limited by the cost of its frames.
            if since_look > LOOK_EVERY_BYTES {
                since_look = 0;
                pace.rest_if_over().await;
            }
            let decoded = match &mut *checks.borrow_mut() {
                Some(checks) => checks.decode(&mut inbox.buffer),
                None => frame::decode(&mut inbox.buffer, Check::Sum),
            };
            match decoded {
                Ok(Some(frame)) => {
                    inbox.note(frame.payload.len());
                    let Some(bytes) = on_frame(frame) else {
                        return;
                    };
                    since_look += FRAME_COST_BYTES + bytes;
                }
                Ok(None) => break,
                Err(frame::FrameError::Seal) => {
                    probe!("rpc_bad_seal");
                    trace_warn!("BadSeal", "peer" => peer, "what" => plinth_identity::seal::Broken);
                    return;
                }
                Err(error) => {
                    probe!("rpc_bad_frame");
                    trace!("BadFrame", "peer" => peer, "error" => format!("{error:?}"));
                    return;
                }
            }
        }
        let Some(bytes) = inbox.read().await else {
            return;
        };
        since_look += bytes;
        arrived();
    }
}

/// The next frame; `None` if the stream ends, or is no stream of frames.
pub(crate) async fn next_frame(inbox: &mut Inbox) -> Option<Frame> {
    loop {
        if let Some(frame) = frame::decode(&mut inbox.buffer, Check::Sum).ok()? {
            return Some(frame);
        }
        inbox.read().await?;
    }
}
