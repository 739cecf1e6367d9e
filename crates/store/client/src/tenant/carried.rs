//! Tenants that are carried to another database: with their names and numbers, and so with their prefixes.

use super::{LAST_ID, MAP, data_range, id_of, list_in, map_key};
use crate::system_rows;
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_core::key::{KeyRange, TENANT_PREFIX_BYTES, printable};
use plinth_core::{Error, Key, Result, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The tenants of a database, or those with keys in a range of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tenants {
    /// Names, with their numbers.
    pub named: BTreeMap<Key, i64>,
    /// The number that was given out last.
    pub last: i64,
}

/// What keeps a tenant out of another database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InTheWay {
    /// The name has the number `there` in that database.
    Name { name: Key, id: i64, there: i64 },
    /// The number belongs to the tenant `there` in that database.
    Number { name: Key, id: i64, there: Key },
    /// That database has keys where the tenant's would be, and they are no tenant's.
    Rows { name: Key, id: i64, first: Key },
    /// That database has a tenant where all is to be replaced, and it does not come.
    Own { name: Key, id: i64 },
}

impl fmt::Display for InTheWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InTheWay::Name { name, id, there } => {
                let name = printable(name);
                write!(
                    f,
                    "tenant `{name}' has number {there} there, and the one that comes has {id}; nothing is changed: \
                     rename it there (`renametenant {name} OTHER' in plinth cli), or delete it"
                )
            }
            InTheWay::Number { name, id, there } => write!(
                f,
                "number {id} is tenant `{}' there, and tenant `{}' of what comes; nothing is changed: {}",
                printable(there),
                printable(name),
                Removed(there)
            ),
            InTheWay::Rows { name, id, first } => write!(
                f,
                "there are keys where tenant `{}' (number {id}) would be, and they are no tenant's, the first is {}; \
                 nothing is changed: clear them (`{}' in plinth cli), or choose another database",
                printable(name),
                printable(first),
                clearing(*id)
            ),
            InTheWay::Own { name, id } => write!(
                f,
                "tenant `{}' (number {id}) is there, and does not come; nothing is changed: {}",
                printable(name),
                Removed(name)
            ),
        }
    }
}

/// The statement that clears what lies where the keys of the tenant with this number would be.
pub fn clearing(id: i64) -> String {
    let range = data_range(id);
    let (begin, end) = (printable(&range.begin), printable(&range.end));
    format!("clearrange {begin} {end}")
}

/// How a tenant goes.
struct Removed<'a>(&'a [u8]);

impl fmt::Display for Removed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = printable(self.0);
        write!(
            f,
            "choose another database, or remove it with its data (`usetenant {name}; clearrange \"\" \\xff; \
             defaulttenant; deletetenant {name}' in plinth cli)"
        )
    }
}

/// The number of the tenant whose key this is, if there is one with that number.
pub fn number_of(key: &[u8]) -> Option<i64> {
    let number = i64::from_be_bytes(*key.first_chunk::<TENANT_PREFIX_BYTES>()?);
    (number >= 0).then_some(number)
}

impl Tenants {
    /// Those that have keys in the range.
    #[must_use]
    pub fn within(mut self, range: &KeyRange) -> Tenants {
        let is_within = |_: &Key, id: &mut i64| data_range(*id).intersection(range).is_some();
        self.named.retain(is_within);
        match self.named.is_empty() {
            true => Tenants::default(),
            false => self,
        }
    }

    /// The name of the tenant with this number.
    pub fn name_of(&self, id: i64) -> Option<&Key> {
        let mut named = self.named.iter();
        named.find(|(_, named)| **named == id).map(|(name, _)| name)
    }

    /// The rows of the system keyspace that say the same.
    pub fn rows(&self) -> Vec<(Key, Value)> {
        let row = |key: Key, id: i64| (key, Value::copy_from_slice(&id.to_be_bytes()));
        if self.named.is_empty() {
            return Vec::new();
        }
        let last = row(Bytes::from_static(LAST_ID), self.last);
        let named = self.named.iter().map(|(name, id)| row(map_key(name), *id));
        std::iter::once(last).chain(named).collect()
    }

    /// Takes a row of [`Tenants::rows`]; false if it is another one.
    ///
    /// # Errors
    /// It is of tenants, and no row that a database has.
    pub fn take_row(&mut self, key: &Key, value: &[u8]) -> Result<bool> {
        let number = || match id_of(value) {
            Ok(id) if id >= 0 => Ok(id),
            _ => Err(Error::invalid_tenant_name),
        };
        if key[..] == *LAST_ID {
            self.last = self.last.max(number()?);
            return Ok(true);
        }
        let Some(name) = key.strip_prefix(MAP) else {
            return Ok(false);
        };
        super::check_name(name)?;
        let id = number()?;
        let is_other = self.name_of(id).is_some_and(|there| there[..] != *name);
        let before = self.named.insert(key.slice(MAP.len()..), id);
        if is_other || before.is_some_and(|before| before != id) {
            return Err(Error::invalid_tenant_name);
        }
        self.last = self.last.max(id);
        Ok(true)
    }
}

