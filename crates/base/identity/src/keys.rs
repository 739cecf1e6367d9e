//! Keys: secrets that give their holder an identity.
//!
//! ```text
//! server key ── HKDF ──> operator key ── HKDF ──> client key ── HKDF ──> reader key
//! ```
//!
//! A cluster's secret is the server key. Each lower key is derived from the one above it, so the holder of a key also
//! has all lower ones, and nobody finds a higher one from it. A new server key begins a new *generation*.

mod file;
mod keyring;

pub use file::{KEYS_MAX, KeyFile, KeyFileError};
pub use keyring::Keyring;

use crate::identity::Identity;
use crate::secret::Secret;
use std::fmt;

/// Says which key it is; not a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; KeyId::BYTES]);

impl KeyId {
    pub const BYTES: usize = 8;

    pub fn new(bytes: [u8; KeyId::BYTES]) -> KeyId {
        KeyId(bytes)
    }
    pub fn bytes(&self) -> &[u8; KeyId::BYTES] {
        &self.0
    }
    /// From 16 lower-case hexadecimal digits, as it is printed.
    pub fn parse(text: &str) -> Option<KeyId> {
        unhex(text).map(KeyId)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The bytes of so many lower-case hexadecimal digits, and of nothing else.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, two) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(two[0])? << 4 | digit(two[1])?;
    }
    Some(bytes)
}

/// A secret and the identity that it gives, which is never [`Identity::Nobody`].
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    identity: Identity,
    id: KeyId,
    secret: Secret,
}

impl Key {
    fn new(identity: Identity, secret: Secret) -> Key {
        assert_ne!(identity, Identity::Nobody, "nobody has no key");
        let id = KeyId(secret.fingerprint(&format!("plinth-key-1 {identity}")));
        Key {
            identity,
            id,
            secret,
        }
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }
    pub fn id(&self) -> KeyId {
        self.id
    }
    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The key of the next lower identity; `None` below the reader's.
    fn next_lower(&self) -> Option<Key> {
        let lower = match self.identity {
            Identity::Server => Identity::Operator,
            Identity::Operator => Identity::Client,
            Identity::Client => Identity::Reader,
            Identity::Reader | Identity::Nobody => return None,
        };
        let secret = self.secret.derive(&format!("{lower} key"));
        Some(Key::new(lower, secret))
    }

    /// This key and all lower ones, from high to low.
    fn line(&self) -> impl Iterator<Item = Key> {
        std::iter::successors(Some(self.clone()), Key::next_lower)
    }

    /// The key of `identity` that the holder of this one has; `None` if `identity` is higher, or nobody.
    pub fn for_identity(&self, identity: Identity) -> Option<Key> {
        self.line().find(|key| key.identity == identity)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} key {}", self.identity, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(byte: u8) -> Key {
        Key::new(Identity::Server, Secret::new([byte; 32]))
    }

    #[test]
    fn a_key_gives_itself_and_all_lower_ones_and_no_higher_one() {
        let server = root(1);
        let operator = server.for_identity(Identity::Operator).expect("lower");
        let client = server.for_identity(Identity::Client).expect("lower");
        assert_eq!(operator.for_identity(Identity::Client), Some(client));
        for key in server.line() {
            for identity in Identity::ALL {
                let may = identity <= key.identity && identity != Identity::Nobody;
                let got = key.for_identity(identity);
                assert_eq!(got.is_some(), may, "{identity} from {key:?}");
                assert_eq!(got, server.for_identity(identity).filter(|_| may));
            }
        }
    }

    #[test]
    fn keys_of_a_line_and_of_two_generations_share_neither_secret_nor_id() {
        let keys: Vec<Key> = root(1).line().chain(root(2).line()).collect();
        assert_eq!(keys.len(), 8);
        for (at, key) in keys.iter().enumerate() {
            for other in &keys[..at] {
                assert_ne!(key.id, other.id);
                assert_ne!(key.secret, other.secret);
            }
        }
    }

    /// Other processes derive the same keys: whoever changes these figures locks every cluster out.
    #[test]
    fn the_derived_keys_never_change() {
        let ids: Vec<String> = root(1).line().map(|key| key.id.to_string()).collect();
        let expected = [
            "be10692e068def33",
            "9c731f3384d88aca",
            "1e8c863035db91f2",
            "424139de73c25398",
        ];
        assert_eq!(ids, expected);
    }

    #[test]
    fn debug_output_shows_the_id_and_not_the_secret() {
        let key = root(0xab);
        let shown = format!("{key:?}");
        assert_eq!(shown, format!("server key {}", key.id));
        assert!(!shown.contains("abab"));
    }

    #[test]
    fn an_id_is_sixteen_lower_case_digits_and_nothing_else() {
        let id = KeyId([0, 1, 0x2a, 0xff, 4, 5, 6, 7]);
        assert_eq!(id.to_string(), "00012aff04050607");
        assert_eq!(KeyId::parse("00012aff04050607"), Some(id));
        for wrong in [
            "",
            "00012AFF04050607",
            "00012aff0405060",
            "00012aff040506071",
        ] {
            assert_eq!(KeyId::parse(wrong), None);
        }
        assert_eq!(KeyId::parse("0001éaff0405060"), None);
    }
}
