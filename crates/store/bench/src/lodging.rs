//! Where the table lies in a database: below a prefix of its own, with a mark that tells how large it is, and whether
//! all of it is there. A run that has made a table has it for itself, and clears it. The mark of one that was killed
//! tells the next run; while it lives, the next one is refused.

use crate::table::{KEYS, MARK};
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_core::key::printable;
use plinth_core::{Error, Key, KeyRange, Result};
use plinth_runtime::{Duration, Either, race, sleep};

/// Looks and marks take no longer than this.
const LIMIT: Duration = Duration::from_secs(30);
/// A run says so often that it lives, and one that has said nothing for so long does not.
const BEAT: Duration = Duration::from_millis(500);
const SILENCE: Duration = Duration::from_secs(4);
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

/// What the mark of a table says: `ROWS STATE`, and of a run that will clear the table `ROWS STATE ID BEAT`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mark {
    rows: String,
    is_loaded: bool,
    /// The run that has the table for itself, and how often it has said that it lives.
    of: Option<(String, u64)>,
}

impl Mark {
    fn parse(text: &str) -> Option<Mark> {
        let words: Vec<&str> = text.split(' ').collect();
        let (rows, state, of) = match words[..] {
            [rows, state] => (rows, state, None),
            [rows, state, id, beat] => (rows, state, Some((id.to_owned(), beat.parse().ok()?))),
            _ => return None,
        };
        Some(Mark {
            rows: rows.to_owned(),
            is_loaded: state == LOADED,
            of,
        })
    }

    fn text(&self) -> String {
        let state = if self.is_loaded { LOADED } else { LOADING };
        let of = self.of.as_ref().map(|(id, beat)| format!(" {id} {beat}"));
        format!("{} {state}{}", self.rows, of.unwrap_or_default())
    }

    fn is_of(&self, run: &str) -> bool {
        self.of.as_ref().is_some_and(|(id, _)| id == run)
    }
}

fn is_busy() -> String {
    "another `plinth bench run' has its table in the database: wait until it has ended, or name another with -C"
        .into()
}

/// Lets the run with this id have the table of so many rows. Tells whether all of it is there: then it stays there,
/// and other runs may use it, too. `beside_others`: other keys may be there, too.
///
/// # Errors
/// The database has what a run has to leave alone, such as the table of another run. The error is one line.
pub async fn lodge(
    database: &Database,
    rows: u64,
    beside_others: bool,
    run: &str,
) -> std::result::Result<bool, String> {
    let found = look(database, rows, beside_others).await?;
    if found.as_ref().is_some_and(|mark| mark.of.is_some()) {
        // Who lives says so meanwhile. Who was killed says nothing any more.
        sleep(SILENCE).await;
        if look(database, rows, beside_others).await? != found {
            return Err(is_busy());
        }
    }
    if let Some(mark) = found.as_ref().filter(|mark| mark.rows != rows.to_string()) {
        return Err(earlier(&mark.text()));
    }
    let is_whole = found.as_ref().is_some_and(|mark| mark.is_loaded);
    let own = Mark {
        rows: rows.to_string(),
        is_loaded: is_whole,
        of: (!is_whole).then(|| (run.to_owned(), 0)),
    };
    let had = found.map(|mark| mark.text());
    let taken = answered(database.run(async |t| {
        let there = t.get(MARK, false).await?;
        let there = there.map(|mark| String::from_utf8_lossy(&mark).into_owned());
        // An answer that was lost may have been that of this transaction.
        let is_own = there.as_deref() == Some(&own.text());
        if there == had {
            t.set(MARK, own.text().as_bytes());
        }
        Ok(is_own || there == had)
    }));
    match taken.await? {
        true => Ok(is_whole),
        false => Err(is_busy()),
    }
}

/// The mark of the table of so many rows, if it is there.
async fn look(
    database: &Database,
    rows: u64,
    beside_others: bool,
) -> std::result::Result<Option<Mark>, String> {
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
        (None, None) => Ok(None),
        (None, Some(key)) => Err(format!(
            "the key {} is there, and keys that begin with {begin} are those of `plinth bench run': name another \
             cluster with -C",
            printable(&key)
        )),
        (Some(text), _) => match Mark::parse(&text) {
            Some(mark) if mark.rows == rows.to_string() || mark.of.is_some() => Ok(Some(mark)),
            _ => Err(earlier(&text)),
        },
    }
}

/// The line about a table of another size that nobody uses now.
fn earlier(mark: &str) -> String {
    let (its, clears) = (mark.split(' ').next().unwrap_or_default(), clearing());
    format!(
        "the table of an earlier run is there: say --rows {its}, or clear it by `plinth cli --exec '{clears}''"
    )
}

/// Changes the mark, if it is that of this run. Tells whether it was.
async fn change(
    database: &Database,
    run: &str,
    change: impl Fn(&mut Mark),
) -> std::result::Result<bool, String> {
    answered(database.run(async |t| {
        let there = t.get(MARK, false).await?;
        let mark = there.and_then(|mark| Mark::parse(&String::from_utf8_lossy(&mark)));
        let own = mark.filter(|mark| mark.is_of(run));
        let is_own = own.is_some();
        if let Some(mut mark) = own {
            change(&mut mark);
            t.set(MARK, mark.text().as_bytes());
        }
        Ok(is_own)
    }))
    .await
}

