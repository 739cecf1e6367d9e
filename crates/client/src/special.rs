//! The special keys, `\xff\xff…`: rows that no server stores. The client makes them up when they are read, and what is
//! written to them is carried out, as reads and writes of the same transaction, when it commits.
//!
//! ```text
//! \xff\xff/cluster_file_path
//! \xff\xff/connection_string
//! \xff\xff/error_message                                what the last refused write to a special key did wrong, in JSON
//! \xff\xff/global_config/<key>                          what clients agree on            (to write: `global_config`)
//! \xff\xff/management/tenant/map/<name>                 tenants                          (to write: `tenant`)
//! \xff\xff/status/json
//! \xff\xff/transaction/conflicting_keys/<key>           after a commit that asked for it
//! \xff\xff/transaction/read_conflict_range/<key>        of this transaction, so far
//! \xff\xff/transaction/write_conflict_range/<key>
//! \xff\xff/worker_interfaces/<address>
//! ```
//!
//! Sets of keys (the three of `transaction`) are written as their borders: `1` where one begins, `0` where it ends.

mod global_config;

use crate::range::{RangeOptions, RangeResult};
use crate::source::Subject;
use crate::tenant;
use crate::transaction::{State, Transaction};
use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_core::{Error, Key, KeySelector, MutationKind, Result, Value};

const BEGIN: &[u8] = b"\xff\xff";
const END: &[u8] = b"\xff\xff\xff";
const TENANT_MAP: &[u8] = b"\xff\xff/management/tenant/map/";
const TENANT_MAP_END: &[u8] = b"\xff\xff/management/tenant/map0";
const GLOBAL_CONFIG: &[u8] = b"\xff\xff/global_config/";
const GLOBAL_CONFIG_END: &[u8] = b"\xff\xff/global_config0";
const CONFLICTING: &[u8] = b"\xff\xff/transaction/conflicting_keys/";
const READ_CONFLICTS: &[u8] = b"\xff\xff/transaction/read_conflict_range/";
const WRITE_CONFLICTS: &[u8] = b"\xff\xff/transaction/write_conflict_range/";
const WORKERS: &[u8] = b"\xff\xff/worker_interfaces/";

/// What one range read may not leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Module {
    ClusterFilePath,
    ConnectionString,
    ErrorMessage,
    GlobalConfig,
    Management,
    Status,
    Transaction,
    Workers,
}

/// In the order of the keys.
const MODULES: [(&[u8], &[u8], Module); 8] = [
    (
        b"\xff\xff/cluster_file_path",
        b"\xff\xff/cluster_file_path\0",
        Module::ClusterFilePath,
    ),
    (
        b"\xff\xff/connection_string",
        b"\xff\xff/connection_string\0",
        Module::ConnectionString,
    ),
    (
        b"\xff\xff/error_message",
        b"\xff\xff/error_message\0",
        Module::ErrorMessage,
    ),
    (GLOBAL_CONFIG, GLOBAL_CONFIG_END, Module::GlobalConfig),
    (
        b"\xff\xff/management/",
        b"\xff\xff/management0",
        Module::Management,
    ),
    (
        b"\xff\xff/status/json",
        b"\xff\xff/status/json\0",
        Module::Status,
    ),
    (
        b"\xff\xff/transaction/",
        b"\xff\xff/transaction0",
        Module::Transaction,
    ),
    (WORKERS, b"\xff\xff/worker_interfaces0", Module::Workers),
];

type Rows = Vec<(Key, Value)>;

pub(crate) fn is_special(key: &[u8]) -> bool {
    key.starts_with(BEGIN)
}

fn module_of(key: &[u8]) -> Option<(KeyRange, Module)> {
    let (begin, end, module) = MODULES
        .iter()
        .find(|(begin, end, _)| (*begin..*end).contains(&key))?;
    Some((KeyRange::new(*begin, *end), *module))
}

// ---- reads ----

pub(crate) async fn get(transaction: Transaction, key: Key) -> Result<Option<Value>> {
    let (_, module) = module_of(&key).ok_or(Error::special_keys_no_module_found)?;
    let rows = rows_of(&transaction, module, &KeyRange::single(&key)).await?;
    let found = rows.into_iter().find(|(at, _)| *at == key);
    Ok(found.map(|(_, value)| value))
}

