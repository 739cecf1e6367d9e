//! `plinth copy`: copies a range of one database into another: between two Plinth clusters, or from or to any
//! cluster that a `libfdb_c` can open, in particular FoundationDB's own.
//!
//! The range is cut into pieces, and several pieces are copied at once. Then both databases are read again, piece by
//! piece, and their checksums are compared. A piece that differs is copied again, because the source was probably
//! written to meanwhile. A file lists the pieces that are done, so that a copy that stopped can be resumed.
//!
//! Tenants with keys in the range come along, with their names and numbers, and are compared, too. A target that has
//! others there, or keys in their way, is refused before anything is changed.

#![allow(clippy::disallowed_types)] // the progress file is the user's

mod pieces;
mod side;

use crate::rows::RangeArguments;
use indicatif::ProgressBar;
use pieces::{Progress, Sum};
use plinth_core::KeyRange;
use plinth_core::key::printable;
use plinth_measure::grouped;
use plinth_runtime::{TaskGroup, now};
use plinth_terminal::connect;
use plinth_terminal::numbers::{bytes_within, seconds_within, within};
use plinth_terminal::tls::TlsArguments;
use plinth_terminal::wording::counted;
use plinth_terminal::{Outcome, interrupts, progress};
use side::{Given, Libraries, Side};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Limit of verification passes; pieces that differ are copied again before each but the first.
const PASSES_MAX: u32 = 5;

/// So many tenants that differ are named; all of them are in what is printed for programs.
const TENANTS_NAMED_MAX: usize = 10;

#[derive(clap::Args, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    (
        "plinth copy --from old.cluster --to new.cluster",
        "From one cluster to another; compares both when all is copied",
    ),
    (
        "plinth copy --from fdb.cluster --from-library /usr/lib/libfdb_c.so --to plinth.cluster",
        "From FoundationDB, through its own client",
    ),
    (
        "plinth copy --from old.cluster --to new.cluster --resume",
        "Go on with a copy that was interrupted",
    ),
]))]
struct Arguments {
    /// Cluster file of the source database
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Open the source through this libfdb_c.so; without it the source is a Plinth cluster
    #[arg(long, value_name = "LIBRARY")]
    from_library: Option<PathBuf>,
    /// Cluster file of the target database
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Open the target through this libfdb_c.so; without it the target is a Plinth cluster
    #[arg(long, value_name = "LIBRARY")]
    to_library: Option<PathBuf>,
    /// File with a token, to show it to the source
    #[arg(long, value_name = "FILE", conflicts_with = "from_library")]
    from_token: Option<PathBuf>,
    /// File with a token, to show it to the target
    #[arg(long, value_name = "FILE", conflicts_with = "to_library")]
    to_token: Option<PathBuf>,
    /// API version to request of a library
    #[arg(long, value_name = "VERSION", default_value_t = 710, value_parser = within::<i32>(1..))]
    api_version: i32,
    #[command(flatten)]
    range: RangeArguments,
    /// Pieces copied at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = within::<u64>(1..=256))]
    jobs: u64,
    /// Approximate size of a piece in bytes
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 16_000_000,
        value_parser = bytes_within::<i64>(100_000..=10_000_000_000)
    )]
    piece_bytes: i64,
    /// Replace the data of the target in the range
    #[arg(long)]
    overwrite: bool,
    /// Write also to a tree that gateways of the keeper serve, who then serve nobody until they are started again
    #[arg(long)]
    force: bool,
    /// Compare only, copy nothing
    #[arg(long)]
    verify_only: bool,
    /// Resume the copy that the progress file describes
    #[arg(long)]
    resume: bool,
    /// File for the progress
    #[arg(long, value_name = "FILE", default_value = "plinth-copy.progress")]
    progress: PathBuf,
    /// Seconds to wait for a cluster before giving up
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = seconds_within(1..=86_400))]
    timeout: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: TlsArguments,
}

plinth_terminal::command!(
    "copy",
    "Copy a database into another: from and to Plinth, FoundationDB, or any cluster that a libfdb_c can open",
    Arguments => run
);

fn run(arguments: Arguments) -> Outcome {
    let whole = arguments.range.parse()?;
    connect::block_on(async {
        let tls = arguments.tls.clone();
        let mut libraries = Libraries::new(tls, arguments.api_version, arguments.timeout);
        let from = Given {
            flag: "--from",
            file: &arguments.from,
            library: arguments.from_library.as_deref(),
            token: arguments.from_token.as_deref(),
        };
        let to = Given {
            flag: "--to",
            file: &arguments.to,
            library: arguments.to_library.as_deref(),
            token: arguments.to_token.as_deref(),
        };
        let (from, to) = (libraries.open(&from).await?, libraries.open(&to).await?);
        if from.connection() == to.connection() {
            return Err("--from and --to are the same cluster; nothing is copied".into());
        }
        for side in [&from, &to] {
            side.check(&whole).await?;
        }
        let copy = Copy {
            from,
            to,
            arguments,
        };
        copy.run(whole).await
    })
}

