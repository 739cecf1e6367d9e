//! Tenants: key spaces of their own within one database, each under a prefix of eight bytes that its number gives.
//!
//! ```text
//! \xff/tenant/map/<name>    number of the tenant, 8 bytes big-endian; its keys are stored as <number><key>
//! \xff/tenant/lastId        the number given out last
//! ```
//!
//! A tenant is a [`Cluster`] on top of the database's own: it looks the name up at the version of each transaction,
//! adds the prefix to the keys that go in, and removes it from the keys that come out. A commit also reads the
//! tenant's row, so that no transaction commits into a tenant that has been deleted, or made anew, meanwhile.

pub mod carried;

use crate::bytes_argument::IntoKey;
use crate::database::Database;
use crate::source::{
    Cluster, ClusterFuture, CommitData, CommitReply, PointResults, RangeChunk, RangeRequest,
    ReadVersionFlags, Subject,
};
use crate::system_rows;
use crate::transaction::Transaction;
use base64::Engine;
use bytes::{Bytes, BytesMut};
use plinth_core::conflict_ranges::{ConflictRanges, ConflictRangesBuilder};
use plinth_core::key::{KeyRange, SYSTEM_BEGIN, TENANT_PREFIX_BYTES, prefix_end, printable};
use plinth_core::mutation::MutationRef;
use plinth_core::system_keys::{IDEMPOTENCY, TENANT_MAP};
use plinth_core::{
    Error, Key, KeySelector, MutationBatch, MutationKind, Result, Value, Version, atomic,
};
use plinth_protocol::token::Token;
use std::cell::RefCell;
use std::rc::Rc;

const MAP: &[u8] = TENANT_MAP;
const MAP_END: &[u8] = b"\xff/tenant/map0";
const LAST_ID: &[u8] = b"\xff/tenant/lastId";

fn map_key(name: &[u8]) -> Key {
    Bytes::from([MAP, name].concat())
}

fn id_of(row: &[u8]) -> Result<i64> {
    let bytes = row.try_into().map_err(|_| Error::internal_error)?;
    Ok(i64::from_be_bytes(bytes))
}

fn data_range(id: i64) -> KeyRange {
    let prefix = Bytes::copy_from_slice(&id.to_be_bytes());
    let end = prefix_end(&prefix).expect("numbers are not negative");
    KeyRange::new(prefix, end)
}

// ---- management, inside a transaction ----

fn check_name(name: &[u8]) -> Result<()> {
    match name.is_empty() || name.starts_with(SYSTEM_BEGIN) {
        true => Err(Error::invalid_tenant_name),
        false => Ok(()),
    }
}

/// Makes the tenant if it does not exist. Returns its number.
pub(crate) async fn create_in(transaction: &Transaction, name: &[u8]) -> Result<i64> {
    check_name(name)?;
    if let Some(row) = system_rows::get(transaction, &map_key(name)).await? {
        return id_of(&row);
    }
    let last = system_rows::get(transaction, LAST_ID).await?;
    let id = last.map_or(Ok(0), |row| id_of(&row))? + 1;
    if !system_rows::read(transaction, data_range(id), 1)
        .await?
        .is_empty()
    {
        return Err(Error::tenant_prefix_allocator_conflict);
    }
    system_rows::set(transaction, LAST_ID, &id.to_be_bytes())?;
    system_rows::set(transaction, &map_key(name), &id.to_be_bytes())?;
    Ok(id)
}

/// Deletes a tenant, which must be empty. Does nothing if it does not exist.
pub(crate) async fn delete_in(transaction: &Transaction, name: &[u8]) -> Result<()> {
    let Some(row) = system_rows::get(transaction, &map_key(name)).await? else {
        return Ok(());
    };
    let data = data_range(id_of(&row)?);
    if !system_rows::read(transaction, data, 1).await?.is_empty() {
        return Err(Error::tenant_not_empty);
    }
    system_rows::clear(transaction, &KeyRange::single(&map_key(name)))
}

