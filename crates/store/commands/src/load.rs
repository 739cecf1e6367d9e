//! `plinth load`: writes the pairs of a file to a cluster, in batches of one transaction each, several at a time.
//!
//! Only whole batches are loaded. The [`progress`] of a file is kept beside it, in `FILE.plinth-progress`: the byte
//! up to which everything is committed. A load that stopped is resumed from that byte. The few batches after it that
//! were committed too are loaded again, which changes nothing. The part of the file before that byte must be
//! unchanged; otherwise the file must be loaded from the start.
//!
//! The last line of a key wins, as if the file were loaded line by line: a batch waits while a batch with one of its
//! keys is under way.
//!
//! Tenants that the file begins with are made before their pairs ([`spaces`]).

#![allow(clippy::disallowed_types)] // the user's file, read and reported on by the user's side

mod progress;
mod spaces;

use crate::rows::{self, Format, Pair};
use indicatif::ProgressBar;
use plinth_client::Tenants;
use plinth_core::hash::{FixedHasher, HashMap};
use plinth_core::{Error, Result};
use plinth_identity::files::FileKind;
use plinth_measure::grouped;
use plinth_measure::latency::round;
use plinth_runtime::{Duration, Instant, Task, now};
use plinth_terminal::choices::among;
use plinth_terminal::connect::{self, ClusterArguments, Connection};
use plinth_terminal::given::other_kind;
use plinth_terminal::interrupts;
use plinth_terminal::numbers::{bytes_within, within};
use plinth_terminal::outputs::why_not_read;
use plinth_terminal::process::unless_interrupted;
use plinth_terminal::token::TokenArgument;
use plinth_terminal::wording::{counted, pasted};
use plinth_terminal::{Outcome, progress as bars, text};
use progress::{Position, Sidecar, Terms};
use spaces::Spaces;
use std::collections::VecDeque;
use std::fs::File;
use std::hash::Hasher;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const INTERRUPTED: &str = "it was interrupted";
/// What a file begins with that gzip has made.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// About a file of another system.
const RETURNS: &str = "the line ends with a carriage return, which is left out, here and in lines after it: in a \
     value it is written \\r";
/// Minimum time between two writes of the progress file.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
const READ_BUFFER_BYTES: usize = 1 << 20;
/// Lines between two updates of the progress bar while the loaded part is compared.
const COMPARE_LINES: u64 = 100_000;
/// Limit of pairs in a batch, so that commits are looked at between two batches.
const BATCH_ROWS_MAX: usize = 10_000;

