//! `\xff\xff/counters/<name>`: the counters as text, for whoever looks at the database with a client of the store.

use crate::server::{COUNTERS, COUNTERS_END, number};
use bytes::Bytes;
use plinth_client::special::{Asked, Boxed, MODULES, Module, Rows};
use plinth_client::{RangeOptions, Transaction};
use plinth_core::{KeyRange, Value};

const BEGIN: &[u8] = b"\xff\xff/counters/";
const END: &[u8] = b"\xff\xff/counters0";

#[linkme::distributed_slice(MODULES)]
static OF_COUNTERS: Module = Module {
    begin: BEGIN,
    end: END,
    rows,
    writable: &[],
};

/// The rows are read where the counters are stored, in the same transaction.
fn rows<'a>(transaction: &'a Transaction, asked: &'a Asked) -> Boxed<'a, Rows> {
    let stored = |key: &Bytes| match key.strip_prefix(BEGIN) {
        Some(name) => [COUNTERS.as_bytes(), name].concat(),
        None if key[..] < *BEGIN => COUNTERS.into(),
        None => COUNTERS_END.into(),
    };
    Box::pin(async move {
        let range = KeyRange::new(stored(&asked.within.begin), stored(&asked.within.end));
        let found = transaction
            .get_rows(range, RangeOptions::default(), false)
            .await?;
        let row = |(key, value): (Bytes, Value)| {
            let name = &key[COUNTERS.len()..];
            let text = number(Some(&value)).to_string();
            (Bytes::from([BEGIN, name].concat()), Value::from(text))
        };
        Ok(found.into_iter().map(row).collect())
    })
}
