//! `plinth dump`: writes the pairs of a cluster to a file, in key order.
//!
//! A read version is valid for five seconds. A dump that takes longer ends with an error: what it has written is of
//! one snapshot, and the rest would not be. With `--force`, or if it is resumed, it goes on at newer versions and
//! reports how many: the pairs are those of one moment only if nobody wrote meanwhile.
//!
//! The tenants with keys in the range stand before the pairs, as of the first snapshot ([`crate::rows`]). A dump of
//! several snapshots fails if they have changed.

#![allow(clippy::disallowed_types)] // the user's file, written by the user's side

use crate::rows::{self, Format, RangeArguments};
use plinth_client::{RangeOptions, StreamingMode, Tenants, Transaction};
use plinth_core::key::{key_after, printable};
use plinth_core::{Error, Key, KeyRange, Value};
use plinth_measure::grouped;
use plinth_measure::latency::round;
use plinth_runtime::now;
use plinth_terminal::choices::among;
use plinth_terminal::connect::{self, ClusterArguments, Connection};
use plinth_terminal::outputs::why_not_made;
use plinth_terminal::token::TokenArgument;
use plinth_terminal::wording::counted;
use plinth_terminal::{Outcome, interrupts, progress};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes requested per read.
const CHUNK_BYTES: i32 = 500_000;
const STANDARD_OUTPUT: &str = "/dev/stdout";

