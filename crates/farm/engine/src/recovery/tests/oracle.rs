//! What anybody has seen of transactions, and that it never changes.

use crate::recovery::{Fate, Id};
use std::collections::BTreeMap;

/// A transaction as the model knows it, whatever machines know.
pub struct Tx {
    pub id: Id,
    /// The configuration in which it began.
    pub began: u64,
    /// Regions and objects.
    pub writes: Vec<(u16, usize)>,
    pub written_at: Option<u64>,
    /// Seen by anybody outside: the coordinator's caller, or whoever may read an open region.
    pub seen: Option<Fate>,
}

#[derive(Default)]
pub struct Oracle {
    pub txs: BTreeMap<u64, Tx>,
}

impl Oracle {
    /// Somebody has seen what became of a transaction.
    pub fn see(&mut self, key: u64, fate: Fate, by: &str) -> Result<(), String> {
        let tx = self.txs.get_mut(&key).ok_or("a value of nobody")?;
        if let Fate::Committed { written_at } = fate
            && tx.written_at != Some(written_at)
        {
            return Err(format!("{by} sees {:?} at another timestamp", tx.id));
        }
        match tx.seen {
            Some(before) if before != fate => Err(format!(
                "{by} sees {:?} as {fate:?}, and it was {before:?}",
                tx.id
            )),
            _ => {
                tx.seen = Some(fate);
                Ok(())
            }
        }
    }

    pub fn key_of(&self, id: Id) -> Option<u64> {
        let found = self.txs.iter().find(|(_, tx)| tx.id == id);
        found.map(|(key, _)| *key)
    }

    /// What an object must be in the end: the newest of what is committed.
    pub fn newest(&self, region: u16, object: usize) -> (u64, u64) {
        let writers = self
            .txs
            .iter()
            .filter(|(_, tx)| tx.writes.contains(&(region, object)));
        let committed = writers.filter_map(|(key, tx)| match tx.seen {
            Some(Fate::Committed { written_at }) => Some((written_at, *key)),
            _ => None,
        });
        committed.max().unwrap_or_default()
    }
}