/// Gives a tenant another name, which no tenant has. Its number stays, and so its data.
pub(crate) async fn rename_in(transaction: &Transaction, from: &[u8], to: &[u8]) -> Result<()> {
    check_name(to)?;
    let (before, after) = (map_key(from), map_key(to));
    let row = system_rows::get(transaction, &before).await?;
    let row = row.ok_or(Error::tenant_not_found)?;
    if system_rows::get(transaction, &after).await?.is_some() {
        return Err(Error::tenant_already_exists);
    }
    system_rows::clear(transaction, &KeyRange::single(&before))?;
    system_rows::set(transaction, &after, &row)
}

/// Names from `begin` up to `end`, with their numbers.
pub(crate) async fn list_in(
    transaction: &Transaction,
    begin: &[u8],
    end: Option<Bytes>,
) -> Result<Vec<(Bytes, i64)>> {
    let end = end.map_or(Bytes::from_static(MAP_END), |end| map_key(&end));
    let rows = system_rows::read(transaction, KeyRange::new(map_key(begin), end), usize::MAX);
    let named = |(key, row): (Key, Value)| Ok((key.slice(MAP.len()..), id_of(&row)?));
    rows.await?.into_iter().map(named).collect()
}

async fn exists_in(transaction: &Transaction, name: &[u8]) -> Result<bool> {
    let row = system_rows::get(transaction, &map_key(name)).await?;
    Ok(row.is_some())
}

/// The value of a tenant in the tenant map of the special keys: JSON.
pub(crate) fn describe(name: &[u8], id: i64) -> String {
    let both = |bytes: &[u8]| {
        let base64 = base64::engine::general_purpose::STANDARD.encode(bytes);
        serde_json::json!({"base64": base64, "printable": printable(bytes)})
    };
    let document = serde_json::json!({
        "id": id, "lock_state": "unlocked", "name": both(name), "prefix": both(&id.to_be_bytes()),
    });
    document.to_string()
}

// ---- for applications ----

impl Database {
    /// The tenant as a database. Sends no request: if there is no such tenant, operations on it fail with
    /// `tenant_not_found`.
    pub fn open_tenant(&self, name: impl IntoKey) -> Database {
        let name = name.into_key();
        let tenant = Rc::new(TenantCluster {
            inner: self.cluster().clone(),
            map_key: map_key(&name),
            last_found: RefCell::default(),
        });
        Database::with(Rc::new(tenant), Some((self.clone(), name)))
    }

    pub async fn create_tenant(&self, name: impl IntoKey) -> Result<()> {
        let name = name.into_key();
        let mut looked = false;
        self.run(async |transaction| {
            // After an unknown result the tenant may exist because this call made it.
            if !std::mem::replace(&mut looked, true) && exists_in(&transaction, &name).await? {
                return Err(Error::tenant_already_exists);
            }
            create_in(&transaction, &name).await.map(drop)
        })
        .await
    }

    pub async fn delete_tenant(&self, name: impl IntoKey) -> Result<()> {
        let name = name.into_key();
        let mut looked = false;
        self.run(async |transaction| {
            if !std::mem::replace(&mut looked, true) && !exists_in(&transaction, &name).await? {
                return Err(Error::tenant_not_found);
            }
            delete_in(&transaction, &name).await
        })
        .await
    }

    /// Gives a tenant another name. Transactions that were begun under the former name do not commit.
    pub async fn rename_tenant(&self, from: impl IntoKey, to: impl IntoKey) -> Result<()> {
        let (from, to) = (from.into_key(), to.into_key());
        let mut tried = None;
        self.run(async |transaction| {
            let row = system_rows::get(&transaction, &map_key(&from)).await?;
            // After an unknown result the tenant may have its new name because of this call.
            if row.is_none() && tried.is_some() {
                let renamed = system_rows::get(&transaction, &map_key(&to)).await?;
                if renamed == tried {
                    return Ok(());
                }
            }
            rename_in(&transaction, &from, &to).await?;
            tried = row;
            Ok(())
        })
        .await
    }

    /// All tenants: names and numbers.
    pub async fn list_tenants(&self) -> Result<Vec<(Key, i64)>> {
        self.run(async |transaction| list_in(&transaction, b"", None).await)
            .await
    }

    pub async fn tenant_id(&self, name: impl IntoKey) -> Result<i64> {
        let key = map_key(&name.into_key());
        self.run(async |transaction| {
            let row = system_rows::get(&transaction, &key).await?;
            id_of(&row.ok_or(Error::tenant_not_found)?)
        })
        .await
    }
}

