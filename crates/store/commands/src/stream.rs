//! `plinth stream`: makes, lists, follows and drops streams.

use plinth_client::{
    Database, Position, Stream, StreamBatch, StreamContent, StreamEntry, StreamLimit,
    StreamOptions, Transaction,
};
use plinth_core::key::{KeyRange, SYSTEM_BEGIN, printable, unprintable};
use plinth_core::similar::question;
use plinth_core::version::VERSIONS_PER_SECOND;
use plinth_core::{Error, Key, Mutation, MutationKind};
use plinth_terminal::commands::tell;
use plinth_terminal::connect::{self, ClusterArguments, Connection};
use plinth_terminal::numbers::{bytes_within, seconds_within, within};
use plinth_terminal::text::without_mark;
use plinth_terminal::wording::counted;
use plinth_terminal::{Outcome, interrupts};
use serde_json::{Value, json};
use std::io::BufRead;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Entries that are read and printed at once.
const BATCH: StreamLimit = StreamLimit {
    entries: 1000,
    bytes: 1 << 20,
};
/// Lines of standard input that one transaction appends.
const LINES_AT_ONCE: usize = 500;
/// Bytes of lines after which a transaction appends no more.
const BYTES_AT_ONCE: usize = 1 << 20;

#[derive(clap::Args, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    (
        "plinth stream create orders --range orders/ orders0",
        "Record changes of the keys that begin with orders/",
    ),
    ("plinth stream tail orders --follow", "Print them as they come"),
    ("plinth stream list", "All streams, and how far their consumers are"),
]))]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Make a stream of the changes of some keys, or one to append to
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth stream create orders --range orders/ orders0",
            "Changes of the keys that begin with orders/",
        ),
        (
            "plinth stream create mail --append --keep-all",
            "Entries of your own, kept until all consumers have handled them",
        ),
    ]))]
    Create(Create),
    /// List streams, with their consumers
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth stream list --json", "Streams and consumers, for programs"),
    ]))]
    List(List),
    /// Print a stream's entries; with -f, wait for more
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth stream tail orders --from newest --follow", "What changes from now on"),
        (
            "plinth stream tail orders --consumer billing --json",
            "What billing has not handled, noting that it has",
        ),
    ]))]
    Tail(Tail),
    /// Append an entry, or each line of standard input
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth stream append mail 'to ann'", "One entry"),
        ("plinth stream append mail < letters.txt", "An entry for each line"),
    ]))]
    Append(Append),
    /// Forget a consumer: entries no longer wait for it
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth stream forget orders billing", "When billing does not come back"),
    ]))]
    Forget(Forget),
    /// Drop a stream, with its entries
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth stream drop orders", "The keys stay; only the record of their changes goes"),
    ]))]
    Drop(DropOne),
}

#[derive(clap::Args, Debug)]
struct Named {
    /// Name of the stream
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct Create {
    #[command(flatten)]
    stream: Named,
    /// A stream to which transactions append, instead of one of changes
    #[arg(long, conflicts_with = "range")]
    append: bool,
    /// Keys whose changes the stream has, from BEGIN up to END, with escapes as those of `plinth dump`; may be given
    /// several times [default: all keys]
    #[arg(long, num_args = 2, value_names = ["BEGIN", "END"], action = clap::ArgAction::Append)]
    range: Vec<String>,
    /// Cut the oldest entries while the stream has more bytes than this; 0: no limit
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30, value_parser = bytes_within::<u64>(..))]
    bytes_max: u64,
    /// Cut entries older than this; 0: no limit
    #[arg(long, value_name = "SECONDS", default_value_t = 7 * 24 * 3600, value_parser = seconds_within(..))]
    seconds_max: u64,
    /// Cut nothing that a consumer has not handled, whatever its size and age
    #[arg(long, conflicts_with_all = ["bytes_max", "seconds_max"])]
    keep_all: bool,
}