#[derive(clap::Args, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    ("plinth load pairs.tsv", "A pair a line: key, tab, value"),
    (
        "plinth load users.jsonl --prefix users/",
        "Objects with key and value; all keys get a prefix",
    ),
    ("plinth load pairs.tsv --resume", "Go on with a load that was interrupted"),
]))]
struct Arguments {
    /// File to load; `-` for standard input
    #[arg(value_name = "FILE")]
    file: String,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    token: TokenArgument,
    /// Format of the pairs: tsv (key, tab, value) or jsonl (an object a line); default: by the file's name, else tsv
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    #[arg(value_parser = among(Format::NAMES, Format::parse))]
    format: Option<Format>,
    /// Prefix to put before every key; escapes as in a file
    #[arg(long, value_name = "PREFIX", default_value = "")]
    prefix: String,
    /// Bytes of keys and values per transaction
    #[arg(long, value_name = "BYTES", default_value_t = 200_000, value_parser = bytes_within::<u64>(1..=5_000_000))]
    batch_bytes: u64,
    /// Transactions under way at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = within::<u64>(1..=1000))]
    concurrency: u64,
    /// Write also to a tree that gateways of the keeper serve, who then serve nobody until they are started again
    #[arg(long)]
    force: bool,
    /// Resume an earlier load of the file where it stopped
    #[arg(long)]
    resume: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Reads batches of pairs from the file.
struct Source {
    name: String,
    /// On a disk, which answers.
    is_file: bool,
    input: Box<dyn BufRead>,
    format: Format,
    prefix: Vec<u8>,
    at: Position,
    line: Vec<u8>,
    has_told_of_returns: bool,
    /// The tenants that the file begins with.
    tenants: Tenants,
    /// What follows them has been read.
    is_behind_tenants: bool,
    /// The line is read, and not yet taken.
    is_line_left: bool,
    spaces: Spaces,
}

struct Batch {
    pairs: Rc<Vec<Pair>>,
    hashes: Vec<u64>,
    end: Position,
}

/// A batch that is being committed.
struct Running {
    task: Task<Result<()>>,
    hashes: Vec<u64>,
    end: Position,
    rows: u64,
}

plinth_terminal::command!(
    "load",
    "Load pairs from a file into a cluster",
    Arguments => run
);

fn run(arguments: Arguments) -> Outcome {
    let prefix = plinth_core::key::unprintable(&arguments.prefix)
        .ok_or("--prefix: there is a broken escape; a backslash itself is written \\\\")?;
    if arguments.resume && arguments.file == "-" {
        return Err("--resume: standard input cannot be resumed; load it from a file".into());
    }
    connect::block_on(async {
        let connection = arguments.token.shown_by(arguments.cluster.open().await?)?;
        let terms = Terms {
            format: Format::choose(arguments.format, &arguments.file),
            prefix,
            cluster: connection.coordinators.key(),
        };
        let sidecar = Sidecar::of(&arguments.file, terms.clone());
        if arguments.resume && !sidecar.is_there() {
            plinth_terminal::say!(
                "plinth: {}: no earlier load of it has stopped; it is loaded from the start",
                arguments.file
            );
        }
        let start = match arguments.resume {
            true => sidecar.read()?,
            false => Position::default(),
        };
        let (mut source, total_bytes) = Source::open(&arguments.file, terms)?;
        source.pass_what_is_loaded(start)?;
        connection.wait_until_it_serves().await?;
        connection.limit_transactions();
        if !arguments.resume {
            sidecar.remove(); // of an earlier load
        }
        let bar = bars::bar(total_bytes, "loading");
        let loader = Loader::new(&arguments, connection, source, sidecar, bar);
        loader.load().await
    })
}

impl Source {
    fn open(name: &str, terms: Terms) -> Outcome<(Source, u64)> {
        let cannot = |error: std::io::Error| {
            let why = why_not_read(&error, "");
            format!("{name}: {why}, or - for standard input")
        };
        let (input, total, is_file): (Box<dyn Read>, u64, bool) = if name == "-" {
            (Box::new(std::io::stdin()), 0, false)
        } else {
            let file = File::open(name).map_err(cannot)?;
            let meta = file.metadata().map_err(cannot)?;
            if meta.is_dir() {
                return Err(format!("{name}: it is a directory; name a file"));
            }
            (Box::new(file), meta.len(), meta.is_file())
        };
        let source = Source {
            name: name.to_string(),
            is_file,
            input: Box::new(BufReader::with_capacity(READ_BUFFER_BYTES, input)),
            format: terms.format,
            prefix: terms.prefix,
            at: Position::default(),
            line: Vec::new(),
            has_told_of_returns: false,
            tenants: Tenants::default(),
            is_behind_tenants: false,
            is_line_left: false,
            spaces: Spaces::default(),
        };
        Ok((source, total))
    }

    /// Skips the lines that an earlier load has loaded. Fails if they have changed.
    fn pass_what_is_loaded(&mut self, loaded: Position) -> Outcome {
        let bar = bars::bar(loaded.bytes, "comparing what is loaded");
        while self.at.bytes < loaded.bytes && self.next_line()? {
            self.is_behind_tenants |= !self.take_tenant()?;
            if self.at.lines.is_multiple_of(COMPARE_LINES) {
                bar.set_position(self.at.bytes);
            }
        }
        bar.finish_and_clear();
        if self.at == loaded {
            return Ok(());
        }
        let what = match self.at.bytes < loaded.bytes {
            true => "it is shorter than what was loaded of it".into(),
            false => format!(
                "its first {} lines are not those that were loaded",
                loaded.lines
            ),
        };
        Err(format!(
            "{}: {what}; load it from the start, without --resume",
            self.name
        ))
    }

    /// The next pairs; `None` at the end. An error names file and line, and discards the pairs of this batch before
    /// that line.
    fn next_batch(&mut self, bytes_max: usize) -> Outcome<Option<Batch>> {
        let mut batch = Batch {
            pairs: Rc::default(),
            hashes: Vec::new(),
            end: self.at,
        };
        let mut pairs = Vec::new();
        let mut bytes = 0;
        while bytes < bytes_max && pairs.len() < BATCH_ROWS_MAX {
            let Some((key, value)) = self.next_pair()? else {
                break;
            };
            bytes += key.len() + value.len();
            let mut hasher = FixedHasher::default();
            hasher.write(&key);
            batch.hashes.push(hasher.finish());
            pairs.push((key, value));
        }
        batch.end = self.at;
        batch.pairs = Rc::new(pairs);
        Ok((!batch.pairs.is_empty()).then_some(batch))
    }

