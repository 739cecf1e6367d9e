//! Serves counters from a running cluster, for example one that `plinth dev --data-dir data` has started:
//!
//! ```sh
//! cargo run -p plinth-counter --example counter -- data/plinth.cluster 127.0.0.1:7000
//! printf 'add apples 3\nget apples\n' | nc -q1 127.0.0.1 7000
//! ```

use plinth_coordination::ClusterFile;
use plinth_runtime::real;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, address] = &arguments[..] else {
        eprintln!("usage: counter CLUSTER_FILE ADDRESS");
        return ExitCode::FAILURE;
    };
    match real::block_on(serve(file, address)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("counter: {line}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(file: &str, address: &str) -> Result<(), String> {
    let cluster = ClusterFile::load(file.as_ref()).await;
    let cluster = cluster.map_err(|error| format!("{file}: {error}"))?;
    let listen = address.parse();
    let listen =
        listen.map_err(|_| format!("{address}: expected an address such as 127.0.0.1:7000"))?;
    let served = plinth_counter::serve(plinth_client::connect(cluster), listen).await;
    served.map_err(|error| format!("{address}: {error}"))
}
