//! The trace and the audit of a server process: JSON lines in files that are rotated when they are large. Separate
//! threads write them, because a disk may block a writer, and no event loop may wait for its trace.

#![allow(clippy::disallowed_types)] // an operator's file: the database does not depend on it

use plinth_runtime::{Duration, Instant, now};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock};

const NOT_LET_IN: &str = "warning: the cluster refuses this server, which has no server's key of it; copy the \
    key file of another server beside its cluster file, with mode 0600; it tries again";
/// Only events of this severity have it: quotes in their fields are escaped.
const AUDITED: &str = "\"severity\":\"audit\"";
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

/// Roles report error codes only; these warnings name the file.
static WARNINGS: Mutex<Warnings> = Mutex::new(Warnings(VecDeque::new()));
/// Limit of files about which a warning is kept.
const WARNINGS_MAX: usize = 32;
/// An older warning is taken to be about something else, unless the error names what its file belongs to.
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
/// Writes the audit: who connected, was refused and changed what.
static AUDIT: OnceLock<Writer> = OnceLock::new();

fn write_to(opened: &mut Option<TraceFile>, path: &Path, line: &str) -> std::io::Result<()> {
    let file = match opened {
        Some(file) => file,
        None => opened.insert(TraceFile::open(path)?),
    };
    file.write(line)
}

impl Writer {
    /// The file is opened with the first line.
    fn start(path: PathBuf) -> std::io::Result<Self> {
        let (orders, received) = sync_channel(WAITING_MAX);
        let write = move || {
            let (mut opened, mut fails) = (None, false);
            for order in received {
                match order {
                    // A full disk costs only the trace, not the server.
                    Order::Line(line) => {
                        let written = write_to(&mut opened, &path, &line);
                        if let Err(error) = &written
                            && !fails
                        {
                            crate::say!(
                                "plinth: {}: {error}; what happens meanwhile is not in it",
                                path.display()
                            );
                        }
                        fails = written.is_err();
                    }
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
    for writer in [&WRITER, &AUDIT].into_iter().filter_map(OnceLock::get) {
        let (done, is_done) = sync_channel(1);
        if writer.orders.try_send(Order::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(FLUSH_LIMIT);
        }
    }
}

/// Writes this process's events to `path`, if given, and remembers the newest warning about a file.
pub fn start(path: Option<&Path>) -> Result<(), String> {
    if let Some(path) = path {
        check(path, "trace")?;
        begin(&WRITER, path)?;
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            print(panic);
            flush();
        }));
    }
    plinth_runtime::trace::set_sink(move |line| {
        if let Some(words) = cluster_file_warning(line) {
            crate::say!("plinth: {words}");
        }
        if line.contains("\"type\":\"ServerNotLetIn\"") {
            crate::say!("plinth: {NOT_LET_IN}");
        }
        if line.contains("\"severity\":\"warn\"") && line.contains("\"file\":") {
            let mut warnings = WARNINGS.lock().expect("no panic while it is held");
            warnings.add(now(), line);
        }
        let audit = AUDIT.get().filter(|_| line.contains(AUDITED));
        if let Some(writer) = audit.or_else(|| WRITER.get()) {
            writer.write(line);
        }
    });
    Ok(())
}

/// Makes the file that the flag `name` asks for, and the directory above it.
///
/// # Errors
/// A line for the user.
pub fn check(path: &Path, name: &str) -> Result<(), String> {
    if let Some(directory) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        // If this fails, opening the file reports the error.
        let _ = std::fs::create_dir_all(directory);
    }
    let opened = TraceFile::open(path);
    opened.map(drop).map_err(|error| {
        format!(
            "{name} file {}: {error}; choose another with --{name}",
            path.display()
        )
    })
}

/// Writes audit events to `path`. The file is made with the first of them.
pub fn audit_to(path: &Path) -> Result<(), String> {
    begin(&AUDIT, path)
}

fn begin(writer: &OnceLock<Writer>, path: &Path) -> Result<(), String> {
    let started = Writer::start(path.to_path_buf());
    let started = started.map_err(|error| format!("cannot start a thread: {error}"))?;
    let _ = writer.set(started); // a process starts each once
    Ok(())
}

/// Prints a warning on standard error if the cluster file cannot be updated, for client commands. The trace of a
/// server does this itself.
pub fn tell_of_stale_cluster_file() {
    plinth_runtime::trace::set_sink(|line| {
        if let Some(words) = cluster_file_warning(line) {
            crate::say!("plinth: {words}");
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

/// The newest warning about a file that `error` is about: the file's name, the place in it, and the problem.
pub fn warning_behind(error: &str) -> Option<String> {
    let warnings = WARNINGS.lock().expect("no panic while it is held");
    warnings.behind(error, now()).map(str::to_owned)
}

/// The newest warning about each of the files that there were warnings about, oldest first.
struct Warnings(VecDeque<Warning>);

struct Warning {
    at: Instant,
    file: String,
    text: String,
}

impl Warnings {
    fn add(&mut self, at: Instant, line: &str) {
        let Some((file, text)) = describe(line) else {
            return;
        };
        self.0.retain(|warning| warning.file != file);
        if self.0.len() >= WARNINGS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Warning { at, file, text });
    }

    /// The newest warning about a file whose name begins with a path in `error`; if there is none, the newest one of
    /// all, unless it is old.
    fn behind(&self, error: &str, now: Instant) -> Option<&str> {
        let paths = || error.split_whitespace().filter(|word| word.contains('/'));
        let is_named = |warning: &&Warning| paths().any(|path| warning.file.starts_with(path));
        let named = self.0.iter().rev().find(is_named);
        let is_new = |warning: &&Warning| now.saturating_since(warning.at) < WARNING_AGE_MAX;
        let found = named.or_else(|| self.0.back().filter(is_new));
        found.map(|warning| &warning.text[..])
    }
}

/// The file that an event is about, and the event in words.
fn describe(line: &str) -> Option<(String, String)> {
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    let file = event["file"].as_str()?.to_string();
    let mut text = file.clone();
    if let Some(offset) = event["offset"].as_u64() {
        text += &format!(", byte {offset}");
    }
    for field in ["doing", "what", "error"] {
        if let Some(word) = event[field].as_str() {
            text += &format!(": {word}");
        }
    }
    Some((file, text))
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
        let (file, text) = describe(line).expect("it names a file");
        assert_eq!((&*file, &*text), ("/a/b", "/a/b, byte 8192: block"));
        assert_eq!(describe("{\"type\":\"X\"}"), None);
    }

    #[test]
    fn an_error_is_explained_by_the_warning_about_the_files_that_it_names_however_old() {
        let mut warnings = Warnings(VecDeque::new());
        let begin = Instant(0);
        for (file, what) in [
            ("log-a.0", "header"),
            ("log-a.0", "block"),
            ("log-b.0", "end"),
        ] {
            warnings.add(begin, &format!(r#"{{"file":"/d/{file}","what":"{what}"}}"#));
        }
        let error = "log server /d/log-a cannot go on: it is damaged";
        let later = begin + 10 * WARNING_AGE_MAX;
        assert_eq!(warnings.behind(error, later), Some("/d/log-a.0: block"));
        assert_eq!(warnings.behind("the disk", begin), Some("/d/log-b.0: end"));
        assert_eq!(warnings.behind("the disk", later), None);
        for i in 0..2 * WARNINGS_MAX {
            warnings.add(begin, &format!(r#"{{"file":"/d/{i}","what":"x"}}"#));
        }
        assert_eq!(warnings.0.len(), WARNINGS_MAX);
        assert_eq!(warnings.behind(error, later), None);
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
