//! Planted faults: deliberate bugs that a test build can switch on, to prove that the simulator's oracles catch them
//! (pitfall 28). Without the feature `planted-faults` every switch is the constant `false` and leaves no trace in
//! the program.

#[cfg(feature = "planted-faults")]
mod switch {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Switches on the fault `name` on this thread, and every other off.
    pub fn plant(name: Option<&'static str>) {
        PLANTED.set(name);
    }

    pub fn is_planted(name: &str) -> bool {
        PLANTED.get() == Some(name)
    }
}

#[cfg(feature = "planted-faults")]
pub use switch::{is_planted, plant};

/// Whether the fault `name` is switched on: never, in this build.
#[cfg(not(feature = "planted-faults"))]
#[inline(always)]
pub fn is_planted(_name: &str) -> bool {
    false
}

/// Every fault that there is a switch for, and where it sits.
pub const FAULTS: &[(&str, &str)] = &[
    (
        "reply_before_fsync",
        "a log server acknowledges a push that is not on disk yet",
    ),
    (
        "skip_resolver",
        "a commit proxy ignores the verdict of the first of several resolvers",
    ),
    (
        "lose_rollback",
        "a storage server keeps versions that a recovery has undone",
    ),
    (
        "read_past_version",
        "a storage server answers from its newest version instead of the one asked for",
    ),
    (
        "drop_tag_at_recovery",
        "a new log server does not copy one of its tags",
    ),
    (
        "role_made_twice",
        "a worker makes a role again when it is asked once more for one that it has made",
    ),
    (
        "recovery_keeps_unfinished",
        "a recovery keeps versions that some log server does not have on disk",
    ),
    (
        "recovery_ends_too_early",
        "a recovery keeps only what was known to be committed, not all that was",
    ),
    (
        "shorter_log_is_believed",
        "a recovery ends the log where one server's disk ends that has lost what it acknowledged",
    ),
    (
        "move_of_coordinators_forgotten",
        "a recovery goes on with coordinators whose state may have moved",
    ),
    (
        "minority_is_enough",
        "what a minority of the coordinators has is acted on before a majority has it",
    ),
    (
        "coordinator_forgets",
        "a coordinator whose registers are gone serves as one that never promised anything",
    ),
    (
        "reads_follow_resolvers",
        "after resolvers exchanged keys a read is not compared with what was written before",
    ),
    (
        "fetch_forgets_queue",
        "a storage server takes over a range without what was written while it was copied",
    ),
    (
        "idempotency_overlooks_row",
        "a client takes a commit of which it finds the proof for one that did not happen",
    ),
    (
        "proxy_never_says_what_it_has",
        "a commit proxy lets resolvers remember every system transaction",
    ),
    (
        "sick_disks_are_trusted",
        "a recovery makes log servers on a disk that it knows does not work",
    ),
    (
        "ready_without_hearing",
        "a storage server says that it has a shard before it has heard of the move",
    ),
];
