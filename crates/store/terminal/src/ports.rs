//! Ports of processes that a command starts. One that somebody else has is told by the command, which knows its flag.

mod claims;

use crate::{Outcome, pages};
use plinth_runtime::net::Chosen;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::Path;

pub use claims::Claims;

const FORM: &str = "expected IP:PORT or HOST:PORT";

/// Parses the address of a flag. A host's name stands for the address that it has now.
///
/// # Errors
/// The form, with what a port alone may have meant.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().or_else(|_| look_up(text, FORM))
}

/// The address that a host's name has now; of several the first of IPv4, else the first. `form` is what is expected.
pub(crate) fn look_up(text: &str, form: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("{form}{}", or_local(text));
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let is_part = |part: &str| {
        let is_good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        !part.is_empty() && part.bytes().all(is_good)
    };
    // A misspelt IP is not looked up.
    let is_name = host.bytes().any(|b| b.is_ascii_alphabetic());
    if !is_name || !host.trim_end_matches('.').split('.').all(is_part) {
        return Err(wrong());
    }
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| format!("the host {host} is not found: {error}"))?;
    let found: Vec<SocketAddr> = found.collect();
    let first = found.iter().find(|address| address.is_ipv4());
    let first = first.or(found.first()).copied();
    first.ok_or_else(|| format!("the host {host} has no address"))
}

/// What is added to the form of an address where somebody gives a port alone.
fn or_local(text: &str) -> String {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    port.map_or(String::new(), |port| format!(", as in 127.0.0.1:{port}"))
}

/// Refuses the first address at which it cannot be listened, because somebody has it, or because it was wanted before.
/// Nobody has them when this returns.
///
/// # Errors
/// A line for the user.
pub fn check_free(wanted: impl IntoIterator<Item = (SocketAddr, Chosen)>) -> Outcome {
    check(wanted, |address, chosen| {
        let found = TcpListener::bind(address);
        found
            .map(drop)
            .map_err(|error| chosen.refused(address, &error))
    })
}

/// Refuses an address that somebody has, for a server whose directory has no `mark` yet: one that cannot serve shall
/// not make the directory a server's. Of one that was used, its lock says more.
///
/// # Errors
/// A line for the user.
pub fn check_new(
    directory: &Path,
    mark: &str,
    wanted: impl IntoIterator<Item = (SocketAddr, Chosen)>,
) -> Outcome {
    if directory.join(mark).exists() {
        return Ok(());
    }
    check(wanted, |address, chosen| {
        match TcpListener::bind(address) {
            Err(error) if is_had(&error) => Err(chosen.refused(address, &error)),
            _ => Ok(()), // what else is wrong is said when the server listens
        }
    })
}

/// Whether somebody else has the address, or nobody on this machine can have it.
fn is_had(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable
    )
}

/// Refuses an address that one command wants twice.
///
/// # Errors
/// A line for the user.
pub fn check_distinct(wanted: impl IntoIterator<Item = (SocketAddr, Chosen)>) -> Outcome {
    check(wanted, |_, _| Ok(()))
}

fn check(
    wanted: impl IntoIterator<Item = (SocketAddr, Chosen)>,
    mut look: impl FnMut(SocketAddr, Chosen) -> Outcome,
) -> Outcome {
    let mut before = BTreeMap::new();
    for (address, chosen) in wanted {
        // Port 0 is another one each time.
        if let Some(former) = before
            .insert(address, chosen)
            .filter(|_| address.port() != 0)
        {
            return Err(chosen.refused_twice(address, former));
        }
        look(address, chosen)?;
    }
    Ok(())
}

/// As [`check_distinct`], of the address of a server and that of its pages.
///
/// # Errors
/// A line for the user.
pub fn check_pages(listen: SocketAddr, pages: Option<SocketAddr>) -> Outcome {
    check_pages_beside([(listen, Chosen::By("--listen"))], pages)
}

/// The same of a server that listens at several addresses.
///
/// # Errors
/// A line for the user.
pub fn check_pages_beside(
    listen: impl IntoIterator<Item = (SocketAddr, Chosen)>,
    pages: Option<SocketAddr>,
) -> Outcome {
    let pages = pages.map(|at| (at, Chosen::By(pages::flag())));
    check_distinct(listen.into_iter().chain(pages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_s_name_is_an_address_and_a_port_alone_is_answered_with_one_of_it() {
        let local = "127.0.0.1:2181".parse();
        assert_eq!(parse_address("127.0.0.1:2181").ok(), local.clone().ok());
        assert_eq!(parse_address("localhost:2181").ok(), local.ok());
        let line = |text| parse_address(text).expect_err("it is none");
        for text in ["2181", ":2181"] {
            assert_eq!(line(text), format!("{FORM}, as in 127.0.0.1:2181"));
        }
        for text in ["localhost", "1.2.3:4", "localhost:no"] {
            assert_eq!(line(text), FORM);
        }
    }

    #[test]
    fn a_port_that_somebody_has_is_refused_and_the_others_stay_free() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = taken.local_addr().map(|at| (taken, at));
        let (listener, at) = taken.expect("an address");
        let any = SocketAddr::new(at.ip(), 0);
        let wanted = [
            (any, Chosen::By("--pages-port")),
            (at, Chosen::Default("--port")),
        ];
        let line = check_free(wanted).expect_err("it is taken");
        let begin = format!("cannot listen at {at} (the default of --port): another process");
        assert!(line.starts_with(&begin), "{line}");
        drop(listener);
        for _ in 0..2 {
            assert_eq!(check_free([(at, Chosen::By("--port"))]), Ok(()));
        }
    }

    #[test]
    fn a_port_is_looked_at_before_a_directory_becomes_a_server_s() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = taken.local_addr().expect("an address");
        let directory = std::env::temp_dir().join(format!("plinth-new-{}", std::process::id()));
        let check = || check_new(&directory, "process", [(at, Chosen::By("--listen"))]);
        let line = check().expect_err("it is taken");
        assert!(line.contains("another process listens there"), "{line}");
        std::fs::create_dir_all(&directory).expect("it is made");
        assert_eq!(check(), Err(line));
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 4500)); // for documents: nobody has it
        let line = check_new(&directory, "process", [(elsewhere, Chosen::By("--listen"))]);
        let line = line.expect_err("no interface has it");
        assert!(line.contains("192.0.2.1:4500 (--listen)"), "{line}");
        std::fs::write(directory.join("process"), "").expect("it is written");
        assert_eq!(check(), Ok(()), "its lock says more");
        std::fs::remove_dir_all(&directory).expect("it is there");
    }

    #[test]
    fn a_port_that_is_wanted_twice_is_refused_with_both_flags() {
        let at = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let at = at.expect("a port");
        let wanted = [
            (at, Chosen::By("--port")),
            (at, Chosen::By("--zookeeper-port")),
        ];
        let line = check_free(wanted).expect_err("it is wanted twice");
        let said = format!(
            "cannot listen at {at} (--zookeeper-port): this command listens there already (--port); choose another \
             --zookeeper-port"
        );
        assert_eq!(line, said);
        let any = SocketAddr::new(at.ip(), 0);
        let wanted = [
            (any, Chosen::By("--port")),
            (any, Chosen::By("--pages-port")),
        ];
        assert_eq!(
            check_free(wanted),
            Ok(()),
            "the system gives each another port"
        );
    }
}