#[derive(clap::Args, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    ("plinth dump pairs.tsv", "All pairs, in the order of their keys"),
    ("plinth dump users.jsonl --begin users/ --end users0", "The keys that begin with users/"),
    ("plinth dump | gzip > pairs.tsv.gz", "All pairs, to another program"),
]))]
struct Arguments {
    /// File to write; `-` for standard output
    #[arg(value_name = "FILE", default_value = "-")]
    file: String,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    token: TokenArgument,
    /// Format of the pairs: tsv (key, tab, value) or jsonl (an object a line); default: by the file's name, else tsv
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    #[arg(value_parser = among(Format::NAMES, Format::parse))]
    format: Option<Format>,
    #[command(flatten)]
    range: RangeArguments,
    /// Resume a dump that was interrupted. What is written now is of newer snapshots than what is there
    #[arg(long)]
    resume: bool,
    /// Go on at newer snapshots when the dump takes longer than the five seconds for which one can be read
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

plinth_terminal::command!(
    "dump",
    "Write the pairs of a cluster to a file",
    Arguments => run
);

fn run(mut arguments: Arguments) -> Outcome {
    if arguments.file == STANDARD_OUTPUT {
        arguments.file = "-".into(); // it may lead to a file, which is there
    }
    let range = arguments.range.parse()?;
    if range.begin == range.end {
        return Err("--begin and --end are the same: no key lies between them".into());
    }
    if arguments.file.ends_with(".gz") || arguments.file.ends_with(".zst") {
        return Err(format!(
            "{0}: a dump is not compressed; `plinth dump | gzip > {0}' makes such a file",
            arguments.file
        ));
    }
    if arguments.resume && is_stream(&arguments.file) {
        return Err("--resume: only a file can be resumed; dump to a file".into());
    }
    if arguments.file == "-" && arguments.json {
        return Err("--json: the pairs go to standard output; name a file".into());
    }
    connect::block_on(async {
        // Before there is a file: one that is empty would be in the way of the next try.
        let connection = arguments.token.shown_by(arguments.cluster.open().await?)?;
        connection.wait_until_it_serves().await?;
        connection.limit_transactions();
        write(&arguments, &connection, range).await
    })
}

async fn write(arguments: &Arguments, connection: &Connection, mut range: KeyRange) -> Outcome {
    let format = Format::choose(arguments.format, &arguments.file);
    let (mut file, mut has_some) = (None, false);
    let mut tenants = OfTenants {
        whole: range.clone(),
        kept: None,
    };
    let out: Box<dyn Write> = if arguments.file == "-" {
        Box::new(std::io::stdout())
    } else if is_stream(&arguments.file) {
        let opened = OpenOptions::new().write(true).open(&arguments.file);
        Box::new(opened.map_err(|error| format!("{}: {}", arguments.file, why_not_made(&error)))?)
    } else {
        let (opened, kept) = open_output(arguments, format, &range)?;
        if let Some(kept) = kept {
            if !arguments.force {
                check_begin(&arguments.file, connection, &range, &kept.first).await?;
            }
            cut(&arguments.file, &opened, kept.whole_bytes)?;
            range.begin = key_after(&kept.last);
            tenants.kept = Some(kept.tenants);
            has_some = true;
        }
        let written = opened.try_clone();
        file = Some(written.map_err(|error| format!("{}: {error}", arguments.file))?);
        Box::new(opened)
    };
    let snapshots = Snapshots {
        has_some,
        may_be_many: arguments.force || arguments.resume,
    };
    let written = Arc::<Written>::default();
    let (name, told) = (arguments.file.clone(), written.clone());
    interrupts::end_with(move || interrupted(&name, *told.count()));
    let to = To {
        format,
        out,
        written: &written,
    };
    let done = dump(arguments, connection, snapshots, tenants, range, to).await;
    if done.is_err() && !arguments.resume {
        // One that is empty would be in the way of the next try.
        remove_if_empty(&arguments.file);
    }
    let done = done?;
    if let Some(file) = file {
        write_out(&arguments.file, file.sync_all())?;
    }
    match arguments.json {
        true => println!("{done}"),
        false => plinth_terminal::say!("{done}"),
    }
    Ok(())
}

/// The number of pairs that are written. Who ends the dump does so between two writes: then it is that of the file.
#[derive(Default)]
struct Written(Mutex<u64>);

impl Written {
    fn count(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the pairs in `text`. Nobody knows when a pipe takes them, and who ends the dump does not wait for that.
    fn add(
        &self,
        out: &mut dyn Write,
        text: &str,
        pairs: u64,
        is_pipe: bool,
    ) -> std::io::Result<()> {
        if is_pipe {
            out.write_all(text.as_bytes())?;
        }
        let mut count = self.count();
        if !is_pipe {
            out.write_all(text.as_bytes())?;
        }
        *count += pairs;
        Ok(())
    }
}

/// What is said of a dump that the user ends after so many pairs.
fn interrupted(name: &str, count: u64) -> String {
    let pairs = counted(grouped(count as f64), "pair", "pairs");
    match (is_stream(name), count) {
        (true, 0) => "dump: it was interrupted; nothing is written".into(),
        (true, _) => format!("dump: it was interrupted after {pairs}: this is only a part"),
        (_, 0) if remove_if_empty(name) => {
            format!("{name}: it was interrupted; nothing is written")
        }
        _ => format!("{name}: it was interrupted after {pairs}; go on with --resume"),
    }
}

/// Whether it is standard output, a pipe or a device: what is written there is gone.
fn is_stream(name: &str) -> bool {
    let found = std::fs::metadata(name);
    name == "-" || found.is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Whether the file was empty, and is gone.
fn remove_if_empty(name: &str) -> bool {
    let is_empty = std::fs::metadata(name).is_ok_and(|file| file.is_file() && file.len() == 0);
    is_empty && std::fs::remove_file(name).is_ok()
}

/// What is in a file that an unfinished dump has left.
struct Kept {
    tenants: Tenants,
    /// Keys of its first and of its last whole line.
    first: Key,
    last: Key,
    whole_bytes: u64,
}

/// Refuses a file that begins behind the first key of the range: it is a dump of another range, and what is before it
/// would never be written.
async fn check_begin(
    name: &str,
    connection: &Connection,
    range: &KeyRange,
    first: &Key,
) -> Outcome {
    let before = KeyRange::new(range.begin.clone(), first.clone());
    let read = connection.database.run(async |t| {
        let rows = t.get_rows(before.clone(), RangeOptions::limit(1), true);
        rows.await
    });
    let found = match read.await {
        Ok(rows) => rows,
        Err(Error::transaction_timed_out) => return Err(connection.explain_silence().await),
        Err(error) => return Err(format!("cannot read: {}", connect::explain(error))),
    };
    match found.first() {
        None => Ok(()),
        Some((missing, _)) => Err(format!(
            "{name}: it begins with {}, and the range with {}: it is no beginning of this dump; say the --begin and \
             --end that it was begun with, choose another name, or leave the keys before it out with --force",
            printable(first),
            printable(missing)
        )),
    }
}

/// Removes what was not written whole.
fn cut(name: &str, mut file: &File, whole_bytes: u64) -> Outcome {
    let cannot = |error: std::io::Error| format!("{name}: {error}");
    file.set_len(whole_bytes).map_err(cannot)?;
    file.seek(SeekFrom::Start(whole_bytes)).map_err(cannot)?;
    Ok(())
}

/// Opens the file to append to. Also returns what is in it, if the file can be an unfinished dump of the range. A file
/// that cannot be one is refused. It is left unchanged.
fn open_output(
    arguments: &Arguments,
    format: Format,
    range: &KeyRange,
) -> Outcome<(File, Option<Kept>)> {
    let name = &arguments.file;
    let cannot = |error: std::io::Error| format!("{name}: {error}");
    if !arguments.resume {
        return match OpenOptions::new().write(true).create_new(true).open(name) {
            Ok(file) => Ok((file, None)),
            Err(_) if Path::new(name).is_dir() => {
                Err(format!("{name}: it is a directory; name a file"))
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(format!(
                "{name}: it is there already; go on with it by --resume, or choose another name"
            )),
            Err(error) => Err(format!("{name}: {}", why_not_made(&error))),
        };
    }
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(name)
        .map_err(cannot)?;
    let (whole_bytes, last) = last_line(&mut file).map_err(cannot)?;
    let no_dump = |what: &str| {
        format!("{name}: {what}: it is no beginning of this dump; choose another name")
    };
    let key = |which: &str, line: &[u8]| {
        let pair = rows::parse(format, line);
        let pair = pair.map_err(|what| no_dump(&format!("its {which} line is no pair: {what}")));
        pair.map(|(key, _)| key)
    };
    let (tenants, first) = beginning(&mut file, format).map_err(cannot)?;
    if first.is_none() && last.is_some() {
        // Only tenants, which are written anew.
        cut(name, &file, 0)?;
        return Ok((file, None));
    }
    let Some(last) = last else {
        return match file.metadata().map_err(cannot)?.len() {
            0 => Ok((file, None)),
            _ => Err(no_dump("there is no whole line in it")),
        };
    };
    let kept = Kept {
        tenants,
        first: key("first", &first.unwrap_or_default())?,
        last: key("last", &last)?,
        whole_bytes,
    };
    if kept.first < range.begin {
        return Err(no_dump("its first key is before --begin"));
    }
    if kept.last >= range.end {
        return Err(no_dump("its last key is not before --end"));
    }
    Ok((file, Some(kept)))
}

/// The tenants that a file begins with, and the first line behind them, without its end.
fn beginning(file: &mut File, format: Format) -> std::io::Result<(Tenants, Option<Vec<u8>>)> {
    file.seek(SeekFrom::Start(0))?;
    let (mut reader, mut tenants) = (BufReader::new(file), Tenants::default());
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut reader).take(rows::LINE_BYTES_MAX as u64);
        limited.read_until(b'\n', &mut line)?;
        if line.pop_if(|end| *end == b'\n').is_none() {
            return Ok((tenants, None)); // nothing more, or the end of a line that was cut off
        }
        // A line that contradicts another one is no pair either, and said to be none.
        if !rows::take_tenant(format, &line, &mut tenants).unwrap_or(false) {
            return Ok((tenants, Some(line)));
        }
    }
}

/// Number of bytes of the file that are whole lines, and the last of these lines.
fn last_line(file: &mut File) -> std::io::Result<(u64, Option<Vec<u8>>)> {
    let len = file.metadata()?.len();
    let from = len.saturating_sub(2 * rows::LINE_BYTES_MAX as u64);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.take(len - from).read_to_end(&mut tail)?;
    let Some(end) = tail.iter().rposition(|&b| b == b'\n') else {
        return Ok((0, None));
    };
    let start = tail[..end]
        .iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |at| at + 1);
    Ok((from + end as u64 + 1, Some(tail[start..end].to_vec())))
}

/// Of how many snapshots a dump is.
#[derive(Clone, Copy)]
struct Snapshots {
    /// Something is in the file already, of other snapshots.
    has_some: bool,
    may_be_many: bool,
}

/// Takes another snapshot for the rest, of `name`, after `count` pairs.
fn next_snapshot(name: &str, count: u64, snapshots: Snapshots, taken: &mut u64) -> Outcome {
    if count > 0 && !snapshots.may_be_many {
        let pairs = match count {
            1 => "1 pair is".into(),
            _ => format!("{} pairs are", grouped(count as f64)),
        };
        let then = match is_stream(name) {
            true => "say --force to go on with newer ones".into(),
            false => format!("go on with newer ones by --resume, or remove {name} and say --force"),
        };
        return Err(format!(
            "{name}: this is only a part: {pairs} written, and their snapshot can be read no longer (it \
             lasts five seconds, and ends with a recovery); dump a part with --begin and --end, or {then}"
        ));
    }
    *taken += u64::from(count > 0);
    Ok(())
}

/// Where the lines go.
struct To<'a> {
    format: Format,
    out: Box<dyn Write>,
    written: &'a Written,
}

