//! Exclusion: processes that must have neither data nor roles. One row a target under `\xff/excluded/`:
//!
//! ```text
//! 10.0.0.1:4500            a process
//! 10.0.0.1                 every process at that address
//! locality_zoneid:rack-1   every process with that locality; also machineid, processid, data_hall, dcid
//! ```

use crate::rows::read_rows;
use plinth_client::Transaction;
use plinth_core::Result;
use plinth_core::system_keys::EXCLUDED;
use plinth_core::texts;
use plinth_protocol::control::RegisterWorker;
use plinth_rpc::Place;
use std::net::{IpAddr, SocketAddr};

const LOCALITY: &str = "locality_";

texts! {
    /// A target of an exclusion.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Target {
        Process(process: SocketAddr) = "{process}";
        Address(ip: IpAddr) = "{ip}";
        Locality(name: String, value: String) = "{LOCALITY}{name}:{value}";
    }
}

impl Target {
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(locality) = text.strip_prefix(LOCALITY) {
            let (name, value) = locality.split_once(':')?;
            let known = ["zoneid", "machineid", "processid", "data_hall", "dcid"];
            return known
                .contains(&name)
                .then(|| Target::Locality(name.into(), value.into()));
        }
        if let Ok(process) = text.parse() {
            return Some(Target::Process(process));
        }
        text.parse().ok().map(Target::Address)
    }

    /// True if the target contains this address. False for a locality, because only processes report theirs.
    pub fn names(&self, address: &SocketAddr) -> bool {
        match self {
            Target::Process(process) => process == address,
            Target::Address(ip) => *ip == address.ip(),
            Target::Locality(..) => false,
        }
    }

    pub fn matches(&self, worker: &RegisterWorker) -> bool {
        let (address, place) = (worker.worker.address, &worker.locality);
        match self {
            Target::Process(process) => address == *process,
            Target::Address(ip) => address.ip() == *ip,
            Target::Locality(name, value) => {
                let own = match &name[..] {
                    "zoneid" => place.zone.clone(),
                    "machineid" => place.machine.clone(),
                    "data_hall" => place.data_hall.clone(),
                    "dcid" => place.data_center.clone(),
                    _ => place.process.to_string(),
                };
                own == *value
            }
        }
    }
}

/// The places that the targets exclude. Of a name, only the process that has it is known.
pub fn among(targets: &[Target], places: &[Place], workers: &[RegisterWorker]) -> Vec<Place> {
    let is_meant = |place: &&Place| {
        let mut there = workers.iter().filter(|worker| worker.is_at(place));
        let mut targeted = targets.iter().filter_map(|t| Some((t, place.address()?)));
        targeted.any(|(target, address)| target.names(&address))
            || there.any(|worker| is_excluded(worker, targets))
    };
    places.iter().filter(is_meant).cloned().collect()
}

/// The key of the row that excludes the target.
pub fn key(target: &Target) -> Vec<u8> {
    [EXCLUDED, target.to_string().as_bytes()].concat()
}

/// The targets in rows of the system keyspace.
pub fn from_keys<'a>(keys: impl IntoIterator<Item = &'a [u8]>) -> Vec<Target> {
    let target = |key: &[u8]| Target::parse(std::str::from_utf8(key.strip_prefix(EXCLUDED)?).ok()?);
    keys.into_iter().filter_map(target).collect()
}

pub async fn read(transaction: &Transaction) -> Result<Vec<Target>> {
    let rows = read_rows(transaction, EXCLUDED).await?;
    Ok(from_keys(rows.iter().map(|(key, _)| &key[..])))
}

pub fn is_excluded(worker: &RegisterWorker, targets: &[Target]) -> bool {
    targets.iter().any(|target| target.matches(worker))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinators_that_are_excluded_by_address_or_place_are_known() {
        let at = |port| Place::from(SocketAddr::from(([10, 0, 0, 1], port)));
        let workers = [(1, "a"), (2, "b")].map(|(port, zone)| {
            crate::testing::worker(port, plinth_protocol::control::ProcessClass::Unset, zone)
        });
        let named = |text| {
            let target = Target::parse(text).expect("a target");
            among(&[target], &[at(1), at(2), at(9)], &workers)
        };
        assert_eq!(named("10.0.0.1:9"), [at(9)], "even where no server is");
        assert_eq!(named("locality_zoneid:b"), [at(2)]);
        assert_eq!(named("10.0.0.1"), [at(1), at(2), at(9)]);
        assert!(named("10.0.0.1:7").is_empty());
    }

    #[test]
    fn targets_are_written_as_they_are_read() {
        for text in ["10.0.0.1:4500", "10.0.0.1", "::1", "locality_zoneid:rack-1"] {
            let target = Target::parse(text).expect("a target");
            assert_eq!(target.to_string(), text);
            assert_eq!(from_keys([&key(&target)[..]]), [target]);
        }
        for text in ["", "host:4500", "locality_color:red", "locality_zoneid"] {
            assert_eq!(Target::parse(text), None, "{text}");
        }
    }
}
