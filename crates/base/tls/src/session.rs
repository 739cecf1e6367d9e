//! TLS 1.3 of `rustls` as a layer of a stream: one side of one connection.

use crate::alerts;
use bytes::{Buf, BytesMut};
use plinth_identity::{Side, Verdict};
use plinth_runtime::net::Layer;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use std::io;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

/// The most plaintext in a record, and what a record adds to it.
const RECORD_BYTES: usize = 16 << 10;
const RECORD_ADDS: usize = 5 + 1 + 16;
/// Room for messages of the handshake that go before.
const MESSAGES_BYTES: usize = 128;

/// Both sides of `rustls` have the same functions, but no trait for them.
pub(crate) trait Records {
    type Data;
    const SIDE: Side;
    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn is_handshaking(&self) -> bool;
}

impl Records for UnbufferedClientConnection {
    type Data = ClientConnectionData;
    const SIDE: Side = Side::Opener;
    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(wire)
    }
    fn is_handshaking(&self) -> bool {
        self.deref().is_handshaking()
    }
}

impl Records for UnbufferedServerConnection {
    type Data = ServerConnectionData;
    const SIDE: Side = Side::Acceptor;
    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(wire)
    }
    fn is_handshaking(&self) -> bool {
        self.deref().is_handshaking()
    }
}

/// What the certificates of a handshake have shown.
pub(crate) type Findings = Arc<crate::verifier::Findings>;

pub(crate) struct Session<C> {
    connection: C,
    findings: Findings,
    verdict: Rc<Verdict>,
    /// Our certificate, as lines for the user name it.
    own: Rc<str>,
    has_ended: bool,
}

impl<C: Records> Session<C> {
    pub fn new(connection: C, findings: Findings, verdict: Rc<Verdict>, own: Rc<str>) -> Self {
        Session {
            connection,
            findings,
            verdict,
            own,
            has_ended: false,
        }
    }

    fn fail(&self, error: &rustls::Error) -> io::Error {
        let line = match self.findings.refusal() {
            Some(line) => line,
            None => alerts::line(C::SIDE, error, &self.own),
        };
        self.verdict.refuse(line);
        io::ErrorKind::InvalidData.into()
    }

    /// Goes on until `rustls` has done what it can with `wire`. Returns whether data may be sent.
    fn advance(
        &mut self,
        wire: &mut BytesMut,
        plain: &mut BytesMut,
        answer: &mut BytesMut,
    ) -> Result<(), rustls::Error> {
        loop {
            let UnbufferedStatus { mut discard, state } = self.connection.process(wire);
            let mut is_done = false;
            match state? {
                ConnectionState::EncodeTlsData(mut message) => {
                    append(answer, MESSAGES_BYTES, |room| match message.encode(room) {
                        Ok(bytes) => Ok(bytes),
                        Err(EncodeError::InsufficientSize(size)) => Err(Some(size.required_size)),
                        Err(EncodeError::AlreadyEncoded) => Err(None),
                    })?;
                }
                ConnectionState::TransmitTlsData(message) => message.done(),
                ConnectionState::ReadTraffic(mut records) => {
                    while let Some(record) = records.next_record() {
                        let record = record?;
                        discard += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                }
                ConnectionState::PeerClosed => self.has_ended = true,
                ConnectionState::WriteTraffic(_)
                | ConnectionState::BlockedHandshake
                | ConnectionState::Closed => is_done = true,
                // Early data is not offered.
                _ => return Err(rustls::Error::General("an unknown state".into())),
            }
            wire.advance(discard);
            if is_done {
                return Ok(());
            }
        }
    }

    /// What the other side is told after an error.
    fn last_words(&mut self, answer: &mut BytesMut) {
        let status = self.connection.process(&mut []);
        if let Ok(ConnectionState::EncodeTlsData(mut message)) = status.state {
            let _ = append(answer, MESSAGES_BYTES, |room| {
                message.encode(room).map_err(|error| match error {
                    EncodeError::InsufficientSize(size) => Some(size.required_size),
                    EncodeError::AlreadyEncoded => None,
                })
            });
        }
    }

    fn write(
        &mut self,
        wire: &mut BytesMut,
        mut put: impl FnMut(
            &mut rustls::unbuffered::WriteTraffic<'_, C::Data>,
            &mut [u8],
        ) -> Result<usize, EncryptError>,
        room: usize,
    ) -> Result<(), rustls::Error> {
        loop {
            match self.connection.process(&mut []).state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    return append(wire, room, |room| match put(&mut traffic, room) {
                        Ok(bytes) => Ok(bytes),
                        Err(EncryptError::InsufficientSize(size)) => Err(Some(size.required_size)),
                        Err(EncryptError::EncryptExhausted) => Err(None),
                    });
                }
                ConnectionState::EncodeTlsData(mut message) => {
                    append(wire, MESSAGES_BYTES, |room| match message.encode(room) {
                        Ok(bytes) => Ok(bytes),
                        Err(EncodeError::InsufficientSize(size)) => Err(Some(size.required_size)),
                        Err(EncodeError::AlreadyEncoded) => Err(None),
                    })?;
                }
                ConnectionState::TransmitTlsData(message) => message.done(),
                _ => return Err(rustls::Error::HandshakeNotComplete),
            }
        }
    }
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

impl<C: Records> Layer for Session<C> {
    fn receive(
        &mut self,
        wire: &mut BytesMut,
        plain: &mut BytesMut,
        answer: &mut BytesMut,
    ) -> io::Result<()> {
        let advanced = self.advance(wire, plain, answer);
        if let Err(error) = advanced {
            self.last_words(answer);
            return Err(self.fail(&error));
        }
        if self.is_greeted() && self.verdict.peer().is_none() {
            match self.findings.peer() {
                Ok(peer) => self.verdict.admit(peer),
                Err(line) => {
                    self.verdict.refuse(line);
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, plain: &[u8], wire: &mut BytesMut) -> io::Result<()> {
        let records = plain.len() / RECORD_BYTES + 1;
        let room = plain.len() + records * RECORD_ADDS + MESSAGES_BYTES;
        let sent = self.write(wire, |traffic, room| traffic.encrypt(plain, room), room);
        sent.map_err(|error| self.fail(&error))
    }

    fn end(&mut self, wire: &mut BytesMut) {
        let close = self.write(
            wire,
            |traffic, room| traffic.queue_close_notify(room),
            MESSAGES_BYTES,
        );
        let _ = close; // a connection that has failed has no end to tell
    }

    fn is_greeted(&self) -> bool {
        !self.connection.is_handshaking()
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}
