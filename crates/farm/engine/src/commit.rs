//! The coordinator's side of a commit (Figure 3):
//!
//! ```text
//!   Lock ─▶ primaries   timestamp, waited for   headers of what was read   CommitBackup ─▶ backups   CommitPrimary ─▶
//!   primaries   reported   Truncate ─▶ all, on the back of other messages
//! ```
//!
//! What is on this machine is done at once, without a message. Snapshot isolation leaves out the validation, and waits
//! for its timestamp at the end.

use crate::active::Token;
use crate::core::{Core, Keeping, Locking};
use crate::settings::Options;
use crate::site::Site;
use crate::tally::Tally;
use crate::view::View;
use crate::wire::{Change, Lock, Message, Number, Write};
use plinth_farm_fabric::{Fabric, Machine};
use plinth_farm_memory::{Abort, Pointer, TIMESTAMP_MAX};
use plinth_farm_time::Interval;
use plinth_runtime::{TaskGroup, fault, join_all, nobody_has_lied, planted, probe};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// So many headers are read at a time.
const READS_AT_ONCE: usize = 64;

/// What is to be committed.
pub struct Plan {
    pub options: Options,
    pub read_at: u64,
    pub token: Option<Token>,
    /// To be validated: nothing that is written.
    pub reads: Vec<Pointer>,
    pub writes: Vec<Write>,
    /// Reserved, and not needed.
    pub unused: Vec<Pointer>,
    /// The configuration in which cells were reserved, if any were.
    pub reserved_in: Option<u64>,
}

/// The writes by who has to know of them.
struct Parts {
    regions: Vec<u16>,
    primaries: BTreeMap<Machine, Vec<Write>>,
    backups: BTreeMap<Machine, Vec<Write>>,
}

impl Parts {
    /// `None` if there is no such region. In a durable cluster, primaries are told what backups are, so that they have
    /// it on disk.
    fn new(view: &View, writes: Vec<Write>, is_durable: bool) -> Option<Parts> {
        let mut parts = Parts {
            regions: writes.iter().map(|write| write.at.region()).collect(),
            primaries: BTreeMap::new(),
            backups: BTreeMap::new(),
        };
        parts.regions.sort_unstable();
        parts.regions.dedup();
        for write in writes {
            let replicas = view.replicas(write.at.region())?;
            if is_durable {
                parts.backups.entry(replicas.primary.machine).or_default();
            }
            for backup in &replicas.backups {
                let backup = parts.backups.entry(backup.machine);
                backup.or_default().push(write.clone());
            }
            let primary = parts.primaries.entry(replicas.primary.machine);
            primary.or_default().push(write);
        }
        Some(parts)
    }

    fn participants(&self) -> Vec<Machine> {
        let machines = self.primaries.keys().chain(self.backups.keys());
        let mut machines: Vec<Machine> = machines.copied().collect();
        machines.sort_unstable();
        machines.dedup();
        machines
    }
}

/// The reservation of a cell has come to nothing. It has ended with its configuration.
pub fn unreserve(core: &Core, at: Pointer, reserved_in: Option<u64>) {
    if reserved_in.is_none_or(|number| !core.stage.is(number)) {
        return;
    }
    let primary = core.view.borrow().primary(at.region());
    match primary.map(|place| place.machine) {
        Some(machine) if machine == core.own => drop(core.give_back(at)),
        Some(machine) => core.post.push(machine, Message::Unreserve { at }, None),
        None => (),
    }
}

/// Commits, and returns the write timestamp; `None` if there is nothing to write in the end.
pub async fn run<F: Fabric>(site: Rc<Site<F>>, plan: Plan) -> Result<Option<u64>, Abort> {
    let core = &site.core;
    for at in &plan.unused {
        unreserve(core, *at, plan.reserved_in);
    }
    if plan.writes.is_empty() {
        return Ok(None);
    }
    let made = plan
        .writes
        .iter()
        .filter(|write| write.change == Change::Allocate);
    let made: Vec<Pointer> = made.map(|write| write.at).collect();
    let reserved_in = plan.reserved_in;
    let committed = attempt(&site, plan).await;
    // If nobody knows, the cells may be objects.
    if committed.is_err_and(|abort| abort != Abort::Unknown) {
        made.iter().for_each(|at| unreserve(core, *at, reserved_in));
    }
    committed.map(Some)
}

