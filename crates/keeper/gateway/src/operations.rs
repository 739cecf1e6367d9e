//! The log of operations: who has changed which nodes, as ZooKeeper's audit log has it (`zookeeper.audit.enable`).
//!
//! ```text
//!   2026-11-28 13:15:10,123 INFO audit.Slf4jAuditLogger: session=0x17  user=bob  ip=10.0.0.7  operation=setData
//!       znode=/app  result=success                                      one line, with tabs between the fields
//! ```
//! Whoever is answered waits for no disk: lines are kept in memory and written beside. If the disk takes them too
//! slowly, some are lost, and a line says how many. The file is renamed when it is full, and the oldest one goes.

use crate::acl::Identity;
use crate::connection::Connection;
use crate::tree::execute::{Executed, Operation, Shape};
use crate::wire::{Acl, Request, Text, create_flags, permission};
use crate::writes::Outcome;
use crate::{OPERATIONS_LOG_BYTES, OPERATIONS_LOG_FILES};
use bytes::Bytes;
use plinth_runtime::disk::{self, File, OpenOptions};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, Task, probe, sleep, spawn, trace_warn, unix_time_ms};
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Lines in memory.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Until a file that could not be written is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// See the module.
pub struct Operations {
    lines: Rc<Lines>,
    _writing: Task<()>,
}

#[derive(Default)]
struct Lines {
    waiting: RefCell<Vec<u8>>,
    /// Those that found no room.
    lost: Cell<u64>,
    /// Bytes that were added, and those that were written or given up.
    added: Watch<u64>,
    done: Watch<u64>,
}

impl Operations {
    /// # Errors
    /// The file cannot be written, or another process writes it: one line.
    pub async fn open(path: PathBuf) -> Result<Operations, String> {
        let opening = Book::open(path.clone()).await;
        let book = opening.map_err(|error| {
            let path = path.display();
            format!("operations log {path}: {error}; choose another with --operations-log")
        })?;
        let lines = Rc::new(Lines::default());
        let writing = write_on(lines.clone(), book);
        let operations = Operations {
            lines,
            _writing: spawn("keeper operations", writing),
        };
        operations.of_server("serverStart", "success");
        Ok(operations)
    }

    /// Ends when all that was added so far is written, or was given up.
    pub async fn flushed(&self) {
        let added = self.lines.added.get();
        self.lines.done.wait_until(|done| *done >= added).await;
    }

    /// What the gateway itself does.
    pub fn of_server(&self, operation: &str, result: &str) {
        self.add(&format!(
            "user={USER}\toperation={operation}\tresult={result}"
        ));
    }

    /// Ephemeral nodes went with their session.
    pub fn session_ended(&self, session: i64, paths: &[Text]) {
        for path in paths {
            self.add(&format!(
                "session={session:#x}\tuser={USER}\toperation=ephemeralZNodeDeletionOnSessionCloseOrExpire\t\
                 znode={}\tresult=success",
                shown(path)
            ));
        }
    }

    fn add(&self, fields: &str) {
        let mut waiting = self.lines.waiting.borrow_mut();
        let before = waiting.len();
        let lost = self.lines.lost.get();
        if before + fields.len() > WAITING_BYTES_MAX {
            probe!("keeper_operations_log_is_behind");
            return self.lines.lost.set(lost + 1);
        }
        let at = stamp(unix_time_ms());
        if lost > 0 {
            self.lines.lost.set(0);
            trace_warn!("KeeperOperationsLost", "lines" => lost);
            let line = format!("{at} WARN audit.Slf4jAuditLogger: {lost} lines were lost\n");
            waiting.extend_from_slice(line.as_bytes());
        }
        let line = format!("{at} INFO audit.Slf4jAuditLogger: {fields}\n");
        waiting.extend_from_slice(line.as_bytes());
        let more = (waiting.len() - before) as u64;
        drop(waiting);
        self.lines.added.update(|added| *added += more);
    }
}

/// Whom ZooKeeper calls the user of the server.
const USER: &str = "plinth";

