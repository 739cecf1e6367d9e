//! Cycle: nodes that form a ring; every transaction swaps three pointers. A single loss of isolation or atomicity
//! breaks the ring into several for good.

use super::{Boxed, Day, Space, Verdict, Workload, number, read_rows, until_done};
use plinth_client::{Database, Transaction};
use plinth_core::{Key, Result};
use plinth_runtime::random;

pub struct Cycle {
    space: Space,
    nodes: u64,
}

impl Cycle {
    pub fn new(space: Space) -> Self {
        let nodes = random::range(4..40);
        Cycle { space, nodes }
    }

    fn key(&self, node: u64) -> Key {
        self.space.key(node, self.nodes)
    }

    async fn next(&self, tr: &Transaction, node: u64) -> Result<u64> {
        let value = tr.get(self.key(node), false).await?;
        Ok(number(&value.expect("every node points somewhere")) as u64)
    }
}

impl Workload for Cycle {
    super::kind!("cycle", |space, _| Cycle::new(space));

    fn setup(&self, database: Database) -> Boxed<'_, ()> {
        Box::pin(async move {
            until_done(&database, async |tr| {
                for node in 0..self.nodes {
                    tr.set(self.key(node), ((node + 1) % self.nodes).to_string());
                }
                Ok(())
            })
            .await
        })
    }

    fn work(&self, database: Database, _: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(day.fill(async move || {
            let first = random::below(self.nodes);
            until_done(&database, async |tr| {
                // first → second → third → fourth becomes first → third → second → fourth.
                let second = self.next(&tr, first).await?;
                let third = self.next(&tr, second).await?;
                let fourth = self.next(&tr, third).await?;
                tr.set(self.key(first), third.to_string());
                tr.set(self.key(third), second.to_string());
                tr.set(self.key(second), fourth.to_string());
                Ok(())
            })
            .await;
        }))
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let rows = read_rows(&database, self.space).await;
            if rows.len() as u64 != self.nodes {
                return Err(format!("{} of {} nodes are there", rows.len(), self.nodes));
            }
            let (mut node, mut steps) = (0, 0);
            loop {
                node = number(&rows[node as usize].1);
                steps += 1;
                if !(0..self.nodes as i64).contains(&node) {
                    return Err(format!("a node points to {node}"));
                }
                if node == 0 {
                    break;
                }
                if steps > self.nodes {
                    return Err("the ring never comes back to its first node".into());
                }
            }
            if steps == self.nodes {
                Ok(())
            } else {
                Err(format!("the ring has {steps} of {} nodes", self.nodes))
            }
        })
    }
}
