//! Streams. Writers change rows at random; a consumer applies the stream of these changes to a replica, in the
//! transactions with which it keeps its position. At every version, the replica and what the consumer has not yet
//! handled must together make the rows: so every change comes once and in order, whatever dies. Appended entries must
//! have happened exactly with their transactions; a stream that is cut must say so; a stream that lives for a moment
//! must have what was written meanwhile.

use super::{Boxed, Complaints, Day, Space, Verdict, Workload, until_done};
use plinth_client::{
    Database, Position, RangeOptions, Stream, StreamContent, StreamEntry, StreamLimit,
    StreamOptions, Transaction,
};
use plinth_core::key::{KeyRange, printable};
use plinth_core::{Error, Key, Mutation, MutationKind, Result, Value, atomic};
use plinth_runtime::{Duration, probe, random};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

const CHANGES: &str = "changes";
const APPENDS: &str = "appends";
const CUT: &str = "cut";
const AUDIT: &str = "audit";
const CONSUMER: &str = "replica";
/// Number of rows that the writers change.
const ROWS: u64 = 30;
const NOTES_MAX: u64 = 1_000_000;
/// Limit of the stream that is cut, and size of its entries.
const CUT_BYTES: u64 = 3000;
const CUT_ENTRY_BYTES: usize = 300;
const AUDIT_BYTES: u64 = 20_000;
/// A stream must be near its limit within this time after the last append.
const CUT_LIMIT: Duration = Duration::from_secs(120);

const KINDS: [MutationKind; 8] = [
    MutationKind::Set,
    MutationKind::Set,
    MutationKind::ClearRange,
    MutationKind::Add,
    MutationKind::AppendIfFits,
    MutationKind::ByteMax,
    MutationKind::Xor,
    MutationKind::CompareAndClear,
];

type Rows = BTreeMap<Key, Value>;

pub struct Streams {
    data: Space,
    replica: Space,
    notes: Space,
    next_note: Cell<u64>,
    next_brief: Cell<u64>,
    /// A position at which the stream that is cut had an entry.
    cut_had: RefCell<Option<Position>>,
    complaints: Complaints,
}

impl Streams {
    pub fn new(space: Space) -> Self {
        Streams {
            data: space.part(0, 3),
            replica: space.part(1, 3),
            notes: space.part(2, 3),
            next_note: Cell::new(0),
            next_brief: Cell::new(0),
            cut_had: RefCell::default(),
            complaints: Complaints::default(),
        }
    }

    fn row(&self) -> Key {
        self.data.key(random::below(ROWS), ROWS)
    }

    fn note(&self, id: u64) -> Key {
        self.notes.key(id * 7919 % NOTES_MAX, NOTES_MAX)
    }

    fn random_mutation(&self) -> Mutation {
        let kind = KINDS[random::below(KINDS.len() as u64) as usize];
        let (first, second) = match kind {
            MutationKind::ClearRange => {
                let (a, b) = (self.row(), self.row());
                // Sometimes beyond the stream's range.
                let end = if random::chance(0.1) {
                    self.data.end()
                } else {
                    a.clone().max(b.clone())
                };
                (a.min(b), end)
            }
            MutationKind::Set if random::chance(0.05) => (self.row(), vec![b'x'; 40_000].into()),
            _ => (self.row(), Value::from(random::below(1000).to_string())),
        };
        Mutation {
            kind,
            first,
            second,
        }
    }

    // ---- writers ----

    /// Several transactions at once, so that versions have more than one.
    async fn write(&self, database: &Database) {
        let count = random::range(1..5);
        plinth_runtime::join_all((0..count).map(|_| self.write_one(database))).await;
    }

    async fn write_one(&self, database: &Database) {
        let mutations: Vec<Mutation> = (0..random::range(1..7))
            .map(|_| self.random_mutation())
            .collect();
        until_done(database, async |tr| {
            mutations.iter().for_each(|mutation| issue(&tr, mutation));
            Ok(())
        })
        .await;
    }