/// Writes what is added, for ever.
async fn write_on(lines: Rc<Lines>, mut book: Book) {
    loop {
        let done = lines.done.get();
        lines.added.wait_until(|added| *added > done).await;
        let some = Bytes::from(std::mem::take(&mut *lines.waiting.borrow_mut()));
        let len = some.len() as u64;
        if let Err(error) = book.write(some).await {
            trace_warn!("KeeperOperationsNotWritten", "file" => book.path.display(), "error" => error);
            book.file = None;
            sleep(RETRY_PAUSE).await;
        }
        lines.done.update(|done| *done += len);
    }
}

/// The file, and those before it.
struct Book {
    path: PathBuf,
    /// `None` after an error.
    file: Option<File>,
    len: u64,
}

impl Book {
    async fn open(path: PathBuf) -> io::Result<Book> {
        let mut book = Book {
            path,
            file: None,
            len: 0,
        };
        book.reopen().await?;
        Ok(book)
    }

    async fn reopen(&mut self) -> io::Result<()> {
        let options = OpenOptions {
            create: true,
            exclusive: true,
            private: true,
            ..OpenOptions::default()
        };
        let file = disk::open(&self.path, options).await?;
        self.len = file.size().await?;
        self.file = Some(file);
        Ok(())
    }

    async fn write(&mut self, lines: Bytes) -> io::Result<()> {
        let len = lines.len() as u64;
        if self.len > 0 && self.len + len > OPERATIONS_LOG_BYTES.get() {
            self.turn().await?;
        }
        if self.file.is_none() {
            self.reopen().await?;
        }
        if let Some(file) = &self.file {
            file.write_at(self.len, lines).await?;
        }
        self.len += len;
        Ok(())
    }

    /// Renames the files, so that a new one is begun. The oldest is replaced.
    async fn turn(&mut self) -> io::Result<()> {
        self.file = None;
        self.len = 0;
        for number in (0..OPERATIONS_LOG_FILES.get()).rev() {
            let from = self.before(number);
            if disk::exists(&from).await? {
                disk::rename(&from, &self.before(number + 1)).await?;
            }
        }
        Ok(())
    }

    /// The file that is so many files old.
    fn before(&self, number: usize) -> PathBuf {
        match number {
            0 => self.path.clone(),
            number => {
                let mut name = self.path.clone().into_os_string();
                name.push(format!(".{number}"));
                Path::new(&name).to_path_buf()
            }
        }
    }
}

/// A client's request that is to be logged when its outcome is known.
pub struct Audited {
    operations: Rc<Operations>,
    who: String,
    steps: Vec<Option<Step>>,
    is_multi: bool,
}

struct Step {
    operation: &'static str,
    path: String,
    more: String,
}

impl Audited {
    /// `None` if there is nothing to log.
    pub fn of(
        operations: Option<&Rc<Operations>>,
        connection: &Connection,
        operation: &Operation,
    ) -> Option<Audited> {
        let operations = operations?.clone();
        let Operation::Request(_, request) = operation else {
            return None;
        };
        let (steps, is_multi) = match request {
            Request::Multi { operations } => (operations.iter().map(step_of).collect(), true),
            one => (vec![step_of(one)], false),
        };
        Some(Audited {
            operations,
            who: who(connection),
            steps,
            is_multi,
        })
    }

    pub fn log(self, outcome: &Outcome) {
        let one = std::slice::from_ref;
        let done: Option<&[Shape]> = match outcome {
            Outcome::Done { executed, .. } => match executed {
                Executed::One(Ok(shape)) => Some(one(shape)),
                Executed::Multi(Ok(shapes)) => Some(shapes),
                Executed::One(Err(_)) | Executed::Multi(Err(_)) => None,
            },
            Outcome::TooLarge => None,
        };
        let Some(shapes) = done else {
            match self.is_multi {
                true => self.add("multiOperation", "", "", "failure"),
                false => self.add_all(None),
            }
            return;
        };
        self.add_all(Some(shapes));
    }

    fn add_all(&self, shapes: Option<&[Shape]>) {
        let result = match shapes {
            Some(_) => "success",
            None => "failure",
        };
        for (number, step) in self.steps.iter().enumerate() {
            let Some(step) = step else { continue };
            let shape = shapes.and_then(|shapes| shapes.get(number));
            let path = match shape {
                // Of a node with a number in its name only the outcome has the name.
                Some(Shape::Path(path) | Shape::PathAndStat(path)) => shown(path),
                // It was there, or nothing was.
                Some(Shape::Ensured { is_new: false, .. } | Shape::Done { deleted: 0, .. }) => {
                    continue;
                }
                _ => step.path.clone(),
            };
            self.add(step.operation, &path, &step.more, result);
        }
    }

