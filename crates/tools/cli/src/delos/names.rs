//! What operators call services and replicas.

use plinth_delos::replica::identity::is_name;
use std::net::SocketAddr;
use std::path::PathBuf;

const ENDING: &str = "delos";

/// A replica's name and where its process listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    pub name: String,
    pub address: SocketAddr,
}

pub fn parse_name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.into()),
        false => Err("a name has letters, digits, `_`, `-` and `.`".into()),
    }
}

pub fn parse_at(text: &str) -> Result<At, String> {
    let (name, address) = text.split_once('=').ok_or("expected NAME=IP:PORT")?;
    let address = parse_address(address)?;
    let name = parse_name(name)?;
    Ok(At { name, address })
}

/// An address that others can find: not a port of the system's choice, nor all addresses of the machine.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "expected IP:PORT")?;
    match address.port() == 0 || address.ip().is_unspecified() {
        true => Err("others must find it: give the IP of one interface, and a port".into()),
        false => Ok(address),
    }
}

/// The name of a service, which becomes a part of its file.
pub fn parse_service_name(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match text.is_empty() || text.len() > 100 || !text.chars().all(is_good) {
        true => Err("the name of a service has letters, digits and `_`".into()),
        false => Ok(text.into()),
    }
}

pub fn file_name(service: &str) -> String {
    format!("{service}.{ENDING}")
}

/// The file of a service, by its path or by the service's name.
pub fn parse_service(text: &str) -> Result<PathBuf, String> {
    let is_path = text.contains('/') || text.ends_with(&format!(".{ENDING}"));
    match is_path {
        true => Ok(text.into()),
        false => Ok(file_name(text).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_by_its_file_or_by_its_name() {
        for (text, file) in [
            ("locks", "locks.delos"),
            ("locks.delos", "locks.delos"),
            ("data/locks", "data/locks"),
        ] {
            assert_eq!(parse_service(text), Ok(PathBuf::from(file)));
        }
    }

    #[test]
    fn an_address_that_nobody_finds_is_refused() {
        for address in ["0.0.0.0:4700", "127.0.0.1:0", "[::]:1", "x", "a=b"] {
            assert!(parse_address(address).is_err(), "{address}");
        }
        assert!(parse_at("a=127.0.0.1:4700").is_ok());
        assert!(parse_at("127.0.0.1:4700").is_err());
    }
}
