//! What tests with thousands of strangers need: sockets, and a look at the server from outside.

use plinth_runtime::{Duration, now, sleep};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{ErrorKind, Read};
use std::net::TcpStream;

/// Raises the limit of open files: this process needs a socket per stranger, and so do the servers, which inherit
/// the limit.
pub fn allow_open_files(needed: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    let have = limit.maximum.unwrap_or(u64::MAX);
    if have < needed {
        limit.maximum = Some(needed); // only the superuser may do this
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        panic!(
            "this test needs {needed} open files, and the hard limit is {have}: \
            raise it with `ulimit -Hn {needed}' ({error})"
        );
    }
}

/// True if the other side has closed the connection.
pub fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    match stream.read(&mut [0; 64]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

pub fn open_files(pid: u32) -> usize {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd"));
    files.expect("the server lives").count()
}

pub async fn wait_until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) -> Duration {
    let start = now();
    while !is_so() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        sleep(Duration::from_millis(50)).await;
    }
    start.elapsed()
}
