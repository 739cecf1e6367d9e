//! When a gateway does what with a write, for a client that wants to know it: one that has read the node
//! [`NODE`](crate::trace::NODE). All other writes cost a look at an option.
//!
//! Nobody compares clocks. Each part of the way counts from its own begin, and what is left between two of them was
//! spent on the network, and is taken to be half for each direction.

use crate::contact::Moment;
use plinth_client::{CommitTrace, CommitTracing, PushTrace};
use plinth_core::Uid;
use plinth_runtime::{Duration, Instant, timeout};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The node whose data says what has become of the client's last write. From its first read on, the client's writes
/// are traced.
pub const NODE: &str = "/keeper/last_write";
/// The cluster's part comes soon after the commit, or never.
const CLUSTER_LIMIT: Duration = Duration::from_secs(1);

/// What has just been done with a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    Queued,
    Taken,
    Loaded,
    Sent,
    Committed,
    Landing,
    Shown,
    Answered,
}

const MARKS: [(Mark, &str); 8] = [
    (Mark::Queued, "queued"),
    (Mark::Taken, "taken"),
    (Mark::Loaded, "loaded"),
    (Mark::Sent, "sent"),
    (Mark::Committed, "committed"),
    (Mark::Landing, "landing"),
    (Mark::Shown, "shown"),
    (Mark::Answered, "answered"),
];

impl Mark {
    fn name(self) -> &'static str {
        let named = MARKS.iter().find(|(mark, _)| *mark == self);
        named.map_or("", |(_, name)| name)
    }

    fn of(name: &str) -> Option<Mark> {
        let named = MARKS.iter().find(|(_, its)| *its == name);
        named.map(|(mark, _)| *mark)
    }
}

/// A write on its way.
pub struct Trace {
    heard: Instant,
    marks: RefCell<Vec<(Mark, u64)>>,
    alone: Cell<bool>,
    commit: RefCell<Option<CommitTracing>>,
}

impl Trace {
    fn new(heard: &Moment) -> Rc<Trace> {
        Rc::new(Trace {
            heard: heard.at,
            marks: RefCell::default(),
            alone: Cell::new(false),
            commit: RefCell::default(),
        })
    }

    pub fn note(&self, mark: Mark) {
        let micros = u64::try_from(self.heard.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.marks.borrow_mut().push((mark, micros));
    }

    /// The transaction that has it is about to be sent, by a gateway that counts on being alone or not.
    pub fn commits(&self, tracing: CommitTracing, alone: bool) {
        *self.commit.borrow_mut() = Some(tracing);
        self.alone.set(alone);
    }

    async fn told(&self) -> Told {
        let tracing = self.commit.borrow().clone();
        let commit = match tracing {
            Some(tracing) => timeout(CLUSTER_LIMIT, tracing.told()).await,
            None => None,
        };
        Told {
            marks: self.marks.borrow().clone(),
            alone: self.alone.get(),
            commit,
        }
    }
}

/// Notes it, if the write is traced.
pub fn note(trace: Option<&Rc<Trace>>, mark: Mark) {
    if let Some(trace) = trace {
        trace.note(mark);
    }
}

/// The traces of a connection.
#[derive(Default)]
pub struct Traces {
    is_on: Cell<bool>,
    last: RefCell<Option<Rc<Trace>>>,
}

impl Traces {
    /// A write begins, of a request that was heard then.
    pub fn begin(&self, heard: &Moment) -> Option<Rc<Trace>> {
        if !self.is_on.get() {
            return None;
        }
        let trace = Trace::new(heard);
        trace.note(Mark::Queued);
        *self.last.borrow_mut() = Some(trace.clone());
        Some(trace)
    }

