//! Options of one transaction, and of every transaction of a database.
//!
//! Numbers and ranges are FoundationDB's public ones. Some options survive a retry (`timeout`, `retry_limit`,
//! `max_retry_delay`, `size_limit`, tags): they describe the work, not the attempt. The others belong to the attempt,
//! and the body of a retry loop sets them anew.

use crate::source::Priority;
use plinth_core::key::TRANSACTION_BYTES_MAX;
use plinth_core::transaction_tag::{TransactionTag, TransactionTags};
use plinth_core::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionOption {
    /// A commit with an unknown result is not fenced off: it may still happen after the error.
    CausalWriteRisky,
    /// The read version may miss the newest commits if a fault and a slow clock coincide.
    CausalReadRisky,
    /// The next set, clear or atomic operation adds no write conflict range.
    NextWriteNoWriteConflictRange,
    /// Reads ignore the transaction's own writes. Only before the first read or write.
    ReadYourWritesDisable,
    PrioritySystemImmediate,
    PriorityBatch,
    /// Reads and writes up to `\xff\xff`.
    AccessSystemKeys,
    ReadSystemKeys,
    /// Milliseconds from the transaction's creation until everything about it fails; 0 for never.
    Timeout(i64),
    /// How many times `on_error` agrees to a retry; -1 for always.
    RetryLimit(i64),
    /// Milliseconds.
    MaxRetryDelay(i64),
    /// Bytes.
    SizeLimit(i64),
    /// Counts: snapshot reads see own writes while enables outnumber disables, the database's own included.
    SnapshotRywEnable,
    SnapshotRywDisable,
    LockAware,
    /// Using a transaction during its commit fails the operation only, not the commit.
    UsedDuringCommitProtectionDisable,
    ReadLockAware,
    ReportConflictingKeys,
    /// One range read may go over several modules of the special keys.
    SpecialKeySpaceRelaxed,
    SpecialKeySpaceEnableWrites,
    /// Keys that a versionstamped operation has made unreadable are read as if it had not been issued.
    BypassUnreadable,
    /// A commit whose answer is lost is looked up: `commit_unknown_result` never comes. Costs a row of 60 bytes.
    AutomaticIdempotency,
    /// A name for this kind of work, by which an operator can throttle it.
    Tag(TransactionTag),
    /// Like `Tag`, and the database may throttle the tag by itself when it causes an overload.
    AutoThrottleTag(TransactionTag),
    /// A mapped range sees own writes like any other read, in every direction, and for snapshots too. Without the
    /// option it is refused, as in FoundationDB. Plinth's own.
    MappedRangeReadsOwnWrites,
}

/// A number far from FoundationDB's. The same for transactions and databases.
const MAPPED_RANGE_READS_OWN_WRITES: u32 = 90_001;

impl TransactionOption {
    /// The option with this public number. A parameter is eight bytes, little-endian; a tag is its bytes.
    pub fn from_code(code: u32, value: Option<&[u8]>) -> Result<TransactionOption> {
        use TransactionOption::*;
        let number = || {
            let bytes: [u8; 8] = value
                .and_then(|v| v.try_into().ok())
                .ok_or(Error::invalid_option_value)?;
            Ok(i64::from_le_bytes(bytes))
        };
        let tag = || TransactionTag::new(value.unwrap_or_default());
        let flag = match code {
            10 => CausalWriteRisky,
            20 => CausalReadRisky,
            30 => NextWriteNoWriteConflictRange,
            51 => ReadYourWritesDisable,
            200 => PrioritySystemImmediate,
            201 => PriorityBatch,
            301 => AccessSystemKeys,
            302 => ReadSystemKeys,
            500 => return Ok(Timeout(number()?)),
            501 => return Ok(RetryLimit(number()?)),
            502 => return Ok(MaxRetryDelay(number()?)),
            503 => return Ok(SizeLimit(number()?)),
            505 => AutomaticIdempotency,
            600 => SnapshotRywEnable,
            601 => SnapshotRywDisable,
            700 => LockAware,
            701 => UsedDuringCommitProtectionDisable,
            702 => ReadLockAware,
            712 => ReportConflictingKeys,
            713 => SpecialKeySpaceRelaxed,
            714 => SpecialKeySpaceEnableWrites,
            800 => return Ok(Tag(tag()?)),
            801 => return Ok(AutoThrottleTag(tag()?)),
            1100 => BypassUnreadable,
            MAPPED_RANGE_READS_OWN_WRITES => MappedRangeReadsOwnWrites,
            _ => return Err(Error::invalid_option),
        };
        if value.is_some_and(|v| !v.is_empty()) {
            return Err(Error::invalid_option_value);
        }
        Ok(flag)
    }
}