async fn attempt<F: Fabric>(site: &Site<F>, plan: Plan) -> Result<u64, Abort> {
    let core = &site.core;
    let configuration = core.stage.opened().await?;
    if plan
        .reserved_in
        .is_some_and(|number| number != configuration)
    {
        return Err(Abort::Failed);
    }
    let view = core.view();
    let mut parts = Parts::new(&view, plan.writes, core.is_durable).ok_or(Abort::NotAllocated)?;
    let number = core
        .numbers
        .borrow_mut()
        .begin(parts.participants(), plan.token);
    let Some(locking) = lock(core, &mut parts, number, plan.read_at).await else {
        // Others may have locks, which a recovery ends.
        return core.end_with(configuration).await;
    };
    let stamped = match locking.refused.get() {
        Some(abort) => Err(abort),
        None => {
            let (read_at, newest) = (plan.read_at, locking.newest.get());
            let reads = (&plan.reads[..], read_at);
            stamp(site, configuration, &plan.options, reads, newest).await
        }
    };
    // Nobody has CommitBackup, so no recovery commits this.
    core.stage.check(configuration)?;
    let (written_at, then) = match stamped {
        Ok(stamped) => stamped,
        Err(abort) => {
            unlock(core, &locking, number).await;
            return Err(abort);
        }
    };
    check_before_log(&parts, &locking, number);
    core.committing.borrow_mut().insert(number);
    let is_done = log(core, &mut parts, number, written_at).await
        && core.stage.is(configuration)
        && install(core, &parts, number, written_at).await
        && core.stage.is(configuration);
    if !is_done {
        let decided = core.outcome(number).await?;
        // The others say so: what was installed anywhere has the time that was logged everywhere.
        assert!(
            decided == written_at || !nobody_has_lied(),
            "transaction {number} was logged with {written_at}, and a recovery says {decided}"
        );
        return Ok(decided);
    }
    core.committing.borrow_mut().remove(&number);
    let waited = match then {
        Some(then) => core.until_past(then).await.map(|_| ()),
        None => Ok(()),
    };
    if core.stage.is(configuration) {
        truncate(core, &parts, number);
    }
    // It has happened, but the clock that would tell when is broken.
    waited.map_err(|_| Abort::Unknown)?;
    Ok(written_at)
}

/// A backup that has the writes lets a recovery commit them: so all primaries have their locks before (Figure 3).
fn check_before_log(parts: &Parts, locking: &Locking, number: Number) {
    let (granted, open) = (locking.granted.borrow(), locking.open.borrow());
    assert!(
        granted.len() == parts.primaries.len() && open.is_empty(),
        "transaction {number} goes on with locks of {granted:?} and without those of {open:?}"
    );
}

fn truncate(core: &Core, parts: &Parts, number: Number) {
    for machine in parts.participants() {
        match machine == core.own {
            true => core.truncate(core.own, number),
            false => core.post.owe(machine, |owed| owed.truncate.push(number)),
        }
    }
}

/// Asks all primaries, and waits for all answers. `None` if one will not come.
async fn lock(core: &Core, parts: &mut Parts, number: Number, read_at: u64) -> Option<Rc<Locking>> {
    let count = parts.primaries.len();
    let locking = Rc::new(Locking {
        open: parts.primaries.keys().copied().collect::<Vec<_>>().into(),
        granted: Vec::new().into(),
        newest: 0.into(),
        refused: None.into(),
        tally: Tally::new(count),
    });
    core.locking.borrow_mut().insert(number, locking.clone());
    let others = parts
        .primaries
        .keys()
        .filter(|machine| **machine != core.own);
    let others = others.count();
    let acknowledged = Tally::new(others);
    for (machine, writes) in &mut parts.primaries {
        let lock = Lock {
            number,
            read_at,
            regions: parts.regions.clone(),
            writes: std::mem::take(writes),
        };
        if *machine == core.own {
            core.lock(core.own, lock);
            continue;
        }
        let lock = Message::Lock(lock);
        core.post.push(*machine, lock, Some(acknowledged.clone()));
    }
    let _waiting = (others > 0).then(|| core.waiting());
    let is_answered = acknowledged.wait().await && locking.tally.wait().await;
    core.locking.borrow_mut().remove(&number);
    is_answered.then_some(locking)
}

/// The write timestamp, and the time to wait for if that is not done yet.
async fn stamp<F: Fabric>(
    site: &Site<F>,
    configuration: u64,
    options: &Options,
    reads: (&[Pointer], u64),
    newest: u64,
) -> Result<(u64, Option<Interval>), Abort> {
    let (core, (_, read_at)) = (&site.core, reads);
    let (written_at, then) = match options.is_serializable {
        true => (core.timestamp().await?, None),
        false => {
            let now = core.time().await?;
            (now.upper, options.is_strict.then_some(now))
        }
    };
    if written_at <= newest {
        // Somebody has not waited for the timestamp of what this one replaces.
        probe!("farm timestamp not above the version before");
        return Err(Abort::Conflict);
    }
    // A participant does nothing with a time that is greater. A snapshot that nobody has waited for may be now.
    let least = read_at + u64::from(options.is_strict);
    let is_later = least <= written_at && written_at <= TIMESTAMP_MAX;
    assert!(
        is_later || fault::is_planted("farm_no_uncertainty_wait"), // for the oracles to find
        "what was read at {read_at} is written at {written_at}"
    );
    if options.is_serializable && !is_valid(site, configuration, reads).await? {
        return Err(Abort::Conflict);
    }
    Ok((written_at, then))
}

