//! Read your writes: random operations in one transaction, compared with the same operations on a plain map.
//!
//! Every client has its own rows, so that it knows their content. A transaction first reads them all, then does a
//! number of random writes and reads, and commits. Each read is compared with the map, and the next transaction must
//! find the rows as this one left them. Some reads are repeated, a few of them after more than five seconds: a
//! transaction must be able to repeat its reads.

use super::{
    Boxed, Complaints, Day, Ending, Space, Verdict, Workload, ending, get_together, until_done,
};
use plinth_client::testing::resolve_selector;
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_core::key::printable;
use plinth_core::{Error, Key, KeySelector, MutationKind, Result, Value, atomic};
use plinth_runtime::random::{below, chance};
use plinth_runtime::{Duration, sleep};
use std::cell::RefCell;
use std::collections::BTreeMap;

type Rows = BTreeMap<Key, Value>;

const KEYS: u64 = 30;
/// Longer than the five seconds for which servers keep versions.
const LONGER_THAN_VERSIONS_LIVE: Duration = Duration::from_secs(8);
const KINDS: [MutationKind; 10] = [
    MutationKind::Add,
    MutationKind::And,
    MutationKind::Or,
    MutationKind::Xor,
    MutationKind::AppendIfFits,
    MutationKind::Max,
    MutationKind::Min,
    MutationKind::ByteMin,
    MutationKind::ByteMax,
    MutationKind::CompareAndClear,
];

pub struct ReadYourWrites {
    space: Space,
    /// Possible contents of each client's rows: one state, or two after an unknown result.
    possible: RefCell<BTreeMap<u64, Vec<Rows>>>,
    complaints: Complaints,
}

/// One client's part of the key space.
#[derive(Clone)]
struct Plot {
    space: Space,
    begin: Key,
    end: Key,
}

impl Plot {
    fn key(&self) -> Key {
        self.space.key(below(KEYS), KEYS)
    }

    fn bounds(&self) -> (Key, Key) {
        let (a, b) = (self.key(), self.key());
        if a <= b { (a, b) } else { (b, a) }
    }

    /// Returns a key inside the plot; `None` for a key outside of it, where the content is not known.
    fn clamp(&self, key: Key) -> Option<Key> {
        (self.begin <= key && key < self.end).then_some(key)
    }

    async fn rows(&self, tr: &Transaction) -> Result<Rows> {
        let all = self.space.range();
        let rows = tr.get_rows(all, RangeOptions::default(), chance(0.5));
        Ok(rows.await?.into_iter().collect())
    }
}

fn value() -> Value {
    let length = below(9) as usize;
    (0..length).map(|_| below(256) as u8).collect()
}

/// Does a random write in the transaction and in the map.
fn write(tr: &Transaction, plot: &Plot, rows: &mut Rows) -> String {
    match below(6) {
        0 | 1 => {
            let (key, value) = (plot.key(), value());
            tr.set(key.clone(), value.clone());
            rows.insert(key.clone(), value);
            format!("set {}", printable(&key))
        }
        2 => {
            let key = plot.key();
            tr.clear(key.clone());
            rows.remove(&key);
            format!("clear {}", printable(&key))
        }
        3 => {
            let (begin, end) = plot.bounds();
            tr.clear_range(begin.clone(), end.clone());
            rows.retain(|key, _| *key < begin || *key >= end);
            format!("clear [{}, {})", printable(&begin), printable(&end))
        }
        _ => {
            let kind = KINDS[below(KINDS.len() as u64) as usize];
            let (key, operand) = (plot.key(), value());
            tr.atomic_op(kind, key.clone(), operand.clone());
            let old = rows.get(&key).map(|value| &value[..]);
            match atomic::apply(kind, old, &operand) {
                Some(new) => drop(rows.insert(key.clone(), new)),
                None => drop(rows.remove(&key)),
            }
            format!("{kind:?} {}", printable(&key))
        }
    }
}

#[derive(Clone)]
enum Read {
    Get(Key),
    Together(Vec<Key>),
    GetKey(KeySelector),
    GetRange(KeySelector, KeySelector, RangeOptions),
}

impl Read {
    fn random(plot: &Plot) -> Read {
        let selector = |offset| KeySelector::new(plot.key(), chance(0.5), offset);
        match below(4) {
            0 => Read::Get(plot.key()),
            1 => Read::Together((0..=below(8)).map(|_| plot.key()).collect()),
            2 => Read::GetKey(selector(below(16) as i32 - 7)),
            _ => {
                let (begin, end) = (selector(below(6) as i32 - 2), selector(below(6) as i32 - 2));
                let options = RangeOptions::limit(below(6) as i32).reversed_if(chance(0.5));
                Read::GetRange(begin, end, options)
            }
        }
    }
}

/// Does a random read and describes an error in its result.
async fn read(tr: &Transaction, plot: &Plot, rows: &Rows) -> Result<Verdict> {
    let (read, snapshot) = (Read::random(plot), chance(0.3));
    let first = perform(tr, plot, rows, read.clone(), snapshot).await?;
    if first.is_err() || !chance(0.3) {
        return Ok(first);
    }
    if chance(0.05) {
        sleep(LONGER_THAN_VERSIONS_LIVE).await;
    }
    // The transaction has written nothing since, so the read is answered without a server, whatever the servers'
    // state.
    let again = perform(tr, plot, rows, read, chance(0.3)).await;
    Ok(again.unwrap_or_else(|error| Err(format!("read again: {error}"))))
}

