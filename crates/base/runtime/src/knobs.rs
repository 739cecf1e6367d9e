//! Knobs: limits and intervals of the database and its layers, each with its unit in its name.
//!
//! A knob is declared with [`knob!`](crate::knob) in the crate that uses it: name, type, default and, where an extreme
//! value is legal, the range from which the simulator sometimes draws one. All knobs that are linked into a program
//! are set, listed, bounded and drawn alike.
//!
//! Each knob has [bounds](Knobs::bounds), for a process and for a whole cluster. They follow from the code that relies
//! on the knob, and are written at the knob. No value outside its bounds is ever in force.
//!
//! A cluster may set some knobs for all of its processes: [`set_overrides`]. A value that a process was given itself
//! takes precedence.

use crate::random::Generator;
use plinth_core::similar::most_similar;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

/// A type of knob values. Every value is exact as an `f64`.
pub trait KnobValue: Copy + PartialOrd + std::str::FromStr + std::fmt::Display {
    fn to_f64(self) -> f64;
    fn from_f64(v: f64) -> Self;
}

macro_rules! knob_value {
    ($($t:ty),*) => {$(
        impl KnobValue for $t {
            #[inline]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline]
            fn from_f64(v: f64) -> $t { v as $t }
        }
    )*};
}
knob_value!(u64, i64, usize, u32, f64);

type Range = (f64, f64);

/// What a declaration says about a knob, without its type.
pub struct Entry {
    pub name: &'static str,
    /// Where it is declared, as `module_path!()` says.
    pub module: &'static str,
    pub default: f64,
    /// The range from which the simulator draws.
    pub simulated: Option<Range>,
    /// Bounds, if other code relies on a limit.
    pub legal: Option<Range>,
    pub parse: fn(&str) -> Option<f64>,
    /// The nearest value of the knob's type.
    pub fit: fn(f64) -> f64,
}

#[doc(hidden)]
#[linkme::distributed_slice]
pub static REGISTERED: [Entry];

/// Without explicit bounds, a knob may be this many times its default, and as many times smaller if it has no range
/// either.
const USUAL_FACTOR: f64 = 100.0;

impl Entry {
    /// Place in [`REGISTERED`], where each declaration puts its entry.
    #[inline]
    fn place(&self) -> usize {
        let from = REGISTERED.as_ptr() as usize;
        (self as *const Entry as usize - from) / size_of::<Entry>()
    }

    fn bounds(&self) -> Range {
        let low = self
            .simulated
            .map_or(self.default / USUAL_FACTOR, |(low, _)| low);
        self.legal.unwrap_or((low, self.default * USUAL_FACTOR))
    }

    fn check(&self, value: f64) -> Result<(), String> {
        let (low, high) = self.bounds();
        match low <= value && value <= high {
            true => Ok(()),
            false => Err(format!(
                "knob {}: {value} is not from {low} to {high}",
                self.name
            )),
        }
    }
}

/// All declared knobs, by name.
fn entries() -> Vec<&'static Entry> {
    let mut entries: Vec<&Entry> = REGISTERED.iter().collect();
    entries.sort_unstable_by_key(|entry| entry.name);
    for pair in entries.windows(2) {
        assert!(pair[0].name != pair[1].name, "two knobs {}", pair[0].name);
    }
    entries
}

fn find(name: &str) -> Option<&'static Entry> {
    REGISTERED.iter().find(|entry| entry.name == name)
}

/// The line about a knob that does not exist, with the one that is meant, or with what lists them.
pub fn unknown(name: &str, lists: &str) -> String {
    match most_similar(name, REGISTERED.iter().map(|entry| entry.name)) {
        Some(meant) => format!("there is no knob `{name}'; did you mean `{meant}'?"),
        None => format!("there is no knob `{name}'; {lists} all"),
    }
}

/// A number that differs from name to name (FNV-1a).
fn number_of(name: &str) -> u64 {
    let add = |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, add)
}

/// The low end, the high end, or a value between them, uniform over the orders of magnitude.
fn extreme((low, high): Range, generator: &mut Generator) -> f64 {
    match generator.below(3) {
        0 => low,
        1 => high,
        _ => {
            let (l, h) = (low.max(1.0).ln(), high.max(1.0).ln());
            (l + (h - l) * generator.unit()).exp().clamp(low, high)
        }
    }
}

/// A knob of type `T`; see [`knob!`](crate::knob).
pub struct Knob<T> {
    entry: &'static Entry,
    kind: PhantomData<fn() -> T>,
}

impl<T: KnobValue> Knob<T> {
    #[doc(hidden)]
    pub const fn new(entry: &'static Entry) -> Self {
        let kind = PhantomData;
        Knob { entry, kind }
    }

    /// The value in force on this thread. Read it at each use, so that a changed value is seen.
    #[inline]
    pub fn get(&self) -> T {
        KNOBS.with(|set| self.of(&set.borrow().in_force))
    }

    /// The value in a set.
    #[inline]
    pub fn of(&self, knobs: &Knobs) -> T {
        T::from_f64(knobs.0[self.entry.place()])
    }