/// The tenants of a dump.
struct OfTenants {
    /// Those with keys in this range are written.
    whole: KeyRange,
    /// Those that a resumed dump has written.
    kept: Option<Tenants>,
}

impl OfTenants {
    async fn read(&self, transaction: &Transaction) -> plinth_core::Result<Tenants> {
        match transaction.tenants().await {
            // Who may not know the tenants dumps what may be read.
            Err(Error::permission_denied) => Ok(Tenants::default()),
            read => Ok(read?.within(&self.whole)),
        }
    }
}

/// Fails if the tenants are not those that are written: the pairs are of others then.
fn same_tenants(name: &str, written: &Tenants, now: &Tenants) -> Outcome {
    match written.named == now.named {
        true => Ok(()),
        false => Err(format!(
            "{name}: tenants were made, renamed or deleted since it was begun, and it tells of those before; dump to \
             another file"
        )),
    }
}

/// Writes the range; returns a line that reports the result.
async fn dump(
    arguments: &Arguments,
    connection: &Connection,
    snapshots: Snapshots,
    tenants: OfTenants,
    mut range: KeyRange,
    to: To<'_>,
) -> Outcome<String> {
    let To {
        format,
        mut out,
        written,
    } = to;
    let bar = progress::bar(0, "dumping");
    let name = &arguments.file[..];
    let (start, mut count, mut taken) = (now(), 0u64, 1u64);
    let is_stream = is_stream(name);
    let mut transaction = connection.database.create_transaction();
    let (mut text, mut told, mut is_checked) = (String::new(), tenants.kept.clone(), false);
    loop {
        let looks = (!is_checked).then_some(&tenants);
        let chunk = with_tenants(&transaction, looks, &range);
        let (found, (pairs, more)) = match chunk.await {
            Ok(chunk) => chunk,
            Err(error) => {
                let next = go_on(connection, &transaction, error, count).await?;
                write_out(name, out.flush())?;
                next_snapshot(name, count, snapshots, &mut taken)?;
                transaction = next.unwrap_or(transaction);
                is_checked = false;
                continue;
            }
        };
        text.clear();
        if let Some(found) = found {
            is_checked = true;
            match &told {
                Some(told) => same_tenants(name, told, &found)?,
                None => rows::write_tenants(format, &found, &mut text),
            }
            told = Some(found);
        }
        for (key, value) in &pairs {
            rows::write(format, key, value, &mut text);
        }
        let more_pairs = pairs.len() as u64;
        let added = written.add(&mut *out, &text, more_pairs, is_stream);
        write_out(name, added)?;
        count += more_pairs;
        bar.set_message(format!("{} pairs", grouped(count as f64)));
        match pairs.last() {
            Some((last, _)) if more => range.begin = key_after(last),
            _ => break,
        }
    }
    write_out(name, out.flush())?;
    bar.finish_and_clear();
    let done = Done {
        count,
        tenants: told.unwrap_or_default().named.len(),
        taken,
        took_s: start.elapsed().as_secs_f64(),
    };
    Ok(match arguments.json {
        true => done.json(),
        false => done.line(snapshots),
    })
}

