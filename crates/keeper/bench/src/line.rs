//! One session on one connection, with as little between the socket and the workload as can be.
//!
//! [`plinth_keeper::client::Client`] has a task of its own and a channel for each answer. That costs more than a
//! server spends on a read, and the load generator shares the machine with the servers. Here, the task that decides
//! what to ask also reads and writes.
//!
//! Promises: an answer that is out of order, or whose zxid is below that of an earlier one, is an error.

use bytes::Bytes;
use plinth_core::output::Output;
use plinth_core::texts;
use plinth_keeper::wire::{
    AnswerHeader, ConnectRequest, Incoming, Request, XidWidth, decode_connect_answer,
    decode_incoming, encode_connect_request, encode_request, take_frame,
};
use plinth_runtime::net::{self, Writer};
use plinth_runtime::serve::Inbox;
use plinth_runtime::{Duration, timeout};
use std::net::SocketAddr;

/// A longer frame is no answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// New sessions send a password of zeros, as ZooKeeper's clients do.
const NO_PASSWORD: Bytes = Bytes::from_static(&[0; 16]);

texts! {
    /// Why a session cannot go on.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Failure {
        /// The connection is gone or could not be had.
        Lost(why: String) = "the connection is lost: {why}";
        /// The server has ended the session.
        Expired = "the session has expired";
        /// An answer is wrong.
        Wrong(what: String) = "{what}";
    }
}

fn wrong(what: &str) -> Failure {
    Failure::Wrong(what.into())
}

/// What another connection needs to go on with a session.
#[derive(Clone, Debug)]
pub struct Session {
    pub id: i64,
    password: Bytes,
    last_zxid: i64,
}

pub struct Line {
    inbox: Inbox,
    writer: Writer,
    out: Output,
    /// Numbers of the last request and of the last answer.
    asked: i32,
    answered: i32,
    session: Session,
}

impl Line {
    /// Connects, with a new session or with `session`, within `limit`.
    pub async fn open(
        address: SocketAddr,
        timeout_ms: i32,
        session: Option<&Session>,
        limit: Duration,
    ) -> Result<Line, Failure> {
        let opening = Self::greet(address, timeout_ms, session);
        let late = || Failure::Lost("it is not open in time".into());
        timeout(limit, opening).await.unwrap_or_else(|| Err(late()))
    }

    async fn greet(
        address: SocketAddr,
        timeout_ms: i32,
        session: Option<&Session>,
    ) -> Result<Line, Failure> {
        let lost = |error: std::io::Error| Failure::Lost(error.to_string());
        let (reader, writer) = net::connect(address).await.map_err(lost)?;
        let known = session.cloned().unwrap_or(Session {
            id: 0,
            password: NO_PASSWORD,
            last_zxid: 0,
        });
        let mut line = Line {
            inbox: Inbox::new(reader),
            writer,
            out: Output::copying(),
            asked: 0,
            answered: 0,
            session: known,
        };
        let request = ConnectRequest {
            protocol_version: 0,
            is_packed: false,
            last_zxid_seen: line.session.last_zxid,
            timeout_ms,
            session_id: line.session.id,
            password: line.session.password.clone(),
            read_only: Some(false),
        };
        encode_connect_request(&mut line.out, &request);
        line.flush().await?;
        let frame = loop {
            if let Some(frame) = line.frame()? {
                break frame;
            }
            line.read().await?;
        };
        let answer =
            decode_connect_answer(frame).map_err(|_| wrong("a greeting that cannot be read"))?;
        if answer.timeout_ms <= 0 {
            return Err(Failure::Expired);
        }
        line.session.id = answer.session_id;
        line.session.password = Bytes::copy_from_slice(&answer.password);
        Ok(line)
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Number of requests without an answer.
    pub fn under_way(&self) -> usize {
        (self.asked - self.answered) as usize
    }

    /// Adds a request to the next write.
    pub fn put(&mut self, request: &Request) {
        self.asked += 1;
        encode_request(&mut self.out, self.asked, request);
    }

    /// Writes what was added.
    pub async fn flush(&mut self) -> Result<(), Failure> {
        if self.out.is_empty() {
            return Ok(());
        }
        let bytes = self.out.buffer().split().freeze();
        let written = self.writer.write_all(bytes).await;
        written.map_err(|error| Failure::Lost(error.to_string()))
    }

    fn frame(&mut self) -> Result<Option<Bytes>, Failure> {
        take_frame(&mut self.inbox.buffer, ANSWER_BYTES_MAX)
            .map_err(|_| wrong("a frame of no possible length"))
    }

    /// The next answer that has arrived, if any: its header, and the body for
    /// [`decode_answer`](plinth_keeper::wire::decode_answer).
    pub fn answer(&mut self) -> Result<Option<(AnswerHeader, Bytes)>, Failure> {
        let Some(frame) = self.frame()? else {
            return Ok(None);
        };
        self.inbox.note(frame.len());
        let incoming = decode_incoming(frame, XidWidth::Four)
            .map_err(|_| wrong("a frame that cannot be read"))?;
        let Incoming::Answer(header, body) = incoming else {
            return Err(wrong("an event that nobody has asked for"));
        };
        if self.under_way() == 0 || header.xid != (self.answered + 1).into() {
            return Err(wrong("an answer out of order"));
        }
        self.answered += 1;
        if header.error == 0 {
            if header.zxid < self.session.last_zxid {
                let (now, before) = (header.zxid, self.session.last_zxid);
                return Err(Failure::Wrong(format!(
                    "zxid {now:#x} comes after {before:#x}"
                )));
            }
            self.session.last_zxid = header.zxid;
        }
        Ok(Some((header, body)))
    }

    /// Waits for more bytes.
    pub async fn read(&mut self) -> Result<(), Failure> {
        let ended = || Failure::Lost("the server has ended it".into());
        self.inbox.read().await.map(drop).ok_or_else(ended)
    }

    /// As [`Line::read`], for so long at most.
    pub async fn read_within(&mut self, limit: Duration) -> Result<(), Failure> {
        let late = || Failure::Lost(format!("no answer within {:.1} s", limit.as_secs_f64()));
        timeout(limit, self.read())
            .await
            .unwrap_or_else(|| Err(late()))
    }

    /// Ends the session. Waits for the confirmation, but not for long.
    pub async fn close(mut self, limit: Duration) {
        self.put(&Request::CloseSession);
        let confirmed = async {
            self.flush().await?;
            while self.under_way() > 0 {
                if self.answer()?.is_none() {
                    self.read().await?;
                }
            }
            Ok::<(), Failure>(())
        };
        let _ = timeout(limit, confirmed).await;
    }
}