// ---- the seam ----

struct TenantCluster {
    inner: Rc<dyn Cluster>,
    map_key: Key,
    /// The prefix as of this version, so that the reads of a transaction look it up once.
    last_found: RefCell<Option<(Version, Key)>>,
}

impl TenantCluster {
    fn prefix(self: &Rc<Self>, version: Version) -> ClusterFuture<Key> {
        let tenant = self.clone();
        Box::pin(async move {
            if let Some((at, prefix)) = &*tenant.last_found.borrow()
                && *at == version
            {
                return Ok(prefix.clone());
            }
            let row = tenant.inner.get(tenant.map_key.clone(), version).await?;
            let prefix = row.ok_or(Error::tenant_not_found)?;
            id_of(&prefix)?;
            *tenant.last_found.borrow_mut() = Some((version, prefix.clone()));
            Ok(prefix)
        })
    }
}

fn join(prefix: &[u8], key: &[u8]) -> Key {
    Bytes::from([prefix, key].concat())
}

/// True for a row that records whether a commit happened. These rows lie outside the tenant, with those of all
/// transactions.
fn is_shared(key: &[u8]) -> bool {
    key.starts_with(IDEMPOTENCY)
}

/// Checks that the key is below the system keys: only those keys belong to a tenant.
fn check(key: &[u8]) -> Result<()> {
    if key < SYSTEM_BEGIN {
        Ok(())
    } else {
        Err(Error::illegal_tenant_access)
    }
}

fn prefixed_ranges(prefix: &[u8], packed: Bytes, also: Option<&[u8]>) -> Option<Bytes> {
    let ranges = ConflictRanges::parse(packed)?;
    let mut builder = ConflictRangesBuilder::new();
    for range in &ranges {
        let begin = join(prefix, range.begin);
        if range.end.then_zero && range.end.bytes == range.begin {
            builder.add_key(&begin);
        } else {
            builder.add(&begin, &join(prefix, &range.end.to_key()));
        }
    }
    if let Some(key) = also {
        builder.add_key(key);
    }
    Some(builder.finish())
}

fn prefixed_mutations(prefix: &[u8], mutations: &MutationBatch) -> Result<MutationBatch> {
    let mut packed = BytesMut::new();
    for mutation in mutations.iter() {
        let kind = mutation.kind;
        if kind == MutationKind::SetVersionstampedValue && is_shared(mutation.first) {
            mutation.pack(&mut packed);
            continue;
        }
        let mut first = [prefix, mutation.first].concat();
        let mut second = mutation.second.to_vec();
        match kind {
            MutationKind::ClearRange => second.splice(..0, prefix.iter().copied()).for_each(drop),
            MutationKind::SetVersionstampedKey => {
                let offset = atomic::versionstamp_offset(mutation.first)
                    .ok_or(Error::client_invalid_operation)?;
                let moved = (offset + prefix.len()) as u32;
                let at = first.len() - size_of::<u32>();
                first[at..].copy_from_slice(&moved.to_le_bytes());
            }
            _ => check(mutation.first)?,
        }
        MutationRef::new(kind, &first, &second).pack(&mut packed);
    }
    MutationBatch::parse(packed.freeze()).ok_or(Error::internal_error)
}

impl TenantCluster {
    async fn commit_in(self: Rc<Self>, data: CommitData) -> Result<CommitReply> {
        let prefix = self.prefix(data.read_version).await?;
        let malformed = Error::client_invalid_operation;
        let reads = prefixed_ranges(&prefix, data.reads, Some(&self.map_key)).ok_or(malformed)?;
        let writes = prefixed_ranges(&prefix, data.writes, None).ok_or(malformed)?;
        let mutations = prefixed_mutations(&prefix, &data.mutations)?;
        let conflicts = data.conflicts.clone();
        let data = CommitData {
            reads,
            writes,
            mutations,
            ..data
        };
        let result = self.inner.commit(data).await;
        if let Some(conflicts) = conflicts {
            let strip = |key: &Key| key.strip_prefix(&prefix[..]).map(Bytes::copy_from_slice);
            let own =
                |range: &KeyRange| Some(KeyRange::new(strip(&range.begin)?, strip(&range.end)?));
            let stripped = conflicts.borrow().iter().filter_map(own).collect();
            *conflicts.borrow_mut() = stripped;
        }
        result
    }
}

