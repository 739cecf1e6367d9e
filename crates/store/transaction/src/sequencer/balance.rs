//! Chooses which keys each resolver judges, so that all have about the same load. Pure.

use bytes::Bytes;

/// Recent load of a resolver.
pub struct Load {
    /// Conflict ranges judged.
    pub judged: u64,
    /// Where a sample of them begins.
    pub sample: Vec<Bytes>,
}

/// With fewer conflict ranges than this in total, nothing is balanced.
const JUDGED_MIN: u64 = 200;
/// The load of the busiest resolver may be this many times its share.
const UNEVEN: f64 = 1.25;
/// A new partition must reduce the load of the busiest part at least to this fraction.
const BETTER: f64 = 0.9;

/// Where each resolver's part should begin; `None` if the present parts are good enough. The first begin is always
/// empty.
pub fn repartition(begins: &[Bytes], loads: &[Load]) -> Option<Vec<Bytes>> {
    let total: u64 = loads.iter().map(|load| load.judged).sum();
    let share = total as f64 / loads.len() as f64;
    let worst = loads.iter().map(|load| load.judged).max()? as f64;
    if loads.len() < 2 || total < JUDGED_MIN || worst < UNEVEN * share {
        return None;
    }
    let mut weighted: Vec<(&Bytes, f64)> = Vec::new();
    for load in loads {
        let weight = load.judged as f64 / load.sample.len().max(1) as f64;
        weighted.extend(load.sample.iter().map(|key| (key, weight)));
    }
    weighted.sort_unstable_by_key(|(key, _)| *key);
    assert_eq!(begins.len(), loads.len(), "a load for each part");
    let wanted = quantiles(&weighted, loads.len())?;
    let after = worst_of(&weighted, &wanted);
    let before = worst_of(&weighted, begins);
    (wanted != begins && after <= BETTER * before).then_some(wanted)
}

/// Begins of parts with equal load; `None` if too few keys carry too much of the load.
fn quantiles(weighted: &[(&Bytes, f64)], parts: usize) -> Option<Vec<Bytes>> {
    let total: f64 = weighted.iter().map(|(_, weight)| weight).sum();
    let mut begins = vec![Bytes::new()];
    let mut sum = 0.0;
    for (key, weight) in weighted {
        let due = total * begins.len() as f64 / parts as f64;
        if begins.len() < parts && sum >= due && begins.last() < Some(key) {
            begins.push((*key).clone());
        }
        sum += weight;
    }
    (begins.len() == parts).then_some(begins)
}

/// Load of the busiest part. Both arguments are in key order.
fn worst_of(weighted: &[(&Bytes, f64)], begins: &[Bytes]) -> f64 {
    let mut sums = vec![0.0; begins.len()];
    for (key, weight) in weighted {
        let part = begins.partition_point(|begin| begin <= *key) - 1;
        sums[part] += weight;
    }
    sums.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(range: std::ops::Range<u32>) -> Vec<Bytes> {
        range.map(|i| Bytes::from(format!("{i:04}"))).collect()
    }

    fn load(judged: u64, sample: std::ops::Range<u32>) -> Load {
        Load {
            judged,
            sample: keys(sample),
        }
    }

    fn begins(texts: &[&'static str]) -> Vec<Bytes> {
        texts
            .iter()
            .map(|text| Bytes::from_static(text.as_bytes()))
            .collect()
    }

    #[test]
    fn the_busy_part_is_divided_among_all() {
        let now = begins(&["", "x", "y", "z"]);
        let loads = [
            load(8000, 0..400),
            load(0, 0..0),
            load(0, 0..0),
            load(0, 0..0),
        ];
        let wanted = repartition(&now, &loads).expect("all is with one");
        assert_eq!(wanted, begins(&["", "0100", "0200", "0300"]));
        let even = [
            load(2000, 0..100),
            load(2000, 100..200),
            load(2010, 200..300),
            load(1990, 300..400),
        ];
        assert_eq!(repartition(&wanted, &even), None);
    }

    #[test]
    fn a_resolver_that_judges_more_for_each_sampled_key_counts_more() {
        let now = begins(&["", "0100"]);
        let loads = [load(3000, 0..100), load(1000, 100..200)];
        let wanted = repartition(&now, &loads).expect("one has three quarters");
        assert_eq!(wanted, begins(&["", "0067"]));
    }

    #[test]
    fn little_work_and_work_that_cannot_be_divided_stay_where_they_are() {
        let now = begins(&["", "m"]);
        assert_eq!(repartition(&now, &[load(50, 0..50), load(0, 0..0)]), None);
        let one_key = Load {
            judged: 9000,
            sample: vec![Bytes::from("a"); 300],
        };
        assert_eq!(repartition(&now, &[one_key, load(0, 0..0)]), None);
        assert_eq!(repartition(&now, &[load(9000, 0..0), load(0, 0..0)]), None);
        assert_eq!(repartition(&now[..1], &[load(9000, 0..90)]), None);
    }
}
