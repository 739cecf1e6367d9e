//! Latencies of many operations, and their quantiles.

use hdrhistogram::Histogram;
use plinth_runtime::Duration;
use serde_json::{Value, json};

/// Longer latencies are recorded as this value.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// Significant digits of a recorded latency.
const LATENCY_DIGITS: u8 = 3;

/// An empty one, in nanoseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS).expect("the bounds are valid")
}

/// An empty one that takes little memory, for a run that keeps one of each second.
pub fn small_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1000, LATENCY_NS_MAX, 2).expect("the bounds are valid")
}

pub fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    histogram.saturating_record(latency.as_nanos().min(u128::from(LATENCY_NS_MAX)) as u64);
}

/// In milliseconds.
pub fn quantile_ms(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1e6
}

/// In milliseconds.
pub fn quantiles(histogram: &Histogram<u64>) -> Value {
    let ms = |q: f64| round(quantile_ms(histogram, q), 4);
    json!({
        "p50": ms(0.50),
        "p90": ms(0.90),
        "p99": ms(0.99),
        "p99_9": ms(0.999),
        "max": round(histogram.max() as f64 / 1e6, 4),
        "mean": round(histogram.mean() / 1e6, 4),
    })
}

/// The number with so many digits after its point.
pub fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}
