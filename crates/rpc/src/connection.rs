//! The writing half of a connection, and the server side of one that was accepted.

use crate::frame::{self, Frame, TooLarge};
use crate::transport::Inner;
use bytes::{Buf, Bytes, BytesMut};
use plinth_core::Error;
use plinth_runtime::net::{Reader, Writer};
use plinth_runtime::sync::Notify;
use plinth_runtime::{Duration, Instant, Pace, now, probe, trace, trace_warn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

/// A peer that has so many bytes to read already gets no more long messages: who asks or answers hears of it.
const OUTBOX_BYTES_MAX: usize = 256 << 20;
/// One that does not read the short ones either is cut off.
const OUTBOX_BYTES_CUT: usize = OUTBOX_BYTES_MAX + (64 << 20);
/// What is longer finds no place in an outbox that is full.
const LONG_BYTES: usize = 16 << 10;
/// One system call writes so much, and a large write lets others run between two.
const WRITE_BYTES: usize = 512 << 10;
/// Of more, what the other side has taken is progress: it is no mere ping, which its system would take for it.
const PROGRESS_BYTES: usize = 1 << 20;
/// What a small frame costs, in bytes that are copied; and after how many of them a reader looks at the clock.
const FRAME_COST_BYTES: usize = 2 << 10;
const LOOK_EVERY_BYTES: usize = 64 << 10;
/// Room for a greeting and a small request: what a connection that stays idle costs. More is made when more is read.
const FIRST_READ_BYTES: usize = (4 << 10) + 256;
/// A buffer that has held a frame this large, or so many frames at once, is given back when that was a while ago: else each
/// connection would keep the room for the largest that it has ever seen.
const LARGE_BYTES: usize = 128 << 10;
const KEPT_FOR: Duration = Duration::from_secs(1);
/// A connection whose first frame has not come by then is closed.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// Why a frame was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    TooLarge(TooLarge),
    /// The peer has not read what was sent before.
    Full,
}

/// When a buffer last held much.
#[derive(Default)]
struct LastLarge(Option<Instant>);

impl LastLarge {
    fn note(&mut self, bytes: usize) {
        if bytes > LARGE_BYTES {
            self.0 = Some(now());
        }
    }
    /// How long the buffer is still kept when it is empty; `None`: it is small. There is always some small frame to come, a
    /// ping at least: that does not count.
    fn kept_for(&self) -> Option<Duration> {
        self.0.map(|at| KEPT_FOR.saturating_sub(at.elapsed()))
    }
}

/// Frames waiting to be written. Everything that was added during one turn of the event loop goes out in one write.
pub(crate) struct Outbox {
    buffer: RefCell<BytesMut>,
    ready: Notify,
    closed: Cell<bool>,
    /// Of requests that wait here for something to happen: what to do when their caller goes. By request id.
    waiting: RefCell<BTreeMap<u64, Gone>>,
}

type Gone = Box<dyn FnOnce()>;