/// Says, while the run lives, that it does. Ends when the table is that of this run no more.
pub async fn live(database: &Database, run: &str) {
    let beat = |mark: &mut Mark| {
        if let Some((_, beat)) = &mut mark.of {
            *beat = beat.saturating_add(1);
        }
    };
    // A database that does not answer now may do so later.
    while change(database, run, beat).await != Ok(false) {
        sleep(BEAT).await;
    }
}

/// Writes down that all of the table of this run is there. One that stays is nobody's from now on.
///
/// # Errors
/// The database does not answer: one line.
pub async fn loaded(
    database: &Database,
    run: &str,
    stays: bool,
) -> std::result::Result<(), String> {
    let done = |mark: &mut Mark| {
        mark.is_loaded = true;
        mark.of = mark.of.take().filter(|_| !stays);
    };
    change(database, run, done).await.map(drop)
}

/// Clears the table and its mark, if it is that of this run. One of another run stays.
///
/// # Errors
/// The database does not answer: one line.
pub async fn clear(database: &Database, run: &str) -> std::result::Result<(), String> {
    let [begin, end] = KEYS;
    answered(database.run(async |t| {
        let there = t.get(MARK, false).await?;
        let mark = there.and_then(|mark| Mark::parse(&String::from_utf8_lossy(&mark)));
        if mark.is_some_and(|mark| mark.is_of(run)) {
            t.clear_range(begin, end);
        }
        Ok(())
    }))
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_client::testing::MemoryCluster;
    use plinth_runtime::real::block_on;
    use plinth_runtime::spawn;

    #[test]
    fn a_database_with_other_data_is_refused_unless_told_and_its_first_key_is_named() {
        block_on(async {
            for key in ["a", "fruit/1"] {
                let database = MemoryCluster::with_rows([(key, "1")]).database();
                let line = lodge(&database, 10, false, "1").await;
                let line = line.expect_err("another's");
                assert!(line.contains(&format!("is {key})")) && line.contains("--force"));
                assert_eq!(lodge(&database, 10, true, "1").await, Ok(false));
            }
            let database = MemoryCluster::with_rows([("bench/mine", "1")]).database();
            let line = lodge(&database, 10, true, "1").await;
            let line = line.expect_err("they would be cleared");
            assert!(line.contains("the key bench/mine is there"), "{line}");
        });
    }

    #[test]
    fn a_table_counts_when_it_is_whole_and_of_the_size_and_clearing_it_leaves_other_keys() {
        block_on(async {
            let cluster = MemoryCluster::with_rows([("a", "1"), ("bench0", "2")]);
            let database = cluster.database();
            assert_eq!(lodge(&database, 10, true, "1").await, Ok(false));
            // The first one was killed.
            assert_eq!(lodge(&database, 10, true, "2").await, Ok(false), "a part");
            loaded(&database, "2", true).await.expect("marks");
            assert_eq!(lodge(&database, 10, true, "3").await, Ok(true));
            let line = lodge(&database, 9, true, "4").await;
            let line = line.expect_err("another size");
            assert!(
                line.contains("--rows 10, or clear it by `plinth cli --exec"),
                "{line}"
            );
            assert!(line.contains("clearrange bench/ bench0'"), "{line}");
            clear(&database, "3").await.expect("it is nobody's");
            assert_eq!(lodge(&database, 10, true, "5").await, Ok(true), "it stays");
            let [begin, end] = KEYS;
            let by_hand = database.run(async |t| {
                t.clear_range(begin, end);
                Ok(())
            });
            by_hand.await.expect("clears");
            assert_eq!(lodge(&database, 10, true, "6").await, Ok(false));
            clear(&database, "6").await.expect("clears");
            let left: Vec<_> = cluster.rows().into_keys().collect();
            assert_eq!(left, ["a", "bench0"]);
        });
    }

    #[test]
    fn a_run_has_its_table_for_itself_while_it_lives_and_nobody_clears_that_of_another() {
        block_on(async {
            let database = MemoryCluster::with_rows([("a", "1")]).database();
            assert_eq!(lodge(&database, 10, true, "1").await, Ok(false));
            let of_first = database.clone();
            let living = spawn("beats", async move { live(&of_first, "1").await });
            for rows in [10, 9] {
                let line = lodge(&database, rows, true, "2").await;
                assert!(line.is_err_and(|line| line.starts_with("another `plinth bench run'")));
            }
            loaded(&database, "1", false).await.expect("marks");
            let line = lodge(&database, 10, true, "2").await;
            assert!(line.is_err(), "it would be cleared below the second one");
            clear(&database, "2").await.expect("it is another's");
            drop(living);
            // Who was killed leaves a table that nobody clears.
            assert_eq!(lodge(&database, 10, true, "3").await, Ok(true));
            clear(&database, "1").await.expect("it is nobody's now");
            assert_eq!(lodge(&database, 10, true, "4").await, Ok(true));
        });
    }
}