/// Defaults for the transactions of a database, and limits of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatabaseOption {
    /// Watches that may be outstanding at once.
    MaxWatches(i64),
    SnapshotRywEnable,
    SnapshotRywDisable,
    TransactionTimeout(i64),
    TransactionRetryLimit(i64),
    TransactionMaxRetryDelay(i64),
    TransactionSizeLimit(i64),
    TransactionCausalReadRisky,
    TransactionBypassUnreadable,
    TransactionUsedDuringCommitProtectionDisable,
    TransactionReportConflictingKeys,
    MappedRangeReadsOwnWrites,
    TransactionAutomaticIdempotency,
}

pub const WATCHES_MAX_DEFAULT: usize = 10_000;
pub const WATCHES_MAX_MAX: i64 = 1_000_000;
pub const RETRY_DELAY_MS_MAX_DEFAULT: u32 = 1000;
const SIZE_LIMIT_BYTES_MIN: i64 = 32;

/// The current options of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// 0 for none.
    pub timeout_ms: u32,
    pub retry_limit: Option<u32>,
    pub retry_delay_ms_max: u32,
    pub size_bytes_max: usize,
    pub snapshot_ryw: i32,
    pub causal_write_risky: bool,
    pub causal_read_risky: bool,
    pub next_write_no_conflict: bool,
    pub ryw_disabled: bool,
    pub priority: Priority,
    pub read_system_keys: bool,
    pub write_system_keys: bool,
    pub lock_aware: bool,
    pub read_lock_aware: bool,
    pub commit_protection_disabled: bool,
    pub report_conflicting_keys: bool,
    pub special_keys_relaxed: bool,
    pub special_keys_writable: bool,
    pub bypass_unreadable: bool,
    pub idempotent: bool,
    pub mapped_reads_own_writes: bool,
    pub tags: TransactionTags,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            timeout_ms: 0,
            retry_limit: None,
            retry_delay_ms_max: RETRY_DELAY_MS_MAX_DEFAULT,
            size_bytes_max: TRANSACTION_BYTES_MAX,
            snapshot_ryw: 1,
            causal_write_risky: false,
            causal_read_risky: false,
            next_write_no_conflict: false,
            ryw_disabled: false,
            priority: Priority::Default,
            read_system_keys: false,
            write_system_keys: false,
            lock_aware: false,
            read_lock_aware: false,
            commit_protection_disabled: false,
            report_conflicting_keys: false,
            special_keys_relaxed: false,
            special_keys_writable: false,
            bypass_unreadable: false,
            idempotent: false,
            mapped_reads_own_writes: false,
            tags: TransactionTags::default(),
        }
    }
}

fn within(value: i64, low: i64, high: i64) -> Result<i64> {
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(Error::invalid_option_value)
    }
}

