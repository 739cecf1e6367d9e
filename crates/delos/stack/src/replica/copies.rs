//! Copies of a replica's rows, for a new replica that comes after the log was trimmed.

use super::identity::Identity;
use super::messages::{CopiedPage, CopyStore, process};
use crate::log::LogPos;
use crate::store::LocalStore;
use crate::store::copy::{Copying, Held};
use plinth_core::Error;
use plinth_engine::KeyValueStore;
use plinth_rpc::Transport;
use plinth_runtime::{Duration, Instant, now, probe, random, sleep, timeout, trace_warn};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

const PAGE_BYTES: usize = 1 << 20;
/// Copies at a time. Each keeps the replica from flushing.
const COPIES_MAX: usize = 2;
/// A copy that nobody has asked for so long is forgotten.
const IDLE_LIMIT: Duration = Duration::from_secs(10);
/// No copy keeps a replica from flushing for longer.
const COPY_LIMIT: Duration = Duration::from_secs(300);
const PAGE_LIMIT: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Times that each replica is asked to begin a copy: one that flushes is asked again.
const TRIES: usize = 150;

struct Copy {
    held: Held,
    begun: Instant,
    asked: Instant,
}

/// The copies that a process serves.
#[derive(Default)]
pub struct Copies(RefCell<BTreeMap<u64, Copy>>);

impl Copies {
    /// A page; and true if it begins a copy, which somebody has to [forget](Self::forget_later).
    ///
    /// # Errors
    /// [`Error::server_overloaded`] if no copy can begin now, [`Error::operation_obsolete`] if it was forgotten.
    pub fn page(
        &self,
        store: &Rc<LocalStore>,
        asked: &CopyStore,
    ) -> Result<(CopiedPage, bool), Error> {
        let mut copies = self.0.borrow_mut();
        let id = match asked.copy {
            Some(id) => id,
            None if copies.len() >= COPIES_MAX => return Err(Error::server_overloaded),
            None => {
                let held = Held::new(store)?.ok_or(Error::server_overloaded)?;
                let (id, begun) = (random::u64(), now());
                let asked = begun;
                copies.insert(id, Copy { held, begun, asked });
                id
            }
        };
        let copy = copies.get_mut(&id).ok_or(Error::operation_obsolete)?;
        copy.asked = now();
        let rows = copy.held.rows(asked.after.as_ref(), PAGE_BYTES)?;
        let page = CopiedPage {
            copy: id,
            pos: copy.held.pos,
            checksum: copy.held.checksum,
            rows,
        };
        if page.rows.is_empty() {
            copies.remove(&id);
        }
        Ok((page, asked.copy.is_none()))
    }

    /// Forgets a copy when nobody asks for it any more, or it takes too long.
    pub async fn forget_later(self: Rc<Self>, id: u64) {
        loop {
            sleep(IDLE_LIMIT / 4).await;
            let mut copies = self.0.borrow_mut();
            let Some(copy) = copies.get(&id) else {
                return;
            };
            if copy.asked.elapsed() > IDLE_LIMIT || copy.begun.elapsed() > COPY_LIMIT {
                copies.remove(&id);
                return;
            }
        }
    }
}

async fn ask(
    transport: &Transport,
    from: SocketAddr,
    asked: CopyStore,
) -> Result<CopiedPage, Error> {
    let endpoint = process(from).endpoint::<CopyStore>();
    let page = timeout(PAGE_LIMIT, transport.call(&endpoint, asked)).await;
    page.unwrap_or(Err(Error::timed_out))
}

async fn fetch_from(
    transport: &Transport,
    from: SocketAddr,
    owner: &str,
    engine: &Rc<dyn KeyValueStore>,
) -> Result<LogPos, Error> {
    let mut copying = Copying::new(engine);
    let (mut copy, mut after) = (None, None);
    loop {
        let page = ask(transport, from, CopyStore { copy, after }).await?;
        let Some((last, _)) = page.rows.last() else {
            copying.finish(owner, page.pos, page.checksum).await?;
            return Ok(page.pos);
        };
        (copy, after) = (Some(page.copy), Some(last.clone()));
        copying.add(&page.rows).await?;
    }
}

/// Copies the rows of another replica, which has to have the entries before `first`, into an empty engine. False if
/// none can be copied now.
///
/// # Errors
/// A line, if the engine cannot be used.
pub async fn fetch_once(
    transport: &Transport,
    identity: &Identity,
    owner: &str,
    engine: &Rc<dyn KeyValueStore>,
    first: LogPos,
) -> Result<bool, String> {
    let sources = identity.service.addresses().into_iter();
    for source in sources.filter(|source| *source != identity.address) {
        match fetch_from(transport, source, owner, engine).await {
            Ok(pos) if pos + 1 >= first => {
                probe!("delos_store_copied");
                return Ok(true);
            }
            Ok(pos) => trace_warn!("DelosCopyTooOld", "from" => source, "position" => pos),
            Err(error) => trace_warn!("DelosCopyFails", "from" => source, "error" => error),
        }
        let cleared = crate::store::copy::clear_all(engine).await;
        cleared.map_err(|error| format!("the local store: {error}"))?;
    }
    Ok(false)
}

/// As [`fetch_once`], again and again for a while. The log was trimmed, and begins at `first`.
///
/// # Errors
/// A line, if there is none that can be copied.
pub async fn fetch(
    transport: &Transport,
    identity: &Identity,
    owner: &str,
    engine: &Rc<dyn KeyValueStore>,
    first: LogPos,
) -> Result<(), String> {
    for _ in 0..TRIES {
        if fetch_once(transport, identity, owner, engine, first).await? {
            return Ok(());
        }
        sleep(RETRY_PAUSE).await;
    }
    Err(format!(
        "the log begins at {first}, and no other replica could be copied: see that one of them serves, and start \
         this one again"
    ))
}
