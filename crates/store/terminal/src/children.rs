//! Processes of this program that another one starts and ends.

use plinth_runtime::{Duration, now, sleep};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Interval between checks of processes.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// A process that does not end in this time after the signal is killed.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// The running program itself, even if its file has been replaced since. It ends when this process does, if it is
/// given `--parent`, which [`follow`] adds.
pub fn itself() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("plinth").stdin(Stdio::null());
    command
}

/// Lets the process end when this one does.
pub fn follow(command: &mut Command) -> &mut Command {
    command.args(["--parent", &std::process::id().to_string()])
}

pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no reason given".into(),
    }
}

/// Sends all of them the signal to end, and kills those that do not end in time.
pub async fn stop(mut children: Vec<Child>) {
    for child in &children {
        if let Some(pid) = Pid::from_raw(child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM); // it may have ended by itself
        }
    }
    let asked_at = now();
    while asked_at.elapsed() < STOP_LIMIT {
        children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        if children.is_empty() {
            return;
        }
        sleep(CHECK_INTERVAL).await;
    }
    for mut child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
}
