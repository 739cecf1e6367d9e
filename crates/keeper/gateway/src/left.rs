//! What there is of a tree, for operators: also of one that somebody has cleared.

use crate::ahead;
use crate::contact::hold;
use crate::gone::Gone;
use crate::life::{address_in, said_in};
use crate::setup;
use crate::store::Most;
use crate::stored::read_page;
use crate::tree::rows::Rows;
use crate::tree::totals::Totals;
use bytes::Bytes;
use plinth_client::{Database, Transaction};
use plinth_core::key::KeyRange;
use plinth_core::similar::question;
use plinth_core::{Error, Result};
use plinth_runtime::{Boxed, now, sleep};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Bytes of rows that are read at one version.
const PAGE_BYTES: usize = 1 << 20;

/// How much of a tree there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Whole,
    /// There is nothing of such a tree.
    Absent,
    /// An import has not ended.
    Importing,
    Gone(Gone),
    /// There is a record that cannot be read.
    Unreadable,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Whole => "whole",
            State::Absent => "there is none",
            State::Importing => "its import has not ended",
            State::Gone(Gone::Root) => "gone: there is no root node",
            State::Gone(Gone::Stream) => "its stream of changes is missing",
            State::Gone(Gone::Foreign) => "its rows are damaged, or of another cluster",
            State::Gone(_) => "gone: there is no record",
            State::Unreadable => "its record is damaged, or of a newer release",
        })
    }
}

/// What there is of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    pub state: State,
    /// Of the rows that there are.
    pub counted: Counted,
    /// What the tree's own numbers say.
    pub totals: Totals,
    /// Where the gateways are reached that have a lease.
    pub gateways: Vec<String>,
    pub has_stream: bool,
}

/// Numbers of rows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    pub nodes: u64,
    pub ephemerals: u64,
    pub sessions: u64,
}

/// Counts what there is of a tree, while gateways serve. Rows that come or go meanwhile may be counted or not.
pub fn look<'a>(database: &'a Database, tree: &'a str) -> Boxed<'a, Result<Left>> {
    Box::pin(async move {
        let rows = Rows::new(tree);
        let looked = database.run(async |transaction| {
            let has_stream = setup::has_stream(&transaction, tree).await?;
            let state = state(&transaction, &rows, has_stream).await?;
            let mut totals = Totals::default();
            let found = read_page(&transaction, rows.totals(), Most::ALL).await?;
            let found = found.rows.iter();
            found.for_each(|(key, row)| totals.take_row(key, row));
            Ok((has_stream, state, totals))
        });
        let (has_stream, mut state, totals) = looked.await?;
        if is_foreign(database, &rows, tree, state).await? {
            state = State::Gone(Gone::Foreign);
        }
        // A gateway that was killed and started again has two leases until the former one is cleaned up.
        let leases = leases(database, &rows).await?;
        let gateways: BTreeSet<String> = leases.iter().map(|(_, row)| address_in(row)).collect();
        let counted = Counted {
            nodes: count(database, rows.all_nodes(), Rows::is_node).await?,
            ephemerals: count(database, rows.all_ephemerals(), |_| true).await?,
            sessions: count(database, rows.all_sessions(), |_| true).await?,
        };
        Ok(Left {
            state,
            counted,
            totals,
            gateways: gateways.into_iter().collect(),
            has_stream,
        })
    })
}

/// True if the nodes of a tree that gateways do not serve yet are of another cluster.
async fn is_foreign(database: &Database, rows: &Rows, tree: &str, state: State) -> Result<bool> {
    let reading = database.run(async |transaction| {
        let is_new = match state {
            State::Gone(Gone::Stream) => true,
            State::Whole => {
                let opened = setup::open_existing(&transaction, rows, tree).await?;
                opened.is_some_and(|opened| opened.is_stream_empty)
            }
            _ => false,
        };
        match setup::record(&transaction, rows).await {
            Ok(Some(setup::Record::Whole(zxids))) if is_new => Ok(Some(zxids)),
            _ => Ok(None),
        }
    });
    match reading.await? {
        Some(zxids) => ahead::is_ahead(database, rows, zxids).await,
        None => Ok(false),
    }
}

/// Only the state, which is read at once.
///
/// # Errors
/// Those of the database.
pub fn state_of<'a>(database: &'a Database, tree: &'a str) -> Boxed<'a, Result<State>> {
    Box::pin(async move {
        let rows = Rows::new(tree);
        let looking = database.run(async |transaction| {
            let has_stream = setup::has_stream(&transaction, tree).await?;
            state(&transaction, &rows, has_stream).await
        });
        looking.await
    })
}

/// Where the gateways are reached that serve the tree now: those whose leases change. A gateway that was killed leaves
/// its lease.
///
/// # Errors
/// Those of the database.
pub fn serving<'a>(database: &'a Database, tree: &'a str) -> Boxed<'a, Result<Vec<String>>> {
    Box::pin(async move { Ok(alive(database, tree).await?.into_keys().collect()) })
}

