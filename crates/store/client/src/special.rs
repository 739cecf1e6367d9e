//! The special keys, `\xff\xff…`: rows that no server stores. The client produces them when they are read. Writes to
//! them become reads and writes of the same transaction when it commits.
//!
//! ```text
//! \xff\xff/cluster_file_path
//! \xff\xff/connection_string
//! \xff\xff/error_message                                why the last write to a special key was refused, in JSON
//! \xff\xff/global_config/<key>                          settings for all clients         (to write: `global_config`)
//! \xff\xff/management/data_distribution/…                whether data is distributed      (to write: `distribution`)
//! \xff\xff/management/maintenance/<zone>                a zone whose servers are waited for (the same)
//! \xff\xff/management/tenant/map/<name>                 tenants                          (to write: `tenant`)
//! \xff\xff/management/tenant/rename/<name>              set: gives it the value as its name  (to write: `tenant`)
//! \xff\xff/status/json
//! \xff\xff/stream_append/<stream>                        set: appends the value            (to write: `streams`)
//! \xff\xff/stream_consumers/<stream>/<consumer>          positions of 12 bytes             (to write: `streams`)
//! \xff\xff/streams/<stream>/<position>                   entries of streams
//! \xff\xff/transaction/conflicting_keys/<key>           after a commit that asked for it
//! \xff\xff/transaction/read_conflict_range/<key>        of this transaction, so far
//! \xff\xff/transaction/write_conflict_range/<key>
//! \xff\xff/worker_interfaces/<address>
//! ```
//!
//! Sets of keys (the three of `transaction`) are written as their borders: `1` where one begins, `0` where it ends.
//!
//! Each part is a [`Module`], registered where its rows are produced, here or in another crate.

mod cluster;
mod distribution;
mod global_config;
mod management;
mod of_transaction;
mod streams;
mod tenants;

pub use crate::state::SpecialWrite;

use crate::range::{RangeOptions, RangeResult};
use crate::reader::Budget;
use crate::state::State;
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_core::key::{KeyRange, key_after, printable};
use plinth_core::{Error, Key, KeySelector, MutationKind, Result, Value};
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;

const BEGIN: &[u8] = b"\xff\xff";
const END: &[u8] = b"\xff\xff\xff";

pub type Rows = Vec<(Key, Value)>;
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// A part of the special keys. One range read must stay inside one module, unless the transaction relaxes that.
pub struct Module {
    pub begin: &'static [u8],
    pub end: &'static [u8],
    /// Produces the rows in order, at least those that are asked for.
    pub rows: for<'a> fn(&'a Transaction, &'a Asked) -> Boxed<'a, Rows>,
    /// The parts of the module that can be written.
    pub writable: &'static [Writable],
}

/// The rows that a read needs. A module may produce more.
pub struct Asked {
    /// Overlaps the module.
    pub within: KeyRange,
    /// The last rows are needed, not the first ones.
    pub reverse: bool,
    /// So many rows, or rows of so many bytes, suffice.
    pub rows_max: usize,
    pub bytes_max: usize,
}

/// A part of a module that can be written.
pub struct Writable {
    pub begin: &'static [u8],
    pub end: &'static [u8],
    /// Turns a write inside the part into reads and writes of the transaction, when that commits.
    pub apply: for<'a> fn(&'a Transaction, SpecialWrite) -> Boxed<'a, ()>,
}

/// Every module that is linked into this program. A crate adds one with
/// `#[linkme::distributed_slice(plinth_client::special::MODULES)]`.
#[linkme::distributed_slice]
pub static MODULES: [Module];

/// The modules in key order.
fn modules() -> &'static [&'static Module] {
    static SORTED: OnceLock<Vec<&'static Module>> = OnceLock::new();
    SORTED.get_or_init(|| {
        let mut sorted: Vec<&Module> = MODULES.iter().collect();
        sorted.sort_unstable_by_key(|module| module.begin);
        for pair in sorted.windows(2) {
            assert!(
                pair[0].end <= pair[1].begin,
                "the modules of the special keys at {} and {} overlap",
                printable(pair[0].begin),
                printable(pair[1].begin)
            );
        }
        sorted
    })
}

pub(crate) fn is_special(key: &[u8]) -> bool {
    key.starts_with(BEGIN)
}

fn module_of(key: &[u8]) -> Option<&'static Module> {
    let holds = |module: &&&Module| (module.begin..module.end).contains(&key);
    modules().iter().find(holds).copied()
}

