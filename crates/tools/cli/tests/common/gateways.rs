//! Gateways for ZooKeeper's clients, and a client of them.

use super::{BINARY, Cluster, Server};
use plinth_keeper::client::{Client, Failure};
use plinth_keeper::wire::{Answer, Code, Request};
use plinth_runtime::{Duration, sleep, timeout};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

pub const SESSION_TIMEOUT_MS: i32 = 20_000;
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn start_gateway(cluster: &Cluster, address: SocketAddr, more: &[&str]) -> Server {
    let mut command = Command::new(BINARY);
    command.args(["keeper", "server", "--listen", &address.to_string()]);
    command.args(more).arg("-C");
    let command = command.arg(cluster.cluster_file()).stdin(Stdio::null());
    Server(command.spawn().expect("a gateway starts"))
}

/// Connects within `PATIENCE`.
pub async fn connect(address: SocketAddr, session: Option<(i64, bytes::Bytes, i64)>) -> Client {
    let connecting = async {
        loop {
            match Client::connect(address, SESSION_TIMEOUT_MS, session.clone()).await {
                Ok(client) => return client,
                Err(Failure::Refused(code)) => panic!("{address} refuses: {code}"),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    };
    let connected = timeout(PATIENCE, connecting).await;
    connected.expect("a gateway serves")
}

pub async fn ask(client: &Client, request: Request) -> Result<Answer, Code> {
    match timeout(PATIENCE, client.submit(request)).await {
        Some(Ok((_, answer))) => Ok(answer),
        Some(Err(Failure::Refused(code))) => Err(code),
        other => panic!("no answer: {other:?}"),
    }
}

/// The body of a page.
pub fn page(address: SocketAddr, path: &str) -> String {
    let mut connection = TcpStream::connect(address).expect("the page is served");
    let request = format!("GET {path} HTTP/1.1\r\nHost: keeper\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    connection.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_string()
}
