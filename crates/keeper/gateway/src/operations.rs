//! The log of operations: who has changed which nodes, as ZooKeeper's audit log has it (`zookeeper.audit.enable`).
//!
//! ```text
//!   2026-11-28 13:15:10,123 INFO audit.Slf4jAuditLogger: session=0x17  user=bob  ip=10.0.0.7  operation=setData
//!       znode=/app  result=success                                      one line, with tabs between the fields
//! ```
//! Whoever is answered waits for no disk: lines are kept in memory and written beside. A disk that is full, fails or
//! hangs is tried until it takes them. What finds no room meanwhile is lost, and a line says how many. The file is
//! renamed when it is full, and the oldest one goes.

mod book;
#[cfg(test)]
mod tests;

use crate::acl::Identity;
use crate::connection::Connection;
use crate::tree::execute::{Executed, Operation, Shape};
use crate::wire::{Acl, Request, Text, create_flags, permission};
use crate::writes::Outcome;
use book::Book;
use bytes::Bytes;
use plinth_runtime::sync::Watch;
use plinth_runtime::{
    Duration, Task, now, probe, sleep, spawn, timeout, trace, trace_warn, unix_time_ms,
};
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Lines in memory that wait. Besides, there are as many at most that are being written.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Until a file that could not be written is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// A disk that has not answered by then hangs.
const HANGS_AFTER: Duration = Duration::from_secs(2);
/// Who begins waits so long for the disk.
const OPEN_LIMIT: Duration = Duration::from_secs(30);

/// See the module.
pub struct Operations {
    lines: Rc<Lines>,
    _writing: Task<()>,
}

#[derive(Default)]
struct Lines {
    waiting: RefCell<Vec<u8>>,
    /// Those that found no room, of which no line tells yet, and all of them.
    lost: Cell<u64>,
    lost_ever: Cell<u64>,
    /// The disk does not take them.
    is_stuck: Cell<bool>,
    /// Bytes that were added, and those that were written.
    added: Watch<u64>,
    done: Watch<u64>,
}

impl Operations {
    /// # Errors
    /// The file cannot be written, or another process writes it: one line.
    pub async fn open(path: PathBuf) -> Result<Operations, String> {
        let opening = timeout(OPEN_LIMIT, Book::open(path.clone())).await;
        let hangs = || Err(io::Error::other("the disk does not answer"));
        let book = opening.unwrap_or_else(hangs).map_err(|error| {
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

    /// How many lines found no room.
    pub fn lost(&self) -> u64 {
        self.lines.lost_ever.get()
    }

    /// True while the disk does not take lines.
    pub fn is_stuck(&self) -> bool {
        self.lines.is_stuck.get()
    }

    /// Ends when all that was added so far is written.
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
        let lines = &self.lines;
        let mut waiting = lines.waiting.borrow_mut();
        let before = waiting.len();
        if before + fields.len() > WAITING_BYTES_MAX {
            probe!("keeper_operations_log_is_behind");
            lines.lost.set(lines.lost.get() + 1);
            return lines.lost_ever.set(lines.lost_ever.get() + 1);
        }
        let at = stamp(unix_time_ms());
        let line = format!("{at} INFO audit.Slf4jAuditLogger: {fields}\n");
        waiting.extend_from_slice(line.as_bytes());
        let more = (waiting.len() - before) as u64;
        drop(waiting);
        lines.added.update(|added| *added += more);
    }
}

impl Lines {
    /// What waits, with a line behind it about those that are lost; and how many bytes of it were added.
    fn take(&self) -> (Bytes, u64) {
        let mut some = std::mem::take(&mut *self.waiting.borrow_mut());
        let len = some.len() as u64;
        let lost = self.lost.take();
        if lost > 0 {
            trace_warn!("KeeperOperationsLost", "lines" => lost);
            let at = stamp(unix_time_ms());
            let line = format!("{at} WARN audit.Slf4jAuditLogger: {lost} lines were lost\n");
            some.extend_from_slice(line.as_bytes());
        }
        (some.into(), len)
    }

    /// Says it once, until the disk takes lines again.
    fn stick(&self, file: &Path, error: &dyn std::fmt::Display) {
        if !self.is_stuck.replace(true) {
            let file = file.display();
            trace_warn!("KeeperOperationsNotWritten", "file" => file, "error" => error);
        }
    }
}

/// Whom ZooKeeper calls the user of the server.
const USER: &str = "plinth";

/// Writes what is added, for ever.
async fn write_on(lines: Rc<Lines>, mut book: Book) {
    loop {
        let done = lines.done.get();
        lines.added.wait_until(|added| *added > done).await;
        let (some, len) = lines.take();
        let began = now();
        while let Err(error) = write(&lines, &mut book, &some).await {
            lines.stick(&book.path, &error);
            sleep(RETRY_PAUSE).await;
        }
        if lines.is_stuck.replace(false) {
            let (file, ms) = (book.path.display(), began.elapsed().as_millis());
            trace!("KeeperOperationsWritten", "file" => file, "after_ms" => ms, "lost" => lines.lost.get());
        }
        lines.done.update(|done| *done += len);
    }
}

/// Writes some, however long the disk takes for it.
async fn write(lines: &Lines, book: &mut Book, some: &Bytes) -> io::Result<()> {
    let path = book.path.clone();
    let mut writing = Box::pin(book.write(some.clone()));
    if let Some(written) = timeout(HANGS_AFTER, &mut writing).await {
        return written;
    }
    lines.stick(&path, &"the disk does not answer");
    // Whether it will be written is not known: nothing else is begun before that.
    writing.await
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
