//! The state of a transaction: its options, the snapshot that it reads, what it has written, and which calls are legal
//! now. Reads, writes and the commit build on it.

use crate::attempt::Attempt;
use crate::options::Options;
use crate::retry::{BACKOFF, delay_after};
use crate::shared::{Drive, Shared};
use crate::source::{Cluster, CommitTracing, ReadVersionFlags};
use crate::write_log::WriteLog;
use crate::write_map::WriteMap;
use plinth_core::key::{ALL_KEYS_END, KEY_BYTES_MAX, KeyRange, SYSTEM_BEGIN, SYSTEM_KEY_BYTES_MAX};
use plinth_core::{Error, Key, Result, Value, Version};
use plinth_runtime::{Backoff, Duration, Instant, Task};
use std::rc::{Rc, Weak};

/// The snapshot of an attempt: one for all of its reads.
#[derive(Default)]
pub(crate) enum ReadVersion {
    #[default]
    Unset,
    Known(Version),
    Asked(Shared<Result<Version>>),
}

impl ReadVersion {
    pub fn known(&self) -> Option<Version> {
        match self {
            ReadVersion::Unset => None,
            ReadVersion::Known(version) => Some(*version),
            ReadVersion::Asked(answer) => answer.peek().and_then(Result::ok),
        }
    }
}

/// A write to the special keys, as it was called.
#[derive(Clone, Debug)]
pub enum SpecialWrite {
    Set(Key, Value),
    Clear(KeyRange),
}

pub(crate) struct State {
    pub attempt: Rc<Attempt>,
    pub options: Options,
    pub read_version: ReadVersion,
    pub log: WriteLog,
    /// Reads under way. A commit waits for them: they add conflict ranges when they end, and the application may
    /// await them after the commit.
    pub outstanding: Vec<Weak<dyn Drive>>,
    pub has_read: bool,
    /// The first error of a call that could not return it.
    pub deferred_error: Option<Error>,
    pub commit_started: bool,
    /// Size of explicit conflict ranges and mutations, uncoalesced.
    pub write_bytes: usize,
    /// Writes to the special keys, in the order of the calls.
    pub special_writes: Vec<SpecialWrite>,
    /// Why the last of those was refused, in JSON.
    pub special_error: Option<String>,
    /// Appends to streams so far.
    pub appends: u16,
    /// Places of its batch that the commit takes.
    pub places: u16,
    /// Who wants to know when the cluster did what with the commit.
    pub trace: Option<CommitTracing>,
    // State that outlives an attempt.
    pub created_at: Instant,
    pub retries: u32,
    pub backoff: Backoff,
    pub timer: Option<Task<()>>,
}

impl State {
    pub fn new(options: Options, created_at: Instant) -> Self {
        State {
            attempt: Attempt::new(options.size_bytes_max),
            options,
            read_version: ReadVersion::default(),
            log: WriteLog::default(),
            outstanding: Vec::new(),
            has_read: false,
            deferred_error: None,
            commit_started: false,
            write_bytes: 0,
            special_writes: Vec::new(),
            special_error: None,
            appends: 0,
            places: 1,
            trace: None,
            created_at,
            retries: 0,
            backoff: BACKOFF,
            timer: None,
        }
    }

    /// Drops the attempt and starts another. Operations under way fail.
    pub fn start_attempt(&mut self, options: Options) -> Rc<Attempt> {
        self.options = options;
        self.read_version = ReadVersion::default();
        self.log = WriteLog::default();
        self.outstanding.clear();
        self.has_read = false;
        self.deferred_error = None;
        self.commit_started = false;
        self.write_bytes = 0;
        self.special_writes.clear();
        self.appends = 0;
        self.places = 1;
        self.trace = None;
        let next = Attempt::new(self.options.size_bytes_max);
        std::mem::replace(&mut self.attempt, next)
    }

    /// Checks that an operation may start now. An operation during a commit fails the commit as well, because the
    /// application has lost track.
    pub fn check_usable(&self) -> Result<()> {
        if let Some(error) = self.deferred_error {
            return Err(error);
        }
        self.check_not_committing()?;
        self.attempt.check()
    }

