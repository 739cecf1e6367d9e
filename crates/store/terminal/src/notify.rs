//! Tells systemd, or whoever else has started this process so, how it is (`sd_notify`): a datagram to the socket that
//! `NOTIFY_SOCKET` names. Without that variable nothing is sent.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

const SOCKET: &str = "NOTIFY_SOCKET";

/// This process listens. `line` is its state, which `systemctl status` shows. Later lines take its place.
pub fn ready(line: &str) {
    if let Some(socket) = std::env::var_os(SOCKET) {
        // Nobody needs it who does not hear it.
        let _ = send(&socket, line);
    }
}

fn send(socket: &OsStr, line: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let sender = UnixDatagram::unbound()?;
    // The event loop waits for nobody.
    sender.set_nonblocking(true)?;
    let line = line.replace('\n', " ");
    sender.send_to_addr(format!("READY=1\nSTATUS={line}").as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(by: &UnixDatagram) -> String {
        let mut bytes = [0; 1000];
        let length = by.recv(&mut bytes).expect("a datagram");
        String::from_utf8(bytes[..length].to_vec()).expect("a text")
    }

    #[test]
    fn the_supervisor_hears_of_a_state_in_one_datagram() {
        let name = format!("plinth-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let at_path = UnixDatagram::bind(&path).expect("a socket");
        send(path.as_os_str(), "listens;\nat a").expect("it is sent");
        assert_eq!(heard(&at_path), "READY=1\nSTATUS=listens; at a");
        std::fs::remove_file(&path).expect("it is there");

        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let unnamed = UnixDatagram::bind_addr(&address).expect("a socket");
        send(OsStr::new(&format!("@{name}")), "joined").expect("it is sent");
        assert_eq!(heard(&unnamed), "READY=1\nSTATUS=joined");

        let longer_than_any_path = "/".repeat(200);
        let refused = send(OsStr::new(&longer_than_any_path), "joined");
        assert!(refused.is_err());
    }
}
