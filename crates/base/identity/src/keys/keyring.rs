//! The keys of a file and all that follow from them, as greetings need them.

use super::{Key, KeyFile, KeyId};
use crate::identity::Identity;
use std::collections::BTreeMap;
use subtle::ConstantTimeEq;

/// All keys that a process has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keyring {
    /// Those of the file, in its order.
    first: Vec<Key>,
    all: BTreeMap<KeyId, Key>,
    open_to: Identity,
}

impl Keyring {
    pub fn new(file: &KeyFile) -> Keyring {
        let first: Vec<Key> = file.keys().cloned().collect();
        let all = first.iter().flat_map(Key::line);
        let all = all.map(|key| (key.id(), key)).collect();
        Keyring {
            first,
            all,
            open_to: file.open_to(),
        }
    }

    /// What those are to a server with these keys who prove nothing.
    pub fn open_to(&self) -> Identity {
        self.open_to
    }

    /// The key with this id and identity.
    pub fn get(&self, id: KeyId, identity: Identity) -> Option<&Key> {
        self.all.get(&id).filter(|key| key.identity() == identity)
    }

    /// The keys that give `identity`, with the one to try first in front: those that the file has for it, then those
    /// that follow from higher ones.
    pub fn of(&self, identity: Identity) -> Vec<Key> {
        let own = |key: &&Key| key.identity() == identity;
        let own = self.first.iter().filter(own).cloned();
        let higher = self.first.iter().filter(|key| key.identity() > identity);
        let mut keys: Vec<Key> = own.collect();
        for key in higher.filter_map(|key| key.for_identity(identity)) {
            if !keys.iter().any(|known| known.id() == key.id()) {
                keys.push(key);
            }
        }
        keys
    }

    /// What a reader shows to read a page of metrics from afar: one for each generation, the newest first.
    pub fn page_tokens(&self) -> Vec<String> {
        let readers = self.of(Identity::Reader);
        readers
            .iter()
            .map(|key| {
                let token = key.secret().derive("page token");
                let digits = token.bytes().iter().map(|byte| format!("{byte:02x}"));
                digits.collect()
            })
            .collect()
    }

    /// Whether a reader of this cluster has said this.
    pub fn is_page_token(&self, said: &[u8]) -> bool {
        let tokens = self.page_tokens();
        let same = |token: &String| bool::from(token.as_bytes().ct_eq(said));
        tokens.iter().any(same)
    }

    /// The highest identity that these keys give.
    pub fn highest(&self) -> Identity {
        let identities = self.first.iter().map(Key::identity);
        identities.max().unwrap_or(Identity::Nobody)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(keys: &[Key]) -> Vec<KeyId> {
        keys.iter().map(Key::id).collect()
    }

    #[test]
    fn a_process_tries_its_own_keys_first_and_the_newest_generation_first() {
        let mut file = KeyFile::new_root([1; 32]);
        file.add_generation([2; 32]).expect("room");
        let ring = Keyring::new(&file);
        assert_eq!(ring.highest(), Identity::Server);
        let [new, old] = &ring.of(Identity::Client)[..] else {
            panic!("two generations");
        };
        let generation = |byte| Keyring::new(&KeyFile::new_root([byte; 32]));
        assert_eq!(ids(&generation(2).of(Identity::Client)), [new.id()]);
        assert_eq!(ids(&generation(1).of(Identity::Client)), [old.id()]);
        // A file that has the older key for clients as a line of its own means it.
        let older = KeyFile::new_root([1; 32]);
        let older = older.for_identity(Identity::Client).expect("lower");
        let text = format!("{}{}", &*file.print(), &*older.print());
        let ring = Keyring::new(&KeyFile::parse(text.as_bytes()).expect("valid"));
        assert_eq!(ids(&ring.of(Identity::Client)), [old.id(), new.id()]);
    }

    #[test]
    fn every_reader_has_the_token_of_pages_and_it_ends_with_its_generation() {
        let mut file = KeyFile::new_root([1; 32]);
        let old = Keyring::new(&file).page_tokens();
        let reader = file.for_identity(Identity::Reader).expect("lower");
        assert_eq!(Keyring::new(&reader).page_tokens(), old);
        file.add_generation([2; 32]).expect("room");
        let both = Keyring::new(&file);
        assert_eq!(both.page_tokens()[1..], old);
        assert!(both.is_page_token(old[0].as_bytes()));
        let new = Keyring::new(&KeyFile::new_root([2; 32]));
        for wrong in [&old[0][..], "", &new.page_tokens()[0][1..]] {
            assert!(!new.is_page_token(wrong.as_bytes()));
        }
    }

    #[test]
    fn a_key_is_found_by_its_id_only_for_its_own_identity() {
        let file = KeyFile::new_root([1; 32]);
        let ring = Keyring::new(&file);
        let client = &ring.of(Identity::Client)[0];
        for identity in Identity::ALL {
            let found = ring.get(client.id(), identity).is_some();
            assert_eq!(found, identity == Identity::Client);
        }
        let lower = Keyring::new(&file.for_identity(Identity::Client).expect("lower"));
        assert_eq!(lower.highest(), Identity::Client);
        assert!(lower.of(Identity::Operator).is_empty());
        assert!(lower.of(Identity::Nobody).is_empty());
        assert_eq!(lower.of(Identity::Reader), ring.of(Identity::Reader));
    }
}
