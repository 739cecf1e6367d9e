//! Frames on a connection: the greeting, and the reading half.

use crate::frame::{self, Frame};
use bytes::{BufMut, Bytes};
use plinth_core::output::Output;
use plinth_runtime::net::Reader;
use plinth_runtime::serve::Inbox;
use plinth_runtime::{Pace, probe, trace};
use std::net::SocketAddr;

/// Cost of a small frame, measured in copied bytes; and the cost after which a reader looks at the clock.
const FRAME_COST_BYTES: usize = 2 << 10;
const LOOK_EVERY_BYTES: usize = 64 << 10;

/// Why a frame was not sent: it is too large, or the peer has not read earlier frames.
pub(crate) type Refused = plinth_runtime::serve::Refused<frame::TooLarge>;

/// Reads frames and passes each to `on_frame`, until the stream ends, breaks, or `on_frame` returns `None`. Otherwise
/// `on_frame` returns about how many bytes it has processed. Calls `arrived` after every read.
pub(crate) async fn read_frames(
    reader: Reader,
    peer: SocketAddr,
    arrived: impl Fn(),
    mut on_frame: impl FnMut(Frame) -> Option<usize>,
) {
    let mut inbox = Inbox::new(reader);
    let mut pace = Pace::new();
    let mut since_look = 0;
    loop {
        loop {
            // A short request may cause a long reply, so a turn is limited by the cost of its frames.
            if since_look > LOOK_EVERY_BYTES {
                since_look = 0;
                pace.rest_if_over().await;
            }
            match frame::decode(&mut inbox.buffer) {
                Ok(Some(frame)) => {
                    inbox.note(frame.payload.len());
                    let Some(bytes) = on_frame(frame) else {
                        return;
                    };
                    since_look += FRAME_COST_BYTES + bytes;
                }
                Ok(None) => break,
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

/// The first bytes of a connection.
pub(crate) fn hello() -> Bytes {
    let mut out = Output::new();
    let greeting = |out: &mut Output| out.buffer().put_u64_le(frame::PROTOCOL_VERSION);
    frame::encode(&mut out, frame::HELLO, 0, greeting).expect("a number fits");
    out.into_bytes()
}
