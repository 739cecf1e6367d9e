//! Runs seeds of a workload: `farm_seeds WORKLOAD FIRST COUNT [FAULT]`.
//! It goes on after a failure, and says how to run it again. Of a single seed that fails it prints the last events.

use plinth_farm_check::{Workload, run};
use plinth_runtime::{fault, probe};
use std::collections::BTreeMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let workload = arguments.first().and_then(|name| Workload::from_name(name));
    let (Some(workload), Some(first), Some(count)) = (workload, number(1), number(2)) else {
        let names = Workload::ALL.map(Workload::name).join("|");
        eprintln!("farm_seeds {names} FIRST COUNT [FAULT]");
        return ExitCode::from(2);
    };
    if let Some(name) = arguments.get(3) {
        let Some(planted) = fault::all().into_iter().find(|fault| fault.name == name) else {
            eprintln!("no such fault: {name}");
            return ExitCode::from(2);
        };
        fault::plant(Some(planted.name));
    }
    let (mut failed, mut committed, mut judged) = (0, 0, 0);
    let mut aborts = BTreeMap::<String, u64>::new();
    for seed in first..first.saturating_add(count) {
        match run(workload, seed) {
            Ok(shown) => {
                committed += shown.committed;
                judged += shown.judged;
                for (abort, times) in shown.aborts {
                    *aborts.entry(abort).or_default() += times;
                }
            }
            Err(violation) => {
                failed += 1;
                if count == 1 {
                    violation
                        .trace_tail
                        .iter()
                        .for_each(|line| println!("{line}"));
                }
                println!("{violation}");
            }
        }
    }
    println!("{:?}", probe::hits());
    println!(
        "{failed} of {count} seeds failed; {committed} committed, {judged} judged, {aborts:?}"
    );
    ExitCode::from(u8::from(failed > 0))
}