    async fn append(&self, database: &Database) {
        let id = self.next_note.replace(self.next_note.get() + 1);
        let count = random::range(1..4);
        until_done(database, async |tr| {
            // An earlier attempt with an unknown result may have committed: then the note exists.
            if tr.get(self.note(id), false).await?.is_some() {
                return Ok(());
            }
            let stream = tr.open_stream(APPENDS).await?;
            for number in 0..count {
                stream.append(&tr, format!("{id} {number} {count}")).await?;
            }
            // The value is the transaction's versionstamp.
            let stamp = [&[0; 10][..], &[0; 4]].concat();
            tr.atomic_op(MutationKind::SetVersionstampedValue, self.note(id), stamp);
            Ok(())
        })
        .await;
        until_done(database, async |tr| {
            let stream = tr.open_stream(CUT).await?;
            stream
                .append(&tr, vec![b'c'; CUT_ENTRY_BYTES])
                .await
                .map(drop)
        })
        .await;
    }

    // ---- the consumer ----

    /// Handles some entries. Several clients do so for one consumer, and die in the middle.
    async fn consume(&self, database: &Database) {
        until_done(database, async |tr| {
            let stream = tr.open_stream(CHANGES).await?;
            let at = stream.position(&tr, CONSUMER).await?.unwrap_or_default();
            let limit = StreamLimit {
                entries: random::range(1..200) as usize,
                bytes: random::range(1..100_000) as usize,
            };
            let batch = stream.read(&tr, at, limit).await?;
            for mutation in mutations(&batch.entries) {
                issue(&tr, &self.in_replica(mutation));
            }
            stream.set_position(&tr, CONSUMER, batch.next).await
        })
        .await;
    }

    fn in_replica(&self, mutation: Mutation) -> Mutation {
        let there = |key: &Key| Key::from([&self.replica.begin()[..], key].concat());
        Mutation {
            kind: mutation.kind,
            first: there(&mutation.first),
            second: match mutation.kind {
                MutationKind::ClearRange => there(&mutation.second),
                _ => mutation.second,
            },
        }
    }

    /// Compares the rows with the replica and what is left to handle, at one version.
    async fn compare(&self, database: &Database) {
        let found = until_done(database, async |tr| self.find_difference(&tr).await).await;
        if let Some(difference) = found {
            self.complaints.add(difference);
        }
    }

    async fn find_difference(&self, tr: &Transaction) -> Result<Option<String>> {
        let rows = rows_of(tr, self.data.range()).await?;
        let prefix = self.replica.begin();
        let stored = rows_of(tr, self.replica.range()).await?;
        let mut replica: Rows = stored
            .into_iter()
            .map(|(key, value)| (key.slice(prefix.len()..), value))
            .collect();
        let stream = tr.open_stream(CHANGES).await?;
        let mut at = stream.position(tr, CONSUMER).await?.unwrap_or_default();
        loop {
            let batch = stream.read(tr, at, StreamLimit::default()).await?;
            if !batch.entries.is_sorted_by(|a, b| a.position < b.position) {
                return Ok(Some("entries are not in order".into()));
            }
            mutations(&batch.entries).for_each(|mutation| apply(&mut replica, &mutation));
            at = batch.next;
            if !batch.more {
                break;
            }
        }
        let differs = |key: &&Key| rows.get(*key) != replica.get(*key);
        Ok(rows.keys().chain(replica.keys()).find(differs).map(|key| {
            let shown = |rows: &Rows| {
                rows.get(key)
                    .map(|value| printable(&value[..value.len().min(40)]))
            };
            let version = at.version - 1;
            let (is, by_stream) = (shown(&rows), shown(&replica));
            format!(
                "at {version}, {} is {is:?}, and by its stream {by_stream:?}",
                printable(key)
            )
        }))
    }

    // ---- a stream that lives for a moment ----

