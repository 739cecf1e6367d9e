//! Processes of this program that another one starts and ends.

use crate::wording::counted;
use crate::{Outcome, leavings};
use plinth_runtime::{Duration, Instant, now, sleep};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Interval between checks of processes.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// One that has died rests for so long before it is started again. One that was asked to end does not rest.
const RESTART_AFTER: Duration = Duration::from_secs(2);
/// A process that does not end in this time after the signal is killed.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Whoever waits longer for their end is told.
const TOLD_AFTER: Duration = Duration::from_millis(500);

/// The exit code of a process that can never go on: to start it again would not help.
pub const OVER: i32 = 3;

/// The running program itself, even if its file has been replaced since.
pub fn itself() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("plinth").stdin(Stdio::null());
    command
}

/// Starts the process, which ends when this one does.
///
/// # Errors
/// A line for the user.
pub fn start(command: &mut Command) -> Outcome<Child> {
    let child = command
        .args(["--parent", &std::process::id().to_string()])
        .spawn();
    let child = child.map_err(|error| format!("cannot start a process: {error}"))?;
    leavings::note_child(child.id());
    Ok(child)
}

pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no reason given".into(),
    }
}

/// A process that others like it run beside.
pub struct Supervised {
    /// As a user knows it.
    name: String,
    /// `None` if it has ended, and this was noted.
    pub child: Option<Child>,
    /// When that was noted, and whether it was asked to end: then its exit code is 0.
    ended: Option<(Instant, bool)>,
}

impl Supervised {
    /// # Errors
    /// It does not start: a line for the user.
    pub fn start(name: String, command: &mut Command) -> Outcome<Supervised> {
        Ok(Supervised {
            name,
            child: Some(start(command)?),
            ended: None,
        })
    }

    /// The exit status, once, if it has ended.
    fn check(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        (self.child, self.ended) = (None, Some((now(), status.success())));
        Some(status)
    }
}

/// The line about the first that ends before all serve. To start it again would not help.
pub async fn first_end(all: &mut [Supervised]) -> String {
    loop {
        for one in all.iter_mut() {
            if let Some(status) = one.check() {
                let (name, how) = (&one.name, describe(status));
                return format!("{name} ended with {how} before all served; it said why above");
            }
        }
        sleep(CHECK_INTERVAL).await;
    }
}

/// Tells of each that ends, and lets `start` start it again, the one at this place, if `restarts`.
///
/// # Errors
/// One does not start: a line for the user.
pub async fn keep_alive(
    all: &mut [Supervised],
    restarts: bool,
    start: impl Fn(u16) -> Outcome<Supervised>,
) -> Outcome {
    loop {
        for (i, one) in (0..).zip(all.iter_mut()) {
            if let Some(status) = one.check() {
                let is_over = status.code() == Some(OVER);
                if is_over {
                    one.ended = None;
                }
                let next = match (restarts, status.success()) {
                    (false, _) => "",
                    (true, _) if is_over => "; it is not started again",
                    (true, true) => "; it is started again",
                    (true, false) => "; it is started again in 2 s",
                };
                crate::say!("plinth: {} ended with {}{next}", one.name, describe(status));
            }
            let rested =
                |(at, is_asked): (Instant, bool)| is_asked || at.elapsed() >= RESTART_AFTER;
            if restarts && one.ended.is_some_and(rested) {
                *one = start(i)?;
            }
        }
        sleep(CHECK_INTERVAL).await;
    }
}

/// Sends all of them the signal to end, and kills those that do not end in time.
pub async fn stop(all: Vec<Supervised>) {
    let mut children: Vec<Child> = all.into_iter().filter_map(|one| one.child).collect();
    for child in &children {
        if let Some(pid) = Pid::from_raw(child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM); // it may have ended by itself
        }
    }
    let (asked_at, mut is_told) = (now(), false);
    while asked_at.elapsed() < STOP_LIMIT {
        children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        if children.is_empty() {
            return;
        }
        if !is_told && asked_at.elapsed() >= TOLD_AFTER {
            let left = counted(children.len(), "process ends", "processes end");
            crate::say!(
                "plinth: {left}; who takes longer than {} s is killed",
                STOP_LIMIT.as_secs()
            );
            is_told = true;
        }
        sleep(CHECK_INTERVAL).await;
    }
    for mut child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::real::block_on;
    use plinth_runtime::timeout;
    use std::cell::RefCell;

    #[test]
    fn a_process_that_can_never_go_on_is_not_started_again() {
        let ends_with = |code: i32| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exit {code}")]);
            Supervised::start("it".into(), &mut command)
        };
        let asked = RefCell::new(Vec::new());
        block_on(async {
            let all = [OVER, 1, 0].map(ends_with);
            let mut all = all.map(|one| one.expect("it starts"));
            let again = |i: u16| {
                asked.borrow_mut().push(i);
                let mut command = Command::new("sh");
                command.args(["-c", "exec sleep 60"]);
                Supervised::start("it".into(), &mut command)
            };
            let limit = RESTART_AFTER + Duration::from_secs(1);
            let ended = timeout(limit, keep_alive(&mut all, true, again)).await;
            assert!(ended.is_none(), "{ended:?}");
            stop(all.into()).await;
        });
        let mut asked = asked.into_inner();
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(asked, [1, 2]);
    }
}
