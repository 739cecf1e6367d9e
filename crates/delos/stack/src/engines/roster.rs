//! Knows the replicas of a service by name and address, and the engines that each has (§3.4). It is always on.
//!
//! ```text
//!   join      a replica says who it is and what it has; refused if its name or address is another one's
//!   leave     an operator removes a replica, for good
//!   switch    an engine goes on or off (guard.rs); on only if all replicas have it
//!   mark      every replica remembers the checksum of its rows at this position
//! ```
//! The log decides each of these, at one position: who is told that a replica joined, or that an engine is on, can
//! rely on it everywhere. A replica that lacks an engine which the others switch on stops, and applies nothing more:
//! it would make other rows of the same entries.

use super::guard::{Guard, SWITCH};
use crate::entry::Entry;
use crate::log::LogPos;
use crate::stack::{Answer, Applicator, Applied, Engine, Failure, Lost, ReplicaId, Upper};
use crate::store::{LocalStore, RoTx, RwTx};
use bytes::{Buf, Bytes};
use plinth_core::codec::Codec;
use plinth_core::{Error, Result, Uid, record};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

const HEADER: &str = "roster";
const MEMBERS: &[u8] = b"roster/of/member/";
const MEMBERS_END: &[u8] = b"roster/of/member0";
/// What is said of a replica that can never come back.
pub const GONE: &str = "was removed from the service";
const REMOVED: &[u8] = b"roster/of/removed/";
const REMOVED_END: &[u8] = b"roster/of/removed0";
const ENGINES_ON: &[u8] = b"roster/of/on/";
const ENGINES_ON_END: &[u8] = b"roster/of/on0";
const JOIN: u8 = 0;
const LEAVE: u8 = 1;
const MARK: u8 = 2;
/// So many marks are remembered.
const MARKS: usize = 16;

record! {
    /// A replica as the others know it.
    #[derive(Eq)]
    pub struct Member {
        pub name: String,
        pub address: SocketAddr,
        /// Its log server.
        pub log_server: Uid,
        /// The engines that it has and that can be switched.
        pub engines: Vec<String>,
        pub release: String,
    }
}

fn key(prefix: &[u8], rest: &[u8]) -> Vec<u8> {
    [prefix, rest].concat()
}

fn parse_members(rows: Vec<(Bytes, Bytes)>) -> Result<Vec<(ReplicaId, Member)>> {
    let parse = |(key, row): (Bytes, Bytes)| {
        let id = key.strip_prefix(MEMBERS)?.try_into().ok()?;
        Some((u64::from_be_bytes(id), Member::from_bytes(row)?))
    };
    let members = rows.into_iter().map(parse).collect::<Option<_>>();
    members.ok_or(Error::file_corrupt)
}

/// The replicas, in the order of their ids.
///
/// # Errors
/// The snapshot is too old, or the disk fails.
pub fn members(rows: &RoTx) -> Result<Vec<(ReplicaId, Member)>> {
    parse_members(rows.range(MEMBERS, MEMBERS_END, usize::MAX)?)
}

/// Where the process of a replica listens, as far as these rows can be read and have it.
pub fn address(rows: &RoTx, id: ReplicaId) -> Option<SocketAddr> {
    let members = members(rows).ok()?;
    let found = members.into_iter().find(|(other, _)| *other == id);
    found.map(|(_, member)| member.address)
}

/// Forgets the replicas, those that were removed, too: what was restored becomes another service.
///
/// # Errors
/// The disk fails.
pub fn forget_replicas(tx: &mut RwTx) -> Result<()> {
    tx.clear_range(MEMBERS, MEMBERS_END)?;
    tx.clear_range(REMOVED, REMOVED_END)
}

/// Switches an engine off, where there is no log yet that says so.
pub fn forget_switch(tx: &mut RwTx, engine: Guard) {
    tx.clear(&key(ENGINES_ON, engine.name.as_bytes()));
    engine.forget(tx);
}

/// The engines that are on, whether this release has them or not.
///
/// # Errors
/// The snapshot is too old, or the disk fails.
pub fn engines_on(rows: &RoTx) -> Result<Vec<String>> {
    let found = rows.range(ENGINES_ON, ENGINES_ON_END, usize::MAX)?;
    let name = |key: &Bytes| String::from_utf8_lossy(&key[ENGINES_ON.len()..]).into_owned();
    Ok(found.iter().map(|(key, _)| name(key)).collect())
}

/// What every replica says to an entry of the roster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Done,
    /// A line for the one who asked.
    Refused(String),
}

fn refuse(line: String) -> Verdict {
    Verdict::Refused(line)
}