/// Selectors stay inside the module; with `special_key_space_relaxed`, inside the special keys.
pub(crate) async fn get_range(
    transaction: Transaction,
    begin: KeySelector,
    end: KeySelector,
    options: RangeOptions,
) -> Result<RangeResult> {
    let mut budget = options.budget()?;
    let domain = if transaction
        .inner
        .state
        .borrow()
        .options
        .special_keys_relaxed
    {
        KeyRange::new(BEGIN, END)
    } else {
        let (domain, _) = module_of(&begin.key).ok_or(Error::special_keys_no_module_found)?;
        if end.key < domain.begin || end.key > domain.end {
            return Err(Error::special_keys_cross_module_read);
        }
        domain
    };
    let plain = |selector: &KeySelector| !selector.or_equal && selector.offset == 1;
    let within = if plain(&begin) && plain(&end) {
        let asked = KeyRange::new(begin.key.clone(), end.key.clone());
        match asked.intersection(&domain) {
            Some(within) => within,
            None => return Ok(RangeResult::default()),
        }
    } else {
        domain
    };
    let mut rows = Rows::new();
    for (begin, end, module) in MODULES {
        if KeyRange::new(begin, end).intersects(&within) {
            rows.extend(rows_of(&transaction, module, &within).await?);
        }
    }
    rows.retain(|(key, _)| within.contains(key));
    let place = |selector: &KeySelector| {
        let before = rows.partition_point(|(key, _)| {
            *key < selector.key || selector.or_equal && *key == selector.key
        });
        (before as i64 + i64::from(selector.offset) - 1).clamp(0, rows.len() as i64) as usize
    };
    let (from, to) = (place(&begin), place(&end));
    let chosen = rows.get(from..to).unwrap_or_default().iter().cloned();
    let mut ordered: Rows = chosen.collect();
    if options.reverse {
        ordered.reverse();
    }
    let mut result = RangeResult::default();
    for (key, value) in ordered {
        if budget.is_spent() {
            result.more = true;
            break;
        }
        budget.spend(&key, &value);
        result.rows.push((key, value));
    }
    Ok(result)
}

/// The rows of the module, in order: at least those that are `within`.
async fn rows_of(transaction: &Transaction, module: Module, within: &KeyRange) -> Result<Rows> {
    let single = |value: Option<Value>| -> Rows {
        let begin = MODULES.iter().find(|(_, _, m)| *m == module);
        let key = Bytes::from_static(begin.expect("every module is listed").0);
        value.map(|value| (key, value)).into_iter().collect()
    };
    let cluster = transaction.database().cluster();
    match module {
        Module::ClusterFilePath => Ok(single(
            transaction.database().cluster_file_path().map(Value::from),
        )),
        Module::ConnectionString => Ok(single(cluster.describe(Subject::ConnectionString).await?)),
        Module::Status => Ok(single(cluster.describe(Subject::Status).await?)),
        Module::ErrorMessage => {
            let message = transaction.inner.state.borrow().special_error.clone();
            Ok(single(message.map(Value::from)))
        }
        Module::Workers => {
            let status = cluster.describe(Subject::Status).await?;
            Ok(workers(&status.unwrap_or_default()))
        }
        Module::Transaction => Ok(conflicts(transaction)),
        Module::GlobalConfig => global_config::rows(transaction, within).await,
        Module::Management => match within.intersection(&KeyRange::new(TENANT_MAP, TENANT_MAP_END))
        {
            Some(part) => tenants(transaction, &part).await,
            None => Ok(Rows::new()),
        },
    }
}

/// An address is its own interface: there is nothing to be reached behind it but what the address says.
fn workers(status: &[u8]) -> Rows {
    let status: serde_json::Value = serde_json::from_slice(status).unwrap_or_default();
    let processes = status["cluster"]["processes"].as_object();
    let addresses = processes
        .into_iter()
        .flat_map(|all| all.values())
        .filter_map(|process| process["address"].as_str());
    let mut rows: Rows = addresses
        .map(|address| {
            let key = Bytes::from([WORKERS, address.as_bytes()].concat());
            (key, Value::from(address.to_owned()))
        })
        .collect();
    rows.sort();
    rows
}

