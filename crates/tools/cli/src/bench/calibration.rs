//! The calibration that a measurement carries.

use crate::Outcome;
use plinth_measure::Calibration;
use std::path::Path;

/// The calibration in the file that the user named; without a file, calibrates this machine.
pub async fn of(file: Option<&Path>, directory: &Path) -> Outcome<Calibration> {
    let Some(path) = file else {
        let directory = directory.to_owned();
        return plinth_runtime::offload(move || Calibration::measure(&directory)).await;
    };
    let at = |what: String| format!("--calibration {}: {what}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| at(error.to_string()))?;
    let object = serde_json::from_str(&text).unwrap_or_default();
    Calibration::from_json(&object)
        .ok_or_else(|| at("it is not what `bench calibrate --json` prints".into()))
}