/// A copy in progress.
struct Copy {
    from: Side,
    to: Side,
    arguments: Arguments,
}

/// Rows and bytes copied so far.
#[derive(Default)]
struct Total {
    rows: Cell<u64>,
    bytes: Cell<u64>,
}

impl Total {
    fn add(&self, rows: u64, bytes: u64) {
        self.rows.set(self.rows.get() + rows);
        self.bytes.set(self.bytes.get() + bytes);
    }
}

impl Copy {
    async fn run(self, whole: KeyRange) -> Outcome {
        let start = now();
        let copied = Rc::new(Total::default());
        let mut pieces = Vec::new();
        if self.arguments.verify_only {
            interrupts::end_with(|| "copy: it was interrupted; it only compared".into());
            pieces = self.cut(&whole).await?;
        } else {
            let (path, what) = (self.arguments.progress.clone(), self.what(&whole));
            interrupts::end_with(move || interrupted(&path, &what));
            if !self.arguments.force {
                self.to.refuse_served(&whole).await?;
            }
            self.carry_tenants(&whole, true).await?;
            let mut progress = self.begin(&whole).await?;
            self.carry_tenants(&whole, false).await?;
            pieces.clone_from(progress.pieces());
            let left = progress.left();
            self.copy(left, &mut progress, &copied).await?;
        }
        let mut verified = self.verify(&whole, &pieces).await?;
        for _ in 1..PASSES_MAX {
            if verified.is_same() || self.arguments.verify_only {
                break;
            }
            self.carry_tenants(&whole, false).await?;
            let again = verified.different.clone();
            self.copy_again(again, &copied).await?;
            verified = self.verify(&whole, &pieces).await?;
        }
        if !self.arguments.verify_only && verified.is_same() {
            Progress::remove(&self.arguments.progress)?;
        }
        let seconds = (now() - start).as_secs_f64();
        let unusable = self.to.unusable(&whole).await;
        let done = self.report(&verified, &copied, pieces.len(), seconds, &unusable);
        for line in unusable.iter().filter(|_| !self.arguments.json) {
            plinth_terminal::say!("plinth: --to: {line}");
        }
        done
    }

    /// Makes the tenants of the source in the target, or only looks whether that is possible.
    async fn carry_tenants(&self, whole: &KeyRange, looks: bool) -> Outcome {
        let tenants = self.from.tenants(whole).await?;
        let carried = self.to.carry_tenants(&tenants, whole, looks);
        match carried.await? {
            None => Ok(()),
            Some(in_the_way) => Err(format!("--to: {in_the_way}")),
        }
    }

    async fn cut(&self, whole: &KeyRange) -> Outcome<Vec<KeyRange>> {
        let points = self
            .from
            .split_points(whole, self.arguments.piece_bytes)
            .await?;
        Ok(pieces::between(whole, points))
    }

    /// Which copy it is, for the progress file.
    fn what(&self, whole: &KeyRange) -> String {
        format!(
            "{} -> {} {} {}",
            self.from.connection(),
            self.to.connection(),
            printable(&whole.begin),
            printable(&whole.end)
        )
    }

    /// The pieces to copy: those in the progress file if the copy is resumed, otherwise new ones.
    async fn begin(&self, whole: &KeyRange) -> Outcome<Progress> {
        let what = self.what(whole);
        if self.arguments.resume {
            return Progress::read(&self.arguments.progress, &what);
        }
        if !self.arguments.overwrite && !self.to.is_empty(whole).await? {
            return Err(
                "the target holds data in that range; --overwrite replaces it, --resume goes on with an earlier copy"
                    .into(),
            );
        }
        Progress::create(&self.arguments.progress, &what, self.cut(whole).await?)
    }

    async fn copy(&self, left: Vec<usize>, progress: &mut Progress, total: &Rc<Total>) -> Outcome {
        let bar = progress::bar(progress.pieces().len() as u64, "copying");
        bar.set_position((progress.pieces().len() - left.len()) as u64);
        let pieces: Vec<(usize, KeyRange)> = left
            .into_iter()
            .map(|number| (number, progress.pieces()[number].clone()))
            .collect();
        let progress = Rc::new(RefCell::new(progress.reopen()?));
        let (from, to, total) = (self.from.clone(), self.to.clone(), total.clone());
        self.side_by_side(pieces, bar, move |(number, piece): (usize, KeyRange)| {
            let (from, to, total) = (from.clone(), to.clone(), total.clone());
            let progress = progress.clone();
            async move {
                copy_piece(&from, &to, &piece, &total).await?;
                progress.borrow_mut().done(number)
            }
        })
        .await
    }

