//! The text by which a [map](crate::virtual_log) names a loglet on log servers.
//!
//! `quorum:<loglet>;<address of the sequencer>;<address>=<id>,…` with a log server after each comma. Ids are 32
//! hexadecimal digits.

use crate::quorum::messages::{Config, SERVERS_MAX};
use bytes::Bytes;
use plinth_core::Uid;
use plinth_rpc::Interface;

const PREFIX: &str = "quorum:";

impl Config {
    /// So many log servers are a majority.
    pub fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// False for a configuration that nobody can use: without log servers, with too many, or with one named twice.
    pub fn is_sound(&self) -> bool {
        let mut ids: Vec<Uid> = self.servers.iter().map(|server| server.id).collect();
        ids.sort_unstable();
        ids.dedup();
        (1..=SERVERS_MAX).contains(&self.servers.len()) && ids.len() == self.servers.len()
    }

    pub fn to_description(&self) -> Bytes {
        let servers = self.servers.iter();
        let servers: Vec<String> = servers
            .map(|server| format!("{}={}", server.address, server.id))
            .collect();
        let (loglet, sequencer) = (self.loglet, self.sequencer);
        Bytes::from(format!(
            "{PREFIX}{loglet};{sequencer};{}",
            servers.join(",")
        ))
    }

    /// `None` if it is no description, or of something else.
    pub fn from_description(description: &[u8]) -> Option<Config> {
        let text = std::str::from_utf8(description).ok()?;
        let mut parts = text.strip_prefix(PREFIX)?.split(';');
        let loglet = Uid::parse(parts.next()?)?;
        let sequencer = parts.next()?.parse().ok()?;
        let server = |text: &str| {
            let (address, id) = text.split_once('=')?;
            Some(Interface::new(address.parse().ok()?, Uid::parse(id)?))
        };
        let servers = parts.next()?.split(',').map(server);
        let config = Config {
            loglet,
            sequencer,
            servers: servers.take(SERVERS_MAX + 1).collect::<Option<_>>()?,
        };
        (parts.next().is_none() && config.is_sound()).then_some(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_comes_back_and_a_damaged_one_does_not_pass() {
        let server = |n: u8| Interface::new(([10, 0, 0, n], 4500).into(), Uid(u128::from(n)));
        let config = Config {
            loglet: Uid(7),
            sequencer: ([10, 0, 0, 9], 1).into(),
            servers: (1..4).map(server).collect(),
        };
        let text = config.to_description();
        assert_eq!(Config::from_description(&text), Some(config.clone()));
        for cut in 0..text.len() {
            assert_eq!(
                Config::from_description(&text[..cut]).filter(|c| *c == config),
                None
            );
        }
        let twice = Config {
            servers: vec![server(1), server(1)],
            ..config
        };
        assert_eq!(Config::from_description(&twice.to_description()), None);
        assert_eq!(Config::from_description(b"file:x"), None);
    }
}
