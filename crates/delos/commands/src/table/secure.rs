//! TLS below gRPC. The bytes go between a connection of the runtime, which is protected, and a pipe for gRPC.

use bytes::{Bytes, BytesMut};
use hyper_util::rt::TokioIo;
use plinth_coordination::certificates::missing;
use plinth_identity::Side;
use plinth_rpc::Audit;
use plinth_runtime::net::{Reader, Writer, connect, layered, listen};
use plinth_runtime::serve::{Connection, accept};
use plinth_runtime::{Duration, race, spawn, timeout};
use plinth_terminal::Outcome;
use plinth_terminal::tls::{Listen, TlsArguments};
use plinth_tls::{Certificates, ClientAuth, Guests, Settings, Wanted};
use std::future::Future;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::sync::{mpsc, oneshot};
use tonic::codegen::http::Uri;
use tonic::codegen::{Service, tokio_stream};

/// What gRPC is called in TLS.
const PROTOCOL: &[u8] = b"h2";
/// Bytes on their way between gRPC and a connection, in each direction.
const PIPE_BYTES: usize = 64 << 10;
/// A server that has not finished the handshake by then is given up.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Connections that have greeted and that gRPC has not taken yet.
const GREETED_MAX: usize = 16;

/// The certificates of a door.
#[derive(Clone)]
pub struct Protection {
    settings: Settings,
    wanted: Wanted,
}

impl Protection {
    /// Reads the files once, so that what is wrong with them is told at the start. `at`: where it listens.
    pub async fn new(at: &Listen, auth: ClientAuth, settings: Settings) -> Outcome<Protection> {
        let of_listen = |line: String| format!("--listen {at}: {line}");
        if !settings.identities.is_empty() {
            return Err("--tls-identity and $PLINTH_TLS_IDENTITY say nothing of clients of tables, who all may do \
                        everything; leave them out, and say with --tls-verify-peers whom to let in"
                .into());
        }
        let wanted = Wanted {
            auth,
            rules: settings.policy().map_err(of_listen)?.rules,
            protocol: Some(PROTOCOL),
        };
        let read = Guests::load(settings.clone(), wanted.clone()).await;
        read.map_err(of_listen)?;
        Ok(Protection { settings, wanted })
    }
}

/// Moves bytes until one side ends.
async fn carry((mut reader, mut writer): (Reader, Writer), pipe: DuplexStream) {
    let (mut said, mut heard) = split(pipe);
    let inward = async {
        let mut buffer = BytesMut::with_capacity(PIPE_BYTES);
        while let Ok(1..) = reader.read(&mut buffer).await {
            if heard.write_all_buf(&mut buffer).await.is_err() {
                return;
            }
        }
    };
    let outward = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(PIPE_BYTES / 4);
            let Ok(1..) = said.read_buf(&mut buffer).await else {
                break;
            };
            let piece: Bytes = buffer.split().freeze();
            if writer.write_all(piece).await.is_err() {
                return;
            }
        }
        let _ = writer.shutdown().await; // nothing follows, and the other side may have gone
    };
    race(inward, outward).await;
}

type Greeted = Result<DuplexStream, std::io::Error>;

/// Accepts connections at the address, on this thread, and greets them. gRPC takes the pipes.
///
/// # Errors
/// The address cannot be listened at, or the files cannot be read any more.
pub async fn incoming(
    address: SocketAddr,
    by: Protection,
) -> Outcome<impl tokio_stream::Stream<Item = Greeted>> {
    let (guests, settings, known) = Guests::load(by.settings, by.wanted).await?;
    let listener = listen(address).await.map_err(|error| error.to_string())?;
    let followed = guests.clone();
    let following = async move { match followed.follow(&settings, known).await {} };
    spawn("certificates for clients", following).detach();
    let (pipes, greeted) = mpsc::channel(GREETED_MAX);
    let audit = Rc::new(Audit::new());
    let accepting = async move {
        let start = |connection: Connection| {
            let (guests, pipes, audit) = (guests.clone(), pipes.clone(), audit.clone());
            let serving = async move {
                let peer = connection.peer;
                match guests.enter(connection).await {
                    Ok(Some((connection, name))) => {
                        if let Some(name) = name {
                            audit.greeted(peer, format_args!("x509:{name}"));
                        }
                        let (ours, theirs) = duplex(PIPE_BYTES);
                        if pipes.send(Ok(theirs)).await.is_ok() {
                            let _slot = connection.slot;
                            carry((connection.reader, connection.writer), ours).await;
                        }
                    }
                    Ok(None) => (),
                    Err(why) => audit.connection_refused(peer, why),
                }
            };
            spawn("client of tables", serving).detach();
            ControlFlow::Continue(())
        };
        accept(listener, start).await;
    };
    spawn("door of tables", accepting).detach();
    Ok(Waiting(greeted))
}

struct Waiting(mpsc::Receiver<Greeted>);

impl tokio_stream::Stream for Waiting {
    type Item = Greeted;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Greeted>> {
        self.0.poll_recv(context)
    }
}

/// Connects for gRPC's client. Connections are made by a task of the thread that has made this.
#[derive(Clone)]
pub struct Connector(mpsc::Sender<oneshot::Sender<Greeted>>);

impl Connector {
    /// # Errors
    /// The certificates are missing or wrong: a line for the user.
    pub async fn new(address: Listen, tls: &TlsArguments) -> Outcome<Connector> {
        let loaded = tls.settings().load().await;
        let loaded = loaded.map_err(|line| format!("--connect {address}: {line}"))?;
        let (certificates, _) = loaded.ok_or_else(|| missing(&format!("--connect {address}")))?;
        let address = address.address;
        let (connector, mut asked) = mpsc::channel::<oneshot::Sender<Greeted>>(1);
        let connecting = async move {
            while let Some(reply) = asked.recv().await {
                let opened = timeout(HANDSHAKE_LIMIT, open(address, &certificates)).await;
                let late = || Err(std::io::ErrorKind::TimedOut.into());
                let _ = reply.send(opened.unwrap_or_else(late)); // it may have been given up
            }
        };
        spawn("connections to tables", connecting).detach();
        Ok(Connector(connector))
    }
}

async fn open(address: SocketAddr, certificates: &Certificates) -> Greeted {
    let (reader, writer) = connect(address).await?;
    let (layer, verdict) = certificates.begin(Side::Opener);
    let greeted = layered(reader, writer, BytesMut::new(), layer).await;
    let greeted = greeted.map_err(|error| match verdict.failure() {
        Some(why) => std::io::Error::other(why),
        None => error,
    })?;
    let (ours, theirs) = duplex(PIPE_BYTES);
    spawn("connection to tables", carry(greeted, ours)).detach();
    Ok(theirs)
}

impl Service<Uri> for Connector {
    type Response = TokioIo<DuplexStream>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let asked = self.0.clone();
        Box::pin(async move {
            let ended = || std::io::Error::from(std::io::ErrorKind::ConnectionAborted);
            let (reply, opened) = oneshot::channel();
            asked.send(reply).await.map_err(|_| ended())?;
            let pipe = opened.await.map_err(|_| ended())?;
            pipe.map(TokioIo::new)
        })
    }
}