    async fn copy_again(&self, pieces: Vec<KeyRange>, total: &Rc<Total>) -> Outcome {
        let bar = progress::bar(pieces.len() as u64, "copying again what differs");
        let (from, to, total) = (self.from.clone(), self.to.clone(), total.clone());
        self.side_by_side(pieces, bar, move |piece| {
            let (from, to, total) = (from.clone(), to.clone(), total.clone());
            async move { copy_piece(&from, &to, &piece, &total).await }
        })
        .await
    }

    async fn verify(&self, whole: &KeyRange, pieces: &[KeyRange]) -> Outcome<Verified> {
        let bar = progress::bar(pieces.len() as u64, "verifying");
        let verified = Rc::new(RefCell::new(Verified::default()));
        let (from, to, noted) = (self.from.clone(), self.to.clone(), verified.clone());
        let done = self.side_by_side(pieces.to_vec(), bar, move |piece| {
            let (from, to, verified) = (from.clone(), to.clone(), noted.clone());
            async move {
                let (source, target) = (from.sum(&piece).await?, to.sum(&piece).await?);
                let mut verified = verified.borrow_mut();
                verified.sum.merge(&source);
                if source != target {
                    verified.different.push(piece);
                }
                Ok(())
            }
        });
        done.await?;
        let mut verified = verified.take();
        verified.different.sort_by(|a, b| a.begin.cmp(&b.begin));
        let (source, target) = (self.from.tenants(whole), self.to.tenants(whole));
        let (source, target) = (source.await?.named, target.await?.named);
        let names: BTreeSet<_> = source.keys().chain(target.keys()).collect();
        let differ = names
            .into_iter()
            .filter(|name| source.get(*name) != target.get(*name));
        verified.tenants_different = differ.map(|name| printable(name)).collect();
        verified.tenants = source.len();
        Ok(verified)
    }

    /// Works on several items at a time; stops at the first failure.
    async fn side_by_side<T: 'static, F: Future<Output = Outcome> + 'static>(
        &self,
        items: Vec<T>,
        bar: ProgressBar,
        work: impl Fn(T) -> F + 'static,
    ) -> Outcome {
        let queue = Rc::new(RefCell::new(VecDeque::from(items)));
        let (work, failure) = (Rc::new(work), Rc::new(RefCell::new(None)));
        let workers = TaskGroup::new();
        let running: Vec<_> = (0..self.arguments.jobs)
            .map(|_| {
                let (queue, work) = (queue.clone(), work.clone());
                let (failure, bar) = (failure.clone(), bar.clone());
                let (done, ended) = plinth_runtime::sync::oneshot::<()>();
                workers.spawn("copy", async move {
                    while failure.borrow().is_none() {
                        let next = queue.borrow_mut().pop_front();
                        let Some(item) = next else { break };
                        if let Err(why) = work(item).await {
                            failure.borrow_mut().get_or_insert(why);
                        }
                        bar.inc(1);
                    }
                    let _ = done.send(()); // the receiver may be gone
                });
                ended
            })
            .collect();
        let _ = plinth_runtime::join_all(running).await; // a worker reports an error in `failure`
        bar.finish_and_clear();
        failure.take().map_or(Ok(()), Err)
    }

    fn report(
        &self,
        verified: &Verified,
        copied: &Total,
        pieces: usize,
        seconds: f64,
        unusable: &[String],
    ) -> Outcome {
        let different: Vec<String> = verified.different.iter().map(shown).collect();
        if self.arguments.json {
            let document = serde_json::json!({
                "pieces": pieces, "rows": verified.sum.rows, "bytes": verified.sum.bytes,
                "checksum": verified.sum.shown(), "rows_copied": copied.rows.get(),
                "bytes_copied": copied.bytes.get(), "different": different, "tenants": verified.tenants,
                "tenants_different": verified.tenants_different, "unusable": unusable, "seconds": seconds,
            });
            println!("{document}");
        } else {
            let row = |name: &str, value: String| println!("  {name:<16} {value}");
            row("rows", grouped(verified.sum.rows as f64));
            row("bytes", grouped(verified.sum.bytes as f64));
            row("checksum", verified.sum.shown());
            if verified.tenants > 0 {
                row("tenants", grouped(verified.tenants as f64));
            }
            if verified.is_same() {
                row("compared", "both have the same".into());
            }
            row("rows copied", grouped(copied.rows.get() as f64));
            row("bytes copied", grouped(copied.bytes.get() as f64));
            row("seconds", format!("{seconds:.1}"));
        }
        verified.outcome(pieces)
    }
}

