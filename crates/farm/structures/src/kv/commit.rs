//! The writes of a transaction, carried out in the tree.

use super::writes::{Own, Writes, fold};
use crate::btree::BTree;
use crate::error::Result;
use plinth_farm_memory::Objects;

/// Rows of a cleared range that are looked for at a time.
const ROWS: usize = 256;

pub async fn apply<O: Objects>(tree: &BTree, tx: &O, writes: &Writes) -> Result<()> {
    for range in writes.cleared() {
        let mut begin = range.begin;
        loop {
            let found = tree
                .range(tx, &begin, Some(&range.end), ROWS, false)
                .await?;
            for (key, _) in &found.rows {
                if !writes.is_written(key) {
                    tree.remove(tx, key).await?;
                }
            }
            match found.rows.last() {
                Some((last, _)) if found.more => begin = plinth_core::key::key_after(last),
                _ => break,
            }
        }
    }
    let mut rows = Vec::new();
    for (key, own) in writes.keys() {
        let value = match own {
            Own::Value(value) => value.clone(),
            Own::Operations(operations) => fold(operations, tree.get(tx, key).await?),
        };
        match value {
            Some(value) => rows.push((key, value)),
            None => {
                tree.remove(tx, key).await?;
            }
        }
    }
    tree.set_many(tx, &rows).await
}
