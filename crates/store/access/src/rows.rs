//! What the rows say.

use bytes::Bytes;
use plinth_core::system_keys::ACCESS;
use plinth_core::words;
use plinth_identity::tokens::{PublicKey, TrustedKeys, is_key_name};

const CLIENTS: &[u8] = b"\xff/access/clients";
const KEYS: &[u8] = b"\xff/access/keys/";

words! {
    /// What a client may do without a token.
    #[derive(Default)]
    pub enum Clients {
        #[default]
        All = "all",
        /// Read everything, and write what a token grants.
        Reads = "reads",
        /// Nothing.
        Tokens = "tokens",
    }
}

/// The row that says what clients may do without a token.
pub fn clients_row() -> &'static [u8] {
    CLIENTS
}

/// The row of the trusted key with this name.
pub fn key_row(name: &str) -> Bytes {
    [KEYS, name.as_bytes()].concat().into()
}

/// The name of the key in this row; `None` if it is another row.
pub fn name_of_key(row: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(row.strip_prefix(KEYS)?).ok()?;
    is_key_name(name).then_some(name)
}

/// What is configured. Equal values have equal effects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    pub clients: Clients,
    pub keys: TrustedKeys,
}

impl Access {
    /// What these rows say. Other rows are ignored. A row that makes no sense grants nothing.
    pub fn from_rows<'a>(rows: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Access {
        let mut access = Access::default();
        for (key, value) in rows.into_iter().filter(|(key, _)| key.starts_with(ACCESS)) {
            if key == CLIENTS {
                let name = std::str::from_utf8(value).ok();
                access.clients = name.and_then(Clients::from_name).unwrap_or(Clients::Tokens);
            } else if let (Some(name), Ok(key)) = (name_of_key(key), value.try_into()) {
                access.keys.trust(name, PublicKey::new(key));
            }
        }
        access
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_who_may_what_and_those_that_make_no_sense_grant_nothing() {
        let of = |rows: &[(&[u8], &[u8])]| Access::from_rows(rows.iter().copied());
        assert_eq!(of(&[]), Access::default());
        assert_eq!(of(&[(CLIENTS, b"reads")]).clients, Clients::Reads);
        assert_eq!(of(&[(CLIENTS, b"nonsense")]).clients, Clients::Tokens);
        let row = key_row("web");
        assert_eq!(name_of_key(&row), Some("web"));
        let trusted = of(&[(&row, &[7; 32]), (&key_row("short"), &[7; 31])]).keys;
        let names: Vec<&str> = trusted.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["web"]);
        for wrong in [
            &b"\xff/access/keys/"[..],
            b"\xff/access/keys/\xff",
            b"\xff/conf",
        ] {
            assert_eq!(name_of_key(wrong), None);
        }
        for clients in Clients::ALL {
            assert_eq!(Clients::from_name(clients.name()), Some(clients));
        }
    }
}