#[derive(clap::Args, Debug)]
struct List {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct Tail {
    #[command(flatten)]
    stream: Named,
    /// Begin at this position (24 hexadecimal digits: version, order in the version, and piece), or at the `oldest'
    /// entry, or after the `newest'
    #[arg(long, value_name = "POSITION", default_value = "oldest")]
    from: String,
    /// Begin where this consumer is, and note how far it has come after each batch
    #[arg(long, value_name = "CONSUMER", conflicts_with = "from")]
    consumer: Option<String>,
    /// Wait for more entries at the end
    #[arg(short, long)]
    follow: bool,
    /// End after so many entries
    #[arg(long, value_name = "N", value_parser = within::<u64>(..))]
    limit: Option<u64>,
}

#[derive(clap::Args, Debug)]
struct Append {
    #[command(flatten)]
    stream: Named,
    /// The entry; without it, each line of standard input
    #[arg(value_name = "ENTRY")]
    entry: Option<String>,
}

#[derive(clap::Args, Debug)]
struct Forget {
    #[command(flatten)]
    stream: Named,
    /// Name of the consumer
    #[arg(value_name = "CONSUMER")]
    consumer: String,
}

#[derive(clap::Args, Debug)]
struct DropOne {
    #[command(flatten)]
    stream: Named,
    /// Drop it also if it is a part of something else, which ends without it
    #[arg(long)]
    force: bool,
}

plinth_terminal::command!(
    "stream",
    "Make, list, follow and drop streams: records of changes, or of what was appended",
    Arguments => run
);

fn run(arguments: Arguments) -> Outcome {
    connect::block_on(async {
        match arguments.action {
            Action::Create(create) => create.run().await,
            Action::List(list) => list.run().await,
            Action::Tail(tail) => tail.run().await,
            Action::Append(append) => append.run().await,
            Action::Forget(forget) => forget.run().await,
            Action::Drop(drop) => drop.run().await,
        }
    })
}

fn key(text: &str) -> Outcome<Key> {
    let broken = || format!("{text}: there is a broken escape; a backslash itself is written \\\\");
    unprintable(text).map(Key::from).ok_or_else(broken)
}

async fn connected(cluster: &ClusterArguments) -> Outcome<Connection> {
    let connection = cluster.connect().await?;
    connection.limit_transactions();
    Ok(connection)
}

impl Named {
    fn key(&self) -> Outcome<Key> {
        key(&self.name)
    }

    /// What was done with it.
    fn tell(&self, line: &str, word: &str) {
        let line = format!("{} {line}", self.name);
        tell(
            self.json,
            &line,
            &json!({"stream": self.name, "done": word}),
        );
    }

    /// The line for an error.
    fn explain(&self, error: Error) -> String {
        let name = &self.name;
        match error {
            Error::stream_already_exists => {
                format!(
                    "{name}: there is a stream of that name; drop it first, or choose another name"
                )
            }
            Error::stream_too_old => format!(
                "{name}: entries from this position on have been cut; begin with --from oldest, \
                and allow the stream more with --bytes-max or --keep-all when it is made"
            ),
            Error::too_many_streams => format!(
                "{name}: three streams have a part of these keys already, or there are 1000 streams; \
                let several consumers read one stream, or drop one"
            ),
            Error::invalid_stream => format!(
                "{name}: a name has 1 to 255 bytes without a zero byte, only a stream that was made with \
                --append is appended to, and ranges have keys below \\xff and a BEGIN before their END"
            ),
            error => format!("{name}: {}", connect::explain(error)),
        }
    }

    async fn transact<T>(
        &self,
        database: &Database,
        body: impl AsyncFnMut(Transaction) -> plinth_core::Result<T>,
    ) -> Outcome<T> {
        match database.run(body).await {
            Err(Error::stream_not_found) => Err(self.none_such(database).await),
            done => done.map_err(|error| self.explain(error)),
        }
    }

    /// The line about a stream that is not there, with the one that was meant.
    async fn none_such(&self, database: &Database) -> String {
        let listed = database.run(async |tr| tr.list_streams().await).await;
        let listed = listed.unwrap_or_default();
        let names: Vec<String> = listed.iter().map(|info| printable(&info.name)).collect();
        let meant = question(&self.name, names.iter().map(String::as_str));
        let name = &self.name;
        format!(
            "{name}: there is no such stream; {meant}`plinth stream list' shows those there are"
        )
    }

