//! A layer between a stream and its user, such as TLS. The layer is bytes in, bytes out; this module moves them.

use super::{AnyReader, Reader, Writer};
use crate::{Boxed, Duration, timeout};
use bytes::{Bytes, BytesMut};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// A buffer that is empty and has more room than this is given back.
const KEPT_BYTES: usize = 128 << 10;
/// How long the other side may take to read why it was refused.
const LINGER_LIMIT: Duration = Duration::from_secs(1);

/// One side of a layer.
pub trait Layer {
    /// Takes what has arrived off `wire`, as far as it is whole. Appends what was said to `plain`, and what must be
    /// sent back to `answer`. It says the first word if it is this side's turn, so the first `wire` may be empty.
    /// After an error nothing more is received, and `answer` tells the other side why.
    fn receive(
        &mut self,
        wire: &mut BytesMut,
        plain: &mut BytesMut,
        answer: &mut BytesMut,
    ) -> io::Result<()>;

    /// Appends what must be sent to say `plain`.
    fn send(&mut self, plain: &[u8], wire: &mut BytesMut) -> io::Result<()>;

    /// Appends what says that no more is sent.
    fn end(&mut self, wire: &mut BytesMut);

    /// Both sides have greeted.
    fn is_greeted(&self) -> bool;

    /// The other side has said that it sends no more.
    fn has_ended(&self) -> bool;
}

struct Shared {
    layer: Box<dyn Layer>,
    /// Goes out before anything that is said later.
    answer: BytesMut,
}

/// What a reader with a layer has.
pub(super) struct ReadLayer {
    shared: Rc<RefCell<Shared>>,
    wire: BytesMut,
    /// Said already together with the greeting.
    early: BytesMut,
}

/// What a writer with a layer has.
pub(super) struct WriteLayer(Rc<RefCell<Shared>>);

impl ReadLayer {
    pub async fn read(&mut self, bare: &mut AnyReader, buffer: &mut BytesMut) -> io::Result<usize> {
        let before = buffer.len();
        buffer.unsplit(std::mem::take(&mut self.early));
        loop {
            if buffer.len() > before {
                return Ok(buffer.len() - before);
            }
            if self.shared.borrow().layer.has_ended() {
                return Ok(0);
            }
            if bare.read(&mut self.wire).await? == 0 {
                // Somebody may have cut the stream.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut shared = self.shared.borrow_mut();
            let Shared { layer, answer } = &mut *shared;
            layer.receive(&mut self.wire, buffer, answer)?;
            if self.wire.is_empty() && self.wire.capacity() > KEPT_BYTES {
                self.wire = BytesMut::new();
            }
        }
    }
}

impl WriteLayer {
    /// What must be sent to say `plain`.
    pub fn seal(&self, plain: &[u8]) -> io::Result<Bytes> {
        let mut shared = self.0.borrow_mut();
        let mut wire = std::mem::take(&mut shared.answer);
        shared.layer.send(plain, &mut wire)?;
        Ok(wire.freeze())
    }

    pub fn end(&self) -> Bytes {
        let mut shared = self.0.borrow_mut();
        let mut wire = std::mem::take(&mut shared.answer);
        shared.layer.end(&mut wire);
        wire.freeze()
    }
}

/// Puts `layer` on a stream that has none, of which `arrived` was read already. Returns when both sides have greeted.
/// The caller limits the time.
pub fn layered(
    mut reader: Reader,
    mut writer: Writer,
    arrived: BytesMut,
    mut layer: Box<dyn Layer>,
) -> Boxed<'static, io::Result<(Reader, Writer)>> {
    Box::pin(async move {
        assert!(reader.layer.is_none() && writer.layer.is_none());
        let (mut wire, mut early, mut answer) = (arrived, BytesMut::new(), BytesMut::new());
        loop {
            let received = layer.receive(&mut wire, &mut early, &mut answer);
            if !answer.is_empty() {
                writer.write_all(answer.split().freeze()).await?;
            }
            if let Err(error) = received {
                linger(reader, writer).await;
                return Err(error);
            }
            if layer.is_greeted() {
                break;
            }
            if reader.read(&mut wire).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let shared = Rc::new(RefCell::new(Shared { layer, answer }));
        writer.layer = Some(WriteLayer(shared.clone()));
        reader.layer = Some(Box::new(ReadLayer {
            shared,
            wire,
            early,
        }));
        Ok((reader, writer))
    })
}

/// Ends a connection so that the other side can read the last word: a socket that is closed while bytes are unread
/// takes back what it has sent.
async fn linger(mut reader: Reader, mut writer: Writer) {
    let reading = async {
        writer.shutdown().await?;
        let mut unread = BytesMut::new();
        while reader.read(&mut unread).await? > 0 {
            unread.clear();
        }
        io::Result::Ok(())
    };
    let _ = timeout(LINGER_LIMIT, reading).await; // the connection ends either way
}
