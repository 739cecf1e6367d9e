//! How far a machine knows the time: the length of its interval, which strict transactions wait for.

use crate::measure::Latencies;
use crate::report::Report;
use plinth_farm_time::{Clock, Untimed};
use plinth_runtime::{Duration, now, sleep};
use serde_json::json;

const PAUSE: Duration = Duration::from_millis(1);

/// Looks at the clock for a while, about once a millisecond. Errors are a line for the user.
pub async fn measure(
    clock: &Clock,
    duration: Duration,
    who: &str,
    report: &mut Report,
) -> Result<(), String> {
    let until = now() + duration;
    let (mut lengths, mut without) = (Latencies::default(), 0u64);
    while now() < until {
        match clock.time() {
            Ok(interval) => {
                let length = interval.upper.saturating_sub(interval.lower);
                lengths.add(Duration::from_nanos(length));
            }
            Err(Untimed::Broken) => {
                return Err(format!("the clock of {who} has broken its bounds"));
            }
            Err(Untimed::Disabled | Untimed::Unsynchronised) => without += 1,
        }
        sleep(PAUSE).await;
    }
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|quantile| lengths.quantile_us(quantile));
    let line = format!(
        "uncertainty of {who:<31} p50 {p50:>8.2} us  p99 {p99:>8.2} us  most {most:>8.2} us  {without} looks without \
         the time"
    );
    let figure = json!({
        "uncertainty_of": who,
        "p50_us": p50,
        "p99_us": p99,
        "most_us": most,
        "looks": lengths.count(),
        "looks_without_the_time": without,
    });
    report.add(figure, line);
    Ok(())
}
