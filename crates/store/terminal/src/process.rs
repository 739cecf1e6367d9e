//! What a process asks of the system when it starts, and until it ends.

use crate::{Outcome, interrupts};
use plinth_runtime::real::interrupted;
use plinth_runtime::{Either, race};
use rustix::process::{Pid, Signal};

/// Raises the limit of open files to its maximum. Every connection is an open file, and the usual soft limit is too
/// low for a server.
pub fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit); // if it fails, the soft limit stays
}

/// Asks the system to stop this process when its parent process ends, for any reason.
pub fn follow_parent(parent: u32) -> Outcome {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| format!("cannot follow process {parent}: {error}"))?;
    // The parent may have ended before the request.
    if rustix::process::getppid()
        .map(Pid::as_raw_nonzero)
        .map(|pid| pid.get() as u32)
        != Some(parent)
    {
        return Err(format!(
            "process {parent}, which started this server, has ended"
        ));
    }
    Ok(())
}

/// What the work gives; `None` if the user ends it before.
pub async fn unless_interrupted<T>(work: impl Future<Output = T>) -> Outcome<Option<T>> {
    match race(interrupted(), work).await {
        Either::Left(Ok(())) => {
            interrupts::note();
            Ok(None)
        }
        Either::Left(Err(error)) => Err(format!("cannot wait for signals: {error}")),
        Either::Right(given) => Ok(Some(given)),
    }
}
