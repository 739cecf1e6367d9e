//! What a gateway counts for operators.

use crate::wire::Request;
use plinth_runtime::metric::latency::Latency;
use plinth_runtime::{Duration, Instant, now};
use std::cell::{Cell, RefCell};

/// Since the start; all but `requests` can be reset by an operator.
#[derive(Default)]
pub struct Counters {
    pub received: Cell<u64>,
    pub sent: Cell<u64>,
    pub latency: RefCell<Spread>,
    /// By kind.
    requests: [Latency; KINDS.len()],
}

impl Counters {
    /// Counts a request that has arrived. Every write is timed, and one in sixteen of the others.
    pub fn arrived(&self, kind: Kind) -> Asked {
        let is_sampled = self.requests[kind as usize].ask();
        Asked {
            kind,
            since: (is_sampled || kind.is_write()).then(now),
        }
    }

    /// Notes that a request was answered.
    pub fn answered(&self, asked: Asked) {
        if let Some(since) = asked.since {
            self.latency.borrow_mut().note(since.elapsed());
            self.requests[asked.kind as usize].answered(since);
        }
    }

    pub fn requests(&self) -> impl Iterator<Item = (Kind, &Latency)> {
        KINDS.iter().copied().zip(&self.requests)
    }
}

/// A request under way.
#[derive(Clone, Copy)]
pub struct Asked {
    pub kind: Kind,
    /// `None` if it is not timed.
    since: Option<Instant>,
}

macro_rules! kinds {
    ($($kind:ident = $name:literal,)*) => {
        /// What a request asks for, in the words of ZooKeeper's clients.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Kind { $($kind),* }
        const KINDS: &[Kind] = &[$(Kind::$kind),*];
        impl Kind {
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name),* }
            }
        }
    };
}

kinds! {
    Create = "create",
    Delete = "delete",
    SetData = "setData",
    SetAcl = "setACL",
    Multi = "multi",
    CloseSession = "closeSession",
    Exists = "exists",
    GetData = "getData",
    GetAcl = "getACL",
    GetChildren = "getChildren",
    MultiRead = "multiRead",
    Sync = "sync",
    Ping = "ping",
    Watches = "watches",
    Other = "other",
}

impl Kind {
    pub fn of(request: &Request) -> Kind {
        match request {
            Request::Create { .. } => Kind::Create,
            Request::Delete { .. }
            | Request::TryDelete { .. }
            | Request::DeleteRecursive { .. } => Kind::Delete,
            Request::SetData { .. } => Kind::SetData,
            Request::SetAcl { .. } => Kind::SetAcl,
            Request::Multi { .. } => Kind::Multi,
            Request::CloseSession => Kind::CloseSession,
            Request::Exists { .. } => Kind::Exists,
            Request::GetData { .. } => Kind::GetData,
            Request::GetAcl { .. } => Kind::GetAcl,
            Request::GetChildren { .. }
            | Request::GetChildren2 { .. }
            | Request::List { .. }
            | Request::ListRecursive { .. } => Kind::GetChildren,
            Request::MultiRead { .. } => Kind::MultiRead,
            Request::Sync { .. } => Kind::Sync,
            Request::Ping => Kind::Ping,
            Request::AddWatch { .. }
            | Request::SetWatches { .. }
            | Request::CheckWatches { .. }
            | Request::RemoveWatches { .. } => Kind::Watches,
            _ => Kind::Other,
        }
    }

    pub fn is_write(self) -> bool {
        matches!(
            self,
            Kind::Create
                | Kind::Delete
                | Kind::SetData
                | Kind::SetAcl
                | Kind::Multi
                | Kind::CloseSession
        )
    }
}

/// Of requests, in milliseconds.
#[derive(Clone, Copy, Default)]
pub struct Spread {
    pub count: u64,
    pub total_ms: u64,
    pub min_ms: u64,
    pub max_ms: u64,
}

impl Spread {
    fn note(&mut self, took: Duration) {
        let ms = took.as_millis() as u64;
        self.min_ms = match self.count {
            0 => ms,
            _ => self.min_ms.min(ms),
        };
        self.max_ms = self.max_ms.max(ms);
        self.count += 1;
        self.total_ms += ms;
    }

    pub fn average_ms(&self) -> f64 {
        match self.count {
            0 => 0.0,
            count => self.total_ms as f64 / count as f64,
        }
    }
}
