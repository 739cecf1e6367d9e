//! What operators have configured for a database, as stored in its system keyspace.

use crate::exclusion;
use crate::exclusion::Target;
use crate::rows::read_rows;
use bytes::Bytes;
use plinth_client::Transaction;
use plinth_core::codec::Codec;
use plinth_core::system_keys::{CONFIG, EXCLUDED, KNOBS, PROCESS_CLASSES};
use plinth_core::{DatabaseConfig, Error, Result, Uid};
use plinth_protocol::control::{ProcessClass, RegisterWorker};
use plinth_runtime::knobs::Knobs;
use std::collections::BTreeMap;

/// Process classes set by operators. They override the classes that processes declare.
pub type Classes = BTreeMap<Uid, ProcessClass>;

#[derive(Clone, PartialEq, Debug)]
pub struct Configured {
    pub config: DatabaseConfig,
    pub excluded: Vec<Target>,
    pub classes: Classes,
    /// Names and values.
    pub knobs: Vec<(String, String)>,
}

impl Configured {
    /// Configuration in rows of the system keyspace. Ignores other rows. Uses `config` if there is no valid
    /// configuration row.
    pub fn from_rows(rows: &[(Bytes, Bytes)], config: DatabaseConfig) -> Self {
        let stored = rows.iter().find(|(key, _)| key == CONFIG);
        let stored = stored.and_then(|(_, value)| DatabaseConfig::from_bytes(value.clone()));
        Configured {
            config: stored.unwrap_or(config),
            excluded: exclusion::from_keys(rows.iter().map(|(key, _)| &key[..])),
            classes: rows.iter().filter_map(parse_class).collect(),
            knobs: rows.iter().filter_map(parse_knob).collect(),
        }
    }

    pub async fn read(transaction: &Transaction) -> Result<Self> {
        let config = transaction.get(CONFIG, false);
        let excluded = read_rows(transaction, EXCLUDED);
        let classes = read_rows(transaction, PROCESS_CLASSES);
        let knobs = read_rows(transaction, KNOBS);
        let config = config.await?.ok_or(Error::file_corrupt)?;
        let config = DatabaseConfig::from_bytes(config).ok_or(Error::file_corrupt)?;
        let rows = [excluded.await?, classes.await?, knobs.await?].concat();
        Ok(Configured::from_rows(&rows, config))
    }
}

pub fn class_key(process: Uid) -> Vec<u8> {
    [PROCESS_CLASSES, &process.to_bytes()].concat()
}

fn parse_class((key, value): &(Bytes, Bytes)) -> Option<(Uid, ProcessClass)> {
    let process = Uid::from_bytes(key.strip_prefix(PROCESS_CLASSES)?)?;
    let class = ProcessClass::parse(std::str::from_utf8(value).ok()?)?;
    Some((process, class))
}

pub fn knob_key(name: &str) -> Vec<u8> {
    [KNOBS, name.as_bytes()].concat()
}

fn parse_knob((key, value): &(Bytes, Bytes)) -> Option<(String, String)> {
    let name = std::str::from_utf8(key.strip_prefix(KNOBS)?).ok()?;
    let value = std::str::from_utf8(value).ok()?;
    check_knob(name, value).ok()?;
    Some((name.into(), value.into()))
}

/// Checks that a knob can have this value in all processes. The error is one line.
pub fn check_knob(name: &str, value: &str) -> std::result::Result<(), String> {
    let set = Knobs::default().set(name, value);
    set.map_err(|refusal| format!("{refusal}; nothing has changed"))
}

/// Gives each worker the class that operators have set. True if the resulting class of any worker changed.
pub fn give_classes<'a>(
    workers: impl IntoIterator<Item = &'a mut RegisterWorker>,
    classes: &Classes,
) -> bool {
    let mut differs = false;
    for worker in workers {
        let before = worker.class();
        worker.given = classes.get(&worker.locality.process).copied();
        differs |= worker.class() != before;
    }
    differs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::worker;

    fn row(key: Vec<u8>, value: &str) -> (Bytes, Bytes) {
        (key.into(), Bytes::copy_from_slice(value.as_bytes()))
    }

    #[test]
    fn rows_say_what_is_configured_and_those_that_make_no_sense_say_nothing() {
        let target = Target::parse("10.0.0.1:4500").expect("it is one");
        let rows = [
            row(exclusion::key(&target), ""),
            row(class_key(Uid(7)), "stateless"),
            row(class_key(Uid(8)), "king"),
            row([PROCESS_CLASSES, b"short"].concat(), "log"),
            row(knob_key("moves_max"), "3"),
            row(knob_key("moves_max_of_a_later_version"), "3"),
            row(knob_key("watches_max"), "many"),
        ];
        let configured = Configured::from_rows(&rows, DatabaseConfig::default());
        assert_eq!(configured.config, DatabaseConfig::default());
        assert_eq!(configured.excluded, [target]);
        assert_eq!(
            configured.classes,
            [(Uid(7), ProcessClass::Stateless)].into()
        );
        assert_eq!(configured.knobs, [("moves_max".into(), "3".into())]);
    }

    #[test]
    fn a_class_that_is_given_holds_until_it_is_taken_back() {
        let mut workers = BTreeMap::from([(Uid(1), worker(1, ProcessClass::Storage, "a"))]);
        let given = Classes::from([(Uid(1), ProcessClass::Log), (Uid(2), ProcessClass::Log)]);
        assert!(give_classes(workers.values_mut(), &given));
        assert!(!give_classes(workers.values_mut(), &given));
        assert_eq!(workers[&Uid(1)].class(), ProcessClass::Log);
        assert!(give_classes(workers.values_mut(), &Classes::new()));
        assert_eq!(workers[&Uid(1)].class(), ProcessClass::Storage);
    }

    #[test]
    fn a_knob_is_refused_where_no_cluster_could_live_with_it() {
        assert_eq!(check_knob("moves_max", "3"), Ok(()));
        let refused = check_knob("moves_max", "0").expect_err("it moves nothing");
        assert!(refused.contains("from 1 to 1600"), "{refused}");
        assert!(check_knob("fetch_rest", "NaN").is_err());
        assert!(check_knob("no_such", "1").is_err());
    }
}
