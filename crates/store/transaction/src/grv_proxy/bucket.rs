//! A leaky bucket: admits at a given rate, and at most a tenth of a second's worth at once.

use plinth_runtime::{Duration, Instant};

/// Capacity of a bucket, in seconds of its rate.
const BURST_S: f64 = 0.1;

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// Tokens a second; infinite if there is no limit.
    rate: f64,
    /// Negative after admissions that did not wait for this bucket.
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub fn unlimited(now: Instant) -> Self {
        Bucket {
            rate: f64::INFINITY,
            tokens: 0.0,
            filled: now,
        }
    }

    fn depth(&self) -> f64 {
        (self.rate * BURST_S).max(1.0)
    }

    /// Changes the rate. Saved tokens are limited to the capacity at the new rate.
    pub fn set_rate(&mut self, now: Instant, rate: f64) {
        self.fill(now);
        let was_unlimited = self.rate.is_infinite();
        self.rate = if rate > 0.0 { rate } else { 0.0 };
        if was_unlimited {
            self.tokens = 0.0;
        }
        self.tokens = self.tokens.clamp(-self.depth(), self.depth());
    }

    fn fill(&mut self, now: Instant) {
        let elapsed_s = now.saturating_since(self.filled).as_secs_f64();
        self.filled = now;
        if self.rate.is_finite() {
            self.tokens = (self.tokens + self.rate * elapsed_s).min(self.depth());
        }
    }

    /// Number of transactions that it admits now.
    pub fn room(&mut self, now: Instant) -> u32 {
        if self.rate.is_infinite() {
            return u32::MAX;
        }
        self.fill(now);
        self.tokens.max(0.0) as u32
    }

    /// Draws `count` tokens. The debt is limited to the capacity of the bucket.
    pub fn draw(&mut self, count: u32) {
        if self.rate.is_finite() {
            self.tokens = (self.tokens - f64::from(count)).max(-self.depth());
        }
    }

    /// Time until it admits one transaction; a year stands for never.
    pub fn wait(&self) -> Duration {
        let missing = 1.0 - self.tokens;
        if self.rate.is_infinite() || missing <= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64((missing / self.rate).min(31e6))
    }
}
