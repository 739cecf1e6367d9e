//! Connections to the pages. Pages share the process's files with the database, so there is a most of them; and who
//! comes last is let in, because a load balancer that asks for `/health/ready` must not wait behind those who hold
//! connections open.

use axum::serve::Listener;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A hundred people look, and some machines ask.
const CONNECTIONS_MAX: usize = 200;

pub struct Doors {
    listener: TcpListener,
    /// Those who are inside, the oldest first. Who is dropped is put out.
    inside: VecDeque<oneshot::Sender<()>>,
}

impl Doors {
    pub fn new(listener: TcpListener) -> Self {
        Doors {
            listener,
            inside: VecDeque::new(),
        }
    }
}

impl Listener for Doors {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        self.inside.retain(|guest| !guest.is_closed());
        while self.inside.len() >= CONNECTIONS_MAX {
            self.inside.pop_front();
        }
        let (inside, out) = oneshot::channel();
        self.inside.push_back(inside);
        (
            Guest {
                stream,
                out: Some(out),
            },
            address,
        )
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when somebody else needs its place.
pub struct Guest {
    stream: TcpStream,
    /// `None`: it is put out.
    out: Option<oneshot::Receiver<()>>,
}

impl Guest {
    fn check(&mut self, context: &mut Context) -> io::Result<()> {
        let out = self.out.as_mut().map(|out| Pin::new(out).poll(context));
        if out == Some(Poll::Pending) {
            return Ok(());
        }
        self.out = None;
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        buffer: &mut ReadBuf,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// Who comes, and what the doors made of it.
    async fn enter(doors: &mut Doors) -> (TcpStream, Guest) {
        let at = doors.local_addr().expect("it listens");
        let outside = TcpStream::connect(at).await.expect("it is let in");
        (outside, doors.accept().await.0)
    }

    #[test]
    fn who_comes_last_is_let_in_and_the_oldest_makes_room() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
            let mut doors = Doors::new(listener);
            let mut inside = Vec::new();
            for _ in 0..CONNECTIONS_MAX {
                inside.push(enter(&mut doors).await);
            }
            let (_, left) = inside.remove(7);
            drop(left); // it leaves by itself, and nobody is put out for the next one
            inside.push(enter(&mut doors).await);
            let first = inside[0].1.out.as_mut().expect("inside").try_recv();
            assert_eq!(first, Err(oneshot::error::TryRecvError::Empty));
            inside.push(enter(&mut doors).await);
            let mut byte = [0];
            for _ in 0..2 {
                let read = inside[0].1.read(&mut byte).await;
                let error = read.expect_err("it is put out");
                assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
            }
            assert_eq!(doors.inside.len(), CONNECTIONS_MAX);
            let alive = inside.iter_mut().skip(1);
            for (_, guest) in alive {
                let out = guest.out.as_mut().expect("inside").try_recv();
                assert_eq!(out, Err(oneshot::error::TryRecvError::Empty));
            }
        });
    }
}