/// What is said of a copy that the user ends.
fn interrupted(progress: &Path, what: &str) -> String {
    let noted = Progress::read(progress, what);
    let pieces = noted.map(|noted| (noted.pieces().len(), noted.left().len()));
    match pieces {
        Err(_) => "copy: it was interrupted; nothing is copied".into(),
        Ok((all, 0)) => format!(
            "copy: it was interrupted; {} copied and not all compared: go on with --resume",
            if all == 1 {
                "the only piece is".into()
            } else {
                format!("all {all} pieces are")
            }
        ),
        Ok((all, left)) => format!(
            "copy: it was interrupted; {} of {} copied: go on with --resume",
            all - left,
            counted(all, "piece is", "pieces are")
        ),
    }
}

#[derive(Default)]
struct Verified {
    /// Sum of the source.
    sum: Sum,
    different: Vec<KeyRange>,
    /// Number of tenants of the source, and the names of those that are not the same in both.
    tenants: usize,
    tenants_different: Vec<String>,
}

impl Verified {
    fn is_same(&self) -> bool {
        self.different.is_empty() && self.tenants_different.is_empty()
    }

    /// The line about what differs, of so many pieces.
    fn outcome(&self, pieces: usize) -> Outcome {
        let tenants = self.tenants_line();
        match (self.different.first(), tenants) {
            (None, None) => Ok(()),
            (None, Some(tenants)) => Err(tenants),
            (Some(first), tenants) => Err(format!(
                "{} of {pieces} pieces differ, the first is {}{}; if the source is being written to, stop that and \
                 copy again with --resume or --overwrite",
                self.different.len(),
                shown(first),
                tenants.map_or(String::new(), |line| format!(", and {line}"))
            )),
        }
    }

    fn tenants_line(&self) -> Option<String> {
        let (named, more) = self
            .tenants_different
            .split_at(self.tenants_different.len().min(TENANTS_NAMED_MAX));
        let are = match named {
            [] => return None,
            [_] => "a tenant is",
            _ => "tenants are",
        };
        let more = match more.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "{are} not the same in both: {}{more}",
            named.join(", ")
        ))
    }
}

fn shown(piece: &KeyRange) -> String {
    let begin = match piece.begin.is_empty() {
        true => "\"\"".into(),
        false => printable(&piece.begin),
    };
    format!("{begin} to {}", printable(&piece.end))
}

/// Makes the piece of the target equal to that of the source, chunk by chunk.
async fn copy_piece(from: &Side, to: &Side, piece: &KeyRange, total: &Total) -> Outcome {
    let mut begin = piece.begin.clone();
    loop {
        let rest = KeyRange::new(begin.clone(), piece.end.clone());
        let (rows, more) = from.read(&rest).await?;
        let end = match rows.last() {
            Some((last, _)) if more => plinth_core::key::key_after(last),
            _ => piece.end.clone(),
        };
        let chunk = KeyRange::new(begin, end.clone());
        to.replace(&chunk, &rows).await?;
        let bytes = rows.iter().map(|(key, value)| key.len() + value.len());
        total.add(rows.len() as u64, bytes.sum::<usize>() as u64);
        if !more {
            return Ok(());
        }
        begin = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_that_differ_are_named_beside_pieces_too_and_not_all_of_many() {
        let mut verified = Verified::default();
        assert_eq!(verified.outcome(1), Ok(()));
        verified.tenants_different = vec!["web".into()];
        let line = verified.outcome(1).expect_err("it differs");
        assert_eq!(line, "a tenant is not the same in both: web");
        verified.different = vec![KeyRange::new("a", "b")];
        let line = verified.outcome(1).expect_err("both differ");
        assert!(
            line.starts_with("1 of 1 pieces differ, the first is a to b, and a tenant is not the same in both: web;"),
            "{line}"
        );
        verified.tenants_different = (0..12).map(|i| format!("t{i:02}")).collect();
        let line = verified.outcome(3).expect_err("both differ");
        assert!(
            line.contains("of 3 pieces") && line.contains("t09 and 2 more;"),
            "{line}"
        );
    }

    #[test]
    fn who_interrupts_a_copy_is_told_how_far_it_is() {
        let path = std::env::temp_dir().join(format!("plinth-copy-cut-{}", std::process::id()));
        let said = || interrupted(&path, "this");
        assert!(said().ends_with("nothing is copied"));
        let pieces = ["", "b", "c"].map(plinth_core::Key::from);
        let pieces = pieces.windows(2);
        let pieces = pieces.map(|two| KeyRange::new(two[0].clone(), two[1].clone()));
        let made = Progress::create(&path, "this", pieces.collect()).expect("writes");
        let mut noted = made.reopen().expect("opens");
        noted.done(1).expect("writes");
        assert!(said().contains("1 of 2 pieces are copied: go on with --resume"));
        noted.done(0).expect("writes");
        assert!(said().contains("all 2 pieces are copied and not all compared"));
        std::fs::remove_file(&path).expect("removes");
    }
}