/// Nothing of what was read has changed, or is about to.
async fn is_valid<F: Fabric>(
    site: &Site<F>,
    configuration: u64,
    (reads, read_at): (&[Pointer], u64),
) -> Result<bool, Abort> {
    if planted!(
        "farm_no_validation",
        "a transaction commits whatever has become of what it read"
    ) {
        return Ok(true);
    }
    // What lies here is looked at in place: most of it does.
    let mut elsewhere = Vec::new();
    for at in reads {
        match site.core.is_current_here(*at, read_at)? {
            Some(true) => (),
            Some(false) => return Ok(false),
            None => elsewhere.push(*at),
        }
    }
    for some in elsewhere.chunks(READS_AT_ONCE) {
        let looks = some
            .iter()
            .map(|at| site.is_current(configuration, *at, read_at));
        for is_current in join_all(looks).await {
            if !is_current? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Ends the locks that were granted. The transaction has no effect.
async fn unlock(core: &Core, locking: &Locking, number: Number) {
    let granted = locking.granted.take();
    let others = granted.iter().filter(|machine| **machine != core.own);
    let acknowledged = Tally::new(others.count());
    for machine in granted {
        match machine == core.own {
            true => core.unlock(core.own, number),
            false => {
                let unlock = Message::Unlock { number };
                core.post.push(machine, unlock, Some(acknowledged.clone()));
            }
        }
    }
    if acknowledged.wait().await {
        core.numbers.borrow_mut().forget(number);
        core.raise_below();
    }
}

/// Waits for the disks of all who are told, in a durable cluster.
fn keeping(core: &Core, parts: &Parts, number: Number) -> Option<Rc<Keeping>> {
    if !core.is_durable {
        return None;
    }
    let open: Vec<Machine> = parts.backups.keys().copied().collect();
    let keeping = Rc::new(Keeping {
        tally: Tally::new(open.len()),
        open: open.into(),
    });
    core.keeping.borrow_mut().insert(number, keeping.clone());
    Some(keeping)
}

/// False if somebody may not have it.
async fn log(core: &Core, parts: &mut Parts, number: Number, written_at: u64) -> bool {
    let keeping = keeping(core, parts, number);
    let others = parts.backups.keys().filter(|machine| **machine != core.own);
    let acknowledged = Tally::new(others.count());
    for (machine, writes) in &mut parts.backups {
        let (regions, writes) = (parts.regions.clone(), std::mem::take(writes));
        if *machine == core.own {
            core.log(core.own, number, written_at, regions, writes);
            continue;
        }
        let log = Message::CommitBackup {
            number,
            written_at,
            regions,
            writes,
        };
        core.post.push(*machine, log, Some(acknowledged.clone()));
    }
    let is_logged = acknowledged.wait().await;
    let Some(keeping) = keeping else {
        return is_logged;
    };
    let waits_not = planted!(
        "farm_commit_is_not_kept",
        "a transaction goes on before the disks of its replicas have it"
    );
    let is_kept = is_logged && (waits_not || keeping.tally.wait().await);
    core.keeping.borrow_mut().remove(&number);
    let open = keeping.open.borrow();
    assert!(
        !is_kept || waits_not || open.is_empty(),
        "transaction {number} goes on before the disks of {open:?} have it"
    );
    is_kept
}

/// False if somebody may not know of it.
async fn install(core: &Core, parts: &Parts, number: Number, written_at: u64) -> bool {
    let others = parts
        .primaries
        .keys()
        .filter(|machine| **machine != core.own);
    let acknowledged = Tally::new(others.count());
    for machine in parts.primaries.keys() {
        match *machine == core.own {
            true => core.commit_primary(core.own, number, written_at),
            false => {
                let commit = Message::CommitPrimary { number, written_at };
                core.post.push(*machine, commit, Some(acknowledged.clone()));
            }
        }
    }
    acknowledged.wait().await
}

type Committing = Pin<Box<dyn Future<Output = Result<Option<u64>, Abort>>>>;

/// A commit that goes on when its caller is gone: nobody else would end its locks.
pub struct Finish {
    committing: Option<Committing>,
    group: TaskGroup,
}

pub fn finish(committing: Committing, group: TaskGroup) -> Finish {
    Finish {
        committing: Some(committing),
        group,
    }
}

impl Future for Finish {
    type Output = Result<Option<u64>, Abort>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(committing) = &mut self.committing else {
            return Poll::Pending;
        };
        let polled = committing.as_mut().poll(context);
        if polled.is_ready() {
            self.committing = None;
        }
        polled
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        if let Some(committing) = self.committing.take() {
            probe!("farm commit without its caller");
            self.group.spawn("commit", async move {
                let _ = committing.await;
            });
        }
    }
}
