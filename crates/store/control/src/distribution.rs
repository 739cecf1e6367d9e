//! What operators say about the distribution of data: whether it is on, and which zone is under maintenance. The
//! [distributor](crate::distributor) reads it at each look, and the status document shows it.

use crate::management::{Outcome, decide};
use crate::rows::read_rows;
use plinth_client::{Database, Transaction};
use plinth_core::Result;
use plinth_core::codec::Codec;
use plinth_core::distribution::{
    DISTRIBUTION, Distribution, MAINTENANCE, MAINTENANCE_SECONDS_MAX, MODE, MODE_OFF, MODE_ON,
    Maintenance, NO_BALANCE, NO_HEALING,
};
use plinth_protocol::control::RegisterWorker;
use plinth_runtime::Boxed;
use plinth_runtime::unix_time_ms;
use std::collections::BTreeSet;

/// A part of data distribution that operators can switch off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// What a server that is gone had is copied to others.
    Healing,
    /// The bytes on servers are balanced.
    Balance,
}

pub(crate) async fn read_in(transaction: &Transaction) -> Result<Distribution> {
    let rows = read_rows(transaction, DISTRIBUTION).await?;
    Ok(Distribution::from_rows(&rows))
}

pub fn read(database: &Database) -> Boxed<'_, Outcome<Distribution>> {
    decide(database, async |tr| Ok(Ok(read_in(tr).await?)))
}

/// Switches data distribution on or off. Shards that move already arrive all the same.
pub fn switch(database: &Database, on: bool) -> Boxed<'_, Outcome<()>> {
    decide(database, async move |tr| {
        tr.set(MODE, if on { MODE_ON } else { MODE_OFF });
        Ok(Ok(()))
    })
}

pub fn switch_part(database: &Database, part: Part, on: bool) -> Boxed<'_, Outcome<()>> {
    decide(database, async move |tr| {
        let row = match part {
            Part::Healing => NO_HEALING,
            Part::Balance => NO_BALANCE,
        };
        match on {
            true => tr.clear(row),
            false => tr.set(row, ""),
        }
        if (part, on) == (Part::Healing, false) {
            tr.clear(MAINTENANCE);
        }
        Ok(Ok(()))
    })
}

/// Puts a zone under maintenance, in place of any other. Refused if no process is in that zone.
pub fn maintain<'a>(
    database: &'a Database,
    workers: &'a [RegisterWorker],
    zone: &'a str,
    seconds: f64,
) -> Boxed<'a, Outcome<()>> {
    Box::pin(async move {
        let zones: BTreeSet<&str> = workers.iter().map(|w| &w.locality.zone[..]).collect();
        if !zones.contains(zone) {
            let zones: Vec<&str> = zones.into_iter().collect();
            return Err(format!(
                "no process of this cluster is in zone {zone}; there are {}; nothing has changed",
                zones.join(", ")
            ));
        }
        decide(database, async |tr| {
        if read_in(tr).await?.no_healing {
            return Ok(Err(
                "data distribution is disabled for failures of storage servers, so that no zone can be under \
                 maintenance; `datadistribution enable ssfailure' enables it"
                    .into(),
            ));
        }
        let Some(wanted) = Maintenance::new(zone, seconds, unix_time_ms()) else {
            return Ok(Err(format!(
                "a maintenance lasts up to {MAINTENANCE_SECONDS_MAX} seconds; nothing has changed"
            )));
        };
        tr.set(MAINTENANCE, wanted.to_bytes());
        Ok(Ok(()))
    })
    .await
    })
}

/// Ends the maintenance, if there is one.
pub fn end_maintenance(database: &Database) -> Boxed<'_, Outcome<()>> {
    decide(database, async move |tr| {
        tr.clear(MAINTENANCE);
        Ok(Ok(()))
    })
}