async fn perform(
    tr: &Transaction,
    plot: &Plot,
    rows: &Rows,
    read: Read,
    snapshot: bool,
) -> Result<Verdict> {
    match read {
        Read::Get(key) => {
            let got = tr.get(key.clone(), snapshot).await?;
            let what = format!("get {}", printable(&key));
            Ok(compare(&what, &got.as_ref(), &rows.get(&key)))
        }
        Read::Together(keys) => read_together(tr, rows, keys, snapshot).await,
        Read::GetKey(selector) => {
            let got = tr.get_key(selector.clone(), snapshot).await?;
            let expected = resolve_selector(rows.keys(), &selector, &plot.end);
            let what = format!("get_key {selector:?}");
            Ok(compare(&what, &plot.clamp(got), &plot.clamp(expected)))
        }
        Read::GetRange(begin, end, options) => {
            read_range(tr, plot, rows, (begin, end, options), snapshot).await
        }
    }
}

async fn read_together(
    tr: &Transaction,
    rows: &Rows,
    keys: Vec<Key>,
    snapshot: bool,
) -> Result<Verdict> {
    let reads = keys.iter().map(|key| (key.clone(), snapshot));
    let got = get_together(tr, reads.collect()).await;
    for (key, value) in keys.iter().zip(got) {
        let what = format!("get {} with others", printable(key));
        let verdict = compare(&what, &value?.as_ref(), &rows.get(key));
        if verdict.is_err() {
            return Ok(verdict);
        }
    }
    Ok(Ok(()))
}

async fn read_range(
    tr: &Transaction,
    plot: &Plot,
    rows: &Rows,
    (begin, end, options): (KeySelector, KeySelector, RangeOptions),
    snapshot: bool,
) -> Result<Verdict> {
    let resolve = |selector| plot.clamp(resolve_selector(rows.keys(), selector, &plot.end));
    let (Some(from), Some(to)) = (resolve(&begin), resolve(&end)) else {
        return Ok(Ok(())); // it would read rows outside of the plot
    };
    let what = format!("get_range {begin:?} {end:?} {options:?}");
    let got = tr.get_range_all(begin, end, options, snapshot).await?;
    let mut expected: Vec<(Key, Value)> = Vec::new();
    if from < to {
        expected.extend(rows.range(from..to).map(|(k, v)| (k.clone(), v.clone())));
    }
    if options.reverse {
        expected.reverse();
    }
    if options.limit > 0 {
        expected.truncate(options.limit as usize);
    }
    Ok(compare(&what, &got, &expected))
}

fn compare<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Verdict {
    if got == expected {
        return Ok(());
    }
    Err(format!(
        "{what} gave {got:?}, and should have given {expected:?}"
    ))
}

impl ReadYourWrites {
    pub fn new(space: Space) -> Self {
        ReadYourWrites {
            space,
            possible: RefCell::default(),
            complaints: Complaints::default(),
        }
    }

    fn plot(&self, client: u64) -> Plot {
        let space = self.space.part(client, self.clients());
        Plot {
            space,
            begin: space.begin(),
            end: space.end(),
        }
    }

    /// Complains unless the client's rows are in a possible state.
    fn expect(&self, client: u64, rows: &Rows) {
        let possible = self.possible.borrow();
        let states = possible.get(&client);
        let fits = states.map_or(rows.is_empty(), |states| states.contains(rows));
        if !fits {
            self.complaints.add(format!(
                "client {client} finds {rows:?}, and left one of {states:?}"
            ));
        }
    }

    async fn transact(&self, database: &Database, client: u64) -> Result<()> {
        let plot = self.plot(client);
        let tr = database.create_transaction();
        let before = plot.rows(&tr).await?;
        self.expect(client, &before);
        let mut rows = before.clone();
        let mut log = Vec::new();
        for _ in 0..below(12) {
            if chance(0.5) {
                log.push(write(&tr, &plot, &mut rows));
            } else if let Err(broken) = read(&tr, &plot, &rows).await? {
                self.complaints.add(format!("after {log:?}: {broken}"));
            }
        }
        let states = match ending(tr.commit().await) {
            Ending::Committed => vec![rows],
            Ending::Failed => vec![before],
            Ending::Unknown => vec![before, rows],
        };
        self.possible.borrow_mut().insert(client, states);
        Ok(())
    }
}

impl Workload for ReadYourWrites {
    super::kind!("read_your_writes", |space, _| ReadYourWrites::new(space));

    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(
            day.fill(async move || match self.transact(&database, client).await {
                Ok(()) => {}
                Err(error) if error.is_retryable() => {}
                Err(Error::all_alternatives_failed | Error::timed_out) => {}
                Err(error) => self.complaints.add(format!("client {client}: {error}")),
            }),
        )
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            for client in 0..self.clients() {
                let plot = self.plot(client);
                let rows = until_done(&database, async |tr| plot.rows(&tr).await).await;
                self.expect(client, &rows);
            }
            self.complaints.verdict()
        })
    }
}
