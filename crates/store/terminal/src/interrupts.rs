//! Ctrl-C: a tool says how far it is and how to go on, and ends with one exit code, whatever it does.

use crate::commands;
use plinth_runtime::real::{interrupted_by_user, spawn_worker};
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code of a process that its user has ended, as shells give it.
pub const CODE: u8 = 130;

static WAS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The user has ended the work: if the command fails, it is because of that.
pub fn note() {
    WAS_INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Exit code of a command that has failed.
pub fn exit_code() -> u8 {
    match WAS_INTERRUPTED.load(Ordering::Relaxed) {
        true => CODE,
        false => 1,
    }
}

/// From now on Ctrl-C ends the process with the line that `tell` gives. A thread of its own hears of it, so that it
/// ends, too, while the loop waits for a pipe.
pub fn end_with(tell: impl FnOnce() -> String + Send + 'static) {
    spawn_worker("interrupts", move || async move {
        // Where it cannot be heard, the system ends the process.
        if interrupted_by_user().await.is_ok() {
            commands::print_error(&tell());
            std::process::exit(CODE.into())
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_after_an_interrupt_ends_with_the_code_of_one() {
        assert_eq!(exit_code(), 1);
        note();
        assert_eq!(exit_code(), CODE);
    }
}
