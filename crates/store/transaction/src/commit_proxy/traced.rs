//! When a proxy does what with a transaction, for who has asked for that ([`FLAG_TRACE`]). All others cost a look at a
//! flag.
//!
//! [`FLAG_TRACE`]: plinth_protocol::transaction::FLAG_TRACE

use plinth_core::{Epoch, Error, Result, Version};
use plinth_protocol::log::{LogGeneration, PushTrace, TracePush};
use plinth_protocol::transaction::{CommitTrace, GetCommitTrace};
use plinth_rpc::{Call, Transport};
use plinth_runtime::{Duration, Instant, join_all, timeout};
use std::cell::RefCell;
use std::collections::VecDeque;

/// Traces that are kept until somebody asks.
const KEPT_MAX: usize = 16;
/// A log server answers with the push. One that does not know the question holds nobody up.
const LOGS_LIMIT: Duration = Duration::from_millis(5);

/// The traces of transactions that were committed last.
#[derive(Default)]
pub struct Traces(RefCell<VecDeque<((Version, u16), CommitTrace)>>);

impl Traces {
    pub fn answer(&self, asked: &GetCommitTrace) -> Result<CommitTrace> {
        let mut kept = self.0.borrow_mut();
        let place = kept
            .iter()
            .position(|(of, _)| *of == (asked.version, asked.order));
        let found = place.and_then(|place| kept.remove(place));
        found
            .map(|(_, trace)| trace)
            .ok_or(Error::operation_obsolete)
    }

    fn keep(&self, of: (Version, u16), trace: CommitTrace) {
        let mut kept = self.0.borrow_mut();
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((of, trace));
    }
}

/// A batch with a transaction that is traced.
pub struct Tracing {
    arrived: Instant,
    order: u16,
    trace: CommitTrace,
    logs: Vec<Call<TracePush>>,
}

impl Tracing {
    pub fn new(arrived: Instant, order: u16) -> Tracing {
        let mut tracing = Tracing {
            arrived,
            order,
            trace: CommitTrace::default(),
            logs: Vec::new(),
        };
        tracing.trace.batched = tracing.micros();
        tracing
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.arrived.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Notes that something has just been done.
    pub fn note(&mut self, done: impl FnOnce(&mut CommitTrace) -> &mut u64) {
        let now = self.micros();
        *done(&mut self.trace) = now;
    }

    /// The version is about to be pushed.
    pub fn ask_logs(
        &mut self,
        transport: &Transport,
        (epoch, version): (Epoch, Version),
        generation: &LogGeneration,
    ) {
        let ask = |log: &plinth_rpc::Interface| {
            transport.call(&log.endpoint::<TracePush>(), TracePush { epoch, version })
        };
        self.logs = generation.logs.iter().map(ask).collect();
    }

    /// All is done but the answers to clients.
    pub async fn end(mut self, traces: &Traces, version: Version) {
        self.note(|trace| &mut trace.reported);
        let logs = join_all(std::mem::take(&mut self.logs));
        if let Some(answers) = timeout(LOGS_LIMIT, logs).await {
            self.trace.logs = answers
                .into_iter()
                .filter_map(Result::ok)
                .collect::<Vec<PushTrace>>();
        }
        traces.keep((version, self.order), self.trace);
    }
}
