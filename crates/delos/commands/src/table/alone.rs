//! A replica without others, over a log in files of its own directory.

use super::secure::Protection;
use super::{door, readiness};
use plinth_coordination::{Tenant, why};
use plinth_core::{EngineKind, Error, Uid};
use plinth_delos::base::Base;
use plinth_delos::file_log::FileLog;
use plinth_delos::stack::Top;
use plinth_delos::store::LocalStore;
use plinth_runtime::readiness::Readiness;
use plinth_runtime::{Either, disk, race};
use plinth_table::application::Tables;
use plinth_table::backend::Server;
use plinth_terminal::Outcome;
use plinth_terminal::process::unless_interrupted;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The log's identity: there is one in a directory.
const LOG: Uid = Uid(1);
/// What a directory has in which one has served.
pub const LOG_DIRECTORY: &str = "log";
const CACHE_BYTES: usize = 64 << 20;

type Replica = Rc<Base<FileLog, Top<Tables>>>;

async fn open(directory: &Path) -> Result<Replica, Error> {
    let log = Rc::new(FileLog::open(&directory.join(LOG_DIRECTORY), LOG).await?);
    let tables = directory.join("tables");
    let engine = plinth_engine::open(EngineKind::Ssd, &tables, true, CACHE_BYTES).await?;
    let store = LocalStore::open(engine)?;
    Ok(Base::new(log, store, Top(Tables)))
}

pub async fn serve(
    directory: PathBuf,
    listen: SocketAddr,
    protection: Option<Protection>,
    readiness: &RefCell<Readiness>,
) -> Outcome {
    let at = |line: String| format!("table {}: {line}", directory.display());
    let unusable = |error| at(format!("{} with --data-dir", why(&error)));
    let checked = Tenant::Tables.check(&directory).await;
    checked.map_err(|line| format!("table server: {line}"))?;
    let made = disk::create_dir_all(&directory).await;
    made.map_err(unusable)?;
    let locked = disk::lock_dir(&directory).await;
    let _locked = locked.map_err(unusable)?;
    let calls = door::open(listen, protection)?;
    let replica = open(&directory).await;
    let replica = replica
        .map_err(|error| at(format!("cannot open the log and the tables there: {error}")))?;
    let server = Rc::new(Server::new(replica.clone()));
    // It ends when its disk fails, so a read says enough.
    let keeping = readiness::keep(readiness, &*server, async || true);
    let working = async {
        match race(server.work(), keeping).await {
            Either::Left(ended) => ended,
            Either::Right(never) => match never {},
        }
    };
    let answering = race(calls.serve(server.clone()), working);
    let serving = race(replica.run(), answering);
    match unless_interrupted(serving).await.map_err(at)? {
        Some(Either::Left(stopped)) => Err(at(stopped.to_string())),
        Some(Either::Right(_)) | None => Ok(()),
    }
}
