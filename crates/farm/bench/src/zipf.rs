//! Rows by Zipf's distribution, as YCSB chooses them: J. Gray and others, *Quickly Generating Billion-Record Synthetic
//! Databases*, SIGMOD'94, §3.2.

use plinth_runtime::random::Generator;

/// Chooses among `rows`: the one of rank `r` with a probability proportional to `1 / (r + 1)^theta`. Ranks are spread
/// over the rows, so that those of neighbouring ranks are no neighbours.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    rows: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

/// An odd number, so that the multiplication reaches every row if their number is a power of two, and few twice else.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

fn zeta(rows: u64, theta: f64) -> f64 {
    (1..=rows).map(|rank| (rank as f64).powf(-theta)).sum()
}

impl Zipf {
    /// `theta` is at least 0, which is uniform, and below 1. There is at least one row.
    pub fn new(rows: u64, theta: f64) -> Zipf {
        let whole = zeta(rows, theta);
        let share = 1.0 - zeta(rows.min(2), theta) / whole;
        let eta = match rows > 2 {
            true => (1.0 - (2.0 / rows as f64).powf(1.0 - theta)) / share,
            false => 0.0,
        };
        Zipf {
            rows,
            theta,
            zeta: whole,
            alpha: 1.0 / (1.0 - theta),
            eta,
        }
    }

    /// 0 is the rank that comes most often.
    pub fn rank(&self, random: &mut Generator) -> u64 {
        if self.theta == 0.0 {
            return random.below(self.rows);
        }
        let unit = random.unit();
        let of_all = unit * self.zeta;
        if of_all < 1.0 {
            return 0;
        }
        if of_all < 1.0 + 0.5f64.powf(self.theta) {
            return 1.min(self.rows - 1);
        }
        let part = (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        ((self.rows as f64 * part) as u64).min(self.rows - 1)
    }

    pub fn row(&self, random: &mut Generator) -> u64 {
        let rank = self.rank(random);
        match self.theta == 0.0 {
            true => rank,
            false => rank.wrapping_mul(SPREAD) % self.rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_often_as_the_formula_says() {
        const TIMES: u64 = 200_000;
        for theta in [0.0, 0.5, 0.9, 0.99] {
            let zipf = Zipf::new(1000, theta);
            let mut random = Generator::new(1);
            let mut counts = vec![0u64; 1000];
            for _ in 0..TIMES {
                counts[zipf.rank(&mut random) as usize] += 1;
            }
            for first in [1, 2, 100] {
                let expected = zeta(first, theta) / zeta(1000, theta);
                let found = counts[..first as usize].iter().sum::<u64>() as f64 / TIMES as f64;
                // Gray's formula is an approximation from the third rank on.
                let most = (0.1 * expected).max(0.003);
                assert!(
                    (found - expected).abs() < most,
                    "{theta} {first}: {found}, {expected}"
                );
            }
        }
    }

    #[test]
    fn few_rows_are_all_there_and_nothing_else() {
        for rows in 1..5 {
            for theta in [0.0, 0.5, 0.99] {
                let (zipf, mut random) = (Zipf::new(rows, theta), Generator::new(rows));
                let chosen: std::collections::BTreeSet<u64> =
                    (0..500).map(|_| zipf.rank(&mut random)).collect();
                assert!(chosen.into_iter().eq(0..rows), "{rows} {theta}");
            }
        }
    }
}