    /// What cannot go on without the stream, if it is a part of something.
    fn is_part_of(&self) -> Option<String> {
        let (family, name) = self.name.split_once('/')?;
        match family {
            "keeper" => Some(format!(
                "the stream of the keeper's tree `{name}', whose gateways end without it; \
                `plinth keeper drop --tree {name}' drops the tree"
            )),
            "delos" => Some(format!(
                "the log of the Delos service `{name}', which ends without it"
            )),
            _ => None,
        }
    }
}

impl DropOne {
    async fn run(&self) -> Outcome {
        let stream = &self.stream;
        let (name, connection) = (stream.key()?, connected(&stream.cluster).await?);
        let database = &connection.database;
        if let (Some(whole), false) = (stream.is_part_of(), self.force) {
            let there = stream.transact(database, async |tr| tr.open_stream(&name).await);
            there.await?;
            return Err(format!(
                "{} is {whole}; --force drops the stream alone",
                stream.name
            ));
        }
        let dropped = stream.transact(database, async |tr| tr.drop_stream(&name).await);
        dropped.await?;
        stream.tell("is dropped", "dropped");
        Ok(())
    }
}

impl Create {
    fn options(&self) -> Outcome<StreamOptions> {
        let mut ranges = Vec::new();
        for pair in self.range.chunks_exact(2) {
            let (begin, end) = (key(&pair[0])?, key(&pair[1])?);
            if begin >= end || &end[..] > SYSTEM_BEGIN {
                return Err(format!(
                    "{}: --range {} {}: BEGIN comes before END, and END is at most \\xff",
                    self.stream.name, pair[0], pair[1]
                ));
            }
            ranges.push(KeyRange::new(begin, end));
        }
        if ranges.is_empty() {
            ranges.push(KeyRange::new(Key::new(), SYSTEM_BEGIN));
        }
        let options = match self.append {
            true => StreamOptions::append(),
            false => StreamOptions::changes(ranges),
        };
        Ok(match self.keep_all {
            true => options.keep_all(),
            false => options
                .bytes_max(self.bytes_max)
                .seconds_max(self.seconds_max),
        })
    }

    async fn run(&self) -> Outcome {
        if let (Some(whole), false) = (self.stream.is_part_of(), self.append) {
            return Err(format!(
                "{} would be {whole}; it is made with --append, and a new one by what it is a part of; choose \
                 another name",
                self.stream.name
            ));
        }
        let (name, options) = (self.stream.key()?, self.options()?);
        let connection = connected(&self.stream.cluster).await?;
        let mut before = false;
        let created = self.stream.transact(&connection.database, async |tr| {
            match tr.create_stream(&name, &options).await {
                // An attempt whose answer was lost may have made it.
                Err(Error::stream_already_exists) if before => Ok(()),
                made => {
                    before |= made.is_ok();
                    made
                }
            }
        });
        created.await?;
        self.stream.tell("is there", "created");
        Ok(())
    }
}

impl List {
    async fn run(&self) -> Outcome {
        let connection = connected(&self.cluster).await?;
        let listed = connection.database.run(async |tr| {
            let mut rows = Vec::new();
            for info in tr.list_streams().await? {
                let stream = tr.open_stream(&info.name).await?;
                let range = plinth_core::streams::entries_range(stream.id());
                let size = tr.get_estimated_range_size_bytes(range.begin, range.end);
                let (bytes, consumers) = (size.await?, stream.lags(&tr).await?.into_iter());
                let seconds = |versions: i64| versions as f64 / VERSIONS_PER_SECOND as f64;
                let consumers =
                    consumers.map(|(who, at, behind)| (printable(&who), at, seconds(behind)));
                rows.push(Listed {
                    name: printable(&info.name),
                    record: info.record,
                    bytes,
                    consumers: consumers.collect(),
                });
            }
            Ok(rows)
        });
        let rows = listed.await.map_err(connect::explain)?;
        if self.json {
            let rows: Vec<Value> = rows.iter().map(Listed::json).collect();
            println!("{}", json!({ "streams": rows }));
            return Ok(());
        }
        rows.iter().for_each(Listed::print);
        Ok(())
    }
}

/// A stream, as it is listed.
struct Listed {
    name: String,
    record: plinth_core::streams::StreamRecord,
    bytes: i64,
    /// With their positions, and how many seconds they are behind.
    consumers: Vec<(String, Position, f64)>,
}

impl Listed {
    fn json(&self) -> Value {
        let consumers = self.consumers.iter().map(
            |(who, at, lag_s)| json!({"name": who, "position": hex(*at), "lag_seconds": lag_s}),
        );
        let ranges = self.record.ranges.iter();
        let ranges = ranges.map(|range| [printable(&range.begin), printable(&range.end)]);
        json!({
            "name": self.name, "kind": self.record.kind.name(), "bytes": self.bytes,
            "bytes_max": self.record.bytes_max, "seconds_max": self.record.seconds_max,
            "ranges": ranges.collect::<Vec<_>>(),
            "consumers": consumers.collect::<Vec<_>>(),
        })
    }

