//! How a connection begins, and how its frames are taken from then on.
//!
//! ```text
//! opener with keys                                server
//!   |── hello: keys it could use, a nonce ──────────>|
//!   |<── answer: the key chosen, a nonce, a proof ───|
//!   |── its proof ──────────────────────────────────>|    from here on all frames are sealed
//!   |── greeting: who it is, and whom it means ─────>|
//!   |<── done ───────────────────────────────────────|
//! ```
//!
//! An opener without keys begins with the greeting. The [greeting of keys](plinth_identity::greeting) is that of all
//! connections. With certificates all of this is said inside TLS: the hello offers no keys, and nothing has a seal.
//! Who is no server of the cluster is refused: whoever is heard here may change all memory.

use crate::wire::{
    Answer, BYTES_MAX, First, GREETING_BYTES_MAX, Greeting, HEAD_BYTES, Malformed, Said, put_frame,
    take_frame,
};
use bytes::{Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::output::Output;
use plinth_identity::greeting::{Answered, Next, Opener, Outcome, Refusal, Session};
use plinth_identity::seal::{Checker, Sealer};
use plinth_identity::{Audience, Identity};
use plinth_rpc::frame::Check;
use plinth_rpc::{Audit, Checks, Credentials, Sending};
use plinth_runtime::net::{Reader, Writer};
use plinth_runtime::serve::Inbox;
use plinth_runtime::{planted, probe};
use std::convert::Infallible;
use std::net::SocketAddr;

/// What proofs are for.
pub const PURPOSE: &str = "farm fabric";
/// What it is called where somebody is refused.
const NAME: &str = "fabric";

/// How frames are taken off what has arrived.
pub struct Frames {
    checks: Option<Checks>,
    bytes_max: usize,
}

impl Frames {
    /// Before both sides have greeted: short ones, without seals.
    pub fn of_greeting() -> Frames {
        Frames {
            checks: None,
            bytes_max: GREETING_BYTES_MAX,
        }
    }

    fn check_with(&mut self, checker: Checker) {
        self.checks = Some(Checks::of(checker, HEAD_BYTES + BYTES_MAX));
    }

    /// Both sides have greeted: any frame may come.
    fn open(&mut self) {
        self.bytes_max = BYTES_MAX;
    }

    /// The next frame; `None` if more bytes are needed.
    pub fn take<T: Codec>(&mut self, input: &mut BytesMut) -> Result<Option<T>, Malformed> {
        let most = self.bytes_max;
        match &mut self.checks {
            None => take_frame(Check::Sum, most, input),
            Some(checks) => checks.next(input, |input| take_frame(Check::Seal, most, input)),
        }
    }
}

/// Adds a frame. Something is refused only if the other side does not read.
pub fn push(sending: &Sending, body: &impl Codec) -> Result<(), ()> {
    let put = |check: Check, out: &mut Output| {
        put_frame(check, out, body);
        Ok::<(), Infallible>(())
    };
    sending.push(put).map_err(drop)
}

fn say(sending: &Sending, what: impl Into<Bytes>) {
    // The first on a connection: there is room.
    let _ = push(sending, &Said(what.into()));
}

// ---- the opener ----

/// The connection has ended, or says something else.
type Broken = Option<Refusal>;

async fn heard<T: Codec>(
    reader: &mut Reader,
    buffer: &mut BytesMut,
    frames: &mut Frames,
) -> Result<T, Broken> {
    loop {
        match frames.take(buffer) {
            Ok(Some(frame)) => return Ok(frame),
            Ok(None) => (),
            Err(Malformed) => return Err(Some(Refusal::Malformed)),
        }
        let read = reader.read(buffer).await;
        read.ok().filter(|bytes| *bytes > 0).ok_or(None)?;
    }
}

async fn write(writer: &mut Writer, sending: &Sending) -> Result<(), Broken> {
    for piece in sending.take() {
        writer.write_all(piece).await.map_err(|_| None)?;
    }
    Ok(())
}

/// Greets as who has connected. Returns how frames are taken from then on. `sending` is new, and nobody else writes.
/// The error is the reason, if there is one to tell.
pub async fn greet(
    (reader, writer): (&mut Reader, &mut Writer),
    sending: &Sending,
    opener: Option<Opener>,
    greeting: &Greeting,
) -> Result<Frames, Broken> {
    let (mut frames, mut buffer) = (Frames::of_greeting(), BytesMut::new());
    if let Some(opener) = opener {
        let hello = First::Hello(Bytes::copy_from_slice(opener.hello()));
        let _ = push(sending, &hello);
        write(writer, sending).await?;
        let Said(answer) = heard(reader, &mut buffer, &mut frames).await?;
        let (proof, Outcome { session, .. }) = opener.answered(&answer).map_err(Some)?;
        if let Some(proof) = proof {
            say(sending, Bytes::copy_from_slice(&proof));
            write(writer, sending).await?;
        }
        if let Some(Session { send, receive }) = session {
            sending.seal_with(Sealer::new(send));
            frames.check_with(Checker::new(receive));
        }
        let _ = push(sending, greeting);
        write(writer, sending).await?;
    } else {
        let mut out = Output::copying();
        put_frame(Check::Sum, &mut out, greeting);
        writer.write_all(out.into_bytes()).await.map_err(|_| None)?;
    }
    let first: Answer = heard(reader, &mut buffer, &mut frames).await?;
    // It says nothing more before it is asked.
    if first != Answer::Done || !buffer.is_empty() {
        return Err(Some(Refusal::Malformed));
    }
    frames.open();
    Ok(frames)
}

// ---- the server ----

/// What a server judges greetings by.
pub struct Judge {
    pub credentials: Credentials,
    pub audit: Audit,
    /// Where others reach it.
    pub own: Option<SocketAddr>,
}

/// What the other side of a connection is to us.
struct Proved {
    identity: Identity,
    /// It has a key or a certificate of it.
    by_secret: bool,
}

impl Proved {
    fn being(identity: Identity) -> Proved {
        Proved {
            identity,
            by_secret: true,
        }
    }

    fn nothing(identity: Identity) -> Proved {
        Proved {
            identity,
            by_secret: false,
        }
    }
}

/// The next frame; `None` if the stream ends, or is none of frames.
pub async fn next<T: Codec>(inbox: &mut Inbox, frames: &mut Frames) -> Option<T> {
    loop {
        match frames.take(&mut inbox.buffer) {
            Ok(Some(frame)) => return Some(frame),
            Err(Malformed) => return None,
            Ok(None) => (),
        }
        inbox.read().await?;
    }
}

impl Judge {
    /// Hears the greeting of a server of the cluster, to which nothing was answered yet. `certified`: what the other
    /// side is by its certificate. `None`: the connection is to end, when what was said has been written.
    pub async fn hear(
        &self,
        (peer, certified): (SocketAddr, Option<Identity>),
        inbox: &mut Inbox,
        sending: &Sending,
    ) -> Option<(Greeting, Frames)> {
        let mut frames = Frames::of_greeting();
        let greeting = match next(inbox, &mut frames).await? {
            // All machines may have one certificate: only the hello says which one is meant.
            First::Greeting(_) if certified.is_some() => {
                self.refuse(peer, &Refusal::Malformed)?;
                return None;
            }
            First::Greeting(greeting) => {
                self.admit(peer, Proved::nothing(self.credentials.stranger()))?;
                greeting
            }
            First::Hello(hello) => {
                let answered = self.credentials.greeted(self.own, certified, &hello);
                let proved = self.prove((peer, certified), inbox, sending, &mut frames, answered);
                let proved = proved.await?;
                self.admit(peer, proved)?;
                next(inbox, &mut frames).await?
            }
        };
        frames.open();
        Some((greeting, frames))
    }

    /// What the other side has proved to be. Frames are sealed from then on.
    async fn prove(
        &self,
        (peer, certified): (SocketAddr, Option<Identity>),
        inbox: &mut Inbox,
        sending: &Sending,
        frames: &mut Frames,
        Answered { answer, next: then }: Answered,
    ) -> Option<Proved> {
        if !answer.is_empty() {
            say(sending, answer);
        }
        let acceptor = match then {
            Next::Settled(_) => {
                let nothing = || Proved::nothing(self.credentials.stranger());
                return Some(certified.map_or_else(nothing, Proved::being));
            }
            Next::Refused(refusal) => return self.refuse(peer, &refusal),
            Next::Proof(acceptor) => acceptor,
        };
        let Said(proof) = next(inbox, frames).await?;
        let outcome = match acceptor.proved(&proof) {
            Ok(outcome) => outcome,
            Err(refusal) => return self.refuse(peer, &refusal),
        };
        let Some(Session { send, receive }) = outcome.session else {
            return Some(Proved::nothing(outcome.peer));
        };
        sending.seal_with(Sealer::new(send));
        frames.check_with(Checker::new(receive));
        Some(Proved::being(outcome.peer))
    }

    fn refuse(&self, peer: SocketAddr, refusal: &Refusal) -> Option<Proved> {
        probe!("farm_fabric_greeting_refused");
        self.audit.connection_refused(peer, refusal);
        None
    }

    fn admit(&self, peer: SocketAddr, proved: Proved) -> Option<()> {
        let Proved {
            identity,
            by_secret,
        } = proved;
        let audience = Audience::Servers;
        if audience.admits(identity)
            || planted!(
                "farm_fabric_hears_everybody",
                "whoever connects may change memory"
            )
        {
            if by_secret {
                self.audit.greeted(peer, identity);
            }
            return Some(());
        }
        probe!("farm_fabric_stranger_refused");
        self.audit.request_refused(peer, identity, NAME, audience);
        None
    }
}
