//! The macros work in a crate that does not depend on what they use.

use plinth_runtime::sim::{SimConfig, Simulation};
use plinth_runtime::{buggify, probe, trace, trace_warn};

#[test]
fn macros_expand_outside_the_crate() {
    assert!(probe::all().contains(&"seen_from_outside"));
    let sim = Simulation::new(1, SimConfig::default());
    sim.run(async {
        probe!("seen_from_outside");
        trace!("Hello");
        trace_warn!("Trouble", "where" => "outside", "count" => 3,);
        assert!(!buggify!(), "this world is not hostile");
    });
    assert_eq!(probe::hits()["seen_from_outside"], 1);
    assert!(
        sim.trace_tail()[1].contains(
            "\"severity\":\"warn\",\"type\":\"Trouble\",\"where\":\"outside\",\"count\":3"
        )
    );
}
