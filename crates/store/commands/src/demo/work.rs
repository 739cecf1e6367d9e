//! The transactions of the demo, and the data they write:
//!
//! ```text
//! row/<number, 4 B>             a line of the file
//! index/<line>/<number, 4 B>    empty: leads from a line to its row
//! account/<number, 2 B>         a balance, 8 bytes little-endian
//! receipt/<worker>              number of transactions acknowledged to this worker
//! ```

use bytes::Bytes;
use indicatif::ProgressBar;
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_core::key::prefix_end;
use plinth_core::{Error, Key, KeyRange, Result, Value};
use plinth_runtime::{Duration, now, random, sleep};
use plinth_server::Embedded;
use plinth_terminal::Outcome;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub const ROW: &[u8] = b"row/";
pub const INDEX: &[u8] = b"index/";
pub const ACCOUNT: &[u8] = b"account/";
pub const RECEIPT: &[u8] = b"receipt/";

pub const ACCOUNTS: u16 = 1000;
pub const OPENING_BALANCE: i64 = 1000;
pub const SUM: i64 = ACCOUNTS as i64 * OPENING_BALANCE;

const LOAD_ROWS: usize = 1000;
const LOADERS: usize = 16;
const TRANSFERRERS: usize = 16;
const EXCHANGERS: usize = 16;
const AUDITORS: usize = 2;
const KILLS: usize = 3;
const BETWEEN_KILLS: Duration = Duration::from_secs(2);
const BETWEEN_AUDITS: Duration = Duration::from_millis(20);
/// Transactions that have not ended in this time count as stuck.
const FINISH_LIMIT: Duration = Duration::from_secs(30);
/// Only this many bytes of a line are indexed; enough to find it.
const INDEXED_BYTES_MAX: usize = 500;

/// Results of the transactions, and violations found meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Worked {
    pub transactions: u64,
    pub audits: u64,
    pub took_s: f64,
    pub recovery_ms: Vec<f64>,
    /// Number of transactions acknowledged to each worker.
    pub receipts: Vec<u64>,
    pub violations: Vec<String>,
}

impl Worked {
    pub fn transactions_per_second(&self) -> f64 {
        self.transactions as f64 / self.took_s
    }
}

pub fn row_key(number: u32) -> Key {
    [ROW, &number.to_be_bytes()].concat().into()
}

pub fn index_key(line: &[u8], number: u32) -> Key {
    let line = &line[..line.len().min(INDEXED_BYTES_MAX)];
    [INDEX, line, b"/", &number.to_be_bytes()].concat().into()
}

fn account_key(number: u16) -> Key {
    [ACCOUNT, &number.to_be_bytes()].concat().into()
}

fn receipt_key(worker: usize) -> Key {
    [RECEIPT, &(worker as u16).to_be_bytes()].concat().into()
}

/// A number written by this program.
pub fn number(value: &[u8]) -> i64 {
    value.try_into().map_or(0, i64::from_le_bytes)
}

/// All keys that begin with `prefix`.
pub fn all_of(prefix: &'static [u8]) -> KeyRange {
    let end = prefix_end(prefix).expect("no prefix here ends in 0xff");
    KeyRange::new(prefix, end)
}

/// Writes every record with its index entry, and opens the accounts.
pub async fn load(database: &Database, records: &Rc<Vec<Bytes>>, bar: &ProgressBar) -> Outcome {
    let next = Rc::new(Cell::new(0usize));
    let loaders = (0..LOADERS).map(|_| {
        let (database, records, next, bar) =
            (database.clone(), records.clone(), next.clone(), bar.clone());
        plinth_runtime::spawn("demo loader", async move {
            loop {
                let from = next.get();
                let to = (from + LOAD_ROWS).min(records.len());
                if from == to {
                    return Ok(());
                }
                next.set(to);
                database
                    .run(async |t| {
                        write_rows(&t, &records, from..to);
                        Ok(())
                    })
                    .await?;
                bar.inc((to - from) as u64);
            }
        })
    });
    let loaded: Vec<Result<()>> = plinth_runtime::join_all(loaders.collect::<Vec<_>>()).await;
    loaded
        .into_iter()
        .collect::<Result<()>>()
        .map_err(|error| format!("cannot load: {error}"))?;
    let opened = database.run(async |t| {
        (0..ACCOUNTS).for_each(|i| t.set(account_key(i), OPENING_BALANCE.to_le_bytes()));
        Ok(())
    });
    opened
        .await
        .map_err(|error| format!("cannot open the accounts: {error}"))
}