/// The parts of a range that are not in `hole`.
fn without(range: KeyRange, hole: Option<&KeyRange>) -> Vec<KeyRange> {
    let Some(hole) = hole.and_then(|hole| range.intersection(hole)) else {
        return vec![range];
    };
    let parts = [
        KeyRange::new(range.begin, hole.begin),
        KeyRange::new(hole.end, range.end),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

impl Transaction {
    /// The tenants of the database. The transaction conflicts with their change.
    ///
    /// # Errors
    /// Those of reads of system keys.
    pub async fn tenants(&self) -> Result<Tenants> {
        let last = system_rows::get(self, LAST_ID).await?;
        Ok(Tenants {
            named: list_in(self, b"", None).await?.into_iter().collect(),
            last: last.map_or(Ok(0), |row| id_of(&row))?,
        })
    }

    /// Makes tenants with the names and numbers that they have elsewhere. Whoever calls replaces all keys in
    /// `replaced` by those from elsewhere. Changes nothing, and says why, if a tenant or keys of this database are in
    /// the way; it changes nothing either if all are there.
    ///
    /// # Errors
    /// Those of reads and writes of system keys.
    pub async fn carry_tenants(
        &self,
        tenants: &Tenants,
        replaced: Option<&KeyRange>,
    ) -> Result<Option<InTheWay>> {
        let there = self.tenants().await?;
        if let Some(replaced) = replaced {
            for (name, id) in there.clone().within(replaced).named {
                if !tenants.named.contains_key(&name) && tenants.name_of(id).is_none() {
                    return Ok(Some(InTheWay::Own { name, id }));
                }
            }
        }
        let mut missing = Vec::new();
        for (name, id) in &tenants.named {
            let (name, id) = (name.clone(), *id);
            match (there.named.get(&name), there.name_of(id)) {
                (Some(same), _) if *same == id => continue,
                (Some(other), _) => {
                    let there = *other;
                    return Ok(Some(InTheWay::Name { name, id, there }));
                }
                (None, Some(other)) => {
                    let there = other.clone();
                    return Ok(Some(InTheWay::Number { name, id, there }));
                }
                (None, None) => {}
            }
            for part in without(data_range(id), replaced) {
                let found = system_rows::read(self, part, 1).await?;
                if let Some((first, _)) = found.into_iter().next() {
                    return Ok(Some(InTheWay::Rows { name, id, first }));
                }
            }
            missing.push((name, id));
        }
        for (name, id) in missing {
            system_rows::set(self, &map_key(&name), &id.to_be_bytes())?;
        }
        if tenants.last > there.last {
            system_rows::set(self, LAST_ID, &tenants.last.to_be_bytes())?;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Tenants {
        Tenants {
            named: [("a".into(), 1), ("b".into(), 3)].into(),
            last: 5,
        }
    }

    #[test]
    fn tenants_come_back_from_their_rows_and_contradictions_do_not() {
        let mut back = Tenants::default();
        for (key, value) in some().rows() {
            assert_eq!(back.take_row(&key, &value), Ok(true));
        }
        assert_eq!(back, some());
        assert_eq!(back.take_row(&"x".into(), b""), Ok(false));
        for (name, value) in [
            ("a", &2i64.to_be_bytes()[..]),
            ("c", &3i64.to_be_bytes()),
            ("", &9i64.to_be_bytes()),
            ("d", &(-1i64).to_be_bytes()),
            ("d", b"1"),
        ] {
            assert!(some().take_row(&map_key(name.as_bytes()), value).is_err());
        }
        assert!(Tenants::default().rows().is_empty());
    }

    #[test]
    fn only_tenants_with_keys_in_the_range_are_of_it() {
        let one = data_range(1);
        let part = KeyRange::new([&one.begin[..], b"m"].concat(), one.end);
        assert_eq!(some().within(&part).named, [("a".into(), 1)].into());
        let all = KeyRange::new("", "\u{7f}");
        assert_eq!(some().within(&all), some());
        let none = KeyRange::new("users/", "users0");
        assert_eq!(some().within(&none), Tenants::default());
    }

    #[test]
    fn a_key_has_the_number_of_its_first_eight_bytes() {
        assert_eq!(number_of(&data_range(7).begin), Some(7));
        assert_eq!(number_of(b"short"), None);
        assert_eq!(number_of(&[0xfe; 9]), None);
    }
}