    /// Reads a line and removes its end; false at the end of the file.
    fn next_line(&mut self) -> Outcome<bool> {
        self.line.clear();
        let mut limited = (&mut self.input).take(rows::LINE_BYTES_MAX as u64);
        let read = limited.read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| self.at_line(self.at.lines + 1, error))?;
        if read == 0 {
            return Ok(false);
        }
        let is_first = self.at.bytes == 0;
        if is_first && self.line.starts_with(GZIP) {
            return Err(self.compressed());
        }
        self.at.pass(&self.line);
        if read == rows::LINE_BYTES_MAX && self.line.last() != Some(&b'\n') {
            return Err(self.at_line(self.at.lines, "the line is too long to be a pair"));
        }
        if is_first {
            text::remove_mark(&mut self.line);
        }
        let had_return = text::remove_end(&mut self.line) && self.format == Format::Tsv;
        if had_return && !std::mem::replace(&mut self.has_told_of_returns, true) {
            plinth_terminal::say!("plinth: {}", self.at_line(self.at.lines, RETURNS));
        }
        Ok(true)
    }

    /// Reads the tenants that the file begins with.
    fn read_tenants(&mut self) -> Outcome {
        while !self.is_behind_tenants && self.next_line()? {
            self.is_line_left = !self.take_tenant()?;
            self.is_behind_tenants = self.is_line_left;
        }
        Ok(())
    }

    /// Takes the tenant that the line tells of; false if it stands behind those that tell of tenants.
    fn take_tenant(&mut self) -> Outcome<bool> {
        if self.is_behind_tenants || self.line.is_empty() {
            return Ok(!self.is_behind_tenants);
        }
        let taken = rows::take_tenant(self.format, &self.line, &mut self.tenants);
        taken.map_err(|what| self.at_line(self.at.lines, what))
    }

    /// The end of the words about how much was loaded.
    fn of_tenants(&self) -> String {
        match self.tenants.named.len() {
            0 => String::new(),
            tenants => format!(" and {}", counted(tenants, "tenant", "tenants")),
        }
    }

    fn compressed(&self) -> String {
        match &self.name[..] {
            "-" => "standard input: it is compressed by gzip: let `gzip -dc' read it before".into(),
            name => {
                let file = pasted(Path::new(name));
                format!(
                    "{name}: it is compressed by gzip: `gzip -dc {file} | plinth load -' loads it"
                )
            }
        }
    }

    fn at_line(&self, line: u64, what: impl std::fmt::Display) -> String {
        match &self.name[..] {
            "-" => format!("standard input, line {line}: {what}"),
            name => format!("{name}:{line}: {what}"),
        }
    }

    /// The line about a line that is no pair.
    fn no_pair(&self, what: String) -> String {
        let other = (self.is_file && self.at.lines <= 1)
            .then(|| other_kind(FileKind::Pairs, Path::new(&self.name)));
        match other.flatten() {
            Some(other) => format!("{}: {other}", self.name),
            None => self.at_line(self.at.lines, what),
        }
    }

    fn next_pair(&mut self) -> Outcome<Option<Pair>> {
        loop {
            if !std::mem::take(&mut self.is_line_left) && !self.next_line()? {
                return Ok(None);
            }
            if self.line.is_empty() {
                continue;
            }
            let pair = rows::parse(self.format, &self.line);
            let (mut key, value) = pair.map_err(|what| self.no_pair(what))?;
            if !self.prefix.is_empty() {
                key = [&self.prefix[..], &key].concat().into();
            }
            if key.len() > plinth_core::key::KEY_BYTES_MAX {
                return Err(self.at_line(self.at.lines, "the key with its prefix is too long"));
            }
            if let Err(what) = self.spaces.check(&key) {
                return Err(self.at_line(self.at.lines, what));
            }
            return Ok(Some((key, value)));
        }
    }
}

fn lines_loaded(lines: u64) -> String {
    match lines {
        0 => "nothing is loaded".into(),
        1 => "the first line is loaded".into(),
        lines => format!("the first {lines} lines are loaded"),
    }
}

