//! Options by their public numbers.

use plinth_client::{DatabaseOption, TransactionOption};
use plinth_core::{Error, Result};

fn number(value: &[u8]) -> Result<i64> {
    let bytes: [u8; 8] = value.try_into().map_err(|_| Error::invalid_option_value)?;
    Ok(i64::from_le_bytes(bytes))
}

/// `None` if the option is known and has no effect here.
pub fn of_database(code: i32, value: &[u8]) -> Result<Option<DatabaseOption>> {
    use DatabaseOption::*;
    Ok(Some(match code {
        20 => MaxWatches(number(value)?),
        26 => SnapshotRywEnable,
        27 => SnapshotRywDisable,
        500 => TransactionTimeout(number(value)?),
        501 => TransactionRetryLimit(number(value)?),
        502 => TransactionMaxRetryDelay(number(value)?),
        503 => TransactionSizeLimit(number(value)?),
        504 => TransactionCausalReadRisky,
        700 => TransactionBypassUnreadable,
        701 => TransactionUsedDuringCommitProtectionDisable,
        702 => TransactionReportConflictingKeys,
        // Location cache, length of log lines, machine and data center, and hints: nothing to do.
        10 | 405 => return number(value).map(|_| None),
        21 | 22 | 505 | 800 | 900 => return Ok(None),
        506 => TransactionAutomaticIdempotency,
        90_001 => MappedRangeReadsOwnWrites,
        _ => return Err(Error::invalid_option),
    }))
}

/// The option of a transaction whose value is a token.
pub const AUTHORIZATION_TOKEN: i32 = 2000;

/// `None` if the option is known and has no effect here.
pub fn of_transaction(code: i32, value: Option<&[u8]>) -> Result<Option<TransactionOption>> {
    match code {
        // Hints, logging, and behaviour that Plinth always has.
        21
        | 23
        | 50
        | 52
        | 110
        | 120
        | 130
        | 303
        | 304
        | 400..=406
        | 507..=511
        | 710
        | 711
        | 900
        | 1000
        | 1101..=1103
        | 4000
        | 4001 => Ok(None),
        300 | 504 => Err(Error::unsupported_operation),
        _ => {
            let code = u32::try_from(code).map_err(|_| Error::invalid_option)?;
            TransactionOption::from_code(code, value).map(Some)
        }
    }
}
