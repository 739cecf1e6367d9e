//! Settings of a machine's engine, and options of a transaction.

use plinth_runtime::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long who waits for another machine, or for the clock, pauses between two looks. Zero is one turn of
    /// the loop: for real machines. Simulated time stands still in a turn, so it needs more.
    pub pause: Duration,
    /// The same while nobody here waits for anything.
    pub idle: Duration,
    /// Between two rounds of the oldest active transaction, and of truncations that no message has carried.
    pub round: Duration,
    /// How long a machine that cannot be reached may still come back, before another configuration is asked for.
    pub patience: Duration,
    /// How long a primary holds up a writer that finds no memory for an old version, before it is refused.
    pub block: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            pause: Duration::ZERO,
            idle: Duration::from_millis(1),
            round: Duration::from_millis(1),
            patience: Duration::from_millis(100),
            block: Duration::from_millis(100),
        }
    }
}

/// What a transaction promises, and what it may do (§4.2, 4.6, 4.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// False: snapshot isolation. What it has read may change before it commits; what it writes may not.
    pub is_serializable: bool,
    /// False: the snapshot may be older than what has committed before the transaction began, by the uncertainty of
    /// the clock. The transaction does not wait for it.
    pub is_strict: bool,
    /// It writes nothing, and keeps nothing of what it reads.
    pub is_read_only: bool,
    /// The snapshot of another transaction, which is still active (§4.6). For transactions that only read.
    pub at: Option<u64>,
    /// It will write. If the newest version of an object is not of its snapshot, it gives up at once.
    pub will_write: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            is_serializable: true,
            is_strict: true,
            is_read_only: false,
            at: None,
            will_write: false,
        }
    }
}

impl Options {
    pub fn read_only() -> Options {
        Options {
            is_read_only: true,
            ..Options::default()
        }
    }

    /// Reads at a snapshot of another transaction.
    pub fn at(read_at: u64) -> Options {
        Options {
            at: Some(read_at),
            ..Options::read_only()
        }
    }

    pub fn snapshot_isolation() -> Options {
        Options {
            is_serializable: false,
            ..Options::default()
        }
    }

    pub fn not_strict(self) -> Options {
        Options {
            is_strict: false,
            ..self
        }
    }
}

/// What a primary does when there is no memory for an old version (§5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// The writer waits for a while ([`Settings::block`]), then it is refused.
    MvBlock,
    /// The writer is refused.
    MvAbort,
    /// The writer goes on, and all earlier versions of the object are gone.
    #[default]
    MvTruncate,
    /// No old version is ever kept.
    SingleVersion,
}
