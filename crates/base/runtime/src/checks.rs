//! What must hold: paths that no code of ours leads to, and checks that cost more than the work that they check.
//!
//! An assertion is for what a process guarantees by itself. What it is told by a disk or by another process may be
//! false, although no code of ours made it so: a process that died of it would die again at each start, and its
//! replicas with it. There stands [`never!`](crate::never), and behind it the way out: an error, the end of the role.
//!
//! A check of a whole structure stands behind [`are_expensive_on`].

use crate::knobs::EXPENSIVE_CHECKS;
use crate::{metric, nobody_has_lied, trace};
use std::fmt::{Display, Write};

metric! {
    IMPOSSIBLE: Counter = "plinth_impossible_total",
        "paths taken that no code of ours leads to, because a disk or a peer has lied; the trace names them";
}

/// Whether structures are to be checked as a whole. The caller does so now and then: a check of all at every step
/// would make a run of an hour one of a day.
#[inline]
pub fn are_expensive_on() -> bool {
    EXPENSIVE_CHECKS.get() == 1
}

/// A path that no code of ours leads to, though a disk or a peer that lies may: `never!("Name", "key" => value, …)`,
/// or with a condition, whose value it returns:
///
/// ```
/// # use plinth_runtime::never;
/// # fn take(asked: u64, answered: u64) -> Result<(), &'static str> {
/// if never!(answered < asked, "AnswerBelowQuestion", "asked" => asked, "answered" => answered) {
///     return Err("internal_error");
/// }
/// # Ok(())
/// # }
/// # assert!(take(1, 1).is_ok() && take(2, 1).is_err());
/// ```
///
/// While [nobody has lied](crate::nobody_has_lied) in a simulation, it is a broken assertion. Elsewhere it is a
/// warning in the trace, under this name and with these values, and counted by `plinth_impossible_total`. The caller
/// goes on with an error.
#[macro_export]
macro_rules! never {
    ($name:literal $(, $key:literal => $value:expr)* $(,)?) => {
        $crate::checks::happened($name, &[$(($key, &$value as &dyn ::std::fmt::Display)),*])
    };
    ($condition:expr, $name:literal $(, $key:literal => $value:expr)* $(,)?) => {{
        let happens: bool = $condition;
        if happens {
            $crate::never!($name $(, $key => $value)*);
        }
        happens
    }};
}

#[doc(hidden)]
#[cold]
#[track_caller]
pub fn happened(name: &'static str, values: &[(&str, &dyn Display)]) {
    if nobody_has_lied() {
        let mut line = format!("never: {name}");
        for (key, value) in values {
            let _ = write!(line, ", {key} {value}");
        }
        panic!("{line}");
    }
    IMPOSSIBLE.add(1);
    if trace::is_enabled() {
        trace::emit(trace::Severity::Warn, name, values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric;
    use crate::sim::{SimConfig, Simulation, control};

    fn told() -> u64 {
        let mut counts = metric::counts().into_iter();
        let of = counts.find(|(family, _)| **family == IMPOSSIBLE);
        of.map_or(0, |(_, count)| count)
    }

    fn take(asked: u64, answered: u64) -> bool {
        never!(answered < asked, "AnswerBelowQuestion", "asked" => asked, "answered" => answered)
    }

    #[test]
    #[should_panic(expected = "never: AnswerBelowQuestion, asked 7, answered 6")]
    fn while_nobody_has_lied_it_is_a_broken_assertion_with_its_values() {
        Simulation::new(1, SimConfig::default()).run(async {
            assert!(!take(7, 7));
            take(7, 6);
        });
    }

    #[test]
    fn where_somebody_may_have_lied_it_is_a_warning_and_counted() {
        let before = told();
        assert!(take(7, 6) && !take(7, 7));
        never!("Unreached");
        assert_eq!(told() - before, 2);
        let traced = Simulation::new(1, SimConfig::default()).run(async {
            control().expect_lies();
            assert!(take(7, 6));
            control().trace_tail()
        });
        let words = r#""severity":"warn","type":"AnswerBelowQuestion","asked":7,"answered":6"#;
        assert!(
            traced.result.iter().any(|line| line.contains(words)),
            "{:?}",
            traced.result
        );
    }

    #[test]
    fn the_simulator_checks_whole_structures_and_a_server_does_not() {
        assert!(!are_expensive_on());
        for config in [SimConfig::default(), SimConfig::hostile()] {
            let run = Simulation::new(1, config).run(async { are_expensive_on() });
            assert!(run.result);
        }
        assert!(!are_expensive_on());
    }
}
