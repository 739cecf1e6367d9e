//! Runs seeds without the `plinth` binary: `cargo run --release -p plinth-sim --example seeds -- run 7 standard`,
//! `… -- hunt 1 100 standard 2`. A planted fault may follow, and `only=WORKLOAD` somewhere. No service is linked.

use plinth_sim::{HuntOptions, Limits, RunOptions, hunt, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let (only, words): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|word| word.starts_with("only="));
    let limits = Limits {
        workloads: (!only.is_empty()).then(|| only.iter().map(|word| word[5..].into()).collect()),
        ..Limits::default()
    };
    let word = |i: usize| words.get(i).map(String::as_str);
    let number = |i: usize| word(i).and_then(|w| w.parse().ok()).expect("a number");
    let ok = match word(0) {
        Some("run") => {
            let outcome = run(RunOptions {
                verbose: true,
                planted_fault: words.get(3).cloned(),
                limits,
                ..RunOptions::new(number(1), word(2).expect("a scenario"))
            });
            outcome
                .trace_tail
                .iter()
                .for_each(|line| println!("{line}"));
            if let Err(failure) = &outcome.result {
                println!("{}: {}", failure.kind, failure.message);
            }
            println!("{outcome}");
            outcome.result.is_ok()
        }
        Some("hunt") => {
            let options = HuntOptions {
                jobs: number(4) as usize,
                planted_fault: words.get(5).cloned(),
                limits,
                ..HuntOptions::new(number(1)..=number(2), word(3).expect("a scenario"))
            };
            let report = hunt(&options, |outcome| println!("{outcome}"));
            println!("{report}");
            report.failure.is_none()
        }
        _ => panic!("run SEED SCENARIO [FAULT] | hunt FIRST LAST SCENARIO JOBS [FAULT]"),
    };
    if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