struct Loader {
    connection: Connection,
    source: Source,
    sidecar: Sidecar,
    bar: ProgressBar,
    batch_bytes: usize,
    concurrency: usize,
    json: bool,
    is_forced: bool,
    running: VecDeque<Running>,
    /// Number of pairs under way per hash of their key.
    keys_under_way: HashMap<u64, u32>,
    /// Everything before this position is committed.
    committed: Position,
    /// The number of its lines, for who interrupts the load.
    told: Arc<AtomicU64>,
    rows: u64,
    written_at: Instant,
}

impl Loader {
    fn new(
        arguments: &Arguments,
        connection: Connection,
        source: Source,
        sidecar: Sidecar,
        bar: ProgressBar,
    ) -> Self {
        let committed = source.at;
        Loader {
            connection,
            source,
            sidecar,
            bar,
            batch_bytes: arguments.batch_bytes as usize,
            concurrency: arguments.concurrency as usize,
            json: arguments.json,
            is_forced: arguments.force,
            running: VecDeque::new(),
            keys_under_way: HashMap::default(),
            committed,
            told: Arc::default(),
            rows: 0,
            written_at: now(),
        }
    }

    async fn load(mut self) -> Outcome {
        let start = now();
        // Reading anything else than a file may hold up the loop, which would not hear of the interrupt.
        let outcome = match self.source.is_file {
            false => {
                let told = self.told.clone();
                interrupts::end_with(move || {
                    let lines = told.load(Ordering::Relaxed);
                    format!("{INTERRUPTED} ({})", lines_loaded(lines))
                });
                self.load_all().await
            }
            true => {
                let done = unless_interrupted(self.load_all()).await;
                done.and_then(|done| done.unwrap_or_else(|| Err(INTERRUPTED.into())))
            }
        };
        self.bar.finish_and_clear();
        let took_s = start.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => {
                self.sidecar.remove();
                if let Some(doubtful) = &self.source.spaces.doubtful {
                    plinth_terminal::say!("plinth: {}: {doubtful}", self.source.name);
                }
                let unusable = self.source.spaces.unusable(&self.connection.database).await;
                for line in unusable.iter().filter(|_| !self.json) {
                    plinth_terminal::say!("plinth: {}: {line}", self.source.name);
                }
                if self.json {
                    let seconds = round(took_s, 3);
                    let (pairs, tenants) = (self.rows, self.source.tenants.named.len());
                    let done = serde_json::json!({
                        "pairs": pairs, "tenants": tenants, "unusable": unusable, "seconds": seconds,
                    });
                    println!("{done}");
                    return Ok(());
                }
                let of_tenants = self.source.of_tenants();
                let rate = self.rows as f64 / took_s.max(1e-9);
                plinth_terminal::say!(
                    "loaded {}{of_tenants} in {took_s:.2} s, {} pairs/s",
                    counted(grouped(self.rows as f64), "pair", "pairs"),
                    grouped(rate)
                );
                Ok(())
            }
            Err(line) => {
                if self.committed.lines == 0 {
                    self.sidecar.remove(); // it would say nothing
                    return Err(format!("{line} (nothing is loaded)"));
                }
                let is_noted = self.sidecar.write(self.committed);
                let next = match (is_noted, self.sidecar.is_kept(), line == INTERRUPTED) {
                    (Err(error), _, _) => {
                        format!(
                            "; that cannot be noted beside the file, so begin at its start: {error}"
                        )
                    }
                    (Ok(()), false, _) => String::new(),
                    (Ok(()), true, true) => "; go on with --resume".into(),
                    (Ok(()), true, false) => "; when it is mended, go on with --resume".into(),
                };
                let loaded = lines_loaded(self.committed.lines);
                Err(format!("{line} ({loaded}{next})"))
            }
        }
    }

    async fn load_all(&mut self) -> Outcome {
        self.prepare().await?;
        loop {
            let batch = match self.source.next_batch(self.batch_bytes) {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(line) => {
                    // The batches before the bad line are whole and may finish.
                    self.finish_all().await?;
                    return Err(line);
                }
            };
            while self.running.len() >= self.concurrency || self.meets_one_under_way(&batch) {
                self.finish_first().await?;
            }
            self.start(batch);
            // Lets the event loop handle the cluster's replies between two batches.
            plinth_runtime::yield_now().await;
        }
        self.finish_all().await
    }

    /// Makes the tenants, if nothing of the file is to be refused.
    async fn prepare(&mut self) -> Outcome {
        self.source.read_tenants()?;
        for looks in [true, false] {
            let (tenants, prefix) = (&self.source.tenants, &self.source.prefix);
            let brought = Spaces::bring(&self.connection, tenants, prefix, looks).await;
            let named = |line| format!("{}: {line}", self.source.name);
            let mut spaces = brought.map_err(named)?;
            if !self.is_forced {
                spaces.refuse_served(&self.connection).await?;
            }
            self.source.spaces = spaces;
            if looks {
                self.check_all().await?;
            }
        }
        Ok(())
    }

    /// Checks a file before anything of it is loaded, if some keys cannot be.
    async fn check_all(&mut self) -> Outcome {
        if !self.source.is_file || !self.source.spaces.may_refuse() {
            return Ok(());
        }
        let terms = Terms {
            format: self.source.format,
            prefix: self.source.prefix.clone(),
            cluster: String::new(),
        };
        let (mut again, _) = Source::open(&self.source.name, terms)?;
        again.has_told_of_returns = true;
        again.read_tenants()?;
        again.spaces = std::mem::take(&mut self.source.spaces);
        while again.next_batch(self.batch_bytes)?.is_some() {
            plinth_runtime::yield_now().await;
        }
        Ok(())
    }

    fn meets_one_under_way(&self, batch: &Batch) -> bool {
        !self.running.is_empty()
            && batch
                .hashes
                .iter()
                .any(|hash| self.keys_under_way.contains_key(hash))
    }

    fn start(&mut self, batch: Batch) {
        for hash in &batch.hashes {
            *self.keys_under_way.entry(*hash).or_insert(0) += 1;
        }
        let (database, pairs) = (self.connection.database.clone(), batch.pairs.clone());
        let task = plinth_runtime::spawn("load batch", async move {
            let written = database.run(async |transaction| {
                for (key, value) in pairs.iter() {
                    transaction.set(key, value);
                }
                Ok(())
            });
            written.await
        });
        let rows = batch.pairs.len() as u64;
        self.running.push_back(Running {
            task,
            hashes: batch.hashes,
            end: batch.end,
            rows,
        });
    }

    async fn finish_all(&mut self) -> Outcome {
        while !self.running.is_empty() {
            self.finish_first().await?;
        }
        Ok(())
    }

    /// Waits for the oldest batch, because progress is counted in the order of the file.
    async fn finish_first(&mut self) -> Outcome {
        let Some(first) = self.running.front_mut() else {
            return Ok(());
        };
        let result = (&mut first.task).await;
        let first = self.running.pop_front().expect("it is there");
        match result {
            Ok(()) => {}
            Err(Error::transaction_timed_out) => {
                let unanswered = self.connection.database.unanswered_commits();
                let silence = self.connection.explain_silence_of_writes(unanswered);
                return Err(silence.await);
            }
            Err(error) => {
                return Err(format!(
                    "a batch that ends at line {} cannot be committed: {}",
                    first.end.lines,
                    connect::explain(error)
                ));
            }
        }
        for hash in first.hashes {
            if let Some(count) = self.keys_under_way.get_mut(&hash) {
                *count -= 1;
                if *count == 0 {
                    self.keys_under_way.remove(&hash);
                }
            }
        }
        self.rows += first.rows;
        self.committed = first.end;
        self.told.store(self.committed.lines, Ordering::Relaxed);
        self.bar.set_position(first.end.bytes);
        self.bar
            .set_message(format!("{} pairs", grouped(self.rows as f64)));
        if self.written_at.elapsed() >= PROGRESS_INTERVAL {
            let _ = self.sidecar.write(self.committed); // the end of the load says so
            self.written_at = now();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &'static str) -> Source {
        Source {
            is_file: false,
            name: "f".into(),
            input: Box::new(text.as_bytes()),
            format: Format::Tsv,
            prefix: b"p/".to_vec(),
            at: Position::default(),
            line: Vec::new(),
            has_told_of_returns: false,
            tenants: Tenants::default(),
            is_behind_tenants: false,
            is_line_left: false,
            spaces: Spaces::default(),
        }
    }

    #[test]
    fn batches_end_with_whole_lines_and_say_where() {
        let mut source = source("a\t1\n\nb\t2\nc\t3");
        let first = source.next_batch(6).expect("reads").expect("two pairs");
        assert_eq!(first.pairs.len(), 2);
        assert_eq!(&first.pairs[1].0[..], b"p/b");
        assert_eq!((first.end.bytes, first.end.lines), (9, 3));
        let second = source
            .next_batch(6)
            .expect("reads")
            .expect("the last, without a line end");
        assert_eq!((second.pairs.len(), second.end.bytes), (1, 12));
        assert!(source.next_batch(6).expect("reads").is_none());
    }

    #[test]
    fn tenants_are_read_before_the_pairs_and_by_a_load_that_goes_on() {
        let text = "\\xff/tenant/lastId\t\\0\\0\\0\\0\\0\\0\\0\\x05\n\
             \\xff/tenant/map/web\t\\0\\0\\0\\0\\0\\0\\0\\x01\na\t1\nb\t2\n";
        let mut first = source(text);
        first.read_tenants().expect("reads");
        assert_eq!(first.tenants.named, [("web".into(), 1)].into());
        assert_eq!(first.tenants.last, 5);
        let batch = first.next_batch(2).expect("reads").expect("a pair");
        assert_eq!(&batch.pairs[0].0[..], b"p/a");
        assert_eq!(batch.end.lines, 3);
        let mut resumed = source(text);
        resumed.pass_what_is_loaded(batch.end).expect("the same");
        resumed.read_tenants().expect("reads");
        assert_eq!(resumed.tenants, first.tenants);
        let batch = resumed.next_batch(2).expect("reads").expect("a pair");
        assert_eq!(&batch.pairs[0].0[..], b"p/b");
        let mut late = source("a\t1\n\\xff/tenant/map/web\t\\0\\0\\0\\0\\0\\0\\0\\x01\n");
        late.read_tenants().expect("reads");
        let refused = late.next_batch(100).err().expect("a tenant behind pairs");
        assert!(refused.contains("before all pairs"), "{refused}");
    }

    #[test]
    fn a_bad_line_is_named_by_file_and_number() {
        let mut source = source("a\t1\nb\n");
        let error = source
            .next_batch(1000)
            .err()
            .expect("the second line is bad");
        assert!(error.starts_with("f:2: "), "{error}");
    }

    #[test]
    fn a_file_that_gzip_has_made_is_named_and_what_other_systems_add_is_left_out_and_told_once() {
        let mut zipped = source("");
        zipped.input = Box::new(&[0x1f, 0x8b, 8, 0, b'\n'][..]);
        let error = zipped.next_batch(1000).err().expect("it is no text");
        assert!(
            error.contains("`gzip -dc f | plinth load -' loads it"),
            "{error}"
        );
        let mut returns = source("\u{feff}a\t1\r\nb\t2\\r\r\n\r\n");
        let batch = returns.next_batch(1000).expect("reads").expect("two pairs");
        assert_eq!(&batch.pairs[0].0[..], b"p/a");
        assert_eq!(&batch.pairs[0].1[..], b"1");
        assert_eq!(&batch.pairs[1].1[..], b"2\r");
        assert!(returns.has_told_of_returns);
        assert_eq!(batch.end.bytes, 17, "the bytes of the file");
    }

    #[test]
    fn a_load_is_resumed_only_behind_the_lines_that_were_loaded() {
        let mut first = source("a\t1\nb\t2\nc\t3\n");
        first.next_batch(6).expect("reads").expect("two pairs");
        let loaded = first.at;
        assert_eq!((loaded.bytes, loaded.lines), (8, 2));
        let mut same = source("a\t1\nb\t2\nz\t9\n");
        assert_eq!(same.pass_what_is_loaded(loaded), Ok(()));
        let next = same.next_batch(6).expect("reads").expect("the last");
        assert_eq!(&next.pairs[0].0[..], b"p/z");
        for (changed, word) in [
            ("a\t1\nb\t3\nc\t3\n", "not those"),
            ("new\t0\na\t1\nb\t2\nc\t3\n", "not those"), // byte 8 is in the middle of a line
            ("a\t1\nb\t2 and more\nc\t3\n", "not those"),
            ("a\t1\nb\n2\nc\t3\n", "not those"),
            ("a\t1\n", "shorter"),
            ("", "shorter"),
        ] {
            let line = source(changed)
                .pass_what_is_loaded(loaded)
                .expect_err(changed);
            assert!(
                line.contains(word) && line.contains("without --resume"),
                "{line}"
            );
        }
        // The last line had no line end when it was loaded.
        let mut first = source("a\t1\nb\t2");
        first.next_batch(100).expect("reads").expect("two pairs");
        let grown = source("a\t1\nb\t23\n").pass_what_is_loaded(first.at);
        assert!(grown.is_err());
    }
}
