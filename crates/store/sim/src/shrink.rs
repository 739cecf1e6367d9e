//! Reduces a failing run: fewer kinds of fault, fewer workloads, fewer machines, less time, the same kind of
//! failure.
//!
//! Each omission changes everything that the seed draws afterwards. So each smaller run is tried with several seeds,
//! beginning with the seed that failed. The next step starts from the first run that fails in the same way.

use crate::{Drawn, FailureKind, Limits, Outcome, RunOptions, run};

/// Limits that reduce what a run with `limits` has drawn by one step each, fewer machines first.
fn smaller(limits: &Limits, drawn: &Drawn) -> Vec<Limits> {
    let all = Limits {
        service: limits.service.clone(),
        machines: Some(drawn.machines),
        processes: Some(drawn.processes),
        seconds: Some(drawn.seconds),
        faults: Some(drawn.faults.clone()),
        workloads: Some(drawn.workloads.clone()),
    };
    let without = |list: &[String], at: usize| {
        let mut list = list.to_vec();
        list.remove(at);
        Some(list)
    };
    let mut steps = Vec::new();
    for machines in [1, drawn.machines / 2, drawn.machines.saturating_sub(1)] {
        if (1..drawn.machines).contains(&machines) {
            steps.push(Limits {
                machines: Some(machines),
                ..all.clone()
            });
        }
    }
    if drawn.processes > 1 {
        steps.push(Limits {
            processes: Some(1),
            ..all.clone()
        });
    }
    for at in 0..drawn.faults.len() {
        steps.push(Limits {
            faults: without(&drawn.faults, at),
            ..all.clone()
        });
    }
    for at in 0..drawn.workloads.len() {
        steps.push(Limits {
            workloads: without(&drawn.workloads, at),
            ..all.clone()
        });
    }
    if drawn.seconds > 5 {
        steps.push(Limits {
            seconds: Some(drawn.seconds / 2),
            ..all
        });
    }
    steps
}

/// The smallest run found that fails in the same way as `options`; `None` if `options` does not fail. Calls `seen`
/// with every run and whether it was kept.
pub fn shrink(
    options: &RunOptions,
    seeds_a_step: u64,
    mut seen: impl FnMut(&Outcome, bool),
) -> Option<Outcome> {
    let first = run(options.clone());
    let kind = kind_of(&first)?;
    seen(&first, true);
    let mut smallest = first;
    // Limits under which no run failed. They are not tried again: a failure is unlikely also after later reductions.
    let mut in_vain: Vec<Limits> = Vec::new();
    'smaller: loop {
        for limits in smaller(&smallest.limits, &smallest.drawn) {
            if in_vain.contains(&limits) {
                continue;
            }
            for i in 0..seeds_a_step {
                let outcome = run(RunOptions {
                    seed: smallest.seed.wrapping_add(i),
                    limits: limits.clone(),
                    ..options.clone()
                });
                let same = kind_of(&outcome) == Some(kind);
                seen(&outcome, same);
                if same {
                    smallest = outcome;
                    continue 'smaller;
                }
            }
            in_vain.push(limits);
        }
        return Some(smallest);
    }
}

fn kind_of(outcome: &Outcome) -> Option<FailureKind> {
    outcome.result.as_ref().err().map(|failure| failure.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_takes_one_thing_away() {
        let list = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let drawn = Drawn {
            machines: 5,
            processes: 2,
            seconds: 60,
            faults: list(&["clog", "swizzle"]),
            workloads: list(&["bank"]),
            ..Drawn::default()
        };
        let of_keeper = Limits {
            service: Some("keeper".into()),
            ..Limits::default()
        };
        let steps = smaller(&of_keeper, &drawn);
        let machines: Vec<Option<usize>> = steps.iter().map(|l| l.machines).collect();
        assert_eq!(machines[..3], [Some(1), Some(2), Some(4)]);
        assert_eq!(steps.len(), 3 + 1 + 2 + 1 + 1);
        assert!(steps.iter().any(|l| l.faults == Some(list(&["swizzle"]))));
        assert!(steps.iter().any(|l| l.workloads == Some(vec![])));
        assert!(steps.iter().all(|l| l.service == of_keeper.service));
        let least = Drawn {
            machines: 1,
            processes: 1,
            seconds: 4,
            ..Drawn::default()
        };
        assert_eq!(smaller(&of_keeper, &least), []);
    }
}
