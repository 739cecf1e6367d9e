//! Clocks that jump: no timestamp of another time is given out, however little it is off.

use crate::{Broken, Clock, Notice, Server, Settings, Untimed};
use plinth_core::id::Uid;
use plinth_runtime::sim::{Locality, SimConfig, Simulation, control};
use plinth_runtime::{Duration, fault, sleep};

/// The clock of a master that is alone.
fn clock() -> Clock {
    let settings = Settings {
        bounds: crate::Bounds::default(),
        lease_ns: 100_000_000,
        sync_ns: 1_000_000,
        resend_ns: 1_000_000,
        origin: 0,
    };
    let clock = Clock::new(Server::new(Uid(1), settings));
    clock.update(|server, now| {
        server.propose(&[Uid(1)], now).expect("the first");
        server.taken(now);
    });
    clock
}

/// What the clock says after its machine's clock has jumped by so much.
fn after_a_jump(by_ns: i64) -> Result<u64, Broken> {
    let sim = Simulation::new(1, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    let said = sim.run_on(machine, async move {
        sleep(Duration::from_secs(10)).await;
        let clock = clock();
        for drift_ppm in [0, 400, -400] {
            control().set_clock_drift(machine, drift_ppm);
            clock.timestamp().await.expect("a time");
            sleep(Duration::from_secs(1)).await;
        }
        control().jump_clock(machine, by_ns);
        let said = clock.timestamp().await;
        if said.is_err() {
            assert_eq!(clock.time(), Err(Untimed::Broken));
            assert_eq!(clock.look(Server::floor), None, "nobody relies on it");
            let notices = clock.update(|server, _| server.take_notices());
            assert_eq!(notices, [Notice::Broken]);
        }
        said
    });
    said.expect("it ends")
}

#[test]
fn a_clock_that_has_jumped_gives_out_no_timestamp() {
    let hour_ns = 3_600_000_000_000;
    for by_ns in [2_000, 50_000, 20_000_000, hour_ns] {
        assert_eq!(after_a_jump(by_ns), Err(Broken));
        assert_eq!(after_a_jump(-by_ns), Err(Broken));
    }
    // No more than two readings may differ.
    assert!(after_a_jump(300).is_ok() && after_a_jump(-300).is_ok());
}

#[test]
fn a_jump_that_is_believed_gives_out_timestamps_of_another_time() {
    fault::plant(Some("farm_jump_is_believed"));
    let said = after_a_jump(20_000_000);
    fault::plant(None);
    assert!(said.is_ok());
    fault::found("farm_jump_is_believed");
}
