//! Connections that certificates protect: TLS below the frames.
//!
//! The greeting of the frames follows inside, without keys and seals: it says which process is meant, because all
//! servers may have one certificate; and its answer tells the opener that its own certificate was taken.

use crate::audit::Audit;
use crate::credentials::Credentials;
use bytes::BytesMut;
use plinth_identity::greeting::{Opener, Refusal};
use plinth_identity::{Identity, Side, Verdict};
use plinth_runtime::net::{Reader, Writer, layered};
use plinth_runtime::serve::{Inbox, Outbox};
use plinth_runtime::{Duration, Either, probe, race, timeout};
use std::net::SocketAddr;
use std::rc::Rc;

/// How a TLS connection begins: a record of the handshake. The first frame of a bare one has a length below 256, so
/// its second byte is 0.
const HANDSHAKE_RECORD: [u8; 2] = [0x16, 0x03];
/// What the opener is told of a connection that was cut.
const CUT: &str = "the other side has ended the connection in the TLS handshake; see whether it is started with \
                   --tls-certificate-file, and what its trace says";
/// The acceptor's record of the same.
const CUT_BY_OPENER: &str = "the other side has ended the connection in the TLS handshake";
/// Room for the first bytes of a stream.
const FIRST_READ_BYTES: usize = (4 << 10) + 256;

/// A connection that was accepted, and what the other side is to us by its certificate.
pub struct Entered {
    pub inbox: Inbox,
    pub writer: Writer,
    pub certified: Option<Identity>,
}

impl Entered {
    fn bare(reader: Reader, writer: Writer) -> Entered {
        Entered {
            inbox: Inbox::new(reader),
            writer,
            certified: None,
        }
    }
}

/// A connection that was opened.
pub struct Opened {
    pub reader: Reader,
    pub writer: Writer,
    /// Begins the greeting of the frames. `None`: there is nothing to prove.
    pub opener: Option<Opener>,
    /// Of the certificates, if there are some. It tells later why the other side has ended the connection.
    pub verdict: Option<Rc<Verdict>>,
}

/// Why the greeting of a connection by certificates has failed.
pub enum Failure {
    /// One side has judged the other.
    Refused(Refusal),
    /// The connection has ended without a word: the other side does not speak TLS, or it is being stopped.
    Cut,
    /// The other side has not answered within this limit.
    Slow(Duration),
}

impl Failure {
    /// What `verdict` says of a connection that has ended before the greeting was answered.
    pub fn of(verdict: &Verdict) -> Failure {
        match verdict.failure() {
            Some(line) => Failure::Refused(Refusal::Certificate(line)),
            None => Failure::Cut,
        }
    }

    /// The same for who only tells it.
    pub fn why(self) -> Refusal {
        Refusal::Certificate(match self {
            Failure::Refused(refusal) => return refusal,
            Failure::Cut => CUT.into(),
            Failure::Slow(limit) => format!(
                "the other side does not answer the TLS handshake within {} ms",
                limit.as_millis()
            ),
        })
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(refusal)
    }
}

fn may_be_handshake(arrived: &[u8]) -> bool {
    let compared = arrived.len().min(HANDSHAKE_RECORD.len());
    arrived[..compared] == HANDSHAKE_RECORD[..compared]
}

/// Lets the other side choose between certificates and none. `None` if the connection has ended, or if `outbox` was
/// closed meanwhile.
pub async fn enter(
    (mut reader, writer): (Reader, Writer),
    peer: SocketAddr,
    (credentials, audit): (&Credentials, &Audit),
    outbox: &Outbox,
    limit: Duration,
) -> Option<Entered> {
    let Some(begin) = credentials.accepts() else {
        return Some(Entered::bare(reader, writer));
    };
    let entering = async {
        let mut arrived = BytesMut::with_capacity(FIRST_READ_BYTES);
        while arrived.len() < HANDSHAKE_RECORD.len() && may_be_handshake(&arrived) {
            if reader.read(&mut arrived).await.ok()? == 0 {
                return None;
            }
        }
        if !may_be_handshake(&arrived) {
            let mut bare = Entered::bare(reader, writer);
            bare.inbox.buffer.extend_from_slice(&arrived);
            return Some(bare);
        }
        let (layer, verdict) = begin(Side::Acceptor);
        match (
            layered(reader, writer, arrived, layer).await,
            verdict.peer(),
        ) {
            (Ok((reader, writer)), certified @ Some(_)) => Some(Entered {
                certified,
                ..Entered::bare(reader, writer)
            }),
            _ => {
                probe!("rpc_certificate_refused");
                let why = verdict.failure();
                audit.connection_refused(peer, why.as_deref().unwrap_or(CUT_BY_OPENER));
                None
            }
        }
    };
    // Boxed: a connection without certificates has no need of this room.
    let entering = timeout(limit, Box::pin(entering));
    let Either::Left(entered) = race(entering, outbox.until_closed()).await else {
        return None; // it has made room for others
    };
    if entered.is_none() {
        probe!("rpc_handshake_is_too_slow");
        let why = format_args!(
            "the TLS handshake is not over after {} ms",
            limit.as_millis()
        );
        audit.connection_refused(peer, why);
    }
    entered.flatten()
}

/// Protects a connection that was opened to `address`, if that is wanted.
///
/// # Errors
/// The handshake by certificates has failed, or this process has none.
pub async fn open(
    (reader, writer): (Reader, Writer),
    address: SocketAddr,
    credentials: &Credentials,
    limit: Duration,
) -> Result<Opened, Failure> {
    let Some((layer, verdict)) = credentials.open()? else {
        return Ok(Opened {
            reader,
            writer,
            opener: credentials.opener(address),
            verdict: None,
        });
    };
    let greeting = Box::pin(layered(reader, writer, BytesMut::new(), layer));
    match timeout(limit, greeting).await {
        Some(Ok((reader, writer))) => Ok(Opened {
            reader,
            writer,
            opener: Some(credentials.opener_by_certificate(address)),
            verdict: Some(verdict),
        }),
        Some(Err(_)) => Err(Failure::of(&verdict)),
        None => Err(Failure::Slow(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_frame_of_a_greeting_is_taken_for_a_handshake() {
        use plinth_identity::greeting::HELLO_BYTES_MAX;
        const { assert!(crate::frame::HEADER_BYTES + 8 + HELLO_BYTES_MAX < 256) };
        let hello = crate::hello_of_nobody();
        assert!(!may_be_handshake(&hello) && !may_be_handshake(&hello[..2]));
        assert!(may_be_handshake(&[]) && may_be_handshake(&[0x16]));
        assert!(may_be_handshake(&[0x16, 3]) && !may_be_handshake(&[0x16, 0]));
    }
}