impl Options {
    pub fn set(&mut self, option: TransactionOption) -> Result<()> {
        use TransactionOption::*;
        let most = i64::from(i32::MAX);
        match option {
            CausalWriteRisky => self.causal_write_risky = true,
            CausalReadRisky => self.causal_read_risky = true,
            NextWriteNoWriteConflictRange => self.next_write_no_conflict = true,
            ReadYourWritesDisable => self.ryw_disabled = true,
            PrioritySystemImmediate => self.priority = Priority::SystemImmediate,
            PriorityBatch => self.priority = Priority::Batch,
            AccessSystemKeys => {
                self.read_system_keys = true;
                self.write_system_keys = true;
            }
            ReadSystemKeys => self.read_system_keys = true,
            Timeout(ms) => self.timeout_ms = within(ms, 0, most)? as u32,
            RetryLimit(count) => self.retry_limit = u32::try_from(within(count, -1, most)?).ok(),
            MaxRetryDelay(ms) => self.retry_delay_ms_max = within(ms, 0, most)? as u32,
            SizeLimit(bytes) => {
                self.size_bytes_max =
                    within(bytes, SIZE_LIMIT_BYTES_MIN, TRANSACTION_BYTES_MAX as i64)? as usize;
            }
            SnapshotRywEnable => self.snapshot_ryw += 1,
            SnapshotRywDisable => self.snapshot_ryw -= 1,
            LockAware => self.lock_aware = true,
            UsedDuringCommitProtectionDisable => self.commit_protection_disabled = true,
            ReadLockAware => self.read_lock_aware = true,
            ReportConflictingKeys => self.report_conflicting_keys = true,
            SpecialKeySpaceRelaxed => self.special_keys_relaxed = true,
            SpecialKeySpaceEnableWrites => self.special_keys_writable = true,
            BypassUnreadable => self.bypass_unreadable = true,
            AutomaticIdempotency => self.idempotent = true,
            MappedRangeReadsOwnWrites => self.mapped_reads_own_writes = true,
            Tag(tag) => self.tags.add(tag, false)?,
            AutoThrottleTag(tag) => self.tags.add(tag, true)?,
        }
        Ok(())
    }

    /// The options of the next attempt: the database's defaults, with those that this transaction keeps.
    pub fn for_retry(&self, defaults: &Options) -> Options {
        Options {
            timeout_ms: self.timeout_ms,
            retry_limit: self.retry_limit,
            retry_delay_ms_max: self.retry_delay_ms_max,
            size_bytes_max: self.size_bytes_max,
            idempotent: self.idempotent,
            mapped_reads_own_writes: self.mapped_reads_own_writes,
            tags: self.tags,
            ..*defaults
        }
    }

    /// Whether a read sees the transaction's own writes.
    pub fn sees_own_writes(&self, snapshot: bool) -> bool {
        !self.ryw_disabled && (!snapshot || self.snapshot_ryw > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_outside_its_range_or_its_number_is_refused() {
        let ms = 500i64.to_le_bytes();
        assert_eq!(
            TransactionOption::from_code(500, Some(&ms)),
            Ok(TransactionOption::Timeout(500))
        );
        assert_eq!(
            TransactionOption::from_code(500, Some(b"5")),
            Err(Error::invalid_option_value)
        );
        assert_eq!(
            TransactionOption::from_code(500, None),
            Err(Error::invalid_option_value)
        );
        assert_eq!(
            TransactionOption::from_code(700, Some(&ms)),
            Err(Error::invalid_option_value)
        );
        assert_eq!(
            TransactionOption::from_code(7, None),
            Err(Error::invalid_option)
        );
        let mut options = Options::default();
        assert_eq!(
            options.set(TransactionOption::SizeLimit(31)),
            Err(Error::invalid_option_value)
        );
        assert_eq!(
            options.set(TransactionOption::SizeLimit(10_000_001)),
            Err(Error::invalid_option_value)
        );
        assert_eq!(
            options.set(TransactionOption::Timeout(-1)),
            Err(Error::invalid_option_value)
        );
        assert_eq!(
            options.set(TransactionOption::RetryLimit(-2)),
            Err(Error::invalid_option_value)
        );
        assert_eq!(options, Options::default());
    }

    #[test]
    fn a_retry_keeps_what_describes_the_work_and_nothing_else() {
        let mut options = Options::default();
        let all = [
            TransactionOption::Timeout(7),
            TransactionOption::RetryLimit(3),
            TransactionOption::MaxRetryDelay(9),
            TransactionOption::SizeLimit(100),
            TransactionOption::LockAware,
            TransactionOption::AccessSystemKeys,
            TransactionOption::PriorityBatch,
            TransactionOption::SnapshotRywDisable,
        ];
        all.into_iter()
            .for_each(|option| options.set(option).expect("valid"));
        let next = options.for_retry(&Options::default());
        assert_eq!(
            (next.timeout_ms, next.retry_limit, next.retry_delay_ms_max),
            (7, Some(3), 9)
        );
        assert_eq!(next.size_bytes_max, 100);
        assert!(!next.lock_aware && !next.read_system_keys && next.priority == Priority::Default);
        assert!(
            next.sees_own_writes(true)
                && !options.sees_own_writes(true)
                && options.sees_own_writes(false)
        );
    }
}
