//! `plinth demo`: shows the whole database in less than a minute, on a real file.
//!
//! 1. Loads the lines of a file into an embedded cluster in a fresh directory, each with an index entry.
//! 2. Runs concurrent transactions whose results can be checked: transfers between accounts, which must keep the
//!    sum, and exchanges of two lines, which also move their index entries. Auditors read and check meanwhile.
//! 3. Kills the transaction system three times while they run, and measures the time until the next commit.
//! 4. Closes the cluster, reopens it from disk, and verifies every record, index entry, account and receipt.
//!
//! - [`input`]: the file.
//! - [`work`]: the transactions.
//! - [`verify`]: the final checks.

mod input;
mod verify;
mod work;

use bytes::Bytes;
use plinth_measure::grouped;
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, now};
use plinth_server::{Embedded, EmbeddedOptions};
use plinth_terminal::process::unless_interrupted;
use plinth_terminal::{Outcome, progress};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use verify::Verified;
use work::Worked;

#[derive(clap::Args, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    ("plinth demo", "With the word list of this system"),
    (
        "plinth demo --input access.log --json",
        "With the lines of a file of yours, and figures for programs",
    ),
]))]
struct Arguments {
    /// File whose lines are the records; default: a word list of the system (`apt-get install wamerican-huge`)
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Directory for the cluster; must be empty or not exist; default: a new one under the temporary directory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
    /// Keep the directory at the end
    #[arg(long)]
    keep: bool,
}

/// The begin of a directory's name, before the number of the process.
const DIRECTORY: &str = "plinth-demo-";

/// All measured results.
struct Measured {
    input: PathBuf,
    records: usize,
    bytes: usize,
    load_s: f64,
    worked: Worked,
    reopen_ms: f64,
    verified: Verified,
}

plinth_terminal::command!(
    "demo",
    "Load a file into an embedded cluster, run checked transactions through three crashes, and print measurements",
    Arguments => run
);

fn run(arguments: Arguments) -> Outcome {
    let path = input::find(arguments.input.as_deref())?;
    let records = Rc::new(input::read(&path)?);
    let directory = fresh_directory(arguments.data_dir.as_deref())?;
    let outcome = demonstrate(&path, records, &directory, &arguments);
    if arguments.keep {
        plinth_terminal::say!("the data stays in {}", directory.display());
    } else if let Err(error) = std::fs::remove_dir_all(&directory) {
        plinth_terminal::say!("plinth: cannot remove {}: {error}", directory.display());
    }
    let measured = outcome?;
    if arguments.json {
        println!("{}", to_json(&measured));
    } else {
        print_table(&measured);
    }
    let mut failures = measured.worked.violations.clone();
    failures.extend(measured.verified.failures.iter().cloned());
    match failures.first() {
        None => Ok(()),
        Some(first) => Err(format!(
            "{} checks failed; the first: {first}",
            failures.len()
        )),
    }
}

fn fresh_directory(given: Option<&Path>) -> Outcome<PathBuf> {
    let directory = match given {
        Some(path) => path.to_path_buf(),
        None => {
            let above = std::env::temp_dir();
            for directory in of_killed(&above) {
                let directory = directory.display();
                plinth_terminal::say!(
                    "plinth: {directory} is of an earlier demo, which was killed or told to keep it"
                );
            }
            above.join(format!("{DIRECTORY}{}", std::process::id()))
        }
    };
    let cannot = |error| {
        format!(
            "data directory {}: {} with --data-dir",
            directory.display(),
            plinth_coordination::why(&error)
        )
    };
    std::fs::create_dir_all(&directory).map_err(cannot)?;
    if std::fs::read_dir(&directory)
        .map_err(cannot)?
        .next()
        .is_some()
    {
        return Err(format!(
            "data directory {} is not empty; choose a fresh one with --data-dir",
            directory.display()
        ));
    }
    Ok(directory)
}

/// Directories of demos whose processes are no more.
fn of_killed(above: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(above).into_iter().flatten().flatten();
    let is_of_killed = |name: &str| {
        let process = name.strip_prefix(DIRECTORY).unwrap_or_default();
        let is_number = !process.is_empty() && process.bytes().all(|b| b.is_ascii_digit());
        is_number && !Path::new("/proc").join(process).exists()
    };
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<PathBuf> = names
        .filter(|name| is_of_killed(name))
        .map(|name| above.join(name))
        .collect();
    found.sort();
    found
}