    /// What became of the last one, as the node's data has it. Those that follow are traced.
    pub async fn tell(&self) -> String {
        self.is_on.set(true);
        let last = self.last.borrow().clone();
        match last {
            Some(trace) => trace.told().await.to_json().to_string(),
            None => "{}".into(),
        }
    }
}

/// What a gateway says of a write.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Told {
    /// What was done, each with microseconds since the request was heard.
    pub marks: Vec<(Mark, u64)>,
    /// The gateway has counted on being alone, and has not read its own change in the stream.
    pub alone: bool,
    /// Of the last commit that was tried.
    pub commit: Option<CommitTrace>,
}

impl Told {
    pub fn to_json(&self) -> serde_json::Value {
        let mark = |(mark, at): &(Mark, u64)| serde_json::json!([mark.name(), at]);
        let marks: Vec<_> = self.marks.iter().map(mark).collect();
        serde_json::json!({
            "marks": marks, "alone": self.alone, "commit": self.commit.as_ref().map(commit_to_json),
        })
    }

    /// `None` if that is not what a gateway says.
    pub fn parse(json: &[u8]) -> Option<Told> {
        let said: serde_json::Value = serde_json::from_slice(json).ok()?;
        let mark = |one: &serde_json::Value| Some((Mark::of(one[0].as_str()?)?, one[1].as_u64()?));
        Some(Told {
            marks: said["marks"]
                .as_array()?
                .iter()
                .map(mark)
                .collect::<Option<_>>()?,
            alone: said["alone"].as_bool()?,
            commit: commit_of_json(&said["commit"]),
        })
    }

    /// It tells what it has done with a transaction. A Zelos has a log, and tells nothing of it.
    pub fn commits(&self) -> bool {
        self.marks.iter().any(|(mark, _)| *mark == Mark::Committed)
    }

    /// Microseconds that the gateway had it.
    pub fn total(&self) -> u64 {
        self.marks.last().map_or(0, |(_, at)| *at)
    }
}

fn commit_to_json(commit: &CommitTrace) -> serde_json::Value {
    let log = |log: &PushTrace| {
        serde_json::json!({
            "id": log.id.to_string(), "waited": log.waited, "written": log.written, "bytes": log.bytes,
        })
    };
    let logs: Vec<_> = commit.logs.iter().map(log).collect();
    serde_json::json!({
        "batched": commit.batched, "versioned": commit.versioned, "resolved": commit.resolved,
        "in_turn": commit.in_turn, "assigned": commit.assigned, "pushed": commit.pushed,
        "durable": commit.durable, "reported": commit.reported, "logs": logs,
    })
}

fn commit_of_json(said: &serde_json::Value) -> Option<CommitTrace> {
    let at = |name: &str| said[name].as_u64();
    let log = |log: &serde_json::Value| {
        Some(PushTrace {
            id: Uid::parse(log["id"].as_str()?)?,
            waited: log["waited"].as_u64()?,
            written: log["written"].as_u64()?,
            bytes: log["bytes"].as_u64()?,
        })
    };
    Some(CommitTrace {
        batched: at("batched")?,
        versioned: at("versioned")?,
        resolved: at("resolved")?,
        in_turn: at("in_turn")?,
        assigned: at("assigned")?,
        pushed: at("pushed")?,
        durable: at("durable")?,
        reported: at("reported")?,
        logs: said["logs"].as_array()?.iter().filter_map(log).collect(),
    })
}

/// A step on the way of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub step: &'static str,
    pub place: &'static str,
    /// Microseconds since the client has sent the write until the step begins.
    pub at: u64,
    /// Microseconds that it takes.
    pub took: u64,
    /// It waits for a disk.
    pub is_disk: bool,
}

/// What a store that tells nothing does.
const COMMITS: &str = "commits the transaction";
/// So ends a try that is executed again.
const IN_VAIN: &str = "tries to commit the transaction, in vain";

/// Rows that follow one another.
#[derive(Default)]
struct Rows {
    rows: Vec<Row>,
    at: u64,
}