fn write_rows(transaction: &Transaction, records: &[Bytes], rows: std::ops::Range<usize>) {
    for i in rows {
        transaction.set(row_key(i as u32), &records[i]);
        transaction.set(index_key(&records[i], i as u32), b"");
    }
}

/// State that the workers share.
struct Shared {
    database: Database,
    rows: u32,
    stopping: Cell<bool>,
    audits: Cell<u64>,
    receipts: RefCell<Vec<u64>>,
    violations: RefCell<Vec<String>>,
}

/// Runs all workers through three crashes.
pub async fn run(embedded: &Embedded, rows: u32, say: &impl Fn(String)) -> Outcome<Worked> {
    let workers = TRANSFERRERS + EXCHANGERS;
    let shared = Rc::new(Shared {
        database: embedded.database(),
        rows,
        stopping: Cell::new(false),
        audits: Cell::new(0),
        receipts: RefCell::new(vec![0; workers]),
        violations: RefCell::default(),
    });
    let start = now();
    let mut tasks: Vec<_> = (0..workers)
        .map(|i| plinth_runtime::spawn("demo worker", shared.clone().work(i)))
        .collect();
    tasks.extend(
        (0..AUDITORS).map(|_| plinth_runtime::spawn("demo auditor", shared.clone().audit())),
    );
    let mut recovery_ms = Vec::new();
    for _ in 0..KILLS {
        sleep(BETWEEN_KILLS).await;
        let ms = kill_and_wait(embedded).await?;
        say(format!(
            "killed the transaction system; the next commit came after {ms:.0} ms"
        ));
        recovery_ms.push(ms);
    }
    sleep(BETWEEN_KILLS).await;
    shared.stopping.set(true);
    let took_s = start.elapsed().as_secs_f64();
    if plinth_runtime::timeout(FINISH_LIMIT, plinth_runtime::join_all(tasks))
        .await
        .is_none()
    {
        return Err(format!(
            "transactions are stuck: they do not end within {} s",
            FINISH_LIMIT.as_secs()
        ));
    }
    let receipts = shared.receipts.borrow().clone();
    Ok(Worked {
        transactions: receipts.iter().sum(),
        audits: shared.audits.get(),
        took_s,
        recovery_ms,
        receipts,
        violations: shared.violations.borrow().clone(),
    })
}

/// Milliseconds from the crash to the first commit of a transaction that began after it.
async fn kill_and_wait(embedded: &Embedded) -> Outcome<f64> {
    embedded
        .kill_transaction_system()
        .await
        .map_err(|error| format!("cannot kill a role: {error}"))?;
    let start = now();
    let database = embedded.database();
    let committed = database.run(async |t| {
        t.set(b"after crash", start.0.to_le_bytes());
        Ok(())
    });
    match plinth_runtime::timeout(FINISH_LIMIT, committed).await {
        Some(Ok(())) => Ok(super::milliseconds(start.elapsed())),
        Some(Err(error)) => Err(format!("no commit after the crash: {error}")),
        None => Err(format!("no recovery within {} s", FINISH_LIMIT.as_secs())),
    }
}