    fn print(&self) {
        let (kind, limits) = (self.record.kind.name(), limits(&self.record));
        println!("{}  {kind}  {} bytes  {limits}", self.name, self.bytes);
        for range in &self.record.ranges {
            println!("  keys {}", keys_of(range));
        }
        for (who, _, lag_s) in &self.consumers {
            println!("  consumer {who}, {lag_s:.1} s behind");
        }
    }
}

/// As the statements of `plinth cli` take them.
fn keys_of(range: &KeyRange) -> String {
    let begin = match range.begin.is_empty() {
        true => "\"\"".into(),
        false => printable(&range.begin),
    };
    format!("from {begin} to {}", printable(&range.end))
}

fn limits(record: &plinth_core::streams::StreamRecord) -> String {
    let part = |limit: u64, unit: &str| (limit > 0).then(|| format!("at most {limit} {unit}"));
    let parts = [
        part(record.bytes_max, "bytes"),
        part(record.seconds_max, "seconds"),
    ];
    match parts.into_iter().flatten().collect::<Vec<_>>() {
        none if none.is_empty() => "keeps all".into(),
        some => some.join(", "),
    }
}

impl Tail {
    async fn run(&self) -> Outcome {
        let (name, connection) = (self.stream.key()?, connected(&self.stream.cluster).await?);
        let database = &connection.database;
        let open = self
            .stream
            .transact(database, async |tr| tr.open_stream(&name).await);
        let stream = open.await?;
        let mut at = self.begin(database, &stream).await?;
        let seen = Arc::new(Mutex::new((0, at)));
        let (told, consumer, name) = (
            seen.clone(),
            self.consumer.clone(),
            self.stream.name.clone(),
        );
        interrupts::end_with(move || interrupted(&name, consumer.as_deref(), &told));
        let mut left = self.limit.unwrap_or(u64::MAX);
        while left > 0 {
            let batch = self.read(database, &stream, at, left).await?;
            let word = if self.stream.json { in_json } else { in_words };
            for entry in &batch.entries {
                println!("{}", word(entry));
            }
            left -= batch.entries.len() as u64;
            at = batch.next;
            self.note(database, &stream, at).await?;
            if let Ok(mut seen) = seen.lock() {
                *seen = (seen.0 + batch.entries.len() as u64, at);
            }
            if !batch.more && !self.follow {
                break;
            }
            if !batch.more && left > 0 {
                let news = database.wait_for_stream(&stream, at).await;
                news.map_err(|error| self.stream.explain(error))?;
            }
        }
        Ok(())
    }