/// The row of a module with a single key.
fn single(key: &'static [u8], value: Option<Value>) -> Rows {
    let row = value.map(|value| (Bytes::from_static(key), value));
    row.into_iter().collect()
}

// ---- reads ----

pub(crate) async fn get(transaction: Transaction, key: Key) -> Result<Option<Value>> {
    let module = module_of(&key).ok_or(Error::special_keys_no_module_found)?;
    let asked = Asked {
        within: KeyRange::single(&key),
        reverse: false,
        rows_max: 1,
        bytes_max: usize::MAX,
    };
    let rows = (module.rows)(&transaction, &asked).await?;
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
    let budget = options.budget()?;
    let domain = if transaction
        .inner
        .state
        .borrow()
        .options
        .special_keys_relaxed
    {
        KeyRange::new(BEGIN, END)
    } else {
        let module = module_of(&begin.key).ok_or(Error::special_keys_no_module_found)?;
        let domain = KeyRange::new(module.begin, module.end);
        if end.key < domain.begin || end.key > domain.end {
            return Err(Error::special_keys_cross_module_read);
        }
        domain
    };
    let plain = |selector: &KeySelector| selector.offset == 1;
    let key_of = |selector: &KeySelector| match selector.or_equal {
        true => key_after(&selector.key),
        false => selector.key.clone(),
    };
    let is_plain = plain(&begin) && plain(&end);
    let within = if is_plain {
        let asked = KeyRange::new(key_of(&begin), key_of(&end));
        match asked.intersection(&domain) {
            Some(within) => within,
            None => return Ok(RangeResult::default()),
        }
    } else {
        domain
    };
    // One row more than the limit tells that there is more. Other selectors count rows from either end.
    let asked = Asked {
        within: within.clone(),
        reverse: options.reverse,
        rows_max: if is_plain {
            budget.rows.saturating_add(1)
        } else {
            usize::MAX
        },
        bytes_max: if is_plain { budget.bytes } else { usize::MAX },
    };
    let mut rows = Rows::new();
    for module in modules() {
        if KeyRange::new(module.begin, module.end).intersects(&within) {
            rows.extend((module.rows)(&transaction, &asked).await?);
        }
    }
    rows.retain(|(key, _)| within.contains(key));
    Ok(chosen(&rows, &begin, &end, options.reverse, budget))
}

/// The rows between two selectors, as far as the budget goes.
fn chosen(
    rows: &[(Key, Value)],
    begin: &KeySelector,
    end: &KeySelector,
    reverse: bool,
    mut budget: Budget,
) -> RangeResult {
    let place = |selector: &KeySelector| {
        let before = rows.partition_point(|(key, _)| {
            *key < selector.key || selector.or_equal && *key == selector.key
        });
        (before as i64 + i64::from(selector.offset) - 1).clamp(0, rows.len() as i64) as usize
    };
    let (from, to) = (place(begin), place(end));
    let chosen = rows.get(from..to).unwrap_or_default().iter().cloned();
    let mut ordered: Rows = chosen.collect();
    if reverse {
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
    result
}

// ---- writes ----

fn check_writable(state: &State) -> Result<()> {
    state.check_not_committing()?;
    if state.options.special_keys_writable {
        Ok(())
    } else {
        Err(Error::special_keys_write_disabled)
    }
}

/// The writable part that holds the key.
fn writable(key: &[u8]) -> Option<&'static Writable> {
    let mut parts = module_of(key)?.writable.iter();
    parts.find(|part| (part.begin..part.end).contains(&key))
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
    if end > part.end {
        return Err(Error::special_keys_cross_module_clear);
    }
    let range = KeyRange::new(Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
    state.special_writes.push(SpecialWrite::Clear(range));
    Ok(())
}

pub(crate) fn take_writes(transaction: &Transaction) -> Vec<SpecialWrite> {
    std::mem::take(&mut transaction.inner.state.borrow_mut().special_writes)
}

/// Turns the writes to the special keys into reads and writes of the transaction.
pub(crate) async fn apply(transaction: &Transaction, writes: Vec<SpecialWrite>) -> Result<()> {
    for write in writes {
        let key = match &write {
            SpecialWrite::Set(key, _) => key,
            SpecialWrite::Clear(range) => &range.begin,
        };
        let part = writable(key).expect("it was checked when it was called");
        let result = (part.apply)(transaction, write).await;
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