impl Rows {
    /// A step that ends then. What was measured elsewhere may overlap by a little.
    fn until(&mut self, end: u64, place: &'static str, step: &'static str) -> &mut Row {
        let end = end.max(self.at);
        self.rows.push(Row {
            step,
            place,
            at: self.at,
            took: end - self.at,
            is_disk: false,
        });
        self.at = end;
        self.rows.last_mut().expect("it was added")
    }

    fn commit(&mut self, end: u64, commit: Option<&CommitTrace>) {
        let Some(commit) = commit else {
            self.until(end, "store", COMMITS).is_disk = true;
            return;
        };
        let begin = self.at + (end - self.at).saturating_sub(commit.reported) / 2;
        self.until(begin, "gateway → proxy", "the transaction is on its way");
        self.until(begin + commit.batched, "proxy", "waits for a batch");
        self.until(
            begin + commit.versioned,
            "proxy, sequencer",
            "gets a version",
        );
        self.until(
            begin + commit.resolved,
            "proxy, resolvers",
            "no conflict is found",
        );
        self.until(
            begin + commit.in_turn,
            "proxy",
            "waits for batches before it",
        );
        self.until(
            begin + commit.assigned,
            "proxy",
            "finds the log servers of each row",
        );
        self.until(begin + commit.pushed, "proxy", "is sent to the log servers");
        self.logs(begin + commit.durable, &commit.logs);
        self.until(
            begin + commit.reported,
            "proxy, sequencer",
            "read versions include it",
        );
        self.until(end, "proxy → gateway", "the commit's answer is on its way");
    }

    /// All log servers have it then. The one that took longest is shown.
    fn logs(&mut self, end: u64, logs: &[PushTrace]) {
        let took = |log: &&PushTrace| log.waited + log.written;
        let Some(slowest) = logs.iter().max_by_key(took) else {
            self.until(end, "logs", "is written and synced").is_disk = true;
            return;
        };
        let begin = self.at + (end.max(self.at) - self.at).saturating_sub(took(&slowest)) / 2;
        self.until(
            begin,
            "proxy → log",
            "is on its way to the slowest log server",
        );
        let written = begin + slowest.waited;
        self.until(written, "log", "waits for the block before it")
            .is_disk = true;
        self.until(written + slowest.written, "log", "is written and synced")
            .is_disk = true;
        self.until(end, "log → proxy", "all log servers have answered");
    }
}

