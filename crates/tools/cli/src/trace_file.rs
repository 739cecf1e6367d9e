//! The trace of a server process: JSON lines in a file that is rotated when it is large. A separate thread writes
//! them, because a disk may block a writer, and no event loop may wait for its trace.

#![allow(clippy::disallowed_types)] // an operator's file: the database does not depend on it

use plinth_runtime::{Duration, Instant, now};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock};

/// A file of this length is renamed to `….old`, replacing the previous one.
const FILE_BYTES_MAX: u64 = 16 << 20;

struct TraceFile {
    path: PathBuf,
    file: File,
    written: u64,
}

impl TraceFile {
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let written = file.metadata()?.len();
        Ok(TraceFile {
            path: path.to_path_buf(),
            file,
            written,
        })
    }

    fn write(&mut self, line: &str) -> std::io::Result<()> {
        if self.written > FILE_BYTES_MAX {
            let mut old = self.path.clone().into_os_string();
            old.push(".old");
            std::fs::rename(&self.path, old)?;
            *self = Self::open(&self.path)?;
        }
        self.written += line.len() as u64 + 1;
        self.file.write_all(format!("{line}\n").as_bytes())
    }
}

/// Newest event that warns about a file, and its time. Roles report error codes only; this event names the file.
static LAST_WARNING: Mutex<Option<(Instant, String)>> = Mutex::new(None);
/// Older warnings are taken to be about something else.
const WARNING_AGE_MAX: Duration = Duration::from_secs(5);

/// Limit of lines that wait for the disk. Further lines are dropped and counted.
const WAITING_MAX: usize = 10_000;
/// Limit of the wait for these lines when the process ends.
const FLUSH_LIMIT: std::time::Duration = std::time::Duration::from_secs(1);

enum Order {
    Line(String),
    /// A request to answer once everything before it is written.
    Flush(SyncSender<()>),
}

struct Writer {
    orders: SyncSender<Order>,
    lost: AtomicU64,
}

static WRITER: OnceLock<Writer> = OnceLock::new();

impl Writer {
    fn start(mut file: TraceFile) -> std::io::Result<Self> {
        let (orders, received) = sync_channel(WAITING_MAX);
        let write = move || {
            for order in received {
                match order {
                    // A full disk costs only the trace, not the server.
                    Order::Line(line) => drop(file.write(&line)),
                    Order::Flush(done) => drop(done.send(())),
                }
            }
        };
        let thread = std::thread::Builder::new().name("trace".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "a slow disk must not hold up the event loop"
        )]
        thread.spawn(write)?;
        Ok(Writer {
            orders,
            lost: AtomicU64::new(0),
        })
    }

    fn write(&self, line: &str) {
        if self.orders.try_send(Order::Line(line.into())).is_err() {
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        if self.lost.load(Relaxed) > 0 {
            let lost = self.lost.swap(0, Relaxed);
            let line =
                format!("{{\"severity\":\"warn\",\"type\":\"TraceLinesLost\",\"count\":{lost}}}");
            if self.orders.try_send(Order::Line(line)).is_err() {
                self.lost.fetch_add(lost, Relaxed); // reported with a later line
            }
        }
    }
}

/// Waits until the writer thread has written the events so far, within a limit. For a process that is about to end.
pub fn flush() {
    if let Some(writer) = WRITER.get() {
        let (done, is_done) = sync_channel(1);
        if writer.orders.try_send(Order::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(FLUSH_LIMIT);
        }
    }
}

/// Writes this process's events to `path`, if given, and remembers the newest warning about a file.
pub fn start(path: Option<&Path>) -> Result<(), String> {
    let open = |path: &Path| {
        TraceFile::open(path).map_err(|error| {
            format!(
                "trace file {}: {error}; choose another with --trace",
                path.display()
            )
        })
    };
    if let Some(path) = path {
        let writer = Writer::start(open(path)?);
        let writer = writer.map_err(|error| format!("cannot start a thread: {error}"))?;
        let _ = WRITER.set(writer); // a process starts its trace once
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            print(panic);
            flush();
        }));
    }
    plinth_runtime::trace::set_sink(move |line| {
        if let Some(words) = cluster_file_warning(line) {
            eprintln!("plinth: {words}");
        }
        if line.contains("\"severity\":\"warn\"") && line.contains("\"file\":") {
            *LAST_WARNING.lock().expect("no panic while it is held") =
                Some((now(), line.to_string()));
        }
        if let Some(writer) = WRITER.get() {
            writer.write(line);
        }
    });
    Ok(())
}

