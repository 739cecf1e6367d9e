//! Strangers: whoever comes by and opens a connection, says nothing or anything, and stays.

use crate::cluster::Shape;
use bytes::Bytes;
use plinth_runtime::random::{self, below, chance, range};
use plinth_runtime::{Duration, net, trace};

/// Longer than a server waits for a greeting, and shorter.
const STAYS_MS: std::ops::Range<u64> = 10..20_000;
const NOISE_BYTES_MAX: u64 = 300;

/// One stranger after the other, until it is dropped.
pub async fn run(shape: Shape) {
    loop {
        plinth_runtime::sleep(Duration::from_millis(below(20_000))).await;
        let _ = visit(&shape).await; // nobody minds a stranger who did not get through
    }
}

async fn visit(shape: &Shape) -> std::io::Result<()> {
    let machine = below(shape.machines as u64) as usize;
    let process = below(shape.processes_a_machine as u64) as usize;
    let (_reader, mut writer) = net::connect(Shape::address(machine, process)).await?;
    trace!("Stranger", "machine" => machine);
    if chance(0.5) {
        let mut noise = vec![0; below(NOISE_BYTES_MAX) as usize];
        if chance(0.7) {
            random::fill(&mut noise);
        }
        writer.write_all(Bytes::from(noise)).await?;
    }
    plinth_runtime::sleep(Duration::from_millis(range(STAYS_MS))).await;
    Ok(())
}
