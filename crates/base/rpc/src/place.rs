//! Where a process is that is known before anything else is: at an address, or at whatever address its name has now.
//!
//! A name is resolved anew for each connection. It may stand for a former address, at which another process is by now.
//! So whoever is called by a name must say that it has that name: it serves at an id that follows from it.

use plinth_core::codec::{Codec, Source};
use plinth_core::output::Output;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// Longest name of a host, and longest part of one between two dots.
const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// `10.0.0.1:4500`, `[::1]:4500` or `host.example.com:4500`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Place {
    At(SocketAddr),
    /// A host in lower case, and a port.
    Named(Arc<str>, u16),
}

impl Place {
    /// The address, if it is known without a resolver.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Place::At(address) => Some(*address),
            Place::Named(..) => None,
        }
    }

    pub fn is_named(&self) -> bool {
        matches!(self, Place::Named(..))
    }

    pub fn port(&self) -> u16 {
        match self {
            Place::At(address) => address.port(),
            Place::Named(_, port) => *port,
        }
    }

    /// The same host at another port.
    pub fn with_port(&self, port: u16) -> Place {
        match self {
            Place::At(address) => Place::At(SocketAddr::new(address.ip(), port)),
            Place::Named(host, _) => Place::Named(host.clone(), port),
        }
    }
}

/// True of what a host may be called. The last part has a letter, or a misspelt address would count as a name.
fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        let is_good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(is_good)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let labels = host.strip_suffix('.').unwrap_or(host);
    let last = labels.rsplit('.').next().unwrap_or_default();
    host.len() <= HOST_BYTES_MAX
        && labels.split('.').all(is_label)
        && last.bytes().any(|b| b.is_ascii_alphabetic())
}

/// The text is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoPlace;

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Place, NoPlace> {
        if let Ok(address) = text.parse() {
            return Ok(Place::At(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or(NoPlace)?;
        // Rust's parser would take `+4500`.
        let is_number = port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|_| is_number).ok_or(NoPlace)?;
        match is_host(host) {
            true => Ok(Place::Named(host.to_ascii_lowercase().into(), port)),
            false => Err(NoPlace),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::At(address) => address.fmt(f),
            Place::Named(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Place {
        Place::At(address)
    }
}

impl PartialEq<SocketAddr> for Place {
    fn eq(&self, address: &SocketAddr) -> bool {
        self.address() == Some(*address)
    }
}

/// Travels as its text.
impl Codec for Place {
    const LEAST: usize = <String as Codec>::LEAST;
    fn put(&self, out: &mut Output) {
        self.to_string().put(out);
    }
    fn take(input: &mut bytes::Bytes) -> Option<Self> {
        String::take(input)?.parse().ok()
    }
    fn draw(source: &mut dyn Source) -> Self {
        let address = SocketAddr::draw(source);
        match address.port() % 2 == 0 {
            true => Place::At(address),
            false => Place::Named(format!("{}.drawn", of(address)).into(), address.port()),
        }
    }
}

/// A label made of an address.
fn of(address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) => format!("h{:x}", u32::from(ip)),
        IpAddr::V6(ip) => format!("h{:x}", u128::from(ip)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_or_a_name_and_comes_back_as_it_was_written() {
        for text in ["10.0.0.1:4500", "[::1]:4500"] {
            let place: Place = text.parse().expect("a place");
            assert!(!place.is_named() && place.to_string() == text);
        }
        for text in [
            "localhost:1",
            "plinth-0.plinth.default.svc:4500",
            "db_1:65535",
            "a.example.com.:4500",
            "10.0.0.1.example:4500",
        ] {
            let place: Place = text.parse().expect("a place");
            assert!(place.is_named() && place.to_string() == text, "{text}");
            assert_eq!(Place::take(&mut place.to_bytes()), Some(place));
        }
        assert_eq!("DB-1:4500".parse(), Ok(Place::Named("db-1".into(), 4500)));
    }

    #[test]
    fn what_is_neither_an_address_nor_a_name_is_refused() {
        let long = format!("{}:4500", "a.".repeat(127));
        let label = format!("{}:4500", "a".repeat(64));
        for text in [
            "",
            ":4500",
            "a",
            "a:",
            "a:x",
            "a:+1",
            "a:65536",
            "a b:1",
            "a..b:1",
            ".a:1",
            "-a:1",
            "a-:1",
            "10.0.0.1",
            "10.0.0:4500",
            "10.0.0.256:4500",
            "1.2.3.4.5:1",
            "::1:4500",
            "a/b:1",
            "ä:1",
            &long,
            &label,
        ] {
            assert_eq!(text.parse::<Place>(), Err(NoPlace), "{text:?}");
        }
    }
}
