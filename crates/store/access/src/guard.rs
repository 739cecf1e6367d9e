//! Which right a request has.

use crate::rows::{Access, Clients};
use bytes::Bytes;
use plinth_core::client_rows;
use plinth_core::hash::HashMap;
use plinth_core::key::KeyRange;
use plinth_core::system_keys::TENANT_MAP;
use plinth_core::texts;
use plinth_identity::Identity;
use plinth_identity::tokens::{Grant, TokenError, verify};
use plinth_protocol::token::Token;
use plinth_runtime::{planted, unix_time_ms};
use std::cell::RefCell;
use std::rc::Rc;

/// Verified tokens that a role remembers.
pub const TOKENS_MAX: usize = 1000;

texts! {
    /// Why a request has no right.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Refused {
        /// It needs a token and shows none.
        NoToken = "clients need a token for this, and it shows none";
        Token(error: TokenError) = "{error}";
        /// Its token does not grant it.
        Beyond = "its token does not grant all of these keys";
    }
}

/// What a request may touch.
#[derive(Clone, Debug)]
pub enum Right {
    Everything,
    /// What a token grants.
    Granted(Rc<Grant>),
}

impl Right {
    /// True if all of `[begin, end)` may be read. The empty range at a key is that key.
    pub fn may_read(&self, begin: &[u8], end: &[u8]) -> bool {
        match self {
            Right::Everything => true,
            Right::Granted(grant) => grant.may_read(begin, end) || is_free(grant, begin, end),
        }
    }

    /// True if all of `[begin, end)`, which are ordinary keys, may be written.
    pub fn may_write(&self, begin: &[u8], end: &[u8]) -> bool {
        match self {
            Right::Everything => true,
            Right::Granted(grant) => grant.may_write(begin, end),
        }
    }

    /// The keys around `at` whose place may be known, or with `before` those right before it; `None` if there are
    /// none. Borders between other keys are as secret as these keys.
    pub fn place(&self, at: &[u8], before: bool) -> Option<KeyRange> {
        let Right::Granted(grant) = self else {
            return Some(KeyRange::all());
        };
        let is_around = |range: &&KeyRange| match before {
            true => range.begin[..] < *at && *at <= range.end[..],
            false => range.contains(at),
        };
        let granted = grant.reads().iter().chain(grant.writes());
        let free = || (!before && is_free(grant, at, at)).then(|| KeyRange::single(at));
        let joined =
            |a: KeyRange, b: KeyRange| KeyRange::new(a.begin.min(b.begin), a.end.max(b.end));
        granted
            .filter(is_around)
            .cloned()
            .reduce(joined)
            .or_else(free)
    }

    /// True if the right to read that `caller` had has not ended, for what waited meanwhile.
    pub fn still_counts(&self, access: &Access, caller: Identity) -> bool {
        match self {
            Right::Everything => caller >= Identity::Operator || access.clients != Clients::Tokens,
            Right::Granted(grant) => counts(grant, access, now()),
        }
    }
}

/// Rows that everybody with a token reads, one at a time: the stamp of metadata and the proofs of commits, whose names
/// nobody guesses. Whoever has a tenant finds out its number.
fn is_free(grant: &Grant, begin: &[u8], end: &[u8]) -> bool {
    let is_single = begin == end || plinth_core::key::is_single_key(begin, end);
    let is_tenant = !grant.tenants().is_empty() && begin.starts_with(TENANT_MAP);
    is_single && (client_rows::is_own_stamp(begin) || is_tenant)
}

fn counts(grant: &Grant, access: &Access, now: u64) -> bool {
    let is_over = grant.is_over(now)
        && !planted!(
            "token_outlives_its_end",
            "a role that has verified a token accepts it after its end"
        );
    !is_over && access.keys.has(grant.key())
}

/// Seconds since 1970.
fn now() -> u64 {
    unix_time_ms() / 1000
}

/// Finds the rights of requests, and remembers the tokens that it has verified.
pub struct Guard {
    /// The name of the cluster, as tokens give it.
    cluster: String,
    verified: RefCell<Verified>,
}

#[derive(Default)]
struct Verified {
    /// The keys that these tokens were verified with.
    with: Rc<Access>,
    grants: HashMap<Bytes, Rc<Grant>>,
}

impl Guard {
    pub fn new(cluster: String) -> Guard {
        Guard {
            cluster,
            verified: RefCell::default(),
        }
    }

    /// What `caller` may read.
    #[inline]
    pub fn to_read(
        &self,
        access: &Rc<Access>,
        caller: Identity,
        token: &Token,
    ) -> Result<Right, Refused> {
        match caller >= Identity::Operator || access.clients != Clients::Tokens {
            true => Ok(Right::Everything),
            false => self.granted(access, token).map(Right::Granted),
        }
    }

    /// What `caller` may write.
    pub fn to_write(
        &self,
        access: &Rc<Access>,
        caller: Identity,
        token: &Token,
    ) -> Result<Right, Refused> {
        match caller >= Identity::Operator || access.clients == Clients::All {
            true => Ok(Right::Everything),
            false => self.granted(access, token).map(Right::Granted),
        }
    }

    /// Number of tokens that are remembered.
    pub fn remembered(&self) -> usize {
        self.verified.borrow().grants.len()
    }

    fn granted(&self, access: &Rc<Access>, token: &Token) -> Result<Rc<Grant>, Refused> {
        let text = token.shown().ok_or(Refused::NoToken)?;
        let now = now();
        let mut verified = self.verified.borrow_mut();
        // A revoked key, or another one of its name.
        if !Rc::ptr_eq(&verified.with, access) {
            verified.with = access.clone();
            verified.grants.clear();
        }
        if let Some(grant) = verified.grants.get(text) {
            return match counts(grant, access, now) {
                true => Ok(grant.clone()),
                false => {
                    let until = grant.until();
                    verified.grants.remove(text);
                    Err(Refused::Token(TokenError::Over(until)))
                }
            };
        }
        let grant = verify(text, &access.keys, &self.cluster, now).map_err(Refused::Token)?;
        if verified.grants.len() >= TOKENS_MAX {
            verified.grants.retain(|_, grant| !grant.is_over(now));
        }
        if verified.grants.len() >= TOKENS_MAX {
            verified.grants.clear();
        }
        let grant = Rc::new(grant);
        // Copied: it outlives the frame that it came in.
        let text = Bytes::copy_from_slice(text);
        verified.grants.insert(text, grant.clone());
        Ok(grant)
    }
}

#[cfg(test)]
#[path = "guard/tests.rs"]
mod tests;