/// What a dump has written, from so many snapshots.
struct Done {
    count: u64,
    tenants: usize,
    taken: u64,
    took_s: f64,
}

impl Done {
    fn json(&self) -> String {
        let whole = serde_json::json!({
            "pairs": self.count, "tenants": self.tenants, "seconds": round(self.took_s, 3),
            "snapshots": self.taken,
        });
        whole.to_string()
    }

    fn line(&self, snapshots: Snapshots) -> String {
        let (taken, took_s) = (self.taken, self.took_s);
        let count = grouped(self.count as f64);
        let rate = grouped(self.count as f64 / took_s.max(1e-9));
        let how = match (snapshots.has_some, taken) {
            (true, 1) => "a newer snapshot than what was there before".into(),
            (true, _) => format!("{taken} snapshots, newer than what was there before"),
            (false, 1) => "one snapshot".into(),
            (false, _) => format!("{taken} snapshots, one after another"),
        };
        let of_tenants = match self.tenants {
            0 => String::new(),
            tenants => format!(" and {}", counted(tenants, "tenant", "tenants")),
        };
        format!(
            "dumped {}{of_tenants} in {took_s:.2} s, {rate} pairs/s, from {how}",
            counted(count, "pair", "pairs")
        )
    }
}

fn write_out(name: &str, written: std::io::Result<()>) -> Outcome {
    match written {
        // The reader has closed the pipe, for example `head`. That is no error, but the dump is not whole.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(141),
        Err(error) if name == "-" => Err(format!("standard output: {error}")),
        Err(error) if is_stream(name) => Err(format!("{name}: {error}")),
        Err(error) => Err(format!(
            "{name}: {error}; when there is room, go on with --resume"
        )),
        Ok(()) => Ok(()),
    }
}