/// Prints a warning on standard error if the cluster file cannot be updated, for client commands. The trace of a
/// server does this itself.
pub fn tell_of_stale_cluster_file() {
    plinth_runtime::trace::set_sink(|line| {
        if let Some(words) = cluster_file_warning(line) {
            eprintln!("plinth: {words}");
        }
    });
}

/// The warning as text, if the event is `ClusterFileNotWritten`.
fn cluster_file_warning(line: &str) -> Option<String> {
    if !line.contains("\"type\":\"ClusterFileNotWritten\"") {
        return None;
    }
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    let word = |field: &str| event[field].as_str().unwrap_or("?").to_string();
    Some(format!(
        "warning: the coordinators have moved, and cluster file {} could not be updated: {}; it goes on with {}, \
        which belongs in the file",
        word("cluster_file"),
        word("error"),
        word("coordinators")
    ))
}

/// The newest warning about a file: its name, the place in it, and the problem.
pub fn last_warning() -> Option<String> {
    let last = LAST_WARNING.lock().expect("no panic while it is held");
    let (_, line) = last
        .as_ref()
        .filter(|(at, _)| at.elapsed() < WARNING_AGE_MAX)?;
    describe(line)
}

fn describe(line: &str) -> Option<String> {
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    let mut text = event["file"].as_str()?.to_string();
    if let Some(offset) = event["offset"].as_u64() {
        text += &format!(", byte {offset}");
    }
    for field in ["doing", "what", "error"] {
        if let Some(word) = event[field].as_str() {
            text += &format!(": {word}");
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_lost_lines_is_told_as_soon_as_there_is_room() {
        let (orders, received) = sync_channel(1);
        let writer = Writer {
            orders,
            lost: AtomicU64::new(0),
        };
        let taken = || match received.try_recv() {
            Ok(Order::Line(line)) => line.to_string(),
            _ => panic!("a line"),
        };
        writer.write("first");
        writer.write("lost");
        assert_eq!(taken(), "first");
        // There is room for this line, and none for the count.
        writer.write("second");
        assert_eq!(taken(), "second");
        assert_eq!(writer.lost.load(Relaxed), 1);
    }

    #[test]
    fn a_warning_about_a_file_is_told_in_words() {
        let line = "{\"time\":1.5,\"severity\":\"warn\",\"type\":\"EngineFileDamaged\",\
            \"file\":\"/a/b\",\"offset\":8192,\"what\":\"block\"}";
        assert_eq!(describe(line).as_deref(), Some("/a/b, byte 8192: block"));
        assert_eq!(describe("{\"type\":\"X\"}"), None);
    }

    #[test]
    fn a_cluster_file_that_could_not_be_updated_is_told_with_what_belongs_in_it() {
        let line = "{\"time\":1.5,\"severity\":\"warn\",\"type\":\"ClusterFileNotWritten\",\
            \"cluster_file\":\"/etc/c\",\"error\":\"Read-only\",\"coordinators\":\"a:b_2@1.2.3.4:5\"}";
        let words = cluster_file_warning(line).expect("it is that warning");
        for part in ["/etc/c could not be updated: Read-only", "a:b_2@1.2.3.4:5"] {
            assert!(words.contains(part), "{words}");
        }
        assert_eq!(cluster_file_warning("{\"type\":\"X\"}"), None);
    }

    #[test]
    fn a_long_file_is_started_anew_and_the_one_before_is_kept() {
        let path = std::env::temp_dir().join(format!("plinth-trace-{}", std::process::id()));
        let mut file = TraceFile::open(&path).expect("opens");
        file.write("first").expect("writes");
        file.written = FILE_BYTES_MAX + 1;
        file.write("second").expect("writes");
        let old = PathBuf::from(format!("{}.old", path.display()));
        assert_eq!(std::fs::read_to_string(&old).expect("kept"), "first\n");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "second\n");
        for file in [old, path] {
            std::fs::remove_file(file).expect("removes");
        }
    }
}