/// The gateways that serve the tree now, with what they should have in common; empty of one that does not say.
///
/// # Errors
/// Those of the database.
pub fn alive<'a>(
    database: &'a Database,
    tree: &'a str,
) -> Boxed<'a, Result<BTreeMap<String, String>>> {
    Box::pin(async move {
        let rows = Rows::new(tree);
        let first = leases(database, &rows).await?;
        // Longer than two beats of any gateway.
        let until = now() + 2 * hold();
        let mut alive = BTreeMap::new();
        while alive.len() < first.len() && now() < until {
            sleep(hold() / 4).await;
            let later = leases(database, &rows).await?;
            let changed = later.into_iter().filter(|lease| !first.contains(lease));
            alive.extend(changed.map(|(_, row)| said_in(&row)));
        }
        Ok(alive)
    })
}

/// The names of all trees of which something is there.
///
/// # Errors
/// Those of the database.
pub fn trees(database: &Database) -> Boxed<'_, Result<Vec<String>>> {
    Box::pin(async move {
        let looking = database.run(async |transaction| {
            let mut names = setup::streams(&transaction).await?;
            let (mut begin, end) = Rows::of_all_trees();
            loop {
                let range = KeyRange::new(begin, end.clone());
                let first = read_page(
                    &transaction,
                    range,
                    Most {
                        rows: 1,
                        ..Most::ALL
                    },
                )
                .await?;
                let Some((key, _)) = first.rows.first() else {
                    return Ok(names);
                };
                let (name, behind) = Rows::tree_of(key);
                begin = behind;
                names.extend(name);
            }
        });
        Ok(looking.await?.into_iter().collect())
    })
}

/// The line about a tree that is not there, with the one that was meant.
pub fn none_such<'a>(database: &'a Database, tree: &'a str) -> Boxed<'a, String> {
    Box::pin(async move {
        let trees = trees(database).await.unwrap_or_default();
        let meant = question(tree, trees.iter().map(String::as_str));
        format!("there is no tree `{tree}'; {meant}`plinth keeper list' shows those there are")
    })
}

/// The rows of the gateways.
async fn leases(database: &Database, rows: &Rows) -> Result<Vec<(Bytes, Bytes)>> {
    let reading = database.run(async |transaction| {
        let page = read_page(&transaction, rows.all_gateways(), Most::ALL).await?;
        Ok(page.rows)
    });
    reading.await
}

async fn state(transaction: &Transaction, rows: &Rows, has_stream: bool) -> Result<State> {
    let version = transaction.get_read_version().await?;
    let has_root = transaction.get(rows.node("/"), true).await?.is_some();
    Ok(match setup::record(transaction, rows).await {
        Ok(Some(setup::Record::Importing(_))) => State::Importing,
        Ok(Some(setup::Record::Whole(zxids))) if zxids.base > version => State::Gone(Gone::Foreign),
        Ok(Some(setup::Record::Whole(_))) if !has_root => State::Gone(Gone::Root),
        Ok(Some(setup::Record::Whole(_))) if !has_stream => State::Gone(Gone::Stream),
        Ok(Some(setup::Record::Whole(_))) => State::Whole,
        Ok(None) if has_stream || setup::has_rows(transaction, rows).await? => {
            State::Gone(Gone::Record)
        }
        Ok(None) => State::Absent,
        Err(Error::file_corrupt | Error::unsupported_format_version) => State::Unreadable,
        Err(error) => return Err(error),
    })
}

/// Each part is counted at the version of its time.
async fn count(
    database: &Database,
    mut range: KeyRange,
    is_counted: impl Fn(&[u8]) -> bool,
) -> Result<u64> {
    let mut count = 0;
    loop {
        let part = async |transaction: Transaction| {
            read_page(&transaction, range.clone(), Most::bytes(PAGE_BYTES)).await
        };
        let page = database.run(part).await?;
        count += page.rows.iter().filter(|(key, _)| is_counted(key)).count() as u64;
        match page.rows.last() {
            Some((last, _)) if page.more => range.begin = [&last[..], b"\0"].concat().into(),
            _ => return Ok(count),
        }
    }
}

/// What came of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removed {
    Done,
    /// There was nothing of such a tree.
    Nothing,
    /// Its nodes are there, and stay.
    Whole,
}

/// Removes what is left of a tree, so that the next gateway makes a new one; with `is_whole_too`, also a tree that has
/// its nodes.
///
/// # Errors
/// Those of the database.
pub fn remove<'a>(
    database: &'a Database,
    tree: &'a str,
    is_whole_too: bool,
) -> Boxed<'a, Result<Removed>> {
    Box::pin(async move {
        let rows = Rows::new(tree);
        // An attempt whose answer was lost may have removed it.
        let mut removed = Removed::Nothing;
        let removing = database.run(async |transaction| {
            let has_stream = setup::has_stream(&transaction, tree).await?;
            let has_root = transaction.get(rows.node("/"), true).await?.is_some();
            match state(&transaction, &rows, has_stream).await? {
                State::Absent => return Ok(()),
                State::Importing => removed = Removed::Done,
                _ if has_root && !is_whole_too => {
                    removed = Removed::Whole;
                    return Ok(());
                }
                _ => removed = Removed::Done,
            }
            let all = rows.all();
            transaction.clear_range(all.begin, all.end);
            match has_stream {
                true => setup::drop_stream(&transaction, tree).await,
                false => Ok(()),
            }
        });
        removing.await?;
        Ok(removed)
    })
}
