//! Figures of the in-memory engine: `figures tpcc|reads|ycsb|scans [SECONDS]`, each a line, then all as JSON. It ends
//! with 1 if a check of the data has found something.
//!
//! `cargo run --release -p plinth-farm-bench --example figures -- tpcc 5`

use plinth_farm_bench::{Machines, Mode, Place, Report, reads, scans, tpcc, ycsb};
use plinth_farm_engine::Policy;
use plinth_farm_tpcc::Scale;
use plinth_runtime::Duration;
use plinth_runtime::real::block_on;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "figures tpcc|reads|ycsb|scans [SECONDS of each figure, from 1 to 60]";
const SEED: u64 = 1;

fn tpcc_plan(duration: Duration) -> tpcc::Plan {
    let policies = [Policy::MvBlock, Policy::SingleVersion];
    tpcc::Plan {
        machines: Machines {
            machines: 1,
            replicas: 1,
            region_mib: 1024,
            old_mib: 64,
        },
        place: Place::new(None),
        scale: Scale::full(2),
        clients: 4,
        duration,
        warmup: Duration::from_secs(1),
        rounds: 3,
        modes: Mode::all(&policies, true, true),
        seed: SEED,
    }
}

async fn run(workload: &str, duration: Duration) -> Option<Result<Report, String>> {
    let tell = |line: &str| eprintln!("{line}");
    let (mode, place) = (Mode::opaque(Policy::MvBlock), Place::new(None));
    Some(match workload {
        "tpcc" => tpcc::run(&tpcc_plan(duration), &tell).await,
        "reads" => {
            let plan = reads::Plan {
                place,
                objects: 100_000,
                bytes: 64,
                clients: 16,
                reads: 100,
                duration,
                seed: SEED,
            };
            reads::run(&plan, &tell).await
        }
        "ycsb" => {
            let plan = ycsb::Plan {
                place,
                rows: 100_000,
                value_bytes: 100,
                clients: 16,
                mixes: ycsb::Mix::ALL.to_vec(),
                thetas: vec![0.0, 0.5, 0.9, 0.99],
                duration,
                mode,
                region_mib: 512,
                old_mib: 64,
                seed: SEED,
            };
            ycsb::run(&plan, &tell).await
        }
        "scans" => {
            let plan = scans::Plan {
                place,
                rows: 100_000,
                value_bytes: 100,
                updaters: 8,
                scanners: 1,
                duration,
                rounds: 3,
                modes: vec![mode],
                region_mib: 256,
                old_mib: 512,
                seed: SEED,
            };
            scans::run(&plan, &tell).await
        }
        _ => return None,
    })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = arguments.get(1).map_or(Ok(3), |seconds| seconds.parse());
    let seconds = seconds.ok().filter(|seconds| (1..=60).contains(seconds));
    let (Some(workload), Some(seconds)) = (arguments.first(), seconds) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match block_on(run(workload, Duration::from_secs(seconds))) {
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::from(1)
        }
        Some(Ok(report)) => {
            print!("{}", report.text());
            println!("{}", report.to_json());
            ExitCode::from(u8::from(!report.broken().is_empty()))
        }
    }
}