    async fn brief(&self, database: &Database) {
        let number = self.next_brief.replace(self.next_brief.get() + 1);
        let (name, key) = (format!("brief {number}"), self.row());
        let range = match random::chance(0.5) {
            true => self.data.range(),
            false => KeyRange::single(&key),
        };
        let options = StreamOptions::changes(vec![range]);
        let created = until_done(database, async |tr| {
            match tr.create_stream(&name, &options).await {
                Err(Error::too_many_streams) => Ok(false),
                Ok(()) | Err(Error::stream_already_exists) => Ok(true),
                Err(error) => Err(error),
            }
        });
        if !created.await {
            return probe!("streams_refused_for_overlap");
        }
        let value = format!("of {name}");
        until_done(database, async |tr| {
            tr.set(&key, &value);
            Ok(())
        })
        .await;
        let (stream, batch) = until_done(database, async |tr| {
            let stream = tr.open_stream(&name).await?;
            let batch = stream
                .read(&tr, Position::START, StreamLimit::default())
                .await?;
            Ok((stream, batch))
        })
        .await;
        let wanted = Mutation::set(key.clone(), value.clone());
        if !mutations(&batch.entries).any(|mutation| mutation == wanted) && !batch.more {
            self.complaints
                .add(format!("{name} lacks what was written after it was made"));
        }
        let dropping = until_done(database, async |tr| match tr.drop_stream(&name).await {
            Ok(()) | Err(Error::stream_not_found) => Ok(()),
            Err(error) => Err(error),
        });
        // Changes of the same version find the stream there, and then gone.
        let changing = until_done(database, async |tr| {
            tr.set(&key, "late");
            Ok(())
        });
        let both: [Boxed<'_, ()>; 2] = [Box::pin(changing), Box::pin(dropping)];
        plinth_runtime::join_all(both).await;
        plinth_runtime::sleep(Duration::from_millis(random::below(2000))).await;
        let left = until_done(database, async |tr| {
            tr.set_option(plinth_client::TransactionOption::ReadSystemKeys)?;
            rows_of(&tr, plinth_core::streams::data_range(stream.id())).await
        });
        if !left.await.is_empty() {
            self.complaints.add(format!("{name} left rows behind"));
        }
    }

    // ---- the last check ----

    async fn check_appends(&self, database: &Database) -> Verdict {
        let entries = all_entries(database, APPENDS).await;
        let mut seen: BTreeMap<u64, Vec<(u16, Position)>> = BTreeMap::new();
        for entry in &entries {
            let StreamContent::Appended(text) = &entry.content else {
                return Err("an append stream has changes".into());
            };
            let text = String::from_utf8_lossy(text);
            let mut words = text.split(' ').filter_map(|word| word.parse().ok());
            let (Some(id), Some(number)) = (words.next(), words.next()) else {
                return Err(format!("an entry that nobody appended: {text}"));
            };
            seen.entry(id)
                .or_default()
                .push((number as u16, entry.position));
        }
        for id in 0..self.next_note.get() {
            let stamp = until_done(database, async |tr| tr.get(self.note(id), false).await).await;
            let appended = seen.get(&id).map_or(&[][..], |list| list);
            let Some(stamp) = stamp else {
                if appended.is_empty() {
                    continue;
                }
                return Err(format!(
                    "{id} was appended, and its transaction did not happen"
                ));
            };
            let in_order = appended.iter().enumerate().all(|(at, (number, position))| {
                usize::from(*number) == at
                    && usize::from(position.piece) == at
                    && position.to_bytes()[..10] == stamp[..]
            });
            if appended.is_empty() || !in_order {
                return Err(format!(
                    "the appends of {id} are {appended:?}, its stamp {stamp:?}"
                ));
            }
        }
        Ok(())
    }

    async fn check_cut(&self, database: &Database) -> Verdict {
        let deadline = plinth_runtime::now() + CUT_LIMIT;
        loop {
            let entries = all_entries(database, CUT).await;
            let bytes = entries.len() * CUT_ENTRY_BYTES;
            if bytes as u64 <= CUT_BYTES {
                break;
            }
            if plinth_runtime::now() > deadline {
                return Err(format!("a stream of at most {CUT_BYTES} bytes has {bytes}"));
            }
            plinth_runtime::sleep(Duration::from_secs(1)).await;
        }
        self.read_cut(database).await
    }

    /// Reads the stream that is cut from a position where it had an entry: the entry comes, or an error.
    async fn read_cut(&self, database: &Database) -> Verdict {
        let had = *self.cut_had.borrow();
        let Some(had) = had else {
            return Ok(());
        };
        let read = until_done(database, async |tr| {
            let stream = tr.open_stream(CUT).await?;
            match stream.read(&tr, had, StreamLimit::default()).await {
                Ok(batch) => Ok(Some(batch.entries.first().map(|entry| entry.position))),
                Err(Error::stream_too_old) => Ok(None),
                Err(error) => Err(error),
            }
        });
        match read.await {
            None => {
                probe!("stream_says_that_it_was_cut");
                Ok(())
            }
            Some(Some(first)) if first == had => Ok(()),
            Some(first) => Err(format!(
                "an entry was at {had:?}, and now {first:?} is the first"
            )),
        }
    }

    async fn look_at_cut(&self, database: &Database) {
        if let Err(lost) = self.read_cut(database).await {
            self.complaints.add(lost);
        }
        if random::chance(0.2) {
            let entries = all_entries(database, CUT).await;
            if let Some(entry) = entries.first() {
                self.cut_had.replace(Some(entry.position));
            }
        }
    }
}

/// Everything that a stream has, read in as many transactions as it takes.
async fn all_entries(database: &Database, name: &str) -> Vec<StreamEntry> {
    let (mut all, mut at) = (Vec::new(), Position::START);
    loop {
        let (stream_read, from) = until_done(database, async |tr| {
            let stream: Stream = tr.open_stream(name).await?;
            match stream.read(&tr, at, StreamLimit::default()).await {
                // Cut since the last batch.
                Err(Error::stream_too_old) => {
                    let floor = stream.floor(&tr).await?;
                    Ok((
                        stream.read(&tr, floor, StreamLimit::default()).await?,
                        floor,
                    ))
                }
                read => Ok((read?, at)),
            }
        })
        .await;
        all.retain(|entry: &StreamEntry| from == at || entry.position >= from);
        all.extend(stream_read.entries);
        at = stream_read.next;
        if !stream_read.more {
            return all;
        }
    }
}

fn mutations(entries: &[StreamEntry]) -> impl Iterator<Item = Mutation> {
    entries.iter().flat_map(|entry| match &entry.content {
        StreamContent::Changed(mutations) => mutations.iter_owned().collect::<Vec<_>>(),
        StreamContent::Appended(_) => Vec::new(),
    })
}

fn issue(tr: &Transaction, mutation: &Mutation) {
    let (first, second) = (&mutation.first, &mutation.second);
    match mutation.kind {
        MutationKind::Set => tr.set(first, second),
        MutationKind::ClearRange => tr.clear_range(first, second),
        kind => tr.atomic_op(kind, first, second),
    }
}

fn apply(rows: &mut Rows, mutation: &Mutation) {
    let (first, second) = (&mutation.first, &mutation.second);
    let value = match mutation.kind {
        MutationKind::ClearRange => {
            rows.retain(|key, _| key < first || key >= second);
            return;
        }
        MutationKind::Set => Some(second.clone()),
        kind => atomic::apply(kind, rows.get(first).map(|value| &value[..]), second),
    };
    match value {
        Some(value) => rows.insert(first.clone(), value),
        None => rows.remove(first),
    };
}

async fn rows_of(tr: &Transaction, range: KeyRange) -> Result<Rows> {
    let rows = tr.get_rows(range, RangeOptions::default(), true);
    Ok(rows.await?.into_iter().collect())
}

impl Workload for Streams {
    super::kind!("streams", |space, _| Streams::new(space));

