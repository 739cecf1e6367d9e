//! Locations of the shards: a cache that is filled by asking a proxy and emptied where it proves wrong.

use super::{Inner, RETRY};
use crate::knobs::CLIENT_LOCATIONS_MAX;
use bytes::Bytes;
use plinth_core::key::{ALL_KEYS_END, KeyRange, copied, key_after};
use plinth_core::{Error, Key, Result};
use plinth_protocol::token::Token;
use plinth_protocol::transaction::GetKeyLocations;
use plinth_rpc::Interface;
use plinth_runtime::Either;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

/// Limit of shards in one request.
const LOCATIONS_ASKED: u32 = 100;

#[derive(Clone, Debug)]
pub struct Location {
    pub range: KeyRange,
    pub servers: Rc<[Interface]>,
}

pub struct Locations {
    by_begin: BTreeMap<Key, Location>,
}

impl Locations {
    pub fn new() -> Self {
        Locations {
            by_begin: BTreeMap::new(),
        }
    }

    /// The shard that holds `key`.
    pub fn of_key(&self, key: &[u8]) -> Option<&Location> {
        let (_, location) = self
            .by_begin
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(key)))
            .next_back()?;
        (*key < location.range.end[..]).then_some(location)
    }

    /// The shard that holds the last keys before `key`.
    pub fn before_key(&self, key: &[u8]) -> Option<&Location> {
        let (_, location) = self
            .by_begin
            .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key)))
            .next_back()?;
        (key <= &location.range.end[..]).then_some(location)
    }

    /// Adds shards, the one asked for first. If there is not enough room, the older ones are removed. There is always
    /// room for the first.
    pub(super) fn fill(&mut self, found: Vec<Location>) {
        let room = CLIENT_LOCATIONS_MAX.get().max(1);
        if self.by_begin.len() + found.len() > room {
            self.by_begin.clear();
        }
        for location in found.into_iter().take(room) {
            self.remove(&location.range);
            self.by_begin.insert(location.range.begin.clone(), location);
        }
    }

    /// Forgets every shard that intersects `range`.
    pub fn remove(&mut self, range: &KeyRange) {
        let before: Vec<Key> = self
            .by_begin
            .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&range.end[..])))
            .rev()
            .take_while(|(_, location)| location.range.end > range.begin)
            .map(|(begin, _)| begin.clone())
            .collect();
        for begin in before {
            self.by_begin.remove(&begin);
        }
    }
}

impl Inner {
    pub fn forget_location(&self, location: &Location) {
        self.locations.borrow_mut().remove(&location.range);
    }

    /// The shard that holds `key`, or with `before` the one that holds the last keys before it.
    /// Fails if the token does not grant to know it.
    pub async fn locate(&self, key: &[u8], before: bool, token: &Token) -> Result<Location> {
        loop {
            {
                let locations = self.locations.borrow();
                let found = if before {
                    locations.before_key(key)
                } else {
                    locations.of_key(key)
                };
                if let Some(location) = found {
                    return Ok(location.clone());
                }
            }
            if !self.ask_locations(key, before, token).await? {
                self.was_missed.set(true);
                plinth_runtime::sleep(RETRY).await;
            }
        }
    }

    /// Fills the cache around `key`; false if there was no answer.
    async fn ask_locations(&self, key: &[u8], before: bool, token: &Token) -> Result<bool> {
        let range = if before {
            KeyRange::new(Bytes::new(), Bytes::copy_from_slice(key))
        } else {
            KeyRange {
                begin: Bytes::copy_from_slice(key),
                end: key_after(key).max(Bytes::from_static(ALL_KEYS_END)),
            }
        };
        let proxy = self.proxy(|info| &info.commit_proxies).await?;
        let request = GetKeyLocations {
            range,
            reverse: before,
            limit: LOCATIONS_ASKED,
            token: token.clone(),
        };
        let call = self
            .transport
            .call(&proxy.endpoint::<GetKeyLocations>(), request);
        let reply = match plinth_runtime::race(call, self.retired(proxy)).await {
            Either::Left(Ok(reply)) => reply,
            Either::Left(Err(Error::permission_denied)) => return Err(Error::permission_denied),
            Either::Left(Err(_)) | Either::Right(()) => return Ok(false),
        };
        let found: Vec<Location> = reply
            .shards
            .into_iter()
            .map(|(range, servers)| Location {
                // Copied, because the cache outlives the frame.
                range: KeyRange::new(copied(&range.begin), copied(&range.end)),
                servers: servers.into(),
            })
            .collect();
        let whole = !found.is_empty() && found.iter().all(|location| !location.servers.is_empty());
        if whole {
            self.locations.borrow_mut().fill(found);
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::Uid;

    #[test]
    fn a_newer_shard_replaces_every_one_it_intersects() {
        let servers: Rc<[Interface]> =
            vec![Interface::new(([127, 0, 0, 1], 1).into(), Uid(1))].into();
        let location = |begin: &'static str, end: &'static str| Location {
            range: KeyRange::new(begin.as_bytes(), end.as_bytes()),
            servers: servers.clone(),
        };
        let mut locations = Locations::new();
        locations.fill(vec![location("", "g")]);
        locations.fill(vec![location("g", "p")]);
        locations.fill(vec![location("p", "z")]);
        assert_eq!(
            locations
                .before_key(b"g")
                .map(|l| l.range.begin.clone())
                .as_deref(),
            Some(&b""[..])
        );
        locations.fill(vec![location("f", "q")]);
        assert!(locations.of_key(b"a").is_none());
        assert!(locations.of_key(b"g").is_some());
        assert!(locations.of_key(b"r").is_none());
    }
}