fn demonstrate(
    path: &Path,
    records: Rc<Vec<Bytes>>,
    directory: &Path,
    arguments: &Arguments,
) -> Outcome<Measured> {
    let bytes = records.iter().map(Bytes::len).sum();
    let say = |text: String| {
        if !arguments.json {
            println!("{text}");
        }
    };
    say(format!(
        "input: {}, {} records",
        path.display(),
        grouped(records.len() as f64)
    ));
    let (load_s, worked) = uninterrupted(async {
        let embedded = Embedded::open(directory, EmbeddedOptions::default()).await?;
        say(format!(
            "opened an embedded cluster in {}",
            directory.display()
        ));
        let bar = progress::bar(records.len() as u64, "loading");
        let start = now();
        work::load(&embedded.database(), &records, &bar).await?;
        bar.finish_and_clear();
        let load_s = start.elapsed().as_secs_f64();
        say(format!(
            "loaded it, with an index beside it, in {load_s:.2} s"
        ));
        let worked = work::run(&embedded, records.len() as u32, &say).await?;
        embedded.close().await;
        Outcome::Ok((load_s, worked))
    })?;
    // A new event loop, as a new process has, so that nothing of the first cluster is left in memory.
    let (reopen_ms, verified) = uninterrupted(async {
        let start = now();
        let embedded = Embedded::open(directory, EmbeddedOptions::default()).await?;
        verify::first_read(&embedded.database()).await?;
        let reopen_ms = milliseconds(start.elapsed());
        say(format!(
            "reopened it from disk in {reopen_ms:.0} ms; verifying every record"
        ));
        let verified = verify::run(&embedded.database(), &records, &worked).await?;
        embedded.close().await;
        Outcome::Ok((reopen_ms, verified))
    })?;
    Ok(Measured {
        input: path.to_path_buf(),
        records: records.len(),
        bytes,
        load_s,
        worked,
        reopen_ms,
        verified,
    })
}

/// Does the work. Who interrupts it leaves nothing behind: the caller removes the directory.
fn uninterrupted<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let done = block_on(unless_interrupted(work))?;
    done.unwrap_or_else(|| Err("demo: it was interrupted".into()))
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

impl Measured {
    fn load_rows_per_second(&self) -> f64 {
        // Each record is written as a row and an index entry.
        2.0 * self.records as f64 / self.load_s
    }
    fn passed(&self) -> bool {
        self.worked.violations.is_empty() && self.verified.failures.is_empty()
    }
}

fn to_json(measured: &Measured) -> Value {
    let worked = &measured.worked;
    json!({
        "input": measured.input.display().to_string(),
        "records": measured.records,
        "record_bytes": measured.bytes,
        "load_s": measured.load_s,
        "load_rows_per_second": measured.load_rows_per_second().round(),
        "transactions": worked.transactions,
        "transactions_per_second": worked.transactions_per_second().round(),
        "audits": worked.audits,
        "recovery_ms": worked.recovery_ms,
        "reopen_ms": measured.reopen_ms,
        "verified_rows": measured.verified.rows,
        "verify_rows_per_second": measured.verified.rows_per_second().round(),
        "failures": worked.violations.iter().chain(&measured.verified.failures).collect::<Vec<_>>(),
        "passed": measured.passed(),
    })
}

fn print_table(measured: &Measured) {
    let worked = &measured.worked;
    let row = |name: &str, value: String| println!("  {name:<34} {value:>14}");
    println!();
    row(
        "rows loaded/s (records and index)",
        grouped(measured.load_rows_per_second()),
    );
    row("checked transactions", grouped(worked.transactions as f64));
    row(
        "checked transactions/s",
        grouped(worked.transactions_per_second()),
    );
    row("audits while they ran", grouped(worked.audits as f64));
    for ms in &worked.recovery_ms {
        row("crash to next commit, ms", grouped(*ms));
    }
    row(
        "reopen from disk to first read, ms",
        grouped(measured.reopen_ms),
    );
    row("rows verified", grouped(measured.verified.rows as f64));
    row(
        "rows verified/s",
        grouped(measured.verified.rows_per_second()),
    );
    println!();
    println!(
        "{}",
        if measured.passed() {
            "every check passed"
        } else {
            "CHECKS FAILED"
        }
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_demo_has_left_is_found() {
        let above = std::env::temp_dir().join(format!("plinth-demos-{}", std::process::id()));
        let own = format!("{DIRECTORY}{}", std::process::id());
        for name in [&own[..], "plinth-demo-4194305", "plinth-demo-x", "other"] {
            std::fs::create_dir_all(above.join(name)).expect("it is made");
        }
        assert_eq!(of_killed(&above), [above.join("plinth-demo-4194305")]);
        std::fs::remove_dir_all(&above).expect("it is there");
    }
}
