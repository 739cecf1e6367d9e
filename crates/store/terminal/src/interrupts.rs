//! Ctrl-C: a tool says how far it is and how to go on, and ends with one exit code, whatever it does.

use crate::commands;
use libc::{SA_RESTART, SIG_DFL, SIGINT, c_int, sigaction, sighandler_t};
use plinth_runtime::real::{interrupted, spawn_worker};
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code of a process that its user has ended, as shells give it.
pub const CODE: u8 = 130;

macro_rules! waiting {
    () => {
        "it was interrupted while it waited for an answer"
    };
}

/// What is said of work that has not begun: its cluster has not answered.
pub const WAITING: &str = waiting!();
/// The same as lines. A handler of signals makes no text.
const WAITED: &str = concat!("plinth: ", waiting!(), "\n");
const WAITED_JSON: &str = concat!("{\"error\":\"", waiting!(), "\"}\n");

static WAS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The user has ended the work: if the command fails, it is because of that.
pub fn note() {
    WAS_INTERRUPTED.store(true, Ordering::Relaxed);
}

/// The user goes on after that: what fails later fails by itself.
pub fn forget() {
    WAS_INTERRUPTED.store(false, Ordering::Relaxed);
}

/// Exit code of a command that has failed.
pub fn exit_code() -> u8 {
    match WAS_INTERRUPTED.load(Ordering::Relaxed) {
        true => CODE,
        false => 1,
    }
}

/// From now on Ctrl-C, or the signal by which systems end programs, ends the process with the line that `tell` gives.
/// A thread of its own hears of it, so that it ends, too, while the loop waits for a pipe.
pub fn end_with(tell: impl FnOnce() -> String + Send + 'static) {
    spawn_worker("interrupts", move || async move {
        // Where it cannot be heard, the system ends the process.
        if interrupted().await.is_ok() {
            commands::print_error(&tell());
            std::process::exit(CODE.into())
        }
    });
}

static ARE_HEARD: AtomicBool = AtomicBool::new(false);
static WAITS: AtomicBool = AtomicBool::new(false);

/// From now on somebody hears each Ctrl-C: a shell goes on.
pub fn are_heard() {
    ARE_HEARD.store(true, Ordering::Relaxed);
}

/// While there is one, Ctrl-C ends the process with a line, unless somebody hears of it already. What hears by a task
/// or a thread would take over for good.
pub struct Waits {
    is_outer: bool,
}

impl Waits {
    /// Of a command that waits for an answer.
    #[allow(clippy::new_without_default)] // it does something
    pub fn new() -> Waits {
        let is_outer = !ARE_HEARD.load(Ordering::Relaxed)
            && exchange(SIG_DFL, ends_waiting as *const () as sighandler_t);
        if is_outer {
            WAITS.store(true, Ordering::Relaxed);
        }
        Waits { is_outer }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if self.is_outer {
            WAITS.store(false, Ordering::Relaxed);
            exchange(ends_waiting as *const () as sighandler_t, SIG_DFL);
        }
    }
}

/// Lets Ctrl-C do something else, if it did `before`.
fn exchange(before: sighandler_t, then: sighandler_t) -> bool {
    // SAFETY: all zeroes is such an action, and both pointers are to ones of this frame.
    unsafe {
        let mut action: sigaction = std::mem::zeroed();
        if sigaction(SIGINT, std::ptr::null(), &mut action) != 0 || action.sa_sigaction != before {
            return false;
        }
        action.sa_sigaction = then;
        action.sa_flags = SA_RESTART;
        sigaction(SIGINT, &action, std::ptr::null_mut()) == 0
    }
}

/// Does what a handler of a signal may do. Who came to hear of interrupts meanwhile calls it, too.
extern "C" fn ends_waiting(_: c_int) {
    if !WAITS.load(Ordering::Relaxed) {
        return;
    }
    let line = match commands::is_for_programs() {
        true => WAITED_JSON,
        false => WAITED,
    };
    // SAFETY: the bytes are there, and both calls are allowed in a handler.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        libc::_exit(CODE.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_is_as_before_when_the_wait_is_over_and_who_hears_it_goes_on_hearing() {
        let handler = || {
            // SAFETY: see `exchange`.
            unsafe {
                let mut action: sigaction = std::mem::zeroed();
                sigaction(SIGINT, std::ptr::null(), &mut action);
                action.sa_sigaction
            }
        };
        let waiting = ends_waiting as *const () as sighandler_t;
        let outer = Waits::new();
        assert_eq!(handler(), waiting);
        drop(outer);
        assert_eq!(handler(), SIG_DFL);
        let ignored = libc::SIG_IGN;
        exchange(SIG_DFL, ignored);
        drop(Waits::new());
        assert_eq!(handler(), ignored);
        exchange(ignored, SIG_DFL);
    }

    #[test]
    fn a_command_that_fails_after_an_interrupt_ends_with_the_code_of_one_until_its_user_goes_on() {
        assert_eq!(exit_code(), 1);
        note();
        assert_eq!(exit_code(), CODE);
        forget();
        assert_eq!(exit_code(), 1);
    }
}
