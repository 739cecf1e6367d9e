//! Planted faults: deliberate bugs that a test build can switch on, to prove that the simulator's oracles catch them
//! (pitfall 28). `planted!("name", "the bug")` registers one at link time, where it would be. Without the feature
//! `planted-faults` every switch is the constant `false` and adds no code to the program.

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