    /// Changes a set. [`set_knobs`] refuses a value outside the bounds.
    pub fn put(&self, knobs: &mut Knobs, value: T) {
        knobs.0[self.entry.place()] = value.to_f64();
    }
}

/// Declares a knob in the crate that uses it: a name of its own with its unit, a default and, where an extreme value
/// is legal, the range from which the simulator draws (`sim`), and the bounds that the code relies on (`legal`).
///
/// ```
/// plinth_runtime::knob! {
///     /// Longest line that a client may send.
///     pub LINE_BYTES_MAX: usize = "example_line_bytes_max", 1000, sim 20, 1000, legal 20, 100_000;
/// }
/// assert_eq!(LINE_BYTES_MAX.get(), 1000);
/// ```
#[macro_export]
macro_rules! knob {
    ($(
        $(#[$doc:meta])* $visible:vis $knob:ident: $t:ty = $name:literal, $default:expr
        $(, sim $low:expr, $high:expr)? $(, legal $least:expr, $most:expr)?;
    )+) => {$(
        $(#[$doc])*
        $visible static $knob: $crate::knobs::Knob<$t> = {
            #[$crate::macro_support::linkme::distributed_slice($crate::knobs::REGISTERED)]
            #[linkme(crate = $crate::macro_support::linkme)]
            static ENTRY: $crate::knobs::Entry = $crate::knobs::Entry {
                name: $name,
                module: ::std::module_path!(),
                default: $default as f64,
                simulated: $crate::knob!(@range $($low, $high)?),
                legal: $crate::knob!(@range $($least, $most)?),
                parse: |text| text.parse::<$t>().ok().map($crate::knobs::KnobValue::to_f64),
                fit: |value| $crate::knobs::KnobValue::to_f64(value as $t),
            };
            $crate::knobs::Knob::new(&ENTRY)
        };
    )+};
    (@range) => { None };
    (@range $low:expr, $high:expr) => { Some(($low as f64, $high as f64)) };
}

knob! {
    /// 1: structures are checked as a whole, now and then, while they are in use. The simulator sets it.
    pub EXPENSIVE_CHECKS: u32 = "expensive_checks", 0, legal 0, 1;
}

/// A value for every declared knob, by its place in [`REGISTERED`].
#[derive(Clone, PartialEq)]
pub struct Knobs(Vec<f64>);

impl Default for Knobs {
    fn default() -> Knobs {
        Knobs(REGISTERED.iter().map(|entry| entry.default).collect())
    }
}

impl std::fmt::Debug for Knobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.list()).finish()
    }
}

