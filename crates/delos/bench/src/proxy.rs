//! A place far away: whatever is sent to it arrives later, and so do its answers.

use bytes::{Bytes, BytesMut};
use plinth_runtime::net::{Listener, Reader, Writer, connect, listen};
use plinth_runtime::sync::{QueueReceiver, QueueSender, queue};
use plinth_runtime::{Duration, Instant, Task, TaskGroup, now, race, sleep_until, spawn};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

/// The way to an address, until it is dropped.
pub struct Proxy {
    pub address: SocketAddr,
    _serving: Task<()>,
}

impl Proxy {
    /// Each byte takes `delay` to get to `target`, and from there.
    ///
    /// # Errors
    /// One line.
    pub async fn start(target: SocketAddr, delay: Duration) -> Result<Proxy, String> {
        let failed = |error: io::Error| format!("loopback: {error}");
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).await;
        let listener = listener.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let serving = spawn("proxy", accept(listener, target, delay));
        Ok(Proxy {
            address,
            _serving: serving,
        })
    }
}

async fn accept(mut listener: Listener, target: SocketAddr, delay: Duration) {
    let lines = TaskGroup::new();
    // When no connection can be taken, those who measure find out.
    while let Ok((from_reader, from_writer, _)) = listener.accept().await {
        lines.spawn("proxy line", async move {
            if let Ok((to_reader, to_writer)) = connect(target).await {
                let there = carry(from_reader, to_writer, delay);
                let back = carry(to_reader, from_writer, delay);
                race(there, back).await;
            }
        });
    }
}

async fn carry(reader: Reader, writer: Writer, delay: Duration) {
    let (sender, receiver) = queue();
    race(take(reader, sender, delay), bring(receiver, writer)).await;
}

async fn take(mut reader: Reader, to: QueueSender<(Instant, Bytes)>, delay: Duration) {
    let mut buffer = BytesMut::new();
    while let Ok(1..) = reader.read(&mut buffer).await {
        if to.send((now() + delay, buffer.split().freeze())).is_err() {
            return;
        }
    }
    sleep_until(now() + delay).await; // the end of the line is no faster than what was said
}

async fn bring(mut from: QueueReceiver<(Instant, Bytes)>, mut writer: Writer) {
    while let Some((due, data)) = from.recv().await {
        sleep_until(due).await;
        if writer.write_all(data).await.is_err() {
            return;
        }
    }
}