/// The methods need shared ownership of the tenant, and the trait's methods do not give it.
impl Cluster for Rc<TenantCluster> {
    fn get_read_version(&self, flags: ReadVersionFlags) -> ClusterFuture<Version> {
        self.inner.get_read_version(flags)
    }

    fn get(&self, key: Key, version: Version) -> ClusterFuture<Option<Value>> {
        let tenant = self.clone();
        Box::pin(async move {
            if is_shared(&key) {
                return tenant.inner.get(key, version).await;
            }
            check(&key)?;
            let prefix = tenant.prefix(version).await?;
            tenant.inner.get(join(&prefix, &key), version).await
        })
    }

    fn get_together(&self, reads: Vec<(usize, Key)>, version: Version) -> Vec<PointResults> {
        let tenant = self.clone();
        vec![Box::pin(async move {
            let prefix = match tenant.prefix(version).await {
                Ok(prefix) => prefix,
                Err(error) => return reads.iter().map(|(i, _)| (*i, Err(error))).collect(),
            };
            let (mut allowed, mut results) = (Vec::new(), Vec::new());
            for (i, key) in reads {
                match check(&key) {
                    _ if is_shared(&key) => allowed.push((i, key)),
                    Ok(()) => allowed.push((i, join(&prefix, &key))),
                    Err(error) => results.push((i, Err(error))),
                }
            }
            let asked = tenant.inner.get_together(allowed, version);
            results.extend(plinth_runtime::join_all(asked).await.into_iter().flatten());
            results
        })]
    }

    fn get_range(&self, request: RangeRequest) -> ClusterFuture<RangeChunk> {
        let tenant = self.clone();
        Box::pin(async move {
            let prefix = tenant.prefix(request.version).await?;
            let end = request.end.clone().min(Bytes::from_static(SYSTEM_BEGIN));
            if request.begin >= end {
                return Ok(RangeChunk::default());
            }
            let request = RangeRequest {
                begin: join(&prefix, &request.begin),
                end: join(&prefix, &end),
                ..request
            };
            let mut chunk = tenant.inner.get_range(request).await?;
            for (key, _) in &mut chunk.rows {
                *key = key.slice(TENANT_PREFIX_BYTES..);
            }
            chunk.packed = chunk
                .packed
                .map(|rows| rows.without_prefix(TENANT_PREFIX_BYTES));
            Ok(chunk)
        })
    }

    fn get_key(
        &self,
        selector: KeySelector,
        keys_end: Key,
        version: Version,
    ) -> ClusterFuture<Key> {
        let tenant = self.clone();
        Box::pin(async move {
            let prefix = tenant.prefix(version).await?;
            let selector = KeySelector {
                key: join(&prefix, &selector.key),
                ..selector
            };
            let end = join(&prefix, &keys_end);
            let found = tenant.inner.get_key(selector, end.clone(), version).await?;
            Ok(if found < prefix {
                Key::new()
            } else if found >= end {
                keys_end
            } else {
                found.slice(TENANT_PREFIX_BYTES..)
            })
        })
    }

    fn commit(&self, data: CommitData) -> ClusterFuture<CommitReply> {
        Box::pin(self.clone().commit_in(data))
    }

    fn watch(&self, key: Key, value: Option<Value>, version: Version) -> ClusterFuture<()> {
        let tenant = self.clone();
        Box::pin(async move {
            check(&key)?;
            let prefix = tenant.prefix(version).await?;
            tenant
                .inner
                .watch(join(&prefix, &key), value, version)
                .await
        })
    }

    fn with_token(&self, token: &Token) -> Option<Rc<dyn Cluster>> {
        Some(Rc::new(Rc::new(TenantCluster {
            inner: self.inner.with_token(token)?,
            map_key: self.map_key.clone(),
            last_found: RefCell::default(),
        })))
    }

    fn describe(&self, subject: Subject) -> ClusterFuture<Option<Value>> {
        self.inner.describe(subject)
    }
}
