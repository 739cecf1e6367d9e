//! Requests that few clients send, and what each is answered: byte by byte what ZooKeeper 3.9.3 says.

use crate::wire::{
    Acl, Answer, AnswerHeader, Code, ConnectRequest, CreateKind, Incoming, MultiResult, Request,
    Text, XidWidth, decode_answer, decode_connect_answer, decode_incoming, encode_connect_request,
    encode_request, event, take_frame, xid,
};
use bytes::Bytes;
use plinth_core::output::Output;
use plinth_runtime::net::{self, Writer};
use plinth_runtime::serve::Inbox;
use plinth_runtime::{Duration, timeout};
use std::net::SocketAddr;

const FRAME_BYTES_MAX: usize = 1 << 20;
/// An answer that has not come by then will not be waited for.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const MARSHALLING: i32 = Code::MARSHALLING_ERROR.0;

/// One request and its answer: an error, or a body.
type Exchange = (i32, Request, i32);

struct Raw {
    inbox: Inbox,
    writer: Writer,
    session: (i64, Bytes),
    timeout_ms: i32,
}

impl Raw {
    async fn connect(
        server: SocketAddr,
        timeout_ms: i32,
        session: Option<(i64, Bytes)>,
    ) -> Option<Raw> {
        let (reader, writer) = net::connect(server).await.ok()?;
        let (session_id, password) = session.unwrap_or((0, Bytes::from_static(&[0; 16])));
        let request = ConnectRequest {
            protocol_version: 0,
            is_packed: false,
            last_zxid_seen: 0,
            timeout_ms,
            session_id,
            password,
            read_only: Some(false),
        };
        let mut raw = Raw {
            inbox: Inbox::new(reader),
            writer,
            session: (0, Bytes::new()),
            timeout_ms: 0,
        };
        raw.write(|out| encode_connect_request(out, &request))
            .await?;
        let answer = decode_connect_answer(raw.read().await?).ok()?;
        raw.session = (answer.session_id, answer.password);
        raw.timeout_ms = answer.timeout_ms;
        (raw.timeout_ms > 0).then_some(raw)
    }

    async fn write(&mut self, encode: impl FnOnce(&mut Output)) -> Option<()> {
        let mut out = Output::copying();
        encode(&mut out);
        self.writer.write_all(out.into_bytes()).await.ok()
    }

    /// The next frame; `None` if there is none.
    async fn read(&mut self) -> Option<Bytes> {
        let reading = async {
            loop {
                match take_frame(&mut self.inbox.buffer, FRAME_BYTES_MAX).ok()? {
                    Some(frame) => return Some(frame),
                    None => self.inbox.read().await?,
                };
            }
        };
        timeout(ANSWER_LIMIT, reading).await?
    }

    async fn next(&mut self) -> Option<Incoming> {
        decode_incoming(self.read().await?, XidWidth::Four).ok()
    }

    async fn next_answer(&mut self) -> Option<(AnswerHeader, Bytes)> {
        match self.next().await? {
            Incoming::Answer(header, body) => Some((header, body)),
            Incoming::Event(_) => None,
        }
    }
}

/// Asks a gateway, below the node `home`, which no one else uses. `None` if faults kept it from answering.
pub async fn ask(server: SocketAddr, home: &str) -> Option<Result<(), String>> {
    let mut raw = Raw::connect(server, 4000, None).await?;
    let timeouts = (raw.timeout_ms, 4000);
    let told = match talk(&mut raw, home).await? {
        Ok(()) if timeouts.0 != timeouts.1 => Err(format!("a wrong time-out: {timeouts:?}")),
        told => told,
    };
    if told.is_err() {
        return Some(told);
    }
    // A client that comes back may ask for another time-out.
    let mut again = Raw::connect(server, 8000, Some(raw.session)).await?;
    if again.timeout_ms != 8000 {
        let timeout_ms = again.timeout_ms;
        return Some(Err(format!("asked for 8000 ms, and got {timeout_ms}")));
    }
    fail_to_log_in(&mut again).await
}

/// A login that fails is answered, with the number that the client gave it, and then the connection ends.
async fn fail_to_log_in(raw: &mut Raw) -> Option<Result<(), String>> {
    let request = login("kerberos");
    raw.write(|out| encode_request(out, 77, &request)).await?;
    let (header, _) = raw.next_answer().await?;
    if (header.xid, header.error) != (77.into(), Code::AUTH_FAILED.0) {
        return Some(Err(format!("a wrong login is answered {header:?}")));
    }
    match raw.next().await {
        None => Some(Ok(())),
        more => Some(Err(format!("after a wrong login comes {more:?}"))),
    }
}

