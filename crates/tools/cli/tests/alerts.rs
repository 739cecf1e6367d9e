//! The alert rules, as Prometheus understands them: `promtool` tries them on clusters in distress.

use crate::common::text;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn alerts_fire_for_the_cluster_that_is_in_distress_also_when_every_series_is_gone() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    for (words, file) in [
        (["check", "rules"], "alerts.yml"),
        (["test", "rules"], "alerts_test.yml"),
    ] {
        let output = Command::new(target.join("promtool/promtool"))
            .args(words)
            .arg(file)
            .current_dir(root.join("docs/monitoring"))
            .output()
            .expect("scripts/need-promtool has fetched it");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}
