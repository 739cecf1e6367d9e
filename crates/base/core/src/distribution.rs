//! What operators have said about the distribution of data, as rows of the system keyspace.
//!
//! ```text
//! \xff/distribution/mode           `0`: no data moves; `1`, or no row: it does
//! \xff/distribution/noBalance      a row: the bytes on servers are not balanced
//! \xff/distribution/noHealing      a row: what a server that is gone had is not copied
//! \xff/distribution/maintenance    Maintenance
//! \xff/distribution/zone/<uid>     the zone in which a storage server was seen last
//! ```

use crate::codec::Codec;
use crate::id::Uid;
use crate::record;
use bytes::Bytes;
use std::collections::BTreeMap;

pub const DISTRIBUTION: &[u8] = b"\xff/distribution/";
pub const MODE: &[u8] = b"\xff/distribution/mode";
pub const MODE_ON: &[u8] = b"1";
pub const MODE_OFF: &[u8] = b"0";
pub const NO_BALANCE: &[u8] = b"\xff/distribution/noBalance";
pub const NO_HEALING: &[u8] = b"\xff/distribution/noHealing";
pub const MAINTENANCE: &[u8] = b"\xff/distribution/maintenance";
const ZONE: &[u8] = b"\xff/distribution/zone/";

/// A maintenance lasts a week at most: nobody should forget one.
pub const MAINTENANCE_SECONDS_MAX: f64 = 7.0 * 24.0 * 3600.0;
pub const ZONE_BYTES_MAX: usize = 1000;

record! {
    /// A zone whose servers are waited for while they are gone.
    pub struct Maintenance {
        pub zone: String,
        /// Milliseconds since 1970.
        pub until_ms: u64,
        /// How long it lasts, so that a clock that is behind does not prolong it without end.
        pub lasts_ms: u64,
    }
}

impl Maintenance {
    /// From `now_ms` on. `None` if the time is none, or too long, or if there can be no such zone.
    pub fn new(zone: &str, seconds: f64, now_ms: u64) -> Option<Maintenance> {
        let is_valid = (0.0..=MAINTENANCE_SECONDS_MAX).contains(&seconds)
            && (1..=ZONE_BYTES_MAX).contains(&zone.len());
        let lasts_ms = (seconds * 1000.0) as u64;
        is_valid.then(|| Maintenance {
            zone: zone.into(),
            until_ms: now_ms.saturating_add(lasts_ms),
            lasts_ms,
        })
    }

    /// Milliseconds until it ends; 0 if it has ended.
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        let most = (MAINTENANCE_SECONDS_MAX * 1000.0) as u64;
        let left = self.until_ms.saturating_sub(now_ms);
        left.min(self.lasts_ms).min(most)
    }

    /// True for who has known it for `known_ms`: its time has passed, by the clock of this machine or by itself,
    /// however far ahead the clock of who began it is.
    pub fn is_over(&self, now_ms: u64, known_ms: u64) -> bool {
        self.left_ms(now_ms) == 0 || known_ms >= self.lasts_ms
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Distribution {
    /// `None`: nobody has said anything, and data is distributed.
    pub mode: Option<bool>,
    pub no_balance: bool,
    pub no_healing: bool,
    /// May have ended.
    pub maintenance: Option<Maintenance>,
    pub zones: BTreeMap<Uid, String>,
}

impl Distribution {
    /// From rows of the system keyspace. Ignores other rows, and those that are malformed.
    pub fn from_rows<'a>(rows: impl IntoIterator<Item = &'a (Bytes, Bytes)>) -> Distribution {
        let mut found = Distribution::default();
        for (key, value) in rows {
            match &key[..] {
                MODE => found.mode = Some(value != MODE_OFF),
                NO_BALANCE => found.no_balance = true,
                NO_HEALING => found.no_healing = true,
                MAINTENANCE => found.maintenance = Maintenance::from_bytes(value.clone()),
                _ => found.zones.extend(parse_zone(key, value)),
            }
        }
        found
    }

    pub fn is_off(&self) -> bool {
        self.mode == Some(false)
    }

    /// The maintenance that has not ended.
    pub fn maintained(&self, now_ms: u64) -> Option<&Maintenance> {
        let maintenance = self.maintenance.as_ref();
        maintenance.filter(|maintenance| maintenance.left_ms(now_ms) > 0)
    }
}

pub fn zone_key(server: Uid) -> Bytes {
    [ZONE, &server.to_bytes()].concat().into()
}

fn parse_zone(key: &[u8], value: &[u8]) -> Option<(Uid, String)> {
    let id = Uid::from_bytes(key.strip_prefix(ZONE)?)?;
    Some((id, std::str::from_utf8(value).ok()?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &[u8], value: impl Into<Bytes>) -> (Bytes, Bytes) {
        (Bytes::copy_from_slice(key), value.into())
    }

    #[test]
    fn rows_say_what_operators_want_and_no_rows_that_data_is_distributed() {
        assert_eq!(Distribution::from_rows([]), Distribution::default());
        assert!(!Distribution::default().is_off());
        let maintenance = Maintenance::new("rack", 60.0, 1000).expect("valid");
        let rows = [
            row(MODE, MODE_OFF),
            row(NO_BALANCE, ""),
            row(NO_HEALING, ""),
            row(MAINTENANCE, maintenance.to_bytes()),
            row(&zone_key(Uid(7)), "rack"),
            row(&[ZONE, b"short"].concat(), "rack"),
            row(b"\xff/distribution/ofALaterVersion", "1"),
        ];
        let found = Distribution::from_rows(&rows);
        assert!(found.is_off() && found.no_balance && found.no_healing);
        assert_eq!(found.maintained(60_999), Some(&maintenance));
        assert_eq!(found.maintained(61_000), None);
        assert_eq!(found.zones, [(Uid(7), "rack".into())].into());
        let broken = [row(MAINTENANCE, "x"), row(MODE, MODE_ON)];
        let found = Distribution::from_rows(&broken);
        assert_eq!((found.mode, found.maintenance), (Some(true), None));
    }

    #[test]
    fn a_maintenance_ends_by_itself_however_wrong_a_clock_is() {
        for seconds in [-1.0, f64::NAN, f64::INFINITY, MAINTENANCE_SECONDS_MAX + 1.0] {
            assert_eq!(Maintenance::new("rack", seconds, 0), None, "{seconds}");
        }
        assert_eq!(Maintenance::new("", 1.0, 0), None);
        let hour = Maintenance::new("rack", 3600.0, 1_000_000_000).expect("valid");
        let behind_by_a_day = 1_000_000_000 - 24 * 3_600_000;
        assert!(!hour.is_over(behind_by_a_day, 3_599_999));
        assert!(hour.is_over(behind_by_a_day, 3_600_000));
        assert!(hour.is_over(1_003_600_000, 0));
        assert_eq!(hour.left_ms(1_000_000_000), 3_600_000);
        assert_eq!(hour.left_ms(0), 3_600_000, "the clock has gone back");
        assert_eq!(hour.left_ms(u64::MAX), 0);
        let forged = Maintenance {
            lasts_ms: u64::MAX,
            until_ms: u64::MAX,
            ..hour
        };
        assert_eq!(forged.left_ms(0), 604_800_000);
    }
}