    async fn begin(&self, database: &Database, stream: &Stream) -> Outcome<Position> {
        if let Some(consumer) = &self.consumer {
            let consumer = key(consumer)?;
            let at = self
                .stream
                .transact(database, async |tr| stream.position(&tr, &consumer).await);
            return Ok(at.await?.unwrap_or_default());
        }
        match &self.from[..] {
            "oldest" => Ok(Position::START),
            "newest" => {
                let version = self
                    .stream
                    .transact(database, async |tr| tr.get_read_version().await);
                Ok(Position::of_version(version.await? + 1))
            }
            text => parse_hex(text).ok_or_else(|| {
                format!(
                    "--from {text}: a position has 24 hexadecimal digits; or say oldest, or newest"
                )
            }),
        }
    }

    async fn read(
        &self,
        database: &Database,
        stream: &Stream,
        at: Position,
        left: u64,
    ) -> Outcome<StreamBatch> {
        let limit = StreamLimit {
            entries: BATCH
                .entries
                .min(usize::try_from(left).unwrap_or(usize::MAX)),
            ..BATCH
        };
        let read = self
            .stream
            .transact(database, async |tr| stream.read(&tr, at, limit).await);
        read.await
    }

    /// Notes how far the consumer has come.
    async fn note(&self, database: &Database, stream: &Stream, at: Position) -> Outcome {
        let Some(consumer) = &self.consumer else {
            return Ok(());
        };
        let consumer = key(consumer)?;
        let noted = self.stream.transact(database, async |tr| {
            stream.set_position(&tr, &consumer, at).await
        });
        noted.await
    }
}

/// What is said to a reader who has had enough: how many entries it has had, and how to have the next one.
fn interrupted(name: &str, consumer: Option<&str>, seen: &Mutex<(u64, Position)>) -> String {
    // Nobody ends a process amid a change of two numbers.
    let (count, at) = seen
        .lock()
        .map_or_else(|seen| *seen.into_inner(), |seen| *seen);
    let next = match consumer {
        Some(consumer) => format!("--consumer {consumer}"),
        None if at == Position::START => "--from oldest".into(),
        None => format!("--from {}", hex(at)),
    };
    let entries = counted(count, "entry", "entries");
    format!("{name}: it was interrupted after {entries}; go on with {next}")
}

fn hex(position: Position) -> String {
    position
        .to_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn parse_hex(text: &str) -> Option<Position> {
    if !text.is_ascii() || text.len() != 2 * Position::LEN {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok();
    let bytes: Option<Vec<u8>> = (0..Position::LEN).map(byte).collect();
    Position::from_bytes(&bytes?)
}

fn in_words(entry: &StreamEntry) -> String {
    let at = hex(entry.position);
    match &entry.content {
        StreamContent::Appended(value) => format!("{at}  {}", printable(value)),
        StreamContent::Changed(mutations) => {
            let words = |mutation: Mutation| {
                let (first, second) = (printable(&mutation.first), printable(&mutation.second));
                format!("{at}  {} {first} {second}", mutation.kind.name())
            };
            mutations
                .iter_owned()
                .map(words)
                .collect::<Vec<_>>()
                .join("\n")
        }
    }
}

fn in_json(entry: &StreamEntry) -> String {
    let mut object = json!({"position": hex(entry.position), "version": entry.position.version});
    match &entry.content {
        StreamContent::Appended(value) => object["entry"] = printable(value).into(),
        StreamContent::Changed(mutations) => {
            let one = |mutation: Mutation| {
                let (first, second) = (printable(&mutation.first), printable(&mutation.second));
                match mutation.kind {
                    MutationKind::ClearRange => {
                        json!({"type": "clear", "begin": first, "end": second})
                    }
                    kind => json!({"type": kind.name(), "key": first, "value": second}),
                }
            };
            object["mutations"] = mutations.iter_owned().map(one).collect();
        }
    }
    object.to_string()
}

impl Append {
    async fn run(&self) -> Outcome {
        let (name, connection) = (self.stream.key()?, connected(&self.stream.cluster).await?);
        let database = &connection.database;
        let appended = Arc::<AtomicUsize>::default();
        let (name_of, told) = (self.stream.name.clone(), appended.clone());
        interrupts::end_with(move || {
            let count = counted(told.load(Ordering::Relaxed), "entry is", "entries are");
            format!("{name_of}: it was interrupted; {count} appended, or a few more")
        });
        let mut count = 0;
        if let Some(entry) = &self.entry {
            self.append(database, &name, &[key(entry)?]).await?;
            count = 1;
        } else {
            let lines = std::io::stdin().lock().lines().enumerate();
            let mut lines = lines.map(|(at, line)| match at {
                0 => line.map(|line| without_mark(&line).to_owned()),
                _ => line,
            });
            loop {
                let entries = next_lines(&mut lines)?;
                if entries.is_empty() {
                    break;
                }
                self.append(database, &name, &entries).await?;
                count += entries.len();
                appended.store(count, Ordering::Relaxed);
            }
        }
        let object = json!({"stream": self.stream.name, "appended": count});
        tell(self.stream.json, &format!("{count} appended"), &object);
        Ok(())
    }

    async fn append(&self, database: &Database, name: &Key, entries: &[Key]) -> Outcome {
        let appended = database.run(async |tr| {
            // What is appended twice would stand there twice.
            tr.set_option(plinth_client::TransactionOption::AutomaticIdempotency)?;
            let stream = tr.open_stream(name).await?;
            for entry in entries {
                stream.append(&tr, entry).await?;
            }
            Ok(())
        });
        match appended.await {
            Err(Error::stream_not_found) => Err(self.stream.none_such(database).await),
            appended => appended.map_err(|error| self.explain(error)),
        }
    }

    /// Only this is wrong with a stream that is there.
    fn explain(&self, error: Error) -> String {
        match error {
            Error::invalid_stream => format!(
                "{}: it is a stream of changes, and entries are appended only to one that was made with --append",
                self.stream.name
            ),
            error => self.stream.explain(error),
        }
    }
}

fn next_lines(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> Outcome<Vec<Key>> {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    while entries.len() < LINES_AT_ONCE && bytes < BYTES_AT_ONCE {
        let Some(line) = lines.next() else { break };
        let line = line.map_err(|error| format!("standard input: {error}"))?;
        let entry = key(&line)?;
        bytes += entry.len();
        entries.push(entry);
    }
    Ok(entries)
}

impl Forget {
    async fn run(&self) -> Outcome {
        let (name, consumer) = (self.stream.key()?, key(&self.consumer)?);
        let connection = connected(&self.stream.cluster).await?;
        let forgotten = self.stream.transact(&connection.database, async |tr| {
            let stream = tr.open_stream(&name).await?;
            let existed = stream.position(&tr, &consumer).await?.is_some();
            stream.remove_consumer(&tr, &consumer)?;
            Ok(existed)
        });
        if !forgotten.await? {
            return Err(format!(
                "{}: it has no consumer {}",
                self.stream.name, self.consumer
            ));
        }
        let line = format!("{} is forgotten", self.consumer);
        let object = json!({"stream": self.stream.name, "forgotten": self.consumer});
        tell(self.stream.json, &line, &object);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_printed_and_read_back_and_nothing_else_is_one() {
        let position = Position {
            version: 123_456_789,
            order: 7,
            piece: 2,
        };
        assert_eq!(parse_hex(&hex(position)), Some(position));
        for text in [
            "",
            "oldest",
            "zz",
            "00000000000000000000000g",
            "é00000000000000000000000",
        ] {
            assert_eq!(parse_hex(text), None, "{text}");
        }
    }

    #[test]
    fn who_interrupts_a_tail_is_told_how_to_have_the_next_entry() {
        let at = Position {
            version: 7,
            order: 0,
            piece: 0,
        };
        let line = interrupted("s", None, &Mutex::new((1, at)));
        let next = format!("after 1 entry; go on with --from {}", hex(at));
        assert!(line.ends_with(&next), "{line}");
        let line = interrupted("s", Some("me"), &Mutex::new((2, at)));
        assert!(
            line.ends_with("after 2 entries; go on with --consumer me"),
            "{line}"
        );
        let line = interrupted("s", None, &Mutex::new((0, Position::START)));
        assert!(line.ends_with("--from oldest"), "{line}");
    }
}