/// Whether a dump can go on after an error, at a newer snapshot: in another transaction, or in the same if there is
/// none.
async fn go_on(
    connection: &Connection,
    transaction: &Transaction,
    error: Error,
    count: u64,
) -> Outcome<Option<Transaction>> {
    let another = || Ok(Some(connection.database.create_transaction()));
    match error {
        Error::transaction_too_old => another(),
        Error::transaction_timed_out if count > 0 && transaction_is_spent(connection).await => {
            another()
        }
        Error::transaction_timed_out => Err(connection.explain_silence().await),
        error => match transaction.on_error(error).await {
            Ok(()) => Ok(None),
            Err(error) => Err(format!(
                "cannot read on after {}: {}",
                counted(count, "pair", "pairs"),
                connect::explain(error)
            )),
        },
    }
}

/// True if a transaction timed out only because the dump takes long: its time-out counts from its creation. A new
/// transaction then succeeds.
async fn transaction_is_spent(connection: &Connection) -> bool {
    connection
        .database
        .create_transaction()
        .get_read_version()
        .await
        .is_ok()
}

type Chunk = (Vec<(Key, Value)>, bool);

/// The next pairs, and the tenants as of the same version if they are asked for.
async fn with_tenants(
    transaction: &Transaction,
    tenants: Option<&OfTenants>,
    range: &KeyRange,
) -> plinth_core::Result<(Option<Tenants>, Chunk)> {
    let found = match tenants {
        Some(tenants) => Some(tenants.read(transaction).await?),
        None => None,
    };
    Ok((found, next_chunk(transaction, range).await?))
}