    fn add(&self, operation: &str, path: &str, more: &str, result: &str) {
        let who = &self.who;
        let znode = match path {
            "" => String::new(),
            path => format!("\tznode={path}"),
        };
        self.operations.add(&format!(
            "{who}\toperation={operation}{znode}{more}\tresult={result}"
        ));
    }
}

/// A request that is refused to everybody.
pub fn refused(operations: Option<&Rc<Operations>>, connection: &Connection, operation: &str) {
    if let Some(operations) = operations {
        let who = who(connection);
        operations.add(&format!("{who}\toperation={operation}\tresult=failure"));
    }
}

fn who(connection: &Connection) -> String {
    let identities = connection.identities.borrow();
    let users: Vec<String> = identities.iter().map(user).collect();
    format!(
        "session={:#x}\tuser={}\tip={}",
        connection.session,
        users.join(","),
        connection.peer.ip().to_canonical()
    )
}

/// Without the hash of the password.
fn user(identity: &Identity) -> String {
    match (&*identity.scheme, identity.id.split_once(':')) {
        ("digest", Some((user, _))) => shown(user),
        _ => shown(&identity.id),
    }
}

fn step_of(request: &Request) -> Option<Step> {
    let step = |operation, path: &str, more| {
        Some(Step {
            operation,
            path: shown(path),
            more,
        })
    };
    match request {
        Request::Create { path, flags, .. } => {
            step("create", path, format!("\tznode_type={}", mode_of(*flags)))
        }
        Request::Delete { path, .. }
        | Request::DeleteContainer { path }
        | Request::TryDelete { path, .. }
        | Request::DeleteRecursive { path, .. } => step("delete", path, String::new()),
        Request::SetData { path, .. } => step("setData", path, String::new()),
        Request::SetAcl { path, acl, .. } => {
            step("setAcl", path, format!("\tacl={}", shown(&list_of(acl))))
        }
        _ => None,
    }
}

fn mode_of(flags: i32) -> &'static str {
    use create_flags::*;
    match flags {
        PERSISTENT => "persistent",
        EPHEMERAL => "ephemeral",
        PERSISTENT_SEQUENTIAL => "persistent_sequential",
        EPHEMERAL_SEQUENTIAL => "ephemeral_sequential",
        CONTAINER => "container",
        PERSISTENT_WITH_TTL => "persistent_with_ttl",
        PERSISTENT_SEQUENTIAL_WITH_TTL => "persistent_sequential_with_ttl",
        _ => "none",
    }
}

/// `world:anyone:cdrwa`, with commas between entries.
fn list_of(acl: &[Acl]) -> String {
    let entry = |entry: &Acl| {
        let rights = [
            (permission::CREATE, 'c'),
            (permission::DELETE, 'd'),
            (permission::READ, 'r'),
            (permission::WRITE, 'w'),
            (permission::ADMIN, 'a'),
        ];
        let given = rights.iter().filter(|(bit, _)| entry.perms & bit != 0);
        let given: String = given.map(|(_, letter)| letter).collect();
        format!("{}:{}:{given}", entry.scheme, entry.id)
    };
    let entries: Vec<String> = acl.iter().map(entry).collect();
    entries.join(",")
}

/// Nobody writes lines or fields of his own.
fn shown(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() && c != '\\' && !matches!(c, '\u{2028}' | '\u{2029}');
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut shown = String::new();
    for c in text.chars() {
        match c {
            '\\' => shown.push_str("\\\\"),
            c if is_plain(c) => shown.push(c),
            c => {
                let _ = write!(shown, "\\u{:04x}", u32::from(c)); // memory
            }
        }
    }
    shown
}

