//! TLS 1.3 of `rustls` as a layer of a stream: one side of one connection.

use bytes::{Buf, BytesMut};
use plinth_runtime::net::Layer;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use std::io;
use std::ops::Deref;

/// The most plaintext in a record, and what a record adds to it.
const RECORD_BYTES: usize = 16 << 10;
const RECORD_ADDS: usize = 5 + 1 + 16;
/// Room for messages of the handshake that go before.
const MESSAGES_BYTES: usize = 128;
/// A buffer that is empty and has more room than this is given back.
const KEPT_BYTES: usize = 128 << 10;

/// Both sides of `rustls` have the same functions, but no trait for them.
pub(crate) trait Records {
    type Data;
    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn is_handshaking(&self) -> bool;
}

impl Records for UnbufferedClientConnection {
    type Data = ClientConnectionData;
    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(wire)
    }
    fn is_handshaking(&self) -> bool {
        self.deref().is_handshaking()
    }
}

impl Records for UnbufferedServerConnection {
    type Data = ServerConnectionData;
    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(wire)
    }
    fn is_handshaking(&self) -> bool {
        self.deref().is_handshaking()
    }
}

/// Hears what comes of a handshake.
pub(crate) trait Hearer {
    /// Both sides have greeted. After an error the connection ends.
    fn greeted(&self) -> Result<(), ()>;

    /// The connection has failed.
    fn failed(&self, error: &rustls::Error);
}

pub(crate) struct Session<C, H> {
    connection: C,
    hearer: H,
    /// The hearer knows that both sides have greeted.
    is_settled: bool,
    /// What has arrived and is not a whole record, or not a whole message of a handshake. `rustls` has marks in it, so
    /// it is shown to it whatever is to be done.
    unread: BytesMut,
    has_ended: bool,
}

impl<C: Records, H: Hearer> Session<C, H> {
    pub fn new(connection: C, hearer: H) -> Self {
        Session {
            connection,
            hearer,
            is_settled: false,
            unread: BytesMut::new(),
            has_ended: false,
        }
    }

    fn fail(&self, error: &rustls::Error) -> io::Error {
        self.hearer.failed(error);
        io::ErrorKind::InvalidData.into()
    }

    /// Goes on until `rustls` has done what it can with what has arrived.
    fn advance(
        &mut self,
        plain: &mut BytesMut,
        answer: &mut BytesMut,
    ) -> Result<(), rustls::Error> {
        loop {
            let UnbufferedStatus { mut discard, state } = self.connection.process(&mut self.unread);
            let done = match state {
                Ok(ConnectionState::EncodeTlsData(message)) => encode(message, answer),
                Ok(ConnectionState::TransmitTlsData(message)) => {
                    message.done(); // the caller sends it before anything that is said later
                    Ok(false)
                }
                Ok(ConnectionState::ReadTraffic(mut records)) => loop {
                    match records.next_record() {
                        None => break Ok(false),
                        Some(Err(error)) => break Err(error),
                        Some(Ok(record)) => {
                            discard += record.discard;
                            plain.extend_from_slice(record.payload);
                        }
                    }
                },
                Ok(ConnectionState::PeerClosed) => {
                    self.has_ended = true;
                    Ok(false)
                }
                Ok(
                    ConnectionState::WriteTraffic(_)
                    | ConnectionState::BlockedHandshake
                    | ConnectionState::Closed,
                ) => Ok(true),
                // Early data is not offered.
                Ok(_) => Err(rustls::Error::General("an unknown state".into())),
                Err(error) => Err(error),
            };
            self.unread.advance(discard);
            if done? {
                return Ok(());
            }
        }
    }

    /// What the other side is told after an error.
    fn last_words(&mut self, answer: &mut BytesMut) {
        let UnbufferedStatus { state, .. } = self.connection.process(&mut self.unread);
        if let Ok(ConnectionState::EncodeTlsData(message)) = state {
            let _ = encode(message, answer); // without it the connection just ends
        }
        self.unread = BytesMut::new();
    }

