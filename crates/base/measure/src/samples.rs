//! Exact figures of samples that are all kept.

/// The sample that has this share of the others below it, rounded down, of sorted ones. `None` if there are none.
pub fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share) as usize).copied()
}

/// The one in the middle, or the mean of the two there. `None` if there are none.
pub fn median(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().checked_sub(1)?;
    Some(f64::midpoint(samples[last / 2], samples[last.div_ceil(2)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_samples() {
        let sorted: Vec<u32> = (0..=200).collect();
        let at = [0.0, 0.5, 0.99, 0.999, 1.0].map(|share| quantile(&sorted, share));
        assert_eq!(at, [0, 100, 198, 199, 200].map(Some));
        assert_eq!(quantile(&[7], 0.99), Some(7));
        assert_eq!(quantile::<u32>(&[], 0.5), None);
    }

    #[test]
    fn a_median_is_in_the_middle_of_samples_in_any_order() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
