//! Where the table lies in a database: below a prefix of its own, with a mark that tells how large it is, and whether
//! all of it is there. A run that has made a table clears it. The mark of one that was killed tells the next run.

use crate::table::{KEYS, MARK};
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_core::key::printable;
use plinth_core::{Error, Key, KeyRange, Result};
use plinth_runtime::{Duration, Either, race, sleep};

/// Looks and marks take no longer than this.
const LIMIT: Duration = Duration::from_secs(30);
const LOADING: &str = "loading";
const LOADED: &str = "loaded";

/// The statement that clears the table.
pub fn clearing() -> String {
    let [begin, end] = KEYS.map(printable);
    format!("writemode on; clearrange {begin} {end}")
}

/// What the database has.
struct Found {
    mark: Option<String>,
    /// The first key below the prefix.
    below: Option<Key>,
    /// The first key elsewhere.
    other: Option<Key>,
}

async fn first(transaction: &Transaction, begin: &[u8], end: &[u8]) -> Result<Option<Key>> {
    let range = KeyRange::new(Key::copy_from_slice(begin), Key::copy_from_slice(end));
    let rows = transaction.get_rows(range, RangeOptions::limit(1), true);
    Ok(rows.await?.into_iter().next().map(|(key, _)| key))
}

async fn find(transaction: &Transaction) -> Result<Found> {
    let [begin, end] = KEYS;
    let mark = transaction.get(MARK, true).await?;
    let other = match first(transaction, b"", begin).await? {
        None => first(transaction, end, b"\xff").await?,
        before => before,
    };
    Ok(Found {
        mark: mark.map(|mark| String::from_utf8_lossy(&mark).into_owned()),
        below: first(transaction, begin, end).await?,
        other,
    })
}

async fn answered<T>(work: impl Future<Output = Result<T>>) -> std::result::Result<T, String> {
    match race(work, sleep(LIMIT)).await {
        Either::Left(Ok(done)) => Ok(done),
        Either::Left(Err(error)) => Err(explain(error)),
        Either::Right(()) => Err("the database does not answer within 30 s".into()),
    }
}

fn explain(error: Error) -> String {
    format!("cannot use the database: {error}")
}

/// Whether the whole table of so many rows is there. `beside_others`: other keys may be there, too.
///
/// # Errors
/// The database has what a run has to leave alone. The error is one line.
pub async fn look(
    database: &Database,
    rows: u64,
    beside_others: bool,
) -> std::result::Result<bool, String> {
    let found = answered(database.run(async |t| find(&t).await)).await?;
    if let Some(key) = found.other.filter(|_| !beside_others) {
        return Err(format!(
            "the database has other data (the first key is {}): name another cluster with -C; --force measures \
             beside that data, and takes speed from those who use it",
            printable(&key)
        ));
    }
    let [begin, _] = KEYS.map(printable);
    match (found.mark, found.below) {
        (None, None) => Ok(false),
        (None, Some(key)) => Err(format!(
            "the key {} is there, and keys that begin with {begin} are those of `plinth bench run': name another \
             cluster with -C",
            printable(&key)
        )),
        (Some(mark), _) => match mark.split_once(' ') {
            Some((its, state)) if its == rows.to_string() => Ok(state == LOADED),
            _ => {
                let its = mark.split(' ').next().unwrap_or_default();
                let clears = clearing();
                Err(format!(
                    "the table of an earlier run is there: say --rows {its}, or clear it by `plinth cli --exec \
                     '{clears}''"
                ))
            }
        },
    }
}

/// Writes down that the table of so many rows is being loaded, or that it is there.
pub async fn mark(
    database: &Database,
    rows: u64,
    is_loaded: bool,
) -> std::result::Result<(), String> {
    let state = if is_loaded { LOADED } else { LOADING };
    let mark = format!("{rows} {state}");
    answered(database.run(async |t| {
        t.set(MARK, mark.as_bytes());
        Ok(())
    }))
    .await
}

/// Clears the table and its mark.
pub async fn clear(database: &Database) -> std::result::Result<(), String> {
    let [begin, end] = KEYS;
    answered(database.run(async |t| {
        t.clear_range(begin, end);
        Ok(())
    }))
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_client::testing::MemoryCluster;
    use plinth_runtime::real::block_on;

    #[test]
    fn a_database_with_other_data_is_refused_unless_told_and_its_first_key_is_named() {
        block_on(async {
            for key in ["a", "fruit/1"] {
                let database = MemoryCluster::with_rows([(key, "1")]).database();
                let line = look(&database, 10, false).await.expect_err("another's");
                assert!(line.contains(&format!("is {key})")) && line.contains("--force"));
                assert_eq!(look(&database, 10, true).await, Ok(false));
            }
            let database = MemoryCluster::with_rows([("bench/mine", "1")]).database();
            let line = look(&database, 10, true)
                .await
                .expect_err("they would be cleared");
            assert!(line.contains("the key bench/mine is there"), "{line}");
        });
    }

    #[test]
    fn a_table_counts_when_it_is_whole_and_of_the_size_and_clearing_it_leaves_other_keys() {
        block_on(async {
            let cluster = MemoryCluster::with_rows([("a", "1"), ("bench0", "2")]);
            let database = cluster.database();
            mark(&database, 10, false).await.expect("marks");
            assert_eq!(look(&database, 10, true).await, Ok(false), "a part of it");
            mark(&database, 10, true).await.expect("marks");
            assert_eq!(look(&database, 10, true).await, Ok(true));
            let line = look(&database, 9, true).await.expect_err("another size");
            assert!(
                line.contains("--rows 10, or clear it by `plinth cli --exec"),
                "{line}"
            );
            assert!(line.contains("clearrange bench/ bench0'"), "{line}");
            clear(&database).await.expect("clears");
            let left: Vec<_> = cluster.rows().into_keys().collect();
            assert_eq!(left, ["a", "bench0"]);
        });
    }
}
