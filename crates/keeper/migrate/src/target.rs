//! The tree that an import fills.
//!
//! Rows are written by transactions that rely on the tree's record, so only one import writes, and none after its end.
//! Their zxids are plain numbers; the tree's base is chosen at the end, above all of them.

use crate::{Outcome, of_database};
use plinth_client::{Database, Transaction};
use plinth_core::{Error, Result};
use plinth_keeper::ANSWER_BYTES_MAX;
use plinth_keeper::setup::{self, Record};
use plinth_keeper::tree::node::{Data, Lifetime, Node, pzxid_row};
use plinth_keeper::tree::rows::{PIECE_BYTES, Rows};
use plinth_keeper::tree::totals::Totals;
use plinth_keeper::wire::Text;
use plinth_keeper::zxid::{PLACE_BITS, Zxids};
use plinth_runtime::sync::Permits;
use plinth_runtime::{join_all, random, spawn};
use std::rc::Rc;

/// Bytes after which a transaction takes no more nodes.
const BATCH_BYTES: usize = 500_000;
/// Transactions under way.
const BATCHES: usize = 8;
/// Longest data: a gateway must be able to send it, and a transaction to write it.
const DATA_BYTES_MAX: usize = 8 << 20;
/// What an answer has besides the data.
const ANSWER_BYTES: usize = 200;
/// How far the first zxid of the new tree is above the last one of the source: 100 s of versions.
const MARGIN: i64 = 100_000_000;
/// Longest way that zxids may have come: half of all, so that eight years are left.
const VERSIONS_MAX: i64 = 1 << 48;
/// Most entries and bytes of names of an access list that rows can hold.
const ACL_ENTRIES_MAX: usize = 1000;
const ACL_BYTES_MAX: usize = 32 << 10;

/// See the module.
#[derive(Clone)]
pub struct Target {
    pub database: Database,
    pub rows: Rc<Rows>,
    tree: Rc<str>,
    import: u64,
}

/// A node to write, or to remove.
pub type Put = (Text, Option<Node>);

fn there_already(tree: &str) -> String {
    format!("tree `{tree}' is there already; import into another one: --tree NAME")
}

impl Target {
    /// Looks before the source is asked.
    ///
    /// # Errors
    /// The tree is there.
    pub async fn check_absent(database: &Database, tree: &str) -> Outcome {
        let rows = Rows::new(tree);
        let record = database.run(async |transaction| setup::record(&transaction, &rows).await);
        match record.await.map_err(of_database)? {
            Some(Record::Whole(_)) => Err(there_already(tree)),
            _ => Ok(()),
        }
    }

    /// Begins an import. A tree that an earlier one left unfinished is begun again.
    ///
    /// # Errors
    /// The tree is there.
    pub async fn begin(database: &Database, tree: &str) -> Outcome<Target> {
        let rows = Rows::new(tree);
        let import = random::u64();
        let begun = database.run(async |transaction| {
            let record = setup::record(&transaction, &rows).await?;
            if matches!(record, Some(Record::Whole(_))) {
                return Ok(false);
            }
            setup::begin_import(&transaction, &rows, import);
            Ok(true)
        });
        match begun.await.map_err(of_database)? {
            true => Ok(Target {
                database: database.clone(),
                rows: Rc::new(rows),
                tree: tree.into(),
                import,
            }),
            false => Err(there_already(tree)),
        }
    }

    /// Writes nodes, several transactions at a time. A node may come again, but not twice in one call.
    ///
    /// # Errors
    /// A node has more than the keeper can hold, or another import has begun.
    pub async fn put(&self, nodes: Vec<Put>) -> Outcome {
        let mut batches: Vec<Vec<Put>> = Vec::new();
        let mut bytes = usize::MAX;
        for (path, node) in nodes {
            if let Some(node) = &node {
                check(&path, node)?;
            }
            let more = 200 + 3 * path.len() + node.as_ref().map_or(0, |node| node.data.len());
            if bytes > BATCH_BYTES {
                batches.push(Vec::new());
                bytes = 0;
            }
            bytes = bytes.saturating_add(more);
            let batch = batches.last_mut().expect("there is one");
            batch.push((path, node));
        }
        let permits = Rc::new(Permits::new(BATCHES));
        let writing = batches.into_iter().map(|batch| {
            let (target, permits) = (self.clone(), permits.clone());
            spawn("import", async move {
                let _permit = permits.take().await;
                target.write(&batch).await
            })
        });
        let outcomes = join_all(writing.collect::<Vec<_>>()).await;
        outcomes.into_iter().collect()
    }