impl Shared {
    async fn work(self: Rc<Self>, worker: usize) {
        while !self.stopping.get() {
            let receipt = self.receipts.borrow()[worker] + 1;
            // After an unknown result, the receipt shows that the first attempt has committed, so that it is not
            // done twice.
            let done = self.database.run(async |t| {
                if t.get(receipt_key(worker), false)
                    .await?
                    .is_some_and(|v| number(&v) as u64 == receipt)
                {
                    return Ok(());
                }
                t.set(receipt_key(worker), receipt.to_le_bytes());
                if worker < TRANSFERRERS {
                    transfer(&t).await
                } else {
                    exchange(&t, self.rows).await
                }
            });
            match done.await {
                Ok(()) => self.receipts.borrow_mut()[worker] = receipt,
                Err(error) => return self.violated(format!("worker {worker}: {error}")),
            }
        }
    }

    async fn audit(self: Rc<Self>) {
        while !self.stopping.get() {
            let audited = self
                .database
                .run(async |t| Ok((audit_sum(&t).await?, audit_index(&t, self.rows).await?)));
            match audited.await {
                Ok((sum, _)) if sum != SUM => {
                    self.violated(format!("the accounts hold {sum} instead of {SUM}"))
                }
                Ok((_, Some(what))) => self.violated(what),
                Ok(_) => self.audits.set(self.audits.get() + 1),
                Err(error) => self.violated(format!("an audit failed: {error}")),
            }
            sleep(BETWEEN_AUDITS).await;
        }
    }

    fn violated(&self, what: String) {
        self.violations.borrow_mut().push(what);
    }
}

/// Moves a random amount between two random accounts.
async fn transfer(transaction: &Transaction) -> Result<()> {
    let pick = || random::below(u64::from(ACCOUNTS)) as u16;
    let (from, to) = (pick(), pick());
    if from == to {
        return Ok(());
    }
    let (a, b) = (
        transaction.get(account_key(from), false),
        transaction.get(account_key(to), false),
    );
    let (a, b) = (required(a.await?)?, required(b.await?)?);
    let amount = random::below(100) as i64;
    transaction.set(account_key(from), (number(&a) - amount).to_le_bytes());
    transaction.set(account_key(to), (number(&b) + amount).to_le_bytes());
    Ok(())
}

/// Exchanges the lines of two random rows, and moves their index entries.
async fn exchange(transaction: &Transaction, rows: u32) -> Result<()> {
    let pick = || random::below(u64::from(rows)) as u32;
    let (i, j) = (pick(), pick());
    if i == j {
        return Ok(());
    }
    let (a, b) = (
        transaction.get(row_key(i), false),
        transaction.get(row_key(j), false),
    );
    let (a, b) = (required(a.await?)?, required(b.await?)?);
    transaction.clear(index_key(&a, i));
    transaction.clear(index_key(&b, j));
    transaction.set(row_key(i), &b);
    transaction.set(row_key(j), &a);
    transaction.set(index_key(&b, i), b"");
    transaction.set(index_key(&a, j), b"");
    Ok(())
}

/// Unwraps the value of a row that must exist: rows are never removed.
fn required(value: Option<Value>) -> Result<Value> {
    value.ok_or(Error::internal_error)
}

pub async fn audit_sum(transaction: &Transaction) -> Result<i64> {
    let accounts = transaction
        .get_rows(all_of(ACCOUNT), RangeOptions::default(), false)
        .await?;
    Ok(accounts.iter().map(|(_, balance)| number(balance)).sum())
}

/// Describes an error in the index entry of a random row; `None` if it is right.
async fn audit_index(transaction: &Transaction, rows: u32) -> Result<Option<String>> {
    let i = random::below(u64::from(rows)) as u32;
    let Some(line) = transaction.get(row_key(i), false).await? else {
        return Ok(Some(format!("row {i} is gone")));
    };
    let entry = transaction.get(index_key(&line, i), false).await?;
    Ok(entry
        .is_none()
        .then(|| format!("row {i} has no index entry")))
}