impl Outbox {
    pub fn new() -> Rc<Self> {
        Rc::new(Outbox {
            buffer: RefCell::new(BytesMut::new()),
            ready: Notify::new(),
            closed: Cell::new(false),
            waiting: RefCell::default(),
        })
    }
    /// Lets `append` add a frame, unless that is a long one and there are too many bytes already. Ignored after
    /// [`Outbox::close`].
    pub fn push(
        &self,
        append: impl FnOnce(&mut BytesMut) -> Result<(), TooLarge>,
    ) -> Result<(), Refused> {
        if self.closed.get() {
            return Ok(());
        }
        let mut buffer = self.buffer.borrow_mut();
        let before = buffer.len();
        append(&mut buffer).map_err(Refused::TooLarge)?;
        if buffer.len() > OUTBOX_BYTES_MAX {
            if buffer.len() - before > LONG_BYTES {
                buffer.truncate(before);
                probe!("rpc_outbox_full");
                return Err(Refused::Full);
            }
            self.closed.set(buffer.len() > OUTBOX_BYTES_CUT);
        }
        if before == 0 || self.closed.get() {
            self.ready.notify_one();
        }
        Ok(())
    }
    pub fn close(&self) {
        self.closed.set(true);
        self.ready.notify_one();
    }
    /// Calls `gone` when the caller gives up request `id` or the connection ends; false if it has.
    fn on_gone(&self, id: u64, gone: Gone) -> bool {
        if self.closed.get() {
            return false;
        }
        self.gave_up(id); // two requests of one id: only the later one can be answered
        self.waiting.borrow_mut().insert(id, gone);
        true
    }
    fn answered(&self, id: u64) {
        let gone = self.waiting.borrow_mut().remove(&id);
        drop(gone);
    }
    fn gave_up(&self, id: u64) {
        let gone = self.waiting.borrow_mut().remove(&id);
        if let Some(gone) = gone {
            gone();
        }
    }
    /// The connection has ended: nobody waits.
    fn all_gave_up(&self) {
        let waiting = self.waiting.take();
        waiting.into_values().for_each(|gone| gone());
    }
    fn len(&self) -> usize {
        self.buffer.borrow().len()
    }
    /// Writes until the connection breaks or the outbox is closed. Tells `moved` when the other side has taken a part of
    /// something large: it reads, since its system keeps only so much.
    pub async fn drain(&self, mut writer: Writer, moved: impl Fn()) {
        let mut last_large = LastLarge::default();
        loop {
            if self.buffer.borrow().is_empty() {
                if self.closed.get() {
                    return;
                }
                self.wait_for_frames(&mut last_large).await;
                // Let whatever else is ready in this turn add its frames to the same write.
                plinth_runtime::yield_now().await;
                continue;
            }
            let mut chunk = self.buffer.borrow_mut().split().freeze();
            last_large.note(chunk.len());
            let is_large = chunk.len() > PROGRESS_BYTES;
            let mut pace = Pace::new();
            while !chunk.is_empty() {
                let slice = chunk.split_to(chunk.len().min(WRITE_BYTES));
                if writer.write_all(slice).await.is_err() {
                    self.closed.set(true);
                    return;
                }
                if is_large {
                    moved();
                    pace.rest_if_over().await;
                }
            }
        }
    }
}

impl Outbox {
    /// Until there are any, or the outbox is closed.
    async fn wait_for_frames(&self, last_large: &mut LastLarge) {
        if let Some(kept_for) = last_large.kept_for() {
            let waited = plinth_runtime::timeout(kept_for, self.ready.notified()).await;
            if waited.is_some() {
                return;
            }
            let mut buffer = self.buffer.borrow_mut();
            // Frames that came in the same moment are not given away.
            if !buffer.is_empty() {
                return;
            }
            *buffer = BytesMut::new();
            *last_large = LastLarge::default();
            probe!("rpc_gives_back_large_outbox");
        }
        self.ready.notified().await;
    }
}

