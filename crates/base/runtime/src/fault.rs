//! Planted faults: deliberate bugs that a test build can switch on, to prove that the simulator's oracles catch them
//! (pitfall 28). `planted!("name", "the bug")` registers one at link time, where it would be. Without the feature
//! `planted-faults` every switch is the constant `false` and adds no code to the program.

/// Tests prove that a planted fault is found, and say so here. A list of all names (`scripts/planted-faults`) is
/// compared with what they have said, so that no proof is lost unseen.
#[cfg(feature = "planted-faults")]
mod found {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    /// Names the file to which each test appends what it has found. The output of a test that passes is not shown.
    const FILE: &str = "PLINTH_PLANTED_FOUND";

    /// A test has found the fault: call it when nothing can go wrong in the test any more.
    #[allow(clippy::disallowed_types, clippy::disallowed_methods)] // a note of the test, not a file of the program
    pub fn found(name: &str) {
        use std::io::Write;
        let is_known = super::all().iter().any(|fault| fault.name == name);
        assert!(is_known, "there is no planted fault {name}");
        println!("planted fault found: {name}");
        let Some(path) = std::env::var_os(FILE) else {
            return;
        };
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path);
        // One write, because other tests append at the same time.
        let noted = file.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()));
        noted.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Runs `work` with the fault switched on. It is found if `work` panics with these words; another panic goes on.
    pub fn makes_panic(name: &'static str, words: &str, work: impl FnOnce()) {
        super::plant(Some(name));
        let outcome = catch_unwind(AssertUnwindSafe(work));
        super::plant(None);
        let Err(panic) = outcome else {
            panic!("{name} went unnoticed");
        };
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        if !text.unwrap_or_default().contains(words) {
            resume_unwind(panic);
        }
        found(name);
    }
}

#[cfg(feature = "planted-faults")]
mod switch {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Switches on the fault `name` on this thread, and all others off. `None` switches all off.
    pub fn plant(name: Option<&'static str>) {
        PLANTED.set(name);
    }

    pub fn is_planted(name: &str) -> bool {
        PLANTED.get() == Some(name)
    }
}

#[cfg(feature = "planted-faults")]
pub use found::{found, makes_panic};
#[cfg(feature = "planted-faults")]
pub use switch::{is_planted, plant};

/// True if the fault `name` is switched on: never, in this build.
#[cfg(not(feature = "planted-faults"))]
#[inline(always)]
pub fn is_planted(_name: &str) -> bool {
    false
}

/// A planted fault.
pub struct Fault {
    pub name: &'static str,
    /// What the code does wrong while the fault is switched on.
    pub bug: &'static str,
}

#[doc(hidden)]
#[linkme::distributed_slice]
pub static FAULTS: [Fault];

/// Every planted fault linked into this program, by name.
pub fn all() -> Vec<&'static Fault> {
    let mut all: Vec<&Fault> = FAULTS.iter().collect();
    all.sort_unstable_by_key(|fault| fault.name);
    all
}

/// Registers the planted fault, and is true if it is switched on. A second place of the same fault calls
/// [`is_planted`](crate::fault::is_planted).
#[macro_export]
macro_rules! planted {
    ($name:literal, $bug:literal) => {{
        #[$crate::macro_support::linkme::distributed_slice($crate::fault::FAULTS)]
        #[linkme(crate = $crate::macro_support::linkme)]
        static FAULT: $crate::fault::Fault = $crate::fault::Fault {
            name: $name,
            bug: $bug,
        };
        $crate::fault::is_planted($name)
    }};
}