/// A moment in the form of ZooKeeper's logs, in UTC.
fn stamp(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02},{ms:03}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// Year, month and day, so many days after the first of 1970. Counted from the first of March 0000, so that the day
/// of a leap year is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    const OF_400_YEARS: u64 = 146_097;
    let days = days + 719_468;
    let (era, day) = (days / OF_400_YEARS, days % OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..10 => (year, month + 3),
        _ => (year + 1, month - 9),
    };
    (year + 400 * era, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::knobs::{Knobs, set_knobs};
    use plinth_runtime::real::block_on;

    #[test]
    fn moments_are_written_as_in_zookeepers_logs() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00,000"),
            (951_782_399_999, "2000-02-28 23:59:59,999"),
            (951_782_400_000, "2000-02-29 00:00:00,000"),
            (1_709_251_199_001, "2024-02-29 23:59:59,001"),
            (1_709_251_200_000, "2024-03-01 00:00:00,000"),
            (4_102_444_800_000, "2100-01-01 00:00:00,000"),
        ] {
            assert_eq!(stamp(ms), text);
        }
    }

    #[test]
    fn nobody_writes_a_line_of_his_own() {
        assert_eq!(shown("/a b/ü"), "/a b/ü");
        assert_eq!(
            shown("/a\nsession=0x1\t\\"),
            "/a\\u000asession=0x1\\u0009\\\\"
        );
        let entry = |perms, scheme: &str, id: &str| Acl {
            perms,
            scheme: scheme.into(),
            id: id.into(),
        };
        let list = [entry(31, "world", "anyone"), entry(5, "digest", "bob:x")];
        assert_eq!(list_of(&list), "world:anyone:cdrwa,digest:bob:x:cr");
    }

    #[test]
    fn a_full_file_is_renamed_and_the_oldest_goes() {
        let mut knobs = Knobs::default();
        for (name, value) in [
            ("keeper_operations_log_bytes", "1000"),
            ("keeper_operations_log_files", "2"),
        ] {
            knobs.set(name, value).expect("a knob");
        }
        set_knobs(knobs);
        let directory = std::env::temp_dir().join(format!("plinth-ops-{}", std::process::id()));
        block_on(async {
            disk::create_dir_all(&directory).await.expect("made");
            let path = directory.join("operations.log");
            for number in 0..100 {
                // A gateway that is started again goes on with the file.
                let operations = Operations::open(path.clone()).await.expect("it opens");
                operations.of_server(&format!("number{number}"), "success");
                operations.flushed().await;
            }
            let names = disk::list_dir(&directory).await.expect("listed");
            let expected = ["operations.log", "operations.log.1", "operations.log.2"];
            assert_eq!(names, expected);
            let mut all = String::new();
            for name in names.iter().rev() {
                let text = disk::read_file(&directory.join(name)).await.expect("read");
                assert!(text.len() <= 1000, "{name}");
                all.push_str(std::str::from_utf8(&text).expect("text"));
            }
            let lines: Vec<&str> = all.lines().collect();
            let last = "user=plinth\toperation=number99\tresult=success";
            assert!(lines.last().expect("lines").ends_with(last), "{all}");
            let numbered = lines.iter().filter(|line| line.contains("=number"));
            let numbered: Vec<&&str> = numbered.collect();
            for (place, line) in numbered.iter().rev().enumerate() {
                let number = format!("=number{}\t", 99 - place);
                assert!(line.contains(&number), "none is missing: {all}");
            }
            for name in names {
                disk::remove(&directory.join(name)).await.expect("removed");
            }
        });
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let directory = std::env::temp_dir().join(format!("plinth-lost-{}", std::process::id()));
        block_on(async {
            disk::create_dir_all(&directory).await.expect("made");
            let path = directory.join("operations.log");
            let operations = Operations::open(path.clone()).await.expect("it opens");
            operations.flushed().await;
            let line = "x".repeat(1 << 20);
            // Nothing is written before this task waits.
            (0..10).for_each(|_| operations.of_server(&line, "success"));
            assert!(operations.lines.waiting.borrow().len() <= WAITING_BYTES_MAX);
            operations.flushed().await;
            operations.of_server("next", "success");
            operations.flushed().await;
            let text = disk::read_file(&path).await.expect("read");
            let text = String::from_utf8(text.to_vec()).expect("text");
            assert!(text.contains(" 7 lines were lost\n"), "some are told of");
            disk::remove(&path).await.expect("removed");
        });
    }
}