/// Reads frames and gives each to `on_frame` until the stream ends, breaks, or `on_frame` gives nothing; what it gives is
/// about how many bytes it has dealt with. Tells `arrived` of whatever comes.
pub(crate) async fn read_frames(
    mut reader: Reader,
    peer: SocketAddr,
    arrived: impl Fn(),
    mut on_frame: impl FnMut(Frame) -> Option<usize>,
) {
    let mut buffer = BytesMut::with_capacity(FIRST_READ_BYTES);
    let mut last_large = LastLarge::default();
    let mut pace = Pace::new();
    let mut since_look = 0;
    loop {
        loop {
            // Few bytes may ask for many: a turn ends by what they have cost.
            if since_look > LOOK_EVERY_BYTES {
                since_look = 0;
                pace.rest_if_over().await;
            }
            match frame::decode(&mut buffer) {
                Ok(Some(frame)) => {
                    last_large.note(frame.payload.len());
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
        let read = match last_large.kept_for().filter(|_| buffer.is_empty()) {
            None => reader.read(&mut buffer).await,
            Some(kept_for) => {
                match plinth_runtime::timeout(kept_for, reader.read(&mut buffer)).await {
                    Some(read) => read,
                    None => {
                        buffer = BytesMut::with_capacity(FIRST_READ_BYTES);
                        last_large = LastLarge::default();
                        probe!("rpc_gives_back_large_buffer");
                        continue;
                    }
                }
            }
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(bytes) => {
                since_look += bytes;
                arrived();
            }
        }
    }
}

/// Where the reply to a remote request goes.
pub(crate) struct RemoteReply {
    outbox: Rc<Outbox>,
    request_id: u64,
    /// Somebody is to be told if the caller goes first.
    is_watched: bool,
}

impl RemoteReply {
    /// Calls `gone` when the caller goes before the answer; false if it has gone.
    pub fn on_gone(&mut self, gone: Gone) -> bool {
        self.is_watched = self.outbox.on_gone(self.request_id, gone);
        self.is_watched
    }

    /// From now on nobody is told.
    pub fn unwatch(&mut self) {
        if std::mem::take(&mut self.is_watched) {
            self.outbox.answered(self.request_id);
        }
    }

    /// Answers the request named `request`. An answer that cannot be sent becomes an error.
    pub fn send(mut self, request: &str, result: Result<&dyn Fn(&mut BytesMut), Error>) {
        self.unwatch();
        let id = self.request_id;
        let sent = match result {
            Ok(body) => self
                .outbox
                .push(|out| frame::encode_reply(out, id, Ok(()), |out| body(out))),
            Err(error) => return self.fail(error),
        };
        match sent {
            Ok(()) => {}
            Err(Refused::TooLarge(TooLarge { bytes })) => {
                trace_warn!("ReplyTooLarge", "request" => request, "bytes" => bytes);
                self.fail(Error::serialization_failed);
            }
            Err(Refused::Full) => self.fail(Error::server_overloaded),
        }
    }

    fn fail(&self, error: Error) {
        let id = self.request_id;
        let short = |out: &mut BytesMut| frame::encode_reply(out, id, Err(error), |_| ());
        let _ = self.outbox.push(short); // it has a few bytes: no frame is too short for it
    }
}

/// Serves one accepted connection until it ends.
pub(crate) async fn serve(
    transport: Weak<Inner>,
    reader: Reader,
    writer: Writer,
    peer: SocketAddr,
) {
    let outbox = Outbox::new();
    let writing = {
        let outbox = outbox.clone();
        async move { outbox.drain(writer, || ()).await }
    };
    let greeted = Cell::new(false);
    let on_frame = |frame: Frame| {
        if !greeted.get() {
            greeted.set(hello_is_good(&frame, peer));
            return greeted.get().then_some(0);
        }
        if outbox.closed.get() {
            return None;
        }
        let (asked, before) = (frame.payload.len(), outbox.len());
        accept(&transport.upgrade()?, &outbox, frame);
        Some(asked + outbox.len().saturating_sub(before))
    };
    let reading = read_frames(reader, peer, || (), on_frame);
    // Who connects and says nothing, or half a greeting, is no client.
    let stranger = async {
        plinth_runtime::sleep(GREETING_LIMIT).await;
        if greeted.get() {
            std::future::pending::<()>().await;
        }
        probe!("rpc_drops_silent_stranger");
    };
    let _ends = Ends(outbox.clone());
    plinth_runtime::race(plinth_runtime::race(reading, writing), stranger).await;
}

/// However it ends: what waits for its caller must not wait for ever.
struct Ends(Rc<Outbox>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.close();
        self.0.all_gave_up();
    }
}

fn hello_is_good(frame: &Frame, peer: SocketAddr) -> bool {
    let version = frame.payload.clone().try_get_u64_le().unwrap_or(0);
    let good = frame.token == frame::HELLO && version == frame::PROTOCOL_VERSION;
    if !good {
        trace!("ConnectionRefused", "peer" => peer, "reason" => "not a Plinth client of this protocol version");
    }
    good
}

fn accept(transport: &Rc<Inner>, outbox: &Rc<Outbox>, frame: Frame) {
    let reply = RemoteReply {
        outbox: outbox.clone(),
        request_id: frame.request_id,
        is_watched: false,
    };
    if frame.token == frame::GIVE_UP {
        return outbox.gave_up(frame.request_id);
    }
    if frame.token == frame::PING {
        reply.send("ping", Ok(&|_| ()));
        return;
    }
    match transport.remote_handler(frame.token) {
        Some(handler) => handler(frame.payload, reply),
        None => reply.fail(Error::broken_promise),
    }
}

/// The first bytes of a connection.
pub(crate) fn hello() -> Bytes {
    let mut out = BytesMut::new();
    let greeting = |out: &mut BytesMut| bytes::BufMut::put_u64_le(out, frame::PROTOCOL_VERSION);
    frame::encode(&mut out, frame::HELLO, 0, greeting).expect("a number fits");
    out.freeze()
}