fn join(tx: &mut RwTx, id: ReplicaId, member: &Member) -> Result<Verdict> {
    let name = &member.name;
    if tx.get(&key(REMOVED, &id.to_be_bytes()))?.is_some() {
        return Ok(refuse(format!(
            "replica {name:?} {GONE}: add it with an empty data directory"
        )));
    }
    for (other, of) in parse_members(tx.range(MEMBERS, MEMBERS_END, usize::MAX)?)? {
        if other != id && of.name == *name {
            return Ok(refuse(format!(
                "another replica, at {}, has the name {name:?}: choose another name, or remove that one first",
                of.address
            )));
        }
        if other != id && of.address == member.address {
            return Ok(refuse(format!(
                "replica {:?} had the address {} before: remove it first",
                of.name, of.address
            )));
        }
    }
    let row = key(MEMBERS, &id.to_be_bytes());
    tx.set(&row, member.to_bytes());
    Ok(Verdict::Done)
}

fn leave(tx: &mut RwTx, id: ReplicaId) -> Result<Verdict> {
    let row = key(MEMBERS, &id.to_be_bytes());
    if tx.get(&key(REMOVED, &id.to_be_bytes()))?.is_some() {
        return Ok(Verdict::Done); // an attempt before this one, whose outcome nobody knew
    }
    if tx.get(&row)?.is_none() {
        return Ok(refuse("there is no such replica".into()));
    }
    if tx.range(MEMBERS, MEMBERS_END, 2)?.len() == 1 {
        return Ok(refuse("it is the only replica".into()));
    }
    tx.clear(&row);
    tx.set(&key(REMOVED, &id.to_be_bytes()), "");
    Ok(Verdict::Done)
}

/// The replicas that lack an engine.
fn without(tx: &RwTx, engine: &str) -> Result<Vec<String>> {
    let members = parse_members(tx.range(MEMBERS, MEMBERS_END, usize::MAX)?)?;
    let lacks = |member: &Member| !member.engines.iter().any(|has| has == engine);
    let lacking = members.into_iter().filter(|(_, member)| lacks(member));
    Ok(lacking.map(|(_, member)| member.name).collect())
}

/// See the module.
pub struct RosterAbove<A> {
    pub(crate) upper: Upper<A>,
    /// The engines of this replica.
    engines: &'static [Guard],
    store: Rc<LocalStore>,
    marks: RefCell<VecDeque<(LogPos, u64)>>,
    /// Why this replica cannot go on, for an operator.
    stopped: RefCell<Option<String>>,
}

impl<A: Applicator> RosterAbove<A> {
    pub fn new(above: A, engines: &'static [Guard], store: &Rc<LocalStore>) -> Self {
        RosterAbove {
            upper: Upper::new(above),
            engines,
            store: store.clone(),
            marks: RefCell::default(),
            stopped: RefCell::default(),
        }
    }

    /// What is above, for its lower half.
    pub fn above(&self) -> &A {
        &self.upper.applicator
    }

    /// Why this replica cannot go on, if an entry of the roster says so.
    pub fn stopped(&self) -> Option<String> {
        self.stopped.borrow().clone()
    }

    fn has(&self, engine: &str) -> bool {
        self.engines.iter().any(|guard| guard.name == engine)
    }

    /// A switch: `is it on u8 | name of the engine`.
    fn switch(&self, tx: &mut RwTx, said: &[u8]) -> std::result::Result<Verdict, Failure<()>> {
        let parsed = said.split_first();
        let parsed =
            parsed.and_then(|(on, name)| Some((*on != 0, std::str::from_utf8(name).ok()?)));
        let Some((on, name)) = parsed else {
            return Ok(refuse("that is no engine".into()));
        };
        let row = key(ENGINES_ON, name.as_bytes());
        if !on {
            tx.clear(&row);
            return Ok(Verdict::Done);
        }
        let lacking = without(tx, name)?;
        if !lacking.is_empty() {
            return Ok(refuse(format!(
                "engine {name} is not in the release of replica {}: upgrade it first",
                lacking.join(", ")
            )));
        }
        if !self.has(name) {
            self.stopped.replace(Some(format!(
                "engine {name} is switched on, and this release does not have it: upgrade this replica"
            )));
            return Err(Failure::Stop(Error::incompatible_software_version));
        }
        tx.set(&row, "");
        Ok(Verdict::Done)
    }

    fn own(&self, tx: &mut RwTx, said: &Bytes) -> Result<Verdict> {
        let mut said = said.clone();
        let (kind, id) = (said.try_get_u8(), said.try_get_u64_le());
        Ok(match (kind, id) {
            (Ok(JOIN), Ok(id)) => match Member::from_bytes(said) {
                Some(member) => join(tx, id, &member)?,
                None => refuse("that is no replica".into()),
            },
            (Ok(LEAVE), Ok(id)) => leave(tx, id)?,
            (Ok(MARK), _) => Verdict::Done,
            _ => refuse("this release does not know what was asked".into()),
        })
    }
}