    fn clients(&self) -> u64 {
        6
    }

    fn setup(&self, database: Database) -> Boxed<'_, ()> {
        Box::pin(async move {
            let range = self.data.range();
            let audited = StreamOptions::changes(vec![range.clone()]);
            let streams = [
                (CHANGES, StreamOptions::changes(vec![range]).keep_all()),
                // Nobody reads it.
                (AUDIT, audited.bytes_max(AUDIT_BYTES)),
                (APPENDS, StreamOptions::append().keep_all()),
                (CUT, StreamOptions::append().bytes_max(CUT_BYTES)),
            ];
            until_done(&database, async |tr| {
                for (name, options) in &streams {
                    match tr.create_stream(name, options).await {
                        Ok(()) | Err(Error::stream_already_exists) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            })
            .await;
        })
    }

    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(day.fill(async move || match client % 3 {
            0 if random::chance(0.2) => self.compare(&database).await,
            0 => self.consume(&database).await,
            1 if random::chance(0.1) => self.brief(&database).await,
            1 if random::chance(0.3) => self.look_at_cut(&database).await,
            1 => self.append(&database).await,
            _ => self.write(&database).await,
        }))
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            self.compare(&database).await;
            self.check_appends(&database).await?;
            self.check_cut(&database).await?;
            self.complaints.verdict()
        })
    }
}