fn conflicts(transaction: &Transaction) -> Rows {
    let mut state = transaction.inner.state.borrow_mut();
    let version = state.stamp_version_min();
    let mut conflicting = state.attempt.conflicting().borrow().clone();
    conflicting.sort();
    let mut rows = borders(CONFLICTING, conflicting.into_iter());
    rows.extend(borders(READ_CONFLICTS, state.attempt.sorted_reads().iter()));
    let written = state.log.write_conflicts(version);
    rows.extend(borders(WRITE_CONFLICTS, written.iter()));
    rows
}

/// Ranges in order, as their borders; those that touch or overlap are one.
fn borders(prefix: &[u8], ranges: impl Iterator<Item = KeyRange>) -> Rows {
    let mut merged: Vec<KeyRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.end >= range.begin => {
                last.end = range.end.max(last.end.clone());
            }
            _ => merged.push(range),
        }
    }
    let row = |key: &[u8], value: &'static [u8]| {
        let key = Bytes::from([prefix, key].concat());
        (key, Value::from_static(value))
    };
    merged
        .iter()
        .flat_map(|range| [row(&range.begin, b"1"), row(&range.end, b"0")])
        .collect()
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

// ---- writes ----

/// A write to the special keys, as it was called.
#[derive(Clone, Debug)]
pub(crate) enum SpecialWrite {
    Set(Key, Value),
    Clear(KeyRange),
}

fn check_writable(state: &State) -> Result<()> {
    state.check_not_committing()?;
    if state.options.special_keys_writable {
        Ok(())
    } else {
        Err(Error::special_keys_write_disabled)
    }
}

/// The writable part that holds the key.
fn writable(key: &[u8]) -> Option<KeyRange> {
    [
        (TENANT_MAP, TENANT_MAP_END),
        (GLOBAL_CONFIG, GLOBAL_CONFIG_END),
    ]
    .map(|(begin, end)| KeyRange::new(begin, end))
    .into_iter()
    .find(|part| part.contains(key))
}

pub(crate) fn write(state: &mut State, kind: MutationKind, key: &[u8], value: &[u8]) -> Result<()> {
    check_writable(state)?;
    if kind != MutationKind::Set {
        return Err(Error::invalid_mutation_type);
    }
    writable(key).ok_or(Error::special_keys_no_write_module_found)?;
    let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
    state.special_writes.push(SpecialWrite::Set(key, value));
    Ok(())
}

pub(crate) fn clear(state: &mut State, begin: &[u8], end: &[u8]) -> Result<()> {
    check_writable(state)?;
    if begin > end {
        return Err(Error::inverted_range);
    }
    let part = writable(begin).ok_or(Error::special_keys_no_write_module_found)?;
    if *end > part.end[..] {
        return Err(Error::special_keys_cross_module_clear);
    }
    let range = KeyRange::new(Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
    state.special_writes.push(SpecialWrite::Clear(range));
    Ok(())
}

pub(crate) fn take_writes(transaction: &Transaction) -> Vec<SpecialWrite> {
    std::mem::take(&mut transaction.inner.state.borrow_mut().special_writes)
}

/// Makes reads and writes of the transaction out of what was asked of the special keys.
pub(crate) async fn apply(transaction: &Transaction, writes: Vec<SpecialWrite>) -> Result<()> {
    for write in writes {
        let key = match &write {
            SpecialWrite::Set(key, _) => key,
            SpecialWrite::Clear(range) => &range.begin,
        };
        let result = if key.starts_with(TENANT_MAP) {
            apply_to_tenants(transaction, write).await
        } else {
            global_config::apply(transaction, write).await
        };
        if let Err(error) = result {
            let message = serde_json::json!({
                "retriable": error.is_retryable(), "command": "", "message": error.message(),
            });
            transaction.inner.state.borrow_mut().special_error = Some(message.to_string());
            return Err(error);
        }
    }
    Ok(())
}

async fn apply_to_tenants(transaction: &Transaction, write: SpecialWrite) -> Result<()> {
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