/// The way of a write that the client was answered after so many microseconds.
pub fn rows(told: &Told, total: u64) -> Vec<Row> {
    let begin = total.saturating_sub(told.total()) / 2;
    let mut rows = Rows::default();
    rows.until(begin, "client → gateway", "the request is on its way");
    let mut commits = told
        .marks
        .iter()
        .filter(|(mark, _)| *mark == Mark::Committed)
        .count();
    for (mark, at) in &told.marks {
        let end = begin + at;
        match mark {
            Mark::Queued => rows.until(end, "gateway", "is read and queued"),
            Mark::Taken => rows.until(end, "gateway", "waits for a batch to begin"),
            Mark::Loaded => rows.until(end, "gateway", "what it needs is read of the store"),
            Mark::Sent => rows.until(end, "gateway", "is executed, and becomes a transaction"),
            Mark::Committed => {
                commits -= 1;
                // Only the last commit is told of. Those before it were refused: nothing of them is on a disk.
                match commits {
                    0 => rows.commit(end, told.commit.as_ref()),
                    _ => _ = rows.until(end, "store", IN_VAIN),
                }
                continue;
            }
            Mark::Landing => rows.until(end, "gateway", "waits for batches before it"),
            Mark::Shown if told.alone => rows.until(end, "gateway", "its own change is applied"),
            Mark::Shown => rows.until(end, "stream → gateway", "its change is read in the stream"),
            Mark::Answered if !told.commits() => rows.until(
                end,
                "gateway, log",
                "the log has it, and the answer is made",
            ),
            Mark::Answered => rows.until(end, "gateway", "events go out, and the answer is made"),
        };
    }
    rows.until(total, "gateway → client", "the answer is on its way");
    rows.rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Told {
        let log = |waited, written| PushTrace {
            id: Uid(7),
            waited,
            written,
            bytes: 512,
        };
        Told {
            marks: vec![
                (Mark::Queued, 10),
                (Mark::Taken, 20),
                (Mark::Loaded, 20),
                (Mark::Sent, 60),
                (Mark::Committed, 560),
                (Mark::Landing, 570),
                (Mark::Shown, 580),
                (Mark::Answered, 600),
            ],
            alone: true,
            commit: Some(CommitTrace {
                batched: 5,
                versioned: 55,
                resolved: 100,
                in_turn: 100,
                assigned: 110,
                pushed: 120,
                durable: 380,
                reported: 440,
                logs: vec![log(0, 150), log(20, 200)],
            }),
        }
    }

    #[test]
    fn the_steps_follow_one_another_from_the_request_to_the_answer() {
        let rows = rows(&told(), 700);
        let mut at = 0;
        for row in &rows {
            assert_eq!(row.at, at, "{row:?}");
            at += row.took;
        }
        assert_eq!(at, 700);
        let took = |step: &str| rows.iter().find(|row| row.step == step).map(|row| row.took);
        assert_eq!(took("the request is on its way"), Some(50));
        assert_eq!(took("the transaction is on its way"), Some(30));
        assert_eq!(took("is on its way to the slowest log server"), Some(20));
        assert_eq!(took("its own change is applied"), Some(10));
        let disk: u64 = rows
            .iter()
            .filter(|row| row.is_disk)
            .map(|row| row.took)
            .sum();
        assert_eq!(disk, 220);
    }

    #[test]
    fn a_write_that_was_executed_twice_has_the_steps_twice_and_a_store_that_tells_nothing_one() {
        let mut told = told();
        told.marks.splice(
            5..5,
            [
                (Mark::Landing, 561),
                (Mark::Sent, 562),
                (Mark::Committed, 565),
            ],
        );
        let twice = rows(&told, 700);
        let commits = |step: &str| twice.iter().filter(|row| row.step == step).count();
        assert_eq!(commits(IN_VAIN), 1, "of the first, nothing is told");
        assert_eq!(commits(COMMITS), 0);
        assert!(
            twice.iter().all(|row| row.step != IN_VAIN || !row.is_disk),
            "a try that was refused waits for no disk"
        );
        assert_eq!(commits("gets a version"), 1);
        assert_eq!(commits("is executed, and becomes a transaction"), 2);
        told.commit = None;
        assert!(
            rows(&told, 0)
                .iter()
                .all(|row| row.step != "gets a version")
        );
        assert!(
            rows(&Told::default(), 9)
                .iter()
                .map(|row| row.took)
                .sum::<u64>()
                == 9
        );
    }

    #[test]
    fn a_gateway_that_tells_no_commit_claims_to_know_none() {
        let of_zelos = Told {
            marks: vec![(Mark::Queued, 10), (Mark::Answered, 600)],
            ..Told::default()
        };
        assert!(told().commits() && !of_zelos.commits());
        let rows = rows(&of_zelos, 700);
        let steps: Vec<&str> = rows.iter().map(|row| row.step).collect();
        assert_eq!(
            steps[1..3],
            [
                "is read and queued",
                "the log has it, and the answer is made"
            ]
        );
    }

    #[test]
    fn what_a_gateway_says_is_read_as_it_was_meant() {
        let said = told().to_json().to_string();
        assert_eq!(Told::parse(said.as_bytes()), Some(told()));
        for other in ["", "{}", "[]", "{\"marks\":[[\"x\",1]],\"alone\":true}"] {
            assert_eq!(Told::parse(other.as_bytes()), None, "{other}");
        }
    }
}
