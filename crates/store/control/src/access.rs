//! Who may read and write what, as operators change it: see `plinth_access`.

use crate::management::{Outcome, decide};
use crate::rows::read_rows;
use plinth_access::{Access, key_row};
use plinth_client::{Database, Transaction};
use plinth_core::Result;
use plinth_core::key::printable;
use plinth_core::similar;
use plinth_core::system_keys::ACCESS;
use plinth_identity::tokens::{KEY_NAME_BYTES_MAX, PublicKey, is_key_name};
use plinth_runtime::Boxed;

/// Most keys that a database trusts: every role reads all of them.
const TRUSTED_MAX: usize = 100;

async fn read_in(transaction: &Transaction) -> Result<Access> {
    let rows = read_rows(transaction, ACCESS).await?;
    let rows = rows.iter().map(|(key, value)| (&key[..], &value[..]));
    Ok(Access::from_rows(rows))
}

/// What is configured.
pub fn read(database: &Database) -> Boxed<'_, Outcome<Access>> {
    decide(database, async |tr| Ok(Ok(read_in(tr).await?)))
}

/// Lets tokens count that this key signs, in place of another key of that name.
pub fn trust<'a>(database: &'a Database, name: &'a str, key: PublicKey) -> Boxed<'a, Outcome<()>> {
    Box::pin(async move {
        if !is_key_name(name) {
            return Err(format!(
                "the name of a key has from 1 to {KEY_NAME_BYTES_MAX} bytes; nothing has changed"
            ));
        }
        decide(database, async |tr| {
            let trusted = read_in(tr).await?.keys;
            if !trusted.has(name) && trusted.iter().count() >= TRUSTED_MAX {
                return Ok(Err(format!(
                    "{TRUSTED_MAX} keys are trusted already; revoke one first; nothing has changed"
                )));
            }
            tr.set(key_row(name), key.bytes());
            Ok(Ok(()))
        })
        .await
    })
}

/// Lets no token count any more that this key has signed.
pub fn revoke<'a>(database: &'a Database, name: &'a str) -> Boxed<'a, Outcome<()>> {
    decide(database, async move |tr| {
        let keys = read_in(tr).await?.keys;
        if !keys.has(name) {
            let trusted: Vec<&str> = keys.iter().map(|(name, _)| name).collect();
            let meant = similar::question(name, trusted);
            // What is longer than any name may be a token, which is not to be repeated.
            let which = match name.len() <= KEY_NAME_BYTES_MAX {
                true => format!("no key {}", printable(name.as_bytes())),
                false => "no key of that name".into(),
            };
            return Ok(Err(format!(
                "{which} is trusted; {meant}`listtrusted' lists those that are; nothing has changed"
            )));
        }
        tr.clear(key_row(name));
        Ok(Ok(()))
    })
}