    /// Appends what `put` writes, behind messages of the handshake that wait.
    fn write(
        &mut self,
        wire: &mut BytesMut,
        room: usize,
        put: impl Fn(&mut WriteTraffic<'_, C::Data>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), rustls::Error> {
        loop {
            let UnbufferedStatus { discard, state } = self.connection.process(&mut self.unread);
            let done = match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let put = |room: &mut [u8]| match put(&mut traffic, room) {
                        Ok(bytes) => Ok(bytes),
                        Err(EncryptError::InsufficientSize(size)) => Err(Some(size.required_size)),
                        Err(EncryptError::EncryptExhausted) => Err(None),
                    };
                    append(wire, room, put).map(|()| true)
                }
                Ok(ConnectionState::EncodeTlsData(message)) => encode(message, wire),
                Ok(ConnectionState::TransmitTlsData(message)) => {
                    message.done();
                    Ok(false)
                }
                Ok(_) => Err(rustls::Error::HandshakeNotComplete),
                Err(error) => Err(error),
            };
            self.unread.advance(discard);
            if done? {
                return Ok(());
            }
        }
    }
}

/// Appends a message of the handshake. There may be more to do.
pub(crate) fn encode<Data>(
    mut message: EncodeTlsData<'_, Data>,
    wire: &mut BytesMut,
) -> Result<bool, rustls::Error> {
    let put = |room: &mut [u8]| {
        message.encode(room).map_err(|error| match error {
            EncodeError::InsufficientSize(size) => Some(size.required_size),
            EncodeError::AlreadyEncoded => None,
        })
    };
    append(wire, MESSAGES_BYTES, put).map(|()| false)
}

/// Appends what `put` writes. It returns the number of bytes, or how many it wants; `None` if it cannot at all.
fn append(
    out: &mut BytesMut,
    mut room: usize,
    mut put: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), rustls::Error> {
    let before = out.len();
    loop {
        out.resize(before + room, 0);
        match put(&mut out[before..]) {
            Ok(bytes) => {
                out.truncate(before + bytes);
                return Ok(());
            }
            Err(Some(wanted)) if wanted > room => room = wanted,
            Err(_) => {
                out.truncate(before);
                return Err(rustls::Error::EncryptError);
            }
        }
    }
}

impl<C: Records, H: Hearer> Layer for Session<C, H> {
    fn receive(
        &mut self,
        wire: &mut BytesMut,
        plain: &mut BytesMut,
        answer: &mut BytesMut,
    ) -> io::Result<()> {
        match self.unread.is_empty() {
            true => std::mem::swap(&mut self.unread, wire),
            false => self.unread.unsplit(wire.split()),
        }
        let advanced = self.advance(plain, answer);
        if self.unread.is_empty() && self.unread.capacity() > KEPT_BYTES {
            self.unread = BytesMut::new();
        }
        if let Err(error) = advanced {
            self.last_words(answer);
            return Err(self.fail(&error));
        }
        if self.is_greeted() && !self.is_settled {
            let settled = self.hearer.greeted();
            settled.map_err(|()| io::ErrorKind::InvalidData)?;
            self.is_settled = true;
        }
        Ok(())
    }

    fn send(&mut self, plain: &[u8], wire: &mut BytesMut) -> io::Result<()> {
        let records = plain.len() / RECORD_BYTES + 1;
        let room = plain.len() + records * RECORD_ADDS + MESSAGES_BYTES;
        let sent = self.write(wire, room, |traffic, room| traffic.encrypt(plain, room));
        sent.map_err(|error| self.fail(&error))
    }

    fn end(&mut self, wire: &mut BytesMut) {
        let close = self.write(wire, MESSAGES_BYTES, |traffic, room| {
            traffic.queue_close_notify(room)
        });
        let _ = close; // a connection that has failed has no end to tell
    }

    fn is_greeted(&self) -> bool {
        !self.connection.is_handshaking()
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}
