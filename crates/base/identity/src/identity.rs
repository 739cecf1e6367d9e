//! What a connection is to us, and what a request asks for.

use plinth_core::words;
use std::fmt;

words! {
    /// Who is at the other end of a connection. A later one may do whatever an earlier one may.
    /// The names are those in key files and messages.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Identity {
        /// Has proved nothing.
        Nobody = "nobody",
        /// Reads data, and changes nothing.
        Reader = "reader",
        /// Runs transactions.
        Client = "client",
        /// Configures the cluster and looks after it.
        Operator = "operator",
        /// A process of the cluster itself.
        Server = "server",
    }
}

impl Identity {
    /// Its number in messages.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_number(number: u8) -> Option<Identity> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who may send a request. It has no default: each request says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audience {
    /// Whoever reaches the port.
    Anybody,
    Readers,
    Clients,
    Operators,
    Servers,
}

impl Audience {
    /// The least identity that may send the request.
    pub fn least(self) -> Identity {
        match self {
            Audience::Anybody => Identity::Nobody,
            Audience::Readers => Identity::Reader,
            Audience::Clients => Identity::Client,
            Audience::Operators => Identity::Operator,
            Audience::Servers => Identity::Server,
        }
    }

    pub fn admits(self, identity: Identity) -> bool {
        identity >= self.least()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_audience_admits_its_least_identity_and_all_higher_ones() {
        let audiences = [
            Audience::Anybody,
            Audience::Readers,
            Audience::Clients,
            Audience::Operators,
            Audience::Servers,
        ];
        for (least, audience) in audiences.into_iter().enumerate() {
            for (at, identity) in Identity::ALL.into_iter().enumerate() {
                assert_eq!(audience.admits(identity), at >= least, "{audience:?}");
            }
        }
    }

    #[test]
    fn an_identity_comes_back_from_its_name_and_its_number() {
        for identity in Identity::ALL {
            assert_eq!(Identity::from_name(identity.name()), Some(identity));
            assert_eq!(Identity::from_number(identity.number()), Some(identity));
        }
        assert_eq!(Identity::from_name("Server"), None);
        assert_eq!(Identity::from_number(5), None);
    }
}