fn answer<R, E>(verdict: Verdict, pos: LogPos) -> Answer<R, E> {
    let (pos, line) = match verdict {
        Verdict::Done => (pos, String::new()),
        Verdict::Refused(line) => (0, line),
    };
    Answer::Own([&pos.to_le_bytes()[..], line.as_bytes()].concat().into())
}

impl<A: Applicator> Applicator for RosterAbove<A> {
    type Return = A::Return;
    type Refusal = A::Refusal;

    fn apply(&self, tx: &mut RwTx, entry: &Entry, pos: LogPos) -> Applied<A::Return, A::Refusal> {
        self.upper.pass_over();
        if let Some(said) = entry.header(HEADER) {
            return Ok(answer(self.own(tx, said)?, pos));
        }
        let Some(said) = entry.header(SWITCH) else {
            return self.upper.apply(tx, entry, pos);
        };
        match self.switch(tx, said) {
            Ok(Verdict::Done) => self
                .upper
                .apply(tx, entry, pos)
                .map(|_| answer(Verdict::Done, pos)),
            Ok(refused) => Ok(answer(refused, pos)),
            Err(Failure::Stop(error)) => Err(Failure::Stop(error)),
            Err(Failure::Refused(())) => unreachable!("nothing here refuses"),
        }
    }

    fn post_apply(&self, entry: &Entry, pos: LogPos) {
        if entry
            .header(HEADER)
            .is_some_and(|said| said.first() == Some(&MARK))
        {
            let mut marks = self.marks.borrow_mut();
            if marks.len() == MARKS {
                marks.pop_front();
            }
            let last = marks.back().map(|(last, _)| *last);
            assert!(
                last.is_none_or(|last| last < pos),
                "mark {pos} follows {last:?}"
            );
            marks.push_back((pos, self.store.checksum()));
        }
        self.upper.post_apply(entry, pos);
    }
}

impl<A: Applicator> RosterAbove<A> {
    /// The checksum of the rows at a mark. `None` if this replica has not applied it, or has forgotten it.
    pub fn checksum_at(&self, pos: LogPos) -> Option<u64> {
        let marks = self.marks.borrow();
        marks.iter().find(|(at, _)| *at == pos).map(|(_, sum)| *sum)
    }
}

fn entry(kind: u8, id: ReplicaId, said: &[u8]) -> Entry {
    let mut entry = Entry::default();
    let header = [&[kind][..], &id.to_le_bytes(), said].concat();
    entry.set_header(HEADER, header);
    entry
}

/// Proposes an entry of the roster. The position, or why it is refused.
///
/// # Errors
/// Those of the proposal.
async fn ask<E: Engine>(
    down: &E,
    entry: Entry,
) -> std::result::Result<std::result::Result<LogPos, String>, Lost> {
    let Answer::Own(mut said) = down.propose(entry).await? else {
        unreachable!("the roster answers its own entries")
    };
    let pos = said.try_get_u64_le().unwrap_or(0);
    Ok(match pos {
        0 => Err(String::from_utf8_lossy(&said).into_owned()),
        pos => Ok(pos),
    })
}

/// What an entry of the roster led to: its position, or a line that says why it is refused.
pub type Told = std::result::Result<LogPos, String>;

/// Says who a replica is.
///
/// # Errors
/// Those of the proposal.
pub async fn propose_join<E: Engine>(
    down: &E,
    id: ReplicaId,
    member: &Member,
) -> std::result::Result<Told, Lost> {
    ask(down, entry(JOIN, id, &member.to_bytes())).await
}

/// Removes a replica.
///
/// # Errors
/// Those of the proposal.
pub async fn propose_leave<E: Engine>(down: &E, id: ReplicaId) -> std::result::Result<Told, Lost> {
    ask(down, entry(LEAVE, id, b"")).await
}

/// Marks a position, at which all replicas remember their checksums.
///
/// # Errors
/// Those of the proposal.
pub async fn propose_mark<E: Engine>(down: &E) -> std::result::Result<Told, Lost> {
    ask(down, entry(MARK, 0, b"")).await
}

/// Switches an engine on, which all replicas must have, or off.
///
/// # Errors
/// Those of the proposal.
pub async fn propose_switch<E: Engine>(
    down: &E,
    engine: Guard,
    on: bool,
) -> std::result::Result<Told, Lost> {
    ask(down, engine.switch_entry(on)).await
}