fn login(scheme: &'static str) -> Request {
    Request::Auth {
        kind: 0,
        scheme: Text::from_static(scheme),
        auth: Some(Bytes::from_static(b"one:1")),
    }
}

fn create(path: Text, acl: Vec<Acl>) -> Request {
    Request::Create {
        kind: CreateKind::Plain,
        path,
        data: None,
        acl,
        flags: 0,
        ttl: -1,
    }
}

fn exchanges(home: &str) -> Vec<Exchange> {
    let (home, secret): (Text, Text) = (home.into(), format!("{home}/secret").into());
    let nobody = vec![Acl {
        perms: 31,
        scheme: Text::from_static("digest"),
        id: Text::from_static("nobody:x"),
    }];
    let (watch, breaks_off) = (false, true);
    let delete = |path: &Text| Request::DeleteContainer { path: path.clone() };
    let read = |path: Text| Request::GetData { path, watch };
    let set_watches = Request::SetWatches {
        relative_zxid: 0,
        data: vec![format!("{home}/none").into()],
        exist: Vec::new(),
        child: Vec::new(),
        persistent: Vec::new(),
        recursive: Vec::new(),
        breaks_off,
    };
    let operations = vec![read(home.clone())];
    let exists = Request::Exists {
        path: secret.clone(),
        watch,
    };
    vec![
        (1, create(home.clone(), Acl::open()), 0),
        (xid::PING, Request::Ping, 0),
        (2, create(secret.clone(), nobody), 0),
        (3, exists, Code::NO_AUTH.0),
        (4, delete(&home), Code::NOT_EMPTY.0),
        (5, delete(&secret), 0),
        (6, delete(&secret), Code::NO_NODE.0),
        (7, Request::NoPath(Box::new(delete(&secret))), MARSHALLING),
        (8, read(Text::default()), 0),
        (9, multi_read(operations), MARSHALLING),
        (10, set_watches, MARSHALLING),
        (11, delete(&home), 0),
    ]
}

fn multi_read(operations: Vec<Request>) -> Request {
    Request::MultiRead {
        operations,
        breaks_off: true,
    }
}

async fn talk(raw: &mut Raw, home: &str) -> Option<Result<(), String>> {
    let request = login("digest");
    raw.write(|out| encode_request(out, 99, &request)).await?;
    let (header, _) = raw.next_answer().await?;
    if (header.xid, header.zxid, header.error) != (99.into(), 0, 0) {
        return Some(Err(format!("a login is answered {header:?}")));
    }
    let exchanges = exchanges(home);
    raw.write(|out| {
        for (xid, request, _) in &exchanges {
            encode_request(out, *xid, request);
        }
    })
    .await?;
    for (xid, request, error) in &exchanges {
        if let Err(wrong) = expect(raw, *xid, request, *error, home).await? {
            return Some(Err(format!("{request:?} is answered {wrong}")));
        }
    }
    Some(Ok(()))
}

async fn expect(
    raw: &mut Raw,
    xid: i32,
    request: &Request,
    error: i32,
    home: &str,
) -> Option<Result<(), String>> {
    let mut incoming = raw.next().await?;
    if let Request::SetWatches { .. } = request {
        // What stands before the null is done.
        match incoming {
            Incoming::Event(told)
                if told.kind == event::DELETED
                    && told.zxid == -1
                    && told.path == *format!("{home}/none") => {}
            other => return Some(Err(format!("{other:?}"))),
        }
        incoming = raw.next().await?;
    }
    let Incoming::Answer(header, body) = incoming else {
        return Some(Err(format!("{incoming:?}")));
    };
    if [Code::SESSION_EXPIRED.0, Code::CONNECTION_LOSS.0].contains(&header.error) {
        return None; // a fault
    }
    if (header.xid, header.error) != (xid.into(), error) {
        return Some(Err(format!("{header:?}")));
    }
    match request {
        // What was read before the null is told.
        Request::MultiRead { .. } => match decode_answer(request.opcode(), body) {
            Ok(Answer::MultiRead(results)) if matches!(results[..], [MultiResult::Data(..)]) => {}
            other => return Some(Err(format!("{other:?}"))),
        },
        _ if error != 0 && !body.is_empty() => return Some(Err(format!("{body:?}"))),
        _ => {}
    }
    Some(Ok(()))
}