    pub fn check_not_committing(&self) -> Result<()> {
        if !self.commit_started {
            return Ok(());
        }
        if !self.options.commit_protection_disabled {
            self.attempt.fail(Error::used_during_commit);
        }
        Err(Error::used_during_commit)
    }

    pub fn defer(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.deferred_error.get_or_insert(error);
        }
    }

    /// How long to wait before another attempt after `error`; or the error, and the attempt is cancelled, if there
    /// will be none.
    pub fn decide_retry(&mut self, error: Error) -> Result<Duration> {
        self.attempt.check()?;
        let limit_reached = self
            .options
            .retry_limit
            .is_some_and(|limit| self.retries >= limit);
        self.retries = self.retries.saturating_add(1);
        let delay_max = Duration::from_millis(u64::from(self.options.retry_delay_ms_max));
        match delay_after(&mut self.backoff, error, delay_max) {
            Some(delay) if !limit_reached => Ok(delay),
            _ => {
                self.attempt.fail(Error::transaction_cancelled);
                Err(if error == Error::success {
                    Error::client_invalid_operation
                } else {
                    error
                })
            }
        }
    }

    /// The keys below it can be read.
    pub fn read_end(&self) -> &'static [u8] {
        if self.options.read_system_keys {
            ALL_KEYS_END
        } else {
            SYSTEM_BEGIN
        }
    }

    /// The keys below it can be written.
    pub fn write_end(&self) -> &'static [u8] {
        if self.options.write_system_keys {
            ALL_KEYS_END
        } else {
            SYSTEM_BEGIN
        }
    }

    /// The read version. It is requested unless it has been already.
    pub fn ask_read_version(
        &mut self,
        cluster: &Rc<dyn Cluster>,
        has_reads: bool,
    ) -> Shared<Result<Version>> {
        match &self.read_version {
            ReadVersion::Known(version) => Shared::ready(Ok(*version)),
            ReadVersion::Asked(answer) => answer.clone(),
            ReadVersion::Unset => {
                let flags = ReadVersionFlags {
                    priority: self.options.priority,
                    // Without reads, the result does not depend on how new the version is.
                    causal_read_risky: self.options.causal_read_risky || !has_reads,
                    lock_aware: self.options.lock_aware || self.options.read_lock_aware,
                    tags: self.options.tags,
                };
                let answer = Shared::new(cluster.get_read_version(flags));
                self.read_version = ReadVersion::Asked(answer.clone());
                answer
            }
        }
    }

    /// No versionstamp of this attempt is below it.
    pub fn stamp_version_min(&self) -> Version {
        self.read_version.known().unwrap_or(0)
    }

    /// The attempt's writes, if the read sees any.
    pub fn own_writes(&mut self, snapshot: bool) -> Option<Rc<WriteMap>> {
        if !self.log.has_mutations() || !self.options.sees_own_writes(snapshot) {
            return None;
        }
        let version_min = self.stamp_version_min();
        Some(self.log.map(version_min).clone())
    }

    /// Makes the commit wait for `read`.
    pub fn keep_outstanding<T: 'static>(&mut self, read: &Shared<T>) {
        if self.outstanding.len() == self.outstanding.capacity() {
            self.outstanding.retain(|read| read.strong_count() > 0);
        }
        self.outstanding.push(read.weak());
    }
}

/// Length limit for keys in the part of the key space that `key` is in.
pub(crate) fn key_bytes_max(key: &[u8]) -> usize {
    if key.starts_with(SYSTEM_BEGIN) {
        SYSTEM_KEY_BYTES_MAX
    } else {
        KEY_BYTES_MAX
    }
}

/// `key`; or, if it is longer than any key can be, a shorter one with no key in between.
pub(crate) fn shorten(key: Key) -> Key {
    let most = key_bytes_max(&key);
    if key.len() > most {
        key.slice(..most + 1)
    } else {
        key
    }
}
