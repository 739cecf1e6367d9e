//! `\xff\xff/management/tenant/map/`: the tenants, by name; and `rename/` beside it, where a set renames one.

use super::{Rows, SpecialWrite, Writable};
use crate::tenant;
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_core::{Error, Key, Result, Value};

const TENANT_MAP: &[u8] = b"\xff\xff/management/tenant/map/";
const TENANT_MAP_END: &[u8] = b"\xff\xff/management/tenant/map0";
const RENAME: &[u8] = b"\xff\xff/management/tenant/rename/";
const RENAME_END: &[u8] = b"\xff\xff/management/tenant/rename0";

pub(super) const MAP_WRITABLE: Writable = Writable {
    begin: TENANT_MAP,
    end: TENANT_MAP_END,
    apply: |transaction, write| Box::pin(apply(transaction, write)),
};

pub(super) const RENAME_WRITABLE: Writable = Writable {
    begin: RENAME,
    end: RENAME_END,
    apply: |transaction, write| Box::pin(rename(transaction, write)),
};

/// The rows of the map within a range.
pub(super) async fn rows(transaction: &Transaction, within: &KeyRange) -> Result<Rows> {
    match within.intersection(&KeyRange::new(TENANT_MAP, TENANT_MAP_END)) {
        Some(part) => tenants(transaction, &part).await,
        None => Ok(Rows::new()),
    }
}

async fn tenants(transaction: &Transaction, within: &KeyRange) -> Result<Rows> {
    let name = |key: &Key| key.slice(TENANT_MAP.len().min(key.len())..);
    let end = if within.end[..] == *TENANT_MAP_END {
        None
    } else {
        Some(name(&within.end))
    };
    let found = tenant::list_in(transaction, &name(&within.begin), end).await?;
    let row = |(name, id): (Bytes, i64)| {
        let key = Bytes::from([TENANT_MAP, &name].concat());
        (key, Value::from(tenant::describe(&name, id)))
    };
    Ok(found.into_iter().map(row).collect())
}

async fn apply(transaction: &Transaction, write: SpecialWrite) -> Result<()> {
    match write {
        SpecialWrite::Set(key, _) => {
            tenant::create_in(transaction, &key[TENANT_MAP.len()..]).await?;
        }
        SpecialWrite::Clear(range) => {
            for (key, _) in tenants(transaction, &range).await? {
                tenant::delete_in(transaction, &key[TENANT_MAP.len()..]).await?;
            }
        }
    }
    Ok(())
}

async fn rename(transaction: &Transaction, write: SpecialWrite) -> Result<()> {
    match write {
        SpecialWrite::Set(key, name) => {
            tenant::rename_in(transaction, &key[RENAME.len()..], &name).await
        }
        // There is nothing to clear.
        SpecialWrite::Clear(_) => Err(Error::special_keys_api_failure),
    }
}
