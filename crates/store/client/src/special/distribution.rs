//! `\xff\xff/management/data_distribution/` and `maintenance/`: whether data is distributed, and a zone whose servers
//! are waited for while they are gone.
//!
//! ```text
//! data_distribution/mode                 1, 0, or -1 if nobody has said anything, which means 1
//! data_distribution/rebalance_ignored    there if the bytes on servers are not balanced
//! maintenance/<zone>                     seconds until the maintenance of a zone ends
//! maintenance/IgnoreSSFailures           there if what a server that is gone had is not copied
//! ```

use super::{Rows, SpecialWrite, Writable};
use crate::system_rows;
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::distribution::{
    DISTRIBUTION, Distribution, MAINTENANCE, MODE, MODE_OFF, MODE_ON, Maintenance, NO_BALANCE,
    NO_HEALING,
};
use plinth_core::key::{KeyRange, prefix_end};
use plinth_core::{Error, Result};
use plinth_runtime::unix_time_ms;

const OF_MODE: &[u8] = b"\xff\xff/management/data_distribution/mode";
const OF_BALANCE: &[u8] = b"\xff\xff/management/data_distribution/rebalance_ignored";
const ZONES: &[u8] = b"\xff\xff/management/maintenance/";
const ZONES_END: &[u8] = b"\xff\xff/management/maintenance0";
const OF_FAILURES: &[u8] = b"\xff\xff/management/maintenance/IgnoreSSFailures";

pub(super) const MODE_WRITABLE: Writable = Writable {
    begin: b"\xff\xff/management/data_distribution/",
    end: b"\xff\xff/management/data_distribution0",
    apply: |transaction, write| Box::pin(set_mode(transaction, write)),
};

pub(super) const MAINTENANCE_WRITABLE: Writable = Writable {
    begin: ZONES,
    end: ZONES_END,
    apply: |transaction, write| Box::pin(maintain(transaction, write)),
};

/// What operators have said, without the zones of servers.
async fn read(transaction: &Transaction) -> Result<Distribution> {
    let end = prefix_end(NO_HEALING).expect("it is no end of all keys");
    let rows = system_rows::read(transaction, KeyRange::new(DISTRIBUTION, end), usize::MAX);
    Ok(Distribution::from_rows(&rows.await?))
}

/// The rows within a range, in order.
pub(super) async fn rows(transaction: &Transaction, within: &KeyRange) -> Result<Rows> {
    let ours = KeyRange::new(MODE_WRITABLE.begin, ZONES_END);
    if !ours.intersects(within) {
        return Ok(Rows::new());
    }
    let said = read(transaction).await?;
    let mode = match said.mode {
        None => "-1",
        Some(false) => "0",
        Some(true) => "1",
    };
    let mut rows = vec![(Bytes::from_static(OF_MODE), Bytes::from(mode))];
    if said.no_balance {
        rows.push((Bytes::from_static(OF_BALANCE), Bytes::new()));
    }
    if said.no_healing {
        rows.push((Bytes::from_static(OF_FAILURES), Bytes::from("0")));
    }
    let now = unix_time_ms();
    if let Some(maintenance) = said.maintained(now) {
        let key = [ZONES, maintenance.zone.as_bytes()].concat();
        let seconds = maintenance.left_ms(now) as f64 / 1000.0;
        rows.push((key.into(), seconds.to_string().into()));
    }
    rows.sort();
    Ok(rows)
}

/// Sets or clears the row that stands for a key.
fn put(transaction: &Transaction, row: &[u8], value: Option<&[u8]>) -> Result<()> {
    match value {
        Some(value) => system_rows::set(transaction, row, value),
        None => system_rows::clear(transaction, &KeyRange::single(row)),
    }
}

/// Clears the rows that stand for the keys of a range.
fn clear(transaction: &Transaction, range: &KeyRange, keys: &[(&[u8], &[u8])]) -> Result<()> {
    let mut cleared = keys.iter().filter(|(key, _)| range.contains(key));
    cleared.try_for_each(|(_, row)| put(transaction, row, None))
}

async fn set_mode(transaction: &Transaction, write: SpecialWrite) -> Result<()> {
    let (key, value) = match write {
        SpecialWrite::Set(key, value) => (key, value),
        SpecialWrite::Clear(range) => {
            let keys = [(OF_MODE, MODE), (OF_BALANCE, NO_BALANCE)];
            return clear(transaction, &range, &keys);
        }
    };
    let is_number = || std::str::from_utf8(&value).is_ok_and(|text| text.parse::<i64>().is_ok());
    match (&key[..], &value[..]) {
        (OF_MODE, MODE_ON | MODE_OFF) => put(transaction, MODE, Some(&value)),
        // FoundationDB's shells write a number of one or four bytes.
        (OF_BALANCE, b"" | [_] | [_, _, _, _]) => put(transaction, NO_BALANCE, Some(b"")),
        (OF_BALANCE, _) if is_number() => put(transaction, NO_BALANCE, Some(b"")),
        _ => Err(Error::special_keys_api_failure),
    }
}

async fn maintain(transaction: &Transaction, write: SpecialWrite) -> Result<()> {
    let (key, value) = match write {
        SpecialWrite::Set(key, value) => (key, value),
        SpecialWrite::Clear(range) => {
            clear(transaction, &range, &[(OF_FAILURES, NO_HEALING)])?;
            let maintenance = read(transaction).await?.maintenance;
            let key = maintenance.map(|of| [ZONES, of.zone.as_bytes()].concat());
            return match key.is_some_and(|key| range.contains(&key)) {
                true => put(transaction, MAINTENANCE, None),
                false => Ok(()),
            };
        }
    };
    let said = read(transaction).await?;
    if key == OF_FAILURES {
        // One of the two, as in FoundationDB.
        put(transaction, MAINTENANCE, None)?;
        return put(transaction, NO_HEALING, Some(b""));
    }
    let zone = std::str::from_utf8(&key[ZONES.len()..]).ok();
    let seconds = std::str::from_utf8(&value)
        .ok()
        .and_then(|text| text.parse().ok());
    let wanted = zone
        .zip(seconds)
        .and_then(|(zone, seconds): (&str, f64)| Maintenance::new(zone, seconds, unix_time_ms()));
    match wanted.filter(|_| !said.no_healing) {
        Some(wanted) => put(transaction, MAINTENANCE, Some(&wanted.to_bytes())),
        None => Err(Error::special_keys_api_failure),
    }
}
