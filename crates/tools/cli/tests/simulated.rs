//! The simulator with every service: a few seeds of each scenario (`plinth tools sim hunt` runs many), the names of
//! all workloads, what seeds draw among services, and that the binary gives the runs that tests give.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it runs the binary, and reads a list

// The simulator has the services that are linked.
use plinth_counter as _;
use plinth_delos as _;
use plinth_farm_check as _;
use plinth_keeper as _;

use plinth_core::testing::is_nightly;
use plinth_runtime::fault;
use plinth_sim::scenario::{self, Service};
use plinth_sim::{
    HuntOptions, HuntReport, Limits, Outcome, RunOptions, hunt, run, scenarios, workloads,
};
use std::collections::BTreeSet;
use std::process::Command;

/// By day runs are short: those of the whole length are for hunts, which look at other seeds with each commit. And a
/// cluster has 60 machines at most, with as many shards: 300 of them compute for more than a minute.
fn by_day() -> Limits {
    Limits {
        seconds: Some(15),
        machines: Some(60),
        ..Limits::default()
    }
}

fn look(scenario: &str, seeds: u64) -> HuntReport {
    let options = HuntOptions {
        jobs: 2,
        limits: match is_nightly() {
            true => Limits::default(),
            false => by_day(),
        },
        ..HuntOptions::new(1..=seeds, scenario)
    };
    hunt(&options, |_| ())
}

#[test]
fn every_scenario_keeps_every_promise() {
    for scenario in scenarios() {
        let runs = match scenario.first_shards {
            0 if is_nightly() => 4,
            _ => 1,
        };
        let report = look(scenario.name, runs);
        if let Some(failed) = report.failure {
            let tail = failed.trace_tail.iter().rev().take(60).rev();
            tail.for_each(|line| eprintln!("{line}"));
            panic!(
                "{failed}\n{:?}\nagain with: {}",
                failed.result,
                failed.command()
            );
        }
        assert_eq!(report.runs, runs);
    }
}

/// A run that is short, whatever the seed draws.
fn briefly(seed: u64, scenario: &str, service: Option<&str>) -> Outcome {
    run(RunOptions {
        limits: Limits {
            seconds: Some(1),
            service: service.map(String::from),
            ..Limits::default()
        },
        ..RunOptions::new(seed, scenario)
    })
}

#[test]
fn the_names_of_the_workloads_are_those_that_they_call_themselves() {
    let names: BTreeSet<String> = workloads::names().into_iter().map(String::from).collect();
    let mut drawn = BTreeSet::new();
    for seed in 1..150 {
        // Of the store's clusters, only some with keys have tokens; one of three seeds has no keys.
        let scenario = ["farm", "quiet", "applications"][seed as usize % 3];
        drawn.extend(briefly(seed, scenario, None).drawn.workloads);
        if drawn.len() >= names.len() {
            break;
        }
    }
    assert_eq!(drawn, names);
}

#[test]
fn a_seed_draws_each_service_as_often_as_any_other_or_one_that_has_what_is_wanted() {
    let scenario = scenario::find("applications").expect("there is one");
    let drawn = |seed, limits: &Limits| {
        let drawn = scenario.draw_service(seed, limits);
        drawn.expect("a service").name()
    };
    let services = scenario::services();
    let names: Vec<&str> = services.iter().map(Service::name).collect();
    assert_eq!(
        names,
        ["counter", "delos", "delos_stream", "keeper", "farm"]
    );
    for name in names {
        let seeds = (1..=1000).filter(|seed| drawn(*seed, &Limits::default()) == name);
        let count = seeds.count();
        assert!((150..250).contains(&count), "{name}: {count} of 1000");
    }
    let only = |workload: &str| Limits {
        workloads: Some(vec![workload.to_owned()]),
        ..Limits::default()
    };
    for seed in 1..=100 {
        assert_eq!(drawn(seed, &only("keeper")), "keeper");
        assert_eq!(drawn(seed, &only("farm_pairs")), "farm");
        // The store's workloads run beside applications.
        assert_ne!(drawn(seed, &only("bank")), "farm");
    }
}

/// The fingerprint of a run in the binary, by the command that an outcome prints.
fn fingerprint_in_the_binary(command: &str) -> String {
    let words = command.strip_prefix("plinth ").expect("a command of it");
    let output = Command::new(env!("CARGO_BIN_EXE_plinth"))
        .args(words.split(' '))
        .arg("--quiet")
        .output()
        .expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let (_, after) = text.split_once("fingerprint=").expect("a fingerprint");
    after[..16].to_owned()
}

/// Other services, knobs and requests are linked into the binary than into this test. Which service a seed draws
/// depends on that, and nothing else may. So the command names the service.
#[test]
fn the_command_that_is_printed_gives_the_same_run_in_the_binary() {
    let runs = [
        briefly(1, "standard", None),
        briefly(2, "fast", None),
        briefly(3, "siege", None),
        briefly(1, "applications", None),
        briefly(2, "applications", Some("keeper")),
        briefly(3, "applications", Some("farm")),
        briefly(4, "farm", None),
    ];
    for outcome in runs {
        let command = outcome.command();
        assert_eq!(
            command.contains(" --service "),
            outcome.scenario == "applications",
            "{command}"
        );
        let here = format!("{:016x}", outcome.fingerprint);
        assert_eq!(fingerprint_in_the_binary(&command), here, "{command}");
    }
}

#[test]
fn every_planted_fault_is_in_the_list_of_those_that_tests_find() {
    let list = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../scripts/planted-faults"
    );
    let text = std::fs::read_to_string(list).expect("a list");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let listed: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
    let known = fault::all().into_iter().map(|fault| fault.name);
    assert_eq!(listed, known.collect::<Vec<_>>(), "{list}");
}

#[test]
fn a_run_whose_service_was_drawn_is_the_same_when_the_service_is_named() {
    for seed in 1..8 {
        let drawn = briefly(seed, "applications", None);
        let service = drawn.limits.service.expect("a service");
        let named = briefly(seed, "applications", Some(&service));
        assert_eq!(named.fingerprint, drawn.fingerprint, "{}", named.command());
    }
}