async fn next_chunk(transaction: &Transaction, range: &KeyRange) -> plinth_core::Result<Chunk> {
    let options = RangeOptions {
        target_bytes: CHUNK_BYTES,
        mode: StreamingMode::Exact,
        ..RangeOptions::default()
    };
    let (begin, end) = range.clone().selectors();
    let chunk = transaction.get_range(begin, end, options, true).await?;
    Ok((chunk.rows, chunk.more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plain_file_is_written_to() {
        let path = std::env::temp_dir().join(format!("plinth-dump-to-{}", std::process::id()));
        let name = path.display().to_string();
        assert!(is_stream("-") && is_stream("/dev/null") && !is_stream(&name));
        std::fs::write(&path, "").expect("writes");
        assert!(!is_stream(&name) && !is_stream("/"));
        std::fs::remove_file(&path).expect("removes");
    }

    #[test]
    fn who_interrupts_a_dump_is_told_how_far_it_is_and_an_empty_file_goes() {
        let path = std::env::temp_dir().join(format!("plinth-cut-short-{}", std::process::id()));
        let name = path.display().to_string();
        std::fs::write(&path, "").expect("writes");
        assert!(interrupted(&name, 0).ends_with("nothing is written"));
        assert!(!path.exists());
        std::fs::write(&path, "a\t1\n").expect("writes");
        assert!(!remove_if_empty(&name));
        let line = interrupted(&name, 1);
        assert!(
            line.ends_with("after 1 pair; go on with --resume"),
            "{line}"
        );
        assert!(interrupted("-", 2).ends_with("after 2 pairs: this is only a part"));
        std::fs::remove_file(&path).expect("removes");
    }

    #[test]
    fn who_ends_a_dump_is_told_the_number_of_pairs_that_the_file_has() {
        let written = Written::default();
        let mut out = Vec::new();
        for is_pipe in [false, true] {
            let added = written.add(&mut out, "a\t1\nb\t2\n", 2, is_pipe);
            added.expect("there is room");
            let lines = out.iter().filter(|byte| **byte == b'\n').count() as u64;
            assert_eq!(*written.count(), lines);
        }
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        assert!(written.add(&mut Full, "c\t3\n", 1, false).is_err());
        assert_eq!(*written.count(), 4);
    }

    #[test]
    fn an_unfinished_file_is_cut_after_its_last_whole_line() {
        let path = std::env::temp_dir().join(format!("plinth-dump-{}", std::process::id()));
        for (text, whole, last) in [
            ("", 0, None),
            ("a\t1\nb", 4, Some("a\t1")),
            ("a\t1\nb\t2\n", 8, Some("b\t2")),
            ("torn", 0, None),
        ] {
            std::fs::write(&path, text).expect("writes");
            let mut file = File::open(&path).expect("opens");
            let found = last_line(&mut file).expect("reads");
            assert_eq!(found, (whole, last.map(|l| l.as_bytes().to_vec())));
            if last.is_some() {
                let found = beginning(&mut file, Format::Tsv).expect("reads");
                assert_eq!(found, (Tenants::default(), Some(b"a\t1".to_vec())));
            }
        }
        std::fs::remove_file(&path).expect("removes");
    }
}
