//! Statistics of latencies, from histograms whose buckets end at 1 µs · 2ⁱ.

use super::counters::rounded;
use plinth_protocol::control::RequestLatency;
use serde_json::{Map, Value, json};

const QUANTILES: [(&str, f64); 6] = [
    ("median", 0.5),
    ("p25", 0.25),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
];

/// Times in seconds. A quantile lies in the right bucket: it is at most twice too long or too short.
pub fn statistics<'a>(latencies: impl Iterator<Item = &'a RequestLatency>) -> Value {
    let mut buckets: Vec<u64> = Vec::new();
    let (mut count, mut sum_s) = (0, 0.0);
    for latency in latencies {
        count += latency.count;
        sum_s += latency.sum_s;
        buckets.resize(buckets.len().max(latency.buckets.len()), 0);
        for (all, more) in buckets.iter_mut().zip(&latency.buckets) {
            *all += more;
        }
    }
    let mut out = Map::new();
    let mean = if count == 0 {
        0.0
    } else {
        sum_s / count as f64
    };
    out.insert("count".into(), json!(count));
    out.insert("mean".into(), json!(rounded(mean)));
    out.insert("min".into(), json!(rounded(quantile(&buckets, 0.0))));
    out.insert("max".into(), json!(rounded(quantile(&buckets, 1.0))));
    for (name, q) in QUANTILES {
        out.insert(name.into(), json!(rounded(quantile(&buckets, q))));
    }
    Value::Object(out)
}

/// As if the times in a bucket were spread evenly.
fn quantile(buckets: &[u64], q: f64) -> f64 {
    let count: u64 = buckets.iter().sum();
    let wanted = q * count as f64;
    let mut before = 0.0;
    for (i, n) in buckets.iter().enumerate().filter(|(_, n)| **n > 0) {
        let n = *n as f64;
        if before + n >= wanted {
            let end = 1e-6 * 2f64.powi(i as i32);
            let begin = if i == 0 { 0.0 } else { end / 2.0 };
            return begin + (end - begin) * (wanted - before) / n;
        }
        before += n;
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_in_its_bucket() {
        // Ten answers of up to 8 µs, 90 of 512 to 1,024 µs.
        let mut buckets = vec![0; 26];
        (buckets[3], buckets[10]) = (10, 90);
        assert_eq!(quantile(&buckets, 0.0), 4e-6);
        assert!((quantile(&buckets, 0.05) - 6e-6).abs() < 1e-12);
        assert!((512e-6..=1024e-6).contains(&quantile(&buckets, 0.5)));
        assert!((quantile(&buckets, 1.0) - 1024e-6).abs() < 1e-12);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