    async fn write(&self, batch: &[Put]) -> Outcome {
        let written = self.database.run(async |transaction| {
            self.check_mine(&transaction).await?;
            for (path, node) in batch {
                write_node(&transaction, &self.rows, path, node.as_ref());
            }
            Ok(())
        });
        written.await.map_err(|error| self.line(error))
    }

    /// Writes what nodes know of their children, and their pzxids.
    pub async fn put_counts(&self, nodes: &[(Text, Node)]) -> Outcome {
        for some in nodes.chunks(2000) {
            let written = self.database.run(async |transaction| {
                self.check_mine(&transaction).await?;
                for (path, node) in some {
                    transaction.set(self.rows.counts(path), node.counts.to_bytes());
                }
                Ok(())
            });
            written.await.map_err(|error| self.line(error))?;
        }
        Ok(())
    }

    async fn check_mine(&self, transaction: &Transaction) -> Result<()> {
        match setup::record(transaction, &self.rows).await? {
            Some(Record::Importing(import)) if import == self.import => Ok(()),
            _ => Err(Error::operation_obsolete),
        }
    }

    fn line(&self, error: Error) -> String {
        match error {
            Error::operation_obsolete => format!(
                "tree `{}': another import has begun, so this one ends",
                self.tree
            ),
            _ => of_database(error),
        }
    }

    /// Makes the tree one that gateways open. All its later zxids are above `last_zxid`; `totals` are its nodes'.
    pub async fn finish(&self, last_zxid: i64, totals: Totals) -> Outcome {
        let since = (last_zxid >> PLACE_BITS) + MARGIN;
        if since > VERSIONS_MAX {
            return Err(format!(
                "the source's last zxid is {last_zxid:#x}; the keeper's would reach their end within eight years"
            ));
        }
        let finished = self.database.run(async |transaction| {
            // After a commit of an unknown outcome it may be done.
            if matches!(
                setup::record(&transaction, &self.rows).await?,
                Some(Record::Whole(_))
            ) {
                return Ok(());
            }
            self.check_mine(&transaction).await?;
            let version = transaction.get_read_version().await?;
            let zxids = Zxids {
                base: version - since,
            };
            setup::end_import(&transaction, &self.rows, &self.tree, zxids, totals).await
        });
        finished.await.map_err(|error| self.line(error))
    }
}

/// Fails if the keeper cannot hold the node, or its gateways cannot send it.
fn check(path: &str, node: &Node) -> Outcome {
    let max = DATA_BYTES_MAX.min(ANSWER_BYTES_MAX.get().saturating_sub(ANSWER_BYTES));
    let bytes = node.data.len();
    if bytes > max {
        return Err(format!(
            "{path}: it has {bytes} bytes of data; the keeper can have at most {max}, 8 MiB or what \
            keeper_answer_bytes_max allows"
        ));
    }
    let names = node
        .acl
        .iter()
        .map(|entry| entry.scheme.len() + entry.id.len());
    if node.acl.len() > ACL_ENTRIES_MAX || names.sum::<usize>() > ACL_BYTES_MAX {
        return Err(format!(
            "{path}: its access list has more than {ACL_ENTRIES_MAX} entries or {ACL_BYTES_MAX} bytes of names"
        ));
    }
    Ok(())
}

/// Replaces everything of a node. It must not be ephemeral.
fn write_node(transaction: &Transaction, rows: &Rows, path: &str, node: Option<&Node>) {
    let (around, data) = (rows.around_node(path), rows.data(path));
    transaction.clear_range(around.begin, around.end);
    transaction.clear_range(data.begin, data.end);
    transaction.clear(rows.timed(path));
    let Some(node) = node else { return };
    transaction.set(rows.node(path), node.to_row().0);
    if node.counts != Default::default() {
        transaction.set(rows.counts(path), node.counts.to_bytes());
    }
    if node.pzxid != node.czxid {
        transaction.set(rows.pzxid(path), pzxid_row(node.pzxid).0);
    }
    if matches!(node.lifetime, Lifetime::Container | Lifetime::Ttl(_)) {
        transaction.set(rows.timed(path), b"");
    }
    if let Data::Here(data) = &node.data
        && node.data.is_long()
    {
        for (number, piece) in (0..).zip(data.chunks(PIECE_BYTES)) {
            transaction.set(rows.data_piece(path, number), piece);
        }
    }
}