impl Knobs {
    /// Sets a knob by name from text: for command lines and scenario files. Refuses values outside the bounds.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let entry = find(name).ok_or_else(|| unknown(name, "`--knob list' shows"))?;
        let parsed = (entry.parse)(value);
        let value = parsed.ok_or_else(|| {
            let default = entry.default;
            format!("knob {name}: {value:?} is not a number such as its default, {default}")
        })?;
        entry.check(value)?;
        self.0[entry.place()] = value;
        Ok(())
    }

    /// The lowest and highest legal value of a knob. They are written at the knob if other code relies on a limit.
    /// Otherwise the lowest value is that of the simulator's range, or a hundredth of the default if there is no
    /// range, and the highest is 100 times the default.
    pub fn bounds(name: &str) -> Option<(f64, f64)> {
        find(name).map(Entry::bounds)
    }

    /// The module that declares a knob.
    pub fn module_of(name: &str) -> Option<&'static str> {
        find(name).map(|entry| entry.module)
    }

    /// Names and values by name, for `status` and for a failed run's report.
    pub fn list(&self) -> Vec<(&'static str, String)> {
        let entries = entries().into_iter();
        let pairs = entries.map(|entry| (entry.name, self.0[entry.place()].to_string()));
        pairs.collect()
    }

    /// Replaces each knob that has a range by a value drawn from it, with probability `p`. Each is drawn by itself
    /// from the seed, so that a new knob changes nothing else in a run.
    pub fn randomise(&mut self, seed: u64, p: f64) {
        for entry in entries() {
            if let Some(ends) = entry.simulated {
                self.draw(entry, ends, seed, p);
            }
        }
    }

    /// Replaces each knob by one end of its bounds, or a value between them, with probability `p`.
    pub fn randomise_within_bounds(&mut self, seed: u64, p: f64) {
        for entry in entries() {
            self.draw(entry, entry.bounds(), !seed, p);
        }
    }

    fn draw(&mut self, entry: &Entry, ends: Range, seed: u64, p: f64) {
        let mut generator = Generator::new(seed ^ number_of(entry.name));
        if generator.unit() < p {
            let value = (entry.fit)(extreme(ends, &mut generator));
            if ends.0 <= value && value <= ends.1 {
                self.0[entry.place()] = value;
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        let mut entries = REGISTERED.iter();
        entries.try_for_each(|entry| entry.check(self.0[entry.place()]))
    }

    /// Applies `overrides` to each knob that has its default value here.
    fn overridden(&self, overrides: &[(String, String)]) -> Knobs {
        let mut knobs = self.clone();
        for (name, value) in overrides {
            // Unknown names and invalid values are ignored: they come from another version of this program.
            let _ = knobs.set(name, value);
        }
        for entry in REGISTERED {
            let own = self.0[entry.place()];
            if own != entry.default {
                knobs.0[entry.place()] = own;
            }
        }
        knobs
    }
}

/// The knobs given to a process, and those in force.
#[derive(Clone, Default)]
pub(crate) struct KnobSet {
    own: Knobs,
    in_force: Rc<Knobs>,
}

thread_local! {
    static KNOBS: RefCell<KnobSet> = RefCell::default();
}

/// This thread's knobs.
pub fn knobs() -> Rc<Knobs> {
    KNOBS.with(|k| k.borrow().in_force.clone())
}

/// Replaces this thread's own knobs and drops the cluster's overrides. Inside a simulation, replaces those of the run.
pub fn set_knobs(knobs: Knobs) {
    if let Err(broken) = knobs.check() {
        panic!("{broken}");
    }
    replace(KnobSet {
        in_force: Rc::new(knobs.clone()),
        own: knobs,
    });
}

/// Replaces the cluster's overrides, given as names and values. True if a knob in force has changed.
pub fn set_overrides(overrides: &[(String, String)]) -> bool {
    KNOBS.with(|set| {
        let mut set = set.borrow_mut();
        let knobs = set.own.overridden(overrides);
        let differs = knobs != *set.in_force;
        if differs {
            set.in_force = Rc::new(knobs);
        }
        differs
    })
}

pub(crate) fn replace(knobs: KnobSet) -> KnobSet {
    KNOBS.with(|k| k.replace(knobs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    knob! {
        SECONDS: u64 = "test_seconds", 5, sim 1, 60, legal 1, 100;
        SHARE: f64 = "test_share", 0.5;
        COUNT: usize = "test_count", 1000, sim 1, 4096;
    }

    #[test]
    fn a_knob_is_set_by_name_and_a_wrong_name_or_value_says_so() {
        let mut knobs = Knobs::default();
        assert!(knobs.list().contains(&("test_seconds", "5".into())));
        knobs.set("test_seconds", "7").expect("legal");
        knobs.set("test_share", "0.25").expect("legal");
        assert_eq!((SECONDS.of(&knobs), SHARE.of(&knobs)), (7, 0.25));
        for (name, value) in [
            ("test_seconds", "many"),
            ("test_seconds", "101"),
            ("test_seconds", "1.5"),
            ("test_count", "0"),
            ("test_share", "NaN"),
            ("test", "1"),
        ] {
            let before = knobs.clone();
            let refusal = knobs.set(name, value).expect_err("it is wrong");
            assert!(refusal.contains(name), "{refusal}");
            assert_eq!(knobs, before);
            assert!(!set_overrides(&[(name.to_string(), value.to_string())]));
        }
        assert_eq!(Knobs::bounds("test_seconds"), Some((1.0, 100.0)));
        assert_eq!(Knobs::bounds("test_share"), Some((0.005, 50.0)));
        assert_eq!(Knobs::bounds("test_count"), Some((1.0, 100_000.0)));
        assert_eq!(Knobs::bounds("no_such"), None);
        assert_eq!(
            knobs.set("test_second", "1"),
            Err("there is no knob `test_second'; did you mean `test_seconds'?".into())
        );
        assert_eq!(
            unknown("no_such", "`getknob' lists"),
            "there is no knob `no_such'; `getknob' lists all"
        );
        let mut illegal = Knobs::default();
        SECONDS.put(&mut illegal, 101);
        assert!(std::panic::catch_unwind(|| set_knobs(illegal)).is_err());
    }

    #[test]
    fn what_the_cluster_wants_holds_until_it_does_not_except_where_the_process_was_told_otherwise()
    {
        let mut own = Knobs::default();
        own.set("test_seconds", "3").expect("legal");
        set_knobs(own.clone());
        let wanted = [("test_seconds", "9"), ("test_count", "7"), ("gone", "1")];
        let wanted = wanted.map(|(name, value)| (name.to_string(), value.to_string()));
        assert!(set_overrides(&wanted));
        assert!(!set_overrides(&wanted));
        assert_eq!((SECONDS.get(), COUNT.get()), (3, 7));
        assert!(set_overrides(&[]));
        assert_eq!(*knobs(), own);
        set_knobs(Knobs::default());
        assert_eq!(SECONDS.get(), 5);
    }

    #[test]
    fn the_simulator_draws_each_knob_from_its_range() {
        let mut seen = BTreeSet::new();
        for seed in 0..300 {
            let mut knobs = Knobs::default();
            knobs.randomise(seed, 1.0);
            assert_eq!(knobs.check(), Ok(()));
            seen.insert(SECONDS.of(&knobs));
            assert!((1..=4096).contains(&COUNT.of(&knobs)));
            assert_eq!(SHARE.of(&knobs), 0.5, "it has no range");
            knobs.randomise_within_bounds(seed, 1.0);
            assert_eq!(knobs.check(), Ok(()));
        }
        assert!(seen.contains(&1) && seen.contains(&60) && seen.len() > 10);
    }
}
